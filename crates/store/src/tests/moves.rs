//! Moves between volumes beside disks that hang and stores that end. [`kills`]: a move that a kill
//! ends.

mod kills;

use std::time::Instant;

use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_io::{IoClass, IoOp};

use super::disks::{on_first, start};
use super::*;

/// A replica on the first volume, or on the other; its block, and where it is and is to go.
async fn to_move(node: &Node, on_first_volume: bool, len: usize) -> (ExtendedBlock, [String; 2]) {
    for id in 0..2 {
        node.put(id, 1001, len).await;
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
        let (at, [from, to]) = to_move(&node, is_source, 100_000).await;
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
    let (at, [from, to]) = to_move(&node, true, 100_000).await;
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

/// Readers wait behind a piece, not behind a block; and while one waits, the move rests.
#[tokio::test]
async fn a_move_writes_back_each_piece_and_rests_beside_clients() {
    const PIECES: u32 = 3;
    let (node, faults) = start(|_| {}).await;
    let len = (PIECES as usize) << 18;
    let (at, [from, to]) = to_move(&node, false, len).await;
    let slow = Duration::from_millis(50);
    let rule = FaultRule::new(Effect::Delay(slow)).in_class(IoClass::Balancer);
    let rule = faults.add(rule.on(&[IoOp::Writeback]));
    let (release, released) = std::sync::mpsc::channel::<()>();
    let volume = Arc::clone(&node.store.0.volumes()[0]);
    let reads = move |_: &Path| {
        let _ended = released.recv();
        Ok(())
    };
    let disk = volume.engine.disk();
    let client = disk.run(IoClass::ClientRead, IoOp::Read, &volume.root, reads);
    let began = Instant::now();
    let moved = node.store.move_between(&at, &from, &to).await;
    assert_eq!(*moved.expect("moved").storage.id, *to);
    // The first piece has none before it to write back.
    let (written, rests) = (slow * PIECES, slow * (PIECES - 1));
    assert!(began.elapsed() >= written + rests, "{:?}", began.elapsed());
    assert_eq!(faults.fired(rule), u64::from(PIECES));
    drop(release);
    client.await.expect("ends");
    node.check(at.block.id, 1001, len).await;
}
