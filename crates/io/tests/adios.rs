//! The engine `adios`: the contract of all engines over it, what becomes of chunks, and objects
//! that are damaged, gone, or have no room.
//!
//! Needs the library that `scripts/fetch-adios` fetches; elsewhere it says why it is skipped.

#[path = "plugin/adios.rs"]
mod adios;
#[path = "plugin/compile.rs"]
mod compile;
#[path = "plugin/contract.rs"]
mod contract;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, Engine, EngineConfig, EngineFile, IoClass, IoError, IoErrorKind,
    OpenMode, SyncKind, engine_for,
};

const CLASS: IoClass = IoClass::ClientWrite;
/// Bytes of a chunk.
const CHUNK: usize = 1 << 20;
const LAYOUT: &str = "chunk=1M step=256K";

/// The plug-in, and a directory for stubs.
struct Rig {
    dir: tempfile::TempDir,
    name: String,
}

impl Rig {
    /// `None` where it cannot run; the reason is printed.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        match adios::engine(dir.path()) {
            Ok(engine) => {
                fs::create_dir(dir.path().join("root")).expect("creates");
                let name = format!("{engine} size=65M {LAYOUT}");
                Some(Self { dir, name })
            }
            Err(why) => {
                println!("skipped: {why}");
                None
            }
        }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn objects(&self) -> PathBuf {
        self.root().join("hayloft.adios")
    }

    /// Names of objects and tails but the first, which has no block.
    fn chunks(&self) -> Vec<String> {
        let list = fs::read_dir(self.objects()).expect("lists");
        let names = list.map(|entry| entry.expect("lists").file_name());
        let mut names: Vec<String> = names.map(|n| n.to_string_lossy().into_owned()).collect();
        names.retain(|n| n.contains('.') && n != "0.tail");
        names.sort();
        names
    }

    fn try_engine(&self, more: &str) -> Result<Arc<dyn Engine>, String> {
        let root = self.root();
        let disk = Disk::for_path(&root, &DiskConfig::default()).expect("a disk");
        let choice = engine_for(
            &format!("{} {more}", self.name),
            &root,
            &EngineConfig::new(disk),
        );
        choice.map(|c| c.engine).map_err(|e| e.to_string())
    }

    fn engine(&self) -> Arc<dyn Engine> {
        self.try_engine("").unwrap_or_else(|e| panic!("{e}"))
    }

    async fn file(&self, engine: &Arc<dyn Engine>, name: &str, mode: OpenMode) -> File {
        let opened = engine.open(&self.root().join(name), mode, CLASS);
        opened.await.expect("opens")
    }

    /// A file of three chunks, which are objects; the engine is closed.
    async fn three_objects(&self) {
        let engine = self.engine();
        let file = self.file(&engine, "blk_1", OpenMode::CreateNew).await;
        write(&file, 0, 3 * CHUNK).await.expect("writes");
        assert_eq!(self.chunks(), ["1.bp", "2.bp", "3.bp"]);
    }
}

type File = Arc<dyn EngineFile>;
/// What happens to a file of an object.
type Damage = dyn Fn(&Path) -> std::io::Result<()>;

/// Bytes at `at` of each file.
fn content(at: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(0x9E37_79B1) >> 7).to_le_bytes()[0];
    (at..at + len).map(byte).collect()
}

async fn write(file: &File, at: usize, len: usize) -> Result<(), IoError> {
    for from in (at..at + len).step_by(100_000) {
        let n = 100_000.min(at + len - from);
        let written = file.write_at(vec![content(from, n).into()], from as u64);
        written.await.result?;
    }
    Ok(())
}

async fn check(file: &File, at: usize, len: usize) -> Result<(), IoError> {
    let read = file.read_at(AlignedBuf::unpooled(len), at as u64, len);
    let (buf, n) = read.await.into_result()?;
    assert_eq!(n, len);
    assert!(buf.as_slice() == content(at, len), "other bytes");
    Ok(())
}

#[test]
fn it_keeps_the_contract_of_all_engines() {
    let Some(rig) = Rig::new() else { return };
    for close in ["close=sync", "close=async"] {
        let wrong = contract::breaches(&format!("{} {close}", rig.name), rig.dir.path());
        assert!(wrong.is_empty(), "{close}: {wrong:#?}");
    }
}

#[tokio::test]
async fn a_chunk_is_a_tail_until_it_is_whole_and_again_when_it_is_written_to() {
    let Some(rig) = Rig::new() else { return };
    let engine = rig.engine();
    let file = rig.file(&engine, "blk_1", OpenMode::CreateNew).await;
    write(&file, 0, CHUNK + 5_000).await.expect("writes");
    assert_eq!(rig.chunks(), ["1.bp", "2.tail"]);
    check(&file, 0, CHUNK + 5_000).await.expect("reads");
    file.sync(SyncKind::Data).await.expect("syncs");
    let new = vec![Bytes::from(vec![7; 10])];
    file.write_at(new, 300_000).await.result.expect("writes");
    assert_eq!(rig.chunks(), ["1.tail", "2.tail"]);
    check(&file, 0, 300_000).await.expect("reads");
    check(&file, 300_010, CHUNK - 295_010).await.expect("reads");
    drop((file, engine));
    // A start makes an object of it again.
    let engine = rig.engine();
    assert_eq!(rig.chunks(), ["1.bp", "2.tail"]);
    let file = rig.file(&engine, "blk_1", OpenMode::ReadOnly).await;
    check(&file, 300_010, CHUNK - 295_010).await.expect("reads");
    let read = file.read_at(AlignedBuf::unpooled(10), 300_000, 10).await;
    assert_eq!(read.buf.as_slice(), [7; 10]);
}

#[tokio::test]
async fn objects_go_with_their_blocks() {
    let Some(rig) = Rig::new() else { return };
    rig.three_objects().await;
    let engine = rig.engine();
    let meta = engine.meta(CLASS);
    meta.unlink(&rig.root().join("blk_1"))
        .await
        .expect("removes");
    // Room is given out again when there is no other.
    let file = rig.file(&engine, "blk_2", OpenMode::CreateNew).await;
    write(&file, 0, 62 * CHUNK).await.expect("writes");
    check(&file, 61 * CHUNK, CHUNK).await.expect("reads");
    meta.unlink(&rig.root().join("blk_2"))
        .await
        .expect("removes");
    drop(file);
    let file = rig.file(&engine, "blk_3", OpenMode::CreateNew).await;
    let began = Instant::now();
    // Its room is there when the disk's thread lets go of the last read, too.
    while let Err(error) = write(&file, 0, 63 * CHUNK + CHUNK / 2).await {
        assert_eq!(error.kind(), IoErrorKind::NoSpace, "{error}");
        assert!(began.elapsed() < Duration::from_secs(20), "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let chunks = rig.chunks();
    assert!(chunks.len() <= 64, "{chunks:?}");
}

#[tokio::test]
async fn a_damaged_object_is_an_error_and_no_crash() {
    let Some(rig) = Rig::new() else { return };
    rig.three_objects().await;
    let whole = rig.dir.path().join("whole");
    let copy = |from: &Path, to: &Path| {
        let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
        assert!(copied.expect("cp is there").success());
    };
    copy(&rig.root(), &whole);
    let garbage = |path: &Path| fs::write(path, content(5, 3000));
    let shorter = |path: &Path| {
        let len = fs::metadata(path)?.len();
        fs::File::options().write(true).open(path)?.set_len(len / 2)
    };
    let gone = |path: &Path| fs::remove_file(path);
    let mut damages: Vec<(&str, &Damage)> = Vec::new();
    for file in ["md.idx", "md.0", "mmd.0", "sum"] {
        damages.extend([(file, &garbage as &Damage), (file, &gone)]);
        damages.push((file, &shorter));
    }
    damages.extend([("data.0", &shorter as &Damage), ("data.0", &gone)]);
    for (name, damage) in damages {
        let object = rig.objects().join("2.bp");
        damage(&object.join(name)).expect("damages");
        let engine = rig.engine();
        let file = rig.file(&engine, "blk_1", OpenMode::ReadOnly).await;
        let error = check(&file, CHUNK, 1000).await.expect_err("it is damaged");
        assert_eq!(error.kind(), IoErrorKind::MediaError, "{name}: {error}");
        assert!(error.to_string().contains("object"), "{name}: {error}");
        check(&file, 0, CHUNK).await.expect("another is as it was");
        check(&file, 2 * CHUNK, CHUNK)
            .await
            .expect("another is as it was");
        drop((file, engine));
        fs::remove_dir_all(rig.root()).expect("removes");
        copy(&whole, &rig.root());
    }
}

#[tokio::test]
async fn an_object_that_is_cut_while_it_is_open_is_an_error() {
    let Some(rig) = Rig::new() else { return };
    rig.three_objects().await;
    let engine = rig.engine();
    let file = rig.file(&engine, "blk_1", OpenMode::ReadOnly).await;
    check(&file, CHUNK, CHUNK).await.expect("reads");
    let data = fs::File::options()
        .write(true)
        .open(rig.objects().join("2.bp/data.0"))
        .expect("opens");
    data.set_len(100_000).expect("cuts");
    let error = check(&file, CHUNK, CHUNK).await.expect_err("it is cut");
    assert_eq!(error.kind(), IoErrorKind::MediaError, "{error}");
    check(&file, 0, CHUNK).await.expect("another is as it was");
}

#[tokio::test]
async fn without_its_objects_a_volume_is_refused() {
    let Some(rig) = Rig::new() else { return };
    rig.three_objects().await;
    let engine = rig.engine();
    let file = rig.file(&engine, "blk_2", OpenMode::CreateNew).await;
    write(&file, 0, 1000).await.expect("writes");
    fs::rename(rig.objects(), rig.dir.path().join("aside")).expect("renames");
    fs::remove_dir_all(rig.dir.path().join("aside")).expect("removes");
    let error = write(&file, 1000, CHUNK).await.expect_err("it is gone");
    assert_eq!(error.kind(), IoErrorKind::MediaError, "{error}");
    assert!(!rig.objects().exists(), "it is not made anew");
    drop((file, engine));
    fs::create_dir(rig.root().join("current")).expect("creates");
    fs::write(rig.root().join("current/VERSION"), "").expect("writes");
    let error = rig.try_engine("").expect_err("nothing is left");
    assert!(error.contains("belongs to device"), "{error}");
}

#[tokio::test]
async fn a_full_disk_is_a_full_volume() {
    let Some(rig) = Rig::new() else { return };
    let small = ["-t", "tmpfs", "-o", "size=12m", "tmpfs"];
    let mounted = Command::new("mount").args(small).arg(rig.root()).output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        println!("skipped: a file system in memory cannot be mounted: be root");
        return;
    }
    let mut acknowledged = 0;
    let error = {
        let engine = rig.engine();
        let file = rig.file(&engine, "blk_1", OpenMode::CreateNew).await;
        let error = loop {
            match write(&file, acknowledged, 100_000).await {
                Ok(()) => acknowledged += 100_000,
                Err(error) => break error,
            }
        };
        check(&file, 0, acknowledged).await.expect("reads");
        file.sync(SyncKind::All).await.expect("syncs");
        error
    };
    {
        let engine = rig.engine();
        let file = rig.file(&engine, "blk_1", OpenMode::ReadOnly).await;
        check(&file, 0, acknowledged).await.expect("reads");
    }
    let unmounted = Command::new("umount").arg("-l").arg(rig.root()).status();
    assert!(unmounted.expect("umount is there").success());
    assert_eq!(error.kind(), IoErrorKind::NoSpace, "{error}");
    assert!(acknowledged > 6 * CHUNK, "{acknowledged}");
}

#[test]
fn what_cannot_be_used_is_refused_in_a_sentence() {
    let Some(rig) = Rig::new() else { return };
    let libraries = rig
        .name
        .split(' ')
        .nth(1)
        .expect("it has a library")
        .to_owned();
    drop(rig.engine());
    for (options, wanted) in [
        ("library=/none/libadios2_c.so", "this process has"),
        ("chunk=2M", "another layout"),
        ("size=33M", "size"),
        ("chunk=3G", "is no option"),
        ("chunk=1000000", "is no option"),
        ("step=96K", "must be a multiple"),
        ("chunk=512M step=64K size=3G", "more than 4096 times step="),
        ("size=1M", "size= must be"),
        ("size=x", "is no option"),
        ("close=never", "is no option"),
        ("objects=/none/objects", "creating the directory of objects"),
    ] {
        let error = rig.try_engine(options).expect_err("cannot be");
        assert!(error.contains(wanted), "{options}: {error}");
    }
    let name = rig.name.replace(&libraries, "");
    let rig = Rig { name, ..rig };
    let error = rig.try_engine("").expect_err("no library");
    assert!(error.contains("scripts/fetch-adios"), "{error}");
}

/// A process has one library: this one has none yet.
const ALONE: &str = "HAYLOFT_ADIOS_ALONE";

#[test]
fn libraries_that_are_none_are_refused() {
    let Some(rig) = Rig::new() else { return };
    if std::env::var_os(ALONE).is_none() {
        let this = std::env::current_exe().expect("this test");
        let alone = Command::new(this)
            .args([
                "--exact",
                "libraries_that_are_none_are_refused",
                "--nocapture",
            ])
            .env(ALONE, "1")
            .output()
            .expect("a copy");
        let words = String::from_utf8_lossy(&alone.stdout);
        assert!(alone.status.success(), "{words}");
        return;
    }
    let so = rig.dir.path().join("other.so");
    let options = format!("library={}", so.display());
    let refused = |wanted: &str| {
        let error = rig.try_engine(&options).expect_err("no library");
        assert!(error.contains(wanted), "{error}");
    };
    refused("No such file");
    fs::write(&so, "text").expect("writes");
    refused("library=");
    compile::plugin("tests/plugin/none.c", &so, &[]);
    refused("it is not the libadios2_c.so of ADIOS2");
    drop(rig.engine());
}
