//! What a node remembers of its storages: a small file on each of its volumes, beside `current`.
//!
//! A directory whose disk is not mounted looks like a new one, and would be filled on the disk of
//! its parent. The node's other volumes tell them apart: they have the storage that the directory
//! had, and where its file system was mounted. They also say which host the node was on, which
//! tells its directories from those of a disk of another host. Apache's DataNode passes over the
//! file; without it, or with one that cannot be read, a start is as Apache's.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hayloft_io::{IoClass, IoError, IoErrorKind, IoOp, locks};
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use super::Volume;
use super::open::host_name;
use crate::layout::dirs::{FILE_MODE, now_ms, read_small};
use crate::layout::version::VolumeVersion;

/// Name of the file in the directory of a volume.
const FILE_NAME: &str = ".hayloft-storages";

/// Bytes of the file, at most: some thousands of directories.
const BYTES_MAX: usize = 1 << 20;

/// What the volumes of a node know of each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMemory {
    /// When it was written, milliseconds since 1970. The newest counts.
    at_ms: u64,
    /// Name of the host that the node ran on.
    host: String,
    /// Uuid of the datanode.
    datanode_uuid: String,
    /// The storages of its configured directories.
    storages: Vec<RememberedStorage>,
}

/// A storage in a configured directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RememberedStorage {
    /// The directory, as it is configured.
    directory: String,
    /// `DS-<uuid>`.
    pub storage_id: String,
    /// Where the file system that it lay on was mounted.
    pub mount: PathBuf,
}

impl NodeMemory {
    /// What the volume at `root` remembers; nothing when there is no file of this kind. Blocking.
    #[must_use]
    pub fn read(root: &Path) -> Option<Self> {
        let read = read_small(&root.join(FILE_NAME), BYTES_MAX).and_then(|bytes| match bytes {
            Some(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            None => Ok(None),
        });
        read.unwrap_or_else(|error: io::Error| {
            let volume = root.display();
            debug!(%volume, %error, "what the volume remembers of the others cannot be used");
            None
        })
    }

    /// The storage that was in a configured directory.
    #[must_use]
    pub fn storage(&self, directory: &Path) -> Option<&RememberedStorage> {
        let directory = directory.display().to_string();
        self.storages.iter().find(|s| s.directory == directory)
    }

    /// Whether it says that this storage is in its place: it was on this host, in this directory.
    #[must_use]
    pub fn is_at_home(&self, directory: &Path, version: &VolumeVersion) -> bool {
        let here = self.storage(directory);
        here.is_some_and(|here| here.storage_id == version.storage_id)
            && self.datanode_uuid == version.datanode_uuid
            && self.host == host_name()
    }

    /// The datanode whose directory it says this is: it was on this host, in this directory.
    #[must_use]
    pub fn home_of(&self, directory: &Path) -> Option<&str> {
        let here = self.host == host_name() && self.storage(directory).is_some();
        here.then_some(self.datanode_uuid.as_str())
    }

    /// The newest of several that are of one node.
    pub fn newest<'a>(all: impl Iterator<Item = &'a Self>, datanode_uuid: &str) -> Option<Self> {
        let of_node = all.filter(|memory| memory.datanode_uuid == datanode_uuid);
        of_node.max_by_key(|memory| memory.at_ms).cloned()
    }

    /// The same but for the time.
    fn says_as_much_as(&self, other: &Self) -> bool {
        let at_ms = self.at_ms;
        *self
            == Self {
                at_ms,
                ..other.clone()
            }
    }
}

/// Has all volumes remember those that are in use now.
///
/// What is known of a configured directory whose volume has failed is kept. A directory that left
/// the configuration is forgotten: it may come back as a new one.
pub async fn remember(
    memory: &Mutex<NodeMemory>,
    volumes: &[Arc<Volume>],
    configured: &[PathBuf],
    datanode_uuid: String,
) {
    let mut storages = Vec::new();
    for volume in volumes {
        match mount_of(volume).await {
            Ok(mount) => storages.push(RememberedStorage {
                directory: volume.root.display().to_string(),
                storage_id: volume.info.id.to_string(),
                mount,
            }),
            Err(error) => debug!(%error, "it is not known where a volume is mounted"),
        }
    }
    let memory = {
        let mut memory = locks::lock(memory);
        let kept = configured
            .iter()
            .filter_map(|directory| memory.storage(directory));
        let away = |old: &&RememberedStorage| storages.iter().all(|s| s.directory != old.directory);
        let away: Vec<_> = kept.filter(away).cloned().collect();
        storages.extend(away);
        storages.sort_unstable();
        *memory = NodeMemory {
            at_ms: now_ms(),
            host: host_name(),
            datanode_uuid,
            storages,
        };
        memory.clone()
    };
    let writes = volumes.iter().map(|volume| write(volume, &memory));
    for (volume, outcome) in volumes
        .iter()
        .zip(futures_util::future::join_all(writes).await)
    {
        match outcome {
            Err(error) if error.kind() != IoErrorKind::NoSpace && !volume.is_failed() => {
                warn!(volume = %volume.root.display(), %error, "the volume cannot remember the \
                    others: should one of them not be mounted at a start, the rest may tell");
            }
            _ => {}
        }
    }
}

async fn mount_of(volume: &Volume) -> Result<PathBuf, IoError> {
    let meta = volume.meta(IoClass::ClientRead);
    let mount = meta.mount_of(&volume.root);
    Ok(unless_gone(volume, mount).await?.point)
}

/// Durable afterwards. Nothing is written where the same is there already.
async fn write(volume: &Volume, memory: &NodeMemory) -> Result<(), IoError> {
    let meta = volume.meta(IoClass::ClientWrite);
    let look = meta.run(IoOp::ReadSmall, &volume.root, |root| {
        Ok(NodeMemory::read(root))
    });
    let there = unless_gone(volume, look).await?;
    if there.is_some_and(|there| memory.says_as_much_as(&there)) {
        return Ok(());
    }
    let path = volume.root.join(FILE_NAME);
    let text = serde_json::to_vec_pretty(memory).map_err(|e| {
        let text = e.to_string();
        IoError::new(IoErrorKind::Invalid, IoOp::Replace, &path, text)
    })?;
    unless_gone(volume, meta.replace(&path, text, FILE_MODE)).await
}

/// Waits for a disk until its volume is given up: one that hangs gives no answer.
async fn unless_gone<T>(
    volume: &Volume,
    work: impl Future<Output = Result<T, IoError>>,
) -> Result<T, IoError> {
    tokio::select! {
        biased;
        answer = work => answer,
        () = volume.gone.cancelled() => {
            let text = "its volume was given up";
            Err(IoError::new(IoErrorKind::Closed, IoOp::Other, &volume.root, text))
        }
    }
}
