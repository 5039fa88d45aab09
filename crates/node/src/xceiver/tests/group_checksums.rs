//! The checksum of a striped group, with and without all of its blocks.

use std::time::Duration;

use bytes::Bytes;
use hayloft_wire::ids::StorageType;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::{BlockChecksumOptions, BlockChecksumType, DatanodeInfo};
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, Status};
use tokio::net::TcpListener;

use super::super::Settings;
use super::client::Client;
use super::node::Node;
use super::striped::{Group, infos, policy};

const CELL: u32 = 4096;

fn request(
    group: &Group,
    holders: &[(usize, DatanodeInfo)],
    kind: BlockChecksumType,
    bytes: u64,
) -> pb::OpBlockGroupChecksum {
    let with_data = |(index, _): &&(usize, DatanodeInfo)| !group.internal[*index].is_empty();
    let holders: Vec<_> = holders.iter().filter(with_data).collect();
    let index = |&&(index, _): &&(usize, DatanodeInfo)| u32::try_from(index).expect("few");
    pb::OpBlockGroupChecksum {
        header: transfer::base_header(&group.block, Token::default()),
        datanodes: infos(holders.iter().map(|(_, node)| node.clone())),
        block_tokens: vec![Token::default(); holders.len()],
        ec_policy: group.policy.clone(),
        block_indices: holders.iter().map(index).collect(),
        requested_num_bytes: bytes,
        block_checksum_options: Some(BlockChecksumOptions {
            block_checksum_type: Some(kind.into()),
            stripe_length: None,
        }),
    }
}

/// What a node answers; its words when it refuses.
async fn ask(node: &Node, request: &pb::OpBlockGroupChecksum) -> Result<Parts, String> {
    let mut client = Client::connect(node).await;
    client.request(request).await;
    let response = client.response().await.expect("an answer");
    if response.outcome() != Status::Success {
        return Err(response.message().to_owned());
    }
    let checksum = response.checksum_response.expect("a checksum");
    Ok((
        checksum.bytes_per_crc,
        checksum.crc_per_block,
        checksum.block_checksum,
    ))
}

type Parts = (u32, u64, Bytes);

#[tokio::test(flavor = "multi_thread")]
async fn lost_data_blocks_do_not_change_the_checksum() {
    let nodes = [Node::start().await, Node::start().await];
    for (number, len) in (1_i64..).zip([1, 5000, 12_288, 150_001]) {
        let group = Group::new(-160 * number, policy("rs", 3, 2, CELL), len);
        let mut holders = Vec::new();
        for index in 0..group.stripe.width() {
            let node = &nodes[index % 2];
            group.store(index, node).await;
            holders.push((index, node.info()));
        }
        let whole = len as u64;
        for kind in [BlockChecksumType::Md5crc, BlockChecksumType::CompositeCrc] {
            for bytes in [whole, whole - whole / 3] {
                let expected = ask(&nodes[1], &request(&group, &holders, kind, bytes)).await;
                let expected = expected.expect("nothing is missing");
                for lost in [vec![0], vec![1], vec![0, 2], vec![1, 4], vec![3, 4]] {
                    let mut left = holders.clone();
                    left.retain(|(index, _)| !lost.contains(index));
                    let found = ask(&nodes[1], &request(&group, &left, kind, bytes)).await;
                    assert_eq!(
                        found.as_ref(),
                        Ok(&expected),
                        "{kind:?} {lost:?} {bytes}/{len}"
                    );
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_do_not_answer_are_done_without() {
    let settings = Settings {
        group_checksum_timeout: Duration::from_millis(200),
        ..Settings::default()
    };
    let node = Node::with(settings, &[StorageType::Disk]).await;
    let group = Group::new(-1600, policy("rs", 3, 2, CELL), 50_000);
    let mut holders = Vec::new();
    for index in 0..5 {
        group.store(index, &node).await;
        holders.push((index, node.info()));
    }
    let md5 = BlockChecksumType::Md5crc;
    let expected = ask(&node, &request(&group, &holders, md5, 50_000)).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    holders[0].1.id.datanode_uuid = "silent".to_owned();
    holders[0].1.id.xfer_port = silent.local_addr().expect("bound").port().into();
    holders[2].1.id.datanode_uuid = "gone".to_owned();
    holders[2].1.id.xfer_port = 1;
    let found = ask(&node, &request(&group, &holders, md5, 50_000)).await;
    assert_eq!(found, expected);
    // A third one is one too many.
    holders.remove(4);
    let refused = ask(&node, &request(&group, &holders, md5, 50_000)).await;
    let words = refused.expect_err("too few are left");
    assert!(words.contains("cannot be reconstructed"), "{words}");
}
