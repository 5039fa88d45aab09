//! Memory that replicas are locked in: one budget of a process, and what each of its nodes has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hayloft_io::{LockedFile, in_pages, mappings_max};

/// What takes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file that is mapped and locked.
    Mapped,
    /// A replica on a `RAM_DISK` volume.
    InMemory,
}

/// Bytes that the nodes of a process may lock together.
#[derive(Debug, Default)]
pub struct LockedBudget {
    max: u64,
    nodes: u64,
    used: AtomicU64,
    /// Replicas that have room. Each is a mapping, of which the system allows a process so many:
    /// threads and memory need some, too.
    files: AtomicU64,
    files_max: u64,
}

impl LockedBudget {
    /// At most `max` bytes, of so many nodes, in half of the mappings that a process may have.
    #[must_use]
    pub fn new(max: u64, nodes: u64) -> Self {
        Self {
            max,
            nodes: nodes.max(1),
            used: AtomicU64::new(0),
            files: AtomicU64::new(0),
            files_max: mappings_max() / 2,
        }
    }

    fn take(&self, bytes: u64, kind: Kind) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        let one_more = |files: u64| (files < self.files_max).then_some(files + 1);
        let update = |of: &AtomicU64, by: &dyn Fn(u64) -> Option<u64>| {
            of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, by)
                .is_ok()
        };
        let mapped = kind == Kind::Mapped;
        if mapped && !update(&self.files, &one_more) {
            return false;
        }
        let taken = update(&self.used, &more);
        if mapped && !taken {
            self.files.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    fn give(&self, bytes: u64, kind: Kind) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if kind == Kind::Mapped {
            self.files.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// What one node of several may count on: its even part of what is free.
    fn free_of_node(&self) -> u64 {
        let free = self.max.saturating_sub(self.used.load(Ordering::Relaxed));
        free / self.nodes.max(1)
    }
}

/// The cached replicas of one node, in numbers.
#[derive(Debug, Default)]
pub struct NodeCache {
    budget: Arc<LockedBudget>,
    used: AtomicU64,
    blocks: AtomicU64,
    cached: AtomicU64,
    uncached: AtomicU64,
    failed_to_cache: AtomicU64,
    failed_to_uncache: AtomicU64,
}

/// What a node has cached, and what it has done for that since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Bytes that the node may lock: what it has locked, and its even part of what the process may
    /// lock beside that. 0: nothing is cached here.
    pub capacity: u64,
    /// Bytes that it has locked or is about to, in whole pages.
    pub used: u64,
    /// Replicas that are cached.
    pub blocks: u64,
    /// Replicas that were cached so far.
    pub cached: u64,
    /// Those of them that are no longer.
    pub uncached: u64,
    /// Orders to cache a replica that were not carried out.
    pub failed_to_cache: u64,
    /// Orders to uncache one that is not cached.
    pub failed_to_uncache: u64,
}

impl NodeCache {
    /// Nothing is cached yet.
    #[must_use]
    pub(crate) fn new(budget: Arc<LockedBudget>) -> Self {
        Self {
            budget,
            ..Self::default()
        }
    }

    /// Room for the pages of so many bytes of a file; `None` when there is too little.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<LockedRoom> {
        self.reserve_for(Kind::Mapped, bytes)
    }

    /// Room for a replica of so many bytes on a `RAM_DISK` volume: a page at least.
    pub(crate) fn reserve_in_memory(self: &Arc<Self>, bytes: u64) -> Option<LockedRoom> {
        self.reserve_for(Kind::InMemory, bytes.max(1))
    }

    /// Room for a replica that is in memory already, also beyond the limit: what comes later has
    /// none then.
    pub(crate) fn take_in_memory(self: &Arc<Self>, bytes: u64) -> LockedRoom {
        let bytes = in_pages(bytes.max(1));
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_add(bytes, Ordering::Relaxed);
        LockedRoom {
            node: Arc::clone(self),
            bytes,
            kind: Kind::InMemory,
        }
    }

    fn reserve_for(self: &Arc<Self>, kind: Kind, bytes: u64) -> Option<LockedRoom> {
        let bytes = in_pages(bytes);
        self.budget.take(bytes, kind).then(|| {
            self.used.fetch_add(bytes, Ordering::Relaxed);
            LockedRoom {
                node: Arc::clone(self),
                bytes,
                kind,
            }
        })
    }

    /// Bytes that all nodes of the process may lock together.
    pub(crate) fn max(&self) -> u64 {
        self.budget.max
    }

    /// Orders to cache that were not carried out.
    pub(crate) fn failed_to_cache(&self, orders: u64) {
        self.failed_to_cache.fetch_add(orders, Ordering::Relaxed);
    }

    /// Orders to uncache what is not cached.
    pub(crate) fn failed_to_uncache(&self, orders: u64) {
        self.failed_to_uncache.fetch_add(orders, Ordering::Relaxed);
    }

    /// The numbers now.
    pub(crate) fn now(&self) -> CacheUse {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let used = of(&self.used);
        CacheUse {
            capacity: used.saturating_add(self.budget.free_of_node()),
            used,
            blocks: of(&self.blocks),
            cached: of(&self.cached),
            uncached: of(&self.uncached),
            failed_to_cache: of(&self.failed_to_cache),
            failed_to_uncache: of(&self.failed_to_uncache),
        }
    }
}

/// Room of the budget for a replica, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct LockedRoom {
    node: Arc<NodeCache>,
    bytes: u64,
    kind: Kind,
}

impl LockedRoom {
    /// Gives back what a replica of so many bytes does not need: of a page it needs all.
    pub(super) fn shrink_to(&mut self, bytes: u64) {
        let more = self.bytes.saturating_sub(in_pages(bytes.max(1)));
        self.bytes -= more;
        self.node.used.fetch_sub(more, Ordering::Relaxed);
        self.node.budget.used.fetch_sub(more, Ordering::Relaxed);
    }

    /// Bytes that it lacks for a replica of so many, whose pages all count.
    pub(super) fn missing_for(&self, bytes: u64) -> u64 {
        in_pages(bytes.max(1)).saturating_sub(self.bytes)
    }

    /// Takes in another one of the same kind.
    pub(super) fn absorb(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for LockedRoom {
    fn drop(&mut self) {
        self.node.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.node.budget.give(self.bytes, self.kind);
    }
}

/// The data file of a replica in locked memory. Dropping it unlocks the memory, then gives the room
/// back.
#[derive(Debug)]
pub(crate) struct LockedReplica {
    /// The mapping.
    pub file: LockedFile,
    room: LockedRoom,
    counted: bool,
}

impl LockedReplica {
    /// A mapping that is to be locked, within its room.
    pub(crate) fn new(file: LockedFile, room: LockedRoom) -> Self {
        Self {
            file,
            room,
            counted: false,
        }
    }

    /// It is locked and verified: the replica counts as cached from here on.
    pub(super) fn counts(&mut self) {
        self.counted = true;
        self.room.node.blocks.fetch_add(1, Ordering::Relaxed);
        self.room.node.cached.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for LockedReplica {
    fn drop(&mut self) {
        if self.counted {
            self.room.node.blocks.fetch_sub(1, Ordering::Relaxed);
            self.room.node.uncached.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_process_are_told_no_more_than_there_is() {
        let page = in_pages(1);
        let budget = Arc::new(LockedBudget::new(10 * page, 2));
        let nodes = [0, 1].map(|_| Arc::new(NodeCache::new(Arc::clone(&budget))));
        let told = || nodes.each_ref().map(|node| node.now().capacity);
        assert_eq!(told(), [5 * page; 2]);
        // Whole pages count.
        let first = nodes[0].reserve(5 * page + 1).expect("more than its part");
        assert_eq!(told(), [8 * page, 2 * page]);
        assert_eq!(nodes[0].now().used, 6 * page);
        assert!(nodes[1].reserve(4 * page + 1).is_none(), "above the limit");
        let second = nodes[1].reserve(4 * page).expect("the rest");
        assert_eq!(told(), [6 * page, 4 * page]);
        assert!(nodes[0].reserve(1).is_none() && nodes[0].reserve(u64::MAX).is_none());
        drop((first, second));
        // Mappings are counted, however small they are.
        let small = LockedBudget {
            files_max: 2,
            ..LockedBudget::new(10 * page, 1)
        };
        let node = Arc::new(NodeCache::new(Arc::new(small)));
        let rooms = [1, 1, 1].map(|bytes| node.reserve(bytes));
        assert_eq!(rooms.each_ref().map(Option::is_some), [true, true, false]);
        drop(rooms);
        assert!(node.reserve(10 * page).is_some(), "all was given back");
        assert_eq!(told(), [5 * page; 2]);
        assert_eq!(nodes[0].now().used, 0);
    }

    #[test]
    fn one_node_has_what_is_configured_and_no_budget_is_nothing() {
        let alone = Arc::new(NodeCache::new(Arc::new(LockedBudget::new(10_001, 1))));
        assert_eq!(alone.now().capacity, 10_001, "as configured, to the byte");
        let room = alone.reserve(1).expect("there is room");
        assert_eq!(alone.now().capacity, 10_001);
        drop(room);
        let none = Arc::new(NodeCache::default());
        assert!(none.reserve(1).is_none());
        assert_eq!(none.now(), CacheUse::default());
    }
}
