use super::*;
use std::fs;

async fn next(node: &mut Node) -> StoreEvent {
    tokio::time::timeout(Duration::from_secs(10), node.events.recv())
        .await
        .expect("in time")
        .expect("open")
}

fn finalized(node: &Node) -> PathBuf {
    node.pool_dir().join("current/finalized/subdir0/subdir0")
}

fn damage(path: &Path, at: usize) {
    let mut contents = fs::read(path).expect("there");
    contents[at] ^= 1;
    fs::write(path, contents).expect("writes");
}

async fn scanning(period: Duration, bytes_per_second: u64) -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = StoreConfig {
        scan: ScanConfig {
            period,
            bytes_per_second,
        },
        ..config(dir.path(), 1)
    };
    Node::start(dir, 1, config).await
}

#[tokio::test]
async fn a_flipped_byte_in_data_or_meta_is_found_by_the_round() {
    let mut node = scanning(Duration::from_secs(3600), 1 << 40).await;
    for id in 1..=3 {
        node.put(id, 1001, 3000).await;
    }
    damage(&finalized(&node).join("blk_1"), 1500);
    damage(&finalized(&node).join("blk_2_1001.meta"), 9);
    // The first round of an empty pool is over at once: the next one starts with the process.
    node.store.crash();
    fs::remove_file(node.pool_dir().join("scanner.cursor")).ok();
    let start = StoreConfig {
        scan: ScanConfig {
            period: Duration::from_secs(3600),
            bytes_per_second: 1 << 40,
        },
        ..config(node.dir.path(), 1)
    };
    node = Node::start(node.dir, 1, start).await;
    let mut bad = Vec::new();
    for _ in 0..2 {
        let StoreEvent::Corrupt { block, .. } = next(&mut node).await else {
            panic!("another event")
        };
        bad.push(block.block.id);
    }
    assert_eq!(bad, [1, 2]);
    node.store.shutdown().await;
    let cursor = fs::read_to_string(node.pool_dir().join("scanner.cursor")).expect("saved");
    assert!(cursor.contains("iterStartMs"), "{cursor}");
    assert!(node.events.try_recv().is_err());
}

#[tokio::test]
async fn a_suspect_is_looked_at_before_its_turn() {
    let mut node = scanning(Duration::from_secs(3600), 1 << 20).await;
    node.put(1, 1001, 3000).await;
    damage(&finalized(&node).join("blk_1"), 2999);
    node.store.mark_suspect(&block(1, 1001, 0));
    let StoreEvent::Corrupt { block: bad, .. } = next(&mut node).await else {
        panic!("another event")
    };
    assert_eq!(bad, block(1, 1001, 3000));
    node.store.mark_suspect(&block(99, 1001, 0));
}

#[tokio::test]
async fn files_that_came_went_or_changed_are_noticed() {
    let mut node = Node::new().await;
    for id in 1..=5 {
        node.put(id, 1001, 3000).await;
    }
    let dir = finalized(&node);
    fs::remove_file(dir.join("blk_1")).expect("removes");
    fs::remove_file(dir.join("blk_2_1001.meta")).expect("removes");
    fs::write(dir.join("blk_3"), bytes(0, 2000)).expect("writes");
    fs::copy(dir.join("blk_4"), dir.join("blk_7")).expect("copies");
    fs::copy(dir.join("blk_4_1001.meta"), dir.join("blk_7_1005.meta")).expect("copies");
    fs::write(dir.join("blk_9_1001.meta"), b"x").expect("writes");
    node.store.scan_directories().await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(match next(&mut node).await {
            StoreEvent::Lost { block, .. } => ("lost", block.block.id),
            StoreEvent::Corrupt { block, .. } => ("corrupt", block.block.id),
            StoreEvent::Found { block, .. } => ("found", block.block.id),
            other => panic!("{other:?}"),
        });
    }
    seen.sort_unstable();
    assert_eq!(
        seen,
        [("corrupt", 2), ("corrupt", 3), ("found", 7), ("lost", 1)]
    );
    node.check(7, 1005, 3000).await;
    node.check(5, 1001, 3000).await;
    assert!(node.store.replica(&pool(), 1).is_none());
    assert!(!dir.join("blk_9_1001.meta").exists() && !dir.join("blk_1_1001.meta").exists());
    node.store.scan_directories().await;
    for _ in 0..2 {
        assert!(matches!(next(&mut node).await, StoreEvent::Corrupt { .. }));
    }
    assert!(node.events.try_recv().is_err());
}
