use std::future::poll_fn;
use std::task::Poll;

use hayloft_io::MayWait;

use super::*;

#[tokio::test]
async fn readers_of_a_replica_being_written_see_what_was_acknowledged() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    node.check(5, 1001, 0).await;
    writer.acks().set_bytes_acked(700);
    let early = node
        .store
        .open_reader(&block(5, 1001, 0))
        .await
        .expect("opens");
    assert_eq!(early.visible_len(), 700);
    // The last chunk is completed and its checksum on the disk changes under the reader.
    writer.write(vec![packet(512, 1500)]).await.expect("writes");
    check_reader(&early, 700).await;
    writer.set_bytes_acked(9999);
    node.check(5, 1001, 1500).await;
    writer.finalize().await.expect("finalizes");
    check_reader(&early, 700).await;
}

#[tokio::test]
async fn a_thread_that_may_wait_has_written_what_it_begins_to_write() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    let may_wait = MayWait::this_thread();
    // Within a chunk, to its end, and from there on.
    for (from, to) in [(700, 800), (800, 1024), (1024, 1100)] {
        // With its budget used up a task is told to wait for what is there.
        tokio::task::yield_now().await;
        writer.accept(&[packet(from, to)]).expect("accepts");
        let moved = poll_fn(|cx| Poll::Ready(writer.poll_write(cx, Due::All))).await;
        assert!(moved.expect("writes"));
        assert!(!writer.is_writing(), "no task does it");
        assert_eq!(writer.bytes_on_disk(), to as u64);
    }
    drop(may_wait);
    writer.finalize().await.expect("finalizes");
    node.check(5, 1001, 1100).await;
}

#[tokio::test]
async fn packets_sent_again_change_nothing() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 1000)]).await.expect("writes");
    writer
        .write(vec![packet(0, 1000), packet(512, 1024), packet(1024, 3000)])
        .await
        .expect("writes");
    assert_eq!(writer.bytes_on_disk(), 3000);
    let gap = writer.write(vec![packet(3100, 3200)]).await;
    assert_eq!(Node::error_of(gap), StoreErrorKind::Illegal);
    writer
        .write(vec![packet(3000, 3001)])
        .await
        .expect("a refused packet spoils nothing");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1001, 3001).await;
}

#[tokio::test]
async fn any_checksum_can_be_written_and_read() {
    let node = Node::new().await;
    let kinds = [
        (ChecksumKind::Null, 512),
        (ChecksumKind::Crc32, 100),
        (ChecksumKind::Crc32c, 4096),
    ];
    for (id, (kind, chunk)) in (1..).zip(kinds) {
        let checksum = DataChecksum::new(kind, chunk).expect("valid");
        let mut writer = node
            .store
            .create_rbw(&block(id, 1001, 0), WriteOptions::default())
            .await
            .expect("creates");
        writer.set_checksum(checksum).await.expect("header");
        writer
            .write(vec![
                packet_with(checksum, 0, 10_000),
                packet_with(checksum, 10_000, 10_050),
            ])
            .await
            .expect("writes");
        writer.finalize().await.expect("finalizes");
        node.check(id, 1001, 10_050).await;
    }
}

#[tokio::test]
async fn a_sync_does_not_disturb_writing() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    writer.sync().await.expect("syncs");
    writer.write(vec![packet(700, 800)]).await.expect("writes");
    writer.sync().await.expect("syncs");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1001, 800).await;
}

#[tokio::test]
async fn preallocation_and_sync_on_close_leave_the_right_length() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = StoreConfig {
        preallocate: true,
        sync_on_close: true,
        ..config(dir.path(), 1)
    };
    let node = Node::start(dir, 1, config).await;
    let options = WriteOptions {
        expected_len: Some(1 << 20),
        ..WriteOptions::default()
    };
    let mut writer = node
        .store
        .create_rbw(&block(5, 1001, 0), options)
        .await
        .expect("creates");
    writer.set_checksum(crc32c()).await.expect("header");
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1001, 700).await;
}

#[tokio::test]
async fn space_is_promised_while_writing_and_counted_afterwards() {
    let node = Node::new().await;
    let before = node.store.storage_reports(&pool())[0].clone();
    let options = WriteOptions {
        expected_len: Some(1 << 20),
        ..WriteOptions::default()
    };
    let mut writer = node
        .store
        .create_rbw(&block(5, 1001, 0), options)
        .await
        .expect("creates");
    assert_eq!(node.store.volume_report()[0].reserved_for_replicas, 1 << 20);
    writer.set_checksum(crc32c()).await.expect("header");
    writer.write(vec![packet(0, 10_000)]).await.expect("writes");
    assert!(node.store.volume_report()[0].reserved_for_replicas < 1 << 20);
    writer.finalize().await.expect("finalizes");
    let after = node.store.storage_reports(&pool())[0].clone();
    assert_eq!(node.store.volume_report()[0].reserved_for_replicas, 0);
    assert_eq!(after.dfs_used - before.dfs_used, 10_000 + 7 + 20 * 4);
    assert_eq!(after.block_pool_used, after.dfs_used);
    // The same after a restart, and given back when a writer goes away.
    let node = node.restart().await;
    assert_eq!(
        node.store.storage_reports(&pool())[0].dfs_used,
        after.dfs_used
    );
    let options = WriteOptions {
        expected_len: Some(1 << 20),
        ..WriteOptions::default()
    };
    drop(
        node.store
            .create_rbw(&block(6, 1001, 0), options)
            .await
            .expect("creates"),
    );
    assert_eq!(node.store.volume_report()[0].reserved_for_replicas, 0);
}

#[tokio::test]
async fn a_volume_without_room_is_refused_before_anything_is_written() {
    let node = Node::new().await;
    let options = WriteOptions {
        expected_len: Some(1 << 60),
        ..WriteOptions::default()
    };
    let full = node.store.create_rbw(&block(5, 1001, 0), options).await;
    assert_eq!(Node::error_of(full), StoreErrorKind::OutOfSpace);
    let ssd = WriteOptions {
        storage_type: hayloft_wire::ids::StorageType::Ssd,
        ..WriteOptions::default()
    };
    let none = node.store.create_rbw(&block(5, 1001, 0), ssd).await;
    assert_eq!(Node::error_of(none), StoreErrorKind::OutOfSpace);
    assert!(node.store.replica(&pool(), 5).is_none());
}

#[tokio::test]
async fn a_writer_that_is_dropped_in_the_middle_of_a_write_lets_the_next_one_in_cleanly() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 1000)]).await.expect("writes");
    writer.set_bytes_acked(1000);
    {
        let write = writer.write(vec![packet(1000, 500_000)]);
        tokio::pin!(write);
        let _ = futures_util::poll!(&mut write);
    }
    drop(writer);
    let mut writer = node
        .store
        .recover_rbw(&block(5, 1001, 0), 1002, 1000, u64::MAX)
        .await
        .expect("takes over");
    assert_eq!(writer.bytes_on_disk(), 1000);
    writer.write(vec![packet(512, 2000)]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1002, 2000).await;
}
