//! What a node shall be, and where.

use super::virtual_nodes::VirtualSite;
use crate::hadoop_conf::Conf;
use crate::where_processes_run::Place;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Whose node it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The stock DataNode.
    Apache,
    /// Ours.
    Hayloft,
}

impl Kind {
    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Apache => "Apache",
            Self::Hayloft => "Hayloft",
        }
    }

    /// The kind under test: Hayloft, or the stock one with `HAYLOFT_LAB_PEER=apache`, by which
    /// the tests themselves are validated.
    #[must_use]
    pub fn under_test() -> Self {
        match std::env::var("HAYLOFT_LAB_PEER").as_deref() {
            Ok("apache") => Self::Apache,
            _ => Self::Hayloft,
        }
    }
}

/// A directory of a node to come.
#[derive(Clone, Debug, Default)]
pub struct VolumeSpec {
    /// Storage type prefix such as `SSD`; none means `DISK`.
    pub storage_type: Option<&'static str>,
    /// Where; none means below the node's directory.
    pub path: Option<PathBuf>,
}

impl VolumeSpec {
    /// A volume of the given type below the node's directory.
    #[must_use]
    pub fn typed(storage_type: &'static str) -> Self {
        Self {
            storage_type: Some(storage_type),
            path: None,
        }
    }

    /// A `DISK` volume at `path`.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            storage_type: None,
            path: Some(path.into()),
        }
    }
}

/// A node to come.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Whose.
    pub kind: Kind,
    /// Its directories.
    pub volumes: Vec<VolumeSpec>,
    /// Configuration over the cluster's.
    pub conf: Conf,
    /// Flags of a stock DataNode's JVM instead of the small ones.
    pub jvm_flags: Option<Vec<String>>,
    /// Another Hayloft binary than that of the other nodes.
    pub binary: Option<PathBuf>,
    /// What a Hayloft node has in its environment besides that of this process.
    pub env: Vec<(String, String)>,
    /// The virtual nodes of a process of ours; none when it is one node.
    pub virtual_nodes: Vec<VirtualSite>,
}

impl NodeSpec {
    /// A node of `kind` with one `DISK` volume.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            volumes: vec![VolumeSpec::default()],
            conf: Conf::new(),
            jvm_flags: None,
            binary: None,
            env: Vec::new(),
            virtual_nodes: Vec::new(),
        }
    }

    /// As these virtual nodes.
    #[must_use]
    pub fn virtual_nodes(mut self, sites: Vec<VirtualSite>) -> Self {
        self.virtual_nodes = sites;
        self
    }

    /// With these volumes instead.
    #[must_use]
    pub fn volumes(mut self, volumes: Vec<VolumeSpec>) -> Self {
        self.volumes = volumes;
        self
    }

    /// With a configuration key.
    #[must_use]
    pub fn conf(mut self, key: &str, value: impl ToString) -> Self {
        self.conf.set(key, value);
        self
    }
}

/// Where a node is, and under which name and ports.
#[derive(Clone, Debug)]
pub struct NodeSite {
    /// Its name, for messages and logs.
    pub name: String,
    /// Its directory, with `conf` below it.
    pub dir: PathBuf,
    /// Where its process runs, and for how long.
    pub place: Place,
    /// Port of data transfer.
    pub xfer_port: u16,
    /// Port of the RPC server.
    pub ipc_port: u16,
    /// Port of the HTTP server.
    pub http_port: u16,
    /// The one log of the node; none: one for each kind that runs here.
    pub log: Option<PathBuf>,
}
