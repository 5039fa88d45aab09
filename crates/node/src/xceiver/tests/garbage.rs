//! Peers that talk nonsense, too much, or nothing.

use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use hayloft_wire::ids::StorageType;
use hayloft_wire::packet::{PacketHeader, encode_packet};

use super::super::{Activity, Settings};
use super::client::{Client, Pipeline, read};
use super::node::Node;
use super::{block, pattern};

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_closes_the_connection_and_nothing_else() {
    let node = Node::start().await;
    let greetings: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0, 27, 81, 0],
        &[0xDE, 0xAD, 0xBE, 0xEF, 0, 0],
        &[0, 28, 82, 0],
        &[0, 28, 200, 1, 2],
        &[
            0, 28, 81, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
        ],
        &[0, 28, 80, 3, 1, 2, 3],
    ];
    for greeting in greetings {
        let mut client = Client::connect(&node).await;
        client.send(greeting).await;
        assert!(client.rest().await.is_empty(), "{greeting:?}");
    }
    Pipeline::create(1, 1001, &[&node]).await.close(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lying_packets_close_the_connection() {
    let node = Node::start().await;
    for (id, plen, hlen) in [
        (1, i32::MAX, 25_i16),
        (2, -1, 25),
        (3, 4, -5),
        (4, 3, 25),
        (5, 17 << 20, 25),
        (6, 4, 2000),
    ] {
        let mut pipeline = Pipeline::create(id, 1001, &[&node]).await;
        let mut bytes = BytesMut::new();
        bytes.put_i32(plen);
        bytes.put_i16(hlen);
        bytes.put_bytes(0, 100);
        pipeline.client.send(&bytes).await;
        assert!(pipeline.client.ack().await.is_none(), "{plen} {hlen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_packet_waits_for_memory_a_limited_time() {
    let settings = Settings {
        read_timeout: Duration::from_millis(300),
        ..Settings::default()
    };
    let node = Node::with(settings, &[StorageType::Disk]).await;
    let taken = node.x.memory().try_acquire(31 << 20).expect("fits");
    assert!(taken.is_some());
    let data = pattern(2 << 20);
    let header = PacketHeader {
        data_len: 2 << 20,
        ..PacketHeader::default()
    };
    let mut packet = BytesMut::new();
    encode_packet(&header, &vec![0; 4 << 12], &data, &mut packet);
    let mut large = Pipeline::create(1, 1001, &[&node]).await;
    // All the time there is something to read, but no memory for the whole.
    let began = std::time::Instant::now();
    large.client.send(&packet[..64 << 10]).await;
    assert!(large.client.ack().await.is_none(), "given up");
    assert!(
        began.elapsed() >= Duration::from_millis(300),
        "{:?}",
        began.elapsed()
    );
    let mut small = Pipeline::create(2, 1001, &[&node]).await;
    small.write(&data[..65_024], 65_024, 1).await;
    drop(taken);
    small.write(&data, 2 << 20, 1).await;
    small.close(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_ends_connections_and_writes() {
    let settings = Settings {
        read_timeout: Duration::from_millis(300),
        ..Settings::default()
    };
    let node = Node::with(settings, &[StorageType::Disk]).await;
    let mut silent: Vec<Client> = Vec::new();
    for _ in 0..50 {
        silent.push(Client::connect(&node).await);
    }
    let mut half = Client::connect(&node).await;
    half.send(&[0, 28, 80, 200]).await;
    let mut pipeline = Pipeline::create(1, 1001, &[&node]).await;
    pipeline.send(&pattern(100), false).await;
    pipeline.acked(0, 1).await;
    assert!(pipeline.client.ack().await.is_none());
    for mut client in silent {
        assert!(client.rest().await.is_empty());
    }
    half.rest().await;
    node.until("all connections ended", |node| {
        node.x.stats().now(Activity::Connection) == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_are_closed() {
    let settings = Settings {
        max_connections: 2,
        ..Settings::default()
    };
    let node = Node::with(settings, &[StorageType::Disk]).await;
    let first = Pipeline::create(1, 1001, &[&node]).await;
    let second = Pipeline::create(2, 1001, &[&node]).await;
    let mut third = Client::connect(&node).await;
    assert!(third.rest().await.is_empty());
    assert_eq!(node.x.stats().rejected.get(), 1);
    first.close(1).await;
    second.close(1).await;
    node.until("room again", |node| {
        node.x.stats().now(Activity::Connection) == 0
    })
    .await;
    assert_eq!(read(&node, &block(1, 1001), 0, 0).await, Ok(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_pool_is_not_served() {
    let node = Node::start().await;
    let mut other = block(1, 1001);
    other.pool = hayloft_wire::ids::PoolId::new("BP-other").expect("valid");
    assert_eq!(read(&node, &other, 0, 1).await, Err(None));
}
