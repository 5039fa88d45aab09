use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_wire::ids::ReplicaState;

#[tokio::test]
async fn a_block_is_written_finalized_read_and_found_again() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer
        .write(vec![packet(0, 65_536), packet(65_536, 100_000)])
        .await
        .expect("writes");
    let replica = writer.finalize().await.expect("finalizes");
    assert_eq!(
        (replica.block, replica.state),
        (block(5, 1001, 100_000), ReplicaState::Finalized)
    );
    node.check(5, 1001, 100_000).await;
    assert!(
        node.pool_dir()
            .join("current/finalized/subdir0/subdir0/blk_5_1001.meta")
            .is_file()
    );
    assert!(!node.pool_dir().join("current/rbw/blk_5").exists());
    assert!(!node.pool_dir().join("current/rbw/blk_5_1001.meta").exists());
    let node = node.restart().await;
    node.check(5, 1001, 100_000).await;
    let report = node.store.block_report(&pool());
    assert_eq!(report.len(), 1);
    assert_eq!(report[0].1[0].block, Block::new(5, 1001, 100_000));
}

#[tokio::test]
async fn an_empty_block_is_a_block() {
    let node = Node::new().await;
    node.put(5, 1001, 0).await;
    node.check(5, 1001, 0).await;
    let node = node.kill_and_start().await;
    node.check(5, 1001, 0).await;
}

#[tokio::test]
async fn a_block_is_created_once() {
    let node = Node::new().await;
    node.put(5, 1001, 10).await;
    let again = node
        .store
        .create_rbw(&block(5, 1001, 0), WriteOptions::default())
        .await;
    assert_eq!(Node::error_of(again), StoreErrorKind::AlreadyExists);
    let copy = node
        .store
        .create_temporary(&block(5, 1001, 0), WriteOptions::default())
        .await;
    assert_eq!(Node::error_of(copy), StoreErrorKind::AlreadyExists);
    // A later attempt of the same client replaces what the earlier one left.
    let options = WriteOptions {
        new_gs: Some(1002),
        ..WriteOptions::default()
    };
    let mut writer = node
        .store
        .create_rbw(&block(5, 1001, 0), options)
        .await
        .expect("replaces");
    assert_eq!(writer.block(), block(5, 1002, 0));
    writer.set_checksum(crc32c()).await.expect("header");
    writer.write(vec![packet(0, 20)]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1002, 20).await;
}

#[tokio::test]
async fn generation_stamps_are_checked_on_reading() {
    let node = Node::new().await;
    node.put(5, 1001, 10).await;
    node.check(5, 1000, 10).await;
    let newer = node.store.open_reader(&block(5, 1002, 0)).await;
    assert_eq!(
        Node::error_of(newer),
        StoreErrorKind::UnexpectedGenerationStamp
    );
    let other = node.store.open_reader(&block(6, 1001, 0)).await;
    assert_eq!(Node::error_of(other), StoreErrorKind::NotFound);
    let elsewhere = ExtendedBlock::new(PoolId::new("BP-2").expect("valid"), Block::new(5, 1001, 0));
    assert_eq!(
        Node::error_of(node.store.open_reader(&elsewhere).await),
        StoreErrorKind::NotReady
    );
}

#[tokio::test]
async fn a_copy_is_finalized_or_dropped_without_a_trace() {
    let node = Node::new().await;
    let mut copy = node
        .store
        .create_temporary(&block(5, 1001, 0), WriteOptions::default())
        .await
        .expect("creates");
    copy.set_checksum(crc32c()).await.expect("header");
    copy.write(vec![packet(0, 700)]).await.expect("writes");
    assert!(node.store.block_report(&pool())[0].1.is_empty());
    assert_eq!(
        Node::error_of(node.store.open_reader(&block(5, 1001, 0)).await),
        StoreErrorKind::Illegal
    );
    copy.finalize().await.expect("finalizes");
    node.check(5, 1001, 700).await;
    let copy = node
        .store
        .create_temporary(&block(6, 1001, 0), WriteOptions::default())
        .await
        .expect("creates");
    drop(copy);
    let again = node
        .store
        .create_temporary(&block(6, 1001, 0), WriteOptions::default())
        .await;
    assert!(again.is_ok());
}

#[tokio::test]
async fn a_copy_becomes_part_of_a_pipeline() {
    let node = Node::new().await;
    let options = WriteOptions {
        transfer: true,
        ..WriteOptions::default()
    };
    let mut copy = node
        .store
        .create_temporary(&block(5, 1001, 0), options)
        .await
        .expect("creates");
    copy.set_checksum(crc32c()).await.expect("header");
    copy.write(vec![packet(0, 700)]).await.expect("writes");
    let replica = node
        .store
        .convert_temporary_to_rbw(copy)
        .await
        .expect("converts");
    assert_eq!(
        (replica.state, replica.visible_len),
        (ReplicaState::Rbw, Some(700))
    );
    let mut writer = node
        .store
        .recover_rbw(&block(5, 1001, 0), 1002, 0, 700)
        .await
        .expect("takes over");
    writer.write(vec![packet(700, 900)]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1002, 900).await;
}

#[tokio::test]
async fn a_pinned_replica_stays_pinned() {
    let node = Node::new().await;
    let options = WriteOptions {
        pinned: true,
        ..WriteOptions::default()
    };
    let mut writer = node
        .store
        .create_rbw(&block(5, 1001, 0), options)
        .await
        .expect("creates");
    writer.set_checksum(crc32c()).await.expect("header");
    writer.finalize().await.expect("finalizes");
    let node = node.kill_and_start().await;
    assert!(node.store.replica(&pool(), 5).expect("there").pinned);
    let node = node.restart().await;
    assert!(node.store.replica(&pool(), 5).expect("there").pinned);
}

#[tokio::test]
async fn a_pipeline_goes_on_after_an_upgrade_restart() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    writer.set_bytes_acked(700);
    drop(writer);
    node.store.mark_for_restart(Duration::from_secs(60)).await;
    let node = node.restart().await;
    assert_eq!(
        node.store.replica(&pool(), 5).expect("there").state,
        ReplicaState::Rbw
    );
    let mut writer = node
        .store
        .recover_rbw(&block(5, 1001, 0), 1002, 700, 700)
        .await
        .expect("takes over");
    writer.set_checksum(crc32c()).await.expect("keeps");
    writer.write(vec![packet(700, 900)]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1002, 900).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_volume_keeps_no_other_from_its_markers_of_a_restart() {
    let (node, faults) = Node::faulty(2).await;
    let mut writers = Vec::new();
    for id in 1..=4 {
        writers.push(node.writer(id, 1001).await);
    }
    let hour = Duration::from_secs(3600);
    faults.add(FaultRule::new(Effect::Stall(hour)).on(&[IoOp::Replace]));
    let store = node.store.clone();
    tokio::spawn(async move { store.mark_for_restart(Duration::from_secs(60)).await });
    let other = node.dir.path().join("data1/current").join(pool().as_str());
    let there = |name: String| other.join("current").join(name).exists();
    let on_other = |id: &i64| there(format!("rbw/blk_{id}"));
    let marked = |id: i64| there(format!("rbw:.blk_{id}.restart"));
    let until = std::time::Instant::now() + Duration::from_secs(5);
    assert_eq!((1..=4).filter(on_other).count(), 2);
    while !(1..=4).filter(on_other).all(marked) {
        assert!(std::time::Instant::now() < until, "a marker is missing");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(writers);
    node.store.crash();
}
