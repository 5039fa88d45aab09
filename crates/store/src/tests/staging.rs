//! Staged replicas: killed, cut off, full, taken over, read while they grow.

use super::*;
use std::sync::Arc;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule, Faults};
use hayloft_wire::ids::ReplicaState;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const SEGMENT: usize = 256 << 10;

async fn faulty(volumes: usize) -> (Node, Arc<Faults>) {
    faulty_with(volumes, StagingOptions::default().budget).await
}

async fn faulty_with(volumes: usize, budget: u64) -> (Node, Arc<Faults>) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let mut config = config(dir.path(), volumes);
    config.staging.budget = budget;
    let config = StoreConfig {
        faults: Some((dir.path().join("data0"), Arc::clone(&faults))),
        failed_volumes_tolerated: 1,
        check_min_gap: Duration::ZERO,
        ..config
    };
    (Node::start(dir, volumes, config).await, faults)
}

/// Writes a replica whose bytes do not fit onto the disk with the faults, and leaves it there; whether it was on that one.
async fn left_on_full_disk(node: &Node, faults: &Faults, id: i64, len: usize) -> bool {
    let first = node.pool_dir();
    let options = WriteOptions::default();
    let created = node.store.create_rbw(&block(id, 1001, 0), options).await;
    let mut writer = created.expect("creates");
    if !first.join(format!("current/rbw/blk_{id}")).exists() {
        return false;
    }
    // The header goes straight to the file.
    faults.clear();
    writer.set_checksum(crc32c()).await.expect("header");
    faults.add(FaultRule::new(Effect::Errno(ENOSPC)).on(&[IoOp::Write]));
    let written = writer.write(vec![packet(0, len)]).await;
    written.expect("stages");
    writer.sync().await.expect_err("does not fit");
    true
}

fn on_data(errno: i32) -> FaultRule {
    FaultRule::new(Effect::Errno(errno))
        .on(&[IoOp::Write])
        .at(|path| path.ends_with("blk_5"))
}

fn data_len(node: &Node) -> u64 {
    let path = node.pool_dir().join("current/rbw/blk_5");
    std::fs::metadata(path).expect("there").len()
}

fn areas(node: &Node) -> usize {
    let entries = std::fs::read_dir(node.dir.path()).expect("there");
    entries
        .filter(|e| {
            let name = e.as_ref().expect("reads").file_name();
            name.to_string_lossy().starts_with("hayloft-staging")
        })
        .count()
}

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
        data_len(&node),
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
    assert_eq!(areas(&node), 0);
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
    let (node, faults) = faulty(1).await;
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
    let (node, faults) = faulty(1).await;
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
async fn a_full_disk_is_told_and_what_was_acknowledged_waits_for_room() {
    let (node, faults) = faulty(1).await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("stages");
    writer.sync().await.expect("syncs");
    faults.add(on_data(ENOSPC));
    writer
        .write(vec![packet(700, 100_000)])
        .await
        .expect("stages");
    writer.sync().await.expect_err("does not fit");
    assert!(writer.stage(&[packet(100_000, 100_001)]).is_err());
    // What was acknowledged can still be read.
    let reader = node
        .store
        .open_reader(&block(5, 1001, 0))
        .await
        .expect("opens");
    assert_eq!(reader.readable_len(), 100_000);
    check_reader(&reader, 100_000).await;
    writer.finalize().await.expect_err("does not fit");
    // Nor can another writer have it, until there is room.
    let taken = node
        .store
        .recover_rbw(&block(5, 1001, 0), 1002, 0, u64::MAX)
        .await;
    taken.expect_err("does not fit");
    faults.clear();
    // Not acknowledged by the pipeline: a recovery drops it, and gets it sent again.
    let mut writer = node
        .store
        .recover_rbw(&block(5, 1001, 0), 1002, 0, u64::MAX)
        .await
        .expect("there is room");
    writer.set_checksum(crc32c()).await.expect("known");
    assert_eq!(writer.bytes_on_disk(), 0);
    writer
        .write(vec![packet(0, 200_000)])
        .await
        .expect("stages");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1002, 200_000).await;
}

#[tokio::test]
async fn bytes_that_could_not_be_written_outlive_the_process() {
    let (node, faults) = faulty(1).await;
    let mut writer = node.writer(5, 1001).await;
    writer
        .write(vec![packet(0, 3 * SEGMENT)])
        .await
        .expect("stages");
    faults.add(on_data(EIO).times(1));
    writer.sync().await.expect_err("fails");
    let node = node.kill_and_start().await;
    drop(writer);
    let replica = node.store.replica(&pool(), 5).expect("there");
    assert_eq!(replica.bytes_on_disk, 3 * SEGMENT as u64);
}

/// A volume that is not there at the start, and is put into use later: what was staged for it is waiting.
#[tokio::test]
async fn what_was_kept_of_a_volume_is_written_when_it_comes_back() {
    let node = Node::with_volumes(2).await;
    let mut writers = Vec::new();
    for id in 0..2 {
        let mut writer = node.writer(id, 1001).await;
        let written = writer.write(vec![packet(0, 2 * SEGMENT)]).await;
        written.expect("stages");
        writers.push(writer);
    }
    let of_first = i64::from(!node.pool_dir().join("current/rbw/blk_0").exists());
    node.store.crash();
    drop(writers);
    let (data, away) = (node.dir.path().join("data0"), node.dir.path().join("away"));
    std::fs::rename(&data, &away).expect("moves");
    std::fs::write(&data, "").expect("in its place");
    let mut tolerant = config(node.dir.path(), 2);
    tolerant.failed_volumes_tolerated = 1;
    let all = tolerant.volumes.clone();
    let node = Node::start(node.dir, 2, tolerant).await;
    assert!(node.store.replica(&pool(), of_first).is_none());
    assert_eq!(areas(&node), 2, "one in use, one kept");
    std::fs::remove_file(&data).expect("removes");
    std::fs::rename(&away, &data).expect("moves");
    let results = node.store.reconfigure_volumes(all).await;
    assert!(results.iter().all(|(_, r)| r.is_ok()), "{results:?}");
    for id in 0..2 {
        let replica = node.store.replica(&pool(), id).expect("there");
        assert_eq!(replica.bytes_on_disk, 2 * SEGMENT as u64, "{id}");
    }
    assert_eq!(areas(&node), 1, "nothing is kept any more");
}

/// Of replicas whose writers have gone, on a disk that stays full, a quarter of the area is kept: other volumes need it.
#[tokio::test]
async fn left_replicas_on_a_full_disk_do_not_keep_all_of_staging() {
    let (mut node, faults) = faulty_with(2, 16 << 20).await;
    let staging = node.store.staging().expect("is on");
    let quarter = staging.capacity_bytes() / 4;
    let (mut left, mut bytes) = (0, 0);
    for id in 0..400 {
        if !left_on_full_disk(&node, &faults, id, SEGMENT).await {
            continue;
        }
        left += 1;
        bytes += SEGMENT as u64;
        if bytes > quarter + SEGMENT as u64 {
            break;
        }
    }
    let lost = tokio::time::timeout(Duration::from_secs(10), node.events.recv()).await;
    let Ok(Some(StoreEvent::Lost { block, .. })) = lost else {
        panic!("{lost:?}");
    };
    assert!(node.store.replica(&pool(), block.block.id).is_none());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let kept = staging.segments_in_use() as u64 * SEGMENT as u64;
    assert!(kept <= quarter, "{kept} of {quarter}");
    assert!(
        kept + 2 * SEGMENT as u64 > quarter,
        "no more than needed: {kept} of {bytes}"
    );
    // What was kept is written when there is room.
    faults.clear();
    for _ in 0..1000 {
        if staging.segments_in_use() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(staging.segments_in_use(), 0);
    let whole = (0..400).filter(|id| {
        let replica = node.store.replica(&pool(), *id);
        replica.is_some_and(|replica| replica.bytes_on_disk == SEGMENT as u64)
    });
    assert_eq!(whole.count() as u64, kept / SEGMENT as u64, "of {left}");
}

#[tokio::test]
async fn after_a_failed_sync_nothing_of_the_replica_is_said_to_be_synced() {
    let (node, faults) = faulty(1).await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 5000)]).await.expect("stages");
    faults.add(
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Sync])
            .times(1),
    );
    writer.sync().await.expect_err("fails");
    writer
        .sync()
        .await
        .expect_err("the kernel tells of it once");
    drop(writer);
    let taken = node
        .store
        .recover_rbw(&block(5, 1001, 0), 1002, 0, u64::MAX)
        .await;
    let mut writer = taken.expect("recovers");
    writer.set_checksum(crc32c()).await.expect("known");
    let at = usize::try_from(writer.bytes_on_disk()).expect("small");
    writer.write(vec![packet(at, 9000)]).await.expect("stages");
    let error = writer.sync().await.expect_err("of an earlier writer");
    assert!(error.to_string().contains("earlier sync"), "{error}");
    writer.finalize().await.expect("a close promises less");
    node.check(5, 1002, 9000).await;
}

/// Where closes are synced, a recovery fails rather than promise that after a failed sync.
#[tokio::test]
async fn no_recovery_calls_a_replica_synced_after_a_failed_sync() {
    for failing in [false, true] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let faults = Faults::new(1);
        let config = StoreConfig {
            faults: Some((dir.path().join("data0"), Arc::clone(&faults))),
            sync_on_close: true,
            check_min_gap: Duration::ZERO,
            ..config(dir.path(), 1)
        };
        let node = Node::start(dir, 1, config).await;
        let mut writer = node.writer(5, 1001).await;
        writer.write(vec![packet(0, 5000)]).await.expect("stages");
        if failing {
            let once = FaultRule::new(Effect::Errno(EIO)).times(1);
            faults.add(once.on(&[IoOp::Sync]));
        }
        assert_eq!(writer.sync().await.is_err(), failing);
        writer.set_bytes_acked(5000);
        drop(writer);
        let left = block(5, 1001, 0);
        let closed = node.store.recover_close(&left, 1002, 5000).await;
        if failing {
            let error = closed.expect_err("the kernel tells of it once");
            assert!(error.to_string().contains("earlier sync"), "{error}");
        } else {
            closed.expect("is synced and closed");
            node.check(5, 1002, 5000).await;
        }
    }
}

/// Bytes that cannot be written stay in their segments: only giving the replica up frees these.
#[tokio::test]
async fn a_replica_that_is_deleted_or_lost_with_its_volume_gives_its_segments_back() {
    let (node, faults) = faulty(2).await;
    let staging = || node.store.staging().expect("is on");
    let mut ids = Vec::new();
    for id in 0..8 {
        if left_on_full_disk(&node, &faults, id, 700_000).await {
            ids.push(id);
        }
    }
    assert_eq!((ids.len(), staging().segments_in_use()), (4, 4 * 3));
    for id in &ids[..2] {
        let block = Block::new(*id, 1001, 0);
        node.store
            .invalidate(&pool(), &[block])
            .await
            .expect("deletes");
    }
    assert_eq!(staging().segments_in_use(), 2 * 3);
    let all = config(node.dir.path(), 2).volumes;
    let results = node.store.reconfigure_volumes(all[1..].to_vec()).await;
    // Whoever takes it out hears what he lost.
    let [(path, Err(error))] = &results[..] else {
        panic!("{results:?}");
    };
    assert_eq!(path, &all[0].path);
    assert!(
        error.to_string().contains("are lost on this node"),
        "{error}"
    );
    assert_eq!(staging().segments_in_use(), 0);
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
    assert!(data_len(&node) <= 3 << 20, "its length is that of data");
    // A killed process leaves nothing behind the data.
    let node = node.kill_and_start().await;
    drop(writer);
    assert_eq!(data_len(&node), 3 << 20);
    assert!(blocks(&rbw) < 4 << 20);
}

/// Reserving room and writing around the page cache wait for each other (ext4): the first writes come after it.
#[tokio::test]
async fn the_first_writes_wait_for_the_reservation_of_room_and_only_for_that() {
    let (node, faults) = faulty(1).await;
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

const CHILD_DIR: &str = "HAYLOFT_TEST_STAGING_DIR";
const WRITERS: i64 = 4;

/// Not a test of its own: the process that the next one kills. Writes until it dies, and prints what it would have
/// acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of another test, which starts it"]
async fn child_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let (sender, _events) = mpsc::channel(100);
    let store = Store::open(config(Path::new(&dir), 1), sender)
        .await
        .expect("opens");
    store
        .add_pool(spec(), StartOption::Regular)
        .await
        .expect("loads");
    let base = block_base(Path::new(&dir));
    let tasks = (0..WRITERS).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let id = base + n;
            let created = store
                .create_rbw(&block(id, 1001, 0), WriteOptions::default())
                .await;
            let mut writer = created.expect("creates");
            writer.set_checksum(crc32c()).await.expect("header");
            let mut rng = StdRng::seed_from_u64(id.unsigned_abs());
            let mut len = 0;
            while len < 100 << 20 {
                let from = if n == 0 { len - len % 512 } else { len };
                let size = if n == 0 {
                    rng.random_range(1..2000)
                } else {
                    64_512
                };
                let next = from + size.max(len - from + 1);
                writer
                    .write(vec![packet(from, next)])
                    .await
                    .expect("writes");
                len = next;
                // What this acknowledgement rests on is the parent's to find.
                println!("acked {id} {len}");
                if n == 1 && rng.random_bool(0.02) {
                    writer.sync().await.expect("syncs");
                }
            }
        })
    });
    futures_util::future::join_all(tasks).await;
}

/// Block ids that no earlier round has used.
fn block_base(dir: &Path) -> i64 {
    let rbw = dir
        .join("data0/current")
        .join(pool().as_str())
        .join("current/rbw");
    i64::try_from(std::fs::read_dir(rbw).map_or(0, Iterator::count)).expect("small") * 10
}

#[test]
fn what_a_killed_process_acknowledged_is_there_at_the_next_start() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let dir = tempfile::tempdir().expect("temporary directory");
    for round in 0..5_u64 {
        let name = "tests::staging::child_writes_until_it_is_killed";
        // From before the first flush to well after several.
        let after = Duration::from_millis(400 + 700 * round);
        let lines = run_and_kill(name, &[(CHILD_DIR, dir.path().as_os_str())], after);
        let mut acked = std::collections::HashMap::new();
        for line in lines {
            let mut words = line
                .split_whitespace()
                .skip_while(|w| *w != "acked")
                .skip(1);
            // The last line may be cut.
            if let (Some(id), Some(len)) = (words.next(), words.next())
                && let (Ok(id), Ok(len)) = (id.parse::<i64>(), len.parse::<u64>())
            {
                acked.insert(id, len);
            }
        }
        println!("round {round}: {acked:?}");
        runtime.block_on(async {
            let (sender, _events) = mpsc::channel(100);
            let store = Store::open(config(dir.path(), 1), sender)
                .await
                .expect("opens");
            store
                .add_pool(spec(), StartOption::Regular)
                .await
                .expect("loads");
            for (id, len) in acked {
                let replica = store.replica(&pool(), id).expect("there");
                assert!(
                    replica.bytes_on_disk >= len,
                    "{id}: {} of {len}",
                    replica.bytes_on_disk
                );
                let there = replica.bytes_on_disk;
                let gs = 1010 + round;
                store
                    .init_replica_recovery(&block(id, 1001, 0), gs)
                    .await
                    .expect("begins");
                store
                    .update_replica_under_recovery(&block(id, 1001, there), gs, 0, there)
                    .await
                    .expect("ends");
                let reader = store.open_reader(&block(id, gs, 0)).await.expect("opens");
                check_reader(&reader, usize::try_from(there).expect("small")).await;
            }
            store.shutdown().await;
        });
    }
}
