//! What administrators ask, and what is on the disks.

use crate::Lab;
use hayloft_testkit::error::Result;
use hayloft_testkit::files::flip_byte;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::{Outcome, TestkitError};
use serde_json::json;

impl Lab {
    pub fn admin_queries(&mut self) -> Result<Outcome> {
        let ipc = self.cluster.node(0).ipc();
        let report = self.fs.dfsadmin(&["-report"])?;
        expect(report.contains("Live datanodes (3)"), || report.clone())?;
        let info = self.fs.dfsadmin(&["-getDatanodeInfo", &ipc])?;
        expect(info.contains("Uptime"), || info)?;
        let volumes = self.fs.dfsadmin(&["-getVolumeReport", &ipc])?;
        expect(volumes.contains("data-0"), || volumes)?;
        self.fs.dfsadmin(&["-triggerBlockReport", &ipc])?;
        self.fs
            .dfsadmin(&["-triggerBlockReport", "-incremental", &ipc])?;
        self.fs.dfsadmin(&["-setBalancerBandwidth", "12345678"])?;
        hayloft_testkit::wait::until("the new balancer bandwidth", seconds(20), || {
            let said = self.fs.dfsadmin(&["-getBalancerBandwidth", &ipc])?;
            Ok(if said.contains("12345678") {
                hayloft_testkit::wait::Seen::Done(())
            } else {
                hayloft_testkit::wait::Seen::NotYet(said)
            })
        })?;
        self.fs.dfsadmin(&["-refreshNamenodes", &ipc])?;
        self.fs.dfsadmin(&["-evictWriters", &ipc])?;
        let properties = self
            .fs
            .dfsadmin(&["-reconfig", "datanode", &ipc, "properties"])?;
        expect(properties.contains("dfs.datanode.data.dir"), || properties)?;
        self.fs.put("/after-admin", 1000, 2, json!({}))?;
        self.fs.check("/after-admin", 1000, 2)?;
        passed()
    }

    /// Nodes without memory for a cache are ordered nothing; files under a directive are read as
    /// any others.
    pub fn cache_directives(&self) -> Result<Outcome> {
        let admin = |args: &[&str]| self.fs.tool(class::CACHE_ADMIN, args)?.ok();
        self.fs.put("/cached", 100_000, 42, json!({}))?;
        admin(&["-addPool", "lab"])?;
        admin(&["-addDirective", "-path", "/cached", "-pool", "lab"])?;
        self.fs.check("/cached", 100_000, 42)?;
        let list = admin(&["-listDirectives", "-stats"])?.out;
        expect(list.contains("/cached"), || list)?;
        admin(&["-removePool", "lab"])?;
        passed()
    }

    pub fn verify_metas(&self) -> Result<Outcome> {
        let counts: Result<Vec<usize>> = self
            .cluster
            .nodes()
            .map(|node| self.fs.verify_metas(node))
            .collect();
        let counts = counts?;
        expect(counts.iter().all(|&count| count > 100), || {
            format!("too few replicas: {counts:?}")
        })?;
        passed()
    }

    /// The check above would be worth nothing if it could not fail.
    pub fn verify_meta_can_fail(&self) -> Result<Outcome> {
        self.fs
            .put("/flipped", 5000, 4, json!({"replication": 1}))?;
        let block = self.fs.blocks("/flipped")?.remove(0);
        let at = self.cluster.node_at(&block.nodes[0]);
        let node = at.and_then(|index| self.cluster.nodes().nth(index));
        let node =
            node.ok_or_else(|| TestkitError::Expectation(format!("unknown node in {block:?}")))?;
        let files = node.block_files(block.id);
        let find = |is_meta: bool| {
            let found = files.iter().find(|f| f.extension().is_some() == is_meta);
            found.ok_or_else(|| TestkitError::Expectation(format!("incomplete replica: {files:?}")))
        };
        let (data, meta) = (find(false)?, find(true)?);
        self.fs.verify_meta(meta)?;
        flip_byte(data, 1234)?;
        let verdict = self.fs.verify_meta(meta);
        expect(verdict.is_err(), || {
            "verifyMeta missed a flipped byte".into()
        })?;
        // Whole again, or the block scanner may find it in a later case.
        flip_byte(data, 1234)?;
        passed()
    }

    pub fn fsck(&self) -> Result<Outcome> {
        self.fs.wait_healthy("/", seconds(60))?;
        let run = self
            .fs
            .tool(class::FSCK, &["/put", "-files", "-blocks", "-locations"])?
            .ok()?;
        expect(run.out.contains("Live_repl=3"), || run.out)?;
        passed()
    }
}
