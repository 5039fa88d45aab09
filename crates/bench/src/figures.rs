//! What is measured of a row, and how values of several rounds are told.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A number that a measurement gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// MB (10^6 bytes) a second until the client was done.
    Rate,
    /// MB a second until the bytes were on the device.
    SettledRate,
    /// MB a second by a program that only reads from the device and sends.
    SentRate,
    /// MiB of block data that the client moved.
    Moved,
    /// Operations a second.
    Ops,
    /// Median latency of an operation, microseconds.
    P50,
    /// 99 in 100 operations took at most this, microseconds.
    P99,
    /// 999 in 1000 operations took at most this, microseconds.
    P999,
    /// CPU seconds of the nodes per GiB, user mode.
    NodeUser,
    /// CPU seconds of the nodes per GiB, in the kernel.
    NodeSystem,
    /// CPU seconds of the nodes per GiB.
    NodeCpu,
    /// CPU seconds of the client per GiB.
    ClientCpu,
    /// CPU seconds of the whole machine per GiB: nodes, client, NameNode, kernel threads.
    MachineCpu,
    /// Largest resident memory of a node during the row, shared pages included, MiB.
    MemoryPeak,
    /// Requests that the device got, per GiB.
    Requests,
    /// Mean size of a request in the main direction, KiB.
    RequestSize,
    /// Mean length of a run of adjoining requests in the main direction, KiB.
    RunLength,
    /// Times that the device had to go elsewhere, per GiB.
    Seeks,
    /// Extents per block file.
    Extents,
    /// Seconds (start-up): until ports accepted connections.
    Listening,
    /// Seconds (start-up): until the NameNode knew every block.
    Reported,
    /// CPU seconds (start-up).
    StartCpu,
}

impl Figure {
    /// Heading in tables, with the unit.
    #[must_use]
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Rate => "MB/s",
            Self::SettledRate => "MB/s until on the device",
            Self::SentRate => "MB/s, read and sent bare",
            Self::Moved => "MiB moved",
            Self::Ops => "operations/s",
            Self::P50 => "p50, us",
            Self::P99 => "p99, us",
            Self::P999 => "p99.9, us",
            Self::NodeUser => "node CPU s/GiB, user",
            Self::NodeSystem => "node CPU s/GiB, system",
            Self::NodeCpu => "node CPU s/GiB",
            Self::ClientCpu => "client CPU s/GiB",
            Self::MachineCpu => "whole machine CPU s/GiB",
            Self::MemoryPeak => "peak resident memory, MiB",
            Self::Requests => "device requests/GiB",
            Self::RequestSize => "mean request, KiB",
            Self::RunLength => "mean run, KiB",
            Self::Seeks => "seeks/GiB",
            Self::Extents => "extents per block",
            Self::Listening => "ports open, s",
            Self::Reported => "all blocks reported, s",
            Self::StartCpu => "CPU, s",
        }
    }

    /// Whether it is processor time per GiB: the kernel counts it in ticks of 10 ms, so that little
    /// data tells nothing.
    #[must_use]
    pub const fn is_cpu_per_gib(self) -> bool {
        matches!(
            self,
            Self::NodeUser | Self::NodeSystem | Self::NodeCpu | Self::ClientCpu | Self::MachineCpu
        )
    }

    /// Whether a larger value is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(
            self,
            Self::Rate
                | Self::SettledRate
                | Self::SentRate
                | Self::Ops
                | Self::RequestSize
                | Self::RunLength
        )
    }
}

/// Figures of one measurement.
pub type Figures = BTreeMap<Figure, f64>;

/// A value over several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Lowest.
    pub low: f64,
    /// Median.
    pub median: f64,
    /// Highest.
    pub high: f64,
}

impl Spread {
    /// `None` without values.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() {
            0 => return None,
            count if count % 2 == 1 => values[middle],
            _ => f64::midpoint(values[middle - 1], values[middle]),
        };
        Some(Self {
            low: *values.first()?,
            median,
            high: *values.last()?,
        })
    }

    /// The median alone, with the digits that matter; thousands as `12.3k`.
    #[must_use]
    pub fn median_text(self) -> String {
        self.number(self.median)
    }

    /// A value as exact as the median is told.
    fn number(self, value: f64) -> String {
        match self.median {
            m if m >= 100_000.0 => format!("{:.0}k", value / 1000.0),
            m if m >= 10_000.0 => format!("{:.1}k", value / 1000.0),
            m if m >= 100.0 => format!("{value:.0}"),
            m if m >= 10.0 => format!("{value:.1}"),
            _ => format!("{value:.2}"),
        }
    }

    /// `562 (502-631)`; a single value without its spread.
    #[must_use]
    pub fn text(self) -> String {
        let median = self.median_text();
        if (self.high - self.low).abs() < f64::EPSILON {
            return median;
        }
        let (low, high) = (self.number(self.low), self.number(self.high));
        format!("{median} ({low}-{high})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_even_and_odd() {
        let median = |values: &[f64]| Spread::of(values.to_vec()).expect("values").median;
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert_eq!(Spread::of(vec![f64::NAN]), None);
    }

    #[test]
    fn texts_have_the_digits_that_matter() {
        let spread = |values: &[f64]| Spread::of(values.to_vec()).expect("values").text();
        assert_eq!(spread(&[500.4, 562.2, 630.9]), "562 (500-631)");
        assert_eq!(spread(&[0.254]), "0.25");
        assert_eq!(
            spread(&[9490.0, 10_121.0, 405_100.0]),
            "10.1k (9.5k-405.1k)"
        );
    }
}
