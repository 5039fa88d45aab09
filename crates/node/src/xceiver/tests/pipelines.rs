//! Pipelines that work, in every stage.

use std::time::Duration;

use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::{ReplicaState, StorageType};
use hayloft_wire::pipeline_ack::{Ecn, Slow};
use hayloft_wire::transfer::{Stage, Status};

use super::super::{Activity, Settings};
use super::client::{Pipeline, read, statuses, write_request};
use super::node::{Node, Said};
use super::{block, crc32c, pattern, pool};

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_take_a_block_and_give_it_back() {
    let nodes = [
        Node::start().await,
        Node::start().await,
        Node::start().await,
    ];
    let data = pattern(1_000_000);
    let mut pipeline = Pipeline::create(1, 1001, &[&nodes[0], &nodes[1], &nodes[2]]).await;
    pipeline.write(&data, 65_024, 3).await;
    pipeline.close(3).await;
    for node in &nodes {
        node.until_received(1, 1_000_000).await;
        assert!(matches!(&node.said()[0], Said::Receiving(b) if b.block.id == 1));
        assert_eq!(
            read(node, &block(1, 1001), 0, 1_000_000).await,
            Ok(data.clone())
        );
    }
}

/// A pipeline of one node whose NameNode takes no report, and the last packet on its way.
async fn closing(report_before_ack: Duration) -> (Node, Pipeline) {
    let settings = Settings {
        report_before_ack,
        ..Settings::default()
    };
    let node = Node::with(settings, &[StorageType::Disk]).await;
    node.notes.hears.send_replace(false);
    let mut pipeline = Pipeline::create(7, 1001, &[&node]).await;
    pipeline.write(&pattern(1000), 65_024, 1).await;
    let at = pipeline.offset;
    pipeline.send_raw(at, &[], &[], false, true).await;
    (node, pipeline)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_packet_is_acknowledged_when_the_namenode_has_heard_of_the_block() {
    let (node, mut pipeline) = closing(Duration::from_secs(3600)).await;
    node.until_received(7, 1000).await;
    let early = tokio::time::timeout(Duration::from_millis(200), pipeline.client.ack()).await;
    assert!(early.is_err(), "acknowledged before the report: {early:?}");
    node.notes.hears.send_replace(true);
    pipeline.acked(pipeline.seqno - 1, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namenode_that_takes_no_report_delays_the_last_acknowledgement_no_longer_than_allowed() {
    let (node, mut pipeline) = closing(Duration::from_millis(50)).await;
    pipeline.acked(pipeline.seqno - 1, 1).await;
    assert!(matches!(node.said().last(), Some(Said::Waits(b, limit))
        if b.block.id == 7 && *limit == Duration::from_millis(50)));
    let (node, mut pipeline) = closing(Duration::ZERO).await;
    pipeline.acked(pipeline.seqno - 1, 1).await;
    assert!(
        !node
            .said()
            .iter()
            .any(|said| matches!(said, Said::Waits(..))),
        "zero does not wait"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_sent_without_waiting_are_acknowledged_in_order() {
    let nodes = [Node::start().await, Node::start().await];
    let data = pattern(20 * 65_024);
    let mut pipeline = Pipeline::create(2, 1001, &[&nodes[0], &nodes[1]]).await;
    for piece in data.chunks(65_024) {
        pipeline.send(piece, false).await;
    }
    for seqno in 0..20 {
        pipeline.acked(seqno, 2).await;
    }
    pipeline.close(2).await;
    assert_eq!(
        read(&nodes[1], &block(2, 1001), 0, data.len() as u64).await,
        Ok(data)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_bytes_are_visible_at_once_and_partial_chunks_are_sent_again() {
    let node = Node::start().await;
    let data = pattern(3000);
    let mut pipeline = Pipeline::create(3, 1001, &[&node]).await;
    // As after three hflushes: each packet starts again at the chunk that was left unfinished.
    for end in [100_usize, 700, 1500, 3000] {
        let from = pipeline.offset - pipeline.offset % 512;
        let start = usize::try_from(from).expect("small");
        pipeline.send_at(from, &data[start..end], end == 700).await;
        pipeline.offset = end as u64;
        pipeline.acked(pipeline.seqno - 1, 1).await;
        assert_eq!(
            read(&node, &block(3, 1001), 0, end as u64).await,
            Ok(data[..end].to_vec()),
            "up to {end}"
        );
    }
    pipeline.heartbeat().await;
    pipeline.acked(-1, 1).await;
    pipeline.close(1).await;
    assert_eq!(read(&node, &block(3, 1001), 0, 3000).await, Ok(data));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_checksum_and_chunk_size() {
    let node = Node::start().await;
    let data = pattern(10_000);
    let mut id = 100;
    for kind in [
        ChecksumKind::Null,
        ChecksumKind::Crc32,
        ChecksumKind::Crc32c,
    ] {
        for chunk in [1, 7, 512, 4096, 1 << 20] {
            let checksum = DataChecksum::new(kind, chunk).expect("valid");
            let request = write_request(
                &block(id, 1001),
                &[&node],
                Stage::PipelineSetupCreate,
                checksum,
            );
            let mut pipeline = Pipeline::set_up(&node, &request).await.expect("set up");
            let packet = (4000 / chunk as usize).max(1) * chunk as usize;
            pipeline.write(&data, packet, 1).await;
            pipeline.close(1).await;
            assert_eq!(
                read(&node, &block(id, 1001), 0, 10_000).await,
                Ok(data.clone()),
                "{checksum}"
            );
            assert_eq!(
                read(&node, &block(id, 1001), 4097, 3000).await,
                Ok(data[4097..7097].to_vec()),
                "{checksum}"
            );
            id += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn append_goes_on_inside_a_chunk() {
    let node = Node::start().await;
    let data = pattern(2000);
    let mut pipeline = Pipeline::create(4, 1001, &[&node]).await;
    pipeline.write(&data[..700], 700, 1).await;
    pipeline.close(1).await;
    let mut old = block(4, 1001);
    old.block.num_bytes = 700;
    let mut request = write_request(&old, &[&node], Stage::PipelineSetupAppend, crc32c());
    request.latest_generation_stamp = 1002;
    request.min_bytes_rcvd = 700;
    request.max_bytes_rcvd = 700;
    let mut pipeline = Pipeline::set_up(&node, &request).await.expect("set up");
    pipeline.offset = 700;
    // The rest of the chunk has a packet of its own.
    pipeline.write(&data[700..1024], 324, 1).await;
    pipeline.write(&data[1024..], 512, 1).await;
    pipeline.close(1).await;
    assert_eq!(read(&node, &block(4, 1002), 0, 2000).await, Ok(data));
    assert!(
        read(&node, &block(4, 1003), 0, 1).await.is_err(),
        "no replica has this generation stamp yet"
    );
}

/// Sets up the recovery of a failed append to block `id` of `len` bytes.
async fn recover_append(node: &Node, id: i64, old_gs: u64, new_gs: u64, len: u64) -> Pipeline {
    let mut old = block(id, old_gs);
    old.block.num_bytes = len;
    let mut request = write_request(&old, &[node], Stage::PipelineSetupAppendRecovery, crc32c());
    request.latest_generation_stamp = new_gs;
    request.min_bytes_rcvd = len;
    request.max_bytes_rcvd = len;
    let mut pipeline = Pipeline::set_up(node, &request).await.expect("recovered");
    pipeline.offset = len;
    pipeline
}

#[tokio::test(flavor = "multi_thread")]
async fn append_recovery_takes_finalized_replicas_and_those_of_a_writer_that_still_lives() {
    let node = Node::start().await;
    let data = pattern(3072);
    let mut pipeline = Pipeline::create(11, 1001, &[&node]).await;
    pipeline.write(&data[..1024], 512, 1).await;
    pipeline.close(1).await;
    // The append failed before it reached this node: the replica is still finalized.
    let mut first = recover_append(&node, 11, 1001, 1002, 1024).await;
    first.write(&data[1024..2048], 512, 1).await;
    // It failed once more, with this node's replica being written.
    let mut second = recover_append(&node, 11, 1002, 1003, 2048).await;
    let _goodbye = first.client.rest().await;
    second.write(&data[2048..], 512, 1).await;
    second.close(1).await;
    let told = |gs| {
        let said = node.said();
        said.iter().any(|said| {
            matches!(said, Said::Receiving(b) if b.block.id == 11 && b.block.generation_stamp == gs)
        })
    };
    assert!(told(1002) && told(1003), "{:?}", node.said());
    assert_eq!(read(&node, &block(11, 1003), 0, 3072).await, Ok(data));
}

#[tokio::test(flavor = "multi_thread")]
async fn streaming_recovery_takes_over_from_a_writer_that_still_lives() {
    let node = Node::start().await;
    let data = pattern(5000);
    let mut first = Pipeline::create(5, 1001, &[&node]).await;
    first.write(&data[..2048], 1024, 1).await;
    let mut request = write_request(
        &block(5, 1001),
        &[&node],
        Stage::PipelineSetupStreamingRecovery,
        crc32c(),
    );
    request.latest_generation_stamp = 1002;
    request.min_bytes_rcvd = 2048;
    request.max_bytes_rcvd = 2048;
    let mut second = Pipeline::set_up(&node, &request).await.expect("taken over");
    let _goodbye = first.client.rest().await;
    second.offset = 2048;
    second.write(&data[2048..], 1024, 1).await;
    second.close(1).await;
    assert_eq!(read(&node, &block(5, 1002), 0, 5000).await, Ok(data));
}

#[tokio::test(flavor = "multi_thread")]
async fn close_recovery_finalizes_without_data() {
    let settings = Settings {
        report_before_ack: Duration::from_secs(3600),
        ..Settings::default()
    };
    let node = Node::with(settings, &[StorageType::Disk]).await;
    let data = pattern(1000);
    let mut pipeline = Pipeline::create(6, 1001, &[&node]).await;
    pipeline.write(&data, 512, 1).await;
    drop(pipeline);
    node.notes.hears.send_replace(false);
    let mut request = write_request(
        &block(6, 1001),
        &[&node],
        Stage::PipelineCloseRecovery,
        crc32c(),
    );
    request.latest_generation_stamp = 1002;
    request.min_bytes_rcvd = 1000;
    request.max_bytes_rcvd = 1000;
    let answer = Pipeline::set_up(&node, &request);
    let mut answer = std::pin::pin!(answer);
    let early = tokio::time::timeout(Duration::from_millis(200), answer.as_mut()).await;
    assert!(early.is_err(), "answered before the report");
    node.until_received(6, 1000).await;
    node.notes.hears.send_replace(true);
    let mut pipeline = answer.await.expect("recovered");
    assert!(pipeline.client.rest().await.is_empty());
    let replica = node.store.replica(&pool(), 6).expect("there");
    assert_eq!(
        (replica.state, replica.block.block.generation_stamp),
        (ReplicaState::Finalized, 1002)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_for_upgrade_is_told_out_of_band() {
    let node = Node::start().await;
    let mut pipeline = Pipeline::create(7, 1001, &[&node]).await;
    pipeline.write(&pattern(100), 100, 1).await;
    let x = node.x.clone();
    let telling =
        tokio::spawn(async move { x.announce_restart(std::time::Duration::from_secs(5)).await });
    let ack = pipeline.client.ack().await.expect("told");
    assert_eq!((ack.seqno, statuses(&ack)), (-2, vec![Status::OobRestart]));
    drop(pipeline);
    telling.await.expect("no panic");
    assert_eq!(node.x.stats().now(Activity::Writer), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn congestion_and_slowness_are_told_when_asked_for() {
    let settings = Settings {
        ecn: true,
        congestion_ratio: 1e9,
        slow_flag: true,
        ..Settings::default()
    };
    let telling = Node::with(settings, &[StorageType::Disk]).await;
    let settings = Settings {
        ecn: true,
        congestion_ratio: -1.0,
        ..Settings::default()
    };
    let congested = Node::with(settings, &[StorageType::Disk]).await;
    let mut pipeline = Pipeline::create(8, 1001, &[&telling, &congested]).await;
    pipeline.send(&pattern(100), false).await;
    let ack = pipeline.client.ack().await.expect("acknowledged");
    let told: Vec<_> = ack.hops.iter().map(|hop| (hop.ecn(), hop.slow())).collect();
    assert_eq!(
        told,
        [
            (Ecn::Supported, Slow::Normal),
            (Ecn::Congested, Slow::Disabled)
        ]
    );
    pipeline.close(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_pushed_and_dropped_behind_a_writer_on_request() {
    let settings = Settings {
        sync_behind_writes: true,
        drop_behind_writes: true,
        drop_behind_reads: true,
        ..Settings::default()
    };
    let node = Node::with(settings, &[StorageType::Disk]).await;
    let data = pattern(20 << 20);
    let mut pipeline = Pipeline::create(9, 1001, &[&node]).await;
    pipeline.write(&data, 1 << 20, 1).await;
    pipeline.close(1).await;
    assert_eq!(
        read(&node, &block(9, 1001), 0, data.len() as u64).await,
        Ok(data.clone())
    );
    assert_eq!(
        read(&node, &block(9, 1001), 1000, 10 << 20)
            .await
            .as_deref(),
        Ok(&data[1000..1000 + (10 << 20)])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_the_namenode_calls_slow_says_so() {
    let settings = Settings {
        slow_flag: true,
        ..Settings::default()
    };
    let nodes = [
        Node::start().await,
        Node::with(settings, &[StorageType::Disk]).await,
    ];
    let mut pipeline = Pipeline::create(12, 1001, &[&nodes[0], &nodes[1]]).await;
    for (slow, expected) in [
        (false, Slow::Normal),
        (true, Slow::Slow),
        (false, Slow::Normal),
    ] {
        nodes[1]
            .notes
            .slow
            .store(slow, std::sync::atomic::Ordering::Relaxed);
        pipeline.send(&pattern(512), false).await;
        let ack = pipeline.client.ack().await.expect("acknowledged");
        let told: Vec<_> = ack.hops.iter().map(|hop| hop.slow()).collect();
        assert_eq!(told, [Slow::Disabled, expected]);
    }
    pipeline.close(2).await;
}

/// More streams than the memory for block data has room for, each with packets larger than the
/// usual ones. Readers that take nothing hold some of it.
#[tokio::test(flavor = "multi_thread")]
async fn many_streams_share_little_memory() {
    let settings = Settings {
        // Room is reserved for whole blocks.
        block_size_estimate: 2 << 20,
        ..Settings::default()
    };
    let node = async || Node::with(settings.clone(), &[StorageType::Disk]).await;
    let nodes = [node().await, node().await];
    let data = pattern(1_300_000);
    let mut first = Pipeline::create(1000, 1001, &[&nodes[0], &nodes[1]]).await;
    first.write(&data, 650_240, 2).await;
    first.close(2).await;
    let mut stuck = Vec::new();
    for _ in 0..20 {
        let mut client = super::client::Client::connect(&nodes[0]).await;
        client
            .request(&super::client::read_request(
                &block(1000, 1001),
                0,
                1_300_000,
                true,
            ))
            .await;
        stuck.push(client);
    }
    let mut half = Vec::new();
    for id in 0..20 {
        let mut pipeline = Pipeline::create(2000 + id, 1001, &[&nodes[0]]).await;
        pipeline.client.send(&[0, 9, 0, 0, 0, 25]).await; // The start of a packet of 576 KiB.
        half.push(pipeline);
    }
    let streams = (0..100).map(|id| {
        let (nodes, data) = (&nodes, &data);
        async move {
            let mut pipeline = Pipeline::create(id, 1001, &[&nodes[0], &nodes[1]]).await;
            for piece in data.chunks(650_240) {
                pipeline.send(piece, false).await;
            }
            for seqno in 0..pipeline.seqno {
                pipeline.acked(seqno, 2).await;
            }
            pipeline.close(2).await;
        }
    });
    futures_util::future::join_all(streams).await;
    for id in [0, 50, 99] {
        assert_eq!(
            read(&nodes[1], &block(id, 1001), 0, data.len() as u64).await,
            Ok(data.clone())
        );
    }
    assert_eq!((stuck.len(), half.len()), (20, 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_may_be_synced() {
    let node = Node::start().await;
    let data = pattern(1000);
    let mut pipeline = Pipeline::create(10, 1001, &[&node]).await;
    pipeline.write(&data, 512, 1).await;
    pipeline.send_raw(1000, &[], &[], true, true).await;
    pipeline.acked(2, 1).await;
    assert_eq!(read(&node, &block(10, 1001), 0, 1000).await, Ok(data));
}
