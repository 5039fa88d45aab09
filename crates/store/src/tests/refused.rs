//! Disks that refuse what is written to them: full, failing.

use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};

fn on_data(errno: i32) -> FaultRule {
    FaultRule::new(Effect::Errno(errno))
        .on(&[IoOp::Write])
        .at(|path| path.ends_with("blk_5"))
}

#[tokio::test]
async fn a_full_disk_is_told_and_what_was_acknowledged_stays() {
    let (node, faults) = Node::faulty(1).await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    writer.set_bytes_acked(700);
    faults.add(on_data(ENOSPC));
    let full = writer.write(vec![packet(700, 100_000)]).await;
    assert_eq!(Node::error_of(full), StoreErrorKind::OutOfSpace);
    assert_eq!(writer.bytes_on_disk(), 700);
    assert!(writer.accept(&[packet(100_000, 100_001)]).is_err());
    node.check(5, 1001, 700).await;
    writer.finalize().await.expect_err("a write of it failed");
    faults.clear();
    let taken = node
        .store
        .recover_rbw(&block(5, 1001, 0), 1002, 0, u64::MAX)
        .await;
    let mut writer = taken.expect("there is room");
    writer.set_checksum(crc32c()).await.expect("known");
    assert_eq!(writer.bytes_on_disk(), 700);
    let written = writer.write(vec![packet(0, 200_000)]).await;
    written.expect("writes");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1002, 200_000).await;
}

#[tokio::test]
async fn after_a_failed_sync_nothing_of_the_replica_is_said_to_be_synced() {
    let (node, faults) = Node::faulty(1).await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 5000)]).await.expect("writes");
    faults.add(
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Sync])
            .times(1),
    );
    writer.sync().await.expect_err("fails");
    writer
        .sync()
        .await
        .expect_err("the kernel tells of it once");
    drop(writer);
    let taken = node
        .store
        .recover_rbw(&block(5, 1001, 0), 1002, 0, u64::MAX)
        .await;
    let mut writer = taken.expect("recovers");
    writer.set_checksum(crc32c()).await.expect("known");
    let at = usize::try_from(writer.bytes_on_disk()).expect("small");
    writer.write(vec![packet(at, 9000)]).await.expect("writes");
    let error = writer.sync().await.expect_err("of an earlier writer");
    assert!(error.to_string().contains("earlier sync"), "{error}");
    writer.finalize().await.expect("a close promises less");
    node.check(5, 1002, 9000).await;
}

/// The kernel tells of it once, and only to a process that had the file open.
#[tokio::test]
async fn a_sync_that_fails_after_its_caller_has_gone_is_not_forgotten() {
    let (node, faults) = Node::faulty(1).await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    let on_data = |effect| {
        let rule = FaultRule::new(effect).on(&[IoOp::Sync]).times(1);
        rule.at(|path| path.ends_with("blk_5"))
    };
    faults.add(on_data(Effect::Delay(Duration::from_millis(400))));
    faults.add(on_data(Effect::Errno(EIO)));
    let soon = Duration::from_millis(100);
    let synced = tokio::time::timeout(soon, writer.sync()).await;
    synced.expect_err("takes its time");
    writer.set_bytes_acked(700);
    drop(writer);
    let left = block(5, 1001, 0);
    let taken = node.store.recover_rbw(&left, 1002, 700, 700).await;
    let mut writer = taken.expect("is taken over");
    let error = writer.sync().await.expect_err("it is not known");
    assert!(error.to_string().contains("earlier sync"), "{error}");
}

/// Where closes are synced, a recovery fails rather than promise that after a failed sync.
#[tokio::test]
async fn no_recovery_calls_a_replica_synced_after_a_failed_sync() {
    for failing in [false, true] {
        let (node, faults) = Node::with_faults(1, |config| {
            config.sync_on_close = true;
            config.check_min_gap = Duration::ZERO;
        })
        .await;
        let mut writer = node.writer(5, 1001).await;
        writer.write(vec![packet(0, 5000)]).await.expect("writes");
        if failing {
            let once = FaultRule::new(Effect::Errno(EIO)).times(1);
            faults.add(once.on(&[IoOp::Sync]));
        }
        assert_eq!(writer.sync().await.is_err(), failing);
        writer.set_bytes_acked(5000);
        drop(writer);
        let left = block(5, 1001, 0);
        let closed = node.store.recover_close(&left, 1002, 5000).await;
        if failing {
            let error = closed.expect_err("the kernel tells of it once");
            assert!(error.to_string().contains("earlier sync"), "{error}");
        } else {
            closed.expect("is synced and closed");
            node.check(5, 1002, 5000).await;
        }
    }
}

/// The sync of a commit round, which no client waits for.
#[tokio::test]
async fn a_background_sync_that_fails_is_told() {
    let (mut node, faults) = Node::faulty(1).await;
    node.put(5, 1001, 5000).await;
    let mut writer = node.writer(6, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    // Of replicas alone: a check of the volume syncs too, and finds it well.
    let syncs = FaultRule::new(Effect::Errno(EIO)).on(&[IoOp::Sync]);
    faults.add(syncs.at(|path| path.to_string_lossy().contains("blk_")));
    let volume = node.store.0.volumes().remove(0);
    assert!(!crate::transitions::run_commit_rounds::round(&node.store.0, &volume).await);
    faults.clear();
    let told = tokio::time::timeout(Duration::from_secs(5), node.events.recv()).await;
    let Ok(Some(StoreEvent::Corrupt { block: bad, .. })) = told else {
        panic!("{told:?}");
    };
    assert_eq!(bad.block.id, 5);
    // Of the replica that is being written every later hsync fails, and its close is told.
    writer.sync().await.expect_err("bytes may be lost");
    writer.finalize().await.expect("a close promises less");
    let told = tokio::time::timeout(Duration::from_secs(5), node.events.recv()).await;
    assert!(
        matches!(&told, Ok(Some(StoreEvent::Corrupt { block, .. })) if block.block.id == 6),
        "{told:?}"
    );
}
