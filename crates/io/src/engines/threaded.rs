//! From blocking calls to the [`EngineFile`] contract: hand-over to the disk's threads.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::disk::{Aside, DataLane, Disk, Place, Request, Stream};
use crate::engine::{Advice, Completion, EngineFile, IoFuture, SyncKind};
use crate::error::{IoError, IoErrorKind, IoOp};

/// A writer gives its thread to others after this many bytes, when more is waiting.
const WRITE_TURN_BYTES: usize = 8 << 20;

/// Adjacent writes that are waiting are joined up to this many bytes and buffers.
const JOIN_BYTES: usize = 4 << 20;
const JOIN_BUFFERS: usize = 1024;

/// An open file whose calls block. Ranges are checked before they get here.
pub(super) trait Blocking: Send + Sync + fmt::Debug + 'static {
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

    fn allocate(&self, len: u64) -> Result<(), IoError>;
    fn truncate(&self, len: u64) -> Result<(), IoError>;
    fn sync(&self, kind: SyncKind) -> Result<(), IoError>;
    fn start_writeback(&self, offset: u64, len: u64) -> Result<(), IoError>;

    /// As [`EngineFile::write_back`].
    fn write_back(&self, _offset: u64, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> Result<(), IoError>;
    fn length(&self) -> Result<u64, IoError>;

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// An [`EngineFile`] that makes the calls of a [`Blocking`] on the disk's threads.
///
/// The writes of one handle are carried out by one thread at a time, in order of submission, and
/// joined where they are adjacent: the kernel would let only one write to a file at a time anyway,
/// and a stream of small writes pays for one hand-over as long as the thread is behind.
#[derive(Debug)]
pub(super) struct Threaded<B: Blocking> {
    file: Arc<Aside<B>>,
    writes: Arc<Mutex<Writes>>,
    disk: Arc<Disk>,
    class: IoClass,
}

#[derive(Debug, Default)]
struct Writes {
    waiting: VecDeque<Write>,
    /// A thread has, or will get, the job of emptying `waiting`.
    active: bool,
}

#[derive(Debug)]
struct Write {
    bufs: Vec<Bytes>,
    offset: u64,
    len: usize,
    tell: oneshot::Sender<Completion<Vec<Bytes>>>,
    place: Place,
}

impl Write {
    fn finish(self, result: Result<usize, IoError>) {
        let Self {
            bufs, tell, place, ..
        } = self;
        drop(place);
        // The caller may have gone away; the buffers are dropped here then.
        let _ = tell.send(Completion { buf: bufs, result });
    }

    fn end(&self) -> u64 {
        self.offset + bytes(self.len)
    }
}

fn lock(writes: &Mutex<Writes>) -> MutexGuard<'_, Writes> {
    writes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B: Blocking> Threaded<B> {
    pub(super) fn new(file: Arc<Aside<B>>, disk: Arc<Disk>, class: IoClass) -> Self {
        Self {
            file,
            writes: Arc::default(),
            disk,
            class,
        }
    }

    fn run<T, F>(&self, op: IoOp, work: F) -> IoFuture<Result<T, IoError>>
    where
        T: Send + 'static,
        F: FnOnce(&B) -> Result<T, IoError> + Send + 'static,
    {
        let file = Arc::clone(&self.file);
        self.disk
            .run(self.class, op, self.file.path(), move |_| work(&file))
    }
}

/// When a write panics, those waiting behind it are given up (their callers see `Closed`) rather
/// than left without a thread.
struct GiveUpOnPanic<'a>(&'a Mutex<Writes>);

impl Drop for GiveUpOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *lock(self.0) = Writes::default();
        }
    }
}

/// Queues a turn of writing for the handle, whose next write goes to `offset`.
fn queue_turn<B: Blocking>(
    file: &Arc<Aside<B>>,
    writes: &Arc<Mutex<Writes>>,
    lane: &Arc<DataLane>,
    class: IoClass,
    (offset, len): (u64, usize),
) {
    let request = Request {
        class,
        stream: file.stream(IoOp::Write, offset, len),
        bytes: bytes(len),
    };
    let (file, writes, again) = (Arc::clone(file), Arc::clone(writes), Arc::clone(lane));
    let turn = move || bytes(write_turn(&file, &writes, &again, class));
    lane.push_or_hold(request, Box::new(turn));
}

/// Empties the queue of one handle, at most a turn's worth, then queues itself again; gives the
/// bytes it was asked to write.
fn write_turn<B: Blocking>(
    file: &Arc<Aside<B>>,
    writes: &Arc<Mutex<Writes>>,
    lane: &Arc<DataLane>,
    class: IoClass,
) -> usize {
    let _guard = GiveUpOnPanic(writes);
    let mut turn = 0_usize;
    let next = loop {
        let batch = {
            let mut writes = lock(writes);
            let batch = next_batch(&mut writes.waiting);
            let Some(first) = batch.first() else {
                writes.active = false;
                return turn;
            };
            if turn >= WRITE_TURN_BYTES {
                let next = (first.offset, first.len);
                for write in batch.into_iter().rev() {
                    writes.waiting.push_front(write);
                }
                break next;
            }
            batch
        };
        turn = turn.saturating_add(batch.iter().map(|w| w.len).sum());
        write_batch(&***file, batch, writes);
    };
    queue_turn(file, writes, lane, class, next);
    turn
}

/// The first waiting write and those that continue it.
fn next_batch(waiting: &mut VecDeque<Write>) -> Vec<Write> {
    let Some(first) = waiting.pop_front() else {
        return Vec::new();
    };
    let (mut end, mut bytes, mut buffers) = (first.end(), first.len, first.bufs.len());
    let mut batch = vec![first];
    while let Some(next) = waiting.front() {
        bytes = bytes.saturating_add(next.len);
        buffers += next.bufs.len();
        if next.offset != end || bytes > JOIN_BYTES || buffers > JOIN_BUFFERS {
            break;
        }
        end = next.end();
        batch.extend(waiting.pop_front());
    }
    batch
}

/// Carries out joined writes. The one that meets an error gets it; those behind it go back to the
/// queue and are tried on their own.
fn write_batch<B: Blocking>(file: &B, batch: Vec<Write>, writes: &Mutex<Writes>) {
    let offset = batch.first().map_or(0, |w| w.offset);
    let slices: Vec<&Bytes> = batch.iter().flat_map(|w| &w.bufs).collect();
    let (mut done, result) = file.write(&slices, offset);
    let mut error = result.err();
    let mut rest = batch.into_iter();
    for write in rest.by_ref() {
        let len = write.len;
        if len <= done {
            done -= len;
            write.finish(Ok(len));
        } else if let Some(error) = error.take() {
            write.finish(Err(error));
            break;
        } else {
            let short = IoError::new(
                IoErrorKind::Other,
                IoOp::Write,
                file.path(),
                "wrote less than asked, without an error",
            );
            write.finish(Err(short));
            break;
        }
    }
    let behind: Vec<Write> = rest.collect();
    if !behind.is_empty() {
        let mut writes = lock(writes);
        for write in behind.into_iter().rev() {
            writes.waiting.push_front(write);
        }
    }
}

impl<B: Blocking> EngineFile for Threaded<B> {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn with_class(&self, class: IoClass) -> Arc<dyn EngineFile> {
        Arc::new(Self::new(
            Arc::clone(&self.file),
            Arc::clone(&self.disk),
            class,
        ))
    }

    fn read_at(
        &self,
        mut buf: AlignedBuf,
        offset: u64,
        len: usize,
    ) -> IoFuture<Completion<AlignedBuf>> {
        buf.set_len(0);
        if let Err(error) = check_range(IoOp::Read, self.path(), offset, len, buf.capacity()) {
            return Box::pin(std::future::ready(Completion {
                buf,
                result: Err(error),
            }));
        }
        let (there, whole) = self
            .file
            .read_at_once(&mut buf.as_mut_capacity()[..len], offset);
        if whole {
            buf.set_len(there);
            return Box::pin(std::future::ready(Completion {
                buf,
                result: Ok(there),
            }));
        }
        let file = Arc::clone(&self.file);
        let request = Request {
            class: self.class,
            stream: file.stream(IoOp::Read, offset, len),
            bytes: bytes(len),
        };
        let done = self.disk.transfer(request, move || {
            let from = offset + bytes(there);
            let result = file
                .read(&mut buf.as_mut_capacity()[there..], len - there, from)
                .map(|n| there + n);
            let moved = *result.as_ref().unwrap_or(&0);
            buf.set_len(moved);
            (Completion { buf, result }, bytes(moved))
        });
        let file = Arc::clone(&self.file);
        Box::pin(async move {
            done.await.unwrap_or_else(|| Completion {
                buf: AlignedBuf::empty(),
                result: Err(closed(IoOp::Read, file.path())),
            })
        })
    }

    fn caches(&self, offset: u64) -> bool {
        self.file.caches(self.class, offset)
    }

    fn load(&self, offset: u64, len: usize) -> IoFuture<Result<usize, IoError>> {
        if let Err(error) = check_range(IoOp::Read, self.path(), offset, len, len) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let file = Arc::clone(&self.file);
        let request = Request {
            class: self.class,
            stream: file.stream(IoOp::Read, offset, len),
            bytes: bytes(len),
        };
        let done = self.disk.transfer(request, move || {
            let result = file.load(offset, len);
            let moved = *result.as_ref().unwrap_or(&0);
            (result, bytes(moved))
        });
        let file = Arc::clone(&self.file);
        Box::pin(async move {
            let ended = done.await;
            ended.unwrap_or_else(|| Err(closed(IoOp::Read, file.path())))
        })
    }

    fn write_at(&self, bufs: Vec<Bytes>, offset: u64) -> IoFuture<Completion<Vec<Bytes>>> {
        let len = total_len(&bufs);
        if let Err(error) = check_range(IoOp::Write, self.path(), offset, len, len) {
            return Box::pin(std::future::ready(Completion {
                buf: bufs,
                result: Err(error),
            }));
        }
        let (tell, done) = oneshot::channel();
        let (file, writes) = (Arc::clone(&self.file), Arc::clone(&self.writes));
        let (lane, class) = (Arc::clone(self.disk.data_lane()), self.class);
        let waiting = self.disk.with_place(self.class, move |place| {
            let start = {
                let mut writes = lock(&writes);
                writes.waiting.push_back(Write {
                    bufs,
                    offset,
                    len,
                    tell,
                    place,
                });
                !std::mem::replace(&mut writes.active, true)
            };
            if start {
                queue_turn(&file, &writes, &lane, class, (offset, len));
            }
        });
        let file = Arc::clone(&self.file);
        Box::pin(async move {
            waiting.await;
            done.await.unwrap_or_else(|_| Completion {
                buf: Vec::new(),
                result: Err(closed(IoOp::Write, file.path())),
            })
        })
    }

    fn allocate(&self, len: u64) -> IoFuture<Result<(), IoError>> {
        self.run(IoOp::Allocate, move |f| f.allocate(len))
    }

    fn truncate(&self, len: u64) -> IoFuture<Result<(), IoError>> {
        self.run(IoOp::Truncate, move |f| f.truncate(len))
    }

    fn sync(&self, kind: SyncKind) -> IoFuture<Result<(), IoError>> {
        self.run(IoOp::Sync, move |f| f.sync(kind))
    }

    fn start_writeback(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.run(IoOp::Writeback, move |f| f.start_writeback(offset, len))
    }

    fn write_back(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        let some = usize::try_from(len).unwrap_or(usize::MAX);
        let request = Request {
            class: self.class,
            // Pages leave the cache for the device, as a read's bytes come from there.
            stream: self.file.stream(IoOp::Read, offset, some),
            bytes: len,
        };
        let file = Arc::clone(&self.file);
        let work = move || (file.write_back(offset, len), len);
        let done = self.disk.transfer(request, work);
        let file = Arc::clone(&self.file);
        Box::pin(async move {
            let ended = done.await;
            ended.unwrap_or_else(|| Err(closed(IoOp::Writeback, file.path())))
        })
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.run(IoOp::Advise, move |f| f.advise(advice, offset, len))
    }

    fn length(&self) -> IoFuture<Result<u64, IoError>> {
        self.run(IoOp::Length, |f| f.length())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.fd()
    }
}

/// A length as the kernel counts.
fn bytes(len: usize) -> u64 {
    u64::try_from(len).expect("usize fits in u64 on Linux")
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
