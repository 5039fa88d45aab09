//! Counts of what the data transfer service is doing, for heartbeats, placement and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hayloft_wire::transfer::Op;

use super::error::XferError;

pub use crate::activity::Counter;
use crate::activity::{Count, NodeActivity, Timed};

/// Gauges and counters of the data transfer service. All of them are cheap to read at any time.
#[derive(Debug, Default)]
pub struct XceiverStats {
    /// Of each [`Activity`], how much goes on now.
    running: [AtomicUsize; 5],
    /// What the node has done.
    pub activity: Arc<NodeActivity>,
    /// Block bytes sent.
    pub bytes_read: Counter,
    /// Of these, the bytes that the kernel took from its page cache itself.
    pub bytes_read_by_descriptor: Counter,
    /// Bytes of checksums that went with what was sent.
    pub sums_read: Counter,
    /// Block bytes received straight to their place in write buffers.
    pub bytes_in_place: Counter,
    /// Bytes received of blocks that were completed; what was there before is not in it.
    pub bytes_written: Counter,
    /// Reads served to their end.
    pub blocks_read: Counter,
    /// Blocks received and completed.
    pub blocks_written: Counter,
    /// Connections closed because too many were open.
    pub rejected: Counter,
}

/// What a [`Gauge`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// An open connection on the data transfer port, idle ones included: Apache's xceiver count,
    /// which the NameNode's placement reads as load.
    Connection,
    /// A read, copy or checksum being served.
    Reader,
    /// A block being received.
    Writer,
    /// A block being sent to another node on the NameNode's or a client's order
    /// (`xmitsInProgress` of a heartbeat). A reconstruction counts as several.
    Xmit,
    /// A client's pipeline whose packets are acknowledged.
    Responder,
}

/// Some units of an activity; the count goes down when it is dropped.
#[derive(Debug)]
pub struct Gauge {
    stats: Arc<XceiverStats>,
    activity: Activity,
    units: usize,
}

impl XceiverStats {
    /// At 0, and with `activity`.
    #[must_use]
    pub fn counting(activity: Arc<NodeActivity>) -> Self {
        Self {
            activity,
            ..Self::default()
        }
    }

    /// Counts one more of `activity` until the guard is dropped.
    #[must_use]
    pub fn enter(self: &Arc<Self>, activity: Activity) -> Gauge {
        self.enter_as(activity, 1)
    }

    /// As [`enter`](Self::enter), for what counts as several `units`.
    #[must_use]
    pub fn enter_as(self: &Arc<Self>, activity: Activity, units: usize) -> Gauge {
        self.running[activity as usize].fetch_add(units, Ordering::Relaxed);
        Gauge {
            stats: Arc::clone(self),
            activity,
            units,
        }
    }

    /// How much of `activity` goes on now.
    #[must_use]
    pub fn now(&self, activity: Activity) -> usize {
        self.running[activity as usize].load(Ordering::Relaxed)
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.stats.running[self.activity as usize].fetch_sub(self.units, Ordering::Relaxed);
    }
}

/// Counts an operation under Apache's name for it. One whose peer left early counts, as there.
pub fn count_operation<T>(
    activity: &NodeActivity,
    op: Op,
    took: Duration,
    outcome: &Result<T, XferError>,
) {
    let is_peer_gone = outcome.as_ref().is_err_and(XferError::is_peer_gone);
    if is_peer_gone {
        activity.add(Count::DatanodeNetworkErrors, 1);
    }
    if outcome.is_err() && !is_peer_gone {
        return;
    }
    let what = match op {
        Op::ReadBlock => Timed::ReadBlockOp,
        Op::WriteBlock => Timed::WriteBlockOp,
        Op::BlockChecksum | Op::BlockGroupChecksum => Timed::BlockChecksumOp,
        Op::CopyBlock => Timed::CopyBlockOp,
        Op::ReplaceBlock => Timed::ReplaceBlockOp,
        _ => return,
    };
    activity.took(what, took);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_counts_while_it_lives() {
        let stats = Arc::new(XceiverStats::default());
        let one = stats.enter(Activity::Writer);
        let two = stats.enter(Activity::Writer);
        let now = |activity| stats.now(activity);
        assert_eq!((now(Activity::Writer), now(Activity::Reader)), (2, 0));
        drop(one);
        assert_eq!(now(Activity::Writer), 1);
        drop(two);
        assert_eq!(now(Activity::Writer), 0);
        let several = stats.enter_as(Activity::Xmit, 3);
        assert_eq!(now(Activity::Xmit), 3);
        drop(several);
        assert_eq!(now(Activity::Xmit), 0);
    }
}
