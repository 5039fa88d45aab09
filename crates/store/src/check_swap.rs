//! Whether Apache's DataNode may start on the directories of a stopped node. Blocking; changes
//! nothing.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hayloft_io::RecordLock;

use crate::layout::dirs::read_small;
use crate::layout::names::{CURRENT, IN_USE_LOCK, PoolPaths, VERSION};
use crate::layout::version::{PoolVersion, VERSION_BYTES_MAX, VolumeVersion};
use crate::service::upgrade::{Unfinished, interrupted};

const FINISH: &str = "start Hayloft and stop it: the start ends it";

/// Why Apache's DataNode may not start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The directory or file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
    /// What the operator does about it.
    pub todo: &'static str,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.path.display(), self.what, self.todo)
    }
}

impl Obstacle {
    fn new(path: &Path, what: impl Into<String>, todo: &'static str) -> Self {
        Self {
            path: path.to_owned(),
            what: what.into(),
            todo,
        }
    }

    fn unreadable<E: fmt::Display>(path: &Path) -> impl FnOnce(E) -> Self {
        move |e| {
            Self::new(
                path,
                format!("cannot be read: {e}"),
                "ask again as the user that runs the node",
            )
        }
    }
}

/// Looks at the `volumes`.
///
/// # Errors
/// The first obstacle. A directory that is not there is none: no node has used it.
pub fn check_swap(volumes: &[PathBuf]) -> Result<(), Obstacle> {
    for volume in volumes {
        let present = volume.try_exists().map_err(Obstacle::unreadable(volume))?;
        if present {
            free(volume)?;
            version(volume)?;
            settled(volume, "an upgrade or rollback of the directory")?;
            for pool in pools(volume)? {
                check_pool(&pool)?;
            }
        }
    }
    Ok(())
}

/// No DataNode runs on the directory.
fn free(volume: &Path) -> Result<(), Obstacle> {
    let lock = volume.join(IN_USE_LOCK);
    match RecordLock::holder(&lock) {
        Ok(None) => Ok(()),
        Ok(Some(who)) => Err(Obstacle::new(
            volume,
            format!("in use by {who}"),
            "stop that node first",
        )),
        Err(e) => Err(Obstacle::unreadable(&lock)(e)),
    }
}

/// The identity of a volume; `None` when no node has formatted it.
fn version(volume: &Path) -> Result<Option<VolumeVersion>, Obstacle> {
    let path = volume.join(CURRENT).join(VERSION);
    let Some(bytes) = small_file(&path)? else {
        return Ok(None);
    };
    match VolumeVersion::parse(&bytes) {
        Ok(version) if version.stubs => Err(Obstacle::new(
            volume,
            "its blocks are on the device of an engine",
            "decommission the node instead: Apache's DataNode cannot read them",
        )),
        Ok(version) => Ok(Some(version)),
        Err(e) => Err(Obstacle::new(&path, e.to_string(), "repair the file")),
    }
}

/// Names of the block pools on a volume, with their directories.
fn pools(volume: &Path) -> Result<Vec<PathBuf>, Obstacle> {
    let current = volume.join(CURRENT);
    let mut found = Vec::new();
    for entry in entries(&current)? {
        let entry = entry.map_err(Obstacle::unreadable(&current))?;
        if entry.file_name().as_encoded_bytes().starts_with(b"BP-") {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn check_pool(root: &Path) -> Result<(), Obstacle> {
    settled(root, "an upgrade or rollback of the block pool")?;
    let paths = PoolPaths {
        root: root.to_owned(),
    };
    if let Some(bytes) = small_file(&paths.version())? {
        PoolVersion::parse(&bytes)
            .map_err(|e| Obstacle::new(&paths.version(), e.to_string(), "repair the file"))?;
    }
    Ok(())
}

/// No upgrade and no rollback stopped half-way. A finalize that did is none: it removes a
/// directory that no DataNode looks into.
fn settled(root: &Path, whose: &str) -> Result<(), Obstacle> {
    match interrupted(root).map_err(Obstacle::unreadable(root))? {
        Ok(None | Some(Unfinished::CompleteFinalize)) => Ok(()),
        Ok(Some(_)) => Err(Obstacle::new(
            root,
            format!("{whose} has not ended"),
            FINISH,
        )),
        Err(what) => Err(Obstacle::new(
            root,
            what,
            "restore the directory from a backup, or move it away",
        )),
    }
}

/// The entries of a directory; none when it is not there.
fn entries(dir: &Path) -> Result<impl Iterator<Item = io::Result<fs::DirEntry>>, Obstacle> {
    match fs::read_dir(dir) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None.into_iter().flatten()),
        Err(e) => Err(Obstacle::unreadable(dir)(e)),
    }
}

/// A file of at most [`VERSION_BYTES_MAX`]; `None` when it is not there.
fn small_file(path: &Path) -> Result<Option<Vec<u8>>, Obstacle> {
    read_small(path, VERSION_BYTES_MAX).map_err(Obstacle::unreadable(path))
}
