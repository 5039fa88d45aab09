//! Rolling upgrades: what turns the mode on, what ends it, and what becomes of the trash.

use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};

async fn deleted(node: &mut Node) {
    let event = tokio::time::timeout(Duration::from_secs(5), node.events.recv()).await;
    assert!(
        matches!(event, Ok(Some(StoreEvent::Deleted { .. }))),
        "{event:?}"
    );
}

async fn start_with(node: Node, option: StartOption) -> Node {
    start_at(node, 0, option).await
}

/// Starts anew with a NameNode whose storage has this creation time.
async fn start_at(node: Node, ctime: u64, option: StartOption) -> Node {
    node.store.shutdown().await;
    let (sender, events) = mpsc::channel(100);
    let store = Store::open(config(node.dir.path(), node.volumes), sender)
        .await
        .expect("opens");
    let spec = PoolSpec { ctime, ..spec() };
    store.add_pool(spec, option).await.expect("loads");
    Node {
        store,
        events,
        ..node
    }
}

async fn rolling(node: &Node, state: RollingUpgradeState) {
    let told = node.store.set_rolling_upgrade(&pool(), state).await;
    told.expect("follows");
    assert!(node.store.rolling_upgrade_is(&pool(), state), "{state:?}");
}

async fn delete(node: &mut Node, id: i64) {
    let order = [Block::new(id, 1001, 0)];
    let done = node.store.invalidate(&pool(), &order).await;
    done.expect("deletes");
    deleted(node).await;
}

/// What there is of a rolling upgrade on the volumes: `0/trash`, `0/RollingUpgradeInProgress`.
fn left(node: &Node) -> Vec<String> {
    let volumes = (0..node.volumes)
        .flat_map(|volume| ["RollingUpgradeInProgress", "trash"].map(|name| (volume, name)));
    let there = volumes.filter(|(volume, name)| {
        let pool = format!("data{volume}/current/{}/{name}", pool().as_str());
        node.dir.path().join(pool).exists()
    });
    there
        .map(|(volume, name)| format!("{volume}/{name}"))
        .collect()
}

async fn swap(node: &Node, volumes: &[VolumeConfig]) {
    let results = node.store.reconfigure_volumes(volumes.to_vec()).await;
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
}

#[tokio::test]
async fn during_a_rolling_upgrade_deleted_blocks_can_be_brought_back() {
    for spelling in [StartOption::Rollback, StartOption::RollingUpgradeRollback] {
        let mut node = Node::new().await;
        node.put(5, 1001, 3000).await;
        node.put(6, 1001, 3000).await;
        rolling(&node, RollingUpgradeState::InProgress).await;
        assert_eq!(left(&node), ["0/RollingUpgradeInProgress"]);
        delete(&mut node, 5).await;
        let trash = node.pool_dir().join("trash/finalized/subdir0/subdir0");
        assert!(trash.join("blk_5_1001.meta").is_file());
        assert!(node.store.replica(&pool(), 5).is_none());
        // A restarted node goes on with it when the NameNode has said so.
        let mut node = start_with(node, StartOption::Regular).await;
        rolling(&node, RollingUpgradeState::InProgress).await;
        delete(&mut node, 6).await;
        assert_eq!(node.store.replica_count(), 0);
        let mut node = start_with(node, spelling).await;
        node.check(5, 1001, 3000).await;
        node.check(6, 1001, 3000).await;
        // The upgrade is over with that, and what is deleted from now on is gone.
        assert_eq!(left(&node), [""; 0]);
        assert!(
            node.store
                .rolling_upgrade_is(&pool(), RollingUpgradeState::Absent)
        );
        delete(&mut node, 5).await;
        let mut node = start_with(node, StartOption::Regular).await;
        delete(&mut node, 6).await;
        assert_eq!(left(&node), [""; 0]);
        let node = start_with(node, spelling).await;
        assert_eq!(node.store.replica_count(), 0);
    }
}

/// Apache's node would believe the cache and miss what its rollback brings back from trash.
#[tokio::test]
async fn a_node_that_holds_trash_leaves_no_replica_cache() {
    let node = Node::new().await;
    node.put(5, 1001, 3000).await;
    node.put(6, 1001, 3000).await;
    let cache = node.pool_dir().join("current/replicas");
    rolling(&node, RollingUpgradeState::InProgress).await;
    node.store.shutdown().await;
    assert!(cache.is_file(), "nothing is in trash yet");
    let mut node = start_with(node, StartOption::Regular).await;
    rolling(&node, RollingUpgradeState::InProgress).await;
    delete(&mut node, 5).await;
    node.store.shutdown().await;
    assert!(!cache.exists());
    let node = start_with(node, StartOption::Regular).await;
    node.check(6, 1001, 3000).await;
}

#[tokio::test]
async fn a_marker_turns_nothing_on_and_goes_when_no_upgrade_runs() {
    // Apache's node leaves it behind after a rollback.
    let node = Node::new().await;
    node.put(5, 1001, 3000).await;
    std::fs::write(node.pool_dir().join("RollingUpgradeInProgress"), b"").expect("writes");
    let mut node = start_with(node, StartOption::Regular).await;
    assert!(
        !node
            .store
            .rolling_upgrade_is(&pool(), RollingUpgradeState::Absent)
    );
    delete(&mut node, 5).await;
    assert_eq!(left(&node), ["0/RollingUpgradeInProgress"]);
    rolling(&node, RollingUpgradeState::Absent).await;
    assert_eq!(left(&node), [""; 0]);
}

#[tokio::test]
async fn a_name_node_that_says_no_more_of_an_upgrade_ends_the_mode_and_not_the_trash() {
    let mut node = Node::new().await;
    for id in 5..=7 {
        node.put(id, 1001, 3000).await;
    }
    rolling(&node, RollingUpgradeState::InProgress).await;
    delete(&mut node, 5).await;
    // It was rolled back while this node ran, and knows the block again.
    rolling(&node, RollingUpgradeState::Absent).await;
    delete(&mut node, 6).await;
    assert_eq!(left(&node), ["0/trash"]);
    // The end of another upgrade says nothing of it.
    rolling(&node, RollingUpgradeState::Finalized).await;
    assert_eq!(left(&node), ["0/trash"]);
    let node = start_with(node, StartOption::RollingUpgradeRollback).await;
    node.check(5, 1001, 3000).await;
    node.check(7, 1001, 3000).await;
    assert_eq!(node.store.replica_count(), 2);
    assert_eq!(left(&node), [""; 0]);
}

#[tokio::test]
async fn the_end_of_a_rolling_upgrade_empties_the_trash() {
    let mut node = Node::new().await;
    node.put(5, 1001, 3000).await;
    rolling(&node, RollingUpgradeState::InProgress).await;
    rolling(&node, RollingUpgradeState::InProgress).await;
    delete(&mut node, 5).await;
    rolling(&node, RollingUpgradeState::Finalized).await;
    rolling(&node, RollingUpgradeState::Finalized).await;
    assert_eq!(left(&node), [""; 0]);
    let node = start_with(node, StartOption::RollingUpgradeRollback).await;
    assert_eq!(node.store.replica_count(), 0);
}

#[tokio::test]
async fn a_node_that_was_down_at_the_end_of_an_upgrade_keeps_the_trash() {
    let mut node = Node::new().await;
    node.put(5, 1001, 3000).await;
    rolling(&node, RollingUpgradeState::InProgress).await;
    delete(&mut node, 5).await;
    // It may be of another upgrade, which was rolled back: nothing goes on a guess.
    let node = start_with(node, StartOption::Regular).await;
    rolling(&node, RollingUpgradeState::Finalized).await;
    assert_eq!(left(&node), ["0/trash"]);
    // As in Apache's node it goes with the next upgrade that this process sees from its beginning.
    rolling(&node, RollingUpgradeState::InProgress).await;
    rolling(&node, RollingUpgradeState::Finalized).await;
    assert_eq!(left(&node), [""; 0]);
}

#[tokio::test]
async fn the_end_of_a_rolling_upgrade_reaches_a_volume_that_was_out() {
    let mut node = Node::with_volumes(2).await;
    let all = config(node.dir.path(), 2).volumes;
    rolling(&node, RollingUpgradeState::InProgress).await;
    for id in 0..2 {
        node.put(id, 1001, 100).await;
        delete(&mut node, id).await;
    }
    assert_eq!(left(&node).len(), 4);
    swap(&node, &all[..1]).await;
    rolling(&node, RollingUpgradeState::Finalized).await;
    assert_eq!(left(&node), ["1/RollingUpgradeInProgress", "1/trash"]);
    swap(&node, &all).await;
    // Until the NameNode is heard again.
    assert!(
        !node
            .store
            .rolling_upgrade_is(&pool(), RollingUpgradeState::Finalized)
    );
    rolling(&node, RollingUpgradeState::Finalized).await;
    assert_eq!(left(&node), [""; 0]);
    for id in 2..4 {
        node.put(id, 1001, 100).await;
        delete(&mut node, id).await;
    }
    assert_eq!(left(&node), [""; 0]);
}

#[tokio::test]
async fn a_volume_that_was_out_at_a_rollback_brings_its_marker_and_no_mode() {
    let mut node = Node::with_volumes(2).await;
    let all = config(node.dir.path(), 2).volumes;
    rolling(&node, RollingUpgradeState::InProgress).await;
    for id in 0..2 {
        node.put(id, 1001, 100).await;
        delete(&mut node, id).await;
    }
    swap(&node, &all[..1]).await;
    rolling(&node, RollingUpgradeState::Absent).await;
    swap(&node, &all).await;
    for id in 2..4 {
        node.put(id, 1001, 100).await;
        delete(&mut node, id).await;
    }
    rolling(&node, RollingUpgradeState::Absent).await;
    assert_eq!(left(&node), ["0/trash", "1/trash"]);
    let files = |volume: usize| {
        let pool = format!("data{volume}/current/{}", pool().as_str());
        let trash = node.dir.path().join(pool);
        let dir = trash.join("trash/finalized/subdir0/subdir0");
        std::fs::read_dir(dir).expect("trash").count()
    };
    assert_eq!(
        (files(0), files(1)),
        (2, 2),
        "of the first two blocks alone"
    );
}

#[tokio::test]
async fn an_upgrade_that_runs_reaches_a_volume_that_joins() {
    let mut node = Node::with_volumes(2).await;
    let all = config(node.dir.path(), 2).volumes;
    swap(&node, &all[1..]).await;
    rolling(&node, RollingUpgradeState::InProgress).await;
    swap(&node, &all).await;
    assert!(left(&node).contains(&"0/RollingUpgradeInProgress".to_owned()));
    for id in 0..2 {
        node.put(id, 1001, 100).await;
        delete(&mut node, id).await;
    }
    assert_eq!(left(&node).len(), 4);
    rolling(&node, RollingUpgradeState::Finalized).await;
    assert_eq!(left(&node), [""; 0]);
}

#[tokio::test]
async fn beside_previous_nothing_goes_to_the_trash() {
    let node = Node::new().await;
    node.put(5, 1001, 3000).await;
    let mut node = start_at(node, 5, StartOption::Regular).await;
    rolling(&node, RollingUpgradeState::InProgress).await;
    let order = [Block::new(5, 1001, 0)];
    let done = node.store.invalidate(&pool(), &order).await;
    done.expect("deletes");
    deleted(&mut node).await;
    assert_eq!(left(&node), ["0/RollingUpgradeInProgress"]);
    // Both kinds refuse to roll back with both.
    let node = start_with(node, StartOption::Rollback).await;
    node.check(5, 1001, 3000).await;
    assert_eq!(left(&node), [""; 0]);
}

#[tokio::test]
async fn the_end_of_a_rolling_upgrade_ends_the_previous_that_it_left() {
    let node = Node::new().await;
    node.put(5, 1001, 3000).await;
    let node = start_at(node, 5, StartOption::Regular).await;
    rolling(&node, RollingUpgradeState::InProgress).await;
    assert!(node.pool_dir().join("previous").exists());
    let node = start_at(node, 5, StartOption::Regular).await;
    rolling(&node, RollingUpgradeState::Finalized).await;
    assert!(!node.pool_dir().join("previous").exists());
    assert_eq!(left(&node), [""; 0]);
}

#[tokio::test]
async fn what_upgrades_hold_back_is_told() {
    let mut node = Node::new().await;
    for id in 5..=7 {
        node.put(id, 1001, 3000).await;
    }
    let held = |node: &Node| {
        let all = node.store.held_by_upgrades();
        assert_eq!(all.len(), 1);
        (all[0].trash, all[0].previous, all[0].runs)
    };
    assert_eq!(held(&node), (0, 0, false));
    rolling(&node, RollingUpgradeState::InProgress).await;
    delete(&mut node, 5).await;
    let one = node.pool_dir().join("trash/finalized/subdir0/subdir0");
    let one: u64 = ["blk_5", "blk_5_1001.meta"]
        .map(|name| std::fs::metadata(one.join(name)).expect("there").len())
        .iter()
        .sum();
    assert_eq!(held(&node), (one, 0, true));
    // The next process counts what it finds.
    let mut node = start_with(node, StartOption::Regular).await;
    eventually(|| held(&node) == (one, 0, false)).await;
    rolling(&node, RollingUpgradeState::InProgress).await;
    delete(&mut node, 6).await;
    assert_eq!(held(&node), (2 * one, 0, true));
    rolling(&node, RollingUpgradeState::Finalized).await;
    assert_eq!(held(&node), (0, 0, false));
    // What previous shares with current takes no room.
    let mut node = start_at(node, 5, StartOption::Regular).await;
    delete(&mut node, 7).await;
    let node = start_at(node, 5, StartOption::Regular).await;
    eventually(|| held(&node).1 >= one).await;
    assert_eq!(held(&node).0, 0);
    let done = node.store.finalize_upgrade(&pool()).await;
    done.expect("finalizes");
    assert_eq!(held(&node), (0, 0, false));
}

async fn eventually(is: impl Fn() -> bool) {
    for _ in 0..500 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come to that");
}

#[tokio::test]
async fn an_upgrade_is_finalized_on_the_other_volumes_when_one_fails() {
    let (node, faults) = Node::with_faults(2, |_| {}).await;
    let previous = |volume: usize| {
        let pool = format!("data{volume}/current/{}/previous", pool().as_str());
        node.dir.path().join(pool)
    };
    for volume in 0..2 {
        std::fs::create_dir(previous(volume)).expect("directory");
    }
    faults.add(
        FaultRule::new(Effect::Errno(ENOSPC))
            .on(&[IoOp::Rename])
            .times(1),
    );
    let finalized = node.store.finalize_upgrade(&pool()).await;
    finalized.expect_err("one volume is behind");
    assert!(previous(0).exists() && !previous(1).exists());
    let finalized = node.store.finalize_upgrade(&pool()).await;
    finalized.expect("the next order");
    assert!(!previous(0).exists());
}

#[tokio::test]
async fn trash_that_no_namenode_knows_is_let_go_while_a_node_runs_or_not() {
    let mut node = Node::new().await;
    for id in 5..=7 {
        node.put(id, 1001, 3000).await;
    }
    rolling(&node, RollingUpgradeState::InProgress).await;
    for id in 5..=7 {
        delete(&mut node, id).await;
    }
    let volume = node.dir.path().join("data0");
    let look = |most| {
        let mut all = upgrade_leftovers(&volume, most).expect("readable");
        assert_eq!(all.len(), 1);
        all.remove(0)
    };
    let few = look(2);
    assert!(few.trash.len() == 2 && few.more);
    let left = look(10);
    assert!(left.marker && !left.more && !left.previous);
    assert_eq!(left.trash.keys().copied().collect::<Vec<_>>(), [5, 6, 7]);
    assert!(
        left.trash
            .values()
            .all(|of| of.files.len() == 2 && of.bytes > 3000)
    );
    assert!(hold_volume(&volume).expect("readable").is_none(), "it runs");
    let freed = left.let_go(&[5, 9].into()).expect("removes");
    assert_eq!(freed, left.trash[&5].bytes);
    assert_eq!(look(10).trash.len(), 2);
    node.store.shutdown().await;
    let lock = hold_volume(&volume).expect("free").expect("none runs");
    let (events, _receiver) = mpsc::channel(100);
    let refused = Store::open(config(node.dir.path(), 1), events).await;
    assert!(refused.is_err(), "held meanwhile");
    let left = look(10);
    left.let_go(&[6, 7].into()).expect("removes");
    drop(lock);
    // Nothing of it is left that would keep a later rollback to previous from starting.
    assert!(!node.pool_dir().join("trash").exists());
}
