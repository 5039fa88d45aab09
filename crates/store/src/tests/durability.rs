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

fn syncs_of(name: &'static str) -> FaultRule {
    let rule = FaultRule::new(Effect::Errno(EIO)).on(&[IoOp::Sync]);
    rule.at(move |path| path.ends_with(name))
}

/// Power loss may leave the checksum of what followed, and not the bytes. What was synced is found.
#[tokio::test]
async fn synced_bytes_are_found_whatever_becomes_of_their_checksum() {
    for left in [700, 750, 900] {
        let (node, faults) = Node::with_faults(1, |_| {}).await;
        let mut writer = node.writer(5, 1001).await;
        writer.write(vec![packet(0, 700)]).await.expect("writes");
        writer.sync().await.expect("syncs");
        // Nothing has to reach the device between data and checksum.
        let none = faults.add(syncs_of("blk_5"));
        for (from, to) in [(700, 800), (800, 900)] {
            writer.write(vec![packet(from, to)]).await.expect("writes");
        }
        assert_eq!(faults.fired(none), 0);
        let rbw = node.pool_dir().join("current/rbw");
        let meta = std::fs::read(rbw.join("blk_5_1001.meta")).expect("there");
        let node = {
            let data = std::fs::OpenOptions::new()
                .write(true)
                .open(rbw.join("blk_5"))
                .expect("opens");
            data.set_len(700).expect("cuts");
            data.set_len(left).expect("leaves zeros");
            node.kill_and_start().await
        };
        let there = node.store.replica(&pool(), 5).expect("there");
        assert_eq!(there.bytes_on_disk, 700, "{left}");
        // For Apache's node, too: the checksum is the one of these bytes now.
        let now = std::fs::read(rbw.join("blk_5_1001.meta")).expect("there");
        assert_ne!(now, meta);
        let crc = crc32c().kind().crc(&bytes(512, 700));
        assert!(now.ends_with(&crc.to_be_bytes()));
        drop(writer);
    }
}

/// While a sync is under way, the one before it is what was promised.
#[tokio::test]
async fn the_last_sync_counts_until_the_next_has_ended() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    writer.sync().await.expect("syncs");
    writer.write(vec![packet(700, 800)]).await.expect("writes");
    faults.add(syncs_of("blk_5"));
    writer.sync().await.expect_err("does not get there");
    let data = node.pool_dir().join("current/rbw/blk_5");
    let data = std::fs::OpenOptions::new().write(true).open(data);
    data.expect("opens").set_len(700).expect("cuts");
    let node = node.kill_and_start().await;
    let there = node.store.replica(&pool(), 5).expect("there");
    assert_eq!(there.bytes_on_disk, 700);
    drop(writer);
}

/// An appender cannot know what was promised: all that was there is synced before its end counts.
#[tokio::test]
async fn an_append_keeps_the_end_that_was_there() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    node.put(5, 1001, 700).await;
    let append = node.store.append(&block(5, 1001, 700), 1002, 700).await;
    let mut writer = append.expect("appends");
    // It is not synced here: a rule that delays only counts.
    let syncs = FaultRule::new(Effect::Delay(Duration::ZERO)).on(&[IoOp::Sync]);
    let data = faults.add(syncs.at(|path| path.ends_with("blk_5")));
    for (from, to) in [(700, 800), (800, 900)] {
        writer.write(vec![packet(from, to)]).await.expect("writes");
    }
    assert_eq!(faults.fired(data), 1, "once, and before the first");
    let data = node.pool_dir().join("current/rbw/blk_5");
    let data = std::fs::OpenOptions::new().write(true).open(data);
    data.expect("opens").set_len(700).expect("cuts");
    let node = node.kill_and_start().await;
    let there = node.store.replica(&pool(), 5).expect("there");
    assert_eq!(there.bytes_on_disk, 700);
    drop(writer);
}

/// Where the file system keeps no ends: what follows is on the device before the checksum goes.
#[tokio::test]
async fn without_a_place_for_ends_data_is_synced_before_its_checksum() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    let attributes = FaultRule::new(Effect::Errno(EOPNOTSUPP)).on(&[IoOp::Other]);
    faults.add(attributes.at(|path| path.ends_with("blk_5_1001.meta")));
    let meta = node.pool_dir().join("current/rbw/blk_5_1001.meta");
    let mut writer = node.writer(5, 1001).await;
    // Nothing was promised yet: no sync.
    let none = faults.add(syncs_of("blk_5"));
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
    let rule = faults.add(syncs_of("blk_5"));
    writer.sync().await.expect("syncs");
    assert_eq!(faults.fired(rule), 0);
    writer
        .write(vec![packet(900, 3000)])
        .await
        .expect_err("the data cannot be synced");
    assert_eq!(faults.fired(rule), 1);
    assert_eq!(std::fs::read(&meta).expect("there"), before);
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
    assert!(crate::transitions::run_commit_rounds::round(&node.store.0, &volume).await);
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
        crate::transitions::run_commit_rounds::round(&node.store.0, &volume).await;
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
        let synced = crate::replica::file_pair::SYNCED
            .lock()
            .expect("not poisoned");
        assert!(synced.contains(&tmp.join(name)), "{name}");
    }
}
