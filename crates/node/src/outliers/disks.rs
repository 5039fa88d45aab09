//! Which volumes are much slower than the others.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use hayloft_store::VolumeTimes;
use hayloft_wire::proto::datanode::SlowDiskReport;
use tokio::time::Instant;

use super::detector::usual;
use super::rolling::mean_ms;

/// What it takes to be called slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskRules {
    /// Volumes that must be known (`dfs.datanode.min.outlier.detection.disks`).
    pub disks: u64,
    /// A volume up to this is not slow (`dfs.datanode.slowdisk.low.threshold.ms`).
    pub low: Duration,
    /// Time between searches (`dfs.datanode.outliers.report.interval`).
    pub interval: Duration,
}

/// One kind of operation on one volume.
#[derive(Clone, Copy, Debug, Default)]
struct OperationMean {
    /// The totals at the last search.
    before: (u64, Duration),
    /// The mean between the last two searches between which there were any, in milliseconds.
    mean: f64,
}

impl OperationMean {
    fn update(&mut self, (count, total): (u64, Duration)) {
        let (mut count_before, mut total_before) = self.before;
        if count < count_before || total < total_before {
            // The volume left and came back in between: it counts from 0 again.
            (count_before, total_before) = (0, Duration::ZERO);
        }
        let more = count.saturating_sub(count_before);
        if more > 0 {
            self.mean = mean_ms(more, total.saturating_sub(total_before));
        }
        self.before = (count, total);
    }
}

/// Metadata operations, reads, writes.
type OperationMeans = [OperationMean; 3];

/// The searches for slow volumes.
#[derive(Debug, Default)]
pub struct SlowDisks {
    volumes: HashMap<PathBuf, OperationMeans>,
    searched: Option<Instant>,
    found: Vec<(PathBuf, SlowDiskReport)>,
}

impl SlowDisks {
    /// Whether the last search is an interval ago.
    #[must_use]
    pub fn is_due(&self, rules: DiskRules, now: Instant) -> bool {
        self.searched
            .is_none_or(|at| now.saturating_duration_since(at) >= rules.interval)
    }

    /// Searches, given what was measured so far.
    pub fn search(&mut self, rules: DiskRules, times: Vec<VolumeTimes>, now: Instant) {
        self.searched = Some(now);
        self.volumes
            .retain(|path, _| times.iter().any(|t| t.path == *path));
        for VolumeTimes {
            path,
            metadata,
            read,
            write,
            ..
        } in times
        {
            let kinds = self.volumes.entry(path).or_default();
            for (kind, totals) in kinds.iter_mut().zip([metadata, read, write]) {
                kind.update(totals);
            }
        }
        let low = rules.low.as_secs_f64() * 1000.0;
        let limits: [Option<f64>; 3] = std::array::from_fn(|i| {
            let means = self.volumes.values().map(|kinds| kinds[i].mean);
            usual(means, rules.disks, low).map(|usual| usual.limit)
        });
        self.found.clear();
        for (path, kinds) in &self.volumes {
            let slow: [Option<f64>; 3] = std::array::from_fn(|i| {
                let limit = limits[i]?;
                (kinds[i].mean > limit).then_some(kinds[i].mean)
            });
            if slow.iter().any(Option::is_some) {
                self.found.push((path.clone(), report(path, slow)));
            }
        }
        self.found
            .sort_by(|a, b| worst(&b.1).total_cmp(&worst(&a.1)));
    }

    /// What the last search found, slowest first.
    #[must_use]
    pub fn reports(&self) -> Vec<SlowDiskReport> {
        self.found
            .iter()
            .map(|(_, report)| report.clone())
            .collect()
    }

    /// The `most` slowest directories that the last search found.
    #[must_use]
    pub fn slowest(&self, most: usize) -> Vec<PathBuf> {
        let slowest = self.found.iter().take(most);
        slowest.map(|(path, _)| path.clone()).collect()
    }
}

/// The path as Java's `File.toURI` has it for a directory, with a slash at its end.
fn report(path: &std::path::Path, [metadata, read, write]: [Option<f64>; 3]) -> SlowDiskReport {
    SlowDiskReport {
        base_path: Some(format!("{}/", path.display())),
        mean_metadata_op_latency: metadata,
        mean_read_io_latency: read,
        mean_write_io_latency: write,
    }
}

fn worst(report: &SlowDiskReport) -> f64 {
    let latencies = [
        report.mean_metadata_op_latency,
        report.mean_read_io_latency,
        report.mean_write_io_latency,
    ];
    latencies.into_iter().flatten().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: DiskRules = DiskRules {
        disks: 3,
        low: Duration::from_millis(20),
        interval: Duration::from_secs(60),
    };
    const MS: Duration = Duration::from_millis(1);

    /// Ten writes of so many milliseconds each on every volume, and one read of 1 ms.
    fn times(writes: &[u32]) -> Vec<VolumeTimes> {
        let volumes = writes.iter().enumerate().map(|(i, ms)| VolumeTimes {
            path: format!("/d/{i}").into(),
            metadata: (0, Duration::ZERO),
            read: (1, MS),
            write: (10, 10 * *ms * MS),
            sync: (0, Duration::ZERO),
            errors: 0,
        });
        volumes.collect()
    }

    #[test]
    fn the_slow_volume_is_named_with_what_is_slow_about_it() {
        let (mut disks, now) = (SlowDisks::default(), Instant::now());
        assert!(disks.is_due(RULES, now));
        disks.search(RULES, times(&[10, 12, 500, 8]), now);
        let reports = disks.reports();
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].base_path.as_deref(), Some("/d/2/"));
        assert_eq!(reports[0].mean_write_io_latency, Some(500.0));
        assert_eq!(reports[0].mean_read_io_latency, None);
        assert_eq!(disks.slowest(5), [PathBuf::from("/d/2")]);
        assert!(disks.slowest(0).is_empty());
        assert!(!disks.is_due(RULES, now + Duration::from_secs(59)));
        assert!(disks.is_due(RULES, now + Duration::from_secs(60)));
    }

    #[test]
    fn only_what_happened_since_the_last_search_counts() {
        let (mut disks, now) = (SlowDisks::default(), Instant::now());
        disks.search(RULES, times(&[10, 12, 500, 8]), now);
        disks.search(RULES, times(&[10, 12, 500, 8]), now);
        assert_eq!(
            disks.reports().len(),
            1,
            "nothing happened: the last mean stands"
        );
        let mut better = times(&[10, 12, 500, 8]);
        better[2].write = (1010, 5000 * MS + 1000 * MS);
        disks.search(RULES, better, now);
        assert!(disks.reports().is_empty(), "a millisecond each since");
    }

    #[test]
    fn few_volumes_and_little_time_say_nothing() {
        let (mut disks, now) = (SlowDisks::default(), Instant::now());
        disks.search(RULES, times(&[1, 500]), now);
        assert!(disks.reports().is_empty());
        let mut disks = SlowDisks::default();
        disks.search(RULES, times(&[1, 1, 1, 20]), now);
        assert!(
            disks.reports().is_empty(),
            "20 ms is not above the threshold"
        );
    }

    #[test]
    fn a_volume_that_left_is_forgotten() {
        let (mut disks, now) = (SlowDisks::default(), Instant::now());
        disks.search(RULES, times(&[1, 1, 1, 500]), now);
        disks.search(RULES, times(&[1, 1, 1]), now);
        assert!(disks.reports().is_empty());
    }
}
