//! Snapshots to a server of S3: beside a bare copy to the same one, and beside clients.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use hayloft_bench::fair::counters::processors;
use hayloft_bench::fair::stock::{Medium, ours};
use hayloft_bench::names::{FileSpec, NameNodeClient};
use serde_json::Value;

use super::one_disk::{self, WatchedDisk, cold, megabytes};
use crate::runner::options::ExperimentOptions;
use crate::runner::record::{PeerFigures, WARM};
use crate::runner::table::{Bar, Shown, WantedRatio, pick};
use crate::runner::{Experiment, OURS, PeerTurn};
use hayloft_testkit::error::{Result, TestkitError, expect};
use hayloft_testkit::hadoop::hayloft_binary;
use hayloft_testkit::load::{
    Check, Data, LatencyTally, LoadLatencies, LoadPlace, LoadSettings, Offsets, Reader,
};
use hayloft_testkit::modelled::HostedFileSystem;
use hayloft_testkit::node::{Kind, NodeSpec, VolumeSpec};
use hayloft_testkit::s3_server::{self, S3Server};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, http, machine, mounts, ports};

/// The experiment.
pub const SNAPSHOTS: Experiment = Experiment {
    name: "snapshots",
    question: "snapshots to an object store, beside a bare copy and beside clients",
    options: || ExperimentOptions {
        mib: 1024,
        ..one_disk::options()
    },
    about: |options| {
        format!(
            "One Hayloft node on one modelled hard disk (not a real one) with ext4, {} MiB in \
             blocks of {} MiB, one replica, all cold. The store is moto's server of S3 on this \
             machine, which keeps objects in memory. `{COPY}`: boto3 copies the node's files with \
             its defaults. `{CREATE}`: `hayloft snapshot create`; `{AGAIN}`: the same once more. \
             `{BESIDE}`: the node takes a snapshot by itself, while a client reads {} KiB at a \
             random place each {} ms; times count from when a read was due.",
            options.mib,
            options.block_mib,
            READ_BYTES >> 10,
            PERIOD.as_millis(),
        )
    },
    measure: |run, part| {
        if let Some(missing) = hayloft_testkit::modelled::missing(HostedFileSystem::Ext4) {
            return Err(missing);
        }
        run.rounds(part, &[("", OURS)], &mut |turn, _| measure(turn))
    },
    shown: Shown {
        title: "Snapshots",
        tables: include_str!("tables/snapshots.txt"),
        wants,
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// What is done.
const COPY: &str = "bare copy";
const CREATE: &str = "snapshot";
const AGAIN: &str = "snapshot, unchanged";
const ALONE: &str = "clients alone";
const BESIDE: &str = "snapshot beside clients";

/// Bytes of a client's read, and from one to the next: it leaves the disk two thirds of its time.
const READ_BYTES: u64 = 1 << 20;
const PERIOD: Duration = Duration::from_millis(60);
/// Reads of clients alone.
const READS: u64 = 400;
/// A snapshot of a node by itself takes no longer.
const LIMIT: Duration = Duration::from_secs(1800);
/// A bare copy of the files that are named behind the bucket.
const SCRIPT: &str = "import sys, boto3\ns3 = boto3.client('s3')\n\
    for path in sys.argv[2:]: s3.upload_file(path, sys.argv[1], 'copy' + path)";

fn wants() -> Vec<WantedRatio> {
    let of = |what, figure| pick("", "", OURS, what, figure);
    let wanted = |text: &str, of, over, bar| WantedRatio {
        text: text.into(),
        of,
        over,
        bar,
    };
    vec![
        wanted(
            "a snapshot of an idle node to a bare copy",
            of(CREATE, "mbs"),
            of(COPY, "mbs"),
            Bar::Least(0.8),
        ),
        wanted(
            "a snapshot beside clients to a bare copy",
            of(BESIDE, "mbs"),
            of(COPY, "mbs"),
            Bar::Least(0.4),
        ),
        wanted(
            "clients' p99 beside a snapshot to alone",
            of(BESIDE, "p99_ms"),
            of(ALONE, "p99_ms"),
            Bar::Most(1.1),
        ),
    ]
}

/// A node with data on a disk, and the store.
struct Bed<'a> {
    // Dropped first to last: processes before the disk that they are on.
    store: S3Server,
    cluster: Cluster,
    python: String,
    disk: &'a WatchedDisk,
    data: Data,
    blocks: Vec<LoadPlace>,
    /// Of all files of replicas.
    bytes: u64,
}

fn measure(turn: &mut PeerTurn<'_>) -> Result<()> {
    let lacking = |why| TestkitError::Missing {
        what: format!("a server of S3: {why}"),
        todo: "run scripts/fetch-s3-server".into(),
    };
    let program = s3_server::program().map_err(lacking)?;
    let bytes = u64::from(turn.mib()) << 20;
    let disk = WatchedDisk::mount(&turn.dir, HostedFileSystem::Ext4, bytes)?;
    let block_bytes = u64::from(turn.options.block_mib) << 20;
    let mut bed = Bed::start(
        (&disk, &turn.dir),
        &program,
        (bytes, block_bytes.min(bytes)),
    )?;
    let mut whats = [COPY, CREATE];
    // Who is first in one round is second in the next.
    whats.rotate_left(turn.round % 2);
    for what in whats {
        turn.tell(what);
        let figures = match what {
            COPY => bed.copy(),
            _ => bed.create(bed.bytes),
        };
        turn.give(what, figures?.with(WARM, 1.0));
    }
    turn.tell(AGAIN);
    turn.give(AGAIN, bed.create(0)?.with(WARM, 1.0));
    turn.tell(ALONE);
    cold()?;
    let (alone, figures) =
        disk.watched(|| clients((&bed.data, &bed.blocks), &|reads| reads >= READS))?;
    turn.give(ALONE, latency(&alone).and(figures).with(WARM, 1.0));
    turn.tell(BESIDE);
    turn.give(BESIDE, bed.beside()?.with(WARM, 1.0));
    bed.cluster.succeed();
    Ok(())
}

impl<'a> Bed<'a> {
    /// Starts both, with logs in `dir`, and writes so many bytes in blocks of so many.
    fn start(
        (disk, dir): (&'a WatchedDisk, &Path),
        program: &str,
        (bytes, block_bytes): (u64, u64),
    ) -> Result<Self> {
        let store = S3Server::start(program, dir, None)?;
        let volume = VolumeSpec::at(disk.dir().join("node"));
        let mut spec = NodeSpec::new(Kind::Hayloft).volumes(vec![volume]);
        spec.conf = ours(Medium::Rotating, false);
        let env = store.env().into_iter();
        spec.env = env.map(|(name, value)| (name.to_owned(), value)).collect();
        let mut cluster = Cluster::builder("snapshots")
            .names_in_memory()
            .conf("dfs.replication", 1)
            .conf("dfs.datanode.du.reserved.pct", 0)
            .node(spec)
            .start()?;
        let names = NameNodeClient::new(&cluster.namenode(0).rpc())?;
        let data = Data::new();
        let file = FileSpec {
            path: "/file".into(),
            len: bytes,
            block_bytes,
            nodes: vec![cluster.node(0).xfer()],
        };
        let (settings, tally) = (LoadSettings::default(), &mut LatencyTally::default());
        let blocks = names.write(&file, &settings, &data, tally)?;
        machine::settle(disk.dir())?;
        let files = cluster.node(0).all_block_files();
        let length = |path: &std::path::PathBuf| std::fs::metadata(path).map_or(0, |m| m.len());
        Ok(Self {
            bytes: files.iter().map(length).sum(),
            python: Path::new(program)
                .with_file_name("python")
                .display()
                .to_string(),
            store,
            cluster,
            disk,
            data,
            blocks,
        })
    }

    /// The node's files to the store by a client of it that knows nothing of them.
    fn copy(&mut self) -> Result<PeerFigures> {
        cold()?;
        let mut python = Command::new(&self.python);
        python
            .args(["-c", SCRIPT, s3_server::BUCKET])
            .args(self.cluster.node(0).all_block_files())
            .envs(self.store.env())
            .env("AWS_DEFAULT_REGION", "us-east-1");
        self.disk
            .timed(self.bytes, || mounts::run(&mut python).map(drop))
    }

    /// `hayloft snapshot create`, which has to send so many bytes.
    fn create(&mut self, wanted: u64) -> Result<PeerFigures> {
        cold()?;
        let mut hayloft = Command::new(hayloft_binary()?);
        hayloft
            .args(["snapshot", "create", "--json", "--conf"])
            .arg(self.cluster.node(0).conf_dir())
            .args(["--to", &self.place("create")])
            .envs(self.store.env());
        let mut said = Value::Null;
        let figures = self.disk.timed(wanted, || {
            let output = mounts::run(&mut hayloft)?;
            let wrong = |error| TestkitError::Talk(format!("hayloft snapshot create: {error}"));
            said = serde_json::from_str(&output).map_err(wrong)?;
            Ok(())
        })?;
        let sent = said[0]["uploaded_bytes"].as_u64();
        expect(sent == Some(wanted), || {
            format!("not {wanted} bytes: {said}")
        })?;
        let sent = ("sent_bytes", exact(wanted));
        // Where nothing moves there is no rate.
        Ok(match (wanted, figures.get("seconds")) {
            (0, Some(seconds)) => PeerFigures::of([sent, ("seconds", seconds)]),
            _ => figures.with(sent.0, sent.1),
        })
    }

    fn place(&self, prefix: &str) -> String {
        format!("s3://{}/{prefix}", s3_server::BUCKET)
    }

    /// The node takes a snapshot by itself, and a client reads meanwhile.
    fn beside(&mut self) -> Result<PeerFigures> {
        let to = self.place("beside");
        let node = self.cluster.node(0);
        node.stop()?;
        node.conf_mut().set("hayloft.snapshot.to", to);
        let web = ports::local(node.http_port());
        cold()?;
        self.cluster.start_node(0)?;
        let busy = machine::busy_seconds()?;
        let (load, taken) = ((&self.data, &self.blocks[..]), &AtomicBool::new(false));
        let began = Instant::now();
        let ((seconds, times), account) = self.disk.watched(|| {
            std::thread::scope(|scope| {
                let done = |_| taken.load(Ordering::Relaxed);
                let client = scope.spawn(move || clients(load, &done));
                let seconds = wait_taken(web, &|| client.is_finished());
                taken.store(true, Ordering::Relaxed);
                let ended = client.join();
                let times = ended.map_err(|_| TestkitError::Talk("a client panicked".into()))??;
                Ok((seconds?, times))
            })
        })?;
        let used = machine::busy_seconds()? - busy;
        let cpu = used / (began.elapsed().as_secs_f64() * processors());
        Ok(latency(&times)
            .and(account)
            .with("cpu", cpu)
            .with("seconds", seconds)
            .with("mbs", megabytes(self.bytes) / seconds))
    }
}

/// Reads of a client, until `done` says so of their number.
fn clients(
    (data, blocks): (&Data, &[LoadPlace]),
    done: &dyn Fn(u64) -> bool,
) -> Result<LoadLatencies> {
    let mut reader = Reader::new(data, Check::Nothing, 512 << 10);
    let (mut offsets, mut times) = (Offsets::new(1), LoadLatencies::default());
    let (began, mut due) = (Instant::now(), Duration::ZERO);
    let mut reads = 0;
    while !done(reads) {
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let which = offsets.below(blocks.len() as u64);
        let place = &blocks[usize::try_from(which).unwrap_or(0)];
        let at = offsets.below(place.len.saturating_sub(READ_BYTES) + 1);
        let (len, tally) = (READ_BYTES.min(place.len), &mut LatencyTally::default());
        reader.read(place, 0, at, len, tally)?;
        times.record(began.elapsed().saturating_sub(due));
        (due, reads) = (due + PERIOD, reads + 1);
    }
    Ok(times)
}

/// Waits until the node has a snapshot; the seconds that it took.
fn wait_taken(web: std::net::SocketAddr, failed: &dyn Fn() -> bool) -> Result<f64> {
    wait::until("the node has a snapshot", LIMIT, || {
        let live: Value = serde_json::from_str(&http::get(web, "/live")?).unwrap_or_default();
        let state = &live["snapshots"];
        if let Some(error) = state["error"].as_str() {
            return Err(TestkitError::Expectation(error.to_owned()));
        }
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Ok(match state["last_ms"].as_u64() {
            Some(from) => {
                let took = now.saturating_sub(Duration::from_millis(from));
                Seen::Done(took.as_secs_f64())
            }
            // Why the client ended says more.
            None if failed() => Seen::Done(0.0),
            None => Seen::NotYet(state.to_string()),
        })
    })
}

fn latency(times: &LoadLatencies) -> PeerFigures {
    let times = times.summary();
    PeerFigures::of([
        ("p50_ms", exact(times.p50_us) / 1e3),
        ("p99_ms", exact(times.p99_us) / 1e3),
        ("reads", exact(times.count)),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn exact(number: u64) -> f64 {
    number as f64
}
