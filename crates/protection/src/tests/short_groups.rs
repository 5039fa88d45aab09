//! Groups that stay short of units, and replicas that two groups have.

use super::*;

#[tokio::test]
async fn what_was_protected_is_so_again_without_waiting_for_partners() {
    let (dir, shape) = (tempfile::tempdir().expect("a directory"), shape(3, 1));
    let mut config = protected(dir.path(), 4, shape);
    let parity = &mut config.parity;
    parity.patience = Duration::from_secs(600);
    let node = Node::start(dir, 4, config).await;
    // Three of a length are a group, whose units are on all four disks.
    let lengths = [5000, 20_000, 60_000, 200_000];
    for (id, len) in (1..).zip(lengths.iter().flat_map(|len| [*len; 3])) {
        put(&node, id, len).await;
    }
    round(&node).await;
    let all = lengths.iter().map(|len| 3 * *len as u64).sum::<u64>();
    assert_eq!(status(&node).protected_bytes, all);
    kill_disk(&node, 0).await;
    for _ in 0..4 {
        round(&node).await;
    }
    // Two and parity fit on three disks: of each length one has no partner.
    let now = status(&node);
    assert_eq!((now.protected_bytes, now.unprotected_bytes), (all, 0));
    put(&node, 99, 1000).await;
    round(&node).await;
    assert_eq!(status(&node).unprotected_bytes, 1000, "a new one waits");
}

#[tokio::test]
async fn a_member_of_two_groups_is_rebuilt_and_missed_by_neither() {
    let node = start(4, shape(3, 1)).await;
    for id in 1..=3 {
        put(&node, id, 5000).await;
    }
    round(&node).await;
    // Most of the group goes, so the third replica goes into another; the first still has it.
    let gone = [1, 2].map(|id| Block::new(id, 1001, 5000));
    let ordered = node.store.invalidate(&pool(), &gone).await;
    ordered.expect("there");
    for _ in 0..200 {
        if reported(&node) == [3] {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    round(&node).await;
    assert_eq!(status(&node).groups, 2, "both have it");
    kill_disk(&node, volume_of(&node, 3)).await;
    check(&node, 3, 5000).await;
    for _ in 0..4 {
        round(&node).await;
    }
    let now = status(&node);
    let left = (now.degraded_bytes, now.rebuild_remaining_bytes);
    assert_eq!((left, now.protected_bytes), ((0, 0), 5000), "{now:?}");
    check(&node, 3, 5000).await;
}
