//! `null`: drops what is written, reads zeros; measures what everything above the disk costs.
//!
//! The engine keeps the lengths of open files in this process. The real (sparse) file gets its
//! length by a sync, truncate or length call, and when the last handle is closed. A directory walk
//! before that sees an older one.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;

use super::blocking::{Blocking, BlockingEngine};
use super::calls::at;
use super::file::open_regular;
use crate::engine::{Capabilities, OpenMode, SyncKind};
use crate::error::{IoError, IoOp};

/// Drops data. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Null {
    lengths: Mutex<HashMap<InodeKey, Arc<AtomicU64>>>,
}

/// An inode. Its time of birth, where the file system knows it, tells it apart from a later one
/// with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct InodeKey {
    dev: (u32, u32),
    ino: u64,
    born: (i64, u32),
}

impl InodeKey {
    /// The key of an open file, and its length.
    fn of(file: &File) -> Result<(Self, u64), Errno> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let s = statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
        let knows_birth = s.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = knows_birth.then_some((s.stx_btime.tv_sec, s.stx_btime.tv_nsec));
        let key = Self {
            dev: (s.stx_dev_major, s.stx_dev_minor),
            ino: s.stx_ino,
            born: born.unwrap_or_default(),
        };
        Ok((key, s.stx_size))
    }
}

impl BlockingEngine for Null {
    type File = NullFile;

    fn name(&self) -> &str {
        "null"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            page_cache: false,
            memory_alignment: 1,
            descriptor: false,
            keeps_data: false,
        }
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<NullFile, IoError> {
        let (file, _) = open_regular(path, mode)?;
        let found = InodeKey::of(&file);
        let (key, len) = found.map_err(|e| IoError::from_errno(IoOp::Open, path, e))?;
        let mut lengths = self.lengths.lock().unwrap_or_else(PoisonError::into_inner);
        // Lengths that no open file has any more, and that of an earlier file of this inode.
        lengths.retain(|known, length| {
            Arc::strong_count(length) > 1 && (mode != OpenMode::CreateNew || *known != key)
        });
        let length = lengths
            .entry(key)
            .or_insert_with(|| Arc::new(AtomicU64::new(len)));
        Ok(NullFile {
            file,
            path: path.to_owned(),
            writable: mode != OpenMode::ReadOnly,
            length: Arc::clone(length),
        })
    }
}

#[derive(Debug)]
pub(super) struct NullFile {
    file: File,
    path: PathBuf,
    writable: bool,
    length: Arc<AtomicU64>,
}

impl NullFile {
    /// Gives the real file the logical length, for `op`.
    fn settle(&self, op: IoOp) -> Result<u64, IoError> {
        let len = self.length.load(Ordering::Acquire);
        if self.writable {
            rustix::fs::ftruncate(&self.file, len).map_err(|e| self.failed(op, e))?;
        }
        Ok(len)
    }

    fn failed(&self, op: IoOp, errno: Errno) -> IoError {
        IoError::from_errno(op, &self.path, errno)
    }
}

impl Drop for NullFile {
    fn drop(&mut self) {
        // One quick call without data; no caller is left to hear of an error.
        let _ = self.settle(IoOp::Other);
    }
}

impl Blocking for NullFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, target: &mut [u8], len: usize, offset: u64) -> Result<usize, IoError> {
        let there = self.length.load(Ordering::Acquire).saturating_sub(offset);
        let len = usize::try_from(there).unwrap_or(usize::MAX).min(len);
        target[..len].fill(0);
        Ok(len)
    }

    fn write(&self, bufs: &[&Bytes], offset: u64) -> (usize, Result<(), IoError>) {
        if !self.writable {
            return (0, Err(self.failed(IoOp::Write, Errno::BADF)));
        }
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        if len > 0 {
            self.length.fetch_max(at(offset, len), Ordering::AcqRel);
        }
        (len, Ok(()))
    }

    fn truncate(&self, len: u64) -> Result<(), IoError> {
        if !self.writable {
            return Err(self.failed(IoOp::Truncate, Errno::BADF));
        }
        self.length.store(len, Ordering::Release);
        self.settle(IoOp::Truncate).map(drop)
    }

    fn sync(&self, _kind: SyncKind) -> Result<(), IoError> {
        self.settle(IoOp::Sync).map(drop)
    }

    fn length(&self) -> Result<u64, IoError> {
        self.settle(IoOp::Length)
    }
}
