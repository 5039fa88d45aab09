//! However many disks die, the node goes on with what is left.

use super::dead_disk::{LEN, check_eight, eight, lost};
use super::*;

/// By default no failed volume is tolerated. With parity the node goes on: what a dead disk had is
/// decoded or rebuilt, and where two die at once what is lost is told and the rest is served.
#[tokio::test]
async fn dead_disks_end_no_node_that_has_parity() {
    let shape = shape(2, 1);
    let fatal = |told: &[StoreEvent]| {
        let fatal = |e: &StoreEvent| matches!(e, StoreEvent::VolumeFailed { fatal: true, .. });
        told.iter().any(fatal)
    };
    let mut node = eight(5, shape).await;
    for disk in 0..3 {
        kill_disk(&node, disk).await;
        let told = events(&mut node).await;
        assert!(!fatal(&told) && lost(&told).is_empty(), "{told:?}");
        for _ in 0..3 {
            round(&node).await;
        }
    }
    check_eight(&node).await;
    node.store.shutdown().await;
    // Nor is a start refused, with the disks away or given to others.
    for disk in 0..2 {
        let root = node.dir.path().join(format!("data{disk}"));
        std::fs::remove_dir_all(&root).expect("removes");
        std::fs::write(&root, "").expect("writes");
    }
    let version = node.dir.path().join("data2/current/VERSION");
    std::fs::write(version, "").expect("writes");
    let again = protected(node.dir.path(), 5, shape);
    let node = Node::start(node.dir, 5, again).await;
    assert_eq!(node.store.failure_summary().failed_locations.len(), 3);
    check_eight(&node).await;
    node.store.shutdown().await;
    // Nor when they are taken out of the configuration, and too few are left for the shape.
    let mut rest = protected(node.dir.path(), 5, shape);
    rest.volumes.drain(..3);
    let node = Node::start(node.dir, 5, rest).await;
    check_eight(&node).await;

    let mut node = eight(4, shape).await;
    kill_disk(&node, 0).await;
    kill_disk(&node, 1).await;
    let told = events(&mut node).await;
    let (gone, left) = (lost(&told), reported(&node));
    assert!(
        !fatal(&told) && !gone.is_empty() && !left.is_empty(),
        "{told:?}"
    );
    assert_eq!(gone.len() + left.len(), 8, "each is told of or served");
    for id in left {
        check(&node, id, LEN + usize::try_from(id).expect("small")).await;
    }
}
