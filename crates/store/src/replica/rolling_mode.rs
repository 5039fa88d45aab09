//! Whether a rolling upgrade of a pool runs: then what is deleted goes to `trash`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use hayloft_io::locks;

use crate::volume::BlockPoolSlice;

/// What the active NameNode of a pool has said of a rolling upgrade since the process started.
#[derive(Debug, Default)]
pub struct RollingMode {
    /// One runs: what is deleted goes to `trash`.
    pub on: AtomicBool,
    /// It runs, and a volume may lack the marker.
    pub unmarked: AtomicBool,
    /// None runs, and a volume may still have the marker.
    pub marked: AtomicBool,
    /// Storages that were in the pool while it ran: its end empties their trash, also when they
    /// have left and come back. What another process left in the trash stays until then.
    storages: Mutex<HashSet<Arc<str>>>,
}

impl RollingMode {
    /// Whether deleted replicas go to `trash`.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// Those storages.
    pub fn storages(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        locks::lock(&self.storages)
    }

    /// Whether a part of a pool was there while it ran.
    #[must_use]
    pub fn has(&self, slice: &BlockPoolSlice) -> bool {
        self.storages().contains(&slice.volume.info.id)
    }
}
