//! Volumes that take no files of groups, or give no answer: they are left out for a while, and
//! tried again after growing pauses. Work goes on beside them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hayloft_io::locks;
use hayloft_store::inside::{StoreState, Volume};
use tracing::{debug, info, warn};

use super::Parity;

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
    pub(super) fn note_hang(&self, store: &StoreState, volume: &Volume) {
        let s = self.answer.as_secs();
        let reason = format!("its disk gave no answer for {s} s");
        self.note_trouble(store, volume, &reason, true);
    }

    /// A volume is left out from now on, for `reason`; one that `hangs` is not read either.
    pub(super) fn note_trouble(
        &self,
        store: &StoreState,
        volume: &Volume,
        reason: &str,
        hangs: bool,
    ) {
        if volume.is_failed() || store.stop.is_cancelled() {
            return;
        }
        let (storage, volume) = (&volume.info.id, volume.root.display());
        let now = Instant::now();
        let mut troubles = self.left_out();
        let known = troubles.0.get(storage);
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
        troubles.0.insert(Arc::clone(storage), trouble);
        troubles.1 += 1;
    }

    /// Whether a volume was left out and is to be tried again.
    pub(super) fn is_due(&self, volume: &Volume) -> bool {
        let troubles = self.left_out();
        let trouble = troubles.0.get(&volume.info.id);
        trouble.is_some_and(|trouble| !trouble.over && trouble.until <= Instant::now())
    }

    /// A small file could be written to a volume.
    pub(super) fn note_over(&self, volume: &Volume) {
        if let Some(trouble) = self.left_out().0.get_mut(&volume.info.id) {
            trouble.over = true;
        }
    }
}

impl Parity {
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

    /// All are tried again.
    #[cfg(test)]
    pub(crate) fn forgive_volumes(&self) {
        for trouble in self.troubles.left_out().0.values_mut() {
            trouble.until = Instant::now();
        }
        self.clean_soon();
    }
}
