//! A stock NameNode process.

use crate::error::{ClusterError, Result};
use crate::hadoop::{Hadoop, Jvm, class};
use crate::hadoop_conf::Conf;
use crate::http;
use crate::process::Process;
use crate::wait::{self, Seen};
use crate::where_processes_run::Place;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Beginning of a file of edits that was made and not begun.
const UNBEGUN: [u8; 4] = [0xFF; 4];

/// How long a NameNode may take to start on a busy machine.
pub const START_LIMIT: Duration = Duration::from_secs(180);

/// Where a NameNode is, and under which name and ports.
#[derive(Clone, Debug)]
pub struct NameNodeSite {
    /// Its name, for messages and logs.
    pub name: String,
    /// Its directory: `conf` and `name` below it, and its log.
    pub dir: PathBuf,
    /// Where its process runs, and for how long.
    pub place: Place,
    /// Port of the RPC server.
    pub rpc_port: u16,
    /// Port of the HTTP server.
    pub http_port: u16,
    /// Largest heap, MiB.
    pub heap_mib: u32,
}

/// A stock NameNode: its directory, ports and process.
#[derive(Debug)]
pub struct NameNode {
    hadoop: Hadoop,
    site: NameNodeSite,
    nameservice: String,
    id: String,
    name_dir: PathBuf,
    /// Of its web server, which speaks HTTPS alone then.
    certificate: Option<PathBuf>,
    process: Option<Process>,
}

impl NameNode {
    /// A NameNode on its own that does not run yet; its directory is made.
    ///
    /// # Errors
    /// [`ClusterError::File`].
    pub fn new(hadoop: &Hadoop, site: NameNodeSite) -> Result<Self> {
        let dir = &site.dir;
        std::fs::create_dir_all(dir).map_err(ClusterError::file("creating", dir))?;
        Ok(Self {
            hadoop: hadoop.clone(),
            name_dir: dir.join("name"),
            site,
            nameservice: String::new(),
            id: String::new(),
            certificate: None,
            process: None,
        })
    }

    /// The same as a member of `nameservice`, with `id` inside an HA pair, else empty.
    #[must_use]
    pub fn in_nameservice(mut self, nameservice: &str, id: &str) -> Self {
        self.nameservice = nameservice.into();
        self.id = id.into();
        self
    }

    /// The same with a web server that speaks HTTPS alone, and has this certificate (PEM).
    #[must_use]
    pub fn over_tls(mut self, certificate: Option<PathBuf>) -> Self {
        self.certificate = certificate;
        self
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

    /// `address:port` of its RPC server.
    #[must_use]
    pub fn rpc(&self) -> String {
        self.site.place.at(self.site.rpc_port).to_string()
    }

    /// `address:port` of its HTTP server.
    #[must_use]
    pub fn http(&self) -> String {
        self.site.place.at(self.site.http_port).to_string()
    }

    /// Port of its HTTP server.
    #[must_use]
    pub fn http_port(&self) -> u16 {
        self.site.http_port
    }

    /// Says in a configuration where it is; `suffix` tells several NameNodes apart.
    pub fn address_in(&self, conf: &mut Conf, suffix: &str) {
        let web = match self.certificate {
            Some(_) => "https",
            None => "http",
        };
        conf.set(format!("dfs.namenode.rpc-address{suffix}"), self.rpc())
            .set(format!("dfs.namenode.{web}-address{suffix}"), self.http());
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
        self.name_dir = dir.join(&self.site.name);
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.site.dir.join(format!("{}.log", self.site.name))
    }

    /// Its configuration directory; its web server serves what is in `webapps` below it.
    #[must_use]
    pub fn conf_dir(&self) -> PathBuf {
        self.site.dir.join("conf")
    }

    /// Writes its configuration: the cluster's, plus who it is where there are several.
    ///
    /// # Errors
    /// [`ClusterError::File`].
    pub fn write_conf(&self, cluster: &Conf, suffixed: bool) -> Result<()> {
        let mut conf = cluster.clone();
        let name_dir = format!("file://{}", self.name_dir.display());
        conf.set("dfs.namenode.name.dir", name_dir);
        if suffixed {
            conf.set("dfs.nameservice.id", &self.nameservice);
            if !self.id.is_empty() {
                conf.set("dfs.ha.namenode.id", &self.id);
            }
        }
        conf.write_dir(&self.conf_dir())
    }

    fn jvm(&self) -> Jvm {
        Jvm::small(&self.conf_dir(), &self.site.dir, self.site.heap_mib)
    }

    /// Formats its name directory (and the shared edits of a pair). With a cluster id, what was
    /// there is lost; without one Hadoop makes one up, and refuses where there is something.
    ///
    /// # Errors
    /// With the format log when Hadoop refuses.
    pub fn format(&self, cluster_id: Option<&str>) -> Result<()> {
        let name = format!("{}-format", self.site.name);
        let mut args = vec!["-format", "-nonInteractive"];
        if let Some(id) = cluster_id {
            args.extend(["-force", "-clusterid", id]);
        }
        let (jvm, main) = (self.jvm(), class::NAMENODE);
        self.hadoop.run(&name, &jvm, main, &args, START_LIMIT)
    }

    /// Makes its name directory anew, as a copy of its running partner's.
    ///
    /// # Errors
    /// With the log when Hadoop refuses.
    pub fn bootstrap_standby(&self) -> Result<()> {
        let name = format!("{}-bootstrap", self.site.name);
        let args = ["-bootstrapStandby", "-force", "-nonInteractive"];
        let (jvm, main) = (self.jvm(), class::NAMENODE);
        self.hadoop.run(&name, &jvm, main, &args, START_LIMIT)
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

    /// Starts it, with further arguments.
    ///
    /// # Errors
    /// When it cannot be started at all.
    pub fn start_without_waiting(&mut self, args: &[&str]) -> Result<()> {
        let (name, jvm) = (&self.site.name, self.jvm());
        let spawn = self.hadoop.java(name, &jvm, class::NAMENODE, args);
        self.process = Some(self.site.place.put(spawn).start()?);
        Ok(())
    }

    /// Waits until RPC and HTTP listen.
    ///
    /// # Errors
    /// As [`NameNode::start`].
    pub fn wait_started(&mut self) -> Result<()> {
        let (site, process) = (&self.site, self.process.as_mut());
        let process = process.ok_or_else(|| not_running(&site.name))?;
        [site.http_port, site.rpc_port]
            .into_iter()
            .try_for_each(|port| {
                let alive = || process.check_alive();
                site.place.wait_open(port, START_LIMIT, alive)
            })
    }

    /// The running process.
    ///
    /// # Errors
    /// [`ClusterError::Talk`] when it was stopped.
    pub fn process(&mut self) -> Result<&mut Process> {
        self.process
            .as_mut()
            .ok_or_else(|| not_running(&self.site.name))
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
            Some(mut process) => process.kill().map(drop)?,
            None => return Ok(()),
        }
        self.remove_unbegun_edits()
    }

    /// A kill may leave a file of edits without its first bytes. Nothing is in it, and a NameNode
    /// that finds it there does not become active: an operator removes it.
    fn remove_unbegun_edits(&self) -> Result<()> {
        let current = self.name_dir.join("current");
        for entry in std::fs::read_dir(&current).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if !name.to_string_lossy().starts_with("edits_inprogress_") {
                continue;
            }
            let mut first = [0; 4];
            let read = File::open(&path).and_then(|mut file| file.read_exact(&mut first));
            if read.is_ok() && first == UNBEGUN {
                std::fs::remove_file(&path).map_err(ClusterError::file("removing", &path))?;
            }
        }
        Ok(())
    }

    /// Its bean of the given name, such as `FSNamesystemState`.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn bean(&self, name: &str) -> Result<serde_json::Value> {
        self.jmx(format!("Hadoop:service=NameNode,name={name}"))
    }

    /// A bean by its full name.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn jmx(&self, query: String) -> Result<serde_json::Value> {
        let address = self.site.place.at(self.site.http_port);
        let certificate = self.certificate.clone();
        let place = &self.site.place;
        place.within(move || http::jmx_over(address, &query, certificate.as_deref()))
    }

    /// Waits until exactly `count` nodes are live.
    ///
    /// # Errors
    /// [`ClusterError::Timeout`].
    pub fn wait_live(&self, count: usize, limit: Duration) -> Result<()> {
        self.wait_live_while(count, limit, || Ok(()))
    }

    /// As [`NameNode::wait_live`]; `alive` may end the wait with an error.
    ///
    /// # Errors
    /// [`ClusterError::Timeout`], or what `alive` reports.
    pub fn wait_live_while(
        &self,
        count: usize,
        limit: Duration,
        alive: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let what = format!("{count} live nodes");
        let count = u64::try_from(count).ok();
        let live = |bean: &serde_json::Value| {
            let live = &bean["NumLiveDataNodes"];
            (live.as_u64() == count, live.to_string())
        };
        self.poll_bean(&what, "FSNamesystemState", limit, alive, live)
    }

    /// Waits until it has left safe mode.
    ///
    /// # Errors
    /// [`ClusterError::Timeout`].
    pub fn wait_out_of_safe_mode(&self, limit: Duration) -> Result<()> {
        self.wait_bean("the end of safe mode", "NameNodeInfo", limit, |bean| {
            let text = bean["Safemode"].as_str().unwrap_or("unknown").to_owned();
            (text.is_empty(), text)
        })
    }

    /// Waits until `done` of a bean; `done` returns the verdict and what it saw.
    ///
    /// # Errors
    /// [`ClusterError::Timeout`] with what was last seen.
    pub fn wait_bean(
        &self,
        what: &str,
        bean: &str,
        limit: Duration,
        done: impl FnMut(&serde_json::Value) -> (bool, String),
    ) -> Result<()> {
        self.poll_bean(what, bean, limit, || Ok(()), done)
    }

    fn poll_bean(
        &self,
        what: &str,
        bean: &str,
        limit: Duration,
        mut alive: impl FnMut() -> Result<()>,
        mut done: impl FnMut(&serde_json::Value) -> (bool, String),
    ) -> Result<()> {
        wait::until(&format!("{what} at {}", self.site.name), limit, || {
            alive()?;
            Ok(match self.bean(bean).map(|bean| done(&bean)) {
                Ok((true, _)) => Seen::Done(()),
                Ok((false, seen)) => Seen::NotYet(seen),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
    }
}

pub(crate) fn not_running(name: &str) -> ClusterError {
    ClusterError::Talk(format!("{name} is not running"))
}
