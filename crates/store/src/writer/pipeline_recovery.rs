//! Taking over replicas that exist: append, and the recoveries of a pipeline.

use std::sync::Arc;

use hayloft_io::{IoClass, OpenMode};
use hayloft_wire::ids::{Block, ExtendedBlock, ReplicaState};
use tracing::info;

use crate::error::{StoreError, StoreErrorKind};
use crate::replica::block_pool::Pool;
use crate::replica::state::{Move, after};
use crate::replica::{FinalReplica, LiveReplica, Slot};
use crate::state::StoreState;
use crate::transitions::move_to_finalized::finalize_recovered;
use crate::transitions::stop_writer::{Stopped, WriterLock, stop_writer};
use crate::types::ReplicaRef;
use crate::volume::BlockPoolSlice;
use crate::volume::reservation::Reservation;
use crate::writer::ReplicaWriter;
use crate::writer::recovery_steps::{bump_finalized, bump_live, reopen, settle};

/// See [`Store::append`](crate::Store::append).
pub async fn append(
    store: &Arc<StoreState>,
    block: &ExtendedBlock,
    new_gs: u64,
    expected_len: u64,
) -> Result<ReplicaWriter, StoreError> {
    if new_gs < block.block.generation_stamp {
        return Err(StoreError::illegal(format!(
            "The new generation stamp {new_gs} should be greater than the replica {block}'s \
                generation stamp"
        )));
    }
    let pool = store.pool(&block.pool)?;
    let _latch = pool.latches.acquire(block.block.id).await;
    let replica = match pool.slot(block.block.id)? {
        Slot::Finalized(replica) => replica,
        Slot::Live(live) => {
            let state = live.status().state;
            return Err(StoreError::not_found(format!(
                "Cannot append to an unfinalized replica {block} (it is {state})"
            )));
        }
    };
    if replica.generation_stamp != block.block.generation_stamp {
        return Err(StoreError::new(
            StoreErrorKind::UnexpectedGenerationStamp,
            format!(
                "Cannot append to a replica with unexpected generation stamp {block}: it has {}",
                replica.generation_stamp
            ),
        ));
    }
    check_len(block, replica.len, expected_len)?;
    append_to(store, &pool, block.block, replica, new_gs).await
}

/// See [`Store::recover_append`](crate::Store::recover_append).
pub async fn recover_append(
    store: &Arc<StoreState>,
    block: &ExtendedBlock,
    new_gs: u64,
    expected_len: u64,
) -> Result<ReplicaWriter, StoreError> {
    info!(%block, new_gs, expected_len, "recovering a failed append");
    let pool = store.pool(&block.pool)?;
    let _latch = pool.latches.acquire(block.block.id).await;
    match recover_check(store, &pool, block, new_gs, expected_len).await? {
        Stopped::Finalized(replica) => append_to(store, &pool, block.block, replica, new_gs).await,
        Stopped::Live(live, writer_lock) => {
            let reservation = growth(&live.slice, live.block().num_bytes, block.block.num_bytes)?;
            bump_live(store, &live, new_gs).await?;
            hand_to(&live, reservation);
            go_on(store, &pool, live, writer_lock).await
        }
    }
}

/// See [`Store::recover_close`](crate::Store::recover_close).
pub async fn recover_close(
    store: &Arc<StoreState>,
    block: &ExtendedBlock,
    new_gs: u64,
    expected_len: u64,
) -> Result<ReplicaRef, StoreError> {
    info!(%block, new_gs, expected_len, "recovering a failed close");
    let pool = store.pool(&block.pool)?;
    let _latch = pool.latches.acquire(block.block.id).await;
    match recover_check(store, &pool, block, new_gs, expected_len).await? {
        Stopped::Finalized(replica) => {
            bump_finalized(store, &pool, block.block.id, replica, new_gs).await
        }
        Stopped::Live(live, _writer_lock) => {
            bump_live(store, &live, new_gs).await?;
            settle(store, &live, expected_len).await?;
            finalize_recovered(store, &pool, &live).await
        }
    }
}

/// See [`Store::recover_rbw`](crate::Store::recover_rbw).
pub async fn recover_rbw(
    store: Arc<StoreState>,
    block: ExtendedBlock,
    new_gs: u64,
    min_bytes_received: u64,
    max_bytes_received: u64,
) -> Result<ReplicaWriter, StoreError> {
    info!(%block, new_gs, min_bytes_received, max_bytes_received, "recovering a replica being \
        written");
    let pool = store.pool(&block.pool)?;
    let _latch = pool.latches.acquire(block.block.id).await;
    let Stopped::Live(live, writer_lock) = stop_writer(&store, &pool, block.block.id).await? else {
        return Err(StoreError::not_found(format!(
            "Cannot recover a non-RBW replica {block}: it is FINALIZED"
        )));
    };
    let status = live.snapshot();
    if after(status.state, Move::TakeOver).is_none() {
        return Err(StoreError::not_found(format!(
            "Cannot recover a non-RBW replica {block}: it is {}",
            status.state
        )));
    }
    check_gs(&block, status.generation_stamp, new_gs)?;
    let (acked, received) = (status.bytes_acked, status.bytes_on_disk);
    if acked < min_bytes_received || received > max_bytes_received {
        return Err(StoreError::not_found(format!(
            "Unmatched length replica {block}: BytesAcked = {acked} BytesRcvd = {received} are \
                not in the range of \
             [{min_bytes_received}, {max_bytes_received}]."
        )));
    }
    let reservation = growth(&live.slice, acked, block.block.num_bytes)?;
    // What was not acknowledged is sent again, perhaps with other packet boundaries.
    settle(&store, &live, acked).await?;
    bump_live(&store, &live, new_gs).await?;
    hand_to(&live, reservation);
    go_on(&store, &pool, live, writer_lock).await
}

fn check_len(block: &ExtendedBlock, len: u64, expected: u64) -> Result<(), StoreError> {
    if len == expected {
        return Ok(());
    }
    Err(StoreError::illegal(format!(
        "Corrupted replica {block} with a length of {len} expected length is {expected}"
    )))
}

/// The generation stamp must be between the one the client knew and the one it brings.
fn check_gs(block: &ExtendedBlock, gs: u64, new_gs: u64) -> Result<(), StoreError> {
    if gs >= block.block.generation_stamp && gs <= new_gs {
        return Ok(());
    }
    Err(StoreError::new(
        StoreErrorKind::UnexpectedGenerationStamp,
        format!(
            "Cannot append to a replica with unexpected generation stamp {gs}. Expected GS range \
                is [{}, {new_gs}].",
            block.block.generation_stamp
        ),
    ))
}

/// Seizes the replica and checks that it can go on from `expected_len` (append and close recovery).
async fn recover_check(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    block: &ExtendedBlock,
    new_gs: u64,
    expected_len: u64,
) -> Result<Stopped, StoreError> {
    let stopped = stop_writer(store, pool, block.block.id).await?;
    match &stopped {
        Stopped::Finalized(replica) => {
            check_gs(block, replica.generation_stamp, new_gs)?;
            check_len(block, replica.len, expected_len)?;
        }
        Stopped::Live(live, _) => {
            let status = live.snapshot();
            if status.state != ReplicaState::Rbw {
                return Err(StoreError::not_found(format!(
                    "Cannot recover append/close to a replica that's not FINALIZED and not RBW \
                        {block}: it is {}",
                    status.state
                )));
            }
            check_gs(block, status.generation_stamp, new_gs)?;
            if status.bytes_on_disk != status.bytes_acked {
                return Err(StoreError::new(
                    StoreErrorKind::AlreadyExists,
                    format!(
                        "Unmatched length replica {block}: bytesOnDisk = {} bytesAcked = {}",
                        status.bytes_on_disk, status.bytes_acked
                    ),
                ));
            }
            check_len(block, status.bytes_on_disk, expected_len)?;
        }
    }
    Ok(stopped)
}

/// Reserves room for growing from `len` to `expected_len` bytes.
fn growth(slice: &BlockPoolSlice, len: u64, expected_len: u64) -> Result<Reservation, StoreError> {
    let bytes = expected_len.saturating_sub(len);
    let _promise = slice.volume.file_system.promise();
    let remaining = slice.volume.room();
    if remaining < bytes {
        let text = format!(
            "Insufficient space for appending: {bytes} B are needed, {remaining} B are left"
        );
        return Err(StoreError::new(StoreErrorKind::OutOfSpace, text));
    }
    Ok(Reservation::new(&slice.volume, bytes))
}

fn hand_to(live: &LiveReplica, reservation: Reservation) {
    let mut status = live.status();
    let bytes = reservation.hand_on();
    status.bytes_reserved += bytes;
    status.expected_len = status.bytes_on_disk.saturating_add(bytes);
}

/// Opens the files of a replica that is there already; the room reserved for it goes back when that
/// fails.
async fn go_on(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    live: Arc<LiveReplica>,
    writer_lock: WriterLock,
) -> Result<ReplicaWriter, StoreError> {
    let (mode, class) = (OpenMode::ReadWrite, IoClass::ClientWrite);
    let reserved = Arc::clone(&live);
    let opened = ReplicaWriter::open(store, pool, live, writer_lock, mode, class).await;
    if opened.is_err() {
        reserved.release_reserved();
    }
    opened
}

/// Reopens a finalized replica for writing. The caller holds the latch.
async fn append_to(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    block: Block,
    replica: FinalReplica,
    new_gs: u64,
) -> Result<ReplicaWriter, StoreError> {
    let reservation = growth(&*pool.slice(replica.volume)?, replica.len, block.num_bytes)?;
    let (live, writer_lock) = reopen(store, pool, block.id, replica, new_gs).await?;
    hand_to(&live, reservation);
    go_on(store, pool, live, writer_lock).await
}
