//! A cluster: NameNodes, nodes, a client configuration, one directory.
//!
//! - `builder`: what a cluster shall be, and how it comes to be
//! - `memory`: images and edits of NameNodes in shared memory

mod builder;
mod memory;

pub use builder::ClusterBuilder;

use crate::driver::Driver;
use crate::error::{Result, TestkitError};
use crate::hadoop::{Hadoop, Jvm};
use crate::hadoop_conf::Conf;
use crate::namenode::NameNode;
use crate::node::{Kind, Node, NodeSpec};
use crate::process;
use memory::NamesInMemory;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long nodes may take to become live.
pub const LIVE_LIMIT: Duration = Duration::from_secs(60);

/// A running cluster. Dropping it kills every process; its directory stays unless
/// [`Cluster::succeed`] was called.
#[derive(Debug)]
pub struct Cluster {
    hadoop: Hadoop,
    dir: PathBuf,
    conf: Conf,
    ha: bool,
    suffixed: bool,
    namenodes: Vec<NameNode>,
    nodes: Vec<Node>,
    /// Removed when the cluster has ended.
    names: Option<NamesInMemory>,
    keep: bool,
}

impl Cluster {
    /// Begins a cluster whose directory has `name` in its name.
    #[must_use]
    pub fn builder(name: &str) -> ClusterBuilder {
        ClusterBuilder::new(name)
    }

    /// Whether the NameNodes' images and edits are in shared memory.
    #[must_use]
    pub fn has_names_in_memory(&self) -> bool {
        self.names.is_some()
    }

    fn first_start(&mut self) -> Result<()> {
        self.conf.write_dir(&self.client_conf_dir())?;
        for index in 0..self.namenodes.len() {
            self.namenodes[index].write_conf(&self.conf, self.suffixed)?;
            if self.ha && index % 2 == 1 {
                // A standby begins as a copy of its partner's freshly formatted directory.
                let (from, to) = (
                    self.namenodes[index - 1].name_dir(),
                    self.namenodes[index].name_dir(),
                );
                copy_tree(&from, &to)?;
            } else {
                self.namenodes[index].format(Some("CID-hayloft-lab"))?;
            }
        }
        for namenode in &mut self.namenodes {
            namenode.start_without_waiting(&[])?;
        }
        for node in &mut self.nodes {
            node.start_without_waiting(&self.conf)?;
        }
        self.namenodes
            .iter_mut()
            .try_for_each(NameNode::wait_started)?;
        self.nodes.iter_mut().try_for_each(Node::wait_started)?;
        if self.ha {
            return Ok(()); // the test chooses who is active, then waits for nodes
        }
        self.wait_all_live()
    }

    /// Starts what does not run, whatever an earlier case did, and waits until all is live.
    ///
    /// # Errors
    /// What does not start, [`TestkitError::Timeout`].
    pub fn heal(&mut self) -> Result<()> {
        for namenode in &mut self.namenodes {
            if namenode.process().is_err() {
                namenode.start(&[])?;
            }
        }
        for index in 0..self.node_count() {
            if !self.node(index).is_started() {
                self.start_node(index)?;
            }
        }
        self.wait_all_live()
    }

    /// Waits until every NameNode sees every started node live and is out of safe mode.
    ///
    /// # Errors
    /// [`TestkitError::Timeout`].
    pub fn wait_all_live(&self) -> Result<()> {
        let started = self.nodes.iter().filter(|node| node.is_started());
        let count = started.map(Node::node_count).sum();
        for namenode in &self.namenodes {
            namenode.wait_live(count, LIVE_LIMIT)?;
            namenode.wait_out_of_safe_mode(LIVE_LIMIT)?;
        }
        Ok(())
    }

    /// A resident stock client of this cluster.
    ///
    /// # Errors
    /// When the driver has not been built or does not start.
    pub fn driver(&self) -> Result<Driver> {
        Driver::start(&self.hadoop, &self.client_conf_dir(), &self.dir)
    }

    /// As [`Cluster::driver`], in a JVM with these flags instead of the lab's small ones.
    ///
    /// # Errors
    /// As [`Cluster::driver`].
    pub fn driver_with_flags(&self, flags: Vec<String>) -> Result<Driver> {
        let (conf_dir, log_dir) = (self.client_conf_dir(), self.dir.clone());
        Driver::start_in(
            &self.hadoop,
            &Jvm {
                conf_dir,
                log_dir,
                flags,
            },
        )
    }

    /// The directory of configuration, logs and data.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The located Hadoop.
    #[must_use]
    pub fn hadoop(&self) -> &Hadoop {
        &self.hadoop
    }

    /// `HADOOP_CONF_DIR` of clients.
    #[must_use]
    pub fn client_conf_dir(&self) -> PathBuf {
        self.dir.join("conf")
    }

    /// Configuration of every process.
    #[must_use]
    pub fn conf(&self) -> &Conf {
        &self.conf
    }

    /// A NameNode, in order of nameservice, then id.
    pub fn namenode(&mut self, index: usize) -> &mut NameNode {
        &mut self.namenodes[index]
    }

    /// A bean of a NameNode, see [`NameNode::bean`].
    ///
    /// # Errors
    /// When it does not answer.
    pub fn namenode_bean(&self, index: usize, name: &str) -> Result<serde_json::Value> {
        self.namenodes[index].bean(name)
    }

    /// A node.
    pub fn node(&mut self, index: usize) -> &mut Node {
        &mut self.nodes[index]
    }

    /// How many nodes, started or not.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// Starts a stopped node and waits for its ports.
    ///
    /// # Errors
    /// With the end of its log.
    pub fn start_node(&mut self, index: usize) -> Result<()> {
        self.nodes[index].start(&self.conf)
    }

    /// Starts a stopped node without waiting for it.
    ///
    /// # Errors
    /// When it cannot be started at all.
    pub fn start_node_without_waiting(&mut self, index: usize) -> Result<()> {
        self.nodes[index].start_without_waiting(&self.conf)
    }

    /// Writes a node's configuration again after a change, for a running node to re-read.
    ///
    /// # Errors
    /// [`TestkitError::File`].
    pub fn rewrite_node_conf(&self, index: usize) -> Result<()> {
        self.nodes[index].write_conf(&self.conf)
    }

    /// Stops a node cleanly and starts `kind` on the same directories and ports.
    ///
    /// # Errors
    /// When one does not stop or the other does not start.
    pub fn swap_node(&mut self, index: usize, kind: Kind) -> Result<()> {
        self.nodes[index].stop()?;
        self.nodes[index].become_kind(kind)?;
        self.start_node(index)
    }

    /// Starts a further node that shall refuse to run: waits for its end, and gives back whether it
    /// ended with an error, and its log. It is no part of the cluster.
    ///
    /// # Errors
    /// When it still runs after a minute.
    pub fn refused_node(&self, spec: NodeSpec) -> Result<(bool, String)> {
        static COUNT: AtomicUsize = AtomicUsize::new(100);
        let index = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut node = builder::node(&self.hadoop, index, spec, &self.dir)?;
        node.start_without_waiting(&self.conf)?;
        let status = node.process()?.wait(LIVE_LIMIT)?;
        let log = node.log();
        let text = std::fs::read_to_string(&log).map_err(TestkitError::file("reading", log))?;
        Ok((!status.success(), text))
    }

    /// Index of the node that the NameNode calls `xfer` (`127.0.0.1:port`).
    #[must_use]
    pub fn node_at(&self, xfer: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.xfer() == xfer)
    }

    /// Rewrites the exclude file with the given nodes; `dfsadmin -refreshNodes` makes it known.
    ///
    /// # Errors
    /// [`TestkitError::File`].
    pub fn exclude(&self, nodes: &[usize]) -> Result<()> {
        let text: String = nodes
            .iter()
            .map(|&index| format!("{}\n", self.nodes[index].xfer()))
            .collect();
        let path = self.dir.join("hosts-exclude");
        std::fs::write(&path, text).map_err(TestkitError::file("writing", path))
    }

    /// The ends of all logs, for a failed case.
    #[must_use]
    pub fn log_tails(&self) -> String {
        let logs = self
            .namenodes
            .iter()
            .map(NameNode::log)
            .chain(self.nodes.iter().map(Node::log));
        logs.map(|log| process::tail(&log))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Ends a cluster whose cases have all been run: prints the ends of its logs if any has failed,
    /// and else leaves nothing of it.
    pub fn conclude(self, failed: bool) {
        if failed {
            println!("{}", self.log_tails());
        } else {
            self.succeed();
        }
    }

    /// Ends a cluster whose test passed: processes are killed and the directory is removed.
    pub fn succeed(mut self) {
        self.keep = std::env::var_os("HAYLOFT_LAB_KEEP").is_some();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        self.namenodes.clear();
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(TestkitError::file("creating", to))?;
    let entries = std::fs::read_dir(from).map_err(TestkitError::file("listing", from))?;
    for entry in entries {
        let entry = entry.map_err(TestkitError::file("listing", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            std::fs::copy(&source, &target).map_err(TestkitError::file("copying", &source))?;
        }
    }
    Ok(())
}
