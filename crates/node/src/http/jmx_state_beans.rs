//! Apache's beans with this node's numbers. Names, attributes and types are those of Apache's
//! DataNode 3.5.0, as its own `/jmx` shows them. What has no counterpart here is 0 or empty.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hayloft_conf::{Configuration, keys};
use hayloft_protection::ParityStatus;
use hayloft_store::{VolumeReport, VolumeTimes};
use hayloft_wire::proto::hdfs_server::NnHaState;
use serde_json::{Value, json};

use super::jmx::Bean;
use super::jmx_attributes::Attributes;
use super::{WebHost, jmx_count_beans};
use crate::identity::SOFTWARE_VERSION;
use crate::xceiver::Activity;

const DATA_NODE: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";
pub(super) const DATASET: &str =
    "org.apache.hadoop.hdfs.server.datanode.fsdataset.impl.FsDatasetImpl";

/// All of them, as of now.
pub fn all(host: &dyn WebHost) -> Vec<Bean> {
    let numbers = dataset_numbers(host);
    let (by_name, by_uuid) = (
        dataset(host, numbers.clone()),
        dataset_by_uuid(host, numbers),
    );
    let mut beans = vec![info(host), by_name, by_uuid, memory()];
    beans.extend(jmx_count_beans::all(host));
    beans.extend(host.store().volume_times().iter().map(volume));
    beans.extend(host.parity().map(|status| parity(&status)));
    beans
}

fn volume(times: &VolumeTimes) -> Bean {
    let path = times.path.display().to_string();
    let mut of = Attributes::tagged("dfs");
    of.set("tag.VolumeName", path.clone());
    let ios = [times.read, times.write, times.sync];
    let all = ios.iter().fold((0, Duration::ZERO), |sum, one| {
        (sum.0 + one.0, sum.1 + one.1)
    });
    for (name, (ops, took)) in [
        ("MetadataOperationRate", times.metadata),
        ("ReadIoRate", times.read),
        ("WriteIoRate", times.write),
        ("SyncIoRate", times.sync),
        ("DataFileIoRate", all),
        ("FileIoErrorRate", (times.errors, Duration::ZERO)),
        // A write goes to the system at once, and what the kernel sends from its page cache is
        // timed as sending.
        ("FlushIoRate", (0, Duration::ZERO)),
        ("TransferIoRate", (0, Duration::ZERO)),
        ("NativeCopyIoRate", (0, Duration::ZERO)),
    ] {
        of.rate(name, (ops, mean_ms(ops, took)));
    }
    of.set("TotalMetadataOperations", times.metadata.0);
    of.set("TotalDataFileIos", all.0);
    of.set("TotalFileIoErrors", times.errors);
    of.bean(&format!("DataNodeVolume-{path}"))
}

/// What Apache's node has not: only where parity is configured.
fn parity(status: &ParityStatus) -> Bean {
    let mut of = Attributes::tagged("dfs");
    let refuse = status.volumes.iter().filter(|v| v.refuses.is_some());
    for (name, value) in [
        ("ProtectedBytes", status.protected_bytes),
        ("UnprotectedBytes", status.unprotected_bytes),
        ("OverdueBytes", status.overdue_bytes),
        ("DegradedBytes", status.degraded_bytes),
        ("DamagedBytes", status.damaged_bytes),
        ("LostBytes", status.lost_bytes),
        ("RebuildRemainingBytes", status.rebuild_remaining_bytes),
        ("KeptBytes", status.kept_bytes),
        ("ParityBytes", status.parity_bytes),
        ("Groups", status.groups),
        ("VolumesThatRefuse", refuse.count() as u64),
    ] {
        of.set(name, value);
    }
    of.bean("HayloftParity")
}

#[expect(clippy::cast_precision_loss, reason = "a mean for people")]
fn mean_ms(ops: u64, took: Duration) -> f64 {
    if ops == 0 {
        return 0.0;
    }
    took.as_secs_f64() * 1000.0 / ops as f64
}

fn info(host: &dyn WebHost) -> Bean {
    let (identity, stats) = (host.identity(), host.stats());
    let mut of = Attributes::new();
    let connections = stats.now(Activity::Connection);
    of.set("Version", SOFTWARE_VERSION);
    of.set("SoftwareVersion", SOFTWARE_VERSION);
    let config = host.config().current();
    of.set("SecurityEnabled", config.has_kerberos());
    of.set("XceiverCount", connections);
    of.set("ActiveTransferThreadCount", connections);
    of.set("XmitsInProgress", stats.now(Activity::Xmit));
    of.set("DataPort", identity.xfer_port.to_string());
    of.set("RpcPort", identity.ipc_port.to_string());
    of.set("HttpPort", identity.info_port.to_string());
    of.set("DatanodeHostname", identity.host_name.clone());
    of.set("DNStartedTimeInMillis", started_ms(host));
    of.set("ClusterId", host.store().storage_info().cluster_id);
    of.set("NamenodeAddresses", namenodes(host));
    of.set("BPServiceActorInfo", actors(host));
    of.set("VolumeInfo", volumes(host));
    of.set("DatanodeNetworkCounts", json!([]));
    of.set("DiskBalancerStatus", host.disk_balancer_status());
    of.set("SlowDisks", slow_disks(host, &config));
    of.set("SendPacketDownstreamAvgInfo", peer_averages(host));
    of.of_class("DataNodeInfo", DATA_NODE)
}

/// JSON in a string: how long packets took to each peer, by Apache's name of such averages; null
/// where peers are not measured.
fn peer_averages(host: &dyn WebHost) -> Value {
    let Some(averages) = host.peer_averages() else {
        return Value::Null;
    };
    let named = averages.into_iter();
    let named = named.map(|(peer, ms)| (format!("[{peer}]RollingAvgTime"), ms.into()));
    Value::Object(named.collect()).to_string().into()
}

/// JSON in a string: the directories on slow disks; null where disks are not compared.
fn slow_disks(host: &dyn WebHost, config: &Configuration) -> Value {
    if config.get(&keys::FILEIO_PROFILING_PERCENTAGE) == 0 {
        return Value::Null;
    }
    let slow = host.slow().slow_disks.into_iter();
    let paths: Vec<String> = slow.filter_map(|disk| disk.base_path).collect();
    json!(paths).to_string().into()
}

fn started_ms(host: &dyn WebHost) -> u64 {
    let started = SystemTime::now().checked_sub(host.uptime());
    let since = started.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0))
}

/// JSON in a string, as Apache has it: host to pool.
fn namenodes(host: &dyn WebHost) -> String {
    let actors = host.actors().into_iter();
    let pairs = actors.filter_map(|actor| {
        let name = actor.address.split(':').next()?.to_owned();
        Some((name, json!(actor.pool?.to_string())))
    });
    Value::Object(pairs.collect()).to_string()
}

/// JSON in a string: what Apache's page of a node shows of each NameNode. All values are text.
fn actors(host: &dyn WebHost) -> String {
    let seconds = |of: Option<Duration>| of.map_or("never".to_owned(), |d| d.as_secs().to_string());
    let rows = host.actors().into_iter().map(|actor| {
        let state = match actor.ha {
            Some(NnHaState::Active) => "active",
            Some(NnHaState::Standby) => "standby",
            Some(NnHaState::Observer) => "observer",
            None => "unknown",
        };
        json!({
            "NamenodeAddress": actor.address,
            "NamenodeHaState": state,
            "BlockPoolID": actor.pool.map(|pool| pool.to_string()),
            "ActorState": actor.phase.name(),
            "LastHeartbeat": seconds(actor.last_heartbeat),
            "LastHeartbeatResponseTime": seconds(actor.last_heartbeat),
            "LastBlockReport": seconds(actor.last_report),
            "IBRSize": actor.pending_reports.to_string(),
            "maxBlockReportSize": "0",
            "maxDataLength": (128_u32 << 20).to_string(),
            "isSlownode": "false",
        })
    });
    Value::Array(rows.collect()).to_string()
}

/// JSON in a string: directory to numbers.
fn volumes(host: &dyn WebHost) -> String {
    let row = |volume: &VolumeReport| {
        let path = volume.path.display().to_string();
        let numbers = json!({
            "usedSpace": volume.used,
            "freeSpace": volume.free,
            "reservedSpace": volume.reserved,
            "reservedSpaceForReplicas": volume.reserved_for_replicas,
            "numBlocks": volume.blocks,
            "storageType": volume.storage.storage_type.to_string(),
        });
        (path, numbers)
    };
    let report = host.volumes();
    Value::Object(report.what.iter().map(row).collect()).to_string()
}

/// Bytes of all volumes: capacity, used, remaining.
pub fn space(host: &dyn WebHost) -> (u64, u64, u64) {
    // Any pool has the same volumes; without one nothing is reported yet.
    let pools = host.store().pools();
    let Some(pool) = pools.first() else {
        let report = host.volumes();
        let (used, free) = report
            .what
            .iter()
            .fold((0, 0), |(u, f), v| (u + v.used, f + v.free));
        return (used + free, used, free);
    };
    let reports = host.store().storage_reports(pool);
    reports
        .iter()
        .fold((0, 0, 0), |(capacity, used, left), of| {
            (
                capacity + of.capacity,
                used + of.dfs_used,
                left + of.remaining,
            )
        })
}

fn storage_info(host: &dyn WebHost) -> String {
    let report = host.volumes();
    let dirs: Vec<String> = report
        .what
        .iter()
        .map(|v| v.path.display().to_string())
        .collect();
    format!("FSDataset{{dirpath='[{}]'}}", dirs.join(", "))
}

/// What both beans of the dataset have.
fn dataset_numbers(host: &dyn WebHost) -> Attributes {
    let mut of = Attributes::new();
    of.set("PendingAsyncDeletions", host.store().pending_deletions());
    let ((capacity, used, remaining), failed) = (space(host), host.store().failure_summary());
    of.set("Capacity", capacity);
    of.set("DfsUsed", used);
    of.set("Remaining", remaining);
    of.set("NumFailedVolumes", failed.failed_locations.len());
    of.set("LastVolumeFailureDate", failed.last_failure_ms);
    of.set("EstimatedCapacityLostTotal", failed.lost_capacity);
    let cache = host.store().cache_use();
    of.set("CacheUsed", cache.used);
    of.set("CacheCapacity", cache.capacity);
    of.set("NumBlocksCached", cache.blocks);
    of.set("NumBlocksFailedToCache", cache.failed_to_cache);
    of
}

fn dataset(host: &dyn WebHost, numbers: Attributes) -> Bean {
    let mut of = Attributes::tagged("FSDatasetState");
    of.extend(numbers);
    of.set("tag.StorageInfo", storage_info(host));
    let cache = host.store().cache_use();
    of.set("NumBlocksFailedToUnCache", cache.failed_to_uncache);
    let compared = host.store().directories_compared_ms();
    of.set("LastDirectoryScannerFinishTime", compared);
    of.bean("FSDatasetState")
}

fn dataset_by_uuid(host: &dyn WebHost, numbers: Attributes) -> Bean {
    let mut of = numbers;
    of.set("StorageInfo", storage_info(host));
    // Apache's names are not those of the other bean.
    let cache = host.store().cache_use();
    of.set("NumBlocksFailedToUncache", cache.failed_to_uncache);
    let compared = host.store().directories_compared_ms();
    of.set("LastDirScannerFinishTime", compared);
    let failed = host.store().failure_summary().failed_locations;
    let failed: Vec<String> = failed.iter().map(|dir| dir.display().to_string()).collect();
    of.set("FailedStorageLocations", failed);
    let uuid = &host.identity().datanode_uuid;
    of.of_class(&format!("FSDatasetState-{uuid}"), DATASET)
}

/// This process' memory under the names that agents read. It has no JVM: there is no limit but the
/// machine's, and no garbage to collect.
fn memory() -> Bean {
    let mib = |bytes: u64| {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let mib = bytes as f64 / f64::from(1 << 20);
        mib
    };
    let (resident, machine) = (crate::memory::resident_bytes(), crate::memory::usable());
    let mut of = Attributes::tagged("jvm");
    of.set("tag.ProcessName", "DataNode");
    of.set("tag.SessionId", Value::Null);
    of.set("MemHeapUsedM", mib(resident));
    of.set("MemHeapCommittedM", mib(resident));
    of.set("MemHeapMaxM", mib(machine));
    of.set("MemMaxM", mib(machine));
    of.set("MemNonHeapUsedM", 0.0);
    of.set("MemNonHeapCommittedM", 0.0);
    of.set("MemNonHeapMaxM", -1.0);
    of.set("GcCount", 0);
    of.set("GcTimeMillis", 0);
    of.set(
        "ThreadsRunnable",
        super::conf_stacks_loglevel::threads().len(),
    );
    of.bean("JvmMetrics")
}
