//! Histograms of latencies: microseconds, up to an hour, within 6 %.
//!
//! One takes 4 KiB and never grows. To record is an addition in an array, under a lock that its
//! owner has.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longer latencies count as this many microseconds.
const LONGEST_US: u64 = 3_600_000_000;

/// An empty histogram of latencies.
pub(crate) fn histogram() -> Histogram<u64> {
    up_to(LONGEST_US)
}

/// An empty histogram of values up to `max`, which larger ones count as.
pub(crate) fn up_to(max: u64) -> Histogram<u64> {
    Histogram::new_with_bounds(1, max, 1).expect("bounds that the crate documents as valid")
}

/// Counts a latency.
pub(crate) fn record(histogram: &mut Histogram<u64>, took: Duration) {
    histogram.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_six_per_cent_and_long_ones_count() {
        let mut latencies = histogram();
        for micros in [0, 1, 3, 100, 100, 100, 100, 100, 100, 5000] {
            record(&mut latencies, Duration::from_micros(micros));
        }
        assert_eq!(latencies.len(), 10);
        assert!((100..=106).contains(&latencies.value_at_quantile(0.5)));
        assert!((5000..=5300).contains(&latencies.max()));
        record(&mut latencies, Duration::from_secs(1_000_000));
        assert_eq!(latencies.len(), 11);
        assert!(latencies.max() >= LONGEST_US);
    }
}
