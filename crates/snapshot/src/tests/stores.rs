//! Stores as operators have them: clocks that were ahead, mounts to read, folders of others.

use std::fs;

use opendal::ErrorKind;

use super::setup::{
    Node, all_of, directory_of, memory, options, prune_options, restored, verified, verify_one,
};
use crate::claim::{Claim, ClaimFor};
use crate::error::SnapshotError;
use crate::{SnapshotErrorKind, SnapshotProgress, Target, create, list, nodes_on, only, prune};

#[tokio::test]
async fn a_clock_that_was_ahead_once_is_left_behind() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(2);
    let source = nodes_on(&node.typed()).expect("a node").remove(0);
    let mut ahead = options();
    ahead.now_ms = 4_070_908_800_000;
    let progress = SnapshotProgress::default();
    let ahead = create(&source, &target, &ahead, &progress).await;
    let ahead = ahead.expect("created").snapshot;
    node.put(9, 1001, 100);
    let report = node.create(&target).await.expect("created");
    assert!(report.snapshot > ahead, "{} {ahead}", report.snapshot);
    let newest = verify_one(&target, None, false).await.expect("verified");
    assert_eq!((newest.snapshot, newest.replicas), (report.snapshot, 3));
    let mut options = prune_options(1);
    options.remove = true;
    let pruned = prune(&target, &options).await.expect("pruned");
    assert_eq!(pruned[0].pruned, [ahead]);
    verified(&target).await;
    // The last time that a name has room for stays one of a snapshot.
    let mut last = super::setup::options();
    last.now_ms = u64::MAX;
    for _ in 0..2 {
        let taken = create(&source, &target, &last, &progress).await;
        taken.expect("created");
    }
    assert_eq!(list(&target, None).await.expect("lists").len(), 3);
}

#[tokio::test]
async fn a_prune_gives_way_to_one_that_reads() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(3);
    node.create(&target).await.expect("created");
    let mut options = prune_options(1);
    (options.remove, options.node) = (true, Some("uuid-1".to_owned()));
    let beside = |_| async {
        let error = prune(&target, &options).await.expect_err("one reads");
        assert!(error.to_string().contains("running/read-"), "{error}");
        // Others read, and take snapshots, meanwhile.
        verified(&target).await;
        node.create(&target).await
    };
    let read = Claim::reading(&target, (Some("uuid-1"), None), beside).await;
    read.expect("created");
    prune(&target, &options).await.expect("none reads");
    // Those that read wait for one that prunes.
    let pruning = Claim::take(&target, "uuid-1", ClaimFor::Prune).await;
    let pruning = pruning.expect("no other is there");
    for restores in [false, true] {
        let other = Node::empty();
        let work = async {
            match restores {
                true => restored(&target, &other, false).await.map(|_| ()),
                false => verify_one(&target, None, false).await.map(|_| ()),
            }
        };
        let early = tokio::time::timeout(std::time::Duration::from_millis(300), work).await;
        assert!(early.is_err(), "it did not wait");
    }
    pruning.release().await;
    target.release_claims().await.expect("removes");
    verified(&target).await;
    assert_eq!(all_of(&target).await.len(), 7, "claims are left");
}

#[tokio::test]
async fn a_work_that_is_dropped_can_give_up_its_claim() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(3);
    node.create(&target).await.expect("created");
    let claim = Claim::take(&target, "uuid-1", ClaimFor::Create).await;
    drop(claim.expect("no other is there"));
    let mut options = prune_options(1);
    options.node = Some("uuid-1".to_owned());
    prune(&target, &options).await.expect_err("it has a claim");
    target.release_claims().await.expect("removes");
    prune(&target, &options).await.expect("it gave it up");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_may_only_be_read_is_read() {
    let ((target, dir), node) = (directory_of("read"), Node::new("uuid-1", "CID-1"));
    let replicas = node.fill(3);
    node.create(&target).await.expect("created");
    drop(target);
    fs::remove_dir(dir.path().join(".unfinished")).expect("is empty");
    // No claim can be written there.
    let claims = dir.path().join("uuid-1/running");
    fs::remove_dir(&claims).expect("is empty");
    fs::write(&claims, "").expect("writes");
    let url = format!("file://{}", dir.path().display());
    let target = Target::to_read(&url).expect("a directory");
    assert_eq!(list(&target, None).await.expect("lists").len(), 1);
    verified(&target).await;
    let other = Node::empty();
    restored(&target, &other, false).await.expect("restored");
    assert_eq!(other.replicas(), replicas);
    let entries = fs::read_dir(dir.path()).expect("lists").count();
    assert_eq!(entries, 1, "something was made there");
}

#[test]
fn advice_fits_what_the_system_says() {
    for (error, says) in [
        (rustix::io::Errno::ROFS, "mount it so that"),
        (rustix::io::Errno::ACCESS, "as a user who may write"),
        (rustix::io::Errno::NOSPC, "make room"),
    ] {
        let kind = match error {
            rustix::io::Errno::ACCESS => ErrorKind::PermissionDenied,
            _ => ErrorKind::Unexpected,
        };
        let error = opendal::Error::new(kind, "").set_source(std::io::Error::from(error));
        let error = SnapshotError::of_store("write an object", "file:///x", &error);
        assert!(error.to_string().contains(says), "{error}");
    }
    // What a server says is shown without the headers of its answer.
    let said = "S3Error { code: \"NoSuchBucket\", message: \"none\" }";
    let error = opendal::Error::new(ErrorKind::ConfigInvalid, said)
        .with_context("response", "Parts ".repeat(100));
    let error = SnapshotError::of_store("list objects", "s3://b", &error);
    let text = error.to_string();
    assert!(
        text.contains("NoSuchBucket") && !text.contains("Parts"),
        "{text}"
    );
}

#[tokio::test]
async fn folders_of_others_are_no_nodes() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    let replicas = node.fill(3);
    node.create(&target).await.expect("created");
    for path in ["backup/x", "typo/running/prune-1", "uuid-2/blocks/x"] {
        target.write(path, "x".into()).await.expect("writes");
    }
    let before = all_of(&target).await;
    verified(&target).await;
    let other = Node::empty();
    restored(&target, &other, false).await.expect("restored");
    assert_eq!(other.replicas(), replicas);
    let mut options = prune_options(1);
    for (name, kind, says) in [
        ("../c2", SnapshotErrorKind::Environment, "no uuid of a node"),
        ("a b", SnapshotErrorKind::Environment, "no uuid of a node"),
        ("nope", SnapshotErrorKind::Finding, "no such snapshot"),
        ("backup", SnapshotErrorKind::Finding, "no such snapshot"),
    ] {
        options.node = Some(name.to_owned());
        let error = prune(&target, &options).await.expect_err(name);
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.kind(), kind, "{name}");
    }
    for (name, says) in [("../c2", "no uuid of a node"), ("nope", "no such snapshot")] {
        let error = list(&target, Some(name)).await.expect_err("no node's");
        assert!(error.to_string().contains(says), "{error}");
    }
    // One that has blocks alone is pruned: its first snapshot was cut off.
    options.node = None;
    let reports = prune(&target, &options).await.expect("looked");
    let nodes: Vec<&str> = reports.iter().map(|report| &*report.node).collect();
    assert_eq!(nodes, ["uuid-1", "uuid-2"]);
    assert_eq!(all_of(&target).await, before);
}

#[test]
fn a_node_that_is_meant_is_one_that_is_there() {
    let node = Node::new("uuid-1", "CID-1");
    let nodes = || nodes_on(&node.typed()).expect("a node");
    assert_eq!(only(nodes(), "uuid-1").expect("is there").len(), 1);
    let error = only(nodes(), "nope").expect_err("is not there");
    assert!(error.to_string().contains("uuid-1"), "{error}");
    assert!(only(Vec::new(), "nope").expect("none at all").is_empty());
}

#[tokio::test]
async fn root_restores_to_no_directory_of_another_user() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(2);
    node.create(&target).await.expect("created");
    let other = Node::empty();
    let dir = other.root();
    fs::create_dir(&dir).expect("makes");
    if std::os::unix::fs::chown(&dir, Some(65534), None).is_err() {
        // Only root gives directories away.
        return;
    }
    let error = restored(&target, &other, false).await.expect_err("root");
    assert_eq!(error.kind(), SnapshotErrorKind::Environment);
    assert!(error.to_string().contains("sudo -u '#65534'"), "{error}");
    assert_eq!(fs::read_dir(&dir).expect("lists").count(), 0);
    std::os::unix::fs::chown(&dir, Some(0), None).expect("root's");
    restored(&target, &other, false).await.expect("restored");
}
