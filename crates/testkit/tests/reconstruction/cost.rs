//! What a reconstruction costs the node that carries it out, beside the stock node.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::process_usage;
use hayloft_testkit::striped::{EC_CELL, EcPolicy};
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, TestkitError};
use serde_json::json;
use std::time::{Duration, Instant};

/// Nodes with the files; the spare node comes behind them.
const HOLDERS: usize = 5;
const FILES: u64 = 4;
/// A group: three blocks of 64 MiB.
const FILE_LEN: u64 = 192 * EC_CELL;
/// Most that ours may take, as a share of the stock node's.
const TIME_BAR: f64 = 1.0;
const CPU_BAR: f64 = 0.5;

/// Five nodes of ours with files, and a sixth that takes over what one of them loses.
pub struct Cost {
    cluster: Cluster,
    fs: Driver,
    paths: Vec<String>,
}

/// What one took.
struct Taken {
    wall: Duration,
    cpu_s: f64,
}

/// What is asked for beside the stock node, and what came.
fn bars(ours: &Taken, stock: &Taken) -> String {
    let time = ours.wall.as_secs_f64() / stock.wall.as_secs_f64();
    let cpu = ours.cpu_s / stock.cpu_s;
    let line = |what: &str, share: f64, most: f64| {
        let verdict = if share <= most { "met" } else { "NOT met" };
        format!(
            "reconstruction:   {what}: {share:.2} of stock (asked: at most {most:.2}): {verdict}"
        )
    };
    let lines = [
        line("time", time, TIME_BAR),
        line("processor time", cpu, CPU_BAR),
    ];
    lines.join("\n")
}

impl Cost {
    pub fn start() -> Result<Self> {
        let mut cluster = Cluster::builder("reconstruction-cost")
            .nodes(HOLDERS + 1, Kind::Hayloft)
            .conf("dfs.blocksize", 64 * EC_CELL)
            .conf("dfs.heartbeat.interval", 1)
            .conf("dfs.namenode.replication.max-streams", 16)
            .conf("dfs.namenode.replication.max-streams-hard-limit", 32)
            .conf("dfs.namenode.replication.work.multiplier.per.iteration", 16)
            .conf("dfs.namenode.reconstruction.pending.timeout-sec", 120)
            .start()?;
        let fs = cluster.driver()?;
        cluster.node(HOLDERS).stop()?;
        let policy = EcPolicy::RS_3_2.name;
        fs.tool(class::EC, &["-enablePolicy", "-policy", policy])?
            .ok()?;
        fs.fs(&["-mkdir", "/ec"])?;
        fs.tool(
            class::EC,
            &["-setPolicy", "-path", "/ec", "-policy", policy],
        )?
        .ok()?;
        let paths: Vec<String> = (0..FILES).map(|file| format!("/ec/{file}")).collect();
        for (path, seed) in paths.iter().zip(0..) {
            fs.put(path, FILE_LEN, seed, json!({}))?;
        }
        Ok(Self { cluster, fs, paths })
    }

    pub fn end(self, failed: bool) {
        self.cluster.conclude(failed);
    }

    pub fn beside_stock(&mut self) -> Result<Outcome> {
        let stock = self.rebuilt_by(Kind::Apache)?;
        let ours = self.rebuilt_by(Kind::Hayloft)?;
        for (name, taken) in [("stock", &stock), ("ours", &ours)] {
            let Taken { wall, cpu_s } = taken;
            println!(
                "reconstruction:   {name}: {FILES} blocks of 64 MiB in {wall:.2?}, {cpu_s:.2} s \
                of processor time"
            );
        }
        println!("{}", bars(&ours, &stock));
        // The figures are for reading; a node of a debug build only has to be near.
        expect(ours.cpu_s < stock.cpu_s * 2.0, || {
            format!(
                "{} s of processor time, the stock node {}",
                ours.cpu_s, stock.cpu_s
            )
        })?;
        passed()
    }

    /// Lets a spare node of `kind` take over what a holder has.
    fn rebuilt_by(&mut self, kind: Kind) -> Result<Taken> {
        self.cluster.node(HOLDERS).become_kind(kind)?;
        self.cluster.start_node(HOLDERS)?;
        self.cluster.wait_all_live()?;
        // A JVM that has just started compiles.
        std::thread::sleep(seconds(8));
        let pid = self.cluster.node(HOLDERS).process()?.pid();
        let before = process_usage::usage(pid)?;
        let gone = [self.cluster.node(0).xfer()];
        self.cluster.node(0).kill()?;
        let began = self.wait_first()?;
        self.fs
            .wait_striped(&self.paths, EcPolicy::RS_3_2, &gone, seconds(240))?;
        let wall = began.elapsed();
        let after = process_usage::usage(pid)?;
        for (path, seed) in self.paths.iter().zip(0..) {
            self.fs.check(path, FILE_LEN, seed)?;
        }
        // As it was, for the other one.
        self.cluster.node(HOLDERS).stop()?;
        for volume in self.cluster.node(HOLDERS).volumes() {
            std::fs::remove_dir_all(volume).map_err(TestkitError::file("removing", volume))?;
        }
        self.cluster.start_node(0)?;
        self.fs
            .wait_striped(&self.paths, EcPolicy::RS_3_2, &[], seconds(60))?;
        let cpu_s = after.user_s + after.system_s - before.user_s - before.system_s;
        Ok(Taken { wall, cpu_s })
    }

    /// When the first block begins to arrive at the spare node.
    fn wait_first(&mut self) -> Result<Instant> {
        let spare = self.cluster.node(HOLDERS);
        wait::until("the first rebuilt block", seconds(120), || {
            Ok(if spare.all_block_files().is_empty() {
                Seen::NotYet("no file".into())
            } else {
                Seen::Done(Instant::now())
            })
        })
    }
}
