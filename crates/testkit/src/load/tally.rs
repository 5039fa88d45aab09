//! What a load took: counts, and times in histograms.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Percentiles of a set of latencies, microseconds, to three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Median.
    pub p50_us: u64,
    /// 99 in 100 are at most this.
    pub p99_us: u64,
    /// 999 in 1000 are at most this.
    pub p999_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// Times of operations. Memory grows with the longest, not with the number.
#[derive(Clone, Debug)]
pub struct LoadLatencies(Histogram<u64>);

impl Default for LoadLatencies {
    fn default() -> Self {
        Self(Histogram::new(3).expect("three digits are allowed"))
    }
}

impl LoadLatencies {
    /// Adds one, in whole microseconds.
    pub fn record(&mut self, took: Duration) {
        // A histogram that grows takes any value up to the largest here, about an hour.
        const LONGEST_US: u64 = u32::MAX as u64;
        let us = u64::try_from(took.as_micros()).unwrap_or(LONGEST_US);
        self.0 += us.min(LONGEST_US);
    }

    /// Adds all of another set.
    pub fn add(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    /// Percentiles; all zero without values.
    #[must_use]
    pub fn summary(&self) -> Latency {
        Latency {
            count: self.0.len(),
            p50_us: self.0.value_at_quantile(0.5),
            p99_us: self.0.value_at_quantile(0.99),
            p999_us: self.0.value_at_quantile(0.999),
            max_us: self.0.max(),
        }
    }
}

/// What one stream did.
#[derive(Clone, Debug, Default)]
pub struct LatencyTally {
    /// Bytes of block data moved.
    pub bytes: u64,
    /// Operations: blocks written, blocks read, positional reads.
    pub ops: u64,
    /// Duration of each operation.
    pub op: LoadLatencies,
    /// From a packet's sending to its acknowledgement.
    pub ack: LoadLatencies,
}

impl LatencyTally {
    /// Adds what another stream did.
    pub fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.ops += other.ops;
        self.op.add(&other.op);
        self.ack.add(&other.ack);
    }

    /// Counts an operation.
    pub fn count(&mut self, bytes: u64, took: Duration) {
        self.bytes += bytes;
        self.ops += 1;
        self.op.record(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_two_streams_together() {
        let mut all = LatencyTally::default();
        for half in [1..=500, 501..=1000] {
            let mut stream = LatencyTally::default();
            half.for_each(|us| stream.count(1, Duration::from_micros(us)));
            all.add(&stream);
        }
        let of = all.op.summary();
        assert_eq!((all.bytes, all.ops, of.count), (1000, 1000, 1000));
        assert_eq!(
            (of.p50_us, of.p99_us, of.p999_us, of.max_us),
            (500, 990, 999, 1000)
        );
    }

    #[test]
    fn no_value_and_a_huge_one() {
        let mut times = LoadLatencies::default();
        assert_eq!(times.summary(), Latency::default());
        times.record(Duration::MAX);
        assert!(times.summary().p999_us >= u32::MAX.into());
    }
}
