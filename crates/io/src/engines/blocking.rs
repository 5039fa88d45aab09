//! What sets one engine apart from another: how it opens a file, and the blocking calls on it.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::threaded::Threaded;
use crate::class::IoClass;
use crate::data_files::{DataFiles, Elsewhere};
use crate::disk::{Disk, Stream};
use crate::engine::{Advice, Capabilities, Engine, EngineFile, IoFuture, OpenMode, SyncKind};
use crate::error::{IoError, IoOp};
use crate::meta::Meta;

/// An engine whose calls block.
pub(super) trait BlockingEngine: Send + Sync + fmt::Debug + 'static {
    type File: Blocking;

    /// As [`Engine::name`].
    fn name(&self) -> &str;

    fn capabilities(&self) -> Capabilities;

    /// Opens a file; see [`Engine::open`] for the errors.
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

    /// As [`EngineFile::caches`], for reads of `_class`.
    fn caches(&self, _class: IoClass, _offset: u64) -> bool {
        false
    }

    /// As [`EngineFile::load`].
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

    /// As [`EngineFile::start_writeback`].
    fn start_writeback(&self, _offset: u64, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    /// As [`EngineFile::write_back`].
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

/// A [`BlockingEngine`] on the threads of a disk.
#[derive(Debug)]
pub(super) struct OnThreads<E> {
    pub(super) disk: Arc<Disk>,
    pub(super) engine: Arc<E>,
}

impl<E: BlockingEngine> Engine for OnThreads<E> {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
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
        let (disk, engine) = (Arc::clone(&self.disk), Arc::clone(&self.engine));
        self.disk.run(class, IoOp::Open, path, move |path| {
            let file = Arc::new(disk.aside(path, engine.open(path, mode)?));
            Ok(Arc::new(Threaded::new(file, disk, class)) as Arc<dyn EngineFile>)
        })
    }

    fn meta(&self, class: IoClass) -> Meta {
        let data_files = DataFiles::elsewhere(self.engine.elsewhere());
        Meta::new(Arc::clone(&self.disk), class).on(data_files)
    }
}
