//! What the process lacks is no fault of a volume or a replica.

use super::*;
use hayloft_io::decorators::{Effect, FaultRule, Faults};
use hayloft_io::{IoClass, IoOp};

/// Too many open files, out of memory, no thread, no room for sockets.
const LACKS: [i32; 5] = [24, 23, 12, 11, 105];

/// One volume that must not fail, and a scanner of suspects.
async fn start() -> (Node, Arc<Faults>) {
    Node::with_faults(1, |config| {
        config.check_min_gap = Duration::ZERO;
        config.scan = ScanConfig {
            period: Duration::from_secs(3600),
            bytes_per_second: 1 << 30,
        };
    })
    .await
}

fn lacks(errno: i32) -> FaultRule {
    FaultRule::new(Effect::Errno(errno))
}

fn nothing_happened(node: &mut Node) {
    assert_eq!(node.store.failure_summary().failed_locations.len(), 0);
    let told = node.events.try_recv();
    assert!(told.is_err(), "{told:?}");
}

#[tokio::test]
async fn a_check_that_lacks_something_is_made_again() {
    for errno in LACKS {
        let (mut node, faults) = start().await;
        node.put(1, 1001, 3000).await;
        faults.add(lacks(errno));
        let store = node.store.clone();
        let mut check = tokio::spawn(async move { store.check_volumes().await });
        let waits = tokio::time::timeout(Duration::from_millis(300), &mut check).await;
        assert!(waits.is_err(), "{errno}: the check cannot say anything");
        nothing_happened(&mut node);
        faults.clear();
        check.await.expect("ends");
        nothing_happened(&mut node);
        node.check(1, 1001, 3000).await;
    }
}

#[tokio::test]
async fn a_reader_is_refused_and_its_replica_not_suspected() {
    for errno in LACKS {
        let (mut node, faults) = start().await;
        node.put(1, 1001, 3000).await;
        faults.add(lacks(errno).on(&[IoOp::Open]));
        let refused = node.store.open_reader(&block(1, 1001, 0)).await;
        let error = refused.expect_err("refused");
        assert_eq!(error.kind(), StoreErrorKind::Retry, "{error}");
        let new = block(2, 1001, 0);
        let writer = node.store.create_rbw(&new, WriteOptions::default());
        let error = writer.await.expect_err("refused");
        assert_eq!(error.kind(), StoreErrorKind::Retry, "{error}");
        faults.clear();
        node.check(1, 1001, 3000).await;
        node.put(2, 1001, 3000).await;
        nothing_happened(&mut node);
    }
}

#[tokio::test]
async fn the_block_scanner_waits_and_looks_again() {
    let (mut node, faults) = start().await;
    node.put(1, 1001, 3000).await;
    let before = node.store.scan_reports();
    let scanned = |now: &[crate::ScanReport]| now.iter().map(|scan| scan.blocks).sum::<u64>();
    faults.add(lacks(24).on(&[IoOp::Open]).times(2));
    faults.add(lacks(12).on(&[IoOp::Read]).in_class(IoClass::Scan).times(1));
    node.store.mark_suspect(&block(1, 1001, 0));
    for _ in 0..800 {
        if scanned(&node.store.scan_reports()) > scanned(&before) {
            return nothing_happened(&mut node);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("a suspect is not looked at when there is what it takes");
}

#[tokio::test]
async fn a_pool_is_loaded_when_there_is_what_it_takes() {
    let (node, _) = start().await;
    node.put(1, 1001, 3000).await;
    node.store.shutdown().await;
    let faults = Faults::new(1);
    let more = StoreConfig {
        faults: Some((node.dir.path().join("data0"), Arc::clone(&faults))),
        ..config(node.dir.path(), 1)
    };
    faults.add(lacks(24).on(&[IoOp::List]).times(2));
    let mut node = Node::start(node.dir, 1, more).await;
    nothing_happened(&mut node);
    node.check(1, 1001, 3000).await;
}

#[tokio::test]
async fn the_names_of_a_directory_are_made_durable_later() {
    let (mut node, faults) = start().await;
    node.put(1, 1001, 3000).await;
    faults.add(lacks(24).on(&[IoOp::SyncDir]));
    let volume = node.store.0.volumes().remove(0);
    assert!(!crate::transitions::run_commit_rounds::round(&node.store.0, &volume).await);
    faults.clear();
    assert!(crate::transitions::run_commit_rounds::round(&node.store.0, &volume).await);
    assert!(volume.commits.may_stamp(), "nothing was lost");
    nothing_happened(&mut node);
}

/// ext4 says so of each name on a device that has become shorter, or is gone.
#[tokio::test]
async fn a_disk_that_always_says_that_memory_lacks_has_failed() {
    let (mut node, faults) = start().await;
    node.put(1, 1001, 3000).await;
    faults.add(lacks(12));
    node.store.check_volumes().await;
    assert_eq!(node.store.failure_summary().failed_locations.len(), 1);
    let told = node.events.recv().await;
    assert!(
        matches!(told, Some(StoreEvent::VolumeFailed { .. })),
        "{told:?}"
    );
}
