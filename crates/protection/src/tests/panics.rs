//! A defect in one group: what its task held is given back, and others go on beside it.

use super::*;

use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_io::{IoClass, IoOp};
use hayloft_store::inside::Damage;

use super::dead_disk::{check_eight, put_eight};
use super::refuses::{faulty, in_groups, put_some};

fn reserved(node: &Node) -> u64 {
    let volumes = node.store.volume_report();
    volumes.iter().map(|v| v.reserved_for_replicas).sum()
}

#[tokio::test]
async fn a_group_whose_encoding_panics_gives_its_members_back() {
    let shape = shape(2, 1);
    let (node, faults) = faulty(shape).await;
    let writes = FaultRule::new(Effect::Panic).on(&[IoOp::Write]);
    let panics = faults.add(writes.at(in_groups).times(1));
    let all = put_some(&node, 1..13).await;
    for _ in 0..3 {
        round(&node).await;
    }
    assert_eq!(faults.fired(panics), 1);
    let now = status(&node);
    assert_eq!(now.protected_bytes, all - 2 * 50_000, "{now:?}");
    // After ten minutes, else.
    node.parity.forgive();
    for _ in 0..2 {
        round(&node).await;
    }
    assert_eq!(status(&node).protected_bytes, all);
    check_files(&node, shape);
}

#[tokio::test]
async fn a_rebuild_that_panics_gives_its_room_back() {
    let (node, faults) = faulty(shape(2, 1)).await;
    put_eight(&node).await;
    kill_disk(&node, 1).await;
    let opens = FaultRule::new(Effect::Panic).on(&[IoOp::Open]);
    let panics = faults.add(opens.in_class(IoClass::Replication));
    round(&node).await;
    assert!(faults.fired(panics) > 0);
    assert_eq!(reserved(&node), 0);
    assert!(status(&node).rebuild_remaining_bytes > 0);
    faults.clear();
    round(&node).await;
    assert_eq!(status(&node).rebuild_remaining_bytes, 0);
    assert_eq!(reserved(&node), 0);
    check_eight(&node).await;
}

#[tokio::test]
async fn a_replica_whose_mending_panics_is_told_and_may_be_mended_later() {
    let (mut node, faults) = faulty(shape(2, 1)).await;
    put_eight(&node).await;
    let on_first = |id: &i64| volume_of(&node, *id) == 0;
    let id = (1..9).find(on_first).expect("on each");
    let replica = node.store.replica(&pool(), id).expect("there");
    faults.add(FaultRule::new(Effect::Panic).on(&[IoOp::Open]));
    let (block, storage) = (replica.block, replica.storage);
    crate::heal(
        &node.parity,
        node.store.state(),
        block,
        storage,
        Damage::Certain,
    );
    let told = events(&mut node).await;
    assert!(matches!(&told[..], [StoreEvent::Corrupt { block, .. }] if block.block.id == id));
    assert!(node.parity.mending().is_empty());
}
