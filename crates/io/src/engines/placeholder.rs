//! Files that stand for contents kept elsewhere: of the logical length, but without data, so that
//! directory walks, renames, links and removal work on the real file system.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use rustix::io::Errno;

use crate::error::{IoError, IoOp};

/// An inode, told apart from a later one with the same number by its time of birth (where the
/// file system knows it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct InodeKey {
    dev: (u32, u32),
    ino: u64,
    born: (i64, u32),
}

impl InodeKey {
    pub(super) fn of_file(file: &File, path: &Path) -> Result<Self, IoError> {
        let found = statx(
            file,
            "",
            AtFlags::EMPTY_PATH,
            StatxFlags::BASIC_STATS | StatxFlags::BTIME,
        );
        found
            .map(|s| Self::of(&s))
            .map_err(|e| IoError::from_errno(IoOp::Open, path, e))
    }

    /// The key, and how many names the inode has.
    pub(super) fn of_path(path: &Path) -> Result<(Self, u32), Errno> {
        let s = statx(
            CWD,
            path,
            AtFlags::SYMLINK_NOFOLLOW,
            StatxFlags::BASIC_STATS | StatxFlags::BTIME,
        )?;
        Ok((Self::of(&s), s.stx_nlink))
    }

    fn of(s: &Statx) -> Self {
        let known = StatxFlags::from_bits_retain(s.stx_mask).contains(StatxFlags::BTIME);
        let born = if known {
            (s.stx_btime.tv_sec, s.stx_btime.tv_nsec)
        } else {
            (0, 0)
        };
        Self {
            dev: (s.stx_dev_major, s.stx_dev_minor),
            ino: s.stx_ino,
            born,
        }
    }
}

/// What an engine instance knows about inodes.
#[derive(Debug)]
pub(super) struct Inodes<T>(Mutex<HashMap<InodeKey, Arc<T>>>);

impl<T> Default for Inodes<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Inodes<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<InodeKey, Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry of `key`, made when there is none or when the file is `new`.
    pub(super) fn entry(&self, key: InodeKey, new: bool, make: impl FnOnce() -> T) -> Arc<T> {
        let mut known = self.lock();
        if new {
            known.remove(&key);
        }
        Arc::clone(known.entry(key).or_insert_with(|| Arc::new(make())))
    }

    /// Forgets an inode; open handles keep what they have.
    pub(super) fn forget(&self, key: &InodeKey) {
        let forgotten = self.lock().remove(key);
        drop(forgotten); // Outside the lock: it may be large.
    }

    /// Forgets what only this map still knows.
    pub(super) fn forget_unused(&self) {
        self.lock().retain(|_, entry| Arc::strong_count(entry) > 1);
    }
}
