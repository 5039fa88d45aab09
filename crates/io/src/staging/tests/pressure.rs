//! Files that gather no more than they may, on disks that are too slow for what comes.

use super::*;
use crate::decorators::{Throttle, Throttled};
use crate::disk::{Request, Stream};

/// What a file may hold at the moment when one more piece of it is received.
pub(super) fn segments_at_most(quantum: usize) -> usize {
    QUANTA * quantum / SEGMENT_BYTES + ROOM_MAX / SEGMENT_BYTES + 1
}

/// A disk that writes so many bytes a second; none: as it can.
pub(super) fn engine(rig: &Rig, bytes_per_second: u64) -> (Throttled, Arc<Throttle>) {
    let throttle = Arc::new(Throttle::default());
    throttle.set_rate(IoClass::ClientWrite, bytes_per_second);
    let engine = Throttled::new(Arc::clone(&rig.engine), Arc::clone(&throttle));
    (engine, throttle)
}

/// Receives up to `len` bytes, in place or as copies; `look` is called after each packet.
pub(super) async fn stream(
    file: &Arc<StagedFile>,
    len: usize,
    in_place: bool,
    mut look: impl FnMut(),
) {
    let mut at = usize::try_from(file.committed()).expect("small");
    while at < len {
        let next = (at + 300_000).min(len);
        if in_place {
            file.landing().room().await;
            land(file, at, next).await;
        } else {
            while append(file, at, next) == Append::NoRoom {
                file.make_room(next - at).await.expect("room comes");
            }
        }
        look();
        at = next;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_faster_than_its_disk_gathers_two_quanta() {
    for (n, in_place) in [(0, true), (0, false), (1, true)] {
        let rig = Rig::new();
        let staging = Staging::create(&rig.config(16 * BUDGET_MIN)).expect("an area");
        let (slow, throttle) = engine(&rig, 2 << 20);
        // The second one's quanta are written in halves.
        let file = rig.stage_on(&slow, &staging, n, 0).await;
        let most = std::sync::atomic::AtomicUsize::new(0);
        let look = || {
            most.fetch_max(staging.segments_in_use(), Ordering::Relaxed);
        };
        stream(&file, 6 << 20, in_place, look).await;
        let most = most.into_inner();
        assert!(most > QUANTUM / SEGMENT_BYTES, "it was used: {most}");
        assert!(most <= segments_at_most(QUANTUM), "it holds: {most}");
        throttle.set_rate(IoClass::ClientWrite, 0);
        file.close().await.expect("closes");
        rig.check(n, 6 << 20);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_disk_leaves_room_for_the_streams_of_others() {
    let rig = Rig::new();
    // Two quanta each for four of them.
    let staging = Staging::create(&rig.config(2 * BUDGET_MIN)).expect("an area");
    let (slow, throttle) = engine(&rig, 1);
    let stuck = rig.stage_on(&slow, &staging, 0, 0).await;
    let behind = feed(&stuck, 6 << 20, true);
    let full = async {
        while !stuck.landing().is_full() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, full).await.expect("fills up");
    for n in 1..4 {
        let file = rig.stage(&staging, n, 0).await;
        let whole = stream(&file, 6 << 20, n % 2 == 0, || ());
        tokio::time::timeout(limit, whole)
            .await
            .expect("others go on");
        file.close().await.expect("closes");
        rig.check(n, 6 << 20);
    }
    assert!(stuck.landing().is_full() && !behind.is_finished());
    throttle.set_rate(IoClass::ClientWrite, 0);
    tokio::time::timeout(limit, behind)
        .await
        .expect("the disk goes on")
        .expect("no panic");
    stuck.close().await.expect("closes");
    rig.check(0, 6 << 20);
}

/// A file that may gather its share, in writes of half a quantum, on a disk of a speed.
async fn bursting(rig: &Rig, disk: &Throttled, staging: &Staging, n: usize) -> Arc<StagedFile> {
    let mut spec = rig.spec(disk, n, 0, QUANTUM).await;
    spec.burst = true;
    spec.quantum = QUANTUM / 2;
    staging.stage(spec).expect("can be staged")
}

/// A stream of `len` bytes beside whatever else happens.
fn feed(file: &Arc<StagedFile>, len: usize, in_place: bool) -> tokio::task::JoinHandle<()> {
    let file = Arc::clone(file);
    tokio::spawn(async move { stream(&file, len, in_place, || ()).await })
}

/// Waits until `done`.
pub(super) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let done = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, done).await.expect(what);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_is_taken_while_the_disk_stands_still() {
    const SHARE: usize = 4 * ARENA_SEGMENTS / 8 * 7;
    for in_place in [true, false] {
        let rig = Rig::new();
        let staging = Staging::create(&rig.config(4 * BUDGET_MIN)).expect("an area");
        let (slow, throttle) = engine(&rig, 1);
        let file = bursting(&rig, &slow, &staging, 0).await;
        let len = 20 << 20;
        let stream = feed(&file, len, in_place);
        // Memory for it is found on the way.
        let room = ROOM_MAX / SEGMENT_BYTES + 1;
        until("its share is used", || {
            staging.segments_in_use() >= SHARE && file.landing().is_full()
        })
        .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(staging.segments_in_use() <= SHARE + room);
        assert!(!stream.is_finished());
        throttle.set_rate(IoClass::ClientWrite, 0);
        until("the disk goes on", || stream.is_finished()).await;
        stream.await.expect("no panic");
        file.close().await.expect("closes");
        rig.check(0, len);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_later_gets_two_quanta_and_his_share_while_a_burst_is_written() {
    const QUANTA_BYTES: usize = QUANTA * QUANTUM / 2;
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(4 * BUDGET_MIN)).expect("an area");
    let (slow, throttle) = engine(&rig, 1);
    let first = bursting(&rig, &slow, &staging, 0).await;
    let len = 24 << 20;
    let one = feed(&first, len, true);
    until("the first one has all", || {
        first.unwritten() > (13 << 20) && first.landing().is_full()
    })
    .await;
    // Nothing has to be written for this: an eighth of the area is left.
    let second = bursting(&rig, &slow, &staging, 1).await;
    let two = feed(&second, len, true);
    // But for what is received at a time.
    let two_quanta = QUANTA_BYTES as u64 - 300_000;
    until("two quanta", || second.committed() >= two_quanta).await;
    assert!(first.unwritten() > (13 << 20), "that was soon");
    // Both go on at the disk's speed: each has about half in the end.
    throttle.set_rate(IoClass::ClientWrite, 4 << 20);
    until("half of it each", || {
        let (one, two) = (first.unwritten(), second.unwritten());
        one.max(two) <= (8 << 20) && one.min(two) >= (4 << 20)
    })
    .await;
    throttle.set_rate(IoClass::ClientWrite, 0);
    until("the disk goes on", || {
        one.is_finished() && two.is_finished()
    })
    .await;
    for (n, file) in [first, second].iter().enumerate() {
        file.close().await.expect("closes");
        rig.check(n, len);
    }
}

/// A closed file that drains shares nothing with those that grow but what it holds.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sealed_leaves_the_rest_to_those_that_grow() {
    const SHARE: usize = 4 * ARENA_SEGMENTS / 8 * 7;
    const SEALED: usize = (6 << 20) / SEGMENT_BYTES;
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(4 * BUDGET_MIN)).expect("an area");
    let (slow, throttle) = engine(&rig, 1);
    let first = bursting(&rig, &slow, &staging, 0).await;
    stream(&first, 6 << 20, true, || ()).await;
    first.seal();
    first.seal();
    let more = first.try_append(6 << 20, &[], &[]);
    more.expect_err("nothing is taken any more");

    let (other, other_throttle) = engine(&rig, 1);
    let second = bursting(&rig, &other, &staging, 1).await;
    let len = 20 << 20;
    let feeding = feed(&second, len, true);
    let held = || staging.segments_in_use() - SEALED;
    let full = || second.landing().is_full();
    until("all that is left", || held() >= SHARE - SEALED && full()).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(held() <= SHARE - SEALED + ROOM_MAX / SEGMENT_BYTES + 1);

    throttle.set_rate(IoClass::ClientWrite, 0);
    first.close().await.expect("closes");
    rig.check(0, 6 << 20);
    // Seen when a write of its own ends.
    other_throttle.set_rate(IoClass::ClientWrite, 2 << 20);
    until("the rest", || staging.segments_in_use() >= SHARE && full()).await;
    other_throttle.set_rate(IoClass::ClientWrite, 0);
    feeding.await.expect("no panic");
    second.close().await.expect("closes");
    rig.check(1, len);
    assert_eq!(staging.segments_in_use(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_file_hears_that_it_was_given_up() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(4 * BUDGET_MIN)).expect("an area");
    let (slow, throttle) = engine(&rig, 1);
    let file = rig.stage_on(&slow, &staging, 0, 0).await;
    let mut at = 0;
    while append(&file, at, at + 300_000) == Append::Committed {
        at += 300_000;
    }
    assert!(file.landing().is_full());
    let waits = tokio::spawn({
        let file = Arc::clone(&file);
        async move { file.make_room(300_000).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waits.is_finished());
    file.discard();
    waits
        .await
        .expect("no panic")
        .expect_err("nothing is taken any more");
    file.landing().room().await;
    throttle.set_rate(IoClass::ClientWrite, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_write_costs_no_seek_less_than_a_quantum_is_written_at_once() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(4 * BUDGET_MIN)).expect("an area");
    let patient = rig.stage(&staging, 0, 0).await;
    assert_eq!(append(&patient, 0, QUANTUM - 1), Append::Committed);
    let spec = rig.spec(&*rig.engine, 1, 0, SEGMENT_BYTES).await;
    let eager = staging.stage(spec).expect("can be staged");
    assert_eq!(append(&eager, 0, SEGMENT_BYTES - 1), Append::Committed);
    assert_eq!(eager.unwritten(), SEGMENT_BYTES as u64 - 1);
    assert_eq!(
        append(&eager, SEGMENT_BYTES - 1, SEGMENT_BYTES),
        Append::Committed
    );
    let written = async {
        while eager.unwritten() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // Sooner than idle bytes are written.
    tokio::time::timeout(IDLE / 2, written)
        .await
        .expect("is written");
    assert_eq!(patient.unwritten(), QUANTUM as u64 - 1);
}

/// Writes are looked after by the runtime of whoever brought their bytes, which may end before that of whoever waits.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_write_hears_that_nobody_looks_after_it() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(4 * BUDGET_MIN)).expect("an area");
    let file = rig.stage(&staging, 0, 0).await;
    let brought = Arc::clone(&file);
    let thread = std::thread::spawn(move || {
        let short = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        // It ends before it comes to the write that this begins.
        short.block_on(async { append(&brought, 0, QUANTUM) })
    });
    assert_eq!(thread.join().expect("no panic"), Append::Committed);
    let flushed = tokio::time::timeout(Duration::from_secs(20), file.flush()).await;
    let error = flushed
        .expect("an answer")
        .expect_err("nothing was written");
    assert_eq!(error.kind(), IoErrorKind::Closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_write_costs_a_seek_less_than_a_quantum_waits_while_others_want_the_disk() {
    let rig = Rig::new();
    let staging = Staging::create(&rig.config(4 * BUDGET_MIN)).expect("an area");
    let disk = Disk::for_path(rig.dir.path(), &DiskConfig::default()).expect("a directory");
    let (go, wait) = std::sync::mpsc::channel::<()>();
    // Somebody else's transfer, of a file on the device.
    let request = Request {
        class: IoClass::ClientRead,
        stream: Some(Stream { id: 7, offset: 0 }),
        bytes: 1 << 20,
    };
    let other = tokio::spawn(disk.transfer(request, move || (wait.recv().is_ok(), 0)));
    while disk.is_idle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut spec = rig.spec(&*rig.engine, 0, 0, SEGMENT_BYTES).await;
    spec.while_idle = Some(Arc::clone(&disk));
    let file = staging.stage(spec).expect("can be staged");
    assert_eq!(append(&file, 0, SEGMENT_BYTES), Append::Committed);
    tokio::time::sleep(IDLE / 10).await;
    assert_eq!(file.unwritten(), SEGMENT_BYTES as u64);
    go.send(()).expect("somebody waits");
    let _ended = other.await.expect("no panic");
    while !disk.is_idle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(
        append(&file, SEGMENT_BYTES, SEGMENT_BYTES + 1),
        Append::Committed
    );
    let written = async {
        while file.unwritten() > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(IDLE / 2, written)
        .await
        .expect("is written");
}
