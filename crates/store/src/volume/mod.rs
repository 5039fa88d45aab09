//! Volumes: configured directories, their space, and the part of each pool that lies on them.
//!
//! - `archive_share`: a DISK and an ARCHIVE volume on one mount (HDFS-15548, HDFS-15683)
//! - `volume_choosing_policy`: which volume a new replica goes to
//! - `error_places`: errors of the disk under a volume: in how many different places it had one
//!   lately
//! - `probe_volume`: whether a volume can still be used
//! - `invalidations`: how many deletes a volume keeps waiting
//! - `open`: opening a volume: its directory, its engine, its lock, its VERSION file
//! - `remembered_storages`: what a node remembers of its storages
//! - `reservation`: room on a volume that is given back with what holds it
//! - `space_told`: space of a volume as the NameNode is told: pure arithmetic
//! - `stop_mark`: what the next start knows of the last stop: a small file in each volume
//! - `unsynced`: commit rounds: what replicas' files hold becomes durable within seconds, unasked
//! - `virtual_node_share`: the space of a file system

pub mod archive_share;
pub mod error_places;
pub mod invalidations;
pub mod open;
pub mod probe_volume;
pub mod remembered_storages;
pub mod reservation;
pub mod space_told;
pub mod stop_mark;
pub mod unsynced;
pub mod virtual_node_share;
pub mod volume_choosing_policy;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use archive_share::SharedMount;
use error_places::VolumeErrors;
use hayloft_io::decorators::IoMetrics;
use hayloft_io::{DataFiles, Engine, IoClass, Meta, RecordLock, Space, locks};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::PoolId;
use invalidations::Invalidations;
use space_told::Numbers;
use stop_mark::Doubt;
use tokio_util::sync::CancellationToken;
use unsynced::CommitRounds;
use virtual_node_share::FileSystemSpace;

use crate::config::{ReservedSpace, VolumeConfig};
use crate::layout::names::PoolPaths;
use crate::layout::version::VolumeVersion;
use crate::types::StorageInfo;

/// So long one operation of a disk runs before what can wait, or be done elsewhere, leaves it
/// alone. A volume that fails for that does so much later.
pub(crate) const HANGS: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 10_000 });

/// One configured directory.
#[derive(Debug)]
pub struct Volume {
    /// Number of the volume in this process; never used again for another.
    pub index: u16,
    /// The directory.
    pub root: PathBuf,
    /// `DS-<uuid>` and type.
    pub info: StorageInfo,
    /// How its files are read and written.
    pub engine: Arc<dyn Engine>,
    /// What its engine did, as far as it is sampled.
    pub(crate) metrics: Arc<IoMetrics>,
    /// New replicas go elsewhere while there is room: it is one of the slowest.
    pub(crate) avoid: AtomicBool,
    /// Space to leave to others.
    pub(crate) reserved: ReservedSpace,
    /// Mount point.
    pub(crate) mount: PathBuf,
    /// Its share of the mount, where that is set.
    pub(crate) capacity_ratio: Option<f64>,
    /// The mount, when it may share it with a volume of the other type.
    pub(crate) shared_mount: Option<Arc<SharedMount>>,
    /// The record lock; taken out when the volume leaves.
    lock: Mutex<Option<RecordLock>>,
    /// Parts of the pools on this volume.
    pub(crate) slices: RwLock<Vec<Arc<BlockPoolSlice>>>,
    /// The file system that it lies on.
    pub(crate) file_system: Arc<FileSystemSpace>,
    /// Used and allocated ahead by HDFS when the space of the file system was last read.
    used_then: ByteCount,
    /// Bytes reserved for replicas being written.
    reserved_for_replicas: ByteCount,
    /// Those of them that the file system has allocated already.
    allocated: ByteCount,
    failed: AtomicBool,
    /// Makes what is written to it durable.
    pub(crate) commits: CommitRounds,
    /// Which of its replicas had to be looked at when it was opened.
    pub(crate) doubt: Option<Doubt>,
    /// Told when it fails or leaves: background work on it ends, even work that waits for the disk.
    pub gone: CancellationToken,
    /// Replicas of it that NameNodes have ordered to delete.
    pub(crate) invalidations: Invalidations,
    /// Held by a running check; the last good one.
    pub(crate) checked: tokio::sync::Mutex<Option<GoodCheck>>,
    /// A task waits for a check, or makes one.
    pub(crate) check_waits: AtomicBool,
    /// Errors of its disk.
    pub(crate) errors: VolumeErrors,
    /// It has a block scanner.
    pub(crate) is_scanned: AtomicBool,
}

/// A check that found a volume to be good.
#[derive(Clone, Copy, Debug)]
pub struct GoodCheck {
    /// It tells nothing of what came later.
    pub began: Instant,
    /// When it was over.
    pub ended: Instant,
}

/// Bytes that a part of a pool holds beside its replicas, as far as is known.
#[derive(Debug, Default)]
pub struct HeldBytes {
    /// In `trash`.
    pub trash: ByteCount,
    /// In `previous` alone: it shares the other files with `current`.
    pub previous: ByteCount,
}

/// The part of one pool on one volume.
#[derive(Debug)]
pub struct BlockPoolSlice {
    /// The volume.
    pub volume: Arc<Volume>,
    /// The pool.
    pub pool: PoolId,
    /// Where things are.
    pub paths: PoolPaths,
    /// Bytes of data and meta files.
    pub(crate) used: ByteCount,
    /// Bytes that upgrades hold back beside them.
    pub(crate) held: HeldBytes,
    /// Number for names of deleted files.
    pub(crate) delete_sequence: AtomicU64,
}

/// A number that is added to and taken from at once by many, and never goes below 0.
#[derive(Debug, Default)]
pub struct ByteCount(AtomicU64);

impl ByteCount {
    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Takes away; stops at 0.
    pub fn sub(&self, n: u64) {
        // The update never gives up, so there is no error to look at.
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |v| {
                Some(v.saturating_sub(n))
            });
    }

    /// Goes from `before` to `now`.
    pub fn change(&self, before: u64, now: u64) {
        if now >= before {
            self.add(now - before);
        } else {
            self.sub(before - now);
        }
    }
}

/// A directory that is locked and whose VERSION, if it has one, was read.
#[derive(Debug)]
pub struct OpenedVolume {
    /// What the configuration says.
    pub config: VolumeConfig,
    /// Engine.
    pub engine: Arc<dyn Engine>,
    /// What the engine counts in.
    pub metrics: Arc<IoMetrics>,
    /// Record lock.
    pub lock: RecordLock,
    /// VERSION, unless the directory is new.
    pub version: Option<VolumeVersion>,
    /// See [`Volume::doubt`].
    pub doubt: Option<Doubt>,
}

impl Volume {
    /// A healthy volume without pools. Its number is given when it is put into use.
    #[must_use]
    pub(crate) fn new(
        opened: OpenedVolume,
        info: StorageInfo,
        mount: PathBuf,
        file_system: Arc<FileSystemSpace>,
    ) -> Self {
        Self {
            index: 0,
            root: opened.config.path,
            info,
            engine: opened.engine,
            metrics: opened.metrics,
            avoid: AtomicBool::new(false),
            reserved: opened.config.reserved,
            mount,
            capacity_ratio: opened.config.capacity_ratio,
            shared_mount: None,
            lock: Mutex::new(Some(opened.lock)),
            slices: RwLock::default(),
            file_system,
            used_then: ByteCount::default(),
            reserved_for_replicas: ByteCount::default(),
            allocated: ByteCount::default(),
            failed: AtomicBool::new(false),
            commits: CommitRounds::default(),
            doubt: opened.doubt,
            gone: CancellationToken::new(),
            invalidations: Invalidations::new(),
            checked: tokio::sync::Mutex::default(),
            check_waits: AtomicBool::new(false),
            errors: VolumeErrors::default(),
            is_scanned: AtomicBool::new(false),
        }
    }

    /// Whether a part of a pool is still in use here.
    #[must_use]
    pub(crate) fn slices_have(&self, slice: &Arc<BlockPoolSlice>) -> bool {
        let slices = locks::read(&self.slices);
        slices.iter().any(|known| Arc::ptr_eq(known, slice))
    }

    /// Operations on names, in `class`.
    #[must_use]
    pub fn meta(&self, class: IoClass) -> Meta {
        self.engine.meta(class)
    }

    /// What opens its data files for blocking code.
    #[must_use]
    pub(crate) fn data_files(&self) -> DataFiles {
        self.meta(IoClass::ClientRead).data_files()
    }

    /// Whether it has failed or left: nothing on it is served.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Marks it as failed or gone; true for the first to do so.
    pub(crate) fn set_failed(&self) -> bool {
        let first = !self.failed.swap(true, Ordering::AcqRel);
        self.gone.cancel();
        first
    }

    /// Gives the record lock up, though writers may still hold descriptors: the directory is out of
    /// our hands. Blocking: closing the file may write what it has.
    pub(crate) fn unlock(&self) {
        let mut lock = locks::lock(&self.lock);
        let taken = lock.take();
        drop(lock);
        drop(taken);
    }

    /// Whether its disk gives no answer just now: see [`HANGS`].
    #[must_use]
    pub(crate) fn hangs(&self) -> bool {
        let disk = self.engine.disk();
        let other = disk.longest_other(&self.root).map(|(time, _)| time);
        disk.longest_transfer().max(other) >= Some(HANGS)
    }

    /// Bytes of data and meta files of all pools.
    #[must_use]
    pub(crate) fn used(&self) -> u64 {
        let slices = locks::read(&self.slices);
        slices
            .iter()
            .map(|s| s.used.get())
            .fold(0, u64::saturating_add)
    }

    /// Takes note of the space of the file system, read just now.
    pub fn set_space(&self, space: Space) {
        self.file_system.set_space(space);
    }

    /// Takes note that what is used now was on the disk already when its space was last read.
    pub(crate) fn settle_used(&self) {
        for volume in self.partner().iter().map(AsRef::as_ref).chain([self]) {
            volume.used_then.set(volume.taken_then());
        }
    }

    /// The numbers of its reports, as of now.
    #[must_use]
    pub(crate) fn numbers(&self) -> Numbers {
        self.file_system.numbers_of(self)
    }

    /// Bytes that may be promised to replicas on it. With the
    /// [right to promise](FileSystemSpace::promise) held they stay so until it is let go.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.file_system.room(self)
    }

    /// The volume of the other type on its mount, if it shares the mount with one.
    #[must_use]
    pub(crate) fn partner(&self) -> Option<Arc<Volume>> {
        self.shared_mount.as_ref()?.partner(self)
    }

    /// What is noted as taken when space is read: also by the volume of the other type, unless the
    /// file system knows that one too.
    fn taken_then(&self) -> u64 {
        let partner = self.partner().filter(|_| !self.file_system.is_shared());
        let beside = partner.map_or(0, |partner| partner.taken());
        self.taken().saturating_add(beside)
    }

    /// Bytes that the file system counts as taken by HDFS.
    fn taken(&self) -> u64 {
        self.used().saturating_add(self.allocated.get())
    }

    /// Takes note that the file system has allocated bytes that were reserved for replicas.
    pub(crate) fn note_allocated(&self, bytes: u64) {
        self.allocated.add(bytes);
    }

    /// Bytes that had been allocated ahead are used, or were given back.
    pub(crate) fn release_allocated(&self, bytes: u64) {
        self.allocated.sub(bytes);
    }

    /// Reserves `bytes` for a replica. The chooser does this under its lock, so that two writers
    /// do not get the same space.
    pub(crate) fn reserve_for_replica(&self, bytes: u64) {
        self.reserved_for_replicas.add(bytes);
    }

    /// Gives back what was reserved for a replica, or the part of it that was used.
    pub(crate) fn release_reserved(&self, bytes: u64) {
        self.reserved_for_replicas.sub(bytes);
    }

    /// The part of `pool` on it.
    #[must_use]
    pub fn slice(&self, pool: &PoolId) -> Option<Arc<BlockPoolSlice>> {
        let slices = locks::read(&self.slices);
        slices.iter().find(|s| s.pool == *pool).cloned()
    }

    /// Whether room that is freed on one is free for the other.
    #[must_use]
    pub fn has_room_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file_system, &other.file_system)
    }
}

impl BlockPoolSlice {
    /// The part of `pool` on `volume`, with nothing used.
    #[must_use]
    pub fn new(volume: Arc<Volume>, pool: PoolId) -> Self {
        let paths = PoolPaths::new(&volume.root, &pool);
        Self {
            volume,
            pool,
            paths,
            used: ByteCount::default(),
            held: HeldBytes::default(),
            delete_sequence: AtomicU64::new(0),
        }
    }

    /// A new directory for what is written until it is moved to its place: `what` and a number.
    #[must_use]
    pub fn scratch(&self, what: &str) -> PathBuf {
        let unique = self.delete_sequence.fetch_add(1, Ordering::Relaxed);
        self.paths.tmp().join(format!("{what}-{unique}"))
    }

    /// Files of so many bytes have come.
    pub fn note_added(&self, bytes: u64) {
        self.used.add(bytes);
    }
}

/// Bytes that a finalized replica takes: data and meta file. Without reading the meta file, its
/// checksums are taken to be of the usual chunks.
#[must_use]
pub fn footprint(len: u64, checksum: Option<DataChecksum>) -> u64 {
    const USUAL_CHUNK_BYTES: u64 = 512;
    const HEADER_BYTES: u64 = 7;
    let meta = match checksum {
        Some(checksum) => checksum.meta_len(len),
        None => HEADER_BYTES + len.div_ceil(USUAL_CHUNK_BYTES).saturating_mul(4),
    };
    len.saturating_add(meta)
}
