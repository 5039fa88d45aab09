//! The order in which files change, where only power loss or an error in between can tell.

use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_wire::ids::StorageType;

fn marked(node: &Node, volume: usize) -> bool {
    node.dir
        .path()
        .join(format!("data{volume}/current"))
        .join(pool().as_str())
        .join("RollingUpgradeInProgress")
        .is_file()
}

#[tokio::test]
async fn synced_bytes_keep_their_checksum_until_what_completes_their_chunk_is_synced_too() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    let meta = node.pool_dir().join("current/rbw/blk_5_1001.meta");
    let data_syncs = || {
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Sync])
            .at(|path| path.ends_with("blk_5"))
    };
    let mut writer = node.writer(5, 1001).await;
    // Nothing was promised yet: no sync.
    let none = faults.add(data_syncs());
    writer.write(vec![packet(0, 600)]).await.expect("writes");
    writer.write(vec![packet(600, 700)]).await.expect("writes");
    assert_eq!(faults.fired(none), 0);
    faults.remove(none);
    writer.sync().await.expect("syncs");
    // The data is on the device before the checksum changes, however often that is.
    for (from, to) in [(700, 800), (800, 900)] {
        writer.write(vec![packet(from, to)]).await.expect("writes");
    }
    let before = std::fs::read(&meta).expect("there");
    // That sync counts: hsync has only the checksums left.
    let rule = faults.add(data_syncs());
    writer.sync().await.expect("syncs");
    assert_eq!(faults.fired(rule), 0);
    writer
        .write(vec![packet(900, 3000)])
        .await
        .expect_err("the data cannot be synced");
    assert_eq!(faults.fired(rule), 1);
    assert_eq!(std::fs::read(&meta).expect("there"), before);
    faults.clear();
    drop(writer);
    // An appender cannot know what was promised, so all that was there counts.
    node.put(6, 1001, 700).await;
    let mut writer = node
        .store
        .append(&block(6, 1001, 700), 1002, 700)
        .await
        .expect("appends");
    let rule = faults.add(
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Sync])
            .at(|path| path.ends_with("blk_6")),
    );
    assert!(writer.write(vec![packet(700, 800)]).await.is_err());
    assert_eq!(faults.fired(rule), 1);
}

#[tokio::test]
async fn beyond_the_chunk_with_synced_bytes_nothing_is_synced() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    writer.sync().await.expect("syncs");
    writer.write(vec![packet(700, 1100)]).await.expect("writes");
    let rule = faults.add(FaultRule::new(Effect::Errno(EIO)).on(&[IoOp::Sync]));
    writer
        .write(vec![packet(1100, 1200)])
        .await
        .expect("writes");
    writer
        .write(vec![packet(1200, 3000)])
        .await
        .expect("writes");
    assert_eq!(faults.fired(rule), 0);
    faults.clear();
    writer.finalize().await.expect("finalizes");
    node.check(5, 1001, 3000).await;
}

#[tokio::test]
async fn a_move_whose_source_cannot_be_deleted_is_done() {
    let (node, faults) = Node::with_faults(2, |config| {
        config.volumes[1].storage_type = StorageType::Archive;
    })
    .await;
    node.put(5, 1001, 3000).await;
    let rule = faults.add(
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Rename])
            .times(1),
    );
    let moved = node
        .store
        .move_block(&block(5, 1001, 0), StorageType::Archive, None)
        .await
        .expect("moves");
    assert_eq!(faults.fired(rule), 1);
    assert_eq!(moved.storage.storage_type, StorageType::Archive);
    node.check(5, 1001, 3000).await;
    let node = node.kill_and_start().await;
    assert_eq!(node.store.replica_count(), 1);
    node.check(5, 1001, 3000).await;
}

#[tokio::test]
async fn every_volume_gets_the_marker_of_a_rolling_upgrade_in_the_end() {
    let (node, faults) = Node::with_faults(2, |_| {}).await;
    faults.add(
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Replace])
            .times(1),
    );
    let first = node
        .store
        .set_rolling_upgrade(&pool(), RollingUpgradeState::InProgress)
        .await;
    assert!(first.is_err() && !marked(&node, 0) && marked(&node, 1));
    node.store
        .set_rolling_upgrade(&pool(), RollingUpgradeState::InProgress)
        .await
        .expect("is tried again");
    assert!(marked(&node, 0));
    // A volume that joins gets it too.
    let all = config(node.dir.path(), 3).volumes;
    let results = node.store.reconfigure_volumes(all).await;
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
    assert!(marked(&node, 2));
    node.store
        .set_rolling_upgrade(&pool(), RollingUpgradeState::Finalized)
        .await
        .expect("ends");
    assert!((0..3).all(|volume| !marked(&node, volume)));
}

#[tokio::test]
async fn a_replica_that_cannot_go_to_the_trash_stays_whole() {
    let node = Node::new().await;
    node.put(5, 1001, 3000).await;
    node.store
        .set_rolling_upgrade(&pool(), RollingUpgradeState::InProgress)
        .await
        .expect("begins");
    let trash = node.pool_dir().join("trash/finalized/subdir0/subdir0");
    let in_the_way = trash.join("blk_5_1001.meta/sub");
    std::fs::create_dir_all(&in_the_way).expect("directory");
    let deleted = node
        .store
        .invalidate(&pool(), &[Block::new(5, 1001, 0)])
        .await;
    assert!(deleted.is_err());
    let node = node.kill_and_start().await;
    node.check(5, 1001, 3000).await;
    // The NameNode says again how the upgrade stands before it orders deletes.
    node.store
        .set_rolling_upgrade(&pool(), RollingUpgradeState::InProgress)
        .await
        .expect("goes on");
    // Half of an earlier try is no obstacle.
    std::fs::remove_dir_all(trash.join("blk_5_1001.meta")).expect("removes");
    std::fs::write(trash.join("blk_5_1001.meta"), b"old").expect("writes");
    node.store
        .invalidate(&pool(), &[Block::new(5, 1001, 0)])
        .await
        .expect("deletes");
    for name in ["blk_5", "blk_5_1001.meta"] {
        assert!(trash.join(name).metadata().expect("there").len() > 3);
        let left = node.pool_dir().join("current/finalized/subdir0/subdir0");
        assert!(!left.join(name).exists());
    }
}

/// Apache's DataNode (`FsDatasetImpl.createRbw`, 3.5.0) replaces whatever there is when a new
/// generation stamp comes with the request, and refuses when none does.
#[tokio::test]
async fn a_new_pipeline_replaces_a_replica_of_any_generation_stamp() {
    for there in [1001, 1002, 1003] {
        let node = Node::new().await;
        node.put(5, there, 3000).await;
        let options = WriteOptions {
            new_gs: Some(1002),
            ..WriteOptions::default()
        };
        let writer = node
            .store
            .create_rbw(&block(5, 1001, 0), options)
            .await
            .expect("replaces");
        assert_eq!(writer.block(), block(5, 1002, 0));
    }
}

#[tokio::test]
async fn new_replicas_do_not_wait_for_closes_that_are_synced() {
    const CLOSES: i64 = 4;
    let (node, faults) = Node::with_faults(1, |config| config.sync_on_close = true).await;
    let mut closes = Vec::new();
    for id in 0..CLOSES {
        let mut writer = node.writer(id, 1001).await;
        writer.write(vec![packet(0, 600)]).await.expect("stages");
        closes.push(writer);
    }
    let slow =
        faults.add(FaultRule::new(Effect::Delay(Duration::from_secs(3))).on(&[IoOp::Rename]));
    let closes = closes
        .into_iter()
        .map(|writer| tokio::spawn(writer.finalize()));
    let closes: Vec<_> = closes.collect();
    while faults.fired(slow) < CLOSES.unsigned_abs() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let soon = Duration::from_secs(1);
    tokio::time::timeout(soon, node.writer(100, 1001))
        .await
        .expect("creates meanwhile");
    for close in closes {
        close.await.expect("no panic").expect("closes");
    }
}

/// Bytes that a recovery cut off and a client sent again are dirty once.
#[tokio::test]
async fn dirty_bytes_are_counted_once() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 2000)]).await.expect("writes");
    writer.set_bytes_acked(1000);
    drop(writer);
    let left = block(5, 1001, 0);
    let taken = node.store.recover_rbw(&left, 1002, 1000, 2000).await;
    let mut writer = taken.expect("is cut");
    writer.set_checksum(crc32c()).await.expect("is known");
    writer
        .write(vec![packet(1000, 2000)])
        .await
        .expect("writes");
    let volume = node.store.0.volumes().remove(0);
    assert_eq!(volume.commits.dirty(), 2000);
    assert!(crate::lifecycle::commit::round(&node.store.0, &volume).await);
    assert_eq!(volume.commits.dirty(), 0);
}

/// A round that comes between takes the directory before its names have changed.
#[tokio::test]
async fn names_that_change_during_a_round_are_left_to_the_next() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    node.put(5, 1001, 700).await;
    faults.add(FaultRule::new(Effect::Delay(Duration::from_millis(400))).on(&[IoOp::Rename]));
    let volume = node.store.0.volumes().remove(0);
    let left = block(5, 1001, 0);
    let (closed, ()) = tokio::join!(node.store.recover_close(&left, 1002, 700), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        crate::lifecycle::commit::round(&node.store.0, &volume).await;
    });
    closed.expect("has the new generation stamp");
    let dir = node.pool_dir().join("current/finalized/subdir0/subdir0");
    assert!(volume.commits.take().1.contains(&dir));
}

/// Write-back heard of the error that a sync of the same descriptor then does not hear of.
#[tokio::test]
async fn an_hsync_fails_when_write_back_failed_meanwhile() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    faults.add(FaultRule::new(Effect::Delay(Duration::from_millis(400))).on(&[IoOp::Sync]));
    let slot = node.store.0.pools().remove(0).map.get(5);
    let Some(crate::replica::Slot::Live(live)) = slot else {
        panic!("is being written")
    };
    let (synced, ()) = tokio::join!(writer.sync(), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        live.note_lost_writes();
    });
    synced.expect_err("bytes may be lost");
}

/// Commit rounds know of writers' files only.
#[tokio::test]
async fn the_copy_that_a_truncate_makes_is_synced() {
    let node = Node::new().await;
    node.put(5, 1001, 2000).await;
    node.store
        .init_replica_recovery(&block(5, 1001, 0), 1010)
        .await
        .expect("begins");
    node.store
        .update_replica_under_recovery(&block(5, 1001, 2000), 1010, 9, 700)
        .await
        .expect("ends");
    let tmp = node.pool_dir().join("tmp");
    for name in ["blk_9", "blk_9_1010.meta"] {
        let synced = crate::replica::files::SYNCED.lock().expect("not poisoned");
        assert!(synced.contains(&tmp.join(name)), "{name}");
    }
}
