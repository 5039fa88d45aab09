//! Name services that name NameNodes of one cluster: a block pool has one of them.

use std::time::Duration;

use hayloft_conf::Configuration;

use super::commands::Warnings;
use super::fake::{FakeNameNode, Node, Told, eventually};
use super::{is_heartbeat, pool};
use crate::namenode::Phase;

fn registered(namenode: &FakeNameNode) -> usize {
    namenode.count(|told| *told == Told::Registered)
}

#[tokio::test]
async fn a_second_name_service_of_a_pool_is_refused_and_its_end_leaves_the_pool() {
    let (first, second) = (FakeNameNode::start().await, FakeNameNode::start().await);
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let address = second.addr.to_string();
    let more = [
        ("dfs.nameservices", "ns,other"),
        ("dfs.namenode.rpc-address.other", address.as_str()),
    ];
    let node = Node::start(&[&first], "50ms", &more);
    let refused = || warnings.that_say("list in dfs.internal.nameservices") == 1;
    eventually("a refusal", refused).await;
    eventually("its end", || node.services.services().len() == 1).await;
    // Which of both asked first is not said.
    let has = node.services.actors()[0].nameservice.clone();
    let served = match has.as_deref() {
        Some("ns") => [&first, &second],
        _ => [&second, &first],
    };
    let named = format!("the name service {} of", has.unwrap_or_default());
    assert_eq!(warnings.that_say(&named), 1);
    eventually("a registration", || registered(served[0]) == 1).await;
    assert_eq!(registered(served[1]), 0);
    // Longer than it takes to forget a pool.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = served[0].count(is_heartbeat);
    eventually("heartbeats", || served[0].count(is_heartbeat) > before + 1).await;
    assert!(node.services.serves(&pool()));
    assert_eq!(*node.store.open.lock().expect("no panic"), [pool()]);
}

#[tokio::test]
async fn a_name_service_that_gets_another_name_keeps_its_pool() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &[]);
    super::ready(&node, &[&namenode]).await;
    let address = namenode.addr.to_string();
    let renamed = Configuration::from_properties([
        ("dfs.nameservices", "renamed"),
        ("dfs.namenode.rpc-address.renamed", address.as_str()),
    ]);
    let refreshed = node.services.refresh(&renamed.expect("valid"));
    refreshed.expect("it names a NameNode");
    eventually("the other name", || {
        let actors = node.services.actors();
        let running = |name: &str| {
            let named = actors[0].nameservice.as_deref() == Some(name);
            named && actors[0].phase == Phase::Running
        };
        actors.len() == 1 && running("renamed")
    })
    .await;
    assert!(node.services.serves(&pool()));
    // Added before it was forgotten, it would be gone in the end.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(*node.store.forgotten.lock().expect("no panic"), [pool()]);
    assert_eq!(*node.store.open.lock().expect("no panic"), [pool()]);
}
