//! The description of a testbed: a TOML file, checked before anything is made.

mod check;

use std::collections::BTreeMap;
use std::path::Path;

use hayloft_bench::fair::stock::{BLOCK_MIB, Medium, Stock, ours};
use serde::{Deserialize, Serialize};

use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::node::{Kind, NodeSpec, VolumeSpec};

/// Hosts in all; their addresses are `10.77.0.1` and up.
pub const HOSTS_MAX: usize = 64;
/// Storage nodes of one host.
pub const NODES_PER_HOST_MAX: usize = 16;
/// Links of a host beside its first one.
pub const MORE_LINKS_MAX: u8 = 7;
/// Disks of one node.
pub const DISKS_PER_NODE_MAX: usize = 16;
/// See [`Stock::kind`].
const APACHE_BEHIND: &str = Stock::Drop.kind();
/// Longest name of a testbed or a host: with prefixes it must fit the kernel's 15 for interfaces.
const NAME_MAX: usize = 10;

/// A testbed as described.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Its name: in namespaces, directories and reports.
    pub name: String,
    /// Links.
    #[serde(default)]
    pub network: Network,
    /// The NameNode.
    #[serde(default)]
    pub namenode: NameNodeSpec,
    /// Racks with their hosts.
    #[serde(rename = "rack")]
    pub racks: Vec<Rack>,
    /// What is closed is on the disk, with nodes of either kind: the page cache of one machine
    /// would hide disks from a dozen nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sync_on_close: bool,
    /// Hadoop configuration of every process, over the lab's defaults.
    #[serde(default)]
    pub conf: BTreeMap<String, String>,
    /// What `run` does.
    #[serde(default)]
    pub workload: WorkloadSpec,
}

/// Links, both directions at their rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// Rate of a host's link, Mbit/s.
    pub link_mbit: u32,
    /// Rate of a rack's uplink, Mbit/s; 0: not shaped.
    pub uplink_mbit: u32,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            link_mbit: 200,
            uplink_mbit: 0,
        }
    }
}

/// Where and how the NameNode runs. It has a host of its own, whose link is not shaped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NameNodeSpec {
    /// `stock`, or a layout of the placement plug-in: `split`, `round-robin`, `hybrid`, `random`.
    pub placement: String,
    /// Heap, MiB.
    pub heap_mib: u32,
}

impl Default for NameNodeSpec {
    fn default() -> Self {
        Self {
            placement: "stock".into(),
            heap_mib: 512,
        }
    }
}

/// A rack: hosts on a switch with an uplink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rack {
    /// Its name.
    pub name: String,
    /// Its hosts.
    #[serde(rename = "host")]
    pub hosts: Vec<HostSpec>,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Its name.
    pub name: String,
    /// A client runs here.
    #[serde(default)]
    pub client: bool,
    /// Rate of its link, Mbit/s, instead of the network's.
    #[serde(default)]
    pub link_mbit: Option<u32>,
    /// Links of the same rate beside its first one, each with an address.
    #[serde(default, skip_serializing_if = "none_more")]
    pub more_links: u8,
    /// Its storage nodes.
    #[serde(default, rename = "node")]
    pub nodes: Vec<DataNodeSpec>,
}

fn none_more(links: &u8) -> bool {
    *links == 0
}

/// A storage node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataNodeSpec {
    /// `hayloft`, `apache`, or `apache-behind`: a stock node that sends to the disk what comes
    /// while it comes. Stock nodes have the best settings for their disks.
    pub kind: String,
    /// Its disks, one volume on each.
    #[serde(rename = "disk")]
    pub disks: Vec<DiskSpec>,
    /// Virtual nodes that share the disks: one process of ours, or a stock DataNode on each one's
    /// directories. The links of the host are dealt out to them in turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub virtual_nodes: Vec<String>,
    /// Configuration over the testbed's.
    pub conf: BTreeMap<String, String>,
}

impl Default for DataNodeSpec {
    fn default() -> Self {
        Self {
            kind: "hayloft".into(),
            disks: vec![DiskSpec::default()],
            virtual_nodes: Vec::new(),
            conf: BTreeMap::new(),
        }
    }
}

impl DataNodeSpec {
    /// Whose node it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        if self.kind.starts_with("apache") {
            Kind::Apache
        } else {
            Kind::Hayloft
        }
    }

    /// What its data lie on.
    fn medium(&self) -> Medium {
        match self.disks.first() {
            Some(disk) if disk.memory => Medium::Memory,
            Some(disk) if disk.modelled => Medium::Rotating,
            _ => Medium::Own,
        }
    }

    /// The node with its best settings and its own configuration, on no directory yet.
    #[must_use]
    pub fn spec(&self, sync_on_close: bool) -> NodeSpec {
        // In memory there is no disk to sync to.
        let sync_on_close = sync_on_close && self.medium() != Medium::Memory;
        let mut spec = match self.kind() {
            Kind::Apache => {
                Stock::of(self.kind == APACHE_BEHIND, sync_on_close).node(VolumeSpec::default())
            }
            Kind::Hayloft => {
                let mut spec = NodeSpec::new(Kind::Hayloft);
                spec.conf = ours(self.medium(), sync_on_close);
                spec
            }
        };
        for (key, value) in &self.conf {
            spec.conf.set(key, value);
        }
        spec
    }
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskSpec {
    /// A model of a hard disk (FUSE, loop device, file system of its own); otherwise a directory on
    /// the machine's disk.
    pub modelled: bool,
    /// A file system in memory (tmpfs) instead.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub memory: bool,
    /// Size of a modelled disk or of one in memory, MiB.
    pub size_mib: u32,
    /// Sequential read rate of a modelled disk, MB/s.
    pub read_mbs: u32,
    /// Sequential write rate of a modelled disk, MB/s.
    pub write_mbs: u32,
    /// What seeks and turns of a modelled disk take, per cent of a real disk's time.
    pub seek_percent: u32,
    /// The host that has the modelled disk, when it is another than the node's: the disk is then
    /// mapped to the node's host over the network, as a block device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
}

impl Default for DiskSpec {
    fn default() -> Self {
        Self {
            modelled: false,
            memory: false,
            size_mib: 4096,
            read_mbs: 105,
            write_mbs: 95,
            seek_percent: 100,
            on: None,
        }
    }
}

/// What the clients do: all write at the same time, then all read at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Client hosts that take part, in the order of the description; 0: all.
    pub clients: usize,
    /// Streams of each client.
    pub streams: usize,
    /// MiB of each stream.
    pub mib: u32,
    /// Block size, MiB.
    pub block_mib: u32,
    /// Replicas.
    pub replication: u16,
    /// Whose file a client reads: `own`, `other` (the next client's), `both` (one after the other),
    /// or `none`.
    pub read: String,
    /// Times that it is done.
    pub rounds: usize,
}

impl Default for WorkloadSpec {
    fn default() -> Self {
        Self {
            clients: 0,
            streams: 1,
            mib: 256,
            block_mib: BLOCK_MIB,
            replication: 1,
            read: "own".into(),
            rounds: 1,
        }
    }
}

impl HostSpec {
    /// A host of a client, without nodes.
    #[must_use]
    pub fn client(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            client: true,
            ..Self::default()
        }
    }
}

impl Description {
    /// Hosts in one rack under this placement policy, with links of this rate.
    #[must_use]
    pub fn one_rack(name: &str, placement: &str, link_mbit: u32, hosts: Vec<HostSpec>) -> Self {
        Self {
            name: name.into(),
            network: Network {
                link_mbit,
                uplink_mbit: 0,
            },
            namenode: NameNodeSpec {
                placement: placement.into(),
                ..NameNodeSpec::default()
            },
            racks: vec![Rack {
                name: "r1".into(),
                hosts,
            }],
            sync_on_close: false,
            conf: BTreeMap::new(),
            workload: WorkloadSpec::default(),
        }
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`TestkitError::Expectation`] that names the file and what to change.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(TestkitError::file("reading", path))?;
        Self::parse(&text)
            .map_err(|e| TestkitError::Expectation(format!("{}: {e}", path.display())))
    }

    /// Reads and checks a text.
    ///
    /// # Errors
    /// [`TestkitError::Expectation`] that says what to change.
    pub fn parse(text: &str) -> Result<Self> {
        let described: Self =
            toml::from_str(text).map_err(|e| TestkitError::Expectation(e.to_string()))?;
        described.check().map_err(TestkitError::Expectation)?;
        Ok(described)
    }

    /// The description as TOML.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a description has only what TOML has")
    }

    /// Every host with its rack, in order.
    pub fn hosts(&self) -> impl Iterator<Item = (&Rack, &HostSpec)> {
        self.racks
            .iter()
            .flat_map(|rack| rack.hosts.iter().map(move |host| (rack, host)))
    }

    /// Whether any disk is modelled.
    #[must_use]
    pub fn modelled(&self) -> bool {
        self.hosts()
            .flat_map(|(_, host)| &host.nodes)
            .flat_map(|node| &node.disks)
            .any(|disk| disk.modelled)
    }

    /// Whether any disk is mapped from another host.
    #[must_use]
    pub fn mapped(&self) -> bool {
        self.hosts()
            .flat_map(|(_, host)| &host.nodes)
            .flat_map(|node| &node.disks)
            .any(|disk| disk.on.is_some())
    }

    /// Clients that the workload uses.
    #[must_use]
    pub fn clients(&self) -> usize {
        let there = self.hosts().filter(|(_, host)| host.client).count();
        match self.workload.clients {
            0 => there,
            some => some.min(there),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const SMALL: &str = r#"
name = "small"
[network]
link_mbit = 200
[namenode]
placement = "split"
[[rack]]
name = "r1"
[[rack.host]]
name = "s1"
[[rack.host.node]]
kind = "apache"
[[rack.host.node.disk]]
modelled = true
size_mib = 512
[[rack.host]]
name = "c1"
client = true
[workload]
mib = 64
read = "other"
"#;

    #[test]
    fn a_description_is_read_and_written_back() {
        let described = Description::parse(SMALL).expect("it is right");
        assert_eq!(described.hosts().count(), 2);
        assert_eq!(described.clients(), 1);
        assert!(described.modelled());
        assert_eq!(described.racks[0].hosts[0].nodes[0].kind(), Kind::Apache);
        let again = Description::parse(&described.to_toml()).expect("what was written is read");
        assert_eq!(described, again);
    }
}
