//! The store's front door for single replicas.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, StorageType};

use crate::background::{invalidate, move_replica, take_over};
use crate::error::{StoreError, StoreErrorKind};
use crate::reader::{MissingMeta, PlainFiles, ReplicaReader, ReplicaWatch};
use crate::replica::watched::ReplicaMarks;
use crate::state::StoreState;
use crate::store::Store;
use crate::transitions::check_volume;
use crate::types::{RecoveryInfo, ReplicaRef, TakenOver, WriteOptions};
use crate::writer::ReplicaWriter;
use crate::writer::{block_recovery, create, pipeline_recovery};
use crate::{reader, reports_from_memory};

impl Store {
    /// Starts a new RBW replica (stage PIPELINE_SETUP_CREATE).
    ///
    /// Errors: `AlreadyExists`, `OutOfSpace`, `NotReady`, `Io`.
    pub async fn create_rbw(
        &self,
        block: &ExtendedBlock,
        options: WriteOptions,
    ) -> Result<ReplicaWriter, StoreError> {
        self.run(|store| create::create_rbw(store, block.clone(), options))
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
        self.run(|store| create::create_temporary(store, block.clone(), options))
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
        self.run(|store| async move {
            let work = || pipeline_recovery::append(&store, &block, new_gs, expected_len);
            on_sound(&store, &block, work).await
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
        self.run(|store| async move {
            let work = || pipeline_recovery::recover_append(&store, &block, new_gs, expected_len);
            on_sound(&store, &block, work).await
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
        let (block, min, max) = (block.clone(), min_bytes_received, max_bytes_received);
        self.run(|store| pipeline_recovery::recover_rbw(store, block, new_gs, min, max))
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
        self.run(|store| async move {
            let work = || pipeline_recovery::recover_close(&store, &block, new_gs, expected_len);
            on_sound(&store, &block, work).await
        })
        .await
    }

    /// Turns a TEMPORARY replica that was received in full into an RBW one (stage TRANSFER_RBW).
    /// The writer is used up: the client comes back with `recover_rbw` or `append`.
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

    /// Opens the files of a finalized replica anew, for another process that reads them by itself.
    /// `None` where it can be read, and has no files that are its own and whole.
    ///
    /// # Errors
    /// As [`Store::open_reader`].
    pub async fn open_plain_files(
        &self,
        block: &ExtendedBlock,
    ) -> Result<Option<PlainFiles>, StoreError> {
        reader::open_plain_files(&self.0, block).await
    }

    /// Has the next change of a block clear the marks: when its replica is deleted, moved, appended
    /// to, or leaves with its volume; until what is given back is dropped. They say whether it is
    /// cached, too: an order to uncache it waits a while for clients that rely on that.
    ///
    /// # Errors
    /// `NotReady`, `Closed`.
    pub fn watch_replica(
        &self,
        block: &ExtendedBlock,
        marks: ReplicaMarks,
    ) -> Result<ReplicaWatch, StoreError> {
        let pool = self.0.pool(&block.pool)?;
        Ok(ReplicaWatch::new(pool, block.block.id, marks))
    }

    /// Opens a replica; one that turns out to be damaged is a suspect, and so is one whose files
    /// the disk does not give.
    async fn open_marking(
        &self,
        block: &ExtendedBlock,
        missing_meta: MissingMeta,
    ) -> Result<ReplicaReader, StoreError> {
        let opened = reader::open_reader(&self.0, block, missing_meta).await;
        match &opened {
            Err(e) if e.kind() == StoreErrorKind::Corrupt => self.mark_suspect(block),
            Err(e) if e.io_error().is_some_and(|e| e.kind().suspects_volume()) => {
                self.0.mark_unreadable(block, None);
            }
            _ => {}
        }
        opened
    }

    /// What is known of a replica, whatever its generation stamp; no disk I/O.
    pub fn replica(&self, pool: &PoolId, id: i64) -> Option<ReplicaRef> {
        reports_from_memory::replica(&*self.0.pool(pool).ok()?, id)
    }

    /// Removes replicas (NameNode's INVALIDATE). When it returns, the replicas are no longer served
    /// and a restart does not bring them back; the files go later, then `StoreEvent::Deleted` is
    /// sent. Replicas that are missing or of another generation stamp are left alone and named in
    /// the error, after the others were dealt with.
    ///
    /// A volume that gives no answer delays the return, and no replica of another volume. Of a
    /// volume for which too many wait, further replicas are left alone, with a line in the log.
    pub async fn invalidate(&self, pool: &PoolId, blocks: &[Block]) -> Result<(), StoreError> {
        self.run(|store| invalidate::invalidate(store, pool.clone(), blocks.to_vec()))
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
        self.run(|store| async move {
            let work = || block_recovery::init(&store, &block, recovery_id);
            on_sound(&store, &block, work).await
        })
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
        self.run(|store| block_recovery::update(store, block, recovery_id, new_block_id, new_len))
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
        self.run(|store| move_replica::move_block(store, block, target, storage_id))
            .await
    }

    /// Moves a finalized replica from one storage of this node to another, and nowhere else.
    ///
    /// Errors: `NotFound` when it is not finalized on `source`, `OutOfSpace`, `VolumeFailed`,
    /// `Illegal` when it changed meanwhile, `Io`.
    pub async fn move_between(
        &self,
        block: &ExtendedBlock,
        source: &str,
        target: &str,
    ) -> Result<ReplicaRef, StoreError> {
        let (block, source, target) = (block.clone(), source.to_owned(), target.to_owned());
        self.run(|store| move_replica::move_between(store, block, source, target))
            .await
    }

    /// The finalized replicas of a pool on a storage with ids above `after` and no more than
    /// `len_max` bytes: the `max` with the lowest ids, in order. Looks at all replicas of the
    /// pool; no disk I/O.
    #[must_use]
    pub fn movable_on(
        &self,
        (pool, storage): (&PoolId, &str),
        after: i64,
        len_max: u64,
        max: usize,
    ) -> Vec<ExtendedBlock> {
        let pool = self.0.pool(pool).ok();
        pool.map_or_else(Vec::new, |pool| {
            reports_from_memory::movable_on(&pool, storage, (after, len_max), max)
        })
    }

    /// Takes a finalized replica over from `source`, another store of this process, to a volume of
    /// the storage type (or to the named volume). On one file system its files get second names, by
    /// a rename in the end; else they are copied and verified. Durable when it returns. `source`
    /// keeps its replica.
    ///
    /// Errors: `NotFound` when it is not finalized there, `AlreadyExists`, `OutOfSpace`, `Illegal`
    /// when it changed meanwhile, `Io`.
    pub async fn take_over(
        &self,
        source: &Self,
        block: &ExtendedBlock,
        target: StorageType,
        storage_id: Option<&str>,
    ) -> Result<TakenOver, StoreError> {
        let there = Arc::clone(&source.0);
        let (block, storage_id) = (block.clone(), storage_id.map(str::to_owned));
        self.run(|here| take_over::take_over(here, there, block, target, storage_id))
            .await
    }

    /// A client reported the replica as bad, or reading it failed: it is looked at soon.
    pub fn mark_suspect(&self, block: &ExtendedBlock) {
        self.0.mark_suspect(block);
    }
}

/// Rebuilds the replica of a block of which only other disks have the bytes, before it changes.
async fn rebuild_first(store: &Arc<StoreState>, block: &ExtendedBlock) -> Result<(), StoreError> {
    match &store.protection {
        Some(protection) => protection.rebuild_first(store, block).await,
        None => Ok(()),
    }
}

/// How long a change of a replica waits for the check of a disk that failed it.
const CHECKED_WITHIN: Duration = Duration::from_secs(20);

/// Does `work` on a replica that may lie on other disks alone: it is rebuilt before. Where the work
/// finds it damaged, or its disk fails meanwhile, and its protection can mend that, it is done once
/// more.
async fn on_sound<T, W: Future<Output = Result<T, StoreError>>>(
    store: &Arc<StoreState>,
    block: &ExtendedBlock,
    work: impl Fn() -> W,
) -> Result<T, StoreError> {
    rebuild_first(store, block).await?;
    let began = Instant::now();
    match (work().await, &store.protection) {
        (Err(e), Some(protection))
            if e.kind() == StoreErrorKind::Corrupt && protection.heal_now(store, block).await =>
        {
            work().await
        }
        (Err(e), Some(protection))
            if is_of_disk(&e) && lost_its_disk(store, block, began).await =>
        {
            protection.rebuild_first(store, block).await?;
            work().await
        }
        (other, _) => other,
    }
}

/// Whether a disk may be to blame for an error.
fn is_of_disk(error: &StoreError) -> bool {
    matches!(
        error.kind(),
        StoreErrorKind::Io | StoreErrorKind::VolumeFailed
    )
}

/// Whether a check, begun after `since`, fails the disk of a replica that its group can decode.
async fn lost_its_disk(store: &Arc<StoreState>, block: &ExtendedBlock, since: Instant) -> bool {
    let (id, Ok(pool)) = (block.block.id, store.pool(&block.pool)) else {
        return false;
    };
    let slot = pool.slot(id).ok();
    if let Some(slice) = slot.and_then(|slot| pool.slice(slot.volume()).ok()) {
        let index = slice.volume.index;
        let judged = async {
            check_volume::check_since(store, &slice.volume, since).await;
            // Another task may be about to take its replicas out.
            while slice.volume.is_failed() && pool.slot(id).is_ok_and(|s| s.volume() == index) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let _in_time = tokio::time::timeout(CHECKED_WITHIN, judged).await;
    }
    pool.degraded_replica(id).is_some()
}
