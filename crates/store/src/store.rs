//! The store's front door: volumes and block pools.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayloft_io::DiskStats;
use hayloft_wire::ids::PoolId;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use crate::cache;
use crate::config::{StoreConfig, VolumeConfig};
use crate::counts::ScanReport;
use crate::error::StoreError;
use crate::layout::LAYOUT_VERSION;
use crate::layout::version::PoolVersion;
use crate::replica::locked_memory::CacheUse;
use crate::replica::memory_counts::LazyPersistUse;
use crate::reports_from_memory;
use crate::reports_from_memory::{VolumeReport, VolumeSpace, VolumeTimes};
use crate::service::pool::add_remove;
use crate::service::upgrade::{HeldByUpgrades, RollingUpgradeState};
use crate::service::{hot_swap, shutdown, startup, upgrade};
use crate::shared::StoreShared;
use crate::state::{StoreProtection, StoreState};
use crate::transitions::{check_volume, volume_failure};
use crate::types::{
    FailureSummary, NodeStorageInfo, PoolSpec, ReplicaReport, StartOption, StorageInfo,
    StorageReport, StoreEvent,
};

/// Replicas on the volumes of one datanode. Cheap to clone; all clones are the same store.
#[derive(Clone, Debug)]
pub struct Store(pub(crate) Arc<StoreState>);

impl Store {
    /// Locks the volumes, reads or creates their VERSION files. A directory that cannot be used is
    /// a failed volume, as long as no more than the tolerated number fail. One that another process
    /// uses ends the start.
    pub async fn open(
        config: StoreConfig,
        events: mpsc::Sender<StoreEvent>,
    ) -> Result<Self, StoreError> {
        let shared = StoreShared::alone(config.write_memory);
        Self::open_sharing(config, events, shared, None).await
    }

    /// [`open`](Self::open) as one of several stores in this process, which have disks, memory and
    /// the space of file systems together, and whose finalized replicas are protected. The
    /// `write_memory` of `config` has no effect then.
    pub async fn open_sharing(
        config: StoreConfig,
        events: mpsc::Sender<StoreEvent>,
        shared: StoreShared,
        protection: Option<StoreProtection>,
    ) -> Result<Self, StoreError> {
        let state = startup::open(config, events, shared, protection).await?;
        Ok(Self(state))
    }

    /// Uuid of this datanode; made up and kept when all volumes are new.
    pub fn datanode_uuid(&self) -> String {
        self.0.identity().datanode_uuid.clone()
    }

    /// What a registration says about this node's storage. The cluster id is empty before the
    /// first pool was added to a new node.
    pub fn storage_info(&self) -> NodeStorageInfo {
        let cluster_id = self.0.identity().cluster_id.clone();
        NodeStorageInfo {
            cluster_id,
            namespace_id: 0,
            ctime: 0,
            layout_version: LAYOUT_VERSION,
        }
    }

    /// Formats or loads a block pool on every volume. Logs progress. Pools that are loaded are
    /// left as they are.
    ///
    /// Errors: `Incompatible` when the directories belong to another cluster or namespace; where
    /// only some do, as many as are tolerated become failed volumes.
    pub async fn add_pool(&self, spec: PoolSpec, start: StartOption) -> Result<(), StoreError> {
        add_remove::add_pool(&self.0, spec, start).await
    }

    /// The pools that are loaded.
    pub fn pools(&self) -> Vec<PoolId> {
        self.0.pools().iter().map(|p| p.id().clone()).collect()
    }

    /// The pools that are loaded, as their VERSION files have them.
    pub fn pool_versions(&self) -> Vec<PoolVersion> {
        let of = |pool: &Arc<crate::replica::block_pool::Pool>| PoolVersion {
            namespace_id: pool.spec.namespace_id,
            ctime: pool.spec.ctime,
            pool: pool.id().clone(),
        };
        self.0.pools().iter().map(of).collect()
    }

    /// Stops serving the pool and deletes its directories; without `force` only when it holds no
    /// replica.
    pub async fn remove_pool(&self, pool: &PoolId, force: bool) -> Result<(), StoreError> {
        add_remove::remove_pool(&self.0, pool, force).await
    }

    /// Forgets the pool without touching its files (the NameNode left the configuration).
    pub async fn forget_pool(&self, pool: &PoolId) {
        let _ = add_remove::forget_pool(&self.0, pool).await;
    }

    /// Before a shutdown for an upgrade: replicas being written stay RBW for the next process when
    /// it starts within `expiration` (`dfs.datanode.restart.replica.expiration`). Clients told to
    /// wait can go on.
    pub async fn mark_for_restart(&self, expiration: std::time::Duration) {
        shutdown::mark_for_restart(&self.0, expiration).await;
    }

    /// Stops the lanes and writers, writes replica cache and `dfsUsed`, lets go of the locks. Every
    /// later call fails with `Closed` or `NotReady`.
    pub async fn shutdown(&self) {
        shutdown::shutdown(&self.0).await;
    }

    /// Numbers of every healthy volume, for heartbeats. No disk I/O.
    pub fn storage_reports(&self, pool: &PoolId) -> Vec<StorageReport> {
        reports_from_memory::storage_reports(&self.0, pool)
    }

    /// Every replica of the pool but TEMPORARY ones, by storage; one that has left is named for a
    /// while with none. No disk I/O. Empty when the pool is not loaded.
    pub fn block_report(&self, pool: &PoolId) -> Vec<(StorageInfo, Vec<ReplicaReport>)> {
        self.0
            .pool(pool)
            .map(|p| reports_from_memory::block_report(&p))
            .unwrap_or_default()
    }

    /// Has these finalized replicas locked in memory (NameNode's CACHE), each when its volume's
    /// turn comes and after its data was compared with its checksums. What does not fit, or cannot
    /// be, is [counted](CacheUse::failed_to_cache), with a line in the log. No disk I/O.
    pub fn cache(&self, pool: &PoolId, ids: &[i64]) {
        match self.0.pool(pool) {
            Ok(pool) => cache::cache(&self.0, &pool, ids),
            Err(_) => self.0.cache.failed_to_cache(ids.len() as u64),
        }
    }

    /// Has these replicas locked in memory no longer (NameNode's UNCACHE). No disk I/O.
    pub fn uncache(&self, pool: &PoolId, ids: &[i64]) {
        match self.0.pool(pool) {
            Ok(pool) => cache::uncache(&self.0, &pool, ids),
            Err(_) => self.0.cache.failed_to_uncache(ids.len() as u64),
        }
    }

    /// The blocks of a pool whose replicas are locked in memory and verified, in no order. No disk
    /// I/O.
    pub fn cached_blocks(&self, pool: &PoolId) -> Vec<i64> {
        let pool = self.0.pool(pool);
        pool.map_or_else(|_| Vec::new(), |pool| pool.map.cached_ids())
    }

    /// What is locked in memory, and what was done for it. No disk I/O.
    #[must_use]
    pub fn cache_use(&self) -> CacheUse {
        self.0.cache.now()
    }

    /// What was done with replicas in memory that go to disk later. No disk I/O.
    #[must_use]
    pub fn lazy_persist_use(&self) -> LazyPersistUse {
        self.0.lazy.counts.now()
    }

    /// Failed volumes so far.
    pub fn failure_summary(&self) -> FailureSummary {
        volume_failure::summary(&self.0)
    }

    /// Replicas in all pools.
    pub fn replica_count(&self) -> u64 {
        let of = |p: &std::sync::Arc<crate::replica::block_pool::Pool>| {
            let mut count = p.map.len() as u64;
            p.for_each_degraded(|_, _| count += 1);
            count
        };
        self.0.pools().iter().map(of).sum()
    }

    /// Takes volumes out and in so that exactly `volumes` remain; volumes that stay are not
    /// touched. One result for every volume that was added or removed.
    pub async fn reconfigure_volumes(
        &self,
        volumes: Vec<VolumeConfig>,
    ) -> Vec<(PathBuf, Result<(), StoreError>)> {
        let store = Arc::clone(&self.0);
        let changing = async move { hot_swap::reconfigure(&store, volumes).await };
        match self.0.tasks.spawn(changing.in_current_span()).await {
            Ok(results) => results,
            Err(error) => {
                let text = format!("the exchange of volumes did not end: {error}");
                vec![(PathBuf::new(), Err(StoreError::closed(text)))]
            }
        }
    }

    /// Numbers of every healthy volume for an administrator. No disk I/O.
    pub fn volume_report(&self) -> Vec<VolumeReport> {
        reports_from_memory::volume_report(&self.0)
    }

    /// The healthy volumes and the room on each. No disk I/O.
    #[must_use]
    pub fn volume_spaces(&self) -> Vec<VolumeSpace> {
        reports_from_memory::volume_spaces(&self.0)
    }

    /// Measures `percent` of a hundred reads and writes on the volumes, and, above 0, all work on
    /// names.
    pub fn sample_volumes(&self, percent: u32) {
        self.0.sampling.set(percent);
    }

    /// What was measured on each healthy volume; nothing when nothing is
    /// [sampled](Self::sample_volumes).
    pub fn volume_times(&self) -> Vec<VolumeTimes> {
        reports_from_memory::volume_times(&self.0)
    }

    /// Replicas deleted on NameNodes' orders since the store was opened.
    pub fn removed_count(&self) -> u64 {
        self.0.counts.removed()
    }

    /// Replicas whose deletion NameNodes have ordered and that are still on healthy volumes.
    pub fn pending_deletions(&self) -> usize {
        let volumes = self.0.volumes();
        volumes.iter().map(|v| v.invalidations.waiting()).sum()
    }

    /// When the directory scanner was through all volumes last, milliseconds since 1970; 0 before
    /// the first time.
    pub fn directories_compared_ms(&self) -> u64 {
        self.0.counts.directories_compared_ms()
    }

    /// What the block scanners have done since the store was opened; of volumes that left, too.
    pub fn scan_reports(&self) -> Vec<ScanReport> {
        self.0.counts.scans()
    }

    /// What the disks under the healthy volumes did since they were opened, by the kernel's names
    /// of the disks.
    pub fn disk_stats(&self) -> Vec<(String, DiskStats)> {
        shutdown::disk_stats(&self.0)
    }

    /// New replicas go to the volumes at `paths` only when no other has room; until the next call.
    pub fn avoid_volumes(&self, paths: &[&Path]) {
        reports_from_memory::avoid(&self.0, paths);
    }

    /// Checks all volumes after an I/O error; failed ones are taken out. Calls at the same time
    /// share one check.
    pub async fn check_volumes(&self) {
        check_volume::check_all(&self.0, &self.0.volumes()).await;
    }

    /// Runs what must go on while the caller's thread waits for a disk.
    pub fn run_aside(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn(work);
    }

    /// [`check_volumes`](Self::check_volumes), without waiting for it: it takes minutes when a disk
    /// hangs.
    pub fn check_volumes_soon(&self) {
        let store = self.clone();
        self.run_aside(async move { store.check_volumes().await });
    }

    /// The active NameNode says how a rolling upgrade stands: while one runs, replicas that it
    /// orders to delete go to `trash`. Trash goes only when the end of an upgrade is told of whose
    /// beginning this process has heard, on the storages that were here in between.
    ///
    /// # Errors
    /// `Io` when a volume could not be brought to it; the next call tries again.
    pub async fn set_rolling_upgrade(
        &self,
        pool: &PoolId,
        state: RollingUpgradeState,
    ) -> Result<(), StoreError> {
        self.run(|store| upgrade::set_rolling(store, pool.clone(), state))
            .await
    }

    /// Whether [`set_rolling_upgrade`](Self::set_rolling_upgrade) would have nothing to do; nor has
    /// it for a pool that is not loaded. A volume that joins may change that: it brings what it was
    /// left with. No disk I/O.
    pub fn rolling_upgrade_is(&self, pool: &PoolId, state: RollingUpgradeState) -> bool {
        let pool = self.0.pool(pool).ok();
        pool.is_none_or(|pool| upgrade::rolling_is(&pool, state))
    }

    /// What upgrades hold back on the volumes, by volume and pool. No disk I/O.
    #[must_use]
    pub fn held_by_upgrades(&self) -> Vec<HeldByUpgrades> {
        upgrade::held(&self.0)
    }

    /// Removes `previous` of the pool: no way back after this.
    pub async fn finalize_upgrade(&self, pool: &PoolId) -> Result<(), StoreError> {
        self.run(|store| upgrade::finalize(store, pool.clone()))
            .await
    }

    /// Deletes wait from now on.
    #[cfg(test)]
    pub(crate) fn stop_lanes(&self) {
        self.0.delete_queues.write().expect("not poisoned").clear();
    }

    /// Runs an operation to its end even if the caller goes away.
    pub(crate) async fn run<T, F>(
        &self,
        operation: impl FnOnce(Arc<StoreState>) -> F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.0.complete(operation(Arc::clone(&self.0))).await
    }
}
