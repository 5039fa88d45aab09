//! What the experiments of one machine's disk share: a modelled disk that is watched while streams
//! go to it and come back.
//!
//! [`streams`] has those who write and read: files of the file system itself, or HDFS' clients
//! through nodes on it. The clock stops when all that was written is on the device.

pub(super) mod files;
pub(super) mod streams;

use std::path::{Path, PathBuf};
use std::time::Instant;

use hayloft_bench::fair::counters::{pressed_s, processors};
use tempfile::TempDir;

use crate::runner::options::ExperimentOptions;
use crate::runner::record::{PeerFigures, WARM};
use crate::runner::{PeerTurn, Run, WARM_UP_MIB};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::lab_binary;
use hayloft_testkit::machine;
use hayloft_testkit::modelled::{
    HostedDisk, HostedFileSystem, ModelledDisk, Params, Stats, missing,
};

use streams::StreamSource;

/// The choices of an experiment on one disk with the model's own rates.
pub(super) fn options() -> ExperimentOptions {
    let model = Params::default();
    let rate = |bytes_s: u64| u32::try_from(bytes_s / 1_000_000).unwrap_or(u32::MAX);
    ExperimentOptions {
        disk_mbs: (rate(model.read_bytes_s), rate(model.write_bytes_s)),
        ..ExperimentOptions::default()
    }
}

/// The file systems of these that this machine can make. The page says why it cannot make the
/// others.
///
/// # Errors
/// When it can make none of them.
pub(super) fn available(
    run: &mut Run<'_>,
    wanted: [HostedFileSystem; 2],
) -> Result<Vec<HostedFileSystem>> {
    let mut can = Vec::new();
    for on in wanted {
        match missing(on) {
            None => can.push(on),
            Some(why) if can.is_empty() && Some(&on) == wanted.last() => return Err(why),
            Some(why) => run.leave_out(format!("{}: {why}", on.name())),
        }
    }
    Ok(can)
}

/// What a modelled disk says of a phase. Requests answered more than 2 ms late: this machine was
/// busy.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn account(stats: &Stats) -> PeerFigures {
    let requests = stats.read.requests + stats.write.requests;
    let bytes = stats.read.bytes + stats.write.bytes;
    PeerFigures::of([
        ("disk_busy", stats.utilisation),
        ("requests", requests as f64),
        (
            "request_bytes",
            bytes.checked_div(requests).unwrap_or(0) as f64,
        ),
        ("queue", stats.queue_mean),
        ("seeks", stats.seeks as f64),
        ("run_bytes", stats.run_mean_bytes as f64),
        ("late", stats.late as f64),
    ])
}

/// A modelled disk with a file system, in a directory of its own.
#[derive(Debug)]
pub(super) struct WatchedDisk {
    // Unmounted before its directory goes.
    disk: ModelledDisk,
    dir: TempDir,
}

impl WatchedDisk {
    /// A disk of the model's default rates with `on` it and room for twice `bytes`, below `work`.
    /// Where that is no file system, volumes are on the disk of `work`.
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
        std::fs::create_dir_all(disk.dir()).map_err(TestkitError::file("creating", disk.dir()))?;
        Ok(Self { disk, dir })
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        self.disk.dir()
    }

    /// The device.
    pub fn device(&self) -> &Path {
        &self.disk.place().device
    }

    /// The data directory of a node.
    pub fn volume(&self, node: usize) -> PathBuf {
        self.dir().join(format!("node-{node}"))
    }

    /// A file that is not on it, and goes with it.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What the disk says of `work`, beside what that gives.
    ///
    /// # Errors
    /// Those of `work`, and when the disk does not tell.
    pub fn watched<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, PeerFigures)> {
        self.disk.reset_stats()?;
        let done = work()?;
        Ok((done, account(&self.disk.stats()?)))
    }

    /// Watches `work`, which moves as many bytes, until all is on the disk.
    ///
    /// # Errors
    /// Those of `work`, and when disk or machine do not tell.
    pub fn timed(&self, bytes: u64, work: impl FnOnce() -> Result<()>) -> Result<PeerFigures> {
        machine::await_rest()?;
        let (figures, account) = self.watched(|| {
            let busy = machine::busy_seconds()?;
            let pressed = pressed_s();
            let began = Instant::now();
            work()?;
            machine::settle(self.dir())?;
            let seconds = began.elapsed().as_secs_f64();
            let used = machine::busy_seconds()? - busy;
            // Nodes and clients start a thread for each block, whose own counters end with it.
            let waited = pressed.zip(pressed_s()).map(|(then, now)| now - then);
            Ok(PeerFigures::of([
                ("mbs", megabytes(bytes) / seconds),
                ("seconds", seconds),
                // The model of the disk included.
                ("cpu", used / (seconds * processors())),
            ])
            .with_some("waited", waited.map(|waited| waited / seconds)))
        })?;
        Ok(figures.and(account))
    }
}

/// So many streams of so many bytes write and read `disk`, each byte of which is stored `copies`
/// times; where several wrote, one then reads alone what it wrote beside the others. Files are
/// removed at the end.
///
/// # Errors
/// When a stream fails or the page cache cannot be emptied.
pub(super) fn stream_round(
    disk: &WatchedDisk,
    source: &dyn StreamSource,
    streams: usize,
    (each, copies): (u64, u64),
) -> Result<Vec<(&'static str, PeerFigures)>> {
    let all = each * u64::try_from(streams).unwrap_or(u64::MAX);
    let mut done = vec![(
        "write",
        disk.timed(all * copies, || source.write(streams, each))?,
    )];
    let readers = [("read", streams, all), ("alone", 1, each)];
    for (what, readers, bytes) in readers.into_iter().take(if streams > 1 { 2 } else { 1 }) {
        cold()?;
        done.push((what, disk.timed(bytes, || source.read(readers, each))?));
    }
    source.remove()?;
    machine::settle(disk.dir())?;
    Ok(done)
}

/// Gives what `once` gives of streams of so many bytes in a turn's row, once two rounds in a row
/// took the same time within 5 %, at most eight: a JVM compiles while it works. Streams of those
/// rounds are as short as in a round that does not count, which warms nothing.
///
/// # Errors
/// Those of `once`.
pub(super) fn warm_round(
    turn: &mut PeerTurn<'_>,
    (row, each): (&str, u64),
    once: &mut dyn FnMut(u64) -> Result<Vec<(&'static str, PeerFigures)>>,
) -> Result<()> {
    let seconds = |figures: &PeerFigures| figures.get("seconds").unwrap_or(0.0);
    let short = each.min(u64::from(WARM_UP_MIB) << 20);
    let warm = turn.warm_up(|_| {
        let figures = once(short)?;
        Ok(figures.iter().map(|(_, figures)| seconds(figures)).sum())
    })?;
    for (what, figures) in once(each)? {
        turn.give_in(row, what, figures.with(WARM, warm));
    }
    Ok(())
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

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(super) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_the_mean_of_both_directions() {
        let mut stats = Stats {
            utilisation: 0.5,
            ..Stats::default()
        };
        assert_eq!(account(&stats).get("request_bytes"), Some(0.0));
        (stats.read.requests, stats.read.bytes) = (1, 4096);
        (stats.write.requests, stats.write.bytes) = (3, 3 << 20);
        let account = account(&stats);
        assert_eq!(account.get("requests"), Some(4.0));
        let mean = f64::from((4096 + (3 << 20)) / 4);
        assert_eq!(account.get("request_bytes"), Some(mean));
    }
}
