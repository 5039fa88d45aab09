//! Block tokens of a stock NameNode: nodes of both kinds check each other's and those of stock
//! clients, keys are rolled each minute, and tokens live a minute. [`attacks`]: requests whose
//! token does not permit them.

mod attacks;

use hayloft_testkit::error::Result;
use hayloft_testkit::node::{Kind, NodeSpec};
use hayloft_testkit::shared_work::{SharedWork, with_archive};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite};
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
            on.case(name("striped_files_are_rebuilt"), |lab| {
                // All five nodes have a block of each: the fifth comes back empty.
                lab.work().passes(|work| work.striped(3, &[OURS, 1]))
            });
            on.case(name("a_node_killed_mid_write_is_replaced"), |lab| {
                lab.work().passes(|work| work.deaths_mid_write(&[0, 1, 2]))
            });
            on.case(name("blocks_of_a_dead_node_are_copied"), |lab| {
                lab.work().passes(|work| work.deaths(&[1, OURS]))
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
            on.case("the_mover_moves_blocks", |lab| {
                // One node of each kind has ARCHIVE: REPLACE_BLOCK within and between nodes.
                lab.work()
                    .passes(|work| work.moves(10, &[("COLD", "ARCHIVE"), ("HOT", "DISK")]))
            });
            on.case("keys_are_rolled_under_a_reader_and_a_writer", |lab| {
                lab.rolled()
            });
            on.case("nodes_and_namenode_started_anew", |lab| lab.anew());
        }
        Ok(())
    })
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

    /// Log lines of our nodes about tokens that they refused.
    fn refused_by_ours(&self) -> usize {
        let ours = self.cluster.nodes().filter(|n| n.kind() == Kind::Hayloft);
        let logs = ours.filter_map(|node| std::fs::read_to_string(node.log()).ok());
        let said = "block token verification failed";
        logs.map(|log| log.matches(said).count()).sum()
    }

    fn work(&mut self) -> SharedWork<'_> {
        SharedWork {
            cluster: &mut self.cluster,
            fs: &self.fs,
            block: BLOCK,
        }
    }

    fn files(&mut self) -> Result<Outcome> {
        self.work().files(6, 3)?;
        expect_eq("refused tokens of clients", self.refused_by_ours(), 0)?;
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
        self.work().deaths(&[1, OURS])?;
        passed()
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
