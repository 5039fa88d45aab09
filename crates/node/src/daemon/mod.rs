//! Start, run and stop of a node.
//!
//! Order of start: volumes are locked and opened, ports are bound, services towards NameNodes
//! begin. They load the block pools and register. Then the ports are served. Stop goes the other
//! way: no new work, work in progress gets a moment, replicas and caches are written, locks go
//! last.

mod error;
mod node;
mod ports;
mod stop;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use hayloft_store::{StartOption, Store, StoreEvent};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub use error::StartError;

use self::node::Node;
use self::ports::Bound;
use self::stop::Deadline;
use crate::identity::Identity;
use crate::namenode::{NameNodes, NameNodesParts};
use crate::outliers::Outliers;
use crate::recovery::BlockRecovery;
use crate::store_config::store_config;
use crate::xceiver::{Settings, Throttles, XceiverStats, Xceivers};
use hayloft_conf::{SharedConfig, keys};

/// News from the store that may wait; past it the store waits.
const EVENTS: usize = 4096;

const NOTHING_TO_SERVE: &str = "no NameNode of the configuration can be served any more: see the \
    errors above, correct the configuration or the directories, and start again";

const DISKS_FAILED: &str = "more volumes have failed than dfs.datanode.failed.volumes.tolerated \
    allows: repair or remove the directories named above, and start again";

/// Runs a node until `shutdown` is cancelled or an administrator stops it.
///
/// # Errors
/// Why it did not start, or why it cannot go on (all volumes failed, no NameNode will have it).
pub async fn run(
    config: SharedConfig,
    start: StartOption,
    shutdown: CancellationToken,
) -> Result<(), StartError> {
    let current = config.current();
    // Asked again here: whatever started this must not get an unprotected node.
    current.refuse_unprotected()?;
    for line in current.warnings() {
        warn!("{line}");
    }
    let (events, news) = mpsc::channel(EVENTS);
    let store = Store::open(store_config(&current), events).await?;
    drop(current);
    let running = match Running::start(config, start, store.clone(), news, &shutdown).await {
        Ok(running) => running,
        Err(error) => {
            Deadline::new().close(store.shutdown()).await;
            return Err(error);
        }
    };
    let outcome = running.until_stopped().await;
    running.stop().await;
    outcome
}

/// A node whose services run.
struct Running {
    node: Arc<Node>,
    namenodes: NameNodes,
    tasks: TaskTracker,
    /// Cancelled by the NameNode services when too many disks have failed.
    disks_failed: CancellationToken,
}

impl Running {
    async fn start(
        config: SharedConfig,
        start: StartOption,
        store: Store,
        news: mpsc::Receiver<StoreEvent>,
        shutdown: &CancellationToken,
    ) -> Result<Self, StartError> {
        let bound = Bound::new(&config, shutdown).await?;
        let current = config.current();
        let uuid = store.datanode_uuid();
        let identity = Identity::new(&current, uuid, bound.xfer_addr, bound.ipc_addr);
        info!(
            uuid = identity.datanode_uuid,
            host = identity.host_name,
            xfer = %bound.xfer_addr,
            ipc = %bound.ipc_addr,
            volumes = store.volume_report().len(),
            "storage node starts"
        );
        let stop = shutdown.child_token();
        let tasks = TaskTracker::new();
        let disks_failed = stop.child_token();
        let namenodes = NameNodes::new(NameNodesParts {
            store: store.clone(),
            config: config.clone(),
            identity,
            start,
            shutdown: disks_failed.clone(),
            tasks: tasks.clone(),
        });
        let xceivers = Xceivers::new(
            store.clone(),
            Arc::new(namenodes.clone()),
            Arc::new(XceiverStats::default()),
            Arc::new(Throttles::of(&current)),
            Settings::from_config(&current),
            stop.child_token(),
        );
        Outliers::configure(&current, xceivers.peer_times(), &store);
        let node = Arc::new(Node {
            config,
            store,
            xceivers: xceivers.clone(),
            namenodes: OnceLock::from(namenodes.clone()),
            recovery: OnceLock::new(),
            outliers: Outliers::default(),
            started: Instant::now(),
            stop: stop.clone(),
            stop_for_upgrade: CancellationToken::new(),
        });
        let recovery = BlockRecovery::new(node.clone(), stop.child_token(), tasks.clone());
        node.recovery
            .set(recovery)
            .unwrap_or_else(|_| unreachable!("set once"));
        tasks.spawn({
            let namenodes = namenodes.clone();
            async move { namenodes.serve_store_events(news).await }
        });
        namenodes.start(node.clone())?;
        tasks.spawn(crate::xceiver::serve(xceivers, bound.xfer));
        let host = node.clone();
        tasks.spawn(crate::ipc::serve(host, bound.ipc, stop.child_token()));
        Ok(Self {
            node,
            namenodes,
            tasks,
            disks_failed,
        })
    }

    /// Waits for the end: a signal or an administrator (fine), or a reason not to go on.
    async fn until_stopped(&self) -> Result<(), StartError> {
        let node = &self.node;
        // In this order: a stop on purpose ends everything else too.
        tokio::select! {
            biased;
            () = node.stop.cancelled() => Ok(()),
            () = node.stop_for_upgrade.cancelled() => Ok(()),
            () = self.disks_failed.cancelled() => Err(StartError::Stopped(DISKS_FAILED.to_owned())),
            () = self.namenodes.wait_all_ended() => {
                Err(StartError::Stopped(NOTHING_TO_SERVE.to_owned()))
            }
        }
    }

    async fn stop(self) {
        let deadline = Deadline::new();
        let node = &self.node;
        if node.stop_for_upgrade.is_cancelled() {
            info!("stopping for an upgrade: telling the writers that this node comes back");
            let expiration = node.config.get(&keys::RESTART_REPLICA_EXPIRATION);
            let told = node.xceivers.announce_restart(stop::ANNOUNCE);
            let marked = node.store.mark_for_restart(expiration);
            stop::announce(told, marked).await;
        }
        info!("storage node stops");
        node.stop.cancel();
        self.tasks.close();
        deadline.end_services(self.tasks.wait()).await;
        deadline.close(node.store.shutdown()).await;
        info!("storage node has stopped");
    }
}
