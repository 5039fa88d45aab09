//! Moving replicas between volumes of this node: by hard link between DISK and ARCHIVE on one mount
//! (HDFS-15549), else by a copy.

use std::sync::Arc;

use hayloft_io::{IoClass, IoError, IoOp};
use hayloft_wire::ids::{Block, ExtendedBlock, StorageType};
use tracing::warn;

use super::bring_files::{Pace, copy_verified, link_pair};
use crate::error::{StoreError, StoreErrorKind};
use crate::replica::block_pool::Pool;
use crate::replica::file_pair::{self, Pair};
use crate::replica::{FinalReplica, ReplicaDir, Slot};
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::types::ReplicaRef;
use crate::volume::reservation::Reservation;
use crate::volume::{BlockPoolSlice, footprint};
use crate::writer::volume_for_new_replica::Tried;

/// See [`Store::move_block`](crate::Store::move_block).
pub async fn move_block(
    store: Arc<StoreState>,
    block: ExtendedBlock,
    target: StorageType,
    storage_id: Option<String>,
) -> Result<ReplicaRef, StoreError> {
    let pool = store.pool(&block.pool)?;
    let (replica, from) = source(&pool, &block)?;
    let storage_id = storage_id.as_deref().filter(|id| !id.is_empty());
    if from.volume.info.storage_type == target
        && storage_id.is_none_or(|id| *id == *from.volume.info.id)
    {
        return Err(StoreError::new(
            StoreErrorKind::AlreadyExists,
            format!("Replica {block} already exists on storage {target}"),
        ));
    }
    let mut tried = Tried::except(vec![replica.volume]);
    let mut near = beside(&store, &pool, &from, target, storage_id, replica.len);
    loop {
        let (slice, way) = match near.take() {
            Some(slice) => (slice, Way::Link),
            None => {
                let bytes = replica.len;
                (
                    tried
                        .choose(&store, &pool, (target, storage_id), bytes)
                        .await?,
                    Way::Copy,
                )
            }
        };
        match try_move(&store, &pool, &block, replica, (&from, &slice), way).await {
            Err(e) if Tried::is_of(&e, &slice) => tried.failed(&slice, block.block, e),
            ended => return ended,
        }
    }
}

/// See [`Store::move_between`](crate::Store::move_between).
pub async fn move_between(
    store: Arc<StoreState>,
    block: ExtendedBlock,
    source_id: String,
    target_id: String,
) -> Result<ReplicaRef, StoreError> {
    let pool = store.pool(&block.pool)?;
    let (replica, from) = source(&pool, &block)?;
    if *from.volume.info.id != *source_id {
        let text = format!("Replica {block} is no longer on storage {source_id}");
        return Err(StoreError::not_found(text));
    }
    let mut slices = pool.slices().into_iter();
    let to = slices.find(|s| *s.volume.info.id == *target_id && !s.volume.is_failed());
    let to = to.ok_or_else(|| pool.volume_failed())?;
    if !store.reserve_on(&to, replica.len) {
        let why = match store.is_failing(&to.volume) {
            true => "had an error a while ago, and takes no new replicas",
            false => "is out of space for a replica of that length",
        };
        let text = format!("Storage {target_id} {why}");
        return Err(StoreError::new(StoreErrorKind::OutOfSpace, text));
    }
    let near = from.volume.partner().map(|partner| partner.index);
    let way = match near == Some(to.volume.index) {
        true => Way::Link,
        false => Way::Copy,
    };
    try_move(&store, &pool, &block, replica, (&from, &to), way).await
}

/// Moves a replica to a volume on which room is reserved for it. What fails may be its own files:
/// then it becomes a suspect.
async fn try_move(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    block: &ExtendedBlock,
    replica: FinalReplica,
    (from, to): (&Arc<BlockPoolSlice>, &Arc<BlockPoolSlice>),
    way: Way,
) -> Result<ReplicaRef, StoreError> {
    let _reserved = Reservation::taken(&to.volume, replica.len);
    let id = block.block.id;
    let moved = copy_and_switch(store, pool, id, replica, from, to, way).await;
    if let Err(e) = &moved
        && matches!(e.kind(), StoreErrorKind::Io | StoreErrorKind::Corrupt)
        && pool.map.is_finalized(id, &replica)
        && !Tried::is_of(e, to)
    {
        store.mark_suspect(block);
    }
    moved
}

/// How a replica's files come to the other volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// They get other names: no byte is read or written.
    Link,
    /// They are copied and verified.
    Copy,
}

/// The part of the pool on the volume of type `target` that shares its mount with `from`, with
/// room for `bytes` reserved on it; `None` when there is none or another storage was asked for.
fn beside(
    store: &StoreState,
    pool: &Pool,
    from: &BlockPoolSlice,
    target: StorageType,
    storage_id: Option<&str>,
    bytes: u64,
) -> Option<Arc<BlockPoolSlice>> {
    let partner = from.volume.partner()?;
    let asked =
        partner.info.storage_type == target && storage_id.is_none_or(|id| *id == *partner.info.id);
    let slice = pool.slice(partner.index).ok().filter(|_| asked)?;
    store.reserve_on(&slice, bytes).then_some(slice)
}

/// The finalized replica that is to move, and where it is.
pub(super) fn source(
    pool: &Pool,
    block: &ExtendedBlock,
) -> Result<(FinalReplica, Arc<BlockPoolSlice>), StoreError> {
    let slot = pool.slot(block.block.id)?;
    let Slot::Finalized(replica) = slot else {
        let text = format!("Replica {block} is not finalized and cannot be moved");
        return Err(StoreError::not_found(text));
    };
    if replica.generation_stamp < block.block.generation_stamp {
        let text = format!(
            "Replica {block} has the older generation stamp {}",
            replica.generation_stamp
        );
        return Err(StoreError::new(
            StoreErrorKind::UnexpectedGenerationStamp,
            text,
        ));
    }
    Ok((replica, pool.slice(replica.volume)?))
}

/// Copies or links to `tmp` of the other volume without a latch, then switches under the latch if
/// the replica is still the same.
///
/// An append that comes between finds files with two names and makes a copy for itself: a link
/// never sees what is appended.
async fn copy_and_switch(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    replica: FinalReplica,
    from: &Arc<BlockPoolSlice>,
    to: &Arc<BlockPoolSlice>,
    way: Way,
) -> Result<ReplicaRef, StoreError> {
    let old = Block::new(id, replica.generation_stamp, replica.len);
    let unique = to
        .delete_sequence
        .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let source = Pair::finalized(&from.paths, id, replica.generation_stamp);
    // A directory of its own: a copy from another node may be in `tmp` under the same name.
    let scratch = source.at(to.paths.tmp().join(format!("move-{unique}")));
    let failed = |e| {
        let e = StoreError::io(
            format!("moving replica {old} to {}", to.volume.root.display()),
            e,
        );
        examine(store, &to.volume, examine(store, &from.volume, e))
    };
    let copying = async {
        let bytes = bring(from, to, &source, &scratch, replica.len, way).await;
        Ok((bytes.map_err(failed)?, pool.latches.acquire(id).await))
    };
    let copied = tokio::select! {
        biased;
        error = cut_off(store, pool, from, to) => Err(error),
        copied = copying => copied,
    };
    let (bytes, _latch) = match copied {
        Ok(copied) => copied,
        Err(error) => {
            clean_up(store, pool, to, &scratch).await;
            return Err(error);
        }
    };
    let target = scratch.at(to.paths.finalized_dir(id));
    if !settle_if_unchanged(pool, &replica, to, (scratch, target), failed).await? {
        let text = format!("replica {old} changed while it was moved");
        return Err(StoreError::illegal(text));
    }
    to.used.add(bytes);
    let slot = Slot::Finalized(FinalReplica {
        volume: to.volume.index,
        ..replica
    });
    let leaves = || to.volume.is_failed().then(|| pool.volume_failed());
    leaves().map_or(Ok(()), Err)?;
    pool.put(id, slot.clone())?;
    if let Some(refused) = leaves() {
        // The copy leaves with its volume: the source stays. If that has left too, the copy is told
        // as lost with its own.
        let _ = pool.put(id, Slot::Finalized(replica));
        return Err(refused);
    }
    let discarded = tokio::select! {
        biased;
        // The files stay on a disk that has failed; the latch does not wait for it.
        () = from.volume.gone.cancelled() => Ok(()),
        discarded = crate::transitions::delete::discard_files(
            store,
            pool,
            from,
            ReplicaDir::Finalized,
            old,
            false,
        ) => discarded,
    };
    if let Err(error) = discarded {
        // The move is done, and the NameNode has to hear of it.
        warn!(block = %old, volume = %from.volume.root.display(), %error, "cannot delete the \
            source of a moved replica; it is a duplicate that the next start deletes");
    }
    Ok(crate::replica::reference::reference_of(pool, to, id, &slot))
}

/// Gives a copy its name if the replica is still the same, and removes it otherwise; whether it is.
/// The caller holds the latch. A stop waits for it: the directory may be another node's after that.
pub(crate) async fn settle_if_unchanged(
    pool: &Pool,
    replica: &FinalReplica,
    to: &Arc<BlockPoolSlice>,
    (scratch, target): (Pair, Pair),
    failed: impl Fn(IoError) -> StoreError,
) -> Result<bool, StoreError> {
    let unchanged = pool.map.is_finalized(scratch.id, replica);
    let target = unchanged.then_some(target);
    tokio::select! {
        biased;
        () = to.volume.gone.cancelled() => Err(pool.volume_failed()),
        settled = file_pair::settle_copy(to, scratch, target, replica.pinned) => {
            settled.map(|_| unchanged).map_err(failed)
        }
    }
}

/// Waits until a move need not be waited for any more; gives why. What a disk that gives no answer
/// was asked for never ends, and the store waits for moves when it stops.
pub(crate) async fn cut_off(
    store: &StoreState,
    pool: &Pool,
    from: &BlockPoolSlice,
    to: &BlockPoolSlice,
) -> StoreError {
    tokio::select! {
        () = store.ending.cancelled() => StoreError::closed("the store is shutting down"),
        () = from.volume.gone.cancelled() => pool.volume_failed(),
        () = to.volume.gone.cancelled() => pool.volume_failed(),
    }
}

/// Removes a copy that did not come whole. What stays goes at the next start.
pub(crate) async fn clean_up(store: &StoreState, pool: &Pool, to: &BlockPoolSlice, scratch: &Pair) {
    let (dir, data_files) = (scratch.dir.clone(), to.volume.data_files());
    let clean = move || data_files.remove_tree(&dir);
    tokio::select! {
        biased;
        _ = cut_off(store, pool, to, to) => {}
        _ = file_pair::on_disk(to, IoClass::Balancer, IoOp::Unlink, &scratch.dir, clean) => {}
    }
}

/// Brings a pair to the other volume, durable; gives the bytes of both files.
async fn bring(
    from: &BlockPoolSlice,
    to: &BlockPoolSlice,
    source: &Pair,
    scratch: &Pair,
    len: u64,
    way: Way,
) -> Result<u64, IoError> {
    if way == Way::Link {
        let (old, new) = (source.clone(), scratch.clone());
        let link = move || link_pair(&old, &new, len);
        let path = scratch.data();
        let class = IoClass::Balancer;
        let linked = file_pair::on_disk_with_sync(to, class, IoOp::Link, &path, true, link).await?;
        if let Some(bytes) = linked {
            return Ok(bytes);
        }
    }
    let checksum = copy_verified(from, to, source, scratch, len, Pace::Yielding).await?;
    Ok(footprint(len, Some(checksum)))
}
