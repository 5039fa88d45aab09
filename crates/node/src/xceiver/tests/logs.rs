//! Clients that write logs, and their threads.

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule, Faults};
use tokio::time::{Duration, Instant, sleep};

use super::client::{Pipeline, read};
use super::node::Node;
use super::{block, pattern};
use crate::activity::Timed;

/// As many packets as tell a log, of a chunk each.
const PACKETS: usize = 64;
const PACKET: usize = 512;

/// Has `node` know the tests' client as one that writes logs.
async fn write_a_log(node: &Node, id: i64) {
    let data = pattern(PACKETS * PACKET);
    let mut pipeline = Pipeline::create(id, 1001, &[node]).await;
    pipeline.write(&data, PACKET, 1).await;
    pipeline.close(1).await;
    let len = data.len() as u64;
    assert_eq!(read(node, &block(id, 1001), 0, len).await, Ok(data));
}

async fn threads_end(node: &Node) {
    let began = Instant::now();
    while node.x.log_writers().running() > 0 {
        assert!(began.elapsed() < Duration::from_secs(10), "it goes on");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logs_writer_has_a_thread_from_its_second_block_on() {
    let nodes = [Node::start().await, Node::start().await];
    write_a_log(&nodes[0], 1).await;
    assert_eq!(nodes[0].x.log_writers().running(), 0);
    let data = pattern(10 * PACKET);
    let mut pipeline = Pipeline::create(2, 1001, &[&nodes[0], &nodes[1]]).await;
    pipeline.write(&data, PACKET, 2).await;
    assert_eq!(nodes[0].x.log_writers().running(), 1);
    assert_eq!(nodes[1].x.log_writers().running(), 0, "it knows no log");
    pipeline.close(2).await;
    threads_end(&nodes[0]).await;
    for node in &nodes {
        let found = read(node, &block(2, 1001), 0, data.len() as u64).await;
        assert_eq!(found.as_ref(), Ok(&data));
    }
    // One that goes away in the middle leaves what was acknowledged, and no thread.
    let mut pipeline = Pipeline::create(3, 1001, &[&nodes[0]]).await;
    pipeline.write(&data, PACKET, 1).await;
    drop(pipeline);
    threads_end(&nodes[0]).await;
    let found = read(&nodes[0], &block(3, 1001), 0, data.len() as u64).await;
    assert_eq!(found, Ok(data));
}

/// Such writes are over when they have begun.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_log_writes_counts_as_other_writes_do() {
    let node = Node::start().await;
    write_a_log(&node, 1).await;
    let mut pipeline = Pipeline::create(2, 1001, &[&node]).await;
    let written = || node.x.activity().total(Timed::FlushNanos).0;
    let before = written();
    for _ in 0..10 {
        pipeline.write(&pattern(PACKET), PACKET, 1).await;
    }
    assert_eq!(written() - before, 10);
    pipeline.close(1).await;
}

/// The second packet and the acknowledgement of the first meet the thread at once, while it waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_hears_of_a_packet_before_the_next_is_written() {
    const SMALL: usize = 100;
    let faults = Faults::new(1);
    let nodes = [Node::with_faults(&faults).await, Node::start().await];
    write_a_log(&nodes[0], 1).await;
    let mut pipeline = Pipeline::create(2, 1001, &[&nodes[0], &nodes[1]]).await;
    // What follows is written in pairs, within its chunk.
    pipeline.write(&pattern(SMALL), SMALL, 2).await;
    let hang = Duration::from_secs(1);
    let rule = FaultRule::new(Effect::Stall(hang)).on(&[IoOp::Write]);
    faults.add(rule.at(|path| path.extension().is_none()).times(2));
    pipeline.send(&pattern(SMALL), false).await;
    sleep(Duration::from_millis(100)).await;
    pipeline.send(&pattern(SMALL), false).await;
    pipeline.acked(1, 2).await;
    let first = Instant::now();
    pipeline.acked(2, 2).await;
    assert!(first.elapsed() > hang / 2, "{:?}", first.elapsed());
    pipeline.close(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_whose_replica_is_lost_is_not_kept_waiting_for_its_disk() {
    let faults = Faults::new(1);
    let node = Node::with_faults(&faults).await;
    write_a_log(&node, 1).await;
    let mut pipeline = Pipeline::create(2, 1001, &[&node]).await;
    pipeline.write(&pattern(PACKET), PACKET, 1).await;
    let hang = Duration::from_secs(6);
    let rule = FaultRule::new(Effect::Stall(hang)).on(&[IoOp::Write]);
    faults.add(rule.times(1));
    let began = Instant::now();
    pipeline.send(&pattern(PACKET), false).await;
    sleep(Duration::from_millis(100)).await;
    // As a volume that fails does it, and a writer that takes over.
    let store = node.store.clone();
    let leaving = tokio::spawn(async move { store.forget_pool(&super::pool()).await });
    assert!(pipeline.client.ack().await.is_none(), "the connection ends");
    assert!(began.elapsed() < hang, "{:?}", began.elapsed());
    threads_end(&node).await;
    leaving.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_write_of_a_log_holds_no_thread() {
    let faults = Faults::new(1);
    let node = Node::with_faults(&faults).await;
    write_a_log(&node, 1).await;
    let mut pipeline = Pipeline::create(2, 1001, &[&node]).await;
    let hang = Duration::from_secs(6);
    let rule = FaultRule::new(Effect::Stall(hang)).on(&[IoOp::Write]);
    faults.add(rule.times(1));
    pipeline.send(&pattern(PACKET), false).await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(node.x.log_writers().running(), 1);
    let began = Instant::now();
    let store = node.store.clone();
    let leaving = tokio::spawn(async move { store.forget_pool(&super::pool()).await });
    // Sooner than by the descriptor that ends it from elsewhere.
    assert!(pipeline.client.ack().await.is_none(), "the connection ends");
    assert!(began.elapsed() < Duration::from_millis(900));
    leaving.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_hangs_holds_up_the_log_alone() {
    let faults = Faults::new(1);
    let node = Node::with_faults(&faults).await;
    write_a_log(&node, 1).await;
    let mut pipeline = Pipeline::create(2, 1001, &[&node]).await;
    pipeline.write(&pattern(PACKET), PACKET, 1).await;
    let hang = Duration::from_secs(3);
    let rule = FaultRule::new(Effect::Stall(hang)).on(&[IoOp::Write]);
    let rule = faults.add(rule.times(1));
    let began = Instant::now();
    pipeline.send(&pattern(PACKET), false).await;
    sleep(Duration::from_millis(100)).await;
    for _ in 0..8 {
        let len = (PACKETS * PACKET) as u64;
        let found = read(&node, &block(1, 1001), 0, len).await;
        assert_eq!(found.map(|data| data.len() as u64), Ok(len));
        node.store.check_volumes().await;
    }
    assert!(began.elapsed() < hang, "{:?}", began.elapsed());
    pipeline.acked(1, 1).await;
    assert!(began.elapsed() >= hang, "it was held up");
    faults.remove(rule);
    pipeline.close(1).await;
    threads_end(&node).await;
}
