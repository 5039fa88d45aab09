//! A volume takes no parity: it is left out, and work goes on beside it.

use super::*;

use std::sync::atomic::Ordering;

use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_io::{IoError, IoErrorKind, IoOp};

/// Four volumes, of which the first obeys the rules.
pub(super) async fn faulty(shape: ParityShape) -> (Node, Arc<Faults>) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let mut config = protected(dir.path(), 4, shape);
    config.faults = Some((dir.path().join("data0"), Arc::clone(&faults)));
    (Node::start(dir, 4, config).await, faults)
}

/// Permission denied.
pub(super) const EACCES: i32 = 13;

pub(super) fn in_groups(path: &Path) -> bool {
    path.components().any(|c| c.as_os_str() == PARITY_DIR)
}

pub(super) async fn put_some(node: &Node, ids: std::ops::Range<i64>) -> u64 {
    let count = ids.end - ids.start;
    for id in ids {
        put(node, id, 50_000).await;
    }
    50_000 * u64::try_from(count).expect("positive")
}

/// A file lies where the directory of groups should be: not even the superuser writes there.
#[tokio::test]
async fn a_directory_that_cannot_be_written_stops_no_protection() {
    let node = start(4, shape(2, 1)).await;
    let in_the_way = node.dir.path().join("data0").join(PARITY_DIR);
    std::fs::write(&in_the_way, "").expect("writes");
    let all = put_some(&node, 1..13).await;
    for _ in 0..4 {
        round(&node).await;
    }
    let now = status(&node);
    assert_eq!(
        (now.protected_bytes, now.unprotected_bytes),
        (all, 0),
        "{now:?}"
    );
    for disk in 1..3 {
        kill_disk(&node, disk).await;
        for id in 1..13 {
            check(&node, id, 50_000).await;
        }
        for _ in 0..3 {
            round(&node).await;
        }
    }
}

#[tokio::test]
async fn a_disk_that_fails_or_is_full_for_parity_alone_is_left_out() {
    for errno in [EIO, ENOSPC] {
        let (node, faults) = faulty(shape(2, 1)).await;
        let ops = [IoOp::Open, IoOp::Write, IoOp::Replace, IoOp::Sync];
        faults.add(FaultRule::new(Effect::Errno(errno)).on(&ops).at(in_groups));
        let all = put_some(&node, 1..13).await;
        for _ in 0..4 {
            round(&node).await;
        }
        let now = status(&node);
        assert_eq!(
            (now.protected_bytes, now.unprotected_bytes),
            (all, 0),
            "{now:?}"
        );
        let status_file = |n: usize| ParityStatus::file(&node.dir.path().join(format!("data{n}")));
        assert!(!status_file(0).exists() && status_file(1).exists());
    }
}

/// A defect ends one round, not parity.
#[tokio::test]
async fn a_round_that_panics_is_followed_by_others() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 4, shape(2, 1));
    config.parity.interval = Duration::from_millis(50);
    let node = Node::start(dir, 4, config).await;
    node.parity.panics.store(true, Ordering::Relaxed);
    let all = put_some(&node, 1..13).await;
    let protected = async {
        while status(&node).protected_bytes < all {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), protected).await;
    assert!(in_time.is_ok(), "{:?}", status(&node));
    assert!(
        !node.parity.panics.load(Ordering::Relaxed),
        "no round was wrong"
    );
    assert!(hayloft_io::services_broken() > 0);
}

#[tokio::test]
async fn a_request_that_cannot_be_removed_is_carried_out_once() {
    let (node, faults) = faulty(shape(2, 1)).await;
    put_some(&node, 1..4).await;
    round(&node).await;
    let request = |path: &Path| path.ends_with("request-scrub");
    faults.add(
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Unlink])
            .at(request),
    );
    let root = node.dir.path().join("data0");
    std::fs::create_dir_all(root.join(PARITY_DIR)).expect("there");
    ParityRequest::Scrub.leave(&root).expect("asks");
    round(&node).await;
    let first = status(&node).done(ParityRequest::Scrub);
    assert!(first > 0);
    tokio::time::sleep(Duration::from_millis(5)).await;
    round(&node).await;
    assert_eq!(status(&node).done(ParityRequest::Scrub), first);
    ParityRequest::Scrub.leave(&root).expect("asks again");
    round(&node).await;
    assert!(status(&node).done(ParityRequest::Scrub) > first);
}

fn row(status: &ParityStatus, disk: usize) -> &VolumeParity {
    let name = format!("data{disk}");
    let mut rows = status.volumes.iter();
    rows.find(|row| row.directory.ends_with(&name))
        .expect("a row")
}

#[tokio::test]
async fn a_volume_that_refuses_is_told_of_and_tried_again() {
    let node = start(4, shape(2, 1)).await;
    let in_the_way = node.dir.path().join("data0").join(PARITY_DIR);
    std::fs::write(&in_the_way, "").expect("writes");
    put_some(&node, 1..13).await;
    round(&node).await;
    round(&node).await;
    let now = status(&node);
    assert!(
        row(&now, 0).refuses.is_some() && row(&now, 1).refuses.is_none(),
        "{now:?}"
    );
    std::fs::remove_file(&in_the_way).expect("there");
    node.parity.forgive_volumes();
    round(&node).await;
    assert_eq!(row(&status(&node), 0).refuses, None);
    let all = put_some(&node, 13..40).await + 600_000;
    round(&node).await;
    let now = status(&node);
    assert_eq!(now.protected_bytes, all);
    assert!(row(&now, 0).parity_bytes > 0, "{now:?}");
}

#[tokio::test]
async fn a_disk_that_gives_no_answer_for_parity_holds_nothing_up() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let mut config = protected(dir.path(), 4, shape(2, 1));
    config.faults = Some((dir.path().join("data0"), Arc::clone(&faults)));
    config.parity.answer = Duration::from_millis(300);
    let node = Node::start(dir, 4, config).await;
    let hangs = Effect::Delay(Duration::from_secs(3600));
    faults.add(FaultRule::new(hangs).at(in_groups));
    let all = put_some(&node, 1..13).await;
    let rounds = async {
        for _ in 0..4 {
            round(&node).await;
        }
    };
    let soon = tokio::time::timeout(Duration::from_secs(30), rounds);
    soon.await.expect("rounds end");
    // What lies on the disk itself is left alone too.
    let there = (1..13).filter(|id| volume_of(&node, *id) == 0).count() as u64 * 50_000;
    let now = status(&node);
    assert_eq!(
        (now.protected_bytes, now.unprotected_bytes),
        (all - there, there),
        "{now:?}"
    );
    faults.clear();
    node.parity.forgive_volumes();
    round(&node).await;
    assert_eq!(status(&node).protected_bytes, all);
}

#[tokio::test]
async fn a_rebuild_goes_to_another_disk_than_one_that_refuses() {
    let (node, faults) = faulty(shape(2, 1)).await;
    let all = put_some(&node, 1..13).await;
    round(&node).await;
    assert_eq!(status(&node).protected_bytes, all);
    let in_tmp = |path: &Path| path.to_string_lossy().contains("/tmp/parity-");
    faults.add(FaultRule::new(Effect::Errno(28)).at(in_tmp));
    faults.add(
        FaultRule::new(Effect::Errno(28))
            .at(in_groups)
            .on(&[IoOp::Write, IoOp::Replace]),
    );
    kill_disk(&node, 1).await;
    for _ in 0..6 {
        round(&node).await;
    }
    let now = status(&node);
    let left = (
        now.degraded_bytes,
        now.rebuild_remaining_bytes,
        now.unprotected_bytes,
    );
    assert_eq!((now.protected_bytes, left), (all, (0, 0, 0)), "{now:?}");
    for id in 1..13 {
        check(&node, id, 50_000).await;
    }
}

#[tokio::test]
async fn files_of_a_group_that_cannot_be_removed_go_later() {
    let (node, faults) = faulty(shape(2, 1)).await;
    put_some(&node, 1..13).await;
    round(&node).await;
    let rule = faults.add(
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Unlink])
            .at(in_groups),
    );
    let gone: Vec<Block> = (1..13).map(|id| block(id, 1001, 0).block).collect();
    node.store
        .invalidate(&pool(), &gone)
        .await
        .expect("deletes");
    round(&node).await;
    assert_eq!(status(&node).groups, 0);
    let left = |node: &Node| files(node).iter().any(|(volume, _)| *volume == 0);
    assert!(left(&node), "its disk refuses");
    faults.remove(rule);
    let parity = &node.parity;
    parity.forgive_volumes();
    round(&node).await;
    assert!(!left(&node), "{:?}", files(&node));
}

#[tokio::test]
async fn copies_of_a_record_stay_while_too_few_volumes_take_the_next() {
    let (node, faults) = faulty(shape(2, 1)).await;
    put_some(&node, 1..3).await;
    round(&node).await;
    let is_record = |file: &GroupFile| matches!(file, GroupFile::Record(_));
    let records = |node: &Node| files(node).iter().filter(|(_, f)| is_record(f)).count();
    assert_eq!(records(&node), 2);
    faults.clear();
    let parity = Arc::clone(&node.parity);
    let group = parity.table().iter().next().expect("one").record.id;
    // Every volume but one refuses.
    for place in parity.places().iter().skip(1) {
        let error = IoError::new(IoErrorKind::Closed, IoOp::Write, Path::new("/"), "a test");
        parity.refused(place, "a test", error);
    }
    let written = parity.rewrite(group).await;
    assert!(written.is_err(), "too few take one");
    assert_eq!(records(&node), 2);
    parity.forgive_volumes();
    parity.rewrite(group).await.expect("writes");
    assert_eq!(records(&node), 2);
}

#[tokio::test]
async fn a_disk_that_lists_nothing_holds_no_round_up() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let mut config = protected(dir.path(), 4, shape(2, 1));
    config.faults = Some((dir.path().join("data0"), Arc::clone(&faults)));
    config.parity.answer = Duration::from_millis(50);
    let node = Node::start(dir, 4, config).await;
    let hangs = Effect::Delay(Duration::from_secs(3600));
    let rule = faults.add(FaultRule::new(hangs).on(&[IoOp::List]));
    let parity = &node.parity;
    parity.forgive_volumes();
    let soon = tokio::time::timeout(Duration::from_secs(20), round(&node));
    soon.await.expect("the round ends");
    assert!(faults.fired(rule) > 0);
    assert!(row(&status(&node), 0).refuses.is_some());
}

#[tokio::test]
async fn what_is_decoded_again_does_not_wait_for_a_disk_that_hangs() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let mut config = protected(dir.path(), 4, shape(2, 2));
    config.faults = Some((dir.path().join("data0"), Arc::clone(&faults)));
    config.parity.answer = Duration::from_secs(3);
    let node = Node::start(dir, 4, config).await;
    put_some(&node, 1..3).await;
    round(&node).await;
    let of = (1..3).find(|id| volume_of(&node, *id) != 0);
    let of = of.expect("on another disk");
    assert!((1..3).any(|id| volume_of(&node, id) == 0));
    let storage = node.store.replica(&pool(), of).expect("there").storage;
    let parity = &node.parity;
    let (unit, _) = parity
        .table()
        .cover(&pool(), of, &storage.id)
        .expect("a group");
    let hangs = Effect::Delay(Duration::from_secs(3600));
    let of_replicas = |path: &Path| path.to_string_lossy().contains("/finalized/");
    faults.add(FaultRule::new(hangs).on(&[IoOp::Read]).at(of_replicas));
    let mut took = Vec::new();
    for _ in 0..2 {
        let began = std::time::Instant::now();
        let bytes = crate::decode_for_test(parity, unit).await;
        assert!(bytes == content(of, 50_000));
        took.push(began.elapsed());
    }
    assert!(took[0] >= Duration::from_secs(3), "{took:?}");
    assert!(took[1] < Duration::from_secs(2), "{took:?}");
}
