//! An observer is a standby to a node: it is told everything and commands nothing.

use hayloft_wire::proto::hdfs::RollingUpgradeStatus;
use hayloft_wire::proto::hdfs_server::NnHaState;

use super::commands::{bandwidth, finalize, key_update};
use super::fake::{FakeNameNode, Node, POOL, Told, eventually, storage};
use super::{RECEIVED, block, invalidate, is_full, is_heartbeat, ready, register_again};

#[tokio::test]
async fn an_observer_is_told_everything_and_commands_nothing_but_a_registration() {
    let (active, observer) = (FakeNameNode::start().await, FakeNameNode::start().await);
    {
        let mut script = observer.script();
        script.ha = NnHaState::Observer;
        // Newer than the active one's: no claim for all that.
        script.txid = 1000;
        script.rolling_upgrade = Some(RollingUpgradeStatus {
            block_pool_id: POOL.to_owned(),
            ..RollingUpgradeStatus::default()
        });
    }
    let node = Node::start(&[&active, &observer], "50ms", &[]);
    ready(&node, &[&active, &observer]).await;

    observer.command(invalidate(20));
    observer.command(finalize(POOL));
    observer.command(bandwidth(4096));
    observer.command(key_update(false));
    let before = observer.count(is_heartbeat);
    eventually("heartbeats", || observer.count(is_heartbeat) > before + 2).await;
    active.command(invalidate(10));
    let done = || node.store.invalidated.lock().expect("no panic").clone();
    eventually("the active one's command", || !done().is_empty()).await;
    assert_eq!(done(), [10]);
    assert!(node.store.finalized.lock().expect("no panic").is_empty());
    assert!(
        node.store
            .rolling_upgrades
            .lock()
            .expect("no panic")
            .is_empty()
    );
    assert_eq!(*node.work.bandwidth.lock().expect("no panic"), 0);
    let actors = node.services.actors();
    assert_eq!(
        (actors[0].active, actors[1].active, actors[1].ha),
        (true, false, Some(NnHaState::Observer))
    );

    node.services
        .notify_received(&block(5, 1001), &storage(), None);
    let news = [(5, 1001, RECEIVED)];
    eventually("news", || active.news() == news && observer.news() == news).await;
    observer.command(register_again());
    eventually("registration", || {
        observer.count(|told| *told == Told::Registered) == 2
    })
    .await;
    eventually("report", || observer.count(is_full) == 2).await;
    assert_eq!(active.count(|told| *told == Told::Registered), 1);
}
