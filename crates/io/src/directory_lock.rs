//! The record lock that keeps two processes off one directory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, fcntl_lock, mknodat};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::error::{IoError, IoErrorKind, IoOp};
use crate::locks;
use crate::wait_out_shortage::patiently;

/// How much of the holder's note is quoted in the error.
const NOTE_MAX: u64 = 256;

/// Files locked by this process, and whether they are being closed. Record locks do not exclude
/// threads of one process, and closing *any* descriptor of the file releases them; so a second lock
/// is refused before opening.
static HELD: LazyLock<Mutex<HashMap<(u64, u64), bool>>> = LazyLock::new(Mutex::default);

/// How long a new lock waits for one that is being closed. Its inode may be that of a new file
/// already, if the old one was deleted.
const CLOSING_MAX: Duration = Duration::from_secs(2);
const CLOSING_PAUSE: Duration = Duration::from_millis(2);

/// An exclusive fcntl record lock (`F_SETLK`) on a whole file, as Java's `FileChannel.tryLock()`
/// takes it, so that the two exclude each other; `flock(2)` would not.
///
/// Released by the kernel when the process ends in any way, and by dropping this. While it is
/// held, nothing else in the process may open and close the file.
#[derive(Debug)]
pub struct RecordLock {
    // Dropped before the reservation: else the close would release a newer lock.
    _file: File,
    path: PathBuf,
    reserved: Reserved,
}

/// This process's claim on an inode, whether or not the kernel's lock is held yet.
#[derive(Debug)]
struct Reserved((u64, u64));

impl Reserved {
    fn claim(id: (u64, u64)) -> Option<Self> {
        let until = Instant::now() + CLOSING_MAX;
        loop {
            match locks::lock(&HELD).entry(id) {
                Entry::Vacant(free) => {
                    free.insert(false);
                    return Some(Self(id));
                }
                Entry::Occupied(held) if !held.get() || Instant::now() >= until => return None,
                Entry::Occupied(_closing) => {}
            }
            thread::sleep(CLOSING_PAUSE);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        locks::lock(&HELD).remove(&self.0);
    }
}

/// Before the file is closed, which may take as long as its disk.
impl Drop for RecordLock {
    fn drop(&mut self) {
        locks::lock(&HELD).insert(self.reserved.0, true);
    }
}

impl RecordLock {
    /// Takes the lock without waiting; creates the file if needed, writes `contents` into it once
    /// the lock is held. Blocking.
    ///
    /// # Errors
    /// `Locked` when another holder exists, with its note quoted; else as opening and writing.
    pub fn acquire(path: &Path, contents: &[u8]) -> Result<Self, IoError> {
        let failed = |e: io::Error| IoError::from_std(IoOp::Lock, path, &e);
        let taken = |who: &str| {
            IoError::new(
                IoErrorKind::Locked,
                IoOp::Lock,
                path,
                format!("held by {who}"),
            )
        };
        create_unopened(path).map_err(failed)?;
        let before = std::fs::metadata(path).map_err(failed)?;
        let id = (before.dev(), before.ino());
        let reserved = Reserved::claim(id).ok_or_else(|| taken("this process"))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let mut file = patiently(|| options.open(path)).map_err(failed)?;
        let opened = file.metadata().map_err(failed)?;
        if (opened.dev(), opened.ino()) != id {
            return Err(IoError::new(
                IoErrorKind::Retry,
                IoOp::Lock,
                path,
                "replaced while it was being locked",
            ));
        }
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Err(taken(&note_of(&file))),
            Err(errno) => return Err(IoError::from_errno(IoOp::Lock, path, errno)),
        }
        file.set_len(0)
            .and_then(|()| file.write_all(contents))
            .map_err(failed)?;
        Ok(Self {
            _file: file,
            path: path.to_owned(),
            reserved,
        })
    }

    /// What the holder of the lock wrote into the file; `None` when nothing holds it, or there is
    /// no such file. Takes no lock, writes nothing. Blocking.
    ///
    /// # Errors
    /// As opening and reading.
    pub fn holder(path: &Path) -> Result<Option<String>, IoError> {
        let failed = |e: io::Error| IoError::from_std(IoOp::Lock, path, &e);
        let id = match std::fs::metadata(path) {
            Ok(there) => (there.dev(), there.ino()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        // Claimed, because closing the file would release a lock of this process.
        let Some(_reserved) = Reserved::claim(id) else {
            return Ok(Some("this process".to_owned()));
        };
        let file = File::open(path).map_err(failed)?;
        let whole = Flock::from(FlockType::WriteLock);
        let held = fcntl_getlk(&file, &whole)
            .map_err(|errno| IoError::from_errno(IoOp::Lock, path, errno))?;
        Ok(held.map(|_| note_of(&file)))
    }

    /// The locked file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates the file without a descriptor, whose closing could release a lock of this process.
fn create_unopened(path: &Path) -> io::Result<()> {
    match mknodat(
        CWD,
        path,
        FileType::RegularFile,
        Mode::from_raw_mode(0o644),
        0,
    ) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// What the holder wrote into the file, for the message.
fn note_of(file: &File) -> String {
    let mut note = Vec::new();
    // An unreadable note changes nothing.
    let _ = file.take(NOTE_MAX).read_to_end(&mut note);
    let note = String::from_utf8_lossy(&note)
        .trim()
        .replace(char::is_control, " ");
    if note.is_empty() {
        "another process".to_owned()
    } else {
        note
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_in_this_process_is_refused_until_the_first_is_dropped() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("in_use.lock");
        let first = RecordLock::acquire(&path, b"1@here").expect("free");
        let second = RecordLock::acquire(&path, b"2@here").expect_err("held");
        assert_eq!(second.kind(), IoErrorKind::Locked);
        assert_eq!(std::fs::read(&path).expect("readable"), b"1@here");
        let holder = RecordLock::holder(&path).expect("readable");
        assert_eq!(holder.as_deref(), Some("this process"));
        drop(first);
        assert_eq!(RecordLock::holder(&path).expect("readable"), None);
        RecordLock::acquire(&path, b"3@here").expect("free again");
        let missing = dir.path().join("missing");
        assert_eq!(RecordLock::holder(&missing).expect("no file"), None);
        assert!(!missing.exists());
    }

    #[test]
    fn a_new_lock_waits_for_the_one_that_is_being_closed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("in_use.lock");
        std::fs::write(&path, "").expect("writes");
        let facts = std::fs::metadata(&path).expect("there");
        let id = (facts.dev(), facts.ino());
        let closing = Reserved::claim(id).expect("free");
        locks::lock(&HELD).insert(id, true);
        let closer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(closing);
        });
        RecordLock::acquire(&path, b"1@here").expect("free soon");
        closer.join().expect("no panic");
    }
}
