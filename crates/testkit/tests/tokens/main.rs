//! Block tokens of a stock NameNode: nodes of both kinds check each other's and those of stock
//! clients, keys are rolled each minute, and tokens live a minute. [`attacks`]: requests whose
//! token does not permit them.

mod attacks;

use hayloft_testkit::error::Result;
use hayloft_testkit::files::BlockOnNode;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::{Kind, NodeSpec, VolumeSpec};
use hayloft_testkit::striped::{EC_CELL, EcPolicy};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::json;
use std::process::ExitCode;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 2 << 20;

/// Nodes of ours; one of Apache's comes behind them.
const OURS: usize = 4;

/// The node whose own file says nothing of block tokens.
const SILENT: usize = 0;

fn main() -> ExitCode {
    Suite::run("tokens", |suite| {
        for protobuf in [false, true] {
            let form = if protobuf { "protobuf" } else { "writable" };
            let name = |what: &str| format!("{what}_{form}");
            let mut on = suite.group(
                move || Lab::start(protobuf),
                |lab, failed| lab.cluster.conclude(failed),
            );
            on.case(name("files_are_written_read_and_appended_to"), |lab| {
                lab.files()
            });
            on.case(name("striped_files_are_rebuilt"), |lab| lab.striped());
            on.case(name("a_node_killed_mid_write_is_replaced"), |lab| {
                lab.killed_mid_write()
            });
            on.case(name("blocks_of_a_dead_node_are_copied"), |lab| {
                lab.re_replication()
            });
            on.case(name("leases_of_dead_writers_are_recovered"), |lab| {
                lab.leases()
            });
            on.case(name("requests_that_tokens_do_not_permit"), |lab| {
                lab.attacks()
            });
            if protobuf {
                continue;
            }
            on.case("the_mover_moves_blocks", |lab| lab.mover());
            on.case("keys_are_rolled_under_a_reader_and_a_writer", |lab| {
                lab.rolled()
            });
            on.case("nodes_and_namenode_started_anew", |lab| lab.anew());
        }
        Ok(())
    })
}

fn with_archive(kind: Kind) -> NodeSpec {
    let archive = VolumeSpec::typed("ARCHIVE");
    NodeSpec::new(kind).volumes(vec![VolumeSpec::default(), archive])
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
}

impl Lab {
    fn start(protobuf: bool) -> Result<Self> {
        let silent = NodeSpec::new(Kind::Hayloft).conf("dfs.block.access.token.enable", false);
        let cluster = Cluster::builder("tokens")
            .node(silent)
            .nodes(OURS - 2, Kind::Hayloft)
            .node(with_archive(Kind::Hayloft))
            .node(with_archive(Kind::Apache))
            .conf("dfs.blocksize", BLOCK)
            .conf("dfs.client.socket-timeout", 10_000)
            .conf("dfs.block.access.token.enable", true)
            .conf("dfs.block.access.token.protobuf.enable", protobuf)
            .conf("dfs.block.access.key.update.interval", 1)
            .conf("dfs.block.access.token.lifetime", 1)
            .start()?;
        let fs = cluster.driver()?;
        Ok(Self { cluster, fs })
    }

    fn index_of(&self, xfer: &str) -> Result<usize> {
        let node = self.cluster.node_at(xfer);
        node.ok_or_else(|| TestkitError::Expectation(format!("unknown node {xfer}")))
    }

    /// Log lines of our nodes about tokens that they refused.
    fn refused_by_ours(&self) -> usize {
        let ours = self.cluster.nodes().filter(|n| n.kind() == Kind::Hayloft);
        let logs = ours.filter_map(|node| std::fs::read_to_string(node.log()).ok());
        let said = "block token verification failed";
        logs.map(|log| log.matches(said).count()).sum()
    }

    fn files(&mut self) -> Result<Outcome> {
        for seed in 0..6 {
            let path = format!("/file-{seed}");
            self.fs.put(&path, 3 * BLOCK + 777, seed, json!({}))?;
            self.fs.check(&path, 3 * BLOCK + 777, seed)?;
            self.fs.put(&path, BLOCK, seed, json!({"appendTo": true}))?;
            self.fs.wait_replicas(&path, 3, seconds(60))?;
            self.fs.check(&path, 4 * BLOCK + 777, seed)?;
            self.fs.call("checksum", json!({ "path": path }))?;
        }
        expect_eq("refused tokens of clients", self.refused_by_ours(), 0)?;
        passed()
    }

    fn striped(&mut self) -> Result<Outcome> {
        let policy = EcPolicy::RS_3_2;
        let enable = ["-enablePolicy", "-policy", policy.name];
        self.fs.tool(class::EC, &enable)?.ok()?;
        self.fs.fs(&["-mkdir", "/striped"])?;
        let set = ["-setPolicy", "-path", "/striped", "-policy", policy.name];
        self.fs.tool(class::EC, &set)?.ok()?;
        let bytes = 6 * EC_CELL + 777;
        let paths: Vec<String> = (0..3).map(|n| format!("/striped/{n}")).collect();
        let mut sums = Vec::new();
        for path in &paths {
            self.fs.put(path, bytes, 21, json!({}))?;
            sums.push(self.fs.call("checksum", json!({ "path": path }))?);
        }
        // All five nodes have a block of each: the fifth comes back empty and is given it again.
        for victim in [OURS, 1] {
            let xfer = self.cluster.node(victim).xfer();
            self.cluster.node(victim).kill()?;
            for path in &paths {
                self.fs.check(path, bytes, 21)?;
            }
            // Its nodes' checksums are asked for, and one of them is made up.
            for (path, sum) in paths.iter().zip(&sums) {
                let now = self.fs.call("checksum", json!({ "path": path }))?;
                expect_eq(path, &now["hex"], &sum["hex"])?;
            }
            self.wait_dead(&xfer)?;
            for file in self.cluster.node(victim).all_block_files() {
                std::fs::remove_file(&file).map_err(TestkitError::file("removing", &file))?;
            }
            self.cluster.start_node(victim)?;
            self.cluster.wait_all_live()?;
            self.fs.wait_striped(&paths, policy, &[], seconds(120))?;
        }
        for path in &paths {
            self.fs.check(path, bytes, 21)?;
        }
        passed()
    }

    /// Waits until the NameNode counts one node less.
    fn wait_dead(&mut self, xfer: &str) -> Result<()> {
        println!("tokens:   {xfer} is gone");
        self.cluster.namenode(0).wait_live(OURS, seconds(60))?;
        Ok(())
    }

    /// The client asks for another node, and one of the others copies to it.
    fn killed_mid_write(&mut self) -> Result<Outcome> {
        for place in [0, 1, 2] {
            self.cluster.heal()?;
            let path = format!("/killed-{place}");
            let total = 3 * BLOCK;
            self.fs.create("w", &path, 11, json!({}))?;
            let request =
                json!({"handle": "w", "bytes": total, "chunk": 65_536, "pauseMillis": 10});
            let writing = self.fs.begin("loop", request)?;
            self.fs.wait_acked("w", BLOCK + BLOCK / 2)?;
            let last = self.fs.blocks(&path)?.pop();
            let nodes = last.map(|block| block.nodes).unwrap_or_default();
            let victim = self.index_of(nodes.get(place).map_or("", String::as_str))?;
            self.cluster.node(victim).kill()?;
            let end = writing.wait()?;
            expect(end["failure"].is_null() && end["acked"] == total, || {
                format!("the writer failed: {end}")
            })?;
            self.fs.handle("close", "w")?;
            self.fs.check(&path, total, 11)?;
        }
        self.cluster.heal()?;
        passed()
    }

    fn re_replication(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs.put("/copied", 4 * BLOCK, 31, json!({}))?;
        self.fs.wait_replicas("/copied", 3, seconds(60))?;
        for victim in [1, OURS] {
            let xfer = self.cluster.node(victim).xfer();
            self.cluster.node(victim).kill()?;
            self.wait_dead(&xfer)?;
            self.fs.wait_replicas("/copied", 3, seconds(120))?;
            self.fs.check("/copied", 4 * BLOCK, 31)?;
            self.cluster.heal()?;
        }
        passed()
    }

    fn leases(&mut self) -> Result<Outcome> {
        for (name, flushed, more) in [("flushed", 100_001, 0), ("mixed", BLOCK + 777, 300_000)] {
            let path = format!("/dead-{name}");
            self.fs.create("d", &path, 14, json!({}))?;
            self.fs.write("d", flushed)?;
            self.fs.handle("hflush", "d")?;
            self.fs.write("d", more)?;
            self.fs.handle("abandon", "d")?;
            self.fs.recover_lease(&path, seconds(60))?;
            let length = self.fs.length(&path)?;
            expect((flushed..=flushed + more).contains(&length), || {
                format!("{length} bytes of {path}")
            })?;
            self.fs.check(&path, length, 14)?;
        }
        passed()
    }

    /// Down to ARCHIVE, which one node of each kind has, and back: REPLACE_BLOCK within and
    /// between nodes.
    fn mover(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs.fs(&["-mkdir", "/moved"])?;
        let bytes = 10 * BLOCK + 123;
        let one = json!({"replication": 1});
        self.fs.put("/moved/f", bytes, 3, one)?;
        for (policy, wanted) in [("COLD", "ARCHIVE"), ("HOT", "DISK")] {
            let args = ["-setStoragePolicy", "-path", "/moved", "-policy", policy];
            self.fs.tool(class::STORAGE_POLICIES, &args)?.ok()?;
            let run = self.fs.tool(class::MOVER, &["-p", "/moved"])?;
            expect(run.code == 0, || {
                format!("mover: {} {}{}", run.code, run.out, run.err)
            })?;
            wait::until(wanted, seconds(60), || {
                let blocks = self.fs.blocks("/moved/f")?;
                let on = |block: &BlockOnNode| block.types.iter().all(|t| t == wanted);
                Ok(match blocks.iter().all(on) {
                    true => Seen::Done(()),
                    false => Seen::NotYet(format!("{blocks:?}")),
                })
            })?;
            self.fs.check("/moved/f", bytes, 3)?;
        }
        passed()
    }

    /// Tokens of the reader and the writer expire while they work, and the keys with them.
    fn rolled(&mut self) -> Result<Outcome> {
        let blocks = 12;
        self.fs.put("/rolled", blocks * BLOCK, 41, json!({}))?;
        // A read gives a packet at most: 384 of them, in three minutes.
        let read = json!({"path": "/rolled", "seed": 41, "buffer": 65_536, "pauseMillis": 450});
        let reading = self.fs.begin("read", read)?;
        self.fs.create("r", "/rolled-writer", 42, json!({}))?;
        let total = 4 * BLOCK;
        let write = json!({"handle": "r", "bytes": total, "chunk": 65_536, "pauseMillis": 1250});
        let writing = self.fs.begin("loop", write)?;
        let end = writing.wait_at_most(seconds(400))?;
        expect(end["failure"].is_null() && end["acked"] == total, || {
            format!("the writer failed: {end}")
        })?;
        self.fs.handle("close", "r")?;
        self.fs.check("/rolled-writer", total, 42)?;
        let end = reading.wait_at_most(seconds(400))?;
        expect_eq("first wrong byte", end["mismatch"].as_i64(), Some(-1))?;
        expect_eq("bytes read", end["bytes"].as_u64(), Some(blocks * BLOCK))?;
        // Copies between nodes go on with keys that came since the start.
        self.re_replication()
    }

    fn anew(&mut self) -> Result<Outcome> {
        self.cluster.namenode(0).kill()?;
        for node in [SILENT, 2] {
            self.cluster.node(node).kill()?;
        }
        self.cluster.heal()?;
        // The one before has a connection to the NameNode that is gone.
        self.fs = self.cluster.driver()?;
        self.fs.put("/anew", 3 * BLOCK, 51, json!({}))?;
        self.fs.check("/anew", 3 * BLOCK, 51)?;
        self.fs.check("/copied", 4 * BLOCK, 31)?;
        passed()
    }
}
