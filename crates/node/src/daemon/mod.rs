//! Start, run and stop of a node.
//!
//! Order of start: volumes are locked and opened, ports are bound, services towards NameNodes
//! begin (they load the block pools and register), then the ports are served. Stop goes the other
//! way: no new work, work in progress gets a moment, replicas and caches are written, locks go last.

mod error;
mod node;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hayloft_store::{StartOption, Store, StoreEvent};
use tokio::net::{TcpListener, lookup_host};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub use error::StartError;

use self::node::Node;
use crate::config::{HostPort, Key, SharedConfig, keys};
use crate::identity::Identity;
use crate::namenode::{NameNodes, NameNodesParts};
use crate::outliers::Outliers;
use crate::recovery::BlockRecovery;
use crate::store_config::store_config;
use crate::xceiver::{Settings, XceiverStats, Xceivers};

/// News from the store that may wait; past it the store waits.
const EVENTS: usize = 4096;
/// Services get this long to end before the volumes are closed under them.
const DRAIN: Duration = Duration::from_secs(10);
/// Writers get this long to be told that the node comes back.
const ANNOUNCE: Duration = Duration::from_secs(2);

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
            store.shutdown().await;
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
        let bound = Bound::new(&config).await?;
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
            Arc::new(Settings::throttles(&current)),
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
            () = node.stop_for_upgrade.cancelled() => {
                info!("stopping for an upgrade: telling the writers that this node comes back");
                node.xceivers.announce_restart(ANNOUNCE).await;
                let expiration = node.config.get(&keys::RESTART_REPLICA_EXPIRATION);
                node.store.mark_for_restart(expiration).await;
                Ok(())
            }
            () = self.disks_failed.cancelled() => Err(StartError::Stopped(DISKS_FAILED.to_owned())),
            () = self.namenodes.wait_all_ended() => {
                Err(StartError::Stopped(NOTHING_TO_SERVE.to_owned()))
            }
        }
    }

    async fn stop(self) {
        info!("storage node stops");
        self.node.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(DRAIN, self.tasks.wait())
            .await
            .is_err()
        {
            warn!("some operations did not end in {DRAIN:?}; they are cut off");
        }
        self.node.store.shutdown().await;
        info!("storage node has stopped");
    }
}

/// The two ports.
struct Bound {
    xfer: TcpListener,
    xfer_addr: SocketAddr,
    ipc: TcpListener,
    ipc_addr: SocketAddr,
}

impl Bound {
    async fn new(config: &SharedConfig) -> Result<Self, StartError> {
        let (xfer, xfer_addr) = listen(config, &keys::DATANODE_ADDRESS).await?;
        let (ipc, ipc_addr) = listen(config, &keys::DATANODE_IPC_ADDRESS).await?;
        Ok(Self {
            xfer,
            xfer_addr,
            ipc,
            ipc_addr,
        })
    }
}

async fn listen(
    config: &SharedConfig,
    key: &'static Key<HostPort>,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let address = config.get(key);
    let backlog = config.get(&keys::IPC_LISTEN_QUEUE);
    bind(&address, backlog)
        .await
        .map_err(|source| StartError::Listen {
            key: key.name(),
            address: address.to_string(),
            source,
        })
}

async fn bind(address: &HostPort, backlog: u32) -> std::io::Result<(TcpListener, SocketAddr)> {
    let addr = lookup_host((address.host.as_str(), address.port))
        .await?
        .next()
        .ok_or_else(|| std::io::Error::other("the name has no address"))?;
    let socket = if addr.is_ipv4() {
        tokio::net::TcpSocket::new_v4()?
    } else {
        tokio::net::TcpSocket::new_v6()?
    };
    // A restarted node takes its port back while old connections linger.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    let listener = socket.listen(backlog)?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}
