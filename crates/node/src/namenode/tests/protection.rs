//! Block tokens as NameNodes turn them on, and NameNodes that cannot be served as protected as
//! they demand: their block pool ends, unserved.

use std::time::Duration;

use hayloft_conf::KeyGenerator;
use hayloft_wire::block_token::AccessMode;
use hayloft_wire::ids::{Block, ExtendedBlock};
use hayloft_wire::proto::hdfs_server::{BlockKey, NnHaState};
use hayloft_wire::proto::security::Token;

use super::commands::{key_update, keys};
use super::fake::{FakeNameNode, Node, Told, eventually};
use super::{pool, ready};
use crate::logged_tests::Logged;
use crate::security::{Access, BlockTokens, TokenRefused, TokenSettings};

/// The service is over, its pool has left the store, and the log says `why` once.
async fn ended(node: &Node, warnings: &Logged, why: &str) {
    let limit = Duration::from_secs(5);
    let end = tokio::time::timeout(limit, node.services.wait_all_ended());
    end.await.expect("the service ends");
    assert!(!node.services.serves(&pool()));
    assert!(!node.services.wait_ready(&pool(), Duration::ZERO).await);
    assert_eq!(warnings.that_say(why), 1);
}

fn forgotten(node: &Node) -> bool {
    *node.store.forgotten.lock().expect("no panic") == [pool()]
}

/// A token that a NameNode with the fakes' keys gives out.
fn token() -> Token {
    let settings = TokenSettings {
        algorithm: KeyGenerator::HmacSha1,
        protobuf: false,
        user: "hdfs".to_owned(),
    };
    let namenode = BlockTokens::new(settings);
    namenode.agree(true).expect("the first to say");
    namenode.take_keys(&pool(), &keys(), true).expect("few");
    let read = Access::to(AccessMode::Read);
    namenode.make(&block(), read).expect("a key")
}

fn block() -> ExtendedBlock {
    ExtendedBlock::new(pool(), Block::new(1, 1001, 1))
}

fn believes(node: &Node) -> Result<(), TokenRefused> {
    let read = Access::to(AccessMode::Read);
    node.services
        .block_tokens()
        .check(Some(&token()), &block(), &read)
}

#[tokio::test]
async fn block_tokens_at_the_registration_are_checked_before_the_pool_is_ready() {
    let namenode = FakeNameNode::start().await;
    namenode.script().tokens = true;
    let node = Node::start(&[&namenode], "50ms", &[]);
    assert_eq!(believes(&node), Err(TokenRefused::Undecided));
    ready(&node, &[&namenode]).await;
    assert!(node.services.block_tokens().are_on());
    assert_eq!(believes(&node), Ok(()));
    // The keys do not stay with what heartbeats send.
    let registration = node.services.registration(&pool()).expect("registered");
    assert!(registration.keys.all_keys.is_empty());
}

#[tokio::test]
async fn keys_come_with_heartbeats_of_every_namenode() {
    let (active, standby) = (FakeNameNode::start().await, FakeNameNode::start().await);
    for namenode in [&active, &standby] {
        namenode.script().tokens = true;
        namenode.script().keys.all_keys.clear();
        namenode.script().keys.current_key = BlockKey::default();
    }
    standby.script().ha = NnHaState::Standby;
    let node = Node::start(&[&active, &standby], "50ms", &[]);
    ready(&node, &[&active, &standby]).await;
    assert_eq!(believes(&node), Err(TokenRefused::UnknownKey(7)));
    standby.command(key_update(true));
    eventually("taking a standby's keys", || believes(&node).is_ok()).await;
}

#[tokio::test]
async fn block_tokens_at_one_namenode_of_two_end_the_pool_of_both() {
    let (plain, strict) = (FakeNameNode::start().await, FakeNameNode::start().await);
    let warnings = Logged::warnings();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let node = Node::start(&[&plain, &strict], "50ms", &[]);
    ready(&node, &[&plain, &strict]).await;
    strict.script().tokens = true;
    strict.command(super::register_again());
    ended(&node, &warnings, "dfs.block.access.token.enable").await;
    assert!(forgotten(&node));
}

#[tokio::test]
async fn a_namenode_that_turned_block_tokens_off_is_not_served_and_they_are_checked_on() {
    let namenode = FakeNameNode::start().await;
    namenode.script().tokens = true;
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    namenode.script().tokens = false;
    namenode.command(super::register_again());
    let limit = Duration::from_secs(5);
    let end = tokio::time::timeout(limit, node.services.wait_all_ended());
    end.await.expect("the service ends");
    assert!(node.services.block_tokens().are_on());
    assert_ne!(believes(&node), Ok(()), "the keys of the pool are gone");
}

#[tokio::test]
async fn keys_of_block_tokens_in_a_heartbeats_answer_end_a_pool_without_them() {
    let namenode = FakeNameNode::start().await;
    let warnings = Logged::warnings();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    namenode.command(key_update(true));
    ended(&node, &warnings, "dfs.block.access.token.enable").await;
    assert!(forgotten(&node));
}

#[tokio::test]
async fn a_namenode_whose_policy_refuses_the_node_is_asked_again() {
    let namenode = FakeNameNode::start().await;
    namenode.script().refuse_version =
        Some("org.apache.hadoop.security.authorize.AuthorizationException");
    let node = Node::start(&[&namenode], "50ms", &[]);
    let limit = Duration::from_millis(500);
    assert!(!node.services.wait_ready(&pool(), limit).await);
    assert_eq!(namenode.count(|told| *told == Told::Registered), 0);
    namenode.script().refuse_version = None;
    ready(&node, &[&namenode]).await;
}
