//! Name services that name NameNodes of one cluster: a block pool has one of them.

use std::time::Duration;

use hayloft_conf::Configuration;

use super::fake::{FakeNameNode, Node, Told, eventually};
use super::{is_heartbeat, pool};
use crate::logged_tests::Logged;
use crate::namenode::Phase;

fn registered(namenode: &FakeNameNode) -> usize {
    namenode.count(|told| *told == Told::Registered)
}

#[tokio::test]
async fn a_second_name_service_of_a_pool_waits_for_the_end_of_the_first() {
    let (first, second) = (FakeNameNode::start().await, FakeNameNode::start().await);
    let warnings = Logged::warnings();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let address = second.addr.to_string();
    let more = [
        ("dfs.nameservices", "ns,other"),
        ("dfs.namenode.rpc-address.other", address.as_str()),
    ];
    let node = Node::start(&[&first], "50ms", &more);
    let refused = || warnings.that_say("list in dfs.internal.nameservices") == 1;
    eventually("a refusal", refused).await;
    let named = |phase: Phase| {
        let mut actors = node.services.actors().into_iter();
        let found = actors.find(|actor| actor.phase == phase);
        found.and_then(|actor| actor.nameservice)
    };
    let both = || named(Phase::Running).is_some() && named(Phase::Failed).is_some();
    eventually("one that serves, one that is told of", both).await;
    // Which of both asked first is not said.
    let has = named(Phase::Running).unwrap_or_default();
    let waits = named(Phase::Failed).unwrap_or_default();
    let served = match &*has {
        "ns" => [&first, &second],
        _ => [&second, &first],
    };
    assert_eq!(warnings.that_say(&format!("the name service {has} of")), 1);
    eventually("a registration", || registered(served[0]) == 1).await;
    assert_eq!(registered(served[1]), 0);
    // Longer than it takes to forget a pool.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = served[0].count(is_heartbeat);
    eventually("heartbeats", || served[0].count(is_heartbeat) > before + 1).await;
    assert!(node.services.serves(&pool()));
    assert_eq!(*node.store.open.lock().expect("no panic"), [pool()]);
    let key = format!("dfs.namenode.rpc-address.{waits}");
    let address = served[1].addr.to_string();
    let alone = [("dfs.nameservices", &*waits), (&*key, &*address)];
    let alone = Configuration::from_properties(alone).expect("valid");
    // It asks each five seconds, as long as is waited for below.
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.services.refresh(&alone).expect("it names a NameNode");
    eventually("the other one's turn", || registered(served[1]) == 1).await;
    assert!(node.services.serves(&pool()));
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
