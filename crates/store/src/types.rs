//! The values that go in and out of the store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use hayloft_io::IoClass;
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, ReplicaState, StorageType};

/// Identity of a volume in reports: a `DS-<uuid>` and its type. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StorageInfo {
    /// `DS-<uuid>`, as in the volume's VERSION file.
    pub id: Arc<str>,
    /// Type given in the configuration.
    pub storage_type: StorageType,
}

/// Identity of this node's storage, as a registration carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStorageInfo {
    /// Cluster id; empty until the first pool was added.
    pub cluster_id: String,
    /// Namespace id; 0 in a datanode's own storage, the pool's in a pool.
    pub namespace_id: u32,
    /// Creation time of the layout; 0 in a datanode's own storage.
    pub ctime: u64,
    /// Always -57.
    pub layout_version: i32,
}

/// A block pool to serve, as a NameNode introduced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// `BP-...`.
    pub pool: PoolId,
    /// The cluster of the NameNode.
    pub cluster_id: String,
    /// The namespace of the NameNode.
    pub namespace_id: u32,
    /// Creation time of the NameNode's storage.
    pub ctime: u64,
}

/// How the node was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StartOption {
    /// `-regular`.
    #[default]
    Regular,
    /// `-rollback`: go back to `previous`.
    Rollback,
    /// `-rollingupgrade rollback`: take deleted blocks back out of `trash`.
    RollingUpgradeRollback,
}

/// Where and how a new replica should be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Type asked for: without such a volume with room the write fails, as Apache's does.
    pub storage_type: StorageType,
    /// Volume asked for; a preference only. Empty counts as none.
    pub storage_id: Option<String>,
    /// Length the replica is expected to reach; space for it is reserved while it is written.
    pub expected_len: Option<u64>,
    /// The replica is pinned: balancer and mover leave it here.
    pub pinned: bool,
    /// Of its data, when that is known: a meta file without room for its header is found at once.
    pub checksum: Option<DataChecksum>,
    /// A later attempt of the client at the same pipeline, with this generation stamp: the
    /// operation's `latestGenerationStamp` when it is not 0. A replica that the earlier one left is
    /// replaced. Only for `create_rbw`.
    pub new_gs: Option<u64>,
    /// The copy is for a pipeline (stages TRANSFER_RBW and TRANSFER_FINALIZED): it replaces a
    /// replica with a lower generation stamp in any state. Only for `create_temporary`.
    pub transfer: bool,
    /// It may be written to memory first, and go to a disk later (the operation's
    /// `allowLazyPersist`), when `expected_len` is whole pages and a `RAM_DISK` volume and the
    /// budget of locked memory have room for it. Only for `create_rbw`.
    pub lazy_persist: bool,
    /// On whose behalf the files are written: a copy that no client waits for must not compete with
    /// clients.
    pub class: IoClass,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            storage_type: StorageType::Disk,
            storage_id: None,
            expected_len: None,
            pinned: false,
            checksum: None,
            new_gs: None,
            transfer: false,
            lazy_persist: false,
            class: IoClass::ClientWrite,
        }
    }
}

/// One packet of a write, whose parts agree: it has the checksums that its data needs, and ends
/// where a file can end. Only [`PacketData::new`] makes one, so later code need not look again.
/// Its maker also compares the checksums with the data, before a writer accepts it.
#[derive(Clone, Debug)]
pub struct PacketData {
    checksum: DataChecksum,
    offset: u64,
    data: Pieces,
    sums: Bytes,
}

/// Why bytes are no packet of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketDataError {
    /// Too few or too many checksums.
    #[error(
        "packet at {offset} with {data_len} bytes has {sums_len} bytes of checksums instead of \
            {expected}"
    )]
    Sums {
        /// Where the packet begins.
        offset: u64,
        /// Its data.
        data_len: usize,
        /// Its checksums.
        sums_len: usize,
        /// What they should be.
        expected: usize,
    },
    /// Beyond what a file can be.
    #[error("packet at {offset} goes beyond the greatest file length")]
    TooLong {
        /// Where the packet begins.
        offset: u64,
    },
}

impl PacketData {
    /// A packet of `data` at `offset` in the block. `sums` has one big-endian checksum a chunk of
    /// `data`. The chunk grid starts at the block's offset 0, so the first chunk may be the rest
    /// of one. Of a packet without data the checksums are dropped.
    ///
    /// # Errors
    /// The parts do not agree.
    pub fn new(
        checksum: DataChecksum,
        offset: u64,
        data: Pieces,
        mut sums: Bytes,
    ) -> Result<Self, PacketDataError> {
        let data_len = data.len();
        let end = offset.checked_add(data_len as u64);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(PacketDataError::TooLong { offset });
        }
        if data_len == 0 {
            sums.clear();
        }
        let chunk = u64::from(checksum.bytes_per_checksum());
        let in_chunk = usize::try_from(offset % chunk).expect("less than a chunk");
        let expected = match data_len {
            0 => 0,
            len => checksum.sums_len(in_chunk.saturating_add(len)),
        };
        let sums_len = sums.len();
        if sums_len != expected {
            return Err(PacketDataError::Sums {
                offset,
                data_len,
                sums_len,
                expected,
            });
        }
        Ok(Self {
            checksum,
            offset,
            data,
            sums,
        })
    }

    /// What its checksums are of.
    #[must_use]
    pub fn checksum(&self) -> DataChecksum {
        self.checksum
    }

    /// Position of the first byte in the block.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Position of the byte after the data; at most `i64::MAX`.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    /// The data.
    #[must_use]
    pub fn data(&self) -> &Pieces {
        &self.data
    }

    /// One checksum a chunk; empty with NULL checksums.
    #[must_use]
    pub fn sums(&self) -> &Bytes {
        &self.sums
    }
}

/// Bytes in one or more pieces, in order: data that was received into segments may straddle two of
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    first: Bytes,
    more: Vec<Bytes>,
}

impl Pieces {
    /// Bytes in all pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().map(Bytes::len).sum()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().all(Bytes::is_empty)
    }

    /// The pieces.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Without the first `n` bytes; nothing when there are not more. No copy.
    #[must_use]
    pub fn without(&self, n: usize) -> Self {
        let mut skip = n;
        let rest = self.iter().filter_map(|piece| {
            let now = skip.min(piece.len());
            skip -= now;
            (now < piece.len()).then(|| piece.slice(now..))
        });
        rest.collect()
    }

    /// The first `n` bytes, or all when there are fewer. No copy.
    #[must_use]
    pub fn first(&self, n: usize) -> Self {
        let mut left = n;
        let head = self.iter().filter_map(|piece| {
            let now = left.min(piece.len());
            left -= now;
            (now > 0).then(|| piece.slice(..now))
        });
        head.collect()
    }
}

impl FromIterator<Bytes> for Pieces {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut pieces = pieces.into_iter();
        Self {
            first: pieces.next().unwrap_or_default(),
            more: pieces.collect(),
        }
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        Self {
            first: bytes,
            more: Vec::new(),
        }
    }
}

impl From<Vec<u8>> for Pieces {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<Vec<Bytes>> for Pieces {
    fn from(pieces: Vec<Bytes>) -> Self {
        pieces.into_iter().collect()
    }
}

/// What is known of a replica, without touching the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRef {
    /// Id, generation stamp and length; for a replica being written the bytes received.
    pub block: ExtendedBlock,
    /// State.
    pub state: ReplicaState,
    /// Bytes that readers may see: all of a finalized replica, the acknowledged ones of a replica
    /// being written. `None` of one that cannot be read at all (TEMPORARY, RUR of that, and RWR
    /// that may have lost bytes).
    pub visible_len: Option<u64>,
    /// Bytes in the data file.
    pub bytes_on_disk: u64,
    /// The volume.
    pub storage: StorageInfo,
    /// Balancer and mover must leave it here.
    pub pinned: bool,
}

/// A replica that was taken over from another store of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// The replica as it is here now.
    pub replica: ReplicaRef,
    /// Its files have a second name on their file system: no byte was copied.
    pub linked: bool,
}

/// Answer of `initReplicaRecovery`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryInfo {
    /// The replica, its length being the bytes that were received (of RBW) or are on the disk.
    pub block: Block,
    /// The state before recovery began.
    pub original_state: ReplicaState,
}

/// One replica in a full block report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaReport {
    /// Id, generation stamp and bytes on disk.
    pub block: Block,
    /// State; TEMPORARY replicas are never reported.
    pub state: ReplicaState,
}

/// One storage in a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageReport {
    /// Id and type.
    pub storage: StorageInfo,
    /// The volume has failed (such volumes are left out, as Apache does; always false).
    pub failed: bool,
    /// Size of the file system less what is reserved, bytes.
    pub capacity: u64,
    /// Bytes used by all pools: data and meta files.
    pub dfs_used: u64,
    /// Bytes left for blocks, what is reserved for replicas being written taken off.
    pub remaining: u64,
    /// Bytes used by this pool.
    pub block_pool_used: u64,
    /// Bytes used by others beyond the reserved space.
    pub non_dfs_used: u64,
    /// Mount point, when several volumes share one; else empty.
    pub mount: String,
}

/// Failed volumes, as a heartbeat reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureSummary {
    /// Directories that failed, in the order of configuration.
    pub failed_locations: Vec<PathBuf>,
    /// Why each of them failed, in words, in the same order.
    pub reasons: Vec<String>,
    /// When the last one failed, milliseconds since 1970; 0 when none did.
    pub last_failure_ms: u64,
    /// Estimate of the capacity lost with them, bytes.
    pub lost_capacity: u64,
}

/// A configured directory that is not in use.
#[derive(Clone, Debug)]
pub struct FailedVolume {
    /// Directory.
    pub path: PathBuf,
    /// Why, in words.
    pub reason: String,
    /// When.
    pub at: SystemTime,
    /// Capacity when last seen, bytes.
    pub capacity: u64,
}

/// Events from the store for the node: the only channel that goes upward.
#[derive(Clone, Debug)]
pub enum StoreEvent {
    /// The files of an invalidated replica are gone.
    Deleted {
        /// The block, with the generation stamp and length that the replica had.
        block: ExtendedBlock,
        /// Where it was.
        storage: StorageInfo,
    },
    /// Data and checksums differ, or files are missing.
    Corrupt {
        /// The block.
        block: ExtendedBlock,
        /// Where.
        storage: StorageInfo,
    },
    /// The directory scanner found a replica that was not known.
    Found {
        /// The block.
        block: ExtendedBlock,
        /// Where.
        storage: StorageInfo,
    },
    /// A replica has right files again, whatever was told of it before: it was decoded.
    Mended {
        /// The block.
        block: ExtendedBlock,
        /// Where it is now.
        storage: StorageInfo,
    },
    /// A replica left the volume without having been invalidated (files vanished, volume removed).
    Lost {
        /// The block.
        block: ExtendedBlock,
        /// Where it was.
        storage: StorageInfo,
    },
    /// A volume failed; its replicas are no longer served.
    VolumeFailed {
        /// Directory.
        path: PathBuf,
        /// Id and type.
        storage: StorageInfo,
        /// Why.
        reason: String,
        /// More volumes have failed than are tolerated: the node has to stop.
        fatal: bool,
    },
}
