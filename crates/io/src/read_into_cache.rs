//! Reading into the page cache and nowhere else.
//!
//! What is to be sent from the page cache has to be read into it first. A hint
//! (`POSIX_FADV_WILLNEED`, `readahead(2)`) puts it into pages of the least size, which cost the
//! code that uses them; a read makes large ones, and a copy that is not used. So pages are moved
//! into a pipe, which takes references to them, and from there to nowhere: the kernel reads them as
//! for any reader (docs/decisions/0006).

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::locks;

/// Room in a pipe, bytes: the most that the kernel gives to any process (`fs.pipe-max-size`). As
/// much is asked of the file at once, which is what the kernel goes by when it is told to read
/// little ahead.
const ROOM: usize = 1 << 20;

/// Pipes that are kept for later: as many as loads go on at once, up to a quarter of what the
/// kernel lets one user have of this size (`fs.pipe-user-pages-soft`).
const KEPT_MAX: usize = 16;

static KEPT: Mutex<Vec<Pipe>> = Mutex::new(Vec::new());

/// A pipe to nowhere; empty between calls.
struct Pipe {
    in_end: OwnedFd,
    out_end: OwnedFd,
    nowhere: File,
}

impl Pipe {
    /// A user with many gets small ones from the kernel, of which none is made: a buffer is
    /// quicker then.
    fn new() -> Result<Self, Errno> {
        let nowhere = OpenOptions::new().write(true).open("/dev/null");
        let nowhere = nowhere.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        let (out_end, in_end) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setpipe_size(&in_end, ROOM)?;
        Ok(Self {
            in_end,
            out_end,
            nowhere,
        })
    }

    fn take() -> Result<Self, Errno> {
        let kept = locks::lock(&KEPT).pop();
        kept.map_or_else(Self::new, Ok)
    }

    fn keep(self) {
        let mut kept = locks::lock(&KEPT);
        if kept.len() < KEPT_MAX {
            kept.push(self);
        }
    }

    /// Takes up to `len` bytes in and lets them out again; 0 at the end of the file.
    fn pass(&self, file: &File, offset: u64, len: usize) -> Result<usize, Errno> {
        let (mut at, flags) = (offset, SpliceFlags::empty());
        let taken = again(|| {
            splice(
                file,
                Some(&mut at),
                &self.in_end,
                None,
                len.min(ROOM),
                flags,
            )
        })?;
        let mut left = taken;
        while left > 0 {
            match again(|| splice(&self.out_end, None, self.nowhere.as_fd(), None, left, flags))? {
                // A page that was cut off the file meanwhile. Not to loop on.
                0 => return Err(Errno::IO),
                gone => left -= gone,
            }
        }
        Ok(taken)
    }
}

/// Has `len` bytes of `file` from `offset` on read into the page cache; how many of them there
/// were.
pub(crate) fn load(file: &File, offset: u64, len: usize) -> Result<usize, Errno> {
    let (done, pipe) = load_by(Pipe::take()?, file, offset, len)?;
    pipe.keep();
    Ok(done)
}

/// The same by a pipe, which comes back when it is empty for certain: not after an error.
fn load_by(pipe: Pipe, file: &File, offset: u64, len: usize) -> Result<(usize, Pipe), Errno> {
    let mut done = 0;
    while done < len {
        let at = offset + u64::try_from(done).expect("usize fits in u64 on Linux");
        match pipe.pass(file, at, len - done)? {
            0 => break,
            taken => done += taken,
        }
    }
    Ok((done, pipe))
}

/// Until no signal comes between.
fn again(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::is_resident;

    #[test]
    fn what_was_dropped_is_there_again() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory on a disk");
        let path = dir.path().join("file");
        let len = 3 * ROOM + 100;
        std::fs::write(&path, vec![7; len]).expect("written");
        let file = File::open(path).expect("there");
        file.sync_all().expect("clean");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
        if is_resident(file.as_fd(), 0, 4096) {
            eprintln!("skipped: this file system keeps everything in memory");
            return;
        }
        assert_eq!(load(&file, 4096, 2 * ROOM), Ok(2 * ROOM));
        if crate::system_calls::cached_pages(file.as_fd(), 0, 4096).is_err() {
            eprintln!("not looked at: this kernel has no cachestat");
        } else {
            assert!(is_resident(file.as_fd(), 4096, 2 * ROOM as u64));
        }
        let end = len as u64;
        assert_eq!(load(&file, end - 100, ROOM), Ok(100), "up to the end");
        assert_eq!(load(&file, end, ROOM), Ok(0), "at the end");
        assert_eq!(load(&file, end + 9, 1), Ok(0), "beyond it");
        assert_eq!(load(&file, 0, 0), Ok(0));
    }

    #[test]
    fn a_pipe_that_is_not_emptied_is_an_error() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        std::fs::write(&path, [7; 5000]).expect("written");
        let file = File::open(&path).expect("there");
        let mut pipe = Pipe::new().expect("descriptors left");
        // Takes nothing: what is in the pipe stays there.
        pipe.nowhere = File::open("/dev/null").expect("there");
        let stuck = load_by(pipe, &file, 0, 10).map(|(done, _)| done);
        assert_eq!(stuck, Err(Errno::BADF));
        assert_eq!(load(&file, 0, 5000), Ok(5000));
    }

    #[test]
    fn no_more_pipes_are_kept_than_allowed() {
        let pipes: Vec<Pipe> = (0..=KEPT_MAX).map_while(|_| Pipe::new().ok()).collect();
        pipes.into_iter().for_each(Pipe::keep);
        let kept = locks::lock(&KEPT);
        assert!(kept.len() <= KEPT_MAX, "{}", kept.len());
    }
}
