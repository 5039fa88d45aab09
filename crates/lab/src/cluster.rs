//! A cluster: NameNodes, nodes, a client configuration, one directory.

use crate::conf::Conf;
use crate::driver::Driver;
use crate::error::{LabError, Result};
use crate::hadoop::{Hadoop, Jvm};
use crate::namenode::NameNode;
use crate::node::{Kind, Node, NodeSpec};
use crate::process;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long nodes may take to become live.
pub const LIVE_LIMIT: Duration = Duration::from_secs(60);

/// What a cluster shall be.
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    name: String,
    nameservices: usize,
    ha: bool,
    nodes: Vec<NodeSpec>,
    conf: Conf,
}

impl ClusterBuilder {
    /// As many nameservices (federation), each with its own NameNode.
    #[must_use]
    pub fn nameservices(mut self, count: usize) -> Self {
        self.nameservices = count;
        self
    }

    /// An active and a standby NameNode per nameservice, over shared edits on the local disk.
    #[must_use]
    pub fn ha(mut self) -> Self {
        self.ha = true;
        self
    }

    /// `count` more nodes of `kind`, one volume each.
    #[must_use]
    pub fn nodes(mut self, count: usize, kind: Kind) -> Self {
        self.nodes.extend((0..count).map(|_| NodeSpec::new(kind)));
        self
    }

    /// One more node.
    #[must_use]
    pub fn node(mut self, spec: NodeSpec) -> Self {
        self.nodes.push(spec);
        self
    }

    /// A key for every process and the client.
    #[must_use]
    pub fn conf(mut self, key: &str, value: impl ToString) -> Self {
        self.conf.set(key, value);
        self
    }

    /// Formats and starts everything and waits until all nodes are live.
    ///
    /// # Errors
    /// When Hadoop or the binary is missing, or a process does not come up; with its log.
    pub fn start(self) -> Result<Cluster> {
        let hadoop = Hadoop::locate()?;
        let dir = crate::hadoop::scratch(&format!("{}-", self.name))?.keep();
        let shared = dir.join("shared-edits");
        std::fs::create_dir_all(&shared).map_err(LabError::file("creating", &shared))?;
        let mut namenodes = Vec::new();
        for index in 1..=self.nameservices {
            let ids: &[&str] = if self.ha { &["nn1", "nn2"] } else { &[""] };
            for id in ids {
                namenodes.push(NameNode::new(&hadoop, &format!("ns{index}"), id, &dir)?);
            }
        }
        let mut nodes = Vec::new();
        for (index, spec) in self.nodes.into_iter().enumerate() {
            nodes.push(Node::new(&hadoop, index, spec, &dir)?);
        }
        let mut conf = base_conf(&dir);
        let suffixed = self.nameservices > 1 || self.ha;
        address_namenodes(&mut conf, &namenodes, suffixed, self.ha, &shared);
        conf.overlay(&self.conf);
        let mut cluster = Cluster {
            hadoop,
            dir,
            conf,
            ha: self.ha,
            suffixed,
            namenodes,
            nodes,
            keep: true,
        };
        cluster.first_start()?;
        Ok(cluster)
    }
}

/// Keys that make small clusters on one machine quick to notice things.
fn base_conf(dir: &Path) -> Conf {
    let mut conf = Conf::new();
    // Hadoop wants the file to be there; an empty one excludes nobody.
    let exclude = dir.join("hosts-exclude");
    let _ = std::fs::write(&exclude, "");
    conf.set("dfs.hosts.exclude", exclude.display());
    conf.set("hadoop.tmp.dir", dir.join("tmp").display())
        .set("dfs.replication", 3)
        .set("dfs.blocksize", 4 << 20)
        .set("dfs.namenode.fs-limits.min-block-size", 512)
        .set(
            "dfs.namenode.datanode.registration.ip-hostname-check",
            false,
        )
        .set("dfs.heartbeat.interval", 1)
        .set("dfs.namenode.heartbeat.recheck-interval", 1000)
        .set("dfs.namenode.stale.datanode.interval", 6000)
        .set("dfs.namenode.redundancy.interval.seconds", 1)
        // One stream at the moment of a heartbeat makes a node of three "too busy" for a second (twice
        // the average of a third): pipelines would lack a node by chance.
        .set("dfs.namenode.redundancy.considerLoad", false)
        .set("dfs.namenode.reconstruction.pending.timeout-sec", 10)
        .set("dfs.namenode.decommission.interval", 1)
        .set("dfs.namenode.safemode.extension", 0)
        .set("dfs.namenode.edits.noeditlogchannelflush", true)
        .set("dfs.client.socket-timeout", 30_000)
        .set("dfs.client.datanode-restart.timeout", 15)
        .set("dfs.datanode.disk.check.min.gap", "1s")
        .set("dfs.namenode.acls.enabled", true)
        .set("ipc.client.connect.max.retries", 5)
        .set("ipc.client.connect.retry.interval", 500)
        .set("fs.trash.interval", 60);
    conf
}

fn address_namenodes(
    conf: &mut Conf,
    namenodes: &[NameNode],
    suffixed: bool,
    ha: bool,
    shared: &Path,
) {
    let mut services: Vec<&str> = namenodes.iter().map(NameNode::nameservice).collect();
    services.dedup();
    if suffixed {
        conf.set("dfs.nameservices", services.join(","));
    }
    for namenode in namenodes {
        let suffix = match (suffixed, namenode.id()) {
            (false, _) => String::new(),
            (true, "") => format!(".{}", namenode.nameservice()),
            (true, id) => format!(".{}.{id}", namenode.nameservice()),
        };
        let http = format!("127.0.0.1:{}", namenode.http_port());
        conf.set(format!("dfs.namenode.rpc-address{suffix}"), namenode.rpc())
            .set(format!("dfs.namenode.http-address{suffix}"), http);
    }
    let first = namenodes.first().map(NameNode::uri).unwrap_or_default();
    conf.set(
        "fs.defaultFS",
        if ha {
            format!("hdfs://{}", services[0])
        } else {
            first
        },
    );
    if !ha {
        return;
    }
    for service in services {
        let edits = format!("file://{}", shared.join(service).display());
        let provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider";
        conf.set(format!("dfs.ha.namenodes.{service}"), "nn1,nn2")
            .set(format!("dfs.namenode.shared.edits.dir.{service}"), edits)
            .set(
                format!("dfs.client.failover.proxy.provider.{service}"),
                provider,
            );
    }
    conf.set("dfs.ha.fencing.methods", "shell(/bin/true)")
        .set("dfs.ha.tail-edits.period", "1s")
        .set("dfs.ha.log-roll.period", "2s");
}

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
    keep: bool,
}

impl Cluster {
    /// Begins a cluster whose directory has `name` in its name.
    #[must_use]
    pub fn builder(name: &str) -> ClusterBuilder {
        ClusterBuilder {
            name: name.into(),
            nameservices: 1,
            ha: false,
            nodes: Vec::new(),
            conf: Conf::new(),
        }
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
                self.namenodes[index].format("CID-hayloft-lab")?;
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
    /// What does not start, [`LabError::Timeout`].
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
    /// [`LabError::Timeout`].
    pub fn wait_all_live(&self) -> Result<()> {
        let count = self.nodes.iter().filter(|node| node.is_started()).count();
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
    /// [`LabError::File`].
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

    /// Adds and starts one more node; its index is returned.
    ///
    /// # Errors
    /// With the end of its log.
    pub fn add_node(&mut self, spec: NodeSpec) -> Result<usize> {
        let index = self.nodes.len();
        self.nodes
            .push(Node::new(&self.hadoop, index, spec, &self.dir)?);
        self.start_node(index)?;
        Ok(index)
    }

    /// Starts a further node that shall refuse to run: waits for its end, and gives back whether it
    /// ended with an error, and its log. It is no part of the cluster.
    ///
    /// # Errors
    /// When it still runs after a minute.
    pub fn refused_node(&self, spec: NodeSpec) -> Result<(bool, String)> {
        static COUNT: AtomicUsize = AtomicUsize::new(100);
        let index = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut node = Node::new(&self.hadoop, index, spec, &self.dir)?;
        node.start_without_waiting(&self.conf)?;
        let status = node.process()?.wait(LIVE_LIMIT)?;
        let log = node.log();
        let text = std::fs::read_to_string(&log).map_err(LabError::file("reading", log))?;
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
    /// [`LabError::File`].
    pub fn exclude(&self, nodes: &[usize]) -> Result<()> {
        let text: String = nodes
            .iter()
            .map(|&index| format!("{}\n", self.nodes[index].xfer()))
            .collect();
        let path = self.dir.join("hosts-exclude");
        std::fs::write(&path, text).map_err(LabError::file("writing", path))
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

    /// Ends a cluster whose test passed: processes are killed and the directory is removed.
    pub fn succeed(mut self) {
        self.keep = std::env::var_os("HAYLOFT_LAB_KEEP").is_some();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let areas: Vec<PathBuf> = self.nodes.iter().filter_map(Node::staging_area).collect();
        self.nodes.clear();
        self.namenodes.clear();
        if !self.keep {
            // Killed nodes leave them for a next start that does not come.
            for area in areas {
                let _ = std::fs::remove_file(area);
            }
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(LabError::file("creating", to))?;
    let entries = std::fs::read_dir(from).map_err(LabError::file("listing", from))?;
    for entry in entries {
        let entry = entry.map_err(LabError::file("listing", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            std::fs::copy(&source, &target).map_err(LabError::file("copying", &source))?;
        }
    }
    Ok(())
}
