//! Counts, bytes and latencies of every operation, by class and kind of operation.
//!
//! An operation costs two clock reads and two short locks of its counter; one that a
//! [`Sampling`](super::Sampling) leaves out costs one relaxed load.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::counts::{IoMetrics, Timer};
use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::disk::Disk;
use crate::engine::{Engine, EngineFile, without_bytes};
use crate::error::{IoError, IoOp};
use crate::names_and_directories::{Meta, MetaHook};
use crate::types::{Advice, Capabilities, Completion, IoFuture, OpenMode, SyncKind};

/// An engine whose operations are counted. See the [module](self).
#[derive(Debug)]
pub struct Metered {
    inner: Arc<dyn Engine>,
    metrics: Arc<IoMetrics>,
}

impl Metered {
    /// Counts the operations of `inner` in `metrics`, which several engines may share.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>, metrics: Arc<IoMetrics>) -> Self {
        Self { inner, metrics }
    }
}

impl Engine for Metered {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
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
        let metrics = Arc::clone(&self.metrics);
        let timer = metrics
            .sampling()
            .is_on()
            .then(|| Timer::start(&metrics, class, IoOp::Open));
        let opened = self.inner.open(path, mode, class);
        Box::pin(async move {
            let opened = opened.await;
            if let Some(timer) = timer {
                timer.finish((0, opened.is_err()));
            }
            Ok(Arc::new(MeteredFile {
                inner: opened?,
                metrics,
                class,
            }) as Arc<dyn EngineFile>)
        })
    }

    fn meta(&self, class: IoClass) -> Meta {
        self.inner
            .meta(class)
            .with_hook(Arc::new(MetaMeter(Arc::clone(&self.metrics))))
    }
}

#[derive(Debug)]
struct MetaMeter(Arc<IoMetrics>);

impl MetaHook for MetaMeter {
    fn before(&self, _class: IoClass, _op: IoOp, _path: &Path) -> Result<(), IoError> {
        Ok(())
    }

    fn after(&self, class: IoClass, op: IoOp, took: Duration, failed: bool) {
        if self.0.sampling().is_on() {
            self.0.done(class, op, took, failed);
        }
    }
}

#[derive(Debug)]
struct MeteredFile {
    inner: Arc<dyn EngineFile>,
    metrics: Arc<IoMetrics>,
    class: IoClass,
}

impl MeteredFile {
    /// Counts what `start` starts; `outcome`: bytes that it moved, and whether it failed.
    fn timed<T: Send + 'static>(
        &self,
        op: IoOp,
        start: impl FnOnce(&dyn EngineFile) -> IoFuture<T>,
        outcome: fn(&T) -> (u64, bool),
    ) -> IoFuture<T> {
        if !self.metrics.sampling().takes() {
            return start(&*self.inner);
        }
        let timer = Timer::start(&self.metrics, self.class, op);
        let running = start(&*self.inner);
        Box::pin(async move {
            let ended = running.await;
            timer.finish(outcome(&ended));
            ended
        })
    }

    fn plain<T: Send + 'static>(
        &self,
        op: IoOp,
        start: impl FnOnce(&dyn EngineFile) -> IoFuture<Result<T, IoError>>,
    ) -> IoFuture<Result<T, IoError>> {
        self.timed(op, start, |result| (0, result.is_err()))
    }

    fn transfer<B: Send + 'static>(
        &self,
        op: IoOp,
        start: impl FnOnce(&dyn EngineFile) -> IoFuture<Completion<B>>,
    ) -> IoFuture<Completion<B>> {
        self.timed(op, start, |completion| moved(&completion.result))
    }
}

fn moved(result: &Result<usize, IoError>) -> (u64, bool) {
    let bytes = *result.as_ref().unwrap_or(&0);
    let bytes = u64::try_from(bytes).expect("usize fits in u64 on Linux");
    (bytes, result.is_err())
}

impl EngineFile for MeteredFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn with_class(&self, class: IoClass) -> Arc<dyn EngineFile> {
        Arc::new(Self {
            inner: self.inner.with_class(class),
            metrics: Arc::clone(&self.metrics),
            class,
        })
    }

    fn read_at(
        &self,
        buf: AlignedBuf,
        offset: u64,
        len: usize,
    ) -> IoFuture<Completion<AlignedBuf>> {
        self.transfer(IoOp::Read, |f| f.read_at(buf, offset, len))
    }

    fn caches(&self, offset: u64) -> bool {
        self.inner.caches(offset)
    }

    fn load(&self, offset: u64, len: usize) -> IoFuture<Result<usize, IoError>> {
        self.timed(IoOp::Read, |f| f.load(offset, len), moved)
    }

    fn write_at(&self, bufs: Vec<Bytes>, offset: u64) -> IoFuture<Completion<Vec<Bytes>>> {
        self.transfer(IoOp::Write, |f| f.write_at(bufs, offset))
    }

    fn write_here(&self, bufs: &[Bytes], offset: u64) -> Result<usize, IoError> {
        if !self.metrics.sampling().takes() {
            return self.inner.write_here(bufs, offset);
        }
        let timer = Timer::start(&self.metrics, self.class, IoOp::Write);
        let result = self.inner.write_here(bufs, offset);
        timer.finish(moved(&result));
        result
    }

    without_bytes!(plain);

    fn write_back(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.plain(IoOp::Writeback, |f| f.write_back(offset, len))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }
}
