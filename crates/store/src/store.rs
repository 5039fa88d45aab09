//! The store's front door.

use std::path::PathBuf;
use std::sync::Arc;

use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, StorageType};
use tokio::sync::mpsc;

use crate::config::{StoreConfig, VolumeConfig};
use crate::error::StoreError;
use crate::reader::ReplicaReader;
use crate::types::{
    FailureSummary, NodeStorageInfo, PoolSpec, RecoveryInfo, ReplicaRef, ReportedReplica,
    StartOption, StorageInfo, StorageReport, StoreEvent, VolumeReport, WriteOptions,
};
use crate::writer::ReplicaWriter;

/// Replicas on the volumes of one datanode. Cheap to clone; all clones are the same store.
#[derive(Clone, Debug)]
pub struct Store(Arc<StoreInner>);

#[derive(Debug)]
struct StoreInner {}

impl Store {
    /// Locks the volumes, reads or creates their VERSION files. A directory that cannot be used is
    /// a failed volume, as long as no more than the tolerated number fail.
    pub async fn open(
        _config: StoreConfig,
        _events: mpsc::Sender<StoreEvent>,
    ) -> Result<Self, StoreError> {
        todo!()
    }

    /// Uuid of this datanode; made up and kept when all volumes are new.
    pub fn datanode_uuid(&self) -> String {
        todo!()
    }

    /// What a registration says about this node's storage. The cluster id is empty before the
    /// first pool was added to a new node.
    pub fn storage_info(&self) -> NodeStorageInfo {
        todo!()
    }

    /// Formats or loads a block pool on every volume. Logs progress. Pools that are loaded are
    /// left as they are.
    ///
    /// Errors: `Incompatible` when the directories belong to another cluster or namespace.
    pub async fn add_pool(&self, _spec: PoolSpec, _start: StartOption) -> Result<(), StoreError> {
        todo!()
    }

    /// The pools that are loaded.
    pub fn pools(&self) -> Vec<PoolId> {
        todo!()
    }

    /// Stops serving the pool and deletes its directories; without `force` only when it holds no
    /// replica.
    pub async fn remove_pool(&self, _pool: &PoolId, _force: bool) -> Result<(), StoreError> {
        todo!()
    }

    /// Forgets the pool without touching its files (the NameNode left the configuration).
    pub async fn forget_pool(&self, _pool: &PoolId) {
        todo!()
    }

    /// Stops the lanes and writers, writes replica cache and `dfsUsed`, lets go of the locks. Every
    /// later call fails with `Closed` or `NotReady`.
    pub async fn shutdown(&self) {
        todo!()
    }

    /// Numbers of every healthy volume, for heartbeats. No disk I/O.
    pub fn storage_reports(&self, _pool: &PoolId) -> Vec<StorageReport> {
        todo!()
    }

    /// Every replica of the pool but TEMPORARY ones, by volume. No disk I/O. Empty when the pool is not loaded.
    pub fn block_report(&self, _pool: &PoolId) -> Vec<(StorageInfo, Vec<ReportedReplica>)> {
        todo!()
    }

    /// Failed volumes so far.
    pub fn failure_summary(&self) -> FailureSummary {
        todo!()
    }

    /// Replicas in all pools.
    pub fn replica_count(&self) -> u64 {
        todo!()
    }

    /// Starts a new RBW replica (stage PIPELINE_SETUP_CREATE).
    ///
    /// Errors: `AlreadyExists`, `OutOfSpace`, `NotReady`, `Io`.
    pub async fn create_rbw(
        &self,
        _block: &ExtendedBlock,
        _options: WriteOptions,
    ) -> Result<ReplicaWriter, StoreError> {
        todo!()
    }

    /// Starts a TEMPORARY replica (copies between datanodes). One with a lower generation stamp
    /// that is being written is stopped and replaced.
    ///
    /// Errors: as `create_rbw`.
    pub async fn create_temporary(
        &self,
        _block: &ExtendedBlock,
        _options: WriteOptions,
    ) -> Result<ReplicaWriter, StoreError> {
        todo!()
    }

    /// Opens a finalized replica of length `expected_len` for append and gives it `new_gs`.
    ///
    /// Errors: `NotFound`, `UnexpectedGenerationStamp`, `Illegal` (not finalized, wrong length, `new_gs` not newer), ...
    pub async fn append(
        &self,
        _block: &ExtendedBlock,
        _new_gs: u64,
        _expected_len: u64,
    ) -> Result<ReplicaWriter, StoreError> {
        todo!()
    }

    /// As [`append`](Self::append), after a failed pipeline set-up: the replica may be finalized or RBW already.
    pub async fn recover_append(
        &self,
        _block: &ExtendedBlock,
        _new_gs: u64,
        _expected_len: u64,
    ) -> Result<ReplicaWriter, StoreError> {
        todo!()
    }

    /// Takes over an RBW replica after a pipeline failure (PIPELINE_SETUP_STREAMING_RECOVERY): stops its writer,
    /// cuts it to the acknowledged length, gives it `new_gs`.
    ///
    /// Errors: `NotFound`, `UnexpectedGenerationStamp`, `Illegal` (received bytes outside of `min..=max`), `WriterBusy`.
    pub async fn recover_rbw(
        &self,
        _block: &ExtendedBlock,
        _new_gs: u64,
        _min_bytes_received: u64,
        _max_bytes_received: u64,
    ) -> Result<ReplicaWriter, StoreError> {
        todo!()
    }

    /// PIPELINE_CLOSE_RECOVERY: gives the replica `new_gs` and finalizes it when it is not.
    pub async fn recover_close(
        &self,
        _block: &ExtendedBlock,
        _new_gs: u64,
        _expected_len: u64,
    ) -> Result<ReplicaRef, StoreError> {
        todo!()
    }

    /// Turns a TEMPORARY replica that was received in full into an RBW one (stage TRANSFER_RBW);
    /// the writer is used up: the client comes back with `recover_rbw` or `append`.
    pub async fn convert_temporary_to_rbw(
        &self,
        _writer: ReplicaWriter,
    ) -> Result<ReplicaRef, StoreError> {
        todo!()
    }

    /// Opens a replica for reading. A replica whose generation stamp is higher than the one asked
    /// for is served, one with a lower is not.
    ///
    /// Errors: `NotFound`, `UnexpectedGenerationStamp`, `NotReady`, `Io`.
    pub async fn open_reader(&self, _block: &ExtendedBlock) -> Result<ReplicaReader, StoreError> {
        todo!()
    }

    /// What is known of a replica, whatever its generation stamp; no disk I/O.
    pub fn replica(&self, _pool: &PoolId, _id: i64) -> Option<ReplicaRef> {
        todo!()
    }

    /// Removes replicas (NameNode's INVALIDATE). When it returns, the replicas are no longer served
    /// and a restart does not bring them back; the files go later, then `StoreEvent::Deleted` is
    /// sent. Replicas that are missing or newer than asked for are left alone and named in the error,
    /// after the others were dealt with.
    pub async fn invalidate(&self, _pool: &PoolId, _blocks: &[Block]) -> Result<(), StoreError> {
        todo!()
    }

    /// `initReplicaRecovery`: stops the writer, verifies the replica and puts it under recovery `recovery_id`.
    /// `None` when there is no replica or one too old to take part.
    ///
    /// Errors: `RecoveryInProgress` when a recovery with the same or a higher id owns it, `WriterBusy`, `Corrupt`.
    pub async fn init_replica_recovery(
        &self,
        _block: &ExtendedBlock,
        _recovery_id: u64,
    ) -> Result<Option<RecoveryInfo>, StoreError> {
        todo!()
    }

    /// `updateReplicaUnderRecovery`: cuts the replica to `new_len`, gives it the recovery id as generation
    /// stamp and finalizes it. With a `new_block_id` other than 0 and the block's own, the cut replica becomes
    /// a new block and the old one stays (truncate with copy-on-write). Returns the storage.
    pub async fn update_replica_under_recovery(
        &self,
        _block: &ExtendedBlock,
        _recovery_id: u64,
        _new_block_id: i64,
        _new_len: u64,
    ) -> Result<ReplicaRef, StoreError> {
        todo!()
    }

    /// Moves a finalized replica to a volume of another storage type (or to the named volume) of this node.
    pub async fn move_block(
        &self,
        _block: &ExtendedBlock,
        _target: StorageType,
        _storage_id: Option<&str>,
    ) -> Result<ReplicaRef, StoreError> {
        todo!()
    }

    /// Takes volumes out and in so that exactly `volumes` remain; volumes that stay are not touched.
    /// One result for every volume that was added or removed.
    pub async fn reconfigure_volumes(
        &self,
        _volumes: Vec<VolumeConfig>,
    ) -> Vec<(PathBuf, Result<(), StoreError>)> {
        todo!()
    }

    /// Numbers of every healthy volume for an administrator. No disk I/O.
    pub fn volume_report(&self) -> Vec<VolumeReport> {
        todo!()
    }

    /// Checks all volumes after an I/O error, at most once per minimum gap; failed ones are taken out.
    pub async fn check_volumes(&self) {
        todo!()
    }

    /// The NameNode says whether a rolling upgrade runs: while it does, deleted replicas go to `trash`.
    pub async fn set_rolling_upgrade(
        &self,
        _pool: &PoolId,
        _active: bool,
    ) -> Result<(), StoreError> {
        todo!()
    }

    /// Removes `previous` (and `trash`) of the pool: no way back after this.
    pub async fn finalize_upgrade(&self, _pool: &PoolId) -> Result<(), StoreError> {
        todo!()
    }

    /// A client reported the replica as bad, or reading it failed: the block scanner looks at it soon.
    pub fn mark_suspect(&self, _block: &ExtendedBlock) {
        todo!()
    }
}
