//! The NameNode's INVALIDATE: which replicas go, and how many deletes a volume keeps waiting.
//!
//! Each volume works its own replicas off. A disk that gives no answer therefore holds its own
//! replicas up, and the replicas of other volumes go on.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use hayloft_io::locks;
use hayloft_wire::ids::{Block, PoolId};
use tracing::warn;

use crate::error::{StoreError, StoreErrorKind};
use crate::replica::block_pool::Pool;
use crate::state::StoreState;
use crate::transitions::delete::discard;
use crate::types::StoreEvent;
use crate::volume::invalidations::AT_ONCE;
use crate::volume::{BlockPoolSlice, Volume};

/// Replicas that an error names.
const NAMED_MAX: usize = 10;

/// See [`Store::invalidate`](crate::Store::invalidate).
pub async fn invalidate(
    store: Arc<StoreState>,
    pool_id: PoolId,
    blocks: Vec<Block>,
) -> Result<(), StoreError> {
    let pool = store.pool(&pool_id)?;
    let mut gone = Vec::new();
    let mut volumes: HashMap<u16, (Arc<BlockPoolSlice>, Vec<Block>)> = HashMap::new();
    for &block in &blocks {
        let here = pool.map.get(block.id);
        let slice = here.and_then(|slot| pool.slice(slot.volume()).ok());
        match slice {
            Some(slice) => {
                let of_volume = volumes.entry(slice.volume.index);
                of_volume
                    .or_insert_with(|| (slice, Vec::new()))
                    .1
                    .push(block);
            }
            None => {
                if !forget_degraded(&store, &pool, block).await {
                    gone.push(not_found(block));
                }
            }
        }
    }
    let orders = volumes.into_values();
    let orders = orders.map(|(slice, blocks)| of_volume(&store, &pool, slice, blocks));
    let errors = join_all(orders).await.into_iter().flatten();
    let errors: Vec<StoreError> = gone.into_iter().chain(errors).collect();
    let named: Vec<String> = errors
        .iter()
        .take(NAMED_MAX)
        .map(ToString::to_string)
        .collect();
    let text = format!(
        "Failed to delete {} (out of {}) replica(s): {}",
        errors.len(),
        blocks.len(),
        named.join("; ")
    );
    match errors.iter().all(|e| e.kind() == StoreErrorKind::NotFound) {
        _ if errors.is_empty() => Ok(()),
        // They are gone, as ordered.
        true => Err(StoreError::not_found(text)),
        false => Err(StoreError::illegal(text)),
    }
}

/// Deletes the replicas of one volume, as many as may wait; gives the errors.
async fn of_volume(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    slice: Arc<BlockPoolSlice>,
    mut blocks: Vec<Block>,
) -> Vec<StoreError> {
    let volume = &slice.volume;
    let (fits, _permit) = volume.invalidations.room(blocks.len());
    if fits < blocks.len() {
        warn!(
            volume = %volume.root.display(),
            refused = blocks.len() - fits,
            "too many deletes wait for the volume: the NameNode orders these again after the next \
             block report"
        );
        blocks.truncate(fits);
    }
    let outcomes = futures_util::stream::iter(blocks)
        .map(|block| unless_gone(store, pool, volume, block))
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    outcomes.into_iter().filter_map(Result::err).collect()
}

/// [`invalidate_one`], which ends when the volume fails. An operation on a disk that gives no
/// answer never ends, and others wait for the block.
async fn unless_gone(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    volume: &Volume,
    block: Block,
) -> Result<(), StoreError> {
    tokio::select! {
        biased;
        () = volume.gone.cancelled() => Err(StoreError::new(
            StoreErrorKind::VolumeFailed,
            format!("Failed to delete replica {block}: its volume has failed"),
        )),
        outcome = invalidate_one(store, pool, volume, block) => outcome,
    }
}

async fn invalidate_one(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    volume: &Volume,
    block: Block,
) -> Result<(), StoreError> {
    // Never closed, so there is always a permit in the end.
    let _one_of_few = volume.invalidations.at_once.acquire().await;
    let _latch = pool.latches.acquire(block.id).await;
    let Some(slot) = pool.map.get(block.id) else {
        return Err(not_found(block));
    };
    let here = slot.block(block.id);
    // As Apache's: an order for another generation is about a replica that is not this one.
    if here.generation_stamp != block.generation_stamp {
        return Err(StoreError::new(
            StoreErrorKind::UnexpectedGenerationStamp,
            format!(
                "Failed to delete replica {block}: GenerationStamp not matched, existing replica \
                 is {here}"
            ),
        ));
    }
    discard(store, pool, block.id, true).await?;
    store.counts.count_removed();
    Ok(())
}

fn not_found(block: Block) -> StoreError {
    StoreError::not_found(format!(
        "Failed to delete replica {block}: ReplicaInfo not found"
    ))
}

/// The NameNode has ordered the deletion of a degraded replica; whether there was one.
async fn forget_degraded(store: &Arc<StoreState>, pool: &Pool, block: Block) -> bool {
    let Some(replica) = pool.degraded_replica(block.id) else {
        return false;
    };
    if replica.generation_stamp != block.generation_stamp {
        return false;
    }
    locks::lock(&pool.degraded).remove(&block.id);
    if let Some(protection) = &store.protection {
        protection.drop_degraded(replica.unit);
    }
    let (block, storage) = (pool.extended(replica.block(block.id)), replica.storage);
    store
        .send_event(StoreEvent::Deleted { block, storage })
        .await;
    true
}
