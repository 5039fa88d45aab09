//! A node with a device beside one as usual, and the files that clients wrote.

use hayloft_testkit::error::Result;
use hayloft_testkit::files::WrittenFiles;
use hayloft_testkit::suite::{passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome};
use serde_json::json;

/// The node with the device; the other is as usual.
pub const ODD: usize = 0;
/// Both, and the replicas of a file.
pub const NODES: usize = 2;

pub struct OddNode {
    pub fs: Driver,
    pub cluster: Cluster,
    pub files: WrittenFiles,
    /// Block size of the cluster's clients, bytes.
    pub block: u64,
}

impl OddNode {
    /// Of a cluster that runs.
    pub fn new(cluster: Cluster, block: u64) -> Result<Self> {
        Ok(Self {
            fs: cluster.driver()?,
            cluster,
            files: WrittenFiles::default(),
            block,
        })
    }

    /// All reads come from the node with the device.
    pub fn check(&mut self) -> Result<()> {
        self.files.wait_replicas(&self.fs, NODES)?;
        self.cluster.node(1).stop()?;
        self.files.check(&self.fs)?;
        self.cluster.start_node(1)?;
        self.cluster.wait_all_live()
    }

    /// Has the node tell the NameNode of all that it has.
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

    /// Writes, appends and syncs.
    pub fn write(&mut self) -> Result<()> {
        self.files
            .put(&self.fs, "/several", 9 * self.block + 12_345)?;
        self.files.put(&self.fs, "/small", 10)?;
        self.fs.append("a", "/small", 2, json!({}))?;
        self.fs.write("a", 300_000)?;
        self.fs.handle("hsync", "a")?;
        self.fs.handle("close", "a")?;
        self.files.grew("/small", 300_000)?;
        self.check()
    }

    /// Kills the node while a client writes, three times.
    pub fn killed(&mut self) -> Result<Outcome> {
        let block = self.block;
        for round in 0..3 {
            let name = format!("/killed-{round}");
            self.fs.create("k", &name, 50 + round, json!({}))?;
            self.fs.write("k", 2 * block + 100_000)?;
            self.fs.handle("hflush", "k")?;
            self.cluster.node(ODD).kill()?;
            self.cluster.start_node(ODD)?;
            self.cluster.wait_all_live()?;
            self.fs.write("k", block)?;
            self.fs.handle("close", "k")?;
            // The replica that the kill left is an older one: the NameNode orders another only
            // after it has heard of both.
            self.report()?;
            self.files.add(&name, 3 * block + 100_000, 50 + round);
            self.check()?;
        }
        passed()
    }
}
