//! A disk without a file system: the engine `raw` on a modelled disk, beside `direct` on ext4 on
//! such a disk, and beside what the disk itself gives. Names and checksums of `raw` are on the disk
//! of this machine, as they are on flash where it is used.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Command;

use hayloft_bench::fair::counters::processors;

use super::one_disk::files::Calls;
use super::one_disk::streams::{HdfsStreams, StreamAccess, StreamSource};
use super::one_disk::{self, WatchedDisk, available, stream_round, warm_round};
use crate::runner::options::ExperimentOptions;
use crate::runner::record::PeerFigures;
use crate::runner::table::{Bar, Shown, WantedRatio, pick};
use crate::runner::{Experiment, PeerTurn, Run};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::repository_root;
use hayloft_testkit::machine::CPU_MIB;
use hayloft_testkit::modelled::HostedFileSystem;
use hayloft_testkit::mounts;

/// The experiment.
pub const BARE_DISK: Experiment = Experiment {
    name: "bare-disk",
    question: "what a disk gives without a file system, by the engine raw",
    paper: "the thesis' section 4.3",
    options: || ExperimentOptions {
        mib: 4096,
        rounds: 5,
        ..one_disk::options()
    },
    about: |options| {
        format!(
            "One modelled hard disk (not a real one), one replica, blocks of {} MiB, {} MiB in a \
             row, which its streams share. The client is the stock Java client. `{DEVICE}`: one \
             stream to the disk and back, past the page cache, without HDFS. `{DIRECT}`: the \
             default engine on ext4. `{RAW}`: the plug-in has the disk, and names and checksums \
             are on this machine's own. Both nodes are told that the disk rotates. MB/s until all \
             that was written is on the disk; caches are dropped before reading. Seconds of the \
             machine have client, node, kernel and the model of the disk in them, and are told of \
             4 GiB or more.",
            options.block_mib, options.mib
        )
    },
    measure: carry_out,
    shown: Shown {
        title: "A disk without a file system",
        tables: include_str!("tables/bare-disk.txt"),
        wants,
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// The disk itself, in tables.
const DEVICE: &str = "device";
const DIRECT: &str = "direct";
const RAW: &str = "raw";
/// In this order. The disk itself has one stream.
const PEERS: [(&str, HostedFileSystem); 3] = [
    (DEVICE, HostedFileSystem::Raw),
    (DIRECT, HostedFileSystem::Ext4),
    (RAW, HostedFileSystem::Raw),
];
/// Streams at once.
const COUNTS: [usize; 3] = [1, 4, 16];
const STREAMS_MAX: u32 = 16;
/// Bar: of the disk's own stream.
const OF_DEVICE: f64 = 0.98;
/// From so much of `direct`'s rate on the engine is to be built in.
const TO_BE_BUILT_IN: f64 = 1.15;

fn wants() -> Vec<WantedRatio> {
    let mut wants = Vec::new();
    for (streams, what) in COUNTS.iter().flat_map(|n| [(n, "write"), (n, "read")]) {
        let of = |peer, figure| pick("", &streams.to_string(), peer, what, figure);
        wants.push(WantedRatio {
            text: format!("{streams} streams {what}, {RAW} to the disk's own stream"),
            of: of(RAW, "mbs"),
            over: pick("", "1", DEVICE, what, "mbs"),
            bar: Bar::Least(OF_DEVICE),
        });
        wants.push(WantedRatio {
            text: format!("{streams} streams {what}, seconds of the machine, {RAW} to {DIRECT}"),
            of: of(RAW, "machine_s_gib"),
            over: of(DIRECT, "machine_s_gib"),
            bar: Bar::Most(1.0),
        });
        wants.push(WantedRatio {
            text: format!("{streams} streams {what}, {RAW} to {DIRECT}, to become an engine"),
            of: of(RAW, "mbs"),
            over: of(DIRECT, "mbs"),
            bar: Bar::Least(TO_BE_BUILT_IN),
        });
    }
    wants
}

fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    for (_, on) in PEERS {
        available(run, [on; 2])?;
    }
    let first = COUNTS[0].to_string();
    let peers = PEERS.map(|(name, _)| (first.as_str(), name));
    run.rounds(part, &peers, &mut |turn, at| {
        let (name, on) = PEERS[at];
        // A node keeps the room of a block for each that is being written.
        let blocks = STREAMS_MAX * turn.options.block_mib;
        let room = u64::from(turn.mib() + blocks) << 20;
        let disk = WatchedDisk::mount(&turn.dir, on, room)?;
        if name == DEVICE {
            let stream = BareStream(disk.device().to_owned());
            return rows(turn, &disk, (&stream, &[]), &COUNTS[..1]);
        }
        let mut options = turn.options.clone();
        if name == RAW {
            let volume = disk.volume(0).display().to_string();
            let engine = raw_on(&disk)?;
            options
                .conf
                .insert(format!("hayloft.io.engine.{volume}"), engine);
        }
        let hdfs = HdfsStreams::start(&disk, StreamAccess::Hayloft, 1, &options)?;
        rows(turn, &disk, (&hdfs, hdfs.pids()), &COUNTS)?;
        hdfs.end();
        Ok(())
    })
}

/// The plug-in of this tree on the disk, as the configuration has it.
fn raw_on(disk: &WatchedDisk) -> Result<String> {
    let (plugins, so) = (repository_root().join("plugins"), disk.beside("raw.so"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&so);
    mounts::run(cc.arg(plugins.join("raw.c")).arg("-lpthread"))?;
    Ok(format!(
        "plugin:{} {}",
        so.display(),
        disk.device().display()
    ))
}

/// Streams of so many counts, which share what there is to move; `nodes`: processes between them
/// and the disk.
fn rows(
    turn: &mut PeerTurn<'_>,
    disk: &WatchedDisk,
    (source, nodes): (&dyn StreamSource, &[u32]),
    counts: &[usize],
) -> Result<()> {
    let all = u64::from(turn.mib()) << 20;
    for streams in counts {
        let each = all / u64::try_from(*streams).unwrap_or(1);
        let mut once = |each: u64| -> Result<Vec<(&'static str, PeerFigures)>> {
            let clocked = Clocked {
                source,
                nodes,
                marks: RefCell::default(),
            };
            let done = stream_round(disk, &clocked, *streams, (each, 1))?;
            let marks = clocked.marks.into_inner();
            let phases = done.into_iter().zip(marks.windows(2));
            Ok(phases
                .map(|((what, figures), mark)| {
                    let of = if what == "alone" { 1 } else { *streams };
                    (what, for_a_gib(figures, each, of, mark[1] - mark[0]))
                })
                .collect())
        };
        warm_round(turn, (streams.to_string().as_str(), each), &mut once)?;
    }
    Ok(())
}

/// Figures with processor seconds for each GiB of so many streams, where enough was moved to tell.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn for_a_gib(figures: PeerFigures, each: u64, streams: usize, node_s: f64) -> PeerFigures {
    let mib = each as f64 / f64::from(1 << 20) * streams as f64;
    let enough = |seconds: f64| (mib >= CPU_MIB).then_some(seconds / (mib / 1024.0));
    let machine = figures.get("cpu").zip(figures.get("seconds"));
    let machine = machine.map(|(share, seconds)| share * seconds * processors());
    figures
        .with_some("node_s_gib", enough(node_s))
        .with_some("machine_s_gib", machine.and_then(enough))
}

/// Streams, with the processor time of nodes when each phase began, and at the end.
struct Clocked<'a> {
    source: &'a dyn StreamSource,
    nodes: &'a [u32],
    marks: RefCell<Vec<f64>>,
}

impl Clocked<'_> {
    fn mark(&self) -> Result<()> {
        let now = one_disk::streams::cpu_s(self.nodes)?;
        self.marks.borrow_mut().push(now);
        Ok(())
    }
}

impl StreamSource for Clocked<'_> {
    fn write(&self, streams: usize, each: u64) -> Result<()> {
        self.mark()?;
        self.source.write(streams, each)
    }

    fn read(&self, streams: usize, each: u64) -> Result<()> {
        self.mark()?;
        self.source.read(streams, each)
    }

    fn remove(&self) -> Result<()> {
        self.mark()?;
        self.source.remove()
    }
}

/// One stream to the disk itself.
struct BareStream(PathBuf);

impl BareStream {
    const CALLS: Calls = Calls {
        direct: true,
        bytes: 1 << 20,
    };
}

impl StreamSource for BareStream {
    fn write(&self, _streams: usize, each: u64) -> Result<()> {
        Self::CALLS.write(&self.0, each)
    }

    fn read(&self, _streams: usize, each: u64) -> Result<()> {
        Self::CALLS.read(&self.0, each)
    }

    fn remove(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::page::ExperimentPage;
    use crate::runner::record::{PeerSample, Record};

    #[test]
    fn rates_are_shares_of_the_disk_s_own_stream_and_of_direct() {
        let of = |row, peer, mbs| {
            PeerSample::first(("", row, peer, "write"), PeerFigures::of([("mbs", mbs)]))
        };
        let samples = vec![
            of("1", DEVICE, 100.0),
            of("4", DIRECT, 95.0),
            of("4", RAW, 99.0),
        ];
        let record = Record {
            samples,
            ..Record::default()
        };
        let text = ExperimentPage::new(&BARE_DISK.shown, &record).body(2);
        assert!(text.contains("| 4 | raw | 99.0 | 99 % | 104 % |"), "{text}");
        assert!(
            text.contains("4 streams write, raw to the disk's own"),
            "{text}"
        );
    }

    #[test]
    fn processor_seconds_are_told_of_4_gib() {
        let figures = || PeerFigures::of([("cpu", 0.5), ("seconds", 8.0)]);
        let enough = for_a_gib(figures(), 1 << 30, 4, 6.0);
        assert_eq!(enough.get("node_s_gib"), Some(1.5));
        assert_eq!(enough.get("machine_s_gib"), Some(processors()));
        assert_eq!(
            for_a_gib(figures(), 1 << 30, 3, 6.0).get("node_s_gib"),
            None
        );
    }
}
