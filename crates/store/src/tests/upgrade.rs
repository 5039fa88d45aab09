use super::*;

/// Starts with a NameNode whose storage has this creation time.
async fn try_start(dir: &Path, ctime: u64, option: StartOption) -> Result<Store, StoreError> {
    let (events, _receiver) = mpsc::channel(100);
    let store = Store::open(config(dir, 1), events).await.expect("opens");
    let spec = PoolSpec { ctime, ..spec() };
    match store.add_pool(spec, option).await {
        Ok(()) => Ok(store),
        Err(e) => {
            store.crash();
            Err(e)
        }
    }
}

async fn restart(node: Node, ctime: u64, option: StartOption) -> Node {
    node.store.shutdown().await;
    let store = try_start(node.dir.path(), ctime, option)
        .await
        .expect("starts");
    Node { store, ..node }
}

#[tokio::test]
async fn the_upgrade_of_a_name_node_is_followed_and_can_be_taken_back() {
    let node = Node::new().await;
    for id in 1..=3 {
        node.put(id, 1001, 3000).await;
    }
    let mut writer = node.writer(4, 1001).await;
    writer.write(vec![packet(0, 1000)]).await.expect("writes");
    drop(writer);
    let node = restart(node, 5, StartOption::Regular).await;
    assert!(node.pool_dir().join("previous/VERSION").is_file());
    assert!(!node.pool_dir().join("previous.tmp").exists());
    assert_eq!(node.store.replica_count(), 4);
    node.check(1, 1001, 3000).await;
    // Everything that changes from now on leaves the state before alone.
    let mut writer = node
        .store
        .append(&block(1, 1001, 3000), 1002, 3000)
        .await
        .expect("appends");
    writer
        .write(vec![packet(3000, 4000)])
        .await
        .expect("writes");
    writer.finalize().await.expect("finalizes");
    node.store
        .invalidate(&pool(), &[Block::new(2, 1001, 3000)])
        .await
        .expect("deletes");
    node.store
        .init_replica_recovery(&block(4, 1001, 1000), 1003)
        .await
        .expect("takes part");
    node.store
        .update_replica_under_recovery(&block(4, 1001, 1000), 1003, 0, 500)
        .await
        .expect("is cut");
    node.put(9, 1004, 100).await;
    // The same NameNode again: nothing to do.
    let node = restart(node, 5, StartOption::Regular).await;
    node.check(1, 1002, 4000).await;
    node.check(4, 1003, 500).await;
    // An older NameNode is not followed without being told to.
    node.store.shutdown().await;
    let error = try_start(node.dir.path(), 0, StartOption::Regular)
        .await
        .expect_err("refused");
    assert!(error.to_string().contains("-rollback"), "{error}");
    let node = Node {
        store: try_start(node.dir.path(), 0, StartOption::Rollback)
            .await
            .expect("starts"),
        ..node
    };
    for id in 1..=3 {
        node.check(id, 1001, 3000).await;
    }
    assert!(node.store.replica(&pool(), 9).is_none());
    let open = node.store.replica(&pool(), 4).expect("there");
    assert_eq!(open.bytes_on_disk, 1000);
    assert!(!node.pool_dir().join("previous").exists());
    assert!(!node.pool_dir().join("removed.tmp").exists());
}

#[tokio::test]
async fn a_finalized_upgrade_leaves_no_way_back() {
    let node = Node::new().await;
    node.put(1, 1001, 3000).await;
    let node = restart(node, 5, StartOption::Regular).await;
    node.store
        .finalize_upgrade(&pool())
        .await
        .expect("finalizes");
    assert!(!node.pool_dir().join("previous").exists());
    node.store.shutdown().await;
    let error = try_start(node.dir.path(), 0, StartOption::Rollback)
        .await
        .expect_err("refused");
    assert_eq!(error.kind(), StoreErrorKind::Incompatible);
    let node = Node {
        store: try_start(node.dir.path(), 5, StartOption::Regular)
            .await
            .expect("starts"),
        ..node
    };
    node.check(1, 1001, 3000).await;
}

/// What a kill leaves: directories to rename (`from`, `to`), and whether the new `current` has its
/// VERSION.
#[tokio::test]
async fn upgrades_and_rollbacks_that_were_killed_are_finished_or_undone() {
    let node = Node::new().await;
    node.put(1, 1001, 3000).await;
    let root = node.pool_dir();
    let rename = |from: &str, to: &str| {
        std::fs::rename(root.join(from), root.join(to)).expect("renames");
    };
    let make = |path: &str| std::fs::create_dir_all(root.join(path)).expect("directory");
    // Killed while linking: undone, then done again.
    node.store.shutdown().await;
    rename("current", "previous.tmp");
    make("current/finalized/subdir0");
    let store = try_start(node.dir.path(), 5, StartOption::Regular)
        .await
        .expect("starts");
    assert_eq!(store.replica_count(), 1);
    assert!(root.join("previous/VERSION").is_file() && !root.join("previous.tmp").exists());
    // Killed before the last rename of an upgrade: completed.
    store.shutdown().await;
    rename("previous", "previous.tmp");
    let store = try_start(node.dir.path(), 5, StartOption::Regular)
        .await
        .expect("starts");
    assert!(root.join("previous/VERSION").is_file());
    // Killed after the first rename of a rollback: undone.
    store.shutdown().await;
    rename("current", "removed.tmp");
    let store = try_start(node.dir.path(), 5, StartOption::Regular)
        .await
        .expect("starts");
    assert_eq!(store.replica_count(), 1);
    // Killed after the second: completed.
    store.shutdown().await;
    rename("current", "removed.tmp");
    rename("previous", "current");
    let store = try_start(node.dir.path(), 0, StartOption::Regular)
        .await
        .expect("starts");
    assert_eq!(store.replica_count(), 1);
    assert!(!root.join("removed.tmp").exists());
    // Killed in a finalize: completed.
    store.shutdown().await;
    make("finalized.tmp/finalized");
    let store = try_start(node.dir.path(), 0, StartOption::Regular)
        .await
        .expect("starts");
    assert!(!root.join("finalized.tmp").exists());
    // What cannot be is refused, and nothing is formatted.
    store.shutdown().await;
    rename("current", "previous");
    let error = try_start(node.dir.path(), 0, StartOption::Regular)
        .await
        .expect_err("refused");
    assert!(
        error.kind() == StoreErrorKind::Incompatible && error.to_string().contains("VERSION"),
        "{error}"
    );
    assert!(!root.join("current").exists());
    rename("previous", "current");
    make("previous");
    make("trash");
    let error = try_start(node.dir.path(), 0, StartOption::Rollback)
        .await
        .expect_err("refused");
    assert!(error.to_string().contains("trash"), "{error}");
}
