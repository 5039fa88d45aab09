//! What recoveries and appends do to the files of a replica.

use std::sync::Arc;

use hayloft_io::{IoClass, IoError, IoErrorKind, IoOp, OpenMode};
use hayloft_wire::ids::{Block, ReplicaState};

use crate::error::StoreError;
use crate::found_at_start::{Cut, Valid, validate};
use crate::protection::ReplicaChange;
use crate::replica::Tail;
use crate::replica::block_pool::Pool;
use crate::replica::file_pair::{self, Pair};
use crate::replica::state::{Move, after};
use crate::replica::{FinalReplica, LiveReplica, ReplicaDir, Slot, Status};
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::transitions::stop_writer::WriterLock;
use crate::types::{ReplicaRef, StoreEvent};
use crate::volume::{BlockPoolSlice, footprint};

/// Makes the files of a live replica hold exactly `len` bytes, of those that are known to be
/// right. The caller has the right to it.
pub async fn settle(
    store: &Arc<StoreState>,
    live: &Arc<LiveReplica>,
    len: u64,
) -> Result<(), StoreError> {
    let status = live.snapshot();
    if !status.unsettled && status.bytes_on_disk == len {
        live.status().bytes_shown = 0;
        return Ok(());
    }
    let block = live.block();
    let doing = || format!("cutting replica {block} to {len} bytes");
    if len > status.bytes_on_disk {
        return Err(StoreError::illegal(format!(
            "{}: it has only {}",
            doing(),
            status.bytes_on_disk
        )));
    }
    let pair = live.pair();
    let (id, volume) = (live.id, &live.slice.volume);
    if let Some(protection) = &store.protection {
        let (at, pool, cut) = ((id, volume), &live.slice.pool, ReplicaChange::Cut { len });
        protection
            .before_change(store, pool, at, pair.data(), cut)
            .await;
    }
    let (path, known) = (
        pair.data(),
        Tail {
            len: status.bytes_on_disk,
            crc: status.last_crc,
        },
    );
    let checksum = status.checksum;
    let promise = (status.synced_len, status.kept_end);
    let data_files = volume.data_files();
    let (crc, made) = file_pair::on_disk_with_sync(
        &live.slice,
        IoClass::ClientWrite,
        IoOp::Truncate,
        &path,
        true,
        move || match checksum {
            Some(checksum) => {
                let cut = Cut::of(
                    &data_files,
                    &pair.data(),
                    &pair.meta(),
                    checksum,
                    len,
                    Some(known),
                )?;
                Ok((cut.last_crc(), cut.make(promise)))
            }
            // Nothing was ever written.
            None => data_files
                .open(&pair.data(), OpenMode::ReadWrite)?
                .set_len(0)
                .map(|()| (0, Ok(None))),
        },
    )
    .await
    .map_err(|e| corrupt_or_io(store, &live.slice, doing(), e))?;
    let made = made.map_err(|(op, e)| IoError::from_std(op, &path, &e));
    // Also of a cut that failed half-way: the checksums of what is beyond are gone.
    let mut now = live.status();
    now.bytes_on_disk = len;
    now.bytes_acked = now.bytes_acked.min(len);
    now.bytes_shown = 0;
    // Cutting a file gives back what was reserved behind its end.
    now.allocated_len = now.allocated_len.min(len);
    now.last_crc = crc;
    now.unsettled = made.is_err();
    now.kept_end = made.as_ref().ok().copied().flatten();
    let kept = now.kept_end.filter(|end| end.len == len);
    now.synced_len = kept.map_or(now.synced_len.min(len), |end| end.len);
    drop(now);
    live.slice.used.change(
        footprint(status.bytes_on_disk, checksum),
        footprint(len, checksum),
    );
    let made = made.map_err(|e| {
        live.note_failure(&e);
        corrupt_or_io(store, &live.slice, doing(), e)
    });
    made.map(drop)
}

/// Turns a failed file operation into an error; what reads as damage is `Corrupt`.
fn corrupt_or_io(
    store: &Arc<StoreState>,
    slice: &BlockPoolSlice,
    doing: String,
    error: IoError,
) -> StoreError {
    if error.errno().is_none() && error.kind() == IoErrorKind::Other {
        return StoreError::corrupt(format!("{doing}: {error}"));
    }
    examine(store, &slice.volume, StoreError::io(doing, error))
}

/// Gives a live replica a new generation stamp, on the disk and in memory.
pub async fn bump_live(
    store: &Arc<StoreState>,
    live: &Arc<LiveReplica>,
    new_gs: u64,
) -> Result<(), StoreError> {
    let pair = live.pair();
    let (path, dir) = (pair.meta(), pair.dir.clone());
    let outcome = file_pair::on_disk(
        &live.slice,
        IoClass::ClientWrite,
        IoOp::Rename,
        &path,
        // Its names become durable when it is closed.
        move || file_pair::bump(&pair, new_gs, false),
    )
    .await;
    // After the names have changed: a commit round that came before would not see that.
    live.slice.volume.commits.touch_dir(&dir);
    outcome.map_err(|e| {
        let e = StoreError::io(
            format!("giving {} the generation stamp {new_gs}", live.block()),
            e,
        );
        examine(store, &live.slice.volume, e)
    })?;
    live.status().generation_stamp = new_gs;
    Ok(())
}

/// Gives a finalized replica a new generation stamp, on the disk and in memory. The caller holds
/// the latch.
pub async fn bump_finalized(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    replica: FinalReplica,
    new_gs: u64,
) -> Result<ReplicaRef, StoreError> {
    let slice = pool.slice(replica.volume)?;
    let pair = Pair::finalized(&slice.paths, id, replica.generation_stamp);
    // No caller closes it again.
    let (path, durable) = (pair.meta(), store.config.sync_on_close);
    let dir = pair.dir.clone();
    let outcome = file_pair::on_disk_with_sync(
        &slice,
        IoClass::ClientWrite,
        IoOp::Rename,
        &path,
        durable,
        move || file_pair::bump(&pair, new_gs, durable),
    )
    .await;
    slice.volume.commits.touch_dir(&dir);
    outcome.map_err(|e| {
        let e = StoreError::io(format!("giving blk_{id} the generation stamp {new_gs}"), e);
        examine(store, &slice.volume, e)
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

/// Verifies the end of a finalized replica and moves its files to `rbw` under a new generation
/// stamp. Puts it into the map as a replica being written. The caller holds the latch.
pub async fn reopen(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    replica: FinalReplica,
    new_gs: u64,
) -> Result<(Arc<LiveReplica>, WriterLock), StoreError> {
    let slice = pool.slice(replica.volume)?;
    let old = Block::new(id, replica.generation_stamp, replica.len);
    let state = after(ReplicaState::Finalized, Move::Append)
        .expect("a finalized replica can be appended to");
    let from = Pair::finalized(&slice.paths, id, replica.generation_stamp);
    let to = from.at(slice.paths.rbw()).with_gs(new_gs);
    let (path, scratch) = (from.data(), slice.paths.tmp());
    let dirs = [from.dir.clone(), to.dir.clone()];
    let data_files = slice.volume.data_files();
    let outcome = file_pair::on_disk_with_sync(
        &slice,
        IoClass::ClientWrite,
        IoOp::Rename,
        &path,
        // Copies of files that a snapshot shares are synced.
        true,
        move || {
            let valid = validate(&data_files, &from.data(), &from.meta())?;
            let on_disk = std::fs::metadata(from.data())?.len();
            if valid.len != replica.len || on_disk != replica.len || valid.checksum.is_none() {
                return Ok(Err((valid, on_disk)));
            }
            file_pair::reopen(&data_files, &from, &to, &scratch).map(|()| Ok(valid))
        },
    )
    .await;
    for dir in &dirs {
        slice.volume.commits.touch_dir(dir);
    }
    let outcome = outcome.map_err(|e| {
        examine(
            store,
            &slice.volume,
            StoreError::io(format!("reopening replica {old} for writing"), e),
        )
    })?;
    let valid = match outcome {
        Ok(valid) => valid,
        Err((valid, on_disk)) => {
            return Err(damaged(store, pool, &slice, old, (valid, on_disk)).await);
        }
    };
    let mut status = Status::new(state, ReplicaDir::Rbw, new_gs);
    status.bytes_on_disk = replica.len;
    status.bytes_acked = replica.len;
    status.checksum = valid.checksum;
    status.last_crc = valid.last_crc;
    status.synced_len = replica.len;
    status.pinned = replica.pinned;
    status.appended = Some(replica);
    let live = Arc::new(LiveReplica::new(id, slice, status));
    let writer_lock = Arc::new(Arc::clone(&live.writer).lock_owned().await);
    pool.put(id, Slot::Live(Arc::clone(&live)))?;
    Ok((live, writer_lock))
}

/// Reports a finalized replica whose end is not intact, and gives the error. The pair is what is
/// intact and how many bytes the data file has.
async fn damaged(
    store: &Arc<StoreState>,
    pool: &Pool,
    slice: &BlockPoolSlice,
    block: Block,
    (valid, on_disk): (Valid, u64),
) -> StoreError {
    let event = StoreEvent::Corrupt {
        block: pool.extended(block),
        storage: slice.volume.info.clone(),
    };
    store.send_event(event).await;
    let text = format!(
        "replica {block} is damaged: its data file has {on_disk} bytes, of which {} are intact",
        valid.len
    );
    StoreError::corrupt(text)
}
