//! HBase's write-ahead log in its kinds.

use serde_json::{Value, json};

/// Threads that append to a log and sync it, as handlers of a region server.
const THREADS: usize = 8;

/// A write-ahead log as HBase has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WalLog {
    /// Each node has its own connection to HBase, which writes with a client of its own.
    AsyncFs {
        /// `hbase.wal.hsync`: a sync is an hsync, else an hflush.
        hsync: bool,
    },
    /// The nodes form a pipeline behind HDFS's own client.
    FileSystem {
        /// `hbase.wal.hsync`: a sync is an hsync, else an hflush.
        hsync: bool,
    },
}

impl WalLog {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::AsyncFs { hsync: false },
        Self::FileSystem { hsync: false },
        Self::AsyncFs { hsync: true },
        Self::FileSystem { hsync: true },
    ];

    /// The name of its row.
    #[must_use]
    pub const fn row(self) -> &'static str {
        match self {
            Self::AsyncFs { hsync: false } => "wal-asyncfs",
            Self::FileSystem { hsync: false } => "wal-filesystem",
            Self::AsyncFs { hsync: true } => "wal-asyncfs-hsync",
            Self::FileSystem { hsync: true } => "wal-filesystem-hsync",
        }
    }

    /// What it is, in a line.
    #[must_use]
    pub fn about(self) -> String {
        let how = if self.hsyncs() { "hsync" } else { "hflush" };
        let (name, threads) = (self.provider(), THREADS);
        format!("HBase's log {name}, {threads} threads: 1 KB, {how}; 3 replicas, favored nodes")
    }

    /// Whether what is synced is on the nodes' disks.
    #[must_use]
    pub const fn hsyncs(self) -> bool {
        let (Self::AsyncFs { hsync } | Self::FileSystem { hsync }) = self;
        hsync
    }

    /// Its `hbase.wal.provider`.
    const fn provider(self) -> &'static str {
        match self {
            Self::AsyncFs { .. } => "asyncfs",
            Self::FileSystem { .. } => "filesystem",
        }
    }

    /// What `hadoop/hbase/Wal.java` is asked for: so many edits of each thread, on these nodes.
    pub(super) fn request(self, dir: &str, edits: u32, nodes: &[String]) -> Value {
        json!({
            "path": format!("{dir}/{}", self.row()), "provider": self.provider(),
            "hsync": self.hsyncs(), "threads": THREADS, "edits": edits, "bytes": 1024,
            "nodes": nodes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_asks_for_the_log_that_it_names() {
        for log in WalLog::ALL {
            let asked = log.request("/d", 7, &["127.0.0.1:1".into()]);
            let named = asked["provider"].as_str().expect("a provider");
            let hsync = if asked["hsync"] == true { "-hsync" } else { "" };
            assert_eq!(log.row(), format!("wal-{named}{hsync}"));
            assert_eq!(log.about().contains("hsync"), log.hsyncs());
            assert_eq!(asked["nodes"][0], "127.0.0.1:1");
        }
    }
}
