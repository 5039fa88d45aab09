use super::*;
use crate::replica::locked_memory::{LockedBudget, NodeCache};

/// Number of the `RAM_DISK` volume.
const RAM: u16 = 3;
const DISK: u16 = 1;

fn finalized(stamp: u64, volume: u16) -> FinalReplica {
    FinalReplica {
        generation_stamp: stamp,
        len: 5000,
        volume,
        pinned: false,
    }
}

fn in_map(stamp: u64, volume: u16) -> Now {
    Now {
        volume,
        finalized: Some(finalized(stamp, volume)),
    }
}

fn memory() -> MemoryReplicas {
    let memory = MemoryReplicas::new(Arc::default());
    memory.volume_joins(RAM);
    memory
}

/// Blocks that have copies which are not those of their replicas.
fn stale_ids(memory: &MemoryReplicas) -> Vec<i64> {
    memory.stale_by_volume().into_values().flatten().collect()
}

/// A replica with a second copy.
fn persist(memory: &MemoryReplicas, id: i64) {
    assert!(memory.changed(id, Some(in_map(1, RAM))).is_none());
    let replica = finalized(1, RAM);
    assert!(memory.persist(id, &replica, finalized(1, DISK)));
}

#[test]
fn the_room_shrinks_to_the_replica_and_goes_with_it() {
    let page = hayloft_io::in_pages(1);
    let node = Arc::new(NodeCache::new(Arc::new(LockedBudget::new(100 * page, 1))));
    let memory = memory();
    let room = node.reserve_in_memory(50 * page).expect("there is room");
    memory.begin(7, room);
    assert!(memory.changed(7, Some(in_map(1, RAM))).is_none());
    assert_eq!(node.now().used, 5000_u64.next_multiple_of(page));
    drop(memory.changed(7, None));
    assert_eq!(node.now().used, 0);
    // On another volume it is out of memory, too.
    let room = node.reserve_in_memory(page).expect("there is room");
    memory.begin(8, room);
    drop(memory.changed(8, Some(in_map(1, DISK))));
    assert_eq!(node.now().used, 0);
    assert!(memory.waiting(9).is_empty());
}

#[test]
fn what_was_used_longest_ago_leaves_first_and_only_when_it_is_persisted() {
    let memory = memory();
    for id in [1, 2, 3] {
        memory.changed(id, Some(in_map(1, RAM)));
    }
    assert!(memory.least_recent().is_none());
    assert_eq!(memory.waiting(9), [1, 2, 3]);
    for id in [3, 2, 1] {
        assert!(memory.persist(id, &finalized(1, RAM), finalized(1, DISK)));
    }
    assert!(memory.waiting(9).is_empty());
    let least = || memory.least_recent().map(|(_, id)| id);
    assert_eq!(least(), Some(1));
    memory.touch(1, RAM);
    assert_eq!(least(), Some(2));
    let taken = memory.take_copy(2).expect("has one");
    assert_eq!((taken.copy, taken.was_read), (finalized(1, DISK), false));
    assert_eq!(least(), Some(3));
    // Until it leaves it is one without copy.
    assert_eq!(memory.waiting(9), [2]);
    // Where it cannot leave, others do before it.
    assert!(memory.persist(2, &finalized(1, RAM), finalized(1, DISK)));
    assert_eq!(least(), Some(3));
    assert!(memory.persisted(1).is_some_and(|p| p.was_read));
}

#[test]
fn a_copy_of_what_has_changed_is_stale() {
    let memory = memory();
    for id in [1, 2, 3] {
        persist(&memory, id);
    }
    // The same again is no change.
    memory.changed(1, Some(in_map(1, RAM)));
    assert!(stale_ids(&memory).is_empty());
    memory.changed(1, Some(in_map(2, RAM)));
    memory.changed(2, None);
    memory.changed(3, Some(in_map(1, DISK)));
    let mut stale = stale_ids(&memory);
    stale.sort_unstable();
    assert_eq!(stale, [1, 2, 3]);
    assert_eq!(memory.waiting(9), [1]);
    assert!(memory.least_recent().is_none());
    assert!(memory.has_stale(2) && memory.has_copies_on(DISK));
    assert_eq!(memory.take_stale(2), [finalized(1, DISK)]);
    assert!(!memory.has_stale(2));
    // A copy of an earlier state does not count.
    assert!(!memory.persist(1, &finalized(1, RAM), finalized(1, DISK)));
    assert!(!memory.persist(2, &finalized(1, RAM), finalized(1, DISK)));
    memory.volume_left(DISK);
    assert!(stale_ids(&memory).is_empty() && !memory.has_copies_on(DISK));
}

#[test]
fn copies_leave_with_their_volume() {
    let memory = memory();
    persist(&memory, 1);
    memory.volume_left(DISK + 1);
    assert!(memory.persisted(1).is_some());
    memory.volume_left(DISK);
    assert!(memory.persisted(1).is_none() && memory.least_recent().is_none());
    assert_eq!(memory.waiting(9), [1]);
    assert!(memory.unpersisted(1).is_some());
}

#[test]
fn without_a_volume_in_memory_nothing_is_kept() {
    let memory = MemoryReplicas::new(Arc::default());
    memory.changed(1, Some(in_map(1, DISK)));
    memory.touch(1, RAM);
    assert!(memory.waiting(9).is_empty() && memory.unpersisted(1).is_none());
    assert!(memory.lock().by_id.is_empty());
}

#[test]
fn a_replica_that_is_recovered_keeps_its_copy_until_it_is_another() {
    let memory = memory();
    let live = Now {
        volume: RAM,
        finalized: None,
    };
    for id in [1, 2, 3] {
        persist(&memory, id);
        memory.changed(id, Some(live));
    }
    assert!(stale_ids(&memory).is_empty() && memory.has_copies_on(DISK));
    assert!(memory.least_recent().is_none() && memory.waiting(9).is_empty());
    memory.changed(1, Some(in_map(1, RAM)));
    assert!(memory.persisted(1).is_some());
    memory.changed(2, Some(in_map(2, RAM)));
    assert_eq!((stale_ids(&memory), memory.waiting(9)), (vec![2], vec![2]));
    memory.changed(3, None);
    assert!(memory.has_stale(3));
}

#[test]
fn what_an_earlier_process_left_has_room_beyond_the_limit() {
    let page = hayloft_io::in_pages(1);
    let node = Arc::new(NodeCache::new(Arc::new(LockedBudget::new(page, 1))));
    let memory = memory();
    memory.changed(7, Some(in_map(1, RAM)));
    assert_eq!(memory.without_room(), [(7, 5000)]);
    assert!(memory.give_room(7, node.take_in_memory(5000)).is_none());
    assert!(memory.without_room().is_empty());
    assert_eq!(node.now().used, 5000_u64.next_multiple_of(page));
    assert!(node.reserve_in_memory(1).is_none());
    drop(memory.changed(7, None));
    assert_eq!(node.now().used, 0);
    assert!(node.reserve_in_memory(1).is_some());
}
