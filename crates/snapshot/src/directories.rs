//! A snapshot put on data directories where no node runs.
//!
//! Each replica is written to `tmp` of its volume, compared with its meta file and the manifest,
//! synced, and then gets its name as the store gives it. So a process that is killed anywhere
//! leaves whole replicas and nothing else that a node takes for one. The next run goes on.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hayloft_store::offline::{
    HeldVolume, PoolVersion, VolumeVersion, data_name, finalized_on, meta_name, volume_on_disk,
};
use hayloft_wire::ids::{PoolId, StorageType};

use crate::SnapshotProgress;
use crate::catalog;
use crate::claim::{ChosenSnapshot, Claim};
use crate::error::SnapshotError;
use crate::fetch::IncomingReplica;
use crate::manifest::Manifest;
use crate::restore::{Begun, Incoming, RestoreOptions, RestoreReport, RestoreSink, restore_chosen};
use crate::target::Target;

/// A data directory that replicas are put on.
#[derive(Clone, Debug)]
pub struct RestoreVolume {
    /// The directory.
    pub root: PathBuf,
    /// Its storage type.
    pub storage_type: StorageType,
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
    let meant = (options.node.as_deref(), options.snapshot.as_deref());
    let restore = |chosen| restore_chosen_on(target, volumes, chosen, (options, progress));
    Claim::reading(target, meant, restore).await
}

async fn restore_chosen_on(
    target: &Target,
    volumes: &[RestoreVolume],
    mut chosen: ChosenSnapshot,
    (options, progress): (&RestoreOptions, &SnapshotProgress),
) -> Result<RestoreReport, SnapshotError> {
    let place = target.at(&catalog::path_of(&chosen.node, &chosen.snapshot));
    let pools = chosen.manifest.header.pool_versions();
    let pools =
        pools.map_err(|e| SnapshotError::finding(e.to_string(), place, "use another snapshot"))?;
    let (volumes, new) = (volumes.to_vec(), options.new_identity);
    let manifest = chosen.manifest;
    let prepared = tokio::task::spawn_blocking(move || {
        prepare(&volumes, &manifest, &pools, new).map(|ready| (ready, manifest))
    });
    let (ready, manifest) = prepared.await.unwrap_or_else(|e| {
        let error = io::Error::other(e);
        Err(SnapshotError::of_file("use", "data directories", &error))
    })?;
    chosen.manifest = manifest;
    let cluster_id = chosen.manifest.header.cluster_id.clone();
    let to = (cluster_id.as_str(), ready.identity.as_str());
    restore_chosen(target, &ready, to, chosen, (options, progress)).await
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
        refuse_root(&volume.root)?;
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
        return Err(SnapshotError::environment(
            what,
            "dfs.datanode.data.dir",
            advice,
        ));
    }
    let mut versions = Vec::new();
    let mut there = HashSet::new();
    for (volume, _) in &held {
        let root = volume.root();
        let failed = |e| SnapshotError::of_file("read", root.display(), &e);
        let found = volume_on_disk(root).map_err(failed)?;
        if let Some(found) = &found {
            for pool in &found.pools {
                let found = finalized_on(root, &pool.pool).map_err(failed)?;
                let ids = found.whole.iter().chain(&found.without_meta);
                let ids = ids.map(|replica| replica.block.id);
                there.extend(ids.map(|id| (pool.pool.to_string(), id)));
            }
        }
        versions.push(found.map(|found| found.version));
    }
    let identity = identity(&held, &versions, manifest, new_identity)?;
    let mut storages = unused_storages(&versions, manifest, &identity);
    for ((volume, storage_type), version) in held.iter().zip(&versions) {
        let failed = |e| SnapshotError::of_file("write", volume.root().display(), &e);
        for pool in pools {
            volume.prepare_pool(pool).map_err(failed)?;
        }
        if version.is_none() {
            let fresh = || format!("DS-{}", uuid::Uuid::new_v4());
            let same = storages.get_mut(storage_type.name()).and_then(Vec::pop);
            let version = VolumeVersion {
                storage_id: same.unwrap_or_else(fresh),
                cluster_id: manifest.header.cluster_id.clone(),
                ctime: 0,
                datanode_uuid: identity.clone(),
                stubs: false,
            };
            // Last: a volume with an identity has its pools.
            volume.format(&version).map_err(failed)?;
        }
    }
    Ok(Ready {
        identity,
        volumes: held,
        there,
    })
}

/// Refuses to leave files of root in a directory of another user, whose node could not use them.
fn refuse_root(root: &Path) -> Result<(), SnapshotError> {
    let dir = root.ancestors().find_map(|dir| dir.metadata().ok());
    let owner = dir.map_or(0, |dir| dir.uid());
    if owner == 0 || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(SnapshotError::environment(
        format!("the directory is of the user {owner}, whose node could not use files of root"),
        root.display().to_string(),
        format!("run the command as that user: sudo -u '#{owner}' hayloft snapshot restore ..."),
    ))
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
}

impl RestoreSink for Ready {
    fn has(&self, pool: &PoolId, id: i64) -> bool {
        self.there.contains(&(pool.to_string(), id))
    }

    fn begin(&self, replica: Incoming) -> Begun<'_> {
        Box::pin(async move {
            let meta = replica.meta.bytes().clone();
            let bytes = replica.block.num_bytes.saturating_add(meta.len() as u64);
            let (volume, of_type) = self.choose(bytes, replica.storage_type)?;
            let (to, pool, block) = (Arc::clone(&volume), replica.pool.clone(), replica.block);
            let begun = blocking(volume.root(), move || {
                let scratch = to.scratch(&pool, block)?;
                let file = scratch.join(meta_name(block.id, block.generation_stamp));
                File::create_new(file)?.write_all(&meta)?;
                let data = scratch.join(data_name(block.id));
                let data = OpenOptions::new().create_new(true).write(true).open(data)?;
                Ok((scratch, Arc::new(data)))
            });
            let (scratch, data) = begun.await?;
            Ok(Box::new(InScratch {
                replica,
                volume,
                of_type,
                scratch,
                data,
            }) as Box<dyn IncomingReplica>)
        })
    }
}

/// The files of a replica that has not come whole yet.
struct InScratch {
    replica: Incoming,
    volume: Arc<HeldVolume>,
    of_type: bool,
    scratch: PathBuf,
    data: Arc<File>,
}

impl IncomingReplica for InScratch {
    fn data(&mut self, at: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), SnapshotError>> {
        let data = Arc::clone(&self.data);
        Box::pin(blocking(self.volume.root(), move || {
            data.write_all_at(&bytes, at)
        }))
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<bool, SnapshotError>> {
        Box::pin(async move {
            let Self {
                replica,
                volume,
                of_type,
                scratch,
                ..
            } = *self;
            let to = Arc::clone(&volume);
            let settle = move || to.settle(&replica.pool, replica.block, &scratch, replica.pinned);
            blocking(volume.root(), settle).await?;
            Ok(of_type)
        })
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
