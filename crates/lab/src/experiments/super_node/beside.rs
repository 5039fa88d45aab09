//! One process with eight virtual nodes beside eight stock DataNodes on the same directories.

use super::super::testbeds::{all_disks, bring_up, each_kind, one_rack};
use crate::describe::{Description, HostSpec, WorkloadSpec};
use crate::runner::options::ExperimentOptions;
use crate::runner::record::{PeerFigures, WARM};
use crate::runner::table::{Bar, WantedRatio, pick};
use crate::runner::{OURS, PeerTurn, Run};
use crate::sample::Watch;
use crate::workload::{self, WorkloadPhase};
use hayloft_testkit::error::Result;
use hayloft_testkit::process_usage;

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

/// What was asked for.
pub(super) fn wants(part: &str) -> Vec<WantedRatio> {
    let want = |text: &str, figure, bar| WantedRatio {
        text: text.into(),
        of: pick(part, "", OURS, "write", figure),
        over: pick(part, "", "stock", "write", figure),
        bar,
    };
    vec![
        want("processor time to stock", "s_gib", Bar::Most(CPU_BAR)),
        want("memory to stock", "pss_mib", Bar::Most(MEMORY_BAR)),
        want("writes to stock", "mbs", Bar::Least(WRITE_BAR)),
    ]
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

pub(super) fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    each_kind(run, (part, ""), &mut |turn, kind| measure(turn, kind))
}

/// Writes with `kind`'s nodes.
fn measure(turn: &mut PeerTurn<'_>, kind: &str) -> Result<()> {
    let mut described = described(kind, turn.options);
    described.workload.mib = turn.mib();
    let testbed = bring_up(turn, described)?;
    let clients = workload::start_clients(&testbed, &mut |what| turn.tell(what))?;
    let watch = Watch::begin(&testbed)?;
    let full = testbed.described().workload.clone();
    let small = WorkloadSpec {
        mib: full.mib.min(WARM_UP_MIB),
        ..full.clone()
    };
    let on = (&testbed, clients.as_slice(), &watch);
    let warm = turn.warm_up(|number| Ok(round(on, &small, number)?.1.cpu_s()))?;
    let (figures, phase) = round(on, &full, turn.round)?;
    let outcome = workload::outcome(watch, vec![phase]);
    for phase in &outcome.phases {
        let figures = phase.figures(testbed.described()).and(figures.clone());
        turn.give(phase.what, figures.with(WARM, warm));
    }
    Ok(())
}

/// All write at the same time; then what they wrote is removed.
fn round(
    on: workload::On<'_>,
    workload: &WorkloadSpec,
    number: usize,
) -> Result<(PeerFigures, WorkloadPhase)> {
    let nodes = || on.0.nodes().iter().map(|node| node.pid());
    let used = || {
        nodes().try_fold((0.0, 0.0), |(user, system), pid| {
            let usage = process_usage::usage(pid)?;
            Ok((user + usage.user_s, system + usage.system_s))
        })
    };
    let before: (f64, f64) = used()?;
    let phase = workload::write(on, workload, number)?;
    let after: (f64, f64) = used()?;
    let mut pss_kib = 0;
    for pid in nodes() {
        pss_kib += process_usage::pss_kib(pid)?;
    }
    for (at, client) in on.1.iter().enumerate() {
        client.fs(&["-rm", "-r", "-skipTrash", &workload::path(number, at)])?;
    }
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (gib, pss_mib) = (phase.bytes as f64 / GIB, pss_kib as f64 / 1024.0);
    let (user, system) = ((after.0 - before.0) / gib, (after.1 - before.1) / gib);
    let figures = PeerFigures::of([
        ("user_s_gib", user),
        ("system_s_gib", system),
        ("s_gib", user + system),
        ("pss_mib", pss_mib),
    ]);
    Ok((figures, phase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::testbeds::{slow_disks, tests::is_right};
    use crate::runner::page::ExperimentPage;
    use crate::runner::record::{PeerSample, Record};
    use crate::runner::table::Shown;

    #[test]
    fn both_kinds_are_on_the_same_directories() {
        let options = slow_disks();
        let [ours, stock] = ["hayloft", "apache"].map(|kind| described(kind, &options));
        is_right(&ours);
        is_right(&stock);
        let node = |of: &Description| of.racks[0].hosts[0].nodes[0].clone();
        assert_eq!(node(&ours).virtual_nodes, NAMES);
        assert_eq!(node(&ours).virtual_nodes, node(&stock).virtual_nodes);
        assert_eq!(node(&ours).disks, node(&stock).disks);
    }

    #[test]
    fn every_bar_is_judged_at_its_edge() {
        const SHOWN: Shown = Shown {
            tables: include_str!("../tables/super.txt"),
            wants: || wants("beside"),
            ..Shown::NOTHING
        };
        let of = |peer, mbs, cpu, pss| {
            let figures = PeerFigures::of([("mbs", mbs), ("s_gib", cpu), ("pss_mib", pss)]);
            PeerSample::first(("beside", "", peer, "write"), figures)
        };
        let said = |ours| {
            let samples = vec![of("stock-sync", 100.0, 9.0, 1200.0), ours];
            let record = Record::signed(samples);
            ExperimentPage::new(&SHOWN, &record).body(2)
        };
        let good = said(of(OURS, 100.0, 3.0, 200.0));
        assert_eq!(good.matches(": met").count(), 3, "{good}");
        let bad = said(of(OURS, 99.0, 3.1, 201.0));
        assert_eq!(bad.matches("NOT met").count(), 3, "{bad}");
    }
}
