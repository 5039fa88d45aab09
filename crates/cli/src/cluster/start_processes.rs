//! Configuration, start and stop of each process of a cluster.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hayloft_cluster::hadoop::{Hadoop, Jvm};
use hayloft_cluster::hadoop_conf::Conf;
use hayloft_cluster::namenode::{NameNode, NameNodeSite};
use hayloft_cluster::node::{Kind, Node, NodeSite, NodeSpec, VirtualSite, VolumeSpec};
use hayloft_cluster::process::{Process, Signal, tail};
use hayloft_cluster::process_identity::ProcessIdentity;
use hayloft_cluster::where_processes_run::Place;
use hayloft_cluster::{ClusterError, http, ports};
use hayloft_console::progress::{ProgressStep, say};

use super::secure::{KDC, Secured};
use super::state_directory::{Role, StateDir, StoredCluster};
use crate::error::CliError;

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
    /// The NameNode, as it is on record.
    pub fn namenode(&self, cluster: &StoredCluster) -> Result<NameNode, CliError> {
        let role = &cluster.namenode;
        let site = NameNodeSite {
            name: role.name.clone(),
            dir: self.state.role_dir(&role.name),
            place: Place::local().staying(true),
            rpc_port: role.port,
            http_port: role.http_port.unwrap_or(0),
            heap_mib: self.namenode_heap,
        };
        let secured = Secured::of(self.state, cluster);
        let certificate = secured.map(|secured| secured.certificate());
        Ok(NameNode::new(&self.hadoop, site)?.over_tls(certificate))
    }

    /// Formats the NameNode if it never was, and starts it.
    pub fn start_namenode(&self, cluster: &StoredCluster) -> Result<ProcessIdentity, CliError> {
        let mut namenode = self.namenode(cluster)?;
        namenode.write_conf(&self.conf(cluster)?, false)?;
        if !namenode.name_dir().join("current/VERSION").is_file() {
            let step = ProgressStep::spinner("formatting the NameNode");
            namenode.format(None)?;
            step.done("");
        }
        namenode.start_without_waiting(&[])?;
        identity_of(namenode.process()?)
    }

    /// Starts the KDC, which is on record, and waits until it gives tickets.
    pub fn start_kdc(&self, secured: &Secured) -> Result<ProcessIdentity, CliError> {
        let step = ProgressStep::spinner("starting the KDC");
        secured.prepare()?;
        let mut process = Place::local()
            .staying(true)
            .put(secured.realm.kdc())
            .start()?;
        secured.realm.wait_listening(&mut process)?;
        step.done("it gives tickets");
        identity_of(&mut process)
    }

    /// A storage node, as it is on record.
    fn node(&self, cluster: &StoredCluster, role: &Role) -> Result<Node, CliError> {
        let dir = self.state.role_dir(&role.name);
        let kind = role.kind.unwrap_or(Kind::Hayloft);
        let mut spec = NodeSpec::new(kind)
            .volumes(vec![VolumeSpec::at(dir.join("data"))])
            .virtual_nodes(role.virtual_nodes.clone());
        spec.jvm_flags = Some(Jvm::small(&dir, &dir, HEAP_MIB).flags);
        let binary = std::env::current_exe()
            .map_err(|error| CliError::new(format!("cannot find this program: {error}"), "", ""))?;
        spec.binary = Some(binary);
        let http_port = role.http_port.unwrap_or(0);
        if let Some(secured) = Secured::of(self.state, cluster) {
            spec = spec.conf("dfs.datanode.https.address", ports::local(http_port));
            spec.env = secured.realm.variables_of_programs();
        }
        let site = NodeSite {
            name: role.name.clone(),
            dir,
            place: Place::local().staying(true),
            xfer_port: role.port,
            ipc_port: role.ipc_port.unwrap_or(0),
            http_port,
            log: Some(log_of(self.state, role)),
        };
        Ok(Node::new(&self.hadoop, site, spec)?)
    }

    /// Starts one storage node.
    pub fn start_node(
        &self,
        cluster: &StoredCluster,
        role: &Role,
    ) -> Result<ProcessIdentity, CliError> {
        let mut node = self.node(cluster, role)?;
        node.start_without_waiting(&self.conf(cluster)?)?;
        identity_of(node.process()?)
    }

    /// Keys of every process and client. Defaults of Hadoop, but for what one machine needs.
    fn conf(&self, cluster: &StoredCluster) -> Result<Conf, CliError> {
        let mut conf = Conf::small_cluster(self.state.path());
        self.namenode(cluster)?.address_in(&mut conf, "");
        conf.set("fs.defaultFS", cluster.uri())
            .set("dfs.replication", cluster.replication)
            // A dead node is noticed after half a minute instead of ten.
            .set("dfs.namenode.heartbeat.recheck-interval", 10_000);
        if let Some(secured) = Secured::of(self.state, cluster) {
            secured.configure(&mut conf);
        }
        Ok(conf)
    }

    /// Waits until the NameNode takes calls. Nodes that start before it must wait for their next
    /// attempt.
    pub fn wait_namenode(&self, cluster: &StoredCluster) -> Result<(), CliError> {
        let step = ProgressStep::spinner("waiting for the NameNode");
        let place = Place::local();
        let alive = || self.check_alive(&cluster.namenode);
        place.wait_open(cluster.namenode.port, START_LIMIT, alive)?;
        step.done("it listens");
        Ok(())
    }

    /// Waits until the NameNode counts every node live and has left safe mode.
    pub fn wait_ready(&self, cluster: &StoredCluster) -> Result<(), CliError> {
        let count = cluster.live_nodes();
        let step = ProgressStep::spinner(format!("waiting for {count} live nodes"));
        let namenode = self.namenode(cluster)?;
        let alive = || cluster.roles().try_for_each(|role| self.check_alive(role));
        let listening = |role: &Role| {
            let ports = match role.virtual_nodes.as_slice() {
                [] => vec![role.port],
                nodes => nodes.iter().map(|node| node.xfer_port).collect(),
            };
            let mut ports = ports.into_iter();
            ports.try_for_each(|port| Place::local().wait_open(port, START_LIMIT, alive))
        };
        let ready = namenode
            .wait_live_while(count, START_LIMIT, alive)
            .and_then(|()| cluster.nodes.iter().try_for_each(listening))
            .and_then(|()| namenode.wait_out_of_safe_mode(START_LIMIT));
        ready.map_err(|error| match error {
            ClusterError::Timeout { waited, last, .. } => CliError::new(
                format!(
                    "the cluster is not ready after {} s: {last}",
                    waited.as_secs()
                ),
                "",
                format!("see the logs in {}", self.state.path().display()),
            ),
            error => error.into(),
        })?;
        step.done("all live");
        Ok(())
    }

    fn check_alive(&self, role: &Role) -> Result<(), ClusterError> {
        if role.is_alive() {
            return Ok(());
        }
        Err(ClusterError::Process {
            name: role.name.clone(),
            problem: "ended while the cluster was starting".into(),
            tail: tail(&log_of(self.state, role)),
        })
    }

    /// Writes the configuration that clients use.
    pub fn write_client_conf(&self, cluster: &StoredCluster) -> Result<(), CliError> {
        let dir = self.state.client_conf();
        self.conf(cluster)?.write_dir(&dir)?;
        let path = dir.join("log4j.properties");
        std::fs::write(&path, CLIENT_LOG4J).map_err(CliError::file("write", &path))
    }

    /// What a client's JVM is started with.
    pub fn client_jvm(&self) -> Jvm {
        Jvm::small(&self.state.client_conf(), &self.state.logs(), HEAP_MIB)
    }
}

/// How a process that was started just now is known to later commands.
fn identity_of(process: &mut Process) -> Result<ProcessIdentity, CliError> {
    if let Some(identity) = ProcessIdentity::of(process.pid()) {
        return Ok(identity);
    }
    process.check_alive()?;
    Err(process
        .error("cannot be watched: /proc is not readable")
        .into())
}

/// A port of this host that is not among `taken`, and from now on is.
fn free_port(taken: &mut Vec<u16>) -> Result<u16, CliError> {
    loop {
        let port = ports::free()?;
        if !taken.contains(&port) {
            taken.push(port);
            return Ok(port);
        }
    }
}

/// A role with ports that no process uses, `taken` included.
pub fn new_role(name: &str, kind: Option<Kind>, taken: &[u16]) -> Result<Role, CliError> {
    let mut taken = taken.to_vec();
    let mut next = || free_port(&mut taken);
    Ok(Role {
        name: name.to_owned(),
        port: next()?,
        http_port: Some(next()?),
        ipc_port: kind.map(|_| next()).transpose()?,
        kind,
        virtual_nodes: Vec::new(),
        process: None,
    })
}

/// The role of a KDC, on a port that no process uses, `taken` included.
pub fn new_kdc(taken: &[u16]) -> Result<Role, CliError> {
    Ok(Role {
        http_port: None,
        ..new_role(KDC, None, taken)?
    })
}

/// Virtual nodes `a`, `b` and so on, with ports that no process uses, `taken` included.
pub fn new_virtual_nodes(count: u16, taken: &[u16]) -> Result<Vec<VirtualSite>, CliError> {
    let mut taken = taken.to_vec();
    let mut next = || free_port(&mut taken);
    let node = |number: u16| -> Result<VirtualSite, CliError> {
        Ok(VirtualSite {
            name: virtual_name(number),
            address: Place::local().address(),
            xfer_port: next()?,
            ipc_port: next()?,
            http_port: next()?,
        })
    };
    (0..count).map(node).collect()
}

/// The letters of the alphabet, then `a1` to `z1`, and so on.
fn virtual_name(number: u16) -> String {
    let letter = (b'a'..=b'z').nth(usize::from(number % 26));
    let letter = char::from(letter.expect("there are 26"));
    match number / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{round}"),
    }
}

/// Gives a stopped role other ports where another program took its own meanwhile.
pub fn settle_ports(role: &mut Role, taken: &[u16]) -> Result<(), CliError> {
    let mut taken = taken.to_vec();
    let name = role.name.clone();
    for port in role.ports_mut() {
        if TcpListener::bind(ports::local(*port)).is_ok() {
            continue;
        }
        let other = free_port(&mut taken)?;
        say(&format!(
            "port {port} of {name} is taken by another program: using {other}"
        ));
        *port = other;
    }
    Ok(())
}

/// The NameNode's own counts, as they are now. (Its metrics beans, which hold more, are up to ten
/// seconds old.)
pub fn namesystem(
    state: &StateDir,
    cluster: &StoredCluster,
) -> Result<serde_json::Value, ClusterError> {
    namenode_bean(state, cluster, "FSNamesystemState")
}

/// A bean of the NameNode.
pub fn namenode_bean(
    state: &StateDir,
    cluster: &StoredCluster,
    name: &str,
) -> Result<serde_json::Value, ClusterError> {
    let query = format!("Hadoop:service=NameNode,name={name}");
    let certificate = Secured::of(state, cluster).map(|secured| secured.certificate());
    let address = ports::local(cluster.namenode.http_port.unwrap_or(0));
    http::jmx_over(address, &query, certificate.as_deref())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_nodes_have_names_and_ports_of_their_own() {
        let nodes = new_virtual_nodes(30, &[]).expect("ports are free");
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!((names[0], names[25], names[26]), ("a", "z", "a1"));
        let mut ports: Vec<u16> = nodes
            .iter()
            .flat_map(|node| [node.xfer_port, node.ipc_port, node.http_port])
            .collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 90);
    }
}
