//! A clean stop: writers end, what is known is saved for the next start, locks go.

use std::sync::Arc;
use std::time::Duration;

use hayloft_io::{DiskStats, IoClass, IoError, locks};
use hayloft_wire::ids::{Block, ReplicaState};
use tracing::{info, warn};

use crate::layout::dirs::FILE_MODE;
use crate::layout::dirs::now_ms;
use crate::layout::names;
use crate::layout::replica_cache::{CachedReplica, encode};
use crate::layout::used_cache::UsedCache;
use crate::replica::block_pool::Pool;
use crate::replica::{LiveReplica, ReplicaDir, Slot};
use crate::state::StoreState;
use crate::transitions::run_commit_rounds;
use crate::volume::BlockPoolSlice;
use crate::volume::stop_mark::Mark;

/// How long operations in flight may take to end: a part of the time that the node has to stop.
const DRAIN: Duration = Duration::from_secs(3);

/// See [`Store::disk_stats`](crate::Store::disk_stats).
pub fn disk_stats(store: &StoreState) -> Vec<(String, DiskStats)> {
    let mut seen = Vec::new();
    let mut stats = Vec::new();
    for volume in store.volumes() {
        let disk = volume.engine.disk();
        if !seen.contains(&disk.id()) {
            seen.push(disk.id());
            stats.push((disk.name().to_owned(), disk.stats()));
        }
    }
    stats
}

/// What each disk has done, for the record.
fn log_disks(store: &StoreState) {
    for (disk, stats) in disk_stats(store) {
        info!(disk, "{stats}");
    }
}

/// See [`Store::shutdown`](crate::Store::shutdown).
pub async fn shutdown(store: &Arc<StoreState>) {
    store.ending.cancel();
    let _changing = store.changing.lock().await;
    if store.stop.is_cancelled() {
        return;
    }
    store.stop.cancel();
    if let Some(protection) = &store.protection {
        protection.store_ended(store);
    }
    let pools = store.pools();
    let mut quiet = true;
    for pool in &pools {
        crate::cache::uncache_all(pool).await;
        quiet &= crate::service::pool::add_remove::stop_writers(store, pool).await;
    }
    locks::write(&store.delete_queues).clear();
    store.tasks.close();
    quiet &= tokio::time::timeout(DRAIN, store.tasks.wait())
        .await
        .is_ok();
    if quiet {
        for pool in &pools {
            for slice in pool.slices() {
                save(pool, &slice).await;
            }
        }
    } else {
        warn!("some operations have not ended: the next start walks the directories");
    }
    close_marks(store, quiet).await;
    log_disks(store);
    for volume in store.volumes() {
        volume.unlock();
        volume.file_system.leave(&volume);
    }
    info!("store is shut down");
}

/// Makes durable what was written last, and says in each volume that its stop was clean. Where that
/// takes too long the mark stays open: the next start looks at the replicas that are newest.
async fn close_marks(store: &Arc<StoreState>, quiet: bool) {
    let at_ms = now_ms();
    let volumes = store.volumes();
    let closes = volumes.iter().map(|volume| async move {
        let durable = run_commit_rounds::round(store, volume).await;
        if durable && quiet {
            Mark::close(volume, at_ms).await?;
        }
        Ok::<_, IoError>(())
    });
    let closes = futures_util::future::join_all(closes);
    match tokio::time::timeout(DRAIN, closes).await {
        Ok(outcomes) => {
            for error in outcomes.into_iter().filter_map(Result::err) {
                warn!(%error, "cannot mark a stop as clean");
            }
        }
        Err(_) => warn!("a disk does not take what was written last in time; the kernel goes on"),
    }
}

/// See [`Store::mark_for_restart`](crate::Store::mark_for_restart).
pub async fn mark_for_restart(store: &Arc<StoreState>, expiration: Duration) {
    let until_ms =
        now_ms().saturating_add(u64::try_from(expiration.as_millis()).unwrap_or(u64::MAX));
    for pool in store.pools() {
        let mut open = Vec::new();
        pool.map.for_each(|_, slot| {
            if let Slot::Live(live) = slot
                && live.status().state == ReplicaState::Rbw
            {
                open.push(Arc::clone(live));
            }
        });
        // Side by side: a disk that gives no answer keeps no other from its markers.
        futures_util::future::join_all(open.iter().map(|live| mark(live, until_ms))).await;
    }
}

async fn mark(live: &LiveReplica, until_ms: u64) {
    let marker = live.slice.paths.restart_marker(live.id);
    let meta = live.slice.volume.meta(IoClass::ClientWrite);
    let until = until_ms.to_string().into_bytes();
    if let Err(error) = meta.replace(&marker, until, FILE_MODE).await {
        warn!(path = %marker.display(), %error, "cannot mark a replica for the restart; its \
            client has to recover it");
    }
}

/// Saves replicas and space used of a pool on a volume. Failing to is no harm: the next start
/// finds out itself.
async fn save(pool: &Pool, slice: &BlockPoolSlice) {
    let mut replicas = Vec::new();
    pool.map.for_each(|id, slot| {
        if slot.volume() == slice.volume.index {
            replicas.extend(cached(id, slot));
        }
    });
    let current = slice.paths.current();
    let used = UsedCache {
        used: slice.used.get(),
        at_ms: now_ms(),
    };
    let meta = slice.volume.meta(IoClass::ClientWrite);
    let mut saved = vec![(names::DFS_USED, used.encode())];
    // Apache's node rolls back and then believes the cache, which knows nothing of what came back
    // from trash: without the file it looks for itself.
    let trash = slice.paths.root.join(names::TRASH);
    // Nor what it takes over from `lazypersist`.
    let persisted = pool.map.in_memory.has_copies_on(slice.volume.index);
    if !persisted && matches!(meta.exists(&trash).await, Ok(false)) {
        saved.push((names::REPLICAS, encode(&replicas)));
    }
    for (name, contents) in saved {
        if let Err(error) = meta.replace(&current.join(name), contents, FILE_MODE).await {
            warn!(path = %current.join(name).display(), %error, "cannot save what the next start \
                could use");
        }
    }
}

/// A replica as the cache file has it. Apache believes what the file says of finalized replicas,
/// and looks into `rbw` only for those that it lists.
fn cached(id: i64, slot: &Slot) -> Option<CachedReplica> {
    match slot {
        Slot::Finalized(r) => Some(CachedReplica {
            block: Block::new(id, r.generation_stamp, r.len),
            state: ReplicaState::Finalized,
            pinned: r.pinned,
        }),
        Slot::Live(live) => {
            let status = live.status();
            let state = match status.place {
                ReplicaDir::Finalized => ReplicaState::Finalized,
                ReplicaDir::Rbw => ReplicaState::Rbw,
                ReplicaDir::Temporary | ReplicaDir::LazyPersist => return None,
            };
            let block = Block::new(id, status.generation_stamp, status.bytes_on_disk);
            Some(CachedReplica {
                block,
                state,
                pinned: status.pinned,
            })
        }
    }
}
