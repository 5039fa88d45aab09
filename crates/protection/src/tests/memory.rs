//! Members that are encoded from memory, because their disks are written past the page cache.

use super::*;

const LEN: usize = 300_000;

/// A node on the engine `direct` with `memory` bytes for new replicas.
async fn direct(memory: u64) -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 4, shape(2, 1));
    for volume in &mut config.volumes {
        volume.engine = "direct".into();
    }
    let parity = &mut config.parity;
    parity.memory = memory;
    // Of waiting ones in memory the first to come would go.
    parity.patience = Duration::from_secs(600);
    Node::start(dir, 4, config).await
}

async fn put_expected(node: &Node, id: i64, len: usize) {
    let options = WriteOptions {
        expected_len: Some(len as u64),
        ..WriteOptions::default()
    };
    let created = node.store.create_rbw(&block(id, 1001, 0), options).await;
    let mut writer = created.expect("creates");
    writer.set_checksum(crc32c()).await.expect("header");
    let content = content(id, len);
    // A write for each: the second goes on where the first ended.
    for (from, to) in [(0, len / 2), (len / 2, len)] {
        let from = from / 512 * 512;
        let to = if to == len { len } else { to / 512 * 512 };
        let packet = packet_of(&content[from..to], from);
        writer.write(vec![packet]).await.expect("writes");
    }
    writer.finalize().await.expect("finalizes");
}

/// Bytes that were encoded, and those of them that no disk was read for.
fn encoded(node: &Node) -> (u64, u64) {
    let now = status(node);
    (now.encoded_bytes, now.encoded_from_memory_bytes)
}

#[tokio::test]
async fn new_replicas_are_encoded_without_reading_their_disks() {
    let node = direct(16 << 20).await;
    for id in 1..=4 {
        put_expected(&node, id, LEN).await;
    }
    assert_eq!(status(&node).memory_bytes, 4 << 20);
    round(&node).await;
    assert_eq!(encoded(&node), (4 * LEN as u64, 4 * LEN as u64));
    let now = status(&node);
    assert_eq!((now.memory_bytes, now.unprotected_bytes), (0, 0));
    // Their parity decodes what was on a disk that dies.
    kill_disk(&node, 0).await;
    for id in 1..=4 {
        check(&node, id, LEN).await;
    }
}

#[tokio::test]
async fn what_does_not_fit_into_memory_is_read_again() {
    // Room for two.
    let node = direct(2 << 20).await;
    for id in 1..=4 {
        put_expected(&node, id, LEN).await;
    }
    round(&node).await;
    assert_eq!(encoded(&node), (4 * LEN as u64, 2 * LEN as u64));
}

#[tokio::test]
async fn memory_that_is_not_what_the_checksums_say_is_not_believed() {
    let node = direct(16 << 20).await;
    for id in 1..=2 {
        put_expected(&node, id, LEN).await;
    }
    let parity = &node.parity;
    let pool_here = node.store.state().pool(&pool()).expect("there");
    let volume = node.store.replica(&pool(), 1).expect("there").storage;
    let slices = pool_here.slices();
    let slice = slices.iter().find(|s| s.volume.info.id == volume.id);
    let key = crate::recent_key(slice.expect("there"), 1);
    let wrong = Bytes::from(vec![1; LEN]);
    parity.recent.written(&key, (0, LEN as u64), &[wrong]);
    assert!(parity.recent.has(&key, LEN as u64));
    round(&node).await;
    round(&node).await;
    let now = status(&node);
    assert_eq!((now.groups, now.unprotected_bytes), (1, 0));
    kill_disk(&node, volume_of(&node, 1)).await;
    check(&node, 1, LEN).await;
}

#[tokio::test]
async fn a_deleted_replica_leaves_no_memory_behind() {
    let node = direct(16 << 20).await;
    put_expected(&node, 1, LEN).await;
    assert!(status(&node).memory_bytes > 0);
    let wanted = [Block::new(1, 1001, LEN as u64)];
    let ordered = node.store.invalidate(&pool(), &wanted).await;
    ordered.expect("there");
    let mut left = status(&node).memory_bytes;
    for _ in 0..200 {
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        left = status(&node).memory_bytes;
    }
    assert_eq!(left, 0);
}

/// Parity that leaves the disks to clients for a while.
fn holding(config: &mut Protected, hold: Duration) {
    let parity = &mut config.parity;
    (parity.hold, parity.groups_at_once) = (hold, 4);
    parity.patience = Duration::from_secs(600);
}

#[tokio::test]
async fn while_clients_write_new_replicas_wait_until_memory_is_tight() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 4, shape(2, 1));
    holding(&mut config, Duration::from_secs(600));
    for volume in &mut config.volumes {
        volume.engine = "direct".into();
    }
    // Half of it is four replicas.
    config.parity.memory = 8 << 20;
    let node = Node::start(dir, 4, config).await;
    for id in 1..=2 {
        put_expected(&node, id, LEN).await;
    }
    round(&node).await;
    assert_eq!(status(&node).groups, 0, "the disks are the client's");
    for id in 3..=4 {
        put_expected(&node, id, LEN).await;
    }
    round(&node).await;
    assert_eq!(status(&node).groups, 2, "memory is tight");
    put_expected(&node, 5, LEN).await;
    put_expected(&node, 6, LEN).await;
    round(&node).await;
    assert_eq!(status(&node).groups, 2);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    round(&node).await;
    assert_eq!(status(&node).groups, 3, "the client is done");
}

#[tokio::test]
async fn who_writes_on_and_on_gets_parity_too() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 4, shape(2, 1));
    holding(&mut config, Duration::from_millis(300));
    let node = Node::start(dir, 4, config).await;
    put(&node, 1, LEN).await;
    put(&node, 2, LEN).await;
    round(&node).await;
    assert_eq!(status(&node).groups, 0);
    tokio::time::sleep(Duration::from_millis(310)).await;
    put(&node, 3, LEN).await;
    round(&node).await;
    assert_eq!(status(&node).groups, 1);
}
