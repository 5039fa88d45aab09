//! What the store needs to be told. Plain values: reading configuration files is the node's work.

use std::path::PathBuf;
use std::time::Duration;

use hayloft_io::DiskSettings;
use hayloft_wire::ids::StorageType;

/// Space kept free on a volume for others than HDFS: bytes, or a share of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservedSpace {
    /// Bytes (`dfs.datanode.du.reserved`).
    pub bytes: u64,
    /// Per cent of the file system's size, 0 to 100 (`dfs.datanode.du.reserved.pct`).
    pub pct: u8,
    /// Whether the smaller of the two counts (`ReservedSpaceCalculatorAggressive`), not the larger.
    pub smaller: bool,
}

impl ReservedSpace {
    /// The larger of `bytes` and `pct` per cent.
    #[must_use]
    pub fn larger(bytes: u64, pct: u8) -> Self {
        Self {
            bytes,
            pct,
            smaller: false,
        }
    }

    /// The smaller of `bytes` and `pct` per cent.
    #[must_use]
    pub fn smaller(bytes: u64, pct: u8) -> Self {
        Self {
            bytes,
            pct,
            smaller: true,
        }
    }
}

/// One entry of `dfs.datanode.data.dir`.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeConfig {
    /// The prefix of the entry; `Disk` without one.
    pub storage_type: StorageType,
    /// The directory; created when it does not exist.
    pub path: PathBuf,
    /// Name of the I/O engine (`hayloft.io.engine`); [`ENGINE_AUTO`](hayloft_io::ENGINE_AUTO): the
    /// one that the calibration of the volume proposes, without one `direct` where that works, else
    /// `posix`.
    pub engine: String,
    /// Space to leave to others.
    pub reserved: ReservedSpace,
    /// Share of its mount, 0.0 to 1.0, where DISK and ARCHIVE may share one
    /// (`dfs.datanode.same-disk-tiering.capacity-ratio.percentage`).
    pub capacity_ratio: Option<f64>,
    /// Where else than in the directory `hayloft calibrate` may have left what it measured: what
    /// virtual nodes share.
    pub calibrated_in: Option<PathBuf>,
}

impl VolumeConfig {
    /// A `DISK` volume at `path` on the `posix` engine with nothing reserved.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            storage_type: StorageType::Disk,
            path: path.into(),
            engine: "posix".to_owned(),
            reserved: ReservedSpace::default(),
            capacity_ratio: None,
            calibrated_in: None,
        }
    }
}

/// `dfs.datanode.fsdataset.volume.choosing.policy`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VolumeChoosing {
    /// One after the other, leaving out volumes that have no room for the block plus `additional`
    /// bytes.
    RoundRobin {
        /// Bytes that must stay free beyond the block.
        additional: u64,
    },
    /// Round robin among all while their free space is within `threshold`; otherwise the emptier
    /// ones with probability `fraction`.
    AvailableSpace {
        /// Bytes of difference up to which volumes count as balanced.
        threshold: u64,
        /// Share of new blocks that goes to the volumes with more free space, 0.0 to 1.0.
        fraction: f32,
        /// Bytes that must stay free beyond the block.
        additional: u64,
    },
}

/// The block scanner (reads replicas in the background and verifies their checksums).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanConfig {
    /// Every replica is read once in this time (`dfs.datanode.scan.period.hours`); zero switches
    /// the scanner off.
    pub period: Duration,
    /// Bytes a second on each volume (`dfs.block.scanner.volume.bytes.per.second`); 0 switches it
    /// off.
    pub bytes_per_second: u64,
}

/// When a disk with errors is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorsConfig {
    /// Files with an error within the window at which a volume fails, if that is tolerated; 0:
    /// never.
    pub limit: usize,
    /// How long an error counts. As long new replicas go elsewhere.
    pub window: Duration,
}

/// Replicas in locked memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Replicas that are read into memory at the same time on each volume
    /// (`dfs.datanode.fsdatasetcache.max.threads.per.volume`).
    pub threads_per_volume: usize,
    /// How long a replica that is to be uncached waits for readers that rely on it
    /// (`dfs.datanode.cache.revocation.timeout.ms`).
    pub revocation_timeout: Duration,
    /// How often it is looked whether they do still (`dfs.datanode.cache.revocation.polling.ms`).
    pub revocation_polling: Duration,
}

/// The directory scanner (compares directories with the replica map).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryScanConfig {
    /// Time between scans (`dfs.datanode.directoryscan.interval`); zero switches the scanner off.
    pub interval: Duration,
    /// Milliseconds of each second that a scan may run (`...throttle.limit.ms.per.sec`); 1000:
    /// unthrottled.
    pub run_ms_per_second: u32,
    /// Differences handled at a time.
    pub reconcile_batch: usize,
    /// Pause between batches.
    pub reconcile_pause: Duration,
}

/// Everything the store is told at start. `default()` holds Apache's defaults and no volume.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The volumes, in the order of configuration.
    pub volumes: Vec<VolumeConfig>,
    /// Permission bits enforced on the volume directories (`dfs.datanode.data.dir.perm`).
    pub perm: u32,
    /// How many volumes may fail before the store gives up; -1: go on while one lives. Without
    /// effect with protection.
    pub failed_volumes_tolerated: i32,
    /// Whether a DISK and an ARCHIVE volume on one mount share its capacity
    /// (`dfs.datanode.same-disk-tiering.enabled`): then the share of ARCHIVE, 0.0 to 1.0, where no
    /// volume has one of its own (`dfs.datanode.reserve-for-archive.default.percentage`).
    pub archive_share: Option<f64>,
    /// How a volume is chosen for a new replica.
    pub volume_choosing: VolumeChoosing,
    /// fsync data, meta and directory when a replica is finalized (`dfs.datanode.synconclose`).
    pub sync_on_close: bool,
    /// How long the replica cache of a clean stop is trusted.
    pub replica_cache_expiry: Duration,
    /// How long the `dfsUsed` cache of a clean stop is trusted.
    pub dfs_used_cache_expiry: Duration,
    /// Deletes that run at the same time on one volume.
    pub delete_lanes_per_volume: usize,
    /// How long a new writer waits for the previous one to let go.
    pub writer_stop_timeout: Duration,
    /// How often free space of the file systems is read.
    pub space_interval: Duration,
    /// Space is reserved on the device for the expected length of a new replica once it is larger
    /// than a megabyte.
    pub preallocate: bool,
    /// What the operator says about the disks under the volumes.
    pub disk: DiskSettings,
    /// What clients read goes through the page cache with engines that go around it too
    /// (`hayloft.io.read.cached`).
    pub cache_client_reads: bool,
    /// Bytes of memory for received data on its way to the disks, all replicas together.
    pub write_memory: usize,
    /// Bytes of memory that the page cache may use: that of the machine or its control group. An
    /// eighth of it may be dirty on each disk.
    pub page_cache: u64,
    /// Time between commit rounds, which make durable what was written.
    pub commit_interval: Duration,
    /// The duplicate that loses at start is deleted (`dfs.datanode.duplicate.replica.deletion`).
    pub delete_duplicates: bool,
    /// Files of a finalized replica stay open for so long after the last reader asked for them.
    pub kept_open: Duration,
    /// Minimum time between two checks of the same volume (`dfs.datanode.disk.check.min.gap`). More
    /// than a second counts as one: a check is a few small operations, and a dead disk should be
    /// noticed soon.
    pub check_min_gap: Duration,
    /// A volume that does not answer a check in this time has failed
    /// (`dfs.datanode.disk.check.timeout`).
    pub check_timeout: Duration,
    /// A volume is checked at least as often, also when nothing happens on it; zero: only after
    /// errors.
    pub check_period: Duration,
    /// What is made of disks that fail by halves.
    pub errors: ErrorsConfig,
    /// Replicas in locked memory.
    pub cache: CacheConfig,
    /// How long the lazy writer rests before it copies replicas from memory to disk again
    /// (`dfs.datanode.lazywriter.interval.sec`).
    pub lazy_writer_interval: Duration,
    /// Block scanner.
    pub scan: ScanConfig,
    /// Directory scanner.
    pub directory_scan: DirectoryScanConfig,
    /// Faults of the disk under a directory.
    #[cfg(any(test, feature = "faults"))]
    pub faults: Option<(PathBuf, std::sync::Arc<hayloft_io::decorators::Faults>)>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            volumes: Vec::new(),
            perm: 0o700,
            failed_volumes_tolerated: 0,
            archive_share: None,
            volume_choosing: VolumeChoosing::RoundRobin {
                additional: 1 << 30,
            },
            sync_on_close: false,
            replica_cache_expiry: Duration::from_secs(5 * 60),
            dfs_used_cache_expiry: Duration::from_secs(10 * 60),
            delete_lanes_per_volume: 4,
            writer_stop_timeout: Duration::from_secs(60),
            space_interval: Duration::from_secs(2),
            preallocate: true,
            disk: DiskSettings::default(),
            cache_client_reads: false,
            write_memory: 48 << 20,
            page_cache: 8 << 30,
            commit_interval: Duration::from_secs(5),
            delete_duplicates: true,
            kept_open: Duration::from_secs(30),
            check_min_gap: Duration::from_secs(15 * 60),
            check_timeout: Duration::from_secs(10 * 60),
            check_period: Duration::from_secs(15),
            errors: ErrorsConfig {
                limit: 50,
                window: Duration::from_secs(3600),
            },
            lazy_writer_interval: Duration::from_secs(60),
            cache: CacheConfig {
                threads_per_volume: 4,
                revocation_timeout: Duration::from_secs(900),
                revocation_polling: Duration::from_millis(500),
            },
            scan: ScanConfig {
                period: Duration::from_secs(504 * 3600),
                bytes_per_second: 1 << 20,
            },
            directory_scan: DirectoryScanConfig {
                interval: Duration::from_secs(21600),
                run_ms_per_second: 1000,
                reconcile_batch: 1000,
                reconcile_pause: Duration::from_secs(2),
            },
            #[cfg(any(test, feature = "faults"))]
            faults: None,
        }
    }
}

/// The rule: at least one healthy volume, and no more failures than `tolerated`; -1 allows any
/// number.
#[must_use]
pub fn tolerated(tolerated: i32, healthy: usize, failed: usize) -> bool {
    healthy > 0 && usize::try_from(tolerated).map_or(tolerated == -1, |t| failed <= t)
}
