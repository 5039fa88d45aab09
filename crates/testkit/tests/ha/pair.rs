//! An active NameNode and a standby that change places.

use crate::{BLOCK, NODES};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, ClusterBuilder, Driver, Outcome};
use serde_json::json;

pub struct Pair {
    pub cluster: Cluster,
    pub fs: Driver,
}

impl Pair {
    /// Makes two NameNodes of what else is built, the first of which is active.
    pub fn start(builder: ClusterBuilder) -> Result<Self> {
        let cluster = builder
            .ha()
            .conf("dfs.blocksize", BLOCK)
            .conf("dfs.client.failover.max.attempts", 60)
            .conf("dfs.client.failover.sleep.max.millis", 1000)
            .start()?;
        let fs = cluster.driver()?;
        let lab = Self { cluster, fs };
        lab.make_active("nn1", &[])?;
        lab.cluster.wait_all_live()?;
        Ok(lab)
    }

    pub fn haadmin(&self, args: &[&str]) -> Result<String> {
        let args = [&["-ns", "ns1"], args].concat();
        let mut run = self.fs.tool(class::HAADMIN, &args)?;
        if run.err.contains("EOFException") {
            // Over a connection that the client had kept to a NameNode that was restarted since.
            run = self.fs.tool(class::HAADMIN, &args)?;
        }
        Ok(run.ok()?.out)
    }

    pub fn make_active(&self, id: &str, flags: &[&str]) -> Result<()> {
        self.haadmin(&[&["-transitionToActive"], flags, &[id]].concat())?;
        wait::until(&format!("{id} to be active"), seconds(60), || {
            let state = self.haadmin(&["-getServiceState", id])?;
            Ok(if state.trim() == "active" {
                Seen::Done(())
            } else {
                Seen::NotYet(state)
            })
        })
    }

    pub fn switch(&self, from: &str, to: &str) -> Result<()> {
        self.haadmin(&["-transitionToStandby", from])?;
        self.make_active(to, &[])
    }

    pub fn plain(&mut self) -> Result<Outcome> {
        self.fs.put("/plain", 3 * BLOCK + 1, 1, json!({}))?;
        self.fs.check("/plain", 3 * BLOCK + 1, 1)?;
        passed()
    }

    pub fn failover_during_writes(&mut self) -> Result<Outcome> {
        self.fs.create("w", "/failover", 2, json!({}))?;
        let request =
            json!({"handle": "w", "bytes": 20 * BLOCK, "chunk": 65_536, "pauseMillis": 30});
        let writing = self.fs.begin("loop", request)?;
        let failovers = [("nn1", "nn2", 4), ("nn2", "nn1", 8), ("nn1", "nn2", 12)];
        for (from, to, blocks) in failovers {
            self.fs.wait_acked("w", blocks * BLOCK)?;
            self.switch(from, to)?;
        }
        let end = writing.wait()?;
        expect(end["failure"].is_null(), || end.to_string())?;
        self.fs.handle("close", "w")?;
        self.fs.check("/failover", 20 * BLOCK, 2)?;
        self.fs.check("/plain", 3 * BLOCK + 1, 1)?;
        passed()
    }

    pub fn active_killed(&mut self) -> Result<Outcome> {
        self.fs.create("w", "/killed", 3, json!({}))?;
        let request =
            json!({"handle": "w", "bytes": 12 * BLOCK, "chunk": 65_536, "pauseMillis": 30});
        let writing = self.fs.begin("loop", request)?;
        self.fs.wait_acked("w", 3 * BLOCK)?;
        self.cluster.namenode(1).kill()?;
        self.make_active("nn1", &["--forceactive"])?;
        let end = writing.wait()?;
        expect(end["failure"].is_null(), || end.to_string())?;
        self.fs.handle("close", "w")?;
        self.fs.check("/killed", 12 * BLOCK, 3)?;
        self.cluster.namenode(1).start(&[])?;
        self.cluster.wait_all_live()?;
        passed()
    }

    /// After a switch the other serves every file at once: it had all reports.
    pub fn standby_knows(&mut self) -> Result<Outcome> {
        for number in 0..20 {
            self.fs
                .put(&format!("/known-{number}"), 10_000, number, json!({}))?;
        }
        self.switch("nn1", "nn2")?;
        for number in 0..20 {
            self.fs.check(&format!("/known-{number}"), 10_000, number)?;
        }
        self.fs.wait_healthy("/", seconds(60))?;
        passed()
    }

    pub fn commands_follow(&mut self) -> Result<Outcome> {
        let blocks = |cluster: &Cluster| -> usize {
            cluster
                .nodes()
                .map(|node| node.all_block_files().len())
                .sum()
        };
        self.fs
            .put("/thin", 2 * BLOCK, 4, json!({"replication": 1}))?;
        self.fs.fs(&["-setrep", "3", "/thin"])?;
        self.fs.wait_replicas("/thin", 3, seconds(60))?;
        let before = blocks(&self.cluster);
        self.fs.fs(&["-rm", "-skipTrash", "/thin", "/killed"])?;
        wait::until("the replicas to be deleted", seconds(60), || {
            let now = blocks(&self.cluster);
            // 14 blocks, three replicas each, two files each.
            Ok(if now + 14 * 3 * 2 <= before {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{before} -> {now}"))
            })
        })?;
        passed()
    }

    pub fn node_restarted(&mut self) -> Result<Outcome> {
        self.cluster.namenode(0).stop()?;
        self.cluster.node(0).kill()?;
        self.cluster.start_node(0)?;
        self.cluster.namenode(1).wait_live(NODES, seconds(60))?;
        self.fs.put("/one-namenode", BLOCK, 5, json!({}))?;
        self.fs.check("/one-namenode", BLOCK, 5)?;
        self.cluster.namenode(0).start(&[])?;
        self.cluster.wait_all_live()?;
        self.switch("nn2", "nn1")?;
        self.fs.check("/one-namenode", BLOCK, 5)?;
        passed()
    }
}

impl Pair {
    /// An observer gets all reports, also of a node that starts meanwhile: it can be read from.
    pub fn observer(&mut self) -> Result<Outcome> {
        self.haadmin(&["-transitionToObserver", "nn2"])?;
        let state = self.haadmin(&["-getServiceState", "nn2"])?;
        expect(state.trim() == "observer", || state)?;
        self.fs.put("/observed", 2 * BLOCK + 3, 6, json!({}))?;
        self.cluster.node(0).kill()?;
        self.cluster.start_node(0)?;
        self.cluster.namenode(1).wait_live(NODES, seconds(60))?;
        let there = format!("{}/observed", self.cluster.namenode(1).uri());
        wait::until("all replicas at the observer", seconds(60), || {
            let seen = self.fs.blocks(&there).map(|blocks| {
                let counts: Vec<usize> = blocks.iter().map(|b| b.nodes.len()).collect();
                (counts == [NODES; 3], format!("{counts:?}"))
            });
            Ok(match seen {
                Ok((true, _)) => Seen::Done(()),
                Ok((false, seen)) => Seen::NotYet(seen),
                // The file, or its blocks, are not known there yet.
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })?;
        self.fs.check(&there, 2 * BLOCK + 3, 6)?;
        self.haadmin(&["-transitionToStandby", "nn2"])?;
        self.switch("nn1", "nn2")?;
        self.fs.check("/observed", 2 * BLOCK + 3, 6)?;
        passed()
    }
}
