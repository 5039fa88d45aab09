//! Files that nobody appends to any more: what they hold reaches the disk, and their segments others.

use super::*;
use crate::decorators::{Effect, FaultRule, Faults, Faulty};
use crate::error::IoOp;

async fn until_free(staging: &Staging) {
    for _ in 0..500 {
        if staging.segments_in_use() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} segments are still in use", staging.segments_in_use());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_is_tried_again_once_the_writer_has_gone() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let faults = Faults::new(1);
    let faulty = Faulty::new(Arc::clone(&rig.engine), Arc::clone(&faults));
    let file = rig.stage_on(&faulty, &staging, 0, 0).await;
    assert_eq!(append(&file, 0, 600_000), Append::Committed);
    let full = faults.add(FaultRule::new(Effect::Errno(28)).on(&[IoOp::Write]));
    file.flush().await.expect_err("no room");
    // The writer has to learn of it: nothing is tried behind his back.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(file.error().is_some());
    file.seal();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(staging.segments_in_use(), 3, "there still is no room");
    assert!(faults.fired(full) >= 3, "it is tried now and then");
    faults.clear();
    until_free(&staging).await;
    assert!(file.error().is_none() && !file.sync_failed());
    file.close().await.expect("is written");
    rig.check(0, 600_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_were_received_and_never_committed_keep_nothing() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let file = rig.stage(&staging, 0, 0).await;
    assert_eq!(append(&file, 0, 5000), Append::Committed);
    let landing = file.landing();
    let mut reserved = landing.try_reserve(5000, 500_000).expect("there is room");
    reserved.advance(400_000);
    // Their checksums are wrong: whoever received them goes without a word.
    drop(reserved.take());
    drop(reserved);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(staging.segments_in_use(), 2, "they might be committed yet");
    file.seal();
    until_free(&staging).await;
    file.close().await.expect("is written");
    rig.check(0, 5000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_failed_on_the_way_is_not_forgotten() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let faults = Faults::new(1);
    let faulty = Faulty::new(Arc::clone(&rig.engine), Arc::clone(&faults));
    let file = rig.stage_on(&faulty, &staging, 0, 0).await;
    assert_eq!(append(&file, 0, 700), Append::Committed);
    file.flush().await.expect("is written");
    file.note_synced(700);
    // The unit on the disk that covers synced bytes is replaced: what it will cover is synced first.
    assert_eq!(append(&file, 700, 900), Append::Committed);
    faults.add(FaultRule::new(Effect::Errno(5)).on(&[IoOp::Sync]).times(1));
    file.flush().await.expect_err("the sync fails");
    file.close().await.expect("is written this time");
    assert!(file.sync_failed());
    rig.check(0, 900);
}
