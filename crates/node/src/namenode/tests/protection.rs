//! NameNodes that demand protection which is not here: their block pool ends, unserved.

use std::time::Duration;

use super::commands::{Warnings, key_update};
use super::fake::{FakeNameNode, Node, Told};
use super::{is_heartbeat, pool, ready};

/// The service is over, its pool has left the store, and the log says `why` once.
async fn ended(node: &Node, warnings: &Warnings, why: &str) {
    let limit = Duration::from_secs(5);
    let end = tokio::time::timeout(limit, node.services.wait_all_ended());
    end.await.expect("the service ends");
    assert!(!node.services.serves(&pool()));
    assert!(!node.services.wait_ready(&pool(), Duration::ZERO).await);
    assert_eq!(warnings.that_say(why), 1);
    assert_eq!(warnings.that_say("use Apache's DataNode"), 1);
}

fn forgotten(node: &Node) -> bool {
    *node.store.forgotten.lock().expect("no panic") == [pool()]
}

#[tokio::test]
async fn block_tokens_at_the_registration_end_the_pool_before_a_heartbeat() {
    let namenode = FakeNameNode::start().await;
    namenode.script().tokens = true;
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let node = Node::start(&[&namenode], "50ms", &[]);
    ended(&node, &warnings, "dfs.block.access.token.enable").await;
    assert!(forgotten(&node));
    assert_eq!(namenode.count(|told| *told == Told::Registered), 1);
    assert_eq!(namenode.count(is_heartbeat), 0);
}

#[tokio::test]
async fn block_tokens_at_one_namenode_of_two_end_the_pool_of_both() {
    let (plain, strict) = (FakeNameNode::start().await, FakeNameNode::start().await);
    strict.script().tokens = true;
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let node = Node::start(&[&plain, &strict], "50ms", &[]);
    ended(&node, &warnings, "dfs.block.access.token.enable").await;
    assert!(forgotten(&node));
}

#[tokio::test]
async fn block_tokens_at_a_later_registration_end_the_pool() {
    let namenode = FakeNameNode::start().await;
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    namenode.script().tokens = true;
    namenode.command(super::register_again());
    ended(&node, &warnings, "dfs.block.access.token.enable").await;
    assert!(forgotten(&node));
}

#[tokio::test]
async fn keys_of_block_tokens_in_a_heartbeats_answer_end_the_pool() {
    let namenode = FakeNameNode::start().await;
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    namenode.command(key_update(true));
    ended(&node, &warnings, "dfs.block.access.token.enable").await;
    assert!(forgotten(&node));
}

#[tokio::test]
async fn a_namenode_that_authorizes_and_refuses_ends_the_pool() {
    let namenode = FakeNameNode::start().await;
    namenode.script().refuse_version =
        Some("org.apache.hadoop.security.authorize.AuthorizationException");
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let node = Node::start(&[&namenode], "50ms", &[]);
    ended(&node, &warnings, "hadoop.security.authorization").await;
    assert_eq!(namenode.count(|told| *told == Told::Registered), 0);
}
