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
    // The first round of an empty pool is over at once: the next one starts with the process. After
    // a stop that was not clean the start itself would look at them.
    node.store.shutdown().await;
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

#[tokio::test]
async fn a_replica_whose_meta_file_got_another_generation_stamp_is_followed() {
    let mut node = Node::new().await;
    node.put(1, 1001, 3000).await;
    let dir = finalized(&node);
    fs::rename(dir.join("blk_1_1001.meta"), dir.join("blk_1_1007.meta")).expect("renames");
    node.store.scan_directories().await;
    let StoreEvent::Found { block: found, .. } = next(&mut node).await else {
        panic!("another event")
    };
    assert_eq!(found, block(1, 1007, 3000));
    node.check(1, 1007, 3000).await;
    node.store.scan_directories().await;
    assert!(node.events.try_recv().is_err());
}

#[tokio::test]
async fn replicas_of_a_disk_that_vanished_are_not_lost_one_by_one() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = StoreConfig {
        failed_volumes_tolerated: 1,
        ..config(dir.path(), 2)
    };
    let mut node = Node::start(dir, 2, config).await;
    for id in 0..6 {
        node.put(id, 1001, 100).await;
    }
    fs::rename(
        node.pool_dir().join("current/finalized"),
        node.pool_dir().join("elsewhere"),
    )
    .expect("renames");
    node.store.scan_directories().await;
    assert!(matches!(
        next(&mut node).await,
        StoreEvent::VolumeFailed { fatal: false, .. }
    ));
    let mut lost = Vec::new();
    for _ in 0..3 {
        let StoreEvent::Lost { block, .. } = next(&mut node).await else {
            panic!("another event")
        };
        lost.push(block.block.id);
    }
    assert!(node.events.try_recv().is_err());
    assert_eq!(node.store.replica_count(), 3);
    for id in lost {
        assert!(node.store.replica(&pool(), id).is_none());
    }
}

/// The volume was found to be good an instant before, so that the scan cannot rely on a check.
#[tokio::test]
async fn replicas_are_not_lost_when_the_tree_vanishes_after_a_check() {
    let mut node = Node::new().await;
    for id in 0..6 {
        node.put(id, 1001, 100).await;
    }
    node.store.check_volumes().await;
    let (tree, elsewhere) = (
        node.pool_dir().join("current/finalized"),
        node.pool_dir().join("elsewhere"),
    );
    fs::rename(&tree, &elsewhere).expect("renames");
    node.store.scan_directories().await;
    let mut failed = false;
    while let Ok(event) = node.events.try_recv() {
        assert!(!matches!(event, StoreEvent::Lost { .. }), "{event:?}");
        failed |= matches!(event, StoreEvent::VolumeFailed { .. });
    }
    // Not before a second has passed since the check.
    assert!(failed || node.store.replica_count() == 6);
}

#[tokio::test]
async fn work_in_progress_does_not_confuse_the_directory_scanner() {
    let mut node = Node::with_volumes(2).await;
    for id in 0..40 {
        node.put(id, 1001, 700).await;
    }
    let store = node.store.clone();
    let scans = tokio::spawn(async move {
        for _ in 0..10 {
            store.scan_directories().await;
        }
    });
    for id in 0..40 {
        let old = block(id, 1001, 700);
        if id % 2 == 0 {
            let mut writer = node.store.append(&old, 1002, 700).await.expect("appends");
            writer.write(vec![packet(700, 900)]).await.expect("writes");
            writer.finalize().await.expect("finalizes");
        } else {
            node.store
                .invalidate(&pool(), &[old.block])
                .await
                .expect("deletes");
        }
    }
    scans.await.expect("no panic");
    while let Ok(event) = node.events.try_recv() {
        assert!(matches!(event, StoreEvent::Deleted { .. }), "{event:?}");
    }
    node.store.scan_directories().await;
    assert_eq!(node.store.replica_count(), 20);
    node.check(0, 1002, 900).await;
}

#[tokio::test]
async fn a_replica_that_goes_away_while_it_is_scanned_is_not_damaged() {
    let mut node = scanning(Duration::from_secs(3600), 1 << 20).await;
    for id in 1..=3 {
        node.put(id, 1001, 3000).await;
    }
    fs::remove_file(finalized(&node).join("blk_1")).expect("removes");
    damage(&finalized(&node).join("blk_2"), 7);
    for id in 1..=2 {
        node.store.mark_suspect(&block(id, 1001, 0));
    }
    node.store
        .invalidate(&pool(), &[Block::new(2, 1001, 3000)])
        .await
        .expect("deletes");
    let mut gone = Vec::new();
    while gone.len() < 2 {
        match next(&mut node).await {
            StoreEvent::Lost { block, .. } | StoreEvent::Deleted { block, .. } => {
                gone.push(block.block.id);
            }
            // It was scanned before the order came.
            StoreEvent::Corrupt { block, .. } => assert_eq!(block.block.id, 2),
            other => panic!("{other:?}"),
        }
    }
    gone.sort_unstable();
    assert_eq!(gone, [1, 2]);
    node.check(3, 1001, 3000).await;
}
