//! Units on volumes: which store, which disk, which file.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayloft_io::{DeviceId, IoClass, IoError, IoErrorKind, IoOp};
use hayloft_parity::{FileStamp, GroupFile, GroupRecord, MemberState, ParityDisks, TableGroup};
use hayloft_wire::ids::PoolId;

use super::Parity;
use crate::error::{StoreError, StoreErrorKind};
use crate::replica::Slot;
use crate::replica::files::Pair;
use crate::state::StoreState;
use crate::volume::Volume;

/// A volume and the store that has it.
#[derive(Clone, Debug)]
pub struct UnitPlace {
    /// The store.
    pub store: Arc<StoreState>,
    /// The volume.
    pub volume: Arc<Volume>,
}

/// What tells disks apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskKey {
    /// A device.
    Device(DeviceId),
    /// A directory that stands for one.
    Directory(PathBuf),
}

impl UnitPlace {
    /// An error of this volume, which is examined for it.
    pub fn failed(&self, doing: &str, error: IoError) -> StoreError {
        let error = StoreError::io(doing, error);
        crate::lifecycle::volume_failure::examine(&self.store, &self.volume, error)
    }
}

impl Parity {
    /// All healthy volumes.
    pub fn places(&self) -> Vec<UnitPlace> {
        let mut places = Vec::new();
        for store in self.stores() {
            let volumes = store.volumes().into_iter();
            let healthy = volumes.filter(|volume| !volume.is_failed());
            places.extend(healthy.map(|volume| UnitPlace {
                store: Arc::clone(&store),
                volume,
            }));
        }
        places
    }

    /// The healthy volume with this storage id.
    pub fn place(&self, storage: &str) -> Option<UnitPlace> {
        self.stores().into_iter().find_map(|store| {
            let volumes = store.volumes();
            let volume = volumes.into_iter().find(|v| *v.info.id == *storage)?;
            (!volume.is_failed()).then_some(UnitPlace { store, volume })
        })
    }

    /// As [`place`](Self::place).
    ///
    /// # Errors
    /// `VolumeFailed`.
    pub fn place_of(&self, storage: &str) -> Result<UnitPlace, StoreError> {
        self.place(storage).ok_or_else(|| {
            let text = format!("the volume {storage} of a parity group is not in use");
            StoreError::new(StoreErrorKind::VolumeFailed, text)
        })
    }

    /// The disk that a volume lies on.
    pub fn disk_of(&self, volume: &Volume) -> DiskKey {
        match self.config.disks {
            ParityDisks::Devices => DiskKey::Device(volume.engine.disk().id()),
            // Of several nodes each has a directory in the configured one.
            ParityDisks::Directories => {
                let shared = volume.root.parent().filter(|_| self.expected > 1);
                DiskKey::Directory(shared.unwrap_or(&volume.root).to_owned())
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

/// Waits for a disk, until its volume is given up: one that hangs gives no answer, and groups go on
/// without it.
pub async fn answer<T>(
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
pub fn unit_path(group: &TableGroup, unit: usize, place: &UnitPlace) -> Option<PathBuf> {
    let record = &group.record;
    if let Some(parity) = unit.checked_sub(record.shape.data()) {
        return Some(parity_file(record, parity).path(&place.volume.root));
    }
    match group.members.get(unit)? {
        MemberState::Kept => Some(kept_file(record, unit).path(&place.volume.root)),
        MemberState::Live => replica_path(place, &record.pool, record.members[unit].block_id),
        MemberState::Absent => None,
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
    place: &UnitPlace,
    path: &Path,
    class: IoClass,
) -> Result<Option<FileStamp>, IoError> {
    let look = place.volume.meta(class).run(IoOp::Stat, path, |path| {
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
    });
    answer(&place.volume, look).await
}
