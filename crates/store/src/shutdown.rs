//! A clean stop: writers end, what is known is saved for the next start, locks go.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hayloft_io::{DiskStats, IoClass};
use hayloft_wire::ids::{Block, ReplicaState};
use tracing::{info, warn};

use crate::inner::{Inner, now_ms};
use crate::layout::names;
use crate::layout::replica_cache::{CachedReplica, encode};
use crate::layout::used_cache::UsedCache;
use crate::open::FILE_MODE;
use crate::pool::Pool;
use crate::replica::{Place, Slot};
use crate::volume::Slice;

/// How long operations in flight may take to end.
const DRAIN: Duration = Duration::from_secs(10);

/// See [`Store::disk_stats`](crate::Store::disk_stats).
pub fn disk_stats(inner: &Inner) -> Vec<(String, DiskStats)> {
    let mut seen = Vec::new();
    let mut stats = Vec::new();
    for volume in inner.volumes() {
        let disk = volume.engine.disk();
        if !seen.contains(&disk.id()) {
            seen.push(disk.id());
            stats.push((disk.name().to_owned(), disk.stats()));
        }
    }
    stats
}

/// What each disk has done, for the record.
fn log_disks(inner: &Inner) {
    for (disk, stats) in disk_stats(inner) {
        info!(disk, "{stats}");
    }
}

/// See [`Store::shutdown`](crate::Store::shutdown).
pub async fn shutdown(inner: &Arc<Inner>) {
    inner.ending.cancel();
    let _changing = inner.changing.lock().await;
    if inner.stop.is_cancelled() {
        return;
    }
    inner.stop.cancel();
    let pools = inner.pools();
    let mut quiet = true;
    for pool in &pools {
        quiet &= crate::pools::stop_writers(inner, pool).await;
        let unwritten = crate::staging::close_all(&crate::pools::live_replicas(pool, None)).await;
        quiet &= unwritten == crate::staging::Unwritten::default();
    }
    inner
        .delete_queues
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
    inner.tasks.close();
    quiet &= tokio::time::timeout(DRAIN, inner.tasks.wait())
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
    if let Some(staging) = inner.staging.get() {
        staging.end();
    }
    log_disks(inner);
    for volume in inner.volumes() {
        volume.unlock();
    }
    info!("store is shut down");
}

/// See [`Store::mark_for_restart`](crate::Store::mark_for_restart).
pub async fn mark_for_restart(inner: &Arc<Inner>, expiration: Duration) {
    let until_ms =
        now_ms().saturating_add(u64::try_from(expiration.as_millis()).unwrap_or(u64::MAX));
    for pool in inner.pools() {
        let mut open = Vec::new();
        pool.map.for_each(|_, slot| {
            if let Slot::Live(live) = slot
                && live.status().state == ReplicaState::Rbw
            {
                open.push(Arc::clone(live));
            }
        });
        for live in open {
            let marker = live.slice.paths.restart_marker(live.id);
            let meta = live.slice.volume.meta(IoClass::ClientWrite);
            if let Err(error) = meta
                .replace(&marker, until_ms.to_string().into_bytes(), FILE_MODE)
                .await
            {
                warn!(path = %marker.display(), %error, "cannot mark a replica for the restart; its client has to recover it");
            }
        }
    }
}

/// Saves replicas and space used of a pool on a volume. Failing to is no harm: the next start
/// finds out itself.
async fn save(pool: &Pool, slice: &Slice) {
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
    for (name, contents) in [
        (names::DFS_USED, used.encode()),
        (names::REPLICAS, encode(&replicas)),
    ] {
        if let Err(error) = meta.replace(&current.join(name), contents, FILE_MODE).await {
            warn!(path = %current.join(name).display(), %error, "cannot save what the next start could use");
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
                Place::Finalized => ReplicaState::Finalized,
                Place::Rbw => ReplicaState::Rbw,
                Place::Temporary => return None,
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
