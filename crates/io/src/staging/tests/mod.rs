//! Segments, records, replays and back pressure.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;

use super::layout::{
    ARENA_BYTES, ARENA_SEGMENTS, Descriptor, OWNED_AT, PAGE, arena_offset, arenas_in, data_at,
    decode, descriptor_at, side_at,
};
use super::*;
use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::disk::{Disk, DiskConfig};
use crate::engine::{Engine, EngineFile, OpenMode};
use crate::engines::{EngineConfig, Posix};
use crate::error::IoErrorKind;

mod left;
mod lost;
mod memory;
mod pressure;
mod restart;
mod shortage;

const GRAIN: usize = 512;
const BASE: u64 = 7;
/// Bytes written in one go.
const QUANTUM: usize = 1 << 20;

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
    engine: Arc<dyn Engine>,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::for_path(dir.path(), &DiskConfig::default()).expect("a disk");
        Self {
            dir,
            engine: Arc::new(Posix::new(&EngineConfig::new(disk))),
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
        self.stage_on(&*self.engine, staging, n, len).await
    }

    async fn stage_on(
        &self,
        engine: &dyn Engine,
        staging: &Staging,
        n: usize,
        len: usize,
    ) -> Arc<StagedFile> {
        let spec = self.spec(engine, n, len, QUANTUM).await;
        staging.stage(spec).expect("can be staged")
    }

    /// Files with `len` bytes, to be staged.
    async fn spec(&self, engine: &dyn Engine, n: usize, len: usize, eager: usize) -> StageSpec {
        fs::create_dir_all(self.dir.path().join("data")).expect("a directory");
        fs::write(self.main(n), bytes(0, len)).expect("writes");
        let mut side = vec![9; 7];
        side.extend(side_bytes(0, len));
        fs::write(self.side(n), side).expect("writes");
        let open = async |path: PathBuf| {
            let opened = engine.open(&path, OpenMode::ReadWrite, IoClass::ClientWrite);
            opened.await.expect("opens")
        };
        StageSpec {
            main: open(self.main(n)).await,
            side: open(self.side(n)).await,
            shape: SideShape {
                grain: 512,
                unit: 4,
                base: BASE,
            },
            len: len as u64,
            synced: 0,
            quantum: QUANTUM,
            burst: false,
            cuts: 1 + n % 2,
            eager,
            while_idle: None,
        }
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

async fn append_when_there_is_room(file: &StagedFile, from: usize, to: usize) {
    while append(file, from, to) == Append::NoRoom {
        file.make_room(to - from).await.expect("room comes");
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
        while append(&file, len, len + step) == Append::NoRoom {
            file.make_room(ROOM_MAX).await.expect("room comes");
        }
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
    let mut most = 0;
    let mut files = Vec::new();
    for n in 0..6 * ARENA_SEGMENTS {
        let file = rig.stage(&staging, n, 0).await;
        append_when_there_is_room(&file, 0, 700).await;
        most = most.max(staging.backed_bytes());
        files.push(file);
    }
    assert!(most > ARENA_BYTES, "more than what is kept: {most}");
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
        append_when_there_is_room(file, 700, 1500).await;
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
