//! Apache's DataNode at its best for what its data lie on, and ours beside it: the one description
//! that the benchmark and all experiments use. A test keeps its keys and flags out of other files.

use hayloft_testkit::hadoop::repository_root;
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::modelled::MEDIA;
use hayloft_testkit::node::{Kind, NodeSpec, VolumeSpec};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Block size of every file unless an experiment says another and why, MiB: Hadoop's default.
pub const BLOCK_MIB: u32 = 128;

/// Flags of JVMs that are measured: those of Hadoop's scripts. Compilers, collectors and heap are
/// the JVM's own choice.
pub const JVM_FLAGS: [&str; 1] = ["-Djava.net.preferIPv4Stack=true"];
/// Heap of a client that stays for a whole run.
const CLIENT_HEAP: &str = "-Xmx1g";

/// What data lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// The machine's own disk, whatever it is.
    Own,
    /// A disk that rotates, modelled or real.
    Rotating,
    /// A file system in memory.
    Memory,
}

/// A setting of the stock node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stock {
    /// As its documentation advises for throughput.
    Plain,
    /// It sends to the disk what comes while it comes, and keeps none of it in the page cache.
    Drop,
    /// A block is on the disk when its close is acknowledged.
    Sync,
    /// The same, and what comes is sent to the disk while it comes.
    SyncBehind,
}

impl Stock {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Drop, Self::Sync, Self::SyncBehind];

    /// Those that take part where what is closed is, or need not be, on the disk.
    #[must_use]
    pub const fn at_best(medium: Medium, sync_on_close: bool) -> &'static [Self] {
        match (medium, sync_on_close) {
            (Medium::Memory, _) => &[Self::Plain],
            (_, true) => &[Self::Sync, Self::SyncBehind],
            (_, false) => &[Self::Plain, Self::Drop],
        }
    }

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "stock",
            Self::Drop => "stock-drop",
            Self::Sync => "stock-sync",
            Self::SyncBehind => "stock-behind",
        }
    }

    /// The setting that a testbed's `apache` is, or `apache-behind`.
    #[must_use]
    pub const fn of(behind: bool, sync_on_close: bool) -> Self {
        match (behind, sync_on_close) {
            (false, false) => Self::Plain,
            (true, false) => Self::Drop,
            (false, true) => Self::Sync,
            (true, true) => Self::SyncBehind,
        }
    }

    /// What a testbed calls it.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Plain | Self::Sync => "apache",
            Self::Drop | Self::SyncBehind => "apache-behind",
        }
    }

    /// Its configuration.
    #[must_use]
    pub fn conf(self) -> Conf {
        let mut conf = Conf::new();
        conf.set("io.file.buffer.size", 128 << 10)
            .set("dfs.datanode.readahead.bytes", 4 << 20);
        if matches!(self, Self::Drop) {
            conf.set("dfs.datanode.drop.cache.behind.writes", true);
        }
        if matches!(self, Self::Drop | Self::SyncBehind) {
            conf.set("dfs.datanode.sync.behind.writes", true);
        }
        if matches!(self, Self::Sync | Self::SyncBehind) {
            conf.set("dfs.datanode.synconclose", true);
        }
        conf
    }

    /// A node with it on this directory.
    #[must_use]
    pub fn node(self, volume: VolumeSpec) -> NodeSpec {
        let mut spec = NodeSpec::new(Kind::Apache).volumes(vec![volume]);
        spec.conf = self.conf();
        spec.jvm_flags = Some(jvm_flags());
        spec
    }

    /// What the names mean, for a page.
    pub const EXPLAINED: &'static str = concat!(
        "`stock`: Apache's DataNode in a JVM with its defaults, with `io.file.buffer.size` of 128 ",
        "KiB and 4 MiB of read-ahead. `stock-drop`: also `dfs.datanode.drop.cache.behind.writes` ",
        "and `sync.behind.writes`. `stock-sync`: with `dfs.datanode.synconclose`. `stock-behind`: ",
        "that and `sync.behind.writes`.",
    );
}

/// Whether a peer is a stock node.
#[must_use]
pub fn is_stock(peer: &str) -> bool {
    peer == "stock" || peer.starts_with("stock-")
}

/// Configuration of our node on the same medium.
#[must_use]
pub fn ours(medium: Medium, sync_on_close: bool) -> Conf {
    let mut conf = Conf::new();
    if medium == Medium::Rotating {
        conf.set(MEDIA.0, MEDIA.1);
    }
    if sync_on_close {
        // The page cache of one machine would hide disks from a dozen nodes.
        conf.set("hayloft.io.engine", "direct")
            .set("dfs.datanode.synconclose", true);
    }
    conf
}

/// The directory with libhadoop, for stock nodes and Java clients.
///
/// # Errors
/// That it is not there, and how to get it.
pub fn libhadoop() -> Result<PathBuf, String> {
    let dir = repository_root().join("target/libhadoop");
    if dir.join("libhadoop.so").is_file() {
        return Ok(dir);
    }
    Err("there is no libhadoop: run scripts/fetch-libhadoop".into())
}

/// [`JVM_FLAGS`], as processes take them, and where libhadoop is if it is there, as in Apache's own
/// packages. Without it a stock node leaves out what it is told of read-ahead and of pages to drop
/// or to push, and says nothing.
#[must_use]
pub fn jvm_flags() -> Vec<String> {
    let native = libhadoop().map(|dir| format!("-Djava.library.path={}", dir.display()));
    let flags = JVM_FLAGS.map(String::from).into_iter();
    flags.chain(native).collect()
}

/// Flags of a stock client that stays for a whole run, the same for every peer.
#[must_use]
pub fn client_flags() -> Vec<String> {
    let heap = std::iter::once(CLIENT_HEAP.to_owned());
    heap.chain(jvm_flags()).collect()
}

/// The same for a client of another version than libhadoop is.
#[must_use]
pub fn client_flags_without_native() -> Vec<String> {
    let flags = JVM_FLAGS.map(String::from).into_iter();
    std::iter::once(CLIENT_HEAP.to_owned())
        .chain(flags)
        .collect()
}

/// The settings of those that take part, beside Hadoop's defaults, and whether all of them have an
/// effect, for a record.
#[must_use]
pub fn settings(takes_part: impl Fn(&str) -> bool) -> String {
    let one = |stock: Stock| {
        let conf = stock.conf();
        let pairs: Vec<String> = conf.iter().map(|(k, v)| format!("{k}={v}")).collect();
        format!("{}: {}", stock.name(), pairs.join(" "))
    };
    let all = Stock::ALL
        .into_iter()
        .filter(|stock| takes_part(stock.name()));
    let mut said: Vec<String> = all.map(one).collect();
    if !said.is_empty() {
        said.push(match libhadoop() {
            Ok(_) => "with libhadoop".into(),
            Err(_) => "without libhadoop: no read-ahead, no drop or sync behind writes".into(),
        });
    }
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_node_is_never_without_buffers_and_compiler() {
        for medium in [Medium::Own, Medium::Rotating, Medium::Memory] {
            for sync_on_close in [false, true] {
                for stock in Stock::at_best(medium, sync_on_close) {
                    let node = stock.node(VolumeSpec::at("/d"));
                    assert_eq!(node.conf.get("io.file.buffer.size"), Some("131072"));
                    assert!(node.conf.get("dfs.datanode.readahead.bytes").is_some());
                    let flags = node.jvm_flags.expect("its own").concat();
                    assert!(!flags.contains("-XX") && !flags.contains("-Xm"), "{flags}");
                    assert!(is_stock(stock.name()) && !is_stock("Hayloft"));
                    let syncs = node.conf.get("dfs.datanode.synconclose").is_some();
                    assert_eq!(syncs, sync_on_close && medium != Medium::Memory);
                }
            }
        }
    }

    #[test]
    fn a_record_says_whether_all_settings_have_an_effect() {
        assert_eq!(settings(|_| false), "");
        let with = settings(|name| name == "stock").ends_with("; with libhadoop");
        assert_eq!(with, libhadoop().is_ok());
    }

    #[test]
    fn on_disks_stock_has_both_ways_to_write_behind() {
        let behind = |stock: &Stock| {
            stock
                .conf()
                .get("dfs.datanode.sync.behind.writes")
                .is_some()
        };
        for sync_on_close in [false, true] {
            let best = Stock::at_best(Medium::Rotating, sync_on_close);
            assert_eq!(best.iter().filter(|stock| behind(stock)).count(), 1);
            assert_eq!(best.len(), 2);
            for stock in best {
                assert_eq!(Stock::of(behind(stock), sync_on_close), *stock);
                assert_eq!(stock.kind() == "apache-behind", behind(stock));
            }
        }
    }
}
