//! Rolling upgrades and what earlier upgrades left behind.
//!
//! While the NameNode says that a rolling upgrade runs, deleted replicas go to `trash`, which mirrors
//! `current`; a marker file makes a restarted node go on with that before it hears from the NameNode.
//! A start with `-rollback` (or `-rollingupgrade rollback`) takes them back out; the end of the
//! upgrade empties the trash. Layout upgrades themselves are left to Apache's DataNode.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hayloft_io::{IoClass, IoErrorKind, IoOp};
use hayloft_wire::ids::{Block, PoolId};
use tracing::info;

use crate::deletes::{clear_leftovers, directory, remove_later};
use crate::error::{StoreError, StoreErrorKind};
use crate::failures::examine;
use crate::files::on_disk;
use crate::inner::Inner;
use crate::layout::names::{self, CURRENT, PREVIOUS, PoolPaths, ROLLING_UPGRADE_MARKER, TRASH};
use crate::load::make_dir;
use crate::open::FILE_MODE;
use crate::pool::Pool;
use crate::replica::Place;
use crate::types::StartOption;
use crate::volume::Slice;

/// Directories that an interrupted upgrade, rollback or finalize of Apache's leaves.
const INTERRUPTED: [&str; 2] = ["previous.tmp", "removed.tmp"];
/// What is left of a finalized upgrade.
const FINALIZED_TMP: &str = "finalized.tmp";
/// How deep `trash` mirrors `current`: `trash/finalized/subdirA/subdirB`.
const DEPTH_MAX: usize = 4;

/// What a pool's directory says about upgrades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The marker of a rolling upgrade.
    pub marker: bool,
    /// Something in the trash.
    pub trash: bool,
}

/// Prepares a pool's directory before its replicas are looked for.
pub async fn prepare(slice: &Slice, start: StartOption) -> Result<Found, StoreError> {
    let doing = format!(
        "block pool {} on {}",
        slice.pool,
        slice.volume.root.display()
    );
    let paths = slice.paths.clone();
    let outcome = on_disk(
        slice,
        IoClass::ClientWrite,
        IoOp::List,
        &slice.paths.root,
        move || look(&paths, start),
    )
    .await;
    match outcome.map_err(|e| StoreError::io(&doing, e))? {
        Ok(found) => Ok(found),
        Err(text) => Err(StoreError::new(
            StoreErrorKind::Incompatible,
            format!("{doing}: {text}"),
        )),
    }
}

fn look(paths: &PoolPaths, start: StartOption) -> io::Result<Result<Found, String>> {
    if let Some(name) = INTERRUPTED
        .into_iter()
        .find(|name| paths.root.join(name).exists())
    {
        return Ok(Err(format!(
            "{name} is there: an upgrade or rollback was interrupted. Start Apache's DataNode once to finish it"
        )));
    }
    let trash = paths.root.join(TRASH);
    if start != StartOption::Regular {
        if paths.root.join(PREVIOUS).exists() {
            return Ok(Err(format!(
                "{PREVIOUS} is there: rolling a layout upgrade back is left to Apache's DataNode; start that once with -rollback"
            )));
        }
        // What a clean stop saved does not know of these.
        for name in [names::REPLICAS, names::DFS_USED] {
            match fs::remove_file(paths.current().join(name)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        let restored = restore(&trash, &paths.current(), 0)?;
        info!(pool = %paths.root.display(), restored, "restored block files from trash");
    }
    Ok(Ok(Found {
        marker: paths.root.join(ROLLING_UPGRADE_MARKER).exists(),
        trash: trash.exists(),
    }))
}

/// Moves every file below `from` to the same place below `to`, unless there is one already, and removes the
/// directories. Gives the number of files moved.
fn restore(from: &Path, to: &Path, depth: usize) -> io::Result<u64> {
    let entries = match fs::read_dir(from) {
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
        } else if !target.exists() {
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

/// Takes note of what [`prepare`] found on one of the volumes.
pub fn note(pool: &Pool, found: Found) {
    if found.marker {
        pool.rolling_upgrade.store(true, Ordering::Release);
    }
    if found.marker || found.trash {
        pool.upgrade_leftovers.store(true, Ordering::Release);
    }
}

/// See [`Store::set_rolling_upgrade`](crate::Store::set_rolling_upgrade). Called with every
/// heartbeat, so that nothing is done when nothing changed.
pub async fn set_rolling(inner: &Arc<Inner>, id: &PoolId, active: bool) -> Result<(), StoreError> {
    let pool = inner.pool(id)?;
    let was = pool.rolling_upgrade.swap(active, Ordering::AcqRel);
    let leftovers = pool.upgrade_leftovers.load(Ordering::Acquire);
    if was == active && (active || !leftovers) {
        return Ok(());
    }
    info!(pool = %id, active, "rolling upgrade");
    for slice in pool.slices() {
        let outcome = if active {
            mark(&slice).await
        } else {
            unmark(inner, &slice).await
        };
        outcome.map_err(|e| examine(inner, &slice.volume, e))?;
    }
    pool.upgrade_leftovers.store(active, Ordering::Release);
    Ok(())
}

async fn mark(slice: &Slice) -> Result<(), StoreError> {
    let marker = slice.paths.root.join(ROLLING_UPGRADE_MARKER);
    let meta = slice.volume.meta(IoClass::ClientWrite);
    meta.replace(&marker, Vec::new(), FILE_MODE)
        .await
        .map_err(|e| StoreError::io("marking a rolling upgrade", e))
}

async fn unmark(inner: &Arc<Inner>, slice: &Arc<Slice>) -> Result<(), StoreError> {
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
pub async fn finalize(inner: &Arc<Inner>, id: &PoolId) -> Result<(), StoreError> {
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

/// Where a deleted replica goes instead of being deleted; `None` when no rolling upgrade runs.
#[must_use]
pub fn trash_for(pool: &Pool, slice: &Slice, place: Place, id: i64) -> Option<PathBuf> {
    if !pool.rolling_upgrade.load(Ordering::Acquire) || place == Place::Temporary {
        return None;
    }
    let dir = directory(slice, place, id);
    let below = dir.strip_prefix(slice.paths.root.join(CURRENT)).ok()?;
    Some(slice.paths.root.join(TRASH).join(below))
}

/// Moves a replica's files to the trash; gives the bytes they have.
pub async fn to_trash(
    slice: &Slice,
    place: Place,
    block: Block,
    trash: PathBuf,
) -> Result<u64, hayloft_io::IoError> {
    let dir = directory(slice, place, block.id);
    let path = dir.join(names::data_name(block.id));
    on_disk(
        slice,
        IoClass::ClientWrite,
        IoOp::Rename,
        &path,
        move || {
            make_dir(&trash)?;
            let mut bytes = 0;
            for name in [
                names::data_name(block.id),
                names::meta_name(block.id, block.generation_stamp),
            ] {
                let from = dir.join(&name);
                match fs::metadata(&from) {
                    Ok(meta) => bytes += meta.len(),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(e),
                }
                fs::rename(from, trash.join(&name))?;
            }
            Ok(bytes)
        },
    )
    .await
}
