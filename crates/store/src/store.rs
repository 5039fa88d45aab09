//! The store's front door.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayloft_io::DiskStats;
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, StorageType};
use tokio::sync::mpsc;

use crate::background::block_scanner;
use crate::background::{invalidate, move_replica};
use crate::config::{StoreConfig, VolumeConfig};
use crate::error::{StoreError, StoreErrorKind};
use crate::layout::LAYOUT_VERSION;
use crate::lifecycle::volume_failure;
use crate::pool::add_remove;
use crate::reader::{MissingMeta, ReplicaReader};
use crate::report::VolumeTimes;
use crate::state::StoreState;
use crate::types::{
    FailureSummary, NodeStorageInfo, PoolSpec, RecoveryInfo, ReplicaRef, ReplicaReport,
    StartOption, StorageInfo, StorageReport, StoreEvent, VolumeReport, WriteOptions,
};
use crate::writer::ReplicaWriter;
use crate::writer::{block_recovery, create, pipeline_recovery};
use crate::{hot_swap, reader, report, shutdown, startup, upgrade};

/// Replicas on the volumes of one datanode. Cheap to clone; all clones are the same store.
#[derive(Clone, Debug)]
pub struct Store(pub(crate) Arc<StoreState>);

impl Store {
    /// Locks the volumes, reads or creates their VERSION files. A directory that cannot be used is
    /// a failed volume, as long as no more than the tolerated number fail.
    pub async fn open(
        config: StoreConfig,
        events: mpsc::Sender<StoreEvent>,
    ) -> Result<Self, StoreError> {
        Ok(Self(startup::open(config, events).await?))
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
    /// Errors: `Incompatible` when the directories belong to another cluster or namespace.
    pub async fn add_pool(&self, spec: PoolSpec, start: StartOption) -> Result<(), StoreError> {
        add_remove::add_pool(&self.0, spec, start).await
    }

    /// The pools that are loaded.
    pub fn pools(&self) -> Vec<PoolId> {
        self.0.pools().iter().map(|p| p.id().clone()).collect()
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

    /// Before a shutdown for an upgrade: replicas that are being written stay open for the next
    /// process (RBW, not RWR) when it starts within `expiration`
    /// (`dfs.datanode.restart.replica.expiration`), so that clients told to wait can go on.
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
        report::storage_reports(&self.0, pool)
    }

    /// Every replica of the pool but TEMPORARY ones, by storage; one that has left is named for a
    /// while with none. No disk I/O. Empty when the pool is not loaded.
    pub fn block_report(&self, pool: &PoolId) -> Vec<(StorageInfo, Vec<ReplicaReport>)> {
        self.0
            .pool(pool)
            .map(|p| report::block_report(&p))
            .unwrap_or_default()
    }

    /// Failed volumes so far.
    pub fn failure_summary(&self) -> FailureSummary {
        let (failed_locations, last_failure_ms, lost_capacity) = volume_failure::summary(&self.0);
        FailureSummary {
            failed_locations,
            last_failure_ms,
            lost_capacity,
        }
    }

    /// Replicas in all pools.
    pub fn replica_count(&self) -> u64 {
        self.0.pools().iter().map(|p| p.map.len() as u64).sum()
    }

    /// Starts a new RBW replica (stage PIPELINE_SETUP_CREATE).
    ///
    /// Errors: `AlreadyExists`, `OutOfSpace`, `NotReady`, `Io`.
    pub async fn create_rbw(
        &self,
        block: &ExtendedBlock,
        options: WriteOptions,
    ) -> Result<ReplicaWriter, StoreError> {
        let block = block.clone();
        self.run(|inner| async move { create::create_rbw(&inner, &block, options).await })
            .await
    }

    /// Starts a TEMPORARY replica (copies between datanodes). One with a lower generation stamp
    /// that is being written is stopped and replaced.
    ///
    /// Errors: as `create_rbw`.
    pub async fn create_temporary(
        &self,
        block: &ExtendedBlock,
        options: WriteOptions,
    ) -> Result<ReplicaWriter, StoreError> {
        let block = block.clone();
        self.run(|inner| async move { create::create_temporary(&inner, &block, options).await })
            .await
    }

    /// Opens a finalized replica of length `expected_len` for append and gives it `new_gs`.
    ///
    /// Errors: `NotFound`, `UnexpectedGenerationStamp`, `Illegal` (not finalized, wrong length,
    /// `new_gs` not newer), ...
    pub async fn append(
        &self,
        block: &ExtendedBlock,
        new_gs: u64,
        expected_len: u64,
    ) -> Result<ReplicaWriter, StoreError> {
        let block = block.clone();
        self.run(|inner| async move {
            pipeline_recovery::append(&inner, &block, new_gs, expected_len).await
        })
        .await
    }

    /// As [`append`](Self::append), after a failed pipeline set-up: the replica may be finalized or
    /// RBW already.
    pub async fn recover_append(
        &self,
        block: &ExtendedBlock,
        new_gs: u64,
        expected_len: u64,
    ) -> Result<ReplicaWriter, StoreError> {
        let block = block.clone();
        self.run(|inner| async move {
            pipeline_recovery::recover_append(&inner, &block, new_gs, expected_len).await
        })
        .await
    }

    /// Takes over an RBW replica after a pipeline failure (PIPELINE_SETUP_STREAMING_RECOVERY):
    /// stops its writer, cuts it to the acknowledged length, gives it `new_gs`.
    ///
    /// Errors: `NotFound`, `UnexpectedGenerationStamp`, `Illegal` (received bytes outside of
    /// `min..=max`), `WriterBusy`.
    pub async fn recover_rbw(
        &self,
        block: &ExtendedBlock,
        new_gs: u64,
        min_bytes_received: u64,
        max_bytes_received: u64,
    ) -> Result<ReplicaWriter, StoreError> {
        let block = block.clone();
        self.run(|inner| async move {
            pipeline_recovery::recover_rbw(
                &inner,
                &block,
                new_gs,
                min_bytes_received,
                max_bytes_received,
            )
            .await
        })
        .await
    }

    /// PIPELINE_CLOSE_RECOVERY: gives the replica `new_gs` and finalizes it when it is not.
    pub async fn recover_close(
        &self,
        block: &ExtendedBlock,
        new_gs: u64,
        expected_len: u64,
    ) -> Result<ReplicaRef, StoreError> {
        let block = block.clone();
        self.run(|inner| async move {
            pipeline_recovery::recover_close(&inner, &block, new_gs, expected_len).await
        })
        .await
    }

    /// Turns a TEMPORARY replica that was received in full into an RBW one (stage TRANSFER_RBW);
    /// the writer is used up: the client comes back with `recover_rbw` or `append`.
    pub async fn convert_temporary_to_rbw(
        &self,
        writer: ReplicaWriter,
    ) -> Result<ReplicaRef, StoreError> {
        writer.convert().await
    }

    /// Opens a replica for reading. A replica whose generation stamp is higher than the one asked
    /// for is served, one with a lower is not.
    ///
    /// A finalized replica without meta file is read without checksums. A caller that copies or
    /// vouches for what is read uses [`Store::open_verifiable`].
    ///
    /// Errors: `NotFound`, `UnexpectedGenerationStamp`, `NotReady`, `Io`; `Corrupt` when the header
    /// of the meta file cannot be read; the block scanner then looks at the replica.
    pub async fn open_reader(&self, block: &ExtendedBlock) -> Result<ReplicaReader, StoreError> {
        self.open_marking(block, MissingMeta::Tolerated).await
    }

    /// As [`Store::open_reader`], for copies and checksums: a replica without meta file is
    /// `Corrupt`. A reader that says NULL belongs to a replica that was written without checksums.
    pub async fn open_verifiable(
        &self,
        block: &ExtendedBlock,
    ) -> Result<ReplicaReader, StoreError> {
        self.open_marking(block, MissingMeta::Refused).await
    }

    /// Opens a replica; one that turns out to be damaged is a suspect.
    async fn open_marking(
        &self,
        block: &ExtendedBlock,
        missing_meta: MissingMeta,
    ) -> Result<ReplicaReader, StoreError> {
        let opened = reader::open_reader(&self.0, block, missing_meta).await;
        if opened
            .as_ref()
            .is_err_and(|e| e.kind() == StoreErrorKind::Corrupt)
        {
            self.mark_suspect(block);
        }
        opened
    }

    /// What is known of a replica, whatever its generation stamp; no disk I/O.
    pub fn replica(&self, pool: &PoolId, id: i64) -> Option<ReplicaRef> {
        report::replica(&*self.0.pool(pool).ok()?, id)
    }

    /// Removes replicas (NameNode's INVALIDATE). When it returns, the replicas are no longer served
    /// and a restart does not bring them back; the files go later, then `StoreEvent::Deleted` is
    /// sent. Replicas that are missing or of another generation stamp are left alone and named in
    /// the error, after the others were dealt with.
    ///
    /// A volume that gives no answer delays the return, and no replica of another volume. Of a
    /// volume for which too many wait, further replicas are left alone, with a line in the log.
    pub async fn invalidate(&self, pool: &PoolId, blocks: &[Block]) -> Result<(), StoreError> {
        let (pool, blocks) = (pool.clone(), blocks.to_vec());
        self.run(|inner| async move { invalidate::invalidate(&inner, &pool, &blocks).await })
            .await
    }

    /// `initReplicaRecovery`: stops the writer, verifies the replica and puts it under recovery
    /// `recovery_id`. `None` when there is no replica or one too old to take part.
    ///
    /// Errors: `RecoveryInProgress` when a recovery with the same or a higher id owns it,
    /// `WriterBusy`, `Corrupt`.
    pub async fn init_replica_recovery(
        &self,
        block: &ExtendedBlock,
        recovery_id: u64,
    ) -> Result<Option<RecoveryInfo>, StoreError> {
        let block = block.clone();
        self.run(|inner| async move { block_recovery::init(&inner, &block, recovery_id).await })
            .await
    }

    /// `updateReplicaUnderRecovery`: cuts the replica to `new_len`, gives it the recovery id as
    /// generation stamp and finalizes it. With a `new_block_id` other than 0 and the block's own,
    /// the cut replica becomes a new block and the old one stays (truncate with copy-on-write).
    /// Returns the storage.
    pub async fn update_replica_under_recovery(
        &self,
        block: &ExtendedBlock,
        recovery_id: u64,
        new_block_id: i64,
        new_len: u64,
    ) -> Result<ReplicaRef, StoreError> {
        let block = block.clone();
        self.run(|inner| async move {
            block_recovery::update(&inner, &block, recovery_id, new_block_id, new_len).await
        })
        .await
    }

    /// Moves a finalized replica to a volume of another storage type (or to the named volume) of
    /// this node.
    pub async fn move_block(
        &self,
        block: &ExtendedBlock,
        target: StorageType,
        storage_id: Option<&str>,
    ) -> Result<ReplicaRef, StoreError> {
        let (block, storage_id) = (block.clone(), storage_id.map(str::to_owned));
        self.run(|inner| async move {
            move_replica::move_block(&inner, &block, target, storage_id.as_deref()).await
        })
        .await
    }

    /// Takes volumes out and in so that exactly `volumes` remain; volumes that stay are not
    /// touched. One result for every volume that was added or removed.
    pub async fn reconfigure_volumes(
        &self,
        volumes: Vec<VolumeConfig>,
    ) -> Vec<(PathBuf, Result<(), StoreError>)> {
        let inner = Arc::clone(&self.0);
        match self
            .0
            .tasks
            .spawn(async move { hot_swap::reconfigure(&inner, volumes).await })
            .await
        {
            Ok(results) => results,
            Err(error) => {
                let text = format!("the exchange of volumes did not end: {error}");
                vec![(
                    PathBuf::new(),
                    Err(StoreError::new(StoreErrorKind::Closed, text)),
                )]
            }
        }
    }

    /// Numbers of every healthy volume for an administrator. No disk I/O.
    pub fn volume_report(&self) -> Vec<VolumeReport> {
        report::volume_report(&self.0)
    }

    /// Measures `percent` of a hundred reads and writes on the volumes, and, above 0, all work on
    /// names.
    pub fn sample_volumes(&self, percent: u32) {
        self.0.sampling.set(percent);
    }

    /// What was measured on each healthy volume; nothing when nothing is
    /// [sampled](Self::sample_volumes).
    pub fn volume_times(&self) -> Vec<VolumeTimes> {
        report::volume_times(&self.0)
    }

    /// What the disks under the healthy volumes did since they were opened, by the kernel's names
    /// of the disks.
    pub fn disk_stats(&self) -> Vec<(String, DiskStats)> {
        shutdown::disk_stats(&self.0)
    }

    /// New replicas go to the volumes at `paths` only when no other has room; until the next call.
    pub fn avoid_volumes(&self, paths: &[&Path]) {
        report::avoid(&self.0, paths);
    }

    /// Checks all volumes after an I/O error; failed ones are taken out. Calls at the same time
    /// share one check.
    pub async fn check_volumes(&self) {
        volume_failure::check_all(&self.0, &self.0.volumes()).await;
    }

    /// The NameNode says whether a rolling upgrade runs: while it does, deleted replicas go to
    /// `trash`.
    pub async fn set_rolling_upgrade(&self, pool: &PoolId, active: bool) -> Result<(), StoreError> {
        let pool = pool.clone();
        self.run(|inner| async move { upgrade::set_rolling(&inner, &pool, active).await })
            .await
    }

    /// Whether [`set_rolling_upgrade`](Self::set_rolling_upgrade) would have nothing to do; nor has
    /// it for a pool that is not loaded. A volume that joins may change that: it brings what it was
    /// left with. No disk I/O.
    pub fn rolling_upgrade_is(&self, pool: &PoolId, active: bool) -> bool {
        let pool = self.0.pool(pool).ok();
        pool.is_none_or(|pool| upgrade::rolling_is(&pool, active))
    }

    /// Removes `previous` of the pool: no way back after this.
    pub async fn finalize_upgrade(&self, pool: &PoolId) -> Result<(), StoreError> {
        let pool = pool.clone();
        self.run(|inner| async move { upgrade::finalize(&inner, &pool).await })
            .await
    }

    /// A client reported the replica as bad, or reading it failed: the block scanner looks at it
    /// soon.
    pub fn mark_suspect(&self, block: &ExtendedBlock) {
        block_scanner::mark_suspect(&self.0, block);
    }

    /// Ends as a killed process would, but for the descriptors: nothing is saved, the locks go.
    #[cfg(test)]
    pub(crate) fn crash(&self) {
        self.0.stop.cancel();
        for volume in self.0.volumes() {
            volume.unlock();
        }
    }

    /// Deletes wait from now on.
    #[cfg(test)]
    pub(crate) fn stop_lanes(&self) {
        self.0.delete_queues.write().expect("not poisoned").clear();
    }

    /// Compares directories with memory now.
    #[cfg(test)]
    pub(crate) async fn scan_directories(&self) {
        crate::background::directory_scanner::scan_all(&self.0).await;
    }

    /// Runs an operation to its end even if the caller goes away.
    async fn run<T, F>(&self, operation: impl FnOnce(Arc<StoreState>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.0.complete(operation(Arc::clone(&self.0))).await
    }
}
