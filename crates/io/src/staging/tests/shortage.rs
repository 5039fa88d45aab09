//! Memory is short for as long as some disk does not answer.

use super::pressure::{engine, segments_at_most, stream, until};
use super::*;

/// A disk that has begun to write a quantum of a file and does not end, the segments of which stay in use.
async fn never_ends(rig: &Rig, disk: &impl Engine, staging: &Staging, n: usize) -> Arc<StagedFile> {
    let file = rig.stage_on(disk, staging, n, 0).await;
    assert_eq!(append(&file, 0, QUANTUM), Append::Committed);
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn quiet_files_are_written_though_a_write_elsewhere_never_ends() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let (hung, throttle) = engine(&rig, 1);
    let stuck = never_ends(&rig, &hung, &staging, 0).await;
    let mut quiet = Vec::new();
    for n in 1..=ARENA_SEGMENTS - QUANTUM / SEGMENT_BYTES {
        let file = rig.stage(&staging, n, 0).await;
        assert_eq!(append(&file, 0, 5000), Append::Committed);
        quiet.push(file);
    }
    assert_eq!(staging.segments_in_use(), ARENA_SEGMENTS);
    let last = rig.stage(&staging, 100, 0).await;
    let limit = Duration::from_secs(20);
    let room = tokio::time::timeout(limit, last.make_room(5000)).await;
    room.expect("quiet files are written").expect("room");
    throttle.set_rate(IoClass::ClientWrite, 0);
    stuck.close().await.expect("closes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_area_is_noticed_while_memory_is_short() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let (hung, throttle) = engine(&rig, 1);
    let mut files = Vec::new();
    for n in 0..ARENA_SEGMENTS * SEGMENT_BYTES / QUANTUM {
        files.push(never_ends(&rig, &hung, &staging, n).await);
    }
    let last = rig.stage(&staging, 100, 0).await;
    let waits = tokio::spawn({
        let last = Arc::clone(&last);
        async move { last.make_room(5000).await }
    });
    tokio::time::sleep(2 * SWEEP).await;
    assert!(!waits.is_finished());
    fs::remove_file(staging.path()).expect("removes");
    until("it is noticed", || last.is_lost()).await;
    throttle.set_rate(IoClass::ClientWrite, 0);
    waits.await.expect("no panic").expect("room");
    for file in files {
        file.close().await.expect("closes");
    }
}

/// Room for a file is reserved for as long as the disk takes for that, before the first write.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_held_gathers_no_more_than_others() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(16 * BUDGET_MIN)).expect("an area");
    let (slow, throttle) = engine(&rig, 2 << 20);
    let file = rig.stage_on(&slow, &staging, 0, 0).await;
    file.hold();
    let most = std::sync::atomic::AtomicUsize::new(0);
    let look = || {
        most.fetch_max(staging.segments_in_use(), Ordering::Relaxed);
    };
    stream(&file, 6 << 20, true, look).await;
    let most = most.into_inner();
    assert!(
        most >= QUANTA * QUANTUM / SEGMENT_BYTES,
        "it waited: {most}"
    );
    assert!(most <= segments_at_most(QUANTUM), "it holds: {most}");
    throttle.set_rate(IoClass::ClientWrite, 0);
    file.close().await.expect("closes");
    rig.check(0, 6 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_while_a_file_is_closed_is_written_too() {
    // Nothing is written of it before the close.
    const FIRST: usize = QUANTUM - 1;
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let (slow, throttle) = engine(&rig, 1);
    let file = rig.stage_on(&slow, &staging, 0, 0).await;
    assert_eq!(append(&file, 0, FIRST), Append::Committed);
    let closes = tokio::spawn({
        let file = Arc::clone(&file);
        async move { file.close().await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(append(&file, FIRST, QUANTUM + 9000), Append::Committed);
    throttle.set_rate(IoClass::ClientWrite, 0);
    closes.await.expect("no panic").expect("closes");
    rig.check(0, QUANTUM + 9000);
    assert_eq!(staging.segments_in_use(), 0);
}

#[test]
fn an_area_of_any_length_has_no_more_arenas_than_an_area_may() {
    assert_eq!(arenas_in(4 << 60), layout::ARENAS_MAX);
    assert_eq!(arenas_in(u64::MAX), layout::ARENAS_MAX);
}
