//! What a NameNode orders to be cached or uncached.

use std::sync::Arc;

use hayloft_io::told_if_broken;
use hayloft_wire::ids::StorageType;
use tokio::time::Instant;
use tracing::{Instrument as _, debug, warn};

use super::load;
use super::queues::Waiting;
use super::uncached::drop_apart;
use crate::replica::Slot;
use crate::replica::block_pool::Pool;
use crate::replica::cached::Uncaching;
use crate::state::StoreState;

/// See [`Store::cache`](crate::Store::cache).
pub(crate) fn cache(store: &Arc<StoreState>, pool: &Arc<Pool>, ids: &[i64]) {
    let mut refused = 0;
    let mut first = None;
    for &id in ids {
        if let Err(why) = begin(store, pool, id) {
            debug!(pool = %pool.id(), id, why, "a block is not cached");
            refused += 1;
            first.get_or_insert((id, why));
        }
    }
    store.cache.failed_to_cache(refused);
    if let Some((id, why)) = first {
        warn!(pool = %pool.id(), "{refused} of {} blocks that the NameNode wants cached are not: \
            blk_{id}: {why}", ids.len());
    }
}

/// Queues a replica, with its room. What is on its way already stays so, and what was to leave.
fn begin(store: &Arc<StoreState>, pool: &Arc<Pool>, id: i64) -> Result<(), &'static str> {
    if pool.map.keep_cached(id) {
        return Ok(());
    }
    let replica = match pool.map.get(id) {
        Some(Slot::Finalized(replica)) => replica,
        Some(Slot::Live(_)) => return Err("its replica is not finalized"),
        None => return Err("it has no replica here"),
    };
    let slice = pool.slice(replica.volume);
    let slice = slice.map_err(|_| "the volume of its replica has failed")?;
    if slice.volume.info.storage_type == StorageType::RamDisk {
        return Err("its replica is on a RAM_DISK volume, in memory as it is");
    }
    if replica.len == 0 {
        return Err("it is empty");
    }
    let room = store.cache.reserve(replica.len);
    let room = room.ok_or(
        "it does not fit into dfs.datanode.max.locked.memory, or into half of vm.max_map_count",
    )?;
    let Some(of) = pool.map.begin_caching(id, replica, room) else {
        let unchanged = pool.map.is_finalized(id, &replica);
        return unchanged
            .then_some(())
            .ok_or("its replica has just changed");
    };
    let waiting = Waiting {
        pool: Arc::clone(pool),
        of,
    };
    let workers_max = store.config.cache.threads_per_volume.max(1);
    if store
        .cache_queues
        .push(replica.volume, waiting, workers_max)
    {
        store
            .tasks
            .spawn(work(Arc::clone(store), replica.volume).in_current_span());
    }
    Ok(())
}

/// Loads what waits on a volume, one replica after the other.
async fn work(store: Arc<StoreState>, volume: u16) {
    let mut failed = 0_u64;
    while let Some(Waiting { pool, of }) = store.cache_queues.next(volume) {
        let (id, pool_id) = (of.id, pool.id().clone());
        let loaded = told_if_broken("cache a replica", load::load(&store, &pool, &of)).await;
        let Some(Err(why)) = loaded else {
            store.cache.failed_to_cache(u64::from(loaded.is_none()));
            continue;
        };
        store.cache.failed_to_cache(1);
        failed += 1;
        if failed == 1 {
            warn!(pool = %pool_id, "blk_{id} is not cached: {why}");
        } else {
            debug!(pool = %pool_id, id, why, "a block is not cached");
        }
    }
    if failed > 1 {
        warn!("{failed} blocks of a volume are not cached; the debug log names each");
    }
}

/// Uncaches a replica when no client relies on it any more, or after their time.
async fn wait_for_readers(store: Arc<StoreState>, pool: Arc<Pool>, (id, number): (i64, u64)) {
    let config = store.config.cache;
    let until = Instant::now() + config.revocation_timeout;
    while pool.map.is_held(id, number) {
        if Instant::now() >= until {
            warn!(pool = %pool.id(), "blk_{id} is uncached, though clients go on reading it \
                without checksums after dfs.datanode.cache.revocation.timeout.ms");
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(config.revocation_polling) => {}
            () = store.ending.cancelled() => break,
        }
    }
    let _given_back = drop_apart(pool.map.end_uncaching(id, number));
}

/// See [`Store::uncache`](crate::Store::uncache).
pub(crate) fn uncache(store: &Arc<StoreState>, pool: &Arc<Pool>, ids: &[i64]) {
    let mut unknown = 0;
    for &id in ids {
        match pool.map.uncache(id) {
            Uncaching::Done(uncached) => drop(uncached),
            Uncaching::Unknown => unknown += 1,
            Uncaching::Leaving(number) => {
                let wait = wait_for_readers(Arc::clone(store), Arc::clone(pool), (id, number));
                store.tasks.spawn(wait.in_current_span());
            }
        }
    }
    store.cache.failed_to_uncache(unknown);
    if unknown > 0 {
        debug!(pool = %pool.id(), "{unknown} of {} blocks that the NameNode wants uncached are not \
            cached", ids.len());
    }
}
