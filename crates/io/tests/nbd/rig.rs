//! A server of nbdkit, and an engine on its device.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, Engine, EngineConfig, EngineFile, IoClass, IoError, OpenMode,
    engine_for,
};

use super::compile;

pub const CLASS: IoClass = IoClass::ClientWrite;
/// Bytes that [`write`] writes and [`reads_back`] compares.
pub const PIECE: usize = 100_000;

/// A server, and a directory for stubs.
pub struct Rig {
    pub dir: tempfile::TempDir,
    server: Option<Child>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Rig {
    /// `None` where it cannot run; the reason is printed.
    pub fn new() -> Option<Self> {
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

    /// The server's socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub fn start(&mut self) {
        self.start_with(&[], &[]);
    }

    /// `filters` stand before the name of nbdkit's plug-in, `more` behind its file.
    pub fn start_with(&mut self, filters: &[&str], more: &[&str]) {
        let file = self.dir.path().join("device").display().to_string();
        self.start_other(&[filters, &["file", &file], more].concat());
    }

    /// Whatever nbdkit can be.
    pub fn start_other(&mut self, arguments: &[&str]) {
        self.kill();
        let _ = std::fs::remove_file(self.socket());
        let server = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(self.socket())
            .args(arguments)
            .spawn();
        self.server = Some(server.expect("nbdkit is there"));
        let began = Instant::now();
        // The file is there before the server listens.
        while UnixStream::connect(self.socket()).is_err() {
            let waited = began.elapsed();
            assert!(waited < Duration::from_secs(20), "nbdkit does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// As kill -9 does.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.server.as_ref().expect("runs").id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.expect("kill is there").success());
        let began = Instant::now();
        // One thread takes the signal when it next runs; until then the others go on.
        while signal == "-STOP" && !all_stopped(&pid) {
            assert!(began.elapsed() < Duration::from_secs(20), "nbdkit goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The engine's name, for a server at `socket`.
    pub fn name_at(&self, socket: &Path, options: &str) -> String {
        let (so, socket) = (self.dir.path().join("nbd.so"), socket.display());
        format!(
            "plugin:{} nbd+unix:///?socket={socket} {options}",
            so.display()
        )
    }

    pub fn name(&self) -> String {
        self.name_at(&self.socket(), "timeout=1")
    }

    pub fn try_engine(&self, name: &str) -> Result<Arc<dyn Engine>, IoError> {
        let disk = Disk::for_path(&self.root(), &DiskConfig::default()).expect("a disk");
        let choice = engine_for(name, &self.root(), &EngineConfig::new(disk));
        choice.map(|choice| choice.engine)
    }

    pub fn engine(&self) -> Arc<dyn Engine> {
        let engine = self.try_engine(&self.name());
        engine.unwrap_or_else(|e| panic!("{e}"))
    }

    /// A new file.
    pub async fn file(&self, engine: &Arc<dyn Engine>, name: &str) -> Arc<dyn EngineFile> {
        let path = self.root().join(name);
        let opened = engine.open(&path, OpenMode::CreateNew, CLASS);
        opened.await.expect("opens")
    }
}

/// Whether each thread of a process is stopped.
fn all_stopped(pid: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_none_or(|(_, rest)| rest.starts_with(" T"))
    })
}

pub async fn write(file: &Arc<dyn EngineFile>, at: u64) -> Result<(), IoError> {
    let written = file.write_at(vec![Bytes::from(vec![7; PIECE])], at).await;
    written.result.map(drop)
}

/// Whether the first piece is as it was written.
pub async fn reads_back(file: &Arc<dyn EngineFile>) -> Result<bool, IoError> {
    let read = file.read_at(AlignedBuf::unpooled(PIECE), 0, PIECE).await;
    let (buf, n) = read.into_result()?;
    Ok(n == PIECE && buf.as_slice().iter().all(|b| *b == 7))
}
