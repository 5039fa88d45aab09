//! `hayloft-load`: a load by hand, and a node to profile.

use super::{Check, Data, LoadOutcome, LoadPlace, LoadSettings, Preads};
use crate::error::{Result, TestkitError};
use crate::process_usage::{self, Usage};
use clap::{Args, Parser, Subcommand, ValueEnum};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use hayloft_wire::proto::hdfs::{DatanodeId, DatanodeInfo};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Name of the block pool without another wish.
const POOL: &str = "BP-1-127.0.0.1-1";
/// Generation stamp of all blocks.
const GENERATION: u64 = 1001;

/// Data transfer load without a JVM: writes, reads and positional reads against any DataNode, ours
/// or Apache's, and a node of ours without a NameNode to profile.
///
/// Blocks are numbered by stream; a read with the options of the write reads what it wrote. Blocks
/// that a NameNode has not allocated are deleted by it soon.
#[derive(Debug, Parser)]
#[command(name = "hayloft-load")]
pub struct LoadCli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory: store and data transfer port in one process, one block pool, no NameNode.
    Serve(Serve),
    /// Write blocks.
    Write(Write),
    /// Read whole blocks.
    Read(Read),
    /// Read ranges at random places.
    Pread(Pread),
}

#[derive(Args, Debug)]
struct Serve {
    /// The volume; created when it does not exist.
    #[arg(long)]
    dir: PathBuf,
    /// I/O engine by name.
    #[arg(long)]
    engine: Option<String>,
    /// Block pool.
    #[arg(long, default_value = POOL)]
    pool: String,
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Write the address here once it is served.
    #[arg(long)]
    port_file: Option<PathBuf>,
    /// Configuration as in hdfs-site.xml: -D key=value.
    #[arg(short = 'D', value_parser = key_value)]
    define: Vec<(String, String)>,
}

#[derive(Args, Debug)]
struct Target {
    /// Data transfer address of the node (the first of a pipeline).
    #[arg(long)]
    addr: SocketAddr,
    /// Block pool.
    #[arg(long, default_value = POOL)]
    pool: String,
    /// Streams at the same time (of the write, for a pread).
    #[arg(long, default_value_t = 1)]
    streams: u32,
    /// MiB over all streams.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Block size, MiB.
    #[arg(long, default_value_t = 128)]
    block_mib: u64,
    /// Block size, KiB; over --block-mib.
    #[arg(long)]
    block_kib: Option<u64>,
    /// Id of the first block.
    #[arg(long, default_value_t = 1_000_000)]
    first_id: i64,
    /// Process ids of nodes whose CPU and memory are reported.
    #[arg(long, value_delimiter = ',')]
    pid: Vec<u32>,
}

#[derive(Args, Debug)]
struct Write {
    #[command(flatten)]
    target: Target,
    /// The further nodes of the pipeline.
    #[arg(long, value_delimiter = ',')]
    replication_chain: Vec<SocketAddr>,
    /// Packet size, bytes, as dfs.client-write-packet-size.
    #[arg(long, default_value_t = 65536)]
    packet: usize,
    /// Packets that may be unacknowledged.
    #[arg(long, alias = "in-flight", default_value_t = 80)]
    window: u32,
    /// Wait for all acknowledgements after so many packets.
    #[arg(long, default_value_t = 0)]
    hflush_every: u32,
    /// Ask for the medium with every so-manyth packet, and wait.
    #[arg(long, default_value_t = 0)]
    hsync_every: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Checking {
    /// Take the bytes only.
    Nothing,
    /// Compare with what was written.
    Bytes,
    /// Verify the checksums that come with the data.
    Sums,
}

#[derive(Args, Debug)]
struct Read {
    #[command(flatten)]
    target: Target,
    /// What is done with the data.
    #[arg(long, value_enum, default_value_t = Checking::Bytes)]
    check: Checking,
}

#[derive(Args, Debug)]
struct Pread {
    #[command(flatten)]
    read: Read,
    /// Reads in flight.
    #[arg(long, default_value_t = 1)]
    in_flight: usize,
    /// Bytes of each, KiB.
    #[arg(long, default_value_t = 64)]
    size_kib: u64,
    /// Reads, all together.
    #[arg(long, default_value_t = 4000)]
    ops: u64,
    /// Where: the same seed reads the same places.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn key_value(text: &str) -> std::result::Result<(String, String), String> {
    let pair = text.split_once('=').ok_or("want KEY=VALUE")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

impl LoadCli {
    /// Does it; a load's figures come back as JSON.
    ///
    /// # Errors
    /// What went wrong, saying where.
    pub fn run(self) -> Result<Option<Value>> {
        let data = Data::new();
        match self.command {
            Command::Serve(serve) => {
                super::serve::run(super::serve::ServeOptions {
                    dir: serve.dir,
                    engine: serve.engine,
                    pool: pool(&serve.pool)?,
                    listen: serve.listen,
                    port_file: serve.port_file,
                    define: serve.define,
                })?;
                Ok(None)
            }
            Command::Write(write) => {
                let settings = LoadSettings {
                    packet_bytes: write.packet,
                    window: write.window.max(1),
                    hflush_every: write.hflush_every,
                    sync_every: write.hsync_every,
                };
                let streams = write.target.places(&write.replication_chain)?;
                measured(&write.target.pid, || {
                    super::run_write(&settings, &data, &streams)
                })
                .map(Some)
            }
            Command::Read(read) => {
                let streams = read.target.places(&[])?;
                measured(&read.target.pid, || {
                    super::run_read(&data, read.check.into(), &streams)
                })
                .map(Some)
            }
            Command::Pread(pread) => {
                let target = &pread.read.target;
                let blocks: Vec<LoadPlace> = target.places(&[])?.into_iter().flatten().collect();
                let preads = Preads {
                    in_flight: pread.in_flight.max(1),
                    bytes: pread.size_kib << 10,
                    ops: pread.ops,
                    seed: pread.seed,
                    check: pread.read.check.into(),
                };
                measured(&target.pid, || super::run_pread(&data, &preads, &blocks)).map(Some)
            }
        }
    }
}

impl From<Checking> for Check {
    fn from(checking: Checking) -> Self {
        match checking {
            Checking::Nothing => Self::Nothing,
            Checking::Bytes => Self::Bytes,
            Checking::Sums => Self::Sums,
        }
    }
}

fn pool(text: &str) -> Result<PoolId> {
    PoolId::new(text).map_err(|error| TestkitError::Talk(format!("--pool: {error}")))
}

impl Target {
    /// The blocks of each stream: equal shares, cut at the block size.
    fn places(&self, chain: &[SocketAddr]) -> Result<Vec<Vec<LoadPlace>>> {
        let pool = pool(&self.pool)?;
        let block_bytes = self.block_kib.unwrap_or(self.block_mib << 10).max(1) << 10;
        let streams = u64::from(self.streams.max(1));
        let share = (self.mib << 20) / streams;
        let blocks = share.div_ceil(block_bytes);
        let nodes: Vec<DatanodeInfo> = [self.addr].iter().chain(chain).map(node).collect();
        let place = |stream: u64, index: u64| {
            let len = block_bytes.min(share - index * block_bytes);
            let number = stream * blocks + index;
            let id = self.first_id.saturating_add_unsigned(number);
            LoadPlace {
                block: ExtendedBlock::new(pool.clone(), Block::new(id, GENERATION, 0)),
                len,
                nodes: nodes.clone(),
                storage_ids: Vec::new(),
                client: format!("hayloft-load-{stream}"),
            }
        };
        Ok((0..streams)
            .map(|stream| (0..blocks).map(|index| place(stream, index)).collect())
            .collect())
    }
}

fn node(address: &SocketAddr) -> DatanodeInfo {
    DatanodeInfo {
        id: DatanodeId {
            ip_addr: address.ip().to_string(),
            host_name: address.ip().to_string(),
            datanode_uuid: format!("load-{address}"),
            xfer_port: address.port().into(),
            ..DatanodeId::default()
        },
        ..DatanodeInfo::default()
    }
}

/// Runs a load and says what it took, here and in the nodes.
fn measured(pids: &[u32], load: impl FnOnce() -> Result<LoadOutcome>) -> Result<Value> {
    let usages =
        || -> Result<Vec<Usage>> { pids.iter().map(|&pid| process_usage::usage(pid)).collect() };
    for &pid in pids {
        process_usage::reset_peak(pid);
    }
    let before = usages()?;
    let own_before = process_usage::usage(std::process::id())?;
    let outcome = load()?;
    let own = process_usage::usage(std::process::id())?;
    let after = usages()?;
    let bytes = as_f64(outcome.tally.bytes);
    let seconds = outcome.took.as_secs_f64();
    let gib = bytes / f64::from(1 << 30);
    let per_gib = |value: f64| round(value / gib);
    let nodes: Vec<Value> = pids
        .iter()
        .zip(before.iter().zip(&after))
        .map(|(pid, (before, after))| {
            json!({
                "pid": pid,
                "user_s_per_gib": per_gib(after.user_s - before.user_s),
                "system_s_per_gib": per_gib(after.system_s - before.system_s),
                "cpu_s_per_gib": per_gib(after.user_s + after.system_s - before.user_s - before.system_s),
                "rss_peak_mib": after.rss_peak_kib / 1024,
                "rss_mib": after.rss_kib / 1024,
                "threads": after.threads,
            })
        })
        .collect();
    let mut report = json!({
        "mb_per_s": round(bytes / 1e6 / seconds),
        "ops": outcome.tally.ops,
        "ops_per_s": round(as_f64(outcome.tally.ops) / seconds),
        "seconds": round(seconds),
        "bytes": outcome.tally.bytes,
        "op": outcome.tally.op.summary(),
        "client_user_s_per_gib": per_gib(own.user_s - own_before.user_s),
        "client_system_s_per_gib": per_gib(own.system_s - own_before.system_s),
        "nodes": nodes,
    });
    let ack = outcome.tally.ack.summary();
    if ack.count > 0 {
        report["ack"] = json!(ack);
    }
    Ok(report)
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}
