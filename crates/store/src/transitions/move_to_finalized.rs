//! How a live replica becomes a finalized one.

use std::sync::Arc;

use hayloft_io::{IoClass, IoError, IoOp};
use hayloft_wire::ids::{Block, ReplicaState};

use crate::error::StoreError;
use crate::replica::block_pool::Pool;
use crate::replica::file_pair;
use crate::replica::reference::reference_of;
use crate::replica::state::{Move, after};
use crate::replica::{FinalReplica, LiveReplica, ReplicaDir, Slot, Status};
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::types::{ReplicaRef, StoreEvent};

/// As [`finalize_live`] for a replica that a recovery has settled. Where closes are synced its
/// bytes are, too: they came from a writer that did not get so far. After a failed sync this one
/// would promise what is not known: then it fails.
pub async fn finalize_recovered(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    live: &Arc<LiveReplica>,
) -> Result<ReplicaRef, StoreError> {
    let durable = store.config.sync_on_close;
    let finalize = async {
        if durable {
            let pair = live.pair();
            let path = pair.data();
            let data_files = live.slice.volume.data_files();
            let sync = move || {
                file_pair::sync_data(&data_files, &pair.data())?;
                file_pair::sync_file(&pair.meta())
            };
            let class = IoClass::ClientWrite;
            let _alone = live.syncing.write().await;
            let synced = file_pair::on_disk(&live.slice, class, IoOp::Sync, &path, sync).await;
            synced.map_err(|e| {
                live.note_failure(&e);
                StoreError::io(format!("syncing replica {}", live.block()), e)
            })?;
            live.refuse_after_failed_sync()?;
        }
        finalize_live(store, pool, live, durable).await
    };
    finalize
        .await
        .map_err(|e| examine(store, &live.slice.volume, e))
}

/// Moves the files of a live replica to `finalized` and the replica in the map. The caller has the
/// right to it, and all of its bytes are settled. `durable`: the new names outlive power loss when
/// it returns.
pub async fn finalize_live(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    live: &Arc<LiveReplica>,
    durable: bool,
) -> Result<ReplicaRef, StoreError> {
    let status = live.snapshot();
    let block = live.block();
    may_finalize(store, &status, block)?;
    if !pool.map.is_live(live) {
        return Err(StoreError::not_found(format!(
            "{block} was deleted while it was written"
        )));
    }
    if status.place != ReplicaDir::Finalized {
        move_files(live, &status, durable)
            .await
            .map_err(|e| StoreError::io(format!("finalizing replica {block}"), e))?;
    }
    let done = FinalReplica {
        generation_stamp: status.generation_stamp,
        len: status.bytes_on_disk,
        volume: live.slice.volume.index,
        pinned: status.pinned,
    };
    {
        let mut status = live.status();
        status.state = ReplicaState::Finalized;
        status.place = ReplicaDir::Finalized;
        status.bytes_acked = status.bytes_on_disk;
    }
    live.release_reserved();
    if live.slice.volume.is_failed() {
        return Err(pool.volume_failed());
    }
    let ours = Slot::Live(Arc::clone(live));
    if !pool.put_instead(live.id, &ours, Slot::Finalized(done))? {
        return Err(StoreError::not_found(format!(
            "{block} was deleted, or a better replica of it was found, while it was finalized"
        )));
    }
    if let Some(protection) = &store.protection {
        protection.finalized(live, done.len);
    }
    if live.status().sync_failed {
        // Bytes of it did not reach the disk, whatever the page cache still has.
        let storage = live.slice.volume.info.clone();
        let block = pool.extended(block);
        store
            .send_event(StoreEvent::Corrupt { block, storage })
            .await;
    }
    Ok(reference_of(
        pool,
        &live.slice,
        live.id,
        &Slot::Finalized(done),
    ))
}

/// Moves the files of a replica to `finalized`.
async fn move_files(live: &LiveReplica, status: &Status, durable: bool) -> Result<(), IoError> {
    let from = live.pair();
    let to = from.at(live.slice.paths.finalized_dir(live.id));
    let len = status.bytes_on_disk;
    let (path, pinned, trim) = (from.data(), status.pinned, status.allocated_len > len);
    let dirs = [from.dir.clone(), to.dir.clone()];
    let data_files = live.slice.volume.data_files();
    file_pair::on_disk_with_sync(
        &live.slice,
        IoClass::ClientWrite,
        IoOp::Rename,
        &path,
        durable,
        move || {
            match file_pair::trim_and_pin(&data_files, &from.data(), trim.then_some(len), pinned) {
                // An earlier attempt came further.
                Err(_) if file_pair::is_moved(&from, &to)? => {}
                other => other?,
            }
            file_pair::move_pair(&from, &to, durable)
        },
    )
    .await?;
    if !durable {
        for dir in &dirs {
            live.slice.volume.commits.touch_dir(dir);
        }
    }
    Ok(())
}

/// Whether a replica that was not reported as finalized may become so now.
fn may_finalize(store: &StoreState, status: &Status, block: Block) -> Result<(), StoreError> {
    let step = if status.state == ReplicaState::Rur {
        Move::EndRecovery
    } else {
        Move::Finalize
    };
    if after(status.state, step) != Some(ReplicaState::Finalized) {
        return Err(StoreError::illegal(format!(
            "{block} is {} and cannot be finalized",
            status.state
        )));
    }
    if store.stop.is_cancelled() {
        return Err(StoreError::closed("the store is shut down"));
    }
    Ok(())
}
