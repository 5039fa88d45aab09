//! Disks that refuse what is staged for them: full, failing, taken out.

use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule, Faults};

const SEGMENT: usize = 256 << 10;

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

#[tokio::test]
async fn a_full_disk_is_told_and_what_was_acknowledged_waits_for_room() {
    let (node, faults) = Node::faulty(1).await;
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
    let (node, faults) = Node::faulty(1).await;
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
    assert_eq!(node.areas(), 2, "one in use, one kept");
    std::fs::remove_file(&data).expect("removes");
    std::fs::rename(&away, &data).expect("moves");
    let results = node.store.reconfigure_volumes(all).await;
    assert!(results.iter().all(|(_, r)| r.is_ok()), "{results:?}");
    for id in 0..2 {
        let replica = node.store.replica(&pool(), id).expect("there");
        assert_eq!(replica.bytes_on_disk, 2 * SEGMENT as u64, "{id}");
    }
    assert_eq!(node.areas(), 1, "nothing is kept any more");
}

/// Of replicas whose writers have gone, on a disk that stays full, a quarter of the area is kept: other volumes need it.
#[tokio::test]
async fn left_replicas_on_a_full_disk_do_not_keep_all_of_staging() {
    let (mut node, faults) = Node::with_faults(2, |config| {
        outlives_a_volume(config);
        config.staging.budget = 16 << 20;
    })
    .await;
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
    let (node, faults) = Node::faulty(1).await;
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

/// The kernel tells of it once, and only those who had the file open.
#[tokio::test]
async fn a_sync_that_fails_after_its_caller_has_gone_is_not_forgotten() {
    let (node, faults) = Node::faulty(1).await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("stages");
    let on_data = |effect| {
        let rule = FaultRule::new(effect).on(&[IoOp::Sync]).times(1);
        rule.at(|path| path.ends_with("blk_5"))
    };
    faults.add(on_data(Effect::Delay(Duration::from_millis(400))));
    faults.add(on_data(Effect::Errno(EIO)));
    let soon = Duration::from_millis(100);
    let synced = tokio::time::timeout(soon, writer.sync()).await;
    synced.expect_err("takes its time");
    writer.set_bytes_acked(700);
    drop(writer);
    let left = block(5, 1001, 0);
    let taken = node.store.recover_rbw(&left, 1002, 700, 700).await;
    let mut writer = taken.expect("is taken over");
    let error = writer.sync().await.expect_err("nobody knows");
    assert!(error.to_string().contains("earlier sync"), "{error}");
}

/// Where closes are synced, a recovery fails rather than promise that after a failed sync.
#[tokio::test]
async fn no_recovery_calls_a_replica_synced_after_a_failed_sync() {
    for failing in [false, true] {
        let (node, faults) = Node::with_faults(1, |config| {
            config.sync_on_close = true;
            config.check_min_gap = Duration::ZERO;
        })
        .await;
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
    let (node, faults) = Node::faulty(2).await;
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

/// A replica of a few bytes keeps a whole segment.
#[tokio::test]
async fn small_replicas_on_a_full_disk_do_not_keep_all_of_staging() {
    let (mut node, faults) = Node::with_faults(2, |config| {
        outlives_a_volume(config);
        config.staging.budget = 8 << 20;
    })
    .await;
    let staging = node.store.staging().expect("is on");
    let quarter = staging.capacity_bytes() / 4 / SEGMENT as u64;
    faults.add(
        FaultRule::new(Effect::Errno(ENOSPC))
            .on(&[IoOp::Write])
            .at(|path| path.extension().is_none()),
    );
    let mut left = 0;
    for id in 0..200 {
        let mut writer = node.writer(id, 1001).await;
        let written = writer.write(vec![packet(0, 5000)]).await;
        written.expect("stages");
        left += u64::from(writer.sync().await.is_err());
        if left == 2 * quarter {
            break;
        }
    }
    for _ in quarter..left {
        let lost = tokio::time::timeout(Duration::from_secs(20), node.events.recv()).await;
        assert!(
            matches!(lost, Ok(Some(StoreEvent::Lost { .. }))),
            "{lost:?}"
        );
    }
    // Those of the other volume go when they have been quiet for a while.
    for _ in 0..1000 {
        if staging.segments_in_use() as u64 == quarter {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(staging.segments_in_use() as u64, quarter);
}
