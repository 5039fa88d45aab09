//! As many clients as storage nodes: on the same hosts, apart under the stock policy, apart under
//! ours. The thesis' Tables 7.2 and 7.3 and Figures 7.3 and 7.4.

use hayloft_testkit::error::Result;

use super::testbeds::{about, bring_up, measure, one_rack, slow_disks, storage_host};
use crate::describe::{Description, HostSpec};
use crate::runner::options::ExperimentOptions;
use crate::runner::table::{Bar, Plot, Shown, WantedRatio, pick};
use crate::runner::{Experiment, Run};

/// The experiment.
pub const PAIRS: Experiment = Experiment {
    name: "pairs",
    question: "N clients and N storage nodes: together, apart with the stock policy, or with ours",
    paper: "the thesis' Tables 7.2 and 7.3, Figures 7.3 and 7.4",
    options: slow_disks,
    about: |options| {
        about(
            options,
            &format!("Storage nodes: {}; one replica.", options.kind),
        )
    },
    measure: carry_out,
    shown: SHOWN,
    ..Experiment::OF_RATES
};

/// Arrangement: the clients run on the nodes' hosts.
const LOCAL: &str = "local";
/// Arrangement: clients on hosts of their own, the stock placement policy.
const SPLIT_STOCK: &str = "split, stock policy";
/// Arrangement: clients on hosts of their own, our placement policy.
const SPLIT_OURS: &str = "split, ours";
/// Arrangements with their placement policy.
const ARRANGEMENTS: [(&str, &str); 3] = [
    (LOCAL, "stock"),
    (SPLIT_STOCK, "stock"),
    (SPLIT_OURS, "split"),
];
const CLIENTS: [usize; 4] = [1, 2, 4, 8];

/// What doubling clients and nodes shall gain, and what share of linear growth shall stay.
const BAR: f64 = 0.85;

const SHOWN: Shown = Shown {
    title: "Clients and nodes apart",
    tables: include_str!("tables/pairs.txt"),
    wants,
    plots: &[
        Plot {
            name: "write",
            of: ("write", "mbs"),
        },
        Plot {
            name: "read",
            of: ("read", "mbs"),
        },
    ],
    paper: "Aggregate MB/s of the thesis' Tables 7.2 and 7.3, on real disks:\n\n\
            | | 1 writer | 2 writers | gain | 1 reader | 2 readers | gain |\n\
            |---|---|---|---|---|---|---|\n\
            | local | 67.3 | 145.2 | +116 % | 70.1 | 142.6 | +103 % |\n\
            | split, stock policy | 67.8 | 61.6 | -9 % | 68.7 | 51.8 | -25 % |\n\
            | split, ours | 70.4 | 130.7 | +86 % | 69.8 | 131.4 | +88 % |",
};

/// Two pairs to one, and the most pairs to one.
fn wants() -> Vec<WantedRatio> {
    let mut wants = Vec::new();
    for what in ["write", "read"] {
        for (row, clients) in [("2", 1.0 + BAR), ("8", 8.0 * BAR)] {
            wants.push(WantedRatio {
                text: format!("{what}, ours, {row} x {row} to 1 x 1"),
                of: pick("", row, SPLIT_OURS, what, "mbs"),
                over: pick("", "1", SPLIT_OURS, what, "mbs"),
                bar: Bar::Least(clients),
            });
        }
    }
    wants
}

fn described(
    options: &ExperimentOptions,
    clients: usize,
    (arrangement, placement): (&str, &str),
) -> Description {
    let local = arrangement == LOCAL;
    let mut hosts: Vec<HostSpec> = (0..clients)
        .map(|at| storage_host(at, local, options))
        .collect();
    if !local {
        hosts.extend((0..clients).map(|at| HostSpec::client(format!("c{at}"))));
    }
    one_rack(options, placement, hosts, "own")
}

fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    let largest = run.options.largest;
    for clients in CLIENTS.into_iter().filter(|clients| *clients <= largest) {
        let row = clients.to_string();
        let peers = ARRANGEMENTS.map(|(name, _)| (row.as_str(), name));
        run.rounds(part, &peers, &mut |turn, at| {
            let mut described = described(turn.options, clients, ARRANGEMENTS[at]);
            described.workload.mib = turn.mib();
            let testbed = bring_up(turn, described)?;
            measure(turn, &row, &testbed).map(drop)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testbeds::tests::is_right;
    use super::*;
    use crate::runner::page::ExperimentPage;
    use crate::runner::record::{PeerFigures, PeerSample, Record};

    #[test]
    fn every_step_is_a_right_description() {
        for clients in CLIENTS {
            for arrangement in ARRANGEMENTS {
                let described = described(&slow_disks(), clients, arrangement);
                is_right(&described);
                assert_eq!(described.clients(), clients, "{arrangement:?}");
            }
        }
    }

    #[test]
    fn bars_are_judged_by_our_policy() {
        let said = |two: f64, eight: f64| {
            let of = |row, peer, mbs: f64| {
                let figures = || PeerFigures::of([("mbs", mbs)]);
                ["write", "read"].map(|what| PeerSample::first(("", row, peer, what), figures()))
            };
            let samples = [
                of("1", SPLIT_OURS, 10.0),
                of("2", SPLIT_STOCK, 9.0),
                of("2", SPLIT_OURS, two),
                of("8", SPLIT_OURS, eight),
            ];
            let record = Record::signed(samples.concat());
            ExperimentPage::new(&SHOWN, &record).body(2)
        };
        let good = said(18.6, 70.0);
        assert_eq!(good.matches(": met").count(), 4, "{good}");
        let bad = said(18.4, 67.0);
        assert_eq!(bad.matches("NOT met").count(), 4, "{bad}");
    }
}
