//! Figures of the rounds that count, and how they stand in tables.

use std::fmt::Write as _;

use super::super::in_words;
use super::{DiskPhase, StreamRound, WarmRounds, same};
use crate::report::spread;

/// Processors in use above this share limit what is measured.
const PROCESSORS_LIMIT: f64 = 0.8;

/// What the marks in cells mean, for a page.
pub(in crate::experiments) const MARKS: &str = concat!(
    "†: no two rounds in a row within 5 %, of eight before those that count. ",
    "‡: the last round is more than 5 % off the median. ",
    "§: processors were more than 80 % in use, so they limited it, not the disk.",
);

/// What all rounds of one phase gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::experiments) struct DiskFinding {
    /// MB/s: median, lowest, highest.
    pub mbs: (f64, f64, f64),
    /// Median share of the time in which the disk was busy, 0 to 1.
    pub busy: f64,
    /// Median of the mean runs on the disk, MiB.
    pub run_mib: f64,
    /// Median of the mean requests, KiB.
    pub request_kib: f64,
    /// Median of the mean queue, requests.
    pub queue: f64,
    /// Median share of the processors in use, 0 to 1.
    pub processors: f64,
    /// Late answers of all rounds.
    pub late: u64,
    settled: bool,
    last_mbs: f64,
}

impl DiskFinding {
    /// Of the phase that `of` takes from a round; `None` when no round has it.
    pub fn of<T>(rounds: &WarmRounds<T>, of: fn(&T) -> Option<DiskPhase>) -> Option<Self> {
        let phases: Vec<DiskPhase> = rounds.rounds.iter().filter_map(of).collect();
        let last_mbs = phases.last()?.mbs;
        let all = |value: &dyn Fn(&DiskPhase) -> f64| spread(phases.iter().map(value).collect());
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let divided = |bytes: u64, by: u32| bytes as f64 / f64::from(by);
        Some(Self {
            mbs: all(&|phase| phase.mbs),
            busy: all(&|phase| phase.disk.busy).0,
            run_mib: all(&|phase| divided(phase.disk.run_mean_bytes, 1 << 20)).0,
            request_kib: all(&|phase| divided(phase.disk.request_mean_bytes, 1 << 10)).0,
            queue: all(&|phase| phase.disk.queue_mean).0,
            processors: all(&|phase| phase.processors).0,
            late: phases.iter().map(|phase| phase.disk.late).sum(),
            settled: rounds.settled,
            last_mbs,
        })
    }

    /// Of writing and of reading.
    pub fn both(rounds: &WarmRounds<StreamRound>) -> (Self, Self) {
        let write = Self::of(rounds, |round| Some(round.write));
        let read = Self::of(rounds, |round| Some(round.read));
        (write.unwrap_or_default(), read.unwrap_or_default())
    }

    /// MB/s with spread and [`MARKS`].
    pub fn cell(&self) -> String {
        let marks = [
            (!self.settled, '†'),
            (!same(self.last_mbs, self.mbs.0), '‡'),
            (self.processors > PROCESSORS_LIMIT, '§'),
        ];
        let marks = marks
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, mark)| mark);
        in_words(self.mbs) + &marks.collect::<String>()
    }
}

/// A table of the thesis' rates, MB/s, writing and reading; shares are of the first line.
pub(in crate::experiments) fn thesis_table(
    title: &str,
    of: &str,
    lines: &[(&str, f64, f64)],
) -> String {
    let mut text = format!(
        "\n## The thesis ({title})\n\n| | write MB/s | of {of} | read MB/s | of {of} |\n\
         |---|---|---|---|---|\n",
    );
    for (name, w, r) in lines {
        let (of_write, of_read) = (percent(*w, lines[0].1), percent(*r, lines[0].2));
        let _ = writeln!(text, "| {name} | {w} | {of_write} | {r} | {of_read} |");
    }
    text
}

/// A rate as per cent of another one.
pub(in crate::experiments) fn percent(rate: f64, of: f64) -> String {
    if of > 0.0 {
        format!("{:.0} %", rate / of * 100.0)
    } else {
        "-".into()
    }
}

#[cfg(test)]
pub(in crate::experiments) mod tests {
    use super::super::DiskAccount;
    use super::*;

    /// A round at these rates.
    pub(in crate::experiments) fn round(write: f64, read: f64, alone: Option<f64>) -> StreamRound {
        let phase = |mbs| DiskPhase {
            mbs,
            seconds: 1.0,
            processors: 0.5,
            disk: DiskAccount {
                busy: 0.9,
                run_mean_bytes: 3 << 20,
                request_mean_bytes: 512 << 10,
                ..DiskAccount::default()
            },
        };
        StreamRound {
            write: phase(write),
            read: phase(read),
            alone: alone.map(phase),
        }
    }

    /// Warm rounds.
    pub(in crate::experiments) fn warm<T>(rounds: Vec<T>) -> WarmRounds<T> {
        WarmRounds {
            warm_ups: 2,
            settled: true,
            rounds,
        }
    }

    #[test]
    fn a_finding_is_the_median_and_marks_what_is_in_doubt() {
        let mut rounds = warm(vec![
            round(80.0, 100.0, None),
            round(70.0, 101.0, None),
            round(75.0, 99.0, None),
        ]);
        let (write, read) = DiskFinding::both(&rounds);
        assert_eq!(write.mbs, (75.0, 70.0, 80.0));
        assert!((write.run_mib - 3.0).abs() < 1e-9 && (write.request_kib - 512.0).abs() < 1e-9);
        assert_eq!(write.cell(), "75.0 (70.0 to 80.0)");
        assert_eq!(read.cell(), "100.0 (99.0 to 101.0)");
        assert_eq!(DiskFinding::of(&rounds, |round| round.alone), None);
        rounds.settled = false;
        rounds.rounds[2].write.mbs = 90.0;
        rounds
            .rounds
            .iter_mut()
            .for_each(|r| r.write.processors = 0.9);
        let (write, _) = DiskFinding::both(&rounds);
        assert_eq!(write.cell(), "80.0 (70.0 to 90.0)†‡§");
    }

    #[test]
    fn a_share_of_nothing_is_no_figure() {
        assert_eq!(percent(50.0, 95.0), "53 %");
        assert_eq!(percent(50.0, 0.0), "-");
    }
}
