//! `hayloft up`: a cluster from nothing, or from where it was left.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use hayloft_cluster::hadoop::Hadoop;
use hayloft_cluster::node::Kind;
use hayloft_console::progress::say;
use serde::Serialize;

use super::secure::Secured;
use super::start_processes::{self, Launcher};
use super::state_directory::{Role, StateDir, StoredCluster};
use super::status::{self, StatusReport};
use super::tour::{self, Tour};
use crate::args::{Nodes, UpArgs};
use crate::error::CliError;

/// What `up` did, for `--json`.
#[derive(Debug, Serialize)]
struct Summary {
    already_running: bool,
    start_seconds: f64,
    cluster: StatusReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    tour: Option<Tour>,
}

/// Starts what is not running, tries the cluster out, and reports.
pub fn run(args: &UpArgs) -> Result<ExitCode, CliError> {
    let state = StateDir::new(&args.place.state())?;
    let hadoop = Hadoop::locate_in(args.place.hadoop_home().as_deref())?;
    let mut launcher = Launcher {
        state: &state,
        hadoop,
        namenode_heap: args.namenode_heap,
    };
    // What cannot be copied is said before anything starts.
    let source = if args.no_tour {
        None
    } else {
        Some(tour::source(args.put.as_deref(), &launcher.hadoop)?)
    };
    let _lock = state.lock()?;
    let (mut cluster, is_new) = match state.load()? {
        Some(cluster) => (cluster, false),
        None => (
            StoredCluster::new(
                start_processes::new_role("namenode", None, &[])?,
                args.virtual_nodes.unwrap_or(args.nodes).min(3),
            ),
            true,
        ),
    };
    if is_new && args.secure {
        cluster.kdc = Some(start_processes::new_kdc(&ports_of(&cluster))?);
    }
    refuse_other_shape(&cluster, args)?;
    refuse_other_security(&cluster, args)?;
    if let Some(secured) = Secured::of(&state, &cluster) {
        Secured::refuse_without_programs()?;
        launcher.hadoop.enter(&secured.realm);
    }
    if !is_new && cluster.roles().all(Role::is_alive) {
        return already_running(&state, &cluster, args);
    }
    let start = Instant::now();
    start_all(&launcher, &mut cluster, args, is_new)?;
    launcher.wait_ready(&cluster)?;
    if let Some(secured) = Secured::of(&state, &cluster) {
        secured.get_ticket()?;
    }
    let start_seconds = start.elapsed().as_secs_f64();
    let tour = match source {
        Some(source) => Some(tour::run(&launcher, &mut cluster, source)?),
        None => None,
    };
    let summary = Summary {
        already_running: false,
        start_seconds,
        cluster: status::report(&state, &cluster),
        tour,
    };
    print(&summary, args.json, args.place.given_state())?;
    Ok(ExitCode::SUCCESS)
}

fn already_running(
    state: &StateDir,
    cluster: &StoredCluster,
    args: &UpArgs,
) -> Result<ExitCode, CliError> {
    say(&format!(
        "this cluster is running already ({}); 'hayloft down' stops it",
        state.path().display()
    ));
    if let Some(secured) = Secured::of(state, cluster) {
        secured.get_ticket()?;
    }
    if wanted_nodes(args, cluster) != cluster.nodes.len() || args.put.is_some() {
        say(
            "--nodes, --kind and --put count when it starts: copy with 'hayloft fs -put', or stop \
                it first",
        );
    }
    let summary = Summary {
        already_running: true,
        start_seconds: 0.0,
        cluster: status::report(state, cluster),
        tour: None,
    };
    print(&summary, args.json, args.place.given_state())?;
    Ok(ExitCode::SUCCESS)
}

/// Starts every process that is not running; each is on record before the next one starts.
fn start_all(
    launcher: &Launcher<'_>,
    cluster: &mut StoredCluster,
    args: &UpArgs,
    is_new: bool,
) -> Result<(), CliError> {
    let state = launcher.state;
    if !is_new {
        say_what_survived(cluster);
    }
    start_kdc(launcher, cluster)?;
    if !cluster.namenode.is_alive() {
        let taken = ports_of(cluster);
        let before = cluster.namenode.port;
        start_processes::settle_ports(&mut cluster.namenode, &taken)?;
        if before != cluster.namenode.port {
            // Nodes that survived know the old address only.
            start_processes::stop(&cluster.nodes.iter().collect::<Vec<_>>())?;
        }
        state.save(cluster)?;
        cluster.namenode.process = Some(launcher.start_namenode(cluster)?);
        state.save(cluster)?;
        launcher.wait_namenode(cluster)?;
    }
    launcher.write_client_conf(cluster)?;
    let count = wanted_nodes(args, cluster).max(cluster.nodes.len());
    if count > wanted_nodes(args, cluster) {
        say(&format!(
            "this cluster has {count} nodes, and keeps them: each holds data"
        ));
    }
    for index in 0..count {
        let kind = if is_super(args, cluster) {
            Kind::Hayloft
        } else {
            kind_of(args.kind, index)
        };
        let taken = ports_of(cluster);
        if index == cluster.nodes.len() {
            cluster.nodes.push(new_node(args, index, kind, &taken)?);
        } else if cluster.nodes[index].is_alive() {
            continue;
        } else {
            start_processes::settle_ports(&mut cluster.nodes[index], &taken)?;
        }
        cluster.nodes[index].kind = Some(kind);
        let node = cluster.nodes[index].clone();
        cluster.nodes[index].process = Some(launcher.start_node(cluster, &node)?);
        state.save(cluster)?;
    }
    Ok(())
}

/// Starts the KDC of a secure cluster, if it does not run.
fn start_kdc(launcher: &Launcher<'_>, cluster: &mut StoredCluster) -> Result<(), CliError> {
    let taken = ports_of(cluster);
    let Some(kdc) = cluster.kdc.as_mut().filter(|kdc| !kdc.is_alive()) else {
        return Ok(());
    };
    let before = kdc.port;
    start_processes::settle_ports(kdc, &taken)?;
    if before != kdc.port {
        // A JVM reads where the KDC is once.
        start_processes::stop(&cluster.nodes.iter().collect::<Vec<_>>())?;
        start_processes::stop(&[&cluster.namenode])?;
    }
    launcher.state.save(cluster)?;
    let secured = Secured::of(launcher.state, cluster);
    let process = secured.map(|secured| launcher.start_kdc(&secured));
    if let (Some(kdc), Some(process)) = (cluster.kdc.as_mut(), process.transpose()?) {
        kdc.process = Some(process);
    }
    launcher.state.save(cluster)
}

/// How many processes of storage nodes there shall be. One of virtual nodes stays as it was made:
/// each of them holds data.
fn wanted_nodes(args: &UpArgs, cluster: &StoredCluster) -> usize {
    if is_super(args, cluster) {
        1
    } else {
        usize::from(args.nodes)
    }
}

/// Whether the cluster is, or is to be, one process of virtual nodes.
fn is_super(args: &UpArgs, cluster: &StoredCluster) -> bool {
    let there = cluster
        .nodes
        .iter()
        .any(|role| !role.virtual_nodes.is_empty());
    there || args.virtual_nodes.is_some()
}

fn new_node(args: &UpArgs, index: usize, kind: Kind, taken: &[u16]) -> Result<Role, CliError> {
    let mut role = start_processes::new_role(&format!("node-{index}"), Some(kind), taken)?;
    if let Some(count) = args.virtual_nodes {
        let taken = [taken, &role.ports()].concat();
        role.virtual_nodes = start_processes::new_virtual_nodes(count, &taken)?;
    }
    Ok(role)
}

/// Refuses to make one process of virtual nodes out of a cluster that was made otherwise.
fn refuse_other_shape(cluster: &StoredCluster, args: &UpArgs) -> Result<(), CliError> {
    let Some(wanted) = args.virtual_nodes.map(usize::from) else {
        return Ok(());
    };
    let is_one = cluster.nodes.len() == 1 && cluster.nodes[0].virtual_nodes.len() == wanted;
    if cluster.nodes.is_empty() || is_one {
        return Ok(());
    }
    let what = format!("this cluster was not made with --super {wanted}, and its nodes hold data");
    Err(CliError::new(
        what,
        "--super",
        "leave it away, or name another directory with --state",
    ))
}

/// Refuses to take the protection off a cluster, or to put some on: its data would stay as it is.
fn refuse_other_security(cluster: &StoredCluster, args: &UpArgs) -> Result<(), CliError> {
    let (what, advice) = match (&cluster.kdc, args.secure) {
        (Some(_), false) => ("this cluster was made with --secure", "give it again"),
        (None, true) => ("this cluster was made without --secure", "leave it away"),
        _ => return Ok(()),
    };
    let advice = format!("{advice}, or name another directory with --state");
    Err(CliError::new(what, "--secure", advice))
}

fn say_what_survived(cluster: &StoredCluster) {
    let (alive, dead): (Vec<&Role>, Vec<&Role>) = cluster.roles().partition(|role| role.is_alive());
    let names = |roles: &[&Role]| {
        roles
            .iter()
            .map(|role| role.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    if alive.is_empty() {
        say("starting this cluster again, with its data");
    } else {
        say(&format!(
            "{} still running; starting {}",
            names(&alive),
            names(&dead)
        ));
    }
}

fn ports_of(cluster: &StoredCluster) -> Vec<u16> {
    cluster.roles().flat_map(Role::ports).collect()
}

fn kind_of(nodes: Nodes, index: usize) -> Kind {
    match nodes {
        Nodes::Hayloft => Kind::Hayloft,
        Nodes::Apache => Kind::Apache,
        Nodes::Mixed if index.is_multiple_of(2) => Kind::Hayloft,
        Nodes::Mixed => Kind::Apache,
    }
}

fn print(summary: &Summary, json: bool, state: Option<&Path>) -> Result<(), CliError> {
    if json {
        return crate::json::print_json(summary);
    }
    print!("{}", summary.cluster);
    if let Some(tour) = &summary.tour {
        println!("\nstarted in {:.1} s", summary.start_seconds);
        print!("{tour}");
    }
    println!(
        "\nuse it:   {}\nstop it:  {}",
        command("fs", state, "-ls /"),
        command("down", state, "")
    );
    Ok(())
}

/// A command as it can be typed here: this program by the name it was called by, this cluster.
fn command(name: &str, state: Option<&Path>, rest: &str) -> String {
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "hayloft".to_owned());
    let state = state.map_or_else(String::new, |dir| format!(" --state {}", dir.display()));
    format!("{program} {name}{state} {rest}")
        .trim_end()
        .to_owned()
}
