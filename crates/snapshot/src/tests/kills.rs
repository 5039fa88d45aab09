//! Processes that end anywhere: their work is dropped after so many steps.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use super::setup::{
    Node, Replicas, all_of, directory_of, prune_options, restored, verified, verify_one,
};
use crate::target::Target;
use crate::{RestoreReport, list, prune};

/// Does a work until it was asked `steps` times whether it goes on; `None` when it was cut off.
async fn killed_after<T>(steps: usize, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut left = steps;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// Steps that a whole run takes at most, in these tests.
const STEPS_MAX: usize = 2000;
/// Runs that have to be cut off in their midst.
const CUT_OFF: usize = 4;

#[tokio::test]
async fn a_snapshot_killed_anywhere_is_whole_or_none() {
    let node = Node::new("uuid-1", "CID-1");
    let replicas = node.fill(5);
    let (mut steps, mut none, mut done) = (0, 0, false);
    // A run may need few steps, where threads are faster than it looks: then there are more runs.
    while !done || none < CUT_OFF {
        steps = if done { 1 } else { steps };
        let (target, _dir) = directory_of("killed");
        done = killed_after(steps, node.create(&target)).await.is_some();
        match list(&target, None).await.expect("lists").len() {
            0 => none += usize::from(steps > 0),
            _ => verified(&target).await,
        }
        // The next run finishes it, and a node is back from that.
        node.create(&target).await.expect("created");
        verified(&target).await;
        let other = Node::empty();
        restored(&target, &other, false).await.expect("restored");
        assert_eq!(other.replicas(), replicas);
        steps += 1;
        assert!(steps < STEPS_MAX);
    }
}

#[tokio::test]
async fn a_restore_killed_anywhere_leaves_whole_replicas_and_goes_on() {
    let ((target, _dir), node) = (directory_of("source"), Node::new("uuid-1", "CID-1"));
    let replicas = node.fill(5);
    node.create(&target).await.expect("created");
    let (mut steps, mut partly, mut done) = (0, 0, false);
    while !done || partly < CUT_OFF {
        steps = if done { 1 } else { steps };
        let other = Node::empty();
        // Each that was killed left a claim, and the next looks at all of them: where that takes
        // more steps than there were before, no run would ever come to its end.
        target.release_claims().await.expect("removes");
        let whole = killed_after(steps, restored(&target, &other, false)).await;
        done = whole.is_some();
        let mut last = whole.unwrap_or_else(|| Ok(RestoreReport::default()));
        if !done {
            // What was on its way on another thread ends first, as the lock of the volume does.
            for _ in 0..1000 {
                last = restored(&target, &other, false).await;
                if last.is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let last = last.unwrap_or_else(|e| panic!("after {steps} steps (done: {done}): {e}"));
        let there = other.replicas();
        partly += usize::from(steps > 0 && !done);
        let what = format!("after {steps} steps (done: {done}): {last:?}");
        let ids = |of: &Replicas| of.keys().copied().collect::<Vec<_>>();
        assert_eq!(ids(&there), ids(&replicas), "{what}");
        assert_eq!(there, replicas, "{what}");
        steps += 1;
        assert!(steps < STEPS_MAX);
    }
}

/// Replicas that a snapshot lacks, once the claim of the process that was killed is dead. What that
/// one was writing to a file may come only now: then the claim is there once more.
async fn broken_ten_minutes_later(target: &Target, name: &str) -> u64 {
    for _ in 0..60 {
        let mut left = all_of(target).await;
        left.retain(|path| path.contains("/running/"));
        target.remove(left).await.expect("removes");
        let verified = verify_one(target, Some(name.to_owned()), false);
        if let Ok(report) = timeout(Duration::from_secs(1), verified).await {
            return report.expect("verified").broken;
        }
    }
    panic!("a claim comes again and again");
}

#[tokio::test]
async fn a_prune_killed_anywhere_breaks_no_snapshot() {
    let node = Node::new("uuid-1", "CID-1");
    let (mut steps, mut done) = (0, false);
    while !done {
        let (target, _dir) = directory_of("pruned");
        node.put(7, 1001, 50);
        node.create(&target).await.expect("created");
        node.remove(7, 1001);
        node.put(8, 1001, 60);
        node.create(&target).await.expect("created");
        node.remove(8, 1001);
        let mut options = prune_options(1);
        options.remove = true;
        done = killed_after(steps, prune(&target, &options))
            .await
            .is_some();
        for listed in list(&target, None).await.expect("lists") {
            assert_eq!(broken_ten_minutes_later(&target, &listed.name).await, 0);
        }
        if done {
            let objects = all_of(&target).await.len();
            assert_eq!(objects, 3, "a manifest, data and meta file");
        }
        steps += 1;
        assert!(steps < STEPS_MAX);
    }
}
