//! Disks that fail, hang or fill up.

use super::*;
use std::time::Instant;

use hayloft_io::decorators::{Effect, FaultRule, Faults};
use hayloft_io::{AlignedBuf, IoClass, IoOp};

const EROFS: i32 = 30;

/// Two volumes, of which the first obeys the rules.
async fn start(more: impl FnOnce(&mut StoreConfig)) -> (Node, Arc<Faults>) {
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
fn on_first(node: &Node) -> Vec<i64> {
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
                // One of two goes there.
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
        // Both directories are on the disk that hangs, as far as the node can see; a name says
        // which of them.
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
        } else {
            assert!(!user.is_finished(), "{stuck:?}: the disk gave no answer");
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
