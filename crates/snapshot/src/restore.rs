//! A snapshot put on data directories where no node runs.
//!
//! Each replica is written to `tmp` of its volume, compared with its meta file and the manifest,
//! synced, and then gets its name as the store gives it. So a process that is killed anywhere
//! leaves whole replicas and nothing else that a node takes for one. The next run goes on.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use hayloft_store::offline::{
    HeldVolume, PoolVersion, VolumeVersion, data_name, finalized_on, meta_name, volume_on_disk,
};
use hayloft_wire::ids::StorageType;
use serde::Serialize;

use crate::SnapshotProgress;
use crate::catalog;
use crate::create::PROBLEMS_MAX;
use crate::error::SnapshotError;
use crate::fetch::{Broken, Fetch};
use crate::manifest::{Manifest, ManifestReplica};
use crate::names::BlockName;
use crate::rate::Rate;
use crate::target::Target;

/// A data directory that replicas are put on.
#[derive(Clone, Debug)]
pub struct RestoreVolume {
    /// The directory.
    pub root: PathBuf,
    /// Its storage type.
    pub storage_type: StorageType,
}

/// How a snapshot is put back.
#[derive(Debug)]
pub struct RestoreOptions {
    /// Uuid of the node that it was taken of; the only one that is there by default.
    pub node: Option<String>,
    /// Name of the snapshot; the newest by default.
    pub snapshot: Option<String>,
    /// The directories are, or become, those of another node.
    pub new_identity: bool,
    /// Bytes a second.
    pub rate: Rate,
    /// Replicas on their way at a time.
    pub at_once: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RestoreReport {
    /// Uuid of the node whose snapshot it is.
    pub node: String,
    /// The snapshot's name.
    pub snapshot: String,
    /// Uuid of the node whose directories these are now.
    pub identity: String,
    /// Cluster of both.
    pub cluster_id: String,
    /// Replicas of the snapshot.
    pub replicas: u64,
    /// Replicas that were put back now, and bytes of their data.
    pub restored_replicas: u64,
    /// Likewise.
    pub restored_bytes: u64,
    /// Replicas of blocks that lay there already, whatever their generation stamp.
    pub there_already: u64,
    /// Replicas that went to a volume of another type than they had.
    pub other_type: u64,
    /// Replicas whose objects are missing or altered: they are not put back.
    pub broken: u64,
    /// The first of these, in words.
    pub problems: Vec<String>,
}

/// Puts a snapshot on the volumes. Nothing that lies there is changed.
///
/// # Errors
/// A node runs on a volume, or it is of another node or cluster; there is no such snapshot; the
/// store or a volume fails. Objects that are missing or altered are reported.
pub async fn restore(
    target: &Target,
    volumes: &[RestoreVolume],
    options: &RestoreOptions,
    progress: &SnapshotProgress,
) -> Result<RestoreReport, SnapshotError> {
    let (node, snapshot) = (options.node.as_deref(), options.snapshot.as_deref());
    let (node, snapshot) = catalog::choose(target, node, snapshot).await?;
    let manifest = catalog::manifest(target, &node, &snapshot).await?;
    let pools = manifest.header.pool_versions().map_err(|e| {
        let place = target.at(&catalog::path_of(&node, &snapshot));
        SnapshotError::finding(e.to_string(), place, "use another snapshot")
    })?;
    let (volumes, new) = (volumes.to_vec(), options.new_identity);
    let prepared = tokio::task::spawn_blocking(move || {
        let ready = prepare(&volumes, &manifest, &pools, new);
        ready.map(|ready| (ready, manifest))
    });
    let (ready, manifest) = prepared.await.unwrap_or_else(|e| {
        let error = io::Error::other(e);
        Err(SnapshotError::of_file("use", "data directories", &error))
    })?;
    let mut report = RestoreReport {
        identity: ready.identity.clone(),
        cluster_id: manifest.header.cluster_id.clone(),
        replicas: manifest.header.replicas,
        snapshot,
        node,
        ..RestoreReport::default()
    };
    let types: Vec<Option<StorageType>> = manifest
        .header
        .storages
        .iter()
        .map(|storage| storage.storage_type.parse().ok())
        .collect();
    let (there, wanted): (Vec<_>, Vec<_>) = manifest
        .replicas
        .iter()
        .partition(|replica| ready.has(&replica.name));
    report.there_already = there.len() as u64;
    let bytes = wanted.iter().map(|replica| replica.name.len);
    progress.expect(bytes.fold(0, u64::saturating_add));
    let node = report.node.clone();
    let fetch = Fetch {
        target,
        node: &node,
        rate: &options.rate,
        progress,
    };
    let (ready, types) = (&ready, &types);
    let one = |replica: &ManifestReplica| {
        let wanted = types.get(replica.storage).copied().flatten();
        let replica = replica.clone();
        async move {
            let other = ready.bring(fetch, &replica, wanted).await;
            (replica, other)
        }
    };
    let mut coming = futures_util::stream::iter(wanted)
        .map(one)
        .buffer_unordered(options.at_once.clamp(1, 32));
    while let Some((replica, outcome)) = coming.next().await {
        match outcome {
            Ok(of_wanted_type) => {
                report.restored_replicas += 1;
                report.restored_bytes += replica.name.len;
                report.other_type += u64::from(!of_wanted_type);
            }
            Err(Broken::Objects(why)) => {
                report.broken += 1;
                if report.problems.len() < PROBLEMS_MAX {
                    let (pool, block) = (&replica.name.pool, replica.name.block());
                    report.problems.push(format!("{pool}:{block}: {why}"));
                }
            }
            Err(Broken::Store(error) | Broken::Sink(error)) => return Err(error),
        }
    }
    Ok(report)
}

/// Volumes that are held and have all that replicas need.
struct Ready {
    identity: String,
    volumes: Vec<(Arc<HeldVolume>, StorageType)>,
    /// Blocks that lie there.
    there: HashSet<(String, i64)>,
}

/// Holds the volumes, and gives those an identity that have none. Blocking.
fn prepare(
    volumes: &[RestoreVolume],
    manifest: &Manifest,
    pools: &[PoolVersion],
    new_identity: bool,
) -> Result<Ready, SnapshotError> {
    let mut held = Vec::new();
    for volume in volumes.iter().filter(|v| !v.storage_type.is_transient()) {
        let place = volume.root.display();
        let lock = HeldVolume::hold(&volume.root);
        let lock = lock.map_err(|e| SnapshotError::of_file("hold", place, &e.into()))?;
        let Some(lock) = lock else {
            return Err(SnapshotError::finding(
                "a node, or another command, uses the directory",
                volume.root.display().to_string(),
                "stop the node first; or let it restore by itself (hayloft.snapshot.restore-from)",
            ));
        };
        held.push((Arc::new(lock), volume.storage_type));
    }
    if held.is_empty() {
        let advice = "name one in dfs.datanode.data.dir that is not on a RAM disk";
        let what = "there is no data directory to restore to";
        return Err(SnapshotError::environment(what, "dfs.datanode.data.dir", advice));
    }
    let mut versions = Vec::new();
    let mut there = HashSet::new();
    for (volume, _) in &held {
        let root = volume.root();
        let failed = |e| SnapshotError::of_file("read", root.display(), &e);
        let found = volume_on_disk(root).map_err(failed)?;
        if let Some(found) = &found {
            for pool in &found.pools {
                let (replicas, lacking) = finalized_on(root, &pool.pool).map_err(failed)?;
                let ids = replicas.iter().chain(&lacking).map(|r| r.block.id);
                there.extend(ids.map(|id| (pool.pool.to_string(), id)));
            }
        }
        versions.push(found.map(|found| found.version));
    }
    let identity = identity(&held, &versions, manifest, new_identity)?;
    let mut storages = unused_storages(&versions, manifest, &identity);
    for ((volume, storage_type), version) in held.iter().zip(&versions) {
        let root = volume.root().display();
        let failed = |e| SnapshotError::of_file("write", root, &e);
        for pool in pools {
            volume.prepare_pool(pool).map_err(failed)?;
        }
        if version.is_none() {
            let fresh = || format!("DS-{}", uuid::Uuid::new_v4());
            let same = storages.get_mut(storage_type.name()).and_then(Vec::pop);
            let root = volume.root().display();
            // Last: a volume with an identity has its pools.
            volume
                .format(&VolumeVersion {
                    storage_id: same.unwrap_or_else(fresh),
                    cluster_id: manifest.header.cluster_id.clone(),
                    ctime: 0,
                    datanode_uuid: identity.clone(),
                    stubs: false,
                })
                .map_err(|e| SnapshotError::of_file("write", root, &e))?;
        }
    }
    Ok(Ready {
        identity,
        volumes: held,
        there,
    })
}

/// The uuid that the volumes have, or get.
fn identity(
    held: &[(Arc<HeldVolume>, StorageType)],
    versions: &[Option<VolumeVersion>],
    manifest: &Manifest,
    new_identity: bool,
) -> Result<String, SnapshotError> {
    let header = &manifest.header;
    let mut found: Option<&str> = None;
    for ((volume, _), version) in held.iter().zip(versions) {
        let Some(version) = version else { continue };
        let refuse = |what: String, advice: &str| {
            let place = volume.root().display().to_string();
            Err(SnapshotError::finding(what, place, advice))
        };
        if version.cluster_id != header.cluster_id {
            let (ours, theirs) = (&version.cluster_id, &header.cluster_id);
            return refuse(
                format!("the directory is of the cluster {ours}, and the snapshot of {theirs}"),
                "restore to directories of that cluster, or to empty ones",
            );
        }
        if version.stubs {
            let advice = "restore to a directory whose engine keeps blocks in files";
            return refuse("its blocks are on a device".to_owned(), advice);
        }
        let uuid = version.datanode_uuid.as_str();
        if found.is_some_and(|found| found != uuid) {
            let advice = "give the directories of one node";
            return refuse("the directories are of several nodes".to_owned(), advice);
        }
        found = Some(uuid);
    }
    let theirs = header.datanode_uuid.as_str();
    let place = || held[0].0.root().display().to_string();
    match (found, new_identity) {
        (Some(found), false) if found != theirs => Err(SnapshotError::finding(
            format!("the directories are of the node {found}, and the snapshot of {theirs}"),
            place(),
            "say --new-identity if its replicas are to be this node's from now on",
        )),
        (Some(found), true) if found == theirs => Err(SnapshotError::finding(
            format!("the directories are of the node {found} already, as is the snapshot"),
            place(),
            "leave out --new-identity, or empty the directories",
        )),
        (Some(found), _) => Ok(found.to_owned()),
        (None, false) => Ok(theirs.to_owned()),
        (None, true) => Ok(uuid::Uuid::new_v4().to_string()),
    }
}

/// Ids of the snapshot's storages that no volume has, by type, the first at the end; none for
/// another node.
fn unused_storages(
    versions: &[Option<VolumeVersion>],
    manifest: &Manifest,
    identity: &str,
) -> HashMap<String, Vec<String>> {
    let mut unused: HashMap<String, Vec<String>> = HashMap::new();
    if manifest.header.datanode_uuid != identity {
        return unused;
    }
    let used: HashSet<&str> = versions
        .iter()
        .flatten()
        .map(|version| version.storage_id.as_str())
        .collect();
    for storage in manifest.header.storages.iter().rev() {
        if !used.contains(storage.id.as_str()) {
            let of_type = unused.entry(storage.storage_type.clone()).or_default();
            of_type.push(storage.id.clone());
        }
    }
    unused
}

impl Ready {
    fn has(&self, name: &BlockName) -> bool {
        self.there.contains(&(name.pool.to_string(), name.id))
    }

    /// The volume with the most room, of the type if there is one with room for the replica.
    fn choose(
        &self,
        bytes: u64,
        wanted: Option<StorageType>,
    ) -> Result<(Arc<HeldVolume>, bool), SnapshotError> {
        let mut best: Option<((bool, u64), &Arc<HeldVolume>)> = None;
        for (volume, storage_type) in &self.volumes {
            let root = volume.root();
            let space = rustix::fs::statvfs(root).map_err(|e| {
                SnapshotError::of_file("ask for the room of", root.display(), &e.into())
            })?;
            let room = space.f_bavail.saturating_mul(space.f_frsize);
            let rank = (wanted.is_none_or(|wanted| wanted == *storage_type), room);
            if room >= bytes && best.is_none_or(|(best, _)| best < rank) {
                best = Some((rank, volume));
            }
        }
        match best {
            Some(((of_type, _), volume)) => Ok((Arc::clone(volume), of_type)),
            None => {
                let full = io::Error::from(io::ErrorKind::StorageFull);
                let place = self.volumes[0].0.root().display();
                Err(SnapshotError::of_file("write a replica", place, &full))
            }
        }
    }

    /// Puts a replica on a volume; whether that has the type that it had.
    async fn bring(
        &self,
        fetch: Fetch<'_>,
        replica: &ManifestReplica,
        wanted: Option<StorageType>,
    ) -> Result<bool, Broken> {
        let meta = fetch.meta(replica).await?;
        let chosen = self.choose(replica.bytes(), wanted).map_err(Broken::Sink)?;
        let (volume, of_type) = chosen;
        let (name, bytes) = (replica.name.clone(), meta.bytes().clone());
        let to = Arc::clone(&volume);
        let begun = blocking(volume.root(), move || {
            let scratch = to.scratch(&name.pool, name.block())?;
            let file = scratch.join(meta_name(name.id, name.generation_stamp));
            File::create_new(file)?.write_all(&bytes)?;
            let data = scratch.join(data_name(name.id));
            let data = OpenOptions::new().create_new(true).write(true).open(data)?;
            Ok((scratch, Arc::new(data)))
        });
        let (scratch, data) = begun.await.map_err(Broken::Sink)?;
        let write = |at: u64, piece: Bytes| {
            let (data, root) = (Arc::clone(&data), volume.root().to_owned());
            async move { blocking(&root, move || data.write_all_at(&piece, at)).await }
        };
        fetch.data(replica, meta, write).await?;
        let (name, pinned) = (replica.name.clone(), replica.pinned);
        let to = Arc::clone(&volume);
        let settle = move || to.settle(&name.pool, name.block(), &scratch, pinned);
        let settled = blocking(volume.root(), settle).await;
        settled.map_err(Broken::Sink)?;
        Ok(of_type)
    }
}

async fn blocking<T: Send + 'static>(
    root: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SnapshotError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|e| Err(io::Error::other(e)));
    done.map_err(|e| SnapshotError::of_file("write a replica", root.display(), &e))
}
