//! The lazy writer: copies replicas from memory to DISK volumes. A copy is compared with the
//! checksums on the way and is durable under its name in `lazypersist` before it counts.
//!
//! As with Apache's node it works off what waits, then rests for the interval.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use hayloft_io::{locks, told_if_broken};
use hayloft_wire::ids::{Block, StorageType};
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use super::second_copy::{PLACE, settle_stale};
use crate::background::bring_files::{Pace, copy_verified};
use crate::background::move_replica::{clean_up, cut_off, settle_if_unchanged};
use crate::error::{StoreError, StoreErrorKind};
use crate::replica::FinalReplica;
use crate::replica::block_pool::Pool;
use crate::replica::file_pair::Pair;
use crate::replica::live::directory;
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::transitions::delete::delete_stale;
use crate::volume::reservation::Reservation;
use crate::volume::{BlockPoolSlice, HANGS, footprint};
use crate::writer::volume_for_new_replica::Tried;

/// Replicas of a pool that are looked at in one go.
const AT_ONCE_MAX: usize = 4096;
/// Copies under way at the same time, at most; no more than there are DISK volumes.
const COPIES_MAX: usize = 8;
/// The same with those that a disk holds up, which others do not wait for.
const HELD_UP_MAX: usize = 2 * COPIES_MAX;

/// Starts the lazy writer, if that has not begun: a `RAM_DISK` volume is here.
pub(crate) fn start(store: &Arc<StoreState>) {
    if store.lazy.started.swap(true, Ordering::Relaxed) {
        return;
    }
    let _ = store.fall_back.set(super::evict::fall_back);
    let served = Arc::clone(store);
    store.serve("lazy writer", move || run(Arc::clone(&served)));
}

async fn run(store: Arc<StoreState>) {
    let mut due = tokio::time::Instant::now() + store.config.lazy_writer_interval;
    let mut settling = HashMap::new();
    loop {
        tokio::select! {
            () = store.stop.cancelled() => return,
            () = store.lazy.wake.notified() => {}
            () = tokio::time::sleep_until(due) => {}
        }
        for pool in store.pools() {
            take_room(&store, &pool);
        }
        settle_all(&store, &mut settling);
        if tokio::time::Instant::now() >= due {
            persist_all(&store).await;
            due = tokio::time::Instant::now() + store.config.lazy_writer_interval;
        }
    }
}

/// Has the stale copies of each volume settled by a task of its own, unless one is at it.
fn settle_all(store: &Arc<StoreState>, settling: &mut HashMap<u16, JoinHandle<Option<()>>>) {
    settling.retain(|_, task| !task.is_finished());
    let pools = store.pools().into_iter();
    let volumes = pools.flat_map(|pool| pool.map.in_memory.stale_by_volume().into_keys());
    for volume in volumes {
        let settle = told_if_broken("end of stale copies", settle_on(Arc::clone(store), volume));
        let begin = || store.tasks.spawn(settle);
        settling.entry(volume).or_insert_with(begin);
    }
}

/// Settles the stale copies on a volume, with those that come meanwhile. What fails is tried again
/// by the next task.
async fn settle_on(store: Arc<StoreState>, volume: u16) {
    for pool in store.pools() {
        let mut tried = HashSet::new();
        loop {
            let stale = pool.map.in_memory.stale_by_volume().remove(&volume);
            let mut new = stale.unwrap_or_default();
            new.retain(|id| tried.insert(*id));
            if new.is_empty() {
                break;
            }
            for id in new {
                if store.ending.is_cancelled() {
                    return;
                }
                let settled = settle_stale(&store, &pool, id, None).await;
                if let Err(error) = settled {
                    warn!(pool = %pool.id(), id, %error, "cannot settle the copy of a replica \
                        that was in memory");
                }
            }
        }
    }
}

/// Copies all replicas that have no second copy, until none is left or none could be copied. What a
/// disk holds up is left to its task.
pub(crate) async fn persist_all(store: &Arc<StoreState>) {
    for pool in store.pools() {
        loop {
            let mut waiting = pool.map.in_memory.waiting(AT_ONCE_MAX);
            {
                let copying = locks::lock(&store.lazy.copying);
                waiting.retain(|id| !copying.contains(&(pool.id().clone(), *id)));
            }
            if waiting.is_empty() || !persist_some(store, &pool, waiting).await {
                break;
            }
        }
    }
}

/// Whether any was copied.
async fn persist_some(store: &Arc<StoreState>, pool: &Arc<Pool>, waiting: Vec<i64>) -> bool {
    let persist = |id| async move {
        let is_new = || locks::lock(&store.lazy.copying).insert((pool.id().clone(), id));
        if store.ending.is_cancelled() || !is_new() {
            return false;
        }
        let copying = persist_apart(Arc::clone(store), Arc::clone(pool), id);
        unless_held_up(store, pool, store.tasks.spawn(copying)).await
    };
    let all = futures_util::stream::iter(waiting).map(persist);
    let all = all.buffer_unordered(disks(pool).count().clamp(1, COPIES_MAX));
    let done = all.filter(|done| std::future::ready(*done)).count().await;
    if done > 0 {
        info!(pool = %pool.id(), replicas = done, "copied from memory to disk");
    }
    done > 0
}

/// The DISK volumes.
fn disks(pool: &Pool) -> impl Iterator<Item = Arc<BlockPoolSlice>> + use<> {
    let is_disk = |slice: &Arc<BlockPoolSlice>| slice.volume.info.storage_type == StorageType::Disk;
    pool.slices().into_iter().filter(is_disk)
}

/// Numbers of those that give no answer just now, where others may do.
fn hanging(pool: &Pool) -> Vec<u16> {
    let (hang, others): (Vec<_>, Vec<_>) = disks(pool).partition(|slice| slice.volume.hangs());
    match others.is_empty() {
        true => Vec::new(),
        false => hang.iter().map(|slice| slice.volume.index).collect(),
    }
}

/// Waits for a copy, but not for one that a disk holds up: whether it was made.
async fn unless_held_up(store: &StoreState, pool: &Pool, mut copying: JoinHandle<bool>) -> bool {
    loop {
        if let Ok(ended) = tokio::time::timeout(HANGS, &mut copying).await {
            return ended.unwrap_or(false);
        }
        let hangs = disks(pool).any(|slice| slice.volume.hangs());
        if hangs && locks::lock(&store.lazy.copying).len() < HELD_UP_MAX {
            return false;
        }
    }
}

/// Copies one replica, as a task: whether that was done.
async fn persist_apart(store: Arc<StoreState>, pool: Arc<Pool>, id: i64) -> bool {
    let persisted = persist_one(&store, &pool, id, &unseen);
    let persisted = told_if_broken("copy of a replica in memory", persisted).await;
    locks::lock(&store.lazy.copying).remove(&(pool.id().clone(), id));
    match persisted {
        Some(Ok(done)) => done,
        Some(Err(error)) => {
            warn!(pool = %pool.id(), id, %error, "a replica cannot be copied from memory to disk; \
                it is tried again after dfs.datanode.lazywriter.interval.sec");
            false
        }
        None => false,
    }
}

/// How far a copy has come, for those who look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It lies in `tmp`, whole and durable.
    Copied,
    /// It lies in `lazypersist`, and does not count yet.
    Named,
}

/// No test looks.
fn unseen(_: Step) {}

/// Copies one replica; false when it has changed, or has a copy by now.
pub(crate) async fn persist_one(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    look: &(impl Fn(Step) + Sync),
) -> Result<bool, StoreError> {
    let Some((replica, _)) = pool.map.in_memory.unpersisted(id) else {
        return Ok(false);
    };
    let from = pool.slice(replica.volume)?;
    let mut tried = Tried::except(hanging(pool));
    loop {
        let wanted = (StorageType::Disk, None);
        let to = tried.choose(store, pool, wanted, replica.len).await?;
        let reserved = Reservation::taken(&to.volume, replica.len);
        let copied = copy_to(store, pool, (id, replica), (&from, &to), look).await;
        drop(reserved);
        match copied {
            Err(error) if Tried::is_of(&error, &to) => {
                let block = Block::new(id, replica.generation_stamp, replica.len);
                tried.failed(&to, block, error);
            }
            Err(error) => {
                let unchanged = pool.map.is_finalized(id, &replica);
                if unchanged && matches!(error.kind(), StoreErrorKind::Io | StoreErrorKind::Corrupt)
                {
                    let block = Block::new(id, replica.generation_stamp, replica.len);
                    store.mark_suspect(&pool.extended(block));
                }
                return Err(error);
            }
            copied => return copied,
        }
    }
}

/// Replicas that an earlier process left in memory get their room of the budget, also beyond it:
/// nothing new has room then until some of them have left.
fn take_room(store: &StoreState, pool: &Pool) {
    for (id, len) in pool.map.in_memory.without_room() {
        let room = store.cache.take_in_memory(len);
        drop(pool.map.in_memory.give_room(id, room));
    }
}

/// Copies to `tmp` of the other volume without a latch, then names the copy under it.
async fn copy_to(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    (id, replica): (i64, FinalReplica),
    (from, to): (&Arc<BlockPoolSlice>, &Arc<BlockPoolSlice>),
    look: &(impl Fn(Step) + Sync),
) -> Result<bool, StoreError> {
    let block = Block::new(id, replica.generation_stamp, replica.len);
    let source = Pair::finalized(&from.paths, id, replica.generation_stamp);
    let scratch = source.at(to.scratch("lazypersist"));
    let failed = |error| {
        let error = StoreError::io(
            format!("copying replica {block} from memory to disk"),
            error,
        );
        examine(store, &to.volume, examine(store, &from.volume, error))
    };
    let copying = copy_verified(from, to, &source, &scratch, replica.len, Pace::Steady);
    let copied = tokio::select! {
        biased;
        error = cut_off(store, pool, from, to) => Err(error),
        copied = copying => copied.map_err(failed),
    };
    let checksum = match copied {
        Ok(checksum) => checksum,
        Err(error) => {
            clean_up(store, pool, to, &scratch).await;
            return Err(error);
        }
    };
    look(Step::Copied);
    let latch = pool.latches.acquire(id).await;
    if pool.map.is_finalized(id, &replica) {
        // A copy of an earlier generation has the same name.
        delete_stale(store, pool, id).await;
    }
    let target = scratch.at(directory(to, PLACE, id));
    if !settle_if_unchanged(pool, &replica, to, (scratch, target), failed).await? {
        return Ok(false);
    }
    look(Step::Named);
    to.used.add(footprint(replica.len, Some(checksum)));
    let copy = FinalReplica {
        volume: to.volume.index,
        ..replica
    };
    let since = pool.map.in_memory.unpersisted(id);
    if !pool.persist(id, &replica, copy) {
        debug!(%block, "memory lost a replica while it was copied");
        pool.map.in_memory.keep_stale(id, copy);
        drop(latch);
        settle_stale(store, pool, id, None).await?;
        return Ok(false);
    }
    let waited = since.map(|(_, waited)| waited).unwrap_or_default();
    store.lazy.counts.persisted(replica.len, waited);
    Ok(true)
}
