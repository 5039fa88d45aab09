//! What sets one engine apart from another: how it opens a file, and the blocking calls on it.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::class::IoClass;
use crate::disk::Stream;
use crate::error::{IoError, IoOp};
use crate::space::Space;
use crate::types::{Advice, Capabilities, OpenMode, SyncKind};

/// An engine whose calls block.
pub(crate) trait BlockingEngine: Send + Sync + fmt::Debug + 'static {
    type File: Blocking;

    /// As [`Engine::name`](crate::Engine::name).
    fn name(&self) -> &str;

    fn capabilities(&self) -> Capabilities;

    /// Opens a file; see [`Engine::open`](crate::Engine::open) for the errors.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Self::File, IoError>;

    /// Where the bytes are, if not in the kernel's files.
    fn elsewhere(&self) -> Option<Arc<dyn Elsewhere>> {
        None
    }
}

/// An open file whose calls block. Its caller has checked the ranges.
pub(crate) trait Blocking: Send + Sync + fmt::Debug + 'static {
    fn path(&self) -> &Path;

    /// Fills the first `len` bytes of `target` from `offset` on; less only at the end of the file.
    /// What follows them in `target` is room for bytes that no caller asked for.
    fn read(&self, target: &mut [u8], len: usize, offset: u64) -> Result<usize, IoError>;

    /// What can be read without waiting, and whether that is all there is. May be called on an
    /// async thread.
    fn read_at_once(&self, _target: &mut [u8], _offset: u64) -> (usize, bool) {
        (0, false)
    }

    /// As [`EngineFile::caches`](crate::EngineFile::caches), for reads of `_class`.
    fn caches(&self, _class: IoClass, _offset: u64) -> bool {
        false
    }

    /// As [`EngineFile::load`](crate::EngineFile::load).
    fn load(&self, _offset: u64, _len: usize) -> Result<usize, IoError> {
        Ok(0)
    }

    /// Writes `bufs` from `offset` on; the count is what was written before the error, if any.
    fn write(&self, bufs: &[&Bytes], offset: u64) -> (usize, Result<(), IoError>);

    /// The place on the device that a transfer goes to; `None` when it stays in memory.
    fn stream(&self, _op: IoOp, _offset: u64, _len: usize) -> Option<Stream> {
        None
    }

    /// Tells a device that the range holds nothing any more. A hint.
    fn trim(&self, _offset: u64, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn allocate(&self, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<(), IoError>;

    fn sync(&self, kind: SyncKind) -> Result<(), IoError>;

    /// As [`EngineFile::start_writeback`](crate::EngineFile::start_writeback).
    fn start_writeback(&self, _offset: u64, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    /// As [`EngineFile::write_back`](crate::EngineFile::write_back).
    fn write_back(&self, _offset: u64, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn advise(&self, _advice: Advice, _offset: u64, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn length(&self) -> Result<u64, IoError>;

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Where content is that the kernel's files do not have.
pub(crate) trait Elsewhere: Send + Sync + std::fmt::Debug {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Box<dyn Blocking>, IoError>;

    fn space(&self) -> Result<Space, IoError>;

    /// Makes durable what an earlier process wrote.
    fn sync(&self) -> Result<(), IoError>;

    /// What is wrong with the device though it can be used, in words for the operator.
    fn damage(&self) -> Option<String>;

    /// Whether the device answers, and is the one that it was.
    fn probe(&self) -> Result<(), IoError>;
}
