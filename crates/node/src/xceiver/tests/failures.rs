//! Pipelines that break, and what is left of them.

use hayloft_wire::ids::{ReplicaState, StorageType};
use hayloft_wire::proto::hdfs::DatanodeInfo;
use hayloft_wire::transfer::{Stage, Status};
use tokio::net::TcpListener;

use super::super::{Activity, Settings};
use super::client::{Pipeline, read, statuses, write_request};
use super::node::{Node, Said};
use super::{block, crc32c, pattern, pool};

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_mirror_is_named_and_the_rest_goes_on() {
    let nodes = [
        Node::start().await,
        Node::start().await,
        Node::start().await,
    ];
    let data = pattern(4096);
    let mut pipeline = Pipeline::create(1, 1001, &[&nodes[0], &nodes[1], &nodes[2]]).await;
    pipeline.write(&data[..1024], 512, 3).await;
    nodes[1].kill();
    let mut errors = None;
    for piece in data[1024..].chunks(512) {
        pipeline.send(piece, false).await;
    }
    while errors.is_none() {
        let ack = pipeline.client.ack().await.expect("told before the end");
        if !ack.is_success() {
            errors = Some(statuses(&ack));
        }
    }
    assert_eq!(
        errors,
        Some(vec![Status::Success, Status::Error]),
        "the second node is to blame"
    );
    drop(pipeline);
    let replica = nodes[0]
        .store
        .replica(&pool(), 1)
        .expect("kept for recovery");
    assert_eq!(replica.state, ReplicaState::Rbw);
    let mut request = write_request(
        &block(1, 1001),
        &[&nodes[0]],
        Stage::PipelineSetupStreamingRecovery,
        crc32c(),
    );
    request.latest_generation_stamp = 1002;
    request.min_bytes_rcvd = 1024;
    request.max_bytes_rcvd = 4096;
    let mut pipeline = Pipeline::set_up(&nodes[0], &request)
        .await
        .expect("recovered");
    pipeline.offset = 1024;
    pipeline.write(&data[1024..], 512, 1).await;
    pipeline.close(1).await;
    assert_eq!(read(&nodes[0], &block(1, 1002), 0, 4096).await, Ok(data));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_mirror_is_the_first_bad_link() {
    let node = Node::start().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = closed.local_addr().expect("bound").port();
    drop(closed);
    let mut request = write_request(
        &block(2, 1001),
        &[&node],
        Stage::PipelineSetupCreate,
        crc32c(),
    );
    let mut target: DatanodeInfo = node.info();
    target.id.xfer_port = port.into();
    request.targets.push(target);
    let response = Pipeline::set_up(&node, &request)
        .await
        .err()
        .flatten()
        .expect("told");
    assert_eq!(response.outcome(), Status::Error);
    assert_eq!(response.first_bad_link(), format!("127.0.0.1:{port}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupt_data_is_refused_by_the_last_node() {
    let node = Node::start().await;
    let data = pattern(1024);
    let mut pipeline = Pipeline::create(3, 1001, &[&node]).await;
    pipeline.write(&data, 512, 1).await;
    let mut sums = Vec::new();
    crc32c().compute(&data, &mut sums);
    sums[5] ^= 1;
    pipeline.send_raw(1024, &data, &sums, false, false).await;
    let ack = pipeline.client.ack().await.expect("told");
    assert_eq!(
        (ack.seqno, statuses(&ack)),
        (2, vec![Status::ErrorChecksum])
    );
    assert!(
        pipeline.client.ack().await.is_none(),
        "then the connection is closed"
    );
    let replica = node.store.replica(&pool(), 3).expect("kept for recovery");
    assert_eq!(
        replica.bytes_on_disk, 1024,
        "nothing of the corrupt packet was written"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupt_data_in_a_longer_pipeline_closes_the_node_before_it() {
    let nodes = [
        Node::start().await,
        Node::start().await,
        Node::start().await,
    ];
    let data = pattern(512);
    let mut pipeline = Pipeline::create(4, 1001, &[&nodes[0], &nodes[1], &nodes[2]]).await;
    pipeline
        .send_raw(0, &data, &[1, 2, 3, 4], false, false)
        .await;
    // The last node finds it, the middle one takes the blame and closes, the first one reports the
    // middle.
    let ack = pipeline.client.ack().await.expect("told");
    assert_eq!(statuses(&ack), vec![Status::Success, Status::Error]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_leaves_an_rbw_replica() {
    let node = Node::start().await;
    let mut pipeline = Pipeline::create(5, 1001, &[&node]).await;
    pipeline.write(&pattern(600), 600, 1).await;
    drop(pipeline);
    node.until("the writer ended", |node| {
        node.x.stats().now(Activity::Writer) == 0
    })
    .await;
    let replica = node.store.replica(&pool(), 5).expect("kept");
    assert_eq!(
        (replica.state, replica.bytes_on_disk),
        (ReplicaState::Rbw, 600)
    );
    assert!(
        !node
            .said()
            .iter()
            .any(|said| matches!(said, Said::Received { .. }))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_fails_leaves_nothing() {
    let node = Node::start().await;
    let mut request = write_request(
        &block(6, 1001),
        &[&node],
        Stage::PipelineSetupCreate,
        crc32c(),
    );
    request.header.client_name = String::new();
    let mut client = super::client::Client::connect(&node).await;
    client.request(&request).await;
    let mut pipeline = Pipeline {
        client,
        checksum: crc32c(),
        offset: 0,
        seqno: 0,
    };
    pipeline.send(&pattern(512), false).await;
    drop(pipeline);
    node.until("the replica is gone", |node| {
        node.store.replica(&pool(), 6).is_none() && node.x.stats().now(Activity::Writer) == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gaps_and_straddling_packets_close_the_connection() {
    let node = Node::start().await;
    let mut pipeline = Pipeline::create(7, 1001, &[&node]).await;
    pipeline.send_at(512, &pattern(512), false).await;
    assert!(pipeline.client.ack().await.is_none());
    let mut pipeline = Pipeline::create(8, 1001, &[&node]).await;
    pipeline.write(&pattern(100), 100, 1).await;
    pipeline.send(&pattern(500), false).await;
    assert!(pipeline.client.ack().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_is_there_already_is_not_written_again() {
    let node = Node::start().await;
    let pipeline = Pipeline::create(9, 1001, &[&node]).await;
    let request = write_request(
        &block(9, 1001),
        &[&node],
        Stage::PipelineSetupCreate,
        crc32c(),
    );
    assert!(
        matches!(Pipeline::set_up(&node, &request).await, Err(None)),
        "closed without an answer, as Apache's"
    );
    drop(pipeline);
}

#[tokio::test(flavor = "multi_thread")]
async fn evicted_writers_are_closed() {
    let node = Node::start().await;
    let mut pipeline = Pipeline::create(10, 1001, &[&node]).await;
    pipeline.write(&pattern(100), 100, 1).await;
    node.x.evict_writers();
    assert!(pipeline.client.ack().await.is_none());
    let another = Pipeline::create(11, 1001, &[&node]).await;
    another.close(1).await;
}

/// A task that meets an I/O error has the volumes looked at. The one that is gone is out of use
/// soon, long before the periodic check, and the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn an_io_error_has_the_volumes_checked() {
    let disks = [StorageType::Disk, StorageType::Disk];
    let node = Node::with(Settings::default(), &disks).await;
    let mut pipeline = Pipeline::create(31, 1001, &[&node]).await;
    pipeline.write(&pattern(600), 600, 1).await;
    let storage = node.store.replica(&pool(), 31).expect("written").storage.id;
    let holder = (0..2)
        .map(|i| node.dir.path().join(format!("v{i}")))
        .find(|dir| {
            let version = std::fs::read_to_string(dir.join("current/VERSION"));
            version.expect("a volume").contains(&*storage)
        })
        .expect("one of the two");
    std::fs::rename(&holder, holder.with_extension("gone")).expect("moved");
    std::fs::write(&holder, b"").expect("a file in its place");
    // Completing the replica needs its directories.
    pipeline.send(&[], true).await;
    while pipeline
        .client
        .ack()
        .await
        .is_some_and(|ack| ack.is_success())
    {}
    node.until("the volume to be taken out", |node| {
        node.store.failure_summary().failed_locations == [holder.clone()]
    })
    .await;
    let mut pipeline = Pipeline::create(32, 1001, &[&node]).await;
    pipeline.write(&pattern(600), 600, 1).await;
    pipeline.close(1).await;
    assert_eq!(
        read(&node, &block(32, 1001), 0, 600).await,
        Ok(pattern(600))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_replica_that_is_in_the_way_of_a_copy_is_reported() {
    let node = Node::start().await;
    let copy = |id, generation_stamp| {
        let block = block(id, generation_stamp);
        let mut request = write_request(&block, &[&node], Stage::PipelineSetupCreate, crc32c());
        request.header.client_name = String::new();
        request
    };
    for id in [8, 9] {
        let mut pipeline = Pipeline::create(id, 1001, &[&node]).await;
        pipeline.write(&pattern(1024), 512, 1).await;
    }
    let mut whole = Pipeline::create(10, 1001, &[&node]).await;
    whole.write(&pattern(1024), 512, 1).await;
    whole.close(1).await;
    // A recovery that ends elsewhere, with another replica.
    node.store
        .init_replica_recovery(&block(8, 1001), 1010)
        .await
        .expect("begins");
    let before = node.said();
    let refused = Pipeline::set_up(&node, &copy(8, 1010)).await;
    refused.expect_err("as Apache's does");
    let mut there = block(8, 1001);
    there.block.num_bytes = 1024;
    assert_eq!(
        node.said()[before.len()..],
        [Said::Receiving(there)],
        "the NameNode compares generation stamps, and has it deleted"
    );
    let before = node.said();
    for request in [copy(8, 1001), copy(9, 1001), copy(10, 1001)] {
        let refused = Pipeline::set_up(&node, &request).await;
        refused.expect_err("the replica is there");
    }
    assert_eq!(node.said(), before, "these are not out of date");
    // A recovery that came too late: the NameNode had committed another one.
    for wanted in [1000, 1002] {
        let before = node.said();
        let refused = Pipeline::set_up(&node, &copy(10, wanted)).await;
        refused.expect_err("as Apache's does");
        let mut there = block(10, 1001);
        there.block.num_bytes = 1024;
        let told = Said::Received {
            block: there,
            hint: None,
        };
        assert_eq!(node.said()[before.len()..], [told]);
    }
}
