//! Volumes: directories, space, choice, failure, scanners.

use std::time::Duration;

use super::keys;
use hayloft_io::Media;
use hayloft_parity::{ParityDisks, ParityShape};

use crate::choice::{Calculator, ChoosingPolicy, EngineName, LimitOrAuto};
use crate::data_dir::{CapacityRatio, DataDir};
use crate::value::{Mode, Unit};

/// Least `hayloft.memory.limit`, bytes: four write buffers.
pub const MEMORY_LIMIT_MIN: u64 = 8 << 20;

keys! {
    DATA_DIRS: Vec<DataDir> = ("dfs.datanode.data.dir", "file://${hadoop.tmp.dir}/dfs/data",
        "Directories of replicas, each with `[SSD]`, `[DISK]`, `[ARCHIVE]`, `[RAM_DISK]`, \
         `[NVDIMM]` or nothing before it.").reconfigurable().aliases(&["dfs.data.dir"]);
    DATA_DIR_PERM: Mode = ("dfs.datanode.data.dir.perm", "700",
        "Permissions of these directories, octal.");
    IO_ENGINE: EngineName = ("hayloft.io.engine", "auto",
        "I/O engine: posix, direct, null, or auto (calibrated, else direct, else posix). \
         `hayloft.io.engine.<directory>` for one volume.");
    IO_QUANTUM: u64 = ("hayloft.io.quantum", "0",
        "Bytes a rotating disk serves to one file in turn, and of one write-back. 0: as \
         calibrated, else 32m, flash 4m.").bytes().max(1 << 30);
    IO_DEPTH: u32 = ("hayloft.io.depth", "0",
        "Transfers on a flash device at once. 0: as calibrated, else 32.").max(256);
    IO_READ_CACHED: bool = ("hayloft.io.read.cached", "false",
        "Clients' reads above 128k go through the page cache with direct too. No effect on \
         rotating disks.");
    IO_MEDIA: Option<Media> = ("hayloft.io.media", "auto",
        "What the devices are: rotating, flash, or auto (calibrated, else as the kernel says).");
    MEMORY_LIMIT: LimitOrAuto<MEMORY_LIMIT_MIN> = ("hayloft.memory.limit", "0",
        "Memory for bytes under way, a third of it for writes. At least 8m; 0 for 96m, less on \
         small machines.").bytes();
    PARITY: Option<ParityShape> = ("hayloft.parity", "none",
        "K+M: closed replicas of K disks get parity on M others. More than the disks is refused.");
    PARITY_DISKS: ParityDisks = ("hayloft.parity.disks", "devices",
        "What fails as one: devices or directories.");
    PARITY_KEPT: u64 = ("hayloft.parity.kept", "17179869184",
        "Most data kept of deleted replicas whose groups need it.").bytes();
    PARITY_MEMORY: u64 = ("hayloft.parity.memory", "0",
        "Memory for new replicas until they have parity, with direct; at most half of the \
         machine's. Else they are read again.")
        .bytes();
    PARITY_PATIENCE: Duration = ("hayloft.parity.patience", "2m",
        "A replica waits for partners of its length on other disks; then shorter groups are \
         formed. At most 7d.").millis().max(604_800_000);
    DU_RESERVED: u64 = ("dfs.datanode.du.reserved", "0",
        "Space kept free on each volume; append `.<directory>` or `.<storage type, lower case>` \
         for some.").bytes();
    DU_RESERVED_PERCENT: u64 = ("dfs.datanode.du.reserved.pct", "0",
        "The same as a percentage; the calculator says which counts.").max(100);
    DU_RESERVED_CALCULATOR: Calculator = ("dfs.datanode.du.reserved.calculator",
        "org.apache.hadoop.hdfs.server.datanode.fsdataset.impl.ReservedSpaceCalculator$\
            ReservedSpaceCalculatorAbsolute",
        "How the two combine: ...Absolute, ...Percentage, ...Conservative (larger) or \
         ...Aggressive (smaller).");
    VOLUME_CHOOSING_POLICY: ChoosingPolicy = ("dfs.datanode.fsdataset.volume.choosing.policy",
        "org.apache.hadoop.hdfs.server.datanode.fsdataset.RoundRobinVolumeChoosingPolicy",
        "RoundRobinVolumeChoosingPolicy or AvailableSpaceVolumeChoosingPolicy.");
    AVAILABLE_SPACE_THRESHOLD: u64 = (
        "dfs.datanode.available-space-volume-choosing-policy.balanced-space-threshold",
        "10737418240",
        "Volumes whose free space differs by less count as equally free.").bytes();
    AVAILABLE_SPACE_FRACTION: f64 = (
        "dfs.datanode.available-space-volume-choosing-policy.balanced-space-preference-fraction",
        "0.75f",
        "Share of new replicas for the volumes with more free space.");
    ROUND_ROBIN_ADDITIONAL_SPACE: u64 = (
        "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space", "1073741824",
        "Round robin skips a volume with less than this beside the block.").bytes();
    FAILED_VOLUMES_TOLERATED: i32 = ("dfs.datanode.failed.volumes.tolerated", "0",
        "Volumes that may fail before the node stops; -1, or parity: it goes on while one lives.")
        .min(-1);
    DISK_CHECK_MIN_GAP: Duration = ("dfs.datanode.disk.check.min.gap", "15m",
        "Least time between two checks of a volume after errors; at most a second counts.")
        .millis();
    DISK_CHECK_TIMEOUT: Duration = ("dfs.datanode.disk.check.timeout", "10m",
        "A check or operation that takes longer fails its volume. A volume's removal waits no \
         longer either.").millis().min(1);
    DISK_CHECK_PERIOD: Duration = ("hayloft.disk.check.period", "15s",
        "Volumes are checked as often; 0 for after errors only.").millis();
    DISK_ERRORS_LIMIT: u32 = ("hayloft.disk.errors.limit", "50",
        "Files with disk errors at which a volume fails, if tolerated; 0 for never.");
    DISK_ERRORS_WINDOW: Duration = ("hayloft.disk.errors.window", "1h",
        "How long new replicas go elsewhere after a disk error, and it counts.").millis().min(1);
    DIRECTORY_SCAN_INTERVAL: Option<Duration> = ("dfs.datanode.directoryscan.interval", "21600",
        "Time between comparisons of directories with memory; negative for never.").seconds();
    DIRECTORY_SCAN_THROTTLE: i32 = ("dfs.datanode.directoryscan.throttle.limit.ms.per.sec", "1000",
        "Milliseconds of each second that the directory scanner may run; below 1 for all of them.");
    RECONCILE_BATCH_SIZE: u32 = ("dfs.datanode.reconcile.blocks.batch.size", "1000",
        "Differences mended in one go.").min(1);
    RECONCILE_BATCH_INTERVAL: Duration = ("dfs.datanode.reconcile.blocks.batch.interval", "2000",
        "Pause after each such batch.").millis();
    SCAN_PERIOD: Option<Duration> = ("dfs.datanode.scan.period.hours", "504",
        "Every replica is verified once in this time; 0 for 504, negative for never.")
        .unit(Unit::Hours);
    SCAN_BYTES_PER_SECOND: u64 = ("dfs.block.scanner.volume.bytes.per.second", "1048576",
        "Speed of that verification per volume; 0 for none.").bytes_per_second();
    ASYNC_DISK_THREADS: u32 = ("dfs.datanode.fsdatasetasyncdisk.max.threads.per.volume", "4",
        "Deletes at the same time on each volume.").min(1).max(1024);
    REPLICA_CACHE_EXPIRY: Duration = ("dfs.datanode.replica.cache.expiry.time", "5m",
        "Age to which a clean stop's list of replicas is trusted.").millis();
    DUPLICATE_REPLICA_DELETION: bool = ("dfs.datanode.duplicate.replica.deletion", "true",
        "Delete the lesser of two copies of a block on one volume at start.");
    CACHED_DFS_USED_INTERVAL: Duration = ("dfs.datanode.cached-dfsused.check.interval.ms", "600000",
        "Age to which the saved count of used bytes is trusted at start.").millis();
    DU_INTERVAL: Duration = ("fs.du.interval", "600000",
        "Time between counts of used space.").millis().min(1).reconfigurable();
    SPACE_USED_JITTER: Duration = ("fs.getspaceused.jitterMillis", "60000",
        "Random part of that time.").millis().reconfigurable();
    SPACE_USED_CLASS: Option<String> = ("fs.getspaceused.classname", "",
        "Java class that counts used space; here used space is counted from the replicas.")
        .reconfigurable();
    LAZY_WRITER_INTERVAL: Duration = ("dfs.datanode.lazywriter.interval.sec", "60",
        "Time between copies of replicas on RAM_DISK volumes to disk.").seconds().min(1);
    NON_LOCAL_LAZY_PERSIST: bool = ("dfs.datanode.non.local.lazy.persist", "false",
        "Whether clients on other hosts may write LAZY_PERSIST files to RAM_DISK volumes, too.");
    MAX_LOCKED_MEMORY: u64 = ("dfs.datanode.max.locked.memory", "0",
        "Bytes of memory for cached replicas and those on RAM_DISK volumes, no more than \
         RLIMIT_MEMLOCK; 0 for none of either. Virtual nodes share it.").bytes();
    CACHE_THREADS: u32 = ("dfs.datanode.fsdatasetcache.max.threads.per.volume", "4",
        "Replicas read into that memory at the same time on each volume.").min(1).max(1024);
    CACHE_REVOCATION_TIMEOUT: Duration = ("dfs.datanode.cache.revocation.timeout.ms", "900000",
        "How long an order to uncache waits for short-circuit readers without checksums.").millis();
    CACHE_REVOCATION_POLLING: Duration = ("dfs.datanode.cache.revocation.polling.ms", "500",
        "How often it looks for them.").millis().min(1);
    SAME_DISK_TIERING: bool = ("dfs.datanode.same-disk-tiering.enabled", "false",
        "Whether a DISK and an ARCHIVE volume on one mount share its capacity. Replicas move from \
         one to the other by hard link.");
    RESERVE_FOR_ARCHIVE: f64 = ("dfs.datanode.reserve-for-archive.default.percentage", "0.0",
        "Share of such a mount that belongs to ARCHIVE, 0 to 1.");
    SAME_DISK_CAPACITY_RATIO: Vec<CapacityRatio> = (
        "dfs.datanode.same-disk-tiering.capacity-ratio.percentage", "",
        "Shares of single volumes instead: `[0.3]file:///d1/archive,[0.7]file:///d1/disk`.");
    DISK_BALANCER_ENABLED: bool = ("dfs.disk.balancer.enabled", "true",
        "Whether disk balancer plans are accepted.").reconfigurable();
    DISK_BALANCER_PLAN_VALID: Duration = ("dfs.disk.balancer.plan.valid.interval", "1d",
        "Age to which such a plan is accepted.").millis().reconfigurable();
    DISK_BALANCER_BANDWIDTH: i64 = ("dfs.disk.balancer.max.disk.throughputInMBperSec", "10",
        "MiB a second that the disk balancer moves, unless its plan says another number.");
    DISK_BALANCER_MAX_ERRORS: i64 = ("dfs.disk.balancer.max.disk.errors", "5",
        "Failed moves that a step of a plan bears, unless it says another number.");
    DISK_BALANCER_TOLERANCE: i64 = ("dfs.disk.balancer.block.tolerance.percent", "10",
        "Per cent of a step that may be missing or too much, unless it says another number.");
}
