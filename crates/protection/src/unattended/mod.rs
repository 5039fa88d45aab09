//! Directories of nodes that do not run here: nodes of this process that have ended or wait for a
//! NameNode, and those that the configuration no longer names. Groups of the others have units
//! there. They are read without the lock of the directory and compared with their checksums, since
//! another process may use it. Nothing is written there.
//!
//! - `find_directories`: looks at directories of nodes that do not run here

mod find_directories;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hayloft_io::{Engine, IoClass, IoError, IoErrorKind, IoOp, locks};
use hayloft_parity::{GroupRecord, MemberState, TableGroup, UnitRef};
use hayloft_store::inside::{
    CURRENT, PoolPaths, StoreState, VERSION, VERSION_BYTES_MAX, VolumeVersion, data_name,
};
use hayloft_wire::ids::PoolId;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::Parity;
use crate::volumes::DiskKey;

/// A look that takes longer is given up: rounds wait for it.
pub(super) const LOOK_WITHIN: Duration = Duration::from_secs(10);

/// A directory that no store of the process uses, or that it uses without the pool of a group.
#[derive(Debug)]
pub struct Unattended {
    /// Its storage.
    pub storage: Arc<str>,
    /// The directory.
    pub root: PathBuf,
    /// Reads its files.
    pub engine: Arc<dyn Engine>,
    /// The disk that it lies on.
    pub disk: DiskKey,
    /// An operation that is not answered within this time is given up.
    pub answer: Duration,
    /// Its disk has failed, or it is another node's.
    pub gone: CancellationToken,
}

/// What is known of such directories.
#[derive(Debug, Default)]
pub struct UnattendedDirs {
    /// By storage.
    pub dirs: HashMap<Arc<str>, Arc<Unattended>>,
    /// Disks that failed under a volume: what the page cache has of them says nothing.
    pub failed_disks: Vec<DiskKey>,
    /// Directories whose disks are asked for, and have not answered.
    pub asked: HashSet<PathBuf>,
    /// When they were looked at last.
    pub looked: Option<Instant>,
}

impl Unattended {
    /// Where the data file of a finalized replica lies.
    pub fn replica_path(&self, pool: &PoolId, id: i64) -> PathBuf {
        let paths = PoolPaths::new(&self.root, pool);
        paths.finalized_dir(id).join(data_name(id))
    }

    /// The answer of the disk, unless that takes too long.
    pub async fn answer<T>(
        &self,
        work: impl Future<Output = Result<T, IoError>>,
    ) -> Result<T, IoError> {
        let closed = |text| {
            Err(IoError::new(
                IoErrorKind::Closed,
                IoOp::Other,
                &self.root,
                text,
            ))
        };
        tokio::select! {
            biased;
            answer = work => answer,
            () = self.gone.cancelled() => closed("it was given up"),
            () = tokio::time::sleep(self.answer) => closed("its disk gives no answer"),
        }
    }

    /// Whether the directory is still that of the storage; `None` when its disk does not say.
    pub async fn is_there(&self) -> Option<bool> {
        let path = self.root.join(CURRENT).join(VERSION);
        let meta = self.engine.meta(IoClass::Balancer);
        let limit = VERSION_BYTES_MAX;
        let read = tokio::time::timeout(LOOK_WITHIN, meta.read_small(&path, limit));
        match read.await.ok()? {
            Err(error) if error.kind() == IoErrorKind::NotFound => Some(false),
            Err(_) => None,
            Ok(bytes) => {
                let version = VolumeVersion::parse(&bytes).ok()?;
                Some(*version.storage_id == *self.storage)
            }
        }
    }
}

/// A node of the process has ended: what it has on healthy disks serves the groups of the others.
pub fn store_ended(parity: &Parity, store: &StoreState) {
    if !crate::knows(store) {
        parity.incomplete.store(true, Ordering::Relaxed);
    }
    for volume in store.volumes() {
        if !volume.is_failed() {
            let storage = Arc::clone(&volume.info.id);
            parity.attend(Unattended {
                storage,
                root: volume.root.clone(),
                engine: Arc::clone(&volume.engine),
                disk: parity.disk_of(&volume),
                answer: parity.config.answer,
                gone: CancellationToken::new(),
            });
        }
    }
    parity.wake.notify_one();
}

impl Parity {
    fn attend(&self, dir: Unattended) {
        let mut known = locks::write(&self.unattended);
        known.dirs.insert(Arc::clone(&dir.storage), Arc::new(dir));
    }

    /// The directory with this storage id, if no store uses it.
    pub(super) fn unattended(&self, storage: &str) -> Option<Arc<Unattended>> {
        let known = locks::read(&self.unattended);
        known
            .dirs
            .get(storage)
            .filter(|dir| !dir.gone.is_cancelled())
            .cloned()
    }

    /// All of them.
    pub(super) fn all_unattended(&self) -> Vec<Arc<Unattended>> {
        locks::read(&self.unattended)
            .dirs
            .values()
            .cloned()
            .collect()
    }

    /// A store has these volumes with a pool now: what was assumed of the pool's members there is
    /// looked up anew.
    pub(super) fn attended_now(&self, store: &StoreState, pool: &PoolId) {
        for volume in store.volumes() {
            let disk = self.disk_of(&volume);
            locks::write(&self.unattended)
                .failed_disks
                .retain(|failed| *failed != disk);
            let known = locks::write(&self.unattended).dirs.remove(&volume.info.id);
            if known.is_none() {
                continue;
            }
            let mut table = self.table();
            let groups = table.iter().filter(|group| group.record.pool == *pool);
            let units = groups.flat_map(|group| units_on(&group.record, &volume.info.id));
            let units: Vec<UnitRef> = units.collect();
            for unit in units {
                table.set_member(unit, MemberState::Absent);
            }
        }
    }

    /// A disk has failed: so have the directories on it that no store uses.
    pub(super) fn disk_failed(&self, disk: DiskKey) {
        for dir in self.all_unattended() {
            if dir.disk == disk {
                self.give_up_dir(&dir, "its disk has failed");
            }
        }
        let mut known = locks::write(&self.unattended);
        if !known.failed_disks.contains(&disk) {
            known.failed_disks.push(disk);
        }
    }

    /// Units in a directory count no more. The groups of them are short of a unit: their members
    /// go into others.
    pub(super) fn give_up_dir(&self, dir: &Unattended, reason: &str) {
        dir.gone.cancel();
        let known = locks::write(&self.unattended).dirs.remove(&dir.storage);
        if known.is_some() {
            warn!(directory = %dir.root.display(), reason, "units of parity groups in the \
                directory of a node that does not run here count no more");
        }
        let mut table = self.table();
        let short: Vec<_> = {
            let on = |record: &GroupRecord| {
                record.members.iter().any(|m| m.storage == dir.storage)
                    || record.parity.iter().any(|p| p.storage == dir.storage)
            };
            let groups = table.iter().filter(|group| on(&group.record));
            groups.map(|group| group.record.id).collect()
        };
        table.lose_storage(&dir.storage);
        for group in short {
            if let Some(group) = table.get_mut(group) {
                group.given_up = true;
            }
        }
    }

    /// Whether a store of the process should have what lies on a storage: it uses it, or is
    /// configured to use its directory.
    pub(super) fn is_ours(&self, storage: &str, root: &str) -> bool {
        let root = Path::new(root);
        let mut stores = self.stores().into_iter();
        stores.any(|store| {
            let in_use = store.volumes().iter().any(|v| *v.info.id == *storage);
            in_use
                || store
                    .configured_volumes()
                    .iter()
                    .any(|volume| volume.path == root)
        })
    }

    /// Groups short of a unit that no node here brings back: their members go into others.
    pub(super) fn give_up_orphans(&self) {
        let mut ours: HashMap<Arc<str>, bool> = HashMap::new();
        let mut table = self.table();
        let orphans: Vec<_> = {
            let mut is_orphan = |group: &TableGroup| {
                let mut members = group.record.members.iter().zip(&group.members);
                members.any(|(member, state)| {
                    let gone = !member.dropped && *state == MemberState::Absent;
                    let (storage, root) = (&member.storage, &member.root);
                    gone && !*ours
                        .entry(Arc::clone(storage))
                        .or_insert_with(|| self.is_ours(storage, root))
                })
            };
            let groups = table.iter().filter(|group| !group.given_up);
            let orphans = groups.filter(|group| is_orphan(group));
            orphans.map(|group| group.record.id).collect()
        };
        for group in orphans {
            if let Some(group) = table.get_mut(group) {
                group.given_up = true;
            }
        }
    }

    /// The next round looks at them.
    #[cfg(test)]
    pub(super) fn look_soon(&self) {
        locks::write(&self.unattended).looked = None;
    }

    /// Whether a store has this volume, with the pool.
    pub(super) fn attends(&self, storage: &str, pool: &PoolId) -> bool {
        let place = self.place(storage);
        place.is_some_and(|place| place.store.pool(pool).is_ok())
    }
}

/// The members of a group on a storage.
pub fn units_on<'a>(
    record: &'a GroupRecord,
    storage: &'a str,
) -> impl Iterator<Item = UnitRef> + use<'a> {
    let members = record.members.iter().enumerate();
    let here = members.filter(move |(_, member)| *member.storage == *storage);
    here.map(move |(unit, _)| UnitRef {
        group: record.id,
        unit,
    })
}
