//! The mode of a rolling upgrade: on while the active NameNode says so in this process's life.
//!
//! The marker file turns nothing on: it is for Apache's DataNode, and goes with the mode. A
//! NameNode says how it stands in each answer that may order deletes, so a process that has not
//! heard of it yet has nothing to delete.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hayloft_io::{IoClass, IoErrorKind};
use hayloft_wire::ids::PoolId;
use tracing::{info, warn};

use super::FoundUpgrade;
use crate::error::StoreError;
use crate::layout::dirs::FILE_MODE;
use crate::layout::names::{PREVIOUS, ROLLING_UPGRADE_MARKER, TRASH};
use crate::replica::block_pool::Pool;
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::transitions::delete::remove_later;
use crate::volume::BlockPoolSlice;

/// What the active NameNode of a pool says of a rolling upgrade with each heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RollingUpgradeState {
    /// One runs: the replicas that it orders to delete go to `trash`.
    InProgress,
    /// One was finalized: its trash goes, for no way leads back any more.
    Finalized,
    /// It says nothing of one: none runs. One that ran may have been rolled back; trash stays.
    #[default]
    Absent,
}

/// Takes note of what [`prepare()`](super::prepare()) found on a volume that is in the
/// pool's list by now. A task that changes the mode meanwhile sees either the volume or this.
pub fn note(pool: &Pool, slice: &BlockPoolSlice, found: FoundUpgrade) {
    let mode = &pool.rolling;
    if mode.is_on() {
        mode.storages().insert(Arc::clone(&slice.volume.info.id));
    } else if found.marker {
        mode.marked.store(true, Ordering::Release);
    }
}

/// See [`Store::rolling_upgrade_is`](crate::Store::rolling_upgrade_is).
#[must_use]
pub fn rolling_is(pool: &Pool, state: RollingUpgradeState) -> bool {
    let mode = &pool.rolling;
    let behind = match state {
        RollingUpgradeState::InProgress => &mode.unmarked,
        RollingUpgradeState::Finalized | RollingUpgradeState::Absent => &mode.marked,
    };
    if mode.is_on() != (state == RollingUpgradeState::InProgress) || behind.load(Ordering::Acquire)
    {
        return false;
    }
    match state {
        RollingUpgradeState::InProgress => true,
        RollingUpgradeState::Finalized => !pool.slices().iter().any(|slice| mode.has(slice)),
        RollingUpgradeState::Absent => mode.storages().is_empty(),
    }
}

/// See [`Store::set_rolling_upgrade`](crate::Store::set_rolling_upgrade). Nothing is done when
/// nothing changed. Every volume is tried; after an error the next call tries all of them again.
pub async fn set_rolling(
    store: Arc<StoreState>,
    id: PoolId,
    state: RollingUpgradeState,
) -> Result<(), StoreError> {
    let pool = store.pool(&id)?;
    if rolling_is(&pool, state) {
        return Ok(());
    }
    let mode = &pool.rolling;
    let begins = state == RollingUpgradeState::InProgress;
    // Before the volumes are looked up: one that joins later is taken note of after this.
    mode.on.store(begins, Ordering::Release);
    mode.unmarked.store(false, Ordering::Release);
    mode.marked.store(begins, Ordering::Release);
    if state == RollingUpgradeState::Absent {
        // It may have been rolled back: no NameNode has said that the trash may go.
        mode.storages().clear();
    }
    info!(pool = %id, ?state, "rolling upgrade");
    let mut failed = None;
    for slice in pool.slices() {
        let outcome = match state {
            RollingUpgradeState::InProgress => {
                mode.storages().insert(Arc::clone(&slice.volume.info.id));
                mark(&slice).await
            }
            RollingUpgradeState::Finalized => finalize(&store, &pool, &slice).await,
            RollingUpgradeState::Absent => unmark(&slice).await,
        };
        if let Err(error) = outcome {
            let error = examine(&store, &slice.volume, error);
            warn!(pool = %id, volume = %slice.volume.root.display(), ?state, %error,
                "rolling upgrade: a volume is behind; it is tried again");
            failed = Some(error);
        }
    }
    let Some(error) = failed else {
        return Ok(());
    };
    let behind = if begins { &mode.unmarked } else { &mode.marked };
    behind.store(true, Ordering::Release);
    Err(error)
}

/// Gives a volume that joined the pool the marker of the rolling upgrade that runs.
pub async fn join_rolling(store: &Arc<StoreState>, pool: &Pool, slice: &BlockPoolSlice) {
    if !pool.rolling.is_on() {
        return;
    }
    if let Err(error) = mark(slice).await {
        let error = examine(store, &slice.volume, error);
        warn!(pool = %pool.id(), volume = %slice.volume.root.display(), %error, "cannot mark the \
            rolling upgrade on a volume");
        pool.rolling.unmarked.store(true, Ordering::Release);
    }
}

async fn mark(slice: &BlockPoolSlice) -> Result<(), StoreError> {
    let marker = slice.paths.root.join(ROLLING_UPGRADE_MARKER);
    let meta = slice.volume.meta(IoClass::ClientWrite);
    meta.replace(&marker, Vec::new(), FILE_MODE)
        .await
        .map_err(|e| StoreError::io("marking a rolling upgrade", e))
}

async fn unmark(slice: &BlockPoolSlice) -> Result<(), StoreError> {
    let marker = slice.paths.root.join(ROLLING_UPGRADE_MARKER);
    match slice
        .volume
        .meta(IoClass::ClientWrite)
        .unlink(&marker)
        .await
    {
        Err(e) if e.kind() != IoErrorKind::NotFound => {
            Err(StoreError::io("ending a rolling upgrade", e))
        }
        _ => Ok(()),
    }
}

/// Ends a finalized upgrade on a volume; the marker goes last. As Apache's DataNode does it,
/// `previous` goes where the marker is, and trash that was there before this process heard of the
/// upgrade stays: the NameNode may have been rolled back to what it holds.
async fn finalize(
    store: &Arc<StoreState>,
    pool: &Pool,
    slice: &Arc<BlockPoolSlice>,
) -> Result<(), StoreError> {
    let failed = |e| StoreError::io("finalizing a rolling upgrade", e);
    let root = &slice.paths.root;
    let meta = slice.volume.meta(IoClass::ClientWrite);
    let marker = root.join(ROLLING_UPGRADE_MARKER);
    if meta.exists(&marker).await.map_err(failed)? {
        let previous = remove_later(store, slice, &root.join(PREVIOUS)).await;
        previous.map_err(failed)?;
        slice.held.previous.set(0);
    }
    if pool.rolling.has(slice) {
        let trash = remove_later(store, slice, &root.join(TRASH)).await;
        trash.map_err(failed)?;
        slice.held.trash.set(0);
        pool.rolling.storages().remove(&slice.volume.info.id);
    }
    unmark(slice).await
}
