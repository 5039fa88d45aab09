//! Images and edits of NameNodes in shared memory.

use std::fs::File;
use std::path::Path;
use tempfile::TempDir;

/// Where they are, and what has to be free there, bytes: a NameNode stops to take changes when less
/// than 100 MiB are.
const MEMORY: &str = "/dev/shm";
const MEMORY_FREE: u64 = 1 << 30;
const PREFIX: &str = "hayloft-names-";
/// Locked for as long as the directory that it is in is in use.
const LOCK: &str = "lock";

/// A directory in shared memory. It goes when this does; one whose process was killed, when the
/// next one is made.
#[derive(Debug)]
pub struct NamesInMemory {
    dir: TempDir,
    /// Held, not used.
    _lock: File,
}

impl NamesInMemory {
    /// One, if there is room for what NameNodes keep.
    pub fn new() -> Option<Self> {
        sweep(Path::new(MEMORY));
        let stat = rustix::fs::statvfs(MEMORY).ok()?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < MEMORY_FREE {
            return None;
        }
        Self::within(Path::new(MEMORY))
    }

    fn within(parent: &Path) -> Option<Self> {
        let mut builder = tempfile::Builder::new();
        let dir = builder.prefix(PREFIX).tempdir_in(parent).ok()?;
        let path = dir.path().join(LOCK);
        let lock = File::create_new(&path).ok()?;
        lock.try_lock().ok()?;
        // Another one's sweep may have come between the two, and removed it.
        path.exists().then_some(())?;
        Some(Self { dir, _lock: lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes directories that no process holds any more. One without the file to lock is being made.
fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_one = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let Some(lock) = is_one
            .then(|| File::open(entry.path().join(LOCK)).ok())
            .flatten()
        else {
            continue;
        };
        if lock.try_lock().is_ok() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().expect("a directory");
        let in_use = NamesInMemory::within(parent.path()).expect("makes one");
        let NamesInMemory { dir, _lock } = NamesInMemory::within(parent.path()).expect("another");
        let left = dir.keep();
        drop(_lock);
        let other = parent.path().join("hayloft-other-1");
        std::fs::create_dir(&other).expect("makes it");
        sweep(parent.path());
        assert!(in_use.path().exists() && other.exists() && !left.exists());
        let gone = in_use.path().to_owned();
        drop(in_use);
        assert!(!gone.exists());
    }
}
