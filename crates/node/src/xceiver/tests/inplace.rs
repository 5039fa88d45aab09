//! Streams at full speed, whose packets are received in place, and everything that surprises the
//! guess.

use bytes::BytesMut;
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::StorageType;
use hayloft_wire::packet::{PacketHeader, encode_packet};
use hayloft_wire::pipeline_ack::{PipelineAck, UNKNOWN_SEQNO};
use hayloft_wire::transfer::{Stage, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::Activity;
use super::super::settings::Settings;
use super::client::{Pipeline, read, statuses, write_request};
use super::node::{Node, Said};
use super::{block, crc32c, pattern};

/// The bytes of packets, one after the other.
struct Stream {
    checksum: DataChecksum,
    bytes: BytesMut,
    seqno: i64,
}

impl Stream {
    fn new(checksum: DataChecksum) -> Self {
        Self {
            checksum,
            bytes: BytesMut::new(),
            seqno: 0,
        }
    }

    fn packet(&mut self, offset: usize, data: &[u8], sync: bool, last: bool) {
        let mut sums = Vec::new();
        self.checksum.compute(data, &mut sums);
        let header = PacketHeader {
            offset_in_block: offset as u64,
            seqno: self.seqno,
            last_packet_in_block: last,
            data_len: u32::try_from(data.len()).expect("small"),
            sync_block: sync,
        };
        self.seqno += 1;
        encode_packet(&header, &sums, data, &mut self.bytes);
    }

    /// `data` from `from` on, in packets of `size`.
    fn packets(&mut self, data: &[u8], from: usize, size: usize) {
        for (number, piece) in data[from..].chunks(size).enumerate() {
            self.packet(from + number * size, piece, false, false);
        }
    }

    fn heartbeat(&mut self) {
        let header = PacketHeader {
            seqno: -1,
            ..PacketHeader::default()
        };
        encode_packet(&header, &[], &[], &mut self.bytes);
    }
}

/// A node that writes aligned runs.
async fn around_cache() -> Node {
    Node::with_engine("direct", Settings::default(), &[StorageType::Disk]).await
}

/// Sends the stream in parts of `part` bytes, with pauses now and then, while the acknowledgements
/// are read. Returns those that came before the node closed or `expected` were there.
async fn send(
    pipeline: &mut Pipeline,
    stream: &[u8],
    part: usize,
    expected: usize,
) -> Vec<PipelineAck> {
    let (mut from, mut to) = pipeline.client.stream.split();
    let sending = async {
        for (number, part) in stream.chunks(part).enumerate() {
            if to.write_all(part).await.is_err() {
                return; // The node gave up.
            }
            if number % 40 == 39 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
    };
    let inbox = &mut pipeline.client.inbox;
    let hearing = async {
        let mut acks = Vec::new();
        while acks.len() < expected {
            if let Some(ack) = PipelineAck::decode(inbox).expect("sense") {
                acks.push(ack);
                continue;
            }
            match from.read_buf(inbox).await {
                Ok(n) if n > 0 => {}
                _ => break,
            }
        }
        acks
    };
    let both = futures_util::future::join(sending, hearing);
    let limit = std::time::Duration::from_secs(30);
    tokio::time::timeout(limit, both).await.expect("in time").1
}

fn all_fine(acks: &[PipelineAck], packets: i64, hops: usize) {
    let seqnos: Vec<i64> = acks
        .iter()
        .map(|ack| ack.seqno)
        .filter(|n| *n >= 0)
        .collect();
    assert_eq!(seqnos, (0..packets).collect::<Vec<_>>());
    for ack in acks {
        assert_eq!(statuses(ack), vec![Status::Success; hops], "{}", ack.seqno);
    }
}

/// A whole block as one stream; the nodes hold it afterwards.
async fn whole(nodes: &[&Node], id: i64, checksum: DataChecksum, packet: usize, part: usize) {
    let data = pattern(40 * packet.min(100_000) + 1000);
    let mut stream = Stream::new(checksum);
    stream.packets(&data, 0, packet);
    stream.packet(data.len(), &[], false, true);
    let request = write_request(
        &block(id, 1001),
        nodes,
        Stage::PipelineSetupCreate,
        checksum,
    );
    let mut pipeline = Pipeline::set_up(nodes[0], &request).await.expect("set up");
    let packets = usize::try_from(stream.seqno).expect("few");
    let acks = send(&mut pipeline, &stream.bytes, part, packets).await;
    all_fine(&acks, stream.seqno, nodes.len());
    for node in nodes {
        let len = data.len() as u64;
        node.until_received(id, len).await;
        assert_eq!(
            read(node, &block(id, 1001), 0, len).await,
            Ok(data.clone()),
            "{checksum} {packet} {part}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_every_shape_arrive_in_whatever_parts() {
    let node = around_cache().await;
    let mut id = 1;
    for (chunk, packet) in [
        (512, 64_512),      // Java's: straddles segments.
        (512, 512),         // Tiny.
        (512, 8192),        // The smallest that is received in place.
        (7, 63_000),        // Chunks that no segment ends with.
        (4096, 1 << 20),    // As much as is reserved at a time.
        (512, 1_500_160),   // More.
        (1 << 20, 1 << 20), // A chunk beyond a segment.
    ] {
        for part in [1009, 65_536, 3_000_000] {
            let checksum = DataChecksum::new(ChecksumKind::Crc32c, chunk).expect("valid");
            whole(&[&node], id, checksum, packet, part).await;
            id += 1;
        }
    }
    let null = DataChecksum::new(ChecksumKind::Null, 512).expect("valid");
    whole(&[&node], id, null, 64_512, 300_000).await;
    assert!(node.x.stats().bytes_in_place.get() > 4 << 20, "in place");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_nodes_get_the_same_packets() {
    let nodes = [
        around_cache().await,
        around_cache().await,
        around_cache().await,
    ];
    let all = [&nodes[0], &nodes[1], &nodes[2]];
    for (id, part) in [(1, 1009), (2, 100_000), (3, 3_000_000)] {
        whole(&all, id, crc32c(), 64_512, part).await;
    }
    for node in all {
        assert!(node.x.stats().bytes_in_place.get() > 1 << 20, "in place");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_guesses_lose_nothing() {
    let node = around_cache().await;
    let data = pattern(6_000_000);
    for (id, part) in [(1, 50_000), (2, 6_000_000)] {
        let mut stream = Stream::new(crc32c());
        stream.packets(&data[..645_120], 0, 64_512);
        stream.heartbeat();
        stream.packets(&data[..1_290_240], 645_120, 64_512);
        // A short packet, as at an hflush; its chunk comes again in full.
        stream.packet(1_290_240, &data[1_290_240..1_290_340], false, false);
        stream.packets(&data[..2_580_480], 1_290_240, 64_512);
        // Some that are there already, as after a failure of the pipeline.
        stream.packets(&data[..2_580_480], 2_064_384, 64_512);
        stream.packet(2_580_480, &data[2_580_480..2_644_992], true, false);
        // Another shape from here on.
        stream.packets(&data, 2_644_992, 32_768);
        stream.packet(data.len(), &[], false, true);
        let mut pipeline = Pipeline::create(id, 1001, &[&node]).await;
        let packets = usize::try_from(stream.seqno).expect("few") + 1;
        let acks = send(&mut pipeline, &stream.bytes, part, packets).await;
        all_fine(&acks, stream.seqno, 1);
        assert_eq!(
            read(&node, &block(id, 1001), 0, data.len() as u64).await,
            Ok(data.clone())
        );
    }
    assert!(node.x.stats().bytes_in_place.get() > 1 << 20, "in place");
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_in_a_stream_is_told_at_its_place() {
    let node = around_cache().await;
    let data = pattern(20 * 64_512);
    let mut stream = Stream::new(crc32c());
    stream.packets(&data, 0, 64_512);
    let whole = stream.bytes.len() / 20;
    stream.bytes[13 * whole + 40_000] ^= 1;
    let mut pipeline = Pipeline::create(1, 1001, &[&node]).await;
    let acks = send(&mut pipeline, &stream.bytes, 1 << 20, 100).await;
    let (last, fine) = acks.split_last().expect("acknowledged");
    all_fine(fine, 13, 1);
    assert_eq!(
        (last.seqno, statuses(last)),
        (13, vec![Status::ErrorChecksum])
    );
    let replica = node.store.replica(&super::pool(), 1).expect("kept");
    assert_eq!(replica.bytes_on_disk, 13 * 64_512);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_that_lies_in_the_middle_of_a_stream_closes_it() {
    let node = around_cache().await;
    let data = pattern(20 * 64_512);
    let mut stream = Stream::new(crc32c());
    stream.packets(&data, 0, 64_512);
    let whole = stream.bytes.len() / 20;
    stream.bytes[13 * whole] = 0x7F;
    let mut pipeline = Pipeline::create(1, 1001, &[&node]).await;
    let acks = send(&mut pipeline, &stream.bytes, 1 << 20, 100).await;
    assert!(acks.len() <= 13 && acks.iter().all(|ack| ack.seqno != UNKNOWN_SEQNO));
    node.until("closed", |node| {
        node.x.stats().now(Activity::Connection) == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_in_the_middle_of_a_packet_can_be_taken_over() {
    let node = around_cache().await;
    let data = pattern(40 * 64_512);
    let mut stream = Stream::new(crc32c());
    stream.packets(&data, 0, 64_512);
    let whole = stream.bytes.len() / 40;
    let mut first = Pipeline::create(1, 1001, &[&node]).await;
    let acks = send(
        &mut first,
        &stream.bytes[..20 * whole + 30_000],
        1 << 20,
        20,
    )
    .await;
    all_fine(&acks, 20, 1);
    let recovery = Stage::PipelineSetupStreamingRecovery;
    let mut request = write_request(&block(1, 1001), &[&node], recovery, crc32c());
    request.latest_generation_stamp = 1002;
    request.min_bytes_rcvd = 20 * 64_512;
    request.max_bytes_rcvd = data.len() as u64;
    let mut second = Pipeline::set_up(&node, &request).await.expect("taken over");
    let _goodbye = first.client.rest().await;
    let mut stream = Stream::new(crc32c());
    stream.packets(&data, 20 * 64_512, 64_512);
    stream.packet(data.len(), &[], false, true);
    let acks = send(&mut second, &stream.bytes, 200_000, 21).await;
    all_fine(&acks, 21, 1);
    node.until("received", |node| {
        node.said()
            .iter()
            .any(|said| matches!(said, Said::Received { .. }))
    })
    .await;
    assert_eq!(
        read(&node, &block(1, 1002), 0, data.len() as u64).await,
        Ok(data)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_place_of_its_own_a_stream_is_received_elsewhere() {
    let node = around_cache().await;
    let all = u32::try_from(node.x.places().available_permits()).expect("few");
    let taken = node.x.places().acquire_many(all).await.expect("open");
    whole(&[&node], 1, crc32c(), 64_512, 300_000).await;
    assert_eq!(node.x.stats().bytes_in_place.get(), 0);
    drop(taken);
    whole(&[&node], 2, crc32c(), 64_512, 300_000).await;
    assert!(node.x.stats().bytes_in_place.get() > 1 << 20, "in place");
    node.until("all places are free", |node| {
        node.x.places().available_permits() == usize::try_from(all).expect("few")
    })
    .await;
}
