//! Whose a device is: what is refused, and what is gone on with.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::tests::{Memory, SIZE, dir, free, get, open, put, stubs};
use super::*;

#[test]
fn a_device_that_is_not_the_volume_s_is_refused() {
    let (other, third, used) = (dir(), dir(), dir());
    let (dir, device) = (dir(), Memory::new());
    drop(stubs(dir.path(), &device).expect("opens"));
    let error = |root: &Path, device: &Memory, what: &str| {
        let error = stubs(root, device).expect_err("refused").to_string();
        assert!(error.contains(what), "{error}");
    };
    error(other.path(), &device, "the blocks of another volume");
    let blank = Memory::new();
    fs::create_dir(dir.path().join("current")).expect("creates");
    fs::write(dir.path().join("current/VERSION"), "").expect("writes");
    error(dir.path(), &blank, "no device of Hayloft's");
    error(other.path(), &blank_with(0, 510), "something on it already");
    error(
        other.path(),
        &blank_with(SIZE - 512, 8),
        "something on it already",
    );
    let second = Memory::new();
    drop(stubs(other.path(), &second).expect("opens"));
    error(dir.path(), &second, "the directory belongs to device");
    locks::lock(&device.0).bytes.truncate(SIZE / 2);
    error(dir.path(), &device, "give it its size back");
    locks::lock(&blank.0).bytes.truncate(1 << 20);
    error(third.path(), &blank, "must have");
    fs::create_dir(used.path().join("current")).expect("creates");
    fs::write(used.path().join("current/VERSION"), "").expect("writes");
    error(used.path(), &Memory::new(), "must be a new one");
    fs::write(other.path().join(whose_device::NAME_FILE), "nonsense").expect("writes");
    error(other.path(), &second, "names no device");
}

fn blank_with(at: usize, len: usize) -> Memory {
    let device = Memory::new();
    locks::lock(&device.0).bytes[at..at + len].fill(0x55);
    device
}

#[test]
fn a_stop_while_the_two_are_made_to_belong_together_is_gone_on_with() {
    let (dir, device) = (dir(), Memory::new());
    drop(stubs(dir.path(), &device).expect("opens"));
    // The directory names it, and the header never got there.
    locks::lock(&device.0).bytes[..4096].fill(0);
    drop(stubs(dir.path(), &device).expect("goes on"));
    drop(stubs(dir.path(), &device).expect("and belongs"));
}

/// Damages the bytes of the device at `at`.
fn damage(device: &Memory, at: usize, with: &[u8]) {
    locks::lock(&device.0).bytes[at..at + with.len()].copy_from_slice(with);
}

#[test]
fn either_header_stands_in_for_the_other_and_mends_it() {
    const SECOND: usize = 768 << 10;
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let path = dir.path().join("blk_1");
    put(&engine, &path, 1, 100_000);
    drop(engine);
    // The first blank, or torn; the second of a node that wrote one alone, or torn.
    let blank = &[0; 64][..];
    for (at, with) in [
        (0, blank),
        (12, &b"torn"[..]),
        (SECOND, blank),
        (SECOND + 8, &b"x"[..]),
    ] {
        damage(&device, at, with);
        let found = check(&device, dir.path()).expect("can be checked");
        let which = if at < SECOND { "first" } else { "second" };
        assert_eq!(
            found.device_findings,
            [format!("the {which} header is damaged")]
        );
        let engine = stubs(dir.path(), &device).expect("the other is there");
        Elsewhere::probe(&engine).expect("it was mended");
        assert_eq!(get(&engine, &path), [1; 100_000]);
        drop(engine);
        assert!(
            check(&device, dir.path())
                .expect("can be checked")
                .is_well()
        );
    }
    // What another program put beside the headers is found.
    damage(&device, 300_000, b"x");
    let found = check(&device, dir.path()).expect("can be checked");
    assert!(
        found.device_findings[0].contains("another program"),
        "{found:?}"
    );
    damage(&device, 300_000, b"\0");
    // What another program has put there is not written over.
    damage(&device, 0, b"XFSB");
    let error = stubs(dir.path(), &device)
        .expect_err("another's")
        .to_string();
    assert!(error.contains("no device of Hayloft's"), "{error}");
    assert_eq!(locks::lock(&device.0).bytes[..4], *b"XFSB");
}

/// Where the headers are.
const HEADERS: [usize; 2] = [0, 768 << 10];

/// A directory whose device holds one block, and the block's stub.
fn with_a_block() -> (tempfile::TempDir, Memory, std::path::PathBuf) {
    let (dir, device) = (dir(), Memory::new());
    let path = dir.path().join("blk_1");
    let engine = stubs(dir.path(), &device).expect("opens");
    put(&engine, &path, 1, 100_000);
    (dir, device, path)
}

#[test]
fn a_header_that_cannot_be_read_is_written_again() {
    for (at, which) in HEADERS.into_iter().zip(["first", "second"]) {
        let (dir, device, path) = with_a_block();
        let wear = || locks::lock(&device.0).unreadable = vec![at + 7, 40_000];
        wear();
        let found = check(&device, dir.path()).expect("goes on");
        let wanted = [
            format!("the {which} header cannot be read"),
            "4096 bytes at 36864 of the device cannot be read".to_owned(),
        ];
        assert_eq!(found.device_findings, wanted);
        let engine = stubs(dir.path(), &device).expect("the other is there");
        assert_eq!(get(&engine, &path), [1; 100_000]);
        assert_eq!(Elsewhere::damage(&engine), None);
        assert_eq!(locks::lock(&device.0).unreadable, [40_000], "it is mended");
        // One that goes while the volume is in use is mended by the next check of it.
        wear();
        Elsewhere::probe(&engine).expect("the other is there");
        assert_eq!(locks::lock(&device.0).unreadable, [40_000]);
        assert_eq!(Elsewhere::damage(&engine), None);
    }
}

#[test]
fn a_header_that_stays_unreadable_is_told_of_and_the_other_stands_in() {
    for (at, which) in HEADERS.into_iter().zip(["first", "second"]) {
        let (dir, device, path) = with_a_block();
        let wear = |at: Vec<usize>, stay_so| {
            let mut state = locks::lock(&device.0);
            (state.unreadable, state.stay_so) = (at, stay_so);
        };
        wear(vec![at], true);
        let engine = stubs(dir.path(), &device).expect("the other is there");
        let wanted = format!("the {which} header of its device is damaged");
        for _ in 0..2 {
            let damage = Elsewhere::damage(&engine).expect("it is told of");
            assert!(damage.starts_with(&wanted), "{damage}");
            Elsewhere::probe(&engine).expect("the device works");
        }
        // Its disk gives up both: nothing says any more whose it is.
        wear(HEADERS.to_vec(), true);
        Elsewhere::probe(&engine).expect_err("none is there");
        drop(engine);
        let error = stubs(dir.path(), &device).expect_err("none is there");
        assert_eq!(error.kind(), IoErrorKind::MediaError, "{error}");
        assert!(
            error.to_string().contains("no header can be read"),
            "{error}"
        );
        let many = (0..9).map(|piece| piece * 4096).collect();
        wear(many, true);
        check(&device, dir.path()).expect_err("the disk is lost");
        wear(Vec::new(), false);
        assert_eq!(
            get(&stubs(dir.path(), &device).expect("is back"), &path),
            [1; 100_000]
        );
    }
}

#[test]
fn a_new_device_must_be_readable_where_headers_go() {
    let (dir, device) = (dir(), Memory::new());
    locks::lock(&device.0).unreadable = vec![0];
    let error = stubs(dir.path(), &device).expect_err("who knows what is there");
    assert_eq!(error.kind(), IoErrorKind::MediaError, "{error}");
    assert!(!dir.path().join(whose_device::NAME_FILE).exists());
}

#[test]
fn a_device_that_hangs_while_it_gets_its_name_stops_no_other_volume() {
    let (dirs, devices) = ([dir(), dir()], [Memory::new(), Memory::new()]);
    drop(stubs(dirs[1].path(), &devices[1]).expect("opens"));
    locks::lock(&devices[0].0).held = true;
    let (root, device) = (dirs[0].path().to_owned(), devices[0].clone());
    let hangs = std::thread::spawn(move || stubs(&root, &device).map(drop));
    while !locks::lock(&devices[0].0).waits {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (root, device) = (dirs[1].path().to_owned(), devices[1].clone());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(stubs(&root, &device).map(drop)));
    let opened = told.recv_timeout(Duration::from_secs(10));
    locks::lock(&devices[0].0).held = false;
    opened
        .expect("waits for no other")
        .expect("opens and closes");
    hangs.join().expect("no panic").expect("opens at last");
}

#[test]
fn a_device_serves_one_volume_of_a_process_at_a_time() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let path = dir.path().join("blk_1");
    put(&engine, &path, 1, 100_000);
    let file = open(&engine, &path, OpenMode::ReadOnly).expect("there");
    drop(engine);
    // The volume comes back while a file of it is still open: it waits for that.
    let closing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(file);
    });
    let began = Instant::now();
    let engine = stubs(dir.path(), &device).expect("opens");
    assert!(began.elapsed() >= Duration::from_millis(200));
    closing.join().expect("no panic");
    assert_eq!(get(&engine, &path), [1; 100_000]);
}

#[test]
fn a_device_that_grew_may_not_shrink_back() {
    let (dir, device) = (dir(), Memory::new());
    drop(stubs(dir.path(), &device).expect("opens"));
    locks::lock(&device.0).bytes.resize(2 * SIZE, 0);
    let engine = stubs(dir.path(), &device).expect("opens");
    assert!(free(&engine) > SIZE as u64);
    drop(engine);
    locks::lock(&device.0).bytes.truncate(SIZE);
    let error = stubs(dir.path(), &device).expect_err("blocks may be there");
    assert!(
        error.to_string().contains("give it its size back"),
        "{error}"
    );
}

#[test]
fn a_device_that_was_exchanged_is_noticed() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    Elsewhere::probe(&engine).expect("is well");
    locks::lock(&device.0).bytes[9] ^= 1;
    let error = Elsewhere::probe(&engine).expect_err("another");
    assert_eq!(error.kind(), IoErrorKind::MediaError);
    locks::lock(&device.0).left = 0;
    Elsewhere::probe(&engine).expect_err("gone");
}
