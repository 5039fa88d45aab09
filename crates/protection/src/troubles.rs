//! Volumes that take no files of groups, or give no answer: they are left out for a while, and
//! tried again after growing pauses. Work goes on beside them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hayloft_io::IoError;
use hayloft_io::locks;
use hayloft_parity::PARITY_DIR;
use hayloft_store::inside::{DIR_MODE, FILE_MODE, Volume};
use hayloft_store::{StoreError, StoreErrorKind};
use tracing::{debug, info, warn};

use super::volumes::{UnitPlace, answer};
use super::{ENCODING, Parity};

/// The first pause.
const PAUSE_MIN: Duration = Duration::from_secs(30);
/// Each is twice as long as the one before, up to this.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Why a volume is left out.
#[derive(Clone, Debug)]
struct Trouble {
    /// In words.
    reason: String,
    /// It is not read either.
    hangs: bool,
    /// A small file could be written there since.
    over: bool,
    pause: Duration,
    until: Instant,
}

/// The volumes that are left out, by storage, and how many times one was.
#[derive(Debug, Default)]
struct LeftOut(HashMap<Arc<str>, Trouble>, u64);

/// The volumes that are left out.
#[derive(Debug)]
pub struct Troubles {
    /// A volume that gives no answer for so long is left out.
    pub answer: Duration,
    left_out: Mutex<LeftOut>,
}

impl Troubles {
    /// None so far.
    pub fn new(answer: Duration) -> Self {
        Self {
            answer,
            left_out: Mutex::default(),
        }
    }

    fn left_out(&self) -> MutexGuard<'_, LeftOut> {
        locks::lock(&self.left_out)
    }

    /// A volume gives no answer: it is left alone for a while.
    pub(super) fn note_hang(&self, place: &UnitPlace) {
        let s = self.answer.as_secs();
        self.note_trouble(place, &format!("its disk gave no answer for {s} s"), true);
    }

    fn note_trouble(&self, place: &UnitPlace, reason: &str, hangs: bool) {
        if place.volume.is_failed() || place.store.stop.is_cancelled() {
            return;
        }
        let volume = place.volume.root.display();
        let now = Instant::now();
        let mut troubles = self.left_out();
        let known = troubles.0.get(&place.volume.info.id);
        let left_out = known.filter(|known| !known.over && known.until > now);
        if left_out.is_some_and(|known| known.hangs >= hangs) {
            // Work that had begun before.
            return;
        }
        let pause = known.map_or(PAUSE_MIN, |known| (known.pause * 2).min(PAUSE_MAX));
        if known.is_some_and(|known| known.reason == reason) {
            debug!(%volume, reason, ?pause, "a volume still takes no files of parity groups");
        } else {
            warn!(%volume, reason, "a volume takes no files of parity groups: they go to others, \
                and it is tried again from time to time");
        }
        let trouble = Trouble {
            reason: reason.to_owned(),
            hangs,
            over: false,
            pause,
            until: now + pause,
        };
        troubles
            .0
            .insert(Arc::clone(&place.volume.info.id), trouble);
        troubles.1 += 1;
    }
}

impl Parity {
    /// A file of a group could not be written or removed on a volume: it gets none for a while.
    pub(super) fn note_refusal(&self, place: &UnitPlace, error: &StoreError) {
        // What the process lacks says nothing of the volume.
        if error.kind() == StoreErrorKind::Retry {
            return;
        }
        let reason = error.to_string();
        self.troubles.note_trouble(place, &reason, false);
    }

    /// How many times a volume was left out.
    pub(super) fn refusals(&self) -> u64 {
        self.troubles.left_out().1
    }

    /// All files of a group were written to a volume.
    pub(super) fn note_taken(&self, volume: &Volume) {
        let known = self.troubles.left_out().0.remove(&volume.info.id);
        if known.is_some_and(|known| !known.over) {
            info!(volume = %volume.root.display(), "a volume takes files of parity groups again");
        }
    }

    /// Tries whether volumes that were left out take files again.
    pub(super) async fn try_again(&self) {
        let mut places = self.places();
        places.retain(|place| {
            let troubles = self.troubles.left_out();
            let trouble = troubles.0.get(&place.volume.info.id);
            trouble.is_some_and(|trouble| !trouble.over && trouble.until <= Instant::now())
        });
        let tries = places.iter().map(|place| self.try_to_write(place));
        let tries = futures_util::future::join_all(tries).await;
        for (place, tried) in places.iter().zip(tries) {
            if let Err(error) = tried {
                self.refused(place, "writing to the directory of parity groups", error);
                continue;
            }
            if let Some(trouble) = self.troubles.left_out().0.get_mut(&place.volume.info.id) {
                trouble.over = true;
            }
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

    /// Whether files of groups may go to a volume now.
    pub(super) fn takes_files(&self, volume: &Volume) -> bool {
        let troubles = self.troubles.left_out();
        let trouble = troubles.0.get(&volume.info.id);
        trouble.is_none_or(|trouble| trouble.over || trouble.until <= Instant::now())
    }

    /// Whether a volume may be read without waiting for long.
    pub(super) fn answers(&self, volume: &Volume) -> bool {
        let troubles = self.troubles.left_out();
        let trouble = troubles.0.get(&volume.info.id);
        let left_out = |trouble: &Trouble| !trouble.over && trouble.until > Instant::now();
        trouble.is_none_or(|trouble| !trouble.hangs || !left_out(trouble))
    }

    /// Why a volume is left out, if it is.
    pub(super) fn refuses(&self, storage: &str) -> Option<String> {
        let troubles = self.troubles.left_out();
        let trouble = troubles.0.get(storage).filter(|trouble| !trouble.over);
        trouble.map(|trouble| trouble.reason.clone())
    }

    /// Volumes that files of groups may go to.
    pub(super) fn usable_places(&self) -> Vec<UnitPlace> {
        let mut places = self.places();
        places.retain(|place| self.takes_files(&place.volume));
        places
    }

    /// All are tried again.
    #[cfg(test)]
    pub(crate) fn forgive_volumes(&self) {
        for trouble in self.troubles.left_out().0.values_mut() {
            trouble.until = Instant::now();
        }
        self.clean_soon();
    }
}
