//! From one state of a pool's directory to another, as Apache's DataNode does it: upgrade,
//! rollback, and finishing one of these that was interrupted. Everything here blocks.
//!
//! An upgrade sets `current` aside as `previous.tmp`, builds a new `current` of hard links, whose
//! VERSION comes last, and names the old one `previous`. A rollback sets `current` aside as
//! `removed.tmp` and takes `previous` instead. So there is a whole `current` or one way to it at
//! every moment, for the next start of either kind.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::SystemTime;

use hayloft_io::{DataFiles, OpenMode, patiently};
use tracing::info;

use crate::layout::dirs::{DELETING, make_dir};
use crate::layout::names::{
    self, CURRENT, FINALIZED, LAZY_PERSIST, PREVIOUS, PoolPaths, RBW, ReplicaFile, TMP, VERSION,
};
use crate::layout::version::PoolVersion;
use crate::replica::file_pair::sync_dir;

/// The old `current` during an upgrade.
pub const PREVIOUS_TMP: &str = "previous.tmp";
/// The new `current` during a rollback.
pub const REMOVED_TMP: &str = "removed.tmp";
/// The old `previous` during a finalize.
pub const FINALIZED_TMP: &str = "finalized.tmp";
/// How deep replicas lie: `finalized/subdirA/subdirB`.
const DEPTH_MAX: usize = 4;

/// Which of the directories are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// `current` with its VERSION.
    pub current: bool,
    /// `previous`.
    pub previous: bool,
    /// `previous.tmp`.
    pub previous_tmp: bool,
    /// `removed.tmp`.
    pub removed_tmp: bool,
    /// `finalized.tmp`.
    pub finalized_tmp: bool,
}

/// What an earlier process has not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// The new `current` is whole: `previous.tmp` becomes `previous`.
    CompleteUpgrade,
    /// It is not: `previous.tmp` becomes `current` again.
    UndoUpgrade,
    /// `previous` is `current` already: `removed.tmp` goes.
    CompleteRollback,
    /// It is not: `removed.tmp` becomes `current` again.
    UndoRollback,
    /// `finalized.tmp` goes.
    CompleteFinalize,
}

impl Present {
    /// Looks.
    pub fn look(root: &Path) -> io::Result<Self> {
        let there = |name: &str| root.join(name).try_exists();
        Ok(Self {
            current: root.join(CURRENT).join(VERSION).try_exists()?,
            previous: there(PREVIOUS)?,
            previous_tmp: there(PREVIOUS_TMP)?,
            removed_tmp: there(REMOVED_TMP)?,
            finalized_tmp: there(FINALIZED_TMP)?,
        })
    }

    /// What is to be done before anything else; the rules are Apache's (`Storage.analyzeStorage`).
    ///
    /// # Errors
    /// What cannot be, in words.
    pub fn judge(self) -> Result<Option<Unfinished>, &'static str> {
        let unfinished = match (self.previous_tmp, self.removed_tmp, self.finalized_tmp) {
            (false, false, false) if self.previous && !self.current => {
                return Err("previous is there, but VERSION in current is missing");
            }
            (false, false, false) => return Ok(None),
            (true, false, false) if self.previous => {
                return Err("previous and previous.tmp cannot be there together");
            }
            (true, false, false) if self.current => Unfinished::CompleteUpgrade,
            (true, false, false) => Unfinished::UndoUpgrade,
            (false, true, false) if self.current == self.previous => {
                return Err(
                    "removed.tmp is there: exactly one of current and previous must be there too",
                );
            }
            (false, true, false) if self.current => Unfinished::CompleteRollback,
            (false, true, false) => Unfinished::UndoRollback,
            (false, false, true) if self.previous => {
                return Err("previous and finalized.tmp cannot be there together");
            }
            (false, false, true) => Unfinished::CompleteFinalize,
            _ => return Err("there are several of previous.tmp, removed.tmp and finalized.tmp"),
        };
        Ok(Some(unfinished))
    }
}

/// Does what is left to do. What is no longer wanted goes to `tmp`, which loading clears.
pub fn finish(root: &Path, unfinished: Unfinished) -> io::Result<()> {
    info!(pool = %root.display(), ?unfinished, "finishing what an earlier process began");
    let (previous_tmp, removed_tmp) = (root.join(PREVIOUS_TMP), root.join(REMOVED_TMP));
    match unfinished {
        Unfinished::CompleteUpgrade => fs::rename(previous_tmp, root.join(PREVIOUS))?,
        Unfinished::UndoUpgrade => {
            discard(root, CURRENT)?;
            fs::rename(previous_tmp, root.join(CURRENT))?;
        }
        Unfinished::CompleteRollback => discard(root, REMOVED_TMP)?,
        Unfinished::UndoRollback => {
            // Without a VERSION, as `judge` saw.
            discard(root, CURRENT)?;
            fs::rename(removed_tmp, root.join(CURRENT))?;
        }
        Unfinished::CompleteFinalize => discard(root, FINALIZED_TMP)?,
    }
    sync_dir(root)
}

/// Puts a directory into `tmp`, where loading finds and removes it. One that is not there is fine.
fn discard(root: &Path, name: &str) -> io::Result<()> {
    let tmp = root.join(TMP);
    make_dir(&tmp)?;
    let stamp = crate::layout::dirs::now_ms();
    let aside = tmp.join(format!("{DELETING}-{name}-{stamp}"));
    match fs::rename(root.join(name), aside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Takes `previous` for `current`.
pub fn roll_back(root: &Path) -> io::Result<()> {
    info!(pool = %root.display(), "rolling back to previous");
    fs::rename(root.join(CURRENT), root.join(REMOVED_TMP))?;
    fs::rename(root.join(PREVIOUS), root.join(CURRENT))?;
    discard(root, REMOVED_TMP)?;
    sync_dir(root)
}

/// Keeps `current` as `previous` and goes on with links to its replicas under `version`. An older
/// `previous` goes.
pub fn upgrade(data_files: &DataFiles, paths: &PoolPaths, version: &PoolVersion) -> io::Result<()> {
    let root = &paths.root;
    info!(pool = %root.display(), ctime = version.ctime, "upgrading; the state before is kept in \
        previous");
    discard(root, PREVIOUS)?;
    let old = root.join(PREVIOUS_TMP);
    fs::rename(paths.current(), &old)?;
    make_dir(&paths.current())?;
    let mut linked = copy_tree(None, &old.join(FINALIZED), &paths.finalized(), 0)?;
    // The only files of replicas that were in memory, where that is gone.
    linked += copy_tree(None, &old.join(LAZY_PERSIST), &paths.lazy_persist(), 0)?;
    // Replicas in `rbw` are written in place: a link would let that change `previous` too.
    let copied = copy_tree(Some(data_files), &old.join(RBW), &paths.rbw(), 0)?;
    // Once VERSION is there, `current` counts: everything in it must outlive power loss before.
    let current = patiently(|| File::open(paths.current()))?;
    rustix::fs::syncfs(&current)?;
    write_version(paths, version)?;
    fs::rename(&old, root.join(PREVIOUS))?;
    sync_dir(root)?;
    info!(pool = %root.display(), linked, copied, "upgraded");
    Ok(())
}

fn write_version(paths: &PoolPaths, version: &PoolVersion) -> io::Result<()> {
    let scratch = paths.current().join("VERSION.tmp");
    let mut file = patiently(|| File::create(&scratch))?;
    file.write_all(&version.encode(SystemTime::now()))?;
    file.sync_all()?;
    fs::rename(scratch, paths.version())?;
    sync_dir(&paths.current())
}

/// Links the replica files below `from`, or copies them with `copier`; gives their number.
fn copy_tree(copier: Option<&DataFiles>, from: &Path, to: &Path, depth: usize) -> io::Result<u64> {
    make_dir(to)?;
    let entries = match patiently(|| fs::read_dir(from)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other?,
    };
    let mut files = 0;
    for entry in entries {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() && depth < DEPTH_MAX {
            files += copy_tree(copier, &entry.path(), &target, depth + 1)?;
        } else if kind.is_file() && is_replica(&entry.file_name()) {
            match copier {
                None => fs::hard_link(entry.path(), target)?,
                Some(copier) => {
                    copier.copy(&entry.path(), &target)?;
                    copier.open(&target, OpenMode::ReadOnly)?.sync()?;
                }
            }
            files += 1;
        }
    }
    Ok(files)
}

fn is_replica(name: &std::ffi::OsStr) -> bool {
    matches!(
        name.to_str().and_then(names::parse),
        Some(ReplicaFile::Data(_) | ReplicaFile::Meta(..))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_of_a_directory_is_judged_as_apaches_datanode_would() {
        for bits in 0_u8..32 {
            let has = |n: u8| bits & (1 << n) != 0;
            let p = Present {
                current: has(0),
                previous: has(1),
                previous_tmp: has(2),
                removed_tmp: has(3),
                finalized_tmp: has(4),
            };
            let expected = match (p.current, p.previous, bits >> 2) {
                (false, true, 0) => Err(()),
                (_, _, 0) => Ok(None),
                (true, false, 1) => Ok(Some(Unfinished::CompleteUpgrade)),
                (false, false, 1) => Ok(Some(Unfinished::UndoUpgrade)),
                (true, false, 2) => Ok(Some(Unfinished::CompleteRollback)),
                (false, true, 2) => Ok(Some(Unfinished::UndoRollback)),
                (_, false, 4) => Ok(Some(Unfinished::CompleteFinalize)),
                _ => Err(()),
            };
            assert_eq!(p.judge().map_err(|_| ()), expected, "{p:?}");
        }
    }
}
