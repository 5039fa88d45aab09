//! From blocking calls to the contract of [`Engine`] and [`EngineFile`]: hand-over to the disk's
//! threads.

use std::fmt;
use std::future::ready;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::queue_of_writes::{Write, WriteQueue};
use super::whole_transfers::at;
use crate::blocking_engine::{Blocking, BlockingEngine};
use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::data_files::DataFiles;
use crate::disk::{Aside, Disk, Request};
use crate::engine::{Engine, EngineFile, without_bytes};
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::names_and_directories::Meta;
use crate::types::{Advice, Capabilities, Completion, IoFuture, OpenMode, SyncKind};

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

/// An [`EngineFile`] that makes the calls of a [`Blocking`] on the disk's threads.
pub(super) struct Threaded<B: Blocking> {
    writes: Arc<WriteQueue<B>>,
    disk: Arc<Disk>,
}

impl<B: Blocking> Threaded<B> {
    pub(super) fn new(file: Arc<Aside<B>>, disk: Arc<Disk>, class: IoClass) -> Self {
        let writes = Arc::new(WriteQueue::new(file, disk.data_lane(), class));
        Self { writes, disk }
    }

    fn file(&self) -> &Arc<Aside<B>> {
        &self.writes.file
    }

    fn run<T, F>(&self, op: IoOp, work: F) -> IoFuture<Result<T, IoError>>
    where
        T: Send + 'static,
        F: FnOnce(&B) -> Result<T, IoError> + Send + 'static,
    {
        let file = Arc::clone(self.file());
        let class = self.writes.class;
        self.disk.run(class, op, self.path(), move |_| work(&file))
    }

    /// Has a thread do `work` when it is its turn among the disk's reads and writes. `work` gives
    /// its value and the bytes it moved; `lost` makes a value of the error when it panicked.
    fn transfer<T: Send + 'static>(
        &self,
        op: IoOp,
        (offset, len): (u64, u64),
        work: impl FnOnce(&B) -> (T, u64) + Send + 'static,
        lost: fn(IoError) -> T,
    ) -> IoFuture<T> {
        let file = Arc::clone(self.file());
        let some = usize::try_from(len).unwrap_or(usize::MAX);
        let request = Request {
            class: self.writes.class,
            stream: file.stream(op, offset, some),
            bytes: len,
        };
        let done = self.disk.transfer(request, move || work(&file));
        let file = Arc::clone(self.file());
        Box::pin(async move {
            let value = done.await;
            value.unwrap_or_else(|| lost(closed(op, file.path())))
        })
    }
}

impl<B: Blocking> fmt::Debug for Threaded<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threaded")
            .field("file", self.file())
            .field("class", &self.writes.class)
            .finish_non_exhaustive()
    }
}

/// How many bytes a transfer moved.
fn moved(result: &Result<usize, IoError>) -> u64 {
    at(0, *result.as_ref().unwrap_or(&0))
}

impl<B: Blocking> EngineFile for Threaded<B> {
    fn path(&self) -> &Path {
        self.file().path()
    }

    fn with_class(&self, class: IoClass) -> Arc<dyn EngineFile> {
        let (file, disk) = (Arc::clone(self.file()), Arc::clone(&self.disk));
        Arc::new(Self::new(file, disk, class))
    }

    fn read_at(
        &self,
        mut buf: AlignedBuf,
        offset: u64,
        len: usize,
    ) -> IoFuture<Completion<AlignedBuf>> {
        buf.set_len(0);
        let checked = check_range(IoOp::Read, self.path(), offset, len, buf.capacity());
        if let Err(error) = checked {
            let result = Err(error);
            return Box::pin(ready(Completion { buf, result }));
        }
        let target = &mut buf.as_mut_capacity()[..len];
        let (there, whole) = self.file().read_at_once(target, offset);
        if whole {
            buf.set_len(there);
            let result = Ok(there);
            return Box::pin(ready(Completion { buf, result }));
        }
        let work = move |file: &B| {
            let target = &mut buf.as_mut_capacity()[there..];
            let rest = file.read(target, len - there, at(offset, there));
            let result = rest.map(|n| there + n);
            buf.set_len(*result.as_ref().unwrap_or(&0));
            let bytes = moved(&result);
            (Completion { buf, result }, bytes)
        };
        self.transfer(IoOp::Read, (offset, at(0, len)), work, |error| Completion {
            buf: AlignedBuf::empty(),
            result: Err(error),
        })
    }

    fn caches(&self, offset: u64) -> bool {
        self.file().caches(self.writes.class, offset)
    }

    fn load(&self, offset: u64, len: usize) -> IoFuture<Result<usize, IoError>> {
        if let Err(error) = check_range(IoOp::Read, self.path(), offset, len, len) {
            return Box::pin(ready(Err(error)));
        }
        let work = move |file: &B| {
            let result = file.load(offset, len);
            let bytes = moved(&result);
            (result, bytes)
        };
        self.transfer(IoOp::Read, (offset, at(0, len)), work, Err)
    }

    fn write_at(&self, bufs: Vec<Bytes>, offset: u64) -> IoFuture<Completion<Vec<Bytes>>> {
        let len = total_len(&bufs);
        if let Err(error) = check_range(IoOp::Write, self.path(), offset, len, len) {
            return Box::pin(ready(Completion {
                buf: bufs,
                result: Err(error),
            }));
        }
        let (tell, done) = oneshot::channel();
        let writes = Arc::clone(&self.writes);
        let waiting = self.disk.with_place(writes.class, move |place| {
            writes.push(Write {
                bufs,
                offset,
                len,
                tell,
                place,
            });
        });
        let file = Arc::clone(self.file());
        Box::pin(async move {
            waiting.await;
            done.await.unwrap_or_else(|_| Completion {
                buf: Vec::new(),
                result: Err(closed(IoOp::Write, file.path())),
            })
        })
    }

    fn write_here(&self, bufs: &[Bytes], offset: u64) -> Result<usize, IoError> {
        let len = total_len(bufs);
        check_range(IoOp::Write, self.path(), offset, len, len)?;
        let bufs: Vec<&Bytes> = bufs.iter().collect();
        let (done, result) = self.file().write(&bufs, offset);
        result.map(|()| done)
    }

    without_bytes!(run);

    fn write_back(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        let work = move |file: &B| (file.write_back(offset, len), len);
        self.transfer(IoOp::Writeback, (offset, len), work, Err)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file().fd()
    }
}

/// Checks that a transfer fits its buffer and stays within what file offsets can say.
fn check_range(
    op: IoOp,
    path: &Path,
    offset: u64,
    len: usize,
    capacity: usize,
) -> Result<(), IoError> {
    let end = u64::try_from(len)
        .ok()
        .and_then(|len| offset.checked_add(len));
    if len <= capacity && end.is_some_and(|end| i64::try_from(end).is_ok()) {
        return Ok(());
    }
    let context = format!("{len} bytes at {offset} with a buffer of {capacity}");
    Err(IoError::new(IoErrorKind::Invalid, op, path, context))
}

/// The sum of the lengths, or the largest number when it does not fit.
fn total_len(bufs: &[Bytes]) -> usize {
    bufs.iter()
        .fold(0_usize, |sum, b| sum.saturating_add(b.len()))
}

/// The error when a worker died with the operation; only a panic in this crate can cause it.
fn closed(op: IoOp, path: &Path) -> IoError {
    IoError::new(IoErrorKind::Closed, op, path, "the worker gave no answer")
}
