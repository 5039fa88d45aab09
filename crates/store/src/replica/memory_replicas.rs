//! Replicas of a pool on `RAM_DISK` volumes: their room in the budget of locked memory, when each
//! was used last, and which of them have a second copy on a disk.
//!
//! A second copy lies in `lazypersist` of its volume and is in no other map. Whatever changes what
//! is known of the block makes it stale, under the lock of the replica map. A stale copy waits
//! until a task has the right to the block: then its files go, or they are taken for the replica
//! when memory has lost that.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hayloft_io::locks;

use super::finalized::FinalReplica;
use super::locked_memory::LockedRoom;
use super::memory_counts::LazyPersist;

/// Gives each use of a replica a number, whichever pool or store it is of.
static USES: AtomicU64 = AtomicU64::new(0);

fn next_use() -> u64 {
    USES.fetch_add(1, Ordering::Relaxed)
}

fn mark_of(volume: u16) -> u64 {
    1 << (volume % 64)
}

/// The replicas of a pool on `RAM_DISK` volumes, by block id.
#[derive(Debug)]
pub(crate) struct MemoryReplicas {
    all: Arc<LazyPersist>,
    /// The pool has had a `RAM_DISK` volume: without one nothing is looked at.
    active: AtomicBool,
    /// Of the numbers of these volumes, the last six bits: reads of others take no lock.
    marks: AtomicU64,
    replicas: Mutex<Replicas>,
}

#[derive(Debug, Default)]
struct Replicas {
    /// Numbers of the `RAM_DISK` volumes.
    volumes: HashSet<u16>,
    by_id: HashMap<i64, Entry>,
    /// Finalized ones without second copy, by the number of their first use.
    waiting: BTreeSet<(u64, i64)>,
    /// Those with one, by the number of their last use.
    persisted: BTreeSet<(u64, i64)>,
    /// Copies that are no longer those of their replicas.
    stale: HashMap<i64, Vec<FinalReplica>>,
}

#[derive(Debug)]
struct Entry {
    room: Option<LockedRoom>,
    /// When it was finalized.
    since: Instant,
    first_use: u64,
    last_use: u64,
    was_read: bool,
    /// Its bytes were counted as written.
    was_counted: bool,
    /// What the map has, once it is finalized.
    replica: Option<FinalReplica>,
    /// Its second copy: the volume is that of the copy.
    copy: Option<FinalReplica>,
}

/// What a block is from here on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Number of the volume of its replica.
    pub volume: u16,
    /// The replica, when it is finalized.
    pub finalized: Option<FinalReplica>,
}

/// A replica that has a second copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Persisted {
    /// As the map has it.
    pub replica: FinalReplica,
    /// On the volume of the copy.
    pub copy: FinalReplica,
    /// How long it has been in memory.
    pub age: Duration,
    /// A reader has asked for it.
    pub was_read: bool,
}

impl Entry {
    fn new(room: Option<LockedRoom>) -> Self {
        Self {
            room,
            since: Instant::now(),
            first_use: 0,
            last_use: 0,
            was_read: false,
            was_counted: false,
            replica: None,
            copy: None,
        }
    }
}

impl Replicas {
    /// Takes an entry out of the two orders, and its copy away.
    fn unlist(&mut self, id: i64) -> Option<FinalReplica> {
        let entry = self.by_id.get_mut(&id)?;
        self.waiting.remove(&(entry.first_use, id));
        self.persisted.remove(&(entry.last_use, id));
        entry.copy.take()
    }

    fn make_stale(&mut self, id: i64, copy: FinalReplica) {
        self.stale.entry(id).or_default().push(copy);
    }

    /// What is known of a replica that has a second copy.
    fn persisted(&self, id: i64) -> Option<Persisted> {
        let entry = self.by_id.get(&id)?;
        Some(Persisted {
            replica: entry.replica?,
            copy: entry.copy?,
            age: entry.since.elapsed(),
            was_read: entry.was_read,
        })
    }

    /// Its copy is gone or taken: it waits for another one.
    fn wait_again(&mut self, id: i64) {
        self.unlist(id);
        if let Some(entry) = self.by_id.get(&id)
            && entry.replica.is_some()
        {
            self.waiting.insert((entry.first_use, id));
        }
    }
}

impl MemoryReplicas {
    /// None. What is done is counted in `all`.
    pub fn new(all: Arc<LazyPersist>) -> Self {
        Self {
            all,
            active: AtomicBool::new(false),
            marks: AtomicU64::new(0),
            replicas: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Replicas> {
        locks::lock(&self.replicas)
    }

    /// Whether the pool has had a `RAM_DISK` volume.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// A `RAM_DISK` volume joins.
    pub fn volume_joins(&self, volume: u16) {
        self.lock().volumes.insert(volume);
        self.marks.fetch_or(mark_of(volume), Ordering::Relaxed);
        self.active.store(true, Ordering::Relaxed);
    }

    /// A volume has left, and with it the second copies on it.
    pub fn volume_left(&self, volume: u16) {
        if !self.is_active() {
            return;
        }
        let mut replicas = self.lock();
        replicas.volumes.remove(&volume);
        replicas.stale.retain(|_, copies| {
            copies.retain(|copy| copy.volume != volume);
            !copies.is_empty()
        });
        let there = |entry: &Entry| entry.copy.is_some_and(|copy| copy.volume == volume);
        let lost = replicas.by_id.iter().filter(|(_, entry)| there(entry));
        let lost: Vec<i64> = lost.map(|(id, _)| *id).collect();
        for id in lost {
            replicas.wait_again(id);
        }
    }

    /// A new replica is about to be written to memory, in this room.
    pub fn begin(&self, id: i64, room: LockedRoom) {
        self.lock().by_id.insert(id, Entry::new(Some(room)));
    }

    /// No memory took a new replica.
    pub fn abandon(&self, id: i64) {
        drop(self.lock().by_id.remove(&id));
    }

    /// Finalized replicas that have no room of the budget, with their lengths: an earlier process
    /// left them.
    pub fn without_room(&self) -> Vec<(i64, u64)> {
        if !self.is_active() {
            return Vec::new();
        }
        let replicas = self.lock();
        let lacking = replicas.by_id.iter().filter(|(_, e)| e.room.is_none());
        lacking
            .filter_map(|(id, entry)| Some((*id, entry.replica?.len)))
            .collect()
    }

    /// Bytes of whole pages that a replica lacks which is to become so long. None is missing where
    /// it is no replica in memory.
    pub fn missing_room(&self, id: i64, len: u64) -> u64 {
        let replicas = self.lock();
        let room = replicas.by_id.get(&id).and_then(|e| e.room.as_ref());
        room.map_or(0, |room| room.missing_for(len))
    }

    /// More room for a replica. It is given back where the replica has left.
    pub fn add_room(&self, id: i64, more: LockedRoom) -> Option<LockedRoom> {
        let mut replicas = self.lock();
        match replicas.by_id.get_mut(&id).and_then(|e| e.room.as_mut()) {
            Some(room) => {
                room.absorb(more);
                None
            }
            None => Some(more),
        }
    }

    /// The writer of a replica of so many bytes has ended: the replica keeps room for these.
    pub fn shrink_room(&self, id: i64, bytes: u64) {
        let mut replicas = self.lock();
        let room = replicas.by_id.get_mut(&id).and_then(|e| e.room.as_mut());
        if let Some(room) = room {
            room.shrink_to(bytes);
        }
    }

    /// Gives a replica its room. It is given back when it needs none.
    pub fn give_room(&self, id: i64, room: LockedRoom) -> Option<LockedRoom> {
        let mut replicas = self.lock();
        match replicas.by_id.get_mut(&id) {
            Some(entry) if entry.room.is_none() => entry.room.replace(room),
            _ => Some(room),
        }
    }

    /// The block changes to what is given. Called under the lock of its shard; what is given back
    /// is to be dropped without.
    ///
    /// While a replica is written or recovered its copy is kept: what comes of it may be what it
    /// was.
    pub fn changed(&self, id: i64, now: Option<Now>) -> Option<LockedRoom> {
        if !self.is_active() {
            return None;
        }
        let mut replicas = self.lock();
        let now = now.filter(|now| replicas.volumes.contains(&now.volume));
        let finalized = now.and_then(|now| now.finalized);
        let known = replicas.by_id.get(&id);
        if finalized.is_some() && known.and_then(|entry| entry.replica) == finalized {
            return None;
        }
        let copy = replicas.unlist(id);
        if now.is_none() {
            if let Some(copy) = copy {
                replicas.make_stale(id, copy);
                self.all.wake.notify_one();
            }
            return replicas.by_id.remove(&id).and_then(|entry| entry.room);
        }
        let entry = replicas.by_id.entry(id).or_insert_with(|| Entry::new(None));
        entry.replica = finalized;
        let Some(replica) = finalized else {
            entry.copy = copy;
            return None;
        };
        if let Some(room) = &mut entry.room {
            room.shrink_to(replica.len);
        }
        if entry.room.is_none() {
            self.all.wake.notify_one();
        } else if !std::mem::replace(&mut entry.was_counted, true) {
            self.all.counts.bytes_written(replica.len);
        }
        let number = next_use();
        (entry.first_use, entry.last_use) = (number, number);
        let is_of = |copy: &FinalReplica| {
            (copy.generation_stamp, copy.len) == (replica.generation_stamp, replica.len)
        };
        match copy {
            Some(copy) if is_of(&copy) => {
                entry.copy = Some(copy);
                replicas.persisted.insert((number, id));
            }
            stale => {
                (entry.since, entry.was_read) = (Instant::now(), false);
                replicas.waiting.insert((number, id));
                if let Some(copy) = stale {
                    replicas.make_stale(id, copy);
                    self.all.wake.notify_one();
                }
            }
        }
        None
    }

    /// Replicas without second copy, the oldest first, at most `max`.
    pub fn waiting(&self, max: usize) -> Vec<i64> {
        if !self.is_active() {
            return Vec::new();
        }
        let replicas = self.lock();
        replicas
            .waiting
            .iter()
            .take(max)
            .map(|(_, id)| *id)
            .collect()
    }

    /// A finalized replica without second copy, and how long it has been there.
    pub fn unpersisted(&self, id: i64) -> Option<(FinalReplica, Duration)> {
        if !self.is_active() {
            return None;
        }
        let replicas = self.lock();
        let entry = replicas.by_id.get(&id).filter(|e| e.copy.is_none())?;
        Some((entry.replica?, entry.since.elapsed()))
    }

    /// `replica` has a second copy; whether that counts, because it has not changed meanwhile.
    pub fn persist(&self, id: i64, replica: &FinalReplica, copy: FinalReplica) -> bool {
        let mut replicas = self.lock();
        let Some(entry) = replicas.by_id.get(&id) else {
            return false;
        };
        if entry.replica != Some(*replica) || entry.copy.is_some() {
            return false;
        }
        replicas.unlist(id);
        let Some(entry) = replicas.by_id.get_mut(&id) else {
            return false;
        };
        entry.copy = Some(copy);
        let listed = (entry.last_use, id);
        replicas.persisted.insert(listed);
        true
    }

    /// A reader asks for a replica of a volume.
    pub fn touch(&self, id: i64, volume: u16) {
        if self.marks.load(Ordering::Relaxed) & mark_of(volume) == 0 {
            return;
        }
        let mut replicas = self.lock();
        let Some(entry) = replicas.by_id.get_mut(&id) else {
            return;
        };
        let before = (entry.last_use, id);
        entry.was_read = true;
        entry.last_use = next_use();
        let now = (entry.last_use, id);
        if replicas.persisted.remove(&before) {
            replicas.persisted.insert(now);
        }
        self.all.counts.read_hit();
    }

    /// The replica with a second copy that was used longest ago, with the number of that use.
    pub fn least_recent(&self) -> Option<(u64, i64)> {
        if !self.is_active() {
            return None;
        }
        self.lock().persisted.first().copied()
    }

    /// A replica that has a second copy.
    pub fn persisted(&self, id: i64) -> Option<Persisted> {
        self.is_active().then(|| self.lock().persisted(id))?
    }

    /// Takes the second copy of a replica, whose files are the caller's from here on. The replica
    /// waits for another one. Where it gets this one back, others leave memory before it: it could
    /// not.
    pub fn take_copy(&self, id: i64) -> Option<Persisted> {
        let mut replicas = self.lock();
        let persisted = replicas.persisted(id)?;
        replicas.wait_again(id);
        if let Some(entry) = replicas.by_id.get_mut(&id) {
            entry.last_use = next_use();
        }
        Some(persisted)
    }

    /// Whether a block has copies that are no longer those of its replica.
    pub fn has_stale(&self, id: i64) -> bool {
        self.is_active() && self.lock().stale.contains_key(&id)
    }

    /// A copy was made of a replica that is not there any more.
    pub fn keep_stale(&self, id: i64, copy: FinalReplica) {
        self.lock().make_stale(id, copy);
    }

    /// Takes those of a block.
    pub fn take_stale(&self, id: i64) -> Vec<FinalReplica> {
        if !self.is_active() {
            return Vec::new();
        }
        self.lock().stale.remove(&id).unwrap_or_default()
    }

    /// The blocks that have such copies, by the number of the volume.
    pub fn stale_by_volume(&self) -> HashMap<u16, Vec<i64>> {
        let mut ids: HashMap<u16, Vec<i64>> = HashMap::new();
        if self.is_active() {
            for (id, copies) in &self.lock().stale {
                for copy in copies {
                    ids.entry(copy.volume).or_default().push(*id);
                }
            }
        }
        ids
    }

    /// Whether second copies lie on a volume.
    pub fn has_copies_on(&self, volume: u16) -> bool {
        if !self.is_active() {
            return false;
        }
        let replicas = self.lock();
        let copies = replicas.by_id.values().filter_map(|entry| entry.copy);
        let stale = replicas.stale.values().flatten().copied();
        copies.chain(stale).any(|copy| copy.volume == volume)
    }
}

#[cfg(test)]
mod tests;
