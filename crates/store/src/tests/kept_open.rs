//! Files of finalized replicas that readers leave open for the next.

use super::*;

fn kept(node: &Node) -> usize {
    let pool = node.store.0.pool(&pool()).expect("loaded");
    pool.map.kept_open()
}

/// Whether this process has a file open that has no name any more.
fn holds_nameless_files(node: &Node) -> bool {
    std::fs::read_dir("/proc/self/fd")
        .expect("linux")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .any(|to| to.starts_with(node.dir.path()) && to.to_string_lossy().contains("(deleted)"))
}

#[tokio::test]
async fn files_stay_open_until_the_replica_changes() {
    let node = Node::new().await;
    node.put(1, 1001, 700).await;
    assert_eq!(kept(&node), 0, "writing keeps nothing");
    node.check(1, 1001, 700).await;
    assert_eq!(kept(&node), 1);
    node.check(1, 1001, 700).await;
    assert_eq!(kept(&node), 1, "the same files again");

    let mut writer = node
        .store
        .append(&block(1, 1001, 700), 1002, 700)
        .await
        .expect("reopens");
    assert_eq!(kept(&node), 0, "the replica is another one now");
    writer.write(vec![packet(700, 1500)]).await.expect("writes");
    node.check(1, 1001, 700).await;
    assert_eq!(kept(&node), 0, "what is being written is not kept");
    writer.finalize().await.expect("finalizes");
    node.check(1, 1002, 1500).await;
    assert_eq!(kept(&node), 1);

    let gone = block(1, 1002, 0).block;
    node.store
        .invalidate(&pool(), &[gone])
        .await
        .expect("deletes");
    assert_eq!(kept(&node), 0);
    let kind = Node::error_of(node.store.open_reader(&block(1, 1002, 0)).await);
    assert_eq!(kind, StoreErrorKind::NotFound);
    for _ in 0..500 {
        if !holds_nameless_files(&node) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the space of a deleted replica is not given back");
}

#[tokio::test]
async fn a_reader_does_not_get_files_that_another_program_removed() {
    let node = Node::new().await;
    node.put(2, 1001, 700).await;
    node.check(2, 1001, 700).await;
    let file = "current/finalized/subdir0/subdir0/blk_2";
    std::fs::remove_file(node.pool_dir().join(file)).expect("removed behind the store's back");
    assert!(
        node.store.open_reader(&block(2, 1001, 0)).await.is_err(),
        "the open file is not served"
    );
    assert_eq!(kept(&node), 0);
}

#[tokio::test]
async fn few_replicas_are_kept_open() {
    let node = Node::new().await;
    for id in 1..=80 {
        node.put(id, 1001, 600).await;
        node.check(id, 1001, 600).await;
    }
    assert_eq!(kept(&node), 64);
    node.check(1, 1001, 600).await;
    node.check(80, 1001, 600).await;
    assert_eq!(kept(&node), 64);
}

#[tokio::test]
async fn files_that_no_reader_asks_for_are_closed_by_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config(dir.path(), 1);
    config.kept_open = Duration::from_millis(100);
    let node = Node::start(dir, 1, config).await;
    node.put(1, 1001, 700).await;
    node.check(1, 1001, 700).await;
    assert_eq!(kept(&node), 1);
    // No other replica is read meanwhile.
    for _ in 0..500 {
        if kept(&node) == 0 {
            node.check(1, 1001, 700).await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("a replica is kept open without a reader");
}
