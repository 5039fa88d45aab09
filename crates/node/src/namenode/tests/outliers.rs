//! Slow peers and disks are in heartbeats, in one an interval.

use std::time::Duration;

use hayloft_wire::proto::datanode::HeartbeatRequest;

use super::fake::{FakeNameNode, Node, Told, eventually};
use super::{is_heartbeat, ready};

fn heartbeats(namenode: &FakeNameNode) -> Vec<HeartbeatRequest> {
    let script = namenode.script();
    let beats = script.told.iter().filter_map(|(_, told)| match told {
        Told::Heartbeat(request) => Some((**request).clone()),
        _ => None,
    });
    beats.collect()
}

fn naming(namenode: &FakeNameNode) -> usize {
    let beats = heartbeats(namenode);
    for beat in &beats {
        assert_eq!(beat.slow_peers.len(), beat.slow_disks.len());
    }
    beats.iter().filter(|b| !b.slow_peers.is_empty()).count()
}

#[tokio::test]
async fn the_first_heartbeat_names_them_and_the_next_ones_do_not() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "20ms", &[]);
    ready(&node, &[&namenode]).await;
    eventually("heartbeats", || namenode.count(is_heartbeat) > 5).await;
    assert_eq!(naming(&namenode), 1);
    let first = &heartbeats(&namenode)[0];
    assert_eq!(first.slow_peers[0].data_node_id(), "127.0.0.9:9864");
    assert_eq!(first.slow_disks[0].base_path(), "/slow/");
    assert_eq!(*node.work.searches.lock().expect("no panic"), 1);
}

#[tokio::test]
async fn they_are_named_again_after_an_interval_and_after_a_heartbeat_that_failed() {
    let namenode = FakeNameNode::start().await;
    namenode.script().refuse = Some("java.io.IOException");
    let interval = [("dfs.datanode.outliers.report.interval", "300ms")];
    let node = Node::start(&[&namenode], "20ms", &interval);
    eventually("failed heartbeats", || naming(&namenode) > 2).await;
    namenode.script().refuse = None;
    ready(&node, &[&namenode]).await;
    let before = naming(&namenode);
    // Less than the interval: heartbeats go out that name nothing.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let beats = namenode.count(is_heartbeat);
    eventually("the next search", || naming(&namenode) > before + 1).await;
    assert!(namenode.count(is_heartbeat) > beats, "others in between");
}
