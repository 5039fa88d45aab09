//! Which writers may have a replica in memory first.

use hayloft_wire::ids::StorageType;
use hayloft_wire::proto::datatransfer::OpWriteBlock;
use hayloft_wire::transfer::Stage;

use super::super::Settings;
use super::client::{Client, Pipeline, write_request};
use super::node::Node;
use super::{block, crc32c, pattern, pool};

const VOLUMES: [StorageType; 2] = [StorageType::Disk, StorageType::RamDisk];
/// Length of a replica, bytes: whole pages of any machine.
const LEN: u64 = 64 << 10;

async fn node(others_too: bool) -> Node {
    let settings = Settings {
        non_local_lazy_persist: others_too,
        ..Settings::default()
    };
    Node::with_memory(16 * LEN, settings, &VOLUMES).await
}

/// A write to memory, if the node lets it.
fn request(id: i64, node: &Node) -> OpWriteBlock {
    let mut block = block(id, 1001);
    block.block.num_bytes = LEN;
    let mut request = write_request(&block, &[node], Stage::PipelineSetupCreate, crc32c());
    request.allow_lazy_persist = Some(true);
    request
}

/// Writes a replica over this connection; where it is.
async fn put(node: &Node, client: Client, id: i64, request: &OpWriteBlock) -> StorageType {
    let pipeline = Pipeline::set_up_on(client, request).await;
    let mut pipeline = pipeline.expect("set up");
    pipeline.write(&pattern(64 << 10), 16 << 10, 1).await;
    pipeline.close(1).await;
    let replica = node.store.replica(&pool(), id).expect("is here");
    replica.storage.storage_type
}

#[tokio::test]
async fn writers_of_other_hosts_go_to_disk_unless_a_key_lets_them() {
    for others_too in [false, true] {
        let node = node(others_too).await;
        let there = Client::connect(&node).await;
        let local = put(&node, there, 1, &request(1, &node)).await;
        assert_eq!(local, StorageType::RamDisk);
        let there = Client::from_elsewhere(&node).await;
        let other = put(&node, there, 2, &request(2, &node)).await;
        let wanted = match others_too {
            true => StorageType::RamDisk,
            false => StorageType::Disk,
        };
        assert_eq!(other, wanted, "others too: {others_too}");
        let counted = node.store.lazy_persist_use();
        // Who may not is no fallback: there was no wish that failed.
        assert_eq!(
            (counted.written, counted.fallbacks),
            (1 + u64::from(others_too), 0)
        );
    }
}

#[tokio::test]
async fn copies_of_nodes_and_writers_that_do_not_ask_go_to_disk() {
    let node = node(true).await;
    let mut of_a_node = request(1, &node);
    of_a_node.header.client_name.clear();
    let mut silent = request(2, &node);
    silent.allow_lazy_persist = None;
    let mut refusing = request(3, &node);
    refusing.allow_lazy_persist = Some(false);
    let mut of_no_length = request(4, &node);
    of_no_length.header.base_header.block.num_bytes = None;
    for (id, request) in [(2, silent), (3, refusing), (4, of_no_length)] {
        let there = Client::connect(&node).await;
        let storage = put(&node, there, id, &request).await;
        assert_eq!(storage, StorageType::Disk, "{id}");
    }
    // A node is told nothing before its copy is through.
    let mut client = Client::connect(&node).await;
    client.request(&of_a_node).await;
    let mut pipeline = Pipeline {
        client,
        checksum: crc32c(),
        offset: 0,
        seqno: 0,
    };
    pipeline.send(&pattern(64 << 10), false).await;
    pipeline.send_raw(LEN, &[], &[], false, true).await;
    node.until_received(1, LEN).await;
    let copy = node.store.replica(&pool(), 1).expect("is here");
    assert_eq!(copy.storage.storage_type, StorageType::Disk);
    assert_eq!(node.store.lazy_persist_use().written, 0);
}
