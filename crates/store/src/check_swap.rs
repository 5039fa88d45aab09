//! Whether Apache's DataNode may start on the directories of a stopped node, and Hayloft's on those
//! that Apache's may still hold. Blocking; changes nothing.

use std::fmt;
use std::path::{Path, PathBuf};

use hayloft_io::RecordLock;

use crate::config::{VolumeConfig, tolerated};
use crate::layout::dirs::{pool_dirs, read_small};
use crate::layout::names::{CURRENT, IN_USE_LOCK, PoolPaths, VERSION};
use crate::layout::version::{PoolVersion, VERSION_BYTES_MAX, VersionError, VolumeVersion};
use crate::service::upgrade::{Unfinished, interrupted};
use crate::service::whose_directories::{Look, remembered, whose};

const FINISH: &str = "start Hayloft and stop it: the start ends it";
const APACHE_FINISHES: &str = "start Apache's DataNode and stop it: the start ends it";
const OF_VOLUME: &str = "an upgrade or rollback of the directory";

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
            settled(volume, OF_VOLUME, FINISH)?;
            for pool in pools(volume)? {
                check_pool(&pool)?;
            }
        }
    }
    Ok(())
}

/// Looks at what the `volumes` say of themselves as a start of Hayloft's node does, which goes on
/// without some of them where `failures` are tolerated (`dfs.datanode.failed.volumes.tolerated`).
///
/// # Errors
/// In words, why it would not start. Of an engine's device and of the NameNode's namespace nothing
/// is known here.
pub fn check_start(volumes: &[PathBuf], failures: i32) -> Result<(), String> {
    let looks: Vec<Look> = volumes
        .iter()
        .map(|volume| Look::now(VolumeConfig::new(volume), volumes, false))
        .collect();
    let node = whose(&looks).map_err(|error| error.to_string())?;
    let mut node = node.unwrap_or_default();
    let memory = remembered(&looks, &node.datanode_uuid).unwrap_or_default();
    let mut why_not = |look: &Look| match look.fits(&memory, &mut node) {
        Ok(()) => servable(&look.config.path).err().map(|why| why.to_string()),
        Err(why) => Some(why.to_string()),
    };
    let failed: Vec<String> = looks.iter().filter_map(&mut why_not).collect();
    let healthy = volumes.len() - failed.len();
    match tolerated(failures, healthy, failed.len()) {
        true => Ok(()),
        false => Err(failed.join("; ")),
    }
}

/// What the look does not tell: why VERSION cannot be read, and what upgrades and pools are like.
fn servable(volume: &Path) -> Result<(), Obstacle> {
    small_file(&volume.join(CURRENT).join(VERSION))?;
    settled(volume, OF_VOLUME, APACHE_FINISHES)?;
    pools(volume)?
        .iter()
        .try_for_each(|pool| servable_pool(pool))
}

/// The start ends what an upgrade of the pool has begun, and mends a VERSION that is cut.
fn servable_pool(root: &Path) -> Result<(), Obstacle> {
    unfinished(root)?;
    let paths = PoolPaths {
        root: root.to_owned(),
    };
    let version = small_file(&paths.version())?.map(|bytes| PoolVersion::parse(&bytes));
    match version {
        Some(Err(error @ VersionError::Layout(_))) => Err(Obstacle::new(
            &paths.version(),
            error.to_string(),
            "where no NameNode has this pool any more, move its directory away",
        )),
        _ => Ok(()),
    }
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

/// The directories of the block pools on a volume.
fn pools(volume: &Path) -> Result<Vec<PathBuf>, Obstacle> {
    pool_dirs(volume).map_err(Obstacle::unreadable(&volume.join(CURRENT)))
}

fn check_pool(root: &Path) -> Result<(), Obstacle> {
    settled(root, "an upgrade or rollback of the block pool", FINISH)?;
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
fn settled(root: &Path, whose: &str, todo: &'static str) -> Result<(), Obstacle> {
    match unfinished(root)? {
        None | Some(Unfinished::CompleteFinalize) => Ok(()),
        Some(_) => Err(Obstacle::new(root, format!("{whose} has not ended"), todo)),
    }
}

/// What an upgrade or rollback that stopped half-way has left to do; no state that none leaves.
fn unfinished(root: &Path) -> Result<Option<Unfinished>, Obstacle> {
    let found = interrupted(root).map_err(Obstacle::unreadable(root))?;
    let todo = "restore the directory from a backup, or move it away";
    found.map_err(|what| Obstacle::new(root, what, todo))
}

/// A file of at most [`VERSION_BYTES_MAX`]; `None` when it is not there.
fn small_file(path: &Path) -> Result<Option<Vec<u8>>, Obstacle> {
    read_small(path, VERSION_BYTES_MAX).map_err(Obstacle::unreadable(path))
}
