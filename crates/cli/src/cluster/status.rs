//! `hayloft status`: what runs, where it answers, whether it is well.

use std::fmt;
use std::process::ExitCode;

use hayloft_console::progress::megabytes;
use serde::Serialize;

use super::secure::{PROTECTION, Secured};
use super::start_processes;
use super::state_directory::{Role, StateDir, StoredCluster};
use crate::args::StatusArgs;
use crate::error::{CliError, FINDING};

/// One process.
#[derive(Debug, Serialize)]
pub struct ProcessStatus {
    name: String,
    kind: &'static str,
    address: String,
    /// Where the RPC server of a storage node answers.
    rpc: Option<String>,
    /// Where its web server answers; the KDC has none.
    http: Option<String>,
    running: bool,
    pid: Option<i32>,
    log: String,
    /// The virtual nodes of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    virtual_nodes: Vec<VirtualStatus>,
}

/// One virtual node of a process.
#[derive(Debug, Serialize)]
pub struct VirtualStatus {
    name: String,
    address: String,
    rpc: String,
}

/// The cluster as it is now.
#[derive(Debug, Serialize)]
pub struct StatusReport {
    state: String,
    file_system: String,
    conf: String,
    live_nodes: Option<usize>,
    /// How many there should be.
    nodes: usize,
    files: Option<u64>,
    used_bytes: Option<u64>,
    missing_blocks: Option<u64>,
    /// What protects it, if anything does.
    #[serde(skip_serializing_if = "Option::is_none")]
    protection: Option<&'static str>,
    /// Variables that clients need besides `HADOOP_CONF_DIR`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    environment: Vec<String>,
    processes: Vec<ProcessStatus>,
}

impl StatusReport {
    fn is_well(&self) -> bool {
        self.processes.iter().all(|process| process.running)
            && self.live_nodes.is_some_and(|live| live >= self.nodes)
            && self.missing_blocks == Some(0)
    }
}

/// Prints the report; a finding if anything is not as it should be.
pub fn run(args: &StatusArgs) -> Result<ExitCode, CliError> {
    let state = StateDir::new(&args.place.state())?;
    let report = report(&state, &state.require()?);
    if args.json {
        crate::json::print_json(&report)?;
    } else {
        print!("{report}");
    }
    Ok(if report.is_well() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FINDING)
    })
}

/// Looks at the processes and asks the NameNode.
pub fn report(state: &StateDir, cluster: &StoredCluster) -> StatusReport {
    let secured = Secured::of(state, cluster);
    let scheme = secured.as_ref().map_or("http", |_| "https");
    let counts = start_processes::namesystem(state, cluster)
        .ok()
        .filter(|_| cluster.namenode.is_alive());
    let count = |name: &str| counts.as_ref().and_then(|counts| counts[name].as_u64());
    let info = start_processes::namenode_bean(state, cluster, "NameNodeInfo").ok();
    let missing = info.and_then(|info| info["NumberOfMissingBlocks"].as_u64());
    StatusReport {
        state: state.path().display().to_string(),
        file_system: cluster.uri(),
        conf: state.client_conf().display().to_string(),
        live_nodes: count("NumLiveDataNodes").and_then(|n| usize::try_from(n).ok()),
        nodes: cluster.live_nodes(),
        files: count("FilesTotal"),
        used_bytes: count("CapacityUsed"),
        missing_blocks: missing,
        protection: secured.as_ref().map(|_| PROTECTION),
        environment: secured.map_or_else(Vec::new, |secured| secured.environment()),
        processes: cluster
            .roles()
            .map(|role| process(state, role, scheme))
            .collect(),
    }
}

fn process(state: &StateDir, role: &Role, scheme: &str) -> ProcessStatus {
    let stock = role.http_port.map_or("MIT", |_| "Apache");
    let running = role.is_alive();
    let virtual_nodes = role.virtual_nodes.iter().map(|node| VirtualStatus {
        name: node.name.clone(),
        address: node.xfer().to_string(),
        rpc: node.ipc().to_string(),
    });
    ProcessStatus {
        name: role.name.clone(),
        kind: role.kind.map_or(stock, |kind| kind.name()),
        address: format!("127.0.0.1:{}", role.port),
        rpc: role.ipc_port.map(|port| format!("127.0.0.1:{port}")),
        http: role
            .http_port
            .map(|port| format!("{scheme}://127.0.0.1:{port}/")),
        running,
        pid: role
            .process
            .as_ref()
            .filter(|_| running)
            .map(|process| process.pid),
        log: start_processes::log_of(state, role).display().to_string(),
        virtual_nodes: virtual_nodes.collect(),
    }
}

/// Where a process answers, or that its virtual nodes do.
fn answers_at(process: &ProcessStatus) -> String {
    if !process.virtual_nodes.is_empty() {
        return format!("{} virtual nodes", process.virtual_nodes.len());
    }
    let address = &process.address;
    match (&process.rpc, &process.http) {
        (Some(rpc), Some(http)) => format!("data {address}  RPC {rpc}  HTTP {http}"),
        (_, Some(http)) => format!("RPC {address}  HTTP {http}"),
        (_, None) => format!("tickets {address}"),
    }
}

impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let running = self
            .processes
            .iter()
            .filter(|process| process.running)
            .count();
        let verdict = match (running, self.is_well()) {
            (0, _) => "is down",
            (_, true) => "is up",
            (_, false) => "is NOT well",
        };
        writeln!(
            f,
            "cluster {verdict}: {} (in {})",
            self.file_system, self.state
        )?;
        for process in &self.processes {
            let pid = process
                .pid
                .map_or_else(|| "not running".to_owned(), |pid| format!("pid {pid}"));
            writeln!(
                f,
                "  {:<10} {:<8} {pid:<12} {}\n{:22}log {}",
                process.name,
                process.kind,
                answers_at(process),
                "",
                process.log
            )?;
            for node in &process.virtual_nodes {
                let VirtualStatus { name, address, rpc } = node;
                writeln!(f, "{:4}{name:<30} data {address}  RPC {rpc}", "")?;
            }
        }
        if let (Some(live), Some(files), Some(used), Some(missing)) = (
            self.live_nodes,
            self.files,
            self.used_bytes,
            self.missing_blocks,
        ) {
            writeln!(
                f,
                "  the NameNode counts {live} live nodes, {files} files and directories, {} used, \
                    {missing} missing blocks",
                megabytes(used)
            )?;
        }
        if let Some(protection) = self.protection {
            writeln!(f, "  {protection}")?;
        }
        write!(f, "  for other clients: HADOOP_CONF_DIR={}", self.conf)?;
        for pair in &self.environment {
            write!(f, " {pair}")?;
        }
        writeln!(f)
    }
}
