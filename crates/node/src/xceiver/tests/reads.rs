//! READ_BLOCK and BLOCK_CHECKSUM.

use hayloft_wire::checksum::{ChecksumKind, Md5OfCrcs};
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::{BlockChecksumOptions, BlockChecksumType};
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, Status};

use super::client::{Client, Pipeline, read, read_on};
use super::node::Node;
use super::{block, crc32c, pattern};

async fn with_block(node: &Node, id: i64, data: &[u8]) {
    let mut pipeline = Pipeline::create(id, 1001, &[node]).await;
    pipeline.write(data, 65_024, 1).await;
    pipeline.close(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_over_one_kept_connection() {
    let node = Node::start().await;
    let data = pattern(3_000_001);
    with_block(&node, 1, &data).await;
    let mut client = Client::connect(&node).await;
    for (offset, len) in [
        (0, 1),
        (0, 3_000_001),
        (511, 2),
        (3_000_000, 1),
        (1_048_576, 65_536),
        (777, 2_000_000),
    ] {
        for with_sums in [true, false] {
            let got = read_on(
                &mut client,
                &block(1, 1001),
                offset as u64,
                len as u64,
                with_sums,
            )
            .await;
            assert_eq!(
                got.as_deref(),
                Ok(&data[offset..offset + len]),
                "{len} at {offset}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_block_is_read() {
    let node = Node::start().await;
    with_block(&node, 2, &[]).await;
    assert_eq!(read(&node, &block(2, 1001), 0, 0).await, Ok(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_answered() {
    let node = Node::start().await;
    with_block(&node, 3, &pattern(1000)).await;
    for (block, offset, len) in [
        (block(3, 1001), 0, 1001),
        (block(3, 1001), 1001, 1),
        (block(4, 1001), 0, 1),
        (block(3, 1002), 0, 1),
    ] {
        let answer = read(&node, &block, offset, len)
            .await
            .expect_err("refused")
            .expect("answered");
        assert_eq!(answer.outcome(), Status::Error);
        assert!(
            answer.message().starts_with("opReadBlock"),
            "{}",
            answer.message()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_waits_a_little_for_promised_bytes() {
    let node = Node::start().await;
    let data = pattern(2048);
    let mut pipeline = Pipeline::create(5, 1001, &[&node]).await;
    pipeline.write(&data[..1024], 1024, 1).await;
    let mut client = Client::connect(&node).await;
    client
        .request(&super::client::read_request(&block(5, 1001), 0, 2048, true))
        .await;
    // The reader has to have waited.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    pipeline.write(&data[1024..], 1024, 1).await;
    let response = client.response().await.expect("answered");
    assert_eq!(response.outcome(), Status::Success);
    assert_eq!(client.packets(crc32c(), 0).await, Some(data));
    pipeline.close(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lost_its_end_breaks_the_read_and_not_the_node() {
    let node = Node::start().await;
    let data = pattern(3_000_000);
    with_block(&node, 7, &data).await;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(node.file("blk_7"))
        .expect("the data file");
    file.set_len(2_500_000).expect("cut");
    assert_eq!(
        read(&node, &block(7, 1001), 0, 1_000_000).await.as_deref(),
        Ok(&data[..1_000_000])
    );
    assert_eq!(
        read(&node, &block(7, 1001), 0, 3_000_000).await,
        Err(None),
        "cut off in the middle"
    );
    with_block(&node, 8, &data).await;
    assert_eq!(read(&node, &block(8, 1001), 0, 3_000_000).await, Ok(data));
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_stop_reading_do_not_starve_others() {
    let node = Node::start().await;
    let data = pattern(8 << 20);
    with_block(&node, 9, &data).await;
    let mut stuck = Vec::new();
    for _ in 0..150 {
        let mut client = Client::connect(&node).await;
        client
            .request(&super::client::read_request(
                &block(9, 1001),
                0,
                8 << 20,
                true,
            ))
            .await;
        stuck.push(client);
    }
    // Long enough for the node to fill their sockets.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(read(&node, &block(9, 1001), 0, 8 << 20).await, Ok(data));
    assert_eq!(stuck.len(), 150);
}

async fn checksum_of(
    node: &Node,
    id: i64,
    len: u64,
    kind: BlockChecksumType,
) -> pb::OpBlockChecksumResponse {
    let mut wanted = block(id, 1001);
    wanted.block.num_bytes = len;
    let mut client = Client::connect(node).await;
    let options = BlockChecksumOptions {
        block_checksum_type: Some(kind.into()),
        stripe_length: None,
    };
    let request = pb::OpBlockChecksum {
        header: transfer::base_header(&wanted, Token::default()),
        block_checksum_options: Some(options),
    };
    client.request(&request).await;
    client
        .response()
        .await
        .expect("answered")
        .checksum_response
        .expect("a checksum")
}

#[tokio::test(flavor = "multi_thread")]
async fn block_checksums_whole_and_partial() {
    let node = Node::start().await;
    let data = pattern(100_000);
    with_block(&node, 6, &data).await;
    for len in [100_000_usize, 99_999, 512, 700, 1] {
        let md5 = checksum_of(&node, 6, len as u64, BlockChecksumType::Md5crc).await;
        let mut sums = Vec::new();
        crc32c().compute(&data[..len], &mut sums);
        let mut expected = Md5OfCrcs::default();
        expected.update(&sums);
        assert_eq!(md5.block_checksum[..], expected.finish(), "{len}");
        assert_eq!((md5.bytes_per_crc, md5.crc_per_block), (512, 196));
        let crc = checksum_of(&node, 6, len as u64, BlockChecksumType::CompositeCrc).await;
        assert_eq!(
            crc.block_checksum[..],
            ChecksumKind::Crc32c.crc(&data[..len]).to_be_bytes(),
            "{len}"
        );
    }
}
