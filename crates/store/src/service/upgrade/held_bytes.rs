//! What `trash` and `previous` hold on the volumes. No count of replicas has it, so it is looked at
//! now and then, and told.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hayloft_io::{IoClass, IoOp};
use hayloft_wire::ids::PoolId;
use tracing::debug;

use super::DEPTH_MAX;
use crate::layout::names::{PREVIOUS, TRASH};
use crate::replica::file_pair::on_disk;
use crate::state::StoreState;
use crate::volume::BlockPoolSlice;

/// How often a directory is looked at: as often as Apache's DataNode counts what it uses.
const EVERY: Duration = Duration::from_secs(600);

/// What `trash` and `previous` of a pool hold on a volume, as far as is known: deletes are counted
/// at once, the directories every ten minutes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldByUpgrades {
    /// The volume's directory.
    pub volume: PathBuf,
    /// The pool.
    pub pool: PoolId,
    /// Bytes in `trash`.
    pub trash: u64,
    /// Bytes that only `previous` has: it shares other files with `current`.
    pub previous: u64,
    /// The active NameNode says that a rolling upgrade runs.
    pub runs: bool,
}

/// One directory: what is below it, its files' bytes, and those of files with no other name.
#[derive(Debug, Default)]
struct Listed {
    dirs: Vec<PathBuf>,
    all: u64,
    alone: u64,
}

/// Has the part of a pool looked at until its volume leaves, the first time at once.
pub fn watch(store: &Arc<StoreState>, slice: &Arc<BlockPoolSlice>) {
    let (stop, slice) = (store.stop.clone(), Arc::clone(slice));
    store.serve("sizes of trash", move || {
        let (stop, slice) = (stop.clone(), Arc::clone(&slice));
        async move {
            let looks = async {
                while slice.volume.slices_have(&slice) {
                    look(&slice).await;
                    tokio::time::sleep(EVERY).await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = slice.volume.gone.cancelled() => {}
                () = looks => {}
            }
        }
    });
}

/// Counts both anew. A directory that cannot be read leaves the count as it was.
pub async fn look(slice: &BlockPoolSlice) {
    let held = &slice.held;
    for (name, count) in [(TRASH, &held.trash), (PREVIOUS, &held.previous)] {
        match bytes_below(slice, &slice.paths.root.join(name)).await {
            Ok((all, alone)) => count.set(if name == TRASH { all } else { alone }),
            Err(error) => debug!(pool = %slice.paths.root.display(), name, %error, "not counted"),
        }
    }
}

/// Bytes below a directory, and those of files that have no other name. One directory at a time:
/// the disk has other work in between.
async fn bytes_below(
    slice: &BlockPoolSlice,
    root: &Path,
) -> Result<(u64, u64), hayloft_io::IoError> {
    let (mut all, mut alone) = (0_u64, 0_u64);
    let mut left = vec![(root.to_owned(), 0)];
    while let Some((dir, depth)) = left.pop() {
        let path = dir.clone();
        let listed = on_disk(slice, IoClass::Scan, IoOp::List, &path, move || list(&dir)).await?;
        all = all.saturating_add(listed.all);
        alone = alone.saturating_add(listed.alone);
        if depth < DEPTH_MAX {
            left.extend(listed.dirs.into_iter().map(|dir| (dir, depth + 1)));
        }
    }
    Ok((all, alone))
}

fn list(dir: &Path) -> io::Result<Listed> {
    let mut listed = Listed::default();
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(listed),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        let meta = match entry.metadata() {
            // Deleted meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        if meta.is_dir() {
            listed.dirs.push(entry.path());
        } else if meta.is_file() {
            listed.all = listed.all.saturating_add(meta.len());
            if meta.nlink() == 1 {
                listed.alone = listed.alone.saturating_add(meta.len());
            }
        }
    }
    Ok(listed)
}

/// See [`Store::held_by_upgrades`](crate::Store::held_by_upgrades).
#[must_use]
pub fn told(store: &StoreState) -> Vec<HeldByUpgrades> {
    let mut all = Vec::new();
    for pool in store.pools() {
        let runs = pool.rolling.is_on();
        all.extend(pool.slices().iter().map(|slice| HeldByUpgrades {
            volume: slice.volume.root.clone(),
            pool: pool.id().clone(),
            trash: slice.held.trash.get(),
            previous: slice.held.previous.get(),
            runs,
        }));
    }
    all.sort_by(|a, b| (&a.volume, &a.pool).cmp(&(&b.volume, &b.pool)));
    all
}
