//! Next nodes that take part in a pipeline only as far as a test wants.

use bytes::BytesMut;
use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule, Faults};
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::frame;
use hayloft_wire::ids::ReplicaState;
use hayloft_wire::packet::PacketParser;
use hayloft_wire::pipeline_ack::{Hop, PipelineAck, UNKNOWN_SEQNO};
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::transfer::{self, BlockOpResponse, OpRequest, Stage, Status};
use tokio::net::TcpListener;
use tokio::time::Duration;

use super::super::Activity;
use super::client::{Client, Pipeline, read, statuses, write_request};
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

/// Acknowledges packet `seqno` as a last node does.
async fn acknowledge(upstream: &mut Client, seqno: i64, status: Status) {
    let mut out = BytesMut::new();
    PipelineAck::new(seqno, vec![Hop::of(status)], 0).encode(&mut out);
    upstream.send(&out).await;
}

async fn until_written(node: &Node, id: i64, len: u64) {
    node.until("written", |node| {
        node.store
            .replica(&pool(), id)
            .is_some_and(|replica| replica.bytes_on_disk == len)
    })
    .await;
}

/// Neither finalized nor told to the NameNode as such.
fn assert_still_being_written(node: &Node, id: i64) {
    let replica = node.store.replica(&pool(), id).expect("kept");
    assert_eq!(replica.state, ReplicaState::Rbw);
    let said = node.said();
    let received = |s: &Said| matches!(s, Said::Received { block, .. } if block.block.id == id);
    assert!(!said.iter().any(received), "{said:?}");
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
        node.x.stats().now(Activity::Connection) == 0
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
    until_written(&node, 1, 512).await;
    drop(upstream);
    let ack = pipeline.client.ack().await.expect("told");
    assert_eq!(
        (ack.seqno, statuses(&ack)),
        (UNKNOWN_SEQNO, vec![Status::Success, Status::Error])
    );
    assert!(pipeline.client.ack().await.is_none(), "then it closes");
    until_idle(&node).await; // The client's end is still open.
    assert_still_being_written(&node, 1);
    drop(pipeline);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_refuses_the_last_packet_keeps_the_replica_from_being_completed() {
    let (node, mirror) = (Node::start().await, Mirror::listen().await);
    let create = Stage::PipelineSetupCreate;
    let request = write_request(&block(6, 1001), &[&node], create, crc32c());
    let (mut pipeline, mut upstream) = pipeline_of(&node, &mirror, request).await;
    pipeline.send(&pattern(512), false).await;
    pipeline.send_raw(512, &[], &[], false, true).await;
    swallow(&mut upstream, 1).await;
    until_written(&node, 6, 512).await;
    acknowledge(&mut upstream, 0, Status::Success).await;
    pipeline.acked(0, 2).await;
    acknowledge(&mut upstream, 1, Status::Error).await;
    let ack = pipeline.client.ack().await.expect("told");
    assert_eq!(
        (ack.seqno, statuses(&ack)),
        (1, vec![Status::Success, Status::Error])
    );
    assert!(pipeline.client.ack().await.is_none(), "then it closes");
    until_idle(&node).await;
    assert_still_being_written(&node, 6);
    // The writer goes on without that mirror, and closes.
    let recovery = Stage::PipelineCloseRecovery;
    let mut request = write_request(&block(6, 1001), &[&node], recovery, crc32c());
    request.latest_generation_stamp = 1002;
    request.min_bytes_rcvd = 512;
    request.max_bytes_rcvd = 512;
    Pipeline::set_up(&node, &request).await.expect("recovered");
    node.until_received(6, 512).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replica_is_completed_when_a_slow_mirror_has_acknowledged_the_last_packet() {
    let (node, mirror) = (Node::start().await, Mirror::listen().await);
    let create = Stage::PipelineSetupCreate;
    let request = write_request(&block(7, 1001), &[&node], create, crc32c());
    let (mut pipeline, mut upstream) = pipeline_of(&node, &mirror, request).await;
    pipeline.send(&pattern(512), false).await;
    pipeline.send_raw(512, &[], &[], false, true).await;
    swallow(&mut upstream, 1).await;
    until_written(&node, 7, 512).await;
    acknowledge(&mut upstream, 0, Status::Success).await;
    pipeline.acked(0, 2).await;
    // Long enough for a node that does not wait to complete it.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_still_being_written(&node, 7);
    acknowledge(&mut upstream, 1, Status::Success).await;
    drop(upstream); // As a node does that has said everything.
    pipeline.acked(1, 2).await;
    let replica = node.store.replica(&pool(), 7).expect("kept");
    assert_eq!(replica.state, ReplicaState::Finalized);
    node.until_received(7, 512).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_waits_for_the_last_acknowledgement_of_a_mirror_can_be_taken_over() {
    let (node, mirror) = (Node::start().await, Mirror::listen().await);
    let create = Stage::PipelineSetupCreate;
    let request = write_request(&block(8, 1001), &[&node], create, crc32c());
    let (mut first, mut upstream) = pipeline_of(&node, &mirror, request).await;
    first.send(&pattern(512), false).await;
    first.send_raw(512, &[], &[], false, true).await;
    swallow(&mut upstream, 1).await;
    until_written(&node, 8, 512).await;
    let recovery = Stage::PipelineSetupStreamingRecovery;
    let mut request = write_request(&block(8, 1001), &[&node], recovery, crc32c());
    request.latest_generation_stamp = 1002;
    request.min_bytes_rcvd = 0;
    request.max_bytes_rcvd = 512;
    let mut second = Pipeline::set_up(&node, &request).await.expect("taken over");
    // Nothing was acknowledged: the writer sends all of it again.
    second.write(&pattern(1024), 512, 1).await;
    second.close(1).await;
    node.until_received(8, 1024).await;
    drop((first, upstream));
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

/// A pipeline that appends with another checksum than the replica has: then a node in the middle
/// checks packets as well.
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
async fn corruption_behind_packets_that_no_node_will_acknowledge_is_told() {
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

/// What belongs to no packet is passed on at once, as far as the writer takes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_floods_a_writer_that_reads_nothing_has_to_wait() {
    const FLOOD: usize = 32 << 20;
    let (node, mirror) = (Node::start().await, Mirror::listen().await);
    let create = Stage::PipelineSetupCreate;
    let request = write_request(&block(1, 1001), &[&node], create, crc32c());
    let (pipeline, mut upstream) = pipeline_of(&node, &mirror, request).await;
    let mut ack = BytesMut::new();
    PipelineAck::new(UNKNOWN_SEQNO, vec![Hop::of(Status::OobRestart)], 0).encode(&mut ack);
    let many = ack.repeat(1024);
    let stall = std::time::Duration::from_secs(1);
    let mut sent = 0;
    while tokio::time::timeout(stall, upstream.send(&many))
        .await
        .is_ok()
    {
        sent += many.len();
        assert!(sent < FLOOD, "the node takes all of it");
    }
    drop((pipeline, upstream));
    until_idle(&node).await;
}

/// As at Apache's node: a reader that has followed the last node finds no less at this one, however
/// far behind its disk is. What this node acknowledges waits for that.
#[tokio::test(flavor = "multi_thread")]
async fn what_all_nodes_behind_acknowledged_is_visible_before_this_disk_has_it() {
    let faults = Faults::new(1);
    let (node, mirror) = (Node::with_faults(&faults).await, Mirror::listen().await);
    let create = Stage::PipelineSetupCreate;
    let request = write_request(&block(8, 1001), &[&node], create, crc32c());
    let (mut pipeline, mut upstream) = pipeline_of(&node, &mirror, request).await;
    let slow = FaultRule::new(Effect::Delay(Duration::from_secs(2))).on(&[IoOp::Write]);
    let slow = faults.add(slow.at(|path| path.ends_with("blk_8")));
    let data = pattern(700);
    pipeline.send(&data, false).await;
    swallow(&mut upstream, 0).await;
    let there = || node.store.replica(&pool(), 8).expect("there");
    assert_eq!(there().visible_len, Some(0), "not before");
    acknowledge(&mut upstream, 0, Status::Success).await;
    node.until("visible", |_| there().visible_len == Some(700))
        .await;
    assert_eq!(there().bytes_on_disk, 0, "the disk is slow");
    // The reader waits for the disk, and the writer's acknowledgement as well.
    let read = read(&node, &block(8, 1001), 0, 700).await;
    assert_eq!(read, Ok(data));
    assert_eq!(faults.fired(slow), 1);
    pipeline.acked(0, 2).await;
}
