//! Stubs on a device in memory, which can be stopped at any step.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;

use super::*;
use crate::data_files::DataFiles;

pub(super) const SIZE: usize = 64 << 20;

/// A device; its copies are the same one.
#[derive(Clone, Debug)]
pub(super) struct Memory(pub(super) Arc<Mutex<MemoryState>>);

#[derive(Debug)]
pub(super) struct MemoryState {
    pub(super) bytes: Vec<u8>,
    /// Operations that still succeed.
    pub(super) left: usize,
    /// Where reads fail, until something is written there.
    pub(super) unreadable: Vec<usize>,
    /// Writes there fail, too.
    pub(super) stay_so: bool,
    /// Syncs that fail.
    bad_syncs: usize,
    trimmed: u64,
    /// What a trim answers.
    trim: Option<Errno>,
    /// The next write waits while this is set.
    pub(super) held: bool,
    /// It waits.
    pub(super) waits: bool,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(MemoryState {
            bytes: vec![0; SIZE],
            left: usize::MAX,
            unreadable: Vec::new(),
            stay_so: false,
            bad_syncs: 0,
            trimmed: 0,
            trim: None,
            held: false,
            waits: false,
        })))
    }

    /// One write at a time waits: others pass.
    fn wait_if_held(&self) {
        let mut state = locks::lock(&self.0);
        if !state.held || state.waits {
            return;
        }
        state.waits = true;
        drop(state);
        while locks::lock(&self.0).held {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn step(&self) -> Result<MutexGuard<'_, MemoryState>, IoError> {
        let mut state = locks::lock(&self.0);
        let gone = IoError::from_errno(IoOp::Other, Path::new("device"), Errno::IO);
        state.left = state.left.checked_sub(1).ok_or(gone)?;
        Ok(state)
    }

    fn damaged(&self, op: IoOp) -> IoError {
        IoError::from_errno(op, self.path(), Errno::IO)
    }
}

impl Blocking for Memory {
    fn path(&self) -> &Path {
        Path::new("device")
    }

    fn read(&self, target: &mut [u8], len: usize, offset: u64) -> Result<usize, IoError> {
        let state = self.step()?;
        let from = usize::try_from(offset)
            .expect("small")
            .min(state.bytes.len());
        let n = len.min(state.bytes.len() - from);
        if state
            .unreadable
            .iter()
            .any(|at| (from..from + n).contains(at))
        {
            return Err(self.damaged(IoOp::Read));
        }
        target[..n].copy_from_slice(&state.bytes[from..from + n]);
        Ok(n)
    }

    fn write(&self, bufs: &[&Bytes], offset: u64) -> (usize, Result<(), IoError>) {
        self.wait_if_held();
        let mut state = match self.step() {
            Ok(state) => state,
            Err(error) => return (0, Err(error)),
        };
        let mut at = usize::try_from(offset).expect("small");
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        let bad = state
            .unreadable
            .iter()
            .filter(|bad| (at..at + len).contains(*bad));
        if state.stay_so && bad.count() > 0 {
            return (0, Err(self.damaged(IoOp::Write)));
        }
        state.unreadable.retain(|bad| !(at..at + len).contains(bad));
        for buf in bufs {
            state.bytes[at..at + buf.len()].copy_from_slice(buf);
            at += buf.len();
        }
        (len, Ok(()))
    }

    fn truncate(&self, _len: u64) -> Result<(), IoError> {
        panic!("a device has its size");
    }

    fn trim(&self, _offset: u64, len: u64) -> Result<(), IoError> {
        let mut state = self.step()?;
        state.trimmed += len;
        let error = |errno| IoError::from_errno(IoOp::Other, self.path(), errno);
        state.trim.map_or(Ok(()), |errno| Err(error(errno)))
    }

    fn sync(&self, _kind: SyncKind) -> Result<(), IoError> {
        let mut state = self.step()?;
        if state.bad_syncs > 0 {
            state.bad_syncs -= 1;
            return Err(IoError::from_errno(IoOp::Sync, self.path(), Errno::IO));
        }
        Ok(())
    }

    fn length(&self) -> Result<u64, IoError> {
        Ok(self.step()?.bytes.len() as u64)
    }
}

pub(super) fn stubs(root: &Path, device: &Memory) -> Result<Stubs<Memory>, IoError> {
    let can = Capabilities {
        page_cache: false,
        memory_alignment: 1,
        descriptor: false,
        keeps_data: true,
        stubs: false,
    };
    Stubs::open("test".into(), can, device.clone(), root, false, true)
}

pub(super) fn open(
    engine: &Stubs<Memory>,
    path: &Path,
    mode: OpenMode,
) -> Result<EitherFile<Memory>, IoError> {
    BlockingEngine::open(engine, path, mode)
}

pub(super) fn put(engine: &Stubs<Memory>, path: &Path, byte: u8, len: usize) {
    let file = open(engine, path, OpenMode::CreateNew).expect("new");
    let bytes = Bytes::from(vec![byte; len]);
    file.write(&[&bytes], 0).1.expect("writes");
}

pub(super) fn get(engine: &Stubs<Memory>, path: &Path) -> Vec<u8> {
    let file = open(engine, path, OpenMode::ReadOnly).expect("there");
    let len = usize::try_from(file.length().expect("has one")).expect("small");
    let mut bytes = vec![0; len];
    assert_eq!(file.read(&mut bytes, len, 0).expect("reads"), len);
    bytes
}

pub(super) fn free(engine: &Stubs<Memory>) -> u64 {
    Elsewhere::space(engine).expect("known").free
}

fn files(engine: &Stubs<Memory>) -> DataFiles {
    DataFiles::elsewhere(engine.elsewhere())
}

pub(super) fn dir() -> tempfile::TempDir {
    // Not where temporary directories are memory that knows no attributes.
    tempfile::tempdir().expect("a directory")
}

#[test]
fn content_goes_with_the_last_name_and_the_last_handle() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let all = free(&engine);
    let [a, b] = ["blk_1", "blk_2"].map(|name| dir.path().join(name));
    put(&engine, &a, 7, 200_000);
    let taken = all - free(&engine);
    assert!(taken >= 200_000, "{taken}");
    fs::hard_link(&a, &b).expect("links");
    files(&engine).remove(&a).expect("removes");
    assert_eq!(
        (get(&engine, &b), all - free(&engine)),
        (vec![7; 200_000], taken)
    );
    let held = open(&engine, &b, OpenMode::ReadOnly).expect("there");
    files(&engine).remove(&b).expect("removes");
    assert_eq!(all - free(&engine), taken, "a reader has it open");
    let mut bytes = [0; 10];
    held.read(&mut bytes, 10, 199_990).expect("reads");
    assert_eq!(bytes, [7; 10]);
    drop(held);
    assert_eq!(free(&engine), all);
    assert!(
        locks::lock(&device.0).trimmed >= 200_000,
        "the device is told"
    );
    // A tree, with a file that another name keeps.
    let tree = dir.path().join("tree/below");
    fs::create_dir_all(&tree).expect("creates");
    put(&engine, &tree.join("blk_3"), 1, 100);
    put(&engine, &tree.join("blk_4"), 2, 100);
    fs::write(tree.join("blk_4_1.meta"), "plain").expect("writes");
    fs::hard_link(tree.join("blk_3"), &a).expect("links");
    files(&engine)
        .remove_tree(&dir.path().join("tree"))
        .expect("removes");
    assert_eq!(get(&engine, &a), [1; 100]);
    files(&engine).remove(&a).expect("removes");
    assert_eq!(free(&engine), all);
}

#[test]
fn the_next_process_finds_all_and_what_names_have_left() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let all = free(&engine);
    for n in 0..5 {
        put(&engine, &dir.path().join(format!("blk_{n}")), n, 70_000);
    }
    drop(engine);
    // Behind its back: a crash between the name and the content.
    fs::remove_file(dir.path().join("blk_0")).expect("removes");
    let engine = stubs(dir.path(), &device).expect("opens");
    put(&engine, &dir.path().join("blk_9"), 9, SIZE / 2);
    for n in 1..5 {
        assert_eq!(
            get(&engine, &dir.path().join(format!("blk_{n}"))),
            [n; 70_000]
        );
    }
    for n in [1, 2, 3, 4, 9] {
        files(&engine)
            .remove(&dir.path().join(format!("blk_{n}")))
            .expect("removes");
    }
    assert_eq!(free(&engine), all);
}

#[test]
fn what_was_acknowledged_is_there_after_a_stop_at_any_step() {
    for steps in 0..40 {
        let (dir, device) = (dir(), Memory::new());
        let engine = stubs(dir.path(), &device).expect("opens");
        let path = dir.path().join("blk_1");
        let file = open(&engine, &path, OpenMode::CreateNew).expect("new");
        locks::lock(&device.0).left = steps;
        let mut acknowledged: Vec<u8> = Vec::new();
        for n in 1..=8_u8 {
            let bytes = Bytes::from(vec![n; 50_000]);
            let at = acknowledged.len() as u64;
            if file.write(&[&bytes], at).1.is_err() {
                break;
            }
            acknowledged.extend_from_slice(&bytes);
            if n == 5 && file.truncate(120_000).is_ok() {
                acknowledged.truncate(120_000);
            }
        }
        locks::lock(&device.0).left = usize::MAX;
        // The process is gone: nothing is closed.
        let id = engine.0.adopted.id;
        std::mem::forget(file);
        std::mem::forget(engine);
        whose_device::forget(&id);
        let engine = stubs(dir.path(), &device).expect("opens");
        let there = get(&engine, &path);
        assert!(
            there.starts_with(&acknowledged),
            "after {steps} steps: {}",
            there.len()
        );
        put(&engine, &dir.path().join("blk_2"), 99, 1_000_000);
        assert!(
            get(&engine, &path).starts_with(&acknowledged),
            "after {steps} steps"
        );
    }
}

#[test]
fn after_a_failed_flush_no_sync_says_that_older_bytes_are_safe() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let write = |name: &str| {
        let file = open(&engine, &dir.path().join(name), OpenMode::CreateNew).expect("new");
        file.write(&[&Bytes::from_static(b"bytes")], 0)
            .1
            .expect("writes");
        file
    };
    let (a, b, clean) = (write("blk_1"), write("blk_2"), write("blk_3"));
    clean.sync(SyncKind::Data).expect("syncs");
    locks::lock(&device.0).bad_syncs = 1;
    a.sync(SyncKind::Data).expect_err("the device says so");
    for file in [&a, &b, &a] {
        let error = file.sync(SyncKind::All).expect_err("its bytes may be lost");
        assert_eq!(error.kind(), IoErrorKind::MediaError);
    }
    clean.sync(SyncKind::Data).expect("was safe before");
    write("blk_4").sync(SyncKind::Data).expect("is newer");
}

#[test]
fn a_sync_covers_what_an_earlier_handle_wrote() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let [a, b] = ["blk_1", "blk_2"].map(|name| dir.path().join(name));
    put(&engine, &a, 1, 100_000);
    put(&engine, &b, 2, 100_000);
    let sync = |path: &Path| {
        let file = open(&engine, path, OpenMode::ReadOnly).expect("there");
        file.sync(SyncKind::All)
    };
    locks::lock(&device.0).bad_syncs = 1;
    sync(&a).expect_err("the device was asked, and failed");
    sync(&b).expect_err("its bytes may be lost too");
    sync(&a).expect_err("they still may be");
    put(&engine, &dir.path().join("blk_3"), 3, 100_000);
    sync(&dir.path().join("blk_3")).expect("is newer");
    assert!(
        locks::lock(&engine.0.unflushed).files.len() <= 2,
        "what was flushed is forgotten"
    );
}

#[test]
fn a_full_device_says_so_and_gives_back_what_did_not_fit() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let all = free(&engine);
    let path = dir.path().join("blk_1");
    let file = open(&engine, &path, OpenMode::CreateNew).expect("new");
    let error = file.allocate(all + 1).expect_err("too much");
    assert_eq!(error.kind(), IoErrorKind::NoSpace);
    assert_eq!(free(&engine), all);
    file.allocate(all).expect("fits");
    assert_eq!((free(&engine), file.length().expect("has one")), (0, 0));
    file.truncate(0).expect("cuts");
    assert_eq!(free(&engine), all);
}

#[test]
fn a_complete_file_that_stays_open_gives_back_what_it_took_ahead() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let all = free(&engine);
    let path = dir.path().join("blk_1");
    let file = open(&engine, &path, OpenMode::CreateNew).expect("new");
    let written = Bytes::from(vec![1; 100_000]);
    file.write(&[&written], 0).1.expect("writes");
    assert!(all - free(&engine) > 2 * UNIT, "it took some ahead");
    file.truncate(100_000).expect("to the length that it has");
    assert_eq!(all - free(&engine), 2 * UNIT);
    assert_eq!(file.length().expect("has one"), 100_000);
}

#[test]
fn a_file_in_too_many_pieces_is_refused() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let all = free(&engine);
    // Every second unit is taken.
    let names: Vec<_> = (0..all / UNIT)
        .map(|n| dir.path().join(format!("blk_{n}")))
        .collect();
    for name in &names {
        put(&engine, name, 1, 1);
    }
    for name in names.iter().step_by(2) {
        files(&engine).remove(name).expect("removes");
    }
    let file = open(&engine, &dir.path().join("blk_9999"), OpenMode::CreateNew).expect("new");
    let error = file.allocate(all / 2).expect_err("in pieces");
    assert_eq!(error.kind(), IoErrorKind::NoSpace);
    file.allocate(100 * UNIT).expect("that many are fine");
}

#[test]
fn files_are_served_in_the_order_of_their_places() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let [first, second, meta] =
        ["blk_2", "blk_1", "blk_1_1.meta"].map(|name| dir.path().join(name));
    put(&engine, &first, 1, 100_000);
    put(&engine, &second, 2, 100_000);
    let stream = |path: &Path, mode| {
        let file = open(&engine, path, mode).expect("opens");
        file.stream(IoOp::Read, 65_537, 10)
    };
    let places = [&first, &second].map(|path| stream(path, OpenMode::ReadOnly).expect("on a disk"));
    assert!(
        places[0].id < places[1].id && places[1].offset == 65_537,
        "{places:?}"
    );
    assert_eq!(stream(&meta, OpenMode::CreateNew), None, "it is elsewhere");
}

#[test]
fn what_a_trim_did_not_answer_for_is_for_no_other_stub() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let all = free(&engine);
    let path = dir.path().join("blk_1");
    let mut left = all;
    for (answer, comes_back) in [
        (None, true),
        (Some(Errno::OPNOTSUPP), true),
        (Some(Errno::IO), false),
        (None, true),
    ] {
        locks::lock(&device.0).trim = answer;
        put(&engine, &path, 1, 100_000);
        files(&engine).remove(&path).expect("removes");
        if !comes_back {
            // What it grew by was given back at the close.
            left -= 4 * UNIT;
        }
        assert_eq!(free(&engine), left, "{answer:?}");
    }
    drop(engine);
    let engine = stubs(dir.path(), &device).expect("opens");
    assert_eq!(free(&engine), all, "a new process has all");
}
