//! A defect ends one piece of work. What it holds is given back, and others go on beside it.

use super::*;
use std::fs;

use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_io::{IoOp, services_broken};

use crate::transitions::check_volume;
use crate::volume::unsynced::CommitRounds;

async fn next(node: &mut Node) -> StoreEvent {
    tokio::time::timeout(Duration::from_secs(20), node.events.recv())
        .await
        .expect("in time")
        .expect("open")
}

async fn next_bad(node: &mut Node) -> i64 {
    match next(node).await {
        StoreEvent::Corrupt { block, .. } => block.block.id,
        other => panic!("{other:?}"),
    }
}

fn damage(node: &Node, name: &str) {
    let path = node
        .pool_dir()
        .join("current/finalized/subdir0/subdir0")
        .join(name);
    let mut contents = fs::read(&path).expect("there");
    contents[1500] ^= 1;
    fs::write(&path, contents).expect("writes");
}

fn panics_at(name: &'static str) -> FaultRule {
    let at = move |path: &Path| path.ends_with(name);
    FaultRule::new(Effect::Panic).on(&[IoOp::Open]).at(at)
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in time: {what}");
}

#[tokio::test]
async fn the_block_scanner_goes_on_behind_a_replica_that_makes_it_panic() {
    let node = Node::new().await;
    for id in 1..=4 {
        node.put(id, 1001, 3000).await;
    }
    damage(&node, "blk_4");
    node.store.shutdown().await;
    fs::remove_file(node.pool_dir().join("scanner.cursor")).ok();
    let faults = Faults::new(1);
    let panics = faults.add(panics_at("blk_2"));
    let start = StoreConfig {
        scan: ScanConfig {
            period: Duration::from_secs(3600),
            bytes_per_second: 1 << 40,
        },
        faults: Some((node.dir.path().to_owned(), Arc::clone(&faults))),
        ..config(node.dir.path(), 1)
    };
    let before = services_broken();
    let mut node = Node::start(node.dir, 1, start).await;
    assert_eq!(next_bad(&mut node).await, 4);
    assert_eq!(faults.fired(panics), 1, "it is met once in a round");
    assert!(services_broken() > before);
}

#[tokio::test]
async fn suspects_are_looked_at_behind_one_that_panics() {
    let (mut node, faults) = Node::faulty(1).await;
    node.put(1, 1001, 3000).await;
    node.put(2, 1001, 3000).await;
    damage(&node, "blk_2");
    let panics = faults.add(panics_at("blk_1"));
    node.store.mark_suspect(&block(1, 1001, 0));
    until("it was looked at", || faults.fired(panics) > 0).await;
    node.store.mark_suspect(&block(2, 1001, 0));
    assert_eq!(next_bad(&mut node).await, 2);
}

/// The volume is checked again, and fails then.
#[tokio::test]
async fn a_check_that_panics_keeps_no_later_one_away() {
    let (mut node, faults) = Node::faulty(1).await;
    let volume = node.store.0.volumes().remove(0);
    let panics = faults.add(FaultRule::new(Effect::Panic).on(&[IoOp::Open]));
    check_volume::check_soon(&node.store.0, &volume);
    until("it was checked", || faults.fired(panics) > 0).await;
    faults.clear();
    faults.add(FaultRule::new(Effect::Errno(EIO)).on(&[IoOp::Open]));
    let failed = async {
        loop {
            check_volume::check_soon(&node.store.0, &volume);
            let told = tokio::time::timeout(Duration::from_millis(100), node.events.recv());
            if let Ok(Some(StoreEvent::VolumeFailed { .. })) = told.await {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), failed).await;
    in_time.expect("in time");
}

#[tokio::test]
async fn what_a_panic_kept_from_being_verified_leaves_the_stamp_where_it_is() {
    let node = Node::new().await;
    let volume = node.store.0.volumes().remove(0);
    let may_stamp = || volume.commits.may_stamp();
    until("what was written before is synced", may_stamp).await;
    CommitRounds::verifying(&volume).done();
    assert!(may_stamp());
    let verifying = CommitRounds::verifying(&volume);
    let wrong = tokio::spawn(async move {
        let _verifying = verifying;
        panic!("wrong");
    });
    assert!(wrong.await.is_err());
    assert!(!may_stamp());
}
