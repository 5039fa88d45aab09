//! Blocks as objects of ADIOS (HadioFS, figures 5.1 to 5.6): chunk sizes, replicas, several
//! writers, closes that are late, reads, and an engine that drops its data as the bound.
//!
//! All nodes run beside each other on one modelled disk, and each arrangement has its turn in each
//! round. The plug-in comes from `scripts/fetch-adios`.

mod cluster;

use hayloft_bench::fair::stock::Stock;

use super::one_disk::{self, WatchedDisk};
use crate::runner::options::ExperimentOptions;
use crate::runner::table::Shown;
use crate::runner::{Experiment, Run};
use cluster::Hadiofs;
use hayloft_testkit::error::Result;
use hayloft_testkit::modelled::HostedFileSystem;

/// The experiment.
pub const HADIOFS: Experiment = Experiment {
    name: "hadiofs",
    question: "blocks as objects of ADIOS beside files, HDFS and an engine that drops them",
    paper: "HadioFS, Figures 5.1 to 5.6",
    options: || ExperimentOptions {
        mib: 1024,
        ..one_disk::options()
    },
    about: |options| {
        format!(
            "{} MiB in blocks of {} MiB through the stock Java client, all nodes on one modelled \
             hard disk (not a real one) of 105 MB/s reading and 95 writing: it and not the \
             processors limit what goes to it. `Acknowledged`: MB/s until all closes returned. `On \
             disk`: until all is written back. ADIOS closes and syncs a chunk before it lets go of \
             its tail. Reads begin with an empty page cache. Processor seconds are those of the \
             nodes, a GiB of the client's. Figure 5.1 (a) is closes that are late, 5.1 (b) and 5.2 \
             chunk sizes, 5.3 replicas, 5.4 several writers, 5.5 and 5.6 engines. {}",
            options.mib,
            options.block_mib,
            Stock::EXPLAINED
        )
    },
    measure: carry_out,
    shown: Shown {
        title: "Blocks as objects of ADIOS",
        tables: include_str!("tables/hadiofs.txt"),
        paper: "The thesis (1 GiB, Hadoop 1.1.2, real disks): 32 MB was best for writing, 256 MB \
                for reading. A synchronous close took 76 % of the time. With late closes ADIOS \
                wrote 4 % faster than HDFS with one replica, 10 % with three; it read far slower.",
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// Most that is written in a round that warms up, bytes.
const WARM_UP_BYTES: u64 = 256 << 20;
/// Best for writing, in the thesis and by default.
const CHUNK_MIB: u32 = 32;

/// Whose nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HadiofsNode {
    Stock(Stock),
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
            Self::Stock(stock) => stock.name().into(),
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HadiofsWay {
    node: HadiofsNode,
    replicas: usize,
    /// At the same time, sharing the bytes.
    writers: u32,
}

const fn way(node: HadiofsNode, replicas: usize, writers: u32) -> HadiofsWay {
    HadiofsWay {
        node,
        replicas,
        writers,
    }
}

const DIRECT: HadiofsNode = HadiofsNode::Engine("direct");
const NULL: HadiofsNode = HadiofsNode::Engine("null");

const STOCK: HadiofsNode = HadiofsNode::Stock(Stock::Plain);
const STOCK_DROP: HadiofsNode = HadiofsNode::Stock(Stock::Drop);

/// Ways with as many replicas and writers are compared.
const WAYS: [HadiofsWay; 18] = [
    way(STOCK, 1, 1),
    way(STOCK_DROP, 1, 1),
    way(DIRECT, 1, 1),
    way(HadiofsNode::Engine("posix"), 1, 1),
    way(NULL, 1, 1),
    way(HadiofsNode::chunks_of(8), 1, 1),
    way(HadiofsNode::chunks_of(16), 1, 1),
    way(HadiofsNode::ADIOS, 1, 1),
    way(HadiofsNode::chunks_of(64), 1, 1),
    way(HadiofsNode::chunks_of(128), 1, 1),
    way(
        HadiofsNode::Adios {
            chunk_mib: CHUNK_MIB,
            late_close: true,
        },
        1,
        1,
    ),
    way(STOCK, 3, 1),
    way(STOCK_DROP, 3, 1),
    way(HadiofsNode::ADIOS, 3, 1),
    way(STOCK, 1, 4),
    way(STOCK_DROP, 1, 4),
    way(DIRECT, 1, 4),
    way(HadiofsNode::ADIOS, 1, 4),
];

impl HadiofsWay {
    /// The circumstances under which it is compared.
    fn row(self) -> String {
        format!("{}, {}", self.replicas, self.writers)
    }
}

fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    // One round does not count, and the first that does is warmed up for.
    let rounds = u64::try_from(run.options.rounds + 1).unwrap_or(u64::MAX);
    let warm_up = run.stream_bytes().min(WARM_UP_BYTES);
    let rounds_most = u64::try_from(crate::warm::ROUNDS_MOST).unwrap_or(u64::MAX);
    let way = rounds * run.stream_bytes() + rounds_most * warm_up;
    let replicas: usize = WAYS.iter().map(|way| way.replicas).sum();
    // Nothing of what was removed need be free again.
    let room = way * u64::try_from(replicas).unwrap_or(u64::MAX);
    let disk = WatchedDisk::mount(run.work, HostedFileSystem::Ext4, room / 2)?;
    let mut hadiofs = Hadiofs::start(disk.dir(), run.options, way)?;
    let peers = WAYS.map(|way| (way.row(), way.node.name()));
    run.rounds(part, &peers, &mut |turn, at| {
        hadiofs.round(turn, &disk, WAYS[at])
    })?;
    hadiofs.end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_direct_or_stock_to_be_compared_with() {
        let share = format!("of peer {}\n", DIRECT.name());
        assert!(HADIOFS.shown.tables.contains(&share));
        for way in WAYS {
            let beside = WAYS.iter().filter(|other| other.row() == way.row());
            let nodes: Vec<HadiofsNode> = beside.map(|other| other.node).collect();
            assert!(
                nodes.contains(&STOCK) && nodes.contains(&STOCK_DROP),
                "{way:?}"
            );
        }
    }
}
