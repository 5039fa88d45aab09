//! Block recovery as a participant: a replica is put under recovery, then cut to what the primary
//! decided.

use std::sync::Arc;

use hayloft_io::{IoClass, IoOp};
use hayloft_wire::ids::{Block, ExtendedBlock, ReplicaState};
use tracing::info;

use crate::error::{StoreError, StoreErrorKind};
use crate::found_at_start::Cut;
use crate::replica::block_pool::Pool;
use crate::replica::file_pair::{self, Pair};
use crate::replica::state::{Move, after};
use crate::replica::{FinalReplica, LiveReplica, ReplicaDir, Slot, Status};
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::transitions::move_to_finalized::finalize_recovered;
use crate::transitions::stop_writer::{Stopped, stop_writer};
use crate::types::{RecoveryInfo, ReplicaRef};
use crate::volume::footprint;
use crate::writer::recovery_steps::{bump_finalized, bump_live, reopen, settle};

/// See [`Store::init_replica_recovery`](crate::Store::init_replica_recovery).
pub async fn init(
    store: &Arc<StoreState>,
    block: &ExtendedBlock,
    recovery_id: u64,
) -> Result<Option<RecoveryInfo>, StoreError> {
    let pool = store.pool(&block.pool)?;
    let id = block.block.id;
    let _latch = pool.latches.acquire(id).await;
    if pool.map.get(id).is_none() {
        return Ok(None);
    }
    match stop_writer(store, &pool, id).await? {
        Stopped::Finalized(replica) => {
            let here = Block::new(id, replica.generation_stamp, replica.len);
            check_gs(block, here, recovery_id)?;
            let live = under_recovery(&pool, id, replica, recovery_id)?;
            pool.put(id, Slot::Live(Arc::new(live)))?;
            info!(%block, recovery_id, len = here.num_bytes, "finalized replica is under recovery");
            Ok(Some(RecoveryInfo {
                block: here,
                original_state: ReplicaState::Finalized,
            }))
        }
        Stopped::Live(live, _writer_lock) => {
            check_gs(block, live.block(), recovery_id)?;
            begin(store, block, &live, recovery_id).await.map(Some)
        }
    }
}

/// The replica must not be older than the block that is recovered, nor newer than the recovery.
fn check_gs(block: &ExtendedBlock, here: Block, recovery_id: u64) -> Result<(), StoreError> {
    if here.generation_stamp < block.block.generation_stamp {
        return Err(StoreError::illegal(format!(
            "replica.getGenerationStamp() < block.getGenerationStamp(), block={block}, \
                replica={here}"
        )));
    }
    if here.generation_stamp >= recovery_id {
        return Err(StoreError::illegal(format!(
            "THIS IS NOT SUPPOSED TO HAPPEN: replica.getGenerationStamp() >= recoveryId = \
                {recovery_id}, block={block}, \
             replica={here}"
        )));
    }
    Ok(())
}

fn under_recovery(
    pool: &Pool,
    id: i64,
    replica: FinalReplica,
    recovery_id: u64,
) -> Result<LiveReplica, StoreError> {
    let slice = pool.slice(replica.volume)?;
    let mut status = Status::new(
        ReplicaState::Rur,
        ReplicaDir::Finalized,
        replica.generation_stamp,
    );
    status.bytes_on_disk = replica.len;
    status.bytes_acked = replica.len;
    status.pinned = replica.pinned;
    status.recovery = Some((recovery_id, ReplicaState::Finalized));
    Ok(LiveReplica::new(id, slice, status))
}

/// Puts a live replica, whose writer has stopped, under recovery.
async fn begin(
    store: &Arc<StoreState>,
    block: &ExtendedBlock,
    live: &Arc<LiveReplica>,
    recovery_id: u64,
) -> Result<RecoveryInfo, StoreError> {
    let status = live.snapshot();
    if let Some((theirs, _)) = status.recovery
        && theirs >= recovery_id
    {
        return Err(StoreError::new(
            StoreErrorKind::RecoveryInProgress,
            format!(
                "rur.getRecoveryID() >= recoveryId = {recovery_id}, block={block}, rur has \
                    recovery id {theirs}"
            ),
        ));
    }
    let Some(next) = after(status.state, Move::BeginRecovery) else {
        return Err(StoreError::illegal(format!(
            "{block} is {} and cannot be recovered",
            status.state
        )));
    };
    settle(store, live, status.bytes_on_disk).await?;
    live.release_reserved();
    let original_state = status
        .recovery
        .map_or(status.state, |(_, original)| original);
    let mut now = live.status();
    now.state = next;
    now.recovery = Some((recovery_id, original_state));
    let here = Block::new(live.id, now.generation_stamp, now.bytes_on_disk);
    drop(now);
    info!(%block, recovery_id, state = %original_state, len = here.num_bytes, "replica is under \
        recovery");
    Ok(RecoveryInfo {
        block: here,
        original_state,
    })
}

/// See [`Store::update_replica_under_recovery`](crate::Store::update_replica_under_recovery).
pub async fn update(
    store: Arc<StoreState>,
    block: ExtendedBlock,
    recovery_id: u64,
    new_block_id: i64,
    new_len: u64,
) -> Result<ReplicaRef, StoreError> {
    let pool = store.pool(&block.pool)?;
    let id = block.block.id;
    let copy = new_block_id > 0 && new_block_id != id;
    let _latch = pool.latches.acquire(id).await;
    let Stopped::Live(live, _writer_lock) = stop_writer(&store, &pool, id).await? else {
        return Err(StoreError::illegal(format!(
            "replica of {block} is FINALIZED, not under recovery"
        )));
    };
    let status = live.snapshot();
    let Some((ours, _)) = status
        .recovery
        .filter(|_| status.state == ReplicaState::Rur)
    else {
        return Err(StoreError::illegal(format!(
            "replica of {block} is {}, not under recovery",
            status.state
        )));
    };
    if ours != recovery_id {
        return Err(StoreError::illegal(format!(
            "rur.getRecoveryID() != recoveryId = {recovery_id}, block={block}, rur has recovery \
                id {ours}"
        )));
    }
    if status.bytes_on_disk != block.block.num_bytes {
        return Err(StoreError::illegal(format!(
            "THIS IS NOT SUPPOSED TO HAPPEN: replica.getBytesOnDisk() != block.getNumBytes(), \
                block={block} with {} bytes, \
             replica has {}",
            block.block.num_bytes, status.bytes_on_disk
        )));
    }
    if status.bytes_on_disk < new_len {
        return Err(StoreError::illegal(format!(
            "rur.getNumBytes() < newlength = {new_len}, block={block}, replica has {}",
            status.bytes_on_disk
        )));
    }
    info!(%block, recovery_id, new_block_id, new_len, "ending the recovery of a replica");
    if copy {
        copy_shortened(&store, &pool, &live, new_block_id, recovery_id, new_len).await?;
        // The old block stays as it is.
        return finalize_recovered(&store, &pool, &live).await;
    }
    if status.place == ReplicaDir::Finalized {
        return update_finalized(&store, &pool, &live, recovery_id, new_len).await;
    }
    settle(&store, &live, new_len).await?;
    bump_live(&store, &live, recovery_id).await?;
    finalize_recovered(&store, &pool, &live).await
}

fn final_of(live: &LiveReplica) -> FinalReplica {
    let status = live.status();
    FinalReplica {
        generation_stamp: status.generation_stamp,
        len: status.bytes_on_disk,
        volume: live.slice.volume.index,
        pinned: status.pinned,
    }
}

/// A replica whose files are in `finalized`. It is shortened in `rbw`, so that a stop in the middle
/// leaves a replica that start-up verifies, not a finalized one with wrong checksums.
async fn update_finalized(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    live: &Arc<LiveReplica>,
    recovery_id: u64,
    new_len: u64,
) -> Result<ReplicaRef, StoreError> {
    let replica = final_of(live);
    if replica.len == new_len {
        return bump_finalized(store, pool, live.id, replica, recovery_id).await;
    }
    let (reopened, _writer_lock) = reopen(store, pool, live.id, replica, recovery_id).await?;
    // Should the rest fail, the replica is still under this recovery, for the next attempt.
    {
        let mut status = reopened.status();
        status.state = ReplicaState::Rur;
        status.recovery = Some((recovery_id, ReplicaState::Finalized));
    }
    settle(store, &reopened, new_len).await?;
    finalize_recovered(store, pool, &reopened).await
}

/// Makes the first `len` bytes of a replica a finalized replica of another block on the same
/// volume: truncate under a snapshot.
async fn copy_shortened(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    live: &Arc<LiveReplica>,
    new_id: i64,
    gs: u64,
    len: u64,
) -> Result<(), StoreError> {
    let block = Block::new(new_id, gs, len);
    // The id is new: no task can be waiting for both.
    let _latch = pool.latches.acquire(new_id).await;
    if pool.map.get(new_id).is_some() {
        let text = format!("Block {block} already exists and thus cannot be made by a truncate");
        return Err(StoreError::new(StoreErrorKind::AlreadyExists, text));
    }
    let slice = Arc::clone(&live.slice);
    let from = live.pair();
    let scratch = Pair {
        dir: slice.paths.tmp(),
        id: new_id,
        generation_stamp: gs,
    };
    let to = scratch.at(slice.paths.finalized_dir(new_id));
    let path = from.data();
    let data_files = slice.volume.data_files();
    let checksum = file_pair::on_disk_with_sync(
        &slice,
        IoClass::Replication,
        IoOp::Write,
        &path,
        true,
        move || {
            data_files.copy(&from.data(), &scratch.data())?;
            hayloft_io::patiently(|| std::fs::copy(from.meta(), scratch.meta()))?;
            let checksum =
                crate::found_at_start::validate(&data_files, &scratch.data(), &scratch.meta())?
                    .checksum
                    .ok_or_else(|| std::io::Error::other("the meta file has no header"))?;
            let (data, meta) = (scratch.data(), scratch.meta());
            let cut = Cut::of(&data_files, &data, &meta, checksum, len, None)?;
            cut.make((0, None)).map_err(|(_, e)| e)?;
            // The original was on the device for long, and commit rounds know of writers' files
            // only.
            file_pair::sync_data(&data_files, &scratch.data())?;
            file_pair::sync_file(&scratch.meta())?;
            file_pair::move_pair(&scratch, &to, true)?;
            Ok(checksum)
        },
    )
    .await
    .map_err(|e| {
        examine(
            store,
            &slice.volume,
            StoreError::io(format!("copying {} to {block}", live.block()), e),
        )
    })?;
    slice.used.add(footprint(len, Some(checksum)));
    let replica = FinalReplica {
        generation_stamp: gs,
        len,
        volume: slice.volume.index,
        pinned: false,
    };
    pool.put(new_id, Slot::Finalized(replica))
}
