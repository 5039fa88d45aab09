//! `null`: drops what is written, reads zeros; measures what everything above the disk costs.
//!
//! The engine keeps the lengths of open files in this process. The real (sparse) file gets its
//! length by a sync, truncate or length call, and when the last handle is closed. A directory walk
//! before that sees an older one.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustix::io::Errno;

use super::inode::{InodeFacts, InodeKey};
use super::regular_file::open_regular;
use super::whole_transfers::at;
use crate::blocking_engine::{Blocking, BlockingEngine};
use crate::error::{IoError, IoOp};
use crate::locks;
use crate::types::{Capabilities, OpenMode, SyncKind};

/// Drops data. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Null {
    lengths: Mutex<HashMap<InodeKey, Arc<AtomicU64>>>,
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
            stubs: false,
        }
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<NullFile, IoError> {
        let (file, _) = open_regular(path, mode)?;
        let mut lengths = locks::lock(&self.lengths);
        // Lengths that no open file has any more: each is that of its real file now. The file says
        // its own only after this, as the last handle may have closed just before.
        lengths.retain(|_, length| Arc::get_mut(length).is_none());
        let found = InodeFacts::of(&file);
        let InodeFacts { key, len, .. } =
            found.map_err(|e| IoError::from_errno(IoOp::Open, path, e))?;
        if mode == OpenMode::CreateNew {
            // That of an earlier file of this inode.
            lengths.remove(&key);
        }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The last handle of a file closes while another opens it: the length is what was written.
    #[test]
    fn a_length_is_kept_while_the_last_handle_closes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f");
        let engine = Null::default();
        let writer = engine.open(&path, OpenMode::CreateNew).expect("opens");
        let data = Bytes::from_static(b"one two");
        writer.write(&[&data], 0).1.expect("written");
        let reader = std::thread::scope(|scope| {
            let lengths = locks::lock(&engine.lengths);
            let reader = scope.spawn(|| engine.open(&path, OpenMode::ReadOnly));
            // It waits for the lengths by then; a slower one sees the file as it was closed.
            std::thread::sleep(Duration::from_millis(100));
            drop(writer);
            drop(lengths);
            reader.join().expect("no panic").expect("opens")
        });
        assert_eq!(reader.length().ok(), Some(7));
    }
}
