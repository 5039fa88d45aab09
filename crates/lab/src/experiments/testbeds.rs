//! Testbeds of experiments: hosts with modelled disks that are slower than the links, so that disks
//! are the limit, and a workload measured on a fresh one.

use std::collections::BTreeMap;

use hayloft_bench::fair::stock::{BLOCK_MIB, Medium, Stock};
use hayloft_testkit::error::Result;

use crate::describe::{DataNodeSpec, Description, DiskSpec, HostSpec, Rack, WorkloadSpec};
use crate::runner::options::ExperimentOptions;
use crate::runner::{OURS, PeerTurn, Run};
use crate::up::Testbed;
use crate::workload::{self, WorkloadPhase};

/// Block size of nodes whose disks are about an eighth as fast as real ones, MiB: Hadoop's scaled.
pub(super) const SLOW_DISKS_BLOCK_MIB: u32 = 16;
/// Disks of a host that has many.
pub(super) const DISKS: usize = 8;

/// Processor seconds of a YARN container, as measured: most of them start a JVM.
pub(super) const CONTAINER_S: f64 = 3.0;

/// The choices of experiments with such disks.
pub(super) fn slow_disks() -> ExperimentOptions {
    ExperimentOptions {
        block_mib: SLOW_DISKS_BLOCK_MIB,
        disk_mbs: (16, 15),
        link_mbit: 200,
        ..ExperimentOptions::default()
    }
}

/// What all of them say of themselves.
pub(super) fn about(options: &ExperimentOptions, more: &str) -> String {
    let (read, write) = options.disk_mbs;
    format!(
        "One machine, every host a network namespace, links of {} Mbit/s, modelled hard disks (not \
         real ones) of {read} MB/s reading and {write} MB/s writing, stock NameNode and stock \
         clients, {} MiB for each client or stream in blocks of {} MiB. What is closed is on the \
         disk; caches are dropped before reading. Each turn starts a cluster of its own and warms \
         it until two rounds in a row take processor time within 5 %, at most eight. {more}",
        options.link_mbit, options.mib, options.block_mib
    )
}

/// Rate of the disk that slower ones are scaled from, MB/s reading.
const REAL_MBS: u32 = 105;
/// Ours serves so much of a file at a time on a rotating disk, MiB.
const REAL_QUANTUM_MIB: u32 = 32;
/// What this machine's processors do for a MB of a modelled disk at most, milliseconds: 2.1 for the
/// model and its file system, 4.6 for a stock node and its client.
const MB_MS: f64 = 6.7;

/// Time of seeks and turns, per cent of a real disk's: a block costs as large a share of seeks as
/// one of Hadoop's default size there.
fn seek_percent(options: &ExperimentOptions) -> u32 {
    let slower = REAL_MBS * 100 * options.block_mib;
    (slower / (options.disk_mbs.0.max(1) * BLOCK_MIB)).clamp(1, 10_000)
}

/// Quantum of our nodes on such disks, MiB: as many to a block as on a real one.
fn quantum_mib(options: &ExperimentOptions) -> u32 {
    (REAL_QUANTUM_MIB * options.block_mib / BLOCK_MIB).max(1)
}

/// How disks are scaled, and why these are the limit, for a page.
pub(super) fn scaled(options: &ExperimentOptions, disks: usize) -> String {
    let (read, write) = options.disk_mbs;
    let all = f64::from(read.max(write)) * f64::from(u32::try_from(disks).unwrap_or(u32::MAX));
    format!(
        "Scaled: disks of {read} MB/s stand for ones of {REAL_MBS}, blocks of {} MiB for ones of \
         {BLOCK_MIB}. Seeks and turns take {} % of a real disk's time, and the quantum of Hayloft \
         is {} MiB, so a block has the same share of seeks. A MB costs at most {MB_MS} ms of a \
         processor, model of the disk included: {all:.0} MB/s of {disks} disks take {:.0} % of \
         two processors.",
        options.block_mib,
        seek_percent(options),
        quantum_mib(options),
        all * MB_MS / 2000.0 * 100.0,
    )
}

/// A host with a node on a modelled disk.
pub(super) fn storage_host(at: usize, client: bool, options: &ExperimentOptions) -> HostSpec {
    let disk = DiskSpec {
        modelled: true,
        size_mib: 4096,
        read_mbs: options.disk_mbs.0,
        write_mbs: options.disk_mbs.1,
        seek_percent: seek_percent(options),
        ..DiskSpec::default()
    };
    // Ours alone reads it, also where a stock node is exchanged for it.
    let quantum = (
        "hayloft.io.quantum".into(),
        format!("{}m", quantum_mib(options)),
    );
    HostSpec {
        name: format!("s{at}"),
        client,
        nodes: vec![DataNodeSpec {
            kind: options.kind.clone(),
            disks: vec![disk],
            conf: BTreeMap::from([quantum]),
            ..DataNodeSpec::default()
        }],
        ..HostSpec::default()
    }
}

/// A host with all disks, and these virtual nodes on them.
pub(super) fn all_disks(options: &ExperimentOptions, names: &[&str]) -> HostSpec {
    let mut host = storage_host(0, false, options);
    let node = &mut host.nodes[0];
    node.disks = vec![node.disks[0].clone(); DISKS];
    node.virtual_nodes = names.iter().map(ToString::to_string).collect();
    host
}

/// Hosts in one rack; what is closed is on the disk.
pub(super) fn one_rack(
    options: &ExperimentOptions,
    placement: &str,
    hosts: Vec<HostSpec>,
    read: &str,
) -> Description {
    Description {
        sync_on_close: true,
        conf: options.conf.clone(),
        workload: WorkloadSpec {
            mib: options.mib,
            block_mib: options.block_mib,
            read: read.into(),
            ..WorkloadSpec::default()
        },
        ..Description::one_rack("exp", placement, options.link_mbit, hosts)
    }
}

/// Every host in a rack of its own: what an administrator does whose hosts have several nodes each.
pub(super) fn hosts_as_racks(described: Description) -> Description {
    let rack = |host: HostSpec| Rack {
        name: host.name.clone(),
        hosts: vec![host],
    };
    let hosts = described.racks.into_iter().flat_map(|rack| rack.hosts);
    Description {
        racks: hosts.map(rack).collect(),
        ..described
    }
}

/// Who is compared where what is closed is on the disk, with what a testbed calls their kind: the
/// stock settings that are best on this medium, and ours.
pub(super) fn peers_on(medium: Medium) -> Vec<(&'static str, &'static str)> {
    let stock = Stock::at_best(medium, true).iter();
    let stock = stock.map(|stock| (stock.name(), stock.kind()));
    stock.chain([(OURS, "hayloft")]).collect()
}

/// Gives each of these peers its turn in a row of modelled disks, by the kind of its nodes.
///
/// # Errors
/// The first of `measure`.
pub(super) fn each_kind(
    run: &mut Run<'_>,
    (part, row): (&str, &str),
    measure: &mut dyn FnMut(&mut PeerTurn<'_>, &str) -> Result<()>,
) -> Result<()> {
    each_kind_in(run, part, &[row], &mut |turn, _, kind| measure(turn, kind))
}

/// The same in several rows, which are compared: all of them take turns in every round. `measure`
/// is told the row's position and the kind.
///
/// # Errors
/// The first of `measure`.
pub(super) fn each_kind_in(
    run: &mut Run<'_>,
    part: &str,
    rows: &[&str],
    measure: &mut dyn FnMut(&mut PeerTurn<'_>, usize, &str) -> Result<()>,
) -> Result<()> {
    let kinds = peers_on(Medium::Rotating);
    let of_row = |row| kinds.iter().map(move |(peer, _)| (row, *peer));
    let peers: Vec<_> = rows.iter().copied().flat_map(of_row).collect();
    run.rounds(part, &peers, &mut |turn, at| {
        measure(turn, at / kinds.len(), kinds[at % kinds.len()].1)
    })
}

/// Brings it up in the turn's directory, where an earlier one is taken down first.
///
/// # Errors
/// When it does not come up.
pub(super) fn bring_up(turn: &mut PeerTurn<'_>, described: Description) -> Result<Testbed> {
    let dir = turn.dir.clone();
    crate::up::down(&described.name, &dir)?;
    Testbed::up(described, &dir, false, &mut |what| turn.tell(what))
}

/// The workload of a testbed that is up, once it is warm, in a turn's row; its phases.
///
/// # Errors
/// When a client fails.
pub(super) fn measure(
    turn: &mut PeerTurn<'_>,
    row: &str,
    testbed: &Testbed,
) -> Result<Vec<WorkloadPhase>> {
    // A round that does not count warms nothing but this machine's own caches.
    let most = match turn.counts {
        true => turn.warm_rounds(),
        false => 0,
    };
    let outcome = workload::run_warm(testbed, most, &mut |what| turn.tell(what))?;
    turn.give_outcome_in(row, testbed.described(), &outcome)?;
    Ok(outcome.phases)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// It is a right description, and the same when read back.
    pub(in super::super) fn is_right(described: &Description) {
        let again = Description::parse(&described.to_toml()).expect("it is right");
        assert_eq!(again, *described);
    }

    #[test]
    fn a_block_costs_the_same_share_of_seeks_on_every_disk() {
        for disk_mbs in [(2, 2), (4, 4), (16, 15), (105, 95)] {
            let options = ExperimentOptions {
                disk_mbs,
                ..slow_disks()
            };
            let host = storage_host(0, false, &options);
            let disk = &host.nodes[0].disks[0];
            let block_s = f64::from(options.block_mib) / f64::from(disk.read_mbs);
            let real_s = f64::from(BLOCK_MIB) / f64::from(REAL_MBS);
            let share = f64::from(disk.seek_percent) / 100.0 * real_s / block_s;
            assert!((share - 1.0).abs() < 0.1, "{disk_mbs:?}: {share}");
            assert_eq!(host.nodes[0].conf["hayloft.io.quantum"], "4m");
        }
    }

    #[test]
    fn nodes_of_either_kind_have_what_is_closed_on_the_disk() {
        for kind in ["hayloft", "apache", "apache-behind"] {
            let options = ExperimentOptions {
                kind: kind.into(),
                ..slow_disks()
            };
            let host = all_disks(&options, &[]);
            let described = one_rack(&options, "stock", vec![host], "own");
            is_right(&described);
            let node = &described.racks[0].hosts[0].nodes[0];
            assert_eq!(node.disks.len(), DISKS);
            let conf = node.spec(described.sync_on_close).conf;
            assert_eq!(conf.get("dfs.datanode.synconclose"), Some("true"), "{kind}");
            let behind = conf.get("dfs.datanode.sync.behind.writes").is_some();
            assert_eq!(behind, kind == "apache-behind");
        }
    }
}
