//! Writers that never come back, replicas that were left behind, truncation.

use crate::{BLOCK, Lab};
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError};
use serde_json::json;
use std::path::{Path, PathBuf};

impl Lab {
    pub fn dead_writer(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        for (name, flushed, more) in [
            ("none", 0, 0),
            ("unflushed", 0, 70_000),
            ("flushed", 100_001, 0),
            ("mixed", BLOCK + 777, 300_000),
            ("edge", BLOCK, 0),
        ] {
            let path = format!("/dead-{name}");
            self.fs.create("d", &path, 14, json!({}))?;
            if flushed > 0 {
                self.fs.write("d", flushed)?;
                self.fs.handle("hflush", "d")?;
            }
            self.fs.write("d", more)?;
            self.fs.handle("abandon", "d")?;
            self.fs.recover_lease(&path, seconds(60))?;
            self.check_between(&path, 14, flushed, flushed + more)?;
            self.fs.put(&path, 1000, 14, json!({"appendTo": true}))?;
        }
        passed()
    }

    pub fn dead_client_process(&mut self) -> Result<Outcome> {
        let victim = self.cluster.driver()?;
        victim.create("v", "/dead-process", 15, json!({}))?;
        victim.write("v", 2 * BLOCK + 5000)?;
        victim.handle("hflush", "v")?;
        victim.write("v", 1_000_000)?;
        victim.kill()?;
        self.fs.recover_lease("/dead-process", seconds(60))?;
        self.check_between("/dead-process", 15, 2 * BLOCK + 5000, 2 * BLOCK + 1_005_000)?;
        passed()
    }

    /// The writer and one of its nodes die together: recovery goes on with the other two.
    pub fn dead_writer_and_dead_node(&mut self) -> Result<Outcome> {
        self.fs.create("d", "/dead-both", 16, json!({}))?;
        self.fs.write("d", 500_500)?;
        self.fs.handle("hflush", "d")?;
        let victim = self.index_of(&self.fs.blocks("/dead-both")?[0].nodes[0])?;
        self.cluster.node(victim).kill()?;
        self.fs.handle("abandon", "d")?;
        self.fs.recover_lease("/dead-both", seconds(120))?;
        self.check_between("/dead-both", 16, 500_500, 500_500)?;
        self.cluster.heal()?;
        self.fs.wait_replicas("/dead-both", 3, seconds(60))?;
        passed()
    }

    /// A block recovery that finds a finalized replica leaves the others as they are. These must
    /// not refuse the copies that the NameNode orders then until it hears of them in the next full
    /// report, hours later.
    pub fn outdated(&mut self) -> Result<Outcome> {
        if Kind::under_test() == Kind::Apache {
            return Ok(Outcome::Skipped(
                "stock nodes refuse them until then".into(),
            ));
        }
        self.cluster.heal()?;
        self.fs.create("o", "/outdated", 30, json!({}))?;
        self.fs.write("o", 500_500)?;
        self.fs.handle("hflush", "o")?;
        let block = self.fs.blocks("/outdated")?.remove(0);
        self.fs.handle("abandon", "o")?;
        let holders = block.nodes.iter().map(|xfer| self.index_of(xfer));
        let holders = holders.collect::<Result<Vec<_>>>()?;
        let [first, ref others @ ..] = holders[..] else {
            return Err(TestkitError::Expectation(format!(
                "no holders of {block:?}"
            )));
        };
        // Nowhere else to go.
        for index in 0..self.cluster.node_count() {
            self.cluster.node(index).kill()?;
        }
        // What was staged is in the files when a node has started.
        self.cluster.start_node(first)?;
        self.cluster.node(first).kill()?;
        finalize(&self.cluster.node(first).block_files(block.id))?;
        for index in holders.iter() {
            self.cluster.start_node(*index)?;
        }
        self.cluster
            .namenode(0)
            .wait_live(holders.len(), seconds(60))?;
        self.fs.recover_lease("/outdated", seconds(120))?;
        self.check_between("/outdated", 30, 500_500, 500_500)?;
        self.fs.wait_replicas("/outdated", 3, seconds(90))?;
        for index in others {
            let files = self.cluster.node(*index).block_files(block.id);
            expect(files.len() == 2, || {
                format!("replicas of two generations: {files:?}")
            })?;
        }
        self.cluster.heal()?;
        passed()
    }

    /// A NameNode that was killed gives a generation stamp again that it gave a writer before: a
    /// replica that took it then refuses the recovery with this stamp, and copies of what that made
    /// of the others. The NameNode hears of it as bad, and has it deleted once others are enough.
    pub fn same_stamp(&mut self) -> Result<Outcome> {
        if Kind::under_test() == Kind::Apache {
            let why = "stock nodes refuse copies until their next full report";
            return Ok(Outcome::Skipped(why.into()));
        }
        self.cluster.heal()?;
        self.fs.create("s", "/same-stamp", 33, json!({}))?;
        self.fs.write("s", 500_500)?;
        self.fs.handle("hflush", "s")?;
        let block = self.fs.blocks("/same-stamp")?.remove(0);
        self.fs.handle("abandon", "s")?;
        let holders = block.nodes.iter().map(|xfer| self.index_of(xfer));
        let holders = holders.collect::<Result<Vec<_>>>()?;
        for index in 0..self.cluster.node_count() {
            self.cluster.node(index).kill()?;
        }
        // What was staged is in the files when a node has started.
        let bad = holders[1];
        self.cluster.start_node(bad)?;
        self.cluster.node(bad).kill()?;
        take_next_stamp(&self.cluster.node(bad).block_files(block.id))?;
        for index in &holders {
            self.cluster.start_node(*index)?;
        }
        let count = holders.len();
        self.cluster.namenode(0).wait_live(count, seconds(60))?;
        self.fs.recover_lease("/same-stamp", seconds(120))?;
        self.check_between("/same-stamp", 33, 500_500, 500_500)?;
        // There is only one node to copy to.
        wait::until("the report of a bad replica", seconds(60), || {
            let now = self.fsck_of_replicas("/same-stamp")?;
            Ok(if now.contains("(CORRUPT)") {
                Seen::Done(())
            } else {
                Seen::NotYet(now)
            })
        })?;
        self.cluster.heal()?;
        wait::until("the end of the bad replica", seconds(60), || {
            let files = self.cluster.node(bad).block_files(block.id);
            Ok(if files.is_empty() {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{files:?}"))
            })
        })?;
        self.fs.wait_replicas("/same-stamp", 3, seconds(60))?;
        self.fs.check("/same-stamp", 500_500, 33)?;
        passed()
    }

    /// Outdated replicas that are reported while the NameNode knows no good one yet are not deleted
    /// for it. With the good one and one copy there is nowhere left to copy to, until nodes report
    /// once more.
    pub fn reported_first(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        let alone =
            json!({"conf": {"dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER"}});
        self.fs.create("q", "/reported-first", 31, alone)?;
        self.fs.write("q", 300_300)?;
        self.fs.handle("hflush", "q")?;
        let block = self.fs.blocks("/reported-first")?.remove(0);
        let holders = block.nodes.iter().map(|xfer| self.index_of(xfer));
        let holders = holders.collect::<Result<Vec<_>>>()?;
        let [good, ref outdated @ ..] = holders[..] else {
            return Err(TestkitError::Expectation(format!(
                "no holders of {block:?}"
            )));
        };
        for index in outdated {
            self.cluster.node(*index).kill()?;
        }
        self.fs.write("q", 200_200)?;
        self.fs.handle("close", "q")?;
        for index in 0..self.cluster.node_count() {
            self.cluster.node(index).kill()?;
        }
        self.cluster.namenode(0).kill()?;
        self.cluster.namenode(0).start(&[])?;
        for index in outdated {
            self.cluster.start_node(*index)?;
        }
        wait::until("reports of outdated replicas", seconds(60), || {
            let corrupt = self.fsck_of_replicas("/reported-first")?;
            Ok(if corrupt.matches("(CORRUPT)").count() == outdated.len() {
                Seen::Done(())
            } else {
                Seen::NotYet(corrupt)
            })
        })?;
        self.cluster.start_node(good)?;
        self.cluster.heal()?;
        wait::until("all other copies", seconds(90), || {
            Ok(if self.nowhere_to_copy_to()? {
                Seen::Done(())
            } else {
                Seen::NotYet(self.fsck_of_replicas("/")?)
            })
        })?;
        self.ask_for_reports()?;
        self.fs.wait_replicas("/reported-first", 3, seconds(90))?;
        self.fs.check("/reported-first", 500_500, 31)?;
        passed()
    }

    /// Beyond Apache's node: what was hflushed stays visible while the file waits for its recovery.
    pub fn open_file_after_kills(&mut self) -> Result<Outcome> {
        if Kind::under_test() == Kind::Apache {
            let why = "the stock node shows nothing of a replica that waits for recovery";
            return Ok(Outcome::Skipped(why.into()));
        }
        let (path, bytes) = ("/open-then-killed", BLOCK + 123_457);
        self.fs.create("o", path, 37, json!({}))?;
        self.fs.write("o", bytes)?;
        self.fs.handle("hflush", "o")?;
        let nodes = self.cluster.node_count();
        for index in 0..nodes {
            self.cluster.node(index).kill()?;
        }
        for index in 0..nodes {
            self.cluster.start_node(index)?;
        }
        self.cluster.wait_all_live()?;
        wait::until("every hflushed byte", seconds(60), || {
            Ok(match self.fs.check(path, bytes, 37) {
                Ok(()) => Seen::Done(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })?;
        // It still is a file that waits for its recovery.
        let _ = self.fs.handle("abandon", "o");
        self.fs.recover_lease(path, seconds(120))?;
        self.fs.check(path, bytes, 37)?;
        passed()
    }

    pub fn truncate(&mut self) -> Result<Outcome> {
        self.fs.put("/truncate", BLOCK + 5000, 17, json!({}))?;
        for length in [BLOCK + 4999, BLOCK + 513, BLOCK + 512, BLOCK, 1_000_003, 7] {
            self.fs
                .fs(&["-truncate", "-w", &length.to_string(), "/truncate"])?;
            self.fs.check("/truncate", length, 17)?;
        }
        self.fs
            .put("/truncate", 999_993, 17, json!({"appendTo": true}))?;
        let victim = self.index_of(&self.replicated("/truncate")?[0].nodes[2])?;
        self.cluster.node(victim).kill()?;
        // The NameNode may have given the recovery to the dead node: asking again moves it.
        self.fs
            .call("truncate", json!({"path": "/truncate", "length": 500_001}))?;
        self.fs.recover_lease("/truncate", seconds(120))?;
        self.fs.check("/truncate", 500_001, 17)?;
        self.cluster.heal()?;
        self.fs.wait_replicas("/truncate", 3, seconds(60))?;
        self.fs.check("/truncate", 500_001, 17)?;
        passed()
    }

    /// A snapshot keeps the old length: nodes copy the block instead of cutting it.
    pub fn truncate_snapshotted(&mut self) -> Result<Outcome> {
        self.fs.fs(&["-mkdir", "/snap"])?;
        self.fs.put("/snap/f", 300_300, 18, json!({}))?;
        self.fs.dfsadmin(&["-allowSnapshot", "/snap"])?;
        self.fs.fs(&["-createSnapshot", "/snap", "s"])?;
        // "-w" waits for the length only, which the NameNode shows before any node has cut
        // anything; until then a reader finds no replica of the new block.
        self.fs.fs(&["-truncate", "-w", "100100", "/snap/f"])?;
        self.fs.wait_closed("/snap/f", seconds(60))?;
        self.fs.check("/snap/f", 100_100, 18)?;
        self.fs.check("/snap/.snapshot/s/f", 300_300, 18)?;
        self.fs
            .put("/snap/f", 55_555, 18, json!({"appendTo": true}))?;
        self.fs.check("/snap/f", 155_655, 18)?;
        self.fs.check("/snap/.snapshot/s/f", 300_300, 18)?;
        self.fs.wait_replicas("/snap/f", 3, seconds(60))?;
        passed()
    }
}

/// Gives a replica that is being written the generation stamp after its own.
fn take_next_stamp(files: &[PathBuf]) -> Result<()> {
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str());
        let Some(stem) = name.and_then(|name| name.strip_suffix(".meta")) else {
            continue;
        };
        let taken = stem.rsplit_once('_').and_then(|(block, stamp)| {
            let next = stamp.parse::<u64>().ok()? + 1;
            Some(file.with_file_name(format!("{block}_{next}.meta")))
        });
        let to = taken.ok_or_else(|| {
            TestkitError::Expectation(format!("{} is no replica", file.display()))
        })?;
        return std::fs::rename(file, &to).map_err(TestkitError::file("renaming", file));
    }
    Err(TestkitError::Expectation(format!(
        "no meta file in {files:?}"
    )))
}

/// Moves the files of a replica that is being written to where finalized ones are.
fn finalize(files: &[PathBuf]) -> Result<()> {
    for file in files {
        let id: i64 = file
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.split('_').nth(1))
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| {
                TestkitError::Expectation(format!("{} is no replica", file.display()))
            })?;
        let to = file
            .parent()
            .and_then(Path::parent)
            .ok_or_else(|| TestkitError::Expectation(format!("{} is nowhere", file.display())))?
            .join(format!(
                "finalized/subdir{}/subdir{}",
                id >> 16 & 0x1f,
                id >> 8 & 0x1f
            ));
        std::fs::create_dir_all(&to).map_err(TestkitError::file("creating", &to))?;
        let to = to.join(file.file_name().unwrap_or_default());
        std::fs::rename(file, &to).map_err(TestkitError::file("moving", file))?;
    }
    Ok(())
}
