//! kill -9 before each system call in a stub's life that changes something on a disk.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use hayloft_io::{Engine, EngineFile, OpenMode, SyncKind};

use super::adios::Seen;
use super::compile;
use super::told::{CLASS, Told, check, engine, listen, path, tell, write};

/// Tells a copy to live one life: the engine, then the directory.
pub const LIFE: &str = "HAYLOFT_KILLS_LIFE";
/// More steps than any life has.
const STEPS_MAX: u64 = 2000;
/// The file, and the one that gets its room when it is gone.
const FIRST: u64 = 1;
const SECOND: u64 = 2;

/// What a stub can go through, each once.
pub async fn live(name: &str, dir: &Path) {
    let engine = engine(name, dir);
    let meta = engine.meta(CLASS);
    let (at, aside) = (path(dir, FIRST), dir.join("aside"));
    let file = open(&engine, FIRST, dir, OpenMode::CreateNew).await;
    file.allocate(100_000).await.expect("room");
    grow(&file, FIRST, 0, 100_000).await;
    // Whole chunks for `adios`, and a gap's worth more.
    grow(&file, FIRST, 100_000, 1_200_000).await;
    file.sync(SyncKind::All).await.expect("syncs");
    tell(FIRST, 250_000, 1_300_000);
    file.truncate(250_000).await.expect("cuts");
    tell(FIRST, 250_000, 250_000);
    drop(file);
    let file = open(&engine, FIRST, dir, OpenMode::ReadWrite).await;
    grow(&file, FIRST, 250_000, 100_000).await;
    drop(file);
    meta.rename(&at, &aside).await.expect("renames");
    meta.rename(&aside, &at).await.expect("renames back");
    fs::hard_link(&at, &aside).expect("links");
    meta.unlink(&at).await.expect("removes one of two names");
    meta.rename(&aside, &at).await.expect("renames");
    tell(FIRST, 0, usize::MAX);
    meta.unlink(&at).await.expect("removes");
    meta.space(dir).await.expect("frees what was given up");
    let file = open(&engine, SECOND, dir, OpenMode::CreateNew).await;
    grow(&file, SECOND, 0, 1_300_000).await;
    file.sync(SyncKind::Data).await.expect("syncs");
}

async fn open(
    engine: &Arc<dyn Engine>,
    id: u64,
    dir: &Path,
    mode: OpenMode,
) -> Arc<dyn EngineFile> {
    let opened = engine.open(&path(dir, id), mode, CLASS).await;
    opened.unwrap_or_else(|e| panic!("{e}"))
}

async fn grow(file: &Arc<dyn EngineFile>, id: u64, at: usize, len: usize) {
    tell(id, at, at + len);
    write(file, id, at, len).await;
    tell(id, at + len, at + len);
}

/// Kills lives of an engine before step 1, 2, 3, ... until one ends; `make` gives the engine for a
/// directory, with a new device, and `seen` looks at what a kill left.
fn each_step(
    what: &str,
    make: &dyn Fn(&Path) -> String,
    seen: &mut dyn FnMut(&Path),
) -> Result<(), String> {
    let tools = tempfile::tempdir().expect("a directory");
    let kill_at = tools.path().join("kill_at");
    compile::program("tests/kills/kill_at.c", &kill_at);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    for step in 1..STEPS_MAX {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("root");
        fs::create_dir(&root).expect("creates");
        let name = make(dir.path());
        let mut life = Command::new(&kill_at)
            .arg(step.to_string())
            .arg(std::env::current_exe().expect("this test"))
            .env(LIFE, format!("{name}\n{}", root.display()))
            .stdout(Stdio::piped())
            .spawn()
            .expect("a copy");
        let mut told = listen(life.stdout.take().expect("piped"), || ());
        let code = life.wait().expect("ended").code();
        match code {
            Some(0 | 9) => {}
            Some(77) => return Err("processes may not be traced here".into()),
            code => panic!("{what}: killed before step {step}: exit code {code:?}"),
        }
        seen(&root);
        runtime.block_on(look(&name, &root, &mut told, step));
        if code == Some(0) {
            println!("{what}: killed before each of {} steps", step - 1);
            return Ok(());
        }
    }
    panic!("{what}: a life has more than {STEPS_MAX} steps");
}

/// Compares what there is with what was told, and removes it: then all room is free.
async fn look(name: &str, root: &Path, told: &mut Told, step: u64) {
    check(name, root, told, step).await;
    let engine = engine(name, root);
    let meta = engine.meta(CLASS);
    for id in told.keys() {
        meta.unlink(&path(root, *id)).await.expect("removes");
    }
    let space = meta.space(root).await.expect("known");
    assert_eq!(space.free, space.capacity, "killed before step {step}");
}

/// Steps on a device that is a file.
pub fn on_a_file() -> Result<(), String> {
    let tools = tempfile::tempdir().expect("a directory");
    let so = tools.path().join("raw.so");
    compile::plugin("../../plugins/raw.c", &so, &[]);
    let make = |dir: &Path| {
        let device = dir.join("device");
        let made = File::create(&device).and_then(|f| f.set_len(32 << 20));
        made.expect("a file");
        format!("plugin:{} {}", so.display(), device.display())
    };
    each_step("raw", &make, &mut |_| ())
}

/// Steps of stubs whose bytes are in objects of ADIOS2.
pub fn on_adios() -> Result<(), String> {
    let tools = tempfile::tempdir().expect("a directory");
    let engine = super::adios::engine(tools.path())?;
    let make = |_: &Path| format!("{engine} size=17M chunk=1M step=256K");
    let mut seen = Seen::default();
    each_step("adios", &make, &mut |root| seen.look(root))?;
    assert!(seen.whole > 0 && seen.half_made > 0, "{seen:?}");
    Ok(())
}
