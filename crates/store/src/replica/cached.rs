//! Replicas of a pool that are cached, or about to be: which of them a NameNode may hear of.
//!
//! Whatever changes what is known of a block takes its entry away, under the lock of the replica
//! map. So nothing is locked for a replica that is not as it was when it was verified, and none is
//! reported that another task has changed meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use hayloft_io::locks;

use super::finalized::FinalReplica;
use super::locked_memory::{LockedReplica, LockedRoom};

/// How far a replica is on its way into memory, or out of it.
#[derive(Debug)]
enum Stage {
    /// It waits for its volume, with its room.
    Waiting(LockedRoom),
    /// It is being locked and verified.
    Loading,
    /// It is cached.
    Cached(LockedReplica),
    /// It is to be uncached, and readers rely on it still.
    Leaving(LockedReplica),
}

/// What an order to cache finds of a block that has an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is cached, or on its way.
    AsItIs,
    /// It was to leave, and is cached again.
    Again,
}

#[derive(Debug)]
struct Entry {
    /// Tells it from an earlier or later one of the same block.
    number: u64,
    stage: Stage,
}

/// What was locked, or was to be, for a block. To be dropped where no lock is held: it gives much
/// memory back.
#[derive(Debug, Default)]
pub(crate) struct Uncached(#[expect(dead_code, reason = "held, not used")] Option<Stage>);

/// What comes of an order to uncache a block.
#[derive(Debug)]
pub(crate) enum Uncaching {
    /// It was neither cached nor about to be.
    Unknown,
    /// It is not cached any more when this is dropped; of one that leaves already, this is empty.
    Done(Uncached),
    /// Readers rely on it still: the number is for [`end`](CachedReplicas::end).
    Leaving(u64),
}

/// The entries of a pool, by block id.
#[derive(Debug, Default)]
pub(crate) struct CachedReplicas {
    /// Entries below. A change of a block that overlooks a new entry is from before it: both hold
    /// the lock of the block's shard.
    count: AtomicUsize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_id: HashMap<i64, Entry>,
    numbers: u64,
    /// The pool leaves, or the store ends: orders that are still carried out begin nothing.
    closed: bool,
}

impl CachedReplicas {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        locks::lock(&self.entries)
    }

    fn take(&self, id: i64, which: impl FnOnce(&Entry) -> bool) -> Option<Stage> {
        let mut entries = self.lock();
        if !entries.by_id.get(&id).is_some_and(which) {
            return None;
        }
        let taken = entries.by_id.remove(&id);
        self.count.store(entries.by_id.len(), Ordering::Relaxed);
        taken.map(|entry| entry.stage)
    }

    /// A block is to be cached in this room. Called under the lock of its shard. Gives the number
    /// of the entry; `None` when there is one.
    pub fn begin(&self, id: i64, room: LockedRoom) -> Option<u64> {
        let mut entries = self.lock();
        if entries.closed || entries.by_id.contains_key(&id) {
            return None;
        }
        entries.numbers += 1;
        let number = entries.numbers;
        let stage = Stage::Waiting(room);
        entries.by_id.insert(id, Entry { number, stage });
        self.count.store(entries.by_id.len(), Ordering::Relaxed);
        Some(number)
    }

    /// The room of a block whose turn has come; `None` when it is not to be cached any more.
    pub fn load(&self, id: i64, number: u64) -> Option<LockedRoom> {
        let mut entries = self.lock();
        let entry = entries.by_id.get_mut(&id)?;
        if entry.number != number {
            return None;
        }
        match std::mem::replace(&mut entry.stage, Stage::Loading) {
            Stage::Waiting(room) => Some(room),
            other => {
                entry.stage = other;
                None
            }
        }
    }

    /// Whether a block is still to be cached.
    pub fn is_wanted(&self, id: i64, number: u64) -> bool {
        let entries = self.lock();
        let entry = entries.by_id.get(&id);
        entry.is_some_and(|entry| entry.number == number)
    }

    /// A block is locked and verified: it is cached, or given back when it is not to be any more.
    /// Called under the lock of its shard.
    pub fn finish(&self, id: i64, number: u64, mut locked: LockedReplica) -> Option<LockedReplica> {
        let mut entries = self.lock();
        match entries.by_id.get_mut(&id) {
            Some(entry) if entry.number == number => {
                locked.counts();
                entry.stage = Stage::Cached(locked);
                None
            }
            _ => Some(locked),
        }
    }

    /// Forgets the entry with this number.
    pub fn end(&self, id: i64, number: u64) -> Uncached {
        Uncached(self.take(id, |entry| entry.number == number))
    }

    /// A block is to be uncached; `anchored`: readers rely on what is cached of it. Called under
    /// the lock of its shard.
    pub fn uncache(&self, id: i64, anchored: impl FnOnce() -> bool) -> Uncaching {
        let mut entries = self.lock();
        let Some(entry) = entries.by_id.remove(&id) else {
            return Uncaching::Unknown;
        };
        let Entry { number, stage } = entry;
        let (back, outcome) = match stage {
            Stage::Leaving(_) => (Some(stage), Uncaching::Done(Uncached::default())),
            Stage::Cached(locked) if anchored() => {
                let stage = Stage::Leaving(locked);
                (Some(stage), Uncaching::Leaving(number))
            }
            stage => (None, Uncaching::Done(Uncached(Some(stage)))),
        };
        if let Some(stage) = back {
            entries.by_id.insert(id, Entry { number, stage });
        }
        self.count.store(entries.by_id.len(), Ordering::Relaxed);
        outcome
    }

    /// The block changes. Called under the lock of its shard.
    pub fn forget(&self, id: i64) -> Uncached {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Uncached::default();
        }
        Uncached(self.take(id, |_| true))
    }

    /// Nothing is cached any more when what is given back is dropped, and nothing will be.
    pub fn close(&self) -> Vec<Uncached> {
        let mut entries = self.lock();
        entries.closed = true;
        self.count.store(0, Ordering::Relaxed);
        let all = std::mem::take(&mut entries.by_id).into_values();
        all.map(|entry| Uncached(Some(entry.stage))).collect()
    }

    /// Whether a block is cached, and not about to leave.
    pub fn is_cached(&self, id: i64) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let entries = self.lock();
        let entry = entries.by_id.get(&id);
        entry.is_some_and(|entry| matches!(entry.stage, Stage::Cached(_)))
    }

    /// A block is to be cached that has an entry already; `None` when it has none. Called under
    /// the lock of its shard.
    pub fn keep(&self, id: i64) -> Option<Kept> {
        let mut entries = self.lock();
        let number = entries.numbers + 1;
        let entry = entries.by_id.get_mut(&id)?;
        // The number is another one: who waits for the readers of the old one does no more.
        let stage = std::mem::replace(&mut entry.stage, Stage::Loading);
        let (stage, kept) = match stage {
            Stage::Leaving(locked) => (Stage::Cached(locked), Kept::Again),
            other => (other, Kept::AsItIs),
        };
        entry.stage = stage;
        if kept == Kept::Again {
            entry.number = number;
            entries.numbers = number;
        }
        Some(kept)
    }

    /// The blocks that are cached and not about to leave, in no order.
    pub fn ids(&self) -> Vec<i64> {
        let entries = self.lock();
        let there = |entry: &Entry| matches!(entry.stage, Stage::Cached(_));
        let ids = entries.by_id.iter().filter(|(_, entry)| there(entry));
        ids.map(|(id, _)| *id).collect()
    }
}

/// A finalized replica that is to be cached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToCache {
    /// The block.
    pub id: i64,
    /// What the map had of it.
    pub replica: FinalReplica,
    /// The number of its entry.
    pub number: u64,
}
