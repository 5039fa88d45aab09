//! Clients that read a cached replica by themselves, without its checksums.

use std::sync::atomic::Ordering;

use hayloft_io::{SharedBits, SharedMemory};

use super::*;

/// What a client shares of a replica: all bits of a word are set at first.
fn marks() -> ReplicaMarks {
    let (memory, _fd) = SharedMemory::new("test", 8192).expect("memory");
    let memory = Arc::new(memory);
    memory.words()[0].store(u64::MAX, Ordering::SeqCst);
    let of = |mask| SharedBits::new(&memory, 0, mask).expect("is there");
    ReplicaMarks {
        valid: of(1 << 63),
        anchorable: of(1 << 62),
        anchors: of((1 << 31) - 1),
    }
}

fn watch(node: &Node, id: i64, marks: &ReplicaMarks) -> ReplicaWatch {
    let watched = node.store.watch_replica(&block(id, 1001, 0), marks.clone());
    watched.expect("loaded")
}

async fn node_with_revocation(timeout_ms: u64) -> Node {
    node_with(BUDGET, |config| {
        config.cache.revocation_timeout = Duration::from_millis(timeout_ms);
        config.cache.revocation_polling = Duration::from_millis(10);
    })
    .await
}

#[tokio::test]
async fn anchors_may_be_taken_while_a_replica_is_cached() {
    let _alone = alone().await;
    let node = node().await;
    node.put(1, 1001, 700).await;
    let before = marks();
    let _watched = watch(&node, 1, &before);
    assert!(!before.anchorable.any(), "it is not cached");
    before.anchors.clear();
    node.cache_now(&[1]).await;
    assert!(before.anchorable.any() && before.valid.any());
    let later = marks();
    later.anchorable.clear();
    later.anchors.clear();
    let _watched = watch(&node, 1, &later);
    assert!(later.anchorable.any(), "it is cached by now");
    node.uncache(&[1]);
    for marks in [&before, &later] {
        assert!(!marks.anchorable.any() && marks.valid.any());
    }
    assert_eq!(locked(), 0, "no client had anchors");
}

#[tokio::test]
async fn uncaching_waits_for_anchors() {
    let _alone = alone().await;
    let node = node_with_revocation(60_000).await;
    node.put(1, 1001, 700).await;
    let held = marks();
    let _watched = watch(&node, 1, &held);
    node.cache_now(&[1]).await;
    node.uncache(&[1]);
    assert!(!held.anchorable.any(), "no more may be taken");
    tokio::time::sleep(Duration::from_millis(100)).await;
    let now = (node.cached(), locked());
    assert_eq!(
        now,
        (vec![], in_pages(1)),
        "held, and not reported, as Apache's"
    );
    // An order to cache it comes in between: the one before is over.
    node.cache_now(&[1]).await;
    assert!(held.anchorable.any(), "anchors may be taken again");
    assert_eq!(node.cached(), vec![1]);
    node.uncache(&[1]);
    node.uncache(&[1]);
    assert_eq!(
        node.store.cache_use().failed_to_uncache,
        0,
        "it leaves already"
    );
    held.anchors.clear();
    until("it is let go", || locked() == 0).await;
    assert!(node.cached().is_empty());
    assert_eq!(node.store.cache_use().uncached, 1);
}

#[tokio::test]
async fn anchors_that_stay_or_whose_client_is_gone_hold_nothing_for_ever() {
    let _alone = alone().await;
    let node = node_with_revocation(150).await;
    for id in 1..=3 {
        node.put(id, 1001, 700).await;
    }
    let held = [marks(), marks(), marks()];
    let mut of: Vec<ReplicaWatch> = (1..=3)
        .zip(&held)
        .map(|(id, m)| watch(&node, id, m))
        .collect();
    node.cache_now(&[1, 2, 3]).await;
    node.uncache(&[1, 2]);
    let page = in_pages(1);
    assert_eq!((node.cached(), locked()), (vec![3], 3 * page));
    // The client gives its slot back.
    drop(of.remove(1));
    until("the second is let go", || locked() == 2 * page).await;
    until("the time of the first is over", || locked() == page).await;
    assert_eq!(node.cached(), [3]);
    // A deleted replica is locked for no reader.
    node.delete(3).await;
    assert_eq!((node.cached(), locked()), (vec![], 0));
    assert!(!held[2].valid.any() && !held[2].anchorable.any());
}
