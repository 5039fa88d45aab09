//! `null`: drops what is written, reads zeros; measures what everything above the disk costs.
//!
//! Lengths are kept: of open files in this process, and on the real (sparse) file after a sync,
//! truncate or length call and when the last handle is closed. A directory walk before that sees
//! an older length.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rustix::io::Errno;

use super::EngineConfig;
use super::placeholder::{InodeKey, Inodes};
use super::posix::open_regular;
use super::threaded::{Blocking, Threaded};
use crate::class::IoClass;
use crate::disk::Disk;
use crate::engine::{Advice, Capabilities, Engine, EngineFile, IoFuture, OpenMode, SyncKind};
use crate::error::{IoError, IoOp};
use crate::meta::Meta;

/// Drops data. See the [module](self).
#[derive(Debug)]
pub struct Null {
    disk: Arc<Disk>,
    lengths: Arc<Inodes<AtomicU64>>,
}

impl Null {
    /// The engine on the disk of `config`.
    #[must_use]
    pub fn new(config: &EngineConfig) -> Self {
        Self {
            disk: Arc::clone(&config.disk),
            lengths: Arc::default(),
        }
    }
}

impl Engine for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            preferred_alignment: 1,
            page_cache: false,
            memory_alignment: 1,
            descriptor: false,
            kernel_visible: false,
            survives_kill: false,
            durable_sync: false,
            keeps_data: false,
        }
    }

    fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        class: IoClass,
    ) -> IoFuture<Result<Arc<dyn EngineFile>, IoError>> {
        let (disk, lengths) = (Arc::clone(&self.disk), Arc::clone(&self.lengths));
        self.disk.run(class, IoOp::Open, path, move |path| {
            let (file, _) = open_regular(path, mode)?;
            let key = InodeKey::of_file(&file, path)?;
            let len = file
                .metadata()
                .map_err(|e| IoError::from_std(IoOp::Open, path, &e))?
                .len();
            lengths.forget_unused();
            let length = lengths.entry(key, mode == OpenMode::CreateNew, || AtomicU64::new(len));
            let writable = mode != OpenMode::ReadOnly;
            let file = NullFile {
                file,
                path: path.to_owned(),
                writable,
                length,
            };
            let file = Arc::new(disk.aside(path, file));
            Ok(Arc::new(Threaded::new(file, disk, class)) as Arc<dyn EngineFile>)
        })
    }

    fn meta(&self, class: IoClass) -> Meta {
        Meta::new(Arc::clone(&self.disk), class)
    }
}

#[derive(Debug)]
struct NullFile {
    file: File,
    path: PathBuf,
    writable: bool,
    length: Arc<AtomicU64>,
}

impl NullFile {
    /// Gives the real file the logical length.
    fn settle(&self) -> Result<u64, Errno> {
        let len = self.length.load(Ordering::Acquire);
        if self.writable {
            rustix::fs::ftruncate(&self.file, len)?;
        }
        Ok(len)
    }
}

impl Drop for NullFile {
    fn drop(&mut self) {
        // One quick call without data; no caller is left to hear of an error.
        let _ = self.settle();
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
            return (
                0,
                Err(IoError::from_errno(IoOp::Write, &self.path, Errno::BADF)),
            );
        }
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        if len > 0 {
            let end = offset + u64::try_from(len).expect("usize fits in u64 on Linux");
            self.length.fetch_max(end, Ordering::AcqRel);
        }
        (len, Ok(()))
    }

    fn allocate(&self, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<(), IoError> {
        if !self.writable {
            return Err(IoError::from_errno(IoOp::Truncate, &self.path, Errno::BADF));
        }
        self.length.store(len, Ordering::Release);
        self.settle()
            .map(drop)
            .map_err(|e| IoError::from_errno(IoOp::Truncate, &self.path, e))
    }

    fn sync(&self, _kind: SyncKind) -> Result<(), IoError> {
        self.settle()
            .map(drop)
            .map_err(|e| IoError::from_errno(IoOp::Sync, &self.path, e))
    }

    fn start_writeback(&self, _offset: u64, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn advise(&self, _advice: Advice, _offset: u64, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn length(&self) -> Result<u64, IoError> {
        self.settle()
            .map_err(|e| IoError::from_errno(IoOp::Length, &self.path, e))
    }
}
