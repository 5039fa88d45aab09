//! Configuration, start and stop of each process of a cluster.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hayloft_testkit::conf::Conf;
use hayloft_testkit::hadoop::{Hadoop, Jvm, class};
use hayloft_testkit::process::{Signal, Spawn, tail};
use hayloft_testkit::{TestkitError, http, ports, wait};

use super::identity::StoredIdentity;
use super::state::{Role, StateDir, StoredCluster, StoredKind};
use crate::error::CliError;
use crate::progress::{ProgressStep, say};

/// How long a process may take to come up.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long a process may take to stop cleanly before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Heap of an Apache DataNode and of clients, MiB.
const HEAP_MIB: u32 = 512;

/// Clients of the cluster say what is wrong and nothing else.
const CLIENT_LOG4J: &str = "\
log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
";

/// Starts processes of one cluster.
#[derive(Debug)]
pub struct Launcher<'a> {
    /// Where the cluster is kept.
    pub state: &'a StateDir,
    /// The stock Hadoop.
    pub hadoop: Hadoop,
    /// Largest heap of the NameNode, MiB.
    pub namenode_heap: u32,
}

impl Launcher<'_> {
    /// Formats the NameNode if it never was, and starts it.
    pub fn start_namenode(&self, cluster: &StoredCluster) -> Result<StoredIdentity, CliError> {
        let dir = self.state.role_dir(&cluster.namenode.name);
        let mut conf = cluster_conf(self.state, cluster);
        conf.set(
            "dfs.namenode.name.dir",
            format!("file://{}", dir.join("name").display()),
        );
        let conf_dir = dir.join("conf");
        conf.write_dir(&conf_dir)?;
        let jvm = Jvm::small(&conf_dir, &dir, self.namenode_heap);
        if !dir.join("name/current/VERSION").is_file() {
            let step = ProgressStep::spinner("formatting the NameNode");
            let args = ["-format", "-nonInteractive"];
            self.hadoop
                .run("namenode-format", &jvm, class::NAMENODE, &args, START_LIMIT)?;
            step.done("");
        }
        launch(self.hadoop.java("namenode", &jvm, class::NAMENODE, &[]))
    }

    /// Starts one storage node.
    pub fn start_node(
        &self,
        cluster: &StoredCluster,
        node: &Role,
    ) -> Result<StoredIdentity, CliError> {
        let dir = self.state.role_dir(&node.name);
        let data = dir.join("data");
        std::fs::create_dir_all(&data)
            .map_err(CliError::file("create the data directory", &data))?;
        let local = |port: u16| format!("127.0.0.1:{port}");
        let mut conf = cluster_conf(self.state, cluster);
        conf.set(
            "dfs.datanode.data.dir",
            format!("file://{}", data.display()),
        )
        .set("dfs.datanode.address", local(node.port))
        .set(
            "dfs.datanode.ipc.address",
            local(node.ipc_port.unwrap_or(0)),
        )
        .set("dfs.datanode.http.address", local(node.http_port))
        .set("dfs.datanode.hostname", "127.0.0.1");
        let conf_dir = dir.join("conf");
        conf.write_dir(&conf_dir)?;
        match node.kind {
            Some(StoredKind::Apache) => {
                let jvm = Jvm::small(&conf_dir, &dir, HEAP_MIB);
                launch(self.hadoop.java(&node.name, &jvm, class::DATANODE, &[]))
            }
            _ => {
                let binary = std::env::current_exe().map_err(|error| {
                    CliError::new(format!("cannot find this program: {error}"), "", "")
                })?;
                let argv = [
                    binary.as_path(),
                    Path::new("node"),
                    Path::new("--conf"),
                    &conf_dir,
                ];
                let argv = argv.map(|part| part.display().to_string()).to_vec();
                launch(Spawn::new(
                    &node.name,
                    argv,
                    dir.join(format!("{}.log", node.name)),
                ))
            }
        }
    }

    /// Writes the configuration that clients use.
    pub fn write_client_conf(&self, cluster: &StoredCluster) -> Result<(), CliError> {
        let dir = self.state.client_conf();
        cluster_conf(self.state, cluster).write_dir(&dir)?;
        let path = dir.join("log4j.properties");
        std::fs::write(&path, CLIENT_LOG4J).map_err(CliError::file("write", &path))
    }

    /// What a client's JVM is started with.
    pub fn client_jvm(&self) -> Jvm {
        Jvm::small(&self.state.client_conf(), &self.state.logs(), HEAP_MIB)
    }
}

/// Keys of every process and client. Defaults of Hadoop, but for what one machine needs.
fn cluster_conf(state: &StateDir, cluster: &StoredCluster) -> Conf {
    let mut conf = Conf::new();
    conf.set("fs.defaultFS", cluster.uri())
        .set("hadoop.tmp.dir", state.path().join("tmp").display())
        .set(
            "dfs.namenode.rpc-address",
            format!("127.0.0.1:{}", cluster.namenode.port),
        )
        .set(
            "dfs.namenode.http-address",
            format!("127.0.0.1:{}", cluster.namenode.http_port),
        )
        .set("dfs.replication", cluster.replication)
        // Every node has the address 127.0.0.1, which no name server knows.
        .set(
            "dfs.namenode.datanode.registration.ip-hostname-check",
            false,
        )
        .set("dfs.namenode.safemode.extension", 0)
        // A dead node is noticed after half a minute instead of ten.
        .set("dfs.heartbeat.interval", 1)
        .set("dfs.namenode.heartbeat.recheck-interval", 10_000);
    conf
}

/// Starts a process that outlives this one.
fn launch(mut spawn: Spawn) -> Result<StoredIdentity, CliError> {
    spawn.detached = true;
    let mut process = spawn.start()?;
    match StoredIdentity::of(process.pid()) {
        Some(identity) => Ok(identity),
        None => {
            process.check_alive()?;
            Err(process
                .error("cannot be watched: /proc is not readable")
                .into())
        }
    }
}

/// A role with ports that no process uses, `taken` included.
pub fn new_role(name: &str, kind: Option<StoredKind>, taken: &[u16]) -> Result<Role, CliError> {
    let mut taken = taken.to_vec();
    let mut next = || -> Result<u16, CliError> {
        loop {
            let port = ports::free()?;
            if !taken.contains(&port) {
                taken.push(port);
                return Ok(port);
            }
        }
    };
    let (port, http_port) = (next()?, next()?);
    let ipc_port = if kind.is_some() { Some(next()?) } else { None };
    Ok(Role {
        name: name.to_owned(),
        port,
        http_port,
        ipc_port,
        kind,
        process: None,
    })
}

/// Gives a stopped role other ports where someone else took its own meanwhile.
pub fn settle_ports(role: &mut Role, taken: &[u16]) -> Result<(), CliError> {
    let lost = |port: u16| TcpListener::bind(ports::local(port)).is_err();
    let fresh = new_role(&role.name, role.kind, taken)?;
    for (mine, other) in [
        (&mut role.port, fresh.port),
        (&mut role.http_port, fresh.http_port),
    ] {
        if lost(*mine) {
            say(&format!(
                "port {mine} of {} is taken by another program: using {other}",
                role.name
            ));
            *mine = other;
        }
    }
    if let (Some(mine), Some(other)) = (role.ipc_port.as_mut(), fresh.ipc_port)
        && lost(*mine)
    {
        say(&format!(
            "port {mine} of {} is taken by another program: using {other}",
            role.name
        ));
        *mine = other;
    }
    Ok(())
}

/// Waits until the NameNode takes calls. Nodes that start before it must wait for their next
/// attempt.
pub fn wait_namenode(state: &StateDir, cluster: &StoredCluster) -> Result<(), CliError> {
    let step = ProgressStep::spinner("waiting for the NameNode");
    let log = log_of(state, &cluster.namenode);
    wait::port_open(ports::local(cluster.namenode.port), START_LIMIT, || {
        if cluster.namenode.is_alive() {
            return Ok(());
        }
        let problem = "ended while it was starting".to_owned();
        Err(TestkitError::Process {
            name: "namenode".to_owned(),
            problem,
            tail: tail(&log),
        })
    })?;
    step.done("it listens");
    Ok(())
}

/// Waits until the NameNode counts every node live and has left safe mode.
pub fn wait_ready(state: &StateDir, cluster: &StoredCluster) -> Result<(), CliError> {
    let start = Instant::now();
    let step = ProgressStep::spinner(format!("waiting for {} live nodes", cluster.nodes.len()));
    let mut last = "the NameNode does not answer yet".to_owned();
    while start.elapsed() < START_LIMIT {
        if let Some(dead) = cluster.roles().find(|role| !role.is_alive()) {
            let log = log_of(state, dead);
            let what = format!("{} ended while the cluster was starting", dead.name);
            return Err(CliError::new(
                what,
                log.display().to_string(),
                format!("the end of its log says why\n{}", tail(&log)),
            ));
        }
        match readiness(cluster) {
            Ok(None) => {
                step.done("all live");
                return Ok(());
            }
            Ok(Some(missing)) => last = missing,
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let advice = format!("see the logs in {}", state.path().display());
    Err(CliError::new(
        format!(
            "the cluster is not ready after {} s: {last}",
            START_LIMIT.as_secs()
        ),
        "",
        advice,
    ))
}

/// `None` when ready, else what is missing.
fn readiness(cluster: &StoredCluster) -> Result<Option<String>, TestkitError> {
    let live = live_nodes(cluster)?;
    let listening = cluster.nodes.iter().filter(|node| {
        let limit = Duration::from_millis(500);
        std::net::TcpStream::connect_timeout(&ports::local(node.port), limit).is_ok()
    });
    let wanted = cluster.nodes.len();
    let listening = listening.count();
    if live < wanted || listening < wanted {
        return Ok(Some(format!(
            "{live} of {wanted} nodes live, {listening} listening"
        )));
    }
    let info = namenode_bean(cluster, "NameNodeInfo")?;
    let safe_mode = info["Safemode"].as_str().unwrap_or("unknown");
    Ok((!safe_mode.is_empty()).then(|| safe_mode.to_owned()))
}

/// Nodes that the NameNode counts live.
pub fn live_nodes(cluster: &StoredCluster) -> Result<usize, TestkitError> {
    let bean = namesystem(cluster)?;
    Ok(bean["NumLiveDataNodes"]
        .as_u64()
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(0))
}

/// The NameNode's own counts, as they are now. (Its metrics beans, which hold more, are up to ten
/// seconds old.)
pub fn namesystem(cluster: &StoredCluster) -> Result<serde_json::Value, TestkitError> {
    namenode_bean(cluster, "FSNamesystemState")
}

/// A bean of the NameNode.
pub fn namenode_bean(
    cluster: &StoredCluster,
    name: &str,
) -> Result<serde_json::Value, TestkitError> {
    let query = format!("Hadoop:service=NameNode,name={name}");
    http::jmx(ports::local(cluster.namenode.http_port), &query)
}

/// The log of a process.
pub fn log_of(state: &StateDir, role: &Role) -> PathBuf {
    state
        .role_dir(&role.name)
        .join(format!("{}.log", role.name))
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It did not run.
    WasNotRunning,
    /// It stopped when asked.
    Cleanly,
    /// It had to be killed.
    Killed,
}

/// Asks processes to stop, all at once, and waits for each; kills what does not stop in time.
pub fn stop(roles: &[&Role]) -> Result<Vec<Ended>, CliError> {
    let fail = |role: &Role, error: std::io::Error| {
        CliError::new(
            format!("cannot stop {}: {error}", role.name),
            "",
            "run this as the user that started it",
        )
    };
    let mut endings = Vec::new();
    for role in roles {
        if let Some(process) = role.process.as_ref().filter(|process| process.is_alive()) {
            process
                .signal(Signal::TERM)
                .map_err(|error| fail(role, error))?;
            endings.push(Ended::Cleanly);
        } else {
            endings.push(Ended::WasNotRunning);
        }
    }
    let deadline = Instant::now() + STOP_LIMIT;
    for (role, ending) in roles.iter().zip(&mut endings) {
        let Some(process) = role.process.as_ref().filter(|_| *ending == Ended::Cleanly) else {
            continue;
        };
        if !process.wait_gone(deadline.saturating_duration_since(Instant::now())) {
            say(&format!(
                "{} does not stop within {} s: killing it",
                role.name,
                STOP_LIMIT.as_secs()
            ));
            process
                .signal(Signal::KILL)
                .map_err(|error| fail(role, error))?;
            process.wait_gone(Duration::from_secs(10));
            *ending = Ended::Killed;
        }
    }
    Ok(endings)
}
