//! Which new replica goes to memory, and what leaves for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hayloft_io::in_pages;

use super::evict::evict_least_recent;
use crate::replica::block_pool::Pool;
use crate::replica::locked_memory::LockedRoom;
use crate::state::StoreState;

/// Replicas that leave for a new one at most, as with Apache's node.
const EVICTIONS_MAX: usize = 3;

/// How long a client's new replica waits for one to leave.
const EVICTION_LIMIT: Duration = Duration::from_secs(2);

/// Room in memory for a replica that may become `bytes` long; `None`: it goes to disk. As with
/// Apache's node `bytes` are whole pages, and what was used longest ago leaves while the budget has
/// too little room. Here it leaves for room on the `RAM_DISK` volumes, too.
///
/// The caller holds no latch: each replica that leaves takes its own.
pub(crate) async fn place(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    bytes: u64,
) -> Option<LockedRoom> {
    let room = find_room(store, pool, bytes).await;
    if room.is_none() {
        store.lazy.counts.fell_back();
    }
    room
}

async fn find_room(store: &Arc<StoreState>, pool: &Arc<Pool>, bytes: u64) -> Option<LockedRoom> {
    if bytes == 0 || in_pages(bytes) != bytes || !may_fit(store, pool, bytes) {
        return None;
    }
    for evictions in 0..=EVICTIONS_MAX {
        let room = store.cache.reserve_in_memory(bytes);
        if room.is_some() && volume_has_room(pool, bytes) {
            return room;
        }
        drop(room);
        if evictions == EVICTIONS_MAX || !evict_in_time(store).await {
            break;
        }
    }
    None
}

/// Whether a replica left soon. A disk that gives no answer keeps no client waiting: the eviction
/// goes on behind it, and the new replica goes to disk. So do the next ones, at once, until that
/// eviction has ended.
async fn evict_in_time(store: &Arc<StoreState>) -> bool {
    let hangs = &store.lazy.leaving_hangs;
    let until = tokio::time::Instant::now() + EVICTION_LIMIT;
    let leaving = Arc::clone(&store.lazy.leaving);
    let turn = match hangs.load(Ordering::Relaxed) {
        true => leaving.try_lock_owned().ok(),
        false => {
            let turn = tokio::time::timeout_at(until, leaving.lock_owned());
            turn.await.ok()
        }
    };
    let Some(turn) = turn else {
        return false;
    };
    let of_task = Arc::clone(store);
    let evict = async move {
        let _turn = turn;
        evict_least_recent(&of_task).await
    };
    let evicted = tokio::time::timeout_at(until, store.tasks.spawn_here(evict)).await;
    hangs.store(evicted.is_err(), Ordering::Relaxed);
    matches!(evicted, Ok(Ok(true)))
}

/// Whether an empty memory would have room: else nothing leaves in vain.
fn may_fit(store: &StoreState, pool: &Pool, bytes: u64) -> bool {
    let mut slices = pool.slices().into_iter();
    store.cache.max() >= bytes
        && slices.any(|slice| {
            let volume = &slice.volume;
            let fits = volume.numbers().capacity > bytes;
            volume.info.storage_type.is_transient() && !volume.is_failed() && fits
        })
}

fn volume_has_room(pool: &Pool, bytes: u64) -> bool {
    let mut slices = pool.slices().into_iter();
    slices.any(|slice| {
        let volume = &slice.volume;
        volume.info.storage_type.is_transient() && !volume.is_failed() && volume.room() > bytes
    })
}
