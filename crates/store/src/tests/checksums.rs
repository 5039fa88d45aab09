//! Replicas whose meta file is missing, damaged or being renamed.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hayloft_wire::checksum::META_HEADER_LEN;

use super::*;

fn finalized(node: &Node) -> PathBuf {
    node.pool_dir().join("current/finalized/subdir0/subdir0")
}

async fn scanning() -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = StoreConfig {
        scan: ScanConfig {
            period: Duration::from_secs(3600),
            bytes_per_second: 1 << 30,
        },
        ..config(dir.path(), 1)
    };
    Node::start(dir, 1, config).await
}

/// Waits until the replica is reported; the round may have reported another one a second time.
async fn reported(node: &mut Node, wanted: ExtendedBlock) {
    loop {
        let event = tokio::time::timeout(Duration::from_secs(10), node.events.recv())
            .await
            .expect("in time")
            .expect("open");
        match event {
            StoreEvent::Corrupt { block, .. } if block == wanted => return,
            StoreEvent::Corrupt { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_missing_meta_file_is_tolerated_for_clients_only() {
    let mut node = scanning().await;
    node.put(1, 1001, 3000).await;
    fs::remove_file(finalized(&node).join("blk_1_1001.meta")).expect("removes");
    let reader = node
        .store
        .open_reader(&block(1, 1001, 0))
        .await
        .expect("better than nothing");
    assert_eq!(reader.checksum().kind(), ChecksumKind::Null);
    assert!(reader.read_sums(0, 1).await.expect("none").is_empty());
    let refused = node.store.open_verifiable(&block(1, 1001, 0)).await;
    assert_eq!(Node::error_of(refused), StoreErrorKind::Corrupt);
    // The refusal made it a suspect.
    reported(&mut node, block(1, 1001, 3000)).await;
}

/// What is left fits its checksums, and would be copied as the whole.
#[tokio::test]
async fn a_data_file_that_lacks_whole_chunks_is_for_clients_only() {
    let node = Node::new().await;
    for (id, left) in [(1, 1024), (2, 0)] {
        node.put(id, 1001, 3000).await;
        let data = finalized(&node).join(format!("blk_{id}"));
        let file = fs::OpenOptions::new().write(true).open(&data);
        file.and_then(|file| file.set_len(left)).expect("cut");
    }
    let node = node.kill_and_start().await;
    for id in [1, 2] {
        let read = node.store.open_reader(&block(id, 1001, 0)).await;
        read.expect("better than nothing");
        let refused = node.store.open_verifiable(&block(id, 1001, 0)).await;
        assert_eq!(Node::error_of(refused), StoreErrorKind::Corrupt);
    }
}

#[tokio::test]
async fn a_damaged_meta_header_is_an_error_for_every_reader() {
    let mut node = scanning().await;
    for (id, keep) in [(1, META_HEADER_LEN), (2, 3)] {
        node.put(id, 1001, 3000).await;
        let path = finalized(&node).join(format!("blk_{id}_1001.meta"));
        let mut contents = fs::read(&path).expect("there");
        contents[..3].fill(0xff);
        contents.truncate(keep);
        fs::write(&path, contents).expect("writes");
        let refused = node.store.open_reader(&block(id, 1001, 0)).await;
        assert_eq!(Node::error_of(refused), StoreErrorKind::Corrupt);
        reported(&mut node, block(id, 1001, 3000)).await;
        let refused = node.store.open_verifiable(&block(id, 1001, 0)).await;
        assert_eq!(Node::error_of(refused), StoreErrorKind::Corrupt);
    }
}

#[tokio::test]
async fn a_replica_written_without_checksums_can_be_copied() {
    let node = Node::new().await;
    let null = DataChecksum::new(ChecksumKind::Null, 512).expect("valid");
    let mut writer = node
        .store
        .create_rbw(&block(1, 1001, 0), WriteOptions::default())
        .await
        .expect("creates");
    writer.set_checksum(null).await.expect("header");
    writer
        .write(vec![packet_with(null, 0, 3000)])
        .await
        .expect("writes");
    writer.finalize().await.expect("finalizes");
    let reader = node.store.open_verifiable(&block(1, 1001, 0)).await;
    check_reader(&reader.expect("opens"), 3000).await;
}

#[tokio::test]
async fn a_live_replica_without_meta_file_is_refused() {
    let node = Node::new().await;
    let mut writer = node.writer(1, 1001).await;
    writer.write(vec![packet(0, 3000)]).await.expect("writes");
    fs::remove_file(node.pool_dir().join("current/rbw/blk_1_1001.meta")).expect("removes");
    let refused = node.store.open_reader(&block(1, 1001, 0)).await;
    assert_eq!(Node::error_of(refused), StoreErrorKind::Corrupt);
}

/// Every reader has checksums, however often the files are renamed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_never_misses_a_meta_file_that_is_being_renamed() {
    let node = Node::new().await;
    node.put(1, 1001, 3000).await;
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..6)
        .map(|n| {
            let (store, done) = (node.store.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                let mut opened = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    let any = block(1, 1001, 0);
                    let reader = if n % 2 == 0 {
                        store.open_reader(&any).await
                    } else {
                        store.open_verifiable(&any).await
                    };
                    let reader = reader.expect("it is always there");
                    assert_eq!(reader.checksum().kind(), ChecksumKind::Crc32c);
                    let sums = reader.read_sums(0, 6).await.expect("there");
                    assert_eq!(sums.len(), 24);
                    opened += 1;
                    // Files that are open already are read without waiting.
                    tokio::task::yield_now().await;
                }
                opened
            })
        })
        .collect();
    let mut gs = 1001;
    for _ in 0..60 {
        let next = gs + 1;
        let writer = node.store.append(&block(1, gs, 3000), next, 3000).await;
        drop(writer.expect("appends"));
        let writer = node
            .store
            .recover_append(&block(1, next, 3000), next + 1, 3000)
            .await
            .expect("goes on");
        writer.finalize().await.expect("finalizes");
        node.store
            .recover_close(&block(1, next + 1, 3000), next + 2, 3000)
            .await
            .expect("bumps");
        gs = next + 2;
    }
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.await.expect("no panic") > 0);
    }
}
