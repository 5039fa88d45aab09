//! Virtual nodes with parity over their disks: one ends, a disk dies, replicas are damaged.

use super::{BLOCK, NAMES, address};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::mounts::TestMount;
use hayloft_testkit::node::{Kind, VirtualSite};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{
    Cluster, ClusterBuilder, Driver, NodeSpec, Outcome, TestkitError, VolumeSpec, parity,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Disks of the host, for groups of four members.
const DISKS: usize = 5;
/// Size of each, MiB.
const DISK_MIB: u32 = 128;
/// Files of one block that are written at a time, each with one replica.
const FILES: u64 = 24;
/// The virtual node that ends.
const ENDS: usize = 2;

pub struct ParityLab {
    fs: Driver,
    pub cluster: Cluster,
    disks: Vec<TestMount>,
    /// Files with the node that has them.
    files: Vec<(String, u64, String)>,
    // Dropped after the nodes have ended.
    _base: tempfile::TempDir,
}

/// A host of virtual nodes in such a cluster.
pub fn start_of(builder: ClusterBuilder) -> Result<ParityLab> {
    let base = scratch("supernode-parity-")?;
    let mut disks = Vec::new();
    for disk in 0..DISKS {
        let image = base.path().join(format!("image-{disk}"));
        let at = base.path().join(format!("disk-{disk}"));
        disks.push(TestMount::ext4(&image, &at, DISK_MIB)?);
    }
    let volumes = disks
        .iter()
        .map(|disk| VolumeSpec::at(disk.path().join("data")));
    let site = |(node, name): (usize, &&str)| VirtualSite::free(*name, address(0, node)?);
    let sites = NAMES.iter().enumerate().map(site);
    let spec = NodeSpec::new(Kind::Hayloft)
        .volumes(volumes.collect())
        .conf("dfs.datanode.failed.volumes.tolerated", 2)
        .conf("hayloft.parity", "4+1")
        .virtual_nodes(sites.collect::<Result<_>>()?);
    let cluster = builder
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 1)
        .conf(
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
            0,
        )
        .node(spec)
        .start()?;
    Ok(ParityLab {
        fs: cluster.driver()?,
        cluster,
        disks,
        files: Vec::new(),
        _base: base,
    })
}

fn bytes(status: &Value, name: &str) -> u64 {
    status[name].as_u64().unwrap_or(u64::MAX)
}

/// Data files of replicas below a directory.
fn data_files(dir: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        if path.is_dir() {
            data_files(&path, found)?;
        } else if name.starts_with("blk_") && !name.ends_with(".meta") {
            found.push(path);
        }
    }
    Ok(())
}

impl ParityLab {
    fn xfer(&self, node: usize) -> String {
        let host = self.cluster.nodes().next();
        let site = host.and_then(|host| host.virtual_nodes().get(node));
        site.map_or_else(String::new, |site| site.xfer().to_string())
    }

    fn ipc(&self, node: usize) -> String {
        let host = self.cluster.nodes().next();
        let site = host.and_then(|host| host.virtual_nodes().get(node));
        site.map_or_else(String::new, |site| site.ipc().to_string())
    }

    fn write(&mut self, dir: &str) -> Result<()> {
        for n in 0..FILES {
            let path = format!("/{dir}/{n}");
            self.fs.put(&path, BLOCK, n, json!({}))?;
            let blocks = self.fs.blocks(&path)?;
            let node = blocks.first().and_then(|block| block.nodes.first());
            let node = node.cloned().unwrap_or_default();
            self.files.push((path, n, node));
        }
        Ok(())
    }

    /// Reads all files that a running node has.
    fn check(&self) -> Result<()> {
        let mut files = self.files.iter();
        files.try_for_each(|(path, seed, _)| self.fs.check(path, BLOCK, *seed))
    }

    fn parity(&self, arguments: &[&str]) -> Result<(Option<i32>, Value)> {
        let node = self.cluster.nodes().next();
        let node = node.ok_or_else(|| TestkitError::Expectation("no node".into()))?;
        parity::said(node, arguments)
    }

    /// Waits until all files that a running node has are protected.
    fn wait_protected(&self) -> Result<Value> {
        let wanted = self.files.len() as u64 * BLOCK;
        wait::until(&format!("{wanted} bytes protected"), seconds(240), || {
            std::thread::sleep(seconds(1));
            let (code, now) = self.parity(&["status"])?;
            expect_eq("lost", bytes(&now, "lost_bytes"), 0)?;
            let done = bytes(&now, "protected_bytes") == wanted
                && bytes(&now, "unprotected_bytes") == 0
                && bytes(&now, "rebuild_remaining_bytes") == 0;
            Ok(if done && code == Some(0) {
                Seen::Done(now)
            } else {
                Seen::NotYet(format!("{code:?} {now}"))
            })
        })
    }

    /// One of four is told to stop: new replicas of the others get parity, and a disk that dies
    /// then costs none of theirs.
    pub fn one_ends(&mut self) -> Result<Outcome> {
        self.write("before")?;
        self.wait_protected()?;
        let (gone, rpc) = (self.xfer(ENDS), self.ipc(ENDS));
        self.fs.dfsadmin(&["-shutdownDatanode", &rpc])?;
        self.files.retain(|(_, _, node)| *node != gone);
        self.write("after")?;
        let (ours, theirs): (Vec<_>, Vec<_>) =
            self.files.drain(..).partition(|(_, _, node)| *node != gone);
        expect(theirs.is_empty(), || {
            format!("{theirs:?} on a node that ended")
        })?;
        self.files = ours;
        self.wait_protected()?;
        self.check()?;
        let disk = self
            .disks
            .pop()
            .ok_or_else(|| TestkitError::Talk("no disk".into()))?;
        disk.break_disk()?;
        self.check()?;
        let now = self.wait_protected()?;
        println!("supernode: a node has ended and a disk is dead: {now}");
        self.check()?;
        self.disks.push(disk);
        passed()
    }

    /// More replicas of groups are damaged than parity mends.
    pub fn damaged(&mut self) -> Result<Outcome> {
        if self.files.is_empty() {
            self.write("before")?;
        }
        self.wait_protected()?;
        let mut found = Vec::new();
        for disk in &self.disks {
            // The last one may be dead.
            let _ = data_files(&disk.path().join("data/a"), &mut found);
            let _ = data_files(&disk.path().join("data/b"), &mut found);
        }
        for path in &found {
            let _ = hayloft_testkit::files::flip_byte(path, 1000);
        }
        let (code, now) = self.parity(&["scrub", "--wait", "120"])?;
        expect_eq("exit code of the scrub", code, Some(1))?;
        expect(bytes(&now, "damaged_bytes") > 0, || now.to_string())?;
        let (code, now) = self.parity(&["status"])?;
        expect_eq("exit code", code, Some(1)).inspect_err(|_| println!("supernode: {now}"))?;
        passed()
    }
}
