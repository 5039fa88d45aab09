//! Kept-alive connections that share a thread while another one is idle.

use std::time::Duration;

use super::client::{Client, Pipeline, read_on};
use super::node::Node;
use super::{block, pattern};
use crate::xceiver::net::rebalance::Relief;

/// Reads a range over each connection.
async fn read_all(clients: &mut [Client], data: &[u8]) {
    for (n, client) in clients.iter_mut().enumerate() {
        let (from, len) = (n * 7777, 100_001);
        let got = read_on(client, &block(1, 1001), from as u64, len as u64, true).await;
        assert_eq!(
            got.as_deref(),
            Ok(&data[from..from + len]),
            "connection {n}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_move_between_two_requests_and_lose_nothing() {
    let node = Node::start().await;
    let threads = node.x.threads();
    if threads.connections().len() < 2 {
        println!("skipped: one processor");
        return;
    }
    let data = pattern(1_000_000);
    let mut pipeline = Pipeline::create(1, 1001, &[&node]).await;
    pipeline.write(&data, 65_024, 1).await;
    pipeline.close(1).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(Client::connect(&node).await);
    }
    read_all(&mut clients, &data).await;
    for (from, to) in [(0, 1), (1, 0), (0, 1)] {
        let moved = async {
            while threads.connections()[from] > 0 {
                // Again, when a look at the threads came between.
                let count = clients.len();
                threads.relieve(Relief { from, to, count });
                read_all(&mut clients, &data).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), moved)
            .await
            .expect("all move");
        assert_eq!(threads.connections().iter().sum::<usize>(), 8);
        assert_eq!(node.x.stats().xceivers(), 8);
    }
    drop(clients);
    let gone = async {
        while node.x.stats().xceivers() > 0 || threads.connections().iter().sum::<usize>() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone)
        .await
        .expect("nothing is left of them");
}
