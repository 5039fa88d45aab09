//! What can be measured, by name.

pub use super::client::Client;
use super::disk_balancer::Balancing;
use super::encryption::BenchCipher;
use super::local_read::LocalRead;
use super::wal_log::WalLog;
use std::fmt;

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BenchWorkload {
    /// So many files written at the same time.
    Write(u32),
    /// They are read at the same time, the page cache empty.
    Cold(u32),
    /// They are read at the same time when they have been read twice, from the page cache where
    /// there is one.
    Warm(u32),
    /// Files that were written at the same time, read by one reader, the page cache empty.
    ReadBack,
    /// Random positional reads of 64 KiB, so many in flight, the page cache empty.
    Pread(u32),
    /// Two writers and two cold readers.
    Mixed,
    /// Records of 1 KB that are hflushed one by one, beside four writers.
    Hflush,
    /// So many logs at the same time, each record of 1 KB hflushed.
    Hflushed(u32),
    /// The same, hsynced.
    Hsynced(u32),
    /// HBase's write-ahead log.
    Wal(WalLog),
    /// Files of 10 KB, created by four clients.
    SmallFiles,
    /// The same by a client that asks again after 10 ms, not 400, when the NameNode refuses a
    /// close.
    PromptSmallFiles,
    /// One writer through a pipeline of three nodes.
    Replicated,
    /// Reads by the Java client with libhadoop.
    Local {
        /// What it reads.
        read: LocalRead,
        /// Whether over TCP, or by itself from files that the node passes.
        tcp: bool,
    },
    /// A node's disk balancer and readers of other blocks.
    DiskBalancer(Balancing),
    /// The device by itself, and loopback TCP.
    Limits,
    /// Start-up with many blocks.
    Start,
}

impl fmt::Display for BenchWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(streams) => write!(f, "write-{streams}"),
            Self::Cold(streams) => write!(f, "cold-{streams}"),
            Self::Warm(streams) => write!(f, "warm-{streams}"),
            Self::ReadBack => f.write_str("read-back"),
            Self::Pread(in_flight) => write!(f, "pread-{in_flight}"),
            Self::Mixed => f.write_str("mixed"),
            Self::Hflush => f.write_str("hflush"),
            Self::Hflushed(logs) => write!(f, "hflush-{logs}"),
            Self::Hsynced(logs) => write!(f, "hsync-{logs}"),
            Self::Wal(log) => f.write_str(log.row()),
            Self::SmallFiles => f.write_str("small-files"),
            Self::PromptSmallFiles => f.write_str("small-files-prompt"),
            Self::Replicated => f.write_str("replicated-3"),
            Self::Local { read, tcp } => f.write_str(read.row(*tcp)),
            Self::DiskBalancer(what) => f.write_str(what.row()),
            Self::Limits => f.write_str("limits"),
            Self::Start => f.write_str("start"),
        }
    }
}

/// A direction of the raw device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceTransfer {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

impl BenchWorkload {
    /// What it is, in a line.
    #[must_use]
    pub fn about(self) -> String {
        let count = |n: u32, one: &str, more: &str| match n {
            1 => one.to_owned(),
            n => format!("{n} {more}"),
        };
        match self {
            Self::Write(n) => format!("{}, replication 1", count(n, "one writer", "writers")),
            Self::Cold(n) => format!("{}, page cache empty", count(n, "one reader", "readers")),
            Self::Warm(n) => format!("{}, read twice before", count(n, "one reader", "readers")),
            Self::ReadBack => "one cold reader of files that 4 writers wrote together".into(),
            Self::Pread(n) => format!("random reads of 64 KiB, {n} in flight, page cache empty"),
            Self::Mixed => "two writers and two cold readers".into(),
            Self::Hflush => "1 KB hflushed again and again beside 4 writers".into(),
            Self::Hflushed(n) => {
                format!("{}, 1 KB hflushed each time", count(n, "one log", "logs"))
            }
            Self::Hsynced(n) => format!("{}, 1 KB hsynced each time", count(n, "one log", "logs")),
            Self::Wal(log) => log.about(),
            Self::SmallFiles => "files of 10 KB created by 4 clients".into(),
            Self::PromptSmallFiles => "the same, refused closes repeated after 10 ms".into(),
            Self::Replicated => "one writer, replication 3".into(),
            Self::Local { read, tcp } => read.about(tcp),
            Self::DiskBalancer(what) => what.about().into(),
            Self::Limits => "the device by O_DIRECT, loopback TCP".into(),
            Self::Start => "start with many blocks (not in a run without --blocks)".into(),
        }
    }

    /// Whether an engine that keeps no data can do it.
    #[must_use]
    pub const fn writes_only(self) -> bool {
        matches!(
            self,
            Self::Write(_)
                | Self::Hflush
                | Self::Hflushed(_)
                | Self::Hsynced(_)
                | Self::Wal(_)
                | Self::SmallFiles
                | Self::PromptSmallFiles
                | Self::Replicated
        )
    }

    /// Whether it leaves something to be written when its client is done.
    #[must_use]
    pub const fn settles(self) -> bool {
        self.writes_only() || matches!(self, Self::Mixed | Self::DiskBalancer(Balancing::Move))
    }

    /// How many files are written or read one after the other at the same time.
    #[must_use]
    pub const fn streams(self) -> Option<u32> {
        match self {
            Self::Write(n) | Self::Cold(n) | Self::Warm(n) => Some(n),
            Self::ReadBack | Self::Replicated => Some(1),
            Self::Local { read, .. } if !read.counts_operations() => Some(1),
            _ => None,
        }
    }

    /// Whether it counts operations: their latency matters, not the bytes.
    #[must_use]
    pub const fn counts_operations(self) -> bool {
        match self {
            Self::Local { read, .. } => read.counts_operations(),
            Self::DiskBalancer(what) => what.reads(),
            _ => matches!(
                self,
                Self::Pread(_)
                    | Self::Hflush
                    | Self::Hflushed(_)
                    | Self::Hsynced(_)
                    | Self::Wal(_)
                    | Self::SmallFiles
                    | Self::PromptSmallFiles
            ),
        }
    }

    /// Whether the stock node and the client have libhadoop.
    #[must_use]
    pub const fn needs_libhadoop(self) -> bool {
        matches!(self, Self::Local { .. })
    }

    /// Whether the client is HBase.
    #[must_use]
    pub const fn needs_hbase(self) -> bool {
        matches!(self, Self::Wal(_))
    }

    /// How many of a peer's nodes take part.
    #[must_use]
    pub const fn nodes(self) -> usize {
        match self {
            Self::Replicated | Self::Wal(_) => 3,
            _ => 1,
        }
    }

    /// Whether a node does some of it: not of what a client reads by itself from files that it has
    /// been passed.
    #[must_use]
    pub const fn is_done_by_a_node(self) -> bool {
        match self {
            Self::Local { read, tcp } => tcp || matches!(read, LocalRead::Descriptors),
            _ => true,
        }
    }

    /// What of the raw device may bound it.
    #[must_use]
    pub const fn bound_by(self) -> Option<DeviceTransfer> {
        match self {
            Self::Write(_) => Some(DeviceTransfer::Write),
            Self::Cold(_) => Some(DeviceTransfer::Read),
            _ => None,
        }
    }
}

/// A workload by a client: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BenchRow {
    /// What is done.
    pub workload: BenchWorkload,
    /// By whom.
    pub client: Client,
    /// What encrypts its data.
    pub cipher: Option<BenchCipher>,
}

impl BenchRow {
    /// The row whose data is in clear.
    #[must_use]
    pub const fn new(workload: BenchWorkload, client: Client) -> Self {
        Self {
            workload,
            client,
            cipher: None,
        }
    }

    /// The same row with a cipher, if its client has that: hdfs-native has no RC4, the load client
    /// none at all. Files that are passed are read in clear, and HBase writes so.
    #[must_use]
    pub fn encrypted(self, cipher: BenchCipher) -> Option<Self> {
        let has_it = match self.client {
            Client::Java => !self.workload.needs_libhadoop() && !self.workload.needs_hbase(),
            Client::HdfsNative => cipher != BenchCipher::Rc4,
            Client::Load | Client::None => false,
        };
        let cipher = Some(cipher);
        has_it.then_some(Self { cipher, ..self })
    }

    /// The row of that name and client.
    #[must_use]
    pub fn named(name: &str, client: Client) -> Option<Self> {
        let (workload, cipher) = BenchCipher::of_row(name);
        let fits = |row: &Self| row.client == client && row.workload.to_string() == workload;
        let row = all().into_iter().find(fits)?;
        cipher.map_or(Some(row), |cipher| row.encrypted(cipher))
    }

    /// Its name in records: the workload's, and the cipher's behind it.
    #[must_use]
    pub fn name(&self) -> String {
        let cipher = self.cipher.map(|cipher| format!("-{cipher}"));
        format!("{}{}", self.workload, cipher.unwrap_or_default())
    }
}

impl fmt::Display for BenchRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name(), self.client.name())
    }
}

/// Every row: those of the clients that users have, then the limits.
#[must_use]
pub fn all() -> Vec<BenchRow> {
    let limits = BenchRow::new(BenchWorkload::Limits, Client::None);
    let stages = stages();
    let (of_users, limited): (Vec<_>, Vec<_>) = stages
        .into_iter()
        .flat_map(Stage::rows)
        .partition(|row| row.client.is_of_users());
    [of_users, vec![limits], limited].concat()
}

/// Files of one kind of a client, and the rows that they are good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Written by so many writers.
    Files(Client, u32),
    /// Written by four writers together, and read for the first time by one.
    ReadBack,
    Mixed,
    Hflush,
    /// Logs by the Java client.
    Logs,
    /// HBase's logs.
    Wals,
    SmallFiles(Client),
    Replicated(Client),
    /// One file that the Java client reads by itself, and over TCP.
    Local,
    /// Small files whose descriptors it asks for.
    Descriptors,
    /// Files on two volumes, of which one is emptied.
    DiskBalancer,
}

/// In the order of a round.
pub(super) fn stages() -> Vec<Stage> {
    let of = |client| {
        [
            Stage::Files(client, 1),
            Stage::Files(client, 4),
            Stage::Replicated(client),
            Stage::SmallFiles(client),
        ]
    };
    let clients = [Client::Java, Client::HdfsNative, Client::Load];
    let mut stages: Vec<Stage> = clients.into_iter().flat_map(of).collect();
    let only_load = [
        Stage::ReadBack,
        Stage::Files(Client::Load, 16),
        Stage::Mixed,
        Stage::Hflush,
        Stage::DiskBalancer,
    ];
    stages.extend([Stage::Logs, Stage::Wals, Stage::Local, Stage::Descriptors]);
    stages.extend(only_load);
    stages
}

impl Stage {
    /// Its rows in the order in which they can be measured.
    pub(super) fn rows(self) -> Vec<BenchRow> {
        use BenchWorkload::{Cold, Pread, Warm, Write};
        let (client, workloads) = match self {
            // The driver of the Java client has no positional reads.
            Self::Files(client, 4) if client != Client::Java => (
                client,
                vec![Write(4), Cold(4), Warm(4), Pread(1), Pread(16), Pread(64)],
            ),
            Self::Files(client, n) => (client, vec![Write(n), Cold(n), Warm(n)]),
            Self::ReadBack => (Client::Load, vec![BenchWorkload::ReadBack]),
            Self::Mixed => (Client::Load, vec![BenchWorkload::Mixed]),
            Self::Hflush => (Client::Load, vec![BenchWorkload::Hflush]),
            Self::Logs => {
                let flushed = [1, 4, 16].map(BenchWorkload::Hflushed);
                let synced = [1, 4, 16].map(BenchWorkload::Hsynced);
                (Client::Java, [flushed, synced].concat())
            }
            Self::Wals => (Client::Java, WalLog::ALL.map(BenchWorkload::Wal).to_vec()),
            // Of the clients the Java one alone lets its wait be set.
            Self::SmallFiles(Client::Java) => (
                Client::Java,
                vec![BenchWorkload::SmallFiles, BenchWorkload::PromptSmallFiles],
            ),
            Self::SmallFiles(client) => (client, vec![BenchWorkload::SmallFiles]),
            Self::Replicated(client) => (client, vec![BenchWorkload::Replicated]),
            Self::Local => {
                // TCP first: a client that reads by itself fills the page cache.
                let ways = [true, false].into_iter();
                let reads = |tcp| LocalRead::of_a_file(tcp).map(move |read| (read, tcp));
                let reads = ways.flat_map(reads);
                let rows = reads.map(|(read, tcp)| BenchWorkload::Local { read, tcp });
                (Client::Java, rows.collect())
            }
            Self::Descriptors => {
                let (read, tcp) = (LocalRead::Descriptors, false);
                (Client::Java, vec![BenchWorkload::Local { read, tcp }])
            }
            Self::DiskBalancer => {
                let rows = Balancing::ALL.map(BenchWorkload::DiskBalancer);
                (Client::Load, rows.to_vec())
            }
        };
        let row = |workload| BenchRow::new(workload, client);
        workloads.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let rows = all();
        for row in &rows {
            let name = row.workload.to_string();
            assert_eq!(BenchRow::named(&name, row.client), Some(*row));
            let same = |other: &&BenchRow| other.to_string() == row.to_string();
            assert_eq!(rows.iter().filter(same).count(), 1, "{row}");
        }
        assert_eq!(BenchRow::named("write-3", Client::Java), None);
        let row = BenchRow::named("cold-4-aes", Client::HdfsNative).expect("has AES");
        assert_eq!(row.cipher, Some(BenchCipher::Aes));
        assert_eq!(row.to_string(), "cold-4-aes/hdfs-native");
        assert_eq!(BenchRow::named("cold-4-rc4", Client::HdfsNative), None);
        assert_eq!(BenchRow::named("write-1-aes", Client::Load), None);
        assert_eq!(BenchRow::named("local-warm-1-aes", Client::Java), None);
        assert_eq!(BenchRow::named("wal-asyncfs-aes", Client::Java), None);
        let of_a_file = Stage::Local.rows();
        let of_a_file: Vec<String> = of_a_file.iter().map(BenchRow::name).collect();
        let tcp = "tcp-cold-1 tcp-warm-1 tcp-pread-1";
        let alone = "local-cold-1 local-warm-1 local-pread-1 zero-copy-warm-1";
        assert_eq!(of_a_file.join(" "), format!("{tcp} {alone}"));
        let by_node = rows.iter().filter(|row| !row.workload.is_done_by_a_node());
        let by_client: Vec<String> = by_node.map(BenchRow::name).collect();
        assert_eq!(by_client.join(" "), alone);
    }
}
