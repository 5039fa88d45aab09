//! Volumes that refuse files of groups: what is noted of them, and when they are tried again.

use hayloft_io::IoError;
use hayloft_parity::PARITY_DIR;
use hayloft_store::inside::{DIR_MODE, FILE_MODE};
use hayloft_store::{StoreError, StoreErrorKind};
use tracing::info;

use super::volumes::{UnitPlace, answer};
use super::{ENCODING, Parity};

impl Parity {
    /// An error of a volume that a file of a group could not be written to or removed from.
    pub(crate) fn refused(&self, place: &UnitPlace, doing: &str, error: IoError) -> StoreError {
        let error = place.failed(doing, error);
        self.note_refusal(place, &error);
        error
    }

    /// A file of a group could not be written or removed on a volume: it gets none for a while.
    pub(super) fn note_refusal(&self, place: &UnitPlace, error: &StoreError) {
        // What the process lacks says nothing of the volume.
        if error.kind() == StoreErrorKind::Retry {
            return;
        }
        let reason = error.to_string();
        self.troubles
            .note_trouble(&place.store, &place.volume, &reason, false);
    }

    /// Tries whether volumes that were left out take files again.
    pub(super) async fn try_again(&self) {
        let mut places = self.places();
        places.retain(|place| self.troubles.is_due(&place.volume));
        let tries = places.iter().map(|place| self.try_to_write(place));
        let tries = futures_util::future::join_all(tries).await;
        for (place, tried) in places.iter().zip(tries) {
            if let Err(error) = tried {
                self.refused(place, "writing to the directory of parity groups", error);
                continue;
            }
            self.troubles.note_over(&place.volume);
            info!(volume = %place.volume.root.display(), "a volume takes files of parity groups \
                again");
        }
    }

    async fn try_to_write(&self, place: &UnitPlace) -> Result<(), IoError> {
        let dir = place.volume.root.join(PARITY_DIR);
        let meta = place.volume.meta(ENCODING);
        let path = dir.join("probe.tmp");
        let written = async {
            meta.create_dir_all(&dir, DIR_MODE).await?;
            meta.replace(&path, b"probe".to_vec(), FILE_MODE).await?;
            meta.unlink(&path).await
        };
        answer(place, written).await
    }

    /// Volumes that files of groups may go to.
    pub(super) fn usable_places(&self) -> Vec<UnitPlace> {
        let mut places = self.places();
        places.retain(|place| self.takes_files(&place.volume));
        places
    }
}
