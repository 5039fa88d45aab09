//! Rolling upgrades and what earlier upgrades left behind.
//!
//! - `held_bytes`: what `trash` and `previous` hold on the volumes
//! - `prepare_directory`: what is done to a pool's directory on a volume before its replicas are
//!   looked for
//! - `rolling`: the mode of a rolling upgrade
//! - `upgrade_or_roll_back`: from one state of a pool's directory to another, as Apache's DataNode
//!   does it
//!
//! While the NameNode says that a rolling upgrade runs, deleted replicas go to `trash`, which
//! mirrors `current` ([`rolling`]). A start with `-rollback` (or `-rollingupgrade rollback`) takes
//! them back out; the end of the upgrade empties the trash.
//!
//! When the NameNode was started with `-upgrade`, its cTime is newer than the directories'. They
//! are upgraded as Apache's DataNode does it ([`upgrade_or_roll_back`]): `-rollback` can go back
//! until the upgrade is finalized. Upgrades of the layout itself (older than -57) are left to
//! Apache's DataNode.

mod held_bytes;
mod prepare_directory;
mod rolling;
mod upgrade_or_roll_back;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use hayloft_io::{IoClass, patiently};
use hayloft_wire::ids::PoolId;
use tracing::warn;

pub use held_bytes::{HeldByUpgrades, told as held, watch};
pub use prepare_directory::prepare;
pub use rolling::{RollingUpgradeState, join_rolling, note, rolling_is, set_rolling};
pub use upgrade_or_roll_back::Unfinished;
use upgrade_or_roll_back::{FINALIZED_TMP, Present};

use crate::error::StoreError;
use crate::layout::dirs::make_dir;
use crate::layout::names::PREVIOUS;
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::transitions::delete::{clear_leftovers, remove_later};
use crate::volume::BlockPoolSlice;

/// How deep `trash` mirrors `current`: `trash/finalized/subdirA/subdirB`.
pub const DEPTH_MAX: usize = 4;

/// What a pool's directory says about upgrades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundUpgrade {
    /// The marker of a rolling upgrade.
    pub marker: bool,
    /// There was no VERSION.
    new: bool,
}

impl FoundUpgrade {
    /// The pool has never been there.
    #[must_use]
    pub fn is_new(self) -> bool {
        self.new
    }
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

/// See [`Store::finalize_upgrade`](crate::Store::finalize_upgrade). Every volume is tried; the
/// NameNode orders it again after each full block report.
pub async fn finalize(store: Arc<StoreState>, id: PoolId) -> Result<(), StoreError> {
    let pool = store.pool(&id)?;
    let mut failed = None;
    for slice in pool.slices() {
        if let Err(error) = finalize_on(&store, &slice).await {
            let error = StoreError::io("finalizing an upgrade", error);
            let error = examine(&store, &slice.volume, error);
            warn!(pool = %id, volume = %slice.volume.root.display(), %error,
                "an upgrade is not finalized on a volume; the next order tries again");
            failed = Some(error);
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn finalize_on(
    store: &Arc<StoreState>,
    slice: &Arc<BlockPoolSlice>,
) -> Result<(), hayloft_io::IoError> {
    for root in [&slice.paths.root, &slice.volume.root] {
        remove_later(store, slice, &root.join(PREVIOUS)).await?;
    }
    slice.held.previous.set(0);
    let aside = slice.paths.root.join(FINALIZED_TMP);
    let meta = slice.volume.meta(IoClass::ClientWrite);
    if matches!(meta.exists(&aside).await, Ok(true)) {
        clear_leftovers(store, slice, vec![aside]);
    }
    Ok(())
}
