//! Block recovery between nodes with real stores.

use hayloft_node::recovery::BlockRecovery;
use hayloft_rpc::{INTER_DATANODE_PROTOCOL, RpcClient, RpcOptions};
use hayloft_wire::ids::{Block, ReplicaState};
use hayloft_wire::proto::datanode::CommitBlockSynchronizationRequest;
use hayloft_wire::proto::hdfs as pb;
use hayloft_wire::proto::hdfs_server::RecoveringBlock;
use hayloft_wire::proto::interdatanode::{InitReplicaRecoveryRequest, InitReplicaRecoveryResponse};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::node::{Node, block, done};

fn recovering(id: i64, recovery_id: u64, nodes: &[&Node]) -> RecoveringBlock {
    RecoveringBlock {
        new_gen_stamp: recovery_id,
        block: pb::LocatedBlock {
            b: (&block(id, 1000, 0)).into(),
            locs: nodes
                .iter()
                .map(|node| pb::DatanodeInfo {
                    id: node.host.id.clone(),
                    ..pb::DatanodeInfo::default()
                })
                .collect(),
            ..pb::LocatedBlock::default()
        },
        ..RecoveringBlock::default()
    }
}

/// Lets `primary` carry out an order to its end.
async fn recover(primary: &Node, order: RecoveringBlock) {
    let tasks = TaskTracker::new();
    let recovery = BlockRecovery::new(primary.host.clone(), primary.stop.clone(), tasks.clone());
    recovery.recover_blocks("the NameNode", vec![order]);
    tasks.close();
    tasks.wait().await;
}

fn only_commit(node: &Node) -> CommitBlockSynchronizationRequest {
    let commits = node.host.seen.commits.lock().expect("no panic");
    assert_eq!(commits.len(), 1);
    commits[0].clone()
}

#[tokio::test]
async fn a_dead_writers_replicas_become_equal() {
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    a.replica(9, 3000, 1000, false).await;
    b.replica(9, 2000, 1000, false).await;
    recover(&a, recovering(9, 1001, &[&a, &b])).await;
    let commit = only_commit(&a);
    assert_eq!((commit.new_gen_stamp, commit.new_length), (1001, 2000));
    assert_eq!(commit.new_taragets.len(), 2);
    for node in [&a, &b] {
        assert_eq!(node.state(9), Some((1001, 2000, ReplicaState::Finalized)));
        let received = node.host.seen.received.lock().expect("no panic");
        assert_eq!(*received, [block(9, 1001, 2000)]);
    }
}

#[tokio::test]
async fn a_recovery_with_an_older_id_changes_nothing() {
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    a.replica(9, 3000, 1000, false).await;
    b.replica(9, 2000, 1000, false).await;
    let request = InitReplicaRecoveryRequest {
        block: recovering(9, 1005, &[]),
    };
    let options = RpcOptions::default();
    let client = RpcClient::new(b.address.clone(), INTER_DATANODE_PROTOCOL, options);
    let answer: InitReplicaRecoveryResponse = done(&client, "initReplicaRecovery", &request).await;
    assert_eq!(answer.state, Some(ReplicaState::Rbw as i32));
    assert_eq!(answer.block.map(|found| found.num_bytes()), Some(2000));
    recover(&a, recovering(9, 1001, &[&a, &b])).await;
    assert!(a.host.seen.commits.lock().expect("no panic").is_empty());
    recover(&a, recovering(9, 1006, &[&a, &b])).await;
    assert_eq!(only_commit(&a).new_gen_stamp, 1006);
}

#[tokio::test]
async fn a_truncate_of_a_shared_block_copies_it() {
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    for node in [&a, &b] {
        node.replica(9, 3000, 3000, true).await;
    }
    let order = RecoveringBlock {
        truncate_block: Some(Block::new(10, 1001, 700).into()),
        ..recovering(9, 1001, &[&a, &b])
    };
    recover(&b, order).await;
    assert_eq!(only_commit(&b).new_length, 700);
    for node in [&a, &b] {
        assert_eq!(node.state(10), Some((1001, 700, ReplicaState::Finalized)));
        assert_eq!(node.state(9).map(|(_, length, _)| length), Some(3000));
    }
}

#[tokio::test]
async fn a_missing_node_does_not_stop_the_others() {
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let free = listener.local_addr().expect("bound").port();
    drop(listener);
    let mut order = recovering(9, 1001, &[&a, &b, &b]);
    order.block.locs[2].id.ipc_port = u32::from(free);
    a.replica(9, 3000, 1000, false).await;
    recover(&a, order).await;
    let commit = only_commit(&a);
    assert_eq!(commit.new_length, 3000);
    assert_eq!(commit.new_taragets.len(), 1);
}
