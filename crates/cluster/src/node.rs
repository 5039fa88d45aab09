//! A storage node: stock DataNode or Hayloft, on the same directories and ports.
//!
//! - `spec`: what a node shall be, and where
//! - `virtual_nodes`: virtual nodes: several DataNodes in one process of ours

mod spec;
mod virtual_nodes;

pub use spec::{Kind, NodeSite, NodeSpec, VolumeSpec};
pub use virtual_nodes::VirtualSite;

use crate::error::{ClusterError, Result};
use crate::hadoop::{Hadoop, Jvm, class, hayloft_binary};
use crate::hadoop_conf::Conf;
use crate::namenode::not_running;
use crate::process::{Process, Signal, Spawn};
use std::path::{Path, PathBuf};
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A storage node: directories, ports, and a process while it runs.
#[derive(Debug)]
pub struct Node {
    hadoop: Hadoop,
    site: NodeSite,
    kind: Kind,
    volumes: Vec<(Option<&'static str>, PathBuf)>,
    conf: Conf,
    jvm_flags: Option<Vec<String>>,
    binary: Option<PathBuf>,
    env: Vec<(String, String)>,
    arguments: Vec<String>,
    virtual_nodes: Vec<VirtualSite>,
    process: Option<Process>,
}

impl Node {
    /// A node that does not run yet; its directory is made.
    ///
    /// # Errors
    /// [`ClusterError::File`].
    pub fn new(hadoop: &Hadoop, site: NodeSite, spec: NodeSpec) -> Result<Self> {
        let dir = &site.dir;
        std::fs::create_dir_all(dir).map_err(ClusterError::file("creating", dir))?;
        let volumes = spec.volumes.into_iter().enumerate().map(|(i, volume)| {
            (
                volume.storage_type,
                volume.path.unwrap_or_else(|| dir.join(format!("data-{i}"))),
            )
        });
        Ok(Self {
            hadoop: hadoop.clone(),
            volumes: volumes.collect(),
            site,
            kind: spec.kind,
            conf: spec.conf,
            jvm_flags: spec.jvm_flags,
            binary: spec.binary,
            env: spec.env,
            arguments: Vec::new(),
            virtual_nodes: spec.virtual_nodes,
            process: None,
        })
    }

    /// Its virtual nodes; none when it is one node.
    #[must_use]
    pub fn virtual_nodes(&self) -> &[VirtualSite] {
        &self.virtual_nodes
    }

    /// How many nodes it is to a NameNode.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.virtual_nodes.len().max(1)
    }

    /// Its name, `node-N` in a cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.site.name
    }

    /// Whose node it is at present.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// `address:port` of data transfer: how the NameNode and clients name the node.
    #[must_use]
    pub fn xfer(&self) -> String {
        self.site.place.at(self.site.xfer_port).to_string()
    }

    /// `address:port` of its RPC server.
    #[must_use]
    pub fn ipc(&self) -> String {
        self.site.place.at(self.site.ipc_port).to_string()
    }

    /// Port of its HTTP server.
    #[must_use]
    pub fn http_port(&self) -> u16 {
        self.site.http_port
    }

    /// Its storage directories.
    pub fn volumes(&self) -> impl Iterator<Item = &Path> {
        self.volumes.iter().map(|(_, path)| path.as_path())
    }

    /// Adds a storage directory to its configuration (takes effect at start or reconfiguration).
    pub fn add_volume(&mut self, storage_type: Option<&'static str>, path: &Path) {
        self.volumes.push((storage_type, path.to_owned()));
    }

    /// Takes a storage directory out of its configuration.
    pub fn remove_volume(&mut self, path: &Path) {
        self.volumes.retain(|(_, volume)| volume != path);
    }

    /// Flags for the stock DataNode's JVM instead of the small ones.
    pub fn set_jvm_flags(&mut self, flags: Vec<String>) {
        self.jvm_flags = Some(flags);
    }

    /// Start options for the next starts, such as `-rollback`; both kinds take Apache's.
    pub fn set_arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        let kind = self.kind.name().to_lowercase();
        let own = || self.site.dir.join(format!("{}-{kind}.log", self.site.name));
        self.site.log.clone().unwrap_or_else(own)
    }

    /// Configuration over the cluster's.
    pub fn conf_mut(&mut self) -> &mut Conf {
        &mut self.conf
    }

    /// Its configuration directory.
    #[must_use]
    pub fn conf_dir(&self) -> PathBuf {
        self.site.dir.join("conf")
    }

    /// Writes its configuration: the cluster's, its own keys, directories and ports.
    pub fn write_conf(&self, cluster: &Conf) -> Result<()> {
        let dirs: Vec<String> = self
            .volumes
            .iter()
            .map(|(kind, path)| {
                let prefix = kind.map(|kind| format!("[{kind}]")).unwrap_or_default();
                format!("{prefix}file://{}", path.display())
            })
            .collect();
        let mut conf = cluster.clone();
        conf.set("dfs.datanode.data.dir", dirs.join(","))
            .set("dfs.datanode.address", self.xfer())
            .set("dfs.datanode.ipc.address", self.ipc())
            .set(
                "dfs.datanode.http.address",
                self.site.place.at(self.site.http_port),
            )
            .set("dfs.datanode.hostname", self.site.place.address());
        virtual_nodes::configure(&mut conf, &self.virtual_nodes);
        conf.overlay(&self.conf);
        conf.write_dir(&self.conf_dir())
    }

    /// Starts it and waits until data transfer and RPC listen.
    ///
    /// # Errors
    /// With the end of its log.
    pub fn start(&mut self, cluster: &Conf) -> Result<()> {
        self.start_without_waiting(cluster)?;
        self.wait_started()
    }

    /// Writes its configuration and starts it.
    ///
    /// # Errors
    /// When it runs already or cannot be started at all.
    pub fn start_without_waiting(&mut self, cluster: &Conf) -> Result<()> {
        if self.process.is_some() {
            let problem = format!("{} runs already", self.site.name);
            return Err(ClusterError::Talk(problem));
        }
        self.write_conf(cluster)?;
        for dir in self.volumes() {
            // A vanished or unusable directory may be what the test is about: the node will say.
            let _ = std::fs::create_dir_all(dir);
        }
        self.process = Some(self.site.place.put(self.spawn()?).start()?);
        Ok(())
    }

    fn spawn(&self) -> Result<Spawn> {
        match self.kind {
            Kind::Apache => {
                let mut jvm = Jvm::small(&self.conf_dir(), &self.site.dir, 256);
                if let Some(flags) = &self.jvm_flags {
                    jvm.flags.clone_from(flags);
                }
                let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
                let name = &self.site.name;
                let mut spawn = self.hadoop.java(name, &jvm, class::DATANODE, &arguments);
                spawn.log = self.log();
                Ok(spawn)
            }
            Kind::Hayloft => {
                let own = self.binary.clone().map_or_else(hayloft_binary, Ok)?;
                let binary = own.display().to_string();
                let conf = self.conf_dir().display().to_string();
                let mut argv = vec![binary, "node".into(), "--conf".into(), conf];
                argv.extend(self.arguments.iter().cloned());
                let mut spawn = Spawn::new(&self.site.name, argv, self.log());
                spawn.env.extend(self.env.iter().cloned());
                Ok(spawn)
            }
        }
    }

    /// Waits until its ports listen.
    ///
    /// # Errors
    /// With the end of its log when it ends or is late.
    pub fn wait_started(&mut self) -> Result<()> {
        let (site, process) = (&self.site, self.process.as_mut());
        let process = process.ok_or_else(|| not_running(&site.name))?;
        let of_virtual = self.virtual_nodes.iter();
        let of_virtual = of_virtual.flat_map(|node| [node.xfer(), node.ipc()]);
        let mut listeners: Vec<_> = of_virtual.collect();
        if listeners.is_empty() {
            listeners = [site.xfer_port, site.ipc_port]
                .map(|port| site.place.at(port))
                .into();
        }
        listeners.into_iter().try_for_each(|address| {
            let alive = || process.check_alive();
            site.place.wait_open_at(address, START_LIMIT, alive)
        })
    }

    /// The running process.
    ///
    /// # Errors
    /// [`ClusterError::Talk`] when it was stopped.
    pub fn process(&mut self) -> Result<&mut Process> {
        let process = self.process.as_mut();
        process.ok_or_else(|| not_running(&self.site.name))
    }

    /// Whether it was started and not stopped by us.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.process.is_some()
    }

    /// SIGTERM and wait for a clean end.
    ///
    /// # Errors
    /// When it does not end within a minute.
    pub fn stop(&mut self) -> Result<()> {
        match self.process.take() {
            Some(mut process) => process.stop(STOP_LIMIT).map(drop),
            None => Ok(()),
        }
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&mut self) -> Result<()> {
        match self.process.take() {
            Some(mut process) => process.kill().map(drop),
            None => Ok(()),
        }
    }

    /// Waits for it to end by itself (after `-shutdownDatanode`).
    ///
    /// # Errors
    /// When it still runs after `limit`.
    pub fn wait_ended(&mut self, limit: Duration) -> Result<()> {
        if let Some(process) = self.process.as_mut() {
            process.wait(limit)?;
        }
        self.process = None;
        Ok(())
    }

    /// Sends a signal such as `Signal::STOP`.
    ///
    /// # Errors
    /// When it is not running.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process()?.signal(signal)
    }

    /// Makes the next start use another kind, on the same directories and ports.
    ///
    /// # Errors
    /// When it is running.
    pub fn become_kind(&mut self, kind: Kind) -> Result<()> {
        if self.process.is_some() {
            return Err(ClusterError::Talk(format!(
                "stop {} before changing its kind",
                self.site.name
            )));
        }
        self.kind = kind;
        Ok(())
    }

    /// Files of a block (data and meta) on its volumes, whatever the replica's state.
    #[must_use]
    pub fn block_files(&self, block_id: i64) -> Vec<PathBuf> {
        let (data, meta) = (format!("blk_{block_id}"), format!("blk_{block_id}_"));
        let mut found = Vec::new();
        for volume in self.volumes() {
            collect(&volume.join("current"), &mut |path, name| {
                if name == data || name.starts_with(&meta) {
                    found.push(path);
                }
            });
        }
        found
    }

    /// Every `blk_*` file on its volumes.
    #[must_use]
    pub fn all_block_files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for volume in self.volumes() {
            collect(&volume.join("current"), &mut |path, name| {
                if name.starts_with("blk_") {
                    found.push(path);
                }
            });
        }
        found
    }
}

/// Walks a directory that may change or vanish meanwhile.
fn collect(dir: &Path, each: &mut impl FnMut(PathBuf, &str)) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&path, each);
        } else if let Some(name) = entry.file_name().to_str() {
            each(path, name);
        }
    }
}
