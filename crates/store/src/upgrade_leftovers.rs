//! What deleted replicas lie in `trash`, and letting some of them go: for an operator, while a node
//! runs on the directory or not. Blocking.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use hayloft_io::{IoError, IoErrorKind, RecordLock};
use hayloft_wire::ids::PoolId;

use crate::layout::dirs::pool_dirs;
use crate::layout::names::{
    self, IN_USE_LOCK, PREVIOUS, ROLLING_UPGRADE_MARKER, ReplicaFile, TRASH,
};
use crate::service::upgrade::DEPTH_MAX;

/// A deleted replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrashedReplica {
    /// Data and meta file, or one of them.
    pub files: Vec<PathBuf>,
    /// Bytes of these.
    pub bytes: u64,
}

/// What upgrades left of a pool on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeLeftovers {
    /// The pool.
    pub pool: PoolId,
    /// Its directory on the volume.
    pub root: PathBuf,
    /// The marker of a rolling upgrade is there.
    pub marker: bool,
    /// The replicas in `trash`, by block.
    pub trash: BTreeMap<i64, TrashedReplica>,
    /// There are more than were asked for.
    pub more: bool,
    /// `previous` is there.
    pub previous: bool,
    /// Bytes that only `previous` has: it shares other files with `current`.
    pub previous_bytes: u64,
}

/// Looks at the pools of a volume; takes note of at most `most` replicas of each.
///
/// # Errors
/// A directory cannot be read.
pub fn upgrade_leftovers(volume: &Path, most: usize) -> io::Result<Vec<UpgradeLeftovers>> {
    let mut pools = Vec::new();
    for dir in pool_dirs(volume)? {
        let name = dir.file_name().and_then(|name| name.to_str());
        if let Some(pool) = name.and_then(|name| PoolId::new(name).ok())
            && fs::symlink_metadata(&dir)?.is_dir()
        {
            pools.push(left_of(pool, dir, most)?);
        }
    }
    Ok(pools)
}

fn left_of(pool: PoolId, root: PathBuf, most: usize) -> io::Result<UpgradeLeftovers> {
    let mut left = UpgradeLeftovers {
        pool,
        marker: root.join(ROLLING_UPGRADE_MARKER).try_exists()?,
        trash: BTreeMap::new(),
        more: false,
        previous: root.join(PREVIOUS).try_exists()?,
        previous_bytes: 0,
        root,
    };
    walk(&left.root.join(TRASH), 0, &mut |path, meta| {
        let name = path.file_name().and_then(|name| name.to_str());
        let id = match name.and_then(names::parse) {
            Some(ReplicaFile::Data(id) | ReplicaFile::Meta(id, _)) => id,
            _ => return,
        };
        if left.trash.len() >= most && !left.trash.contains_key(&id) {
            left.more = true;
            return;
        }
        let replica = left.trash.entry(id).or_default();
        replica.files.push(path.to_owned());
        replica.bytes = replica.bytes.saturating_add(meta.len());
    })?;
    let mut bytes = 0_u64;
    walk(&left.root.join(PREVIOUS), 0, &mut |_, meta| {
        if meta.nlink() == 1 {
            bytes = bytes.saturating_add(meta.len());
        }
    })?;
    left.previous_bytes = bytes;
    Ok(left)
}

/// Every file below a directory that may not be there.
fn walk(dir: &Path, depth: usize, each: &mut impl FnMut(&Path, &fs::Metadata)) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
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
            if depth < DEPTH_MAX {
                walk(&entry.path(), depth + 1, each)?;
            }
        } else if meta.is_file() {
            each(&entry.path(), &meta);
        }
    }
    Ok(())
}

/// The lock of a volume, so that no node starts on it; `None` when one runs on it.
///
/// # Errors
/// The lock's file cannot be opened or written.
pub fn hold_volume(volume: &Path) -> Result<Option<RecordLock>, IoError> {
    let note = format!("{}@hayloft-trash", std::process::id());
    match RecordLock::acquire(&volume.join(IN_USE_LOCK), note.as_bytes()) {
        Err(e) if e.kind() == IoErrorKind::Locked => Ok(None),
        other => other.map(Some),
    }
}

impl UpgradeLeftovers {
    /// Removes the files of these blocks that were found in the trash, and directories that are
    /// empty then. A running node has put nothing of the same name there since: the block was
    /// deleted before. Gives the bytes that are free now.
    ///
    /// # Errors
    /// The first file that cannot be removed; the rest stays.
    pub fn let_go(&self, blocks: &HashSet<i64>) -> io::Result<u64> {
        let mut bytes = 0_u64;
        for replica in blocks.iter().filter_map(|id| self.trash.get(id)) {
            for file in &replica.files {
                match fs::remove_file(file) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            }
            bytes = bytes.saturating_add(replica.bytes);
        }
        remove_empty(&self.root.join(TRASH), 0)?;
        Ok(bytes)
    }
}

/// Removes directories that hold nothing but such directories.
fn remove_empty(dir: &Path, depth: usize) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if depth < DEPTH_MAX && entry.file_type()?.is_dir() {
            remove_empty(&entry.path(), depth + 1)?;
        }
    }
    match fs::remove_dir(dir) {
        Err(e)
            if !matches!(
                e.kind(),
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound
            ) =>
        {
            Err(e)
        }
        _ => Ok(()),
    }
}
