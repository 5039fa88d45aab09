//! Keys that have an effect in Apache's DataNode and none here.
//!
//! - `common`: keys of `core-site.xml`, and of Hadoop's RPC, that the code of Apache's DataNode
//!   reads
//! - `flags`: flags and agents of the JVM, in the environment and in the scripts that set it
//! - `jvm_only_files`: what stands beside Hadoop's configuration files and only a JVM reads
//! - `read_java_files`: files of Java's and of the shell: lines that go on, keys and values,
//!   words
//! - `log4j`: `log4j.properties`: appenders that send lines somewhere else than to a file
//! - `metrics`: `hadoop-metrics2.properties`: sinks to which a JVM pushes its metrics
//!
//! A key set by an operator must do what it says or be answered. The start warns about these when
//! they are set to something else than Apache's default. What demands protection that is not there
//! yet is not in this table: [`super::Configuration::refuse_unprotected`] refuses to start.
//!
//! `java` has what stands beside the configuration and only a JVM reads.

mod common;
mod flags;
mod jvm_only_files;
#[cfg(test)]
mod jvm_only_files_tests;
mod log4j;
mod metrics;
mod read_java_files;

pub use jvm_only_files::missed_from_java;

/// One key without effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsupported {
    /// Name; one that ends in `.` stands for every key that begins with it, and `ipc.<port>.` for
    /// those of the node's own RPC port.
    pub name: &'static str,
    /// Apache's default: set to this, the key is not warned about.
    pub default: &'static str,
    /// Another value that asks for what is done here anyway: not warned about either.
    pub as_here: Option<&'static str>,
    /// What is ignored, as a sentence.
    pub ignored: &'static str,
}

const fn key(name: &'static str, default: &'static str, ignored: &'static str) -> Unsupported {
    Unsupported {
        name,
        default,
        as_here: None,
        ignored,
    }
}

/// A switch of something that is always as it is when set to `as_here`.
const fn always(
    name: &'static str,
    default: &'static str,
    as_here: &'static str,
    ignored: &'static str,
) -> Unsupported {
    Unsupported {
        name,
        default,
        as_here: Some(as_here),
        ignored,
    }
}

const SHORT_CIRCUIT: &str = "short-circuit reads are not served; clients read over TCP";
const CACHING: &str = "cache directives are not carried out";
const LAZY_PERSIST: &str = "LAZY_PERSIST files go to disk at once";
const DISK_BALANCER: &str = "disk balancer plans are refused";
const HTTP: &str = "the web port has no such setting yet";
const SASL: &str = "data transfer has no SASL here";
const KERBEROS: &str = "there is no Kerberos here";
const JAVA_CLASS: &str = "Java classes cannot be loaded into this process";
const RECONNECT: &str = "the node tries to reach a NameNode for ever";
const LOCKS: &str = "no lock is held across I/O here";

/// Every key without effect.
pub(super) fn all() -> impl Iterator<Item = &'static Unsupported> {
    DATANODE.iter().chain(common::COMMON)
}

impl Unsupported {
    /// Whether `value` asks for something else than what is done here.
    pub(super) fn asks_for_more(&self, value: &str) -> bool {
        value != self.default && Some(value) != self.as_here
    }

    /// What the names of all keys that this entry stands for begin with, when it is not one key.
    pub(super) fn prefix(&self, rpc_port: u16) -> Option<String> {
        self.name
            .ends_with('.')
            .then(|| self.name.replace("<port>", &rpc_port.to_string()))
    }
}

/// Keys that only nodes read, and others of `hdfs-site.xml`.
static DATANODE: &[Unsupported] = &[
    key("dfs.domain.socket.path", "", SHORT_CIRCUIT),
    key(
        "dfs.datanode.shared.file.descriptor.paths",
        "/dev/shm,/tmp",
        SHORT_CIRCUIT,
    ),
    key(
        "dfs.client.domain.socket.data.traffic",
        "false",
        SHORT_CIRCUIT,
    ),
    key("dfs.block.local-path-access.user", "", SHORT_CIRCUIT),
    key(
        "dfs.short.circuit.shared.memory.watcher.interrupt.check.ms",
        "60000",
        SHORT_CIRCUIT,
    ),
    key(
        "dfs.datanode.max.locked.memory",
        "0",
        "nothing is locked in memory, and LAZY_PERSIST files go to disk at once",
    ),
    key("dfs.datanode.pmem.cache.dirs", "", CACHING),
    key("dfs.datanode.pmem.cache.recovery", "true", CACHING),
    key(
        "dfs.datanode.fsdatasetcache.max.threads.per.volume",
        "4",
        CACHING,
    ),
    key(
        "dfs.datanode.cache.revocation.timeout.ms",
        "900000",
        CACHING,
    ),
    key("dfs.datanode.cache.revocation.polling.ms", "500", CACHING),
    key("dfs.cachereport.intervalMsec", "10000", CACHING),
    key("dfs.disk.balancer.plan.valid.interval", "1d", DISK_BALANCER),
    key(
        "dfs.disk.balancer.max.disk.throughputInMBperSec",
        "10",
        DISK_BALANCER,
    ),
    key("dfs.disk.balancer.max.disk.errors", "5", DISK_BALANCER),
    key(
        "dfs.disk.balancer.block.tolerance.percent",
        "10",
        DISK_BALANCER,
    ),
    key(
        "dfs.disk.balancer.plan.threshold.percent",
        "10",
        DISK_BALANCER,
    ),
    key("dfs.datanode.http.internal-proxy.port", "0", HTTP),
    key(
        "dfs.block.access.key.update.interval",
        "600",
        "block tokens are not checked",
    ),
    key(
        "dfs.block.access.token.lifetime",
        "600",
        "block tokens are not checked",
    ),
    key(
        "dfs.block.access.token.protobuf.enable",
        "false",
        "block tokens are not checked",
    ),
    key("dfs.encrypt.data.transfer.algorithm", "", SASL),
    key("dfs.encrypt.data.transfer.cipher.suites", "", SASL),
    key(
        "dfs.encrypt.data.transfer.cipher.key.bitlength",
        "128",
        SASL,
    ),
    key(
        "dfs.encrypt.data.overwrite.downstream.derived.qop",
        "false",
        SASL,
    ),
    key("dfs.data.transfer.saslproperties.resolver.class", "", SASL),
    key("dfs.trustedchannel.resolver.class", "", SASL),
    key(
        "hadoop.rpc.protection",
        "authentication",
        "RPC has no SASL here",
    ),
    key("dfs.datanode.kerberos.principal", "", KERBEROS),
    key("dfs.datanode.keytab.file", "", KERBEROS),
    key("dfs.datanode.plugins", "", JAVA_CLASS),
    key("dfs.datanode.fsdataset.factory", "", JAVA_CLASS),
    key("dfs.datanode.ram.disk.replica.tracker", "", LAZY_PERSIST),
    key(
        "fs.getspaceused.classname",
        "",
        "used space is counted from the replicas",
    ),
    key(
        "fs.getspaceused.jitterMillis",
        "60000",
        "used space is counted from the replicas",
    ),
    key("dfs.datanode.lock.fair", "true", LOCKS),
    key("dfs.datanode.lockmanager.trace", "false", LOCKS),
    key("dfs.datanode.lock.read.write.enabled", "true", LOCKS),
    key("dfs.datanode.lock-reporting-threshold-ms", "300", LOCKS),
    key(
        "dfs.datanode.volumes.replica-add.threadpool.size",
        "",
        LOCKS,
    ),
    key("dfs.datanode.lazywriter.interval.sec", "60", LAZY_PERSIST),
    key("dfs.datanode.non.local.lazy.persist", "false", LAZY_PERSIST),
    key(
        "dfs.datanode.dns.interface",
        "default",
        "the host name is the system's or dfs.datanode.hostname",
    ),
    key(
        "dfs.datanode.dns.nameserver",
        "default",
        "the host name is the system's or dfs.datanode.hostname",
    ),
    key(
        "dfs.datanode.nameservices.resolution-enabled",
        "false",
        "NameNode names are not expanded to several addresses",
    ),
    key(
        "dfs.datanode.fixed.volume.size",
        "false",
        "the file system tells a volume's capacity",
    ),
    key(
        "dfs.datanode.block.id.layout.upgrade.threads",
        "6",
        "layouts older than -57 are not upgraded here",
    ),
    key(
        "dfs.datanode.directoryscan.max.notify.count",
        "5",
        "differences are reported in the next block report",
    ),
    key(
        "dfs.datanode.network.counts.cache.max.size",
        "2147483647",
        "network errors are not counted per host",
    ),
    key(
        "dfs.datanode.max.nodes.to.report",
        "5",
        "every slow peer and disk is reported",
    ),
    key(
        "dfs.datanode.max.disks.to.report",
        "5",
        "every slow peer and disk is reported",
    ),
    key(
        "dfs.datanode.enable.fileio.fault.injection",
        "false",
        "faults are injected by the lab only",
    ),
    key("dfs.cluster.administrators", "", HTTP),
    always("dfs.disk.balancer.enabled", "true", "false", DISK_BALANCER),
    key("ipc.client.connect.max.retries", "10", RECONNECT),
    key("ipc.client.connect.retry.interval", "1000", RECONNECT),
    key(
        "dfs.datanode.metrics.logger.period.seconds",
        "600",
        "counters are not logged",
    ),
    key(
        "dfs.datanode.directoryscan.threads",
        "1",
        "volumes are compared one after the other",
    ),
    key(
        "dfs.block.scanner.skip.recent.accessed",
        "false",
        "every replica is verified, read recently or not",
    ),
    key(
        "dfs.datanode.parallel.volumes.load.threads.num",
        "",
        "all volumes are read at once at start",
    ),
    key(
        "dfs.datanode.replica.cache.root.dir",
        "",
        "each volume has its own list of replicas",
    ),
    always(
        "dfs.datanode.sync.behind.writes.in.background",
        "false",
        "true",
        "write-back always runs in the background",
    ),
    key(
        "dfs.datanode.oob.timeout-ms",
        "1500,0,0,0",
        "no writer is waited for at a restart",
    ),
    key(
        "fs.du.interval",
        "600000",
        "used space is counted from the replicas",
    ),
];
