//! Throughput of one node on this machine, for decisions about the data path. Not part of any run:
//! `cargo test --release -p hayloft-node --lib -- --ignored --nocapture xceiver::tests::bench`

use std::time::Instant;

use bytes::BytesMut;
use hayloft_wire::packet::{PacketHeader, encode_packet};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::client::{Client, Pipeline, read_request};
use super::node::Node;
use super::{block, crc32c, pattern};

const BLOCK: usize = 256 << 20;
const PACKET: usize = 65_024;

/// The packets of a whole block, as a client would send them.
fn packets() -> Vec<u8> {
    let data = pattern(1 << 20);
    let mut out = BytesMut::new();
    let mut offset = 0;
    let mut seqno = 0;
    while offset < BLOCK {
        let len = PACKET.min(BLOCK - offset);
        let data = &data[..len];
        let mut sums = Vec::new();
        crc32c().compute(data, &mut sums);
        let header = PacketHeader {
            offset_in_block: offset as u64,
            seqno,
            data_len: u32::try_from(len).expect("small"),
            ..PacketHeader::default()
        };
        encode_packet(&header, &sums, data, &mut out);
        offset += len;
        seqno += 1;
    }
    let header = PacketHeader {
        offset_in_block: BLOCK as u64,
        seqno,
        last_packet_in_block: true,
        ..PacketHeader::default()
    };
    encode_packet(&header, &[], &[], &mut out);
    out.to_vec()
}

fn rate(bytes: usize, began: Instant) -> u128 {
    bytes as u128 / 1000 / began.elapsed().as_millis().max(1)
}

fn cpu() -> std::time::Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("linux");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .expect("fields")
        .split_whitespace()
        .collect();
    let ticks: u64 =
        fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime");
    std::time::Duration::from_millis(ticks * 10)
}

async fn write(nodes: &[&Node], id: i64, packets: &[u8]) {
    let pipeline = Pipeline::create(id, 1001, nodes).await;
    let (mut from, mut to) = pipeline.client.stream.into_split();
    let drain = tokio::spawn(async move {
        let mut bytes = vec![0; 1 << 16];
        while from.read(&mut bytes).await.expect("acks") > 0 {}
    });
    to.write_all(packets).await.expect("taken");
    drain.await.expect("no panic");
}

async fn read(node: &Node, id: i64, offset: u64, len: u64) -> usize {
    let mut client = Client::connect(node).await;
    client
        .request(&read_request(&block(id, 1001), offset, len, true))
        .await;
    let mut bytes = vec![0; 1 << 18];
    let mut total = 0;
    let want = usize::try_from(len + len / 128).expect("small");
    while total < want {
        let n = client.stream.read(&mut bytes).await.expect("data");
        assert!(n > 0, "cut off after {total}");
        total += n;
    }
    total
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "it is what a measurement is for")]
async fn throughput() {
    let packets = packets();
    let node = Node::start().await;
    let second = Node::start().await;
    let (one, two) = ([&node], [&node, &second]);
    for (name, nodes, id) in [
        ("write", &one[..], 1),
        ("write", &one[..], 2),
        ("write 2 nodes", &two[..], 3),
    ] {
        let (began, before) = (Instant::now(), cpu());
        write(nodes, id, &packets).await;
        println!(
            "{name}: {} MB/s, cpu {:?}",
            rate(BLOCK, began),
            cpu().saturating_sub(before)
        );
    }
    let began = Instant::now();
    tokio::join!(write(&one, 4, &packets), write(&one, 5, &packets));
    println!("write, 2 streams: {} MB/s", rate(2 * BLOCK, began));
    for _ in 0..3 {
        let (began, before) = (Instant::now(), cpu());
        read(&node, 1, 0, BLOCK as u64).await;
        println!(
            "read: {} MB/s, cpu {:?}",
            rate(BLOCK, began),
            cpu().saturating_sub(before)
        );
    }
    let began = Instant::now();
    tokio::join!(
        read(&node, 1, 0, BLOCK as u64),
        read(&node, 2, 0, BLOCK as u64)
    );
    println!("read, 2 streams: {} MB/s", rate(2 * BLOCK, began));
    let began = Instant::now();
    for i in 0..2000_u64 {
        read(&node, 1, (i * 131_072) % (BLOCK as u64 - 4096), 4096).await;
    }
    println!(
        "4 KiB reads, new connections: {} us each",
        began.elapsed().as_micros() / 2000
    );
    let mut pipeline = Pipeline::create(6, 1001, &one).await;
    let began = Instant::now();
    for _ in 0..2000 {
        pipeline.write(&[7; 512], 512, 1).await;
    }
    println!(
        "packets of 512 bytes, each awaited: {} us each",
        began.elapsed().as_micros() / 2000
    );
    pipeline.close(1).await;
}
