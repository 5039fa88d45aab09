//! Copies and moves between nodes.

use hayloft_wire::ids::{ReplicaState, StorageType};
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, Stage, Status};
use tokio::io::AsyncReadExt as _;

use hayloft_store::{PacketData, StoreShared, WriteOptions};

use super::super::{Activity, Settings, XceiverShared, transfer_block};
use super::client::{Client, Pipeline, read, write_request};
use super::node::{Node, Said};
use super::{block, crc32c, pattern, pool};
use crate::activity::{Count, Timed};
use crate::namenode::Targets;

async fn with_block(node: &Node, id: i64, data: &[u8]) {
    let mut pipeline = Pipeline::create(id, 1001, &[node]).await;
    pipeline.write(data, 65_024, 1).await;
    pipeline.close(1).await;
}

fn replace_request(
    id: i64,
    source: &Node,
    hint: &str,
    storage_type: StorageType,
) -> pb::OpReplaceBlock {
    pb::OpReplaceBlock {
        header: transfer::base_header(&block(id, 1001), Token::default()),
        del_hint: hint.to_owned(),
        source: source.info(),
        storage_type: Some(storage_type.into()),
        storage_id: None,
    }
}

/// The final answer, after any that say "in progress".
async fn outcome(client: &mut Client) -> transfer::BlockOpResponse {
    loop {
        let response = client.response().await.expect("answered");
        if response.outcome() != Status::InProgress {
            return response;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replication_to_a_chain() {
    let nodes = [
        Node::start().await,
        Node::start().await,
        Node::start().await,
    ];
    let data = pattern(2_500_000);
    with_block(&nodes[0], 1, &data).await;
    let mut wanted = block(1, 1001);
    wanted.block.num_bytes = data.len() as u64;
    let targets = Targets {
        nodes: vec![nodes[1].info(), nodes[2].info()],
        ..Targets::default()
    };
    transfer_block(&nodes[0].x, &wanted, targets)
        .await
        .expect("sent");
    for node in &nodes[1..] {
        node.until_received(1, data.len() as u64).await;
        assert!(
            !node
                .said()
                .iter()
                .any(|said| matches!(said, Said::Receiving(_))),
            "a copy is not announced"
        );
        assert_eq!(
            read(node, &wanted, 0, data.len() as u64).await,
            Ok(data.clone())
        );
    }
    assert_eq!(nodes[0].x.stats().now(Activity::Xmit), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_on_without_the_rest_of_its_chain() {
    let nodes = [Node::start().await, Node::start().await];
    let data = pattern(2_500_000);
    with_block(&nodes[0], 8, &data).await;
    let mut wanted = block(8, 1001);
    wanted.block.num_bytes = data.len() as u64;
    let next = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let next = next.expect("a free port");
    let mut third = nodes[1].info();
    third.id.xfer_port = next.local_addr().expect("bound").port().into();
    let targets = Targets {
        nodes: vec![nodes[1].info(), third],
        ..Targets::default()
    };
    // It takes the request and a little of the data, then it is gone.
    let goes_away = async {
        let (mut stream, _) = next.accept().await.expect("the node connects");
        let mut taken = [0; 100_000];
        stream.read_exact(&mut taken).await.expect("data");
    };
    let (sent, ()) = tokio::join!(transfer_block(&nodes[0].x, &wanted, targets), goes_away);
    sent.expect("sent");
    nodes[1].until_received(8, data.len() as u64).await;
    let copy = read(&nodes[1], &wanted, 0, data.len() as u64).await;
    assert_eq!(copy, Ok(data));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_adds_a_node_to_its_pipeline() {
    let nodes = [Node::start().await, Node::start().await];
    let data = pattern(5000);
    let mut pipeline = Pipeline::create(2, 1001, &[&nodes[0]]).await;
    pipeline.write(&data, 1024, 1).await;
    let request = pb::OpTransferBlock {
        header: transfer::client_header(&block(2, 1001), Token::default(), "client"),
        targets: vec![nodes[1].info()],
        target_storage_types: vec![1],
        target_storage_ids: Vec::new(),
    };
    let mut client = Client::connect(&nodes[0]).await;
    client.request(&request).await;
    assert_eq!(
        client.response().await.map(|r| r.outcome()),
        Some(Status::Success)
    );
    let replica = nodes[1].store.replica(&pool(), 2).expect("copied");
    assert_eq!(
        (replica.state, replica.bytes_on_disk),
        (ReplicaState::Rbw, 5000)
    );
    drop(pipeline);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_moves_from_node_to_node() {
    let nodes = [Node::start().await, Node::start().await];
    let data = pattern(1_500_000);
    with_block(&nodes[0], 3, &data).await;
    let mut client = Client::connect(&nodes[1]).await;
    client
        .request(&replace_request(
            3,
            &nodes[0],
            "the-old-one",
            StorageType::Disk,
        ))
        .await;
    assert_eq!(outcome(&mut client).await.outcome(), Status::Success);
    assert_eq!(
        read(&nodes[1], &block(3, 1001), 0, data.len() as u64).await,
        Ok(data)
    );
    let hints: Vec<_> = nodes[1]
        .said()
        .into_iter()
        .filter_map(|said| match said {
            Said::Received { hint, .. } => hint,
            _ => None,
        })
        .collect();
    assert_eq!(hints, ["the-old-one"]);
    let ops = |node: &Node, what| node.x.stats().activity.total(what).0;
    assert_eq!(ops(&nodes[0], Timed::CopyBlockOp), 1);
    assert_eq!(ops(&nodes[1], Timed::ReplaceBlockOp), 1);
    let moved = nodes[1].x.stats();
    let from_other = Count::ReplaceBlockOpToOtherHost;
    assert_eq!(moved.activity.count(from_other), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_moves_between_storages_of_one_node() {
    let node = Node::with(
        Settings::default(),
        &[StorageType::Disk, StorageType::Archive],
    )
    .await;
    let data = pattern(70_000);
    with_block(&node, 4, &data).await;
    let mut client = Client::connect(&node).await;
    client
        .request(&replace_request(4, &node, "", StorageType::Archive))
        .await;
    assert_eq!(outcome(&mut client).await.outcome(), Status::Success);
    let replica = node.store.replica(&pool(), 4).expect("still there");
    assert_eq!(replica.storage.storage_type, StorageType::Archive);
    assert_eq!(read(&node, &block(4, 1001), 0, 70_000).await, Ok(data));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_too_many_is_refused() {
    let nodes = [Node::start().await, Node::start().await];
    with_block(&nodes[0], 5, &pattern(100)).await;
    nodes[1].x.throttles().moves.set(0);
    let mut client = Client::connect(&nodes[1]).await;
    client
        .request(&replace_request(5, &nodes[0], "", StorageType::Disk))
        .await;
    assert_eq!(outcome(&mut client).await.outcome(), Status::Error);
    nodes[1].x.throttles().moves.set(1);
    nodes[0].x.throttles().moves.set(0);
    let mut client = Client::connect(&nodes[1]).await;
    client
        .request(&replace_request(5, &nodes[0], "", StorageType::Disk))
        .await;
    assert_eq!(outcome(&mut client).await.outcome(), Status::Error);
    assert!(
        nodes[1].store.replica(&pool(), 5).is_none(),
        "nothing is left of it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_slow_move_is_told_that_it_goes_on() {
    let source = Node::start().await;
    let settings = Settings {
        read_timeout: std::time::Duration::from_millis(600),
        ..Settings::default()
    };
    let target = Node::with(settings, &[StorageType::Disk]).await;
    let data = pattern(1_500_000);
    with_block(&source, 6, &data).await;
    target.x.throttles().balancer.set(500_000);
    let mut client = Client::connect(&target).await;
    client
        .request(&replace_request(6, &source, "", StorageType::Disk))
        .await;
    let first = client.response().await.expect("answered");
    assert_eq!(first.outcome(), Status::InProgress);
    assert_eq!(outcome(&mut client).await.outcome(), Status::Success);
    assert_eq!(
        read(&target, &block(6, 1001), 0, data.len() as u64).await,
        Ok(data)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_block_stays() {
    let settings = Settings {
        pinning: true,
        ..Settings::default()
    };
    let nodes = [
        Node::with(settings, &[StorageType::Disk]).await,
        Node::start().await,
    ];
    let mut request = write_request(
        &block(7, 1001),
        &[&nodes[0]],
        Stage::PipelineSetupCreate,
        crc32c(),
    );
    request.pinning = Some(true);
    let mut pipeline = Pipeline::set_up(&nodes[0], &request).await.expect("set up");
    pipeline.write(&pattern(100), 100, 1).await;
    pipeline.close(1).await;
    let mut client = Client::connect(&nodes[1]).await;
    client
        .request(&replace_request(7, &nodes[0], "", StorageType::Disk))
        .await;
    assert_eq!(
        outcome(&mut client).await.outcome(),
        Status::ErrorBlockPinned
    );
    assert!(nodes[1].store.replica(&pool(), 7).is_none());
}

/// Two virtual nodes; the first does not answer over the network.
async fn siblings(settings: &Settings) -> [Node; 2] {
    let process = (StoreShared::new(8 << 20), XceiverShared::new(0));
    let source = Node::sibling(&process, settings.clone()).await;
    source.kill();
    [source, Node::sibling(&process, settings.clone()).await]
}

fn inode(node: &Node, id: i64) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let facts = std::fs::metadata(node.file(&format!("blk_{id}")));
    facts.expect("there").ino()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_between_siblings_needs_no_network_and_copies_nothing() {
    let [source, target] = siblings(&Settings::default()).await;
    let data = pattern(2_500_000);
    put(&source, 5, &data, false).await;
    let hint = source.id.datanode_uuid.clone();
    let request = replace_request(5, &source, &hint, StorageType::Disk);
    let mut client = Client::connect(&target).await;
    client.request(&request).await;
    assert_eq!(outcome(&mut client).await.outcome(), Status::Success);
    assert_eq!(inode(&source, 5), inode(&target, 5));
    let whole = block(5, 1001);
    assert_eq!(
        read(&target, &whole, 0, data.len() as u64).await,
        Ok(data.clone())
    );
    let mut moved = whole.clone();
    moved.block.num_bytes = data.len() as u64;
    assert_eq!(
        target.said(),
        [Said::Received {
            block: moved,
            hint: Some(hint)
        }]
    );
    assert_eq!(source.x.stats().bytes_read.get(), 0);
    // A second time it is there already.
    let mut client = Client::connect(&target).await;
    client.request(&request).await;
    let refused = outcome(&mut client).await;
    assert_eq!(refused.outcome(), Status::Error);
    assert!(
        refused.message().contains("is here already"),
        "{}",
        refused.message()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_replica_stays_with_its_sibling() {
    let settings = Settings {
        pinning: true,
        ..Settings::default()
    };
    let [source, target] = siblings(&settings).await;
    put(&source, 6, &pattern(1000), true).await;
    let request = replace_request(6, &source, "", StorageType::Disk);
    let mut client = Client::connect(&target).await;
    client.request(&request).await;
    assert_eq!(
        outcome(&mut client).await.outcome(),
        Status::ErrorBlockPinned
    );
    assert!(target.said().is_empty());
}

/// Writes a finalized replica past the network.
async fn put(node: &Node, id: i64, data: &[u8], pinned: bool) {
    let options = WriteOptions {
        pinned,
        ..WriteOptions::default()
    };
    let writer = node.store.create_rbw(&block(id, 1001), options).await;
    let mut writer = writer.expect("created");
    writer.set_checksum(crc32c()).await.expect("a header");
    let mut sums = Vec::new();
    crc32c().compute(data, &mut sums);
    let packet = PacketData::new(crc32c(), 0, data.to_vec().into(), sums.into());
    writer
        .write(vec![packet.expect("agrees")])
        .await
        .expect("written");
    writer.finalize().await.expect("finalized");
}
