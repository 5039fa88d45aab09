//! Disks that give no answer, beside memory that is written to, copied from and deleted from.

use std::time::Instant;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than what does not wait for a disk takes.
const LIMIT: Duration = Duration::from_secs(20);

/// A node whose first volume obeys the rules.
async fn faulty(volumes: usize, replicas: u64) -> (Node, Arc<Faults>) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let config = StoreConfig {
        faults: Some((dir.path().join("data0"), Arc::clone(&faults))),
        ..lazy_config(dir.path(), volumes)
    };
    (start_on(dir, replicas, config).await, faults)
}

/// Gives no answer about copies for so long.
fn stall(faults: &Faults, time: Duration) {
    let of_copies = |path: &Path| path.to_string_lossy().contains("lazypersist");
    let rule = FaultRule::new(Effect::Stall(time)).on(&[IoOp::Rename]);
    faults.add(rule.at(of_copies));
}

#[tokio::test]
async fn a_delete_in_memory_does_not_wait_for_the_disk_of_its_copy() {
    let (mut node, faults) = faulty(2, 4).await;
    node.put_lazy(1).await;
    node.persist().await;
    stall(&faults, HOUR);
    let gone = [block(1, 1001, 0).block];
    let id = pool();
    let deleting = node.store.invalidate(&id, &gone);
    let deleted = tokio::time::timeout(LIMIT, deleting).await;
    deleted.expect("in time").expect("deletes");
    let event = node.next_event().await;
    assert!(matches!(event, StoreEvent::Deleted { .. }), "{event:?}");
    assert!(node.files(RAM, "finalized").is_empty());
    let loaded = node.store.0.pool(&id).expect("loaded");
    let latch = loaded.latches.acquire(1);
    let free = tokio::time::timeout(Duration::from_secs(1), latch).await;
    assert!(free.is_ok(), "the block is held");
    node.store.crash();
}

#[tokio::test]
async fn copies_go_to_the_disks_that_answer() {
    let (node, faults) = faulty(3, 20).await;
    for id in 1..=8 {
        node.put_lazy(id).await;
    }
    stall(&faults, HOUR);
    let persisted = tokio::time::timeout(LIMIT, node.persist()).await;
    persisted.expect("in time");
    let copied = || node.files(2, "lazypersist").len() / 2;
    let first = copied();
    assert!((6..8).contains(&first), "{first}: what was under way hangs");
    for id in [9, 10] {
        node.put_lazy(id).await;
    }
    let persisted = tokio::time::timeout(LIMIT, node.persist()).await;
    persisted.expect("in time");
    assert_eq!(copied(), first + 2, "none went to the first disk");
    node.store.crash();
}

#[tokio::test]
async fn a_hung_disk_keeps_no_copy_of_another_from_its_place() {
    let (mut node, faults) = faulty(3, 20).await;
    for id in 1..=8 {
        node.put_lazy(id).await;
    }
    node.persist().await;
    let there = node.files(2, "lazypersist").len() / 2;
    assert!((1..8).contains(&there), "{there}");
    stall(&faults, HOUR);
    let loaded = node.store.0.pool(&pool()).expect("loaded");
    for id in 1..=8 {
        drop(loaded.map.remove(id));
    }
    for _ in 0..there {
        assert_eq!(node.found().await.1, StorageType::Disk);
    }
    assert_eq!(node.files(2, "finalized").len() / 2, there);
    node.store.crash();
}

#[tokio::test]
async fn one_new_replica_waits_for_an_eviction_that_hangs_and_others_do_not() {
    let (node, faults) = faulty(2, 1).await;
    node.put_lazy(1).await;
    node.persist().await;
    stall(&faults, Duration::from_secs(6));
    assert_eq!(node.put_lazy(2).await, StorageType::Disk);
    let began = Instant::now();
    for id in [3, 4] {
        assert_eq!(node.put_lazy(id).await, StorageType::Disk);
    }
    assert!(began.elapsed() < Duration::from_secs(2));
    faults.clear();
    for _ in 0..200 {
        if node.use_now().evicted == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(node.storage_of(1), Some(StorageType::Disk));
    for _ in 0..100 {
        if node.store.cache_use().used == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(node.put_lazy(5).await, StorageType::RamDisk);
}
