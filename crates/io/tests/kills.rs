//! kill -9 while a process writes, cuts, renames, links and removes stubs: nothing it was told to
//! be done is lost, and no two files share a place. `HAYLOFT_KILLS` says how often (40; the suites:
//! 1,000).
//!
//! This program kills copies of itself. They say on their output what was acknowledged.

#[path = "plugin/adios.rs"]
mod adios;
#[path = "plugin/compile.rs"]
mod compile;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, Engine, EngineConfig, EngineFile, IoClass, OpenMode, SyncKind,
    engine_for,
};

/// Tells a copy that it is one: the engine, then the directory, then a seed.
const WRITER: &str = "HAYLOFT_KILLS_WRITER";
const CLASS: IoClass = IoClass::ClientWrite;
/// Most bytes of a file.
const LEN_MAX: usize = 600_000;

/// Numbers that differ by seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }
}

fn engine(name: &str, dir: &Path) -> Arc<dyn Engine> {
    let disk = Disk::for_path(dir, &DiskConfig::default()).expect("a disk");
    let choice = engine_for(name, dir, &EngineConfig::new(disk));
    choice.unwrap_or_else(|e| panic!("{e}")).engine
}

/// Bytes of file `id` from `at` on: each place of each file has its own.
fn content(id: u64, at: usize, len: usize) -> Vec<u8> {
    let word = |at: usize| (id << 32 | (at / 8) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (at..at + len)
        .map(|at| word(at).to_le_bytes()[at % 8] | 1)
        .collect()
}

fn path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("blk_{id}"))
}

/// Says that file `id` has `len` bytes at least, that were acknowledged, and `most` at most.
fn tell(id: u64, len: usize, most: usize) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{id} {len} {most}").expect("the parent reads");
    out.flush().expect("the parent reads");
}

async fn write(file: &Arc<dyn EngineFile>, id: u64, at: usize, len: usize) {
    let bytes = Bytes::from(content(id, at, len));
    let written = file.write_at(vec![bytes], at as u64).await;
    written.result.expect("writes");
}

/// Works until it is killed.
async fn work(name: &str, dir: &Path, seed: u64) {
    let engine = engine(name, dir);
    let meta = engine.meta(CLASS);
    let mut dice = Dice(seed | 1);
    let mut known: Vec<(u64, usize)> = Vec::new();
    for id in (seed << 20).. {
        let file = engine
            .open(&path(dir, id), OpenMode::CreateNew, CLASS)
            .await;
        let file = file.expect("a new file");
        let mut len = 0;
        if dice.roll(2) == 0 {
            file.allocate(LEN_MAX as u64).await.expect("room");
        }
        while len < LEN_MAX && dice.roll(8) != 0 {
            let n = 1 + usize::try_from(dice.roll(150_000)).expect("small");
            write(&file, id, len, n).await;
            len += n;
            tell(id, len, len + 150_000);
        }
        if dice.roll(3) == 0 {
            file.sync(SyncKind::Data).await.expect("syncs");
        }
        if dice.roll(3) == 0 && len > 0 {
            let cut = usize::try_from(dice.roll(len as u64)).expect("small");
            tell(id, cut, len);
            file.truncate(cut as u64).await.expect("cuts");
            len = cut;
            tell(id, len, len + 150_000);
        }
        drop(file);
        if dice.roll(3) == 0 {
            let (from, aside) = (path(dir, id), dir.join("aside"));
            meta.rename(&from, &aside).await.expect("renames");
            meta.rename(&aside, &from).await.expect("renames back");
        }
        known.push((id, len));
        if known.len() > 6 || dice.roll(3) == 0 {
            let gone = usize::try_from(dice.roll(known.len() as u64)).expect("small");
            let (id, _) = known.swap_remove(gone);
            // From here on it may be there or not.
            tell(id, 0, usize::MAX);
            meta.unlink(&path(dir, id)).await.expect("removes");
        }
    }
}

/// Starts a copy, kills it after a while; what it had acknowledged, by file: least and most bytes.
fn kill_one(name: &str, dir: &Path, seed: u64) -> BTreeMap<u64, (usize, usize)> {
    let writer = format!("{name}\n{}\n{seed}", dir.display());
    let mut copy = Command::new(std::env::current_exe().expect("this test"))
        .env(WRITER, writer)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a copy");
    let out = BufReader::new(copy.stdout.take().expect("piped"));
    let (works, begun) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut told = BTreeMap::new();
        let lines = out.lines().map_while(Result::ok);
        for line in lines {
            let _ = works.send(());
            let numbers: Vec<usize> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
            if let [id, least, most] = numbers[..] {
                told.insert(id as u64, (least, most));
            }
        }
        told
    });
    let mut dice = Dice(seed * 77 + 1);
    // Some are killed while they start.
    if dice.roll(4) != 0 {
        let _ = begun.recv_timeout(Duration::from_secs(20));
    }
    std::thread::sleep(Duration::from_millis(15 + dice.roll(60)));
    copy.kill().expect("is ours");
    copy.wait().expect("ended");
    reader.join().expect("no panic")
}

async fn read(engine: &Arc<dyn Engine>, path: &Path) -> Vec<u8> {
    let file = engine.open(path, OpenMode::ReadOnly, CLASS).await;
    let file = file.unwrap_or_else(|e| panic!("{e}"));
    let len = usize::try_from(file.length().await.expect("has one")).expect("small");
    let done = file.read_at(AlignedBuf::unpooled(len.max(1)), 0, len).await;
    assert_eq!(done.result.expect("reads"), len);
    done.buf.as_slice().to_vec()
}

/// Compares all files with what was acknowledged of them, and removes most.
async fn check(name: &str, dir: &Path, told: &mut BTreeMap<u64, (usize, usize)>, seed: u64) {
    let engine = engine(name, dir);
    let meta = engine.meta(CLASS);
    let aside = dir.join("aside");
    let mut dice = Dice(seed * 31 + 7);
    if aside.exists() {
        // Killed between two names: only one file can be without its own.
        let known = told.iter().filter(|(_, (_, most))| *most != usize::MAX);
        let missing: Vec<u64> = known.map(|(id, _)| *id).collect();
        let missing: Vec<u64> = missing
            .into_iter()
            .filter(|id| !path(dir, *id).exists())
            .collect();
        assert!(missing.len() <= 1, "{missing:?}");
        match missing.first() {
            Some(id) => fs::rename(&aside, path(dir, *id)).expect("renames"),
            None => meta.unlink(&aside).await.expect("removes"),
        }
    }
    let mut kept = BTreeMap::new();
    for (id, (least, most)) in std::mem::take(told) {
        let at = path(dir, id);
        if most == usize::MAX && !at.exists() {
            continue;
        }
        let there = read(&engine, &at).await;
        assert!(
            least <= there.len(),
            "{id}: {} of {least} bytes",
            there.len()
        );
        assert!(there.len() <= most, "{id}: {} bytes of {most}", there.len());
        // Beyond what was acknowledged, a write was under way.
        let sure = if most == usize::MAX {
            there.len()
        } else {
            least
        };
        assert!(there[..sure] == content(id, 0, sure), "{id}: other bytes");
        if dice.roll(4) == 0 && kept.len() < 5 {
            kept.insert(id, (there.len(), there.len()));
        } else {
            meta.unlink(&at).await.expect("removes");
        }
    }
    // Files that the copy had not told of yet.
    for entry in fs::read_dir(dir).expect("lists") {
        let entry = entry.expect("lists");
        let name = entry.file_name().to_string_lossy().into_owned();
        let id = name.strip_prefix("blk_").and_then(|id| id.parse().ok());
        if id.is_some_and(|id: u64| !kept.contains_key(&id)) {
            meta.unlink(&entry.path()).await.expect("removes");
        }
    }
    *told = kept;
}

/// Kills copies that use the engine `name` on `dir`; `look` is called after each.
fn kills(name: &str, dir: &Path, look: &mut dyn FnMut()) {
    let kills = std::env::var("HAYLOFT_KILLS")
        .ok()
        .and_then(|n| n.parse().ok());
    let kills: u64 = kills.unwrap_or(40);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");
    let space = || {
        runtime.block_on(async {
            let engine = engine(name, dir);
            engine.meta(CLASS).space(dir).await.expect("known").free
        })
    };
    let (all, began) = (space(), Instant::now());
    let mut told = BTreeMap::new();
    let mut files = 0;
    for seed in 1..=kills {
        let mut before = told.clone();
        before.extend(kill_one(name, dir, seed));
        look();
        files += before.len();
        told = before;
        runtime.block_on(check(name, dir, &mut told, seed));
    }
    runtime.block_on(async {
        let meta = engine(name, dir).meta(CLASS);
        for id in told.keys() {
            meta.unlink(&path(dir, *id)).await.expect("removes");
        }
    });
    assert_eq!(space(), all, "all room is back");
    let s = began.elapsed().as_secs();
    println!("{name}: {kills} kills, {files} files compared, {s} s");
}

/// A device of a file through the example plug-in.
fn on_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let (so, device) = (dir.path().join("device.so"), dir.path().join("device"));
    compile::plugin("../../plugins/examples/device.c", &so, &[]);
    File::create(&device)
        .and_then(|f| f.set_len(256 << 20))
        .expect("a file");
    let root = dir.path().join("root");
    fs::create_dir(&root).expect("creates");
    kills(
        &format!("plugin:{} {}", so.display(), device.display()),
        &root,
        &mut || (),
    );
}

/// A network block device that a server of nbdkit has in memory.
fn on_nbd() -> Result<(), String> {
    let dir = tempfile::tempdir().expect("a directory");
    let (so, socket) = (dir.path().join("nbd.so"), dir.path().join("socket"));
    if !Path::new("/usr/include/libnbd.h").exists() {
        return Err("libnbd-dev is not installed".into());
    }
    let libraries = ["-lnbd", "-lpthread"].map(String::from);
    compile::plugin_with("../../plugins/nbd.c", &so, &[], &libraries);
    let server = Command::new("nbdkit")
        .args(["--foreground", "--exit-with-parent", "--unix"])
        .arg(&socket)
        .args(["memory", "256M"])
        .spawn();
    let mut server = server.map_err(|e| format!("nbdkit: {e}"))?;
    while !socket.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let root = dir.path().join("root");
    fs::create_dir(&root).expect("creates");
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    kills(&format!("plugin:{} {uri}", so.display()), &root, &mut || ());
    server.kill().expect("is ours");
    server.wait().expect("ended");
    Ok(())
}

/// Objects of ADIOS2, small ones: a file of 600,000 bytes makes some whole.
fn on_adios(more: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = adios::engine(dir.path())?;
    let root = dir.path().join("root");
    fs::create_dir(&root).expect("creates");
    let (mut objects, mut half_made) = (0, 0);
    let mut look = || {
        let list = fs::read_dir(root.join("hayloft.adios"));
        for entry in list.into_iter().flatten().map_while(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            objects += u64::from(name.ends_with(".bp"));
            half_made += u64::from(name.ends_with(".part") || name.ends_with(".old"));
        }
    };
    let engine = format!("{engine} size=129M chunk=1M step=256K {more}");
    kills(&engine, &root, &mut look);
    println!("adios {more}: {objects} objects seen, {half_made} half made");
    assert!(objects > 0, "no chunk became whole");
    Ok(())
}

fn main() -> ExitCode {
    if let Ok(writer) = std::env::var(WRITER) {
        let parts: Vec<&str> = writer.split('\n').collect();
        let [name, dir, seed] = parts[..] else {
            return ExitCode::FAILURE;
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let seed = seed.parse().expect("a number");
        runtime
            .expect("threads")
            .block_on(work(name, Path::new(dir), seed));
        return ExitCode::FAILURE;
    }
    on_a_file();
    let mut run = 1;
    match on_nbd() {
        Ok(()) => run += 1,
        Err(why) => println!("nbd: skipped: {why}"),
    }
    for close in ["close=sync", "close=async"] {
        match on_adios(close) {
            Ok(()) => run += 1,
            Err(why) => println!("adios: skipped: {why}"),
        }
    }
    println!("test result: ok. {run} passed; 0 failed");
    ExitCode::SUCCESS
}
