//! Deleting replicas: at once in the map, durably out of the way in the directories, later for
//! good.
//!
//! The files of a deleted replica are renamed into `tmp/deleting` before the node is told. A
//! restart does not look there for replicas, and Apache's DataNode empties `tmp` when it starts. So
//! deleted replicas do not come back, however many deletes were waiting. Lanes of each volume then
//! remove the files, as a class of I/O that clients do not wait for.
//!
//! Power loss may undo a rename: the replica is then found and reported again, and the NameNode
//! orders its deletion again.

mod stale_copies;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::{FutureExt as _, StreamExt as _};
use hayloft_io::{DataFiles, IoClass, IoError, IoErrorKind, IoOp, locks, told_if_broken};
use hayloft_wire::ids::Block;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::{run_commit_rounds, to_trash};
use crate::error::{StoreError, StoreErrorKind};
use crate::layout::dirs::DELETING;
use crate::layout::names;
use crate::protection::ReplicaChange;
use crate::replica::block_pool::Pool;
use crate::replica::live::directory;
use crate::replica::{ReplicaDir, Slot};
use crate::state::{Delete, StoreState};
use crate::transitions::check_volume::examine;
use crate::transitions::stop_writer::{Stopped, stop_writer};
use crate::types::StoreEvent;
use crate::volume::{BlockPoolSlice, Volume};

pub(crate) use stale_copies::{delete_copy, delete_stale};

/// Deletes that may wait for the lanes of a volume; further deletes of that volume wait.
const WAITING_MAX: usize = 16 * 1024;

/// Starts the lanes of every volume that has none.
pub fn start_lanes(store: &Arc<StoreState>) {
    for volume in store.volumes() {
        let mut queues = locks::write(&store.delete_queues);
        if queues.contains_key(&volume.index) {
            continue;
        }
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        queues.insert(volume.index, sender);
        store
            .tasks
            .spawn(work_off(Arc::clone(store), volume, receiver));
    }
}

/// Removes what comes through the queue, several at a time, until the store stops.
async fn work_off(store: Arc<StoreState>, volume: Arc<Volume>, receiver: mpsc::Receiver<Delete>) {
    let lanes = store.config.delete_lanes_per_volume.max(1);
    let work = each(receiver, lanes, |order| remove(&store, &volume, order));
    tokio::select! {
        () = store.stop.cancelled() => {}
        () = work => {}
    }
}

/// Does `work` for what comes through a queue, so many at a time. One that panics is counted and
/// told, and stops no other.
async fn each<T, W: Future<Output = ()>>(
    queue: mpsc::Receiver<T>,
    at_once: usize,
    work: impl Fn(T) -> W,
) {
    let orders = futures_util::stream::unfold(queue, |mut queue| async move {
        queue.recv().await.map(|order| (order, queue))
    });
    let one = |order| told_if_broken("delete of a replica", work(order)).map(drop);
    orders.for_each_concurrent(at_once, one).await;
}

async fn remove(store: &Arc<StoreState>, volume: &Arc<Volume>, order: Delete) {
    let meta = volume.meta(IoClass::Delete);
    match order {
        Delete::Leftover(path) => match meta.remove_dir_all(&path).await {
            Err(e) if e.kind() != IoErrorKind::NotFound => {
                warn!(path = %path.display(), error = %e, "cannot remove what an earlier process \
                    left; it is tried again at the next start");
            }
            _ => debug!(path = %path.display(), "removed what an earlier process left"),
        },
        Delete::Replica {
            slice,
            block,
            files,
            counted,
            tell,
        } => {
            let Some(first) = files.first().cloned() else {
                return;
            };
            let data_files = meta.data_files();
            let freed = meta
                .run(IoOp::Unlink, &first, move |_| {
                    remove_files(&data_files, &files)
                })
                .await;
            match freed {
                Ok(bytes) if counted => slice.used.sub(bytes),
                Ok(_) => {}
                Err(error) => {
                    // Out of the way already: only its space is not back.
                    warn!(%block, %error, "cannot remove a deleted replica; it is tried again at \
                        the next start");
                    if error.kind().suspects_volume() {
                        crate::transitions::check_volume::suspect(store, volume, &error);
                    }
                }
            }
            if tell {
                store
                    .send_event(StoreEvent::Deleted {
                        block,
                        storage: volume.info.clone(),
                    })
                    .await;
            }
        }
    }
}

/// Removes files; gives the bytes that they had.
fn remove_files(data_files: &DataFiles, files: &[PathBuf]) -> Result<u64, IoError> {
    let mut bytes = 0;
    for path in files {
        let failed = |e: std::io::Error| IoError::from_std(IoOp::Unlink, path, &e);
        match std::fs::symlink_metadata(path) {
            Ok(meta) => bytes += meta.len(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(failed(e)),
        }
        data_files.remove(path).map_err(failed)?;
    }
    Ok(bytes)
}

/// Takes a replica out of the map and its files out of the way. The caller holds the block's
/// latch.
pub async fn discard(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    tell: bool,
) -> Result<(), StoreError> {
    let stopped = match stop_writer(store, pool, id).await {
        // Its writer gave it up and removed it while we waited.
        Err(e) if e.kind() == StoreErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let place = match &stopped {
        Stopped::Finalized(_) => ReplicaDir::Finalized,
        Stopped::Live(live, _) => {
            live.release_reserved();
            live.status().place
        }
    };
    let slot = pool.slot(id)?;
    let slice = pool.slice(slot.volume())?;
    if pool.map.in_memory.unpersisted(id).is_some() {
        store.lazy.counts.deleted_before();
    }
    pool.map.remove(id);
    // Before the replica: one that was told as deleted does not come back from its copy.
    delete_stale(store, pool, id).await;
    discard_files(store, pool, &slice, place, slot.block(id), tell).await
}

/// What protects replicas keeps what it needs of the data that is about to leave its place.
async fn before_change(
    store: &Arc<StoreState>,
    (slice, place): (&BlockPoolSlice, ReplicaDir),
    id: i64,
) {
    if let Some(protection) = &store.protection {
        let data = directory(slice, place, id).join(names::data_name(id));
        let (at, change) = ((id, &slice.volume), ReplicaChange::Gone);
        protection
            .before_change(store, &slice.pool, at, data, change)
            .await;
    }
}

/// Takes the files of a replica out of the way that is no longer in the map; to the trash while a
/// rolling upgrade runs.
pub async fn discard_files(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    slice: &Arc<BlockPoolSlice>,
    place: ReplicaDir,
    block: Block,
    tell: bool,
) -> Result<(), StoreError> {
    let failed = |e| {
        let e = StoreError::io(format!("deleting replica {block}"), e);
        examine(store, &slice.volume, e)
    };
    if place != ReplicaDir::Temporary {
        before_change(store, (slice, place), block.id).await;
    }
    if let Some(trash) = to_trash::trash_for(pool, slice, place, block.id).filter(|_| tell)
        && let Some(bytes) = to_trash::to_trash(slice, place, block, trash)
            .await
            .map_err(failed)?
    {
        slice.used.sub(bytes);
        slice.held.trash.add(bytes);
        let storage = slice.volume.info.clone();
        store
            .send_event(StoreEvent::Deleted {
                block: pool.extended(block),
                storage,
            })
            .await;
        return Ok(());
    }
    run_commit_rounds::forget(&slice.volume, pool, block.id);
    let files = put_aside(slice, place, block).await.map_err(failed)?;
    let order = Delete::Replica {
        block: pool.extended(block),
        slice: Arc::clone(slice),
        files,
        counted: true,
        tell,
    };
    enqueue(store, &slice.volume, order).await;
    Ok(())
}

/// Deletes the files of a finalized replica that is no longer in the map, and waits for that: its
/// memory is wanted.
pub(crate) async fn delete_now(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    slice: &Arc<BlockPoolSlice>,
    block: Block,
) -> Result<(), IoError> {
    before_change(store, (slice, ReplicaDir::Finalized), block.id).await;
    run_commit_rounds::forget(&slice.volume, pool, block.id);
    let files = put_aside(slice, ReplicaDir::Finalized, block).await?;
    let order = Delete::Replica {
        block: pool.extended(block),
        slice: Arc::clone(slice),
        files,
        counted: true,
        tell: false,
    };
    remove(store, &slice.volume, order).await;
    Ok(())
}

/// Deletes files at `place` that are of no replica in the map, and tells of nothing.
pub(crate) async fn discard_copy(
    store: &StoreState,
    pool: &Pool,
    slice: &Arc<BlockPoolSlice>,
    place: ReplicaDir,
    block: Block,
) -> Result<(), IoError> {
    let files = put_aside(slice, place, block).await?;
    let order = Delete::Replica {
        block: pool.extended(block),
        slice: Arc::clone(slice),
        files,
        counted: true,
        tell: false,
    };
    enqueue(store, &slice.volume, order).await;
    Ok(())
}

/// Deletes files at `place` that were never counted as used, as a replica that could not be begun
/// leaves them. Where the lanes are behind, the next start removes them: a new replica waits for no
/// deletes of a disk that did not take it.
pub(crate) async fn discard_uncounted(
    store: &StoreState,
    pool: &Pool,
    slice: &Arc<BlockPoolSlice>,
    place: ReplicaDir,
    block: Block,
) -> Result<(), IoError> {
    let files = put_aside(slice, place, block).await?;
    let order = Delete::Replica {
        block: pool.extended(block),
        slice: Arc::clone(slice),
        files,
        counted: false,
        tell: false,
    };
    if let Some(queue) = lanes(store, &slice.volume) {
        let _ = queue.try_send(order);
    }
    Ok(())
}

fn lanes(store: &StoreState, volume: &Volume) -> Option<mpsc::Sender<Delete>> {
    let queues = locks::read(&store.delete_queues);
    queues.get(&volume.index).cloned()
}

/// Gives an order to the lanes of a volume; waits when they are behind.
async fn enqueue(store: &StoreState, volume: &Volume, order: Delete) {
    if let Some(queue) = lanes(store, volume)
        && queue.send(order).await.is_err()
    {
        debug!(volume = %volume.root.display(), "deletes are finished at the next start");
    }
}

/// Renames the files of a replica into `tmp/deleting`; gives their new names.
async fn put_aside(
    slice: &BlockPoolSlice,
    place: ReplicaDir,
    block: Block,
) -> Result<Vec<PathBuf>, IoError> {
    let dir = directory(slice, place, block.id);
    let target = slice.paths.tmp().join(DELETING);
    let unique = slice.delete_sequence.fetch_add(1, Ordering::Relaxed);
    let moves = [
        names::data_name(block.id),
        names::meta_name(block.id, block.generation_stamp),
    ]
    .map(|name| (dir.join(&name), target.join(format!("{name}.{unique}"))));
    let path = moves[0].0.clone();
    // Data first: a meta file that stays behind alone is removed at the next start.
    slice
        .volume
        .meta(IoClass::ClientWrite)
        .run(IoOp::Rename, &path, move |_| {
            let mut files = Vec::new();
            for (from, to) in moves {
                if rename_if_there(&from, &to)? {
                    files.push(to);
                }
            }
            Ok(files)
        })
        .await
}

fn rename_if_there(from: &Path, to: &Path) -> Result<bool, IoError> {
    match std::fs::rename(from, to) {
        Ok(()) => Ok(true),
        // An error in looking says nothing of it being there.
        Err(e)
            if e.kind() == std::io::ErrorKind::NotFound
                && matches!(from.try_exists(), Ok(false)) =>
        {
            Ok(false)
        }
        Err(e) => Err(IoError::from_std(IoOp::Rename, from, &e)
            .with_context(format_args!("to {}", to.display()))),
    }
}

/// Puts a directory (or what is left of one) aside at once and has the lanes remove it.
pub async fn remove_later(
    store: &Arc<StoreState>,
    slice: &Arc<BlockPoolSlice>,
    path: &Path,
) -> Result<(), IoError> {
    let unique = slice.delete_sequence.fetch_add(1, Ordering::Relaxed);
    let aside = slice.paths.tmp().join(format!(
        "{DELETING}-{}-{unique}",
        crate::layout::dirs::now_ms()
    ));
    let meta = slice.volume.meta(IoClass::ClientWrite);
    match meta.rename(path, &aside).await {
        Err(e) if e.kind() == IoErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(()) => {
            clear_leftovers(store, slice, vec![aside]);
            Ok(())
        }
    }
}

/// Has the lanes remove what an earlier process left.
pub fn clear_leftovers(
    store: &Arc<StoreState>,
    slice: &Arc<BlockPoolSlice>,
    leftovers: Vec<PathBuf>,
) {
    let (store, slice) = (Arc::clone(store), Arc::clone(slice));
    store.tasks.clone().spawn(async move {
        for path in leftovers {
            enqueue(&store, &slice.volume, Delete::Leftover(path)).await;
        }
    });
}

/// Puts the files of a replica out of the way that is not in the map because another of the same
/// block is.
pub async fn delete_duplicate(store: &Arc<StoreState>, pool: &Arc<Pool>, id: i64, slot: &Slot) {
    let place = slot.place();
    let block = slot.block(id);
    let Ok(slice) = pool.slice(slot.volume()) else {
        return;
    };
    if let Err(error) = discard_copy(store, pool, &slice, place, block).await {
        warn!(%block, %error, "cannot delete the duplicate of a replica");
    }
}

#[cfg(test)]
mod tests;
