//! What tells one file from another, whatever its names.

use std::fs::File;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;

/// An inode. Its time of birth, where the file system knows it, tells it apart from a later one
/// with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct InodeKey {
    dev: (u32, u32),
    ino: u64,
    born: (i64, u32),
}

/// What the kernel says of an open file.
#[derive(Clone, Copy, Debug)]
pub(super) struct InodeFacts {
    pub key: InodeKey,
    /// Length, bytes.
    pub len: u64,
    /// Names that it has; 0 when the last was removed.
    pub links: u32,
}

impl InodeFacts {
    pub(super) fn of(file: &File) -> Result<Self, Errno> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let s = statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
        let knows_birth = s.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = knows_birth.then_some((s.stx_btime.tv_sec, s.stx_btime.tv_nsec));
        let key = InodeKey {
            dev: (s.stx_dev_major, s.stx_dev_minor),
            ino: s.stx_ino,
            born: born.unwrap_or_default(),
        };
        Ok(Self {
            key,
            len: s.stx_size,
            links: s.stx_nlink,
        })
    }
}
