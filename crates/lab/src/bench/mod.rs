//! The first benchmark: stock DataNode and Hayloft in turn, all else the same.
//!
//! One NameNode, one client JVM and one storage directory serve a whole run; only the node
//! process changes. Each round measures both kinds, the order alternating, so that a machine that
//! warms up or slows down favours neither. The node's costs are read from `/proc`, the client
//! compares every byte it reads.

mod many_blocks;
mod report;
mod throughput;

pub use report::{Report, Sample, StartSample};

use crate::cluster::Cluster;
use crate::error::{LabError, Result};
use crate::node::{Kind, NodeSpec};
use std::path::PathBuf;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds; each measures every row once per kind.
    pub rounds: u32,
    /// MiB moved per row, over all streams.
    pub mib: u64,
    /// Numbers of concurrent streams.
    pub streams: Vec<u32>,
    /// Blocks of the start-up measurement; 0 leaves it out.
    pub blocks: u64,
    /// Flags of the stock DataNode's JVM; none means the JVM's own defaults.
    pub jvm_flags: Vec<String>,
    /// Where results go: `bench/runs/DATE-NAME`.
    pub out: PathBuf,
    /// The command, for the record.
    pub command: String,
}

/// Block size of benchmark files, bytes.
const BLOCK_BYTES: u64 = 128 << 20;

/// Runs the benchmark and writes `results.json` and `README.md` into `options.out`.
///
/// # Errors
/// When a cluster does not come up, a byte differs, or results cannot be written.
pub fn run(options: &Options) -> Result<Report> {
    std::fs::create_dir_all(&options.out).map_err(LabError::file("creating", &options.out))?;
    let mut report = Report::begin(options);
    throughput::measure(options, &mut report)?;
    report.write(&options.out)?;
    if options.blocks > 0 {
        many_blocks::measure(options, &mut report)?;
        report.write(&options.out)?;
    }
    Ok(report)
}

/// A cluster of one node, and a client JVM with the flags a server-class machine would choose.
fn one_node(name: &str, options: &Options) -> Result<(Cluster, crate::driver::Driver)> {
    let mut cluster = Cluster::builder(name)
        .node(NodeSpec::new(Kind::Apache))
        .conf("dfs.blocksize", BLOCK_BYTES)
        .conf("dfs.replication", 1)
        .conf("dfs.namenode.fs-limits.max-blocks-per-file", 1_000_000)
        .start()?;
    cluster.node(0).set_jvm_flags(options.jvm_flags.clone());
    let driver = cluster.driver_with_flags(vec!["-Xmx1g".into()])?;
    Ok((cluster, driver))
}

/// The kinds in the order of a round: alternating, so that neither is always first.
fn order(round: u32) -> [Kind; 2] {
    if round.is_multiple_of(2) {
        [Kind::Apache, Kind::Hayloft]
    } else {
        [Kind::Hayloft, Kind::Apache]
    }
}

/// Writes out dirty pages and, as root, empties the page cache; whether that was possible.
fn drop_caches() -> bool {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}
