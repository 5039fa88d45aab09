//! All replicas of a pool by block id: sharded, a few dozen bytes for a finalized one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hayloft_io::locks;
use hayloft_wire::ids::{Block, ReplicaState};

use super::cached::{CachedReplicas, Uncached};
use super::finalized::FinalReplica;
use super::kept_open::{Forgotten, OpenFiles, OpenReplicas};
use super::live::{LiveReplica, ReplicaDir};
use super::locked_memory::LockedRoom;
use super::memory_counts::LazyPersist;
use super::memory_replicas::{MemoryReplicas, Now};
use super::watched::{ReplicaMarks, WatchedReplicas};

/// Number of shards: enough that writers on all cores seldom meet.
const SHARDS: usize = 64;

/// What the map holds of a block.
#[derive(Clone, Debug)]
pub enum Slot {
    /// Complete.
    Finalized(FinalReplica),
    /// Being written, copied, recovered, or waiting for recovery.
    Live(Arc<LiveReplica>),
}

impl Slot {
    /// Number of the volume.
    #[must_use]
    pub fn volume(&self) -> u16 {
        match self {
            Self::Finalized(r) => r.volume,
            Self::Live(r) => r.slice.volume.index,
        }
    }

    /// Id, generation stamp and length; `id` is that of the block.
    #[must_use]
    pub fn block(&self, id: i64) -> Block {
        match self {
            Self::Finalized(r) => Block::new(id, r.generation_stamp, r.len),
            Self::Live(live) => live.block(),
        }
    }

    /// What the replica is.
    #[must_use]
    pub fn state(&self) -> ReplicaState {
        match self {
            Self::Finalized(_) => ReplicaState::Finalized,
            Self::Live(r) => r.status().state,
        }
    }

    /// The complete replica that it is, or was before an append that has brought no byte yet.
    #[must_use]
    pub fn complete(&self) -> Option<FinalReplica> {
        match self {
            Self::Finalized(replica) => Some(*replica),
            Self::Live(live) => live.before_append(),
        }
    }

    /// The directory that its files are in.
    #[must_use]
    pub fn place(&self) -> ReplicaDir {
        match self {
            Self::Finalized(_) => ReplicaDir::Finalized,
            Self::Live(r) => r.status().place,
        }
    }

    fn now(&self) -> Now {
        Now {
            volume: self.volume(),
            finalized: match self {
                Self::Finalized(replica) => Some(*replica),
                Self::Live(_) => None,
            },
        }
    }

    /// Whether both say the same of a block.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Finalized(one), Self::Finalized(other)) => one == other,
            (Self::Live(one), Self::Live(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// Block ids are given out one after the other by the NameNode: a multiplication spreads them.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_i64(i64::from(*b));
        }
    }

    fn write_i64(&mut self, id: i64) {
        let mixed = (self.0 ^ id.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

/// What is let go of when a block changes. To be dropped where no lock is held.
#[derive(Debug)]
struct LetGo {
    _open: Forgotten,
    _cached: Uncached,
    _room: Option<LockedRoom>,
}

/// What was known of a block before. To be dropped where no lock is held: that may close files.
#[derive(Debug)]
pub struct Replaced {
    _files: LetGo,
    _slot: Option<Slot>,
}

/// A replica that is no longer known. To be dropped where no lock is held: that may close files.
#[derive(Debug)]
pub struct Gone {
    /// Block id.
    pub id: i64,
    /// What was known of it.
    pub slot: Slot,
    _files: LetGo,
}

type Shard = HashMap<i64, Slot, BuildHasherDefault<IdHasher>>;

/// The replicas of one pool. Locks are per shard and held only for map operations.
#[derive(Debug)]
pub struct ReplicaMap {
    shards: Box<[Mutex<Shard>]>,
    /// Files of finalized replicas. Whatever changes a block forgets them before its shard is
    /// unlocked.
    open: OpenReplicas,
    /// Which of them other processes read; the same holds for these.
    watched: WatchedReplicas,
    watches: AtomicU64,
    /// Which of them are locked in memory; the same holds for these.
    pub(super) cached: CachedReplicas,
    /// Those on `RAM_DISK` volumes, with their second copies.
    pub(crate) in_memory: MemoryReplicas,
}

impl ReplicaMap {
    /// Empty.
    #[must_use]
    pub(crate) fn new(lazy: Arc<LazyPersist>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            open: OpenReplicas::default(),
            watched: WatchedReplicas::default(),
            watches: AtomicU64::new(0),
            cached: CachedReplicas::default(),
            in_memory: MemoryReplicas::new(lazy),
        }
    }

    pub(super) fn shard(&self, id: i64) -> MutexGuard<'_, Shard> {
        // Other bits than those that choose the bucket inside the shard.
        let n = usize::try_from((id ^ (id >> 8)).rem_euclid(64)).expect("below 64");
        locks::lock(&self.shards[n])
    }

    /// What is known of a block.
    #[must_use]
    pub fn get(&self, id: i64) -> Option<Slot> {
        self.shard(id).get(&id).cloned()
    }

    /// Sets what is known of a block; gives back what was, whose files are closed when that is
    /// dropped.
    pub(crate) fn insert(&self, id: i64, slot: Slot) -> Replaced {
        let mut shard = self.shard(id);
        Replaced {
            _files: self.forget(id, Some(&slot)),
            _slot: shard.insert(id, slot),
        }
    }

    /// Adds a block unless it is there, in which case that is given back.
    pub(crate) fn insert_new(&self, id: i64, slot: Slot) -> Result<(), Slot> {
        match self.shard(id).entry(id) {
            std::collections::hash_map::Entry::Occupied(there) => Err(there.get().clone()),
            std::collections::hash_map::Entry::Vacant(free) => {
                let slot = free.insert(slot);
                drop(self.in_memory.changed(id, Some(slot.now())));
                Ok(())
            }
        }
    }

    /// As [`insert`](Self::insert) while the map still says `there` of the block; otherwise it
    /// stays as it is, and this is `None`.
    pub(crate) fn replace_if(&self, id: i64, there: &Slot, slot: Slot) -> Option<Replaced> {
        let mut shard = self.shard(id);
        let now = shard.get_mut(&id).filter(|now| now.is_same(there))?;
        let slot = std::mem::replace(now, slot);
        Some(Replaced {
            _files: self.forget(id, Some(now)),
            _slot: Some(slot),
        })
    }

    /// Forgets a block.
    pub(crate) fn remove(&self, id: i64) -> Option<Slot> {
        let (_files, slot) = {
            let mut shard = self.shard(id);
            (self.forget(id, None), shard.remove(&id))
        };
        slot
    }

    /// The files of this finalized replica, when they are open. A reader asks for them.
    pub(crate) fn open_files(&self, id: i64, replica: &FinalReplica) -> Option<OpenFiles> {
        self.in_memory.touch(id, replica.volume);
        self.open.find(id, replica)
    }

    /// Keeps the files of a finalized replica open for later readers, unless it has changed
    /// meanwhile.
    pub(crate) fn keep_open(&self, id: i64, replica: FinalReplica, files: OpenFiles) {
        let shard = self.shard(id);
        let unchanged = matches!(shard.get(&id), Some(Slot::Finalized(now)) if *now == replica);
        let _forgotten = unchanged.then(|| self.open.keep(id, replica, files));
        drop(shard);
    }

    /// Closes the files of replicas that no reader has asked for since `idle`.
    pub(crate) fn close_idle(&self, idle: Duration) {
        drop(self.open.forget_idle(idle));
    }

    /// How many replicas are kept open.
    #[cfg(test)]
    pub(crate) fn kept_open(&self) -> usize {
        self.open.len()
    }

    /// Whether the block is exactly this finalized replica by now.
    #[must_use]
    pub fn is_finalized(&self, id: i64, replica: &FinalReplica) -> bool {
        matches!(self.shard(id).get(&id), Some(Slot::Finalized(now)) if now == replica)
    }

    /// Forgets a block while the map still says `there` of it; whether it did.
    pub(crate) fn remove_if(&self, id: i64, there: &Slot) -> bool {
        let _gone = {
            let mut shard = self.shard(id);
            if !shard.get(&id).is_some_and(|now| now.is_same(there)) {
                return false;
            }
            (self.forget(id, None), shard.remove(&id))
        };
        true
    }

    /// Whether the block is `live` and nothing else by now.
    #[must_use]
    pub(crate) fn is_live(&self, live: &Arc<LiveReplica>) -> bool {
        let shard = self.shard(live.id);
        matches!(shard.get(&live.id), Some(Slot::Live(there)) if Arc::ptr_eq(there, live))
    }

    /// A block changes to `now`: its shard is locked.
    fn forget(&self, id: i64, now: Option<&Slot>) -> LetGo {
        self.watched.clear(id);
        LetGo {
            _open: self.open.forget(id),
            _cached: self.cached.forget(id),
            _room: self.in_memory.changed(id, now.map(Slot::now)),
        }
    }

    /// The next change of the block clears the marks. Gives the number of the watch.
    pub(crate) fn watch(&self, id: i64, marks: ReplicaMarks) -> u64 {
        let number = self.watches.fetch_add(1, Ordering::Relaxed);
        let _shard = self.shard(id);
        match self.cached.is_cached(id) {
            true => marks.anchorable.set(),
            false => marks.anchorable.clear(),
        }
        self.watched.add(id, number, marks);
        number
    }

    /// The replicas that are watched.
    pub(crate) fn watched(&self) -> &WatchedReplicas {
        &self.watched
    }

    /// Forgets every block for which `keep` is false and gives those back.
    pub(crate) fn retain(&self, mut keep: impl FnMut(i64, &Slot) -> bool) -> Vec<Gone> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = locks::lock(shard);
            let gone = shard.extract_if(|id, slot| !keep(*id, slot));
            all.extend(gone.map(|(id, slot)| Gone {
                id,
                slot,
                _files: self.forget(id, None),
            }));
        }
        all
    }

    /// Looks at every block, shard by shard. `look` must not touch the map.
    pub fn for_each(&self, mut look: impl FnMut(i64, &Slot)) {
        for shard in &self.shards {
            let shard = locks::lock(shard);
            for (id, slot) in shard.iter() {
                look(*id, slot);
            }
        }
    }

    /// Makes room for `more` blocks.
    pub(crate) fn reserve(&self, more: usize) {
        for shard in &self.shards {
            locks::lock(shard).reserve(more / SHARDS + 1);
        }
    }

    /// How many blocks.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|s| locks::lock(s).len()).sum()
    }
}

#[cfg(test)]
mod tests;
