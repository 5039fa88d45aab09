//! Taking over replicas that exist: append, and the recoveries of a pipeline.

use std::sync::Arc;

use hayloft_io::{IoClass, IoError, IoErrorKind, IoOp, OpenMode};
use hayloft_wire::ids::{Block, ExtendedBlock, ReplicaState};
use tracing::info;

use crate::error::{StoreError, StoreErrorKind};
use crate::lifecycle::exclusive::{Stopped, WriterLock, stop_writer};
use crate::lifecycle::finalize::finalize_recovered;
use crate::lifecycle::volume_failure::examine;
use crate::load::{Cut, Valid, validate};
use crate::replica::Tail;
use crate::replica::block_pool::Pool;
use crate::replica::files::{self, Pair};
use crate::replica::state::{Move, after};
use crate::replica::{FinalReplica, LiveReplica, ReplicaDir, Slot, Status};
use crate::state::StoreState;
use crate::types::{ReplicaRef, StoreEvent};
use crate::volume::{BlockPoolSlice, footprint};
use crate::writer::ReplicaWriter;

/// See [`Store::append`](crate::Store::append).
pub async fn append(
    inner: &Arc<StoreState>,
    block: &ExtendedBlock,
    new_gs: u64,
    expected_len: u64,
) -> Result<ReplicaWriter, StoreError> {
    if new_gs < block.block.generation_stamp {
        return Err(illegal(format!(
            "The new generation stamp {new_gs} should be greater than the replica {block}'s \
                generation stamp"
        )));
    }
    let pool = inner.pool(&block.pool)?;
    let _latch = pool.latches.acquire(block.block.id).await;
    let replica = match pool.slot(block.block.id)? {
        Slot::Finalized(replica) => replica,
        Slot::Live(live) => {
            let state = live.status().state;
            return Err(not_found(format!(
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
    append_to(inner, &pool, block.block, replica, new_gs).await
}

/// See [`Store::recover_append`](crate::Store::recover_append).
pub async fn recover_append(
    inner: &Arc<StoreState>,
    block: &ExtendedBlock,
    new_gs: u64,
    expected_len: u64,
) -> Result<ReplicaWriter, StoreError> {
    info!(%block, new_gs, expected_len, "recovering a failed append");
    let pool = inner.pool(&block.pool)?;
    let _latch = pool.latches.acquire(block.block.id).await;
    match recover_check(inner, &pool, block, new_gs, expected_len).await? {
        Stopped::Finalized(replica) => append_to(inner, &pool, block.block, replica, new_gs).await,
        Stopped::Live(live, writer_lock) => {
            let reservation =
                Reservation::growth(&live.slice, live.block().num_bytes, block.block.num_bytes)?;
            bump_live(inner, &live, new_gs).await?;
            reservation.hand_to(&live);
            go_on(inner, &pool, live, writer_lock).await
        }
    }
}

/// See [`Store::recover_close`](crate::Store::recover_close).
pub async fn recover_close(
    inner: &Arc<StoreState>,
    block: &ExtendedBlock,
    new_gs: u64,
    expected_len: u64,
) -> Result<ReplicaRef, StoreError> {
    info!(%block, new_gs, expected_len, "recovering a failed close");
    let pool = inner.pool(&block.pool)?;
    let _latch = pool.latches.acquire(block.block.id).await;
    match recover_check(inner, &pool, block, new_gs, expected_len).await? {
        Stopped::Finalized(replica) => {
            bump_finalized(inner, &pool, block.block.id, replica, new_gs).await
        }
        Stopped::Live(live, _writer_lock) => {
            bump_live(inner, &live, new_gs).await?;
            settle(inner, &live, expected_len).await?;
            finalize_recovered(inner, &pool, &live).await
        }
    }
}

/// See [`Store::recover_rbw`](crate::Store::recover_rbw).
pub async fn recover_rbw(
    inner: &Arc<StoreState>,
    block: &ExtendedBlock,
    new_gs: u64,
    min_bytes_received: u64,
    max_bytes_received: u64,
) -> Result<ReplicaWriter, StoreError> {
    info!(%block, new_gs, min_bytes_received, max_bytes_received, "recovering a replica being \
        written");
    let pool = inner.pool(&block.pool)?;
    let _latch = pool.latches.acquire(block.block.id).await;
    let Stopped::Live(live, writer_lock) = stop_writer(inner, &pool, block.block.id).await? else {
        return Err(not_found(format!(
            "Cannot recover a non-RBW replica {block}: it is FINALIZED"
        )));
    };
    let status = live.snapshot();
    if after(status.state, Move::TakeOver).is_none() {
        return Err(not_found(format!(
            "Cannot recover a non-RBW replica {block}: it is {}",
            status.state
        )));
    }
    check_gs(block, status.generation_stamp, new_gs)?;
    let (acked, received) = (status.bytes_acked, status.bytes_on_disk);
    if acked < min_bytes_received || received > max_bytes_received {
        return Err(not_found(format!(
            "Unmatched length replica {block}: BytesAcked = {acked} BytesRcvd = {received} are \
                not in the range of \
             [{min_bytes_received}, {max_bytes_received}]."
        )));
    }
    let reservation = Reservation::growth(&live.slice, acked, block.block.num_bytes)?;
    // What was not acknowledged is sent again, perhaps with other packet boundaries.
    settle(inner, &live, acked).await?;
    bump_live(inner, &live, new_gs).await?;
    reservation.hand_to(&live);
    go_on(inner, &pool, live, writer_lock).await
}

fn illegal(text: String) -> StoreError {
    StoreError::new(StoreErrorKind::Illegal, text)
}

fn not_found(text: String) -> StoreError {
    StoreError::new(StoreErrorKind::NotFound, text)
}

fn check_len(block: &ExtendedBlock, len: u64, expected: u64) -> Result<(), StoreError> {
    if len == expected {
        return Ok(());
    }
    Err(illegal(format!(
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
    inner: &Arc<StoreState>,
    pool: &Arc<Pool>,
    block: &ExtendedBlock,
    new_gs: u64,
    expected_len: u64,
) -> Result<Stopped, StoreError> {
    let stopped = stop_writer(inner, pool, block.block.id).await?;
    match &stopped {
        Stopped::Finalized(replica) => {
            check_gs(block, replica.generation_stamp, new_gs)?;
            check_len(block, replica.len, expected_len)?;
        }
        Stopped::Live(live, _) => {
            let status = live.snapshot();
            if status.state != ReplicaState::Rbw {
                return Err(not_found(format!(
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

/// Room reserved on a volume; given back unless it is handed to a replica.
struct Reservation {
    slice: Arc<BlockPoolSlice>,
    bytes: u64,
}

impl Reservation {
    /// Reserves room for growing from `len` to `expected_len` bytes.
    fn growth(
        slice: &Arc<BlockPoolSlice>,
        len: u64,
        expected_len: u64,
    ) -> Result<Self, StoreError> {
        let bytes = expected_len.saturating_sub(len);
        let remaining = slice.volume.numbers().remaining;
        if remaining < bytes {
            let text = format!(
                "Insufficient space for appending: {bytes} B are needed, {remaining} B are left"
            );
            return Err(StoreError::new(StoreErrorKind::OutOfSpace, text));
        }
        slice.volume.reserve_for_replica(bytes);
        Ok(Self {
            slice: Arc::clone(slice),
            bytes,
        })
    }

    fn hand_to(mut self, live: &LiveReplica) {
        let mut status = live.status();
        let bytes = std::mem::take(&mut self.bytes);
        status.bytes_reserved += bytes;
        status.expected_len = status.bytes_on_disk.saturating_add(bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.slice.volume.release_reserved(self.bytes);
    }
}

/// Makes the files of a live replica hold exactly `len` bytes, of those that are known to be
/// right. The caller has the right to it.
pub async fn settle(
    inner: &Arc<StoreState>,
    live: &Arc<LiveReplica>,
    len: u64,
) -> Result<(), StoreError> {
    let status = live.snapshot();
    if !status.unsettled && status.bytes_on_disk == len {
        return Ok(());
    }
    let block = live.block();
    let doing = || format!("cutting replica {block} to {len} bytes");
    if len > status.bytes_on_disk {
        return Err(illegal(format!(
            "{}: it has only {}",
            doing(),
            status.bytes_on_disk
        )));
    }
    let pair = live.pair();
    let (path, known) = (
        pair.data(),
        Tail {
            len: status.bytes_on_disk,
            crc: status.last_crc,
        },
    );
    let checksum = status.checksum;
    let (crc, made) = files::on_disk_with_sync(
        &live.slice,
        IoClass::ClientWrite,
        IoOp::Truncate,
        &path,
        true,
        move || match checksum {
            Some(checksum) => {
                let cut = Cut::of(&pair.data(), &pair.meta(), checksum, len, Some(known))?;
                Ok((cut.last_crc(), cut.make()))
            }
            // Nothing was ever written.
            None => std::fs::OpenOptions::new()
                .write(true)
                .open(pair.data())?
                .set_len(0)
                .map(|()| (0, Ok(()))),
        },
    )
    .await
    .map_err(|e| corrupt_or_io(inner, &live.slice, doing(), e))?;
    let made = made.map_err(|(op, e)| IoError::from_std(op, &path, &e));
    // Also of a cut that failed half-way: the checksums of what is beyond are gone.
    let mut now = live.status();
    now.bytes_on_disk = len;
    now.bytes_acked = now.bytes_acked.min(len);
    // Cutting a file gives back what was reserved behind its end.
    now.allocated_len = now.allocated_len.min(len);
    now.last_crc = crc;
    now.unsettled = made.is_err();
    drop(now);
    live.slice.used.change(
        footprint(status.bytes_on_disk, checksum),
        footprint(len, checksum),
    );
    made.map_err(|e| {
        live.note_failure(&e);
        corrupt_or_io(inner, &live.slice, doing(), e)
    })
}

/// Turns a failed file operation into an error; what reads as damage is `Corrupt`.
fn corrupt_or_io(
    inner: &Arc<StoreState>,
    slice: &BlockPoolSlice,
    doing: String,
    error: IoError,
) -> StoreError {
    if error.errno().is_none() && error.kind() == IoErrorKind::Other {
        return StoreError::new(StoreErrorKind::Corrupt, format!("{doing}: {error}"));
    }
    examine(inner, &slice.volume, StoreError::io(doing, error))
}

/// Gives a live replica a new generation stamp, on the disk and in memory.
pub async fn bump_live(
    inner: &Arc<StoreState>,
    live: &Arc<LiveReplica>,
    new_gs: u64,
) -> Result<(), StoreError> {
    let pair = live.pair();
    let (path, dir) = (pair.meta(), pair.dir.clone());
    let outcome = files::on_disk(
        &live.slice,
        IoClass::ClientWrite,
        IoOp::Rename,
        &path,
        // Its names become durable when it is closed.
        move || files::bump(&pair, new_gs, false),
    )
    .await;
    // After the names have changed: a commit round that came before would not see that.
    live.slice.volume.commits.touch_dir(&dir);
    outcome.map_err(|e| {
        let e = StoreError::io(
            format!("giving {} the generation stamp {new_gs}", live.block()),
            e,
        );
        examine(inner, &live.slice.volume, e)
    })?;
    live.status().generation_stamp = new_gs;
    Ok(())
}

/// Gives a finalized replica a new generation stamp, on the disk and in memory. The caller holds
/// the latch.
pub async fn bump_finalized(
    inner: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    replica: FinalReplica,
    new_gs: u64,
) -> Result<ReplicaRef, StoreError> {
    let slice = pool.slice(replica.volume)?;
    let pair = Pair {
        dir: slice.paths.finalized_dir(id),
        id,
        generation_stamp: replica.generation_stamp,
    };
    // No caller closes it again.
    let (path, durable) = (pair.meta(), inner.config.sync_on_close);
    let dir = pair.dir.clone();
    let outcome = files::on_disk_with_sync(
        &slice,
        IoClass::ClientWrite,
        IoOp::Rename,
        &path,
        durable,
        move || files::bump(&pair, new_gs, durable),
    )
    .await;
    slice.volume.commits.touch_dir(&dir);
    outcome.map_err(|e| {
        let e = StoreError::io(format!("giving blk_{id} the generation stamp {new_gs}"), e);
        examine(inner, &slice.volume, e)
    })?;
    let slot = Slot::Finalized(FinalReplica {
        generation_stamp: new_gs,
        ..replica
    });
    pool.put(id, slot.clone())?;
    Ok(crate::replica::reference::reference_of(
        pool, &slice, id, &slot,
    ))
}

/// Opens the files of a replica that is there already; the room reserved for it goes back when that
/// fails.
async fn go_on(
    inner: &Arc<StoreState>,
    pool: &Arc<Pool>,
    live: Arc<LiveReplica>,
    writer_lock: WriterLock,
) -> Result<ReplicaWriter, StoreError> {
    let (mode, class) = (OpenMode::ReadWrite, IoClass::ClientWrite);
    let reserved = Arc::clone(&live);
    let opened = ReplicaWriter::open(inner, pool, live, writer_lock, mode, class).await;
    if opened.is_err() {
        reserved.release_reserved();
    }
    opened
}

/// Reopens a finalized replica for writing. The caller holds the latch.
async fn append_to(
    inner: &Arc<StoreState>,
    pool: &Arc<Pool>,
    block: Block,
    replica: FinalReplica,
    new_gs: u64,
) -> Result<ReplicaWriter, StoreError> {
    let reservation =
        Reservation::growth(&pool.slice(replica.volume)?, replica.len, block.num_bytes)?;
    let (live, writer_lock) = reopen(inner, pool, block.id, replica, new_gs).await?;
    reservation.hand_to(&live);
    go_on(inner, pool, live, writer_lock).await
}

/// Verifies the end of a finalized replica, moves its files to `rbw` under a new generation stamp,
/// and puts it into the map as a replica being written. The caller holds the latch.
pub async fn reopen(
    inner: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    replica: FinalReplica,
    new_gs: u64,
) -> Result<(Arc<LiveReplica>, WriterLock), StoreError> {
    let slice = pool.slice(replica.volume)?;
    let old = Block::new(id, replica.generation_stamp, replica.len);
    let state = after(ReplicaState::Finalized, Move::Append)
        .expect("a finalized replica can be appended to");
    let from = Pair {
        dir: slice.paths.finalized_dir(id),
        id,
        generation_stamp: replica.generation_stamp,
    };
    let to = from.at(slice.paths.rbw()).with_gs(new_gs);
    let (path, scratch) = (from.data(), slice.paths.tmp());
    let dirs = [from.dir.clone(), to.dir.clone()];
    let outcome = files::on_disk_with_sync(
        &slice,
        IoClass::ClientWrite,
        IoOp::Rename,
        &path,
        // Copies of files that a snapshot shares are synced.
        true,
        move || {
            let valid = validate(&from.data(), &from.meta())?;
            let on_disk = std::fs::metadata(from.data())?.len();
            if valid.len != replica.len || on_disk != replica.len || valid.checksum.is_none() {
                return Ok(Err((valid, on_disk)));
            }
            files::reopen(&from, &to, &scratch).map(|()| Ok(valid))
        },
    )
    .await;
    for dir in &dirs {
        slice.volume.commits.touch_dir(dir);
    }
    let outcome = outcome.map_err(|e| {
        examine(
            inner,
            &slice.volume,
            StoreError::io(format!("reopening replica {old} for writing"), e),
        )
    })?;
    let valid: Valid = match outcome {
        Ok(valid) => valid,
        Err((valid, on_disk)) => {
            let event = StoreEvent::Corrupt {
                block: pool.extended(old),
                storage: slice.volume.info.clone(),
            };
            inner.send_event(event).await;
            let text = format!(
                "replica {old} is damaged: its data file has {on_disk} bytes, of which {} are \
                    intact",
                valid.len
            );
            return Err(StoreError::new(StoreErrorKind::Corrupt, text));
        }
    };
    let mut status = Status::new(state, ReplicaDir::Rbw, new_gs);
    status.bytes_on_disk = replica.len;
    status.bytes_acked = replica.len;
    status.checksum = valid.checksum;
    status.last_crc = valid.last_crc;
    status.pinned = replica.pinned;
    let live = Arc::new(LiveReplica::new(id, slice, status));
    let writer_lock = Arc::new(Arc::clone(&live.writer).lock_owned().await);
    pool.put(id, Slot::Live(Arc::clone(&live)))?;
    Ok((live, writer_lock))
}
