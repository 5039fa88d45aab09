//! Staged replicas: killed, synced, taken over, counted, read while they grow.

use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_wire::ids::ReplicaState;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

#[tokio::test]
async fn staged_bytes_survive_a_kill_and_a_clean_stop_leaves_no_area() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    for at in 0..10 {
        writer
            .write(vec![packet(at * 64_512, (at + 1) * 64_512)])
            .await
            .expect("stages");
    }
    assert_eq!(
        node.data_len(),
        0,
        "nothing is on its way before it is worth a write"
    );
    let node = node.kill_and_start().await;
    drop(writer);
    let replica = node.store.replica(&pool(), 5).expect("there");
    assert_eq!(
        (replica.state, replica.bytes_on_disk),
        (ReplicaState::Rwr, 645_120)
    );
    let len = replica.bytes_on_disk;
    let begun = node
        .store
        .init_replica_recovery(&block(5, 1001, 0), 1010)
        .await;
    begun.expect("begins");
    node.store
        .update_replica_under_recovery(&block(5, 1001, len), 1010, 0, len)
        .await
        .expect("ends");
    node.check(5, 1010, 645_120).await;
    // A replica that is being written when the node stops cleanly.
    let mut writer = node.writer(6, 1001).await;
    writer
        .write(vec![packet(0, 300_000)])
        .await
        .expect("stages");
    let stop = tokio::spawn({
        let store = node.store.clone();
        async move { store.shutdown().await }
    });
    writer.cancelled().await;
    drop(writer);
    stop.await.expect("stops");
    assert_eq!(node.areas(), 0);
    let node = node.restart().await;
    let replica = node.store.replica(&pool(), 6).expect("there");
    assert_eq!(replica.bytes_on_disk, 300_000);
}

/// As HBase's log is written: small packets, each of which sends the last chunk again from its beginning.
#[tokio::test]
async fn small_packets_that_send_their_chunk_again_are_kept_at_any_kill() {
    let mut rng = StdRng::seed_from_u64(7);
    for round in 0..6 {
        let node = Node::new().await;
        let mut writer = node.writer(5, 1001).await;
        let mut len = 0;
        for n in 0..300 {
            let next = len + rng.random_range(1..900);
            let from = len - len % 512;
            assert_eq!(
                writer.stage(&[packet(from, next)]).expect("stages"),
                Staged::Kept
            );
            len = next;
            if n % 97 == 96 {
                writer.sync().await.expect("syncs");
            }
            if n % 10 == round {
                let reader = node
                    .store
                    .open_reader(&block(5, 1001, 0))
                    .await
                    .expect("opens");
                assert_eq!(reader.readable_len(), len as u64);
                check_reader(&reader, len).await;
            }
        }
        if round % 2 == 0 {
            let node = node.kill_and_start().await;
            let replica = node.store.replica(&pool(), 5).expect("there");
            assert_eq!(replica.bytes_on_disk, len as u64);
            drop(writer);
        } else {
            writer.finalize().await.expect("finalizes");
            node.check(5, 1001, len).await;
        }
    }
}

#[tokio::test]
async fn synced_bytes_keep_their_checksum_until_their_successors_are_on_the_device() {
    let (node, faults) = Node::faulty(1).await;
    let meta = node.pool_dir().join("current/rbw/blk_5_1001.meta");
    let data_syncs = || {
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Sync])
            .at(|path| path.ends_with("blk_5"))
    };
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("stages");
    writer.sync().await.expect("syncs");
    let before = std::fs::read(&meta).expect("there");
    writer.write(vec![packet(512, 900)]).await.expect("stages");
    let rule = faults.add(data_syncs());
    writer.sync().await.expect_err("the data cannot be synced");
    assert_eq!(faults.fired(rule), 1);
    assert_eq!(std::fs::read(&meta).expect("there"), before);
    faults.clear();
    // The failure is not forgotten: what the device has is not known.
    assert!(writer.stage(&[packet(900, 1000)]).is_err());
}

#[tokio::test]
async fn a_sync_on_the_way_counts() {
    let (node, faults) = Node::faulty(1).await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("stages");
    writer.sync().await.expect("syncs");
    for (from, to) in [(512, 800), (512, 900), (512, 1100), (1024, 1200)] {
        writer.write(vec![packet(from, to)]).await.expect("stages");
        let rule = faults.add(
            FaultRule::new(Effect::Delay(Duration::ZERO))
                .on(&[IoOp::Sync])
                .at(|path| path.ends_with("blk_5")),
        );
        writer.sync().await.expect("syncs");
        assert_eq!(faults.fired(rule), 1, "once for {from} to {to}");
        faults.clear();
    }
}

#[tokio::test]
async fn used_space_is_exact_after_staged_replicas_are_deleted_or_finalized() {
    let node = Node::new().await;
    let used = || node.store.storage_reports(&pool())[0].dfs_used;
    let before = used();
    for id in 0..6 {
        let mut writer = node.writer(id, 1001).await;
        writer
            .write(vec![packet(0, 5_000_000)])
            .await
            .expect("stages");
        if id % 2 == 0 {
            writer
                .write(vec![packet(5_000_000, 5_000_700)])
                .await
                .expect("stages");
        }
        assert_eq!(
            used() - before,
            crc32c().meta_len(writer.bytes_on_disk()) + writer.bytes_on_disk()
        );
        if id % 3 == 0 {
            writer.finalize().await.expect("finalizes");
        } else {
            drop(writer);
        }
        let target = Block::new(id, 1001, 0);
        node.store
            .invalidate(&pool(), &[target])
            .await
            .expect("deletes");
        for _ in 0..500 {
            if used() == before {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(used(), before, "after {id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_follow_a_writer_through_staging_and_files() {
    for engine in ["posix", "direct"] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut config = config(dir.path(), 1);
        config.volumes[0].engine = engine.to_owned();
        let node = Node::start(dir, 1, config).await;
        let mut writer = node.writer(5, 1001).await;
        let len = 24 << 20;
        let store = node.store.clone();
        let readers: Vec<_> = (0..3_u64)
            .map(|seed| {
                let store = store.clone();
                tokio::spawn(async move {
                    let mut rng = StdRng::seed_from_u64(seed);
                    loop {
                        let reader = store.open_reader(&block(5, 1001, 0)).await.expect("opens");
                        let there = usize::try_from(reader.readable_len()).expect("small");
                        if there > 0 {
                            check_range(&reader, &mut rng, there).await;
                        }
                        if there == len {
                            return;
                        }
                    }
                })
            })
            .collect();
        let all = packet(0, len);
        let mut at = 0;
        while at < len {
            let next = (at + 64_512).min(len);
            let part = PacketData {
                offset: at as u64,
                data: all.data.without(at).first(next - at),
                sums: all.sums.slice(at / 512 * 4..next.div_ceil(512) * 4),
            };
            writer.write(vec![part]).await.expect("stages");
            writer.set_bytes_acked(next as u64);
            at = next;
            tokio::task::yield_now().await;
        }
        for reader in readers {
            reader.await.expect("reads");
        }
        writer.finalize().await.expect("finalizes");
        node.check(5, 1001, len).await;
        let meta = std::fs::metadata(
            node.pool_dir()
                .join("current/finalized/subdir0/subdir0/blk_5"),
        );
        use std::os::unix::fs::MetadataExt as _;
        assert!(
            meta.expect("there").blocks() * 512 <= len as u64 + 65_536,
            "trimmed"
        );
    }
}

/// A random range of whole chunks, data and checksums.
async fn check_range(reader: &ReplicaReader, rng: &mut StdRng, there: usize) {
    let from = rng.random_range(0..there) / 512 * 512;
    let to = there
        .min(from + rng.random_range(1..1_000_000))
        .next_multiple_of(512)
        .min(there);
    let data = reader
        .read_data(AlignedBuf::unpooled(to - from), from as u64, to - from)
        .await
        .expect("reads");
    assert!(data.as_slice() == bytes(from, to));
    let count = (to - from).div_ceil(512) as u64;
    let sums = reader
        .read_sums(from as u64 / 512, count)
        .await
        .expect("reads");
    reader
        .checksum()
        .verify(data.as_slice(), &sums)
        .expect("fit");
}

#[tokio::test]
async fn room_is_reserved_ahead_counted_once_and_given_back() {
    let node = Node::new().await;
    let options = WriteOptions {
        expected_len: Some(64 << 20),
        ..WriteOptions::default()
    };
    let mut writer = node
        .store
        .create_rbw(&block(5, 1001, 0), options)
        .await
        .expect("creates");
    writer.set_checksum(crc32c()).await.expect("header");
    writer
        .write(vec![packet(0, 3 << 20)])
        .await
        .expect("stages");
    use std::os::unix::fs::MetadataExt as _;
    let rbw = node.pool_dir().join("current/rbw/blk_5");
    let blocks = |path: &Path| std::fs::metadata(path).expect("there").blocks() * 512;
    for _ in 0..200 {
        if blocks(&rbw) >= 64 << 20 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(blocks(&rbw) >= 64 << 20, "the whole block");
    assert!(node.data_len() <= 3 << 20, "its length is that of data");
    // A killed process leaves nothing behind the data.
    let node = node.kill_and_start().await;
    drop(writer);
    assert_eq!(node.data_len(), 3 << 20);
    assert!(blocks(&rbw) < 4 << 20);
}

/// Reserving room and writing around the page cache wait for each other (ext4): the first writes come after it.
#[tokio::test]
async fn the_first_writes_wait_for_the_reservation_of_room_and_only_for_that() {
    let (node, faults) = Node::faulty(1).await;
    let is_data = |path: &Path| path.ends_with("blk_5");
    faults.add(
        FaultRule::new(Effect::Delay(Duration::from_millis(400)))
            .on(&[IoOp::Allocate])
            .at(is_data),
    );
    let rule = FaultRule::new(Effect::Delay(Duration::ZERO)).on(&[IoOp::Write]);
    let writes = faults.add(rule.at(is_data));
    let options = |expected| WriteOptions {
        expected_len: Some(expected),
        ..WriteOptions::default()
    };
    let begin = |expected| {
        let store = node.store.clone();
        async move {
            let target = block(5, 1001, 0);
            let created = store.create_rbw(&target, options(expected));
            let mut writer = created.await.expect("creates");
            writer.set_checksum(crc32c()).await.expect("header");
            writer
        }
    };
    let settled = async |count: u64| {
        for _ in 0..500 {
            if faults.fired(writes) >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} writes", faults.fired(writes));
    };
    let mut writer = begin(64 << 20).await;
    let packets = vec![packet(0, 3 << 20)];
    writer.write(packets).await.expect("stages");
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(faults.fired(writes), 0, "room is being reserved");
    settled(1).await;
    // A flush waits for nothing.
    drop(writer);
    let target = [Block::new(5, 1001, 0)];
    node.store.invalidate(&pool(), &target).await.expect("goes");
    let before = faults.fired(writes);
    let mut writer = begin(64 << 20).await;
    let packets = vec![packet(0, 700_000)];
    writer.write(packets).await.expect("stages");
    writer.sync().await.expect("syncs");
    assert!(faults.fired(writes) > before);
    drop(writer);
    // Nor does a replica that grows beyond what it was expected to be, for which no room is reserved.
    node.store.invalidate(&pool(), &target).await.expect("goes");
    let before = faults.fired(writes);
    let mut writer = begin(3 << 19).await;
    let packets = vec![packet(0, 1_200_000), packet(1_200_000, 3 << 20)];
    writer.write(packets).await.expect("stages");
    settled(before + 1).await;
}
