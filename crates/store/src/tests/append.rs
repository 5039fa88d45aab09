use super::*;

#[tokio::test]
async fn an_append_goes_on_in_the_middle_of_a_chunk() {
    let node = Node::new().await;
    node.put(5, 1001, 700).await;
    let reader = node
        .store
        .open_reader(&block(5, 1001, 0))
        .await
        .expect("opens");
    let mut writer = node
        .store
        .append(&block(5, 1001, 700), 1002, 700)
        .await
        .expect("opens");
    assert_eq!(
        (writer.block(), writer.checksum()),
        (block(5, 1002, 700), Some(crc32c()))
    );
    node.check(5, 1002, 700).await;
    writer.set_checksum(crc32c()).await.expect("keeps");
    writer
        .write(vec![packet(700, 1024), packet(1024, 5000)])
        .await
        .expect("writes");
    check_reader(&reader, 700).await;
    writer.finalize().await.expect("finalizes");
    node.check(5, 1002, 5000).await;
    let dir = node.pool_dir().join("current/finalized/subdir0/subdir0");
    assert!(!dir.join("blk_5_1001.meta").exists() && dir.join("blk_5_1002.meta").is_file());
    let node = node.kill_and_start().await;
    node.check(5, 1002, 5000).await;
}

#[tokio::test]
async fn an_append_with_another_checksum_keeps_that_of_the_disk() {
    let node = Node::new().await;
    node.put(5, 1001, 700).await;
    let other = DataChecksum::new(ChecksumKind::Crc32, 100).expect("valid");
    let mut writer = node
        .store
        .append(&block(5, 1001, 0), 1002, 700)
        .await
        .expect("opens");
    writer.set_checksum(other).await.expect("accepts");
    assert_eq!(writer.checksum(), Some(crc32c()));
    writer
        .write(vec![packet_with(other, 700, 3000)])
        .await
        .expect("writes");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1002, 3000).await;
}

#[tokio::test]
async fn what_cannot_be_appended_to_is_refused() {
    let node = Node::new().await;
    node.put(5, 1001, 700).await;
    let store = &node.store;
    let kind = Node::error_of(store.append(&block(6, 1001, 0), 1002, 0).await);
    assert_eq!(kind, StoreErrorKind::NotFound);
    let kind = Node::error_of(store.append(&block(5, 1000, 0), 1002, 700).await);
    assert_eq!(kind, StoreErrorKind::UnexpectedGenerationStamp);
    let kind = Node::error_of(store.append(&block(5, 1001, 0), 1000, 700).await);
    assert_eq!(kind, StoreErrorKind::Illegal);
    let kind = Node::error_of(store.append(&block(5, 1001, 0), 1002, 600).await);
    assert_eq!(kind, StoreErrorKind::Illegal);
    let kind = Node::error_of(store.append(&block(5, 1001, 1 << 60), 1002, 700).await);
    assert_eq!(kind, StoreErrorKind::OutOfSpace);
    let _writer = node.writer(7, 1001).await;
    let kind = Node::error_of(store.append(&block(7, 1001, 0), 1002, 0).await);
    assert_eq!(kind, StoreErrorKind::NotFound);
    node.check(5, 1001, 700).await;
}

#[tokio::test]
async fn an_append_to_a_damaged_replica_is_refused_and_reported() {
    let mut node = Node::new().await;
    node.put(5, 1001, 700).await;
    let data = node
        .pool_dir()
        .join("current/finalized/subdir0/subdir0/blk_5");
    let mut damaged = std::fs::read(&data).expect("there");
    damaged[600] ^= 1;
    std::fs::write(&data, damaged).expect("writes");
    let kind = Node::error_of(node.store.append(&block(5, 1001, 0), 1002, 700).await);
    assert_eq!(kind, StoreErrorKind::Corrupt);
    assert!(matches!(
        node.events.recv().await,
        Some(StoreEvent::Corrupt { .. })
    ));
}

#[tokio::test]
async fn an_append_leaves_hard_links_of_an_upgrade_alone() {
    let node = Node::new().await;
    node.put(5, 1001, 700).await;
    let dir = node.pool_dir().join("current/finalized/subdir0/subdir0");
    let previous = node.dir.path().join("previous");
    std::fs::create_dir(&previous).expect("directory");
    for name in ["blk_5", "blk_5_1001.meta"] {
        std::fs::hard_link(dir.join(name), previous.join(name)).expect("link");
    }
    let before =
        ["blk_5", "blk_5_1001.meta"].map(|n| std::fs::read(previous.join(n)).expect("there"));
    let mut writer = node
        .store
        .append(&block(5, 1001, 0), 1002, 700)
        .await
        .expect("opens");
    writer.set_checksum(crc32c()).await.expect("keeps");
    writer.write(vec![packet(700, 3000)]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1002, 3000).await;
    let after =
        ["blk_5", "blk_5_1001.meta"].map(|n| std::fs::read(previous.join(n)).expect("there"));
    assert!(before == after);
}

#[tokio::test]
async fn a_failed_append_is_recovered_from_either_state() {
    let node = Node::new().await;
    node.put(5, 1001, 700).await;
    // The set-up failed before this node heard of it: still finalized.
    let writer = node
        .store
        .recover_append(&block(5, 1001, 0), 1002, 700)
        .await
        .expect("opens");
    assert_eq!(writer.block(), block(5, 1002, 700));
    // It failed after: RBW by now, its writer is stopped.
    let cancelled = tokio::spawn({
        let token = writer.cancel_token();
        async move {
            token.cancelled().await;
            drop(writer);
        }
    });
    let mut writer = node
        .store
        .recover_append(&block(5, 1001, 0), 1003, 700)
        .await
        .expect("takes over");
    cancelled.await.expect("told");
    writer.set_checksum(crc32c()).await.expect("keeps");
    writer.write(vec![packet(700, 900)]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1003, 900).await;
}

#[tokio::test]
async fn a_failed_close_is_recovered_from_either_state() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    writer.set_bytes_acked(700);
    drop(writer);
    let replica = node
        .store
        .recover_close(&block(5, 1001, 0), 1002, 700)
        .await
        .expect("closes");
    assert_eq!(replica.block, block(5, 1002, 700));
    let replica = node
        .store
        .recover_close(&block(5, 1001, 0), 1003, 700)
        .await
        .expect("closes again");
    assert_eq!(replica.block, block(5, 1003, 700));
    node.check(5, 1003, 700).await;
    let node = node.kill_and_start().await;
    node.check(5, 1003, 700).await;
}

#[tokio::test]
async fn a_pipeline_recovery_checks_lengths_and_stamps() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 2000)]).await.expect("writes");
    writer.set_bytes_acked(1300);
    drop(writer);
    let store = &node.store;
    let kind = Node::error_of(
        store
            .recover_rbw(&block(5, 1001, 0), 1002, 1500, 2000)
            .await,
    );
    assert_eq!(kind, StoreErrorKind::NotFound);
    let kind = Node::error_of(store.recover_rbw(&block(5, 1001, 0), 1002, 0, 1999).await);
    assert_eq!(kind, StoreErrorKind::NotFound);
    let kind = Node::error_of(store.recover_rbw(&block(5, 1002, 0), 1003, 0, 2000).await);
    assert_eq!(kind, StoreErrorKind::UnexpectedGenerationStamp);
    let mut writer = store
        .recover_rbw(&block(5, 1001, 0), 1002, 1300, 2000)
        .await
        .expect("takes over");
    assert_eq!(writer.block(), block(5, 1002, 1300));
    assert!(
        node.pool_dir()
            .join("current/rbw/blk_5_1002.meta")
            .is_file()
    );
    writer
        .write(vec![packet(1024, 2500)])
        .await
        .expect("writes");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1002, 2500).await;
    let kind = Node::error_of(store.recover_rbw(&block(5, 1002, 0), 1003, 0, 9999).await);
    assert_eq!(kind, StoreErrorKind::NotFound);
}

#[tokio::test]
async fn a_writer_that_does_not_stop_makes_the_next_one_fail() {
    let node = Node::new().await;
    let stubborn = node.writer(5, 1001).await;
    let kind = Node::error_of(node.store.recover_rbw(&block(5, 1001, 0), 1002, 0, 0).await);
    assert_eq!(kind, StoreErrorKind::WriterBusy);
    let kind = Node::error_of(stubborn.finalize().await);
    assert_eq!(kind, StoreErrorKind::Cancelled);
    node.store
        .recover_rbw(&block(5, 1001, 0), 1002, 0, 0)
        .await
        .expect("takes over");
}
