//! What a store has done with replicas on `RAM_DISK` volumes, in numbers, and how its lazy writer
//! is woken.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hayloft_wire::ids::PoolId;
use tokio::sync::Notify;

/// Of one store: what its pools share.
#[derive(Debug, Default)]
pub(crate) struct LazyPersist {
    /// Second copies have become stale.
    pub wake: Notify,
    /// Held by what leaves memory for a new replica: one at a time, however many clients wait.
    pub leaving: Arc<tokio::sync::Mutex<()>>,
    /// One of them did not end in time.
    pub leaving_hangs: AtomicBool,
    /// Replicas that are being copied, with the names of their pools.
    pub copying: Mutex<HashSet<(PoolId, i64)>>,
    /// The lazy writer has begun.
    pub started: AtomicBool,
    /// What was done.
    pub counts: Counts,
}

/// Durations: how many, and how long all of them were together.
#[derive(Debug, Default)]
struct Times {
    count: AtomicU64,
    millis: AtomicU64,
}

impl Times {
    fn add(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.millis.fetch_add(millis, Ordering::Relaxed);
    }

    fn now(&self) -> (u64, u64) {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (of(&self.count), of(&self.millis))
    }
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    written: AtomicU64,
    bytes_written: AtomicU64,
    fallbacks: AtomicU64,
    read_hits: AtomicU64,
    evicted_unread: AtomicU64,
    bytes_persisted: AtomicU64,
    deleted_before: AtomicU64,
    persisted: Times,
    evicted: Times,
}

/// What was done with replicas on `RAM_DISK` volumes since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LazyPersistUse {
    /// Replicas that were placed in memory.
    pub written: u64,
    /// Bytes of those that were finalized there.
    pub bytes_written: u64,
    /// Replicas that a client wanted there and that went to disk at once.
    pub fallbacks: u64,
    /// Times that a reader was served from there.
    pub read_hits: u64,
    /// Replicas that left memory for their copy on disk.
    pub evicted: u64,
    /// How long these had been there together, milliseconds.
    pub evicted_ms: u64,
    /// Those of them that no reader had asked for.
    pub evicted_unread: u64,
    /// Replicas that were copied to disk.
    pub persisted: u64,
    /// How long these had waited for that together, milliseconds.
    pub persisted_ms: u64,
    /// Their bytes.
    pub bytes_persisted: u64,
    /// Replicas that were deleted before they were copied.
    pub deleted_before: u64,
}

impl Counts {
    /// A replica is placed in memory.
    pub fn placed(&self) {
        self.written.fetch_add(1, Ordering::Relaxed);
    }

    /// One goes to disk that should have been.
    pub fn fell_back(&self) {
        self.fallbacks.fetch_add(1, Ordering::Relaxed);
    }

    /// A replica in memory is complete.
    pub fn bytes_written(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A reader is served.
    pub fn read_hit(&self) {
        self.read_hits.fetch_add(1, Ordering::Relaxed);
    }

    /// A replica has a second copy, after so long.
    pub fn persisted(&self, bytes: u64, after: Duration) {
        self.bytes_persisted.fetch_add(bytes, Ordering::Relaxed);
        self.persisted.add(after);
    }

    /// A replica has left memory for its copy.
    pub fn evicted(&self, was_read: bool, after: Duration) {
        self.evicted_unread
            .fetch_add(u64::from(!was_read), Ordering::Relaxed);
        self.evicted.add(after);
    }

    /// A replica is deleted that has no second copy.
    pub fn deleted_before(&self) {
        self.deleted_before.fetch_add(1, Ordering::Relaxed);
    }

    /// The numbers now.
    pub fn now(&self) -> LazyPersistUse {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (persisted, persisted_ms) = self.persisted.now();
        let (evicted, evicted_ms) = self.evicted.now();
        LazyPersistUse {
            written: of(&self.written),
            bytes_written: of(&self.bytes_written),
            fallbacks: of(&self.fallbacks),
            read_hits: of(&self.read_hits),
            evicted,
            evicted_ms,
            evicted_unread: of(&self.evicted_unread),
            persisted,
            persisted_ms,
            bytes_persisted: of(&self.bytes_persisted),
            deleted_before: of(&self.deleted_before),
        }
    }
}
