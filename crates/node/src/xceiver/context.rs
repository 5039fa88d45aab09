//! What all connections of the data transfer service share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use hayloft_io::BufferPool;
use hayloft_io::locks::lock;
use hayloft_store::Store;
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use hayloft_wire::proto::security::Token;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::log_writers::LogWriters;
use super::process_wide::XceiverShared;
use super::segments::{OwnSegment, Segments};
use super::settings::Settings;
use super::stats::{Activity, XceiverStats};
use crate::activity::NodeActivity;
use crate::outliers::PeerTimes;
use crate::security::Access;
use crate::xceiver::error::XferError;
use crate::xceiver::namenode_reporter::NameNodeLink;
use crate::xceiver::net::threads::Threads;
use crate::xceiver::net::throttle::Throttles;
use hayloft_rpc::LogLimit;

/// What becomes of a connection after an operation.
#[derive(Debug)]
pub enum AfterOperation {
    /// The peer may send another request.
    KeepAlive,
    /// The connection is closed.
    Close,
    /// The connection tells when the client of this segment is gone.
    Watch(OwnSegment),
}

/// The data transfer service of one node; clones are the same service.
#[derive(Clone)]
pub struct Xceivers(Arc<Inner>);

struct Inner {
    store: Store,
    link: Arc<dyn NameNodeLink>,
    stats: Arc<XceiverStats>,
    throttles: Arc<Throttles>,
    settings: ArcSwap<Settings>,
    /// Reconstructions that run.
    reconstructions: Arc<Semaphore>,
    shared: XceiverShared,
    shutdown: CancellationToken,
    evict: Mutex<CancellationToken>,
    restarting: CancellationToken,
    tasks: TaskTracker,
    segments: Segments,
    log_limit: LogLimit,
    gone_limit: LogLimit,
    failure_limit: LogLimit,
    peer_times: PeerTimes,
}

impl Xceivers {
    /// A service over `store`. Connections end when `shutdown` is cancelled.
    #[must_use]
    pub fn new(
        store: Store,
        link: Arc<dyn NameNodeLink>,
        stats: Arc<XceiverStats>,
        throttles: Arc<Throttles>,
        settings: Settings,
        shutdown: CancellationToken,
    ) -> Self {
        let shared = XceiverShared::new(settings.reading_memory);
        Self::sharing(store, link, stats, throttles, settings, shutdown, shared)
    }

    /// [`new`](Self::new) as one of several in this process, which have memory and threads
    /// together.
    #[must_use]
    pub fn sharing(
        store: Store,
        link: Arc<dyn NameNodeLink>,
        stats: Arc<XceiverStats>,
        throttles: Arc<Throttles>,
        settings: Settings,
        shutdown: CancellationToken,
        shared: XceiverShared,
    ) -> Self {
        let reconstructions = Arc::new(Semaphore::new(settings.reconstruction.threads));
        Self(Arc::new(Inner {
            store,
            link,
            stats,
            throttles,
            settings: ArcSwap::from_pointee(settings),
            reconstructions,
            shared,
            shutdown,
            evict: Mutex::new(CancellationToken::new()),
            restarting: CancellationToken::new(),
            tasks: TaskTracker::new(),
            segments: Segments::default(),
            log_limit: LogLimit::default(),
            gone_limit: LogLimit::default(),
            failure_limit: LogLimit::default(),
            peer_times: PeerTimes::default(),
        }))
    }

    pub(super) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(super) fn link(&self) -> &dyn NameNodeLink {
        &*self.0.link
    }

    /// Counts of what is going on.
    #[must_use]
    pub fn stats(&self) -> &Arc<XceiverStats> {
        &self.0.stats
    }

    pub(super) fn activity(&self) -> &NodeActivity {
        &self.0.stats.activity
    }

    /// The bandwidth limits.
    #[must_use]
    pub fn throttles(&self) -> &Throttles {
        &self.0.throttles
    }

    /// The settings now; an operation keeps those it began with.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.0.settings.load_full()
    }

    /// Replaces the settings for operations that begin from now on.
    pub fn configure(&self, settings: Settings) {
        self.0.settings.store(Arc::new(settings));
    }

    /// How long other nodes make this one wait.
    #[must_use]
    pub fn peer_times(&self) -> &PeerTimes {
        &self.0.peer_times
    }

    pub(super) fn memory(&self) -> &BufferPool {
        self.0.shared.memory()
    }

    /// What connections run on.
    pub(super) fn threads(&self) -> &Threads {
        self.0.shared.threads()
    }

    /// The store of another node of this process.
    pub(super) fn sibling(&self, uuid: &str) -> Option<Store> {
        self.0.shared.store_of(uuid)
    }

    pub(super) fn client_place(&self) -> Option<OwnedSemaphorePermit> {
        self.0.shared.client_place()
    }

    /// The memory that clients of this host share with the node.
    pub(super) fn segments(&self) -> &Segments {
        &self.0.segments
    }

    /// The place of a segment of shared memory; `None` when all are taken.
    pub(super) fn segment_place(&self) -> Option<OwnedSemaphorePermit> {
        self.0.shared.segment_place()
    }

    /// Clients that write logs.
    pub(super) fn log_writers(&self) -> &LogWriters {
        self.0.shared.log_writers()
    }

    pub(super) fn places(&self) -> &Arc<Semaphore> {
        self.0.shared.places()
    }

    pub(super) fn reconstructions(&self) -> &Arc<Semaphore> {
        &self.0.reconstructions
    }

    pub(super) fn shutdown_token(&self) -> &CancellationToken {
        &self.0.shutdown
    }

    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }

    /// Waits until the pool can be served.
    ///
    /// # Errors
    /// `NotReady`: the connection is closed without an answer, as Apache's does.
    pub(super) async fn wait_ready(&self, pool: &PoolId) -> Result<(), XferError> {
        let limit = self.settings().pool_ready_timeout;
        if self.link().wait_ready(pool, limit).await {
            return Ok(());
        }
        Err(XferError::NotReady(pool.to_string()))
    }

    /// Ends every write in progress (`dfsadmin -evictWriters`): their clients see the connection
    /// close and rebuild the pipeline without this node.
    pub fn evict_writers(&self) {
        let fresh = CancellationToken::new();
        let mut evict = lock(&self.0.evict);
        std::mem::replace(&mut *evict, fresh).cancel();
    }

    pub(super) fn evict_token(&self) -> CancellationToken {
        lock(&self.0.evict).clone()
    }

    /// Tells every client that is writing that this node goes down for an upgrade and will be back
    /// (an OOB_RESTART acknowledgement), then ends the writes. Call before shutdown; returns when
    /// the writers are gone, at most after `limit`.
    pub async fn announce_restart(&self, limit: Duration) {
        self.0.restarting.cancel();
        let stats = self.stats();
        let deadline = tokio::time::Instant::now() + limit;
        while stats.now(Activity::Writer) > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) fn restart_token(&self) -> &CancellationToken {
        &self.0.restarting
    }

    /// A token for a request of this node to another one, about a block of which it asks `mode`
    /// for these storages; empty where tokens are off.
    ///
    /// # Errors
    /// `Token`: there is no key to make it with.
    pub(super) fn token(&self, block: &ExtendedBlock, access: Access) -> Result<Token, XferError> {
        Ok(self.link().block_tokens().make(block, access)?)
    }

    /// Of lines that a peer can cause without a token.
    pub(super) fn log_limit(&self) -> &LogLimit {
        &self.0.log_limit
    }

    /// Of lines about peers that went away.
    pub(super) fn gone_limit(&self) -> &LogLimit {
        &self.0.gone_limit
    }

    /// Of lines about operations that failed otherwise.
    pub(super) fn failure_limit(&self) -> &LogLimit {
        &self.0.failure_limit
    }
}
