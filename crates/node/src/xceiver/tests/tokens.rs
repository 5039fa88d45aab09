//! Requests with tokens that do not permit them, and with such that do.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hayloft_conf::KeyGenerator;
use hayloft_wire::block_token::AccessMode;
use hayloft_wire::ids::StorageType;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::DatanodeInfo;
use hayloft_wire::proto::hdfs_server::{BlockKey, ExportedBlockKeys};
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, OpRequest, Stage, Status};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use super::super::transfer_block;
use super::client::{Client, Pipeline, write_request};
use super::node::Node;
use super::striped::{infos, policy};
use super::{block, crc32c, pattern, pool};
use crate::namenode::Targets;
use crate::security::{Access, BlockTokens, TokenSettings};

/// How tokens are made in these tests.
pub fn settings() -> TokenSettings {
    TokenSettings {
        algorithm: KeyGenerator::HmacSha1,
        protobuf: false,
        user: "hdfs".to_owned(),
    }
}

/// A NameNode's one key, and how long tokens live.
pub fn keys(secret: u8, life_millis: u64) -> ExportedBlockKeys {
    let key = BlockKey {
        key_id: 7,
        expiry_date: 4_102_444_800_000,
        key_bytes: Some(Bytes::copy_from_slice(&[secret; 8])),
    };
    ExportedBlockKeys {
        is_block_token_enabled: true,
        key_update_interval: 600_000,
        token_life_time: life_millis,
        current_key: key.clone(),
        all_keys: vec![key],
    }
}

/// What a NameNode with these keys hands out.
pub fn made_with(keys: &ExportedBlockKeys, id: i64, access: Access) -> Token {
    let tokens = BlockTokens::new(settings());
    tokens.agree(true).expect("the first to say");
    tokens.take_keys(&pool(), keys, true).expect("few");
    tokens.make(&block(id, 1001), access).expect("a key")
}

fn good(id: i64, mode: AccessMode) -> Token {
    made_with(&keys(1, 600_000), id, Access::to(mode))
}

async fn node() -> Node {
    Node::with_tokens(&keys(1, 600_000)).await
}

/// The block's bytes, or how the request was refused.
async fn read(node: &Node, id: i64, len: u64, token: Token) -> Result<Vec<u8>, Status> {
    let mut client = Client::connect(node).await;
    let request = pb::OpReadBlock {
        header: transfer::client_header(&block(id, 1001), token, "client"),
        offset: 0,
        len,
        ..pb::OpReadBlock::default()
    };
    client.request(&request).await;
    let answer = client.response().await.expect("answered");
    if answer.outcome() != Status::Success {
        assert!(client.rest().await.is_empty(), "and then closed");
        return Err(answer.outcome());
    }
    Ok(client.packets(crc32c(), 0).await.expect("all of it"))
}

fn write_of(node: &Node, id: i64, token: Token) -> pb::OpWriteBlock {
    let stage = Stage::PipelineSetupCreate;
    let mut request = write_request(&block(id, 1001), &[node], stage, crc32c());
    request.header.base_header.token = Some(token);
    request
}

/// Writes the block through `nodes`, as a client with a good token does.
async fn written(nodes: &[&Node], id: i64, data: &[u8]) {
    let stage = Stage::PipelineSetupCreate;
    let mut request = write_request(&block(id, 1001), nodes, stage, crc32c());
    request.header.base_header.token = Some(good(id, AccessMode::Write));
    let begun = Pipeline::set_up(nodes[0], &request).await;
    let mut pipeline = begun.expect("the pipeline is set up");
    pipeline.write(data, 65_024, nodes.len()).await;
    pipeline.close(nodes.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_needs_a_token_of_this_key_block_time_and_mode() {
    let node = node().await;
    let data = pattern(100_000);
    written(&[&node], 1, &data).await;
    let reader = good(1, AccessMode::Read);
    assert_eq!(read(&node, 1, 100_000, reader.clone()).await, Ok(data));
    let mut altered = reader.clone();
    altered.password = Bytes::copy_from_slice(&[0; 20]);
    let mut cut = reader.clone();
    cut.password = reader.password.slice(..19);
    let mut other_user = reader.clone();
    let mut bytes = reader.identifier.to_vec();
    let at = bytes
        .windows(4)
        .position(|four| four == b"hdfs")
        .expect("there");
    bytes[at..at + 4].copy_from_slice(b"root");
    other_user.identifier = bytes.into();
    let expired = made_with(&keys(1, 0), 1, Access::to(AccessMode::Read));
    tokio::time::sleep(Duration::from_millis(5)).await;
    let forged = made_with(&keys(2, 600_000), 1, Access::to(AccessMode::Read));
    for (what, token) in [
        ("none", Token::default()),
        ("its password altered", altered),
        ("its password cut", cut),
        ("its identifier altered", other_user),
        ("expired", expired),
        ("of another key", forged),
        ("of another block", good(2, AccessMode::Read)),
        ("of a writer", good(1, AccessMode::Write)),
    ] {
        let refused = read(&node, 1, 100_000, token).await;
        assert_eq!(refused, Err(Status::ErrorAccessToken), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_writer_hears_which_node_refused_and_leaves_nothing() {
    let node = node().await;
    for token in [Token::default(), good(1, AccessMode::Read)] {
        let mut client = Client::connect(&node).await;
        client.request(&write_of(&node, 1, token)).await;
        let answer = client.response().await.expect("answered");
        assert_eq!(answer.outcome(), Status::ErrorAccessToken);
        assert_eq!(answer.first_bad_link(), node.id.xfer_addr());
        assert_eq!(answer.message(), "");
        assert!(client.rest().await.is_empty());
    }
    assert!(node.store.replica(&pool(), 1).is_none());
    assert_eq!(node.said(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_token_takes_no_thread_of_a_logs_writer() {
    let node = node().await;
    node.x.log_writers().wrote("client", 64, 64);
    node.notes.ready.send_replace(false);
    let mut stranger = Client::connect(&node).await;
    stranger
        .request(&write_of(&node, 1, Token::default()))
        .await;
    let waits = |node: &Node| node.notes.ready.receiver_count() > 0;
    node.until("its token is looked at", waits).await;
    assert_eq!(node.x.log_writers().running(), 0);
    node.notes.ready.send_replace(true);
    let answer = stranger.response().await.expect("answered");
    assert_eq!(answer.outcome(), Status::ErrorAccessToken);
    let request = write_of(&node, 1, good(1, AccessMode::Write));
    let begun = Pipeline::set_up(&node, &request).await;
    let pipeline = begun.expect("the pipeline is set up");
    assert_eq!(node.x.log_writers().running(), 1);
    pipeline.close(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_node_hears_nothing() {
    let node = node().await;
    let mut client = Client::connect(&node).await;
    let mut request = write_of(&node, 1, Token::default());
    request.header.client_name.clear();
    client.request(&request).await;
    assert!(client.rest().await.is_empty());
    assert!(node.store.replica(&pool(), 1).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_needs_the_storages_of_all_nodes() {
    let node = node().await;
    let access = |types: &[StorageType], ids: &[&str]| Access {
        mode: AccessMode::Write,
        storage_types: types.to_vec(),
        storage_ids: ids.iter().map(|&id| id.to_owned()).collect(),
    };
    let keys = keys(1, 600_000);
    let disk = StorageType::Disk;
    for (id, access, allowed) in [
        (10, access(&[StorageType::Ssd], &[]), false),
        (11, access(&[disk], &["elsewhere"]), true),
        (12, access(&[StorageType::Ssd, disk], &[]), true),
        (13, access(&[], &[]), true),
    ] {
        let mut client = Client::connect(&node).await;
        let token = made_with(&keys, id, access.clone());
        client.request(&write_of(&node, id, token)).await;
        let answer = client.response().await.expect("answered");
        let refused = answer.outcome() == Status::ErrorAccessToken;
        assert_eq!(!refused, allowed, "{access:?}");
    }
    // Two nodes of one type need it twice, and ids that come with targets are looked at.
    for (id, access) in [
        (2, access(&[disk], &[])),
        (3, access(&[disk, disk], &["a", "c"])),
    ] {
        let mut request = write_of(&node, id, made_with(&keys, id, access));
        request.targets = vec![node.info()];
        request.target_storage_types = vec![disk.into()];
        request.storage_id = Some("a".to_owned());
        request.target_storage_ids = vec!["b".to_owned()];
        let mut client = Client::connect(&node).await;
        client.request(&request).await;
        let answer = client.response().await.expect("answered");
        assert_eq!(answer.outcome(), Status::ErrorAccessToken);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_with_a_block_asks_for_its_token() {
    let node = node().await;
    written(&[&node], 1, &pattern(1000)).await;
    let header = || transfer::base_header(&block(1, 1001), good(1, AccessMode::Write));
    let with_client = || pb::ClientOperationHeader {
        base_header: header(),
        client_name: "client".to_owned(),
    };
    let mut client = Client::connect(&node).await;
    let copy = pb::OpCopyBlock { header: header() };
    client.request(&copy).await;
    refused(client).await;
    let mut client = Client::connect(&node).await;
    let replace = pb::OpReplaceBlock {
        header: header(),
        source: node.info(),
        storage_type: Some(StorageType::Disk.into()),
        ..pb::OpReplaceBlock::default()
    };
    client.request(&replace).await;
    refused(client).await;
    let mut client = Client::connect(&node).await;
    let checksum = pb::OpBlockChecksum {
        header: header(),
        ..pb::OpBlockChecksum::default()
    };
    client.request(&checksum).await;
    refused(client).await;
    let mut client = Client::connect(&node).await;
    let group = pb::OpBlockGroupChecksum {
        header: header(),
        ..pb::OpBlockGroupChecksum::default()
    };
    client.request(&group).await;
    refused(client).await;
    let mut client = Client::connect(&node).await;
    let transfer = pb::OpTransferBlock {
        header: with_client(),
        targets: vec![node.info()],
        target_storage_types: vec![StorageType::Disk.into()],
        ..pb::OpTransferBlock::default()
    };
    client.request(&transfer).await;
    refused(client).await;
}

/// A checksum of what is decoded from block 17, asked with the token of block 16.
fn of_a_neighbour(holder: DatanodeInfo, token: Token) -> pb::OpBlockGroupChecksum {
    let mut own = block(16, 1001);
    own.block.num_bytes = 1000;
    pb::OpBlockGroupChecksum {
        header: transfer::base_header(&own, good(16, AccessMode::Read)),
        datanodes: infos([holder].into_iter()),
        block_tokens: vec![token],
        ec_policy: policy("rs", 1, 1, 4096),
        block_indices: vec![1],
        requested_num_bytes: 1,
        ..pb::OpBlockGroupChecksum::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_checksum_is_of_no_block_that_its_client_may_not_read() {
    let node = node().await;
    written(&[&node], 17, &pattern(1000)).await;
    let neighbour = good(17, AccessMode::Read);
    let expired = made_with(&keys(1, 0), 17, Access::to(AccessMode::Read));
    tokio::time::sleep(Duration::from_millis(5)).await;
    for (token, status) in [
        (Token::default(), Status::Error),
        (good(17, AccessMode::Write), Status::Error),
        (good(16, AccessMode::Read), Status::Error),
        (expired, Status::Error),
        (neighbour.clone(), Status::Success),
    ] {
        let mut client = Client::connect(&node).await;
        client.request(&of_a_neighbour(node.info(), token)).await;
        let answer = client.response().await.expect("answered");
        assert_eq!(answer.outcome(), status, "{}", answer.message());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_checksum_gives_no_token_of_the_node_away() {
    let node = node().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut elsewhere = node.info();
    elsewhere.id.datanode_uuid = "elsewhere".to_owned();
    elsewhere.id.xfer_port = listener.local_addr().expect("bound").port().into();
    let own = good(17, AccessMode::Read);
    let mut client = Client::connect(&node).await;
    client
        .request(&of_a_neighbour(elsewhere.clone(), own.clone()))
        .await;
    let (mut stream, _) = listener.accept().await.expect("asked");
    let mut came = BytesMut::new();
    let asked = loop {
        if let Some(asked) = transfer::decode_request(&mut came).expect("a request") {
            break asked;
        }
        stream.read_buf(&mut came).await.expect("more");
    };
    let OpRequest::ReadBlock(asked) = asked else {
        panic!("{asked:?}");
    };
    assert_eq!(asked.message.header.base_header.token, Some(own));
    drop((stream, client));
    let mut client = Client::connect(&node).await;
    client
        .request(&of_a_neighbour(elsewhere, Token::default()))
        .await;
    let answer = client.response().await.expect("answered");
    assert_eq!(answer.outcome(), Status::Error);
    let called = tokio::time::timeout(Duration::from_millis(100), listener.accept());
    assert!(
        called.await.is_err(),
        "the node went there in a stranger's name"
    );
}

async fn refused(mut client: Client) {
    let answer = client.response().await.expect("answered");
    assert_eq!(answer.outcome(), Status::ErrorAccessToken);
    assert_eq!(answer.first_bad_link(), "");
    assert!(client.rest().await.is_empty(), "and then closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_and_pipelines_carry_tokens_of_their_own() {
    let (source, target, mirror) = (node().await, node().await, node().await);
    let data = pattern(300_000);
    written(&[&source, &mirror], 1, &data).await;
    let mut wanted = block(1, 1001);
    wanted.block.num_bytes = 300_000;
    let targets = Targets {
        nodes: vec![target.info()],
        types: vec![StorageType::Disk.into()],
        storage_ids: vec!["DS-any".to_owned()],
    };
    transfer_block(&source.x, &wanted, targets)
        .await
        .expect("sent");
    for node in [&target, &mirror] {
        node.until_received(1, 300_000).await;
        let token = good(1, AccessMode::Read);
        assert_eq!(read(node, 1, 300_000, token).await, Ok(data.clone()));
    }
    // Keys of another cluster: the copy is refused, silently.
    let stranger = Node::with_tokens(&keys(9, 600_000)).await;
    let targets = Targets {
        nodes: vec![stranger.info()],
        ..Targets::default()
    };
    let _sent_or_cut_off = transfer_block(&source.x, &wanted, targets).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(stranger.store.replica(&pool(), 1).is_none());
}
