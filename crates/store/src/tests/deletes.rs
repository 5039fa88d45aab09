use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};

async fn deleted(node: &mut Node) -> Block {
    match tokio::time::timeout(Duration::from_secs(5), node.events.recv()).await {
        Ok(Some(StoreEvent::Deleted { block, .. })) => block.block,
        other => panic!("{other:?}"),
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path
            .file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("blk_"))
        {
            files.push(path);
        }
    }
    files
}

#[tokio::test]
async fn deleted_replicas_go_and_their_space_comes_back() {
    let mut node = Node::new().await;
    for id in 1..=20 {
        node.put(id, 1001, 3000).await;
    }
    let blocks: Vec<Block> = (1..=20).map(|id| Block::new(id, 1001, 3000)).collect();
    node.store
        .invalidate(&pool(), &blocks)
        .await
        .expect("deletes");
    assert_eq!(node.store.replica_count(), 0);
    let mut gone = Vec::new();
    for _ in 0..20 {
        gone.push(deleted(&mut node).await);
    }
    gone.sort_unstable();
    assert_eq!(gone, blocks);
    assert!(files_below(&node.pool_dir()).is_empty());
    assert_eq!(node.store.storage_reports(&pool())[0].dfs_used, 0);
}

#[tokio::test]
async fn deletes_survive_a_killed_process() {
    let node = Node::new().await;
    for id in 1..=5 {
        node.put(id, 1001, 3000).await;
    }
    node.store.stop_lanes();
    let blocks: Vec<Block> = (1..=4).map(|id| Block::new(id, 1001, 0)).collect();
    node.store
        .invalidate(&pool(), &blocks)
        .await
        .expect("deletes");
    assert_eq!(files_below(&node.pool_dir()).len(), 10);
    let node = node.kill_and_start().await;
    assert_eq!(node.store.replica_count(), 1);
    for _ in 0..200 {
        if files_below(&node.pool_dir()).len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(files_below(&node.pool_dir()).len(), 2);
}

#[tokio::test]
async fn replicas_of_another_generation_and_missing_ones_are_left_alone_and_named() {
    let mut node = Node::new().await;
    node.put(1, 1005, 10).await;
    node.put(2, 1001, 10).await;
    node.put(3, 1001, 10).await;
    node.put(4, 1001, 10).await;
    let orders = [
        Block::new(1, 1004, 0),
        Block::new(2, 1001, 0),
        Block::new(9, 1001, 0),
        Block::new(3, 1007, 0),
        Block::new(4, 0, 0),
    ];
    let error = node
        .store
        .invalidate(&pool(), &orders)
        .await
        .expect_err("four of them");
    let named = error.to_string();
    for refused in ["blk_1_1004", "blk_9_1001", "blk_3_1007", "blk_4_0"] {
        assert!(named.contains(refused), "{refused}: {named}");
    }
    assert!(named.contains("existing replica is blk_3_1001"), "{named}");
    assert_eq!(deleted(&mut node).await.id, 2);
    node.check(1, 1005, 10).await;
    node.check(3, 1001, 10).await;
    node.check(4, 1001, 10).await;
}

#[tokio::test]
async fn a_replica_being_written_is_deleted_under_its_writer() {
    let mut node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    let writing = tokio::spawn(async move {
        writer.cancelled().await;
        writer.finalize().await
    });
    node.store
        .invalidate(&pool(), &[Block::new(5, 1001, 0)])
        .await
        .expect("deletes");
    assert_eq!(
        Node::error_of(writing.await.expect("no panic")),
        StoreErrorKind::Cancelled
    );
    assert_eq!(deleted(&mut node).await, Block::new(5, 1001, 700));
    node.put(5, 1002, 10).await;
    node.check(5, 1002, 10).await;
}

#[tokio::test]
async fn readers_keep_what_they_opened() {
    let mut node = Node::new().await;
    node.put(5, 1001, 3000).await;
    let reader = node
        .store
        .open_reader(&block(5, 1001, 0))
        .await
        .expect("opens");
    node.store
        .invalidate(&pool(), &[Block::new(5, 1001, 0)])
        .await
        .expect("deletes");
    deleted(&mut node).await;
    check_reader(&reader, 3000).await;
}

#[tokio::test]
async fn files_that_vanished_are_noticed_by_the_reader_and_reported() {
    let mut node = Node::new().await;
    node.put(5, 1001, 3000).await;
    std::fs::remove_file(
        node.pool_dir()
            .join("current/finalized/subdir0/subdir0/blk_5"),
    )
    .expect("removes");
    assert!(node.store.open_reader(&block(5, 1001, 0)).await.is_err());
    assert!(matches!(
        node.events.recv().await,
        Some(StoreEvent::Lost { .. })
    ));
    assert!(node.store.replica(&pool(), 5).is_none());
}

/// Two volumes; renames on the first never end.
async fn with_a_hung_volume() -> (Node, [i64; 2]) {
    let (node, faults) = Node::faulty(2).await;
    node.put(1, 1001, 10).await;
    node.put(2, 1001, 10).await;
    let storage = |id| node.store.replica(&pool(), id).expect("there").storage;
    let first = node.store.storage_reports(&pool())[0].storage.clone();
    let [hung, other] = if storage(1) == first { [1, 2] } else { [2, 1] };
    let hour = Duration::from_secs(3600);
    faults.add(FaultRule::new(Effect::Stall(hour)).on(&[IoOp::Rename]));
    (node, [hung, other])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_volume_holds_no_delete_of_another_up() {
    let (mut node, [hung, other]) = with_a_hung_volume().await;
    let store = node.store.clone();
    let mut order = vec![Block::new(hung, 1001, 0); 20];
    order.push(Block::new(other, 1001, 0));
    let order = tokio::spawn(async move { store.invalidate(&pool(), &order).await });
    assert_eq!(deleted(&mut node).await.id, other);
    assert!(!order.is_finished());
    node.store.crash();
}

#[tokio::test(flavor = "multi_thread")]
async fn deletes_of_a_hung_volume_are_refused_when_too_many_wait() {
    let (mut node, [hung, other]) = with_a_hung_volume().await;
    let store = node.store.clone();
    let order = vec![Block::new(hung, 1001, 0); 1000];
    tokio::spawn(async move { store.invalidate(&pool(), &order).await });
    let order = [Block::new(hung, 1001, 0)];
    let full = async {
        while tokio::time::timeout(
            Duration::from_millis(20),
            node.store.invalidate(&pool(), &order),
        )
        .await
        .is_err()
        {}
    };
    let limit = Duration::from_secs(5);
    tokio::time::timeout(limit, full).await.expect("is refused");
    let order = [Block::new(other, 1001, 0)];
    let (store, id) = (node.store.clone(), pool());
    let done = tokio::time::timeout(limit, store.invalidate(&id, &order));
    done.await.expect("in time").expect("deletes");
    assert_eq!(deleted(&mut node).await.id, other);
    node.store.crash();
}
