//! Next nodes that take part in a pipeline only as far as a test wants.

use bytes::BytesMut;
use hayloft_wire::ack::UNKNOWN_SEQNO;
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::frame;
use hayloft_wire::ids::ReplicaState;
use hayloft_wire::packet::PacketParser;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::transfer::{self, BlockOpResponse, OpRequest, Stage, Status};
use tokio::net::TcpListener;

use super::client::{Client, Pipeline, statuses, write_request};
use super::node::{Node, Said};
use super::{block, crc32c, pattern, pool};

/// A node's port without the node.
struct Mirror(TcpListener);

impl Mirror {
    async fn listen() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.expect("a free port"))
    }

    /// Puts this one behind `node` in the request.
    fn join(&self, node: &Node, request: &mut pb::OpWriteBlock) {
        let mut target = node.info();
        target.id.xfer_port = self.0.local_addr().expect("bound").port().into();
        request.targets.push(target);
        request.target_storage_types.push(1);
        request.pipeline_size += 1;
    }

    async fn accept(&self) -> Client {
        let (stream, _) = self.0.accept().await.expect("the node connects");
        Client {
            stream,
            inbox: BytesMut::new(),
        }
    }

    /// Takes the request and answers that all is well.
    async fn set_up(&self) -> Client {
        let mut upstream = self.accept().await;
        let request = upstream.read(transfer::decode_request).await;
        assert!(matches!(request, Some(OpRequest::WriteBlock(_))));
        let fine = BlockOpResponse::pipeline(Status::Success, "");
        upstream.send(&frame::delimited(&fine)).await;
        upstream
    }
}

/// Takes packets up to number `last`, and acknowledges none.
async fn swallow(upstream: &mut Client, last: i64) {
    let parser = PacketParser::default();
    loop {
        let packet = upstream.read(|buf| parser.parse(buf)).await;
        if packet.expect("the node sends on").header.seqno == last {
            return;
        }
    }
}

/// Sets up a pipeline of `node` and `mirror`; both ends of it.
async fn pipeline_of(
    node: &Node,
    mirror: &Mirror,
    mut request: pb::OpWriteBlock,
) -> (Pipeline, Client) {
    mirror.join(node, &mut request);
    let (pipeline, upstream) =
        futures_util::future::join(Pipeline::set_up(node, &request), mirror.set_up()).await;
    (pipeline.expect("set up"), upstream)
}

async fn until_idle(node: &Node) {
    node.until("all connections ended", |node| {
        node.x.stats().xceivers() == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_closes_instead_of_acknowledging_the_last_packet_ends_the_write() {
    let (node, mirror) = (Node::start().await, Mirror::listen().await);
    let create = Stage::PipelineSetupCreate;
    let request = write_request(&block(1, 1001), &[&node], create, crc32c());
    let (mut pipeline, mut upstream) = pipeline_of(&node, &mirror, request).await;
    pipeline.send(&pattern(512), false).await;
    pipeline.send_raw(512, &[], &[], false, true).await;
    swallow(&mut upstream, 1).await;
    node.until_received(1, 512).await;
    drop(upstream);
    let ack = pipeline.client.ack().await.expect("told");
    assert_eq!(
        (ack.seqno, statuses(&ack)),
        (UNKNOWN_SEQNO, vec![Status::Success, Status::Error])
    );
    assert!(pipeline.client.ack().await.is_none(), "then it closes");
    until_idle(&node).await; // The client's end is still open.
    let replica = node.store.replica(&pool(), 1).expect("kept");
    assert_eq!(replica.state, ReplicaState::Finalized);
    drop(pipeline);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_packet_after_the_mirror_was_mourned_ends_the_write_too() {
    let (node, mirror) = (Node::start().await, Mirror::listen().await);
    let create = Stage::PipelineSetupCreate;
    let request = write_request(&block(2, 1001), &[&node], create, crc32c());
    let (mut pipeline, upstream) = pipeline_of(&node, &mirror, request).await;
    drop(upstream);
    let ack = pipeline.client.ack().await.expect("told");
    assert_eq!(statuses(&ack), [Status::Success, Status::Error]);
    pipeline.send(&pattern(512), false).await;
    pipeline.send_raw(512, &[], &[], false, true).await;
    assert!(pipeline.client.ack().await.is_none(), "told once");
    until_idle(&node).await;
    drop(pipeline);
}

/// A pipeline that appends with another checksum than the replica has: then a node in the middle checks
/// packets as well.
async fn appending(node: &Node, mirror: &Mirror, id: i64) -> (Pipeline, Client) {
    let crc32 = DataChecksum::new(ChecksumKind::Crc32, 512).expect("valid");
    let create = Stage::PipelineSetupCreate;
    let request = write_request(&block(id, 1001), &[node], create, crc32);
    let mut first = Pipeline::set_up(node, &request).await.expect("set up");
    first.write(&pattern(512), 512, 1).await;
    first.close(1).await;
    let mut old = block(id, 1001);
    old.block.num_bytes = 512;
    let mut request = write_request(&old, &[node], Stage::PipelineSetupAppend, crc32c());
    request.latest_generation_stamp = 1002;
    request.min_bytes_rcvd = 512;
    request.max_bytes_rcvd = 512;
    let (mut pipeline, upstream) = pipeline_of(node, mirror, request).await;
    pipeline.offset = 512;
    (pipeline, upstream)
}

#[tokio::test(flavor = "multi_thread")]
async fn corruption_behind_packets_that_nobody_will_acknowledge_is_told() {
    let (node, mirror) = (Node::start().await, Mirror::listen().await);
    let (mut pipeline, mut upstream) = appending(&node, &mirror, 3).await;
    pipeline.send(&pattern(512), false).await;
    pipeline
        .send_raw(1024, &pattern(512), &[1, 2, 3, 4], false, false)
        .await;
    swallow(&mut upstream, 1).await;
    node.until("the good packet is written", |node| {
        let replica = node.store.replica(&pool(), 3).expect("being written");
        replica.bytes_on_disk == 1024
    })
    .await;
    // Long enough for the responder to have nothing left to wait for but the mirror.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    drop(upstream);
    let ack = pipeline.client.ack().await.expect("told");
    assert_eq!(statuses(&ack), [Status::Success, Status::Error]);
    let ack = pipeline.client.ack().await.expect("told");
    assert_eq!(
        (ack.seqno, statuses(&ack)),
        (1, vec![Status::ErrorChecksum])
    );
    assert!(pipeline.client.ack().await.is_none(), "then it closes");
    until_idle(&node).await;
    drop(pipeline);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_after_corrupt_data_is_noticed() {
    let (node, mirror) = (Node::start().await, Mirror::listen().await);
    let (mut pipeline, mut upstream) = appending(&node, &mirror, 4).await;
    pipeline.send(&pattern(512), false).await;
    pipeline
        .send_raw(1024, &pattern(512), &[1, 2, 3, 4], false, false)
        .await;
    swallow(&mut upstream, 1).await;
    drop(pipeline);
    until_idle(&node).await; // The mirror's end is still open.
    drop(upstream);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_waits_for_a_silent_mirror_can_be_taken_over() {
    let (node, mirror) = (Node::start().await, Mirror::listen().await);
    let create = Stage::PipelineSetupCreate;
    let mut request = write_request(&block(5, 1001), &[&node], create, crc32c());
    mirror.join(&node, &mut request);
    let mut first = Client::connect(&node).await;
    first.request(&request).await;
    let silent = mirror.accept().await;
    assert!(matches!(&node.said()[0], Said::Receiving(b) if b.block.id == 5));
    let recovery = Stage::PipelineSetupStreamingRecovery;
    let mut request = write_request(&block(5, 1001), &[&node], recovery, crc32c());
    request.latest_generation_stamp = 1002;
    let mut second = Pipeline::set_up(&node, &request).await.expect("taken over");
    assert!(first.response().await.is_none(), "the first one is closed");
    second.write(&pattern(512), 512, 1).await;
    second.close(1).await;
    until_idle(&node).await;
    drop(silent);
}
