//! One node of the process: its services from start to stop.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use hayloft_io::told_if_broken;
use hayloft_protection::ParityProtection;
use hayloft_store::{StartOption, Store, StoreEvent, StoreProtection, StoreShared};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, Span, info, info_span};

use super::StartError;
use super::links_services::{Node, ToldOfStore, settings};
use super::ports::{Bound, OpenedPorts};
use super::process_limits::ClientShares;
use super::stop_deadlines::{self, Deadline};
use crate::activity::NodeActivity;
use crate::disk_balancer::{DiskBalancer, DiskBalancerParts};
use crate::http::Periods;
use crate::identity::Identity;
use crate::metrics_sinks;
use crate::namenode::{NameNodes, NameNodesParts};
use crate::outliers::Outliers;
use crate::recovery::BlockRecovery;
use crate::snapshots::Snapshots;
use crate::store_config::store_config;
use crate::xceiver::{Throttles, XceiverShared, XceiverStats, Xceivers};
use hayloft_conf::{Configuration, NodeName, SharedConfig, keys};

/// News from the store that may wait; past it the store waits.
const EVENTS: usize = 4096;

const NOTHING_TO_SERVE: &str = "no NameNode of the configuration can be served any more: see the \
    errors above, correct the configuration or the directories, and start again";

const DISKS_FAILED: &str = "no volume is left, or more have failed than \
    dfs.datanode.failed.volumes.tolerated allows: repair or remove the directories named above, \
    and start again";

const BROKEN: &str = "a defect of Hayloft ended a service that the node needs (see the error \
    above): start again, and report it";

/// What the nodes of a process have together.
#[derive(Clone)]
pub(super) struct Machinery {
    pub(super) store: StoreShared,
    /// They are virtual nodes.
    pub(super) are_virtual: bool,
    /// What protects the replicas of all nodes.
    pub(super) protection: Option<Arc<ParityProtection>>,
    pub(super) xceivers: XceiverShared,
    /// What clients may have open.
    pub(super) shares: ClientShares,
    /// Ports that root opened.
    pub(super) opened: Arc<OpenedPorts>,
}

/// A node whose volumes and ports are open; it serves nothing yet.
pub(super) struct Opened {
    span: Span,
    config: SharedConfig,
    store: Store,
    news: mpsc::Receiver<StoreEvent>,
    bound: Bound,
}

/// The span of all log lines of a virtual node; none for a node of its own.
pub(super) fn span_of(name: Option<&NodeName>) -> Span {
    name.map_or_else(Span::none, |name| info_span!("node", %name))
}

impl Opened {
    /// Locks and opens the volumes, and listens on the ports.
    pub(super) async fn new(
        config: SharedConfig,
        span: Span,
        machinery: &Machinery,
        shutdown: &CancellationToken,
    ) -> Result<Self, StartError> {
        let (events, news) = mpsc::channel(EVENTS);
        let wanted = store_config(&config.current());
        let shared = machinery.store.clone();
        let protection = machinery.protection.clone().map(|p| p as StoreProtection);
        let store = Store::open_sharing(wanted, events, shared, protection).await?;
        match Bound::new(&config, &machinery.opened, shutdown).await {
            Ok(bound) => Ok(Self {
                span,
                config,
                store,
                news,
                bound,
            }),
            Err(error) => {
                Deadline::new().close(store.shutdown()).await;
                Err(error)
            }
        }
    }

    /// How NameNodes know the node.
    pub(super) fn datanode_uuid(&self) -> String {
        self.store.datanode_uuid()
    }

    /// Volumes that are in use.
    pub(super) fn volumes(&self) -> usize {
        self.store.volume_report().len()
    }

    /// Gives volumes and ports up.
    pub(super) async fn close(self) {
        Deadline::new().close(self.store.shutdown()).await;
    }
}

/// How the node registers, with a line in the log.
fn introduce(config: &Configuration, store: &Store, bound: &Bound) -> Identity {
    let uuid = store.datanode_uuid();
    let identity = Identity::new(
        config,
        uuid,
        bound.xfer_addr,
        bound.ipc_addr,
        (bound.http_port, bound.https_port),
    );
    info!(
        uuid = identity.datanode_uuid,
        host = identity.host_name,
        xfer = %bound.xfer_addr,
        ipc = %bound.ipc_addr,
        http = bound.http_port,
        https = bound.https_port,
        volumes = store.volume_report().len(),
        "storage node starts"
    );
    identity
}

/// What carries out plans of `hdfs diskbalancer`.
fn disk_balancer(
    (store, config, namenodes): (Store, SharedConfig, NameNodes),
    start: StartOption,
    (tasks, stop): (TaskTracker, CancellationToken),
) -> DiskBalancer {
    DiskBalancer::new(DiskBalancerParts {
        store,
        config,
        // The NameNode drops the old place itself when it hears of the new one.
        tell: Arc::new(move |moved| namenodes.notify_finalized(&moved.block, &moved.storage, None)),
        in_special_state: start != StartOption::Regular,
        tasks,
        stop,
    })
}

/// A node whose services run.
pub(super) struct Running {
    span: Span,
    node: Arc<Node>,
    namenodes: NameNodes,
    tasks: TaskTracker,
    machinery: Machinery,
    /// Cancelled by the NameNode services when too many disks have failed.
    disks_failed: CancellationToken,
    /// A service has panicked without which the node is of no use.
    broken: CancellationToken,
}

impl Running {
    /// Starts the services. When that fails the volumes are closed.
    pub(super) async fn start(
        opened: Opened,
        start: StartOption,
        machinery: &Machinery,
        shutdown: &CancellationToken,
    ) -> Result<Self, StartError> {
        let (span, store) = (opened.span.clone(), opened.store.clone());
        let begun = span.in_scope(|| Self::begin(opened, start, machinery, shutdown));
        if begun.is_err() {
            Deadline::new().close(store.shutdown()).await;
        }
        begun
    }

    fn begin(
        opened: Opened,
        start: StartOption,
        machinery: &Machinery,
        shutdown: &CancellationToken,
    ) -> Result<Self, StartError> {
        let Opened {
            span,
            config,
            store,
            news,
            bound,
        } = opened;
        let current = config.current();
        let identity = introduce(&current, &store, &bound);
        let stop = shutdown.child_token();
        let tasks = TaskTracker::new();
        let disks_failed = stop.child_token();
        let local = identity.local;
        let own = identity.clone();
        let activity = Arc::new(NodeActivity::default());
        let namenodes = NameNodes::new(NameNodesParts {
            store: store.clone(),
            config: config.clone(),
            identity,
            start,
            shutdown: disks_failed.clone(),
            tasks: tasks.clone(),
            activity: Arc::clone(&activity),
        });
        let xceivers = Xceivers::sharing(
            store.clone(),
            Arc::new(namenodes.clone()),
            Arc::new(XceiverStats::counting(activity)),
            Arc::new(Throttles::of(&current)),
            settings(&current, local),
            stop.child_token(),
            machinery.xceivers.clone(),
        );
        Outliers::configure(&current, xceivers.peer_times(), &store);
        let balancing = (store.clone(), config.clone(), namenodes.clone());
        let disk_balancer = disk_balancer(balancing, start, (tasks.clone(), stop.child_token()));
        let node = Arc::new(Node {
            config,
            local,
            store,
            protection: machinery.protection.clone(),
            xceivers: xceivers.clone(),
            namenodes: OnceLock::from(namenodes.clone()),
            told: ToldOfStore::default(),
            identity: own,
            recovery: OnceLock::new(),
            outliers: Outliers::default(),
            disk_balancer,
            rpc_stats: Arc::default(),
            periods: Periods::default(),
            snapshots: Snapshots::of(&current),
            started: Instant::now(),
            stop: stop.clone(),
            stop_for_upgrade: CancellationToken::new(),
        });
        let recovery = BlockRecovery::new(node.clone(), stop.child_token(), tasks.clone());
        node.recovery
            .set(recovery)
            .unwrap_or_else(|_| unreachable!("set once"));
        namenodes.start(node.clone())?;
        let running = Self {
            span,
            node,
            namenodes,
            tasks,
            machinery: machinery.clone(),
            disks_failed,
            broken: CancellationToken::new(),
        };
        running.serve(news, xceivers, bound);
        Ok(running)
    }

    /// Takes in the store's news, and serves the ports.
    fn serve(&self, news: mpsc::Receiver<StoreEvent>, xceivers: Xceivers, bound: Bound) {
        let namenodes = self.namenodes.clone();
        let events = async move { namenodes.serve_store_events(news).await };
        if let Some(listener) = bound.domain {
            let path = listener.path().display().to_string();
            let domain = crate::xceiver::serve_domain(xceivers.clone(), listener);
            self.span
                .in_scope(|| info!(path, "clients of this host are served at a domain socket"));
            self.carry("domain socket", domain);
        }
        let transfer = crate::xceiver::serve(xceivers, bound.xfer);
        let stop = self.node.stop.child_token();
        let counts = Arc::clone(&self.node.rpc_stats);
        let shares = self.machinery.shares;
        let rpc = crate::ipc::serve(
            self.node.clone(),
            (bound.ipc, bound.ipc_policy),
            shares.rpc,
            stop,
            counts,
        );
        let stop = self.node.stop.child_token();
        let web = (bound.web, bound.web_filters);
        self.span
            .in_scope(|| crate::http::serve(self.node.clone(), web, shares.web, stop));
        self.carry("news of the store", events);
        self.carry("data transfer port", transfer);
        self.carry("RPC port", rpc);
        self.take_snapshots();
        self.push_metrics();
        if self.machinery.are_virtual {
            self.machinery.xceivers.introduce(&self.node.store);
        }
    }

    /// Pushes metrics to each sink. A defect there ends nothing else, and it begins again.
    fn push_metrics(&self) {
        let (node, config) = (Arc::clone(&self.node), self.node.config.current());
        let records: Arc<dyn Fn() -> _ + Send + Sync> =
            Arc::new(move || crate::http::records(&*node));
        let name = config.node_name().map(ToString::to_string);
        for sink in config.metrics_sinks().sinks {
            let (records, name) = (Arc::clone(&records), name.clone());
            let (stop, ended) = (self.node.stop.clone(), self.node.stop.clone());
            let begin = move || {
                let records = Arc::clone(&records);
                metrics_sinks::push(records, name.clone(), sink.clone(), stop.clone())
            };
            let service = hayloft_io::unbroken("sink of metrics", ended.cancelled_owned(), begin);
            self.tasks.spawn(service.instrument(self.span.clone()));
        }
    }

    /// Takes snapshots, if the node is to. A defect there ends nothing else, and it begins again.
    fn take_snapshots(&self) {
        #[cfg(feature = "snapshots")]
        if let Some(snapshots) = self.node.snapshots.clone() {
            let node = Arc::new(crate::snapshots::SnapshotNode {
                config: self.node.config.clone(),
                store: self.node.store.clone(),
                namenodes: self.namenodes.clone(),
                host: self.node.identity.host_name.clone(),
                snapshots,
                stop: self.node.stop.child_token(),
                looking: Arc::default(),
            });
            let begin = move || crate::snapshots::serve(Arc::clone(&node));
            let stop = self.node.stop.clone().cancelled_owned();
            let service = hayloft_io::unbroken("snapshots", stop, begin);
            self.tasks.spawn(service.instrument(self.span.clone()));
        }
    }

    /// Runs a service without which the node is of no use: it stops when that panics.
    fn carry(&self, what: &'static str, service: impl Future<Output = ()> + Send + 'static) {
        let broken = self.broken.clone();
        let carried = async move {
            if told_if_broken(what, service).await.is_none() {
                broken.cancel();
            }
        };
        self.tasks.spawn(carried.instrument(self.span.clone()));
    }

    /// Runs to the end, and stops.
    pub(super) async fn live(self) -> Result<(), StartError> {
        let span = self.span.clone();
        let living = async move {
            let outcome = self.until_stopped().await;
            self.stop().await;
            outcome
        };
        living.instrument(span).await
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
            () = self.broken.cancelled() => Err(StartError::Stopped(BROKEN.to_owned())),
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
            let told = node.xceivers.announce_restart(stop_deadlines::ANNOUNCE);
            let marked = node.store.mark_for_restart(expiration);
            stop_deadlines::announce(told, marked).await;
        }
        info!("storage node stops");
        self.machinery.xceivers.forget(&node.store);
        node.stop.cancel();
        self.tasks.close();
        deadline.end_services(self.tasks.wait()).await;
        deadline.close(node.store.shutdown()).await;
        info!("storage node has stopped");
    }
}
