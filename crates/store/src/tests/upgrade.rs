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
async fn what_an_upgrade_of_apaches_left_is_removed_or_refused() {
    let node = Node::new().await;
    let previous = node.pool_dir().join("previous/finalized");
    std::fs::create_dir_all(&previous).expect("directory");
    node.store
        .finalize_upgrade(&pool())
        .await
        .expect("finalizes");
    assert!(!node.pool_dir().join("previous").exists());
    std::fs::create_dir_all(node.pool_dir().join("previous.tmp")).expect("directory");
    node.store.crash();
    let (events, _receiver) = mpsc::channel(1);
    let store = Store::open(config(node.dir.path(), 1), events)
        .await
        .expect("opens");
    let error = store
        .add_pool(spec(), StartOption::Regular)
        .await
        .expect_err("interrupted");
    assert!(
        error.kind() == StoreErrorKind::Incompatible && error.to_string().contains("previous.tmp"),
        "{error}"
    );
}
