//! How many deletes a volume keeps waiting.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Replicas of one volume that may wait for their deletion, 24 bytes each. The NameNode orders at
/// most 1000 a heartbeat by default: this is more than six minutes of it.
const WAITING_MAX: usize = if cfg!(test) { 64 } else { 128 * 1024 };
/// Replicas of one volume that are put out of the way at the same time.
pub const AT_ONCE: usize = 8;

/// The deletes that NameNodes have ordered of one volume and that are not done.
#[derive(Debug)]
pub struct Invalidations {
    waiting: Semaphore,
    /// Those that are put out of the way now.
    pub at_once: Semaphore,
}

impl Invalidations {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self {
            waiting: Semaphore::new(WAITING_MAX),
            at_once: Semaphore::new(AT_ONCE),
        }
    }

    /// Replicas whose deletion was ordered and is not done.
    #[must_use]
    pub fn waiting(&self) -> usize {
        WAITING_MAX.saturating_sub(self.waiting.available_permits())
    }

    /// Room for some of `wanted` replicas to wait, as many as there is room for.
    pub fn room(&self, wanted: usize) -> (usize, Option<SemaphorePermit<'_>>) {
        let fits = wanted.min(self.waiting.available_permits());
        let permits = u32::try_from(fits).unwrap_or(u32::MAX);
        match self.waiting.try_acquire_many(permits) {
            Ok(permit) => (fits, Some(permit)),
            // Another order took the room in between.
            Err(_) => (0, None),
        }
    }
}
