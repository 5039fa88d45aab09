//! Blocks as objects of ADIOS (HadioFS, figures 5.1 to 5.6): chunk sizes, replicas, several
//! writers, closes that are late, reads, and an engine that drops its data as the bound.
//!
//! All nodes run beside each other on this machine's disk, and each arrangement has its turn in
//! each round. The plug-in comes from `scripts/fetch-adios`.

mod cluster;

use std::fmt::Write as _;

use serde::Serialize;

use super::in_words;
use super::one_disk::findings::percent;
use super::one_disk::{DiskExperiment, DiskRun};
use crate::report::spread;
use cluster::{BLOCK_MIB, Hadiofs};
use hayloft_testkit::error::{Result, TestkitError};

/// The experiment.
pub const HADIOFS: DiskExperiment = DiskExperiment {
    name: "hadiofs",
    about: "blocks as objects of ADIOS beside files, HDFS and an engine that drops them",
    mib: 256,
    carry_out,
};

/// Best for writing, in the thesis and by default.
const CHUNK_MIB: u32 = 32;

/// Whose nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum HadiofsNode {
    Stock,
    Engine(&'static str),
    Adios { chunk_mib: u32, late_close: bool },
}

impl HadiofsNode {
    const ADIOS: Self = Self::Adios {
        chunk_mib: CHUNK_MIB,
        late_close: false,
    };

    const fn chunks_of(chunk_mib: u32) -> Self {
        Self::Adios {
            chunk_mib,
            late_close: false,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Stock => "HDFS".into(),
            Self::Engine(name) => format!("`{name}`"),
            Self::Adios {
                chunk_mib,
                late_close: false,
            } => format!("ADIOS, {chunk_mib} MiB"),
            Self::Adios { chunk_mib, .. } => format!("ADIOS, {chunk_mib} MiB, closed late"),
        }
    }
}

/// One way to write and read.
#[derive(Clone, Copy, Debug, Serialize)]
struct HadiofsWay {
    node: HadiofsNode,
    replicas: usize,
    /// At the same time, sharing the bytes.
    writers: u32,
    /// Figures of the thesis that show it.
    figures: &'static str,
}

const fn way(
    node: HadiofsNode,
    replicas: usize,
    writers: u32,
    figures: &'static str,
) -> HadiofsWay {
    HadiofsWay {
        node,
        replicas,
        writers,
        figures,
    }
}

const DIRECT: HadiofsNode = HadiofsNode::Engine("direct");
const NULL: HadiofsNode = HadiofsNode::Engine("null");

/// HDFS first, then `direct`: what shares are of.
const WAYS: [HadiofsWay; 15] = [
    way(HadiofsNode::Stock, 1, 1, "5.3, 5.5, 5.6"),
    way(DIRECT, 1, 1, "5.5, 5.6"),
    way(HadiofsNode::Engine("posix"), 1, 1, "5.6"),
    way(NULL, 1, 1, "5.6"),
    way(HadiofsNode::chunks_of(8), 1, 1, "5.1b, 5.2"),
    way(HadiofsNode::chunks_of(16), 1, 1, "5.1b, 5.2"),
    way(HadiofsNode::ADIOS, 1, 1, "5.1b, 5.2, 5.3, 5.5, 5.6"),
    way(HadiofsNode::chunks_of(64), 1, 1, "5.1b, 5.2"),
    way(HadiofsNode::chunks_of(128), 1, 1, "5.1b, 5.2"),
    way(
        HadiofsNode::Adios {
            chunk_mib: CHUNK_MIB,
            late_close: true,
        },
        1,
        1,
        "5.1a",
    ),
    way(HadiofsNode::Stock, 3, 1, "5.3"),
    way(HadiofsNode::ADIOS, 3, 1, "5.3"),
    way(HadiofsNode::Stock, 1, 4, "5.4"),
    way(DIRECT, 1, 4, "5.4"),
    way(HadiofsNode::ADIOS, 1, 4, "5.4"),
];

/// One round of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct HadiofsRound {
    /// MB/s of a client's bytes until all closes are acknowledged.
    acknowledged_mbs: f64,
    /// The same until all of them are on the disk.
    on_disk_mbs: f64,
    /// Processor seconds of the nodes a GiB of a client's bytes.
    write_s_gib: f64,
    /// MB/s of reading with nothing in the page cache; 0 where there is nothing to read.
    read_mbs: f64,
    read_s_gib: f64,
}

#[derive(Clone, Debug, Serialize)]
struct HadiofsRow {
    way: HadiofsWay,
    rounds: Vec<HadiofsRound>,
}

fn carry_out(run: &mut DiskRun<'_>) -> Result<String> {
    let dir = tempfile::Builder::new()
        .prefix("hadiofs-")
        .tempdir_in(run.work)
        .map_err(TestkitError::file("creating a directory in", run.work))?;
    let rounds = run.options.rounds;
    let mut hadiofs = Hadiofs::start(dir.path(), run.stream_bytes(), rounds + 1)?;
    let mut rows = WAYS.map(|way| HadiofsRow {
        way,
        rounds: Vec::new(),
    });
    let mut text = String::new();
    // The first round warms JVMs.
    for round in 0..=rounds {
        for row in &mut rows {
            let way = row.way;
            let (name, replicas) = (way.node.name(), way.replicas);
            (run.tell)(&format!(
                "round {round} of {rounds}: {name}, {replicas} replicas"
            ));
            let done = hadiofs.round(way)?;
            if round > 0 {
                row.rounds.push(done);
            }
        }
        text = page(run, &rows);
        run.save(&text, &rows)?;
    }
    hadiofs.end();
    Ok(text)
}

/// Median, lowest and highest.
fn of(row: &HadiofsRow, value: impl Fn(&HadiofsRound) -> f64) -> (f64, f64, f64) {
    spread(row.rounds.iter().map(value).collect())
}

fn page(run: &DiskRun<'_>, rows: &[HadiofsRow]) -> String {
    let (options, command) = (run.options, run.command);
    let mut text = format!(
        "# HadioFS\n\nCommand: `{command}`\n\n\
         {} MiB in blocks of {BLOCK_MIB} MiB through the stock Java client, all nodes on this \
         machine's disk; {} rounds after one that warms up, each arrangement in its turn; median \
         (lowest to highest). `Acknowledged`: MB/s until all closes returned. `On disk`: until \
         all is written back. ADIOS closes and syncs a chunk before it lets go of its tail. Reads \
         begin with an empty page cache. Processor seconds are those of the nodes, a GiB of the \
         client's.\n\n\
         | | replicas | writers | figures | acknowledged | on disk | s/GiB | read | of `direct` | \
         s/GiB |\n|---|---|---|---|---|---|---|---|---|---|\n",
        options.mib, options.rounds,
    );
    for row in rows {
        let way = row.way;
        let like = |other: &&HadiofsRow| {
            other.way.node == DIRECT && other.way.writers == way.writers && way.replicas == 1
        };
        let read = of(row, |r| r.read_mbs);
        let if_read = |text: String| if way.node == NULL { "-".into() } else { text };
        let direct = rows
            .iter()
            .find(like)
            .map_or(0.0, |row| of(row, |r| r.read_mbs).0);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            way.node.name(),
            way.replicas,
            way.writers,
            way.figures,
            in_words(of(row, |r| r.acknowledged_mbs)),
            in_words(of(row, |r| r.on_disk_mbs)),
            in_words(of(row, |r| r.write_s_gib)),
            if_read(in_words(read)),
            if_read(percent(read.0, direct)),
            if_read(in_words(of(row, |r| r.read_s_gib))),
        );
    }
    text + "\nThe thesis (1 GiB, Hadoop 1.1.2, real disks): 32 MB was best for writing, 256 MB for \
            reading. A synchronous close took 76 % of the time. With late closes ADIOS wrote 4 % \
            faster than HDFS with one replica, 10 % with three; it read far slower.\n"
}

#[cfg(test)]
mod tests {
    use super::super::one_disk::tests::page_of;
    use super::*;

    #[test]
    fn reads_are_shares_of_direct_with_as_many_readers() {
        let row = |at: usize, read_mbs: f64| HadiofsRow {
            way: WAYS[at],
            rounds: vec![HadiofsRound {
                acknowledged_mbs: 10.0,
                read_mbs,
                ..HadiofsRound::default()
            }],
        };
        let rows = [
            row(1, 50.0),
            row(3, 0.0),
            row(6, 45.0),
            row(13, 20.0),
            row(14, 10.0),
        ];
        let text = page_of(page, &[], &rows);
        let one = "5.6 | 10.0 (10.0 to 10.0) | 0.0 (0.0 to 0.0) | 0.0 (0.0 to 0.0) | 45.0 (45.0 \
                   to 45.0) | 90 %";
        assert!(text.contains(one), "{text}");
        assert!(text.contains("10.0 (10.0 to 10.0) | 50 %"), "{text}");
        assert!(
            text.contains("| - | - | - |"),
            "nothing is read from null: {text}"
        );
    }
}
