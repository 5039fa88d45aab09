//! Rolling upgrades: what turns the mode of nodes on, and every way in which it ends.

use crate::{BLOCK, pools};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::{Kind, VirtualSite};
use hayloft_testkit::suite::{expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, ClusterBuilder, Driver, NodeSpec, Outcome};
use serde_json::json;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

const MARKER: &str = "RollingUpgradeInProgress";
/// Blocks of a file that is deleted.
const BLOCKS: u64 = 2;

fn builder(name: &str, copies: usize) -> ClusterBuilder {
    Cluster::builder(name)
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", copies)
        .conf("dfs.heartbeat.interval", 1)
}

fn lab(builder: ClusterBuilder, copies: usize) -> Result<Rolling> {
    let cluster = builder.start()?;
    let fs = cluster.driver()?;
    Ok(Rolling {
        cluster,
        fs,
        ours: Kind::under_test(),
        service: 0,
        copies,
        number: 0,
    })
}

/// One NameNode, three nodes.
pub fn single() -> Result<Rolling> {
    lab(builder("rolling", 3).nodes(3, Kind::under_test()), 3)
}

/// Two NameNodes of one pool.
pub fn pair() -> Result<Rolling> {
    let builder = builder("rolling-ha", 2).ha();
    let lab = lab(builder.nodes(2, Kind::under_test()), 2)?;
    lab.make_active("nn1")?;
    lab.cluster.wait_all_live()?;
    Ok(lab)
}

/// Two pools on the same nodes.
pub fn federation() -> Result<Rolling> {
    let builder = builder("rolling-federation", 2).nameservices(2);
    lab(builder.nodes(2, Kind::under_test()), 2)
}

/// Two nodes of one process.
pub fn virtual_nodes() -> Result<Rolling> {
    let site = |node: u8| VirtualSite::free(format!("v{node}"), Ipv4Addr::new(127, 0, 7, node));
    let spec = NodeSpec::new(Kind::Hayloft).virtual_nodes(vec![site(1)?, site(2)?]);
    lab(builder("rolling-virtual", 2).node(spec), 2)
}

pub struct Rolling {
    pub cluster: Cluster,
    pub fs: Driver,
    ours: Kind,
    /// The name service that is worked on.
    service: usize,
    /// Replicas of each block: one on every node.
    copies: usize,
    /// Names and seeds of files.
    number: u64,
}

impl Rolling {
    /// Files of a deleted file's blocks on all nodes: data and meta.
    pub fn files(&self) -> usize {
        2 * 2 * self.copies
    }

    pub fn path(&mut self, file: u64) -> String {
        match self.cluster.conf().get("dfs.ha.namenodes.ns1") {
            Some(_) => format!("/f{file}"),
            None => format!("{}/f{file}", self.cluster.namenode(self.service).uri()),
        }
    }

    pub fn dfsadmin(&mut self, args: &[&str]) -> Result<String> {
        let uri = self.cluster.namenode(self.service).uri();
        match self.cluster.conf().get("dfs.ha.namenodes.ns1") {
            Some(_) => self.fs.dfsadmin(args),
            None => self.fs.dfsadmin(&[&["-fs", &uri], args].concat()),
        }
    }

    /// A file of [`BLOCKS`] blocks; its number.
    pub fn put(&mut self) -> Result<u64> {
        self.number += 1;
        let path = self.path(self.number);
        self.fs.put(&path, BLOCKS * BLOCK, self.number, json!({}))?;
        self.fs.wait_replicas(&path, self.copies, seconds(60))?;
        Ok(self.number)
    }

    pub fn check(&mut self, file: u64) -> Result<()> {
        let path = self.path(file);
        self.fs.check(&path, BLOCKS * BLOCK, file)
    }

    /// Deletes a file, and waits until its blocks have left `current` of every node.
    pub fn delete(&mut self, file: u64) -> Result<()> {
        let path = self.path(file);
        let doomed = self.fs.blocks(&path)?;
        self.fs.fs(&["-rm", "-skipTrash", &path])?;
        wait::until("the blocks to leave the nodes", seconds(60), || {
            // Block ids of two pools are the same.
            let of = |pool: &&PathBuf| doomed.iter().any(|block| pool.ends_with(&block.pool));
            let there = pools(&self.cluster)
                .iter()
                .filter(of)
                .flat_map(|pool| files_below(&pool.join("current")))
                .filter(|file| doomed.iter().any(|block| is_of(file, block.id)))
                .count();
            Ok(match there {
                0 => Seen::Done(()),
                left => Seen::NotYet(format!("{left} files")),
            })
        })
    }

    /// Four files come and go.
    pub fn come_and_go(&mut self) -> Result<()> {
        for _ in 0..4 {
            let file = self.put()?;
            self.delete(file)?;
        }
        Ok(())
    }

    pub fn prepare(&mut self) -> Result<()> {
        let alone = self.cluster.conf().get("dfs.ha.namenodes.ns1").is_none();
        // Without a standby to make the rollback image, the NameNode wants safe mode for it.
        if alone {
            self.dfsadmin(&["-safemode", "enter"])?;
        }
        self.dfsadmin(&["-rollingUpgrade", "prepare"])?;
        if alone {
            self.dfsadmin(&["-safemode", "leave"])?;
        }
        wait::until("the rollback image", seconds(120), || {
            let said = self.dfsadmin(&["-rollingUpgrade", "query"])?;
            Ok(match said.contains("Proceed with rolling upgrade") {
                true => Seen::Done(()),
                false => Seen::NotYet(said),
            })
        })?;
        self.wait_markers(self.copies)
    }

    pub fn finalize(&mut self) -> Result<()> {
        self.dfsadmin(&["-rollingUpgrade", "finalize"])?;
        self.wait_markers(0)?;
        self.wait_trashed(0)
    }

    pub fn wait_markers(&self, wanted: usize) -> Result<()> {
        wait::until(&format!("{wanted} markers"), seconds(60), || {
            let pools = pools(&self.cluster);
            let there = pools.iter().filter(|pool| pool.join(MARKER).exists());
            Ok(match there.count() {
                count if count == wanted => Seen::Done(()),
                count => Seen::NotYet(format!("{count} markers")),
            })
        })
    }

    /// Files in the trash of all nodes.
    pub fn trashed(&self) -> usize {
        let pools = pools(&self.cluster);
        let trash = pools.iter().map(|pool| files_below(&pool.join("trash")));
        trash.map(|files| files.len()).sum()
    }

    pub fn expect_trashed(&self, files: usize) -> Result<()> {
        expect_eq("files in trash", self.trashed(), files)
    }

    pub fn wait_trashed(&self, wanted: usize) -> Result<()> {
        wait::until(&format!("{wanted} files in trash"), seconds(60), || {
            Ok(match self.trashed() {
                count if count == wanted => Seen::Done(()),
                count => Seen::NotYet(format!("{count} files")),
            })
        })
    }

    fn stop_nodes(&mut self) -> Result<()> {
        (0..self.cluster.nodes().count()).try_for_each(|index| self.cluster.node(index).stop())
    }

    /// Starts the nodes; the arguments go round.
    fn start_nodes(&mut self, kind: Kind, arguments: &[&[&str]]) -> Result<()> {
        let count = self.cluster.nodes().count();
        for index in 0..count {
            let node = self.cluster.node(index);
            node.become_kind(kind)?;
            node.set_arguments(arguments[index % arguments.len()]);
            self.cluster.start_node_without_waiting(index)?;
        }
        for index in 0..count {
            self.cluster.node(index).wait_started()?;
            self.cluster.node(index).set_arguments(&[]);
        }
        self.cluster.wait_all_live()
    }

    fn restart_nodes(&mut self, kind: Kind, arguments: &[&str]) -> Result<()> {
        self.stop_nodes()?;
        self.start_nodes(kind, &[arguments])
    }

    fn roll_back_namenode(&mut self) -> Result<()> {
        let service = self.service;
        self.cluster.namenode(service).stop()?;
        self.cluster
            .namenode(service)
            .start(&["-rollingUpgrade", "rollback"])?;
        // The client's connection may still be that to the NameNode before: one call finds out.
        let path = self.path(0);
        let _ = self.fs.length(&path);
        Ok(())
    }

    /// Both spellings; a restart; the next upgrade, with a restart in between, to its end.
    pub fn rolled_back(&mut self) -> Result<Outcome> {
        let (kept, gone) = (self.put()?, self.put()?);
        self.prepare()?;
        self.delete(gone)?;
        self.expect_trashed(self.files())?;
        self.stop_nodes()?;
        self.roll_back_namenode()?;
        let spelled: [&[&str]; 2] = [&["-rollback"], &["-rollingupgrade", "rollback"]];
        self.start_nodes(self.ours, &spelled)?;
        self.wait_markers(0)?;
        self.check(kept)?;
        self.check(gone)?;
        self.come_and_go()?;
        self.restart_nodes(self.ours, &[])?;
        self.come_and_go()?;
        self.expect_trashed(0)?;
        self.prepare()?;
        self.delete(gone)?;
        self.restart_nodes(self.ours, &[])?;
        self.delete(kept)?;
        self.expect_trashed(2 * self.files())?;
        self.finalize()?;
        self.come_and_go()?;
        self.expect_trashed(0)?;
        passed()
    }

    /// The NameNode goes back while the nodes run: what they hold in trash waits for them to
    /// follow.
    pub fn namenode_rolled_back_alone(&mut self) -> Result<Outcome> {
        let gone = self.put()?;
        self.prepare()?;
        self.delete(gone)?;
        self.roll_back_namenode()?;
        // The blocks that the nodes hold in trash are missing.
        wait::until("a NameNode that leaves safe mode", seconds(60), || {
            Ok(match self.dfsadmin(&["-safemode", "leave"]) {
                Ok(_) => Seen::Done(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })?;
        self.wait_markers(0)?;
        self.come_and_go()?;
        self.expect_trashed(self.files())?;
        self.restart_nodes(self.ours, &["-rollback"])?;
        self.check(gone)?;
        self.expect_trashed(0)?;
        self.come_and_go()?;
        self.expect_trashed(0)?;
        passed()
    }

    /// Trash and markers that one kind left, under the other; both ways.
    pub fn changes_hands(&mut self) -> Result<Outcome> {
        for (first, then) in [(Kind::Apache, self.ours), (self.ours, Kind::Apache)] {
            self.restart_nodes(first, &[])?;
            let gone = self.put()?;
            self.prepare()?;
            self.delete(gone)?;
            self.expect_trashed(self.files())?;
            self.stop_nodes()?;
            self.roll_back_namenode()?;
            self.start_nodes(then, &[&["-rollback"]])?;
            self.check(gone)?;
            // Apache's node leaves the marker when it rolls back.
            let left = if then == Kind::Apache { self.copies } else { 0 };
            self.wait_markers(left)?;
            self.come_and_go()?;
            self.expect_trashed(0)?;
            self.restart_nodes(self.ours, &[])?;
            self.wait_markers(0)?;
            self.come_and_go()?;
            self.expect_trashed(0)?;
            // An upgrade that begins under one and ends under the other.
            self.restart_nodes(first, &[])?;
            self.prepare()?;
            self.delete(gone)?;
            self.restart_nodes(then, &[])?;
            self.come_and_go()?;
            self.expect_trashed(5 * self.files())?;
            self.finalize()?;
        }
        self.restart_nodes(self.ours, &[])?;
        passed()
    }

    fn make_active(&self, id: &str) -> Result<()> {
        let haadmin = |args: &[&str]| {
            let args = [&["-ns", "ns1"], args].concat();
            self.fs.tool(class::HAADMIN, &args)
        };
        wait::until(&format!("{id} to be active"), seconds(60), || {
            let state = haadmin(&["-getServiceState", id])?;
            if state.out.trim() == "active" {
                return Ok(Seen::Done(()));
            }
            let other = if id == "nn1" { "nn2" } else { "nn1" };
            // It may be down; the answer is looked at above.
            let _ = haadmin(&["-transitionToStandby", other])?;
            let _ = haadmin(&["-transitionToActive", id])?;
            Ok(Seen::NotYet(state.out))
        })
    }

    /// A failover changes nothing, a standby says nothing, and the pair goes back together.
    pub fn with_a_standby(&mut self) -> Result<Outcome> {
        let files: Vec<u64> = (0..4).map(|_| self.put()).collect::<Result<_>>()?;
        self.prepare()?;
        self.delete(files[0])?;
        // As an upgrade goes: the standby is restarted, and takes over.
        self.cluster.namenode(1).stop()?;
        self.cluster
            .namenode(1)
            .start(&["-rollingUpgrade", "started"])?;
        self.cluster.wait_all_live()?;
        self.make_active("nn2")?;
        self.delete(files[1])?;
        self.restart_nodes(self.ours, &[])?;
        self.delete(files[2])?;
        self.expect_trashed(3 * self.files())?;
        self.finalize()?;
        self.make_active("nn1")?;
        self.come_and_go()?;
        self.expect_trashed(0)?;
        self.prepare()?;
        self.delete(files[3])?;
        self.expect_trashed(self.files())?;
        self.stop_nodes()?;
        self.cluster.namenode(1).stop()?;
        self.roll_back_namenode()?;
        self.cluster.namenode(1).bootstrap_standby()?;
        self.cluster.namenode(1).start(&[])?;
        self.make_active("nn1")?;
        self.start_nodes(self.ours, &[&["-rollback"]])?;
        self.check(files[3])?;
        self.come_and_go()?;
        self.make_active("nn2")?;
        self.come_and_go()?;
        self.restart_nodes(self.ours, &[])?;
        self.come_and_go()?;
        self.wait_markers(0)?;
        self.expect_trashed(0)?;
        passed()
    }

    /// The upgrade of one pool is none of the other.
    pub fn of_one_pool(&mut self) -> Result<Outcome> {
        let mut gone = Vec::new();
        for service in 0..2 {
            self.service = service;
            gone.push(self.put()?);
        }
        self.service = 0;
        self.prepare()?;
        self.delete(gone[0])?;
        self.service = 1;
        self.delete(gone[1])?;
        self.expect_trashed(self.files())?;
        self.stop_nodes()?;
        self.service = 0;
        self.roll_back_namenode()?;
        self.start_nodes(self.ours, &[&["-rollback"]])?;
        self.check(gone[0])?;
        for service in 0..2 {
            self.service = service;
            self.come_and_go()?;
        }
        self.wait_markers(0)?;
        self.expect_trashed(0)?;
        passed()
    }
}

fn is_of(file: &Path, block: i64) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let stem = format!("blk_{block}");
    name == stem || name.starts_with(&format!("{stem}_"))
}

/// All files below a directory.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let files = entries.flat_map(|entry| match entry.path() {
        path if path.is_dir() => files_below(&path),
        path => vec![path],
    });
    files.collect()
}
