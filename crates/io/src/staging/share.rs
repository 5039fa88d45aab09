//! How much of a file is written at a time, and how much of it may wait.

use super::file::{StagedFile, State};
use super::layout::SEGMENT_BYTES;

/// Quanta that a file may gather: one is on its way to the disk while the other fills.
pub const QUANTA: usize = 2;

impl StagedFile {
    /// The quantum: less when the budget is shared by many.
    fn quantum_now(&self) -> usize {
        let share = self.shared.fair_share();
        self.quantum.min(share).max(SEGMENT_BYTES)
    }

    /// Bytes to write in one go.
    pub(super) fn write_now(&self) -> usize {
        (self.quantum_now() / self.cuts).max(SEGMENT_BYTES)
    }

    /// Writes of the file in progress at the same time: one more than a quantum has, for the next to be there when
    /// one ends. Their order does not matter: until all have returned, what they write is in segments too.
    pub(super) fn jobs_max(&self) -> usize {
        self.cuts + 1
    }

    /// Full segments that are worth a write now, in bytes.
    pub(super) fn worth_writing(&self, state: &State) -> usize {
        let write = self.write_now();
        let free = || self.while_idle.as_ref().is_none_or(|disk| disk.is_idle());
        if state.jobs == 0 && free() {
            self.eager.min(write)
        } else {
            write
        }
    }

    /// The file has gathered what it may, and some of that is on its way to the disk: whoever brings more waits for
    /// it. Without a write in progress this is never so, hence nobody waits for what nobody does.
    pub(super) fn is_full(&self, state: &State) -> bool {
        let may = QUANTA * self.quantum_now();
        let usable = state.error.is_none() && !state.closed;
        usable && state.jobs > 0 && state.segments.len() * SEGMENT_BYTES >= may
    }

    /// Waits while the file [is full](Self::is_full).
    pub(super) async fn not_full(&self) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            if !self.is_full(&self.lock()) {
                return;
            }
            progress.await;
        }
    }
}
