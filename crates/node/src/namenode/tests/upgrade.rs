//! How a rolling upgrade stands, as NameNodes say it: before the deletes beside it, and by the
//! active one alone.

use hayloft_store::RollingUpgradeState::{self, Absent, Finalized, InProgress};
use hayloft_wire::proto::hdfs::RollingUpgradeStatus;
use hayloft_wire::proto::hdfs_server::NnHaState;

use super::fake::{FakeNameNode, Node, POOL, eventually};
use super::{invalidate, is_heartbeat, ready};

fn status(state: RollingUpgradeState) -> Option<RollingUpgradeStatus> {
    (state != Absent).then(|| RollingUpgradeStatus {
        block_pool_id: POOL.to_owned(),
        finalized: Some(state == Finalized),
    })
}

fn heard(node: &Node) -> Vec<RollingUpgradeState> {
    let heard = node.store.rolling_upgrades.lock();
    heard.expect("no panic").clone()
}

async fn heartbeats(namenode: &FakeNameNode) {
    let before = namenode.count(is_heartbeat);
    eventually("heartbeats", || namenode.count(is_heartbeat) > before + 2).await;
}

#[tokio::test]
async fn the_store_hears_of_a_rolling_upgrade_when_it_is_at_another_state() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "30ms", &[]);
    ready(&node, &[&namenode]).await;
    heartbeats(&namenode).await;
    assert!(heard(&node).is_empty());
    // The last one: a NameNode that was rolled back, or restarted after the end.
    let story = [InProgress, Finalized, InProgress, Absent];
    for said in 1..=story.len() {
        namenode.script().rolling_upgrade = status(story[said - 1]);
        eventually("change", || heard(&node) == story[..said]).await;
        heartbeats(&namenode).await;
        assert_eq!(heard(&node), story[..said]);
    }
    // A volume was put in that the end has not reached.
    *node.store.rolling_upgrade.lock().expect("no panic") = InProgress;
    eventually("the end again", || heard(&node).len() == 5).await;
    assert_eq!(heard(&node)[4], Absent);
}

#[tokio::test]
async fn deletes_are_carried_out_in_the_mode_that_was_said_beside_them() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "30ms", &[]);
    ready(&node, &[&namenode]).await;
    let story = [InProgress, Absent, InProgress, Finalized, Absent];
    for (said, state) in story.into_iter().enumerate() {
        {
            let mut script = namenode.script();
            script.rolling_upgrade = status(state);
            script.commands.push_back(invalidate(10));
        }
        let done = || node.store.deleted_in.lock().expect("no panic").clone();
        eventually("delete", || done().len() > said).await;
        assert_eq!(done(), story[..=said]);
    }
}

#[tokio::test]
async fn a_standby_ends_no_rolling_upgrade_and_begins_none() {
    let (active, standby) = (FakeNameNode::start().await, FakeNameNode::start().await);
    standby.script().ha = NnHaState::Standby;
    active.script().rolling_upgrade = status(InProgress);
    let node = Node::start(&[&active, &standby], "30ms", &[]);
    ready(&node, &[&active, &standby]).await;
    eventually("the upgrade", || heard(&node) == [InProgress]).await;
    // It says nothing, and then something else; none is active in the end.
    heartbeats(&standby).await;
    standby.script().rolling_upgrade = status(Finalized);
    heartbeats(&standby).await;
    active.script().ha = NnHaState::Standby;
    heartbeats(&active).await;
    active.script().rolling_upgrade = None;
    heartbeats(&active).await;
    // One that claims to be active, but is behind, is not believed either.
    {
        let mut script = standby.script();
        (script.ha, script.txid, script.rolling_upgrade) = (NnHaState::Active, 5, None);
    }
    heartbeats(&standby).await;
    assert_eq!(heard(&node), [InProgress]);
    // It takes over with the upgrade, and says later that none runs.
    {
        let mut script = standby.script();
        (script.txid, script.rolling_upgrade) = (20, status(InProgress));
    }
    heartbeats(&standby).await;
    assert_eq!(heard(&node), [InProgress]);
    standby.script().rolling_upgrade = None;
    eventually("the end", || heard(&node) == [InProgress, Absent]).await;
}
