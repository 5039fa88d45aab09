//! The store as a whole, on real directories.

mod append;
mod cache;
mod checksums;
mod crash;
mod deletes;
mod disks;
mod durability;
mod halfdead;
mod kept_open;
mod killed_then_apache;
mod lazy_persist;
mod leaving;
mod lifecycle;
mod lost_writes;
mod means;
mod moves;
mod odd_directories;
mod panics;
mod recovery;
mod refused;
mod remembered;
mod rolling;
mod scans;
mod setup;
mod shared_mount;
mod startup;
mod stress;
mod unclean;
mod upgrade;
mod virtual_nodes;
mod volumes;
mod watched;
mod whose_directories;
mod write;
mod written_and_killed;

use std::ffi::OsStr;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hayloft_io::AlignedBuf;
use hayloft_io::decorators::Faults;
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use tempfile::TempDir;
use tokio::sync::mpsc;

use self::setup::*;
use crate::*;

/// A node with its directories and its store.
struct Node {
    dir: TempDir,
    volumes: usize,
    store: Store,
    events: mpsc::Receiver<StoreEvent>,
}

/// A store with the pool, and its events.
async fn open(config: StoreConfig) -> (Store, mpsc::Receiver<StoreEvent>) {
    let (sender, events) = mpsc::channel(100);
    let store = Store::open(config, sender).await.expect("opens");
    store
        .add_pool(spec(), StartOption::Regular)
        .await
        .expect("loads");
    (store, events)
}

fn outlives_a_volume(config: &mut StoreConfig) {
    config.failed_volumes_tolerated = 1;
    config.check_min_gap = Duration::ZERO;
}

impl Node {
    async fn new() -> Self {
        Self::with_volumes(1).await
    }

    async fn with_volumes(volumes: usize) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let config = config(dir.path(), volumes);
        Self::start(dir, volumes, config).await
    }

    /// Volumes of which the first obeys the rules.
    async fn with_faults(
        volumes: usize,
        more: impl FnOnce(&mut StoreConfig),
    ) -> (Self, Arc<Faults>) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let faults = Faults::new(1);
        let mut config = StoreConfig {
            faults: Some((dir.path().join("data0"), Arc::clone(&faults))),
            ..config(dir.path(), volumes)
        };
        more(&mut config);
        (Self::start(dir, volumes, config).await, faults)
    }

    /// As [`with_faults`](Self::with_faults), and the node outlives one volume, whose failure is
    /// seen at once.
    async fn faulty(volumes: usize) -> (Self, Arc<Faults>) {
        Self::with_faults(volumes, outlives_a_volume).await
    }

    async fn start(dir: TempDir, volumes: usize, config: StoreConfig) -> Self {
        let (store, events) = open(config).await;
        Self {
            dir,
            volumes,
            store,
            events,
        }
    }

    /// A new process on the same directories, after a clean stop.
    async fn restart(self) -> Self {
        self.store.shutdown().await;
        let config = config(self.dir.path(), self.volumes);
        Self::start(self.dir, self.volumes, config).await
    }

    /// A new process on the same directories, after the old one was killed.
    async fn kill_and_start(self) -> Self {
        self.store.crash();
        let config = config(self.dir.path(), self.volumes);
        Self::start(self.dir, self.volumes, config).await
    }

    async fn writer(&self, id: i64, gs: u64) -> ReplicaWriter {
        writer(&self.store, id, gs).await
    }

    /// A finalized replica of `len` bytes.
    async fn put(&self, id: i64, gs: u64, len: usize) {
        let mut writer = self.writer(id, gs).await;
        if len > 0 {
            writer.write(vec![packet(0, len)]).await.expect("writes");
        }
        writer.finalize().await.expect("finalizes");
    }

    /// Checks that a reader gets the first `len` bytes of the pattern with right checksums.
    async fn check(&self, id: i64, gs: u64, len: usize) {
        let reader = self
            .store
            .open_reader(&block(id, gs, 0))
            .await
            .expect("opens");
        assert_eq!(reader.visible_len(), len as u64);
        check_reader(&reader, len).await;
    }

    /// No replica is on the first volume, and what was begun there waits for no start.
    async fn nothing_on_first(&self, when: &str) {
        let (_, replicas) = self.store.block_report(&pool()).swap_remove(0);
        assert!(replicas.is_empty(), "{when}");
        let dir = self.pool_dir().join("tmp/deleting");
        let began = std::time::Instant::now();
        while std::fs::read_dir(&dir).expect("there").next().is_some() {
            assert!(began.elapsed() < Duration::from_secs(10), "{dir:?}, {when}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn pool_dir(&self) -> PathBuf {
        self.dir.path().join("data0/current").join(pool().as_str())
    }

    fn error_of<T>(result: Result<T, StoreError>) -> StoreErrorKind {
        match result {
            Ok(_) => panic!("should have failed"),
            Err(e) => e.kind(),
        }
    }
}

/// Checks the first `len` bytes; data beyond, up to the end of the chunk, must fit its checksum
/// too.
async fn check_reader(reader: &ReplicaReader, len: usize) {
    let chunk = reader.checksum().chunk_size();
    let readable = usize::try_from(reader.readable_len()).expect("small");
    let to = len.next_multiple_of(chunk).min(readable);
    let data = reader
        .read_data(AlignedBuf::unpooled(to.max(1)), 0, to)
        .await
        .expect("reads");
    assert!(data.as_slice()[..len] == bytes(0, len));
    let sums = reader
        .read_sums(0, to.div_ceil(chunk) as u64)
        .await
        .expect("reads");
    reader
        .checksum()
        .verify(data.as_slice(), &sums)
        .expect("data and checksums fit");
}

/// Runs an ignored test of this program in a process of its own, kills that after a while, and
/// gives what it printed.
fn run_and_kill(test: &str, env: &[(&str, &OsStr)], after: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--ignored", "--nocapture"])
        .envs(env.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let out = child.stdout.take().expect("piped");
    let lines = std::thread::spawn(move || {
        let lines = std::io::BufReader::new(out).lines().map_while(Result::ok);
        lines.collect()
    });
    // The moment of the kill is what the caller varies.
    std::thread::sleep(after);
    child.kill().expect("kills");
    child.wait().expect("is dead");
    lines.join().expect("no panic")
}
