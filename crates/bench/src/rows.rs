//! What can be measured, by name.

use super::raw::RawTransfer;
use serde::{Deserialize, Serialize};
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
    /// Files of 10 KB, created by four clients.
    SmallFiles,
    /// One writer through a pipeline of three nodes.
    Replicated,
    /// The device by itself, and loopback TCP.
    Limits,
    /// Start-up with many blocks.
    Start,
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// The stock Java client.
    Java,
    /// The load client of this crate; the NameNode is as real.
    Native,
    /// No HDFS client takes part.
    None,
}

impl Client {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::Native => "native",
            Self::None => "-",
        }
    }
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
            Self::SmallFiles => f.write_str("small-files"),
            Self::Replicated => f.write_str("replicated-3"),
            Self::Limits => f.write_str("limits"),
            Self::Start => f.write_str("start"),
        }
    }
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
            Self::Hflush => "records of 1 KB hflushed one by one, beside 4 writers".into(),
            Self::SmallFiles => "files of 10 KB created by 4 clients".into(),
            Self::Replicated => "one writer, replication 3".into(),
            Self::Limits => "the device by O_DIRECT, loopback TCP".into(),
            Self::Start => "start with many blocks (not in a run without --blocks)".into(),
        }
    }

    /// Whether an engine that keeps no data can do it.
    #[must_use]
    pub const fn writes_only(self) -> bool {
        matches!(
            self,
            Self::Write(_) | Self::Hflush | Self::SmallFiles | Self::Replicated
        )
    }

    /// What of the raw device may bound it.
    #[must_use]
    pub const fn bound_by(self) -> Option<RawTransfer> {
        match self {
            Self::Write(_) => Some(RawTransfer::Write),
            Self::Cold(_) => Some(RawTransfer::Read),
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
}

impl fmt::Display for BenchRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.workload, self.client.name())
    }
}

/// Every row, in the order of a round.
#[must_use]
pub fn all() -> Vec<BenchRow> {
    use BenchWorkload::{
        Cold, Hflush, Limits, Mixed, Pread, ReadBack, Replicated, SmallFiles, Warm, Write,
    };
    let both = [
        Write(1),
        Cold(1),
        Warm(1),
        Write(4),
        Cold(4),
        Warm(4),
        Replicated,
        SmallFiles,
    ];
    let native = [
        ReadBack,
        Pread(1),
        Pread(16),
        Pread(64),
        Write(16),
        Cold(16),
        Mixed,
        Hflush,
    ];
    let row = |client| move |&workload: &BenchWorkload| BenchRow { workload, client };
    let mut rows = vec![BenchRow {
        workload: Limits,
        client: Client::None,
    }];
    rows.extend(both.iter().map(row(Client::Native)));
    rows.extend(native.iter().map(row(Client::Native)));
    rows.extend(both.iter().map(row(Client::Java)));
    rows
}

/// Files of one kind, and the rows that they are good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Written by so many writers of a client.
    Files(Client, u32),
    /// Written by four writers together, and read for the first time by one.
    ReadBack,
    Mixed,
    Hflush,
    SmallFiles(Client),
    Replicated(Client),
}

/// In the order of a round.
pub(super) const STAGES: [Stage; 12] = [
    Stage::Files(Client::Native, 1),
    Stage::Files(Client::Native, 4),
    Stage::ReadBack,
    Stage::Files(Client::Native, 16),
    Stage::Replicated(Client::Native),
    Stage::Mixed,
    Stage::Hflush,
    Stage::SmallFiles(Client::Native),
    Stage::Files(Client::Java, 1),
    Stage::Files(Client::Java, 4),
    Stage::Replicated(Client::Java),
    Stage::SmallFiles(Client::Java),
];

impl Stage {
    /// Its rows in the order in which they can be measured.
    pub(super) fn rows(self) -> Vec<BenchRow> {
        use BenchWorkload::{Cold, Pread, Warm, Write};
        let (client, workloads) = match self {
            Self::Files(client, 4) if client == Client::Native => (
                client,
                vec![Write(4), Cold(4), Warm(4), Pread(1), Pread(16), Pread(64)],
            ),
            Self::Files(client, n) => (client, vec![Write(n), Cold(n), Warm(n)]),
            Self::ReadBack => (Client::Native, vec![BenchWorkload::ReadBack]),
            Self::Mixed => (Client::Native, vec![BenchWorkload::Mixed]),
            Self::Hflush => (Client::Native, vec![BenchWorkload::Hflush]),
            Self::SmallFiles(client) => (client, vec![BenchWorkload::SmallFiles]),
            Self::Replicated(client) => (client, vec![BenchWorkload::Replicated]),
        };
        let row = |workload| BenchRow { workload, client };
        workloads.into_iter().map(row).collect()
    }

    /// How many of a peer's nodes take part.
    pub(super) const fn nodes(self) -> usize {
        match self {
            Self::Replicated(_) => 3,
            _ => 1,
        }
    }
}

/// Whether a bar of the project depends on the row (besides the limits).
#[must_use]
pub fn has_bar(row: BenchRow) -> bool {
    use BenchWorkload::{Cold, Limits, Pread, Replicated, Warm, Write};
    matches!(
        row.workload,
        Write(1 | 4) | Replicated | Cold(1 | 4) | Warm(1) | Pread(16) | Limits
    )
}

/// Whether a name fits a pattern: one of its comma-separated parts occurs in it, `*` standing for
/// anything. A part that ends in a digit does not stop inside a number: `write-1` is not
/// `write-16`.
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
    let digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    pattern.split(',').map(str::trim).any(|part| {
        let mut rest = name;
        !part.is_empty()
            && part.split('*').all(|piece| match rest.find(piece) {
                Some(at) => {
                    rest = &rest[at + piece.len()..];
                    let ends_in_digit = piece.ends_with(|c: char| c.is_ascii_digit());
                    !(ends_in_digit && digit(rest))
                }
                None => false,
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(fits("write", "write-16/native"));
        assert!(fits("cold, pread-16", "pread-16/native"));
        assert!(fits("write*java", "write-4/java"));
        assert!(!fits("write*java", "write-4/native"));
        assert!(!fits("", "write-4/native"));
        assert!(!fits("write-1", "write-16/native") && fits("write-1", "write-1/java"));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = all().iter().map(BenchRow::to_string).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
