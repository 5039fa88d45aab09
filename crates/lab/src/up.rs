//! Starting what was described, and taking it down.

mod reconfigure;
mod swap;

use std::path::{Path, PathBuf};

use super::describe::{DataNodeSpec, Description, HostSpec};
use super::disks::{self, Mounted};
use super::mapped::{self, Route};
use super::net;
use super::running;
pub use super::running::RunningNode;
use super::state;
use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::{Hadoop, Jvm, placement_jar};
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::namenode::{NameNode, NameNodeSite, START_LIMIT};
use hayloft_testkit::node::{Kind, Node, NodeSite, VirtualSite, VolumeSpec};
use hayloft_testkit::where_processes_run::Place;

const RPC_PORT: u16 = 8020;
const HTTP_PORT: u16 = 9870;
const FIRST_NODE_PORT: u16 = 9866;
/// Ports of a node: data, RPC, HTTP.
const PORTS_PER_NODE: u16 = 10;
/// The policy class of the placement plug-in, its counterpart for erasure coding, and its mapping.
const POLICY: &str = "io.hayloft.placement.HayloftPlacementPolicy";
const MAPPING: &str = "io.hayloft.placement.FileTopologyMapping";

/// A testbed that is up. Dropping it takes it down, unless it was started to stay.
#[derive(Debug)]
pub struct Testbed {
    described: Description,
    dir: PathBuf,
    pub(super) hadoop: Hadoop,
    namenode: NameNode,
    nodes: Vec<RunningNode>,
    stays: bool,
}

impl Testbed {
    /// Makes hosts, links and disks under `dir` and starts everything; `stays`: it outlives this
    /// process. `tell` hears what is being done.
    ///
    /// # Errors
    /// When something is missing or does not come up, with its log; what was made is taken down.
    pub fn up(
        described: Description,
        dir: &Path,
        stays: bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let lacks = super::missing(described.modelled())
            .or_else(|| described.mapped().then(super::missing_for_mapping)?);
        if let Some(what) = lacks {
            return Err(TestkitError::Missing {
                what: "this machine cannot carry a testbed".into(),
                todo: format!("it lacks {what}"),
            });
        }
        if net::is_there(&described.name)? {
            return Err(TestkitError::Talk(format!(
                "testbed {0} is there already: take it down first (hayloft-lab down {0})",
                described.name
            )));
        }
        std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
        let dir = dir
            .canonicalize()
            .map_err(TestkitError::file("looking at", dir))?;
        let mut testbed = Self::new(described, dir, Vec::new(), stays)?;
        // Until all is up, dropping it takes down what was made.
        testbed.stays = false;
        testbed.start(stays, tell)?;
        if stays {
            state::write(&testbed.dir, &testbed.described, &testbed.nodes)?;
        }
        testbed.stays = stays;
        Ok(testbed)
    }

    /// A testbed that an earlier command brought up to stay, with its files in `dir`.
    ///
    /// # Errors
    /// When there is none, or its description cannot be read.
    pub fn attach(dir: &Path) -> Result<Self> {
        let dir = dir
            .canonicalize()
            .map_err(TestkitError::file("looking at", dir))?;
        let (described, nodes) = state::read(&dir)?;
        if !net::is_there(&described.name)? {
            return Err(TestkitError::Talk(format!(
                "testbed {} is not up any more: take it down and bring it up again",
                described.name
            )));
        }
        Self::new(described, dir, nodes, true)
    }

    fn new(
        described: Description,
        dir: PathBuf,
        nodes: Vec<RunningNode>,
        stays: bool,
    ) -> Result<Self> {
        let mut hadoop = Hadoop::locate()?;
        if described.namenode.placement != "stock" {
            // The NameNode needs the policy's class, and so do fsck and the balancer.
            hadoop.add_jar(placement_jar()?);
        }
        let site = NameNodeSite {
            name: "namenode".into(),
            dir: dir.clone(),
            place: net::place(&described.name, net::NAMENODE_HOST, None, stays),
            rpc_port: RPC_PORT,
            http_port: HTTP_PORT,
            heap_mib: described.namenode.heap_mib,
        };
        Ok(Self {
            namenode: NameNode::new(&hadoop, site)?,
            hadoop,
            described,
            dir,
            nodes,
            stays,
        })
    }

    fn start(&mut self, stays: bool, tell: &mut dyn FnMut(&str)) -> Result<()> {
        tell("making hosts and links");
        net::make(&self.described)?;
        tell("making disks");
        let mut disks = self.make_disks(stays)?;
        tell("formatting and starting the NameNode");
        self.write_topology()?;
        self.namenode.write_conf(&self.conf(), false)?;
        self.namenode.format(Some("CID-hayloft-testbed"))?;
        self.namenode.start(&[])?;
        tell("starting storage nodes");
        let hosts: Vec<HostSpec> = self
            .described
            .hosts()
            .map(|(_, host)| host.clone())
            .collect();
        for (position, host) in hosts.iter().enumerate() {
            for index in 0..host.nodes.len() {
                let rest = disks.split_off(host.nodes[index].disks.len());
                let own = std::mem::replace(&mut disks, rest);
                self.start_node(position, host, index, own, stays)?;
            }
        }
        self.wait_live(self.nodes.iter().map(RunningNode::count).sum())
    }

    /// How a disk that is `on` another host comes to `host`; `number` tells such disks apart.
    fn route(&self, host: &str, on: &str, number: usize, stays: bool) -> Route {
        let place = |host: &str| {
            let position = self.described.hosts().position(|(_, h)| h.name == host);
            net::place(&self.described.name, host, position, stays)
        };
        let number = u16::try_from(number).expect("few disks");
        Route {
            server: place(on),
            client: place(host),
            port: mapped::FIRST_PORT + number,
        }
    }

    fn make_disks(&self, stays: bool) -> Result<Vec<Mounted>> {
        let switch = net::place(&self.described.name, net::SWITCH, None, stays);
        let mut disks = Vec::new();
        for (_, host) in self.described.hosts() {
            for (index, node) in host.nodes.iter().enumerate() {
                for (number, disk) in node.disks.iter().enumerate() {
                    let name = format!("{}-{index}-disk{number}", host.name);
                    let dir = self.dir.join("disks").join(&name);
                    let route = disk.on.as_ref();
                    let route = route.map(|on| self.route(&host.name, on, disks.len(), stays));
                    disks.push(disks::begin(disk, &dir, &switch, &name, route)?);
                }
            }
        }
        disks.iter_mut().try_for_each(Mounted::finish)?;
        Ok(disks)
    }

    /// `/rack` for the stock policy, `/rack/host` for ours.
    fn write_topology(&self) -> Result<()> {
        let ours = self.is_ours();
        let line = |(position, (rack, host)): (usize, (&super::describe::Rack, &HostSpec))| {
            let of_link = |link| {
                let address = net::link_address(position, link);
                if ours {
                    format!("{address} /{}/{}\n", rack.name, host.name)
                } else {
                    format!("{address} /{}\n", rack.name)
                }
            };
            (0..=host.more_links).map(of_link).collect::<String>()
        };
        let text: String = self.described.hosts().enumerate().map(line).collect();
        let path = self.topology_file();
        std::fs::write(&path, text).map_err(TestkitError::file("writing", path))
    }

    fn topology_file(&self) -> PathBuf {
        self.dir.join("topology")
    }

    fn is_ours(&self) -> bool {
        self.described.namenode.placement != "stock"
    }

    /// Configuration of every process and client.
    #[must_use]
    pub fn conf(&self) -> Conf {
        let mut conf = Conf::small_cluster(&self.dir);
        self.namenode.address_in(&mut conf, "");
        conf.set("fs.defaultFS", self.uri())
            .set("dfs.namenode.fs-limits.min-block-size", 4096)
            .set("dfs.namenode.heartbeat.recheck-interval", 1000)
            .set("dfs.namenode.stale.datanode.interval", 6000)
            .set("dfs.namenode.redundancy.interval.seconds", 1)
            .set("dfs.datanode.du.reserved.pct", 0)
            .set("dfs.client.socket-timeout", 120_000)
            // An open connection is a stream then, which is how streams on a disk are counted.
            .set("dfs.client.socketcache.capacity", 0);
        if self.is_ours() {
            conf.set("dfs.block.replicator.classname", POLICY)
                .set(
                    "hayloft.placement.layout",
                    &self.described.namenode.placement,
                )
                .set("net.topology.node.switch.mapping.impl", MAPPING)
                .set("hayloft.topology.file", self.topology_file().display());
        } else {
            conf.set(
                "net.topology.node.switch.mapping.impl",
                "org.apache.hadoop.net.TableMapping",
            )
            .set(
                "net.topology.table.file.name",
                self.topology_file().display(),
            );
        }
        for (key, value) in &self.described.conf {
            conf.set(key, value);
        }
        conf
    }

    /// Where clients find the NameNode.
    #[must_use]
    pub fn uri(&self) -> String {
        self.namenode.uri()
    }

    /// A bean of the NameNode.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn bean(&self, name: &str) -> Result<serde_json::Value> {
        self.namenode.bean(name)
    }

    /// A bean by its full name.
    ///
    /// # Errors
    /// When the NameNode does not answer.
    pub fn jmx(&self, query: String) -> Result<serde_json::Value> {
        self.namenode.jmx(query)
    }

    fn start_node(
        &mut self,
        position: usize,
        host: &HostSpec,
        index: usize,
        disks: Vec<Mounted>,
        stays: bool,
    ) -> Result<()> {
        let node = &host.nodes[index];
        let stock = node.kind() == Kind::Apache;
        let sites = running::sites(position, host, node, FIRST_NODE_PORT, PORTS_PER_NODE);
        if stock && !sites.is_empty() {
            let mut disks = Some(disks);
            for (at, part) in sites.into_iter().enumerate() {
                // The first one stands for the disks that all share.
                let own = disks.take().unwrap_or_default();
                let dirs = self.directories(host, &part.name);
                let place = net::link_place(&self.described.name, &host.name, part.address, stays);
                self.start_one((host, at), (node, dirs), own, (place, Vec::new()))?;
            }
            return Ok(());
        }
        let dirs = disks.iter().map(|disk| disk.dir.join("hdfs")).collect();
        let place = net::place(&self.described.name, &host.name, Some(position), stays);
        self.start_one((host, index), (node, dirs), disks, (place, sites))
    }

    /// Where a virtual node of a host has its files.
    fn directories(&self, host: &HostSpec, part: &str) -> Vec<PathBuf> {
        let disks = host.nodes.first().map_or(0, |node| node.disks.len());
        let below = self.dir.join("disks");
        let dir = |at| below.join(format!("{}-0-disk{at}/hdfs/{part}", host.name));
        (0..disks).map(dir).collect()
    }

    /// Starts one process.
    fn start_one(
        &mut self,
        (host, index): (&HostSpec, usize),
        (node, dirs): (&DataNodeSpec, Vec<PathBuf>),
        disks: Vec<Mounted>,
        (place, sites): (Place, Vec<VirtualSite>),
    ) -> Result<()> {
        let name = format!("{}.{index}", host.name);
        let dir = self.dir.join("nodes").join(&name);
        let port = PORTS_PER_NODE * u16::try_from(index).expect("few nodes on a host");
        let log = match node.kind() {
            Kind::Apache => format!("{name}.log"),
            Kind::Hayloft => "hayloft.log".into(),
        };
        let site = NodeSite {
            place,
            xfer_port: FIRST_NODE_PORT + port,
            ipc_port: FIRST_NODE_PORT + port + 1,
            http_port: FIRST_NODE_PORT + port + 2,
            log: Some(dir.join(log)),
            name,
            dir,
        };
        let volumes = dirs.into_iter().map(VolumeSpec::at).collect();
        let spec = node.spec(self.described.sync_on_close);
        let spec = spec.volumes(volumes).virtual_nodes(sites);
        let node = Node::new(&self.hadoop, site, spec)?;
        let namespace = net::namespace(&self.described.name, &host.name);
        let host = (host.name.clone(), namespace);
        let node = RunningNode::start(node, self.conf(), host, disks)?;
        self.nodes.push(node);
        Ok(())
    }

    /// Waits until `count` nodes are live.
    ///
    /// # Errors
    /// With the end of a node's log when it has ended; on time-out.
    pub fn wait_live(&mut self, count: usize) -> Result<()> {
        let nodes = &mut self.nodes;
        let alive = || nodes.iter_mut().try_for_each(RunningNode::check_alive);
        self.namenode.wait_live_while(count, START_LIMIT, alive)
    }

    /// What was described.
    #[must_use]
    pub fn described(&self) -> &Description {
        &self.described
    }

    /// What the workload shall be from now on.
    pub fn set_workload(&mut self, workload: super::describe::WorkloadSpec) {
        self.described.workload = workload;
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its nodes.
    #[must_use]
    pub fn nodes(&self) -> &[RunningNode] {
        &self.nodes
    }

    /// Its nodes, to kill one.
    pub fn nodes_mut(&mut self) -> &mut [RunningNode] {
        &mut self.nodes
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        self.nodes.clear();
        let _ended_already = self.namenode.kill();
        if let Err(error) = down(&self.described.name, &self.dir) {
            eprintln!("testbed {}: {error}", self.described.name);
        }
    }
}

/// Takes down the testbed `name` whose files are in `dir`, however it was left: processes, mounts,
/// links, hosts, and its disks' data. Nothing there is no error.
///
/// # Errors
/// When something cannot be removed.
pub fn down(name: &str, dir: &Path) -> Result<()> {
    // The kernel lists mounts by their whole path. A directory that is not there has none.
    let whole = dir.canonicalize();
    let dir = whole.as_deref().unwrap_or(dir);
    net::remove_hosts(name)?;
    net::end_servers(name)?;
    disks::unmount_below(dir)?;
    net::remove(name)?;
    sweep()?;
    state::remove(dir);
    let parts = ["disks", "name", "tmp"].map(|part| dir.join(part));
    for path in parts {
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(TestkitError::file("removing", path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What servers of disks that were killed left: mounts, loop devices.
fn sweep() -> Result<()> {
    let (_, stuck) = hayloft_testkit::modelled::sweep()?;
    stuck.into_iter().next().map_or(Ok(()), Err)
}
