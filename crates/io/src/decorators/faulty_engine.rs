//! Errors, delays, short transfers and flipped bits by rule: for tests.
//!
//! Rules belong to one [`Faults`], given to the engines that shall misbehave; nothing is global.
//! Chance comes from the seed, so that the same calls in the same order fail the same way. Rules
//! also meet names and directories through [`Meta`].

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::fault_rules::{Faults, Verdict, injected};
use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::disk::Disk;
use crate::engine::{Engine, EngineFile, without_bytes};
use crate::error::{IoError, IoOp};
use crate::names_and_directories::{Meta, MetaHook};
use crate::types::{Advice, Capabilities, Completion, IoFuture, OpenMode, SyncKind};
use bytes::{Bytes, BytesMut};

/// An engine that misbehaves by the rules of a [`Faults`]. See the [module](self).
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Engine>,
    faults: Arc<Faults>,
}

impl Faulty {
    /// `inner` under `faults`.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }
}

impl Engine for Faulty {
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// As the inner engine, but without descriptors: what goes around us would be without faults.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            descriptor: false,
            ..self.inner.capabilities()
        }
    }

    fn disk(&self) -> &Arc<Disk> {
        self.inner.disk()
    }

    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        class: IoClass,
    ) -> IoFuture<Result<Arc<dyn EngineFile>, IoError>> {
        let verdict = self.faults.judge(class, IoOp::Open, path);
        let (inner, faults, path) = (
            Arc::clone(&self.inner),
            Arc::clone(&self.faults),
            path.to_owned(),
        );
        Box::pin(async move {
            obey(&verdict, inner.disk(), (class, IoOp::Open), &path).await?;
            let file = inner.open(&path, mode, class).await?;
            Ok(Arc::new(FaultyFile {
                inner: file,
                disk: Arc::clone(inner.disk()),
                faults,
                class,
            }) as Arc<dyn EngineFile>)
        })
    }

    fn meta(&self, class: IoClass) -> Meta {
        self.inner
            .meta(class)
            .with_hook(Arc::new(MetaFaults(Arc::clone(&self.faults))))
    }
}

/// Delay and plain error.
async fn obey(
    verdict: &Verdict,
    disk: &Disk,
    (class, op): (IoClass, IoOp),
    path: &Path,
) -> Result<(), IoError> {
    let Verdict { delay, stall, .. } = *verdict;
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    if !stall.is_zero() {
        let stalled = move |_: &Path| {
            std::thread::sleep(stall);
            Ok(())
        };
        disk.run(class, op, path, stalled).await?;
    }
    verdict
        .errno
        .map_or(Ok(()), |errno| Err(injected(op, path, errno)))
}

#[derive(Debug)]
struct MetaFaults(Arc<Faults>);

impl MetaHook for MetaFaults {
    fn before(&self, class: IoClass, op: IoOp, path: &Path) -> Result<(), IoError> {
        let verdict = self.0.judge(class, op, path);
        std::thread::sleep(verdict.delay + verdict.stall); // A slow disk keeps its thread.
        verdict
            .errno
            .map_or(Ok(()), |errno| Err(injected(op, path, errno)))
    }

    fn after(&self, _class: IoClass, _op: IoOp, _took: Duration, _failed: bool) {}
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn EngineFile>,
    disk: Arc<Disk>,
    faults: Arc<Faults>,
    class: IoClass,
}

impl FaultyFile {
    fn judged<T: Send + 'static>(
        &self,
        op: IoOp,
        start: impl FnOnce(&dyn EngineFile) -> IoFuture<Result<T, IoError>> + Send + 'static,
    ) -> IoFuture<Result<T, IoError>> {
        let verdict = self.faults.judge(self.class, op, self.path());
        let (inner, disk, class) = (Arc::clone(&self.inner), Arc::clone(&self.disk), self.class);
        Box::pin(async move {
            obey(&verdict, &disk, (class, op), inner.path()).await?;
            start(&*inner).await
        })
    }
}

/// The first `len` bytes of `bufs`.
fn prefix(bufs: &[Bytes], mut len: usize) -> Vec<Bytes> {
    let mut out = Vec::new();
    for buf in bufs {
        let n = len.min(buf.len());
        out.push(buf.slice(..n));
        len -= n;
    }
    out
}

/// A copy of `bufs` with one bit inverted.
fn flipped(bufs: &[Bytes], at: usize) -> Vec<Bytes> {
    let mut before = 0;
    let mut out = Vec::new();
    for buf in bufs {
        let hit = at.checked_sub(before).filter(|i| *i < buf.len());
        out.push(hit.map_or_else(
            || buf.clone(),
            |i| {
                let mut copy = BytesMut::from(&buf[..]);
                copy[i] ^= 1;
                copy.freeze()
            },
        ));
        before += buf.len();
    }
    out
}

impl EngineFile for FaultyFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn with_class(&self, class: IoClass) -> Arc<dyn EngineFile> {
        Arc::new(Self {
            inner: self.inner.with_class(class),
            disk: Arc::clone(&self.disk),
            faults: Arc::clone(&self.faults),
            class,
        })
    }

    fn read_at(
        &self,
        mut buf: AlignedBuf,
        offset: u64,
        len: usize,
    ) -> IoFuture<Completion<AlignedBuf>> {
        let verdict = self.faults.judge(self.class, IoOp::Read, self.path());
        let (inner, disk, class) = (Arc::clone(&self.inner), Arc::clone(&self.disk), self.class);
        buf.set_len(0);
        Box::pin(async move {
            if let Err(error) = obey(&verdict, &disk, (class, IoOp::Read), inner.path()).await {
                return Completion {
                    buf,
                    result: Err(error),
                };
            }
            let len = verdict.short.map_or(len, |(bytes, _)| bytes.min(len));
            let mut done = inner.read_at(buf, offset, len).await;
            if let Some(byte) = verdict
                .flip
                .and_then(|at| done.buf.as_mut_slice().get_mut(at))
            {
                *byte ^= 1;
            }
            done
        })
    }

    /// No caller sends from here: see [`fd`](EngineFile::fd).
    fn caches(&self, _offset: u64) -> bool {
        false
    }

    fn load(&self, offset: u64, len: usize) -> IoFuture<Result<usize, IoError>> {
        self.judged(IoOp::Read, move |f| f.load(offset, len))
    }

    fn write_at(&self, bufs: Vec<Bytes>, offset: u64) -> IoFuture<Completion<Vec<Bytes>>> {
        let verdict = self.faults.judge(self.class, IoOp::Write, self.path());
        let (inner, disk, class) = (Arc::clone(&self.inner), Arc::clone(&self.disk), self.class);
        Box::pin(async move {
            if let Err(error) = obey(&verdict, &disk, (class, IoOp::Write), inner.path()).await {
                return Completion {
                    buf: bufs,
                    result: Err(error),
                };
            }
            if let Some((bytes, errno)) = verdict.short {
                let part = inner.write_at(prefix(&bufs, bytes), offset).await;
                let error = injected(IoOp::Write, inner.path(), errno)
                    .with_context(format_args!("after {bytes} bytes"));
                return Completion {
                    buf: bufs,
                    result: part.result.and(Err(error)),
                };
            }
            if let Some(at) = verdict.flip {
                let done = inner.write_at(flipped(&bufs, at), offset).await;
                return Completion {
                    buf: bufs,
                    result: done.result,
                };
            }
            inner.write_at(bufs, offset).await
        })
    }

    fn write_here(&self, bufs: &[Bytes], offset: u64) -> Result<usize, IoError> {
        let verdict = self.faults.judge(self.class, IoOp::Write, self.path());
        std::thread::sleep(verdict.delay + verdict.stall); // A slow disk keeps its thread.
        if let Some(errno) = verdict.errno {
            return Err(injected(IoOp::Write, self.path(), errno));
        }
        if let Some((bytes, errno)) = verdict.short {
            self.inner.write_here(&prefix(bufs, bytes), offset)?;
            let error = injected(IoOp::Write, self.path(), errno);
            return Err(error.with_context(format_args!("after {bytes} bytes")));
        }
        match verdict.flip {
            Some(at) => self.inner.write_here(&flipped(bufs, at), offset),
            None => self.inner.write_here(bufs, offset),
        }
    }

    without_bytes!(judged);

    fn write_back(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.judged(IoOp::Writeback, move |f| f.write_back(offset, len))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
