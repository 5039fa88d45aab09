//! One process with eight virtual nodes beside eight stock DataNodes on the same directories.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::jobs::{DISKS, all_disks};
use crate::describe::{Description, HostSpec, WorkloadSpec};
use crate::experiments::scaling::one_rack;
use crate::experiments::{ExperimentOptions, in_words, marks};
use crate::report::spread;
use crate::sample::Watch;
use crate::up::Testbed;
use crate::warm;
use crate::workload::{self, WorkloadPhase};
use hayloft_testkit::error::Result;
use hayloft_testkit::procfs;

/// The virtual nodes, and by which directories the stock ones are.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const CLIENTS: usize = 2;
/// Streams of each client: with it a writer for each disk.
const STREAMS: usize = 4;
/// Not the limit here.
const LINK_MBIT: u32 = 10_000;
/// Most of a stream in a round that does not count, MiB.
const WARM_UP_MIB: u32 = 64;
const GIB: f64 = (1 << 30) as f64;

/// Bars: ours as a share of the stock nodes'.
const CPU_BAR: f64 = 1.0 / 3.0;
const MEMORY_BAR: f64 = 1.0 / 6.0;
const WRITE_BAR: f64 = 1.0;

/// What all processes of a kind took.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct BesideFinding {
    /// Whose nodes.
    pub kind: String,
    pub rounds: Vec<BesideRound>,
    /// Whether clients and nodes were warm.
    pub warm: Option<bool>,
}

/// One round of writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct BesideRound {
    /// MB/s of all clients together.
    pub mbs: f64,
    /// Processor seconds for a GiB in user mode and in the kernel.
    pub cpu_s_gib: (f64, f64),
    /// Memory after it (PSS), MiB.
    pub pss_mib: f64,
    /// Share of the time in which processes could have gone on and had no processor, 0 to 1.
    pub waited: f64,
    /// Requests that the disks answered late.
    pub late: u64,
}

fn described(kind: &str, options: &ExperimentOptions) -> Description {
    let options = ExperimentOptions {
        kind: kind.into(),
        link_mbit: LINK_MBIT,
        ..options.clone()
    };
    let mut hosts = vec![all_disks(&options, &NAMES)];
    hosts.extend((0..CLIENTS).map(|at| HostSpec::client(format!("w{at}"))));
    let mut described = one_rack(&options, "stock", hosts, "none");
    described.workload.streams = STREAMS;
    described
}

/// Writes with `kind`'s nodes, files below `work`.
pub(super) fn measure(
    kind: &str,
    options: &ExperimentOptions,
    work: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<BesideFinding> {
    let described = described(kind, options);
    crate::up::down(&described.name, work)?;
    let testbed = Testbed::up(described, work, false, tell)?;
    let clients = workload::start_clients(&testbed, tell)?;
    let watch = Watch::begin(&testbed)?;
    let full = testbed.described().workload.clone();
    let small = WorkloadSpec {
        mib: full.mib.min(WARM_UP_MIB),
        ..full.clone()
    };
    let on = (&testbed, clients.as_slice(), &watch);
    let warm = warm::up(|number| {
        tell(&format!("warming up, round {}", number + 1));
        Ok(round(on, &small, number)?.1.cpu_s())
    })?;
    let mut rounds = Vec::new();
    for number in 0..options.rounds {
        tell(&format!("round {}", number + 1));
        rounds.push(round(on, &full, number)?.0);
    }
    Ok(BesideFinding {
        kind: kind.into(),
        rounds,
        warm: Some(warm),
    })
}

/// All write at the same time; then what they wrote is removed.
fn round(
    on: workload::On<'_>,
    workload: &WorkloadSpec,
    number: usize,
) -> Result<(BesideRound, WorkloadPhase)> {
    let nodes = || on.0.nodes().iter().map(|node| node.pid());
    let used = || {
        nodes().try_fold((0.0, 0.0), |(user, system), pid| {
            let usage = procfs::usage(pid)?;
            Ok((user + usage.user_s, system + usage.system_s))
        })
    };
    let before: (f64, f64) = used()?;
    let phase = workload::write(on, workload, number)?;
    let after: (f64, f64) = used()?;
    let mut pss_kib = 0;
    for pid in nodes() {
        pss_kib += procfs::pss_kib(pid)?;
    }
    for (at, client) in on.1.iter().enumerate() {
        client.fs(&["-rm", "-r", "-skipTrash", &workload::path(number, at)])?;
    }
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (gib, pss_mib) = (phase.bytes as f64 / GIB, pss_kib as f64 / 1024.0);
    let round = BesideRound {
        mbs: phase.mbs,
        cpu_s_gib: ((after.0 - before.0) / gib, (after.1 - before.1) / gib),
        pss_mib,
        waited: phase.waited(),
        late: phase.model.iter().map(|disk| disk.late).sum(),
    };
    Ok((round, phase))
}

/// The table and the bars, a part of a page.
pub(super) fn section(options: &ExperimentOptions, findings: &[BesideFinding]) -> String {
    let mut text = format!(
        "\n## One process beside eight\n\nOne host with all {DISKS} disks: one process of {} \
         virtual nodes, or as many stock DataNodes on the same directories. {CLIENTS} clients \
         write {STREAMS} streams of {} MiB each, one replica. Memory is PSS of all processes after \
         a round; processor seconds are for a GiB.\n\n\
         | | write MB/s | user s | system s | memory MiB | waited for a processor | late |\n\
         |---|---|---|---|---|---|---|\n",
        NAMES.len(),
        options.mib,
    );
    for finding in findings {
        let of = |of: fn(&BesideRound) -> f64| spread(finding.rounds.iter().map(of).collect());
        let waited = of(|round| round.waited).0;
        let _ = writeln!(
            text,
            "| {}{} | {} | {} | {} | {} | {:.0} % | {} |",
            finding.kind,
            marks::signs(waited, finding.warm),
            in_words(of(|round| round.mbs)),
            in_words(of(|round| round.cpu_s_gib.0)),
            in_words(of(|round| round.cpu_s_gib.1)),
            in_words(of(|round| round.pss_mib)),
            waited * 100.0,
            finding.rounds.iter().map(|round| round.late).sum::<u64>(),
        );
    }
    bars(&mut text, findings);
    text
}

/// What was asked for, and what came.
fn bars(text: &mut String, findings: &[BesideFinding]) {
    let of = |kind: &str| findings.iter().find(|finding| finding.kind == kind);
    let (Some(ours), Some(stock)) = (of("hayloft"), of("apache")) else {
        return;
    };
    let share = |of: fn(&BesideRound) -> f64| {
        let median = |finding: &BesideFinding| spread(finding.rounds.iter().map(of).collect()).0;
        median(ours) / median(stock)
    };
    let cpu = share(|round| round.cpu_s_gib.0 + round.cpu_s_gib.1);
    let memory = share(|round| round.pss_mib);
    let write = share(|round| round.mbs);
    let verdict = |met: bool| if met { "met" } else { "NOT met" };
    let _ = write!(
        text,
        "\n- Processor time: {cpu:.2} of stock (asked: at most {CPU_BAR:.2}): {}\n\
         - Memory: {memory:.2} of stock (asked: at most {MEMORY_BAR:.2}): {}\n\
         - Writes: {write:.2} of stock (asked: at least {WRITE_BAR:.2}): {}\n",
        verdict(cpu <= CPU_BAR),
        verdict(memory <= MEMORY_BAR),
        verdict(write >= WRITE_BAR),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::scaling::tests::is_right;

    #[test]
    fn both_kinds_are_on_the_same_directories() {
        let options = ExperimentOptions::default();
        let [ours, stock] = ["hayloft", "apache"].map(|kind| described(kind, &options));
        is_right(&ours);
        is_right(&stock);
        let node = |of: &Description| of.racks[0].hosts[0].nodes[0].clone();
        assert_eq!(node(&ours).virtual_nodes, NAMES);
        assert_eq!(node(&ours).virtual_nodes, node(&stock).virtual_nodes);
        assert_eq!(node(&ours).disks, node(&stock).disks);
    }

    fn finding(kind: &str, mbs: f64, cpu: f64, pss_mib: f64) -> BesideFinding {
        BesideFinding {
            kind: kind.into(),
            rounds: vec![BesideRound {
                mbs,
                cpu_s_gib: (cpu / 2.0, cpu / 2.0),
                pss_mib,
                ..BesideRound::default()
            }],
            warm: Some(true),
        }
    }

    #[test]
    fn every_bar_is_judged_at_its_edge() {
        let stock = finding("apache", 100.0, 9.0, 1200.0);
        let said =
            |ours: BesideFinding| section(&ExperimentOptions::default(), &[ours, stock.clone()]);
        let good = said(finding("hayloft", 100.0, 3.0, 200.0));
        assert_eq!(good.matches(": met").count(), 3, "{good}");
        let bad = said(finding("hayloft", 99.0, 3.1, 201.0));
        assert_eq!(bad.matches("NOT met").count(), 3, "{bad}");
    }

    #[test]
    fn without_the_other_kind_there_is_no_verdict() {
        let text = section(
            &ExperimentOptions::default(),
            &[finding("hayloft", 1.0, 1.0, 1.0)],
        );
        assert!(text.contains("| hayloft | 1.0"), "{text}");
        assert!(!text.contains("met"), "{text}");
    }
}
