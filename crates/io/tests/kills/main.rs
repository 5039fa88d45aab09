//! kill -9 while a process writes, cuts, renames, links and removes stubs: nothing it was told to
//! be done is lost, and no two files share a place. First before each step of a stub's life, then
//! at random. `HAYLOFT_KILLS` says how often then (40; the suites: 1,000).
//!
//! This program kills copies of itself. They say on their output what was acknowledged.

#[path = "../plugin/adios.rs"]
mod adios;
#[path = "../plugin/compile.rs"]
mod compile;
mod steps;
mod told;

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hayloft_io::{OpenMode, SyncKind};
use told::{CLASS, Dice, Told, check, engine, listen, path, tell, write};

/// Tells a copy that it is one: the engine, then the directory, then a seed.
const WRITER: &str = "HAYLOFT_KILLS_WRITER";
/// Most bytes of a file.
const LEN_MAX: usize = 600_000;

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

/// Starts a copy, kills it after a while; what it had acknowledged.
fn kill_one(name: &str, dir: &Path, seed: u64) -> Told {
    let writer = format!("{name}\n{}\n{seed}", dir.display());
    let mut copy = Command::new(std::env::current_exe().expect("this test"))
        .env(WRITER, writer)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a copy");
    let out = copy.stdout.take().expect("piped");
    let (works, begun) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        listen(out, || {
            let _ = works.send(());
        })
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
    let mut told = Told::new();
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

/// A device of a file through `raw`.
fn on_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let (so, device) = (dir.path().join("raw.so"), dir.path().join("device"));
    compile::plugin("../../plugins/raw.c", &so, &[]);
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
    let began = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "nbdkit is slow");
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
    let mut seen = adios::Seen::default();
    let engine = format!("{engine} size=129M chunk=1M step=256K {more}");
    kills(&engine, &root, &mut || seen.look(&root));
    println!("adios {more}: {seen:?}");
    Ok(())
}

fn main() -> ExitCode {
    if let Ok(life) = std::env::var(steps::LIFE) {
        let Some((name, dir)) = life.split_once('\n') else {
            return ExitCode::FAILURE;
        };
        // Without a driver of events: its wakes are writes, which would count as steps.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime
            .expect("a runtime")
            .block_on(steps::live(name, Path::new(dir)));
        return ExitCode::SUCCESS;
    }
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
    let mut ran = |what: &str, outcome: Result<(), String>| match outcome {
        Ok(()) => run += 1,
        Err(why) => println!("{what}: skipped: {why}"),
    };
    ran("steps", steps::on_a_file());
    ran("steps of adios", steps::on_adios());
    ran("nbd", on_nbd());
    for close in ["close=sync", "close=async"] {
        ran("adios", on_adios(close));
    }
    println!("test result: ok. {run} passed; 0 failed");
    ExitCode::SUCCESS
}
