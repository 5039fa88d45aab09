//! Incremental and full block reports.

use super::*;

#[tokio::test]
async fn received_leaves_at_once_and_takes_the_rest_along() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "60s", &[]);
    ready(&node, &[&namenode]).await;
    node.services.notify_receiving(&block(5, 1001), &storage());
    deleted(&node, &block(6, 1001));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(namenode.news(), []);
    let began = Instant::now();
    node.services
        .notify_received(&block(7, 1001), &storage(), None);
    eventually("report", || !namenode.news().is_empty()).await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        namenode.news(),
        [
            (5, 1001, RECEIVING),
            (6, 1001, DELETED),
            (7, 1001, RECEIVED)
        ]
    );
}

#[tokio::test]
async fn a_finalized_replica_that_has_left_already_is_not_told_as_received() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "60s", &[]);
    ready(&node, &[&namenode]).await;
    node.services
        .notify_finalized(&block(7, 1001), &storage(), None);
    // As a scan finds one.
    let (events, found) = tokio::sync::mpsc::channel(1);
    let event = StoreEvent::Found {
        block: block(8, 1001),
        storage: storage(),
    };
    events.send(event).await.expect("the receiver is open");
    drop(events);
    node.services.serve_store_events(found).await;
    eventually("reports", || namenode.news().len() > 1).await;
    assert_eq!(namenode.news(), [(7, 1001, DELETED), (8, 1001, DELETED)]);
}

#[tokio::test]
async fn who_waits_for_the_report_of_a_block_goes_on_when_the_namenode_has_taken_it() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "60s", &[]);
    ready(&node, &[&namenode]).await;
    eventually("active", || node.services.actors()[0].active).await;
    namenode.script().incremental_takes = Duration::from_millis(300);
    node.services
        .notify_received(&block(7, 1001), &storage(), None);
    let began = Instant::now();
    let long = Duration::from_secs(30);
    tokio::time::timeout(long / 3, node.services.wait_told(&block(7, 1001), long))
        .await
        .expect("goes on when the report is taken");
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(namenode.news(), [(7, 1001, RECEIVED)]);
    // There is nothing to tell of another block.
    tokio::time::timeout(long / 3, node.services.wait_told(&block(8, 1001), long))
        .await
        .expect("nothing to wait for");
}

#[tokio::test]
async fn who_waits_for_the_report_of_a_block_waits_no_longer_than_allowed() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "60s", &[]);
    ready(&node, &[&namenode]).await;
    eventually("active", || node.services.actors()[0].active).await;
    namenode.script().incremental_takes = Duration::from_secs(3600);
    node.services
        .notify_received(&block(7, 1001), &storage(), None);
    let limit = Duration::from_millis(100);
    let began = Instant::now();
    node.services.wait_told(&block(7, 1001), limit).await;
    assert!(began.elapsed() >= limit);
    assert_eq!(namenode.news(), []);
}

#[tokio::test]
async fn no_client_waits_for_a_namenode_that_is_not_active() {
    let namenode = FakeNameNode::start().await;
    namenode.script().ha = NnHaState::Standby;
    namenode.script().incremental_takes = Duration::from_secs(3600);
    let node = Node::start(&[&namenode], "60s", &[]);
    ready(&node, &[&namenode]).await;
    node.services
        .notify_received(&block(7, 1001), &storage(), None);
    let long = Duration::from_secs(3600);
    tokio::time::timeout(
        Duration::from_secs(10),
        node.services.wait_told(&block(7, 1001), long),
    )
    .await
    .expect("no active NameNode");
}

#[tokio::test]
async fn deletions_go_with_the_heartbeats() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "100ms", &[]);
    ready(&node, &[&namenode]).await;
    deleted(&node, &block(6, 1001));
    eventually("deletion", || namenode.news() == [(6, 1001, DELETED)]).await;
}

#[tokio::test]
async fn a_failed_report_is_sent_again_without_old_news() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "100ms", &[]);
    ready(&node, &[&namenode]).await;
    namenode.script().incremental_failures = 1;
    node.services
        .notify_received(&block(5, 1001), &storage(), None);
    node.services
        .notify_received(&block(6, 1001), &storage(), None);
    eventually("failure", || namenode.script().incremental_failures == 0).await;
    deleted(&node, &block(6, 1001));
    eventually("news", || namenode.news().len() == 2).await;
    assert_eq!(namenode.news(), [(5, 1001, RECEIVED), (6, 1001, DELETED)]);
}

#[tokio::test]
async fn too_much_news_becomes_a_full_report() {
    let namenode = FakeNameNode::start().await;
    let more = [("hayloft.blockreport.incremental.pending.max", "10")];
    let node = Node::start(&[&namenode], "50ms", &more);
    ready(&node, &[&namenode]).await;
    namenode.stop().await;
    for id in 0..11 {
        node.services
            .notify_received(&block(id, 1001), &storage(), None);
    }
    assert!(node.services.actors()[0].pending_reports <= 10);
    namenode.restart().await;
    eventually("full report", || namenode.count(is_full) == 2).await;
}

fn at(address: &str) -> hayloft_conf::HostPort {
    hayloft_conf::HostPort::parse_with_default(address, None).expect("address")
}

#[tokio::test]
async fn a_forced_report_needs_no_lease() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    assert_eq!(
        node.services
            .trigger_block_report(false, Some(&at(&namenode.addr.to_string()))),
        1
    );
    eventually("report", || namenode.count(is_full) == 2).await;
    let other = at("127.0.0.1:1");
    assert_eq!(node.services.trigger_block_report(false, Some(&other)), 0);
}

#[tokio::test]
async fn a_report_forced_while_one_is_on_its_way_follows_it() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    namenode.script().report_takes = Duration::from_millis(500);
    for _ in 0..2 {
        node.services.trigger_block_report(false, None);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(namenode.count(is_full), 1);
    eventually("both reports", || namenode.count(is_full) == 3).await;
    // Longer than a report takes: there is no fourth.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(namenode.count(is_full), 3);
}

#[tokio::test]
async fn an_interval_collects_incremental_reports() {
    let namenode = FakeNameNode::start().await;
    let more = [("dfs.blockreport.incremental.intervalMsec", "400")];
    let node = Node::start(&[&namenode], "60s", &more);
    ready(&node, &[&namenode]).await;
    // Past the first interval: what comes then waits for the end of another.
    tokio::time::sleep(Duration::from_millis(450)).await;
    let messages = || namenode.count(|told| matches!(told, Told::Incremental(_)));
    for id in 5..15 {
        node.services
            .notify_received(&block(id, 1001), &storage(), None);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    eventually("all news", || namenode.news().len() == 10).await;
    assert!(messages() <= 4, "{} messages", messages());
}

#[tokio::test]
async fn a_deletion_is_not_reported_while_the_replica_is_here_again() {
    let namenode = FakeNameNode::start().await;
    let node = Node::start(&[&namenode], "50ms", &[]);
    ready(&node, &[&namenode]).await;
    let (events, news) = tokio::sync::mpsc::channel(8);
    let services = node.services.clone();
    tokio::spawn(async move { services.serve_store_events(news).await });
    // Newer; the same one; none.
    for (id, stamp) in [(1, 1000), (1, 1001), (2, 1000)] {
        let event = StoreEvent::Deleted {
            block: block(id, stamp),
            storage: storage(),
        };
        events.send(event).await.expect("listens");
    }
    eventually("deletion", || namenode.news() == [(2, 1000, DELETED)]).await;
    let corrupt = StoreEvent::Corrupt {
        block: block(1, 1001),
        storage: storage(),
    };
    events.send(corrupt).await.expect("listens");
    eventually("bad block", || {
        namenode.count(|told| matches!(told, Told::Bad(_))) == 1
    })
    .await;
}
