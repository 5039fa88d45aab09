//! Volumes: directories, space, choice, failure, scanners.

use std::time::Duration;

use super::keys;
use hayloft_io::calibrate::Media;

use crate::choice::{Calculator, ChoosingPolicy, EngineName, LimitOrAuto};
use crate::value::{DataDir, Mode, Unit};

/// Least `hayloft.memory.limit`, bytes: four write buffers.
pub const MEMORY_LIMIT_MIN: u64 = 8 << 20;

keys! {
    DATA_DIRS: Vec<DataDir> = ("dfs.datanode.data.dir", "file://${hadoop.tmp.dir}/dfs/data",
        "Directories that hold replicas, with `[SSD]`, `[DISK]`, `[ARCHIVE]`, `[RAM_DISK]` or `[NVDIMM]` before them.")
        .reconfigurable().aliases(&["dfs.data.dir"]);
    DATA_DIR_PERM: Mode = ("dfs.datanode.data.dir.perm", "700",
        "Permissions that the directories get.");
    IO_ENGINE: EngineName = ("hayloft.io.engine", "auto",
        "I/O engine of every volume: posix, direct, uring, null, memory, or auto for the one that `hayloft calibrate` proposed, without it direct, or posix where the file system does not take O_DIRECT; `hayloft.io.engine.<directory>` for one of them. One that does not work there is replaced, with a remark in the log.");
    IO_QUANTUM: u64 = ("hayloft.io.quantum", "0",
        "What a rotating disk serves to one stream before it turns to another, and how much of a file is written back at once in the page cache. 0 for what `hayloft calibrate` found, without it 32m for rotating disks and 4m for flash.")
        .bytes().max(1 << 30);
    IO_DEPTH: u32 = ("hayloft.io.depth", "0",
        "Reads and writes on a flash device at once; 0 for what `hayloft calibrate` found, without it 32.").max(256);
    IO_READ_CACHED: bool = ("hayloft.io.read.cached", "false",
        "Whether what clients read (more than 128k at a time) goes through the page cache with the engines direct and uring too, and is sent from there without a copy; scans and copies between nodes go around it still, and so does what is to be dropped behind the reader or may not be sent by dfs.datanode.transferTo.allowed. Takes less processor time where the read-ahead of the device is large (4 MiB; `blockdev --setra 8192`), and more where it is small. On rotating disks no matter.");
    IO_MEDIA: Option<Media> = ("hayloft.io.media", "auto",
        "What the devices are: rotating, flash, or auto for what `hayloft calibrate` found, without it what the kernel says. Disks called vd, xvd, nbd, loop, ram or zram count as flash: what is behind them is not known.");
    MEMORY_LIMIT: LimitOrAuto<MEMORY_LIMIT_MIN> = ("hayloft.memory.limit", "0",
        "Memory for bytes between clients and disks: a third of it for what is written, the rest for what is read and received, which is 32m at least. At least 8m; 0 for 96m, or a thirty-second of the memory of a small machine or its control group, from 32m.").bytes();
    DU_RESERVED: u64 = ("dfs.datanode.du.reserved", "0",
        "Space kept free on each volume; `.<directory>` or `.<storage type, lower case>` appended for some of them.")
        .bytes();
    DU_RESERVED_PERCENT: u64 = ("dfs.datanode.du.reserved.pct", "0",
        "The same as a percentage of the volume; which counts is up to the calculator.").max(100);
    DU_RESERVED_CALCULATOR: Calculator = ("dfs.datanode.du.reserved.calculator",
        "org.apache.hadoop.hdfs.server.datanode.fsdataset.impl.ReservedSpaceCalculator$ReservedSpaceCalculatorAbsolute",
        "How du.reserved and du.reserved.pct combine: ...Absolute, ...Percentage, ...Conservative (larger) or ...Aggressive (smaller).");
    VOLUME_CHOOSING_POLICY: ChoosingPolicy = ("dfs.datanode.fsdataset.volume.choosing.policy",
        "org.apache.hadoop.hdfs.server.datanode.fsdataset.RoundRobinVolumeChoosingPolicy",
        "How the volume of a new replica is chosen: RoundRobinVolumeChoosingPolicy or AvailableSpaceVolumeChoosingPolicy.");
    AVAILABLE_SPACE_THRESHOLD: u64 = (
        "dfs.datanode.available-space-volume-choosing-policy.balanced-space-threshold", "10737418240",
        "Volumes whose free space differs by less than this count as equally free.").bytes();
    AVAILABLE_SPACE_FRACTION: f64 = (
        "dfs.datanode.available-space-volume-choosing-policy.balanced-space-preference-fraction", "0.75f",
        "Share of new replicas that go to the volumes with more free space.");
    ROUND_ROBIN_ADDITIONAL_SPACE: u64 = (
        "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space", "1073741824",
        "Round robin skips a volume with less than this beside the block.").bytes();
    FAILED_VOLUMES_TOLERATED: i32 = ("dfs.datanode.failed.volumes.tolerated", "0",
        "Volumes that may fail before the node stops; -1 goes on while one lives.").min(-1);
    DISK_CHECK_MIN_GAP: Duration = ("dfs.datanode.disk.check.min.gap", "15m",
        "Least time between two checks of one volume after errors, which come in swarms; no more than a second of it counts.").millis();
    DISK_CHECK_TIMEOUT: Duration = ("dfs.datanode.disk.check.timeout", "10m",
        "A volume whose check takes longer has failed; nor does taking one out wait longer for what was written to become durable, and for its files to be closed.").millis().min(1);
    DIRECTORY_SCAN_INTERVAL: Option<Duration> = ("dfs.datanode.directoryscan.interval", "21600",
        "Time between comparisons of directories with what is in memory; negative for never.").seconds();
    DIRECTORY_SCAN_THROTTLE: i32 = ("dfs.datanode.directoryscan.throttle.limit.ms.per.sec", "1000",
        "Milliseconds of each second that the directory scanner may run; all of it at 1000 or below 1.");
    RECONCILE_BATCH_SIZE: u32 = ("dfs.datanode.reconcile.blocks.batch.size", "1000",
        "Differences put right in one go.").min(1);
    RECONCILE_BATCH_INTERVAL: Duration = ("dfs.datanode.reconcile.blocks.batch.interval", "2000",
        "Pause after each such batch.").millis();
    SCAN_PERIOD: Option<Duration> = ("dfs.datanode.scan.period.hours", "504",
        "Every replica is verified once in this time; 0 means 504 hours, negative never.").unit(Unit::Hours);
    SCAN_BYTES_PER_SECOND: u64 = ("dfs.block.scanner.volume.bytes.per.second", "1048576",
        "Speed of that verification on each volume; 0 for no verification.").bytes_per_second();
    ASYNC_DISK_THREADS: u32 = ("dfs.datanode.fsdatasetasyncdisk.max.threads.per.volume", "4",
        "Deletes at the same time on each volume.").min(1).max(1024);
    REPLICA_CACHE_EXPIRY: Duration = ("dfs.datanode.replica.cache.expiry.time", "5m",
        "Age to which the list of replicas written at a clean stop is trusted.").millis();
    DUPLICATE_REPLICA_DELETION: bool = ("dfs.datanode.duplicate.replica.deletion", "true",
        "Whether the lesser of two copies of a block on one volume is deleted at start.");
    CACHED_DFS_USED_INTERVAL: Duration = ("dfs.datanode.cached-dfsused.check.interval.ms", "600000",
        "Age to which the saved count of used bytes is trusted at start.").millis();
    DU_INTERVAL: Duration = ("fs.du.interval", "600000",
        "Time between counts of used space.").millis().min(1).reconfigurable();
    SPACE_USED_JITTER: Duration = ("fs.getspaceused.jitterMillis", "60000",
        "Random part of that time.").millis().reconfigurable();
    SPACE_USED_CLASS: Option<String> = ("fs.getspaceused.classname", "",
        "Java class that counts used space; here used space is counted from the replicas.").reconfigurable();
    LAZY_WRITER_INTERVAL: Duration = ("dfs.datanode.lazywriter.interval.sec", "60",
        "Time between copies of RAM_DISK replicas to disk.").seconds();
    MAX_LOCKED_MEMORY: u64 = ("dfs.datanode.max.locked.memory", "0",
        "Memory for cached and RAM_DISK replicas.").bytes();
    SAME_DISK_TIERING: bool = ("dfs.datanode.same-disk-tiering.enabled", "false",
        "Whether DISK and ARCHIVE volumes may share a mount.");
    RESERVE_FOR_ARCHIVE: f64 = ("dfs.datanode.reserve-for-archive.default.percentage", "0.0",
        "Share of such a mount that belongs to ARCHIVE.");
    DISK_BALANCER_ENABLED: bool = ("dfs.disk.balancer.enabled", "true",
        "Whether disk balancer plans are accepted.").reconfigurable();
    DISK_BALANCER_PLAN_VALID: Duration = ("dfs.disk.balancer.plan.valid.interval", "1d",
        "Age to which such a plan is accepted.").millis().reconfigurable();
}
