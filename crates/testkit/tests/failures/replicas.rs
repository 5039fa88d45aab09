//! Replicas that are damaged, lost or to be given up.

use crate::{BLOCK, Lab};
use hayloft_testkit::error::Result;
use hayloft_testkit::files::BlockOnNode;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError};
use serde_json::json;

impl Lab {
    pub fn corrupt(&mut self, meta: bool) -> Result<Outcome> {
        self.cluster.heal()?;
        let path = format!("/corrupt-{meta}");
        self.fs.put(&path, 200_000, 20, json!({}))?;
        let block = self.replicated(&path)?.remove(0);
        let victim = self.index_of(&block.nodes[1])?;
        let files = self.cluster.node(victim).block_files(block.id);
        let wanted = files.iter().find(|f| f.extension().is_some() == meta);
        let file = wanted
            .ok_or_else(|| TestkitError::Expectation(format!("no replica file in {files:?}")))?
            .clone();
        let good = std::fs::read(&file).map_err(TestkitError::file("reading", &file))?;
        hayloft_testkit::files::flip_byte(&file, if meta { 7 + 4 * 100 } else { 123_456 })?;
        // Clients choose a replica by chance; each must get good bytes, one will meet the bad.
        wait::until("the corrupt replica to be gone", seconds(90), || {
            self.fs.check(&path, 200_000, 20)?;
            let now = std::fs::read(&file);
            Ok(match now {
                Ok(bytes) if bytes != good => {
                    Seen::NotYet("the flipped byte is still there".into())
                }
                _ => Seen::Done(()),
            })
        })?;
        self.fs.wait_replicas(&path, 3, seconds(60))?;
        self.fs.check(&path, 200_000, 20)?;
        passed()
    }

    /// The test removes a replica's files behind the node: readers get the bytes elsewhere, the
    /// NameNode learns, and the replica is made anew.
    pub fn files_vanished(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs.put("/vanished", 200_000, 25, json!({}))?;
        let block = self.replicated("/vanished")?.remove(0);
        let victim = self.index_of(&block.nodes[0])?;
        let files = self.cluster.node(victim).block_files(block.id);
        expect_eq("files of the replica", files.len(), 2)?;
        for file in &files {
            std::fs::remove_file(file).map_err(TestkitError::file("removing", file))?;
        }
        wait::until("three replicas that are there", seconds(90), || {
            self.fs.check("/vanished", 200_000, 25)?;
            let nodes = self.fs.blocks("/vanished")?.remove(0).nodes;
            let mut missing = Vec::new();
            for xfer in &nodes {
                let index = self.index_of(xfer)?;
                if self.cluster.node(index).block_files(block.id).len() != 2 {
                    missing.push(xfer.clone());
                }
            }
            Ok(if nodes.len() == 3 && missing.is_empty() {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{nodes:?}, of them without files {missing:?}"))
            })
        })?;
        self.fs.check("/vanished", 200_000, 25)?;
        passed()
    }

    pub fn re_replication(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs.put("/again", 2 * BLOCK + 9, 21, json!({}))?;
        let victim = self.index_of(&self.replicated("/again")?[0].nodes[0])?;
        self.cluster.node(victim).kill()?;
        let count = self.cluster.node_count() - 1;
        self.cluster.namenode(0).wait_live(count, seconds(60))?;
        self.fs.wait_replicas("/again", 3, seconds(60))?;
        self.fs.check("/again", 2 * BLOCK + 9, 21)?;
        // The node comes back with replicas that are now too many: one of each goes.
        self.cluster.start_node(victim)?;
        self.cluster.wait_all_live()?;
        let blocks = self.fs.blocks("/again")?;
        wait::until("the end of what is too many", seconds(60), || {
            let held = |block: &BlockOnNode| {
                let nodes = self.cluster.nodes();
                nodes
                    .filter(|node| !node.block_files(block.id).is_empty())
                    .count()
            };
            let held: Vec<usize> = blocks.iter().map(held).collect();
            Ok(if held.iter().all(|nodes| *nodes == 3) {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{held:?}"))
            })
        })?;
        self.fs.wait_replicas("/again", 3, seconds(60))?;
        self.fs.check("/again", 2 * BLOCK + 9, 21)?;
        passed()
    }

    pub fn decommission(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs.put("/leaving", 2 * BLOCK, 22, json!({}))?;
        let victim = self.index_of(&self.replicated("/leaving")?[0].nodes[0])?;
        let xfer = self.cluster.node(victim).xfer();
        self.cluster.exclude(&[victim])?;
        self.fs.dfsadmin(&["-refreshNodes"])?;
        self.cluster.namenode(0).wait_bean(
            "a decommissioned node",
            "FSNamesystemState",
            seconds(90),
            |bean| {
                (
                    bean["NumDecomLiveDataNodes"] == 1,
                    bean["NumDecommissioningDataNodes"].to_string(),
                )
            },
        )?;
        for block in self.fs.blocks("/leaving")? {
            let elsewhere = block.nodes.iter().filter(|node| **node != xfer).count();
            expect(elsewhere >= 3, || format!("{block:?}"))?;
        }
        self.cluster.node(victim).stop()?;
        self.fs.check("/leaving", 2 * BLOCK, 22)?;
        self.cluster.exclude(&[])?;
        self.fs.dfsadmin(&["-refreshNodes"])?;
        self.cluster.heal()?;
        self.fs.wait_replicas("/leaving", 3, seconds(60))?;
        passed()
    }
}
