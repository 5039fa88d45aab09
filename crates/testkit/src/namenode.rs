//! A stock NameNode process.

use crate::conf::Conf;
use crate::error::{Result, TestkitError};
use crate::hadoop::{Hadoop, Jvm, class};
use crate::http;
use crate::ports;
use crate::process::Process;
use crate::wait::{self, Seen};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a NameNode may take to start on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(90);

/// A stock NameNode: its directory, ports and process.
#[derive(Debug)]
pub struct NameNode {
    hadoop: Hadoop,
    name: String,
    nameservice: String,
    id: String,
    dir: PathBuf,
    name_dir: PathBuf,
    rpc_port: u16,
    http_port: u16,
    process: Option<Process>,
}

impl NameNode {
    /// A NameNode of `nameservice` (with `id` inside an HA pair, else empty) under `dir`.
    pub fn new(hadoop: &Hadoop, nameservice: &str, id: &str, dir: &Path) -> Result<Self> {
        let name = format!("namenode-{nameservice}{id}");
        let dir = dir.join(&name);
        std::fs::create_dir_all(&dir).map_err(TestkitError::file("creating", &dir))?;
        Ok(Self {
            hadoop: hadoop.clone(),
            name,
            nameservice: nameservice.into(),
            id: id.into(),
            name_dir: dir.join("name"),
            dir,
            rpc_port: ports::free()?,
            http_port: ports::free()?,
            process: None,
        })
    }

    /// The nameservice it belongs to.
    #[must_use]
    pub fn nameservice(&self) -> &str {
        &self.nameservice
    }

    /// Its id inside an HA pair; empty without HA.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `127.0.0.1:port` of its RPC server.
    #[must_use]
    pub fn rpc(&self) -> String {
        format!("127.0.0.1:{}", self.rpc_port)
    }

    /// Port of its HTTP server.
    #[must_use]
    pub fn http_port(&self) -> u16 {
        self.http_port
    }

    /// `hdfs://host:port`, for clients that address this NameNode alone.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("hdfs://{}", self.rpc())
    }

    /// Where its image and edits are.
    #[must_use]
    pub fn name_dir(&self) -> PathBuf {
        self.name_dir.clone()
    }

    /// Has its image and edits below `dir` from its format on.
    pub fn keep_names_in(&mut self, dir: &Path) {
        self.name_dir = dir.join(&self.name);
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }

    fn conf_dir(&self) -> PathBuf {
        self.dir.join("conf")
    }

    /// Writes its configuration: the cluster's, plus who it is.
    pub fn write_conf(&self, cluster: &Conf, suffixed: bool) -> Result<()> {
        let mut conf = cluster.clone();
        conf.set(
            "dfs.namenode.name.dir",
            format!("file://{}", self.name_dir().display()),
        );
        if suffixed {
            conf.set("dfs.nameservice.id", &self.nameservice);
            if !self.id.is_empty() {
                conf.set("dfs.ha.namenode.id", &self.id);
            }
        }
        conf.write_dir(&self.conf_dir())
    }

    fn jvm(&self) -> Jvm {
        Jvm::small(&self.conf_dir(), &self.dir, 384)
    }

    /// Formats its name directory (and the shared edits of a pair), losing what was there.
    ///
    /// # Errors
    /// With the format log when Hadoop refuses.
    pub fn format(&self, cluster_id: &str) -> Result<()> {
        let name = format!("{}-format", self.name);
        let args = [
            "-format",
            "-force",
            "-nonInteractive",
            "-clusterid",
            cluster_id,
        ];
        self.hadoop
            .run(&name, &self.jvm(), class::NAMENODE, &args, START_LIMIT)
    }

    /// Starts it (with further arguments such as `-rollingUpgrade`, `started`) and waits for its
    /// ports.
    ///
    /// # Errors
    /// With the end of its log when it ends or does not listen in time.
    pub fn start(&mut self, args: &[&str]) -> Result<()> {
        self.start_without_waiting(args)?;
        self.wait_started()
    }

    pub(crate) fn start_without_waiting(&mut self, args: &[&str]) -> Result<()> {
        let spawn = self
            .hadoop
            .java(&self.name, &self.jvm(), class::NAMENODE, args);
        self.process = Some(spawn.start()?);
        Ok(())
    }

    /// Waits until RPC and HTTP listen.
    ///
    /// # Errors
    /// As [`NameNode::start`].
    pub fn wait_started(&mut self) -> Result<()> {
        let (rpc, http) = (ports::local(self.rpc_port), ports::local(self.http_port));
        let process = self
            .process
            .as_mut()
            .ok_or_else(|| not_running(&self.name))?;
        wait::port_open(http, START_LIMIT, || process.check_alive())?;
        wait::port_open(rpc, START_LIMIT, || process.check_alive())
    }

    /// The running process.
    ///
    /// # Errors
    /// [`TestkitError::Talk`] when it was stopped.
    pub fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().ok_or_else(|| not_running(&self.name))
    }

    /// SIGTERM and wait.
    ///
    /// # Errors
    /// When it does not end within 30 s.
    pub fn stop(&mut self) -> Result<()> {
        match self.process.take() {
            Some(mut process) => process.stop(Duration::from_secs(30)).map(drop),
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

    /// Its `FSNamesystem...` bean of the given name.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn bean(&self, name: &str) -> Result<serde_json::Value> {
        http::jmx(
            ports::local(self.http_port),
            &format!("Hadoop:service=NameNode,name={name}"),
        )
    }

    /// Waits until exactly `count` nodes are live.
    ///
    /// # Errors
    /// [`TestkitError::Timeout`].
    pub fn wait_live(&self, count: usize, limit: Duration) -> Result<()> {
        self.wait_bean(
            &format!("{count} live nodes"),
            "FSNamesystemState",
            limit,
            |bean| {
                (
                    bean["NumLiveDataNodes"].as_u64() == u64::try_from(count).ok(),
                    bean["NumLiveDataNodes"].to_string(),
                )
            },
        )
    }

    /// Waits until it has left safe mode.
    ///
    /// # Errors
    /// [`TestkitError::Timeout`].
    pub fn wait_out_of_safe_mode(&self, limit: Duration) -> Result<()> {
        self.wait_bean("the end of safe mode", "NameNodeInfo", limit, |bean| {
            let text = bean["Safemode"].as_str().unwrap_or("unknown").to_owned();
            (text.is_empty(), text)
        })
    }

    /// Waits until `done` of a bean; `done` returns the verdict and what it saw.
    ///
    /// # Errors
    /// [`TestkitError::Timeout`] with what was last seen.
    pub fn wait_bean(
        &self,
        what: &str,
        bean: &str,
        limit: Duration,
        mut done: impl FnMut(&serde_json::Value) -> (bool, String),
    ) -> Result<()> {
        wait::until(&format!("{what} at {}", self.name), limit, || {
            Ok(match self.bean(bean).map(|bean| done(&bean)) {
                Ok((true, _)) => Seen::Done(()),
                Ok((false, seen)) => Seen::NotYet(seen),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
    }
}

fn not_running(name: &str) -> TestkitError {
    TestkitError::Talk(format!("{name} is not running"))
}
