//! Second copies that are no longer those of their replicas: their files go. Where memory has lost
//! the replica, they become the replica.

use std::sync::Arc;

use hayloft_wire::ids::Block;
use tracing::warn;

use super::evict::{PLACE, put_in_place, tell_found};
use crate::error::StoreError;
use crate::replica::block_pool::Pool;
use crate::replica::{FinalReplica, Slot};
use crate::state::StoreState;
use crate::transitions::delete;

/// Deletes the stale copies of a block, whatever is known of it. The caller holds its latch.
pub(crate) async fn delete_stale(store: &Arc<StoreState>, pool: &Arc<Pool>, id: i64) {
    for copy in pool.map.in_memory.take_stale(id) {
        delete_copy(store, pool, id, copy).await;
    }
}

async fn delete_copy(store: &Arc<StoreState>, pool: &Arc<Pool>, id: i64, copy: FinalReplica) {
    let Ok(slice) = pool.slice(copy.volume) else {
        return;
    };
    let block = Block::new(id, copy.generation_stamp, copy.len);
    let deleted = delete::discard_copy(store, pool, &slice, PLACE, block);
    tokio::select! {
        biased;
        () = slice.volume.gone.cancelled() => {}
        deleted = deleted => if let Err(error) = deleted {
            warn!(%block, %error, "cannot delete the copy of a replica that was in memory; the \
                next start finds it again, and the NameNode has it deleted");
        }
    }
}

/// Does with the stale copies of a block what is to be done: where the block has no replica any
/// more, the newest becomes the replica, which is given back. Takes the latch.
///
/// # Errors
/// What the disk said.
pub(crate) async fn settle_stale(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
) -> Result<Option<FinalReplica>, StoreError> {
    let latch = pool.latches.acquire(id).await;
    let mut copies = pool.map.in_memory.take_stale(id);
    copies.sort_by_key(|copy| (copy.generation_stamp, copy.len));
    let newest = match pool.map.get(id) {
        None => copies.pop(),
        Some(_) => None,
    };
    for copy in copies {
        delete_copy(store, pool, id, copy).await;
    }
    let Some(copy) = newest else {
        return Ok(None);
    };
    let to = pool.slice(copy.volume)?;
    put_in_place(store, pool, &to, id, copy).await?;
    pool.put(id, Slot::Finalized(copy))?;
    drop(latch);
    tell_found(store, pool, &to, id, copy).await;
    Ok(Some(copy))
}
