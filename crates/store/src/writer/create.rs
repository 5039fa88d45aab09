//! New replicas.

use std::sync::Arc;
use std::time::Duration;

use hayloft_io::{IoErrorKind, OpenMode};
use hayloft_wire::ids::{Block, ExtendedBlock, ReplicaState};
use tracing::warn;

use crate::error::{StoreError, StoreErrorKind};
use crate::parity;
use crate::replica::block_pool::Pool;
use crate::replica::{LiveReplica, ReplicaDir, Slot, Status};
use crate::state::StoreState;
use crate::types::WriteOptions;
use crate::volume::BlockPoolSlice;
use crate::writer::ReplicaWriter;

/// How long a new copy waits for what may be the end of an earlier one.
const CLEANUP_WAIT: Duration = Duration::from_millis(200);

/// See [`Store::create_rbw`](crate::Store::create_rbw).
pub async fn create_rbw(
    inner: &Arc<StoreState>,
    block: &ExtendedBlock,
    options: WriteOptions,
) -> Result<ReplicaWriter, StoreError> {
    let pool = inner.pool(&block.pool)?;
    let mut wanted = block.block;
    let _latch = pool.latches.acquire(wanted.id).await;
    if let Some(there) = pool.map.get(wanted.id) {
        if options.new_gs.is_none() {
            return Err(already_exists(block, &there, "created"));
        }
        // The client's first attempt at this pipeline failed; this is the next one. Apache's
        // DataNode (FsDatasetImpl.createRbw, 3.5.0) compares neither state nor generation stamp
        // here either.
        crate::lifecycle::delete::discard(inner, &pool, wanted.id, false).await?;
    }
    if let Some(new_gs) = options.new_gs {
        wanted.generation_stamp = new_gs;
    }
    create(inner, &pool, wanted, &options, ReplicaDir::Rbw).await
}

/// See [`Store::create_temporary`](crate::Store::create_temporary).
pub async fn create_temporary(
    inner: &Arc<StoreState>,
    block: &ExtendedBlock,
    options: WriteOptions,
) -> Result<ReplicaWriter, StoreError> {
    let pool = inner.pool(&block.pool)?;
    let wanted = block.block;
    let _latch = pool.latches.acquire(wanted.id).await;
    if let Some(Slot::Live(live)) = pool.map.get(wanted.id)
        && live.status().state == ReplicaState::Temporary
    {
        // A copy that was given up is removed by its writer on the way out: wait for that.
        let _ = tokio::time::timeout(CLEANUP_WAIT, live.writer.lock()).await;
    }
    if let Some(there) = pool.map.get(wanted.id) {
        let here = there.block(wanted.id);
        let in_pipeline = match &there {
            Slot::Finalized(_) => false,
            Slot::Live(live) => matches!(
                live.status().state,
                ReplicaState::Temporary | ReplicaState::Rbw
            ),
        };
        if here.generation_stamp >= wanted.generation_stamp || !(in_pipeline || options.transfer) {
            return Err(already_exists(block, &there, "created"));
        }
        crate::lifecycle::delete::discard(inner, &pool, wanted.id, false).await?;
    }
    create(inner, &pool, wanted, &options, ReplicaDir::Temporary).await
}

fn already_exists(block: &ExtendedBlock, there: &Slot, verb: &str) -> StoreError {
    let state = there.state();
    StoreError::new(
        StoreErrorKind::AlreadyExists,
        format!("Block {block} already exists in state {state} and thus cannot be {verb}."),
    )
}

/// Chooses a volume and creates the files; where the volume leaves meanwhile, another one once
/// more. The caller holds the latch, and the block is not in the map.
async fn create(
    inner: &Arc<StoreState>,
    pool: &Arc<Pool>,
    block: Block,
    options: &WriteOptions,
    place: ReplicaDir,
) -> Result<ReplicaWriter, StoreError> {
    match create_once(inner, pool, block, options, place).await {
        Err(e) if e.kind() == StoreErrorKind::VolumeFailed => {
            warn!(%block, error = %e, "a volume left while a replica was created there: taking \
                another one");
            create_once(inner, pool, block, options, place).await
        }
        other => other,
    }
}

/// See [`create`].
async fn create_once(
    inner: &Arc<StoreState>,
    pool: &Arc<Pool>,
    block: Block,
    options: &WriteOptions,
    place: ReplicaDir,
) -> Result<ReplicaWriter, StoreError> {
    let bytes = options.expected_len.unwrap_or(block.num_bytes);
    let storage_id = options.storage_id.as_deref().filter(|id| !id.is_empty());
    let kind = options.storage_type;
    let choose = || inner.choose_slice(pool, kind, storage_id, bytes, None);
    let slice = match choose() {
        Err(e) if e.kind() == StoreErrorKind::OutOfSpace => {
            parity::make_room(inner, kind, e, choose).await?
        }
        chosen => chosen?,
    };
    let state = if place == ReplicaDir::Rbw {
        ReplicaState::Rbw
    } else {
        ReplicaState::Temporary
    };
    let mut status = Status::new(state, place, block.generation_stamp);
    status.bytes_reserved = bytes;
    status.expected_len = bytes;
    status.pinned = options.pinned;
    let live = Arc::new(LiveReplica::new(block.id, Arc::clone(&slice), status));
    let writer_lock = Arc::new(Arc::clone(&live.writer).lock_owned().await);
    let mut opened = ReplicaWriter::open(
        inner,
        pool,
        Arc::clone(&live),
        Arc::clone(&writer_lock),
        OpenMode::CreateNew,
        options.class,
    )
    .await;
    if opened.as_ref().is_err_and(|e| {
        e.io_error()
            .is_some_and(|e| e.kind() == IoErrorKind::Exists)
    }) {
        clear_the_way(&slice, place, block).await;
        opened = ReplicaWriter::open(
            inner,
            pool,
            Arc::clone(&live),
            writer_lock,
            OpenMode::CreateNew,
            options.class,
        )
        .await;
    }
    let writer = match opened {
        Ok(writer) => writer,
        Err(e) => {
            live.release_reserved();
            // One of the two files may be there. A disk that refused one may refuse this too: the
            // next attempt, or the next start, meets it again.
            let _ = crate::lifecycle::delete::put_aside(&slice, place, block).await;
            return Err(e);
        }
    };
    pool.put(block.id, Slot::Live(Arc::clone(&live)))?;
    // The removal of the volume stops the writers that it finds in the map.
    if slice.volume.is_failed() {
        pool.map.remove_if(block.id, &Slot::Live(live));
        return Err(pool.volume_failed());
    }
    Ok(writer)
}

/// Files of a block that is not in the map are in the way: a data file without meta file, or half
/// of a failed attempt.
async fn clear_the_way(slice: &BlockPoolSlice, place: ReplicaDir, block: Block) {
    warn!(%block, volume = %slice.volume.root.display(), "files of an unknown replica are in the \
        way of a new one: removing them");
    if let Err(error) = crate::lifecycle::delete::put_aside(slice, place, block).await {
        warn!(%block, %error, "cannot remove the files in the way of a new replica");
    }
}
