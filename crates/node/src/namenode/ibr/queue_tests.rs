use std::collections::HashMap;

use hayloft_store::StorageInfo;
use hayloft_wire::ids::{Block, StorageType};
use hayloft_wire::proto::datanode::BlockStatus::{self, Deleted, Received, Receiving};
use proptest::prelude::*;

use super::{Added, BlockChange, IbrQueue};

fn storage(name: &str) -> StorageInfo {
    StorageInfo {
        id: name.into(),
        storage_type: StorageType::Disk,
    }
}

fn news(id: i64, stamp: u64, status: BlockStatus) -> BlockChange {
    BlockChange {
        block: Block::new(id, stamp, 10),
        status,
        delete_hint: None,
        anew: false,
    }
}

/// (id, generation stamp, status) of everything waiting, in order.
fn drain(queue: &mut IbrQueue) -> Vec<(i64, u64, BlockStatus)> {
    let batch = queue.take(usize::MAX);
    let all = batch
        .entries
        .iter()
        .map(|entry| {
            (
                entry.news.block.id,
                entry.news.block.generation_stamp,
                entry.news.status,
            )
        })
        .collect();
    queue.done(batch);
    all
}

#[test]
fn received_is_urgent_and_the_rest_goes_with_it() {
    let mut queue = IbrQueue::new(10);
    assert_eq!(queue.add(&storage("a"), news(1, 1, Deleted)), Added::Waits);
    assert!(!queue.is_ready());
    assert_eq!(
        queue.add(&storage("a"), news(2, 1, Receiving)),
        Added::Waits
    );
    assert_eq!(
        queue.add(&storage("b"), news(3, 1, Received)),
        Added::Urgent
    );
    assert!(queue.is_ready());
    let batch = queue.take(100);
    let groups = batch.by_storage();
    assert_eq!(
        groups
            .iter()
            .map(|(s, n)| (&*s.id, n.len()))
            .collect::<Vec<_>>(),
        [("a", 2), ("b", 1)]
    );
    assert!(!queue.is_ready());
}

#[test]
fn the_newest_news_of_a_block_wins_whatever_the_storage() {
    let mut queue = IbrQueue::new(10);
    queue.add(&storage("a"), news(1, 5, Receiving));
    queue.add(&storage("a"), news(2, 5, Received));
    queue.add(&storage("b"), news(1, 5, Received));
    assert_eq!(drain(&mut queue), [(2, 5, Received), (1, 5, Received)]);
}

#[test]
fn an_old_generation_stamp_never_hides_a_newer_one() {
    let mut queue = IbrQueue::new(10);
    queue.add(&storage("a"), news(1, 7, Received));
    assert_eq!(queue.add(&storage("b"), news(1, 6, Deleted)), Added::Stale);
    let batch = queue.take(10);
    assert_eq!(queue.add(&storage("b"), news(1, 6, Deleted)), Added::Stale);
    queue.done(batch);
    assert_eq!(queue.add(&storage("b"), news(1, 7, Deleted)), Added::Waits);
}

#[test]
fn receiving_does_not_follow_received() {
    let mut queue = IbrQueue::new(10);
    queue.add(&storage("a"), news(1, 7, Received));
    assert_eq!(
        queue.add(&storage("a"), news(1, 7, Receiving)),
        Added::Stale
    );
    assert_eq!(
        queue.add(&storage("a"), news(1, 8, Receiving)),
        Added::Waits
    );
    assert_eq!(drain(&mut queue), [(1, 8, Receiving)]);
}

#[test]
fn a_replica_told_anew_stays_so_until_it_is_deleted() {
    let mut queue = IbrQueue::new(10);
    let anew = |queue: &mut IbrQueue| {
        let batch = queue.take(10);
        let anew: Vec<bool> = batch.entries.iter().map(|e| e.news.anew).collect();
        queue.done(batch);
        anew
    };
    let mended = BlockChange {
        anew: true,
        ..news(1, 7, Received)
    };
    queue.add(&storage("a"), mended.clone());
    queue.add(&storage("a"), news(1, 8, Receiving));
    queue.add(&storage("a"), news(1, 8, Received));
    assert_eq!(anew(&mut queue), [true]);
    queue.add(&storage("a"), mended.clone());
    queue.add(&storage("a"), news(1, 7, Deleted));
    assert_eq!(anew(&mut queue), [false]);
    // What is on its way and does not arrive counts too.
    queue.add(&storage("a"), mended);
    let batch = queue.take(10);
    queue.add(&storage("a"), news(1, 8, Received));
    assert!(queue.put_back(batch));
    assert_eq!(anew(&mut queue), [true]);
}

#[test]
fn a_failed_batch_returns_to_its_place_unless_overtaken() {
    let mut queue = IbrQueue::new(10);
    queue.add(&storage("a"), news(1, 1, Received));
    queue.add(&storage("a"), news(2, 1, Received));
    let batch = queue.take(10);
    queue.add(&storage("a"), news(3, 1, Received));
    queue.add(&storage("a"), news(2, 1, Deleted));
    assert!(queue.put_back(batch));
    assert!(queue.is_ready());
    assert_eq!(
        drain(&mut queue),
        [(1, 1, Received), (3, 1, Received), (2, 1, Deleted)]
    );
}

#[test]
fn more_than_the_limit_becomes_a_full_report() {
    let mut queue = IbrQueue::new(3);
    for id in 0..3 {
        assert_eq!(
            queue.add(&storage("a"), news(id, 1, Received)),
            Added::Urgent
        );
    }
    assert_eq!(queue.add(&storage("a"), news(1, 1, Deleted)), Added::Waits);
    assert_eq!(
        queue.add(&storage("a"), news(9, 1, Received)),
        Added::Overflow
    );
    assert_eq!((queue.len(), queue.is_ready()), (0, false));
}

#[test]
fn putting_back_meets_the_limit_too() {
    let mut queue = IbrQueue::new(2);
    queue.add(&storage("a"), news(1, 1, Received));
    let batch = queue.take(10);
    queue.add(&storage("a"), news(2, 1, Received));
    queue.add(&storage("a"), news(3, 1, Received));
    assert!(!queue.put_back(batch));
    assert_eq!(queue.len(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Add(i64, u64, u8, BlockStatus),
    Take(usize),
    Finish(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let status = prop_oneof![Just(Receiving), Just(Received), Just(Deleted)];
    let add = (0..5i64, 1..5u64, 0..2u8, status)
        .prop_map(|(id, stamp, on, status)| Step::Add(id, stamp, on, status));
    let step = prop_oneof![
        4 => add,
        1 => (1..4usize).prop_map(Step::Take),
        1 => any::<bool>().prop_map(Step::Finish),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    /// The NameNode carries out what it is told, and loses some messages. In the end it knows, of
    /// each block, news with the highest generation stamp ever told. It never heard an older one
    /// after a newer one.
    #[test]
    fn the_namenode_ends_up_with_the_newest(steps in steps()) {
        let mut queue = IbrQueue::new(1000);
        let mut told: HashMap<i64, u64> = HashMap::new();
        let mut highest: HashMap<i64, u64> = HashMap::new();
        let mut flying = None;
        let hear = |batch: &super::Batch, told: &mut HashMap<i64, u64>| {
            for entry in &batch.entries {
                let block = entry.news.block;
                told.insert(block.id, block.generation_stamp);
            }
        };
        for step in steps {
            match step {
                Step::Add(id, stamp, on, status) => {
                    // What the store itself rules out: news older than what was told and taken.
                    if told.get(&id).is_some_and(|known| *known > stamp) { continue; }
                    queue.add(&storage(if on == 0 { "a" } else { "b" }), news(id, stamp, status));
                    let high = highest.entry(id).or_default();
                    *high = (*high).max(stamp);
                }
                Step::Take(max) => if flying.is_none() { flying = Some(queue.take(max)); },
                Step::Finish(arrived) => if let Some(batch) = flying.take() {
                    if arrived {
                        for entry in &batch.entries {
                            let known = told.get(&entry.news.block.id).copied().unwrap_or_default();
                            prop_assert!(entry.news.block.generation_stamp >= known);
                        }
                        hear(&batch, &mut told);
                        queue.done(batch);
                    } else {
                        prop_assert!(queue.put_back(batch));
                    }
                },
            }
            prop_assert_eq!(queue.pending.len(), queue.order.len());
        }
        if let Some(batch) = flying { queue.put_back(batch); }
        let rest = queue.take(usize::MAX);
        hear(&rest, &mut told);
        prop_assert_eq!(told, highest);
    }
}
