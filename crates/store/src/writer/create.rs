//! New replicas.

use std::sync::Arc;
use std::time::Duration;

use hayloft_wire::ids::{Block, ExtendedBlock, ReplicaState, StorageType};
use tracing::warn;

use crate::error::{StoreError, StoreErrorKind};
use crate::lazy_persist;
use crate::replica::block_pool::Pool;
use crate::replica::{ReplicaDir, Slot, Status};
use crate::state::StoreState;
use crate::types::WriteOptions;
use crate::writer::ReplicaWriter;
use crate::writer::switch_volume::Unwritten;
use crate::writer::volume_for_new_replica::{NewReplica, Tried};

/// How long a new copy waits for what may be the end of an earlier one.
const CLEANUP_WAIT: Duration = Duration::from_millis(200);

/// See [`Store::create_rbw`](crate::Store::create_rbw).
pub async fn create_rbw(
    store: Arc<StoreState>,
    block: ExtendedBlock,
    options: WriteOptions,
) -> Result<ReplicaWriter, StoreError> {
    let pool = store.pool(&block.pool)?;
    let mut wanted = block.block;
    // Without the latch: what leaves for it takes another one.
    let room = match options.expected_len.filter(|_| options.lazy_persist) {
        Some(bytes) => lazy_persist::place(&store, &pool, bytes).await,
        None => None,
    };
    let _latch = pool.latches.acquire(wanted.id).await;
    if let Some(there) = pool.map.get(wanted.id) {
        if options.new_gs.is_none() {
            return Err(already_exists(&block, &there, "created"));
        }
        // The client's first attempt at this pipeline failed; this is the next one. Apache's
        // DataNode (FsDatasetImpl.createRbw, 3.5.0) compares neither state nor generation stamp
        // here either.
        crate::transitions::delete::discard(&store, &pool, wanted.id, false).await?;
    }
    if let Some(new_gs) = options.new_gs {
        wanted.generation_stamp = new_gs;
    }
    let new = new_replica(wanted, &options, ReplicaDir::Rbw);
    if let Some(room) = room {
        pool.map.in_memory.begin(new.id, room);
        let in_memory = NewReplica {
            storage_type: StorageType::RamDisk,
            storage_id: None,
            ..new.clone()
        };
        match create(&store, &pool, &in_memory).await {
            Err(error) if Tried::is_of_volume(&error) => {
                pool.map.in_memory.abandon(new.id);
                store.lazy.counts.fell_back();
                warn!(%block, %error, "no memory takes a new replica: it is written to disk");
            }
            Err(error) => {
                pool.map.in_memory.abandon(new.id);
                return Err(error);
            }
            created => {
                store.lazy.counts.placed();
                return created;
            }
        }
    }
    create(&store, &pool, &new).await
}

/// See [`Store::create_temporary`](crate::Store::create_temporary).
pub async fn create_temporary(
    store: Arc<StoreState>,
    block: ExtendedBlock,
    options: WriteOptions,
) -> Result<ReplicaWriter, StoreError> {
    let pool = store.pool(&block.pool)?;
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
            return Err(already_exists(&block, &there, "created"));
        }
        crate::transitions::delete::discard(&store, &pool, wanted.id, false).await?;
    }
    let new = new_replica(wanted, &options, ReplicaDir::Temporary);
    create(&store, &pool, &new).await
}

fn already_exists(block: &ExtendedBlock, there: &Slot, verb: &str) -> StoreError {
    let state = there.state();
    StoreError::new(
        StoreErrorKind::AlreadyExists,
        format!("Block {block} already exists in state {state} and thus cannot be {verb}."),
    )
}

/// What is to be created.
fn new_replica(block: Block, options: &WriteOptions, place: ReplicaDir) -> NewReplica {
    let state = if place == ReplicaDir::Rbw {
        ReplicaState::Rbw
    } else {
        ReplicaState::Temporary
    };
    let mut status = Status::new(state, place, block.generation_stamp);
    status.expected_len = options.expected_len.unwrap_or(block.num_bytes);
    status.pinned = options.pinned;
    NewReplica {
        id: block.id,
        status,
        storage_type: options.storage_type,
        storage_id: options.storage_id.clone().filter(|id| !id.is_empty()),
        checksum: options.checksum,
        class: options.class,
    }
}

/// Chooses a volume and creates the files; where that volume fails, is full or leaves meanwhile,
/// another one, each once. The caller holds the latch, and the block is not in the map.
async fn create(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    new: &NewReplica,
) -> Result<ReplicaWriter, StoreError> {
    let block = new.block();
    let mut tried = Tried::default();
    loop {
        let mut writer = new.open_somewhere(store, pool, &mut tried).await?;
        let live = Arc::clone(&writer.live);
        live.status().unwritten = true;
        let there = pool.put(block.id, Slot::Live(Arc::clone(&live)));
        // The removal of the volume stops the writers that it finds in the map.
        if there.is_ok() && !live.slice.volume.is_failed() {
            writer.unwritten = Some(Unwritten::new(tried, &live));
            return Ok(writer);
        }
        pool.map.remove_if(block.id, &Slot::Live(live));
        tried.failed(&writer.live.slice, block, pool.volume_failed());
    }
}
