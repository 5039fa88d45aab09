//! Volumes that are taken out while somebody works on them.

use super::*;
use crate::replica::{FinalReplica, Slot};

/// A writer of a new replica on the first volume.
async fn on_the_first(node: &Node, id: i64) -> ReplicaWriter {
    let first = node.store.storage_reports(&pool())[0].storage.clone();
    let options = WriteOptions {
        storage_id: Some(first.id.to_string()),
        ..WriteOptions::default()
    };
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
async fn nobody_begins_to_write_on_a_volume_that_leaves() {
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
