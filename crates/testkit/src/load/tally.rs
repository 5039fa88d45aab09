//! What a load took: counts, times, percentiles.

use serde::Serialize;
use std::time::Duration;

/// Percentiles of a set of latencies, microseconds.
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

impl Latency {
    /// Percentiles by nearest rank; all zero without samples.
    #[must_use]
    pub fn of(mut samples_us: Vec<u32>) -> Self {
        samples_us.sort_unstable();
        let Some(&max) = samples_us.last() else {
            return Self::default();
        };
        let rank = |per_mille: usize| {
            let index = (samples_us.len() * per_mille).div_ceil(1000).max(1) - 1;
            u64::from(samples_us[index])
        };
        Self {
            count: samples_us.len() as u64,
            p50_us: rank(500),
            p99_us: rank(990),
            p999_us: rank(999),
            max_us: max.into(),
        }
    }
}

/// What one stream did. Times are kept one by one: a load is short.
#[derive(Clone, Debug, Default)]
pub struct LatencyTally {
    /// Bytes of block data moved.
    pub bytes: u64,
    /// Operations: blocks written, blocks read, positional reads.
    pub ops: u64,
    /// Duration of each operation, microseconds.
    pub op_us: Vec<u32>,
    /// From a packet's sending to its acknowledgement, microseconds.
    pub ack_us: Vec<u32>,
}

impl LatencyTally {
    /// Adds what another stream did.
    pub fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.ops += other.ops;
        self.op_us.extend(other.op_us);
        self.ack_us.extend(other.ack_us);
    }

    /// Counts an operation.
    pub fn op(&mut self, bytes: u64, took: Duration) {
        self.bytes += bytes;
        self.ops += 1;
        self.op_us.push(micros(took));
    }
}

/// Whole microseconds, at most about an hour.
#[must_use]
pub fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_nearest_rank() {
        let latency = Latency::of((1..=1000).rev().collect());
        assert_eq!(
            (
                latency.p50_us,
                latency.p99_us,
                latency.p999_us,
                latency.max_us
            ),
            (500, 990, 999, 1000)
        );
        assert_eq!(Latency::of(vec![7]).p999_us, 7);
        assert_eq!(Latency::of(Vec::new()), Latency::default());
    }
}
