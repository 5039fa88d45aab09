//! What meters count, by class and kind of operation.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::sampling::Sampling;
use crate::class::IoClass;
use crate::error::IoOp;
use crate::latency::{histogram, record};
use crate::locks;

const OPS: usize = IoOp::ALL.len();

/// What happened in one class with one operation, since the start.
#[derive(Clone, Debug)]
pub struct OpStats {
    /// Failed operations.
    pub errors: u64,
    /// Operations whose caller did not wait for the end; not in `latencies`.
    pub abandoned: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Operations that have begun and not ended.
    pub in_flight: u64,
    /// Sum of all latencies.
    pub total: Duration,
    /// Microseconds from submission to completion of each operation, failed ones included. Waiting
    /// for a place in the queue is part of it.
    pub latencies: Histogram<u64>,
}

impl Default for OpStats {
    fn default() -> Self {
        Self {
            errors: 0,
            abandoned: 0,
            bytes: 0,
            in_flight: 0,
            total: Duration::ZERO,
            latencies: histogram(),
        }
    }
}

impl OpStats {
    fn done(&mut self, took: Duration, (bytes, failed): (u64, bool)) {
        record(&mut self.latencies, took);
        self.total += took;
        self.bytes += bytes;
        self.errors += u64::from(failed);
    }
}

/// The counters of one or more [`Metered`](super::Metered) engines.
#[derive(Debug)]
pub struct IoMetrics {
    /// By class and operation; made by the first operation.
    cells: Vec<OnceLock<Mutex<OpStats>>>,
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
            cells: (0..OPS * IoClass::COUNT).map(|_| OnceLock::new()).collect(),
            sampling,
        }
    }

    pub(super) fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    fn slot(&self, class: IoClass, op: IoOp) -> &OnceLock<Mutex<OpStats>> {
        &self.cells[class.index() * OPS + op as usize]
    }

    fn cell(&self, class: IoClass, op: IoOp) -> MutexGuard<'_, OpStats> {
        let cell = self.slot(class, op).get_or_init(Mutex::default);
        locks::lock(cell)
    }

    /// How many operations of the kinds `ops` have ended, in all classes, and how long they took
    /// together.
    #[must_use]
    pub fn total(&self, ops: &[IoOp]) -> (u64, Duration) {
        let classes = IoClass::ALL.iter();
        let slots = classes.flat_map(|class| ops.iter().map(|op| self.slot(*class, *op)));
        let known = slots.filter_map(OnceLock::get);
        known.fold((0, Duration::ZERO), |(count, time), cell| {
            let cell = locks::lock(cell);
            (count + cell.latencies.len(), time + cell.total)
        })
    }

    /// A reading.
    #[must_use]
    pub fn stats(&self, class: IoClass, op: IoOp) -> OpStats {
        self.cell(class, op).clone()
    }

    /// Counts an operation that has ended.
    pub(super) fn done(&self, class: IoClass, op: IoOp, took: Duration, failed: bool) {
        self.cell(class, op).done(took, (0, failed));
    }
}

/// Counts one operation as in flight, and as abandoned when it is dropped unfinished.
pub(super) struct Timer {
    metrics: Arc<IoMetrics>,
    class: IoClass,
    op: IoOp,
    start: Instant,
    finished: bool,
}

impl Timer {
    pub(super) fn start(metrics: &Arc<IoMetrics>, class: IoClass, op: IoOp) -> Self {
        metrics.cell(class, op).in_flight += 1;
        Self {
            metrics: Arc::clone(metrics),
            class,
            op,
            start: Instant::now(),
            finished: false,
        }
    }

    /// The operation ended, with so many bytes moved, or failed.
    pub(super) fn finish(mut self, outcome: (u64, bool)) {
        self.finished = true;
        let took = self.start.elapsed();
        let mut cell = self.metrics.cell(self.class, self.op);
        cell.in_flight -= 1;
        cell.done(took, outcome);
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let mut cell = self.metrics.cell(self.class, self.op);
        cell.in_flight -= 1;
        cell.abandoned += 1;
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
            metrics.done(class, op, took, false);
        }
        assert_eq!(metrics.total(&[IoOp::Read]), (2, ms(6)));
        assert_eq!(metrics.total(&[IoOp::Rename, IoOp::Write]), (2, ms(107)));
        assert_eq!(metrics.total(&[]), (0, Duration::ZERO));
    }
}
