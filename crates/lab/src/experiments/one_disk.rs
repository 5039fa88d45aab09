//! What the experiments of one machine's disk share: a modelled disk that is watched while streams
//! go to it and come back, rounds that count only when the peer is warm, and cells of tables.
//!
//! [`streams`] has those who write and read: files of the file system itself, or HDFS' clients
//! through nodes on it. The clock stops when all that was written is on the device.

pub(super) mod files;
pub(super) mod findings;
pub(super) mod streams;

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use tempfile::TempDir;

use super::ExperimentOptions;
use crate::report;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::lab_binary;
use hayloft_testkit::machine;
use hayloft_testkit::modelled::{
    HostedDisk, HostedFileSystem, ModelledDisk, Params, Stats, missing,
};

use streams::StreamSource;

/// Rounds before those that count, at most.
const WARM_UPS_MAX: usize = 8;
/// Rates within this share of each other are the same.
const SAME: f64 = 0.05;

/// An experiment with the disk of one machine.
#[derive(Clone, Copy, Debug)]
pub struct DiskExperiment {
    /// Its name.
    pub name: &'static str,
    /// What it shows, in a line.
    pub about: &'static str,
    /// MiB of each stream unless the caller wants another number.
    pub mib: u32,
    /// Carries it out; the page.
    pub(super) carry_out: fn(&mut DiskRun<'_>) -> Result<String>,
}

/// A run of such an experiment.
pub(super) struct DiskRun<'a> {
    pub options: &'a ExperimentOptions,
    /// For the page.
    pub command: &'a str,
    /// Where disks go.
    pub work: &'a Path,
    /// Where page and data go.
    out: &'a Path,
    /// What this machine cannot do, in words.
    pub left_out: Vec<String>,
    pub tell: &'a mut dyn FnMut(&str),
}

impl DiskExperiment {
    /// Carries it out with its disks below `work`. Page and raw data go to `out` after each row, so
    /// an interrupted run leaves what it has. Gives back the page.
    ///
    /// # Errors
    /// When something is missing here, a cluster does not start or a stream fails; the rows that
    /// were measured before are in `out`.
    pub fn run(
        &self,
        options: &ExperimentOptions,
        command: &str,
        (work, out): (&Path, &Path),
        tell: &mut dyn FnMut(&str),
    ) -> Result<String> {
        std::fs::create_dir_all(work).map_err(TestkitError::file("creating", work))?;
        (self.carry_out)(&mut DiskRun {
            options,
            command,
            work,
            out,
            left_out: Vec::new(),
            tell,
        })
    }
}

impl DiskRun<'_> {
    /// Bytes of a stream.
    pub fn stream_bytes(&self) -> u64 {
        u64::from(self.options.mib) << 20
    }

    /// The file systems of these that this machine can make. The page says why it cannot make the
    /// others.
    ///
    /// # Errors
    /// When it can make none of them.
    pub fn available(&mut self, wanted: [HostedFileSystem; 2]) -> Result<Vec<HostedFileSystem>> {
        let mut can = Vec::new();
        for on in wanted {
            match missing(on) {
                None => can.push(on),
                Some(why) if can.is_empty() && Some(&on) == wanted.last() => return Err(why),
                Some(why) => self.left_out.push(format!("{}: {why}", on.name())),
            }
        }
        Ok(can)
    }

    /// A line a file system that was left out.
    pub fn say_left_out(&self, text: &mut String) {
        for what in &self.left_out {
            let _ = writeln!(text, "\nLeft out: {what}.");
        }
    }

    /// Writes page and raw data of all rows so far.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save<R: Serialize>(&self, page: &str, rows: &[R]) -> Result<()> {
        let record = DiskRecord {
            command: self.command,
            machine: machine::describe(),
            rounds: self.options.rounds,
            mib: self.options.mib,
            left_out: &self.left_out,
            rows,
        };
        report::save_page(self.out, page, "rows.json", &record)
    }
}

/// What a modelled disk says of one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DiskAccount {
    /// Share of the time in which it served a request, 0 to 1.
    pub busy: f64,
    /// Requests.
    pub requests: u64,
    /// Mean bytes of one.
    pub request_mean_bytes: u64,
    /// Requests waiting when one was chosen, on average.
    pub queue_mean: f64,
    /// Requests for which the head was positioned anew.
    pub seeks: u64,
    /// Mean bytes that follow each other on the disk.
    pub run_mean_bytes: u64,
    /// Requests answered more than 2 ms late: this machine was busy.
    pub late: u64,
    /// The latest of them, milliseconds.
    pub late_worst_ms: f64,
}

impl From<&Stats> for DiskAccount {
    fn from(stats: &Stats) -> Self {
        let requests = stats.read.requests + stats.write.requests;
        let bytes = stats.read.bytes + stats.write.bytes;
        Self {
            busy: stats.utilisation,
            requests,
            request_mean_bytes: bytes.checked_div(requests).unwrap_or(0),
            queue_mean: stats.queue_mean,
            seeks: stats.seeks,
            run_mean_bytes: stats.run_mean_bytes,
            late: stats.late,
            late_worst_ms: stats.late_worst_ms,
        }
    }
}

/// One phase of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DiskPhase {
    /// MB/s: all bytes over the time until the last stream was done.
    pub mbs: f64,
    /// That time, seconds.
    pub seconds: f64,
    /// Share of all processors in use, 0 to 1, the model of the disk included.
    pub processors: f64,
    /// What the disk says.
    pub disk: DiskAccount,
}

/// A modelled disk with a file system, in a directory of its own.
#[derive(Debug)]
pub(super) struct WatchedDisk {
    // Unmounted before its directory goes.
    disk: ModelledDisk,
    _dir: TempDir,
}

impl WatchedDisk {
    /// A disk of the model's default rates with `on` it and room for twice `bytes`, below `work`.
    ///
    /// # Errors
    /// When something that it needs is missing here, or it does not come up.
    pub fn mount(work: &Path, on: HostedFileSystem, bytes: u64) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("disk-")
            .tempdir_in(work)
            .map_err(TestkitError::file("creating a directory in", work))?;
        let wanted = HostedDisk {
            size: 2 * bytes + (2 << 30),
            file_system: on,
            params: Params::default(),
            dir: dir.path().join("mnt"),
            backing: None,
        };
        let disk = ModelledDisk::mount(&lab_binary()?, &wanted, &dir.path().join("log"))?;
        Ok(Self { disk, _dir: dir })
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        self.disk.dir()
    }

    /// Watches `work`, which moves as many bytes, until all is on the disk.
    ///
    /// # Errors
    /// Those of `work`, and when disk or machine do not tell.
    pub fn timed(&self, bytes: u64, work: impl FnOnce() -> Result<()>) -> Result<DiskPhase> {
        machine::await_rest()?;
        self.disk.reset_stats()?;
        let busy = machine::busy_seconds()?;
        let began = Instant::now();
        work()?;
        machine::settle(self.dir())?;
        let seconds = began.elapsed().as_secs_f64();
        let used = machine::busy_seconds()? - busy;
        Ok(DiskPhase {
            mbs: megabytes(bytes) / seconds,
            seconds,
            processors: used / (seconds * processors()),
            disk: DiskAccount::from(&self.disk.stats()?),
        })
    }
}

/// What one round of streams gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StreamRound {
    /// All write at the same time.
    pub write: DiskPhase,
    /// All read their own at the same time.
    pub read: DiskPhase,
    /// One reads what it wrote beside the others; `None` where it wrote alone.
    pub alone: Option<DiskPhase>,
}

impl StreamRound {
    /// So many streams of so many bytes write and read `disk`, each byte of which is stored
    /// `copies` times; files are removed at the end.
    ///
    /// # Errors
    /// When a stream fails or the page cache cannot be emptied.
    pub(super) fn run(
        disk: &WatchedDisk,
        source: &dyn StreamSource,
        streams: usize,
        (each, copies): (u64, u64),
    ) -> Result<Self> {
        let all = each * u64::try_from(streams).unwrap_or(u64::MAX);
        let write = disk.timed(all * copies, || source.write(streams, each))?;
        let read = |streams, bytes| {
            cold()?;
            disk.timed(bytes, || source.read(streams, each))
        };
        let round = Self {
            write,
            read: read(streams, all)?,
            alone: (streams > 1).then(|| read(1, each)).transpose()?,
        };
        source.remove()?;
        machine::settle(disk.dir())?;
        Ok(round)
    }

    pub(super) fn rates(&self) -> Vec<f64> {
        let alone = self.alone.map(|phase| phase.mbs);
        [self.write.mbs, self.read.mbs]
            .into_iter()
            .chain(alone)
            .collect()
    }
}

/// Empties the page cache.
pub(super) fn cold() -> Result<()> {
    if machine::drop_caches() {
        return Ok(());
    }
    Err(TestkitError::Talk(
        "the page cache cannot be emptied: be root".into(),
    ))
}

/// Rounds that count, and whether the peer was warm before them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WarmRounds<T> {
    /// Rounds before them.
    pub warm_ups: usize,
    /// Whether the last two of those had the same rates.
    pub settled: bool,
    /// Those that count.
    pub rounds: Vec<T>,
}

impl<T> WarmRounds<T> {
    /// Repeats `once` until the rates of two rounds in a row are the same, at most eight times, and
    /// then `count` times for the table: a JVM compiles while it works.
    ///
    /// # Errors
    /// Those of `once`.
    pub(super) fn run(
        count: usize,
        rates: fn(&T) -> Vec<f64>,
        once: &mut dyn FnMut() -> Result<T>,
    ) -> Result<Self> {
        let (mut before, mut warm_ups, mut settled) = (Vec::new(), 0, false);
        while warm_ups < WARM_UPS_MAX && !settled {
            let now = rates(&once()?);
            settled = before.len() == now.len()
                && before.iter().zip(&now).all(|(then, now)| same(*then, *now));
            before = now;
            warm_ups += 1;
        }
        let rounds = (0..count).map(|_| once()).collect::<Result<_>>()?;
        Ok(Self {
            warm_ups,
            settled,
            rounds,
        })
    }
}

/// Whether two rates are within five per cent.
pub(super) fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= SAME * a.max(b)
}

/// The raw data of an experiment.
#[derive(Debug, Serialize)]
struct DiskRecord<'a, R> {
    command: &'a str,
    machine: std::collections::BTreeMap<String, String>,
    rounds: usize,
    mib: u32,
    left_out: &'a [String],
    rows: &'a [R],
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(super) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "a few processors")]
fn processors() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The page that `page` makes of a run with the default options and this left out.
    pub(in crate::experiments) fn page_of<R>(
        page: fn(&DiskRun<'_>, &[R]) -> String,
        left_out: &[&str],
        rows: &[R],
    ) -> String {
        let run = DiskRun {
            options: &ExperimentOptions::default(),
            command: "c",
            work: Path::new("/"),
            out: Path::new("/"),
            left_out: left_out.iter().map(ToString::to_string).collect(),
            tell: &mut |_| {},
        };
        page(&run, rows)
    }

    #[test]
    fn a_peer_is_warm_when_two_rounds_are_the_same() {
        let run = |rates: &[f64]| {
            let mut rates = rates.iter().copied();
            let mut once = || Ok(rates.next().unwrap_or(1.0));
            WarmRounds::run(2, |rate| vec![*rate], &mut once).expect("no round fails")
        };
        let warm = run(&[50.0, 80.0, 99.0, 100.0, 101.0, 102.0]);
        assert_eq!((warm.warm_ups, warm.settled), (4, true));
        assert_eq!(warm.rounds, [101.0, 102.0]);
        let never = run(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 9.0, 8.0]);
        assert_eq!((never.warm_ups, never.settled), (WARM_UPS_MAX, false));
        assert_eq!(never.rounds, [9.0, 8.0]);
    }

    #[test]
    fn an_account_has_the_mean_of_both_directions() {
        let mut stats = Stats {
            utilisation: 0.5,
            ..Stats::default()
        };
        assert_eq!(DiskAccount::from(&stats).request_mean_bytes, 0);
        (stats.read.requests, stats.read.bytes) = (1, 4096);
        (stats.write.requests, stats.write.bytes) = (3, 3 << 20);
        let account = DiskAccount::from(&stats);
        assert_eq!(account.requests, 4);
        assert_eq!(account.request_mean_bytes, (4096 + (3 << 20)) / 4);
    }
}
