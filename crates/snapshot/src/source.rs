//! Where replicas are read: the directories of a node, whether it runs or not, or a running node's
//! store, which has a source of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hayloft_io::patiently;
use hayloft_store::offline::{
    PoolVersion, ReplicaOnDisk, VolumeOnDisk, finalized_on, volume_on_disk,
};
use hayloft_wire::checksum::META_HEADER_LEN;
use hayloft_wire::ids::{Block, PoolId, StorageType};

use crate::error::SnapshotError;
use crate::replica_check::meta_len;

/// Reading a replica ends in what it asks for, or in why it is left out.
pub type Reading<'a, T> = BoxFuture<'a, Result<T, ReadFailure>>;

/// Why a replica is left out of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFailure {
    /// It was deleted, or is written again: the next snapshot has what it is then.
    Changed,
    /// Its files are not what they should be, or cannot be read.
    Damaged(String),
}

/// A closed replica of a node.
#[derive(Clone, Debug)]
pub struct LocalReplica {
    /// Its block pool.
    pub pool: PoolId,
    /// Id, generation stamp, length.
    pub block: Block,
    /// Place of its storage in the list.
    pub storage: usize,
    /// It is pinned to its node.
    pub pinned: bool,
    /// When it was last changed, in milliseconds since 1970; 0 where that is not known.
    pub changed_ms: u64,
    /// The directory of its files, where that is not the usual one.
    pub elsewhere: Option<PathBuf>,
}

/// The closed replicas of a node.
#[derive(Clone, Debug, Default)]
pub struct NodeReplicas {
    /// Its uuid.
    pub datanode_uuid: String,
    /// Its cluster.
    pub cluster_id: String,
    /// Its block pools.
    pub pools: Vec<PoolVersion>,
    /// Its storages: id and type.
    pub storages: Vec<(String, StorageType)>,
    /// The replicas. Those on RAM disks are left out.
    pub replicas: Vec<LocalReplica>,
    /// What could not be looked at, in words.
    pub problems: Vec<String>,
}

/// A replica that is being read.
pub trait ReplicaBytes: Send {
    /// Its meta file, header included; what is behind the last checksum may be missing.
    fn meta(&mut self) -> Reading<'_, Bytes>;
    /// So many bytes of the data that follow what was read before.
    fn data(&mut self, len: usize) -> Reading<'_, Bytes>;
}

/// The closed replicas of a node, to be read.
pub trait Replicas: Send + Sync {
    /// What there is now.
    fn list(&self) -> BoxFuture<'_, Result<NodeReplicas, SnapshotError>>;
    /// Opens one.
    fn open<'a>(&'a self, replica: &'a LocalReplica) -> Reading<'a, Box<dyn ReplicaBytes>>;
}

/// The volumes of one node, read without it. A running node goes on meanwhile: what it changes is
/// left out.
#[derive(Clone, Debug)]
pub struct DirectorySource {
    volumes: Vec<(VolumeOnDisk, StorageType)>,
    /// Directories that may be of this node, and have nothing or cannot be read now, in words.
    unknown: Vec<String>,
}

/// The nodes whose volumes the directories are, by their uuids. A directory that no node has used
/// is a problem of the first: its disk may not be mounted. So is one that cannot be read, where
/// others can: their replicas are wanted most then. Blocking.
///
/// # Errors
/// The directories are of two clusters, or none of them can be used.
pub fn nodes_on(dirs: &[(PathBuf, StorageType)]) -> Result<Vec<DirectorySource>, SnapshotError> {
    let mut nodes: BTreeMap<String, DirectorySource> = BTreeMap::new();
    let (mut unknown, mut first_error) = (Vec::new(), None);
    for (dir, storage_type) in dirs {
        let volume = match volume_on_disk(dir) {
            Ok(Some(volume)) => volume,
            Ok(None) => {
                let dir = dir.display();
                unknown.push(format!(
                    "{dir}: no node has used it, or its disk is not mounted: nothing of it is here"
                ));
                continue;
            }
            Err(error) => {
                let error = SnapshotError::of_file("read", dir.display(), &error);
                unknown.push(format!("{error}: nothing of it is here"));
                first_error.get_or_insert(error);
                continue;
            }
        };
        let uuid = volume.version.datanode_uuid.clone();
        let node = nodes.entry(uuid).or_insert_with(|| DirectorySource {
            volumes: Vec::new(),
            unknown: Vec::new(),
        });
        if let Some((first, _)) = node.volumes.first() {
            let (one, other) = (&first.version.cluster_id, &volume.version.cluster_id);
            if one != other {
                return Err(SnapshotError::finding(
                    format!("the volumes of a node are of two clusters, {one} and {other}"),
                    dir.display().to_string(),
                    "take the directory that is not the node's out of dfs.datanode.data.dir",
                ));
            }
        }
        node.volumes.push((volume, *storage_type));
    }
    let mut nodes: Vec<DirectorySource> = nodes.into_values().collect();
    match (nodes.first_mut(), first_error) {
        (None, Some(error)) => return Err(error),
        (None, None) => {}
        (Some(first), _) => first.unknown = unknown,
    }
    Ok(nodes)
}

/// The one of the nodes that has a uuid; none of none.
///
/// # Errors
/// There are others alone.
pub fn only(
    mut nodes: Vec<DirectorySource>,
    uuid: &str,
) -> Result<Vec<DirectorySource>, SnapshotError> {
    let there: Vec<String> = nodes.iter().map(|n| n.datanode_uuid().to_owned()).collect();
    nodes.retain(|node| node.datanode_uuid() == uuid);
    if nodes.is_empty() && !there.is_empty() {
        let advice = format!("name one that is there by --node: {}", there.join(", "));
        let what = "the data directories are of other nodes";
        return Err(SnapshotError::finding(what, uuid, advice));
    }
    Ok(nodes)
}

impl DirectorySource {
    /// Uuid of the node.
    #[must_use]
    pub fn datanode_uuid(&self) -> &str {
        let first = self.volumes.first();
        first.map_or("", |(volume, _)| &volume.version.datanode_uuid)
    }

    fn look(&self) -> Result<NodeReplicas, SnapshotError> {
        let mut all = NodeReplicas {
            datanode_uuid: self.datanode_uuid().to_owned(),
            ..NodeReplicas::default()
        };
        all.problems.extend(self.unknown.iter().cloned());
        let (mut read, mut first_error) = (false, None);
        for (storage, (volume, storage_type)) in self.volumes.iter().enumerate() {
            let version = &volume.version;
            all.cluster_id.clone_from(&version.cluster_id);
            all.storages
                .push((version.storage_id.clone(), *storage_type));
            if version.stubs {
                let place = volume.root.display();
                all.problems.push(format!(
                    "{place}: its blocks are on a device and not in files: they are left out"
                ));
                continue;
            }
            for pool in &volume.pools {
                if !all.pools.iter().any(|known| known.pool == pool.pool) {
                    all.pools.push(pool.clone());
                }
                if storage_type.is_transient() {
                    continue;
                }
                match self.look_at(volume, storage, &pool.pool, &mut all) {
                    Ok(()) => read = true,
                    Err(error) => {
                        all.problems.push(format!("{error}: nothing of it is here"));
                        first_error.get_or_insert(error);
                    }
                }
            }
        }
        if let Some(error) = first_error.filter(|_| !read) {
            return Err(error);
        }
        keep_newest(&mut all.replicas);
        Ok(all)
    }

    fn look_at(
        &self,
        volume: &VolumeOnDisk,
        storage: usize,
        pool: &PoolId,
        all: &mut NodeReplicas,
    ) -> Result<(), SnapshotError> {
        let found = finalized_on(&volume.root, pool);
        let failed = |e| SnapshotError::of_file("read", volume.root.display(), &e);
        let found = found.map_err(failed)?;
        let home = |block| ReplicaOnDisk::home(&volume.root, pool, block);
        all.replicas
            .extend(found.whole.into_iter().map(|found| LocalReplica {
                pool: pool.clone(),
                elsewhere: Some(found.dir).filter(|dir| *dir != home(found.block)),
                block: found.block,
                storage,
                pinned: found.pinned,
                changed_ms: found.changed_ms,
            }));
        let problem = |file: PathBuf, lacks: &str| {
            format!("{}: it has no {lacks} file: it is left out", file.display())
        };
        let without_meta = found.without_meta.iter();
        let without_meta = without_meta.map(|alone| problem(alone.data(), "meta"));
        let without_data = found.without_data.iter();
        let without_data = without_data.map(|alone| problem(alone.meta(), "data"));
        all.problems.extend(without_meta.chain(without_data));
        Ok(())
    }

    fn files(&self, replica: &LocalReplica) -> Option<ReplicaOnDisk> {
        let (volume, _) = self.volumes.get(replica.storage)?;
        let home = || ReplicaOnDisk::home(&volume.root, &replica.pool, replica.block);
        Some(ReplicaOnDisk {
            block: replica.block,
            pinned: replica.pinned,
            changed_ms: replica.changed_ms,
            dir: replica.elsewhere.clone().unwrap_or_else(home),
        })
    }
}

/// A block that lies on two volumes, as after a move that was cut off, counts once.
fn keep_newest(replicas: &mut Vec<LocalReplica>) {
    replicas.sort_by(|a, b| {
        let block = a.pool.cmp(&b.pool).then(a.block.id.cmp(&b.block.id));
        block.then(b.block.generation_stamp.cmp(&a.block.generation_stamp))
    });
    replicas.dedup_by(|a, b| (&a.pool, a.block.id) == (&b.pool, b.block.id));
}

impl Replicas for DirectorySource {
    fn list(&self) -> BoxFuture<'_, Result<NodeReplicas, SnapshotError>> {
        let this = self.clone();
        Box::pin(async move {
            let look = tokio::task::spawn_blocking(move || this.look()).await;
            look.unwrap_or_else(|e| {
                let error = io::Error::other(e.to_string());
                Err(SnapshotError::of_file("read", "data directories", &error))
            })
        })
    }

    fn open<'a>(&'a self, replica: &'a LocalReplica) -> Reading<'a, Box<dyn ReplicaBytes>> {
        let files = self.files(replica);
        Box::pin(async move {
            let Some(files) = files else {
                return Err(ReadFailure::Changed);
            };
            let opened = blocking(move || OpenFiles::open(files)).await?;
            Ok(Box::new(opened) as Box<dyn ReplicaBytes>)
        })
    }
}

/// The two files of a replica as they were when they were opened. An append that comes later adds
/// to them; what was there stays, but for the last checksum, and then the comparison fails.
struct OpenFiles {
    data: Arc<File>,
    meta: Bytes,
    at: u64,
    files: ReplicaOnDisk,
}

impl OpenFiles {
    fn open(files: ReplicaOnDisk) -> Result<Self, ReadFailure> {
        let read = || -> io::Result<(File, u64, Vec<u8>)> {
            let data = patiently(|| File::open(files.data()))?;
            let mut meta = patiently(|| File::open(files.meta()))?;
            let mut bytes = vec![0; META_HEADER_LEN];
            meta.read_exact(&mut bytes)?;
            let damaged = |e| io::Error::new(io::ErrorKind::InvalidData, e);
            let whole = meta_len(&bytes, files.block.num_bytes).map_err(damaged)?;
            bytes.resize(whole, 0);
            meta.read_exact(&mut bytes[META_HEADER_LEN..])?;
            // A data file that was cut short where a chunk ends fits its checksums.
            let sums = meta.metadata()?.len();
            if sums > whole as u64 {
                let text = format!("its meta file has {sums} bytes, and its data wants {whole}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            let len = data.metadata()?.len();
            Ok((data, len, bytes))
        };
        let (data, len, meta) = read().map_err(|e| failure(&files, &e))?;
        if len != files.block.num_bytes {
            let text = format!("its data file has {len} bytes");
            return Err(changed_or(&files, text));
        }
        Ok(Self {
            data: Arc::new(data),
            meta: meta.into(),
            at: 0,
            files,
        })
    }
}

/// What a failure to read says of a replica: one that is not in its place any more has changed.
fn failure(files: &ReplicaOnDisk, error: &io::Error) -> ReadFailure {
    match error.kind() {
        io::ErrorKind::NotFound => changed_or(files, "one of its files is missing".to_owned()),
        io::ErrorKind::UnexpectedEof => changed_or(files, "its meta file is too short".to_owned()),
        _ => changed_or(files, error.to_string()),
    }
}

/// A file that is gone, or has another length now, belongs to a replica that has changed.
fn changed_or(files: &ReplicaOnDisk, damage: String) -> ReadFailure {
    let there = || -> io::Result<bool> {
        let same = std::fs::metadata(files.data())?.len() == files.block.num_bytes;
        Ok(same && (files.meta().try_exists()? || files.lacks_meta()?))
    };
    match there() {
        Ok(false) => ReadFailure::Changed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => ReadFailure::Changed,
        _ => ReadFailure::Damaged(damage),
    }
}

impl ReplicaBytes for OpenFiles {
    fn meta(&mut self) -> Reading<'_, Bytes> {
        let meta = self.meta.clone();
        Box::pin(async move { Ok(meta) })
    }

    fn data(&mut self, len: usize) -> Reading<'_, Bytes> {
        let (file, at, files) = (Arc::clone(&self.data), self.at, self.files.clone());
        self.at += len as u64;
        Box::pin(blocking(move || {
            let mut bytes = vec![0; len];
            let read = file.read_exact_at(&mut bytes, at);
            read.map_err(|e| failure(&files, &e))?;
            Ok(bytes.into())
        }))
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReadFailure> + Send + 'static,
) -> Result<T, ReadFailure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(ReadFailure::Damaged(e.to_string())))
}
