//! What a killed process leaves, and what the next start makes of it.

use std::os::unix::fs::MetadataExt as _;

use super::*;

/// What a process that is killed now leaves: the bytes of segments in use, in a file as long as the area.
fn snapshot(area: &Path, to: &Path) {
    let from = File::open(area).expect("there");
    let to = File::create(to).expect("creates");
    let len = from.metadata().expect("open").len();
    to.set_len(len).expect("grows");
    let copy = |at: u64, len: usize| {
        let mut buf = vec![0; len];
        from.read_exact_at(&mut buf, at).expect("reads");
        to.write_all_at(&buf, at).expect("writes");
        buf
    };
    copy(0, PAGE);
    for arena in 0..arenas_in(len) {
        for slot in 0..ARENA_SEGMENTS {
            let at = |place: usize| arena_offset(arena) + place as u64;
            let page = copy(at(descriptor_at(slot)), PAGE);
            let page = page.first_chunk().expect("a page");
            if let Descriptor::Used(target, record) = decode(page) {
                copy(at(side_at(slot)), record.side_len as usize);
                let from = data_at(slot) + target.start as usize;
                copy(at(from), record.len as usize);
            } else {
                assert_eq!(decode(page), Descriptor::Free, "never damaged by a kill");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5))]

    /// Commits of all lengths, around the end of a segment, watched at every step of their publication: what a
    /// kill there leaves is replayed to what was committed before or after, never to anything else.
    #[test]
    fn a_kill_at_any_step_of_a_commit_leaves_what_was_committed(
        start in 0_usize..2000,
        commits in prop::collection::vec(1_usize..1500, 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let rig = Rig::new();
            let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
            let start = SEGMENT_BYTES - 2500 + start;
            let file = rig.stage(&staging, 0, start).await;
            let mut len = start;
            for commit in commits {
                let next = len + commit;
                let (area, copy) = (staging.path().to_owned(), rig.dir.path().join("copy"));
                let (mains, sides) = ([rig.main(0), rig.main(1)], [rig.side(0), rig.side(1)]);
                let root = rig.config(0).roots;
                let seen = Arc::new(Mutex::new(Vec::new()));
                let steps = Arc::clone(&seen);
                segment::steps::hook(Some(Box::new(move || {
                    snapshot(&area, &copy);
                    // The files as they are are put back after each replay.
                    for (from, to) in [(&mains[0], &mains[1]), (&sides[0], &sides[1])] {
                        fs::copy(from, to).expect("copies");
                    }
                    let copy_file = OpenOptions::new().read(true).write(true).open(&copy).expect("opens");
                    let done = replay::replay(&copy_file, &copy, &root).expect("is replayed");
                    assert_eq!((done.gone, done.damaged, done.kept), (0, 0, 0));
                    let main = fs::read(&mains[0]).expect("there");
                    assert!(main == bytes(0, main.len()));
                    let side = fs::read(&sides[0]).expect("there");
                    assert!(side[7..] == side_bytes(0, main.len()), "at {}", main.len());
                    steps.lock().expect("not poisoned").push(main.len());
                    for (from, to) in [(&mains[1], &mains[0]), (&sides[1], &sides[0])] {
                        let bytes = fs::read(from).expect("reads");
                        let to = OpenOptions::new().write(true).open(to).expect("opens");
                        to.set_len(bytes.len() as u64).expect("cuts");
                        to.write_all_at(&bytes, 0).expect("writes");
                    }
                })));
                let outcome = append(&file, len, next);
                segment::steps::hook(None);
                assert_eq!(outcome, Append::Committed);
                let seen = seen.lock().expect("not poisoned").clone();
                let boundary = len.next_multiple_of(SEGMENT_BYTES);
                assert!(seen.len() > 4 && seen.is_sorted());
                assert!(seen.iter().all(|l| [len, next, boundary.min(next)].contains(l)), "{len} to {next}: {seen:?}");
                assert_eq!(seen.last(), Some(&next));
                len = next;
            }
            file.close().await.expect("closes");
            rig.check(0, len);
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_can_be_repeated_and_leaves_nothing_to_do() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let file = rig.stage(&staging, 0, 700).await;
    let other = rig.stage(&staging, 1, 0).await;
    assert_eq!(append(&file, 700, 300_000), Append::Committed);
    assert_eq!(append(&other, 0, 10), Append::Committed);
    staging.crash();
    let saved = fs::read(staging.path()).expect("there");
    let done = rig.finish();
    assert_eq!((done.files, done.segments, done.bytes), (2, 3, 299_310));
    rig.check(0, 300_000);
    rig.check(1, 10);
    assert!(
        !staging.path().exists(),
        "an area that is finished is removed"
    );
    // As if the process had been killed just before it removed the area.
    fs::write(staging.path(), &saved).expect("writes");
    assert_eq!(rig.finish(), done);
    rig.check(0, 300_000);
    assert_eq!(rig.finish(), Replayed::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_were_deleted_renamed_or_replaced_are_left_alone() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let mut files = Vec::new();
    for n in 0..5 {
        let file = rig.stage(&staging, n, 1000).await;
        assert_eq!(append(&file, 1000, 2000), Append::Committed);
        files.push(file);
    }
    staging.crash();
    fs::remove_file(rig.main(0)).expect("removes");
    fs::rename(rig.side(1), rig.dir.path().join("data/renamed")).expect("renames");
    // Kept open, so that the inode is not used again.
    let _old = File::open(rig.main(2)).expect("opens");
    fs::remove_file(rig.main(2)).expect("removes");
    fs::write(rig.main(2), bytes(0, 1000)).expect("writes");
    let cut = OpenOptions::new()
        .write(true)
        .open(rig.main(3))
        .expect("opens");
    cut.set_len(500).expect("cuts");
    let done = rig.finish();
    assert_eq!((done.gone, done.segments, done.kept), (4, 1, 0));
    assert_eq!(fs::read(rig.main(1)).expect("there").len(), 1000);
    assert_eq!(fs::read(rig.main(2)).expect("there").len(), 1000);
    assert_eq!(fs::read(rig.main(3)).expect("there").len(), 500);
    rig.check(4, 2000);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_written_now_is_kept_for_later_starts() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let file = rig.stage(&staging, 0, 0).await;
    assert_eq!(append(&file, 0, 5000), Append::Committed);
    staging.crash();
    let mut config = rig.config(BUDGET_MIN);
    config.roots[0].usable = false;
    for _ in 0..2 {
        let done = Staging::finish_earlier(&config).expect("goes on");
        assert_eq!((done.kept, done.segments), (1, 0));
        assert!(!staging.path().exists());
        let next = Staging::create(&config).expect("a new area beside it");
        next.end();
    }
    assert_eq!(rig.finish().segments, 1);
    rig.check(0, 5000);
    assert_eq!(rig.finish(), Replayed::default());
    // Nothing outside of the configured directories is touched.
    let file = rig
        .stage(&Staging::create(&config).expect("an area"), 1, 0)
        .await;
    assert_eq!(append(&file, 0, 5000), Append::Committed);
    file.shared.area.freeze();
    config.roots[0].path = rig.dir.path().join("elsewhere");
    let done = Staging::finish_earlier(&config).expect("goes on");
    assert_eq!((done.kept, done.gone, done.segments), (1, 0, 0));
    assert_eq!(fs::read(rig.main(1)).expect("there").len(), 0);
    // They may be again.
    assert_eq!(rig.finish().segments, 1);
    rig.check(1, 5000);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_area_that_is_kept_gives_the_rest_of_its_memory_back() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let (full, other) = (
        rig.stage(&staging, 0, 0).await,
        rig.stage(&staging, 1, 0).await,
    );
    let all = 8 * SEGMENT_BYTES;
    // Nothing is written but by the starts.
    full.hold();
    assert_eq!(append(&full, 0, all), Append::Committed);
    assert_eq!(append(&other, 0, 5000), Append::Committed);
    staging.crash();
    let held = |path: &Path| fs::metadata(path).expect("there").blocks() * 512;
    let before = held(staging.path());
    // The other one cannot be written: its side file is a directory now.
    fs::remove_file(rig.side(1)).expect("removes");
    fs::create_dir(rig.side(1)).expect("makes");
    for _ in 0..2 {
        let done = rig.finish();
        assert_eq!((done.kept, done.gone), (1, 0), "{done:?}");
        rig.check(0, all);
    }
    let kept = fs::read_dir(staging.path().parent().expect("a directory")).expect("reads");
    let kept = kept
        .map(|entry| entry.expect("reads").path())
        .find(|path| path.to_string_lossy().contains(".kept-"))
        .expect("is kept");
    assert!(
        held(&kept) + all as u64 <= before,
        "{} of {before} bytes are held",
        held(&kept)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_layout_or_another_file_is_refused_and_not_touched() {
    let rig = Rig::new();
    let path = rig.config(0).path();
    let mut other = layout::header(layout::boot_id());
    other[8] = 77;
    for (contents, says) in [
        (&other[..], "version 77"),
        (b"something else", "not a staging area"),
    ] {
        fs::write(&path, contents).expect("writes");
        let error = Staging::finish_earlier(&rig.config(0)).expect_err("is refused");
        assert_eq!(error.kind(), IoErrorKind::Invalid);
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(fs::read(&path).expect("there"), contents);
    }
    // Created and never begun: nothing can be in it.
    fs::write(&path, [0; 100]).expect("writes");
    assert_eq!(rig.finish(), Replayed::default());
    assert!(!path.exists());
    // A link to somebody's file is not followed, and a file with a second name is not trusted.
    fs::write(rig.dir.path().join("victim"), layout::header([0; 16])).expect("writes");
    std::os::unix::fs::symlink(rig.dir.path().join("victim"), &path).expect("links");
    Staging::finish_earlier(&rig.config(0)).expect_err("is refused");
    fs::remove_file(&path).expect("removes");
    fs::hard_link(rig.dir.path().join("victim"), &path).expect("links");
    let error = Staging::finish_earlier(&rig.config(0)).expect_err("is refused");
    assert_eq!(error.kind(), IoErrorKind::Denied);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_area_in_use_is_not_taken() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let error = Staging::finish_earlier(&rig.config(0)).expect_err("is in use");
    assert_eq!(error.kind(), IoErrorKind::Locked);
    // Its bytes are for a directory that we were given: whoever has them ought to have ended.
    let file = rig.stage(&staging, 0, 0).await;
    assert_eq!(append(&file, 0, 5000), Append::Committed);
    let error = Staging::finish_earlier(&rig.config(0)).expect_err("has bytes of ours");
    assert_eq!(error.kind(), IoErrorKind::Invalid);
    assert!(error.to_string().contains("main0"), "{error}");
    let mut others = rig.config(0);
    others.roots[0].usable = false;
    let error = Staging::finish_earlier(&others).expect_err("is in use");
    assert_eq!(error.kind(), IoErrorKind::Locked);
    file.close().await.expect("is written");
    staging.end();
    assert!(!staging.path().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_area_that_is_given_up_late_is_waited_for() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let file = rig.stage(&staging, 0, 0).await;
    assert_eq!(append(&file, 0, 5000), Append::Committed);
    let config = rig.config(0);
    let start = std::thread::spawn(move || Staging::finish_earlier(&config));
    std::thread::sleep(Duration::from_millis(50));
    staging.crash();
    let done = start.join().expect("ends").expect("takes the area");
    assert_eq!(done.segments, 1);
    rig.check(0, 5000);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_from_an_area_of_another_boot() {
    let rig = Rig::new();
    for (boot, segments) in [([7; 16], 0), ([0; 16], 1)] {
        let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
        let file = rig.stage(&staging, 0, 0).await;
        assert_eq!(append(&file, 0, 5000), Append::Committed);
        staging.crash();
        let area = OpenOptions::new().write(true).open(staging.path());
        area.and_then(|area| area.write_all_at(&layout::header(boot), 0))
            .expect("writes");
        assert_eq!(rig.finish().segments, segments);
        assert!(!staging.path().exists());
    }
    rig.check(0, 5000);
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_descriptors_are_counted_and_the_others_replayed() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let mut files = Vec::new();
    for n in 0..4 {
        let file = rig.stage(&staging, n, 0).await;
        assert_eq!(append(&file, 0, 5000), Append::Committed);
        files.push(file);
    }
    staging.crash();
    let area = OpenOptions::new()
        .write(true)
        .open(staging.path())
        .expect("opens");
    let damage = |slot: usize, place: usize| {
        let at = arena_offset(0) + (descriptor_at(slot) + place) as u64;
        area.write_all_at(&[0x5a; 3], at).expect("writes");
    };
    damage(0, OWNED_AT + 1);
    damage(1, 100);
    damage(2, layout::record_at(1));
    let done = rig.finish();
    assert_eq!((done.damaged, done.segments), (3, 1));
    rig.check(3, 5000);
}

proptest! {
    /// Whatever a descriptor's page holds, reading it neither panics nor gives places beyond the segment.
    #[test]
    fn any_descriptor_can_be_read(noise in prop::collection::vec(any::<u8>(), 256), owned in 0_u64..3) {
        let mut page = [0; PAGE];
        page[..256].copy_from_slice(&noise);
        page[..8].copy_from_slice(&owned.to_le_bytes());
        if let Descriptor::Used(target, record) = decode(&page) {
            prop_assert!(target.start as usize + record.len as usize <= SEGMENT_BYTES);
        }
    }
}
