//! Blocks that lie here twice, once the volume with the other replica is put in again.

use std::sync::atomic::{AtomicI64, Ordering};

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_wire::ids::ReplicaState;

use super::*;
use crate::replica::block_pool::Pool;
use crate::replica::{FinalReplica, Slot};

/// Blocks that two threads meet at, so that they do at some.
const BLOCKS: i64 = 20_000;

/// What does not wait for a disk is done by then.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn of_two_replicas_the_lesser_one_is_kept_when_the_other_leaves_and_goes_when_it_is_deleted()
{
    let node = Node::with_volumes(2).await;
    for id in 0..4 {
        node.put(id, 1001, 700).await;
    }
    let pool = node.store.0.pool(&pool()).expect("is loaded");
    let [first, second] = [0, 1].map(|n| pool.slices()[n].volume.index);
    let newer = || finalized(1002, second);
    let on_the_first: Vec<i64> = (0..4)
        .filter(|id| pool.map.get(*id).expect("there").volume() == first)
        .collect();
    let found = |id| {
        crate::service::pool::duplicates::insert(&pool, id, newer()).expect("it is here twice")
    };
    let [deleted, stays] = [on_the_first[0], on_the_first[1]].map(|id| (id, found(id)));
    // By the NameNode, while the others are settled.
    drop(pool.map.remove(deleted.0));
    deleted.1.settle(&node.store.0, &pool).await;
    assert!(pool.map.get(deleted.0).is_none());
    let data = format!("current/finalized/subdir0/subdir0/blk_{}", deleted.0);
    assert!(!node.pool_dir().join(data).exists());
    let rest = config(node.dir.path(), 2).volumes[..1].to_vec();
    let results = node.store.reconfigure_volumes(rest).await;
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
    assert!(pool.map.get(stays.0).is_none(), "it has left");
    stays.1.settle(&node.store.0, &pool).await;
    node.check(stays.0, 1001, 700).await;
}

/// A finalized replica of 700 bytes.
fn finalized(generation_stamp: u64, volume: u16) -> Slot {
    Slot::Finalized(FinalReplica {
        generation_stamp,
        len: 700,
        volume,
        pinned: false,
    })
}

/// Finds a second replica of each of many blocks while another task changes what is known of the
/// same block.
fn find_while(pool: &Pool, found: &Slot, change: impl Fn(i64)) {
    let at = AtomicI64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..BLOCKS {
                at.store(id + 1, Ordering::Release);
                drop(crate::service::pool::duplicates::insert(
                    pool,
                    id,
                    found.clone(),
                ));
            }
        });
        let mut changed = 0;
        while changed < BLOCKS {
            if changed < at.load(Ordering::Acquire) {
                change(changed);
                changed += 1;
            } else {
                std::thread::yield_now();
            }
        }
    });
}

#[tokio::test]
async fn the_task_that_changes_a_block_has_the_last_word_while_a_second_replica_of_it_is_found() {
    let node = Node::with_volumes(2).await;
    let pool = node.store.0.pool(&pool()).expect("is loaded");
    let [first, second] = [0, 1].map(|n| pool.slices()[n].volume.index);
    let fill = |stamp| {
        for id in 0..BLOCKS {
            assert!(pool.put(id, finalized(stamp, first)).is_ok());
        }
    };
    // The better one is deleted.
    fill(1002);
    find_while(&pool, &finalized(1001, second), |id| {
        drop(pool.map.remove(id));
    });
    pool.map.for_each(|id, slot| {
        assert_eq!(slot.volume(), second, "blk_{id} was deleted");
    });
    // The lesser one becomes better than what is found.
    fill(1001);
    find_while(&pool, &finalized(1002, second), |id| {
        drop(pool.map.insert(id, finalized(1003, first)));
    });
    pool.map.for_each(|id, slot| {
        assert!(slot.is_same(&finalized(1003, first)), "blk_{id}: {slot:?}");
    });
}

async fn reconfigure(node: &Node, volumes: &[VolumeConfig]) {
    let results = node.store.reconfigure_volumes(volumes.to_vec()).await;
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
}

/// Waits until something is so.
async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in time: {what}");
}

/// Block 7 was written in full to the second volume, which is taken out.
async fn whole_is_out(node: &Node) {
    let whole = block(7, 1001, 0);
    let created = node.store.create_rbw(&whole, on_volume(node, 1)).await;
    let mut writer = created.expect("creates");
    writer.set_checksum(crc32c()).await.expect("header");
    let written = writer.write(vec![packet(0, 900_000)]).await;
    written.expect("writes");
    writer.finalize().await.expect("finalizes");
    let rest = &config(node.dir.path(), 2).volumes[..1];
    reconfigure(node, rest).await;
}

/// Block 7 is on the second volume, which is taken out; and it is being written to the first one,
/// whose disk is full.
async fn written_anew(node: &Node, state: ReplicaState) -> ReplicaWriter {
    whole_is_out(node).await;
    let whole = block(7, 1001, 0);
    let options = WriteOptions {
        expected_len: Some(900_000),
        ..WriteOptions::default()
    };
    let created = if state == ReplicaState::Temporary {
        node.store.create_temporary(&whole, options).await
    } else {
        node.store.create_rbw(&whole, options).await
    };
    let mut copy = created.expect("creates");
    copy.set_checksum(crc32c()).await.expect("header");
    let written = copy.write(vec![packet(0, 600_000)]).await;
    written.expect("writes");
    copy
}

#[tokio::test]
async fn a_replica_that_is_being_written_makes_way_for_a_better_one_and_leaves_nothing_behind() {
    for state in [ReplicaState::Temporary, ReplicaState::Rbw] {
        let (node, _faults) = Node::faulty(2).await;
        let report = || node.store.volume_report().swap_remove(0);
        let before = report();
        let lesser = written_anew(&node, state).await;
        assert!(report().used > before.used);
        let stops = async {
            let told = tokio::time::timeout(Duration::from_secs(5), lesser.cancelled()).await;
            told.expect("is told to stop");
            drop(lesser);
        };
        let all = config(node.dir.path(), 2).volumes;
        tokio::join!(reconfigure(&node, &all), stops);
        until("no more used", || report().used == before.used).await;
        assert_eq!(report().reserved_for_replicas, before.reserved_for_replicas);
        node.check(7, 1001, 900_000).await;
    }
}

/// Block 7 is on both volumes, of which the second one, with the better replica, is out. The disk
/// of the first gives no answer to the task that deletes the other replica.
async fn lesser_one_hangs() -> (Node, Vec<VolumeConfig>) {
    let (node, faults) = Node::faulty(2).await;
    whole_is_out(&node).await;
    node.put(7, 1001, 700).await;
    let hour = Duration::from_secs(3600);
    faults.add(FaultRule::new(Effect::Stall(hour)).on(&[IoOp::Rename]));
    let volumes = config(node.dir.path(), 2).volumes;
    (node, volumes)
}

#[tokio::test]
async fn a_volume_is_put_in_while_the_disk_of_a_lesser_replica_hangs() {
    let (node, volumes) = lesser_one_hangs().await;
    let put_in = tokio::time::timeout(SOON, reconfigure(&node, &volumes)).await;
    put_in.expect("does not wait for the disk");
    node.check(7, 1001, 900_000).await;
    // The disk may do it any moment.
    let pool = node.store.0.pool(&pool()).expect("is loaded");
    let latch = tokio::time::timeout(Duration::from_millis(100), pool.latches.acquire(7)).await;
    assert!(latch.is_err());
    let hangs = node.store.0.volumes()[0].clone();
    crate::transitions::volume_failure::fail(&node.store.0, &hangs, "a test").await;
    let latch = tokio::time::timeout(SOON, pool.latches.acquire(7)).await;
    drop(latch.expect("no task waits for a disk that has failed"));
    let stop = tokio::time::timeout(SOON, node.store.shutdown()).await;
    stop.expect("nothing is left to wait for");
}

#[tokio::test]
async fn a_node_stops_while_the_disk_of_a_lesser_replica_hangs() {
    let (node, volumes) = lesser_one_hangs().await;
    let both = async { tokio::join!(reconfigure(&node, &volumes), node.store.shutdown()) };
    // What hangs gets ten seconds.
    let stop = tokio::time::timeout(4 * SOON, both).await;
    stop.expect("does not wait for the disk");
}

/// The writer may be past the last look at what is known of its block.
#[tokio::test]
async fn a_better_replica_stays_known_though_the_lesser_one_is_being_finalized() {
    let (node, faults) = Node::faulty(2).await;
    let lesser = block(7, 1001, 0);
    let created = node.store.create_rbw(&lesser, on_volume(&node, 0));
    let mut writer = created.await.expect("creates");
    writer.set_checksum(crc32c()).await.expect("header");
    let written = writer.write(vec![packet(0, 600)]).await;
    written.expect("writes");
    let slow = Effect::Delay(Duration::from_millis(500));
    let renames = faults.add(FaultRule::new(slow).on(&[IoOp::Rename]));
    let closes = tokio::spawn(writer.finalize());
    until("it is being moved", || faults.fired(renames) > 0).await;
    let pool = node.store.0.pool(&pool()).expect("is loaded");
    let better = finalized(1002, pool.slices()[1].volume.index);
    let lesser = crate::service::pool::duplicates::insert(&pool, 7, better.clone());
    let lesser = lesser.expect("it is here twice");
    let error = closes.await.expect("no panic").expect_err("is not known");
    assert_eq!(error.kind(), StoreErrorKind::NotFound);
    let is_known = || pool.map.get(7).is_some_and(|now| now.is_same(&better));
    assert!(is_known());
    lesser.settle(&node.store.0, &pool).await;
    assert!(is_known());
    let data = "current/finalized/subdir0/subdir0/blk_7";
    assert!(!node.pool_dir().join(data).exists());
}
