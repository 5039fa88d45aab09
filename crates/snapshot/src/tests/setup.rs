//! A node's directory for tests, and what is done with it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::TryStreamExt as _;
use hayloft_store::offline::{
    HeldVolume, PoolVersion, ReplicaOnDisk, VolumeVersion, data_name, finalized_on, meta_name,
    volume_on_disk,
};
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::{Block, PoolId, StorageType};
use opendal::Operator;
use opendal::services::Memory;
use tempfile::TempDir;

use crate::{
    CreateOptions, CreateReport, PruneOptions, Rate, RestoreOptions, RestoreReport, RestoreVolume,
    SnapshotError, SnapshotProgress, Target, VerifyOptions, VerifyReport, create, nodes_on,
    restore, verify,
};

/// A store in memory.
pub fn memory() -> Target {
    Target::of(operator())
}

pub fn operator() -> Operator {
    crate::target::choose_tls();
    Operator::new(Memory::default()).expect("memory").finish()
}

/// A directory in memory, if there is such: these tests wait for the device very often.
fn scratch(name: &str) -> TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let made = match memory.is_dir() {
        true => TempDir::with_prefix_in(name, memory),
        false => TempDir::with_prefix(name),
    };
    made.expect("temporary directory")
}

/// A store in a directory, which goes with what is given beside it.
pub fn directory_of(name: &str) -> (Target, TempDir) {
    let dir = scratch(name);
    let target = Target::open(&format!("file://{}", dir.path().display()));
    (target.expect("a directory"), dir)
}

/// All objects.
pub async fn all_of(target: &Target) -> Vec<String> {
    let lister = target.operator().lister_with("/").recursive(true).await;
    let entries: Vec<_> = lister.expect("lists").try_collect().await.expect("lists");
    let files = entries.iter().filter(|entry| entry.metadata().is_file());
    let mut paths: Vec<String> = files.map(|entry| entry.path().to_owned()).collect();
    paths.sort();
    paths
}

pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_millis()).expect("fits")
}

pub fn options() -> CreateOptions {
    CreateOptions {
        host: "host".to_owned(),
        rate: Rate::new(0),
        at_once: 4,
        now_ms: now_ms(),
    }
}

pub fn prune_options(keep: usize) -> PruneOptions {
    PruneOptions {
        node: None,
        keep,
        keep_within: None,
        remove: false,
        now_ms: now_ms(),
    }
}

pub fn restore_options(new_identity: bool) -> RestoreOptions {
    RestoreOptions {
        node: None,
        snapshot: None,
        new_identity,
        rate: Rate::new(0),
        at_once: 4,
    }
}

pub async fn restored(
    target: &Target,
    node: &Node,
    new_identity: bool,
) -> Result<RestoreReport, SnapshotError> {
    let (options, progress) = (restore_options(new_identity), SnapshotProgress::default());
    restore(target, &node.volumes(), &options, &progress).await
}

pub async fn verify_one(
    target: &Target,
    snapshot: Option<String>,
    quick: bool,
) -> Result<VerifyReport, SnapshotError> {
    let options = VerifyOptions {
        node: None,
        snapshot,
        quick,
        rate: Rate::new(0),
        at_once: 4,
    };
    verify(target, &options, &SnapshotProgress::default()).await
}

/// A snapshot is whole, by its lengths and by its bytes.
pub async fn verified_one(target: &Target, snapshot: Option<String>) {
    for quick in [true, false] {
        let report = verify_one(target, snapshot.clone(), quick).await;
        let report = report.expect("verified");
        assert_eq!(report.broken, 0, "{:?}", report.problems);
    }
}

pub async fn verified(target: &Target) {
    verified_one(target, None).await;
}

/// A node of one volume.
pub struct Node {
    dir: TempDir,
    pub uuid: String,
    pool: PoolVersion,
}

impl Node {
    /// A directory that no node has used.
    pub fn empty() -> Self {
        let pool = PoolVersion {
            namespace_id: 1,
            ctime: 2,
            pool: PoolId::new("BP-1-h-1").expect("valid"),
        };
        Self {
            dir: scratch("node"),
            uuid: String::new(),
            pool,
        }
    }

    /// A node without replicas.
    pub fn new(uuid: &str, cluster: &str) -> Self {
        let node = Self {
            uuid: uuid.to_owned(),
            ..Self::empty()
        };
        let held = node.held();
        held.prepare_pool(&node.pool).expect("writes");
        held.format(&VolumeVersion {
            storage_id: format!("DS-{uuid}"),
            cluster_id: cluster.to_owned(),
            ctime: 0,
            datanode_uuid: uuid.to_owned(),
            stubs: false,
        })
        .expect("writes");
        node
    }

    fn held(&self) -> HeldVolume {
        let held = HeldVolume::hold(&self.root()).expect("no error");
        held.expect("no other has it")
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn volumes(&self) -> Vec<RestoreVolume> {
        vec![RestoreVolume {
            root: self.root(),
            storage_type: StorageType::Disk,
        }]
    }

    /// Its directory as configurations name it.
    pub fn typed(&self) -> [(PathBuf, StorageType); 1] {
        [(self.root(), StorageType::Disk)]
    }

    pub fn version(&self) -> VolumeVersion {
        let volume = volume_on_disk(&self.root()).expect("reads");
        volume.expect("a volume").version
    }

    /// Adds a replica whose bytes depend on its id, with checksums of one of three kinds.
    pub fn put(&self, id: i64, stamp: u64, len: usize) {
        let seed = u64::try_from(id).expect("positive") + stamp;
        let data: Vec<u8> = (seed..)
            .map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[0])
            .take(len)
            .collect();
        let (kind, chunk) = match id % 3 {
            0 => (ChecksumKind::Crc32c, 512),
            1 => (ChecksumKind::Crc32c, 100),
            _ => (ChecksumKind::Crc32, 512),
        };
        let checksum = DataChecksum::new(kind, chunk).expect("valid");
        let mut meta = checksum.encode_meta_header().to_vec();
        checksum.compute(&data, &mut meta);
        let block = Block::new(id, stamp, len as u64);
        let held = self.held();
        let pool = &self.pool.pool;
        let scratch = held.scratch(pool, block).expect("makes");
        std::fs::write(scratch.join(data_name(id)), data).expect("writes");
        std::fs::write(scratch.join(meta_name(id, stamp)), meta).expect("writes");
        held.settle(pool, block, &scratch, id == 3)
            .expect("settles");
    }

    /// So many replicas, one of them empty; gives all.
    pub fn fill(&self, count: usize) -> Replicas {
        for at in 0..count {
            self.put(i64::try_from(at).expect("fits"), 1001, at * 700);
        }
        self.replicas()
    }

    fn home(&self, id: i64) -> PathBuf {
        ReplicaOnDisk::home(&self.root(), &self.pool.pool, Block::new(id, 0, 0))
    }

    pub fn data(&self, id: i64) -> PathBuf {
        self.home(id).join(data_name(id))
    }

    pub fn meta(&self, id: i64, stamp: u64) -> PathBuf {
        self.home(id).join(meta_name(id, stamp))
    }

    pub fn remove(&self, id: i64, stamp: u64) {
        std::fs::remove_file(self.data(id)).expect("removes");
        std::fs::remove_file(self.meta(id, stamp)).expect("removes");
    }

    pub fn flip_a_bit(&self, id: i64, stamp: u64) {
        assert!(self.meta(id, stamp).exists());
        let mut data = std::fs::read(self.data(id)).expect("reads");
        data[5] ^= 1;
        std::fs::write(self.data(id), data).expect("writes");
    }

    /// Bytes of the files of each replica, and whether it is pinned.
    pub fn replicas(&self) -> Replicas {
        let found = finalized_on(&self.root(), &self.pool.pool)
            .expect("reads")
            .whole;
        let of = |replica: ReplicaOnDisk| {
            let read = |path| std::fs::read(path).expect("reads");
            let bytes = (read(replica.data()), read(replica.meta()), replica.pinned);
            (replica.block.id, bytes)
        };
        found.into_iter().map(of).collect()
    }

    pub async fn create(&self, target: &Target) -> Result<CreateReport, SnapshotError> {
        let source = nodes_on(&self.typed()).expect("a node").remove(0);
        create(&source, target, &options(), &SnapshotProgress::default()).await
    }
}

pub type Replicas = BTreeMap<i64, (Vec<u8>, Vec<u8>, bool)>;
