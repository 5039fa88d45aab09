//! What the node has done, in numbers: under the names of Apache's bean `DataNodeActivity`, and as
//! latencies by the part of an operation that took them.
//!
//! - `client_trace`: the audit trail: a line for each block that a client wrote or read
//! - `latency`: latencies of operations, by the part that took them
//! - `names`: names of what is counted, as attributes of Apache's bean `DataNodeActivity` have them
//!
//! Counting costs one or two relaxed atomic additions. The data path counts batches of packets, or
//! what it has summed up in a [`Tally`], never single packets.

mod client_trace;
mod latency;
mod names;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use client_trace::{ClientTrace, TARGET as CLIENT_TRACE};
pub use latency::{BOUNDS_NANOS, Histogram, Latencies, OpKind, OpParts, Part};
pub use names::{Count, MeanUnit, Timed};

/// A number that only grows, from 0 at the start of the node.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `more`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// The number now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often something was done, and what it took in total.
#[derive(Debug, Default)]
struct Sum {
    count: Counter,
    total: Counter,
}

/// Everything that is counted, of one node.
#[derive(Debug, Default)]
pub struct NodeActivity {
    counts: [Counter; Count::ALL.len()],
    sums: [Sum; Timed::ALL.len()],
    /// Latencies of operations of the data transfer port.
    pub latencies: Latencies,
}

impl NodeActivity {
    /// Counts `more` of `what`.
    pub fn add(&self, what: Count, more: u64) {
        self.counts[what as usize].add(more);
    }

    /// The number of `what` now.
    #[must_use]
    pub fn count(&self, what: Count) -> u64 {
        self.counts[what as usize].get()
    }

    /// Something took so long.
    pub fn took(&self, what: Timed, time: Duration) {
        self.took_together(what, 1, nanos(time));
    }

    /// `count` of them took `total` nanoseconds together, or whatever the unit of `what` is.
    pub fn took_together(&self, what: Timed, count: u64, total: u64) {
        let sum = &self.sums[what as usize];
        sum.count.add(count);
        sum.total.add(total);
    }

    /// How often, and what all of it took: nanoseconds but for rates.
    #[must_use]
    pub fn total(&self, what: Timed) -> (u64, u64) {
        let sum = &self.sums[what as usize];
        (sum.count.get(), sum.total.get())
    }

    /// A client or node at the other end of a read was served `bytes`.
    pub fn read_by(&self, is_local: bool, bytes: u64) {
        if is_local {
            self.add(Count::ReadsFromLocalClient, 1);
        } else {
            self.add(Count::ReadsFromRemoteClient, 1);
            self.add(Count::RemoteBytesRead, bytes);
        }
    }

    /// A client or node at the other end of a write has written `bytes`.
    pub fn written_by(&self, is_local: bool, bytes: u64) {
        if is_local {
            self.add(Count::WritesFromLocalClient, 1);
        } else {
            self.add(Count::WritesFromRemoteClient, 1);
            self.add(Count::RemoteBytesWritten, bytes);
        }
    }
}

/// Times of one stream, summed up by the one task that has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    count: u64,
    nanos: u64,
}

impl Tally {
    /// One more, which took so long.
    pub fn add(&mut self, took_nanos: u64) {
        self.count += 1;
        self.nanos = self.nanos.saturating_add(took_nanos);
    }

    /// Takes the sum over to `activity`.
    pub fn give(&mut self, activity: &NodeActivity, what: Timed) {
        let Self { count, nanos } = std::mem::take(self);
        if count > 0 {
            activity.took_together(what, count, nanos);
        }
    }
}

/// Nanoseconds of a time; no operation lasts the 584 years that do not fit.
#[must_use]
pub fn nanos(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)
}

/// Milliseconds of a time.
#[must_use]
pub fn millis(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_number_of_its_own() {
        let activity = NodeActivity::default();
        for (n, &what) in (1..).zip(Count::ALL) {
            activity.add(what, n);
        }
        for (n, &what) in (1..).zip(Count::ALL) {
            assert_eq!(activity.count(what), n, "{}", what.name());
        }
        for &what in Timed::ALL {
            activity.took(what, Duration::from_nanos(7));
            assert_eq!(activity.total(what), (1, 7), "{}", what.name());
        }
    }

    #[test]
    fn peers_on_this_machine_are_not_remote() {
        let activity = NodeActivity::default();
        activity.read_by(true, 5);
        activity.read_by(false, 7);
        activity.written_by(false, 9);
        let of = |what| activity.count(what);
        assert_eq!(of(Count::ReadsFromLocalClient), 1);
        assert_eq!(of(Count::ReadsFromRemoteClient), 1);
        assert_eq!(of(Count::RemoteBytesRead), 7);
        assert_eq!(of(Count::WritesFromLocalClient), 0);
        assert_eq!(of(Count::RemoteBytesWritten), 9);
    }

    #[test]
    fn a_tally_is_given_once() {
        let (activity, mut tally) = (NodeActivity::default(), Tally::default());
        tally.add(3);
        tally.add(4);
        tally.give(&activity, Timed::PacketAckRoundTripTimeNanos);
        tally.give(&activity, Timed::PacketAckRoundTripTimeNanos);
        assert_eq!(activity.total(Timed::PacketAckRoundTripTimeNanos), (2, 7));
    }
}
