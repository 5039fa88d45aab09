//! Disks that fail, hang or fill up.

use super::*;
use std::time::Instant;

use hayloft_io::decorators::{Effect, FaultRule, Faults};
use hayloft_io::{AlignedBuf, IoClass, IoOp};

const EROFS: i32 = 30;

/// Two volumes, of which the first obeys the rules.
pub(super) async fn start(more: impl FnOnce(&mut StoreConfig)) -> (Node, Arc<Faults>) {
    Node::with_faults(2, |config| {
        outlives_a_volume(config);
        more(config);
    })
    .await
}

async fn next(node: &mut Node) -> StoreEvent {
    tokio::time::timeout(Duration::from_secs(10), node.events.recv())
        .await
        .expect("in time")
        .expect("open")
}

/// The next failure of a volume; what its replicas come to is left out.
async fn next_failure(node: &mut Node) -> StoreEvent {
    loop {
        let event = next(node).await;
        if matches!(event, StoreEvent::VolumeFailed { .. }) {
            return event;
        }
    }
}

/// Ids of the replicas on the first volume.
pub(super) fn on_first(node: &Node) -> Vec<i64> {
    let (_, replicas) = node.store.block_report(&pool()).swap_remove(0);
    let mut ids: Vec<i64> = replicas.iter().map(|r| r.block.id).collect();
    ids.sort_unstable();
    ids
}

/// The volume fails, then each of its replicas is told to be lost; the others are served.
async fn expect_failure(node: &mut Node, ids: &[i64]) {
    loop {
        match next(node).await {
            StoreEvent::VolumeFailed { path, fatal, .. } => {
                assert!(!fatal && path == node.dir.path().join("data0"));
                break;
            }
            // Found damaged before the disk was known to be.
            StoreEvent::Corrupt { block, .. } => assert!(ids.contains(&block.block.id)),
            other => panic!("{other:?}"),
        }
    }
    let mut lost = Vec::new();
    for _ in ids {
        let StoreEvent::Lost { block, .. } = next(node).await else {
            panic!("another event")
        };
        lost.push(block.block.id);
    }
    lost.sort_unstable();
    assert_eq!(lost, ids);
    assert_eq!(node.store.failure_summary().failed_locations.len(), 1);
    for id in (0..6).filter(|id| !ids.contains(id)) {
        node.check(id, 1001, 3000).await;
    }
    node.put(50, 1001, 100).await;
}

#[tokio::test]
async fn a_disk_that_is_dead_fails_at_the_first_error() {
    let (mut node, faults) = start(|_| {}).await;
    for id in 0..6 {
        node.put(id, 1001, 3000).await;
    }
    let ids = on_first(&node);
    faults.add(FaultRule::new(Effect::Errno(EIO)));
    let read = node.store.open_reader(&block(ids[0], 1001, 0)).await;
    assert!(read.is_err());
    expect_failure(&mut node, &ids).await;
}

#[tokio::test]
async fn a_disk_that_became_read_only_fails_at_the_next_write() {
    let (mut node, faults) = start(|_| {}).await;
    for id in 0..6 {
        node.put(id, 1001, 3000).await;
    }
    let ids = on_first(&node);
    let writes = [IoOp::Open, IoOp::Write, IoOp::Replace, IoOp::Rename];
    faults.add(
        FaultRule::new(Effect::Errno(EROFS))
            .on(&writes)
            .in_class(IoClass::ClientWrite),
    );
    // One of two goes there.
    for id in 20..22 {
        let _ = node
            .store
            .create_rbw(&block(id, 1001, 0), WriteOptions::default())
            .await;
    }
    expect_failure(&mut node, &ids).await;
}

#[tokio::test]
async fn copies_are_written_in_the_class_they_are_made_in() {
    let (node, faults) = start(|_| {}).await;
    faults.add(
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Write])
            .in_class(IoClass::Balancer),
    );
    let mut refused = Vec::new();
    for (id, class) in [
        (30, IoClass::Replication),
        (31, IoClass::Replication),
        (32, IoClass::Balancer),
        (33, IoClass::Balancer),
    ] {
        let options = WriteOptions {
            class,
            ..WriteOptions::default()
        };
        let mut copy = node
            .store
            .create_temporary(&block(id, 1001, 0), options)
            .await
            .expect("created");
        if copy.set_checksum(crc32c()).await.is_err() {
            refused.push(class);
        }
    }
    // Each class was on both disks, one of which obeys the rule.
    assert_eq!(refused, [IoClass::Balancer]);
}

#[tokio::test]
async fn a_disk_that_hangs_fails_when_the_check_takes_too_long() {
    let (mut node, faults) =
        start(|config| config.check_timeout = Duration::from_millis(200)).await;
    for id in 0..6 {
        node.put(id, 1001, 3000).await;
    }
    let ids = on_first(&node);
    faults.add(
        FaultRule::new(Effect::Delay(Duration::from_secs(2))).on(&[IoOp::Read, IoOp::ReadSmall]),
    );
    let started = Instant::now();
    node.store.check_volumes().await;
    assert!(started.elapsed() < Duration::from_secs(2));
    expect_failure(&mut node, &ids).await;
}

#[tokio::test]
async fn a_disk_that_hangs_is_noticed_though_it_is_idle() {
    let (mut node, faults) = start(|config| {
        config.check_timeout = Duration::from_millis(200);
        config.space_interval = Duration::from_millis(100);
    })
    .await;
    for id in 0..6 {
        node.put(id, 1001, 3000).await;
    }
    let ids = on_first(&node);
    faults.add(FaultRule::new(Effect::Delay(Duration::from_secs(1))).on(&[IoOp::Space]));
    expect_failure(&mut node, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_fails_of_which_one_operation_never_ends_though_others_do() {
    for stuck in [IoOp::Read, IoOp::Write, IoOp::Open, IoOp::Rename] {
        let (mut node, faults) = start(|config| {
            config.check_timeout = Duration::from_millis(500);
            config.space_interval = Duration::from_millis(100);
        })
        .await;
        for id in 0..6 {
            node.put(id, 1001, 3000).await;
        }
        let ids = on_first(&node);
        // Longer than the test: no caller is ever told how the transfer went.
        let hour = Duration::from_secs(3600);
        faults.add(FaultRule::new(Effect::Stall(hour)).on(&[stuck]));
        let (store, id) = (node.store.clone(), ids[0]);
        let user = tokio::spawn(async move {
            match stuck {
                IoOp::Read => {
                    let reader = store.open_reader(&block(id, 1001, 0)).await?;
                    let buf = AlignedBuf::unpooled(3000);
                    reader.read_data(buf, 0, 3000).await.map(drop)
                }
                // A name, and only one of them: the others find threads.
                IoOp::Rename => store.invalidate(&pool(), &[block(id, 1001, 0).block]).await,
                _ => {
                    for id in 20..22 {
                        let mut writer = store
                            .create_rbw(&block(id, 1001, 0), WriteOptions::default())
                            .await?;
                        writer.set_checksum(crc32c()).await?;
                    }
                    Ok(())
                }
            }
        });
        // As far as the node can see, both directories hang; a name says which of them.
        let failing = match stuck {
            IoOp::Read | IoOp::Write => 2,
            _ => 1,
        };
        for _ in 0..failing {
            let StoreEvent::VolumeFailed { reason, .. } = next_failure(&mut node).await else {
                panic!("another event")
            };
            assert!(reason.contains("has not ended"), "{stuck:?}: {reason}");
        }
        let report = node.store.failure_summary();
        assert_eq!(report.failed_locations.len(), failing, "{stuck:?}");
        if stuck == IoOp::Rename {
            // Other orders wait for this one, and it for a volume that has failed.
            let outcome = user.await.expect("no panic");
            let error = outcome.expect_err("the disk gave no answer");
            assert!(error.to_string().contains("volume has failed"), "{error}");
        } else if stuck == IoOp::Read {
            let opened = tokio::time::timeout(Duration::from_secs(5), user).await;
            assert!(opened.expect("ends").expect("no panic").is_err());
        } else if user.is_finished() {
            // The volume that is left took the new replicas, when there is one.
            let outcome = user.await.expect("no panic");
            assert!(outcome.is_ok() || failing == 2, "{stuck:?}: {outcome:?}");
        } else {
            user.abort();
        }
    }
}

#[tokio::test]
async fn a_full_disk_stays_in_use() {
    let (mut node, faults) = start(|_| {}).await;
    for id in 0..6 {
        node.put(id, 1001, 3000).await;
    }
    let writes = [IoOp::Write, IoOp::Replace, IoOp::CreateDir];
    faults.add(FaultRule::new(Effect::Errno(ENOSPC)).on(&writes));
    node.store.check_volumes().await;
    assert!(node.store.failure_summary().failed_locations.is_empty());
    for id in 0..6 {
        node.check(id, 1001, 3000).await;
    }
    assert!(node.events.try_recv().is_err());
}

#[tokio::test]
async fn a_bad_sector_costs_one_replica() {
    let (mut node, faults) = start(|config| {
        config.scan = ScanConfig {
            period: Duration::from_secs(3600),
            bytes_per_second: 1 << 30,
        };
    })
    .await;
    for id in 0..6 {
        node.put(id, 1001, 3000).await;
    }
    let bad = on_first(&node)[1];
    let name = format!("blk_{bad}");
    faults.add(
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Read])
            .at(move |path| path.ends_with(&name)),
    );
    node.store.mark_suspect(&block(bad, 1001, 0));
    let StoreEvent::Corrupt { block: told, .. } = next(&mut node).await else {
        panic!("another event")
    };
    assert_eq!(told, block(bad, 1001, 3000));
    assert!(node.store.failure_summary().failed_locations.is_empty());
    assert_eq!(node.store.replica_count(), 6);
}

/// A volume that refuses a new replica at any of its first steps costs no writer its replica.
#[tokio::test]
async fn a_new_replica_goes_where_it_can_be_written() {
    let name = |path: &Path| {
        path.file_name()
            .is_some_and(|n| n.as_encoded_bytes().starts_with(b"blk_"))
    };
    let data = move |path: &Path| name(path) && path.extension().is_none();
    let meta = move |path: &Path| name(path) && path.extension().is_some();
    for (id, errno) in [(10, EIO), (20, EROFS), (30, ENOSPC), (40, 19)] {
        let rules = [
            FaultRule::new(Effect::Errno(errno))
                .on(&[IoOp::Open])
                .at(meta),
            FaultRule::new(Effect::Errno(errno))
                .on(&[IoOp::Write])
                .at(meta),
            FaultRule::new(Effect::Errno(errno))
                .on(&[IoOp::Write])
                .at(data),
        ];
        for (n, rule) in rules.into_iter().enumerate() {
            for temporary in [false, true] {
                let (node, faults) = Node::with_faults(2, |_| {}).await;
                let rule = faults.add(rule.clone());
                let id = id + i64::try_from(n).expect("small");
                let options = WriteOptions {
                    checksum: Some(crc32c()),
                    // The first volume is asked for.
                    storage_id: Some(node.store.block_report(&pool())[0].0.id.to_string()),
                    ..WriteOptions::default()
                };
                let wanted = block(id, 1001, 0);
                let created = match temporary {
                    true => node.store.create_temporary(&wanted, options).await,
                    false => node.store.create_rbw(&wanted, options).await,
                };
                let mut writer = created.expect("creates");
                writer.set_checksum(crc32c()).await.expect("header");
                let acks = writer.acks();
                for from in (0..300_000).step_by(100_000) {
                    let packets = vec![packet(from, from + 100_000)];
                    writer.write(packets).await.expect("writes");
                }
                assert!(faults.fired(rule) > 0, "step {n}, errno {errno}");
                acks.set_bytes_acked(300_000);
                if !temporary {
                    let reader = node.store.open_reader(&wanted).await.expect("opens");
                    assert_eq!(reader.visible_len(), 300_000, "step {n}");
                }
                let done = writer.finalize().await.expect("finalizes");
                assert_eq!(done.block.block.num_bytes, 300_000);
                faults.clear();
                node.nothing_on_first(&format!("{n}, {errno}")).await;
                node.check(id, 1001, 300_000).await;
                let node = node.restart().await;
                node.check(id, 1001, 300_000).await;
            }
        }
    }
}

/// What is there already stays where it is: a later error is the writer's.
#[tokio::test]
async fn a_replica_with_acknowledged_bytes_does_not_go_elsewhere() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    let mut writer = node.writer(1, 1001).await;
    writer.write(vec![packet(0, 512)]).await.expect("writes");
    faults.add(FaultRule::new(Effect::Errno(EIO)).on(&[IoOp::Write]));
    writer.write(vec![packet(512, 1024)]).await.expect_err("no");
}

/// Each volume is tried once; the first says why.
#[tokio::test]
async fn when_no_volume_takes_a_replica_its_writer_hears_why() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    let rule = FaultRule::new(Effect::Errno(EROFS)).on(&[IoOp::Open]);
    // The check of the volume opens a file, too.
    let of_block = |path: &std::path::Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("blk_"))
    };
    let rule = faults.add(rule.at(of_block));
    let wanted = block(1, 1001, 0);
    let created = node.store.create_rbw(&wanted, WriteOptions::default());
    let error = created.await.expect_err("refused");
    assert_eq!(
        error.io_error().and_then(|e| e.errno()),
        Some(EROFS),
        "{error}"
    );
    assert!(faults.fired(rule) <= 2, "two files, once");
}

/// The volume fails as a whole, or gives no answer, before anything is written.
#[tokio::test]
async fn a_replica_without_bytes_leaves_a_volume_that_fails() {
    for hangs in [false, true] {
        let (mut node, faults) = start(|config| {
            config.check_timeout = Duration::from_millis(300);
        })
        .await;
        let options = WriteOptions {
            storage_id: Some(node.store.block_report(&pool())[0].0.id.to_string()),
            checksum: Some(crc32c()),
            ..WriteOptions::default()
        };
        let wanted = block(1, 1001, 0);
        let created = node.store.create_rbw(&wanted, options).await;
        let mut writer = created.expect("creates");
        writer.set_checksum(crc32c()).await.expect("header");
        assert!(writer.volume_path().ends_with("data0"));
        let effect = match hangs {
            true => Effect::Stall(Duration::from_secs(3)),
            false => Effect::Errno(EIO),
        };
        faults.add(FaultRule::new(effect));
        let failure = async {
            node.store.check_volumes().await;
            next_failure(&mut node).await
        };
        let begin = tokio::time::Instant::now();
        let writing = async {
            if !hangs {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            writer
                .write(vec![packet(0, 100_000)])
                .await
                .expect("writes");
        };
        tokio::join!(failure, writing);
        assert!(
            begin.elapsed() < Duration::from_millis(2500),
            "{:?}",
            begin.elapsed()
        );
        assert!(writer.volume_path().ends_with("data1"));
        writer.finalize().await.expect("finalizes");
        node.check(1, 1001, 100_000).await;
    }
}

/// The volume fails while the first write goes on, which ends well: nothing more is acknowledged
/// into a replica that left the map with the volume.
#[tokio::test]
async fn a_first_write_that_ends_on_a_failed_volume_is_an_error() {
    let (node, _faults) = Node::with_faults(1, |_| {}).await;
    let mut writer = node.writer(1, 1001).await;
    writer.accept(&[packet(0, 512)]).expect("accepts");
    std::future::poll_fn(|cx| std::task::Poll::Ready(writer.poll_write(cx, Due::All).map(drop)))
        .await
        .expect("begins");
    while writer.bytes_on_disk() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    node.store.0.volumes()[0].set_failed();
    let error = writer.write_all().await.expect_err("fails");
    assert_eq!(error.kind(), StoreErrorKind::VolumeFailed, "{error}");
}

async fn on_first_volume(node: &Node, id: i64) -> ReplicaWriter {
    let options = WriteOptions {
        storage_id: Some(node.store.block_report(&pool())[0].0.id.to_string()),
        checksum: Some(crc32c()),
        ..WriteOptions::default()
    };
    let created = node.store.create_rbw(&block(id, 1001, 0), options).await;
    let mut writer = created.expect("creates");
    writer.set_checksum(crc32c()).await.expect("header");
    writer
}

/// A replica goes to another volume only while its writer has the right to the block's files.
#[tokio::test]
async fn a_replica_goes_elsewhere_with_the_latch_of_its_block() {
    let (node, faults) = Node::with_faults(2, |_| {}).await;
    let mut writer = on_first_volume(&node, 1).await;
    let rule = FaultRule::new(Effect::Errno(EIO)).on(&[IoOp::Write]);
    let rule = faults.add(rule.times(1));
    let store = &node.store.0;
    let pool = store.pool(&pool()).expect("there");
    writer.acks().set_bytes_shown(300);
    let latch = pool.latches.acquire(1).await;
    let volume = writer.storage().id.clone();
    let mut write = Box::pin(writer.write(vec![packet(0, 512)]));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut write).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(faults.fired(rule), 1);
    drop(latch);
    write.await.expect("writes");
    assert_ne!(writer.storage().id, volume);
    let Some(crate::replica::Slot::Live(live)) = pool.map.get(1) else {
        panic!("not there")
    };
    assert_eq!(live.status().bytes_shown, 300);
}

/// Another task that has the right to the block wants the replica.
#[tokio::test]
async fn a_replica_that_is_wanted_does_not_go_elsewhere() {
    let (node, faults) = Node::with_faults(2, |_| {}).await;
    let pool = node.store.0.pool(&pool()).expect("there");
    let mut writer = on_first_volume(&node, 2).await;
    faults.add(
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Write])
            .times(1),
    );
    let _latch = pool.latches.acquire(2).await;
    let mut write = Box::pin(writer.write(vec![packet(0, 512)]));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut write).await;
    assert!(early.is_err(), "{early:?}");
    if let Some(crate::replica::Slot::Live(live)) = pool.map.get(2) {
        live.status().cancel.cancel();
    }
    let error = write.await.expect_err("ends");
    assert_eq!(error.kind(), StoreErrorKind::Cancelled, "{error}");
}
