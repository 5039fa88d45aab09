//! `hayloft-lab bench`: the stock DataNode and Hayloft side by side, on the same device, in the
//! same run.
//!
//! All peers run at the same time under one NameNode, one of them works at a time: in every round
//! and every stage they take turns, the first of one round being the last of the next, so that a
//! machine that warms up or slows down favours no peer. Files are fresh, every byte that is read is
//! compared, and a row counts until its client is done; what is left to write by then is measured
//! beside it.
//!
//! Before a row counts, each peer repeats it until two rounds are alike ([`marks`]).
//!
//! - [`fair`]: what the experiments of the lab use too;
//! - [`rows`], [`client`], [`peers`], [`figures`], [`targets`]: what, who does it, who is compared,
//!   which numbers, how much of them;
//! - `rig`, `work`: processes and rounds; `clients`: what is done; [`names`]: the load client
//!   towards the NameNode; `native_client`, `relay`: the crate hdfs-native;
//!   `scraped`: an agent;
//! - `measure`, [`trace`], [`limits`]: how it is measured;
//! - [`record`], [`results`], [`marks`], [`verdicts`], `cells`, [`page`], [`published`]: what is
//!   left of it;
//! - `start`: starts with many blocks, and their end; [`encryption`]: rows with encrypted data;
//!   [`local_read`], `local`: rows in which a client reads by itself; [`disk_balancer`], `balance`:
//!   rows of blocks that move between volumes; [`wal_log`]: logs that HBase writes;
//! - [`cli`]: the command.

mod balance;
mod bare;
mod cells;
pub mod cli;
pub mod client;
mod clients;
pub mod disk_balancer;
pub mod encryption;
pub mod fair;
pub mod figures;
mod interrupt;
pub mod limits;
mod local;
pub mod local_read;
pub mod marks;
mod measure;
pub mod names;
mod native_client;
pub mod page;
pub mod peers;
pub mod published;
pub mod record;
mod relay;
pub mod results;
mod rig;
pub mod rows;
mod scraped;
mod start;
pub mod targets;
pub mod trace;
pub mod verdicts;
pub mod wal_log;
mod work;

use encryption::BenchCipher;
use fair::origin::DataOrigin;
use hayloft_conf::Configuration;
use hayloft_node::store_config::memory_limit;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::machine;
use hayloft_testkit::modelled::{self, ModelledDisk};
use record::BenchRecord;
use rig::{Rig, RigKind, RunDevice};
use rows::BenchRow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;
use targets::BenchTargets;

/// Where the nodes' directories are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BenchDisk {
    /// Below this directory.
    Directory(PathBuf),
    /// On a modelled hard disk.
    Modelled,
}

/// What to measure.
#[derive(Clone)]
pub struct BenchOptions {
    /// Rounds; each measures every row once per peer.
    pub rounds: u32,
    /// Rounds before a row counts, at most; it ends when two in a row are alike.
    pub warm_ups: usize,
    /// MiB moved per row, over all streams.
    pub mib: u64,
    /// The rows, see [`rows::all`].
    pub rows: Vec<BenchRow>,
    /// The binary of the peer [`peers::BEFORE`].
    pub before: Option<PathBuf>,
    /// Names of the peers, see [`peers::names`].
    pub peers: Vec<String>,
    /// Blocks that nodes start with and delete; 0 leaves these rows out.
    pub blocks: u64,
    /// Volumes that these blocks are on.
    pub volumes: usize,
    /// Flags of the stock DataNode's JVM; none means the JVM's own defaults.
    pub jvm_flags: Vec<String>,
    /// Configuration of Hayloft's nodes.
    pub define: Vec<(String, String)>,
    /// Where the nodes' directories are.
    pub disk: BenchDisk,
    /// What is special about the network that everything runs in, see
    /// `hayloft_testkit::congestion::enter`.
    pub network: Option<String>,
    /// Where results go: `target/bench/DATE-NAME`.
    pub out: PathBuf,
    /// The command, for the record.
    pub command: String,
    /// Told a line after every measurement.
    pub progress: std::sync::Arc<dyn Fn(&str) + Send + Sync>,
}

/// Runs the benchmark; what was measured is written into `options.out`, after an interruption or an
/// error too.
///
/// # Errors
/// When the cluster does not come up, or results cannot be written.
pub fn run(options: &BenchOptions, targets: &BenchTargets) -> Result<BenchRecord> {
    interrupt::listen();
    let mut record = begin(options);
    let outcome = measure(options, &mut record);
    record.interrupted = interrupt::asked();
    record.marks = marks::of(&record);
    if !record.samples.is_empty() {
        let page = page::markdown(&record, &targets.targets, &page::stands(&record));
        record.write(&options.out, &page)?;
    }
    outcome.map(|()| record)
}

fn measure(options: &BenchOptions, record: &mut BenchRecord) -> Result<()> {
    // Declared before what is on it, so that it goes after that.
    let (base, carried) = disk(options)?;
    if !options.rows.is_empty() {
        measure_rows(options, &base, record)?;
    }
    if options.blocks > 0 && !interrupt::asked() {
        start::measure(options, &base, record)?;
    }
    if let Some(disk) = carried {
        let (name, answers) = ("answers of the modelled disk", answers(&disk.stats()?));
        record.origin.conditions.insert(name.into(), answers);
        drop(disk);
        // What failed keeps its log.
        if let Some(dir) = base.parent() {
            let _ = std::fs::remove_file(dir.join(DISK_LOG));
            let _ = std::fs::remove_dir(dir);
        }
    }
    Ok(())
}

fn measure_rows(options: &BenchOptions, base: &Path, record: &mut BenchRecord) -> Result<()> {
    let device = RunDevice::under(base);
    let mut rigs = rigs(options, base)?;
    if let Some(rig) = rigs.first() {
        conditions(record, rig, &device);
    }
    let began = Instant::now();
    for round in 0..options.rounds {
        for rig in &mut rigs {
            if interrupt::asked() {
                break;
            }
            let (what, rounds) = (rig.kind.name(), options.rounds);
            (options.progress)(&format!("round {} of {rounds}, {what}", round + 1));
            let mut run = work::Run {
                options,
                rig,
                tracer: device.tracer.as_ref(),
                record,
                began,
            };
            run.round(round)?;
        }
    }
    Ok(())
}

/// A cluster for the rows in clear, one for those of each cipher, one for those in which a client
/// reads by itself, and one whose nodes have two volumes. They run at the same time, and one of
/// them works.
fn rigs(options: &BenchOptions, base: &Path) -> Result<Vec<Rig>> {
    let kinds: BTreeSet<RigKind> = options.rows.iter().map(RigKind::of).collect();
    let start = |kind: RigKind| {
        let name = kind.name();
        (options.progress)(&format!(
            "starting the NameNode, the nodes and the clients: {name}"
        ));
        Rig::start(options, base, kind)
    };
    kinds.into_iter().map(start).collect()
}

/// Bytes of a modelled disk; the file behind it is sparse.
const MODELLED_BYTES: u64 = 64 << 30;

/// What the server of a modelled disk says, beside where it is mounted.
const DISK_LOG: &str = "disk.log";

/// Where the nodes' directories go, which is there then, and the modelled disk that it is on, if it
/// is one.
fn disk(options: &BenchOptions) -> Result<(PathBuf, Option<ModelledDisk>)> {
    let dir = match &options.disk {
        BenchDisk::Directory(dir) => dir.clone(),
        BenchDisk::Modelled => hayloft_testkit::hadoop::repository_root()
            .join("target/lab")
            .join(format!("modelled-{}", std::process::id())),
    };
    std::fs::create_dir_all(&dir).map_err(TestkitError::file("creating", &dir))?;
    if options.disk != BenchDisk::Modelled {
        return Ok((dir, None));
    }
    (options.progress)("mounting the modelled disk");
    let wanted = modelled::HostedDisk {
        size: MODELLED_BYTES,
        file_system: modelled::HostedFileSystem::Ext4,
        params: modelled::Params::default(),
        dir: dir.join("mnt"),
        backing: None,
    };
    let program = hayloft_testkit::hadoop::lab_binary()?;
    let carried = ModelledDisk::mount(&program, &wanted, &dir.join(DISK_LOG))?;
    Ok((carried.dir().to_owned(), Some(carried)))
}

/// Whether the machine let a modelled disk keep its times, in words.
fn answers(stats: &modelled::Stats) -> String {
    format!(
        "{} of {} more than 2 ms later than the model says, the worst by {:.0} ms",
        stats.late,
        stats.read.requests + stats.write.requests,
        stats.late_worst_ms,
    )
}

fn begin(options: &BenchOptions) -> BenchRecord {
    let mut conditions = machine::describe();
    let flags = if options.jvm_flags.is_empty() {
        "none (the JVM's defaults)".to_owned()
    } else {
        options.jvm_flags.join(" ")
    };
    conditions.insert(
        "block size".into(),
        format!("{} MiB", fair::stock::BLOCK_MIB),
    );
    conditions.insert("stock DataNode's JVM flags".into(), flags);
    let ciphers = BenchCipher::ALL.into_iter();
    let mut ciphers = ciphers.filter(|c| options.rows.iter().any(|row| row.cipher == Some(*c)));
    if ciphers.any(|cipher| cipher.divisor() > 1) {
        let text = "a sixteenth of the data of other rows";
        conditions.insert("rows of SASL's own ciphers".into(), text.into());
    }
    if let Some(network) = &options.network {
        conditions.insert("network".into(), network.clone());
    }
    let define: Vec<String> = options
        .define
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    if !define.is_empty() {
        conditions.insert("Hayloft's settings".into(), define.join(" "));
    }
    if options.blocks > 0 {
        conditions.insert("many blocks".into(), start::condition(options));
    }
    let start = if options.blocks > 0 {
        [peers::STOCK, peers::DEFAULT].as_slice()
    } else {
        &[]
    };
    let shown = |name: &String| peers::shown(name);
    let mut peers: Vec<String> = options.peers.iter().map(shown).collect();
    for name in start {
        if !peers.iter().any(|peer| peer == name) {
            peers.push((*name).to_owned());
        }
    }
    BenchRecord {
        origin: DataOrigin::now(&options.command, conditions),
        modelled: options.disk == BenchDisk::Modelled,
        mib: options.mib,
        rounds: options.rounds,
        memory_limit_mib: memory_limit_mib(&options.define),
        peers,
        ..BenchRecord::default()
    }
}

/// What a node takes for `hayloft.memory.limit` in MiB: as defined for the run, else its default.
fn memory_limit_mib(define: &[(String, String)]) -> u64 {
    let limit = |(key, _): &&(String, String)| key == "hayloft.memory.limit";
    let config = Configuration::from_properties(define.iter().filter(limit).cloned());
    // With one that means nothing no node starts, and nothing is recorded.
    config.map_or(0, |config| memory_limit(&config) >> 20)
}

/// Name of the condition that says where the NameNode's edits are. Before it was recorded they were
/// on the nodes' disk, unless that was a modelled one.
const EDITS: &str = "NameNode's edits";

fn conditions(record: &mut BenchRecord, rig: &Rig, device: &RunDevice) {
    let all = &mut record.origin.conditions;
    let mut add = |name: &str, value: String| all.insert(name.to_owned(), value);
    if let Some(kib) = device.readahead_kib {
        add("read-ahead of the device", format!("{kib} KiB"));
    }
    let settings = fair::stock::settings(|name| rig.seats.iter().any(|s| s.peer.name == name));
    if !settings.is_empty() {
        add("stock DataNode's settings", settings);
    }
    let edits = if rig.has_names_in_memory() {
        "in shared memory"
    } else {
        "on a disk, perhaps the nodes' (there is too little shared memory)"
    };
    add(EDITS, edits.to_owned());
    if !device.untraced.is_empty() {
        add(
            "device requests",
            format!("not traced: {}", device.untraced),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limits_as_hadoop_writes_sizes() {
        let limit =
            |value: &str| memory_limit_mib(&[("hayloft.memory.limit".into(), value.into())]);
        assert_eq!(
            (limit("512m"), limit("1g"), limit("134217728")),
            (512, 1024, 128)
        );
        let default = hayloft_node::memory::default_limit() >> 20;
        assert_eq!((memory_limit_mib(&[]), limit("0")), (default, default));
    }
}
