//! What is kept of deleted replicas makes room.

use super::*;

use hayloft_io::Space;
use hayloft_io::decorators::{Effect, FaultRule};

use hayloft_store::inside::Damage;

/// The volumes say that so much is free, until their space is read again.
fn leave_free(node: &Node, free: u64) {
    for volume in node.store.state().volumes() {
        volume.set_space(Space {
            capacity: 1 << 40,
            free,
            available: free,
        });
    }
}

async fn delete(node: &Node, ids: &[i64]) {
    let gone: Vec<Block> = ids.iter().map(|id| block(*id, 1001, 0).block).collect();
    node.store
        .invalidate(&pool(), &gone)
        .await
        .expect("deletes");
}

/// A full group of four, of which one is deleted.
async fn one_of_four_gone() -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 5, shape(4, 1));
    config.space_interval = Duration::from_secs(3600);
    let node = Node::start(dir, 5, config).await;
    for id in 1..5 {
        put(&node, id, 50_000).await;
    }
    round(&node).await;
    assert_eq!(
        (status(&node).groups, status(&node).protected_bytes),
        (1, 200_000)
    );
    delete(&node, &[1]).await;
    assert_eq!(status(&node).kept_bytes, 50_000);
    node
}

#[tokio::test]
async fn a_writer_gets_the_room_of_deleted_replicas() {
    let node = one_of_four_gone().await;
    leave_free(&node, 1000);
    let options = WriteOptions {
        expected_len: Some(40_000),
        ..WriteOptions::default()
    };
    let created = node.store.create_rbw(&block(9, 1001, 0), options).await;
    let mut writer = created.expect("has room");
    assert_eq!(status(&node).kept_bytes, 0);
    writer.set_checksum(crc32c()).await.expect("header");
    let packet = packet_of(&content(9, 40_000), 0);
    writer.write(vec![packet]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
    for _ in 0..3 {
        round(&node).await;
    }
    let now = status(&node);
    assert_eq!(
        (now.protected_bytes, now.unprotected_bytes),
        (190_000, 0),
        "{now:?}"
    );
    check_files(&node, shape(4, 1));
}

#[tokio::test]
async fn where_little_is_free_deleted_room_comes_back_while_the_rest_stays_protected() {
    let node = one_of_four_gone().await;
    leave_free(&node, 190_000);
    round(&node).await;
    let now = status(&node);
    assert_eq!(
        (now.protected_bytes, now.unprotected_bytes),
        (150_000, 0),
        "{now:?}"
    );
    for _ in 0..3 {
        round(&node).await;
    }
    let now = status(&node);
    assert_eq!(
        (now.protected_bytes, now.kept_bytes, now.groups),
        (150_000, 0, 1),
        "{now:?}"
    );
    check_files(&node, shape(4, 1));
}

#[tokio::test]
async fn a_rebuild_gets_the_room_of_deleted_replicas() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 5, shape(3, 1));
    config.space_interval = Duration::from_secs(3600);
    let node = Node::start(dir, 5, config).await;
    for id in 1..13 {
        put(&node, id, 50_000).await;
    }
    round(&node).await;
    assert_eq!(status(&node).protected_bytes, 600_000);
    let (disk, mut keep) = (volume_of(&node, 1), 0);
    // Of each group one goes that is not on the disk that dies.
    let parity = Arc::clone(&node.parity);
    let mut gone = Vec::new();
    for group in parity.table().iter() {
        let of_group = group.record.members.iter().map(|m| m.block_id);
        gone.extend(of_group.filter(|id| volume_of(&node, *id) != disk).take(1));
        keep += 1;
    }
    delete(&node, &gone).await;
    assert_eq!(status(&node).kept_bytes, keep * 50_000);
    kill_disk(&node, disk).await;
    leave_free(&node, 1000);
    for _ in 0..4 {
        round(&node).await;
    }
    let now = status(&node);
    let left = (
        now.degraded_bytes,
        now.rebuild_remaining_bytes,
        now.unprotected_bytes,
    );
    assert_eq!(
        (left, now.protected_bytes),
        ((0, 0, 0), 600_000 - keep * 50_000),
        "{now:?}"
    );
}

#[tokio::test]
async fn deleted_room_comes_back_after_a_while_even_where_much_is_free() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 5, shape(4, 1));
    config.parity.kept_for = Duration::from_millis(500);
    let node = Node::start(dir, 5, config).await;
    for id in 1..5 {
        put(&node, id, 50_000).await;
    }
    round(&node).await;
    delete(&node, &[1]).await;
    round(&node).await;
    assert_eq!(status(&node).kept_bytes, 50_000);
    tokio::time::sleep(Duration::from_millis(500)).await;
    for _ in 0..3 {
        round(&node).await;
    }
    let now = status(&node);
    assert_eq!(
        (now.protected_bytes, now.kept_bytes),
        (150_000, 0),
        "{now:?}"
    );
}

/// A damaged replica of a group that keeps a deleted one cannot be written anew for now.
#[tokio::test]
async fn a_group_that_a_damaged_replica_waits_for_makes_no_room() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let mut config = protected(dir.path(), 5, shape(4, 1));
    config.space_interval = Duration::from_secs(3600);
    config.faults = Some((dir.path().join("data0"), Arc::clone(&faults)));
    let node = Node::start(dir, 5, config).await;
    for id in 1..5 {
        put(&node, id, 50_000).await;
    }
    round(&node).await;
    assert_eq!(status(&node).groups, 1);
    let on_faulty = (1..5).find(|id| volume_of(&node, *id) == 0);
    let damaged = on_faulty.expect("a replica there");
    let other = (1..5).find(|id| *id != damaged).expect("another");
    delete(&node, &[other]).await;
    assert_eq!(status(&node).kept_bytes, 50_000);
    let in_tmp = |path: &Path| path.to_string_lossy().contains("/tmp/parity-");
    faults.add(FaultRule::new(Effect::Errno(ENOSPC)).at(in_tmp));
    flip(&data_file(&node, damaged), 100);
    let storage = node.store.replica(&pool(), damaged).expect("there").storage;
    let is = block(damaged, 1001, 50_000);
    crate::heal(
        &node.parity,
        node.store.state(),
        is,
        storage,
        Damage::Certain,
    );
    leave_free(&node, 1000);
    let options = WriteOptions {
        expected_len: Some(40_000),
        ..WriteOptions::default()
    };
    let created = node.store.create_rbw(&block(9, 1001, 0), options).await;
    assert!(created.is_err(), "its group is needed");
    let now = status(&node);
    assert_eq!(
        (now.kept_bytes, now.damaged_bytes, now.protected_bytes),
        (50_000, 50_000, 100_000),
        "{now:?}"
    );
    assert!(!now.is_well());
    let parity = &node.parity;
    let storage = node.store.replica(&pool(), damaged).expect("there").storage;
    let cover = parity.table().cover(&pool(), damaged, &storage.id);
    let (unit, _) = cover.expect("its group is there");
    let decoded = crate::decode_for_test(parity, unit).await;
    assert!(decoded == content(damaged, 50_000));
}

/// Two groups, each with a deleted replica.
#[tokio::test]
async fn marked_groups_stay_while_nothing_presses_and_go_one_at_a_time() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 5, shape(4, 1));
    config.space_interval = Duration::from_secs(3600);
    config.parity.kept_for = Duration::ZERO;
    let node = Node::start(dir, 5, config).await;
    for id in 1..9 {
        put(&node, id, 50_000).await;
        if id % 4 == 0 {
            round(&node).await;
        }
    }
    assert_eq!(status(&node).groups, 2);
    delete(&node, &[1, 5]).await;
    let parity = Arc::clone(&node.parity);
    // No new groups are formed meanwhile.
    for _ in 0..3 {
        parity.yield_kept().await;
        parity.yield_long_ago();
    }
    assert_eq!(status(&node).groups, 2);
    leave_free(&node, 100);
    parity.yield_kept().await;
    assert_eq!(status(&node).groups, 1);
    leave_free(&node, 100);
    parity.yield_kept().await;
    assert_eq!(status(&node).groups, 0);
}

#[tokio::test]
async fn a_replica_that_has_no_room_keeps_no_smaller_one_from_being_rebuilt() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 4, shape(2, 1));
    config.space_interval = Duration::from_secs(3600);
    let node = Node::start(dir, 4, config).await;
    for id in 1..13 {
        put(&node, id, if id < 5 { 50_000 } else { 1000 }).await;
    }
    round(&node).await;
    assert_eq!(status(&node).unprotected_bytes, 0);
    kill_disk(&node, volume_of(&node, 1)).await;
    let pool = node.store.state().pool(&pool()).expect("there");
    let lens = || {
        let degraded = pool.all_degraded();
        let mut lens: Vec<u64> = degraded.iter().map(|(_, d)| d.len).collect();
        lens.sort_unstable();
        lens
    };
    assert_eq!(lens(), [1000, 1000, 50_000]);
    leave_free(&node, 30_000);
    round(&node).await;
    assert_eq!(lens(), [50_000]);
    leave_free(&node, 1 << 30);
    round(&node).await;
    assert_eq!(lens(), [0_u64; 0]);
}
