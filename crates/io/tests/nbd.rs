//! The engine `nbd` and servers of nbdkit that die, hang and come back. The contract of all engines
//! over it; what a flush that was lost means.
//!
//! Needs nbdkit and libnbd-dev; elsewhere it says why it is skipped.

#[path = "plugin/compile.rs"]
mod compile;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hayloft_contract::{CONTRACT_CASES, EngineRig, try_out};
use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, Engine, EngineConfig, EngineFile, IoClass, IoError, IoErrorKind,
    OpenMode, SyncKind, engine_for,
};

const CLASS: IoClass = IoClass::ClientWrite;

/// A server, and a directory for stubs.
struct Rig {
    dir: tempfile::TempDir,
    server: Option<Child>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Rig {
    /// `None` where it cannot run; the reason is printed.
    fn new() -> Option<Self> {
        if !Path::new("/usr/include/libnbd.h").exists() {
            println!("skipped: libnbd-dev is not installed");
            return None;
        }
        if let Err(error) = Command::new("nbdkit").arg("--version").output() {
            println!("skipped: nbdkit: {error}");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let libraries = ["-lnbd", "-lpthread"].map(String::from);
        compile::plugin_with(
            "../../plugins/nbd.c",
            &dir.path().join("nbd.so"),
            &[],
            &libraries,
        );
        let device = std::fs::File::create(dir.path().join("device")).expect("creates");
        device.set_len(256 << 20).expect("grows");
        std::fs::create_dir(dir.path().join("root")).expect("creates");
        let mut rig = Self { dir, server: None };
        rig.start();
        Some(rig)
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn start(&mut self) {
        let _ = std::fs::remove_file(self.socket());
        let server = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(self.socket())
            .arg("file")
            .arg(self.dir.path().join("device"))
            .spawn();
        self.server = Some(server.expect("nbdkit is there"));
        let began = Instant::now();
        while !self.socket().exists() {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "nbdkit does not start"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.server.as_ref().expect("runs").id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.expect("kill is there").success());
    }

    fn name(&self) -> String {
        let (so, socket) = (self.dir.path().join("nbd.so"), self.socket());
        let (so, socket) = (so.display(), socket.display());
        format!("plugin:{so} nbd+unix:///?socket={socket} timeout=1")
    }

    fn engine(&self) -> Arc<dyn Engine> {
        let root = self.dir.path().join("root");
        let disk = Disk::for_path(&root, &DiskConfig::default()).expect("a disk");
        let choice = engine_for(&self.name(), &root, &EngineConfig::new(disk));
        choice.unwrap_or_else(|e| panic!("{e}")).engine
    }

    async fn file(&self, engine: &Arc<dyn Engine>, name: &str) -> Arc<dyn EngineFile> {
        let path = self.dir.path().join("root").join(name);
        let opened = engine.open(&path, OpenMode::CreateNew, CLASS);
        opened.await.expect("opens")
    }
}

async fn write(file: &Arc<dyn EngineFile>, at: u64) -> Result<(), IoError> {
    let written = file.write_at(vec![Bytes::from(vec![7; 100_000])], at).await;
    written.result.map(drop)
}

async fn reads_back(file: &Arc<dyn EngineFile>) -> Result<bool, IoError> {
    let read = file
        .read_at(AlignedBuf::unpooled(100_000), 0, 100_000)
        .await;
    let (buf, n) = read.into_result()?;
    Ok(n == 100_000 && buf.as_slice().iter().all(|b| *b == 7))
}

#[test]
fn it_keeps_the_contract_of_all_engines() {
    let Some(rig) = Rig::new() else { return };
    let name = rig.name().replace("timeout=1", "");
    let mut wrong = Vec::new();
    for case in CONTRACT_CASES {
        let (name, parent) = (name.clone(), rig.dir.path().to_owned());
        let make = move || {
            EngineRig::new(&parent, DiskConfig::default(), |dir, disk| {
                let mut config = EngineConfig::new(Arc::clone(disk));
                config.wipe_device = true;
                engine_for(&name, dir, &config).map(|choice| choice.engine)
            })
        };
        let outcome = try_out(*case, make, Duration::from_secs(60));
        wrong.extend(outcome.wrong.map(|why| format!("{}: {why}", outcome.name)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn after_a_server_was_gone_the_sync_of_what_it_had_not_flushed_fails() {
    let Some(mut rig) = Rig::new() else { return };
    let engine = rig.engine();
    let (old, new) = (
        rig.file(&engine, "blk_1").await,
        rig.file(&engine, "blk_2").await,
    );
    write(&old, 0).await.expect("writes");
    rig.kill();
    rig.start();
    // The first request finds the connection dead, the next connects again.
    let _ = reads_back(&old).await;
    assert!(reads_back(&old).await.expect("is back"));
    let error = old.sync(SyncKind::Data).await.expect_err("it may be lost");
    assert_eq!(error.kind(), IoErrorKind::MediaError, "{error}");
    old.sync(SyncKind::Data).await.expect_err("it still may be");
    write(&new, 0).await.expect("writes");
    new.sync(SyncKind::Data).await.expect("is newer");
}

#[tokio::test]
async fn a_server_that_had_flushed_all_may_come_and_go() {
    let Some(mut rig) = Rig::new() else { return };
    let engine = rig.engine();
    let file = rig.file(&engine, "blk_1").await;
    write(&file, 0).await.expect("writes");
    file.sync(SyncKind::All).await.expect("syncs");
    rig.kill();
    let error = reads_back(&file).await.expect_err("no server");
    assert_eq!(error.kind(), IoErrorKind::MediaError, "{error}");
    write(&file, 100_000).await.expect_err("no server");
    rig.start();
    assert!(reads_back(&file).await.expect("is back"));
    file.sync(SyncKind::All).await.expect("nothing was lost");
    // The first to notice may be a write, or a flush.
    for _ in 0..5 {
        rig.kill();
        rig.start();
        write(&file, 100_000).await.expect("is sent again");
        file.sync(SyncKind::All).await.expect("syncs");
    }
    write(&file, 100_000).await.expect("writes");
    file.sync(SyncKind::All).await.expect("syncs");
}

#[tokio::test]
async fn a_silent_server_is_given_up_in_time() {
    let Some(rig) = Rig::new() else { return };
    let engine = rig.engine();
    let file = rig.file(&engine, "blk_1").await;
    write(&file, 0).await.expect("writes");
    rig.signal("-STOP");
    let began = Instant::now();
    let error = reads_back(&file).await.expect_err("no answer");
    assert!(error.to_string().contains("no answer in time"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
    rig.signal("-CONT");
    assert!(reads_back(&file).await.expect("answers"));
    file.sync(SyncKind::Data)
        .await
        .expect_err("it may have lost the write");
}

#[test]
fn options_are_checked() {
    let Some(rig) = Rig::new() else { return };
    let root = rig.dir.path().join("root");
    for (options, wanted) in [
        ("", "name the export"),
        ("/dev/sda", "name the export"),
        ("nbd://127.0.0.1:1/", "onnect"),
        ("nbd+unix:///?socket=/x connections=17", "connections=1..16"),
        ("nbd+unix:///?socket=/x timeout=0", "timeout=1..3600"),
        ("nbd+unix:///?socket=/x fua=no", "fua=yes"),
    ] {
        let disk = Disk::for_path(&root, &DiskConfig::default()).expect("a disk");
        let so = rig.dir.path().join("nbd.so");
        let name = format!("plugin:{} {options}", so.display());
        let error = engine_for(&name, &root, &EngineConfig::new(disk));
        let error = error.expect_err("cannot be").to_string();
        assert!(error.contains(wanted), "{options}: {error}");
    }
}
