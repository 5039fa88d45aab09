//! Hedged reads, as HBase may have them: a client that waits for a replica asks another node, too.
//! The first node is stopped, or its disk gives no answer.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::machine::drop_caches;
use hayloft_testkit::modelled::{self, HostedFileSystem, ModelledDisk};
use hayloft_testkit::node::Kind;
use hayloft_testkit::process::Signal;
use hayloft_testkit::process_usage::{self, Usage};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec};
use serde_json::json;
use std::time::{Duration, Instant};

const PATH: &str = "/hedged";
const SEED: u64 = 49;
/// The file's blocks. Each is read by a stream of its own: for each the NameNode draws anew which
/// of its two nodes is the nearest.
const BLOCKS: u64 = 48;
const BLOCK: u64 = 512 << 10;
/// How long a client waits before it asks the other node; for an answer at all; and the most that
/// a read may take.
const THRESHOLD_MS: u64 = 100;
const TIMEOUT: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(15);
/// So many of the reads have to meet the slow node, and fewer threads and descriptors may be left.
const MET: u64 = 8;
const LEFT: usize = 4;

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(|| Lab::start(None), Lab::end);
    on.case("hedged_reads_pass_a_stopped_node", Lab::stopped);
    if let Some(missing) = modelled::missing(HostedFileSystem::Ext4) {
        let skipped = move || Ok(Outcome::Skipped(missing.to_string()));
        return suite.case("hedged_reads_pass_a_hung_disk", skipped);
    }
    let with_disk = || {
        let base = scratch("logs-hung-")?;
        let disk = ModelledDisk::mount_small(base.path().join("disk"), HostedFileSystem::Ext4)?;
        Lab::start(Some((disk, base)))
    };
    let mut on = suite.group(with_disk, Lab::end);
    on.case("hedged_reads_pass_a_hung_disk", Lab::hung);
}

/// A modelled disk, and the directory that it lies in.
type DiskIn = (ModelledDisk, tempfile::TempDir);

struct Lab {
    cluster: Cluster,
    fs: Driver,
    /// That of the first node.
    disk: Option<DiskIn>,
}

impl Lab {
    fn start(disk: Option<DiskIn>) -> Result<Self> {
        let mut slow = NodeSpec::new(Kind::under_test());
        if let Some((disk, _)) = &disk {
            slow = slow.volumes(vec![VolumeSpec::at(disk.dir().join("data"))]);
        }
        let cluster = Cluster::builder("logs-hedged")
            .conf("dfs.blocksize", BLOCK)
            .conf("dfs.replication", 2)
            .conf("dfs.client.socket-timeout", TIMEOUT.as_millis())
            // It stays live however long it is stopped.
            .conf("dfs.namenode.heartbeat.recheck-interval", 60_000)
            .node(slow)
            .nodes(1, Kind::under_test())
            .start()?;
        let fs = cluster.driver()?;
        fs.put(PATH, BLOCKS * BLOCK, SEED, json!({}))?;
        fs.wait_replicas(PATH, 2, seconds(60))?;
        Ok(Self { cluster, fs, disk })
    }

    fn end(self, failed: bool) {
        drop(self.fs);
        self.cluster.conclude(failed);
        drop(self.disk);
    }

    fn stopped(&mut self) -> Result<Outcome> {
        self.pass(
            |lab| lab.cluster.node(0).signal(Signal::STOP),
            |lab, ()| lab.cluster.node(0).signal(Signal::CONT),
        )
    }

    fn hung(&mut self) -> Result<Outcome> {
        let hang = |lab: &mut Self| {
            let none = || TestkitError::Expectation("there is no disk".into());
            let (disk, _) = lab.disk.as_ref().ok_or_else(none)?;
            // What is in the page cache needs no disk.
            expect(drop_caches(), || "the page cache stays".into())?;
            disk.hang()
        };
        self.pass(hang, |_, hung| {
            drop(hung);
            Ok(())
        })
    }

    /// Reads pass the slow node while their client lives on, and while it dies before the node is
    /// as it was. Of neither the node keeps anything.
    fn pass<T>(
        &mut self,
        slow_down: impl Fn(&mut Self) -> Result<T>,
        go_on: impl Fn(&mut Self, T) -> Result<()>,
    ) -> Result<Outcome> {
        let mut before = None;
        for dies in [false, true] {
            let client = self.cluster.driver()?;
            let (ops, wins, _) = read(&client)?;
            if before.is_none() {
                // Connections and threads that only wait for more have ended then.
                std::thread::sleep(seconds(15));
            }
            let at_rest = *before.get_or_insert(self.usage()?);
            let slow = slow_down(self)?;
            let (ops_then, wins_then, slowest) = read(&client)?;
            let (ops, wins) = (ops_then - ops, wins_then - wins);
            println!("logs: {ops} hedged, {wins} won, slowest {slowest:.1?}");
            expect(ops >= MET && wins >= MET && slowest < SOON, || {
                format!("of {BLOCKS}: {ops} hedged, {wins} won, slowest {slowest:?}")
            })?;
            let client = match dies {
                true => client.kill().map(|()| None)?,
                false => Some(client),
            };
            go_on(self, slow)?;
            self.is_as(at_rest)?;
            drop(client);
            self.serves()?;
        }
        passed()
    }

    fn usage(&mut self) -> Result<Usage> {
        process_usage::usage(self.cluster.node(0).process()?.pid())
    }

    fn is_as(&mut self, before: Usage) -> Result<()> {
        wait::until("the node to be as before", seconds(60), || {
            let now = self.usage()?;
            let few = now.threads <= before.threads + LEFT as u64
                && now.descriptors <= before.descriptors + LEFT;
            Ok(match few {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{before:?} -> {now:?}")),
            })
        })
    }

    /// The node takes new blocks.
    fn serves(&mut self) -> Result<()> {
        self.cluster.wait_all_live()?;
        self.fs.put("/new", 2 * BLOCK, SEED, json!({}))?;
        self.fs.check("/new", 2 * BLOCK, SEED)?;
        self.fs.wait_replicas("/new", 2, seconds(60))
    }
}

/// Reads all blocks: how many reads of the client were ever hedged, how many were answered then,
/// and how long the slowest took.
fn read(client: &Driver) -> Result<(u64, u64, Duration)> {
    let (mut ops, mut wins, mut slowest) = (0, 0, Duration::ZERO);
    for block in 0..BLOCKS {
        let request = json!({
            "path": PATH, "seed": SEED, "pread": true, "offset": block * BLOCK, "length": BLOCK,
            "conf": {
                "dfs.client.hedged.read.threadpool.size": 2 * BLOCKS,
                "dfs.client.hedged.read.threshold.millis": THRESHOLD_MS,
            },
        });
        let began = Instant::now();
        let answer = client.call("read", request)?;
        slowest = slowest.max(began.elapsed());
        let number = |name: &str| answer[name].as_u64();
        let seen = (number("bytes"), answer["mismatch"].as_i64());
        expect_eq("bytes, first mismatch", seen, (Some(BLOCK), Some(-1)))?;
        ops = number("hedgedOps").unwrap_or(0);
        wins = number("hedgedWins").unwrap_or(0);
    }
    Ok((ops, wins, slowest))
}
