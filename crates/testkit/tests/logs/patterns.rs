//! Flink's recoverable writer: a file is cut to a length that was noted, and goes on from there.
//! Accumulo's log: every record is hsynced, by several writers at once.

use hayloft_testkit::error::Result;
use hayloft_testkit::node::{Kind, Node};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::json;
use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

const NODES: usize = 3;
/// Block size of Flink's files, bytes.
const BLOCK: u64 = 4 << 20;
/// Accumulo's writers, and the bytes of a record: chunks are shared by records.
const WRITERS: u64 = 4;
const RECORD: u64 = 301;

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
    for syncs in [&["hflush"][..], &["hsync"], &["hflush", "hsync"]] {
        let name = format!("flink_resumes_after_{}", syncs.join("_"));
        on.case(name, |lab| lab.resumes(syncs));
    }
    for (name, dies) in [
        ("writer_process_killed_mid_block", NodeDies::Never),
        ("node_killed_under_the_writer", NodeDies::UnderTheWriter),
        ("node_killed_before_truncation", NodeDies::BeforeTruncation),
    ] {
        on.case(format!("flink_{name}"), move |lab| lab.killed(name, dies));
    }
    on.case("accumulo_all_nodes_killed", |lab| lab.all_killed());
}

fn start() -> Result<Lab> {
    let best_effort = "dfs.client.block.write.replace-datanode-on-failure.best-effort";
    let cluster = Cluster::builder("logs")
        .nodes(NODES, Kind::under_test())
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.client.socket-timeout", 10_000)
        .conf(best_effort, true)
        .start()?;
    let fs = cluster.driver()?;
    Ok(Lab { cluster, fs })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeDies {
    Never,
    UnderTheWriter,
    BeforeTruncation,
}

/// A file of Flink's.
struct Part {
    path: String,
    /// What was noted, in order: up to where, and the seed of the bytes before. What a dead writer
    /// left beyond has another seed than what takes its place.
    noted: Vec<(u64, u64)>,
}

impl Part {
    fn new(name: &str) -> Self {
        let path = format!("/flink-{name}");
        let noted = Vec::new();
        Self { path, noted }
    }

    fn end(&self) -> u64 {
        self.noted.last().map_or(0, |(end, _)| *end)
    }

    /// Opens the file, writes up to `end`, and notes that once it is synced.
    fn write_to(&mut self, fs: &Driver, end: u64, syncs: &[&str]) -> Result<()> {
        let (path, seed) = (&self.path, self.noted.len() as u64 + 1);
        match seed {
            1 => fs.create(path, path, seed, json!({}))?,
            _ => fs.append(path, path, seed, json!({}))?,
        }
        fs.write(path, end - self.end())?;
        for sync in syncs {
            expect_eq(
                "acknowledged",
                fs.handle(sync, path)?["acked"].as_u64(),
                Some(end),
            )?;
        }
        self.noted.push((end, seed));
        Ok(())
    }

    /// A reader gets what was noted, and nothing else.
    fn check(&self, fs: &Driver) -> Result<()> {
        expect_eq("length", fs.length(&self.path)?, self.end())?;
        let mut from = 0;
        for (end, seed) in &self.noted {
            let range = json!({"offset": from, "length": end - from});
            fs.check_with(&self.path, end - from, *seed, range)?;
            from = *end;
        }
        Ok(())
    }
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
}

impl Lab {
    /// Kills the node at this place of the last block's.
    fn kill_one(&mut self, part: &Part, place: usize) -> Result<()> {
        let nodes = self.fs.blocks(&part.path)?.pop().map(|block| block.nodes);
        let xfer = nodes.as_ref().and_then(|nodes| nodes.get(place));
        let index = xfer.and_then(|xfer| self.cluster.node_at(xfer));
        let none = || TestkitError::Expectation(format!("no place {place}: {nodes:?}"));
        self.cluster.node(index.ok_or_else(none)?).kill()
    }

    /// What Flink does after an attempt that died: ends its lease, cuts the file to what was noted,
    /// and waits until that is done.
    fn resume(&mut self, part: &Part, dying: Option<usize>) -> Result<()> {
        let (path, limit) = (part.path.as_str(), seconds(60));
        self.fs.recover_lease(path, limit)?;
        let length = self.fs.length(path)?;
        let end = part.end();
        expect(length >= end, || format!("{path}: {length} bytes of {end}"))?;
        dying.map_or(Ok(()), |place| self.kill_one(part, place))?;
        let request = json!({"path": path, "length": end});
        let done = self.fs.call("truncate", request)?["done"] == true;
        if !done && self.cluster.nodes().all(Node::is_started) {
            self.fs.wait_closed(path, limit)?;
        } else if !done {
            // The NameNode may have given the recovery to the dead node: asking again moves it.
            self.fs.recover_lease(path, limit)?;
        }
        part.check(&self.fs)
    }

    /// Appends, closes and compares: what readers get, then the files of the three replicas.
    fn finish(&mut self, mut part: Part) -> Result<Outcome> {
        part.write_to(&self.fs, part.end() + BLOCK / 2 + 77, &[])?;
        self.fs.handle("close", &part.path)?;
        part.check(&self.fs)?;
        self.cluster.heal()?;
        self.fs.wait_replicas(&part.path, NODES, seconds(60))?;
        for block in self.fs.blocks(&part.path)? {
            let files = self.cluster.nodes().map(|node| node.block_files(block.id));
            let files = files.flatten().filter(|file| file.extension().is_none());
            let copies = files.map(|file| std::fs::read(&file).unwrap_or_default());
            let copies: BTreeSet<_> = copies.collect();
            let length = copies.first().map(|bytes| bytes.len() as u64);
            let seen = (copies.len(), length);
            expect_eq("contents, length", seen, (1, Some(block.length)))?;
        }
        part.check(&self.fs)?;
        passed()
    }

    /// Attempts that end without closing, each after its noted length: within a chunk, at the end
    /// of one, at the end of a block, and with nothing beyond.
    fn resumes(&mut self, syncs: &[&str]) -> Result<Outcome> {
        self.cluster.heal()?;
        let mut part = Part::new(&syncs.join("-"));
        let within = [(100_001, 70_000), (586 * 512, BLOCK)];
        for (end, beyond) in within.into_iter().chain([(BLOCK, 1), (BLOCK + 5000, 0)]) {
            part.write_to(&self.fs, end, syncs)?;
            self.fs.write(&part.path, beyond)?;
            self.fs.handle("abandon", &part.path)?;
            self.resume(&part, None)?;
        }
        self.finish(part)
    }

    /// The writer's process is killed while it sends, with a node or without.
    fn killed(&mut self, name: &str, dies: NodeDies) -> Result<Outcome> {
        let mut part = Part::new(name);
        for (round, end) in [100_001, BLOCK + 333].into_iter().enumerate() {
            self.cluster.heal()?;
            let writer = self.cluster.driver()?;
            part.write_to(&writer, end, &["hflush"])?;
            let request = json!({"handle": part.path, "chunk": 10_007, "pauseMillis": 1});
            let _writing = writer.begin("loop", request)?;
            // Still within the block of what was noted, then in the next one.
            writer.wait_acked(&part.path, end + BLOCK / 4 + round as u64 * BLOCK)?;
            if dies == NodeDies::UnderTheWriter {
                self.kill_one(&part, round)?;
                // The writer is about to go on without it, or has begun to.
                sleep(Duration::from_millis(150 * round as u64));
            }
            writer.kill()?;
            let dying = (dies == NodeDies::BeforeTruncation).then_some(round);
            self.resume(&part, dying)?;
        }
        self.finish(part)
    }

    /// Every record that was acknowledged is there after a `kill -9` of all nodes.
    fn all_killed(&mut self) -> Result<Outcome> {
        let conf = json!({
            "dfs.client.block.write.replace-datanode-on-failure.enable": false,
            "dfs.client.block.write.retries": 0, "dfs.client.socket-timeout": 3000,
        });
        for round in 0..2 {
            self.cluster.heal()?;
            let mut writing = Vec::new();
            for seed in 1..=WRITERS {
                let path = format!("/accumulo-{round}-{seed}");
                let more = json!({"syncBlock": true, "blockSize": 16 * BLOCK, "conf": conf});
                self.fs.create(&path, &path, seed, more)?;
                let request = json!({"handle": path, "chunk": RECORD, "sync": true});
                let records = self.fs.begin("loop", request)?;
                writing.push((path, seed, records));
            }
            for (path, ..) in &writing {
                self.fs.wait_acked(path, (100 + 400 * round) * RECORD)?;
            }
            for index in 0..NODES {
                self.cluster.node(index).kill()?;
            }
            let mut ends = Vec::new();
            for (path, seed, records) in writing {
                ends.push((path, seed, records.wait_at_most(seconds(60))?));
            }
            self.cluster.heal()?;
            for (path, seed, end) in ends {
                let _ = self.fs.handle("abandon", &path);
                self.fs.recover_lease(&path, seconds(60))?;
                let length = self.fs.length(&path)?;
                let at = |name: &str| end[name].as_u64().unwrap_or_default();
                let may = at("acked")..=at("position");
                expect(may.contains(&length), || format!("{path}: {length}, {end}"))?;
                self.fs.check(&path, length, seed)?;
            }
        }
        // Every replica of all cases matches its checksums.
        self.fs.wait_healthy("/", seconds(60))?;
        for node in self.cluster.nodes() {
            let whole = self.fs.verify_metas(node)?;
            expect(whole > 0, || format!("{} has no replicas", node.name()))?;
        }
        passed()
    }
}
