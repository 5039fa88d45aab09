//! Commands that this node does not carry out, and finalizing: whatever is asked, the commands
//! after it are carried out.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use hayloft_wire::ids::PoolId;
use hayloft_wire::proto::datanode::{
    BalancerBandwidthCommand, BlockEcReconstructionCommand, BlockRecoveryCommand, DatanodeCommand,
    DatanodeCommandType, FinalizeCommand, KeyUpdateCommand,
};
use hayloft_wire::proto::hdfs::{BlockEcReconstructionInfo, ExtendedBlock, LocatedBlock};
use hayloft_wire::proto::hdfs_server::{BlockKey, ExportedBlockKeys, RecoveringBlock};

use super::fake::{FakeNameNode, Node, POOL, Told, eventually};
use super::{invalidate, is_heartbeat, pool, ready};
use crate::logged_tests::Logged;

pub(super) fn of_kind(kind: DatanodeCommandType) -> DatanodeCommand {
    DatanodeCommand {
        cmd_type: kind.into(),
        ..DatanodeCommand::default()
    }
}

pub(super) fn finalize(pool: &str) -> DatanodeCommand {
    DatanodeCommand {
        finalize_cmd: Some(FinalizeCommand {
            block_pool_id: pool.to_owned(),
        }),
        ..of_kind(DatanodeCommandType::FinalizeCommand)
    }
}

/// Keys of block tokens: one, number 7.
pub(super) fn keys() -> ExportedBlockKeys {
    let key = BlockKey {
        key_id: 7,
        expiry_date: 4_102_444_800_000,
        key_bytes: Some(Bytes::from_static(b"12345678")),
    };
    ExportedBlockKeys {
        is_block_token_enabled: true,
        key_update_interval: 600_000,
        token_life_time: 600_000,
        current_key: key.clone(),
        all_keys: vec![key],
    }
}

pub(super) fn key_update(enabled: bool) -> DatanodeCommand {
    DatanodeCommand {
        key_update_cmd: Some(KeyUpdateCommand {
            keys: ExportedBlockKeys {
                is_block_token_enabled: enabled,
                ..keys()
            },
        }),
        ..of_kind(DatanodeCommandType::KeyUpdateCommand)
    }
}

pub(super) fn bandwidth(bandwidth: u64) -> DatanodeCommand {
    DatanodeCommand {
        balancer_cmd: Some(BalancerBandwidthCommand { bandwidth }),
        ..of_kind(DatanodeCommandType::BalancerBandwidthCommand)
    }
}

/// Gives the commands in one answer, then one to delete block 9, and ends when that is done. Checks
/// that nothing else came of it and that heartbeats go on.
pub(super) async fn carried_past(
    node: &Node,
    namenode: &FakeNameNode,
    commands: Vec<DatanodeCommand>,
) {
    {
        let mut script = namenode.script();
        script.commands.extend(commands);
        script.commands.push_back(invalidate(9));
    }
    eventually("the next command", || {
        *node.store.invalidated.lock().expect("no panic") == [9]
    })
    .await;
    let before = namenode.count(is_heartbeat);
    eventually("heartbeats", || namenode.count(is_heartbeat) > before + 1).await;
    assert_eq!(namenode.count(|told| *told == Told::Registered), 1);
    assert_eq!(namenode.count(|told| *told == Told::Error), 0);
    assert!(node.work.transfers.lock().expect("no panic").is_empty());
}

async fn started(namenode: &FakeNameNode) -> Node {
    let node = Node::start(&[namenode], "50ms", &[]);
    ready(&node, &[namenode]).await;
    node
}

#[tokio::test]
async fn finalizing_an_upgrade_reaches_the_store_for_the_pool_that_is_meant() {
    let namenode = FakeNameNode::start().await;
    let node = started(&namenode).await;
    let finalized = || -> Vec<PoolId> { node.store.finalized.lock().expect("no panic").clone() };
    let other = vec![
        finalize("BP-2-127.0.0.1-2"),
        // Says what it is, holds nothing.
        of_kind(DatanodeCommandType::FinalizeCommand),
    ];
    carried_past(&node, &namenode, other).await;
    assert_eq!(finalized(), []);
    namenode.command(finalize(POOL));
    eventually("finalizing", || finalized() == [pool()]).await;
}

#[tokio::test]
async fn keys_without_block_tokens_do_no_harm() {
    let namenode = FakeNameNode::start().await;
    let warnings = Logged::warnings();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let node = started(&namenode).await;
    let keys = vec![
        key_update(false),
        of_kind(DatanodeCommandType::KeyUpdateCommand),
    ];
    carried_past(&node, &namenode, keys).await;
    assert_eq!(warnings.that_say(""), 0, "{warnings:?}");
}

fn reconstruction(pool: &str, ids: std::ops::Range<i64>) -> DatanodeCommand {
    let group = |id: i64| BlockEcReconstructionInfo {
        block: ExtendedBlock {
            pool_id: pool.to_owned(),
            block_id: id.cast_unsigned(),
            ..ExtendedBlock::default()
        },
        ..BlockEcReconstructionInfo::default()
    };
    DatanodeCommand {
        blk_ec_reconstruction_cmd: Some(BlockEcReconstructionCommand {
            block_ec_reconstructioninfo: ids.map(group).collect(),
        }),
        ..of_kind(DatanodeCommandType::BlockEcReconstructionCommand)
    }
}

#[tokio::test]
async fn groups_to_reconstruct_are_those_of_the_pool_and_have_a_limit() {
    let namenode = FakeNameNode::start().await;
    let warnings = Logged::warnings();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let node = started(&namenode).await;
    let commands = vec![
        // Says what it is, holds nothing.
        of_kind(DatanodeCommandType::BlockEcReconstructionCommand),
        reconstruction("BP-2-127.0.0.1-2", -32..-31),
        reconstruction(POOL, -1000..-700),
    ];
    carried_past(&node, &namenode, commands).await;
    let ordered = node.work.reconstructions.lock().expect("no panic").clone();
    assert_eq!(ordered, (-1000..-744).collect::<Vec<i64>>());
    assert_eq!(warnings.that_say("group -32 of the pool"), 1);
    assert_eq!(warnings.that_say("too many reconstructions at a time"), 1);
}

fn recovery(blocks: &[(&str, u64)]) -> DatanodeCommand {
    let order = |(pool, id): &(&str, u64)| RecoveringBlock {
        block: LocatedBlock {
            b: ExtendedBlock {
                pool_id: (*pool).to_owned(),
                block_id: *id,
                ..ExtendedBlock::default()
            },
            ..LocatedBlock::default()
        },
        ..RecoveringBlock::default()
    };
    DatanodeCommand {
        recovery_cmd: Some(BlockRecoveryCommand {
            blocks: blocks.iter().map(order).collect(),
        }),
        ..of_kind(DatanodeCommandType::BlockRecoveryCommand)
    }
}

#[tokio::test]
async fn a_namenode_has_no_blocks_of_another_pool_recovered() {
    let namenode = FakeNameNode::start().await;
    let warnings = Logged::warnings();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let node = started(&namenode).await;
    let other = "BP-2-127.0.0.1-2";
    let commands = vec![recovery(&[(other, 5), (POOL, 6)]), recovery(&[(other, 7)])];
    carried_past(&node, &namenode, commands).await;
    eventually("recovered", || {
        *node.work.recoveries.lock().expect("no panic") == [6]
    })
    .await;
    assert_eq!(warnings.that_say("asked to recover block"), 2);
}

#[tokio::test]
async fn a_command_of_a_later_version_is_named_and_passed_over() {
    let namenode = FakeNameNode::start().await;
    let warnings = Logged::warnings();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let node = started(&namenode).await;
    let unknown = DatanodeCommand {
        cmd_type: 77,
        ..DatanodeCommand::default()
    };
    carried_past(&node, &namenode, vec![unknown]).await;
    assert_eq!(warnings.that_say("unknown command 77: ignored"), 1);
    assert_eq!(*node.work.bandwidth.lock().expect("no panic"), 0);
}

#[tokio::test]
async fn deletes_of_a_disk_that_gives_no_answer_hold_no_command_up() {
    let namenode = FakeNameNode::start().await;
    let node = started(&namenode).await;
    node.store.hangs.store(true, Ordering::Relaxed);
    for id in 100..300 {
        namenode.command(invalidate(id));
    }
    namenode.command(bandwidth(4096));
    eventually("the command behind them", || {
        *node.work.bandwidth.lock().expect("no panic") == 4096
    })
    .await;
}
