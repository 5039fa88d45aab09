//! Whole recoveries against participants that answer as told.

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, ReplicaState};
use hayloft_wire::proto::datanode::CommitBlockSynchronizationRequest;
use hayloft_wire::proto::hdfs as pb;
use hayloft_wire::proto::hdfs_server::RecoveringBlock;

use super::calls_to_holders::{PeerError, Peers};
use super::check_order::Order;
use super::lead::{RecoveryError, recover};
use super::which_replicas_stay::Replica;
use hayloft_rpc::RpcError;

const RECOVERY_ID: u64 = 2000;

/// What one node does.
#[derive(Clone, Copy)]
enum Node {
    Dead,
    Empty,
    Busy,
    Has(ReplicaState, u64),
    /// Answers, then fails to update.
    Breaks(ReplicaState, u64),
}

struct Fake {
    nodes: HashMap<String, Node>,
    updates: Mutex<Vec<(String, i64, u64)>>,
    commits: Mutex<Vec<CommitBlockSynchronizationRequest>>,
}

impl Fake {
    fn new(nodes: &[Node]) -> Self {
        Self {
            nodes: (0..)
                .zip(nodes)
                .map(|(index, node)| (uuid(index), *node))
                .collect(),
            updates: Mutex::default(),
            commits: Mutex::default(),
        }
    }

    fn committed(&self) -> CommitBlockSynchronizationRequest {
        let commits = self.commits.lock().expect("no panic");
        assert_eq!(commits.len(), 1);
        commits[0].clone()
    }
}

impl Peers for Fake {
    async fn init(
        &self,
        at: &pb::DatanodeId,
        block: &ExtendedBlock,
        recovery_id: u64,
    ) -> Result<Option<Replica>, PeerError> {
        assert_eq!(recovery_id, RECOVERY_ID);
        match self.nodes[&at.datanode_uuid] {
            Node::Dead => Err(PeerError::Failed("connection refused".to_owned())),
            Node::Busy => Err(PeerError::RecoveryInProgress("2001".to_owned())),
            Node::Empty => Ok(None),
            Node::Has(state, length) | Node::Breaks(state, length) => Ok(Some(Replica {
                block: Block::new(block.block.id, 1500, length),
                state,
            })),
        }
    }

    async fn update(
        &self,
        at: &pb::DatanodeId,
        block: &ExtendedBlock,
        recovery_id: u64,
        new_block_id: i64,
        new_length: u64,
    ) -> Result<String, PeerError> {
        assert_eq!(recovery_id, RECOVERY_ID);
        let Node::Has(_, length) = self.nodes[&at.datanode_uuid] else {
            return Err(PeerError::Failed("disk".to_owned()));
        };
        // The participant checks that the update is about the replica that it described.
        assert_eq!(
            (block.block.generation_stamp, block.block.num_bytes),
            (1500, length)
        );
        let update = (at.datanode_uuid.clone(), new_block_id, new_length);
        self.updates.lock().expect("no panic").push(update);
        Ok(format!("DS-{}", at.datanode_uuid))
    }

    async fn commit(
        &self,
        _pool: &PoolId,
        request: CommitBlockSynchronizationRequest,
    ) -> Result<(), RpcError> {
        self.commits.lock().expect("no panic").push(request);
        Ok(())
    }
}

fn uuid(index: usize) -> String {
    format!("node-{index}")
}

fn located(id: i64, nodes: usize) -> pb::LocatedBlock {
    let pool = PoolId::new("BP-1").expect("valid");
    pb::LocatedBlock {
        b: (&ExtendedBlock::new(pool, Block::new(id, 1500, 0))).into(),
        locs: (0..nodes)
            .map(|index| pb::DatanodeInfo {
                id: pb::DatanodeId {
                    datanode_uuid: uuid(index),
                    ..pb::DatanodeId::default()
                },
                ..pb::DatanodeInfo::default()
            })
            .collect(),
        ..pb::LocatedBlock::default()
    }
}

fn order(nodes: usize) -> RecoveringBlock {
    RecoveringBlock {
        new_gen_stamp: RECOVERY_ID,
        block: located(7, nodes),
        ..RecoveringBlock::default()
    }
}

async fn run(order: RecoveringBlock, nodes: &[Node]) -> (Result<(), RecoveryError>, Fake) {
    let fake = Fake::new(nodes);
    let order = Order::try_from(order).expect("a sensible order");
    (recover(&order, &fake).await, fake)
}

use ReplicaState::{Finalized, Rbw};

#[tokio::test]
async fn a_dead_writers_block_is_cut_to_what_all_have() {
    let nodes = [Node::Has(Rbw, 50), Node::Dead, Node::Has(Rbw, 40)];
    let (result, fake) = run(order(3), &nodes).await;
    result.expect("recovered");
    let commit = fake.committed();
    assert_eq!(commit.new_gen_stamp, RECOVERY_ID);
    assert_eq!(commit.new_length, 40);
    assert_eq!(commit.block.generation_stamp, 1500);
    assert!(commit.close_file && !commit.delete_block);
    let targets: Vec<_> = commit
        .new_taragets
        .iter()
        .map(|t| t.datanode_uuid.as_str())
        .collect();
    assert_eq!(targets, ["node-0", "node-2"]);
    assert_eq!(commit.new_target_storages, ["DS-node-0", "DS-node-2"]);
}

#[tokio::test]
async fn a_block_that_no_node_has_leaves_the_file() {
    let (result, fake) = run(order(3), &[Node::Empty, Node::Dead, Node::Has(Rbw, 0)]).await;
    result.expect("recovered");
    let commit = fake.committed();
    assert!(commit.delete_block && commit.close_file);
    assert_eq!(commit.new_length, 0);
    assert!(commit.new_taragets.is_empty() && commit.new_target_storages.is_empty());
}

#[tokio::test]
async fn one_good_replica_is_enough() {
    let nodes = [Node::Breaks(Finalized, 9), Node::Has(Finalized, 9)];
    let (result, fake) = run(order(2), &nodes).await;
    result.expect("recovered");
    assert_eq!(fake.committed().new_target_storages, ["DS-node-1"]);
    let (result, fake) = run(order(1), &[Node::Breaks(Finalized, 9)]).await;
    assert!(matches!(result, Err(RecoveryError::SyncFailed(_))));
    assert!(fake.commits.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn a_newer_recovery_ends_this_one_before_anything_changes() {
    let (result, fake) = run(order(2), &[Node::Has(Rbw, 5), Node::Busy]).await;
    assert!(matches!(result, Err(RecoveryError::Superseded(_))));
    assert!(fake.updates.lock().expect("no panic").is_empty());
    assert!(fake.commits.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn a_truncate_may_need_a_new_block() {
    let truncate = RecoveringBlock {
        truncate_block: Some(Block::new(8, RECOVERY_ID, 3).into()),
        ..order(1)
    };
    let (result, fake) = run(truncate, &[Node::Has(Finalized, 9)]).await;
    result.expect("recovered");
    assert_eq!(
        *fake.updates.lock().expect("no panic"),
        [("node-0".to_owned(), 8, 3)]
    );
    let commit = fake.committed();
    assert_eq!((commit.block.block_id, commit.new_length), (7, 3));
}

const GROUP: i64 = -9_223_372_036_854_775_792;
const MB: u64 = 1 << 20;

fn group_order(indices: &'static [u8]) -> RecoveringBlock {
    RecoveringBlock {
        new_gen_stamp: RECOVERY_ID,
        block: located(GROUP, indices.len()),
        ec_policy: Some(pb::ErasureCodingPolicy {
            id: 2,
            ..pb::ErasureCodingPolicy::default()
        }),
        block_indices: Some(Bytes::from_static(indices)),
        ..RecoveringBlock::default()
    }
}

#[tokio::test]
async fn a_group_is_cut_to_whole_stripes_and_reported_by_index() {
    let nodes = [
        Node::Has(Rbw, 2 * MB + 5),
        Node::Has(Rbw, 2 * MB),
        Node::Dead,
        Node::Has(Rbw, 2 * MB),
    ];
    let (result, fake) = run(group_order(&[4, 0, 1, 2]), &nodes).await;
    result.expect("recovered");
    let commit = fake.committed();
    assert_eq!(commit.new_length, 6 * MB);
    assert!(commit.close_file && !commit.delete_block);
    let storages = ["DS-node-1", "", "DS-node-3", "", "DS-node-0"];
    assert_eq!(commit.new_target_storages, storages);
    assert_eq!(commit.new_taragets.len(), 5);
    assert_eq!(commit.new_taragets[1].ip_addr, "null");
    assert_eq!(commit.new_taragets[1].datanode_uuid, "null");
    let mut updates = fake.updates.lock().expect("no panic").clone();
    updates.sort();
    let expected =
        [(1, 0), (3, 2), (0, 4)].map(|(node, index)| (uuid(node), GROUP + index, 2 * MB));
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(updates, expected);
}

#[tokio::test]
async fn a_group_is_all_or_nothing() {
    let nodes = [
        Node::Has(Rbw, MB),
        Node::Breaks(Rbw, MB),
        Node::Has(Rbw, MB),
    ];
    let (result, fake) = run(group_order(&[0, 1, 2]), &nodes).await;
    assert!(matches!(result, Err(RecoveryError::SyncFailed(_))));
    assert!(fake.commits.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn a_group_without_a_whole_stripe_leaves_the_file() {
    let nodes = [
        Node::Has(Rbw, 10),
        Node::Empty,
        Node::Empty,
        Node::Empty,
        Node::Empty,
    ];
    let (result, fake) = run(group_order(&[0, 1, 2, 3, 4]), &nodes).await;
    result.expect("recovered");
    let commit = fake.committed();
    assert!(commit.delete_block);
    assert_eq!(commit.new_taragets[0].datanode_uuid, "node-0");
    assert_eq!(commit.new_target_storages, [""; 5]);
}

#[test]
fn orders_that_make_no_sense_are_refused() {
    assert!(Order::try_from(group_order(&[0, 1, 9])).is_err());
    let short = RecoveringBlock {
        block_indices: Some(Bytes::from_static(&[0])),
        ..group_order(&[0, 1, 2])
    };
    assert!(Order::try_from(short).is_err());
    let unknown = RecoveringBlock {
        ec_policy: Some(pb::ErasureCodingPolicy {
            id: 77,
            ..pb::ErasureCodingPolicy::default()
        }),
        ..group_order(&[0])
    };
    assert!(Order::try_from(unknown).is_err());
    assert!(Order::try_from(order(600)).is_err());
    let mut bad_pool = order(1);
    bad_pool.block.b.pool_id = "../etc".to_owned();
    assert!(Order::try_from(bad_pool).is_err());
}
