//! The part of a block pool on a volume that joins it.

use std::sync::Arc;

use hayloft_io::{IoClass, IoError, IoOp, locks};
use hayloft_wire::ids::{Block, ReplicaState};
use tracing::{info, warn};

use crate::error::{StoreError, StoreErrorKind};
use crate::found_at_start::{self, FoundRbw, LoadOptions, Loaded, Progress};
use crate::replica::block_pool::Pool;
use crate::replica::{FinalReplica, LiveReplica, ReplicaDir, Slot, Status};
use crate::service::pool::duplicates;
use crate::service::startup;
use crate::service::upgrade::FoundUpgrade;
use crate::state::StoreState;
use crate::transitions::check_volume::LACKING;
use crate::types::{StartOption, StoreEvent};
use crate::volume::stop_mark::Mark;
use crate::volume::unsynced::CommitRounds;
use crate::volume::{BlockPoolSlice, Volume, footprint};

/// Part of a pool on a volume that joins it.
#[derive(Debug)]
pub struct Joining {
    slice: Arc<BlockPoolSlice>,
    loaded: Loaded,
    upgrade: FoundUpgrade,
}

impl Joining {
    /// The pool has never been on the volume.
    pub fn is_new(&self) -> bool {
        self.upgrade.is_new()
    }
}

/// Formats or checks the pool on a volume and finds its replicas. While the process lacks something
/// for that, it waits: neither the volume nor the pool is to blame.
pub async fn add_slice(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    volume: &Arc<Volume>,
    start: StartOption,
    progress: &Arc<Progress>,
) -> Result<Joining, StoreError> {
    let mut said = false;
    loop {
        let error = match try_slice(store, pool, volume, start, progress).await {
            Err(error) if error.kind() == StoreErrorKind::Retry => error,
            outcome => return outcome,
        };
        if !std::mem::replace(&mut said, true) {
            let volume = volume.root.display();
            warn!(%volume, %error, "loading a volume waits for what the process lacks");
        }
        tokio::select! {
            () = store.stop.cancelled() => return Err(error),
            () = store.ending.cancelled() => return Err(error),
            () = volume.gone.cancelled() => return Err(error),
            () = tokio::time::sleep(LACKING) => {}
        }
    }
}

/// What an attempt that failed left behind is what a killed process would leave.
async fn try_slice(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    volume: &Arc<Volume>,
    start: StartOption,
    progress: &Arc<Progress>,
) -> Result<Joining, StoreError> {
    startup::format_if_new(store, volume).await?;
    let slice = Arc::new(BlockPoolSlice::new(Arc::clone(volume), pool.id().clone()));
    let upgrade = crate::service::upgrade::prepare(&pool.spec, &slice, start).await?;
    let options = LoadOptions {
        data_files: volume.data_files(),
        cache_expiry: store.config.replica_cache_expiry,
        used_expiry: store.config.dfs_used_cache_expiry,
        doubt: volume.doubt,
        in_memory: volume.info.storage_type.is_transient(),
        threads: walk_threads(),
    };
    let (paths, progress) = (slice.paths.clone(), Arc::clone(progress));
    let root = slice.paths.root.clone();
    let loaded = volume
        .meta(IoClass::ClientRead)
        .run(IoOp::List, &root, move |root| {
            found_at_start::load(&paths, &options, &progress)
                .map_err(|e| IoError::from_std(IoOp::List, root, &e).with_context(e))
        })
        .await
        .map_err(|e| StoreError::io(format!("loading block pool {}", pool.id()), e))?;
    if let Some(since_ms) = loaded.of_other_node_since_ms
        && let Err(error) = Mark::narrow(volume, since_ms).await
    {
        warn!(volume = %volume.root.display(), %error, "cannot note since when replicas of another \
            node are in doubt: a start before they were verified looks at more of them");
    }
    Ok(Joining {
        slice,
        loaded,
        upgrade,
    })
}

/// Threads per volume: directory reads wait for the disk, so more than one even on one core.
fn walk_threads() -> usize {
    std::thread::available_parallelism()
        .map_or(2, usize::from)
        .clamp(2, 8)
}

/// Puts what was found on a volume into the pool's map. Duplicates are resolved and the loser is
/// deleted.
pub async fn adopt(store: &Arc<StoreState>, pool: &Arc<Pool>, joining: Joining) {
    let Joining {
        slice,
        loaded,
        upgrade,
    } = joining;
    let slice = &slice;
    locks::write(&slice.volume.slices).push(Arc::clone(slice));
    pool.join(Arc::clone(slice));
    crate::service::upgrade::note(pool, slice, upgrade);
    pool.map.reserve(loaded.finalized.len());
    let mut used = 0_u64;
    let mut losers = Vec::new();
    for found in loaded.finalized {
        let b = found.block;
        used = used.saturating_add(footprint(b.num_bytes, None));
        let replica = FinalReplica {
            generation_stamp: b.generation_stamp,
            len: b.num_bytes,
            volume: slice.volume.index,
            pinned: found.pinned,
        };
        losers.extend(duplicates::insert(pool, b.id, Slot::Finalized(replica)));
    }
    for found in loaded.rbw {
        used = used.saturating_add(footprint(found.block.num_bytes, found.checksum));
        let id = found.block.id;
        losers.extend(duplicates::insert(
            pool,
            id,
            Slot::Live(Arc::new(revive(slice, &found))),
        ));
    }
    // Counted from lengths and the usual checksums, unless a clean stop left the exact number.
    slice.used.set(loaded.used.unwrap_or(used));
    slice.volume.settle_used();
    // Before other tasks work on the winners, whose files may have to go where these are.
    duplicates::settle_all(losers, store, pool).await;
    verify_recent(store, pool, slice, (loaded.recent, loaded.has_mark));
    slice.volume.commits.loaded(&slice.paths.root);
    crate::transitions::delete::clear_leftovers(store, slice, loaded.leftovers);
    crate::service::upgrade::join_rolling(store, pool, slice).await;
    crate::service::upgrade::watch(store, slice);
}

/// Verifies in the background, the newest first, replicas that a stop may have damaged. The stamp
/// of commit rounds stays until that is done: a start before looks at them again.
fn verify_recent(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    slice: &Arc<BlockPoolSlice>,
    (recent, has_mark): (Vec<Block>, bool),
) {
    if recent.is_empty() && !has_mark {
        return;
    }
    let volume = &slice.volume;
    info!(volume = %volume.root.display(), replicas = recent.len(),
        "the last stop was not clean: verifying the replicas that are newer than the last commit \
            round");
    let verifying = CommitRounds::verifying(volume);
    let (store, pool, slice) = (Arc::clone(store), Arc::clone(pool), Arc::clone(slice));
    let tasks = store.tasks.clone();
    tasks.spawn(async move {
        for block in recent {
            let verify = verify_one(&store, &pool, &slice, block);
            tokio::select! {
                // Not all of them were looked at: the mark stays open, and so does the stamp.
                () = store.stop.cancelled() => return,
                () = slice.volume.gone.cancelled() => return,
                () = verify => {}
            }
        }
        if has_mark && let Err(error) = Mark::remove(&slice.volume, &slice.paths.root).await {
            warn!(pool = %slice.paths.root.display(), %error, "cannot remove the mark of a block \
                pool whose replicas were verified: the next start verifies them again");
        }
        verifying.done();
    });
}

async fn verify_one(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    slice: &Arc<BlockPoolSlice>,
    block: Block,
) {
    // A block that was found on two volumes is on the other one now.
    let unchanged = || {
        matches!(pool.map.get(block.id), Some(Slot::Finalized(now))
            if now.volume == slice.volume.index
                && now.generation_stamp == block.generation_stamp
                && now.len == block.num_bytes)
    };
    if !unchanged() {
        return;
    }
    let dir = slice.paths.finalized_dir(block.id);
    let outcome = loop {
        let (files, paths) = (slice.volume.data_files(), slice.paths.clone());
        let whole = slice
            .volume
            .meta(IoClass::Scan)
            .run(IoOp::Other, &dir, move |dir| {
                found_at_start::is_whole(&files, &paths, block)
                    .map_err(|e| IoError::from_std(IoOp::Read, dir, &e))
            });
        match whole.await {
            Err(error) if error.lacks().is_some() => tokio::time::sleep(LACKING).await,
            outcome => break outcome,
        }
    };
    if matches!(outcome, Ok(true)) || !unchanged() {
        return;
    }
    warn!(%block, ?outcome, "a replica is damaged since the last stop, which was not clean");
    let block = pool.extended(block);
    let storage = slice.volume.info.clone();
    store
        .send_event(StoreEvent::Corrupt { block, storage })
        .await;
}

/// A live replica from what lay in `rbw`.
fn revive(slice: &Arc<BlockPoolSlice>, found: &FoundRbw) -> LiveReplica {
    let mut status = Status::new(found.state, ReplicaDir::Rbw, found.block.generation_stamp);
    status.bytes_on_disk = found.block.num_bytes;
    // An upgrade restart: everything intact counts as acknowledged; the client knows how far it
    // came.
    status.bytes_acked = if found.state == ReplicaState::Rbw {
        found.block.num_bytes
    } else {
        0
    };
    status.checksum = found.checksum;
    status.last_crc = found.last_crc;
    status.synced_len = found.block.num_bytes;
    status.as_written = found.as_written;
    LiveReplica::new(found.block.id, Arc::clone(slice), status)
}
