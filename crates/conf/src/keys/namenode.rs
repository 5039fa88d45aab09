//! Towards NameNodes: names, heartbeats, reports.

use std::time::Duration;

use super::keys;

keys! {
    NAMESERVICES: Vec<String> = ("dfs.nameservices", "",
        "Name services of the cluster: NameNodes, or HA groups of them.")
        .aliases(&["dfs.federation.nameservices"]);
    INTERNAL_NAMESERVICES: Vec<String> = ("dfs.internal.nameservices", "",
        "Name services that this node serves; all when empty.");
    NAMENODE_RPC_ADDRESS: Option<String> = ("dfs.namenode.rpc-address", "",
        "NameNode address, port 8020 by default. HA and federation append `.nameservice` and \
         `.namenode`.");
    NAMENODE_SERVICE_RPC_ADDRESS: Option<String> = ("dfs.namenode.servicerpc-address", "",
        "NameNode address for nodes, before dfs.namenode.rpc-address; same suffixes.");
    NAMENODE_LIFELINE_RPC_ADDRESS: Option<String> = ("dfs.namenode.lifeline.rpc-address", "",
        "NameNode address for lifelines; none are sent when unset. Same suffixes.");
    HEARTBEAT_INTERVAL: Duration = ("dfs.heartbeat.interval", "3",
        "Time between heartbeats.").seconds().min(1);
    LIFELINE_INTERVAL: Option<Duration> = ("dfs.datanode.lifeline.interval.seconds", "",
        "Time between lifelines; three heartbeat intervals when empty, negative for never.")
        .seconds();
    BLOCK_REPORT_INTERVAL: Duration = ("dfs.blockreport.intervalMsec", "21600000",
        "Time between full block reports.").millis().min(1).reconfigurable();
    BLOCK_REPORT_INITIAL_DELAY: Duration = ("dfs.blockreport.initialDelay", "0",
        "The first full block report waits a random time up to this.").seconds().reconfigurable();
    BLOCK_REPORT_SPLIT_THRESHOLD: u64 = ("dfs.blockreport.split.threshold", "1000000",
        "With more blocks than this, each storage is reported in a message of its own.")
        .reconfigurable();
    INCREMENTAL_REPORT_INTERVAL: Duration = ("dfs.blockreport.incremental.intervalMsec", "0",
        "How long incremental reports are collected; 0 sends at once.").millis();
    REPORT_BEFORE_ACK: Duration = ("hayloft.blockreport.incremental.before-ack", "50ms",
        "How long a block's last acknowledgement waits for the active NameNode to take its \
         report; 0 for not at all.").millis().max(1_000);
    INCREMENTAL_REPORT_PENDING_MAX: u64 = ("hayloft.blockreport.incremental.pending.max", "1000000",
        "Incremental report entries kept while no NameNode answers; past it a full report \
         replaces them.").min(1);
    CACHE_REPORT_INTERVAL: Duration = ("dfs.cachereport.intervalMsec", "10000",
        "Time between cache reports.").millis().min(1).reconfigurable();
    PROCESS_COMMANDS_THRESHOLD: Duration = ("dfs.datanode.processcommands.threshold", "2s",
        "A NameNode command that takes longer is logged.").millis();
    BP_READY_TIMEOUT: Duration = ("dfs.datanode.bp-ready.timeout", "20",
        "How long an operation waits for the block pool's first registration.").seconds();
    MIN_SUPPORTED_NAMENODE_VERSION: String = (
        "dfs.datanode.min.supported.namenode.version", "2.1.0-beta",
        "Oldest NameNode version to register with.");
    PEER_STATS_ENABLED: bool = ("dfs.datanode.peer.stats.enabled", "false",
        "Whether slow peers are detected and reported.").reconfigurable();
    MIN_OUTLIER_DETECTION_NODES: u64 = ("dfs.datanode.min.outlier.detection.nodes", "10",
        "Peers needed before one can be slow.").reconfigurable();
    SLOW_PEER_LOW_THRESHOLD: Duration = ("dfs.datanode.slowpeer.low.threshold.ms", "5",
        "A faster peer is never slow.").millis().reconfigurable();
    PEER_OUTLIER_MIN_SAMPLES: u64 = (
        "dfs.datanode.peer.metrics.min.outlier.detection.samples", "1000",
        "Packets needed from a peer before it can be slow.").reconfigurable();
    FILEIO_PROFILING_PERCENTAGE: u32 = ("dfs.datanode.fileio.profiling.sampling.percentage", "0",
        "Share of disk operations sampled; above 0, slow disks are detected and reported.")
        .max(100).reconfigurable();
    OUTLIERS_REPORT_INTERVAL: Duration = ("dfs.datanode.outliers.report.interval", "30m",
        "Time between searches for slow peers and disks.").millis().reconfigurable();
    MIN_OUTLIER_DETECTION_DISKS: u64 = ("dfs.datanode.min.outlier.detection.disks", "5",
        "Disks needed before one can be slow.").reconfigurable();
    SLOW_DISK_LOW_THRESHOLD: Duration = ("dfs.datanode.slowdisk.low.threshold.ms", "20",
        "A faster disk is never slow.").millis().reconfigurable();
    MAX_SLOW_DISKS_TO_EXCLUDE: u32 = ("dfs.datanode.max.slowdisks.to.exclude", "0",
        "Slow disks that new replicas avoid, at most.").reconfigurable();
}
