//! Volumes that are taken out while writers and readers work on them.

mod duplicates;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::replica::{FinalReplica, Slot};

/// Has a new replica written to one of the volumes.
fn on_volume(node: &Node, n: usize) -> WriteOptions {
    let storage = &node.store.storage_reports(&pool())[n].storage;
    WriteOptions {
        storage_id: Some(storage.id.to_string()),
        ..WriteOptions::default()
    }
}

/// A writer of a new replica on the first volume.
async fn on_the_first(node: &Node, id: i64) -> ReplicaWriter {
    let first = node.store.storage_reports(&pool())[0].storage.clone();
    let options = on_volume(node, 0);
    let mut writer = node
        .store
        .create_rbw(&block(id, 1001, 0), options)
        .await
        .expect("creates");
    assert_eq!(*writer.storage(), first);
    writer.set_checksum(crc32c()).await.expect("header");
    writer
}

#[tokio::test]
async fn a_volume_that_leaves_waits_for_its_writers_and_may_be_locked_by_others() {
    let node = Node::with_volumes(2).await;
    let all = config(node.dir.path(), 2).volumes;
    let writer = on_the_first(&node, 7).await;
    let first = all[0].path.clone();
    let holder = tokio::spawn(async move {
        writer.cancelled().await;
        // Long enough for a volume that would not wait to go.
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(writer);
    });
    let results = node.store.reconfigure_volumes(all[1..].to_vec()).await;
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
    assert!(holder.is_finished());
    let (events, _receiver) = mpsc::channel(10);
    let mut other = config(node.dir.path(), 1);
    other.volumes[0].path = first;
    let other = Store::open(other, events).await.expect("it is free");
    other
        .add_pool(spec(), StartOption::Regular)
        .await
        .expect("loads");
    assert!(other.replica(&pool(), 7).is_some());
}

#[tokio::test]
async fn no_writer_begins_on_a_volume_that_leaves() {
    let node = Node::with_volumes(2).await;
    let holder = on_the_first(&node, 1).await;
    let mut writer = on_the_first(&node, 2).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    drop(writer);
    let mut writer = on_the_first(&node, 3).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
    let store = &node.store;
    let begin = async {
        // The volume waits for this writer, who has been told to stop.
        holder.cancelled().await;
        let (open, whole) = (block(2, 1001, 0), block(3, 1001, 700));
        let kind = Node::error_of(store.append(&whole, 1002, 700).await);
        assert_eq!(kind, StoreErrorKind::VolumeFailed);
        let kind = Node::error_of(store.recover_rbw(&open, 1002, 0, u64::MAX).await);
        assert_eq!(kind, StoreErrorKind::VolumeFailed);
        drop(holder);
    };
    let rest = config(node.dir.path(), 2).volumes.split_off(1);
    let (results, ()) = tokio::join!(store.reconfigure_volumes(rest), begin);
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
    assert_eq!(store.replica_count(), 0);
}

#[tokio::test]
async fn nothing_is_known_of_a_volume_that_has_left() {
    let node = Node::with_volumes(2).await;
    for id in 0..10 {
        node.put(id, 1001, 100).await;
    }
    let pool = node.store.0.pool(&pool()).expect("is loaded");
    let slot = |volume| {
        Slot::Finalized(FinalReplica {
            generation_stamp: 1001,
            len: 100,
            volume,
            pinned: false,
        })
    };
    let [first, second] = [0, 1].map(|n| pool.slices()[n].volume.index);
    let rest = config(node.dir.path(), 2).volumes.split_off(1);
    let results = node.store.reconfigure_volumes(rest).await;
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
    // An operation of before ends now.
    let kind = Node::error_of(pool.put(20, slot(first)));
    assert_eq!(kind, StoreErrorKind::VolumeFailed);
    assert!(pool.put(21, slot(second)).is_ok());
    assert_eq!(node.store.replica_count(), 6);
}

#[tokio::test]
async fn a_storage_that_has_left_is_reported_as_empty_until_it_is_back() {
    let node = Node::with_volumes(2).await;
    for id in 0..10 {
        node.put(id, 1001, 100).await;
    }
    let reported = || -> Vec<(Arc<str>, usize)> {
        let report = node.store.block_report(&pool()).into_iter();
        report.map(|(s, list)| (s.id, list.len())).collect()
    };
    let [first, second] = [0, 1].map(|n| reported()[n].0.clone());
    // No report tells what is still being deleted when the volume leaves.
    let (_, on_the_first) = node.store.block_report(&pool()).swap_remove(0);
    let deleted: Vec<Block> = on_the_first.iter().map(|r| r.block).take(2).collect();
    node.store
        .invalidate(&pool(), &deleted)
        .await
        .expect("deletes");
    let all = config(node.dir.path(), 2).volumes;
    let results = node.store.reconfigure_volumes(all[1..].to_vec()).await;
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
    assert_eq!(reported(), [(second.clone(), 5), (first.clone(), 0)]);
    let beaten = node.store.storage_reports(&pool());
    assert!(beaten.len() == 1 && beaten[0].storage.id == second);
    let results = node.store.reconfigure_volumes(all).await;
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
    assert_eq!(reported(), [(second, 5), (first, 3)]);
}

/// Whatever goes on meanwhile, nothing is known afterwards of a volume that has left, and nothing
/// is forgotten of the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_and_a_volume_that_comes_and_goes() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let start = StoreConfig {
        failed_volumes_tolerated: 1,
        ..config(dir.path(), 2)
    };
    let mut node = Node::start(dir, 2, start).await;
    let all = config(node.dir.path(), 2).volumes;
    let stays = node.store.storage_reports(&pool())[0].storage.id.clone();
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let (store, done, stays) = (node.store.clone(), Arc::clone(&done), stays.clone());
            tokio::spawn(async move {
                let mut kept = Vec::new();
                for id in (n..).step_by(4) {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    if put_somewhere(&store, id).await.ok() == Some(stays.clone()) {
                        kept.push(id);
                    }
                }
                kept
            })
        })
        .collect();
    let (_, none) = mpsc::channel(1);
    let mut events = std::mem::replace(&mut node.events, none);
    let told = tokio::spawn(async move { while events.recv().await.is_some() {} });
    let in_use = node.store.0.pool(&pool()).expect("is loaded");
    for round in 0..24 {
        let goes = node.store.0.volumes()[1].clone();
        if round % 2 == 0 {
            // At once, whatever is at work.
            crate::transitions::volume_failure::fail(&node.store.0, &goes, "a test").await;
        } else {
            let left = node.store.reconfigure_volumes(all[..1].to_vec()).await;
            assert!(left.iter().all(|(_, result)| result.is_ok()), "{left:?}");
        }
        // Work goes on beside the volume that is away.
        tokio::time::sleep(Duration::from_millis(20)).await;
        in_use.map.for_each(|id, slot| {
            assert_ne!(slot.volume(), goes.index, "blk_{id} of round {round}");
        });
        let back = node.store.reconfigure_volumes(all.clone()).await;
        assert!(back.iter().all(|(_, result)| result.is_ok()), "{back:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    done.store(true, Ordering::Relaxed);
    let mut kept = Vec::new();
    for writer in writers {
        kept.extend(writer.await.expect("no panic"));
    }
    assert!(!kept.is_empty());
    for id in kept {
        node.check(id, 1001, 700).await;
    }
    told.abort();
}

/// Writes a replica in full and gives the storage that it is on.
async fn put_somewhere(store: &Store, id: i64) -> Result<Arc<str>, StoreError> {
    let wanted = block(id, 1001, 0);
    let mut writer = store.create_rbw(&wanted, WriteOptions::default()).await?;
    writer.set_checksum(crc32c()).await?;
    writer.write(vec![packet(0, 700)]).await?;
    Ok(writer.finalize().await?.storage.id)
}
