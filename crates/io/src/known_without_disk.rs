//! Facts about an open file that need no answer of its disk.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, fstat, statx};

/// What the kernel knows about an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Number of the inode.
    pub inode: u64,
    /// Names that the file has; 0: it was removed.
    pub links: u64,
    /// Length in bytes.
    pub len: u64,
}

/// What is known about an open file without asking its server: on a network file system it may be a
/// little old, and one that gives no answer keeps no caller waiting. `None` when the kernel does
/// not say.
#[must_use]
pub fn known(fd: BorrowedFd<'_>) -> Option<Known> {
    let wanted = StatxFlags::INO | StatxFlags::NLINK | StatxFlags::SIZE;
    let at_once = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    if let Ok(facts) = statx(fd, "", at_once, wanted) {
        return Some(Known {
            inode: facts.stx_ino,
            links: facts.stx_nlink.into(),
            len: facts.stx_size,
        });
    }
    // Linux before 4.11, or a sandbox.
    let facts = fstat(fd).ok()?;
    Some(Known {
        inode: facts.st_ino,
        links: as_u64(facts.st_nlink),
        len: u64::try_from(facts.st_size).ok()?,
    })
}

/// Linux counts links with 32 bits on some processors, and with 64 on others.
fn as_u64(links: impl Into<u64>) -> u64 {
    links.into()
}
