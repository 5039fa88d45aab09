//! The beans that count: `DataNodeActivity` and those of the RPC port. Every attribute of Apache's
//! is there; what has no counterpart here is 0.

use std::collections::BTreeMap;

use super::WebHost;
use super::jmx::Bean;
use super::jmx_attributes::Attributes;
use crate::activity::{Count, MeanUnit, NodeActivity, Timed};
use crate::xceiver::Activity;
use hayloft_rpc::server::MethodTimes;

/// Attributes of Apache's that stay 0 here: there is no lock of a whole data set.
const NONE: [&str; 15] = [
    "BlocksDeletedInPendingIBR",
    "BlocksReceivedInPendingIBR",
    "BlocksReceivingInPendingIBR",
    "EcDecodingTimeNanos",
    "EcReconstructionBytesRead",
    "EcReconstructionBytesWritten",
    "EcReconstructionDecodingTimeMillis",
    "EcReconstructionReadTimeMillis",
    "EcReconstructionRemoteBytesRead",
    "EcReconstructionValidateTimeMillis",
    "EcReconstructionWriteTimeMillis",
    "NullStorageBlockReports",
    "PacketsSlowWriteToOsCache",
    "ReplaceBlockOpOnSameMount",
    "SumOfActorCommandQueueLength",
];

/// Rates of Apache's that stay 0 here.
const NO_RATES: [&str; 5] = [
    "AcquireDatasetReadLock",
    "AcquireDatasetWriteLock",
    "CheckAndUpdateOp",
    "UnfinalizeBlockOp",
    "UpdateReplicaUnderRecoveryOp",
];

/// Methods that the bean of the RPC port names before anyone calls them.
const METHODS: [&str; 17] = [
    "cancelDiskBalancerPlan",
    "deleteBlockPool",
    "evictWriters",
    "getBalancerBandwidth",
    "getBlockLocalPathInfo",
    "getDatanodeInfo",
    "getDiskBalancerSetting",
    "getReconfigurationStatus",
    "getReplicaVisibleLength",
    "getVolumeReport",
    "listReconfigurableProperties",
    "queryDiskBalancerPlan",
    "refreshNamenodes",
    "shutdownDatanode",
    "startReconfiguration",
    "submitDiskBalancerPlan",
    "triggerBlockReport",
];

const NANOS_PER_MS: f64 = 1e6;

/// `DataNodeActivity`, and the two beans of the RPC port.
pub fn all(host: &dyn WebHost) -> [Bean; 3] {
    [activity(host), rpc(host), rpc_methods(host)]
}

/// Adds a rate to a bean: its count, and its mean of the last period.
struct Rates<'a> {
    host: &'a dyn WebHost,
    /// Of the bean.
    bean: &'static str,
}

impl Rates<'_> {
    fn add(&self, of: &mut Attributes, name: &str, total: (u64, u64), unit: MeanUnit) {
        let key = format!("{}.{name}", self.bean);
        let mean = self.host.periods().mean(&key, total);
        let mean = match unit {
            MeanUnit::AsCounted => mean,
            MeanUnit::Millis => mean / NANOS_PER_MS,
        };
        of.rate(name, (total.0, mean));
    }
}

fn activity(host: &dyn WebHost) -> Bean {
    let (identity, stats) = (host.identity(), host.stats());
    let counted: &NodeActivity = &stats.activity;
    let mut of = Attributes::tagged("dfs");
    of.set("tag.SessionId", serde_json::Value::Null);
    for none in NONE {
        of.set(none, 0);
    }
    for none in NO_RATES {
        of.rate(none, (0, 0.0));
    }
    for &what in Count::ALL {
        of.set(what.name(), counted.count(what));
    }
    let rates = Rates {
        host,
        bean: "DataNodeActivity",
    };
    for &what in Timed::ALL {
        rates.add(&mut of, what.name(), counted.total(what), what.unit());
    }
    // Apache's has the checksums in it.
    let read = stats.bytes_read.get() + stats.sums_read.get();
    of.set("BytesRead", read);
    of.set("BytesWritten", stats.bytes_written.get());
    of.set("BlocksRead", stats.blocks_read.get());
    of.set("BlocksWritten", stats.blocks_written.get());
    of_store(&mut of, host);
    of_memory(&mut of, &rates);
    let pending: usize = host.actors().iter().map(|a| a.pending_reports).sum();
    of.set("BlocksInPendingIBR", pending);
    let now = |activity| stats.now(activity);
    of.set("DataNodeActiveXceiversCount", now(Activity::Connection));
    of.set("DataNodeReadActiveXceiversCount", now(Activity::Reader));
    of.set("DataNodeWriteActiveXceiversCount", now(Activity::Writer));
    of.set("DataNodePacketResponderCount", now(Activity::Responder));
    of.set("DataNodeBlockRecoveryWorkerCount", host.recoveries());
    of.bean(&format!(
        "DataNodeActivity-{}-{}",
        identity.host_name, identity.xfer_port
    ))
}

fn of_store(of: &mut Attributes, host: &dyn WebHost) {
    let store = host.store();
    let failed = store.failure_summary();
    of.set("VolumeFailures", failed.failed_locations.len());
    of.set("BlocksRemoved", store.removed_count());
    let cache = store.cache_use();
    of.set("BlocksCached", cache.cached);
    of.set("BlocksUncached", cache.uncached);
    let scans = store.scan_reports();
    let scanned: u64 = scans.iter().map(|scan| scan.blocks).sum();
    let bad: u64 = scans.iter().map(|scan| scan.errors).sum();
    of.set("BlocksVerified", scanned);
    of.set("BlockVerificationFailures", bad);
}

/// Replicas on RAM_DISK volumes.
fn of_memory(of: &mut Attributes, rates: &Rates<'_>) {
    let lazy = rates.host.store().lazy_persist_use();
    for (name, number) in [
        ("RamDiskBlocksWrite", lazy.written),
        ("RamDiskBlocksWriteFallback", lazy.fallbacks),
        ("RamDiskBytesWrite", lazy.bytes_written),
        ("RamDiskBlocksReadHits", lazy.read_hits),
        ("RamDiskBlocksEvicted", lazy.evicted),
        ("RamDiskBlocksEvictedWithoutRead", lazy.evicted_unread),
        ("RamDiskBlocksLazyPersisted", lazy.persisted),
        ("RamDiskBytesLazyPersisted", lazy.bytes_persisted),
        (
            "RamDiskBlocksDeletedBeforeLazyPersisted",
            lazy.deleted_before,
        ),
    ] {
        of.set(name, number);
    }
    for (name, total) in [
        (
            "RamDiskBlocksEvictionWindowMs",
            (lazy.evicted, lazy.evicted_ms),
        ),
        (
            "RamDiskBlocksLazyPersistWindowMs",
            (lazy.persisted, lazy.persisted_ms),
        ),
    ] {
        rates.add(of, name, total, MeanUnit::AsCounted);
    }
}

fn rpc(host: &dyn WebHost) -> Bean {
    let (port, stats) = (host.identity().ipc_port, host.rpc_stats());
    let mut of = Attributes::tagged("rpc");
    of.set("tag.port", port.to_string());
    of.set("tag.serverName", "ClientDatanodeProtocolService");
    of.set("tag.NumOpenConnectionsPerUser", "{}");
    for none in [
        "RpcAuthenticationFailures",
        "RpcAuthenticationSuccesses",
        "RpcClientBackoff",
        "RpcClientBackoffDisconnected",
        "RpcRequeueCalls",
        "RpcSlowCalls",
        "TotalRequestsPerSecond",
    ] {
        of.set(none, 0);
    }
    for (name, number) in [
        ("ReceivedBytes", &stats.received_bytes),
        ("SentBytes", &stats.sent_bytes),
        ("RpcAuthorizationSuccesses", &stats.authorized),
        ("RpcAuthorizationFailures", &stats.refused),
        ("RpcCallSuccesses", &stats.successes),
        ("NumOpenConnections", &stats.open_connections),
        ("NumDroppedConnections", &stats.dropped_connections),
        ("NumInProcessHandler", &stats.running),
        ("CallQueueLength", &stats.waiting),
        ("TotalRequests", &stats.requests),
    ] {
        of.set(name, number.get());
    }
    let rates = Rates {
        host,
        bean: "RpcActivity",
    };
    for (name, time) in [
        ("RpcEnQueueTime", &stats.enqueue),
        ("RpcQueueTime", &stats.queue),
        ("RpcProcessingTime", &stats.processing),
        ("RpcResponseTime", &stats.response),
    ] {
        rates.add(&mut of, name, time.total(), MeanUnit::Millis);
    }
    of.rate("RpcLockWaitTime", (stats.processing.total().0, 0.0));
    of.rate("DeferredRpcProcessingTime", (0, 0.0));
    of.bean(&format!("RpcActivityForPort{port}"))
}

fn rpc_methods(host: &dyn WebHost) -> Bean {
    let port = host.identity().ipc_port;
    let mut of = Attributes::tagged("rpcdetailed");
    of.set("tag.port", port.to_string());
    let mut methods: BTreeMap<String, MethodTimes> = METHODS
        .iter()
        .map(|name| ((*name).to_owned(), MethodTimes::default()))
        .collect();
    methods.extend(host.rpc_stats().methods());
    let rates = Rates {
        host,
        bean: "RpcDetailedActivity",
    };
    for (method, times) in methods {
        let name = capitalized(&method);
        let (own, all) = (times.processing_nanos, times.overall_nanos);
        rates.add(&mut of, &name, (times.calls, own), MeanUnit::Millis);
        let overall = format!("Overall{name}");
        rates.add(&mut of, &overall, (times.calls, all), MeanUnit::Millis);
        of.rate(&format!("Deferred{name}"), (0, 0.0));
    }
    of.bean(&format!("RpcDetailedActivityForPort{port}"))
}

fn capitalized(name: &str) -> String {
    let mut rest = name.chars();
    rest.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(rest).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_not_also_nothing() {
        for &what in Count::ALL {
            assert!(!NONE.contains(&what.name()), "{}", what.name());
        }
        for &what in Timed::ALL {
            assert!(!NO_RATES.contains(&what.name()), "{}", what.name());
        }
        assert_eq!(capitalized("getDatanodeInfo"), "GetDatanodeInfo");
        assert_eq!(capitalized(""), "");
    }
}
