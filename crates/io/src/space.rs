//! Room of a file system.

use std::path::Path;

use crate::error::{IoError, IoOp};

/// Space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system.
    pub capacity: u64,
    /// Free, including what is kept for root.
    pub free: u64,
    /// Free for this process.
    pub available: u64,
}

impl Space {
    /// That of the file system under `path`. Blocks.
    pub(crate) fn of_file_system(path: &Path) -> Result<Self, IoError> {
        let s = rustix::fs::statvfs(path);
        let s = s.map_err(|e| IoError::from_errno(IoOp::Space, path, e))?;
        let bytes = |blocks: u64| blocks.saturating_mul(s.f_frsize);
        Ok(Self {
            capacity: bytes(s.f_blocks),
            free: bytes(s.f_bfree),
            available: bytes(s.f_bavail),
        })
    }
}
