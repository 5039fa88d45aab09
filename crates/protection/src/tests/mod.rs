//! Parity groups on real directories, each of which counts as a disk.

mod appends;
mod changes;
mod commit;
mod damage;
mod dead_disk;
mod ended;
mod heads;
mod many_dead_disks;
mod meanwhile;
mod memory;
mod outlived;
mod panics;
mod races;
mod refuses;
mod reshaped;
mod room;
mod scrub;
mod short_groups;
mod steps;
mod told;
mod two_stores;

/// What the tests of the store begin with, too.
#[allow(dead_code, reason = "the store's tests use more of it")]
#[path = "../../../store/src/tests/setup.rs"]
mod setup;

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hayloft_io::AlignedBuf;
use hayloft_io::decorators::Faults;
use hayloft_parity::{GroupFile, PARITY_DIR, ParityDisks, ParityShape};
use hayloft_store::*;
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, ReplicaState};
use tempfile::TempDir;
use tokio::sync::mpsc;

use self::setup::*;
use self::steps::{Step, end_behind};
use crate::*;

/// Bytes of a replica that differ from block to block and from place to place.
fn content(id: i64, len: usize) -> Vec<u8> {
    let seed = usize::try_from(id).expect("positive") * 7919;
    (0..len)
        .map(|i| u8::try_from((i * 31 + i / 251 + seed + (i * seed) / 97) % 256).expect("a byte"))
        .collect()
}

fn shape(data: u8, parity: u8) -> ParityShape {
    ParityShape::new(data, parity).expect("valid")
}

fn parity(shape: ParityShape) -> ParityConfig {
    ParityConfig {
        disks: ParityDisks::Directories,
        // Tests call the rounds themselves.
        interval: Duration::ZERO,
        patience: Duration::ZERO,
        hold: Duration::ZERO,
        // A test ends the process behind a step of one group.
        groups_at_once: 1,
        ..ParityConfig::new(shape)
    }
}

/// What a node is told, and how its replicas are protected.
#[derive(Clone)]
struct Protected {
    store: StoreConfig,
    parity: ParityConfig,
}

impl Deref for Protected {
    type Target = StoreConfig;

    fn deref(&self) -> &StoreConfig {
        &self.store
    }
}

impl DerefMut for Protected {
    fn deref_mut(&mut self) -> &mut StoreConfig {
        &mut self.store
    }
}

fn protected(dir: &Path, volumes: usize, shape: ParityShape) -> Protected {
    Protected {
        store: StoreConfig {
            check_min_gap: Duration::ZERO,
            ..config(dir, volumes)
        },
        parity: parity(shape),
    }
}

/// Stores of one process, which have their parity together.
struct Together {
    shared: StoreShared,
    stores: usize,
    parity: OnceLock<Arc<Parity>>,
}

impl Together {
    fn new(stores: usize) -> Self {
        Self {
            shared: StoreShared::new(8 << 20),
            stores,
            parity: OnceLock::new(),
        }
    }

    async fn open(
        &self,
        config: Protected,
        events: mpsc::Sender<StoreEvent>,
    ) -> (Store, Arc<Parity>) {
        let Protected { store, parity } = config;
        let parity = self
            .parity
            .get_or_init(|| Arc::new(Parity::new(parity, self.stores)));
        let protection: StoreProtection = Arc::new(ParityProtection(Arc::clone(parity)));
        let shared = self.shared.clone();
        let store = Store::open_sharing(store, events, shared, Some(protection)).await;
        (store.expect("opens"), Arc::clone(parity))
    }
}

/// Opens a store of its own.
async fn try_open(
    config: Protected,
    events: mpsc::Sender<StoreEvent>,
) -> Result<(Store, Arc<Parity>), StoreError> {
    let Protected { store, parity } = config;
    let parity = Arc::new(Parity::new(parity, 1));
    let protection: StoreProtection = Arc::new(ParityProtection(Arc::clone(&parity)));
    let shared = StoreShared::alone(store.write_memory);
    let store = Store::open_sharing(store, events, shared, Some(protection)).await?;
    Ok((store, parity))
}

/// A node whose replicas are protected.
struct Node {
    dir: TempDir,
    volumes: usize,
    store: Store,
    parity: Arc<Parity>,
    events: mpsc::Receiver<StoreEvent>,
}

impl Node {
    async fn start(dir: TempDir, volumes: usize, config: Protected) -> Self {
        let (sender, events) = mpsc::channel(100);
        let (store, parity) = try_open(config, sender).await.expect("opens");
        let added = store.add_pool(spec(), StartOption::Regular).await;
        added.expect("loads");
        Self {
            dir,
            volumes,
            store,
            parity,
            events,
        }
    }

    async fn writer(&self, id: i64, gs: u64) -> ReplicaWriter {
        writer(&self.store, id, gs).await
    }
}

/// A node with parity of `shape` over `volumes` directories.
async fn start(volumes: usize, shape: ParityShape) -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = protected(dir.path(), volumes, shape);
    Node::start(dir, volumes, config).await
}

/// The same under rules for all of its disks.
async fn start_faulty(volumes: usize, shape: ParityShape) -> (Node, Arc<Faults>) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let mut config = protected(dir.path(), volumes, shape);
    config.faults = Some((dir.path().to_owned(), Arc::clone(&faults)));
    (Node::start(dir, volumes, config).await, faults)
}

/// A new process on the same directories.
async fn again(node: Node, shape: ParityShape, clean: bool) -> Node {
    if clean {
        node.store.shutdown().await;
    } else {
        node.store.crash();
    }
    let config = protected(node.dir.path(), node.volumes, shape);
    Node::start(node.dir, node.volumes, config).await
}

fn packet_of(data: &[u8], offset: usize) -> PacketData {
    let mut sums = Vec::new();
    crc32c().compute(data, &mut sums);
    let data = Bytes::copy_from_slice(data);
    PacketData::new(crc32c(), offset as u64, data.into(), Bytes::from(sums)).expect("agrees")
}

async fn put(node: &Node, id: i64, len: usize) {
    let mut writer = node.writer(id, 1001).await;
    let packet = packet_of(&content(id, len), 0);
    writer.write(vec![packet]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
}

/// Checks that a reader gets the content of the block with right checksums.
async fn check(node: &Node, id: i64, len: usize) {
    let reader = node
        .store
        .open_reader(&block(id, 0, 0))
        .await
        .expect("opens");
    assert_eq!(reader.visible_len(), len as u64, "block {id}");
    // In pieces that begin and end anywhere.
    let mut got = Vec::new();
    while got.len() < len {
        let n = (len - got.len()).min(100_003);
        let buf = AlignedBuf::unpooled(n);
        let read = reader
            .read_data(buf, got.len() as u64, n)
            .await
            .expect("reads");
        got.extend_from_slice(read.as_slice());
    }
    assert!(got == content(id, len), "block {id}");
    let sums = reader
        .read_sums(0, len.div_ceil(512) as u64)
        .await
        .expect("reads");
    reader
        .checksum()
        .verify(&got, &sums)
        .expect("data and checksums fit");
}

async fn round(node: &Node) {
    node.parity.round().await;
}

fn status(node: &Node) -> ParityStatus {
    node.parity.status()
}

/// Files of groups on all volumes.
fn files(node: &Node) -> Vec<(usize, GroupFile)> {
    let mut files = Vec::new();
    for volume in 0..node.volumes {
        let dir = node
            .dir
            .path()
            .join(format!("data{volume}"))
            .join(PARITY_DIR);
        let Ok(entries) = std::fs::read_dir(dir) else {
            continue;
        };
        for entry in entries {
            let name = entry.expect("reads").file_name();
            let name = name.to_str().expect("text");
            match GroupFile::parse(name) {
                Some(file) => files.push((volume, file)),
                None => assert!(name == "status.json", "{name}"),
            }
        }
    }
    files.sort_unstable();
    files
}

/// What lies on disks is what the groups need: M+1 records and M parity files each, nothing else.
fn check_files(node: &Node, shape: ParityShape) {
    let (files, groups) = (files(node), status(node).groups);
    let count = |of: fn(&GroupFile) -> bool| files.iter().filter(|(_, f)| of(f)).count() as u64;
    let parity = shape.parity() as u64;
    assert_eq!(
        count(|f| matches!(f, GroupFile::Record(_))),
        groups * (parity + 1),
        "{files:?}"
    );
    assert_eq!(
        count(|f| matches!(f, GroupFile::Parity(..))),
        groups * parity,
        "{files:?}"
    );
}

/// The data file of a finalized replica.
fn data_file(node: &Node, id: i64) -> PathBuf {
    let storage = node.store.replica(&pool(), id).expect("there").storage;
    let volumes = node.store.state().volumes();
    let volume = volumes
        .iter()
        .find(|v| v.info.id == storage.id)
        .expect("there");
    let slice = volume.slice(&pool()).expect("there");
    slice.paths.finalized_dir(id).join(format!("blk_{id}"))
}

/// Inverts a bit of a file, behind the store's back.
fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("reads");
    bytes[at] ^= 1;
    std::fs::write(path, bytes).expect("writes");
}

/// The number of the directory that a replica lies in.
fn volume_of(node: &Node, id: i64) -> usize {
    let storage = node.store.replica(&pool(), id).expect("there").storage;
    let volumes = node.store.state().volumes();
    let volume = volumes
        .iter()
        .find(|v| v.info.id == storage.id)
        .expect("there");
    let name = volume
        .root
        .file_name()
        .and_then(|n| n.to_str())
        .expect("named");
    name.trim_start_matches("data").parse().expect("numbered")
}

/// The disk of a directory dies.
async fn kill_disk(node: &Node, number: usize) {
    let root = node.dir.path().join(format!("data{number}"));
    let volumes = node.store.state().volumes();
    let volume = volumes.iter().find(|v| v.root == root).expect("there");
    node.store.fail_volume(volume).await;
}

/// Every event that comes within a moment.
async fn events(node: &mut Node) -> Vec<StoreEvent> {
    let mut events = Vec::new();
    let quiet = Duration::from_millis(300);
    while let Ok(Some(event)) = tokio::time::timeout(quiet, node.events.recv()).await {
        events.push(event);
    }
    events
}

/// Ids that are reported, sorted.
fn reported(node: &Node) -> Vec<i64> {
    let report = node.store.block_report(&pool());
    let mut ids: Vec<i64> = report
        .iter()
        .flat_map(|(_, replicas)| replicas)
        .inspect(|r| assert_eq!(r.state, ReplicaState::Finalized))
        .map(|r| r.block.id)
        .collect();
    ids.sort_unstable();
    ids
}
