//! A node with an engine from outside beside a usual one, and the files that were written.

use hayloft_testkit::error::Result;
use hayloft_testkit::files::WrittenFiles;
use hayloft_testkit::suite::seconds;
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, TestkitError};
use serde_json::json;

/// The node with the engine; the others are as usual.
pub const ODD: usize = 0;
/// Replicas of a file.
pub const NODES: usize = 2;

/// See the module. The client ends before its cluster.
pub struct OddNode {
    pub fs: Driver,
    pub cluster: Cluster,
    pub files: WrittenFiles,
}

impl OddNode {
    pub fn new(cluster: Cluster) -> Result<Self> {
        Ok(Self {
            fs: cluster.driver()?,
            cluster,
            files: WrittenFiles::default(),
        })
    }

    pub fn put(&mut self, path: &str, bytes: u64) -> Result<()> {
        self.files.put(&self.fs, path, bytes)
    }

    pub fn check_all(&self) -> Result<()> {
        self.files.check(&self.fs)
    }

    pub fn wait_replicas(&self) -> Result<()> {
        self.files.wait_replicas(&self.fs, NODES)
    }

    pub fn check_alive(&mut self) -> Result<()> {
        self.cluster.node(ODD).process()?.check_alive()
    }

    pub fn log(&mut self) -> Result<String> {
        let log = self.cluster.node(ODD).log();
        std::fs::read_to_string(&log).map_err(TestkitError::file("reading", &log))
    }

    pub fn stop(&mut self) -> Result<()> {
        self.cluster.node(ODD).stop()
    }

    pub fn start(&mut self) -> Result<()> {
        self.cluster.start_node(ODD)?;
        self.cluster.wait_all_live()
    }

    /// All reads come from the odd node.
    pub fn check_odd(&mut self) -> Result<()> {
        self.wait_replicas()?;
        self.cluster.node(1).stop()?;
        self.check_all()?;
        self.cluster.start_node(1)?;
        self.cluster.wait_all_live()
    }

    /// A file of `blocks` blocks of `block` bytes and a bit, and one that is appended to.
    pub fn write_all_ways(&mut self, blocks: u64, block: u64) -> Result<()> {
        self.put("/several", blocks * block + 12_345)?;
        self.put("/small", 10)?;
        self.fs.append("a", "/small", 2, json!({}))?;
        self.fs.write("a", 300_000)?;
        self.fs.handle("hsync", "a")?;
        self.fs.handle("close", "a")?;
        self.files.grew("/small", 300_000)
    }

    /// Kills the node while a file is open, and has the client go on.
    pub fn kill_while_writing(&mut self, round: u64, block: u64) -> Result<()> {
        let name = format!("/killed-{round}");
        self.fs.create("k", &name, 50 + round, json!({}))?;
        self.fs.write("k", 2 * block + 100_000)?;
        self.fs.handle("hflush", "k")?;
        self.cluster.node(ODD).kill()?;
        self.start()?;
        self.fs.write("k", block)?;
        self.fs.handle("close", "k")?;
        self.report()?;
        self.files.add(&name, 3 * block + 100_000, 50 + round);
        self.check_odd()
    }

    /// Has the node tell the NameNode of all that it has. The replica that a kill left is an older
    /// one: another is ordered only after the NameNode has heard of both.
    pub fn report(&mut self) -> Result<()> {
        let ipc = self.cluster.node(ODD).ipc();
        // The client's connection to the process before fails once.
        wait::until("a block report", seconds(20), || {
            Ok(match self.fs.dfsadmin(&["-triggerBlockReport", &ipc]) {
                Ok(_) => Seen::Done(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
    }

    /// Waits until nodes have told the NameNode of so many failed volumes.
    pub fn wait_failed(&mut self, failed: u64) -> Result<()> {
        wait::until("the count of failed volumes", seconds(60), || {
            let bean = self.cluster.namenode_bean(0, "FSNamesystemState")?;
            let now = bean["VolumeFailuresTotal"].as_u64();
            Ok(if now == Some(failed) {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{now:?}"))
            })
        })
    }

    /// Waits until the node has fewer than `most` files of blocks.
    pub fn wait_removed(&mut self, most: usize) -> Result<()> {
        wait::until("the deletes", seconds(60), || {
            let files = self.cluster.node(ODD).all_block_files().len();
            Ok(if files < most {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{files} files"))
            })
        })
    }
}
