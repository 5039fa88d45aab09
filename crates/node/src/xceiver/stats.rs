//! Counts of what the data transfer service is doing, for heartbeats, placement and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Gauges and counters of the data transfer service. All of them are cheap to read at any time.
#[derive(Debug, Default)]
pub struct XceiverStats {
    connections: AtomicUsize,
    readers: AtomicUsize,
    writers: AtomicUsize,
    xmits: AtomicUsize,
    bytes_read: AtomicU64,
    bytes_by_descriptor: AtomicU64,
    bytes_written: AtomicU64,
    bytes_in_place: AtomicU64,
    rejected: AtomicU64,
    failed_ops: AtomicU64,
}

/// What a [`Gauge`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// An open connection on the data transfer port.
    Connection,
    /// A read, copy or checksum being served.
    Reader,
    /// A block being received.
    Writer,
    /// A block being sent to another node on the NameNode's or a client's order.
    Xmit,
}

/// One unit of an activity; the count goes down when it is dropped.
#[derive(Debug)]
pub struct Gauge {
    stats: Arc<XceiverStats>,
    activity: Activity,
}

impl XceiverStats {
    fn cell(&self, activity: Activity) -> &AtomicUsize {
        match activity {
            Activity::Connection => &self.connections,
            Activity::Reader => &self.readers,
            Activity::Writer => &self.writers,
            Activity::Xmit => &self.xmits,
        }
    }

    /// Counts one more of `activity` until the guard is dropped.
    #[must_use]
    pub fn enter(self: &Arc<Self>, activity: Activity) -> Gauge {
        self.cell(activity).fetch_add(1, Ordering::Relaxed);
        Gauge {
            stats: Arc::clone(self),
            activity,
        }
    }

    /// Connections that are open now, idle ones included: Apache's xceiver count, which the
    /// NameNode's placement reads as load.
    #[must_use]
    pub fn xceivers(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Reads being served now.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }

    /// Blocks being received now.
    #[must_use]
    pub fn writers(&self) -> usize {
        self.writers.load(Ordering::Relaxed)
    }

    /// Blocks being sent to other nodes now (`xmitsInProgress` of a heartbeat).
    #[must_use]
    pub fn xmits(&self) -> usize {
        self.xmits.load(Ordering::Relaxed)
    }

    /// Block bytes sent since the start.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Of [`bytes_read`](Self::bytes_read), bytes that the kernel took from its page cache itself.
    #[must_use]
    pub fn bytes_read_by_descriptor(&self) -> u64 {
        self.bytes_by_descriptor.load(Ordering::Relaxed)
    }

    /// Block bytes received since the start.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    /// Those of them that were received straight to their place in write buffers.
    #[must_use]
    pub fn bytes_in_place(&self) -> u64 {
        self.bytes_in_place.load(Ordering::Relaxed)
    }

    /// Connections closed because too many were open.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Operations that ended with an error.
    #[must_use]
    pub fn failed_ops(&self) -> u64 {
        self.failed_ops.load(Ordering::Relaxed)
    }

    pub(super) fn add_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_read_by_descriptor(&self, bytes: u64) {
        self.bytes_by_descriptor.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_written(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_in_place(&self, bytes: u64) {
        self.bytes_in_place.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_failed_op(&self) {
        self.failed_ops.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.stats
            .cell(self.activity)
            .fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_counts_while_it_lives() {
        let stats = Arc::new(XceiverStats::default());
        let one = stats.enter(Activity::Writer);
        let two = stats.enter(Activity::Writer);
        assert_eq!((stats.writers(), stats.readers()), (2, 0));
        drop(one);
        assert_eq!(stats.writers(), 1);
        drop(two);
        assert_eq!(stats.writers(), 0);
    }
}
