//! What is read before the client asks for it. Never does a reader wait for the disk at the end of
//! a block because no reader had asked for that end.

use hayloft_io::IoClass;
use hayloft_wire::ids::StorageType;
use hayloft_wire::packet::PacketParser;
use hayloft_wire::transfer::Status;

use super::super::Settings;
use super::client::{Client, Pipeline, read_request};
use super::node::Node;
use super::residency::drop_pages_of;
use super::{block, crc32c, pattern};

const MIB: usize = 1 << 20;

/// Not a multiple of anything. More than what the node may ask for when a client has taken 3 MiB.
/// That is the piece that is sent, four ahead of it, and as much as sockets hold on a busy machine.
const LEN: usize = 36_000_123;

/// Bytes that clients had from the node's disk, checksums included.
fn from_disk(node: &Node) -> u64 {
    let stats = node.store.disk_stats();
    let stats = stats.iter().map(|(_, disk)| disk);
    stats
        .map(|disk| disk.class(IoClass::ClientRead).bytes)
        .sum()
}

/// Reads the packets of at least `len` bytes after those of `data`.
async fn take(client: &mut Client, data: &mut Vec<u8>, len: usize) {
    let parser = PacketParser::default();
    let until = data.len() + len;
    while data.len() < until {
        let packet = client.read(|buf| parser.parse(buf)).await;
        let packet = packet.expect("the node goes on sending");
        crc32c()
            .verify(&packet.data, &packet.sums)
            .expect("good checksums");
        data.extend_from_slice(&packet.data);
    }
}

/// A client of a block that is not in memory reads a part of it and stops: what was asked of the
/// disk meanwhile. `enough`: a part that is followed by no more than what the node holds ahead of a
/// client.
async fn the_end_is_asked_for(engine: &str, too_little: usize, enough: usize) {
    let node = Node::with_engine(engine, Settings::default(), &[StorageType::Disk]).await;
    let wanted = pattern(LEN);
    let mut pipeline = Pipeline::create(1, 1001, &[&node]).await;
    for piece in wanted.chunks(MIB) {
        pipeline.write(piece, MIB, 1).await;
    }
    pipeline.close(1).await;
    for file in ["blk_1", "blk_1_1001.meta"] {
        drop_pages_of(&node, file, 0, 0);
    }
    let before = from_disk(&node);
    let all = || from_disk(&node) - before >= LEN as u64;

    let mut client = Client::connect(&node).await;
    // What the kernel keeps for a client that does not read must not look like reading ahead.
    rustix::net::sockopt::set_socket_recv_buffer_size(&client.stream, 64 << 10).expect("a socket");
    let request = read_request(&block(1, 1001), 0, LEN as u64, true);
    client.request(&request).await;
    let response = client.response().await.expect("answered");
    assert_eq!(response.outcome(), Status::Success);

    let mut data = Vec::new();
    take(&mut client, &mut data, too_little).await;
    // Long enough for a node that would read the rest.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!all(), "{engine}: the memory for one reader has no limit");
    take(&mut client, &mut data, enough - too_little).await;
    node.until("the end of the block was asked for", |_| all())
        .await;
    let left = LEN - data.len();
    assert!(left > MIB, "{engine}: only {left} bytes were left to take");
    take(&mut client, &mut data, left).await;
    assert!(data == wanted, "{engine}: the bytes are those written");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_block_is_read_before_the_client_is_there() {
    // Pieces of 1, 2 and then 4 MiB, two ahead of the one that is sent: the end comes with that
    // at 23 MiB.
    the_end_is_asked_for("direct", 3 * MIB, 24 * MIB).await;
}
