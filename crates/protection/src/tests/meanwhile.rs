//! What others did to the directories while no process of ours saw it.

use super::*;

async fn two(node: Node) -> Node {
    put(&node, 1, 100_000).await;
    put(&node, 2, 90_000).await;
    round(&node).await;
    assert_eq!(status(&node).protected_bytes, 190_000);
    node
}

/// A stock node removes the list of replicas that a clean stop leaves: nodes are killed here.
///
/// Replaces the files of a replica by others that fit each other, as another node would.
fn rewrite(data: &Path, gs: (u64, u64), bytes: &[u8]) {
    let name = data.file_name().and_then(|n| n.to_str()).expect("named");
    let meta = |gs| data.with_file_name(format!("{name}_{gs}.meta"));
    std::fs::write(data, bytes).expect("writes");
    std::fs::remove_file(meta(gs.0)).expect("there");
    let mut sums = crc32c().encode_meta_header().to_vec();
    crc32c().compute(bytes, &mut sums);
    std::fs::write(meta(gs.1), sums).expect("writes");
}

async fn settle(node: &Node) {
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        round(node).await;
    }
}

#[tokio::test]
async fn a_member_that_another_node_changed_gets_a_new_group() {
    let shape = shape(2, 1);
    let node = two(start(3, shape).await).await;
    let data = data_file(&node, 1);
    node.store.crash();
    // Truncated and appended to: longer than before, and not what it was.
    rewrite(&data, (1001, 1005), &content(7, 120_000));
    let config = protected(node.dir.path(), 3, shape);
    let node = Node::start(node.dir, 3, config).await;
    settle(&node).await;
    let now = status(&node);
    assert_eq!(
        (
            now.protected_bytes,
            now.unprotected_bytes,
            now.degraded_bytes
        ),
        (210_000, 0, 0)
    );
    check(&node, 2, 90_000).await;
    check_files(&node, shape);
    kill_disk(&node, volume_of(&node, 2)).await;
    check(&node, 2, 90_000).await;
}

#[tokio::test]
async fn a_member_that_another_node_appended_to_stays_a_source() {
    let shape = shape(2, 1);
    let node = two(start(3, shape).await).await;
    let data = data_file(&node, 1);
    node.store.crash();
    rewrite(&data, (1001, 1005), &content(1, 120_000));
    let config = protected(node.dir.path(), 3, shape);
    let node = Node::start(node.dir, 3, config).await;
    kill_disk(&node, volume_of(&node, 2)).await;
    check(&node, 2, 90_000).await;
}

#[tokio::test]
async fn what_another_node_deleted_is_not_brought_back() {
    let shape = shape(2, 1);
    let node = two(start(3, shape).await).await;
    let (data, disk) = (data_file(&node, 1), volume_of(&node, 1));
    node.store.crash();
    std::fs::remove_file(&data).expect("there");
    std::fs::remove_file(data.with_file_name("blk_1_1001.meta")).expect("there");
    let config = protected(node.dir.path(), 3, shape);
    let node = Node::start(node.dir, 3, config).await;
    assert_eq!(reported(&node), [2]);
    round(&node).await;
    round(&node).await;
    assert_eq!(
        (status(&node).protected_bytes, reported(&node)),
        (90_000, vec![2])
    );
    kill_disk(&node, disk).await;
    assert_eq!(reported(&node), [2]);
}

#[tokio::test]
async fn only_the_directory_of_groups_is_added_to_a_volume() {
    let node = two(start(3, shape(2, 1)).await).await;
    for volume in 0..3 {
        let entries = std::fs::read_dir(node.dir.path().join(format!("data{volume}")));
        let mut names: Vec<String> = entries
            .expect("there")
            .map(|e| e.expect("reads").file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with('.') && name != "in_use.lock")
            .collect();
        names.sort();
        assert!(
            names == ["current", PARITY_DIR] || names == ["current"],
            "{names:?}"
        );
    }
}
