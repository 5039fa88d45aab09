//! Objects that are missing or altered, stores that fail, processes that were killed.

use std::fs::File;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use opendal::layers::ChaosLayer;

use super::setup::{
    Node, all_of, directory_of, memory, operator, prune_options, restored, verified, verify_one,
};
use crate::claim::{Claim, ClaimFor};
use crate::{SnapshotErrorKind, Target, list, prune};

#[tokio::test]
async fn objects_that_are_missing_or_altered_are_found_and_not_restored() {
    for which in ["data", "meta", "longer", "shorter", "gone", "meta gone"] {
        let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
        let mut replicas = node.fill(6);
        node.create(&target).await.expect("created");
        let path = all_of(&target).await.into_iter().find(|path| {
            let meta = path.ends_with(".meta");
            path.contains("blk_4_1001_2800") && meta == which.contains("meta")
        });
        let path = path.expect("an object of block 4");
        let mut bytes = target.operator().read(&path).await.expect("reads").to_vec();
        match which {
            "gone" | "meta gone" => target.remove(vec![path]).await.expect("removes"),
            _ => {
                if which == "longer" {
                    bytes.push(0);
                } else if which == "shorter" {
                    bytes.pop();
                } else {
                    *bytes.last_mut().expect("not empty") ^= 1;
                }
                target.write(&path, bytes.into()).await.expect("writes");
            }
        }
        let report = verify_one(&target, None, false).await.expect("verified");
        assert_eq!(report.broken, 1, "{which}");
        assert!(
            report.problems[0].contains("blk_4"),
            "{:?}",
            report.problems
        );
        let advice = report.advice().expect("it can be mended");
        assert!(advice.contains("snapshot create"), "{advice}");
        let quick = verify_one(&target, None, true).await.expect("looked");
        let shows = ["gone", "longer", "shorter"]
            .iter()
            .any(|w| which.contains(w));
        assert_eq!(quick.broken, u64::from(shows), "{which}");
        let other = Node::empty();
        let report = restored(&target, &other, false).await.expect("restored");
        assert_eq!((report.broken, report.restored_replicas), (1, 5), "{which}");
        replicas.remove(&4);
        assert_eq!(other.replicas(), replicas, "{which}");
        // What is missing or has another length is written again by the next snapshot.
        let report = node.create(&target).await.expect("created");
        assert_eq!(report.uploaded_replicas, u64::from(shows), "{which}");
        if shows {
            verified(&target).await;
        }
    }
}

#[tokio::test]
async fn an_altered_manifest_is_refused() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(3);
    node.create(&target).await.expect("created");
    let path = all_of(&target)
        .await
        .into_iter()
        .find(|p| p.contains("manifests"));
    let path = path.expect("a manifest");
    let bytes = target.operator().read(&path).await.expect("reads").to_vec();
    let text = String::from_utf8(bytes).expect("text");
    let other = text.replace(" 1001 700 ", " 1001 701 ");
    assert_ne!(text, other);
    for altered in [
        other.clone(),
        text[..text.len() - 10].to_owned(),
        String::new(),
    ] {
        target
            .write(&path, Bytes::from(altered.clone()))
            .await
            .expect("writes");
        // `list` reads its ends alone.
        let is_whole = altered == other;
        let error = restored(&target, &Node::empty(), false).await;
        let error = error.expect_err("is altered");
        assert!(error.to_string().contains("was altered"), "{error}");
        assert_eq!(error.kind(), SnapshotErrorKind::Finding);
        if !is_whole {
            let listed = list(&target, None).await.expect("lists");
            assert!(listed[0].problem.is_some(), "{listed:?}");
        }
        // What it names is not known, so nothing is removed.
        let mut options = prune_options(1);
        options.remove = true;
        prune(&target, &options).await.expect_err("is altered");
        assert_eq!(all_of(&target).await.len(), 7);
    }
    // The next snapshot does not count on it, and has all.
    let report = node.create(&target).await.expect("created");
    assert_eq!((report.replicas, report.uploaded_replicas), (3, 0));
    verified(&target).await;
}

#[tokio::test]
async fn a_store_that_fails_for_moments_loses_nothing() {
    let node = Node::new("uuid-1", "CID-1");
    let replicas = node.fill(8);
    let target = Target::of(operator().layer(ChaosLayer::new(0.3)));
    node.create(&target).await.expect("created");
    let mut whole = 0;
    for _ in 0..5 {
        let other = Node::empty();
        match restored(&target, &other, false).await {
            Ok(report) => {
                assert_eq!(
                    report.broken, 0,
                    "an answer that fails is no object altered"
                );
                assert_eq!(other.replicas(), replicas);
                whole += 1;
            }
            Err(error) => assert!(error.to_string().contains("goes on"), "{error}"),
        }
        for (id, bytes) in other.replicas() {
            assert_eq!(bytes, replicas[&id], "what is there is whole");
        }
    }
    assert!(whole > 0, "five tries of each request do not help");
}

#[tokio::test]
async fn nothing_is_pruned_beside_a_snapshot_that_is_being_taken() {
    let ((target, _dir), node) = (directory_of("claims"), Node::new("uuid-1", "CID-1"));
    node.fill(3);
    node.create(&target).await.expect("created");
    let creating = Claim::take(&target, "uuid-1", ClaimFor::Create).await;
    let creating = creating.expect("no other is there");
    let mut options = prune_options(1);
    options.remove = true;
    // Of all nodes the others are pruned.
    let idle = Node::new("uuid-2", "CID-1");
    idle.fill(2);
    for _ in 0..2 {
        idle.create(&target).await.expect("created");
    }
    let reports = prune(&target, &options)
        .await
        .expect("others can be pruned");
    let problem = reports[0].problem.as_deref().unwrap_or_default();
    assert!(problem.contains("at work"), "{reports:?}");
    assert_eq!((reports[1].pruned.len(), &reports[1].problem), (1, &None));
    options.node = Some("uuid-1".to_owned());
    let error = prune(&target, &options).await.expect_err("one is there");
    assert!(error.to_string().contains("at work"), "{error}");
    assert_eq!(error.kind(), SnapshotErrorKind::AtWork);
    // Another snapshot may be taken meanwhile.
    node.create(&target).await.expect("created");
    creating.release().await;
    prune(&target, &options).await.expect("no other is there");
    assert!(
        all_of(&target)
            .await
            .iter()
            .all(|path| !path.contains("running"))
    );
}

#[tokio::test]
async fn a_snapshot_waits_for_one_that_prunes() {
    let (target, node) = (memory(), Node::new("uuid-1", "CID-1"));
    node.fill(3);
    let pruning = Claim::take(&target, "uuid-1", ClaimFor::Prune).await;
    let pruning = pruning.expect("no other is there");
    let mut taken = Box::pin(node.create(&target));
    let early = tokio::time::timeout(Duration::from_millis(700), &mut taken).await;
    assert!(early.is_err(), "it did not wait");
    pruning.release().await;
    taken.await.expect("created");
    verified(&target).await;
}

#[tokio::test]
async fn the_claim_of_a_killed_process_is_removed_after_a_while() {
    let ((target, _dir), node) = (directory_of("dead"), Node::new("uuid-1", "CID-1"));
    node.fill(3);
    node.create(&target).await.expect("created");
    let claim = Claim::take(&target, "uuid-1", ClaimFor::Create)
        .await
        .expect("free");
    let path = all_of(&target)
        .await
        .into_iter()
        .find(|p| p.contains("running"));
    let path = path.expect("a claim");
    let dir = target.unfinished().expect("a directory");
    let file = dir.parent().expect("the target").join(path);
    let long_ago = SystemTime::now() - Duration::from_secs(601);
    let file = File::options().write(true).open(file).expect("opens");
    file.set_modified(long_ago).expect("a time");
    let mut options = prune_options(1);
    options.remove = true;
    prune(&target, &options).await.expect("it is dead");
    // Its owner, who only slept, hears of that before it counts on anything.
    let error = claim.stands().await.expect_err("was removed");
    assert!(
        error.to_string().contains("took this one for dead"),
        "{error}"
    );
}
