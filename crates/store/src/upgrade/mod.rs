//! Rolling upgrades and what earlier upgrades left behind.
//!
//! While the NameNode says that a rolling upgrade runs, deleted replicas go to `trash`, which
//! mirrors `current`. By a marker file a restarted node goes on with that before it hears from the
//! NameNode. A start with `-rollback` (or `-rollingupgrade rollback`) takes them back out; the end
//! of the upgrade empties the trash.
//!
//! When the NameNode was started with `-upgrade`, its cTime is newer than the directories'. They
//! are upgraded as Apache's DataNode does it ([`transition`]): `-rollback` can go back until the
//! upgrade is finalized. Upgrades of the layout itself (older than -57) are left to Apache's
//! DataNode.

mod prepare;
mod transition;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hayloft_io::{IoClass, IoErrorKind, patiently};
use hayloft_wire::ids::PoolId;
use tracing::{info, warn};

pub use prepare::prepare;
pub use transition::Unfinished;
use transition::{FINALIZED_TMP, Present};

use crate::error::StoreError;
use crate::layout::dirs::FILE_MODE;
use crate::layout::dirs::make_dir;
use crate::layout::names::{PREVIOUS, ROLLING_UPGRADE_MARKER, TRASH};
use crate::lifecycle::delete::{clear_leftovers, remove_later};
use crate::lifecycle::volume_failure::examine;
use crate::replica::block_pool::Pool;
use crate::state::StoreState;
use crate::volume::BlockPoolSlice;

/// How deep `trash` mirrors `current`: `trash/finalized/subdirA/subdirB`.
const DEPTH_MAX: usize = 4;

/// What a pool's directory says about upgrades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundUpgrade {
    /// The marker of a rolling upgrade.
    pub marker: bool,
    /// Something in the trash.
    pub trash: bool,
    /// There was no VERSION.
    new: bool,
}

/// What an earlier process has not finished in the directory of a volume or pool; as an inner
/// error what cannot be, in words.
pub fn interrupted(root: &Path) -> io::Result<Result<Option<Unfinished>, &'static str>> {
    Ok(Present::look(root)?.judge())
}

/// Moves every file below `from` to the same place below `to`, unless there is one already, and
/// removes the directories. Gives the number of files moved.
fn restore(from: &Path, to: &Path, depth: usize) -> io::Result<u64> {
    let entries = match patiently(|| fs::read_dir(from)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other?,
    };
    let mut moved = 0;
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if depth < DEPTH_MAX {
                moved += restore(&entry.path(), &target, depth + 1)?;
            }
        } else if !target.try_exists()? {
            make_dir(to)?;
            fs::rename(entry.path(), &target)?;
            moved += 1;
        }
    }
    match fs::remove_dir(from) {
        Err(e) if e.kind() != io::ErrorKind::DirectoryNotEmpty => Err(e),
        _ => Ok(moved),
    }
}

/// Takes note of what [`prepare()`] found on a volume that is in the pool's list by now. A task
/// that changes the state meanwhile sees either the volume or this.
pub fn note(pool: &Pool, found: FoundUpgrade) {
    if found.marker && !pool.rolling_upgrade.swap(true, Ordering::AcqRel) {
        // It may be over, and this volume was out when it ended; or the others have joined without
        // it.
        pool.upgrade_unmarked.store(true, Ordering::Release);
    }
    if found.marker || found.trash {
        pool.upgrade_leftovers.store(true, Ordering::Release);
    }
}

/// See [`Store::rolling_upgrade_is`](crate::Store::rolling_upgrade_is).
#[must_use]
pub fn rolling_is(pool: &Pool, active: bool) -> bool {
    let is = pool.rolling_upgrade.load(Ordering::Acquire) == active;
    is && !unfinished(pool, active).load(Ordering::Acquire)
}

/// Whether a volume is behind with the beginning or the end.
fn unfinished(pool: &Pool, active: bool) -> &AtomicBool {
    match active {
        true => &pool.upgrade_unmarked,
        false => &pool.upgrade_leftovers,
    }
}

/// See [`Store::set_rolling_upgrade`](crate::Store::set_rolling_upgrade). Nothing is done when
/// nothing changed. Every volume is tried; after an error the next call tries all of them again.
pub async fn set_rolling(
    inner: &Arc<StoreState>,
    id: &PoolId,
    active: bool,
) -> Result<(), StoreError> {
    let pool = inner.pool(id)?;
    if rolling_is(&pool, active) {
        return Ok(());
    }
    // Before the volumes are looked up: one that joins later is taken note of after this.
    pool.rolling_upgrade.store(active, Ordering::Release);
    pool.upgrade_unmarked.store(false, Ordering::Release);
    pool.upgrade_leftovers.store(active, Ordering::Release);
    info!(pool = %id, active, "rolling upgrade");
    let mut failed = None;
    for slice in pool.slices() {
        let outcome = if active {
            mark(&slice).await
        } else {
            unmark(inner, &slice).await
        };
        if let Err(error) = outcome {
            let error = examine(inner, &slice.volume, error);
            warn!(pool = %id, volume = %slice.volume.root.display(), active, %error,
                "rolling upgrade: a volume is behind; it is tried again");
            failed = Some(error);
        }
    }
    let Some(error) = failed else {
        return Ok(());
    };
    unfinished(&pool, active).store(true, Ordering::Release);
    Err(error)
}

/// Gives a volume that joined the pool the marker of the rolling upgrade that runs.
pub async fn join_rolling(inner: &Arc<StoreState>, pool: &Pool, slice: &BlockPoolSlice) {
    if !pool.rolling_upgrade.load(Ordering::Acquire) {
        return;
    }
    if let Err(error) = mark(slice).await {
        let error = examine(inner, &slice.volume, error);
        warn!(pool = %pool.id(), volume = %slice.volume.root.display(), %error, "cannot mark the \
            rolling upgrade on a volume");
        pool.upgrade_unmarked.store(true, Ordering::Release);
    }
}

async fn mark(slice: &BlockPoolSlice) -> Result<(), StoreError> {
    let marker = slice.paths.root.join(ROLLING_UPGRADE_MARKER);
    let meta = slice.volume.meta(IoClass::ClientWrite);
    meta.replace(&marker, Vec::new(), FILE_MODE)
        .await
        .map_err(|e| StoreError::io("marking a rolling upgrade", e))
}

async fn unmark(inner: &Arc<StoreState>, slice: &Arc<BlockPoolSlice>) -> Result<(), StoreError> {
    let failed = |e| StoreError::io("ending a rolling upgrade", e);
    let meta = slice.volume.meta(IoClass::ClientWrite);
    match meta
        .unlink(&slice.paths.root.join(ROLLING_UPGRADE_MARKER))
        .await
    {
        Err(e) if e.kind() != IoErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    remove_later(inner, slice, &slice.paths.root.join(TRASH))
        .await
        .map_err(failed)
}

/// See [`Store::finalize_upgrade`](crate::Store::finalize_upgrade).
pub async fn finalize(inner: &Arc<StoreState>, id: &PoolId) -> Result<(), StoreError> {
    let pool = inner.pool(id)?;
    for slice in pool.slices() {
        let aside = slice.paths.root.join(FINALIZED_TMP);
        for path in [
            slice.paths.root.join(PREVIOUS),
            slice.volume.root.join(PREVIOUS),
        ] {
            remove_later(inner, &slice, &path).await.map_err(|e| {
                examine(
                    inner,
                    &slice.volume,
                    StoreError::io("finalizing an upgrade", e),
                )
            })?;
        }
        let meta = slice.volume.meta(IoClass::ClientWrite);
        if matches!(meta.exists(&aside).await, Ok(true)) {
            clear_leftovers(inner, &slice, vec![aside]);
        }
    }
    Ok(())
}
