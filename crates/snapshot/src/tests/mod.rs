//! Snapshots of directories, in memory and in a directory, and back.

mod faults;
mod kills;
mod setup;
mod stores;

use hayloft_wire::ids::StorageType;

use self::setup::{Node, all_of, directory_of, memory, options, prune_options, restored, verified};
use crate::{SnapshotErrorKind, SnapshotProgress, create, list, prune, restore};

#[tokio::test]
async fn a_lost_node_is_back_under_its_own_identity_and_a_new_one() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    let replicas = node.fill(7);
    let report = node.create(&target).await.expect("created");
    assert_eq!((report.replicas, report.uploaded_replicas), (7, 7));
    assert_eq!((report.damaged, report.changed), (0, 0));
    verified(&target).await;
    for new_identity in [false, true] {
        let other = Node::empty();
        let report = restored(&target, &other, new_identity)
            .await
            .expect("restored");
        assert_eq!(report.restored_replicas, 7);
        assert_eq!(report.identity == "uuid-1", !new_identity);
        assert_eq!(other.replicas(), replicas);
        let version = other.version();
        assert_eq!(version.datanode_uuid, report.identity);
        let kept = version.storage_id == node.version().storage_id;
        assert_eq!(kept, !new_identity, "{version:?}");
        // Once more: all is there already, and nothing is changed.
        let again = restored(&target, &other, new_identity && report.identity != "uuid-1").await;
        let again = again.expect("nothing to do");
        assert_eq!((again.restored_replicas, again.there_already), (0, 7));
    }
}

#[tokio::test]
async fn an_unchanged_second_run_writes_a_manifest_alone() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(5);
    node.create(&target).await.expect("created");
    let before = all_of(&target).await;
    let report = node.create(&target).await.expect("created");
    assert_eq!((report.replicas, report.uploaded_replicas), (5, 0));
    let after = all_of(&target).await;
    assert_eq!(after.len(), before.len() + 1, "{after:?}");
    // What came, was appended to, and went.
    node.put(100, 1001, 700);
    node.remove(1, 1001);
    node.put(1, 1002, 900);
    node.remove(2, 1001);
    let report = node.create(&target).await.expect("created");
    assert_eq!((report.replicas, report.uploaded_replicas), (5, 2));
    verified(&target).await;
    let other = Node::empty();
    restored(&target, &other, false).await.expect("restored");
    assert_eq!(other.replicas(), node.replicas());
    let listed = list(&target, None).await.expect("listed");
    assert_eq!(listed.len(), 3);
    assert!(
        listed
            .iter()
            .all(|l| l.problem.is_none() && l.node == "uuid-1")
    );
}

#[tokio::test]
async fn a_large_replica_goes_in_parts() {
    let ((directory, _dir), node) = (directory_of("dir"), Node::new("uuid-1", "CID-1"));
    node.put(1, 1001, (20 << 20) + 77);
    for target in [memory(), directory] {
        node.create(&target).await.expect("created");
        verified(&target).await;
        let other = Node::empty();
        restored(&target, &other, true).await.expect("restored");
        assert_eq!(other.replicas(), node.replicas());
    }
}

#[tokio::test]
async fn nodes_share_a_prefix_and_not_a_folder() {
    let target = memory();
    let nodes = [Node::new("uuid-1", "CID-1"), Node::new("uuid-2", "CID-1")];
    for (count, node) in (3..).zip(&nodes) {
        node.fill(count);
    }
    let (one, other) = tokio::join!(nodes[0].create(&target), nodes[1].create(&target));
    assert_eq!(
        one.expect("created").replicas + other.expect("created").replicas,
        7
    );
    let error = restored(&target, &Node::empty(), false)
        .await
        .expect_err("which?");
    assert!(error.to_string().contains("--node"), "{error}");
    for node in &nodes {
        let other = Node::empty();
        let options = crate::RestoreOptions {
            node: Some(node.uuid.clone()),
            ..setup::restore_options(false)
        };
        let progress = SnapshotProgress::default();
        let report = restore(&target, &other.volumes(), &options, &progress).await;
        report.expect("restored");
        assert_eq!(other.replicas(), node.replicas());
    }
}

#[tokio::test]
async fn the_last_snapshot_that_lacks_nothing_stays() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(3);
    let whole = node.create(&target).await.expect("created").snapshot;
    std::fs::remove_file(node.data(2)).expect("its disk loses it");
    let mut options = prune_options(1);
    options.remove = true;
    for _ in 0..2 {
        let report = node.create(&target).await.expect("created");
        assert_eq!(report.damaged, 1, "{:?}", report.problems);
        let report = prune(&target, &options).await.expect("pruned");
        assert_eq!((&report[0].kept[0], report[0].kept.len()), (&whole, 2));
        assert_eq!(report[0].objects, 0);
    }
    // Where each lacks something, what one lacks another may have.
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(3);
    std::fs::remove_file(node.data(2)).expect("lost");
    for kept in 1..4 {
        node.create(&target).await.expect("created");
        let report = prune(&target, &options).await.expect("pruned");
        assert_eq!((report[0].kept.len(), report[0].pruned.len()), (kept, 0));
    }
}

/// What is left is wanted most then.
#[tokio::test]
async fn a_directory_that_cannot_be_read_is_left_out() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(3);
    let broken = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(broken.path().join("current")).expect("makes");
    std::fs::write(broken.path().join("current/VERSION"), "garbage").expect("writes");
    let dirs = [
        (broken.path().to_owned(), StorageType::Disk),
        (node.root(), StorageType::Disk),
    ];
    let source = crate::nodes_on(&dirs).expect("a node").remove(0);
    let report = create(&source, &target, &options(), &SnapshotProgress::default()).await;
    let report = report.expect("created");
    assert_eq!(
        (report.replicas, report.damaged),
        (3, 1),
        "{:?}",
        report.problems
    );
    crate::nodes_on(&dirs[..1]).expect_err("there is nothing else");
}

#[tokio::test]
async fn two_runs_of_one_node_at_once_are_two_snapshots() {
    let ((target, _dir), node) = (directory_of("dir"), Node::new("uuid-1", "CID-1"));
    node.fill(6);
    let (one, other) = tokio::join!(node.create(&target), node.create(&target));
    let (one, other) = (one.expect("created"), other.expect("created"));
    assert_ne!(one.snapshot, other.snapshot);
    for snapshot in [one.snapshot, other.snapshot] {
        setup::verified_one(&target, Some(snapshot)).await;
    }
}

#[tokio::test]
async fn what_no_snapshot_names_is_removed_and_nothing_else() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(4);
    node.create(&target).await.expect("created");
    node.remove(0, 1001);
    node.put(9, 1001, 10);
    node.create(&target).await.expect("created");
    let before = all_of(&target).await;
    let mut options = prune_options(1);
    let dry = prune(&target, &options).await.expect("looked");
    assert_eq!((dry[0].pruned.len(), dry[0].objects), (1, 2));
    assert_eq!(all_of(&target).await, before, "without --yes nothing goes");
    options.remove = true;
    let report = prune(&target, &options).await.expect("pruned");
    assert_eq!((report[0].kept.len(), report[0].objects), (1, 2));
    assert_eq!(all_of(&target).await.len(), before.len() - 3);
    verified(&target).await;
    // The newest stays, whatever is asked for; and those that are young.
    options.keep = 0;
    assert_eq!(
        prune(&target, &options).await.expect("pruned")[0]
            .kept
            .len(),
        1
    );
    node.create(&target).await.expect("created");
    options.keep_within = Some(std::time::Duration::from_secs(3600));
    options.now_ms = setup::now_ms();
    assert_eq!(
        prune(&target, &options).await.expect("pruned")[0]
            .kept
            .len(),
        2
    );
}

#[tokio::test]
async fn another_cluster_is_refused() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(2);
    node.create(&target).await.expect("created");
    let other = Node::new("uuid-1", "CID-2");
    let error = other.create(&target).await.expect_err("is another's");
    assert!(error.to_string().contains("CID-1"), "{error}");
    assert_eq!(error.kind(), SnapshotErrorKind::Finding);
    for (node, new, says) in [
        (Node::new("uuid-1", "CID-2"), false, "of the cluster"),
        (Node::new("uuid-2", "CID-1"), false, "--new-identity"),
        (
            Node::new("uuid-1", "CID-1"),
            true,
            "leave out --new-identity",
        ),
    ] {
        let error = restored(&target, &node, new).await.expect_err("refused");
        assert!(error.to_string().contains(says), "{error}");
        assert!(node.replicas().is_empty());
    }
    // A node of the same cluster takes them when it is told so.
    let node = Node::new("uuid-2", "CID-1");
    let report = restored(&target, &node, true).await.expect("restored");
    assert_eq!((report.restored_replicas, &*report.identity), (2, "uuid-2"));
}

#[tokio::test]
async fn damaged_replicas_and_ram_disks_are_left_out() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(4);
    node.flip_a_bit(1, 1001);
    std::fs::remove_file(node.meta(2, 1001)).expect("removes");
    // What is left of its data fits the checksums: nothing, as after a power cut.
    std::fs::write(node.data(3), "").expect("cut");
    let report = node.create(&target).await.expect("created");
    assert_eq!(
        (report.replicas, report.damaged),
        (1, 3),
        "{:?}",
        report.problems
    );
    assert!(report.problems.iter().any(|p| p.contains("its data wants")));
    assert!(report.problems.iter().any(|p| p.contains("at byte")));
    assert!(report.problems.iter().any(|p| p.contains("no meta file")));
    verified(&target).await;
    let dirs = [(node.root(), StorageType::RamDisk)];
    let source = crate::nodes_on(&dirs).expect("a node").remove(0);
    let progress = SnapshotProgress::default();
    let report = create(&source, &memory(), &options(), &progress).await;
    assert_eq!(report.expect("created").replicas, 0);
}
