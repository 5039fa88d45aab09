//! The volumes of all stores, and the disks that they lie on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayloft_io::{DeviceId, Engine, IoError, IoErrorKind, IoOp};
use hayloft_parity::ParityDisks;
use hayloft_store::StoreError;
use hayloft_store::inside::{StoreState, Volume};

use super::Parity;
use super::volumes_left_out::Troubles;

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
            place.troubles.note_hang(&place.store, &place.volume);
            closed("its disk gives no answer")
        }
    }
}
