//! Disks of which a part cannot be read or written.

use super::*;
use std::collections::BTreeSet;
use std::time::Instant;

use hayloft_io::decorators::{Effect, FaultRule, Faults};
use hayloft_io::{IoClass, IoOp};

const EMFILE: i32 = 24;

async fn next(node: &mut Node) -> StoreEvent {
    tokio::time::timeout(Duration::from_secs(20), node.events.recv())
        .await
        .expect("in time")
        .expect("open")
}

/// Ids of `count` replicas that are told to be bad, and nothing else is told.
async fn next_bad(node: &mut Node, count: usize) -> BTreeSet<i64> {
    let mut bad = BTreeSet::new();
    while bad.len() < count {
        match next(node).await {
            StoreEvent::Corrupt { block, .. } => assert!(bad.insert(block.block.id), "told twice"),
            other => panic!("{other:?}"),
        }
    }
    bad
}

/// Nothing is told for a while in which it would be.
async fn nothing_told(node: &mut Node) {
    let told = tokio::time::timeout(Duration::from_millis(500), node.events.recv()).await;
    assert!(told.is_err(), "{told:?}");
}

fn of_block(path: &Path) -> Option<i64> {
    let name = path.file_name()?.to_str()?.strip_prefix("blk_")?;
    name.split(['_', '.']).next()?.parse().ok()
}

fn is_sums(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "meta")
}

/// Opening or reading files of blocks for which `bad` holds gives EIO.
fn bad_blocks(faults: &Faults, bad: impl Fn(i64, bool) -> bool + Send + Sync + 'static) {
    let rule = FaultRule::new(Effect::Errno(EIO)).on(&[IoOp::Open, IoOp::Read]);
    let at = move |path: &Path| of_block(path).is_some_and(|id| bad(id, is_sums(path)));
    faults.add(rule.at(at));
}

async fn read(node: &Node, id: i64) -> bool {
    let Ok(reader) = node.store.open_reader(&block(id, 1001, 0)).await else {
        return false;
    };
    let buf = AlignedBuf::unpooled(4096);
    reader.read_data(buf, 0, 3000).await.is_ok() && reader.read_sums(0, 6).await.is_ok()
}

fn places(node: &Node) -> Vec<usize> {
    let volumes = node.store.volume_report();
    volumes.iter().map(|volume| volume.errors.places).collect()
}

#[tokio::test]
async fn each_replica_that_cannot_be_opened_or_read_is_told_at_once() {
    let (mut node, faults) = Node::with_faults(1, |_| {}).await;
    for id in 0..60 {
        node.put(id, 1001, 3000).await;
    }
    // Checksum files of some, data of others.
    bad_blocks(&faults, |id, sums| id < 50 && (id % 2 == 0) == sums);
    let began = Instant::now();
    for id in 0..60 {
        assert_eq!(read(&node, id).await, id >= 50);
    }
    assert_eq!(next_bad(&mut node, 50).await, (0..50).collect());
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    nothing_told(&mut node).await;
    assert_eq!(places(&node), [50]);
    // The node goes on: it has no other volume.
    node.put(100, 1001, 3000).await;
}

#[tokio::test]
async fn the_volume_is_looked_through_after_errors_in_a_few_places() {
    let (mut node, faults) = Node::with_faults(1, |config| config.errors.limit = 0).await;
    for id in 0..60 {
        node.put(id, 1001, 3000).await;
    }
    bad_blocks(&faults, |id, sums| {
        (20..50).contains(&id) && sums == (id % 2 == 0)
    });
    for id in 20..22 {
        assert!(!read(&node, id).await);
    }
    assert_eq!(next_bad(&mut node, 2).await, (20..22).collect());
    nothing_told(&mut node).await;
    assert!(!read(&node, 22).await);
    assert_eq!(next_bad(&mut node, 28).await, (22..50).collect());
    let searching = |node: &Node| node.store.volume_report()[0].errors.searching;
    while searching(&node) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    nothing_told(&mut node).await;
    assert!(read(&node, 55).await);
}

#[tokio::test]
async fn what_the_process_lacks_is_no_damage() {
    let (mut node, faults) = Node::with_faults(1, |_| {}).await;
    for id in 0..4 {
        node.put(id, 1001, 3000).await;
    }
    faults.add(FaultRule::new(Effect::Errno(EMFILE)).on(&[IoOp::Open, IoOp::ReadSmall]));
    for id in 0..4 {
        assert!(!read(&node, id).await);
    }
    // A check waits for what it takes.
    let checked = tokio::time::timeout(Duration::from_millis(300), node.store.check_volumes());
    assert!(checked.await.is_err());
    nothing_told(&mut node).await;
    faults.clear();
    assert!(read(&node, 0).await);
    assert_eq!(places(&node), [0]);
}

#[tokio::test]
async fn a_replica_that_can_be_read_at_the_second_attempt_is_not_told() {
    let (mut node, faults) = Node::with_faults(1, |_| {}).await;
    node.put(1, 1001, 3000).await;
    let once = FaultRule::new(Effect::Errno(EIO))
        .on(&[IoOp::Read])
        .times(1);
    faults.add(once.at(|path| of_block(path).is_some()));
    assert!(!read(&node, 1).await);
    nothing_told(&mut node).await;
    assert!(read(&node, 1).await);
    assert_eq!(places(&node), [1]);
}

#[tokio::test]
async fn new_replicas_go_elsewhere_while_errors_are_fresh() {
    let (mut node, faults) = Node::with_faults(2, |config| {
        config.errors.window = Duration::from_secs(2);
    })
    .await;
    for id in 0..2 {
        node.put(id, 1001, 3000).await;
    }
    bad_blocks(&faults, |id, _| id < 2);
    let read = [read(&node, 0).await, read(&node, 1).await];
    assert_eq!(read.iter().filter(|well| !**well).count(), 1);
    next_bad(&mut node, 1).await;
    let on_first = |node: &Node| node.store.volume_report()[0].blocks;
    let before = on_first(&node);
    for id in 10..16 {
        node.put(id, 1001, 3000).await;
    }
    assert_eq!(on_first(&node), before);
    tokio::time::sleep(Duration::from_millis(2100)).await;
    for id in 20..26 {
        node.put(id, 1001, 3000).await;
    }
    assert_eq!(on_first(&node), before + 3);
}

#[tokio::test]
async fn a_volume_with_too_many_errors_fails_if_the_node_may_go_on() {
    let (mut node, faults) = Node::with_faults(2, |config| {
        outlives_a_volume(config);
        config.errors.limit = 4;
    })
    .await;
    for id in 0..16 {
        node.put(id, 1001, 3000).await;
    }
    bad_blocks(&faults, |_, sums| sums);
    for id in 0..16 {
        read(&node, id).await;
    }
    loop {
        match next(&mut node).await {
            StoreEvent::VolumeFailed { fatal, reason, .. } => {
                assert!(!fatal && reason.contains("errors in 4 places"), "{reason}");
                break;
            }
            StoreEvent::Corrupt { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(node.store.failure_summary().failed_locations.len(), 1);
}

#[tokio::test]
async fn a_volume_with_too_many_errors_does_not_end_the_node() {
    let (mut node, faults) = Node::with_faults(2, |config| config.errors.limit = 4).await;
    for id in 0..16 {
        node.put(id, 1001, 3000).await;
    }
    bad_blocks(&faults, |id, sums| sums && id < 12);
    for id in 0..16 {
        read(&node, id).await;
    }
    next_bad(&mut node, 6).await;
    nothing_told(&mut node).await;
    assert!(node.store.failure_summary().failed_locations.is_empty());
    for id in 12..16 {
        assert!(read(&node, id).await);
    }
}

#[tokio::test]
async fn a_check_goes_the_way_of_the_data() {
    for (op, class) in [
        (IoOp::Write, IoClass::ClientWrite),
        (IoOp::Sync, IoClass::ClientWrite),
        (IoOp::Read, IoClass::ClientRead),
    ] {
        let (mut node, faults) = Node::faulty(2).await;
        faults.add(FaultRule::new(Effect::Errno(EIO)).on(&[op]).in_class(class));
        node.store.check_volumes().await;
        let event = next(&mut node).await;
        assert!(
            matches!(event, StoreEvent::VolumeFailed { fatal: false, .. }),
            "{op}: {event:?}"
        );
    }
}

#[tokio::test]
async fn a_check_leaves_nothing_and_survives_one_bad_place() {
    let (node, faults) = Node::faulty(2).await;
    let probe = |path: &Path| path.to_string_lossy().contains("tmp/.hayloft-probe");
    faults.add(
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::Write])
            .at(probe),
    );
    node.store.check_volumes().await;
    assert!(node.store.failure_summary().failed_locations.is_empty());
    let pool = node.pool_dir();
    for dir in [pool.join("tmp"), pool.join("current/rbw"), pool.join("..")] {
        let left = std::fs::read_dir(dir).expect("listed").flatten();
        let mut names = left.map(|e| e.file_name().to_string_lossy().into_owned());
        assert!(!names.any(|name| name.contains("probe")));
    }
}

#[tokio::test]
async fn dead_disks_that_are_idle_are_told_within_the_period() {
    let (mut node, faults) = Node::with_faults(2, |config| {
        outlives_a_volume(config);
        config.space_interval = Duration::from_millis(100);
        config.check_period = Duration::from_secs(1);
    })
    .await;
    // What is asked for while nothing is read or written comes from memory.
    let transfers = [IoOp::Read, IoOp::Write, IoOp::Sync];
    faults.add(FaultRule::new(Effect::Errno(EIO)).on(&transfers));
    let began = Instant::now();
    let event = next(&mut node).await;
    assert!(
        matches!(event, StoreEvent::VolumeFailed { fatal: false, .. }),
        "{event:?}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_new_volume_that_waits_for_its_pool_is_not_checked() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = StoreConfig {
        space_interval: Duration::from_millis(100),
        check_period: Duration::from_millis(200),
        ..config(dir.path(), 1)
    };
    let (sender, mut events) = mpsc::channel(100);
    let store = Store::open(config, sender).await.expect("opens");
    let told = tokio::time::timeout(Duration::from_secs(1), events.recv()).await;
    assert!(told.is_err(), "{told:?}");
    assert!(store.failure_summary().failed_locations.is_empty());
}

/// The disk is busy, and gives what it did not give before.
#[tokio::test]
async fn a_replica_that_can_be_read_slowly_is_not_told() {
    let (mut node, faults) = Node::with_faults(1, |_| {}).await;
    node.put(1, 1001, 3000).await;
    let of_replica = |path: &Path| of_block(path).is_some();
    let failing = FaultRule::new(Effect::Errno(EIO)).on(&[IoOp::Read]);
    let failing = faults.add(failing.times(1).at(of_replica));
    assert!(!read(&node, 1).await);
    assert_eq!(faults.fired(failing), 1);
    let slow = FaultRule::new(Effect::Stall(Duration::from_secs(6)));
    let slow = faults.add(slow.on(&[IoOp::Read]).times(1).at(of_replica));
    let told = tokio::time::timeout(Duration::from_secs(7), node.events.recv()).await;
    assert!(told.is_err(), "{told:?}");
    assert_eq!(faults.fired(slow), 1);
}
