//! The space of a file system, and what volumes of several virtual nodes on it may promise.
//!
//! A node of its own has a file system for each volume, as Apache's has. Virtual nodes share: room
//! that one of them has promised to a replica no other promises again. Each reports what it uses
//! and an equal part of the rest, so that their reports add up to the file system.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use hayloft_io::Space;
use hayloft_io::locks;

use super::Volume;
use super::space_told::{self, Numbers, ReservedForReplicas};
use crate::config::ReservedSpace;

/// Held while room is looked for and promised, so that no two replicas are promised the same.
pub type Promise<'a> = MutexGuard<'a, ()>;

/// The file systems that are known to the stores of a process.
#[derive(Debug, Default)]
pub struct FileSystems {
    /// `None`: every volume has one of its own.
    known: Option<Mutex<HashMap<String, Weak<FileSystemSpace>>>>,
    promises: Arc<Mutex<()>>,
}

impl FileSystems {
    /// For several stores.
    #[must_use]
    pub fn shared() -> Self {
        Self {
            known: Some(Mutex::default()),
            promises: Arc::default(),
        }
    }

    /// Whether several stores use them.
    #[must_use]
    pub fn are_shared(&self) -> bool {
        self.known.is_some()
    }

    /// The file system that goes by `name`, with `space` if it is new.
    #[must_use]
    pub fn of(&self, name: &str, space: Space) -> Arc<FileSystemSpace> {
        let new = || Arc::new(FileSystemSpace::new(self, space));
        let Some(known) = &self.known else {
            return new();
        };
        let mut known = locks::lock(known);
        if let Some(there) = known.get(name).and_then(Weak::upgrade) {
            return there;
        }
        known.retain(|_, space| space.strong_count() > 0);
        let space = new();
        known.insert(name.to_owned(), Arc::downgrade(&space));
        space
    }

    /// The right to promise room on any of them.
    pub fn promise(&self) -> Promise<'_> {
        locks::lock(&self.promises)
    }
}

/// One file system.
#[derive(Debug)]
pub struct FileSystemSpace {
    is_shared: bool,
    promises: Arc<Mutex<()>>,
    state: Mutex<SpaceState>,
}

#[derive(Debug)]
struct SpaceState {
    /// As last read.
    space: Space,
    /// The volumes on it.
    volumes: Vec<Weak<Volume>>,
}

impl SpaceState {
    fn healthy(&self) -> impl Iterator<Item = Arc<Volume>> {
        let volumes = self.volumes.iter().filter_map(Weak::upgrade);
        volumes.filter(|volume| !volume.is_failed())
    }
}

/// What all volumes on a file system have taken of it, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// By finalized replicas and those being written.
    used: u64,
    /// Used and allocated ahead when space was last read.
    used_then: u64,
    /// Reserved for replicas being written.
    reserved_for_replicas: u64,
    /// Of these, what the file system has allocated.
    allocated: u64,
    /// Kept free for others.
    reserved: u64,
    /// Volumes that have the same share of the file system.
    sharers: u64,
    /// What the others have of it: volumes of the other type, where types have shares.
    beside: TakenBeside,
}

/// What volumes of the other type have taken, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct TakenBeside {
    /// Used, or allocated ahead.
    taken: u64,
    /// Reserved for replicas and not taken yet.
    not_taken: u64,
}

impl Taken {
    fn add(&mut self, volume: &Volume, capacity: u64) {
        let waiting = volume.reserved_for_replicas.get();
        let allocated = volume.allocated.get().min(waiting);
        self.used = self.used.saturating_add(volume.used());
        self.reserved_for_replicas = self.reserved_for_replicas.saturating_add(waiting);
        self.allocated = self.allocated.saturating_add(allocated);
        self.sharers += 1;
        self.note(volume, capacity);
    }

    /// A volume that has another share.
    fn add_beside(&mut self, volume: &Volume, capacity: u64) {
        let waiting = volume.reserved_for_replicas.get();
        let not_taken = waiting.saturating_sub(volume.allocated.get());
        self.beside.taken = self.beside.taken.saturating_add(volume.taken());
        self.beside.not_taken = self.beside.not_taken.saturating_add(not_taken);
        self.note(volume, capacity);
    }

    fn note(&mut self, volume: &Volume, capacity: u64) {
        self.used_then = self.used_then.saturating_add(volume.used_then.get());
        // The space is one: what the configuration keeps free of it counts once.
        let reserved = space_told::reserved_bytes(capacity, volume.reserved);
        self.reserved = self.reserved.max(reserved);
    }
}

impl FileSystemSpace {
    fn new(of: &FileSystems, space: Space) -> Self {
        Self {
            is_shared: of.are_shared(),
            promises: Arc::clone(&of.promises),
            state: Mutex::new(SpaceState {
                space,
                volumes: Vec::new(),
            }),
        }
    }

    /// Whether volumes of several stores may be on it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Takes in a volume.
    pub fn join(&self, volume: &Arc<Volume>) {
        let mut state = locks::lock(&self.state);
        state.volumes.retain(|known| known.strong_count() > 0);
        state.volumes.push(Arc::downgrade(volume));
    }

    /// Forgets a volume whose store has ended: what it leaves counts as others' files.
    pub fn leave(&self, volume: &Volume) {
        let mut state = locks::lock(&self.state);
        let is_it = |known: &Weak<Volume>| std::ptr::eq(known.as_ptr(), volume);
        state.volumes.retain(|known| !is_it(known));
    }

    /// The right to promise room.
    pub fn promise(&self) -> Promise<'_> {
        locks::lock(&self.promises)
    }

    /// Takes note of the space, read just now.
    pub fn set_space(&self, space: Space) {
        // Let go after the lock: the last holder of a volume closes its files.
        let mut volumes = Vec::new();
        let mut state = locks::lock(&self.state);
        volumes.extend(state.healthy());
        for volume in &volumes {
            volume.used_then.set(volume.taken_then());
        }
        state.space = space;
    }

    /// The numbers of the whole, by what `volume` and the healthy ones beside it have taken, and
    /// how many volumes these are.
    fn whole(&self, volume: &Volume) -> (Numbers, u64) {
        let mut volumes = Vec::new();
        let state = locks::lock(&self.state);
        volumes.extend(state.healthy());
        let space = state.space;
        let mut taken = Taken::default();
        taken.add(volume, space.capacity);
        let kind = volume.info.storage_type;
        let others = volumes
            .iter()
            .filter(|other| !std::ptr::eq(other.as_ref(), volume));
        for other in others {
            if volume.shared_mount.is_some() && other.info.storage_type != kind {
                taken.add_beside(other, space.capacity);
            } else {
                taken.add(other, space.capacity);
            }
        }
        let mut share = volume.mount_share();
        if self.is_shared {
            share.taken_beside = taken.beside.taken;
            share.not_taken_beside = taken.beside.not_taken;
        }
        drop(state);
        let numbers = space_told::numbers(
            space,
            ReservedSpace::larger(taken.reserved, 0),
            taken.used_then,
            taken.used,
            ReservedForReplicas {
                all: taken.reserved_for_replicas,
                allocated: taken.allocated,
            },
            share,
        );
        (numbers, taken.sharers)
    }

    /// What `volume` on it reports.
    #[must_use]
    pub fn numbers_of(&self, volume: &Volume) -> Numbers {
        let (whole, sharers) = self.whole(volume);
        let waiting = volume.reserved_for_replicas.get();
        space_told::part(whole, volume.used(), waiting, sharers)
    }

    /// Bytes that may be promised to replicas on `volume`: all that is free on the file system.
    #[must_use]
    pub fn room(&self, volume: &Volume) -> u64 {
        self.whole(volume).0.remaining
    }
}
