use super::*;

async fn deleted(node: &mut Node) {
    let event = tokio::time::timeout(Duration::from_secs(5), node.events.recv()).await;
    assert!(
        matches!(event, Ok(Some(StoreEvent::Deleted { .. }))),
        "{event:?}"
    );
}

async fn start_with(node: Node, option: StartOption) -> Node {
    node.store.shutdown().await;
    let (sender, events) = mpsc::channel(100);
    let store = Store::open(config(node.dir.path(), 1), sender)
        .await
        .expect("opens");
    store.add_pool(spec(), option).await.expect("loads");
    Node {
        store,
        events,
        ..node
    }
}

#[tokio::test]
async fn during_a_rolling_upgrade_deleted_blocks_can_be_brought_back() {
    let mut node = Node::new().await;
    node.put(5, 1001, 3000).await;
    node.put(6, 1001, 3000).await;
    node.store
        .set_rolling_upgrade(&pool(), true)
        .await
        .expect("begins");
    assert!(node.pool_dir().join("RollingUpgradeInProgress").is_file());
    node.store
        .invalidate(&pool(), &[Block::new(5, 1001, 0)])
        .await
        .expect("deletes");
    deleted(&mut node).await;
    assert!(
        node.pool_dir()
            .join("trash/finalized/subdir0/subdir0/blk_5_1001.meta")
            .is_file()
    );
    assert!(node.store.replica(&pool(), 5).is_none());
    // A restarted node goes on with it before it hears from the NameNode.
    let mut node = start_with(node, StartOption::Regular).await;
    node.store
        .invalidate(&pool(), &[Block::new(6, 1001, 0)])
        .await
        .expect("deletes");
    deleted(&mut node).await;
    assert_eq!(node.store.replica_count(), 0);
    let node = start_with(node, StartOption::RollingUpgradeRollback).await;
    node.check(5, 1001, 3000).await;
    node.check(6, 1001, 3000).await;
    assert!(!node.pool_dir().join("trash").exists());
}

#[tokio::test]
async fn the_end_of_a_rolling_upgrade_empties_the_trash() {
    let mut node = Node::new().await;
    node.put(5, 1001, 3000).await;
    node.store
        .set_rolling_upgrade(&pool(), true)
        .await
        .expect("begins");
    node.store
        .set_rolling_upgrade(&pool(), true)
        .await
        .expect("goes on");
    node.store
        .invalidate(&pool(), &[Block::new(5, 1001, 0)])
        .await
        .expect("deletes");
    deleted(&mut node).await;
    node.store
        .set_rolling_upgrade(&pool(), false)
        .await
        .expect("ends");
    for name in ["trash", "RollingUpgradeInProgress"] {
        assert!(!node.pool_dir().join(name).exists(), "{name}");
    }
    let node = start_with(node, StartOption::RollingUpgradeRollback).await;
    assert_eq!(node.store.replica_count(), 0);
}

#[tokio::test]
async fn the_end_of_a_rolling_upgrade_reaches_a_volume_that_was_out() {
    let mut node = Node::with_volumes(2).await;
    let all = config(node.dir.path(), 2).volumes;
    let id = pool();
    let rolling = |active| node.store.set_rolling_upgrade(&id, active);
    let is = |active| node.store.rolling_upgrade_is(&id, active);
    let swap = async |volumes: &[VolumeConfig]| {
        let results = node.store.reconfigure_volumes(volumes.to_vec()).await;
        assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
    };
    assert!(is(false) && !is(true));
    rolling(true).await.expect("begins");
    assert!(is(true) && !is(false));
    swap(&all[..1]).await;
    rolling(false).await.expect("ends");
    assert!(is(false) && !is(true));
    swap(&all).await;
    // What is deleted now could be brought back, until the NameNode is heard.
    assert!(!is(false));
    rolling(false).await.expect("ends there too");
    assert!(is(false));
    let left = || -> Vec<PathBuf> {
        let pools = ["data0", "data1"].map(|dir| format!("{dir}/current/{}", id.as_str()));
        let names = ["RollingUpgradeInProgress", "trash"];
        let paths = pools
            .iter()
            .flat_map(|of| names.map(|name| node.dir.path().join(of).join(name)));
        paths.filter(|path| path.exists()).collect()
    };
    assert!(left().is_empty(), "{:?}", left());
    for block_id in 0..2 {
        node.put(block_id, 1001, 100).await;
        node.store
            .invalidate(&pool(), &[Block::new(block_id, 1001, 100)])
            .await
            .expect("deletes");
    }
    assert!(left().is_empty(), "{:?}", left());
    for _ in 0..2 {
        deleted(&mut node).await;
    }
}

#[tokio::test]
async fn a_rolling_upgrade_that_a_volume_brings_reaches_the_others() {
    let node = Node::with_volumes(2).await;
    let all = config(node.dir.path(), 2).volumes;
    let results = node.store.reconfigure_volumes(all[1..].to_vec()).await;
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
    std::fs::write(node.pool_dir().join("RollingUpgradeInProgress"), b"").expect("writes");
    let results = node.store.reconfigure_volumes(all).await;
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
    assert!(!node.store.rolling_upgrade_is(&pool(), true));
    let rolling = node.store.set_rolling_upgrade(&pool(), true).await;
    rolling.expect("goes on");
    assert!(node.store.rolling_upgrade_is(&pool(), true));
    let other = format!("data1/current/{}/RollingUpgradeInProgress", pool().as_str());
    assert!(node.dir.path().join(other).is_file());
}

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
