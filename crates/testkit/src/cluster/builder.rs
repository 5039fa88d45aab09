//! What a cluster shall be, and how it comes to be.

use super::Cluster;
use super::memory::NamesInMemory;
use crate::error::{Result, TestkitError};
use crate::hadoop::Hadoop;
use crate::hadoop_conf::Conf;
use crate::namenode::{NameNode, NameNodeSite};
use crate::node::{Kind, Node, NodeSite, NodeSpec};
use crate::ports;
use crate::where_processes_run::Place;
use std::path::{Path, PathBuf};

/// What a cluster shall be.
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    name: String,
    nameservices: usize,
    ha: bool,
    nodes: Vec<NodeSpec>,
    conf: Conf,
    names_in_memory: bool,
    namenode_heap_mib: u32,
    jars: Vec<PathBuf>,
}

impl ClusterBuilder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            nameservices: 1,
            ha: false,
            nodes: Vec::new(),
            conf: Conf::new(),
            names_in_memory: false,
            namenode_heap_mib: 384,
            jars: Vec::new(),
        }
    }

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

    /// Keeps images and edits of the NameNodes in shared memory, where the machine has enough of
    /// it: a NameNode answers once its edits are synced, and on a disk that nodes keep busy that is
    /// a queue's length later. In a cluster it has a disk of its own.
    #[must_use]
    pub fn names_in_memory(mut self) -> Self {
        self.names_in_memory = true;
        self
    }

    /// Gives each NameNode a heap of at most so many MiB, for many blocks.
    #[must_use]
    pub fn namenode_heap_mib(mut self, mib: u32) -> Self {
        self.namenode_heap_mib = mib;
        self
    }

    /// A jar for every JVM: a plug-in.
    #[must_use]
    pub fn jar(mut self, jar: PathBuf) -> Self {
        self.jars.push(jar);
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
        let mut hadoop = Hadoop::locate()?;
        for jar in self.jars {
            hadoop.add_jar(jar);
        }
        let dir = crate::hadoop::scratch(&format!("{}-", self.name))?.keep();
        let shared = dir.join("shared-edits");
        std::fs::create_dir_all(&shared).map_err(TestkitError::file("creating", &shared))?;
        let names = self.names_in_memory.then(NamesInMemory::new).flatten();
        let mut namenodes = Vec::new();
        for index in 1..=self.nameservices {
            let ids: &[&str] = if self.ha { &["nn1", "nn2"] } else { &[""] };
            for id in ids {
                let (service, heap) = (format!("ns{index}"), self.namenode_heap_mib);
                let mut namenode = namenode(&hadoop, (&service, id), heap, &dir)?;
                if let Some(names) = &names {
                    namenode.keep_names_in(names.path());
                }
                namenodes.push(namenode);
            }
        }
        let mut nodes = Vec::new();
        for (index, spec) in self.nodes.into_iter().enumerate() {
            nodes.push(node(&hadoop, index, spec, &dir)?);
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
            names,
            keep: true,
        };
        cluster.first_start()?;
        Ok(cluster)
    }
}

/// A NameNode of a nameservice (with an id inside an HA pair, else empty) under `dir`, on free
/// ports.
fn namenode(
    hadoop: &Hadoop,
    (nameservice, id): (&str, &str),
    heap_mib: u32,
    dir: &Path,
) -> Result<NameNode> {
    let name = format!("namenode-{nameservice}{id}");
    let site = NameNodeSite {
        dir: dir.join(&name),
        name,
        place: Place::local(),
        rpc_port: ports::free()?,
        http_port: ports::free()?,
        heap_mib,
    };
    Ok(NameNode::new(hadoop, site)?.in_nameservice(nameservice, id))
}

/// The node `node-INDEX` of a cluster on this host, on free ports.
pub(super) fn node(hadoop: &Hadoop, index: usize, spec: NodeSpec, dir: &Path) -> Result<Node> {
    let name = format!("node-{index}");
    let site = NodeSite {
        dir: dir.join(&name),
        name,
        place: Place::local(),
        xfer_port: ports::free()?,
        ipc_port: ports::free()?,
        http_port: ports::free()?,
        log: None,
    };
    Node::new(hadoop, site, spec)
}

/// Keys that make small clusters on one machine quick to notice things.
fn base_conf(dir: &Path) -> Conf {
    let mut conf = Conf::small_cluster(dir);
    // Hadoop wants the file to be there; an empty one excludes no node.
    let exclude = dir.join("hosts-exclude");
    let _ = std::fs::write(&exclude, "");
    conf.set("dfs.hosts.exclude", exclude.display());
    conf.set("dfs.replication", 3)
        .set("dfs.blocksize", 4 << 20)
        .set("dfs.namenode.fs-limits.min-block-size", 512)
        .set("dfs.namenode.heartbeat.recheck-interval", 1000)
        .set("dfs.namenode.stale.datanode.interval", 6000)
        .set("dfs.namenode.redundancy.interval.seconds", 1)
        // One stream at the moment of a heartbeat makes a node of three "too busy" for a second
        // (twice the average of a third): pipelines would lack a node by chance.
        .set("dfs.namenode.redundancy.considerLoad", false)
        .set("dfs.namenode.reconstruction.pending.timeout-sec", 10)
        .set("dfs.namenode.decommission.interval", 1)
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
        namenode.address_in(conf, &suffix);
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
