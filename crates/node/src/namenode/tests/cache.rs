//! Orders to cache, and what NameNodes hear of caching.

use hayloft_wire::proto::datanode::{
    BlockIdCommand, BlockIdCommandAction, DatanodeCommand, DatanodeCommandType, HeartbeatRequest,
};
use hayloft_wire::proto::hdfs_server::NnHaState;

use super::commands::{carried_past, of_kind};
use super::fake::{FakeNameNode, Node, POOL, Told, eventually};
use super::{is_heartbeat, ready};
use crate::logged_tests::Logged;

const CACHES: [(&str, &str); 2] = [
    ("dfs.datanode.max.locked.memory", "1048576"),
    ("dfs.cachereport.intervalMsec", "50"),
];

fn order(pool: &str, action: i32, ids: &[i64]) -> DatanodeCommand {
    DatanodeCommand {
        blk_id_cmd: Some(BlockIdCommand {
            action,
            block_pool_id: pool.to_owned(),
            block_ids: ids.iter().map(|id| id.cast_unsigned()).collect(),
        }),
        ..of_kind(DatanodeCommandType::BlockIdCommand)
    }
}

fn cache(ids: &[i64]) -> DatanodeCommand {
    order(POOL, BlockIdCommandAction::Cache.into(), ids)
}

fn uncache(ids: &[i64]) -> DatanodeCommand {
    order(POOL, BlockIdCommandAction::Uncache.into(), ids)
}

fn last<T>(namenode: &FakeNameNode, of: impl Fn(&Told) -> Option<T>) -> Option<T> {
    let script = namenode.script();
    script.told.iter().rev().find_map(|(_, told)| of(told))
}

fn last_report(namenode: &FakeNameNode) -> Option<Vec<i64>> {
    last(namenode, |told| match told {
        Told::Cached(ids) => Some(ids.clone()),
        _ => None,
    })
}

fn last_beat(namenode: &FakeNameNode) -> Option<HeartbeatRequest> {
    last(namenode, |told| match told {
        Told::Heartbeat(beat) => Some((**beat).clone()),
        _ => None,
    })
}

#[tokio::test]
async fn what_is_cached_is_reported_and_counted_until_it_is_not() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &CACHES);
    ready(&node, &[&namenode]).await;
    // So a NameNode forgets what an earlier process had cached.
    eventually("an empty report", || {
        last_report(&namenode) == Some(Vec::new())
    })
    .await;
    namenode.command(cache(&[7, -16]));
    eventually("a report of both", || {
        last_report(&namenode) == Some(vec![7, -16])
    })
    .await;
    let used = |bytes| {
        let beat = last_beat(&namenode).expect("beats");
        beat.cache_used == Some(bytes) && beat.cache_capacity == Some(1 << 20)
    };
    eventually("their pages in heartbeats", || used(8192)).await;
    namenode.command(uncache(&[7]));
    eventually("a report of one", || {
        last_report(&namenode) == Some(vec![-16])
    })
    .await;
    eventually("its page in heartbeats", || used(4096)).await;
    namenode.command(uncache(&[-16]));
    eventually("an empty report again", || {
        last_report(&namenode) == Some(Vec::new())
    })
    .await;
}

#[tokio::test]
async fn every_namenode_hears_what_is_cached_and_the_active_one_orders_it() {
    let (one, two) = (FakeNameNode::start().await, FakeNameNode::start().await);
    two.script().ha = NnHaState::Standby;
    let node = Node::start(&[&one, &two], "50ms", &CACHES);
    ready(&node, &[&one, &two]).await;
    two.command(cache(&[2]));
    one.command(cache(&[1]));
    for namenode in [&one, &two] {
        eventually("a report", || last_report(namenode) == Some(vec![1])).await;
    }
    assert_eq!(*node.store.cached.lock().expect("no panic"), [1]);
}

#[tokio::test]
async fn orders_of_another_pool_or_version_are_named_and_passed_over() {
    let namenode = FakeNameNode::start().await;
    let warnings = Logged::warnings();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let node = Node::start(&[&namenode], "50ms", &CACHES);
    ready(&node, &[&namenode]).await;
    let orders = vec![
        order("BP-2-127.0.0.1-2", BlockIdCommandAction::Cache.into(), &[1]),
        order(POOL, 77, &[1]),
        // Says what it is, holds nothing.
        of_kind(DatanodeCommandType::BlockIdCommand),
    ];
    carried_past(&node, &namenode, orders).await;
    assert!(node.store.cached.lock().expect("no panic").is_empty());
    assert_eq!(warnings.that_say("BP-2-127.0.0.1-2"), 1);
    assert_eq!(warnings.that_say("command for block ids 77"), 1);
}

#[tokio::test]
async fn a_node_without_cache_says_nothing_of_it() {
    let namenode = FakeNameNode::start().await;
    let quick = [("dfs.cachereport.intervalMsec", "1")];
    let node = Node::start(&[&namenode], "50ms", &quick);
    ready(&node, &[&namenode]).await;
    let before = namenode.count(is_heartbeat);
    eventually("heartbeats", || namenode.count(is_heartbeat) > before + 2).await;
    let beat = last_beat(&namenode).expect("beats");
    assert_eq!((beat.cache_capacity, beat.cache_used), (None, None));
    assert_eq!(last_report(&namenode), None);
}
