//! Start, run and stop of a process: one node, or the virtual nodes of `hayloft.nodes`.
//!
//! - `error`: why a node does not start, or stopped by itself
//! - `links_services`: one running node: what its services ask of each other
//! - `nodes_on_disk`: whether the data directories are those of one node or of virtual nodes, as
//!   configured
//! - `ports`: the ports of a node
//! - `process_limits`: what the process may take of the system
//! - `start_to_stop`: one node of the process: its services from start to stop
//! - `stop_deadlines`: how long a stop may take
//!
//! Order of start: what the configuration asks for is checked, volumes are locked and opened,
//! ports are bound. Only when that is done for every node, services towards NameNodes begin. They
//! load the block pools and register. Then the ports are served. Stop goes the other way: no new
//! work, work in progress gets a moment, replicas and caches are written, locks go last.
//!
//! Virtual nodes share disks, memory and threads, and nothing else: one that ends by itself, or
//! that its NameNode refuses, leaves the others alone.

mod error;
mod links_services;
mod nodes_on_disk;
mod ports;
pub(crate) mod process_limits;
mod start_to_stop;
mod stop_deadlines;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hayloft_io::unbroken;
use hayloft_protection::ParityProtection;
use hayloft_store::{StartOption, StoreShared};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error, info, warn};

pub use error::StartError;
pub use ports::OpenedPorts;
pub use process_limits::ThreadsWanted;

use self::process_limits::{ClientShares, Taken};
use self::start_to_stop::{Machinery, Opened, Running, span_of};
use crate::store_config::{self, write_memory};
use crate::xceiver::{Settings, XceiverShared};
use hayloft_client::login;
use hayloft_conf::{Configuration, NodeName, SharedConfig, VirtualNode, keys};
use hayloft_rpc::KerberosLogin;

/// How long the look at the directories may take.
const LOOK: Duration = Duration::from_secs(10);

/// A node that is to run: its name, if it is virtual, and its configuration.
type Planned = (Option<NodeName>, SharedConfig);

/// Runs a node, or several virtual ones, until `shutdown` is cancelled or an administrator stops
/// them all. Ports that were opened already are among `opened`.
///
/// # Errors
/// Why none started, or why the last could not go on (all volumes failed, no NameNode will have
/// it).
pub async fn run(
    config: SharedConfig,
    start: StartOption,
    opened: OpenedPorts,
    shutdown: CancellationToken,
) -> Result<(), StartError> {
    let current = config.current();
    // Asked again here: whatever started this must not get an unprotected node.
    current.refuse_unprotected()?;
    current.refuse_half_secure()?;
    let nodes = current.virtual_nodes()?;
    let refusal = crate::snapshots::refusal(&current);
    if let Some(why) = refusal.or_else(|| process_limits::too_much_locked(&current)) {
        return Err(StartError::Refused(why));
    }
    let mut warnings = current.warnings();
    warnings.extend(look_at_directories(&current).await?);
    for line in warnings {
        warn!("{line}");
    }
    // Before anything is locked: a node that cannot say who it is serves no client.
    tokio::select! {
        logged_in = log_in(&current, &nodes, &shutdown) => logged_in?,
        // A KDC that says nothing holds up no stop.
        () = shutdown.cancelled() => return Ok(()),
    }
    let machinery = machinery(&current, &nodes, opened);
    let planned = planned(config, nodes);
    if let Some(refused) = ports::one_socket_of_two(planned.iter().map(|(_, config)| config)) {
        return Err(refused);
    }
    let opened = open_all(planned, &machinery, &shutdown).await?;
    let machinery = Machinery {
        shares: share(&opened, &current),
        ..machinery
    };
    drop(current);
    machinery
        .xceivers
        .limit_connections(machinery.shares.transfers);
    let stop = shutdown.clone();
    let report = unbroken(
        "report of shortages",
        shutdown.clone().cancelled_owned(),
        move || process_limits::report(stop.clone()),
    );
    tokio::spawn(report);
    tokio::spawn(process_limits::keep_a_blocking_thread(
        shutdown.child_token(),
    ));
    let running = start_all(opened, start, &machinery, &shutdown).await?;
    let alone = running.len() == 1;
    let outcomes = join_all(running.into_iter().map(|(name, node)| async move {
        let outcome = node.live().await;
        if let (Some(name), Err(error), false) = (&name, &outcome, alone) {
            error!(%name, "this virtual node has ended, the others go on: {error}");
        }
        outcome
    }));
    verdict(outcomes.await, &shutdown)
}

/// Logs the node in, or each virtual one.
async fn log_in(
    config: &Configuration,
    nodes: &[VirtualNode],
    shutdown: &CancellationToken,
) -> Result<(), StartError> {
    let alone = nodes.is_empty().then_some(config);
    let mut logins: Vec<Arc<KerberosLogin>> = Vec::new();
    for config in alone
        .into_iter()
        .chain(nodes.iter().map(|node| &node.config))
    {
        let login = login::log_node_in(config).await;
        if let Some(login) = login.map_err(StartError::Kerberos)?
            && !logins.iter().any(|known| Arc::ptr_eq(known, &login))
        {
            stay_logged_in(Arc::clone(&login), shutdown.clone());
            logins.push(login);
        }
    }
    Ok(())
}

/// Has a login renewed until the process stops.
fn stay_logged_in(login: Arc<KerberosLogin>, shutdown: CancellationToken) {
    let stop = shutdown.clone().cancelled_owned();
    let renewing = unbroken("login with Kerberos", stop, move || {
        let (login, stop) = (Arc::clone(&login), shutdown.clone());
        async move {
            tokio::select! {
                () = login.keep_fresh() => {}
                () = stop.cancelled() => {}
            }
        }
    });
    tokio::spawn(renewing);
}

/// What clients may take of the process's descriptors, with a line in the log when that is little.
fn share(opened: &[(Option<NodeName>, Opened)], config: &Configuration) -> ClientShares {
    let limit = hayloft_io::descriptors_max();
    let volumes = opened.iter().map(|(_, node)| node.volumes());
    let taken = Taken {
        limit,
        // Where the kernel does not say, a process at rest has about so many.
        open: hayloft_io::descriptors_open().unwrap_or(64),
        nodes: opened.len() as u64,
        volumes: volumes.sum::<usize>() as u64,
    };
    if let Some(line) = taken.remark(config) {
        warn!("{line}");
    }
    taken.shares()
}

/// What the directories say about how many nodes they are for; remarks for the log.
async fn look_at_directories(config: &Configuration) -> Result<Vec<String>, StartError> {
    let config = config.clone();
    let look = tokio::task::spawn_blocking(move || nodes_on_disk::check(&config));
    // A disk that gives no answer is for the store to judge.
    let found = timeout(LOOK, look).await;
    let found = found.ok().and_then(Result::ok);
    found
        .unwrap_or_else(|| Ok(Vec::new()))
        .map_err(StartError::OtherNodes)
}

/// Made once, whatever the number of nodes.
fn machinery(config: &Configuration, nodes: &[VirtualNode], opened: OpenedPorts) -> Machinery {
    let bytes = usize::try_from(write_memory(config)).unwrap_or(usize::MAX);
    let parity = store_config::parity(nodes.first().map_or(config, |node| &node.config));
    let protection = parity.map(|parity| ParityProtection::new(parity, nodes.len().max(1)));
    let store = match nodes.is_empty() {
        true => StoreShared::alone(bytes),
        false => StoreShared::new(bytes),
    };
    let locked = config.get(&keys::MAX_LOCKED_MEMORY);
    if let Some(line) = process_limits::much_locked(config, crate::memory::usable()) {
        warn!("{line}");
    }
    Machinery {
        are_virtual: !nodes.is_empty(),
        store: store.with_locked_memory(locked, nodes.len().max(1) as u64),
        protection: protection.map(Arc::new),
        xceivers: XceiverShared::new(Settings::from_config(config).reading_memory),
        shares: ClientShares::UNLIMITED,
        opened: Arc::new(opened),
    }
}

fn planned(config: SharedConfig, nodes: Vec<VirtualNode>) -> Vec<Planned> {
    if nodes.is_empty() {
        return vec![(None, config)];
    }
    let virtual_one = |node: VirtualNode| (Some(node.name), SharedConfig::new(node.config));
    nodes.into_iter().map(virtual_one).collect()
}

/// Opens every node, or none.
async fn open_all(
    planned: Vec<Planned>,
    machinery: &Machinery,
    shutdown: &CancellationToken,
) -> Result<Vec<(Option<NodeName>, Opened)>, StartError> {
    let mut all: Vec<(Option<NodeName>, Opened)> = Vec::new();
    let mut refused = None;
    for (name, config) in planned {
        let span = span_of(name.as_ref());
        let opening = Opened::new(config, span.clone(), machinery, shutdown);
        match opening.instrument(span).await {
            Ok(opened) => all.push((name, opened)),
            Err(error) => {
                refused = Some(of_node(name.as_ref(), error));
                break;
            }
        }
    }
    let Some(error) = refused.or_else(|| copied(&all)) else {
        return Ok(all);
    };
    join_all(all.into_iter().map(|(_, opened)| opened.close())).await;
    Err(error)
}

/// The refusal of two nodes that are one to a NameNode: it would take each for the other, moved.
fn copied(all: &[(Option<NodeName>, Opened)]) -> Option<StartError> {
    let mut known = HashMap::new();
    for (name, opened) in all {
        let (Some(name), uuid) = (name, opened.datanode_uuid()) else {
            continue;
        };
        if let Some(other) = known.insert(uuid, name) {
            return Some(StartError::OtherNodes(format!(
                "the directories of the virtual nodes {other} and {name} have the same \
                 datanodeUuid: one is a copy of the other; move those of one away"
            )));
        }
    }
    None
}

/// Starts the services of every node, or of none.
async fn start_all(
    opened: Vec<(Option<NodeName>, Opened)>,
    start: StartOption,
    machinery: &Machinery,
    shutdown: &CancellationToken,
) -> Result<Vec<(Option<NodeName>, Running)>, StartError> {
    let mut all: Vec<(Option<NodeName>, Running)> = Vec::new();
    let mut waiting = opened.into_iter();
    // Ends those that run already when a later one does not start.
    let started = shutdown.child_token();
    while let Some((name, opened)) = waiting.next() {
        match Running::start(opened, start, machinery, &started).await {
            Ok(running) => all.push((name, running)),
            Err(error) => {
                started.cancel();
                join_all(waiting.map(|(_, opened)| opened.close())).await;
                join_all(all.into_iter().map(|(_, running)| running.live())).await;
                return Err(of_node(name.as_ref(), error));
            }
        }
    }
    if all.len() > 1 {
        info!(
            nodes = all.len(),
            "the virtual nodes of this process have started"
        );
    }
    Ok(all)
}

/// Says which virtual node an error is of.
fn of_node(name: Option<&NodeName>, error: StartError) -> StartError {
    match (name, error) {
        (Some(name), error @ StartError::Store(_)) => {
            StartError::Stopped(format!("virtual node {name}: {error}"))
        }
        (_, error) => error,
    }
}

/// How the process ends when all its nodes have: well when it was told to, or one of them was.
fn verdict(
    outcomes: Vec<Result<(), StartError>>,
    shutdown: &CancellationToken,
) -> Result<(), StartError> {
    let any_was_told = shutdown.is_cancelled() || outcomes.iter().any(Result::is_ok);
    match outcomes.into_iter().find_map(Result::err) {
        Some(error) if !any_was_told => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
