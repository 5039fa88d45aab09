//! YARN: a stock ResourceManager and stock NodeManagers, for MapReduce over any file system.
//!
//! - `conf`: configuration of YARN's processes and of jobs
//! - `history`: what ended jobs did, by the histories that ApplicationMasters write
//!
//! A NodeManager starts every container in a session of its own, and containers survive their
//! NodeManager. So each NodeManager is the first process of a PID namespace: when it ends, the
//! kernel kills all others there, however we end.

mod conf;
mod history;

pub use history::{FinishedJob, JobCounters};

use crate::driver::Driver;
use crate::error::{Result, TestkitError};
use crate::hadoop::{Hadoop, Jvm, class};
use crate::hadoop_conf::Conf;
use crate::http;
use crate::mounts;
use crate::process::Process;
use crate::process_identity::ProcessIdentity;
use crate::wait::{self, Seen};
use crate::where_processes_run::Place;
use conf::ManagerPorts;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long all NodeManagers together may take to register: they start at the same time, on
/// machines with two processors.
const REGISTER_LIMIT: Duration = Duration::from_secs(240);
/// How long the containers of a killed NodeManager may take to be gone.
const CONTAINERS_LIMIT: Duration = Duration::from_secs(20);
/// Heaps, MiB.
const MANAGER_HEAP_MIB: u32 = 256;
const WORKER_HEAP_MIB: u32 = 128;

/// What makes a process the first one of a PID namespace that ends with its parent, with the
/// mounts that others make and undo later.
const OWN_PIDS: [&str; 7] = [
    "unshare",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation",
    "slave",
];

/// Where YARN runs, and how large it is.
#[derive(Clone, Debug)]
pub struct YarnSite {
    /// Its directory, made anew: configuration, logs, local directories of the NodeManagers.
    pub dir: PathBuf,
    /// Where the ResourceManager runs.
    pub manager: Place,
    /// Where NodeManagers run.
    pub workers: Vec<YarnWorker>,
    /// Containers that a NodeManager runs at a time; one of a job's is its ApplicationMaster.
    pub containers: u32,
    /// Heartbeats, and clients' questions, come at Hadoop's default intervals or those of the given
    /// configuration, and not at the short ones of tests.
    pub stock_intervals: bool,
}

/// Where a NodeManager runs; several may share a place.
#[derive(Clone, Debug)]
pub struct YarnWorker {
    /// The place.
    pub place: Place,
    /// Its host's name: a map task is local to data when the file system says the same name.
    pub name: String,
    /// Variables of its environment beside ours; containers get those that the configuration's
    /// `yarn.nodemanager.env-whitelist` names.
    pub env: Vec<(String, String)>,
}

impl YarnWorker {
    /// A worker whose host is named by its address, as the testkit's DataNodes name theirs.
    #[must_use]
    pub fn at(place: Place) -> Self {
        let name = place.address().to_string();
        Self {
            place,
            name,
            env: Vec::new(),
        }
    }
}

/// A running YARN. Dropping it kills everything, containers included.
#[derive(Debug)]
pub struct Yarn {
    dir: PathBuf,
    job_conf: Value,
    manager: (Process, Place, u16),
    workers: Vec<Option<NodeManager>>,
}

impl Yarn {
    /// Starts it and waits until every NodeManager has registered. `conf` is the configuration of
    /// the file system's clients: `fs.defaultFS`, and what belongs to it.
    ///
    /// # Errors
    /// [`TestkitError::Missing`] where PID namespaces are not allowed; when a process ends, with
    /// its log; when NodeManagers are not registered within four minutes.
    pub fn start(hadoop: &Hadoop, conf: &Conf, site: YarnSite) -> Result<Self> {
        may_have_own_pids()?;
        let dir = &site.dir;
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(TestkitError::file("removing", dir)(error));
            }
            _ => {}
        }
        std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
        let ports = ManagerPorts::choose()?;
        let common = conf::common(conf, hadoop, &site, &ports)?;
        let hosts = conf::write_hosts_file(&site)?;
        let job_conf = conf::of_jobs(&common, &hosts);
        let manager_dir = dir.join("resourcemanager");
        conf::write_manager(&common, &manager_dir.join("conf"))?;
        let mut jvm = Jvm::small(&manager_dir.join("conf"), &manager_dir, MANAGER_HEAP_MIB);
        jvm.flags.push(hosts.clone());
        let spawn = hadoop.java("resourcemanager", &jvm, class::RESOURCE_MANAGER, &[]);
        let process = site.manager.put(spawn).start()?;
        let mut yarn = Self {
            manager: (process, site.manager.clone(), ports.web),
            workers: Vec::new(),
            dir: site.dir.clone(),
            job_conf,
        };
        for (at, worker) in site.workers.iter().enumerate() {
            let name = format!("nodemanager-{at}");
            let own = dir.join(&name);
            conf::write_worker(&common, &worker.place, &own, site.containers)?;
            let started = NodeManager::start(hadoop, worker, (&name, &own), &hosts)?;
            yarn.workers.push(Some(started));
        }
        yarn.wait_registered(site.workers.len())?;
        Ok(yarn)
    }

    /// Waits until so many NodeManagers are registered and live.
    ///
    /// # Errors
    /// When a process ends, with its log; when they are not within four minutes.
    pub fn wait_registered(&mut self, count: usize) -> Result<()> {
        let what = format!(
            "{count} NodeManagers (logs are below {})",
            self.dir.display()
        );
        wait::until(&what, REGISTER_LIMIT, || {
            self.manager.0.check_alive()?;
            for worker in self.workers.iter_mut().flatten() {
                worker.process.check_alive()?;
            }
            Ok(match self.live() {
                Ok(live) if live == count => Seen::Done(()),
                Ok(live) => Seen::NotYet(format!("{live} registered")),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
    }

    /// NodeManagers that the ResourceManager has.
    fn live(&self) -> Result<usize> {
        let (_, place, port) = &self.manager;
        let address = place.at(*port);
        let bean = place.within(move || {
            http::jmx(
                address,
                "Hadoop:service=ResourceManager,name=ClusterMetrics",
            )
        })?;
        let live = bean["NumActiveNMs"].as_u64();
        let live = live.and_then(|live| usize::try_from(live).ok());
        live.ok_or_else(|| TestkitError::Talk("the ResourceManager counts no NodeManagers".into()))
    }

    /// What makes [`crate::Driver::tool_with`] run a MapReduce program here, as
    /// [`crate::Driver::local_jobs`] makes it run in the driver's own JVM.
    #[must_use]
    pub fn job_conf(&self) -> Value {
        self.job_conf.clone()
    }

    /// The jobs that have ended, in the order in which they were submitted; `fs` is a client of the
    /// file system.
    ///
    /// # Errors
    /// When a history cannot be read.
    pub fn finished(&self, fs: &Driver) -> Result<Vec<FinishedJob>> {
        history::read_all(fs, conf::HISTORIES)
    }

    /// Where its logs are, those of containers included: what to read after a failed job.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Kills a NodeManager with its containers. Nothing to do for one that is off.
    ///
    /// # Errors
    /// When something still runs after a while.
    pub fn kill_worker(&mut self, at: usize) -> Result<()> {
        let worker = self.workers.get_mut(at).and_then(Option::take);
        worker.map_or(Ok(()), NodeManager::kill)
    }
}

impl Drop for Yarn {
    fn drop(&mut self) {
        // Containers first: an ApplicationMaster without ResourceManager would try again for long.
        for at in 0..self.workers.len() {
            if let Err(error) = self.kill_worker(at) {
                eprintln!("nodemanager-{at}: {error}");
            }
        }
    }
}

/// A NodeManager in a PID namespace of its own.
#[derive(Debug)]
struct NodeManager {
    /// The parent of the namespace's first process.
    process: Process,
}

impl NodeManager {
    fn start(
        hadoop: &Hadoop,
        worker: &YarnWorker,
        (name, dir): (&str, &Path),
        hosts: &str,
    ) -> Result<Self> {
        let mut jvm = Jvm::small(&dir.join("conf"), dir, WORKER_HEAP_MIB);
        // Without performance data: every one is process 1 and would write the same file.
        jvm.flags
            .extend([hosts.to_owned(), "-XX:-UsePerfData".into()]);
        let mut spawn = hadoop.java(name, &jvm, class::NODE_MANAGER, &[]);
        spawn.argv.splice(..0, OWN_PIDS.map(String::from));
        spawn.env.push(("JAVA_HOME".into(), java_home()?));
        spawn.env.extend(worker.env.iter().cloned());
        let process = worker.place.put(spawn).start()?;
        Ok(Self { process })
    }

    /// Kills it, and waits until the kernel has killed what it started.
    fn kill(mut self) -> Result<()> {
        let first = first_child(self.process.pid());
        self.process.kill()?;
        let gone = first.is_none_or(|first| first.wait_gone(CONTAINERS_LIMIT));
        gone.then_some(()).ok_or_else(|| {
            let problem = format!("containers still run after {CONTAINERS_LIMIT:?}");
            self.process.error(problem)
        })
    }
}

impl Drop for NodeManager {
    fn drop(&mut self) {
        // The namespace goes with the process; this waits for neither.
        let _ended_already = self.process.kill();
    }
}

/// The first process of the namespace whose parent this is; it ends after all others.
fn first_child(parent: u32) -> Option<ProcessIdentity> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(path).ok()?;
    let first = children.split_whitespace().next()?;
    ProcessIdentity::of(first.parse().ok()?)
}

/// Whether a process can have a PID namespace here.
fn may_have_own_pids() -> Result<()> {
    let tried = mounts::run(Command::new(OWN_PIDS[0]).args(&OWN_PIDS[1..]).arg("true"));
    tried.map(drop).map_err(|error| TestkitError::Missing {
        what: format!("a PID namespace for a NodeManager's containers ({error})"),
        todo: "run this as root, and install util-linux".into(),
    })
}

/// Where the JVM of containers is: `JAVA_HOME`, else that of `java` in the path.
fn java_home() -> Result<String> {
    if let Some(home) = std::env::var_os("JAVA_HOME").filter(|home| !home.is_empty()) {
        return Ok(home.to_string_lossy().into_owned());
    }
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let java = std::env::split_paths(&dirs).map(|dir| dir.join("java"));
    let java = java.filter_map(|java| java.canonicalize().ok()).next();
    let home = java
        .as_deref()
        .and_then(Path::parent)
        .and_then(Path::parent);
    let home = home.map(|home| home.display().to_string());
    home.ok_or_else(|| TestkitError::Missing {
        what: "a JDK".into(),
        todo: "install one, or set JAVA_HOME".into(),
    })
}
