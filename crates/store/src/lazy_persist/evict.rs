//! From memory to the second copy: when room is short, or when memory has lost the replica or
//! holds it damaged. The copy becomes the finalized replica, and the NameNode hears of its storage.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hayloft_wire::ids::{Block, ExtendedBlock};
use tracing::{debug, info, warn};

use super::second_copy::{
    is_in_lazy_persist, is_no_older, keep_unless_missing, put_in_place, settle_stale, tell_found,
};
use crate::error::StoreError;
use crate::replica::block_pool::Pool;
use crate::replica::memory_replicas::Persisted;
use crate::replica::{FinalReplica, Slot};
use crate::state::StoreState;
use crate::transitions::delete;

/// Has the replica leave memory that was used longest ago, of those that have a second copy;
/// whether one left, or was found to have none any more.
pub(super) async fn evict_least_recent(store: &Arc<StoreState>) -> bool {
    let of_pool = |pool: Arc<Pool>| {
        let (last_use, id) = pool.map.in_memory.least_recent()?;
        Some((last_use, id, pool))
    };
    let candidates = store.pools().into_iter().filter_map(of_pool);
    let Some((_, id, pool)) = candidates.min_by_key(|(last_use, ..)| *last_use) else {
        return false;
    };
    match evict(store, &pool, id, Why::Room).await {
        Ok(evicted) => {
            if evicted.is_none() {
                debug!(pool = %pool.id(), id, "a replica changed before it left memory");
            }
            true
        }
        Err(error) => {
            warn!(pool = %pool.id(), id, %error, "a replica cannot leave memory for its copy on \
                disk; it is copied again");
            true
        }
    }
}

/// The replica of a block that was `lost`, or is damaged, is replaced by its second copy, if it was
/// in memory and has one; whether that was done. The caller holds no latch.
///
/// Boxed: what leaves memory is deleted there, and a delete may tell of damage.
pub(super) fn fall_back<'a>(
    store: &'a Arc<StoreState>,
    block: &'a ExtendedBlock,
    lost: bool,
) -> BoxFuture<'a, bool> {
    async move {
        let Ok(pool) = store.pool(&block.pool) else {
            return false;
        };
        let id = block.block.id;
        let fallen = match pool.map.in_memory.persisted(id) {
            Some(_) => evict(store, &pool, id, Why::Bad).await,
            None if lost && pool.map.in_memory.has_stale(id) => {
                settle_stale(store, &pool, id, Some(block.block)).await
            }
            None => Ok(None),
        };
        match fallen {
            Ok(Some(replica)) => {
                info!(%block, ?replica, "memory has lost a replica: its copy on disk is served");
                true
            }
            Ok(None) => is_on_disk(store, &pool, block.block).await,
            Err(error) => {
                warn!(%block, %error, "memory has lost a replica, and its copy on disk cannot be \
                    served");
                false
            }
        }
    }
    .boxed()
}

/// Whether a replica that memory has lost or damaged left it for the disk before: it is here.
async fn is_on_disk(store: &StoreState, pool: &Pool, lost: Block) -> bool {
    if !pool.map.in_memory.is_active() || store.ending.is_cancelled() {
        return false;
    }
    let _latch = pool.latches.acquire(lost.id).await;
    let there = pool.map.get(lost.id).and_then(|slot| slot.complete());
    let there = there.filter(|replica| is_no_older(replica, lost));
    let slice = there.and_then(|replica| pool.slice(replica.volume).ok());
    slice.is_some_and(|slice| !slice.volume.info.storage_type.is_transient())
}

/// Why a replica leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Others want its room.
    Room,
    /// Memory has lost or damaged it.
    Bad,
}

/// Makes the second copy of a replica the replica, and frees the memory. `None` when it has no
/// copy any more.
///
/// # Errors
/// What the disk of the copy said. The replica stays in memory, and is to be copied again.
async fn evict(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    why: Why,
) -> Result<Option<FinalReplica>, StoreError> {
    let latch = pool.latches.acquire(id).await;
    let Some(persisted) = pool.map.in_memory.take_copy(id) else {
        return Ok(None);
    };
    let Persisted { replica, copy, .. } = persisted;
    let to = pool.slice(copy.volume)?;
    let placed = put_in_place(store, pool, &to, id, copy).await;
    if let Err(error) = placed {
        // Where it lies whole as before it stays the copy. Else what is left of it is in the way of
        // another one.
        let whole = is_in_lazy_persist(pool, &to, id, copy).await;
        if !(whole && pool.persist(id, &replica, copy)) {
            keep_unless_missing(store, pool, id, copy, &error).await;
        }
        return Err(error);
    }
    let (there, now) = (Slot::Finalized(replica), Slot::Finalized(copy));
    if !pool.put_instead(id, &there, now)? {
        // Its volume took it out of the map without the latch: what is left is the copy.
        pool.put(id, Slot::Finalized(copy))?;
    }
    if why == Why::Room {
        let counts = &store.lazy.counts;
        counts.evicted(persisted.was_read, persisted.age);
    }
    if let Ok(from) = pool.slice(replica.volume) {
        let block = Block::new(id, replica.generation_stamp, replica.len);
        let freed = delete::delete_now(store, pool, &from, block);
        tokio::select! {
            biased;
            () = from.volume.gone.cancelled() => {}
            freed = freed => if let Err(error) = freed {
                warn!(%block, %error, "cannot free the memory of a replica that is on disk; it is \
                    a duplicate that the next start deletes");
            }
        }
    }
    // Before another task may delete it and tell of that.
    tell_found(store, pool, &to, id, copy).await;
    drop(latch);
    Ok(Some(copy))
}
