//! Areas that somebody removes, renames or replaces while they are used.

use super::*;

/// Waits for something that is noticed sooner or later.
async fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
    waited.unwrap_or_else(|_| panic!("never happened: {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_removed_area_holds_is_written_at_once_and_staging_goes_on_in_a_fresh_one() {
    type TakeAway = fn(&Path);
    let removed: TakeAway = |area| fs::remove_file(area).expect("removes");
    let renamed: TakeAway = |area| fs::rename(area, area.with_extension("old")).expect("renames");
    for take_away in [removed, renamed] {
        let rig = Rig::new();
        let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
        let file = rig.stage(&staging, 0, 0).await;
        assert_eq!(append(&file, 0, 5000), Append::Committed);
        take_away(staging.path());
        soon("it is noticed", || file.is_lost()).await;
        soon("what it holds is written", || file.unwritten() == 0).await;
        // Who did not look yet is not cut off.
        assert_eq!(append(&file, 5000, 9000), Append::Committed);
        soon("that is written too", || file.unwritten() == 0).await;
        soon("there is a fresh area", || staging.path().exists()).await;
        file.close().await.expect("closes");
        rig.check(0, 9000);
        let next = {
            let spec = rig.spec(&*rig.engine, 0, 9000, QUANTUM).await;
            staging.stage(spec).expect("a usable area")
        };
        assert!(!next.is_lost());
        assert_eq!(append(&next, 9000, 12_000), Append::Committed);
        staging.crash();
        drop(next);
        Staging::finish_earlier(&rig.config(BUDGET_MIN)).expect("replays");
        rig.check(0, 12_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_took_the_areas_place_is_left_alone_and_when_it_goes_staging_goes_on() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let file = rig.stage(&staging, 0, 0).await;
    fs::remove_file(staging.path()).expect("removes");
    fs::write(staging.path(), "not an area").expect("writes");
    soon("it is noticed", || file.is_lost()).await;
    let spec = rig.spec(&*rig.engine, 1, 0, QUANTUM).await;
    assert!(staging.stage(spec).is_none(), "there is no area");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(fs::read(staging.path()).expect("there"), b"not an area");
    fs::remove_file(staging.path()).expect("removes");
    soon("there is a fresh area", || staging.path().exists()).await;
    let spec = rig.spec(&*rig.engine, 2, 0, QUANTUM).await;
    let next = staging.stage(spec).expect("an area again");
    assert_eq!(append(&next, 0, 700), Append::Committed);
    next.close().await.expect("closes");
    staging.end();
    assert!(!staging.path().exists());
    // An area that is lost at the end: what has its name is not ours.
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    fs::remove_file(staging.path()).expect("removes");
    fs::write(staging.path(), "not an area").expect("writes");
    staging.end();
    assert_eq!(fs::read(staging.path()).expect("there"), b"not an area");
}
