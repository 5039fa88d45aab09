//! Units on volumes: which store, which disk, which file.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayloft_io::{DeviceId, Engine, IoClass, IoError, IoErrorKind, IoOp, Meta};
use hayloft_parity::{FileStamp, GroupFile, GroupRecord, MemberState, ParityDisks, TableGroup};
use hayloft_store::inside::{Pair, Slot, StoreState, Volume};
use hayloft_store::{StoreError, StoreErrorKind};
use hayloft_wire::ids::PoolId;

use super::Parity;
use super::troubles::Troubles;
use super::unattended::Unattended;

/// A volume and the store that has it.
#[derive(Clone, Debug)]
pub struct UnitPlace {
    /// The store.
    pub store: Arc<StoreState>,
    /// The volume.
    pub volume: Arc<Volume>,
    /// Volumes that are left out for a while.
    pub troubles: Arc<Troubles>,
}

/// What tells disks apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskKey {
    /// A device.
    Device(DeviceId),
    /// A directory that stands for one.
    Directory(PathBuf),
}

/// Where units are read.
#[derive(Clone, Debug)]
pub enum SourcePlace {
    /// A volume of a store.
    Attended(UnitPlace),
    /// A directory that no store uses.
    Unattended(Arc<Unattended>),
}

impl SourcePlace {
    /// The directory.
    pub fn root(&self) -> &Path {
        match self {
            Self::Attended(place) => &place.volume.root,
            Self::Unattended(dir) => &dir.root,
        }
    }

    /// What reads its files.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        match self {
            Self::Attended(place) => &place.volume.engine,
            Self::Unattended(dir) => &dir.engine,
        }
    }

    /// Operations on names, in `class`.
    pub fn meta(&self, class: IoClass) -> Meta {
        self.engine().meta(class)
    }

    /// The answer of its disk, unless that takes too long.
    pub async fn answer<T>(
        &self,
        work: impl Future<Output = Result<T, IoError>>,
    ) -> Result<T, IoError> {
        match self {
            Self::Attended(place) => answer(place, work).await,
            Self::Unattended(dir) => dir.answer(work).await,
        }
    }

    /// An error of a volume, which is examined for it, or of a directory.
    pub fn failed(&self, doing: &str, error: IoError) -> StoreError {
        match self {
            Self::Attended(place) => place.failed(doing, error),
            Self::Unattended(_) => StoreError::io(doing, error),
        }
    }
}

impl From<&UnitPlace> for SourcePlace {
    fn from(place: &UnitPlace) -> Self {
        Self::Attended(place.clone())
    }
}

impl UnitPlace {
    /// Ends when the volume is given up, or its store ends: another process may use it then.
    pub async fn gone(&self) {
        tokio::select! {
            () = self.volume.gone.cancelled() => {}
            () = self.store.stop.cancelled() => {}
        }
    }

    /// An error of this volume, which is examined for it.
    pub fn failed(&self, doing: &str, error: IoError) -> StoreError {
        let error = StoreError::io(doing, error);
        self.store.examine(&self.volume, error)
    }
}

impl Parity {
    /// All healthy volumes.
    pub fn places(&self) -> Vec<UnitPlace> {
        let mut places = Vec::new();
        for store in self.stores() {
            let volumes = store.volumes().into_iter();
            let healthy = volumes.filter(|volume| !volume.is_failed());
            places.extend(healthy.map(|volume| self.place_on(&store, &volume)));
        }
        places
    }

    /// The healthy volume with this storage id.
    pub fn place(&self, storage: &str) -> Option<UnitPlace> {
        self.stores().into_iter().find_map(|store| {
            let volumes = store.volumes();
            let volume = volumes.into_iter().find(|v| *v.info.id == *storage)?;
            (!volume.is_failed()).then(|| self.place_on(&store, &volume))
        })
    }

    /// A volume of a store.
    pub fn place_on(&self, store: &Arc<StoreState>, volume: &Arc<Volume>) -> UnitPlace {
        UnitPlace {
            store: Arc::clone(store),
            volume: Arc::clone(volume),
            troubles: Arc::clone(&self.troubles),
        }
    }

    /// The disk that a volume lies on.
    pub fn disk_of(&self, volume: &Volume) -> DiskKey {
        self.disk_under(&volume.root, &volume.engine)
    }

    /// The disk that a directory lies on.
    pub fn disk_under(&self, root: &Path, engine: &Arc<dyn Engine>) -> DiskKey {
        match self.config.disks {
            ParityDisks::Devices => DiskKey::Device(engine.disk().id()),
            // Of several nodes each has a directory in the configured one.
            ParityDisks::Directories => {
                let shared = root.parent().filter(|_| self.expected > 1);
                DiskKey::Directory(shared.unwrap_or(root).to_owned())
            }
        }
    }

    /// Different disks under the volumes.
    pub fn disks_of<'a>(&self, volumes: impl Iterator<Item = &'a Volume>) -> Vec<DiskKey> {
        let mut disks = Vec::new();
        for volume in volumes {
            let disk = self.disk_of(volume);
            if !disks.contains(&disk) {
                disks.push(disk);
            }
        }
        disks
    }
}

/// The error for a storage that no store uses.
pub fn not_in_use(storage: &str) -> StoreError {
    let text = format!("the volume {storage} of a parity group is not in use");
    StoreError::new(StoreErrorKind::VolumeFailed, text)
}

/// Waits for a disk, until its volume is given up: one that hangs gives no answer, and groups go on
/// without it. One that takes too long for an answer is left out for a while.
pub async fn answer<T>(
    place: &UnitPlace,
    work: impl Future<Output = Result<T, IoError>>,
) -> Result<T, IoError> {
    let closed = |text| {
        let root = &place.volume.root;
        Err(IoError::new(IoErrorKind::Closed, IoOp::Other, root, text))
    };
    tokio::select! {
        biased;
        answer = work => answer,
        () = place.gone() => closed("its volume was given up"),
        () = tokio::time::sleep(place.troubles.answer) => {
            place.troubles.note_hang(place);
            closed("its disk gives no answer")
        }
    }
}

/// The storage of a unit.
pub fn storage_of(record: &GroupRecord, unit: usize) -> Option<&Arc<str>> {
    match unit.checked_sub(record.shape.data()) {
        None => record.members.get(unit).map(|m| &m.storage),
        Some(parity) => record.parity.get(parity).map(|p| &p.storage),
    }
}

/// Bytes of a unit that its file has; what is behind them counts as zeros.
pub fn unit_len(record: &GroupRecord, unit: usize) -> u64 {
    match unit.checked_sub(record.shape.data()) {
        None => record.members.get(unit).map_or(0, |m| m.covered),
        Some(_) => record.parity_len(),
    }
}

/// The number of the section with the checksums of a unit; `None` for one of zeros.
pub fn section_of(record: &GroupRecord, unit: usize) -> Option<usize> {
    match unit.checked_sub(record.shape.data()) {
        None => (unit < record.members.len()).then_some(unit),
        Some(parity) => Some(record.members.len() + parity),
    }
}

/// The file that the data of member `unit` is kept in.
pub fn kept_file(record: &GroupRecord, unit: usize) -> GroupFile {
    GroupFile::Kept(record.id, u8::try_from(unit).expect("a unit of a shape"))
}

/// Parity file `n` of a group.
pub fn parity_file(record: &GroupRecord, n: usize) -> GroupFile {
    GroupFile::Parity(record.id, u8::try_from(n).expect("a unit of a shape"))
}

/// The file that has the bytes of a unit now.
pub fn unit_path(group: &TableGroup, unit: usize, place: &SourcePlace) -> Option<PathBuf> {
    let record = &group.record;
    if let Some(parity) = unit.checked_sub(record.shape.data()) {
        return Some(parity_file(record, parity).path(place.root()));
    }
    let id = record.members.get(unit)?.block_id;
    match (group.members.get(unit)?, place) {
        (MemberState::Kept, _) => Some(kept_file(record, unit).path(place.root())),
        (MemberState::Live, SourcePlace::Attended(place)) => replica_path(place, &record.pool, id),
        (MemberState::Live, SourcePlace::Unattended(dir)) => {
            Some(dir.replica_path(&record.pool, id))
        }
        (MemberState::Absent, _) => None,
    }
}

/// The data file of a replica on this volume, in whatever state it is.
fn replica_path(place: &UnitPlace, pool: &PoolId, id: i64) -> Option<PathBuf> {
    let pool = place.store.pool(pool).ok()?;
    match pool.map.get(id)? {
        Slot::Finalized(replica) if replica.volume == place.volume.index => {
            let slice = pool.slice(replica.volume).ok()?;
            Some(Pair::finalized(&slice.paths, id, replica.generation_stamp).data())
        }
        Slot::Live(live) if live.slice.volume.index == place.volume.index => {
            Some(live.pair().data())
        }
        _ => None,
    }
}

/// What a file looks like now; `None` when it is not there.
pub async fn stamp(
    place: &SourcePlace,
    path: &Path,
    class: IoClass,
) -> Result<Option<FileStamp>, IoError> {
    let meta = place.meta(class);
    place.answer(meta.run(IoOp::Stat, path, stamp_of)).await
}

/// The same, blocking.
pub fn stamp_of(path: &Path) -> Result<Option<FileStamp>, IoError> {
    let facts = match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| IoError::from_std(IoOp::Stat, path, &e))?,
    };
    let ns = facts.mtime().saturating_mul(1_000_000_000);
    Ok(Some(FileStamp {
        inode: facts.ino(),
        changed_ns: ns.saturating_add(facts.mtime_nsec()),
        len: facts.len(),
    }))
}
