//! Second copies: how one becomes the replica, and what becomes of those that are no longer of
//! their replicas. Where memory has lost the replica, the copy is it.

use std::sync::Arc;

use hayloft_io::{IoClass, IoError, IoErrorKind, IoOp};
use hayloft_wire::ids::Block;

use crate::error::StoreError;
use crate::replica::block_pool::Pool;
use crate::replica::file_pair::{self, Pair};
use crate::replica::{FinalReplica, ReplicaDir, Slot};
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::transitions::delete;
use crate::types::StoreEvent;
use crate::volume::{BlockPoolSlice, footprint};

/// The place of a second copy.
pub(super) const PLACE: ReplicaDir = ReplicaDir::LazyPersist;

/// Does with the stale copies of a block what is to be done: where the block has no replica any
/// more, the newest becomes the replica, which is given back, unless it is older than what is
/// `wanted`. Takes the latch.
///
/// # Errors
/// What the disk said.
pub(super) async fn settle_stale(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    wanted: Option<Block>,
) -> Result<Option<FinalReplica>, StoreError> {
    let latch = pool.latches.acquire(id).await;
    let mut copies = pool.map.in_memory.take_stale(id);
    copies.sort_by_key(|copy| (copy.generation_stamp, copy.len));
    let newest = match pool.map.get(id) {
        None => copies.pop_if(|copy| wanted.is_none_or(|block| is_no_older(copy, block))),
        Some(_) => None,
    };
    for copy in copies {
        delete::delete_copy(store, pool, id, copy).await;
    }
    let Some(copy) = newest else {
        return Ok(None);
    };
    let to = pool.slice(copy.volume)?;
    let placed = put_in_place(store, pool, &to, id, copy).await;
    if let Err(error) = placed {
        keep_unless_missing(store, pool, id, copy, &error).await;
        return Err(error);
    }
    pool.put(id, Slot::Finalized(copy))?;
    // Before another task may delete it and tell of that.
    tell_found(store, pool, &to, id, copy).await;
    drop(latch);
    Ok(Some(copy))
}

/// Keeps a copy that could not be moved, to be tried again. One that is not there is forgotten: its
/// bytes are counted off already. What is left of it goes, so that it is not in the way of another.
/// The caller holds the latch.
pub(super) async fn keep_unless_missing(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    copy: FinalReplica,
    error: &StoreError,
) {
    let missing = error
        .io_error()
        .is_some_and(|e| e.kind() == IoErrorKind::NotFound);
    match missing {
        true => delete::delete_copy(store, pool, id, copy).await,
        false => pool.map.in_memory.keep_stale(id, copy),
    }
}

/// Whether a replica on disk is what memory has lost, or newer.
pub(super) fn is_no_older(replica: &FinalReplica, lost: Block) -> bool {
    (replica.generation_stamp, replica.len) >= (lost.generation_stamp, lost.num_bytes)
}

/// Moves the files of a copy to `finalized`, durably.
pub(super) async fn put_in_place(
    store: &Arc<StoreState>,
    pool: &Pool,
    to: &Arc<BlockPoolSlice>,
    id: i64,
    copy: FinalReplica,
) -> Result<(), StoreError> {
    let target = Pair::finalized(&to.paths, id, copy.generation_stamp);
    let source = target.at(to.paths.lazy_persist_dir(id));
    let path = source.data();
    let work = move || file_pair::move_pair(&source, &target, true);
    let class = IoClass::ClientWrite;
    let moving = file_pair::on_disk_with_sync(to, class, IoOp::Rename, &path, true, work);
    let moved = tokio::select! {
        biased;
        () = to.volume.gone.cancelled() => return Err(pool.volume_failed()),
        moved = moving => moved,
    };
    moved.map_err(|error: IoError| {
        let missing = error.kind() == IoErrorKind::NotFound;
        let block = Block::new(id, copy.generation_stamp, copy.len);
        let error = StoreError::io(format!("moving the copy of replica {block}"), error);
        if missing {
            to.used.sub(footprint(copy.len, None));
            return error;
        }
        examine(store, &to.volume, error)
    })
}

/// Whether both files of a copy lie where the lazy writer put them.
pub(super) async fn is_in_lazy_persist(
    pool: &Pool,
    to: &Arc<BlockPoolSlice>,
    id: i64,
    copy: FinalReplica,
) -> bool {
    let source = Pair::finalized(&to.paths, id, copy.generation_stamp);
    let source = source.at(to.paths.lazy_persist_dir(id));
    let path = source.data();
    let look = move || {
        source.data().symlink_metadata()?;
        source.meta().symlink_metadata().map(drop)
    };
    let class = IoClass::ClientWrite;
    let looking = file_pair::on_disk(to, class, IoOp::Stat, &path, look);
    tokio::select! {
        biased;
        () = to.volume.gone.cancelled() => false,
        there = looking => there.is_ok() && pool.slice(copy.volume).is_ok(),
    }
}

/// Tells of a replica whose storage is another one now. A NameNode that hears of it takes the one
/// of the same node away, so nothing is told of that.
pub(super) async fn tell_found(
    store: &StoreState,
    pool: &Pool,
    to: &BlockPoolSlice,
    id: i64,
    copy: FinalReplica,
) {
    let event = StoreEvent::Found {
        block: pool.extended(Block::new(id, copy.generation_stamp, copy.len)),
        storage: to.volume.info.clone(),
    };
    // The node stops listening only when it ends.
    let _ = store.events.send(event).await;
}
