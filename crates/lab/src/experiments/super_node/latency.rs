//! How long the requests of modelled disks took, by their own counters.

use hayloft_testkit::modelled::{LATENCY_CLASSES, LatencyCounts};

use crate::disks::DiskCounters;
use crate::runner::record::PeerFigures;
use crate::workload::WorkloadPhase;

/// What requests of several disks took, in the classes of the disks' counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LatencySpread {
    /// Requests of each class.
    counts: LatencyCounts,
}

impl LatencySpread {
    /// Of all disks in a phase; `of` chooses a direction.
    pub fn of(phase: &WorkloadPhase, of: fn(&DiskCounters) -> &LatencyCounts) -> Self {
        let mut counts = [0; LATENCY_CLASSES];
        for disk in &phase.model {
            for (sum, count) in counts.iter_mut().zip(of(disk)) {
                *sum += count;
            }
        }
        Self { counts }
    }

    /// Requests in all.
    pub fn requests(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// At most how many milliseconds this share of the requests took: the end of a class, so at
    /// most twice too much. `None` without requests, or when they took longer than all classes.
    pub fn within_ms(&self, percent: u64) -> Option<f64> {
        let wanted = (self.requests() * percent).div_ceil(100);
        let mut seen = 0;
        let reached = |count: &u64| {
            seen += count;
            wanted > 0 && seen >= wanted
        };
        let class = self.counts.iter().position(reached)?;
        let power = u32::try_from(class)
            .ok()
            .filter(|_| class + 1 < LATENCY_CLASSES)?;
        Some(f64::from(1_u32 << power) / 100.0)
    }

    /// Requests, medians and tails, by names that begin with the direction.
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    pub fn figures(&self, direction: &str) -> PeerFigures {
        let all = PeerFigures::default().with(&format!("{direction}s"), self.requests() as f64);
        [50, 90, 99].into_iter().fold(all, |figures, percent| {
            figures.with_some(
                &format!("{direction}_{percent}_ms"),
                self.within_ms(percent),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::tests::phase;

    fn read_by(disks: &[&[(usize, u64)]]) -> LatencySpread {
        let model = disks.iter().map(|classes| {
            let mut counters = DiskCounters::default();
            for (class, count) in *classes {
                counters.read.latency[*class] = *count;
            }
            counters
        });
        let phase = WorkloadPhase {
            model: model.collect(),
            ..phase(0.5, 0.0, 0.0)
        };
        LatencySpread::of(&phase, |disk| &disk.read.latency)
    }

    #[test]
    fn all_disks_are_summed_up() {
        let spread = read_by(&[&[(0, 40)], &[(10, 9), (11, 1)]]);
        assert_eq!(spread.requests(), 50);
        assert_eq!(spread.within_ms(50), Some(0.01));
        assert_eq!(spread.within_ms(80), Some(0.01));
        assert_eq!(spread.within_ms(90), Some(10.24));
        assert_eq!(spread.within_ms(99), Some(20.48));
        let figures = spread.figures("read");
        assert_eq!(figures.get("reads"), Some(50.0));
        assert_eq!(figures.get("read_99_ms"), Some(20.48));
    }

    #[test]
    fn no_requests_and_endless_ones_have_no_figure() {
        assert_eq!(LatencySpread::default().within_ms(50), None);
        assert_eq!(read_by(&[&[(LATENCY_CLASSES - 1, 5)]]).within_ms(50), None);
    }
}
