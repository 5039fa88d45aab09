//! Whose host is looked at: what its configuration says.

use std::path::PathBuf;

use hayloft_conf::{
    ConfigError, Configuration, DataDir, HostPort, keys, namenode_web_address, namenodes,
};

/// What is to be looked at.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Configured data directories. Virtual nodes have theirs below these.
    pub volumes: Vec<DirSubject>,
    /// NameNodes; none without a configuration.
    pub namenodes: Vec<NameNodeSubject>,
    /// The name that the node registers under, where it is configured.
    pub host_name: Option<String>,
    /// Addresses of data transfer, one a virtual node.
    pub data_ports: Vec<HostPort>,
    /// All addresses of the node.
    pub ports: Vec<HostPort>,
    /// Threads that the node wants: the fewest to start with, and the most.
    pub threads: (usize, usize),
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes that are to be locked in memory.
    pub locked_bytes: u64,
    /// Whether a DISK and an ARCHIVE volume share mounts on purpose.
    pub tiering: bool,
}

/// A data directory.
#[derive(Clone, Debug)]
pub struct DirSubject {
    /// Its path.
    pub dir: PathBuf,
    /// Whether it is declared as memory.
    pub of_memory: bool,
    /// Whether it is declared as an archive.
    pub archive: bool,
    /// Bytes to keep free.
    pub reserved_bytes: u64,
}

/// A NameNode.
#[derive(Clone, Debug)]
pub struct NameNodeSubject {
    /// Where it answers nodes.
    pub rpc: HostPort,
    /// Where its pages are, if that can be read.
    pub web: Option<HostPort>,
}

impl Subject {
    /// Directories without a configuration.
    #[must_use]
    pub fn of_dirs(dirs: &[PathBuf]) -> Self {
        let of_dir = |dir: &PathBuf| DirSubject {
            dir: dir.clone(),
            of_memory: false,
            archive: false,
            reserved_bytes: 0,
        };
        Self {
            volumes: dirs.iter().map(of_dir).collect(),
            block_bytes: 128 << 20,
            ..Self::default()
        }
    }

    /// What a configuration says.
    ///
    /// # Errors
    /// It names no NameNode, or its virtual nodes do not go together.
    pub fn of(config: &Configuration) -> Result<Self, ConfigError> {
        let of_dir = |dir: DataDir| DirSubject {
            of_memory: dir.storage_type.name() == "RAM_DISK",
            archive: dir.storage_type.name() == "ARCHIVE",
            reserved_bytes: config.reserved_for(&dir).bytes,
            dir: dir.path,
        };
        let nodes = config.virtual_nodes()?;
        let nodes: Vec<&Configuration> = match nodes.is_empty() {
            true => vec![config],
            false => nodes.iter().map(|node| &node.config).collect(),
        };
        let data_ports = nodes.iter().map(|node| node.get(&keys::DATANODE_ADDRESS));
        let data_ports: Vec<HostPort> = data_ports.collect();
        let others = nodes.iter().flat_map(|node| {
            [&keys::DATANODE_IPC_ADDRESS, &keys::DATANODE_HTTP_ADDRESS].map(|key| node.get(key))
        });
        let ports = data_ports.iter().cloned().chain(others);
        Ok(Self {
            volumes: config
                .get(&keys::DATA_DIRS)
                .into_iter()
                .map(of_dir)
                .collect(),
            namenodes: namenodes_of(config)?,
            host_name: config.get(&keys::DATANODE_HOSTNAME),
            ports: ports.collect(),
            // The node says that.
            threads: (0, 0),
            data_ports,
            block_bytes: config.get(&keys::BLOCK_SIZE),
            locked_bytes: config.get(&keys::MAX_LOCKED_MEMORY),
            tiering: config.get(&keys::SAME_DISK_TIERING),
        })
    }
}

fn namenodes_of(config: &Configuration) -> Result<Vec<NameNodeSubject>, ConfigError> {
    let mut found = Vec::new();
    for service in namenodes(config)? {
        let id = service.id.as_deref();
        found.extend(service.namenodes.iter().map(|namenode| NameNodeSubject {
            rpc: namenode.for_datanodes().clone(),
            web: namenode_web_address(config, id, namenode),
        }));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_says_what_to_look_at() {
        let config = Configuration::from_properties([
            ("fs.defaultFS", "hdfs://nn:8020"),
            ("dfs.namenode.http-address", "0.0.0.0:50070"),
            ("dfs.datanode.data.dir", "[RAM_DISK]/a,/b"),
            ("dfs.datanode.du.reserved", "4096"),
        ]);
        let of = Subject::of(&config.expect("valid")).expect("says it");
        let web = of.namenodes[0].web.as_ref().map(ToString::to_string);
        assert_eq!(web.as_deref(), Some("nn:50070"));
        let dirs: Vec<_> = of
            .volumes
            .iter()
            .map(|v| (v.of_memory, v.reserved_bytes))
            .collect();
        assert_eq!(dirs, [(true, 4096), (false, 4096)]);
        let ports: Vec<u16> = of.ports.iter().map(|at| at.port).collect();
        assert_eq!(ports, [9866, 9867, 9864]);
    }

    #[test]
    fn virtual_nodes_share_the_configured_directories() {
        let config = Configuration::from_properties([
            ("fs.defaultFS", "hdfs://nn:8020"),
            ("dfs.datanode.data.dir", "/a,/b"),
            ("hayloft.nodes", "x,y"),
        ]);
        let of = Subject::of(&config.expect("valid")).expect("says it");
        assert_eq!((of.volumes.len(), of.data_ports.len()), (2, 2));
    }
}
