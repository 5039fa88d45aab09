//! What a [protection](Protection) of replicas may use of the store's insides. It lies in a crate
//! of its own: what is not named here is the store's alone.

use std::path::Path;
use std::sync::Arc;

use hayloft_io::{Disk, IoError, locks};
use hayloft_wire::ids::ExtendedBlock;

use crate::background::verify_replica::{Looker, Pace};
use crate::config::VolumeConfig;
use crate::error::StoreError;
use crate::transitions::check_volume;
use crate::types::StoreEvent;

pub use crate::layout::dirs::{DIR_MODE, FILE_MODE, make_dir};
pub use crate::layout::names::{CURRENT, PoolPaths, VERSION, data_name};
pub use crate::layout::version::{VERSION_BYTES_MAX, VolumeVersion};
pub use crate::protection::{Damage, DecodedFiles, Mender, Protection, ReplicaChange};
pub use crate::replica::block_pool::Pool;
pub use crate::replica::degraded::{DecodedAs, DegradedReplica};
pub use crate::replica::file_pair::{
    Pair, on_disk_with_sync, pin, settle_copy, sync_dir, sync_file,
};
pub use crate::replica::{FinalReplica, LiveReplica, Slot};
pub use crate::state::StoreState;
pub use crate::transitions::check_volume::LACKING;
pub use crate::volume::reservation::Reservation;
pub use crate::volume::{BlockPoolSlice, Volume, footprint};

impl StoreState {
    /// The directories that it is told to use, those that cannot be used too.
    #[must_use]
    pub fn configured_volumes(&self) -> &[VolumeConfig] {
        &self.config.volumes
    }

    /// How many volumes have failed.
    #[must_use]
    pub fn failed_volumes(&self) -> usize {
        locks::read(&self.volumes).failed.len()
    }

    /// The disk under a directory, which need not be a volume. Blocks until the disk answers.
    ///
    /// # Errors
    /// The disk does not say what it is.
    pub fn disk_under(&self, root: &Path) -> Result<Arc<Disk>, IoError> {
        let config = self.config.disk.config(None);
        self.shared.disks.for_path(root, &config)
    }

    /// Looks at a failed operation, and checks the volume where the error says something of it.
    /// Gives the error back.
    pub fn examine(self: &Arc<Self>, volume: &Arc<Volume>, error: StoreError) -> StoreError {
        check_volume::examine(self, volume, error)
    }

    /// Whether a replica on a volume has the data of its own checksum file, read from the device;
    /// `None` when that cannot be said now: it or its volume went away, or the process lacks
    /// something. One without checksums is never known to be whole.
    pub async fn is_whole(
        self: &Arc<Self>,
        volume: &Arc<Volume>,
        block: &ExtendedBlock,
    ) -> Option<bool> {
        let looker = Looker::new(self, volume);
        let id = block.block.id;
        let pool = self.pool(&block.pool).ok()?;
        let replica = looker.here(&pool, id)?;
        let mut pace = Pace::Rest(0);
        let verified = tokio::select! {
            verified = looker.verify(&pool, id, &replica, &mut pace) => verified,
            () = volume.gone.cancelled() => return None,
            () = self.stop.cancelled() => return None,
        };
        match verified {
            Ok(has_sums) => Some(has_sums),
            Err(found) if found.is_lack() || volume.is_failed() => None,
            Err(_) => Some(false),
        }
    }

    /// Tells the node, also of a damaged replica: [`send_event`](Self::send_event) has those mended
    /// first. Waits when the node is behind.
    pub async fn tell(&self, event: StoreEvent) {
        // The node stops listening only when it ends.
        let _ = self.events.send(event).await;
    }
}

/// For the tests of a protection.
#[cfg(any(test, feature = "faults"))]
impl crate::Store {
    /// What a protection gets of the store.
    #[must_use]
    pub fn state(&self) -> &Arc<StoreState> {
        &self.0
    }

    /// Takes a volume out of use as a failed one.
    pub async fn fail_volume(&self, volume: &Arc<Volume>) {
        crate::transitions::volume_failure::fail(&self.0, volume, "a test").await;
    }

    /// Compares directories with memory now.
    pub async fn scan_directories(&self) {
        crate::background::directory_scanner::scan_all(&self.0).await;
    }

    /// Ends as a killed process would, but for the descriptors: nothing is saved, the locks go.
    pub fn crash(&self) {
        self.0.stop.cancel();
        for volume in self.0.volumes() {
            volume.unlock();
        }
    }
}
