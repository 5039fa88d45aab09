//! Timing and order of the services, with fakes around them.

mod cache;
mod commands;
mod fake;
mod observer;
mod one_pool;
mod outliers;
mod protection;
mod reports;
mod split_report;
mod upgrade;

use std::time::Duration;

use fake::{FakeNameNode, Node, POOL, Told, eventually, storage};
use hayloft_store::StoreEvent;
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use hayloft_wire::proto::datanode::{
    BlockCommand, BlockCommandAction, BlockStatus, DatanodeCommand, DatanodeCommandType,
    RegisterCommand,
};
use hayloft_wire::proto::hdfs::{self, DatanodeInfo, DatanodeInfos};
use hayloft_wire::proto::hdfs_server::NnHaState;
use tokio::time::Instant;

use super::Phase;

const RECEIVED: i32 = BlockStatus::Received as i32;
const RECEIVING: i32 = BlockStatus::Receiving as i32;
const DELETED: i32 = BlockStatus::Deleted as i32;

fn pool() -> PoolId {
    PoolId::new(POOL).expect("valid")
}

fn block(id: i64, stamp: u64) -> ExtendedBlock {
    ExtendedBlock::new(pool(), Block::new(id, stamp, 5))
}

fn deleted(node: &Node, block: &ExtendedBlock) {
    let services = &node.services;
    services.notify(block, &storage(), BlockStatus::Deleted, None);
}

fn is_heartbeat(told: &Told) -> bool {
    matches!(told, Told::Heartbeat(_))
}

fn is_full(told: &Told) -> bool {
    matches!(told, Told::Full(_))
}

fn invalidate(id: i64) -> DatanodeCommand {
    block_command(BlockCommandAction::Invalidate, id, Vec::new())
}

fn block_command(
    action: BlockCommandAction,
    id: i64,
    targets: Vec<DatanodeInfos>,
) -> DatanodeCommand {
    DatanodeCommand {
        cmd_type: DatanodeCommandType::BlockCommand.into(),
        blk_cmd: Some(BlockCommand {
            action: action.into(),
            block_pool_id: POOL.to_owned(),
            blocks: vec![hdfs::Block::from(Block::new(id, 1001, 5))],
            targets,
            ..BlockCommand::default()
        }),
        ..DatanodeCommand::default()
    }
}

fn register_again() -> DatanodeCommand {
    DatanodeCommand {
        cmd_type: DatanodeCommandType::RegisterCommand.into(),
        register_cmd: Some(RegisterCommand {}),
        ..DatanodeCommand::default()
    }
}

async fn ready(node: &Node, namenodes: &[&FakeNameNode]) {
    assert!(
        node.services
            .wait_ready(&pool(), Duration::from_secs(5))
            .await
    );
    for namenode in namenodes {
        eventually("first full report", || namenode.count(is_full) == 1).await;
    }
}

#[tokio::test]
async fn registers_beats_and_reports_under_a_lease() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    let told: Vec<Told> = namenode
        .script()
        .told
        .iter()
        .map(|(_, told)| told.clone())
        .collect();
    assert_eq!(told[..2], [Told::Version, Told::Registered]);
    let Told::Heartbeat(first) = &told[2] else {
        panic!("heartbeat first: {told:?}")
    };
    assert!(first.request_full_block_report_lease());
    assert_eq!((first.xmits_in_progress(), first.xceiver_count()), (1, 2));
    assert_eq!(
        first.reports[0]
            .storage
            .as_ref()
            .map(|s| s.storage_uuid.as_str()),
        Some("DS-1")
    );
    let Some(Told::Full(report)) = told.iter().find(|told| is_full(told)) else {
        panic!("no report")
    };
    let context = report.context.as_ref().expect("context");
    assert_eq!(
        (context.lease_id(), context.total_rpcs, context.cur_rpc),
        (99, 1, 0)
    );
    assert_eq!(report.reports[0].number_of_blocks, Some(1));
    eventually("no lease is asked for again", || {
        let script = namenode.script();
        script.told.iter().rev().find_map(|(_, told)| match told {
            Told::Heartbeat(beat) => Some(!beat.request_full_block_report_lease()),
            _ => None,
        }) == Some(true)
    })
    .await;
    let actors = node.services.actors();
    assert_eq!(
        (actors.len(), actors[0].phase, actors[0].active),
        (1, Phase::Running, true)
    );
}

#[tokio::test]
async fn a_slow_full_report_delays_no_heartbeat() {
    let namenode = FakeNameNode::start().await;
    namenode.script().report_takes = Duration::from_secs(1);
    let node = Node::start(&[&namenode], "50ms", &[]);
    assert!(
        node.services
            .wait_ready(&pool(), Duration::from_secs(5))
            .await
    );
    eventually("heartbeats", || namenode.count(is_heartbeat) >= 4).await;
    assert_eq!(namenode.count(is_full), 0);
}

#[tokio::test]
async fn commands_delay_no_heartbeat_and_no_other_command() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    let target = DatanodeInfos {
        datanodes: vec![DatanodeInfo::default()],
    };
    namenode.command(block_command(BlockCommandAction::Transfer, 1, vec![target]));
    namenode.command(invalidate(4));
    eventually("both", || {
        node.store
            .invalidated
            .lock()
            .expect("no panic")
            .contains(&4)
    })
    .await;
    assert_eq!(node.work.transfers.lock().expect("no panic").len(), 1);
    let before = namenode.count(is_heartbeat);
    eventually("heartbeats", || namenode.count(is_heartbeat) > before + 3).await;
}

#[tokio::test]
async fn a_replica_that_is_not_here_is_not_copied_but_reported() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    let target = DatanodeInfos {
        datanodes: vec![DatanodeInfo::default()],
    };
    namenode.command(block_command(
        BlockCommandAction::Transfer,
        77,
        vec![target],
    ));
    eventually("error report", || {
        namenode.count(|told| *told == Told::Error) == 1
    })
    .await;
    assert!(node.work.transfers.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn a_namenode_that_forgot_us_gets_a_registration_and_a_full_report() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    namenode.command(register_again());
    eventually("registration", || {
        namenode.count(|told| *told == Told::Registered) == 2
    })
    .await;
    eventually("report", || namenode.count(is_full) == 2).await;
}

#[tokio::test]
async fn a_namenode_that_was_away_is_found_again() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    namenode.stop().await;
    node.services
        .notify_received(&block(5, 1001), &storage(), None);
    // Long enough for heartbeats that fail.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = namenode.count(is_heartbeat);
    namenode.restart().await;
    eventually("heartbeats", || namenode.count(is_heartbeat) > before).await;
    eventually("news", || namenode.news() == [(5, 1001, RECEIVED)]).await;
}

#[tokio::test]
async fn a_reformatted_namenode_ends_the_service() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    namenode.script().namespace_id = 8;
    namenode.command(register_again());
    let ended = tokio::time::timeout(Duration::from_secs(5), node.services.wait_all_ended()).await;
    assert!(ended.is_ok());
    assert!(!node.services.serves(&pool()));
}

#[tokio::test]
async fn a_node_that_is_not_wanted_stops_asking() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    namenode.script().refuse =
        Some("org.apache.hadoop.hdfs.server.protocol.DisallowedDatanodeException");
    let ended = tokio::time::timeout(Duration::from_secs(5), node.services.wait_all_ended()).await;
    assert!(ended.is_ok());
}

#[tokio::test]
async fn a_namenode_that_refused_is_served_again_after_refresh_namenodes() {
    let (one, two) = (FakeNameNode::start().await, FakeNameNode::start().await);
    two.script().ha = NnHaState::Standby;
    let node = Node::start(&[&one, &two], "50ms", &[]);
    ready(&node, &[&one, &two]).await;
    two.script().refuse =
        Some("org.apache.hadoop.hdfs.server.protocol.DisallowedDatanodeException");
    eventually("the end", || node.services.actors().len() == 1).await;
    two.script().refuse = None;
    let registered = || two.count(|told| *told == Told::Registered);
    let before = registered();
    let config = node.services.node().config.current();
    node.services.refresh(&config).expect("valid");
    eventually("registration", || registered() == before + 1).await;
    assert_eq!(node.services.actors().len(), 2);
}

#[tokio::test]
async fn only_the_active_namenode_commands_and_a_failover_needs_newer_transactions() {
    let (one, two) = (FakeNameNode::start().await, FakeNameNode::start().await);
    two.script().ha = NnHaState::Standby;
    let node = Node::start(&[&one, &two], "50ms", &[]);
    ready(&node, &[&one, &two]).await;
    let done = || node.store.invalidated.lock().expect("no panic").clone();
    two.command(invalidate(20));
    one.command(invalidate(10));
    eventually("the active one's command", || done() == [10]).await;
    // A claim that is not newer is not believed.
    two.script().ha = NnHaState::Active;
    two.script().txid = 9;
    let before = two.count(is_heartbeat);
    eventually("claims", || two.count(is_heartbeat) > before + 2).await;
    two.command(invalidate(21));
    let before = two.count(is_heartbeat);
    eventually("heartbeats", || two.count(is_heartbeat) > before + 2).await;
    assert_eq!(done(), [10]);
    // A newer one is.
    two.script().txid = 11;
    eventually("failover", || node.services.actors()[1].active).await;
    two.command(invalidate(22));
    eventually("the new active one's command", || done() == [10, 22]).await;
    // News goes to both.
    node.services
        .notify_received(&block(5, 1001), &storage(), None);
    eventually("news", || {
        one.news() == two.news() && !one.news().is_empty()
    })
    .await;
    node.services.report_bad_block(&block(1, 1001), &storage());
    let bad = |told: &Told| matches!(told, Told::Bad(_));
    eventually("bad block", || one.count(bad) == 1 && two.count(bad) == 1).await;
}

#[tokio::test]
async fn lifelines_go_out_only_while_heartbeats_are_late() {
    let namenode = FakeNameNode::start().await;
    let life = FakeNameNode::start().await;
    let address = life.addr.to_string();
    let more = [
        ("dfs.namenode.lifeline.rpc-address.ns.nn1", address.as_str()),
        ("dfs.datanode.lifeline.interval.seconds", "1s"),
    ];
    let node = Node::start(&[&namenode], "50ms", &more);
    ready(&node, &[&namenode]).await;
    let lifelines = || life.count(|told| *told == Told::Lifeline);
    // Longer than their interval.
    tokio::time::sleep(Duration::from_millis(1300)).await;
    assert_eq!(lifelines(), 0);
    namenode.script().hang = true;
    eventually("lifelines", || lifelines() >= 2).await;
}

#[tokio::test]
async fn a_fatal_volume_failure_is_told_and_ends_the_node() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    let (events, news) = tokio::sync::mpsc::channel(8);
    let services = node.services.clone();
    tokio::spawn(async move { services.serve_store_events(news).await });
    let event = StoreEvent::VolumeFailed {
        path: "/data/1".into(),
        storage: storage(),
        reason: "EIO".to_owned(),
        fatal: true,
    };
    events.send(event).await.expect("listens");
    eventually("error report", || {
        namenode.count(|told| *told == Told::Error) == 1
    })
    .await;
    eventually("end", || node.shutdown.is_cancelled()).await;
}
