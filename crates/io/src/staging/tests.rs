//! Segments, records, replays and back pressure.

use std::fs;
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;

use super::layout::{
    ARENA_BYTES, ARENA_SEGMENTS, Descriptor, OWNED_AT, arena_offset, data_at, decode,
    descriptor_at, side_at,
};
use super::*;
use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::disk::{Disk, DiskConfig};
use crate::engine::{Engine, EngineFile, OpenMode};
use crate::engines::{EngineConfig, Posix};

const GRAIN: usize = 512;
const BASE: u64 = 7;

/// Bytes that differ from place to place.
fn bytes(from: usize, to: usize) -> Vec<u8> {
    (from..to)
        .map(|i| u8::try_from((i * 31 + i / 509) % 256).expect("below 256"))
        .collect()
}

/// The side bytes of grains from the one that holds `from` on, when the main file ends at `to`.
fn side_bytes(from: usize, to: usize) -> Vec<u8> {
    let mut side = Vec::new();
    let mut at = from / GRAIN * GRAIN;
    while at < to {
        let end = to.min(at + GRAIN);
        let sum = bytes(at, end)
            .iter()
            .fold(1_u32, |sum, b| sum.rotate_left(5) ^ u32::from(*b));
        side.extend_from_slice(&sum.to_be_bytes());
        at = end;
    }
    side
}

/// A directory with files and an area over them.
struct Rig {
    dir: TempDir,
    engine: Posix,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::for_path(dir.path(), &DiskConfig::default()).expect("a disk");
        Self {
            dir,
            engine: Posix::new(&EngineConfig::new(disk)),
        }
    }

    fn config(&self, budget: u64) -> StagingConfig {
        StagingConfig {
            dir: self.dir.path().to_owned(),
            name: "test".to_owned(),
            budget,
            roots: vec![Root {
                path: self.dir.path().join("data"),
                usable: true,
            }],
        }
    }

    fn main(&self, n: usize) -> PathBuf {
        self.dir.path().join(format!("data/main{n}"))
    }

    fn side(&self, n: usize) -> PathBuf {
        self.dir.path().join(format!("data/side{n}"))
    }

    async fn open(&self, path: &Path, mode: OpenMode) -> Arc<dyn EngineFile> {
        let opened = self.engine.open(path, mode, IoClass::ClientWrite).await;
        opened.expect("opens")
    }

    /// Files with `len` bytes, staged.
    async fn stage(&self, staging: &Staging, n: usize, len: usize) -> Arc<StagedFile> {
        fs::create_dir_all(self.dir.path().join("data")).expect("a directory");
        fs::write(self.main(n), bytes(0, len)).expect("writes");
        let mut side = vec![9; 7];
        side.extend(side_bytes(0, len));
        fs::write(self.side(n), side).expect("writes");
        let main = self.open(&self.main(n), OpenMode::ReadWrite).await;
        let side = self.open(&self.side(n), OpenMode::ReadWrite).await;
        let spec = StageSpec {
            main,
            side,
            shape: SideShape {
                grain: 512,
                unit: 4,
                base: BASE,
            },
            len: len as u64,
            synced: 0,
            quantum: 1 << 20,
        };
        staging.stage(spec).expect("can be staged")
    }

    /// Both files are right and end at `len`.
    fn check(&self, n: usize, len: usize) {
        assert!(
            fs::read(self.main(n)).expect("there") == bytes(0, len),
            "main to {len}"
        );
        let side = fs::read(self.side(n)).expect("there");
        assert!(side[7..] == side_bytes(0, len), "side to {len}");
    }

    fn finish(&self) -> Replayed {
        Staging::finish_earlier(&self.config(BUDGET_MIN)).expect("is finished")
    }
}

fn append(file: &StagedFile, from: usize, to: usize) -> Append {
    let side = side_bytes(from, to);
    let data = [Bytes::from(bytes(from, to))];
    file.try_append(from as u64, &data, &side)
        .expect("is taken")
}

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
    for arena in 0..usize::try_from(len).expect("small") / ARENA_BYTES {
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
    assert_eq!((done.gone, done.segments), (1, 0));
    assert_eq!(fs::read(rig.main(1)).expect("there").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_layout_or_another_file_is_refused_and_not_touched() {
    let rig = Rig::new();
    let path = rig.config(0).path();
    let mut other = layout::header();
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
    fs::write(rig.dir.path().join("victim"), layout::header()).expect("writes");
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
    staging.end();
    assert!(!staging.path().exists());
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

/// Receives a range in place and commits it.
async fn land(file: &Arc<StagedFile>, from: usize, to: usize) {
    let landing = file.landing();
    let reserved = landing
        .reserve(from as u64, to - from)
        .await
        .expect("usable");
    let mut reserved = reserved.expect("nothing is in the way");
    let data = bytes(from, to);
    let mut done = 0;
    // In odd bits, as a socket gives them.
    while done < data.len() {
        let mut rest = 1 + (from + done) % 40_000;
        let before = done;
        for slice in &mut reserved.unfilled() {
            let n = slice.len().min(rest).min(data.len() - done);
            slice[..n].copy_from_slice(&data[done..done + n]);
            done += n;
            rest -= n;
        }
        reserved.advance(done - before);
    }
    let pieces = reserved.freeze();
    let side = side_bytes(from, to);
    let outcome = file
        .try_append(from as u64, &pieces, &side)
        .expect("is taken");
    assert_eq!(outcome, Append::Committed, "room was reserved");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn more_writers_than_segments_all_come_to_their_end() {
    let rig = Arc::new(Rig::new());
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let len = 900_000;
    let mut tasks = Vec::new();
    for n in 0..3 * ARENA_SEGMENTS {
        let file = rig.stage(&staging, n, 0).await;
        tasks.push(tokio::spawn(async move {
            let mut at = 0;
            while at < len {
                let next = (at + 64_512).min(len);
                if n % 3 == 0 {
                    // From elsewhere: copied, waiting for room.
                    while append(&file, at, next) == Append::NoRoom {
                        file.make_room(next - at).await.expect("room comes");
                    }
                } else {
                    land(&file, at, next).await;
                }
                at = next;
            }
            file.close().await.expect("closes");
        }));
    }
    let all = futures_util::future::join_all(tasks);
    let all = tokio::time::timeout(Duration::from_secs(120), all).await;
    for done in all.expect("nobody waits forever") {
        done.expect("no panic");
    }
    for n in 0..3 * ARENA_SEGMENTS {
        rig.check(n, len);
    }
    assert_eq!(staging.segments_in_use(), 0);
    assert!(staging.backed_bytes() <= ARENA_BYTES, "the budget holds");
    staging.end();
    assert!(!staging.path().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_what_is_committed_wherever_it_is() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(4 * BUDGET_MIN)).expect("an area");
    let file = rig.stage(&staging, 0, 3000).await;
    let main = file.overlay_main(rig.open(&rig.main(0), OpenMode::ReadOnly).await);
    let side = file.overlay_side(rig.open(&rig.side(0), OpenMode::ReadOnly).await);
    let mut len = 3000;
    for step in [1, 511, 5000, 300_000, 64_512, 1_000_000, 2_000_000, 13] {
        assert_eq!(append(&file, len, len + step), Append::Committed);
        len += step;
        for from in [0, 1, 2999, 3000, len / 2, len - 1] {
            let (buf, n) = main
                .read_at(AlignedBuf::unpooled(len), from as u64, len - from)
                .await
                .into_result()
                .expect("reads");
            assert!(n == len - from && buf.as_slice() == bytes(from, len));
            let sums = side_bytes(from, len);
            let at = BASE + (from / GRAIN * 4) as u64;
            let (buf, n) = side
                .read_at(AlignedBuf::unpooled(sums.len()), at, sums.len())
                .await
                .into_result()
                .expect("reads");
            assert!(
                n == sums.len() && buf.as_slice() == sums,
                "side at {from} of {len}"
            );
        }
        let beyond = main
            .read_at(AlignedBuf::unpooled(100), len as u64 - 1, 100)
            .await;
        assert_eq!(beyond.into_result().expect("reads").1, 1);
    }
    file.close().await.expect("closes");
    rig.check(0, len);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_bytes_reach_the_files_and_memory_goes_back() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(8 * BUDGET_MIN)).expect("an area");
    let mut files = Vec::new();
    for n in 0..3 * ARENA_SEGMENTS {
        let file = rig.stage(&staging, n, 0).await;
        assert_eq!(append(&file, 0, 700), Append::Committed);
        files.push(file);
    }
    assert_eq!(staging.backed_bytes(), 3 * ARENA_BYTES);
    let idle = async {
        while staging.segments_in_use() > 0 || staging.backed_bytes() > ARENA_BYTES {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), idle)
        .await
        .expect("comes to rest");
    for (n, file) in files.iter().enumerate() {
        rig.check(n, 700);
        // In the middle of a grain, whose side bytes are replaced.
        assert_eq!(append(file, 700, 1500), Append::Committed);
        file.flush().await.expect("writes");
        rig.check(n, 1500);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_received_in_place_are_not_overwritten_by_others() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let file = rig.stage(&staging, 0, 100).await;
    let landing = file.landing();
    assert!(
        landing.try_reserve(99, 10).is_none(),
        "known bytes are received elsewhere"
    );
    assert!(landing.try_reserve(101, 10).is_none(), "nor with a gap");
    let mut reserved = landing.try_reserve(100, 10).expect("room");
    assert!(landing.try_reserve(100, 10).is_none(), "one at a time");
    let other = [Bytes::from(vec![1; 10])];
    file.try_append(100, &other, &[0; 4])
        .expect_err("a place is being received into");
    reserved.unfilled()[0].fill(2);
    reserved.advance(10);
    let pieces = reserved.freeze();
    file.try_append(100, &other, &[0; 4])
        .expect_err("other bytes are there");
    assert_eq!(pieces[0], vec![2; 10]);
    // The same bytes from elsewhere are fine.
    let same = [Bytes::from(vec![2; 10])];
    let outcome = file.try_append(100, &same, &[0; 4]).expect("is taken");
    assert_eq!(outcome, Append::Committed);
    // A reservation that is given up leaves no trace.
    let mut reserved = landing.try_reserve(110, 10).expect("room");
    reserved.unfilled()[0].fill(3);
    reserved.advance(5);
    drop(reserved);
    assert_eq!(landing.next_offset(), 110);
    assert!(landing.try_reserve(110, ROOM_MAX + 1).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_who_stop_inside_a_packet_leave_room_for_the_others() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let mut held = Vec::new();
    for n in 0..ARENA_SEGMENTS {
        let file = rig.stage(&staging, n, 0).await;
        held.extend(file.landing().reserve(0, 1000).await.expect("usable"));
    }
    assert_eq!(held.len(), ARENA_SEGMENTS / 4 * 3);
    let file = rig.stage(&staging, 99, 0).await;
    let mut at = 0;
    while at < 8_000_000 {
        let next = at + 64_512;
        while append(&file, at, next) == Append::NoRoom {
            file.make_room(next - at).await.expect("room comes");
        }
        at = next;
    }
    file.close().await.expect("closes");
    rig.check(99, at);
    drop(held);
    assert!(
        file.landing().try_reserve(at as u64, 10).is_none(),
        "it is closed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_area_that_somebody_removes_is_not_relied_on() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let file = rig.stage(&staging, 0, 0).await;
    assert_eq!(append(&file, 0, 5000), Append::Committed);
    fs::remove_file(staging.path()).expect("removes");
    let noticed = async {
        while file.try_append(5000, &[], &[]).is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), noticed)
        .await
        .expect("is noticed");
    file.close()
        .await
        .expect("what was committed is written all the same");
    rig.check(0, 5000);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_were_given_up_are_never_said_to_be_written() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(BUDGET_MIN)).expect("an area");
    let file = rig.stage(&staging, 0, 0).await;
    assert_eq!(append(&file, 0, 5000), Append::Committed);
    file.stop().await;
    file.flush()
        .await
        .expect_err("it takes and writes nothing any more");
    assert_eq!(file.unwritten_of_both(), 5000 + 10 * 4);
    file.discard();
    file.flush().await.expect_err("they are gone");
    file.close().await.expect_err("they are gone");
    file.try_append(5000, &[Bytes::from_static(b"x")], &[0; 4])
        .expect_err("it is closed");
    assert_eq!(staging.segments_in_use(), 0);
}
