//! What the status says is so.

use super::damage::corrupt;
use super::*;

/// Three replicas of a group and its parity on four disks.
async fn three() -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 4, shape(3, 1));
    config.failed_volumes_tolerated = 2;
    let node = Node::start(dir, 4, config).await;
    for id in 1..4 {
        put(&node, id, 50_000).await;
    }
    round(&node).await;
    assert_eq!(status(&node).protected_bytes, 150_000);
    node
}

fn ask(node: &Node, request: ParityRequest) {
    let root = node.dir.path().join("data0");
    request.leave(&root).expect("asks");
}

fn published(node: &Node) -> ParityStatus {
    let said = std::fs::read(ParityStatus::file(&node.dir.path().join("data0")));
    ParityStatus::parse(&said.expect("written")).expect("reads")
}

#[tokio::test]
async fn what_a_scrub_cannot_mend_is_damaged_until_it_leaves() {
    let mut node = three().await;
    for id in [1, 2] {
        flip(&data_file(&node, id), 100);
    }
    std::fs::create_dir_all(node.dir.path().join("data0").join(PARITY_DIR)).expect("there");
    ask(&node, ParityRequest::Scrub);
    round(&node).await;
    let now = published(&node);
    assert!(now.scrubbed_at_ms > 0);
    assert_eq!(
        (now.damaged_bytes, now.protected_bytes),
        (100_000, 50_000),
        "{now:?}"
    );
    assert!(!now.is_well());
    let mut told = corrupt(&events(&mut node).await);
    told.sort_unstable();
    assert_eq!(told, [1, 2]);
    round(&node).await;
    let now = status(&node);
    assert_eq!(
        (now.damaged_bytes, now.protected_bytes),
        (100_000, 50_000),
        "{now:?}"
    );
    // The NameNode has it deleted once there are enough others.
    let gone: Vec<Block> = [1, 2].map(|id| block(id, 1001, 0).block).into();
    node.store
        .invalidate(&pool(), &gone)
        .await
        .expect("deletes");
    for _ in 0..3 {
        round(&node).await;
    }
    let now = status(&node);
    assert_eq!(
        (now.damaged_bytes, now.protected_bytes),
        (0, 50_000),
        "{now:?}"
    );
    assert!(now.is_well(), "{now:?}");
}

#[tokio::test]
async fn a_replica_that_is_unprotected_for_long_is_overdue() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 4, shape(3, 1));
    let parity = &mut config.parity;
    parity.overdue = Duration::from_millis(200);
    let node = Node::start(dir, 4, config).await;
    for volume in 0..4 {
        let dir = node.dir.path().join(format!("data{volume}"));
        std::fs::write(dir.join(PARITY_DIR), "").expect("writes");
    }
    put(&node, 1, 50_000).await;
    round(&node).await;
    let now = status(&node);
    assert_eq!((now.unprotected_bytes, now.overdue_bytes), (50_000, 0));
    assert!(now.is_well());
    tokio::time::sleep(Duration::from_millis(200)).await;
    let now = status(&node);
    assert_eq!((now.unprotected_bytes, now.overdue_bytes), (50_000, 50_000));
    assert!(!now.is_well());
}

#[tokio::test]
async fn two_dead_disks_lose_what_is_told_and_what_comes_back_is_not_lost() {
    let mut node = three().await;
    let disks = [1, 2].map(|id| volume_of(&node, id));
    for disk in disks {
        kill_disk(&node, disk).await;
    }
    let now = status(&node);
    assert_eq!(now.lost_bytes, 100_000, "{now:?}");
    assert!(!now.is_well());
    let told = events(&mut node).await;
    let lost = told.iter().filter(|e| matches!(e, StoreEvent::Lost { .. }));
    assert_eq!(lost.count(), 2, "{told:?}");
    // From another node, as the NameNode orders.
    put(&node, 1, 50_000).await;
    assert_eq!(status(&node).lost_bytes, 50_000);
    put(&node, 2, 50_000).await;
    for _ in 0..3 {
        round(&node).await;
    }
    assert_eq!(status(&node).lost_bytes, 0);
}

#[tokio::test]
async fn a_running_node_says_how_it_is_when_it_is_asked() {
    let node = three().await;
    let before = published(&node);
    put(&node, 9, 30_000).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    std::fs::create_dir_all(node.dir.path().join("data0").join(PARITY_DIR)).expect("there");
    ask(&node, ParityRequest::Status);
    crate::answer_status(&node.parity).await;
    let now = published(&node);
    assert!(now.at_ms > before.at_ms);
    assert_eq!(now.unprotected_bytes, 30_000);
    assert!(
        !node
            .dir
            .path()
            .join("data0")
            .join(PARITY_DIR)
            .join("request-status")
            .exists()
    );
}

#[tokio::test]
async fn a_replica_that_is_claimed_in_vain_has_waited_meanwhile() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 4, shape(3, 1));
    let overdue = Duration::from_millis(500);
    config.parity.overdue = overdue;
    let faults = Faults::new(1);
    config.faults = Some((dir.path().to_owned(), Arc::clone(&faults)));
    let node = Node::start(dir, 4, config).await;
    put(&node, 1, 50_000).await;
    assert_eq!(status(&node).unprotected_bytes, 50_000);
    tokio::time::sleep(overdue).await;
    let parity = Arc::clone(&node.parity);
    end_behind(&node, &faults, Step::Claimed).await;
    // It is counted until its group can be counted on.
    assert_eq!(status(&node).unprotected_bytes, 50_000);
    // The claim went with the work that made it.
    assert!(parity.table().iter().next().is_none());
    let now = status(&node);
    assert_eq!((now.unprotected_bytes, now.overdue_bytes), (50_000, 50_000));
}
