//! Towards NameNodes: names, heartbeats, reports.

use std::time::Duration;

use super::keys;

keys! {
    NAMESERVICES: Vec<String> = ("dfs.nameservices", "",
        "Name services of the cluster; each is a NameNode or an HA group of them.")
        .aliases(&["dfs.federation.nameservices"]);
    INTERNAL_NAMESERVICES: Vec<String> = ("dfs.internal.nameservices", "",
        "Name services that this node serves; all of dfs.nameservices when empty.");
    NAMENODE_RPC_ADDRESS: Option<String> = ("dfs.namenode.rpc-address", "",
        "NameNode address; with `.nameservice` and `.namenode` appended in HA and federation. Default port 8020.");
    NAMENODE_SERVICE_RPC_ADDRESS: Option<String> = ("dfs.namenode.servicerpc-address", "",
        "NameNode address for nodes, used before dfs.namenode.rpc-address when set; same suffixes.");
    NAMENODE_LIFELINE_RPC_ADDRESS: Option<String> = ("dfs.namenode.lifeline.rpc-address", "",
        "NameNode address for lifelines; none are sent when unset. Same suffixes.");
    HEARTBEAT_INTERVAL: Duration = ("dfs.heartbeat.interval", "3",
        "Time between heartbeats.").seconds().min(1);
    LIFELINE_INTERVAL: Option<Duration> = ("dfs.datanode.lifeline.interval.seconds", "",
        "Time between lifelines; three heartbeat intervals when empty.").seconds();
    BLOCK_REPORT_INTERVAL: Duration = ("dfs.blockreport.intervalMsec", "21600000",
        "Time between full block reports.").millis().min(1).reconfigurable();
    BLOCK_REPORT_INITIAL_DELAY: Duration = ("dfs.blockreport.initialDelay", "0",
        "The first full block report is sent at a random time up to this after registration.")
        .seconds().reconfigurable();
    BLOCK_REPORT_SPLIT_THRESHOLD: u64 = ("dfs.blockreport.split.threshold", "1000000",
        "With more blocks than this, each storage is reported in a message of its own.").reconfigurable();
    INCREMENTAL_REPORT_INTERVAL: Duration = ("dfs.blockreport.incremental.intervalMsec", "0",
        "Incremental reports are collected this long before they are sent; 0 sends at once.").millis();
    REPORT_BEFORE_ACK: Duration = ("hayloft.blockreport.incremental.before-ack", "50ms",
        "How long the last acknowledgement of a block may wait until the active NameNode has taken the report of it: a client whose close comes first sleeps for 400 ms. 0 for not at all, as where reports are collected (dfs.blockreport.incremental.intervalMsec).")
        .millis().max(1_000);
    INCREMENTAL_REPORT_PENDING_MAX: u64 = ("hayloft.blockreport.incremental.pending.max", "1000000",
        "Incremental report entries kept per name service while no NameNode answers; past it they are replaced by a full report.")
        .min(1);
    CACHE_REPORT_INTERVAL: Duration = ("dfs.cachereport.intervalMsec", "10000",
        "Time between cache reports.").millis().min(1).reconfigurable();
    PROCESS_COMMANDS_THRESHOLD: Duration = ("dfs.datanode.processcommands.threshold", "2s",
        "A NameNode command that takes longer than this is logged.").millis();
    BP_READY_TIMEOUT: Duration = ("dfs.datanode.bp-ready.timeout", "20",
        "How long a client's operation waits for the block pool's first registration.").seconds();
    MIN_SUPPORTED_NAMENODE_VERSION: String = ("dfs.datanode.min.supported.namenode.version", "2.1.0-beta",
        "Oldest NameNode version to register with.");
    PEER_STATS_ENABLED: bool = ("dfs.datanode.peer.stats.enabled", "false",
        "Whether slow peers are detected and reported.").reconfigurable();
    MIN_OUTLIER_DETECTION_NODES: u64 = ("dfs.datanode.min.outlier.detection.nodes", "10",
        "Peers needed before one of them can be called slow.").reconfigurable();
    SLOW_PEER_LOW_THRESHOLD: Duration = ("dfs.datanode.slowpeer.low.threshold.ms", "5",
        "A peer faster than this is never called slow.").millis().reconfigurable();
    PEER_OUTLIER_MIN_SAMPLES: u64 = ("dfs.datanode.peer.metrics.min.outlier.detection.samples", "1000",
        "Packets needed from a peer before it can be called slow.").reconfigurable();
    FILEIO_PROFILING_PERCENTAGE: u32 = ("dfs.datanode.fileio.profiling.sampling.percentage", "0",
        "Share of disk operations whose latency is sampled; above 0, slow disks are detected and reported.")
        .max(100).reconfigurable();
    OUTLIERS_REPORT_INTERVAL: Duration = ("dfs.datanode.outliers.report.interval", "30m",
        "Time between searches for slow peers and disks.").millis().reconfigurable();
    MIN_OUTLIER_DETECTION_DISKS: u64 = ("dfs.datanode.min.outlier.detection.disks", "5",
        "Disks needed before one of them can be called slow.").reconfigurable();
    SLOW_DISK_LOW_THRESHOLD: Duration = ("dfs.datanode.slowdisk.low.threshold.ms", "20",
        "A disk faster than this is never called slow.").millis().reconfigurable();
    MAX_SLOW_DISKS_TO_EXCLUDE: u32 = ("dfs.datanode.max.slowdisks.to.exclude", "0",
        "Slow disks that new replicas avoid, at most.").reconfigurable();
}
