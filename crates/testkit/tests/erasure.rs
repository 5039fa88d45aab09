//! Erasure-coded files: striping is the client's, the nodes keep internal blocks.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::process::Signal;
use hayloft_testkit::striped::EcPolicy;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A cell of the policy, bytes.
const CELL: u64 = 1 << 20;
/// Index of a data block in its group, and of a parity block.
const DATA: u64 = 0;
const PARITY: u64 = 3;
/// Three data and two parity blocks, and one node to spare.
const NODES: usize = 6;

fn main() -> ExitCode {
    Suite::run("erasure", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("write_and_read_every_shape", |lab| lab.shapes());
        on.case("checksum", |lab| lab.checksum());
        on.case("composite_crc_is_that_of_a_replicated_file", |lab| {
            lab.composite()
        });
        on.case("appended_as_a_new_group", |lab| lab.append());
        on.case("writer_dead_then_recover_lease", |lab| lab.dead_writer());
        on.case("node_killed_mid_write", |lab| lab.killed_mid_write());
        on.case("nodes_restarted", |lab| lab.restarted());
        on.case("replicas_verify", |lab| lab.verify());
        on.case("degraded_read", |lab| lab.degraded());
        on.case("the_spare_node_gets_what_was_lost", |lab| {
            lab.reconstructed()
        });
        on.case("node_back_makes_it_whole", |lab| lab.back());
        on.case("checksum_without_a_parity_block", |lab| {
            lab.checksum_without(PARITY)
        });
        on.case("checksum_without_a_data_block", |lab| {
            lab.checksum_without(DATA)
        });
        on.case("checksum_of_a_silent_data_block", |lab| {
            lab.checksum_of_silent()
        });
        Ok(())
    })
}

fn start() -> Result<Lab> {
    let cluster = Cluster::builder("erasure")
        .nodes(NODES, Kind::under_test())
        .conf("dfs.blocksize", 4 * CELL)
        .conf("dfs.client.socket-timeout", 10_000)
        .start()?;
    let fs = cluster.driver()?;
    fs.tool(class::EC, &["-enablePolicy", "-policy", "RS-3-2-1024k"])?
        .ok()?;
    fs.fs(&["-mkdir", "/ec"])?;
    fs.tool(
        class::EC,
        &["-setPolicy", "-path", "/ec", "-policy", "RS-3-2-1024k"],
    )?
    .ok()?;
    Ok(Lab {
        cluster,
        fs,
        sum: None,
    })
}

/// Sizes from less than a cell to more than a group of 12 MiB.
const SIZES: [u64; 7] = [
    1,
    CELL - 1,
    CELL,
    3 * CELL,
    3 * CELL + 1,
    7 * CELL + 12_345,
    14 * CELL + 7,
];

struct Lab {
    cluster: Cluster,
    fs: Driver,
    sum: Option<String>,
}

impl Lab {
    fn shapes(&mut self) -> Result<Outcome> {
        for size in SIZES {
            let path = format!("/ec/{size}");
            self.fs.put(&path, size, size, json!({}))?;
            self.fs.check(&path, size, size)?;
            self.fs
                .check_with(&path, size, size, json!({"pread": true}))?;
        }
        let status = self.fs.call("status", json!({"path": "/ec/1"}))?;
        expect(status["erasureCoded"] == true, || status.to_string())?;
        passed()
    }

    fn sum_of(&self, path: &str) -> Result<String> {
        let answer = self.fs.call("checksum", json!({ "path": path }))?;
        Ok(format!("{}:{}", answer["algorithm"], answer["hex"]))
    }

    fn checksum(&mut self) -> Result<Outcome> {
        let size = SIZES[5];
        self.fs.put("/ec/twin", size, size, json!({}))?;
        let sum = self.sum_of(&format!("/ec/{size}"))?;
        expect_eq("equal data", self.sum_of("/ec/twin")?, sum.clone())?;
        expect(self.sum_of("/ec/1")? != sum, || {
            "different data, equal sum".into()
        })?;
        self.sum = Some(sum);
        passed()
    }

    fn composite(&mut self) -> Result<Outcome> {
        let crc = |path: &str, length: u64| -> Result<String> {
            let mode = json!({"dfs.checksum.combine.mode": "COMPOSITE_CRC"});
            let request = json!({"path": path, "length": length, "conf": mode});
            let answer = self.fs.call("checksum", request)?;
            Ok(format!("{}:{}", answer["algorithm"], answer["hex"]))
        };
        self.fs.fs(&["-mkdir", "-p", "/plain"])?;
        for size in SIZES {
            let plain = format!("/plain/{size}");
            self.fs.put(&plain, size, size, json!({}))?;
            // Whole, and up to a place within a cell.
            for length in [size, size - size / 3] {
                let striped = crc(&format!("/ec/{size}"), length)?;
                expect(striped.contains("COMPOSITE"), || striped.clone())?;
                let what = format!("COMPOSITE_CRC of {length} of {size} bytes");
                expect_eq(&what, striped, crc(&plain, length)?)?;
            }
        }
        passed()
    }

    fn append(&mut self) -> Result<Outcome> {
        self.fs.put("/ec/appended", 2_000_000, 3, json!({}))?;
        self.fs
            .append("a", "/ec/appended", 3, json!({"newBlock": true}))?;
        self.fs.write("a", 1_500_000)?;
        self.fs.handle("close", "a")?;
        self.fs.check("/ec/appended", 3_500_000, 3)?;
        passed()
    }

    /// Full stripes are kept; what was in the writer's cells is not promised by hflush here.
    fn dead_writer(&mut self) -> Result<Outcome> {
        self.fs.create("d", "/ec/dead", 4, json!({}))?;
        self.fs.write("d", 6 * CELL)?;
        // Nothing acknowledges a striped writer's packets to its caller.
        std::thread::sleep(seconds(2));
        self.fs.handle("abandon", "d")?;
        self.fs.recover_lease("/ec/dead", seconds(90))?;
        let length = self.fs.length("/ec/dead")?;
        expect(length <= 6 * CELL, || format!("{length} bytes"))?;
        self.fs.check("/ec/dead", length, 4)?;
        println!("erasure:   kept {length} of {} written", 6 * CELL);
        // Recovery keeps what enough blocks have; the others are made up.
        self.fs.wait_striped(
            &["/ec/dead".to_owned()],
            EcPolicy::RS_3_2,
            &[],
            seconds(120),
        )?;
        self.fs.check("/ec/dead", length, 4)?;
        passed()
    }

    fn killed_mid_write(&mut self) -> Result<Outcome> {
        self.fs.create("k", "/ec/killed", 5, json!({}))?;
        self.fs.write("k", 5 * CELL)?;
        let blocks = self.fs.blocks("/ec/killed")?;
        let xfer = blocks
            .last()
            .and_then(|block| block.nodes.get(1))
            .cloned()
            .unwrap_or_default();
        let victim = self.cluster.node_at(&xfer);
        let victim =
            victim.ok_or_else(|| TestkitError::Expectation(format!("no node in {blocks:?}")))?;
        self.cluster.node(victim).kill()?;
        self.fs.write("k", 9 * CELL)?;
        self.fs.handle("close", "k")?;
        self.fs.check("/ec/killed", 14 * CELL, 5)?;
        self.cluster.start_node(victim)?;
        self.cluster.wait_all_live()?;
        passed()
    }

    fn check_all(&self) -> Result<()> {
        for size in SIZES {
            self.fs.check(&format!("/ec/{size}"), size, size)?;
        }
        self.fs.check("/ec/killed", 14 * CELL, 5)
    }

    fn restarted(&mut self) -> Result<Outcome> {
        for node in 0..NODES {
            self.cluster.node(node).stop()?;
            self.cluster.start_node_without_waiting(node)?;
        }
        for node in 0..NODES {
            self.cluster.node(node).wait_started()?;
        }
        self.cluster.wait_all_live()?;
        self.check_all()?;
        // A node that was down while its block was recovered may have an old block of a group
        // beside a new one. When the old one goes, the NameNode forgets both until a full report.
        let pending = |bean: &Value| bean["PendingDeletionBlocks"].as_u64();
        self.cluster.namenode(0).wait_bean(
            "no block is to be deleted",
            "FSNamesystem",
            seconds(30),
            |bean| (pending(bean) == Some(0), format!("{:?}", pending(bean))),
        )?;
        // Nodes tell of what they deleted with the next heartbeat.
        std::thread::sleep(seconds(3));
        self.whole_with(|| {
            let mut nodes = self.cluster.nodes();
            nodes.try_for_each(|node| {
                let ask = ["-triggerBlockReport", &node.ipc()];
                self.fs.dfsadmin(&ask).map(drop)
            })
        })?;
        passed()
    }

    fn verify(&mut self) -> Result<Outcome> {
        for node in self.cluster.nodes() {
            self.fs.verify_metas(node)?;
        }
        passed()
    }

    fn degraded(&mut self) -> Result<Outcome> {
        self.cluster.node(0).kill()?;
        self.check_all()?;
        passed()
    }

    /// With a node dead the NameNode has what it had made up on the spare one.
    fn reconstructed(&mut self) -> Result<Outcome> {
        let gone = [self.cluster.node(0).xfer()];
        let paths: Vec<String> = SIZES.iter().map(|size| format!("/ec/{size}")).collect();
        self.fs
            .wait_striped(&paths, EcPolicy::RS_3_2, &gone, seconds(120))?;
        self.whole()?;
        self.check_all()?;
        for node in self.cluster.nodes().skip(1) {
            self.fs.verify_metas(node)?;
        }
        passed()
    }

    /// The node that has block `index` of the first group of a file, and the file's checksum while
    /// all is well.
    fn holder(&mut self, index: u64) -> Result<(usize, String, String)> {
        let path = format!("/ec/{}", SIZES[5]);
        let answer = self.fs.call("blocks", json!({ "path": path }))?;
        let nodes = answer["blocks"][0]["nodes"].as_array().cloned();
        let nodes = nodes.unwrap_or_default();
        let with_index = nodes.iter().find(|node| node["index"] == index);
        let xfer = with_index.and_then(|node| node["xfer"].as_str());
        let node = xfer.and_then(|xfer| self.cluster.node_at(xfer));
        let node = node.ok_or_else(|| {
            TestkitError::Expectation(format!("no node has block {index} of {path}: {answer}"))
        })?;
        let sum = self.sum_of(&path)?;
        if let Some(before) = &self.sum {
            expect_eq("checksum of a whole file", &sum, before)?;
        }
        Ok((node, path, sum))
    }

    /// Of a group that lacks a data block a node makes up the checksum from the others. Parity
    /// blocks do not matter.
    fn checksum_without(&mut self, index: u64) -> Result<Outcome> {
        let (node, path, sum) = self.holder(index)?;
        let composite = self.composite_of(&path)?;
        self.cluster.node(node).kill()?;
        let outcome = self.same_sums(&path, &sum, &composite, seconds(20));
        self.cluster.start_node(node)?;
        self.cluster.wait_all_live()?;
        outcome?;
        self.whole()?;
        passed()
    }

    /// A node that takes the question and does not answer: after `dfs.checksum.ec.socket-timeout`
    /// it is as if dead.
    fn checksum_of_silent(&mut self) -> Result<Outcome> {
        let (node, path, sum) = self.holder(DATA)?;
        let composite = self.composite_of(&path)?;
        self.cluster.node(node).signal(Signal::STOP)?;
        let outcome = self.same_sums(&path, &sum, &composite, seconds(60));
        self.cluster.node(node).signal(Signal::CONT)?;
        outcome?;
        self.cluster.wait_all_live()?;
        self.whole()?;
        passed()
    }

    fn composite_of(&self, path: &str) -> Result<String> {
        let mode = json!({"dfs.checksum.combine.mode": "COMPOSITE_CRC"});
        let answer = self
            .fs
            .call("checksum", json!({"path": path, "conf": mode}))?;
        Ok(format!("{}:{}", answer["algorithm"], answer["hex"]))
    }

    /// Both checksums are what they were, within `limit`.
    fn same_sums(&self, path: &str, sum: &str, composite: &str, limit: Duration) -> Result<()> {
        let start = Instant::now();
        let now = (self.sum_of(path)?, self.composite_of(path)?);
        let took = start.elapsed();
        let before = (sum.to_owned(), composite.to_owned());
        expect_eq("checksums without a node", now, before)?;
        println!("erasure:   both checksums after {took:?}");
        expect(took < limit, || format!("after {took:?}"))
    }

    fn back(&mut self) -> Result<Outcome> {
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        self.whole()?;
        self.check_all()?;
        passed()
    }

    fn whole(&self) -> Result<()> {
        self.whole_with(|| Ok(()))
    }

    /// Waits until no group lacks a block. Does something before each look but the first.
    fn whole_with(&self, between: impl Fn() -> Result<()>) -> Result<()> {
        let mut looks = 0;
        wait::until("all groups whole", seconds(90), || {
            looks += 1;
            if looks > 1 {
                between()?;
            }
            let out = self.fs.tool(class::FSCK, &["/ec"])?.out;
            let complete = out
                .lines()
                .filter_map(|line| line.trim().strip_prefix("Missing internal blocks:"))
                .all(|count| count.trim().split(' ').next() == Some("0"));
            Ok(if out.contains("is HEALTHY") && complete {
                Seen::Done(())
            } else {
                Seen::NotYet(out)
            })
        })
    }
}
