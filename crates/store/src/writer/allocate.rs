//! Room that the file system allocates ahead of what is written.

use std::sync::Arc;

use super::ReplicaWriter;
use crate::replica::Status;

/// Room is reserved for replicas that have this many bytes and expect as many more.
const ALLOCATE_FROM: u64 = 1 << 20;

/// No more room than this is allocated ahead: a client may send less than it said. Longer ones grow
/// beyond it as they are written.
const ALLOCATE_MAX: u64 = 1 << 30;

/// The length to reserve room for, when the replica is expected to grow enough.
pub(super) fn worth_allocating(status: &Status) -> Option<u64> {
    let ahead = status.expected_len.saturating_sub(status.bytes_on_disk);
    let most = status.bytes_on_disk.saturating_add(ALLOCATE_MAX);
    (ahead >= ALLOCATE_FROM).then_some(status.expected_len.min(most))
}

impl ReplicaWriter {
    /// Has the file system reserve room for the length that the replica is expected to reach, in
    /// the background: its extents become few and long. Small replicas are spared the trouble. The
    /// length of the file does not change: a crash leaves none that is longer than its data. What
    /// is not used is given back when the replica is finalized.
    pub(super) fn allocate_ahead(&mut self) {
        if !self.to_allocate || self.bytes_on_disk() < ALLOCATE_FROM {
            return;
        }
        self.to_allocate = false;
        let Some(whole) = worth_allocating(&self.live.status()) else {
            return;
        };
        let (data, live) = (Arc::clone(&self.data), Arc::clone(&self.live));
        // The next writer of the replica does not meet it.
        let writer_lock = Arc::clone(&self.writer_lock);
        self.allocating = Some(self.store.tasks.spawn_here(async move {
            let _writer_lock = writer_lock;
            // Without it the file grows as it is written.
            if data.allocate(whole).await.is_ok() {
                live.note_allocated(whole);
            }
        }));
    }

    /// Nothing is being allocated any more.
    pub(super) async fn allocated(&mut self) {
        if let Some(allocating) = self.allocating.take() {
            // It only ends early when the process does.
            let _ = allocating.await;
        }
    }
}
