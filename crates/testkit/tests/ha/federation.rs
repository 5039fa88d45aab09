//! Two nameservices over the same nodes.

use crate::BLOCK;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome};
use serde_json::json;

pub fn federation() -> Result<Federation> {
    let cluster = Cluster::builder("federation")
        .nameservices(2)
        .nodes(2, Kind::under_test())
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 2)
        .conf("dfs.client.retry.policy.enabled", true)
        .start()?;
    let fs = cluster.driver()?;
    Ok(Federation { cluster, fs })
}

pub struct Federation {
    pub cluster: Cluster,
    fs: Driver,
}

impl Federation {
    pub fn path(&mut self, service: usize, path: &str) -> String {
        format!("{}{path}", self.cluster.namenode(service).uri())
    }

    pub fn two(&mut self) -> Result<Outcome> {
        for service in 0..2 {
            let path = self.path(service, "/same-name");
            self.fs
                .put(&path, 2 * BLOCK + 5, service as u64, json!({}))?;
        }
        for service in 0..2 {
            let path = self.path(service, "/same-name");
            self.fs.check(&path, 2 * BLOCK + 5, service as u64)?;
            self.cluster.namenode(service).wait_live(2, seconds(30))?;
        }
        passed()
    }

    pub fn one_down(&mut self) -> Result<Outcome> {
        self.cluster.namenode(1).kill()?;
        let path = self.path(0, "/alone");
        self.fs.put(&path, 3 * BLOCK, 7, json!({}))?;
        self.fs.check(&path, 3 * BLOCK, 7)?;
        self.cluster.namenode(1).start(&[])?;
        self.cluster.wait_all_live()?;
        let path = self.path(1, "/same-name");
        self.fs.check(&path, 2 * BLOCK + 5, 1)?;
        passed()
    }

    pub fn nodes_restarted(&mut self) -> Result<Outcome> {
        for node in 0..2 {
            self.cluster.node(node).stop()?;
            self.cluster.start_node(node)?;
        }
        self.cluster.wait_all_live()?;
        for service in 0..2 {
            let path = self.path(service, "/same-name");
            self.fs.check(&path, 2 * BLOCK + 5, service as u64)?;
        }
        passed()
    }

    /// `deleteBlockPool`: refused while the pool is served, then while it holds blocks; by force
    /// its directories go, and the other pool's stay. Back in the configuration, it is filled
    /// again.
    pub fn pool_deleted(&mut self) -> Result<Outcome> {
        let path = self.path(1, "/same-name");
        let pool = self.fs.blocks(&path)?.remove(0).pool;
        let node = self.cluster.node(0);
        let ipc = node.ipc();
        let dirs: Vec<_> = node
            .volumes()
            .map(|v| v.join("current").join(&pool))
            .collect();
        let delete = |fs: &Driver, force: &[&str]| {
            let args = [&["-deleteBlockPool", &ipc, &pool], force].concat();
            fs.tool(class::DFSADMIN, &args)
        };
        let run = delete(&self.fs, &["force"])?;
        expect(run.code != 0 && run.err.contains("still running"), || {
            format!("a pool in service: {run:?}")
        })?;
        self.cluster
            .node(0)
            .conf_mut()
            .set("dfs.nameservices", "ns1");
        self.cluster.rewrite_node_conf(0)?;
        self.fs.dfsadmin(&["-refreshNamenodes", &ipc])?;
        let run = delete(&self.fs, &[])?;
        expect(run.code != 0 && dirs.iter().all(|dir| dir.is_dir()), || {
            format!("a pool with blocks: {run:?}")
        })?;
        delete(&self.fs, &["force"])?.ok()?;
        expect(dirs.iter().all(|dir| !dir.exists()), || {
            format!("{dirs:?} are still there")
        })?;
        let other = self.path(0, "/same-name");
        self.fs.check(&other, 2 * BLOCK + 5, 0)?;
        self.cluster
            .node(0)
            .conf_mut()
            .set("dfs.nameservices", "ns1,ns2");
        self.cluster.rewrite_node_conf(0)?;
        self.fs.dfsadmin(&["-refreshNamenodes", &ipc])?;
        self.cluster.wait_all_live()?;
        wait::until("the replicas to be copied back", seconds(60), || {
            let files = self.cluster.node(0).all_block_files();
            let back = files
                .iter()
                .filter(|f| dirs.iter().any(|d| f.starts_with(d)));
            Ok(match back.count() {
                6.. => Seen::Done(()),
                other => Seen::NotYet(format!("{other} files")),
            })
        })?;
        self.fs.wait_replicas(&path, 2, seconds(60))?;
        self.fs.check(&path, 2 * BLOCK + 5, 1)?;
        passed()
    }

    /// A new namespace in the same cluster: nodes take its new block pool, the other goes on.
    pub fn formatted(&mut self) -> Result<Outcome> {
        self.cluster.namenode(1).stop()?;
        self.cluster.namenode(1).format(Some("CID-hayloft-lab"))?;
        self.cluster.namenode(1).start(&[])?;
        let path = self.path(0, "/same-name");
        self.fs.check(&path, 2 * BLOCK + 5, 0)?;
        for node in 0..2 {
            self.cluster.node(node).stop()?;
            self.cluster.start_node(node)?;
        }
        self.cluster.wait_all_live()?;
        let path = self.path(1, "/after-format");
        self.fs.put(&path, BLOCK, 8, json!({}))?;
        self.fs.check(&path, BLOCK, 8)?;
        let path = self.path(0, "/same-name");
        self.fs.check(&path, 2 * BLOCK + 5, 0)?;
        passed()
    }

    /// Another cluster's NameNode at a known address: its namespace is refused, the rest serves.
    pub fn foreign(&mut self) -> Result<Outcome> {
        self.cluster.namenode(1).stop()?;
        self.cluster.namenode(1).format(Some("CID-another"))?;
        self.cluster.namenode(1).start(&[])?;
        for node in 0..2 {
            self.cluster.node(node).stop()?;
            self.cluster.start_node(node)?;
        }
        self.cluster.namenode(0).wait_live(2, seconds(60))?;
        // Long enough for a node that would register there.
        std::thread::sleep(seconds(5));
        let live = self.cluster.namenode_bean(1, "FSNamesystemState")?["NumLiveDataNodes"].clone();
        expect(live == 0, || {
            format!("{live} nodes registered with a foreign cluster")
        })?;
        let path = self.path(0, "/same-name");
        self.fs.wait_replicas(&path, 2, seconds(60))?;
        self.fs.check(&path, 2 * BLOCK + 5, 0)?;
        passed()
    }
}
