//! One running node: what its services ask of each other.
//!
//! The services do not know each other. Each names what it needs of the rest as a trait, and this
//! is the one place that answers all of them.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hayloft_io::disk::DiskStats;
use hayloft_protection::{ParityProtection, ParityStatus};
use hayloft_store::{StorageInfo, Store, VolumeReport};
use hayloft_wire::block_token::{AccessMode, BlockTokenIdentifier};
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use hayloft_wire::proto::datanode::CommitBlockSynchronizationRequest;
use hayloft_wire::proto::hdfs::{BlockEcReconstructionInfo, DatanodeId};
use hayloft_wire::proto::hdfs_server::RecoveringBlock;
use tokio_util::sync::CancellationToken;

use crate::disk_balancer::DiskBalancer;
use crate::http::{Cached, Periods, Sampled, WebHost};
use crate::identity::{Identity, SOFTWARE_VERSION};
use crate::ipc::Host;
use crate::namenode::{ActorInfo, NameNodes, NodeLoad, NodeWork, Targets};
use crate::outliers::{OutlierReports, Outliers};
use crate::recovery::BlockRecovery;
use crate::security::{Access, BlockTokens, TokenRefused};
use crate::snapshots::{SnapshotState, Snapshots};
use crate::xceiver::{
    Activity, Settings, Throttles, XceiverStats, Xceivers, reconstruct, transfer_block,
};
use hayloft_conf::{Configuration, HostPort, SharedConfig, keys};
use hayloft_rpc::RpcError;
use hayloft_rpc::server::RpcStats;

/// The web port tells of volumes what was so at most so long ago, and of disks.
const VOLUMES_FRESH: Duration = Duration::from_secs(10);
const DISKS_FRESH: Duration = Duration::from_secs(1);

/// The services of one node and what they share.
pub(super) struct Node {
    pub(super) config: SharedConfig,
    /// Address that connections to other nodes come from.
    pub(super) local: Option<IpAddr>,
    pub(super) store: Store,
    /// What protects its replicas, if something does.
    pub(super) protection: Option<Arc<ParityProtection>>,
    pub(super) xceivers: Xceivers,
    /// Set once at start, before any service runs.
    pub(super) namenodes: OnceLock<NameNodes>,
    pub(super) told: ToldOfStore,
    /// How NameNodes know the node.
    pub(super) identity: Identity,
    /// Likewise.
    pub(super) recovery: OnceLock<BlockRecovery>,
    pub(super) outliers: Outliers,
    pub(super) disk_balancer: DiskBalancer,
    /// What the RPC port does.
    pub(super) rpc_stats: Arc<RpcStats>,
    /// What the web port told of rates last.
    pub(super) periods: Periods,
    /// What it takes by itself, if it does.
    pub(super) snapshots: Option<Snapshots>,
    pub(super) started: Instant,
    /// Cancelled to stop the node.
    pub(super) stop: CancellationToken,
    /// Cancelled instead when clients are to be told that the node comes back.
    pub(super) stop_for_upgrade: CancellationToken,
}

/// What the web port told of the store last.
pub(super) struct ToldOfStore {
    volumes: Cached<Vec<VolumeReport>>,
    disks: Cached<Vec<(String, DiskStats)>>,
}

impl Default for ToldOfStore {
    fn default() -> Self {
        Self {
            volumes: Cached::new(VOLUMES_FRESH),
            disks: Cached::new(DISKS_FRESH),
        }
    }
}

impl Node {
    fn namenodes(&self) -> &NameNodes {
        self.namenodes
            .get()
            .expect("set before the first service runs")
    }
}

/// What the data transfer service of a node with that address takes from the configuration.
pub(super) fn settings(config: &Configuration, local: Option<IpAddr>) -> Settings {
    Settings {
        local,
        ..Settings::from_config(config)
    }
}

impl Host for Node {
    fn config(&self) -> &SharedConfig {
        &self.config
    }

    fn local_address(&self) -> Option<IpAddr> {
        self.local
    }

    fn store(&self) -> &Store {
        &self.store
    }

    fn software_version(&self) -> String {
        SOFTWARE_VERSION.to_owned()
    }

    fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    fn serves(&self, pool: &PoolId) -> bool {
        self.namenodes().serves(pool)
    }

    fn registration(&self, pool: &PoolId) -> Option<DatanodeId> {
        self.namenodes().datanode_id(pool)
    }

    fn block_tokens(&self) -> Option<BlockTokens> {
        Some(self.namenodes().block_tokens().clone())
    }

    fn check_reader(
        &self,
        block: &ExtendedBlock,
        proved: Option<&BlockTokenIdentifier>,
    ) -> Result<(), TokenRefused> {
        let tokens = self.namenodes().block_tokens();
        tokens.check_proved(proved, block, &Access::to(AccessMode::Read))
    }

    fn received(&self, block: &ExtendedBlock, storage: &StorageInfo) {
        self.namenodes().notify_finalized(block, storage, None);
    }

    fn commit_block_synchronization<'a>(
        &'a self,
        pool: &'a PoolId,
        request: CommitBlockSynchronizationRequest,
    ) -> BoxFuture<'a, Result<(), RpcError>> {
        async move {
            self.namenodes()
                .commit_block_synchronization(pool, &request)
                .await
        }
        .boxed()
    }

    fn refresh_namenodes(&self) -> BoxFuture<'_, Result<(), String>> {
        let outcome = self.namenodes().refresh_from_files();
        std::future::ready(outcome.map_err(|error| error.to_string())).boxed()
    }

    fn namenodes(&self) -> Vec<HostPort> {
        let actors = self.namenodes().actors();
        let addresses = actors.iter().map(|actor| actor.address.as_str());
        addresses
            .filter_map(|text| HostPort::parse_with_default(text, None).ok())
            .collect()
    }

    fn trigger_block_report(&self, incremental: bool, namenode: Option<&HostPort>) {
        self.namenodes().trigger_block_report(incremental, namenode);
    }

    fn evict_writers(&self) {
        self.xceivers.evict_writers();
    }

    fn balancer_bandwidth(&self) -> u64 {
        self.xceivers.throttles().balancer.rate()
    }

    fn disk_balancer(&self) -> &DiskBalancer {
        &self.disk_balancer
    }

    fn shutdown(&self, for_upgrade: bool) -> bool {
        if self.stop.is_cancelled() || self.stop_for_upgrade.is_cancelled() {
            return false;
        }
        if for_upgrade {
            self.stop_for_upgrade.cancel();
        } else {
            self.stop.cancel();
        }
        true
    }

    fn config_changed(&self) {
        let config = self.config.current();
        self.xceivers.configure(settings(&config, self.local));
        throttle(self.xceivers.throttles(), &config);
        Outliers::configure(&config, self.xceivers.peer_times(), &self.store);
    }
}

/// Takes over the limits that may change while the node runs. The balancer's is not among them: the
/// NameNode sets it.
fn throttle(throttles: &Throttles, config: &Configuration) {
    let transfer = config.get(&keys::DATA_TRANSFER_BANDWIDTH);
    throttles.transfer.set(transfer);
    throttles.write.set(config.get(&keys::DATA_WRITE_BANDWIDTH));
    throttles.read.set(config.get(&keys::DATA_READ_BANDWIDTH));
    let moves = config.get(&keys::BALANCE_MAX_MOVES);
    throttles
        .moves
        .set(usize::try_from(moves).unwrap_or(usize::MAX));
}

impl WebHost for Node {
    fn config(&self) -> &SharedConfig {
        &self.config
    }

    fn local_address(&self) -> Option<IpAddr> {
        self.local
    }

    fn store(&self) -> &Store {
        &self.store
    }

    fn parity(&self) -> Option<ParityStatus> {
        self.protection.as_ref().map(|parity| parity.status())
    }

    fn snapshots(&self) -> Option<SnapshotState> {
        self.snapshots.as_ref().map(Snapshots::state)
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn volumes(&self) -> Arc<Sampled<Vec<VolumeReport>>> {
        self.told.volumes.get_or(|| self.store.volume_report())
    }

    fn disks(&self) -> Arc<Sampled<Vec<(String, DiskStats)>>> {
        self.told.disks.get_or(|| self.store.disk_stats())
    }

    fn stats(&self) -> &XceiverStats {
        self.xceivers.stats()
    }

    fn actors(&self) -> Vec<ActorInfo> {
        self.namenodes().actors()
    }

    fn rpc_stats(&self) -> &RpcStats {
        &self.rpc_stats
    }

    fn recoveries(&self) -> usize {
        self.recovery.get().map_or(0, BlockRecovery::in_progress)
    }

    fn block_tokens(&self) -> &BlockTokens {
        self.namenodes().block_tokens()
    }

    fn periods(&self) -> &Periods {
        &self.periods
    }

    fn slow(&self) -> OutlierReports {
        self.outliers()
    }

    fn peer_averages(&self) -> Option<Vec<(Arc<str>, f64)>> {
        let measured = self.config.get(&keys::PEER_STATS_ENABLED);
        let now = tokio::time::Instant::now();
        measured.then(|| self.xceivers.peer_times().averages(0, now))
    }

    fn disk_balancer_status(&self) -> String {
        self.disk_balancer.status()
    }

    fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

impl NodeWork for Node {
    fn transfer(
        &self,
        block: ExtendedBlock,
        targets: Targets,
    ) -> BoxFuture<'static, Result<(), String>> {
        let xceivers = self.xceivers.clone();
        async move {
            transfer_block(&xceivers, &block, targets)
                .await
                .map_err(|error| error.to_string())
        }
        .boxed()
    }

    fn recover(&self, pool: PoolId, blocks: Vec<RecoveringBlock>) -> BoxFuture<'static, ()> {
        if let Some(recovery) = self.recovery.get() {
            recovery.recover_blocks(pool.as_str(), blocks);
        }
        std::future::ready(()).boxed()
    }

    fn reconstruct(
        &self,
        pool: PoolId,
        order: BlockEcReconstructionInfo,
    ) -> BoxFuture<'static, Result<(), String>> {
        tracing::debug!(%pool, "asked to reconstruct blocks of {}", order.block.block_id);
        let work = reconstruct(&self.xceivers, order);
        async move {
            let outcome = match work {
                Ok(work) => work.await,
                Err(error) => Err(error),
            };
            outcome.map_err(|error| error.to_string())
        }
        .boxed()
    }

    fn set_balancer_bandwidth(&self, bytes_per_second: u64) {
        self.xceivers.throttles().balancer.set(bytes_per_second);
    }

    fn load(&self) -> NodeLoad {
        let stats = self.xceivers.stats();
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        NodeLoad {
            xmits: number(stats.now(Activity::Xmit)),
            xceivers: number(stats.now(Activity::Connection)),
        }
    }

    fn outliers(&self) -> OutlierReports {
        let peers = self.xceivers.peer_times();
        let now = tokio::time::Instant::now();
        self.outliers
            .reports(&self.config.current(), peers, &self.store, now)
    }
}
