//! What the directory scanner does about a difference between directories and the replica map.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hayloft_io::{IoClass, IoOp};
use hayloft_wire::ids::Block;
use tracing::{info, warn};

use crate::error::StoreError;
use crate::found_at_start::Found;
use crate::replica::block_pool::Pool;
use crate::replica::file_pair::{Pair, on_disk};
use crate::replica::{FinalReplica, Slot};
use crate::state::StoreState;
use crate::types::StoreEvent;
use crate::volume::{BlockPoolSlice, footprint};

/// What a scan found to be different, for the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Replicas found that were not known.
    pub added: usize,
    /// Replicas whose data file is gone.
    pub gone: usize,
    /// Replicas without meta file or of another length.
    pub damaged: usize,
    /// Meta files without data removed.
    pub lone_meta: usize,
}

/// Something that looks different.
#[derive(Clone, Debug)]
pub enum Step {
    /// Files of a replica that the map does not have here.
    Unknown(Found),
    /// The map has a replica of which a file is missing or the length differs.
    Differs {
        id: i64,
        /// As the map had it.
        replica: FinalReplica,
        /// Generation stamp of the meta file that lies there.
        on_disk: Option<u64>,
    },
    /// A meta file without data file.
    LoneMeta(Block, PathBuf),
}

/// Lengths of the files of a finalized replica now; `None` for one that is not there.
async fn look(
    slice: &BlockPoolSlice,
    block: Block,
) -> Result<(Option<u64>, Option<u64>), StoreError> {
    let pair = Pair::finalized(&slice.paths, block.id, block.generation_stamp);
    let path = pair.data();
    on_disk(slice, IoClass::Scan, IoOp::Stat, &path, move || {
        let len = |path: PathBuf| match fs::metadata(path) {
            Ok(meta) => Ok(Some(meta.len())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        };
        Ok((len(pair.data())?, len(pair.meta())?))
    })
    .await
    .map_err(|e| StoreError::io("comparing directories with memory", e))
}

/// Checks that the tree of finalized replicas is there: without it no single replica is gone, the
/// disk is.
async fn still_there(slice: &BlockPoolSlice) -> Result<(), StoreError> {
    let path = slice.paths.finalized();
    let dir = path.clone();
    on_disk(slice, IoClass::Scan, IoOp::Stat, &path, move || {
        fs::metadata(dir).map(|_| ())
    })
    .await
    .map_err(|e| StoreError::io("looking for the tree of finalized replicas", e))
}

/// Looks again under the latch, and does what is still to be done.
pub async fn settle(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    slice: &Arc<BlockPoolSlice>,
    step: Step,
    all: &mut Differences,
) -> Result<(), StoreError> {
    let (id, event) = match step {
        Step::Unknown(found) => {
            let id = found.block.id;
            let _latch = pool.latches.acquire(id).await;
            (id, settle_unknown(pool, slice, &found, all).await?)
        }
        Step::Differs {
            id,
            replica,
            on_disk,
        } => {
            let _latch = pool.latches.acquire(id).await;
            let event = settle_differs(store, pool, slice, (id, replica, on_disk), all).await?;
            (id, event)
        }
        Step::LoneMeta(block, dir) => {
            let _latch = pool.latches.acquire(block.id).await;
            all.lone_meta += usize::from(remove_lone_meta(pool, slice, block, dir).await?);
            (block.id, None)
        }
    };
    if let Some(event) = event {
        info!(pool = %pool.id(), block = id, "directory scanner: {event:?}");
        store.send_event(event).await;
    }
    Ok(())
}

/// Serves a replica that is still not known.
async fn settle_unknown(
    pool: &Pool,
    slice: &Arc<BlockPoolSlice>,
    found: &Found,
    all: &mut Differences,
) -> Result<Option<StoreEvent>, StoreError> {
    let (Some(len), Some(_)) = look(slice, found.block).await? else {
        return Ok(None);
    };
    let block = Block {
        num_bytes: len,
        ..found.block
    };
    // Moved or written meanwhile, or a copy on another volume.
    if pool.map.get(block.id).is_some() {
        return Ok(None);
    }
    let replica = FinalReplica {
        generation_stamp: block.generation_stamp,
        len,
        volume: slice.volume.index,
        pinned: found.pinned,
    };
    if pool.put(block.id, Slot::Finalized(replica)).is_err() {
        return Ok(None);
    }
    slice.used.add(footprint(len, None));
    all.added += 1;
    Ok(Some(StoreEvent::Found {
        block: pool.extended(block),
        storage: slice.volume.info.clone(),
    }))
}

/// Drops a replica whose data is gone, tells of one that is damaged, and follows a meta file that
/// has another generation stamp.
async fn settle_differs(
    store: &StoreState,
    pool: &Pool,
    slice: &Arc<BlockPoolSlice>,
    (id, replica, on_disk): (i64, FinalReplica, Option<u64>),
    all: &mut Differences,
) -> Result<Option<StoreEvent>, StoreError> {
    let storage = slice.volume.info.clone();
    let mut block = Block::new(id, replica.generation_stamp, replica.len);
    let (data, mut meta) = look(slice, block).await?;
    let other = on_disk.filter(|gs| *gs != replica.generation_stamp);
    if let (Some(_), None, Some(gs)) = (data, meta, other) {
        block.generation_stamp = gs;
        meta = look(slice, block).await?.1;
    }
    if !pool.map.is_finalized(id, &replica) {
        return Ok(None);
    }
    let Some(len) = data else {
        still_there(slice).await?;
        let protection = store.protection.as_ref();
        if protection.is_some_and(|p| p.covers(pool.id(), id, &storage.id, replica.len).is_some()) {
            // It can be decoded: it is mended before it is told.
            all.damaged += 1;
            let block = pool.extended(block);
            return Ok(Some(StoreEvent::Corrupt { block, storage }));
        }
        if !pool.map.remove_if(id, &Slot::Finalized(replica)) {
            return Ok(None);
        }
        slice.used.sub(footprint(replica.len, None));
        all.gone += 1;
        let block = pool.extended(block);
        return Ok(Some(StoreEvent::Lost { block, storage }));
    };
    if meta.is_none() || len != replica.len {
        all.damaged += 1;
        block.generation_stamp = replica.generation_stamp;
        warn!(%block, data = len, ?meta, "the files of a replica are not what they should be");
        let block = pool.extended(block);
        return Ok(Some(StoreEvent::Corrupt { block, storage }));
    }
    if block.generation_stamp == replica.generation_stamp {
        return Ok(None);
    }
    warn!(%block, before = replica.generation_stamp, "the meta file of a replica has another \
        generation stamp now");
    let now = FinalReplica {
        generation_stamp: block.generation_stamp,
        ..replica
    };
    if pool.put(id, Slot::Finalized(now)).is_err() {
        return Ok(None);
    }
    all.added += 1;
    let block = pool.extended(block);
    Ok(Some(StoreEvent::Found { block, storage }))
}

/// Removes a meta file if there is still no replica of the block and no data file beside it.
async fn remove_lone_meta(
    pool: &Pool,
    slice: &BlockPoolSlice,
    block: Block,
    dir: PathBuf,
) -> Result<bool, StoreError> {
    if pool.map.get(block.id).is_some() {
        return Ok(false);
    }
    let pair = Pair {
        dir,
        id: block.id,
        generation_stamp: block.generation_stamp,
    };
    let path = pair.meta();
    on_disk(slice, IoClass::Scan, IoOp::Unlink, &path, move || {
        if pair.data().try_exists()? {
            return Ok(false);
        }
        match fs::remove_file(pair.meta()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            outcome => Ok(outcome.is_ok()),
        }
    })
    .await
    .map_err(|e| StoreError::io("removing a meta file without data file", e))
}
