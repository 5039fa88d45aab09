//! What the threads of a disk carry out.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Stack of a worker: its calls are shallow.
pub(super) const STACK_BYTES: usize = 256 * 1024;

/// Work that blocks; gives the bytes it moved.
pub(super) type Job = Box<dyn FnOnce() -> u64 + Send>;

/// Runs a job; 0 when it panicked. The panic hook reports that, and the caller that waits sees a
/// closed channel.
pub(super) fn guarded(job: Job) -> u64 {
    catch_unwind(AssertUnwindSafe(job)).unwrap_or(0)
}
