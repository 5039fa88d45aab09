//! Nodes, clients and the NameNode dying at bad moments. Named for the failure.
//! [`recovery`]: writers that never come back. [`replicas`]: replicas that are lost or damaged.

mod recovery;
mod replicas;

use hayloft_testkit::error::Result;
use hayloft_testkit::files::BlockOnNode;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::process::Signal;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 4 << 20;

fn main() -> ExitCode {
    Suite::run("failures", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        for place in [0, 1, 2] {
            on.case(
                format!("node_{place}_of_pipeline_killed_mid_write"),
                move |lab| lab.killed_mid_write(place),
            );
        }
        on.case("node_stopped_cleanly_mid_write", |lab| {
            lab.stopped_mid_write()
        });
        on.case("node_hung_mid_write", |lab| lab.hung_mid_write());
        on.case("node_killed_between_append_and_close", |lab| {
            lab.killed_in_append()
        });
        on.case("node_killed_mid_read", |lab| lab.killed_mid_read());
        on.case("dead_writer_then_recover_lease", |lab| lab.dead_writer());
        on.case("dead_client_process_then_recover_lease", |lab| {
            lab.dead_client_process()
        });
        on.case("dead_writer_of_a_short_pipeline", |lab| {
            lab.dead_writer_and_dead_node()
        });
        on.case("open_file_after_all_nodes_were_killed", |lab| {
            lab.open_file_after_kills()
        });
        on.case("outdated_replicas_give_way_to_copies", |lab| lab.outdated());
        on.case("outdated_replicas_that_are_reported_first", |lab| {
            lab.reported_first()
        });
        on.case("replicas_with_the_stamp_of_the_recovery", |lab| {
            lab.same_stamp()
        });
        on.case("truncate_with_block_recovery", |lab| lab.truncate());
        on.case("truncate_of_a_snapshotted_file", |lab| {
            lab.truncate_snapshotted()
        });
        on.case("single_node_killed_at_random_moments", |lab| {
            lab.killed_at_random(1)
        });
        on.case("whole_pipeline_killed_at_random_moments", |lab| {
            lab.killed_at_random(3)
        });
        on.case("corrupt_data_byte_is_noticed_and_replaced", |lab| {
            lab.corrupt(false)
        });
        on.case("corrupt_meta_byte_is_noticed_and_replaced", |lab| {
            lab.corrupt(true)
        });
        on.case("files_of_a_replica_vanished", |lab| lab.files_vanished());
        on.case("dead_node_is_replicated_elsewhere", |lab| {
            lab.re_replication()
        });
        on.case("decommission_and_recommission", |lab| lab.decommission());
        on.case("namenode_restarted_during_writes", |lab| {
            lab.namenode_restarted()
        });
        on.case("everything_killed_and_restarted_during_writes", |lab| {
            lab.everything_restarted()
        });
        on.case("everything_is_whole_at_the_end", |lab| lab.whole());
        Ok(())
    })
}

fn start() -> Result<Lab> {
    let cluster = Cluster::builder("failures")
        .nodes(4, Kind::under_test())
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.client.socket-timeout", 10_000)
        .conf(
            "dfs.client.block.write.replace-datanode-on-failure.best-effort",
            true,
        )
        .start()?;
    let driver = cluster.driver()?;
    Ok(Lab {
        cluster,
        fs: driver,
    })
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
}

impl Lab {
    fn index_of(&self, xfer: &str) -> Result<usize> {
        self.cluster
            .node_at(xfer)
            .ok_or_else(|| TestkitError::Expectation(format!("unknown node {xfer}")))
    }

    /// The blocks of a closed file, once all three replicas of each are reported: close waits for
    /// one.
    fn replicated(&self, path: &str) -> Result<Vec<BlockOnNode>> {
        self.fs.wait_replicas(path, 3, seconds(30))?;
        self.fs.blocks(path)
    }

    /// Writes 3 blocks with a flush per chunk; when 1.5 blocks are acknowledged, `hurt` gets the
    /// node at `place` of the current pipeline. The write must end well and every byte be there.
    fn write_while(
        &mut self,
        path: &str,
        place: usize,
        hurt: impl FnOnce(&mut Self, usize) -> Result<()>,
    ) -> Result<usize> {
        self.cluster.heal()?;
        let total = 3 * BLOCK;
        self.fs.create("w", path, 11, json!({}))?;
        let request = json!({"handle": "w", "bytes": total, "chunk": 65_536, "pauseMillis": 10});
        let writing = self.fs.begin("loop", request)?;
        self.fs.wait_acked("w", BLOCK + BLOCK / 2)?;
        let nodes = self
            .fs
            .blocks(path)?
            .pop()
            .map(|block| block.nodes)
            .unwrap_or_default();
        let victim = self.index_of(nodes.get(place).map_or("", String::as_str))?;
        hurt(self, victim)?;
        let end = writing.wait()?;
        expect(end["failure"].is_null() && end["acked"] == total, || {
            format!("the writer failed: {end}")
        })?;
        self.fs.handle("close", "w")?;
        self.fs.check(path, total, 11)?;
        Ok(victim)
    }

    fn killed_mid_write(&mut self, place: usize) -> Result<Outcome> {
        let path = format!("/killed-{place}");
        let victim =
            self.write_while(&path, place, |lab, victim| lab.cluster.node(victim).kill())?;
        // The client asked for a replacement and had the block's beginning copied to it.
        self.fs.wait_replicas(&path, 3, seconds(60))?;
        self.cluster.start_node(victim)?;
        self.cluster.wait_all_live()?;
        self.fs.check(&path, 3 * BLOCK, 11)?;
        passed()
    }

    fn stopped_mid_write(&mut self) -> Result<Outcome> {
        let victim =
            self.write_while("/stopped", 1, |lab, victim| lab.cluster.node(victim).stop())?;
        self.cluster.start_node(victim)?;
        self.cluster.wait_all_live()?;
        passed()
    }

    fn hung_mid_write(&mut self) -> Result<Outcome> {
        let victim = self.write_while("/hung", 1, |lab, victim| {
            lab.cluster.node(victim).signal(Signal::STOP)
        })?;
        self.cluster.node(victim).signal(Signal::CONT)?;
        self.cluster.wait_all_live()?;
        self.fs.check("/hung", 3 * BLOCK, 11)?;
        passed()
    }

    fn killed_in_append(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs.put("/append", 100_001, 12, json!({}))?;
        self.fs.append("a", "/append", 12, json!({}))?;
        self.fs.write("a", 50_000)?;
        self.fs.handle("hflush", "a")?;
        let victim = self.index_of(&self.fs.blocks("/append")?[0].nodes[1])?;
        self.cluster.node(victim).kill()?;
        self.fs.write("a", 50_000)?;
        self.fs.handle("close", "a")?;
        self.fs.check("/append", 200_001, 12)?;
        self.cluster.heal()?;
        self.fs.wait_replicas("/append", 3, seconds(60))?;
        self.fs.put("/append", 10, 12, json!({"appendTo": true}))?;
        self.fs.check("/append", 200_011, 12)?;
        passed()
    }

    fn killed_mid_read(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        let total = 4 * BLOCK;
        self.fs.put("/read", total, 13, json!({}))?;
        let request = json!({"path": "/read", "seed": 13, "buffer": 65_536, "pauseMillis": 20});
        let reading = self.fs.begin("read", request)?;
        // The reader tells nothing before its end: at 3 MB/s it is in the middle then.
        sleep(Duration::from_millis(600));
        // Any node may be serving: two of four die, one replica of each block stays.
        let nodes = self.replicated("/read")?[0].nodes.clone();
        for xfer in &nodes[..2] {
            let index = self.index_of(xfer)?;
            self.cluster.node(index).kill()?;
        }
        let read = reading.wait()?;
        expect(read["bytes"] == total && read["mismatch"] == -1, || {
            read.to_string()
        })?;
        self.cluster.heal()?;
        passed()
    }

    /// The file is a prefix of the pattern, at least `low` and at most `high` long.
    fn check_between(&self, path: &str, seed: u64, low: u64, high: u64) -> Result<u64> {
        let length = self.fs.length(path)?;
        expect(low <= length && length <= high, || {
            format!("{path}: {length} bytes, want {low}..={high}")
        })?;
        self.fs.check(path, length, seed)?;
        Ok(length)
    }

    /// Every hflushed byte survives `kill -9` of all nodes that had it.
    fn killed_at_random(&mut self, replication: usize) -> Result<Outcome> {
        let seed = std::time::UNIX_EPOCH
            .elapsed()
            .map_or(1, |t| u64::from(t.subsec_nanos()));
        println!("failures: killed_at_random: seed {seed}");
        // The stock DataNode rewrites the sum of a partial chunk before its data: killed between
        // the two, it drops that chunk, acknowledged or not. Ours may not.
        let slack = if Kind::under_test() == Kind::Apache {
            511
        } else {
            0
        };
        for round in 0..4u64 {
            self.cluster.heal()?;
            let path = format!("/random-{replication}-{round}");
            let conf = json!({
                "dfs.client.block.write.replace-datanode-on-failure.enable": false,
                "dfs.client.block.write.retries": 0, "dfs.client.socket-timeout": 3000,
            });
            let handle = format!("random-{replication}-{round}");
            self.fs.create(
                &handle,
                &path,
                19,
                json!({"replication": replication, "conf": conf}),
            )?;
            let request = json!({"handle": handle, "bytes": 64 * BLOCK, "chunk": 10_007});
            let writing = self.fs.begin("loop", request)?;
            self.fs.wait_acked(&handle, 1)?;
            let step = u64::from(hayloft_testkit::pattern::byte_at(seed, round));
            // The random moment.
            sleep(Duration::from_millis(3 * step));
            for index in self.nodes_of_last_block(&path)? {
                self.cluster.node(index).kill()?;
            }
            let end = writing.wait_at_most(seconds(120))?;
            let acked = end["acked"].as_u64().unwrap_or_default();
            let position = end["position"].as_u64().unwrap_or_default();
            let _ = self.fs.handle("abandon", &handle);
            self.cluster.heal()?;
            self.fs.recover_lease(&path, seconds(120))?;
            let length = self.check_between(&path, 19, acked.saturating_sub(slack), position)?;
            println!(
                "failures:   round {round}: acknowledged {acked}, kept {length}, written {position}"
            );
        }
        passed()
    }

    fn nodes_of_last_block(&self, path: &str) -> Result<Vec<usize>> {
        let nodes = self
            .fs
            .blocks(path)?
            .pop()
            .map(|block| block.nodes)
            .unwrap_or_default();
        expect(!nodes.is_empty(), || format!("{path} has no located block"))?;
        nodes.iter().map(|xfer| self.index_of(xfer)).collect()
    }

    fn namenode_restarted(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs.create(
            "n",
            "/namenode",
            23,
            json!({"conf": {"dfs.client.retry.policy.enabled": true}}),
        )?;
        let request =
            json!({"handle": "n", "bytes": 3 * BLOCK, "chunk": 65_536, "pauseMillis": 30});
        let writing = self.fs.begin("loop", request)?;
        self.fs.wait_acked("n", 1_000_000)?;
        self.cluster.namenode(0).kill()?;
        // Away for long enough that clients and nodes notice.
        sleep(Duration::from_secs(1));
        self.cluster.namenode(0).start(&[])?;
        let end = writing.wait()?;
        expect(end["failure"].is_null(), || end.to_string())?;
        self.cluster.wait_all_live()?;
        self.fs.handle("close", "n")?;
        self.fs.check("/namenode", 3 * BLOCK, 23)?;
        passed()
    }

    fn everything_restarted(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        let retry = json!({"conf": {"ipc.client.connect.max.retries": 2, "dfs.client.retry.max.attempts": 2}});
        self.fs.create("e", "/everything", 24, retry)?;
        let writing = self.fs.begin(
            "loop",
            json!({"handle": "e", "bytes": 64 * BLOCK, "chunk": 50_021}),
        )?;
        self.fs.wait_acked("e", 3_000_000)?;
        for index in 0..self.cluster.node_count() {
            self.cluster.node(index).kill()?;
        }
        self.cluster.namenode(0).kill()?;
        let end: Value = writing.wait_at_most(seconds(180))?;
        expect(!end["failure"].is_null(), || {
            "the writer did not notice".into()
        })?;
        let _ = self.fs.handle("abandon", "e");
        self.cluster.heal()?;
        self.fs.recover_lease("/everything", seconds(120))?;
        let acked = end["acked"].as_u64().unwrap_or_default();
        self.check_between(
            "/everything",
            24,
            acked,
            end["position"].as_u64().unwrap_or_default(),
        )?;
        passed()
    }

    /// After all of the above: files healthy, every replica on disk matches its checksums.
    fn whole(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        // A recovery that found one replica finalized leaves the others as they are: stock nodes
        // refuse a copy of the recovered block until a full report tells the NameNode that they are
        // out of date. See `outdated`.
        if Kind::under_test() == Kind::Apache {
            self.ask_for_reports()?;
        }
        let healthy = self.fs.wait_healthy("/", seconds(90));
        if healthy.is_err() && self.nowhere_to_copy_to()? {
            println!(
                "failures:   outdated replicas are on all other nodes, and were reported before \
                    the good one"
            );
            self.ask_for_reports()?;
            self.fs.wait_healthy("/", seconds(60))?;
        } else if let Err(error) = healthy {
            // What fsck says first names no block.
            println!("{}", self.fsck_of_replicas("/")?);
            return Err(error);
        }
        for index in 0..self.cluster.node_count() {
            self.cluster.node(index).stop()?;
        }
        for node in self.cluster.nodes() {
            expect(self.fs.verify_metas(node)? > 0, || {
                format!("{} has no replicas", node.name())
            })?;
        }
        self.cluster.heal()?;
        self.fs.wait_healthy("/", seconds(60))?;
        expect_eq(
            "files readable",
            self.fs.check("/killed-0", 3 * BLOCK, 11).is_ok(),
            true,
        )?;
        passed()
    }

    fn fsck_of_replicas(&self, path: &str) -> Result<String> {
        let details = [path, "-files", "-blocks", "-replicaDetails"];
        Ok(self.fs.tool(class::FSCK, &details)?.out)
    }

    fn ask_for_reports(&self) -> Result<()> {
        for node in self.cluster.nodes() {
            self.fs.dfsadmin(&["-triggerBlockReport", &node.ipc()])?;
        }
        Ok(())
    }

    /// Whether every block that lacks replicas has one on each node, of which the NameNode knows
    /// that some are outdated. It has those deleted only when it hears of them while it knows a
    /// good one, so that nodes that report first after a restart of everything keep theirs until
    /// the next full report, whatever node they are; and it copies to no node that has one.
    fn nowhere_to_copy_to(&self) -> Result<bool> {
        let out = self.fsck_of_replicas("/")?;
        let under = out.lines().filter_map(|line| {
            let (_, rest) = line.split_once("Under replicated ")?;
            rest.split_once(". ").map(|(block, _)| block)
        });
        let mut lacking = under.peekable();
        let held = |block: &str| {
            let of_block = |line: &&str| line.contains(block) && line.contains("Live_repl=");
            out.lines().find(of_block).is_some_and(|line| {
                let nodes = line.matches("DatanodeInfoWithStorage[").count();
                line.contains("(CORRUPT)") && nodes == self.cluster.node_count()
            })
        };
        Ok(lacking.peek().is_some() && lacking.all(held))
    }
}
