//! Full reports of several storages: one message, or one for each.

use std::sync::atomic::Ordering;

use hayloft_wire::proto::datanode::{BlockReportContext, BlockReportRequest};

use super::fake::{FakeNameNode, Node, Told, eventually};
use super::is_full;

/// A node with two storages, one replica on each.
fn two_storages(namenode: &FakeNameNode, split_threshold: &str) -> Node {
    let more = [("dfs.blockreport.split.threshold", split_threshold)];
    let node = Node::start(&[namenode], "50ms", &more);
    // Nothing of the node has run yet: it shares this thread.
    node.store.second_storage.store(true, Ordering::Relaxed);
    node
}

async fn taken(node: &Node) {
    eventually("a report that was taken in full", || {
        node.services.actors()[0].last_report.is_some()
    })
    .await;
}

/// The messages of full reports, those that failed too.
fn messages(namenode: &FakeNameNode) -> Vec<BlockReportRequest> {
    let script = namenode.script();
    let messages = script.told.iter().filter_map(|(_, told)| match told {
        Told::Full(message) => Some((**message).clone()),
        _ => None,
    });
    messages.collect()
}

fn storages(message: &BlockReportRequest) -> Vec<&str> {
    let reports = message.reports.iter();
    reports
        .map(|report| report.storage.storage_uuid.as_str())
        .collect()
}

fn context(message: &BlockReportRequest) -> &BlockReportContext {
    message.context.as_ref().expect("context")
}

#[tokio::test]
async fn few_blocks_are_reported_in_one_message() {
    let namenode = FakeNameNode::start().await;
    let node = two_storages(&namenode, "3");
    taken(&node).await;
    let messages = messages(&namenode);
    assert_eq!(messages.len(), 1);
    assert_eq!(storages(&messages[0]), ["DS-1", "DS-2"]);
    let context = context(&messages[0]);
    assert_eq!((context.total_rpcs, context.cur_rpc), (1, 0));
}

#[tokio::test]
async fn many_blocks_are_reported_storage_by_storage() {
    let namenode = FakeNameNode::start().await;
    let node = two_storages(&namenode, "2");
    taken(&node).await;
    let messages = messages(&namenode);
    assert_eq!(
        messages.iter().map(storages).collect::<Vec<_>>(),
        [["DS-1"], ["DS-2"]]
    );
    let id = context(&messages[0]).id;
    for (message, cur_rpc) in messages.iter().zip(0..) {
        let context = context(message);
        assert_eq!((context.total_rpcs, context.cur_rpc), (2, cur_rpc));
        assert_eq!((context.id, context.lease_id()), (id, 99));
    }
}

#[tokio::test]
async fn a_report_that_failed_halfway_is_sent_again_from_the_first_storage() {
    let namenode = FakeNameNode::start().await;
    namenode.script().fail_report_rpc = Some(1);
    let node = two_storages(&namenode, "2");
    eventually("the failure", || namenode.count(is_full) == 2).await;
    assert!(node.services.actors()[0].last_report.is_none());
    taken(&node).await;
    let messages = messages(&namenode);
    assert_eq!(
        messages.iter().map(storages).collect::<Vec<_>>(),
        [["DS-1"], ["DS-2"], ["DS-1"], ["DS-2"]]
    );
    let of = |message| {
        let context = context(message);
        (context.total_rpcs, context.cur_rpc, context.lease_id())
    };
    assert_eq!(
        messages.iter().map(of).collect::<Vec<_>>(),
        [(2, 0, 99), (2, 1, 99), (2, 0, 99), (2, 1, 99)]
    );
    let ids: Vec<i64> = messages.iter().map(|message| context(message).id).collect();
    assert_eq!((ids[0], ids[2]), (ids[1], ids[3]));
    assert_ne!(ids[0], ids[2], "the second attempt is a report of its own");
}
