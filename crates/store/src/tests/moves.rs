//! Moves between volumes beside disks that hang and stores that end.

use std::time::Instant;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};

use super::disks::{on_first, start};
use super::*;

/// A replica on the first volume, or on the other; its block, and where it is and is to go.
async fn to_move(node: &Node, on_first_volume: bool) -> (ExtendedBlock, [String; 2]) {
    for id in 0..2 {
        node.put(id, 1001, 100_000).await;
    }
    let ids = [0, 1].map(|at| node.store.0.volumes()[at].info.id.to_string());
    let here = on_first(node);
    let found = (0..2).find(|id| here.contains(id) == on_first_volume);
    let found = block(found.expect("one on each"), 1001, 0);
    let [first, second] = ids;
    match on_first_volume {
        true => (found, [first, second]),
        false => (found, [second, first]),
    }
}

/// A disk that gives no answer holds up neither a move nor its block, once it has failed.
#[tokio::test]
async fn a_move_ends_where_one_of_its_disks_hangs() {
    for (is_source, op) in [
        (true, IoOp::Read),
        (false, IoOp::Write),
        (true, IoOp::Unlink),
    ] {
        let (node, faults) = start(|_| {}).await;
        let (at, [from, to]) = to_move(&node, is_source).await;
        let stall = FaultRule::new(Effect::Stall(Duration::from_secs(5)));
        let rule = faults.add(stall.on(&[op]));
        let failure = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            node.store.0.volumes()[0].set_failed();
        };
        let began = Instant::now();
        let (moved, ()) = tokio::join!(node.store.move_between(&at, &from, &to), failure);
        assert!(began.elapsed() < Duration::from_secs(3), "{op:?}");
        assert!(faults.fired(rule) > 0, "{op:?}: it hung");
        match op {
            IoOp::Unlink => assert_eq!(*moved.expect("moved").storage.id, *to),
            _ => assert_eq!(Node::error_of(moved), StoreErrorKind::VolumeFailed),
        }
        let of_pool = node.store.0.pool(&pool()).expect("loaded");
        let latch = of_pool.latches.acquire(at.block.id);
        let free = tokio::time::timeout(Duration::from_secs(1), latch).await;
        assert!(free.is_ok(), "{op:?}: the block is held");
    }
}

/// A stop of the store does not wait for the end of a long copy.
#[tokio::test]
async fn a_move_ends_when_the_store_does() {
    let (node, faults) = start(|_| {}).await;
    let (at, [from, to]) = to_move(&node, true).await;
    let stall = FaultRule::new(Effect::Stall(Duration::from_secs(5)));
    faults.add(stall.on(&[IoOp::Read]));
    let stop = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        node.store.0.ending.cancel();
    };
    let began = Instant::now();
    let (moved, ()) = tokio::join!(node.store.move_between(&at, &from, &to), stop);
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(Node::error_of(moved), StoreErrorKind::Closed);
}
