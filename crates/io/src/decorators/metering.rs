//! Counts, bytes and latencies of every operation, by class and kind of operation.
//!
//! Costs two clock reads and a handful of relaxed atomic additions an operation; for those that a
//! [`Sampling`] leaves out, one relaxed load.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::sampling::Sampling;
use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::disk::Disk;
use crate::engine::{
    Advice, Capabilities, Completion, Engine, EngineFile, IoFuture, OpenMode, SyncKind,
};
use crate::error::{IoError, IoOp};
use crate::meta::{Meta, MetaHook};

/// Buckets of a latency histogram: bucket `i` counts latencies below 2^i microseconds (and not
/// below half of that); the last one everything longer (above 19 hours).
const BUCKETS: usize = 37;

const OPS: usize = IoOp::ALL.len();

#[derive(Debug)]
struct Cell {
    errors: AtomicU64,
    abandoned: AtomicU64,
    bytes: AtomicU64,
    in_flight: AtomicU64,
    nanos: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

impl Cell {
    fn new() -> Self {
        Self {
            errors: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            latency: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn done(&self, took: Duration, bytes: usize, failed: bool) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = usize::try_from(u64::BITS - micros.leading_zeros()).expect("at most 64");
        self.latency[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(
            u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        self.bytes.fetch_add(
            u64::try_from(bytes).expect("usize fits in u64 on Linux"),
            Ordering::Relaxed,
        );
        if failed {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A latency histogram with buckets by powers of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// Count of latencies below 2^i microseconds that are not in an earlier bucket.
    pub buckets: Vec<u64>,
}

impl Latencies {
    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// An upper bound of the latency that the fraction `q` (0..=1) stays below, within a factor of
    /// two; `None` when nothing was counted.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rank in a count of operations; clamped, and a rounding error moves it by one"
    )]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((count as f64 * q.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return Some(Duration::from_micros(1_u64 << i));
            }
        }
        None
    }
}

/// What happened in one class with one operation, since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpStats {
    /// Completed operations, failed ones included.
    pub ops: u64,
    /// Of these, failed ones.
    pub errors: u64,
    /// Operations whose caller did not wait for the end; not in `ops`.
    pub abandoned: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Operations that have begun and not ended.
    pub in_flight: u64,
    /// Sum of all latencies.
    pub total: Duration,
    /// From submission to completion, waiting for a place in the queue included.
    pub latencies: Latencies,
}

/// The counters of one or more [`Metered`] engines.
#[derive(Debug)]
pub struct IoMetrics {
    cells: Vec<Cell>,
    sampling: Arc<Sampling>,
}

/// Counts every operation.
impl Default for IoMetrics {
    fn default() -> Self {
        Self::sampled(Arc::new(Sampling::new(100)))
    }
}

impl IoMetrics {
    /// Counts the operations that `sampling` takes.
    #[must_use]
    pub fn sampled(sampling: Arc<Sampling>) -> Self {
        Self {
            cells: (0..OPS * IoClass::COUNT).map(|_| Cell::new()).collect(),
            sampling,
        }
    }

    /// How many operations of the kinds `ops` have ended, in all classes, and how long they took
    /// together.
    #[must_use]
    pub fn total(&self, ops: &[IoOp]) -> (u64, Duration) {
        let cells = IoClass::ALL
            .iter()
            .flat_map(|class| ops.iter().map(|op| self.cell(*class, *op)));
        cells.fold((0, Duration::ZERO), |(count, time), cell| {
            let ended: u64 = cell.latency.iter().map(|n| n.load(Ordering::Relaxed)).sum();
            let nanos = cell.nanos.load(Ordering::Relaxed);
            (count + ended, time + Duration::from_nanos(nanos))
        })
    }

    fn cell(&self, class: IoClass, op: IoOp) -> &Cell {
        &self.cells[class.index() * OPS + op as usize]
    }

    /// A reading; the numbers of one reading may be a moment apart.
    #[must_use]
    pub fn stats(&self, class: IoClass, op: IoOp) -> OpStats {
        let cell = self.cell(class, op);
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let latencies = Latencies {
            buckets: cell.latency.iter().map(get).collect(),
        };
        OpStats {
            ops: latencies.count(),
            errors: get(&cell.errors),
            abandoned: get(&cell.abandoned),
            bytes: get(&cell.bytes),
            in_flight: get(&cell.in_flight),
            total: Duration::from_nanos(get(&cell.nanos)),
            latencies,
        }
    }

    /// Bytes of `op` over all classes.
    #[must_use]
    pub fn bytes(&self, op: IoOp) -> u64 {
        IoClass::ALL
            .iter()
            .map(|class| self.cell(*class, op).bytes.load(Ordering::Relaxed))
            .sum()
    }
}

/// Counts one operation as in flight, and as abandoned when it is dropped unfinished.
struct Timer {
    metrics: Arc<IoMetrics>,
    class: IoClass,
    op: IoOp,
    start: Instant,
    finished: bool,
}

impl Timer {
    fn start(metrics: &Arc<IoMetrics>, class: IoClass, op: IoOp) -> Self {
        metrics
            .cell(class, op)
            .in_flight
            .fetch_add(1, Ordering::Relaxed);
        Self {
            metrics: Arc::clone(metrics),
            class,
            op,
            start: Instant::now(),
            finished: false,
        }
    }

    fn finish<T>(mut self, bytes: usize, result: &Result<T, IoError>) {
        self.finished = true;
        self.metrics
            .cell(self.class, self.op)
            .done(self.start.elapsed(), bytes, result.is_err());
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let cell = self.metrics.cell(self.class, self.op);
        cell.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.finished {
            cell.abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

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
    fn name(&self) -> &'static str {
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
            .sampling
            .is_on()
            .then(|| Timer::start(&metrics, class, IoOp::Open));
        let opened = self.inner.open(path, mode, class);
        Box::pin(async move {
            let opened = opened.await;
            if let Some(timer) = timer {
                timer.finish(0, &opened);
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
        if self.0.sampling.is_on() {
            self.0.cell(class, op).done(took, 0, failed);
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
    fn timed<T: Send + 'static>(
        &self,
        op: IoOp,
        start: impl FnOnce(&dyn EngineFile) -> IoFuture<Result<T, IoError>>,
    ) -> IoFuture<Result<T, IoError>> {
        if !self.metrics.sampling.takes() {
            return start(&*self.inner);
        }
        let timer = Timer::start(&self.metrics, self.class, op);
        let running = start(&*self.inner);
        Box::pin(async move {
            let result = running.await;
            timer.finish(0, &result);
            result
        })
    }

    fn transfer<B: Send + 'static>(
        &self,
        op: IoOp,
        start: impl FnOnce(&dyn EngineFile) -> IoFuture<Completion<B>>,
    ) -> IoFuture<Completion<B>> {
        if !self.metrics.sampling.takes() {
            return start(&*self.inner);
        }
        let timer = Timer::start(&self.metrics, self.class, op);
        let running = start(&*self.inner);
        Box::pin(async move {
            let completion = running.await;
            timer.finish(
                *completion.result.as_ref().unwrap_or(&0),
                &completion.result,
            );
            completion
        })
    }
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
        if !self.metrics.sampling.takes() {
            return self.inner.load(offset, len);
        }
        let timer = Timer::start(&self.metrics, self.class, IoOp::Read);
        let running = self.inner.load(offset, len);
        Box::pin(async move {
            let result = running.await;
            timer.finish(*result.as_ref().unwrap_or(&0), &result);
            result
        })
    }

    fn write_at(&self, bufs: Vec<Bytes>, offset: u64) -> IoFuture<Completion<Vec<Bytes>>> {
        self.transfer(IoOp::Write, |f| f.write_at(bufs, offset))
    }

    fn allocate(&self, len: u64) -> IoFuture<Result<(), IoError>> {
        self.timed(IoOp::Allocate, |f| f.allocate(len))
    }

    fn truncate(&self, len: u64) -> IoFuture<Result<(), IoError>> {
        self.timed(IoOp::Truncate, |f| f.truncate(len))
    }

    fn sync(&self, kind: SyncKind) -> IoFuture<Result<(), IoError>> {
        self.timed(IoOp::Sync, |f| f.sync(kind))
    }

    fn start_writeback(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.timed(IoOp::Writeback, |f| f.start_writeback(offset, len))
    }

    fn write_back(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.timed(IoOp::Writeback, |f| f.write_back(offset, len))
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.timed(IoOp::Advise, |f| f.advise(advice, offset, len))
    }

    fn length(&self) -> IoFuture<Result<u64, IoError>> {
        self.timed(IoOp::Length, |f| f.length())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_over_all_classes_and_the_kinds_asked_for() {
        let metrics = IoMetrics::default();
        let ms = Duration::from_millis;
        for (class, op, took) in [
            (IoClass::ClientRead, IoOp::Read, ms(2)),
            (IoClass::Scan, IoOp::Read, ms(4)),
            (IoClass::ClientWrite, IoOp::Write, ms(100)),
            (IoClass::ClientWrite, IoOp::Rename, ms(7)),
        ] {
            metrics.cell(class, op).done(took, 0, false);
        }
        assert_eq!(metrics.total(&[IoOp::Read]), (2, ms(6)));
        assert_eq!(metrics.total(&[IoOp::Rename, IoOp::Write]), (2, ms(107)));
        assert_eq!(metrics.total(&[]), (0, Duration::ZERO));
    }

    #[test]
    fn quantiles_are_upper_bounds_within_a_factor_of_two() {
        let cell = Cell::new();
        for micros in [0, 1, 3, 100, 100, 100, 100, 100, 100, 5000] {
            cell.done(Duration::from_micros(micros), 0, false);
        }
        let latencies = Latencies {
            buckets: cell
                .latency
                .iter()
                .map(|b| b.load(Ordering::Relaxed))
                .collect(),
        };
        assert_eq!(latencies.count(), 10);
        assert_eq!(latencies.quantile(0.5), Some(Duration::from_micros(128)));
        assert_eq!(latencies.quantile(1.0), Some(Duration::from_micros(8192)));
        assert_eq!(
            Latencies {
                buckets: vec![0; BUCKETS]
            }
            .quantile(0.5),
            None
        );
    }
}
