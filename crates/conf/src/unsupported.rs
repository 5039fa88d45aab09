//! Keys that have an effect in Apache's DataNode and none here.
//!
//! - `common`: keys of `core-site.xml`, and of Hadoop's RPC, that the code of Apache's DataNode
//!   reads
//! - `flags`: flags and agents of the JVM, in the environment and in the scripts that set it
//! - `jvm_only_files`: what stands beside Hadoop's configuration files and only a JVM reads
//! - `log4j`: `log4j.properties`: appenders that send lines somewhere else than to a file
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

use std::sync::LazyLock;

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

/// Keys of which the same is ignored.
struct Group {
    ignored: &'static str,
    /// `name=default`, and where a switch stands here `name=default|as here`.
    keys: &'static [&'static str],
}

const fn ignoring(ignored: &'static str) -> Group {
    Group { ignored, keys: &[] }
}

impl Group {
    const fn of(self, keys: &'static [&'static str]) -> Self {
        Self { keys, ..self }
    }

    fn entries(&self) -> impl Iterator<Item = Unsupported> {
        self.keys.iter().map(|key| {
            let (name, value) = key.split_once('=').unwrap_or((key, ""));
            let switch = value.split_once('|');
            Unsupported {
                name,
                default: switch.map_or(value, |(default, _)| default),
                as_here: switch.map(|(_, as_here)| as_here),
                ignored: self.ignored,
            }
        })
    }
}

const SHORT_CIRCUIT: &str = "descriptors are passed over dfs.domain.socket.path, and shared memory \
    is in no file";
const CACHING: &str = "replicas are cached in memory, not in persistent memory";
const LAZY_PERSIST: &str = "the replica that was used longest ago leaves memory first";
const HTTP: &str = "the web port has no such setting yet";
const JAVA_CLASS: &str = "Java classes cannot be loaded into this process";
const RECONNECT: &str = "the node tries to reach a NameNode for ever";
const LOCKS: &str = "no lock is held across I/O here";

/// Every key without effect.
pub(super) fn all() -> impl Iterator<Item = &'static Unsupported> {
    static ALL: LazyLock<Vec<Unsupported>> = LazyLock::new(|| {
        let groups = DATANODE.iter().chain(common::COMMON);
        groups.flat_map(Group::entries).collect()
    });
    ALL.iter()
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
static DATANODE: &[Group] = &[
    ignoring(SHORT_CIRCUIT).of(&[
        "dfs.datanode.shared.file.descriptor.paths=/dev/shm,/tmp",
        "dfs.block.local-path-access.user=",
        "dfs.short.circuit.shared.memory.watcher.interrupt.check.ms=60000",
    ]),
    ignoring(CACHING).of(&[
        "dfs.datanode.pmem.cache.dirs=",
        "dfs.datanode.pmem.cache.recovery=true",
    ]),
    ignoring(HTTP).of(&["dfs.datanode.http.internal-proxy.port=0"]),
    ignoring(JAVA_CLASS).of(&["dfs.datanode.plugins=", "dfs.datanode.fsdataset.factory="]),
    ignoring(LAZY_PERSIST).of(&["dfs.datanode.ram.disk.replica.tracker="]),
    ignoring("used space is counted from the replicas").of(&[
        "fs.getspaceused.classname=",
        "fs.getspaceused.jitterMillis=60000",
    ]),
    ignoring(LOCKS).of(&[
        "dfs.datanode.lock.fair=true",
        "dfs.datanode.lockmanager.trace=false",
        "dfs.datanode.lock.read.write.enabled=true",
        "dfs.datanode.lock-reporting-threshold-ms=300",
        "dfs.datanode.volumes.replica-add.threadpool.size=",
    ]),
    ignoring("the host name is the system's or dfs.datanode.hostname").of(&[
        "dfs.datanode.dns.interface=default",
        "dfs.datanode.dns.nameserver=default",
    ]),
    ignoring("NameNode names are not expanded to several addresses")
        .of(&["dfs.datanode.nameservices.resolution-enabled=false"]),
    ignoring("the file system tells a volume's capacity")
        .of(&["dfs.datanode.fixed.volume.size=false"]),
    ignoring("layouts older than -57 are not upgraded here")
        .of(&["dfs.datanode.block.id.layout.upgrade.threads=6"]),
    ignoring("differences are reported in the next block report")
        .of(&["dfs.datanode.directoryscan.max.notify.count=5"]),
    ignoring("network errors are not counted per host")
        .of(&["dfs.datanode.network.counts.cache.max.size=2147483647"]),
    ignoring("every slow peer and disk is reported").of(&[
        "dfs.datanode.max.nodes.to.report=5",
        "dfs.datanode.max.disks.to.report=5",
    ]),
    ignoring("faults are injected by the lab only")
        .of(&["dfs.datanode.enable.fileio.fault.injection=false"]),
    ignoring(RECONNECT).of(&[
        "ipc.client.connect.max.retries=10",
        "ipc.client.connect.retry.interval=1000",
    ]),
    ignoring("counters are not logged").of(&["dfs.datanode.metrics.logger.period.seconds=600"]),
    ignoring("volumes are compared one after the other")
        .of(&["dfs.datanode.directoryscan.threads=1"]),
    ignoring("every replica is verified, read recently or not")
        .of(&["dfs.block.scanner.skip.recent.accessed=false"]),
    ignoring("all volumes are read at once at start")
        .of(&["dfs.datanode.parallel.volumes.load.threads.num="]),
    ignoring("each volume has its own list of replicas")
        .of(&["dfs.datanode.replica.cache.root.dir="]),
    ignoring("write-back always runs in the background")
        .of(&["dfs.datanode.sync.behind.writes.in.background=false|true"]),
    ignoring("no writer is waited for at a restart")
        .of(&["dfs.datanode.oob.timeout-ms=1500,0,0,0"]),
    ignoring("used space is counted from the replicas").of(&["fs.du.interval=600000"]),
];
