//! Disks that die and replicas that go at the worst moments.

use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_parity::{MemberChange, MemberState};

fn lost(events: &[StoreEvent]) -> Vec<i64> {
    let ids = events.iter().filter_map(|event| match event {
        StoreEvent::Lost { block, .. } => Some(block.block.id),
        _ => None,
    });
    ids.collect()
}

/// So many bytes are protected, and nothing is to be rebuilt.
fn all_protected(node: &Node, bytes: u64) {
    let now = status(node);
    let left = (now.degraded_bytes, now.rebuild_remaining_bytes);
    assert_eq!((now.protected_bytes, left), (bytes, (0, 0)), "{now:?}");
}

#[tokio::test]
async fn a_disk_that_dies_beside_encoding_has_its_replicas_told_as_lost() {
    for step in [Step::Claimed, Step::Written, Step::FirstRecord] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut config = protected(dir.path(), 3, shape(2, 1));
        config.failed_volumes_tolerated = 1;
        let faults = Faults::new(1);
        config.faults = Some((dir.path().to_owned(), Arc::clone(&faults)));
        let mut node = Node::start(dir, 3, config).await;
        put(&node, 1, 50_000).await;
        put(&node, 2, 60_000).await;
        // The encoder stays at this step for as long as the disk takes to die.
        end_behind(&node, &faults, step).await;
        kill_disk(&node, volume_of(&node, 1)).await;
        assert_eq!(lost(&events(&mut node).await), [1], "{step:?}");
        assert_eq!(reported(&node), [2], "{step:?}");
        assert!(node.store.open_reader(&block(1, 0, 0)).await.is_err());
    }
}

#[tokio::test]
async fn a_replica_that_is_deleted_as_soon_as_it_is_rebuilt_is_missed_by_its_group() {
    let node = Arc::new(start(4, shape(2, 1)).await);
    put(&node, 1, 50_000).await;
    put(&node, 2, 60_000).await;
    round(&node).await;
    let parity = Arc::clone(&node.parity);
    kill_disk(&node, volume_of(&node, 1)).await;
    // The record waits; the replica is in its place.
    let recording = parity.recording.lock().await;
    let rebuild = tokio::spawn({
        let node = Arc::clone(&node);
        async move { round(&node).await }
    });
    let placed = async {
        while node
            .store
            .state()
            .pool(&pool())
            .expect("there")
            .map
            .get(1)
            .is_none()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), placed).await;
    in_time.expect("is rebuilt");
    let gone = [block(1, 1001, 0).block];
    node.store
        .invalidate(&pool(), &gone)
        .await
        .expect("deletes");
    drop(recording);
    rebuild.await.expect("no panic");
    let holes = |state: MemberState| state == MemberState::Live;
    let left: Vec<_> = {
        let table = parity.table();
        let members = table.iter().flat_map(|group| {
            let members = group.record.members.iter().zip(&group.members);
            members.filter(|(member, _)| member.block_id == 1)
        });
        members.map(|(_, state)| holes(*state)).collect()
    };
    assert!(
        left.iter().all(|live| !live),
        "the group counts on a file that is gone"
    );
    for _ in 0..3 {
        round(&node).await;
    }
    all_protected(&node, 60_000);
    kill_disk(&node, volume_of(&node, 2)).await;
    check(&node, 2, 60_000).await;
}

#[tokio::test]
async fn a_group_that_cannot_be_told_of_a_rebuilt_replica_gives_way_to_others() {
    let (dir, shape) = (
        tempfile::tempdir().expect("temporary directory"),
        shape(2, 1),
    );
    let faults = Faults::new(1);
    let mut config = protected(dir.path(), 5, shape);
    config.faults = Some((dir.path().to_owned(), Arc::clone(&faults)));
    let node = Node::start(dir, 5, config).await;
    put(&node, 1, 50_000).await;
    put(&node, 2, 60_000).await;
    round(&node).await;
    assert_eq!(volume_of(&node, 1), 0);
    // What is written first of the record after the rebuild finds no room.
    let of_record = |path: &Path| {
        path.extension()
            .is_some_and(|e| e == "record" || e == "head")
    };
    let full = FaultRule::new(Effect::Errno(ENOSPC)).on(&[IoOp::Replace]);
    let full = faults.add(full.at(of_record).times(1));
    kill_disk(&node, 0).await;
    for _ in 0..4 {
        round(&node).await;
    }
    assert_eq!(faults.fired(full), 1);
    all_protected(&node, 110_000);
    check(&node, 1, 50_000).await;
    kill_disk(&node, volume_of(&node, 2)).await;
    check(&node, 2, 60_000).await;
}

#[tokio::test]
async fn data_that_cannot_be_kept_leaves_nothing_behind() {
    let shape = shape(2, 1);
    let node = start(3, shape).await;
    put(&node, 1, 50_000).await;
    put(&node, 2, 60_000).await;
    round(&node).await;
    let short = node.dir.path().join("short");
    std::fs::write(&short, [0; 100]).expect("writes");
    let store = node.store.state();
    let storage = node.store.replica(&pool(), 1).expect("there").storage;
    let volumes = store.volumes();
    let volume = volumes.iter().find(|v| v.info.id == storage.id);
    let at = (1, volume.expect("there"));
    let cut = MemberChange::Cut { len: 10 };
    crate::before_change(&node.parity, store, &pool(), at, short, cut).await;
    check_files(&node, shape);
    assert_eq!(status(&node).kept_bytes, 0);
}

#[tokio::test]
async fn clients_of_a_dead_disk_wait_for_each_others_memory() {
    // The second is configured when the group is there: what its ranges take is the same.
    for configured in [shape(30, 1), shape(2, 1)] {
        wait_for_memory(configured).await;
    }
}

async fn wait_for_memory(configured: ParityShape) {
    const DELAY: Duration = Duration::from_millis(200);
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let config = |root: &Path, shape| {
        let mut config = protected(root, 31, shape);
        config.faults = Some((root.join("data1"), Arc::clone(&faults)));
        config
    };
    let before = config(dir.path(), shape(30, 1));
    let node = Node::start(dir, 31, before).await;
    for id in 1..31 {
        put(&node, id, 5000).await;
    }
    round(&node).await;
    assert_eq!(status(&node).groups, 1);
    assert_eq!((volume_of(&node, 1), volume_of(&node, 2)), (0, 1));
    node.store.shutdown().await;
    let now = config(node.dir.path(), configured);
    let node = Arc::new(Node::start(node.dir, 31, now).await);
    kill_disk(&node, 0).await;
    // Each decodes from the replica on the slow disk too; a range takes 31 MiB of the 64.
    let slow = |path: &Path| path.ends_with("blk_2");
    faults.add(
        FaultRule::new(Effect::Delay(DELAY))
            .on(&[IoOp::Read])
            .at(slow),
    );
    let began = std::time::Instant::now();
    let reads = (0..6).map(|_| {
        let node = Arc::clone(&node);
        tokio::spawn(async move { check(&node, 1, 5000).await })
    });
    for read in reads.collect::<Vec<_>>() {
        read.await.expect("no panic");
    }
    let took = began.elapsed();
    assert!(took >= 3 * DELAY, "two at a time: {took:?}");
}
