//! Room that is promised to a replica.

use std::sync::Arc;

use super::Volume;

/// Room reserved on a volume. What is not handed on is given back, after a panic too.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    volume: Arc<Volume>,
    bytes: u64,
}

impl Reservation {
    /// Reserves `bytes`.
    pub fn new(volume: &Arc<Volume>, bytes: u64) -> Self {
        volume.reserve_for_replica(bytes);
        Self::taken(volume, bytes)
    }

    /// Looks after `bytes` that are reserved already.
    pub(crate) fn taken(volume: &Arc<Volume>, bytes: u64) -> Self {
        Self {
            volume: Arc::clone(volume),
            bytes,
        }
    }

    /// Leaves them to another one that gives them back; how many they are.
    pub(crate) fn hand_on(mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.volume.release_reserved(self.bytes);
    }
}
