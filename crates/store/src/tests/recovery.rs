use super::*;
use hayloft_wire::ids::ReplicaState;
use std::sync::atomic::Ordering;

async fn rbw(node: &Node, id: i64, len: usize, acked: u64) {
    let mut writer = node.writer(id, 1001).await;
    writer.write(vec![packet(0, len)]).await.expect("writes");
    writer.set_bytes_acked(acked);
}

#[tokio::test]
async fn a_replica_being_written_is_recovered_to_the_length_agreed() {
    let node = Node::new().await;
    rbw(&node, 5, 2000, 1500).await;
    let info = node
        .store
        .init_replica_recovery(&block(5, 1001, 0), 1010)
        .await
        .expect("begins")
        .expect("there");
    assert_eq!(
        info,
        RecoveryInfo {
            block: Block::new(5, 1001, 2000),
            original_state: ReplicaState::Rbw
        }
    );
    assert_eq!(
        node.store.block_report(&pool())[0].1[0].state,
        ReplicaState::Rbw
    );
    let replica = node
        .store
        .update_replica_under_recovery(&block(5, 1001, 2000), 1010, 0, 1300)
        .await
        .expect("ends");
    assert_eq!(
        (replica.block, replica.state),
        (block(5, 1010, 1300), ReplicaState::Finalized)
    );
    node.check(5, 1010, 1300).await;
    let node = node.kill_and_start().await;
    node.check(5, 1010, 1300).await;
}

#[tokio::test]
async fn an_active_writer_is_stopped_by_a_recovery() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 2000)]).await.expect("writes");
    let told = tokio::spawn(async move {
        writer.cancelled().await;
        drop(writer);
    });
    let info = node
        .store
        .init_replica_recovery(&block(5, 1001, 0), 1010)
        .await
        .expect("begins")
        .expect("there");
    assert_eq!(info.block.num_bytes, 2000);
    told.await.expect("told");
}

#[tokio::test]
async fn finalized_and_restarted_replicas_are_recovered() {
    let node = Node::new().await;
    node.put(5, 1001, 2000).await;
    node.put(6, 1001, 2000).await;
    rbw(&node, 7, 700, 700).await;
    let node = node.kill_and_start().await;
    let states = [
        (5, ReplicaState::Finalized),
        (6, ReplicaState::Finalized),
        (7, ReplicaState::Rwr),
    ];
    for (id, state) in states {
        let info = node
            .store
            .init_replica_recovery(&block(id, 1001, 0), 1010)
            .await
            .expect("begins")
            .expect("there");
        assert_eq!(info.original_state, state);
    }
    node.check(5, 1001, 2000).await;
    for (id, old, new) in [(5, 2000, 2000), (6, 2000, 1999), (7, 700, 600)] {
        let was = block(id, 1001, old);
        node.store
            .update_replica_under_recovery(&was, 1010, 0, new)
            .await
            .expect("ends");
        node.check(id, 1010, usize::try_from(new).expect("small"))
            .await;
    }
    let node = node.kill_and_start().await;
    for (id, len) in [(5, 2000), (6, 1999), (7, 600)] {
        node.check(id, 1010, len).await;
    }
}

#[tokio::test]
async fn a_truncate_of_a_block_in_a_snapshot_makes_a_new_block() {
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
    node.check(5, 1001, 2000).await;
    node.check(9, 1010, 700).await;
    let node = node.kill_and_start().await;
    node.check(5, 1001, 2000).await;
    node.check(9, 1010, 700).await;
}

#[tokio::test]
async fn recoveries_follow_their_ids() {
    let node = Node::new().await;
    let store = &node.store;
    node.put(5, 1005, 2000).await;
    assert_eq!(
        store
            .init_replica_recovery(&block(6, 1001, 0), 1010)
            .await
            .expect("answers"),
        None
    );
    let older_replica = store.init_replica_recovery(&block(5, 1006, 0), 1010).await;
    assert_eq!(Node::error_of(older_replica), StoreErrorKind::Illegal);
    let older_recovery = store.init_replica_recovery(&block(5, 1001, 0), 1005).await;
    assert_eq!(Node::error_of(older_recovery), StoreErrorKind::Illegal);
    store
        .init_replica_recovery(&block(5, 1005, 0), 1010)
        .await
        .expect("begins");
    for refused in [1009, 1010] {
        let again = store
            .init_replica_recovery(&block(5, 1005, 0), refused)
            .await;
        assert_eq!(Node::error_of(again), StoreErrorKind::RecoveryInProgress);
    }
    let info = store
        .init_replica_recovery(&block(5, 1005, 0), 1020)
        .await
        .expect("begins again")
        .expect("there");
    assert_eq!(info.original_state, ReplicaState::Finalized);
    let was = block(5, 1005, 2000);
    let late = store
        .update_replica_under_recovery(&was, 1010, 0, 2000)
        .await;
    assert_eq!(Node::error_of(late), StoreErrorKind::Illegal);
    let longer = store
        .update_replica_under_recovery(&was, 1020, 0, 2001)
        .await;
    assert_eq!(Node::error_of(longer), StoreErrorKind::Illegal);
    let other = store
        .update_replica_under_recovery(&block(5, 1005, 1999), 1020, 0, 1999)
        .await;
    assert_eq!(Node::error_of(other), StoreErrorKind::Illegal);
    store
        .update_replica_under_recovery(&was, 1020, 0, 2000)
        .await
        .expect("ends");
    let again = store
        .update_replica_under_recovery(&was, 1020, 0, 2000)
        .await;
    assert_eq!(Node::error_of(again), StoreErrorKind::Illegal);
    node.check(5, 1020, 2000).await;
}

#[tokio::test]
async fn a_recovery_that_never_ends_leaves_the_replica_after_a_restart() {
    let node = Node::new().await;
    node.put(5, 1001, 2000).await;
    rbw(&node, 6, 700, 700).await;
    for id in [5, 6] {
        node.store
            .init_replica_recovery(&block(id, 1001, 0), 1010)
            .await
            .expect("begins");
    }
    let node = node.restart().await;
    node.check(5, 1001, 2000).await;
    assert_eq!(
        node.store.replica(&pool(), 6).expect("there").state,
        ReplicaState::Rwr
    );
    assert_eq!(
        node.store.replica(&pool(), 6).expect("there").bytes_on_disk,
        700
    );
}

/// Its checksums are gone then, of all beyond: no recovery may put these bytes into a finalized
/// replica.
#[tokio::test]
async fn a_cut_that_fails_half_way_is_gone_on_with() {
    use std::os::unix::fs::MetadataExt as _;
    let node = Node::new().await;
    rbw(&node, 5, 1700, 1300).await;
    let data = node.pool_dir().join("current/rbw/blk_5");
    let inode = std::fs::metadata(&data).expect("there").ino();
    crate::found_at_start::CANNOT_BE_CUT.store(inode, Ordering::Relaxed);
    let left = block(5, 1001, 0);
    let taken = node.store.recover_rbw(&left, 1002, 1300, 1700).await;
    taken.expect_err("cannot be cut");
    crate::found_at_start::CANNOT_BE_CUT.store(0, Ordering::Relaxed);
    assert_eq!(std::fs::metadata(&data).expect("there").len(), 1700);
    let begun = node.store.init_replica_recovery(&left, 1010).await;
    let info = begun.expect("begins").expect("there");
    assert_eq!(info.block.num_bytes, 1300);
    node.store
        .update_replica_under_recovery(&ExtendedBlock::new(pool(), info.block), 1010, 0, 1300)
        .await
        .expect("ends");
    node.check(5, 1010, 1300).await;
}
