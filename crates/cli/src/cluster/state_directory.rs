//! The state directory: what is in the cluster, who may change it.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::CliError;
use hayloft_cluster::node::{Kind, VirtualSite};
use hayloft_cluster::process_identity::ProcessIdentity;

/// Version of `cluster.json`.
const FORMAT: u32 = 1;

/// One process of the cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Role {
    /// `namenode`, `node-N` or `kdc`; also its directory.
    pub name: String,
    /// Port of its main service: NameNode RPC, data transfer, tickets.
    pub port: u16,
    /// Port of its HTTP server, of HTTPS where the cluster is secure; the KDC has none.
    pub http_port: Option<u16>,
    /// Port of a storage node's RPC server.
    pub ipc_port: Option<u16>,
    /// Whose storage node; `None` for the NameNode and the KDC.
    pub kind: Option<Kind>,
    /// The virtual nodes of its process; none when it is one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub virtual_nodes: Vec<VirtualSite>,
    /// The process, when it was last started.
    pub process: Option<ProcessIdentity>,
}

impl Role {
    /// Whether its process runs.
    pub fn is_alive(&self) -> bool {
        self.process.as_ref().is_some_and(ProcessIdentity::is_alive)
    }

    /// Every port of it.
    pub fn ports(&self) -> Vec<u16> {
        let own = [Some(self.port), self.http_port, self.ipc_port];
        let own = own.into_iter().flatten();
        let below = self.virtual_nodes.iter();
        own.chain(below.flat_map(|n| [n.xfer_port, n.ipc_port, n.http_port]))
            .collect()
    }

    /// The ports of it that may change while it is stopped.
    pub fn ports_mut(&mut self) -> Vec<&mut u16> {
        let own = [
            Some(&mut self.port),
            self.http_port.as_mut(),
            self.ipc_port.as_mut(),
        ];
        let own = own.into_iter().flatten();
        let below = self.virtual_nodes.iter_mut();
        own.chain(below.flat_map(|n| [&mut n.xfer_port, &mut n.ipc_port, &mut n.http_port]))
            .collect()
    }
}

/// One file that was copied in, by which later runs know that nothing was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedFile {
    /// Path below the copied directory; empty for a single file.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// CRC-64/NVME of its bytes.
    pub crc64: u64,
}

/// Something that was copied in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Copied {
    /// Where it came from.
    pub source: PathBuf,
    /// Where it is in HDFS.
    pub target: String,
    /// Its files.
    pub files: Vec<CopiedFile>,
}

impl Copied {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// The contents of `cluster.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredCluster {
    format: u32,
    /// The NameNode.
    pub namenode: Role,
    /// The KDC of a cluster of `up --secure`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kdc: Option<Role>,
    /// The storage nodes, in order.
    pub nodes: Vec<Role>,
    /// Replication of new files.
    pub replication: u16,
    /// What was copied in.
    pub copied: Vec<Copied>,
}

impl StoredCluster {
    /// A cluster that has not been started.
    pub fn new(namenode: Role, replication: u16) -> Self {
        Self {
            format: FORMAT,
            namenode,
            kdc: None,
            nodes: Vec::new(),
            replication,
            copied: Vec::new(),
        }
    }

    /// Every process, the KDC first, then the NameNode.
    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        let namenode = std::iter::once(&self.namenode);
        self.kdc.iter().chain(namenode).chain(&self.nodes)
    }

    /// How many nodes the NameNode counts when all run.
    pub fn live_nodes(&self) -> usize {
        let of_role = |role: &Role| role.virtual_nodes.len().max(1);
        self.nodes.iter().map(of_role).sum()
    }

    /// The command that starts it again.
    pub fn up_command(&self) -> &'static str {
        match self.kdc {
            Some(_) => "hayloft up --secure",
            None => "hayloft up",
        }
    }

    /// URI of the file system.
    pub fn uri(&self) -> String {
        format!("hdfs://127.0.0.1:{}", self.namenode.port)
    }
}

/// The directory that holds a cluster.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
}

/// Held while a cluster is changed.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl StateDir {
    /// The directory at `path`, which need not exist yet.
    pub fn new(path: &Path) -> Result<Self, CliError> {
        let path =
            std::path::absolute(path).map_err(CliError::file("find the state directory", path))?;
        if path.to_string_lossy().contains([':', ',', ' ']) {
            let place = path.display().to_string();
            let advice = "choose another with --state: Java's class path and Hadoop's lists \
                cannot hold ':', ',' or blanks";
            return Err(CliError::new(
                "this state directory cannot be used",
                place,
                advice,
            ));
        }
        Ok(Self { path })
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Configuration directory of clients.
    pub fn client_conf(&self) -> PathBuf {
        self.path.join("conf")
    }

    /// Logs of clients.
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// Directory of one process.
    pub fn role_dir(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes the directory and takes its lock.
    pub fn lock(&self) -> Result<Lock, CliError> {
        std::fs::create_dir_all(self.logs())
            .map_err(CliError::file("create the state directory", &self.path))?;
        let path = self.path.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        let file = file.map_err(CliError::file("open the lock", &path))?;
        file.try_lock().map_err(|_| {
            let place = self.path.display().to_string();
            CliError::new(
                "another hayloft command is changing this cluster",
                place,
                "wait for it to finish",
            )
        })?;
        Ok(Lock { _file: file })
    }

    /// The cluster kept here, if there is one.
    pub fn load(&self) -> Result<Option<StoredCluster>, CliError> {
        let path = self.path.join("cluster.json");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CliError::file("read", &path)(error)),
        };
        let unusable = |what: String| {
            CliError::new(
                what,
                path.display().to_string(),
                "use the version that wrote it, or another --state directory",
            )
        };
        let cluster: StoredCluster = serde_json::from_str(&text)
            .map_err(|error| unusable(format!("cannot understand the cluster: {error}")))?;
        if cluster.format != FORMAT {
            return Err(unusable(format!(
                "the cluster has format {}, not {FORMAT}",
                cluster.format
            )));
        }
        Ok(Some(cluster))
    }

    /// Writes the cluster, whole or not at all.
    pub fn save(&self, cluster: &StoredCluster) -> Result<(), CliError> {
        let path = self.path.join("cluster.json");
        let part = self.path.join("cluster.json.part");
        let text = serde_json::to_string_pretty(cluster)
            .map_err(|error| CliError::new(format!("cannot write JSON: {error}"), "", ""))?;
        std::fs::write(&part, text).map_err(CliError::file("write", &part))?;
        std::fs::rename(&part, &path).map_err(CliError::file("write", &path))
    }

    /// The cluster kept here, or what to do to get one.
    pub fn require(&self) -> Result<StoredCluster, CliError> {
        self.load()?.ok_or_else(|| {
            CliError::new(
                "there is no cluster",
                self.path.display().to_string(),
                "start one with 'hayloft up', or name its directory with --state",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_kept_and_other_formats_are_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state = StateDir::new(&dir.path().join("s")).expect("usable");
        assert!(state.require().is_err());
        let _lock = state.lock().expect("free");
        assert!(
            state
                .lock()
                .unwrap_err()
                .to_string()
                .contains("another hayloft command")
        );
        let role = Role {
            name: "namenode".into(),
            port: 1,
            http_port: Some(2),
            ipc_port: None,
            kind: None,
            virtual_nodes: Vec::new(),
            process: None,
        };
        state.save(&StoredCluster::new(role, 3)).expect("writable");
        let kept = state.load().expect("readable").expect("there");
        assert_eq!(kept.uri(), "hdfs://127.0.0.1:1");
        assert!(!kept.namenode.is_alive());
        let text = std::fs::read_to_string(state.path().join("cluster.json")).expect("there");
        std::fs::write(
            state.path().join("cluster.json"),
            text.replace("\"format\": 1", "\"format\": 9"),
        )
        .expect("writable");
        assert!(state.load().unwrap_err().to_string().contains("format 9"));
    }

    #[test]
    fn directories_that_hadoop_cannot_name_are_refused() {
        assert!(StateDir::new(Path::new("/a b")).is_err());
        assert!(StateDir::new(Path::new("/a:b")).is_err());
    }
}
