//! As many clients as storage nodes: on the same hosts, apart under the stock policy, apart under
//! ours. The thesis' Tables 7.2 and 7.3 and Figures 7.3 and 7.4.

use std::fmt::Write as _;

use super::marks::signs;
use super::scaling::{
    ExperimentRow, ExperimentStep, LAST, ScalingExperiment, last, of_linear, one_rack, share,
    storage_host,
};
use super::{ExperimentOptions, in_words};
use crate::describe::HostSpec;

/// The experiment.
pub const PAIRS: ScalingExperiment = ScalingExperiment {
    name: "pairs",
    about: "N clients and N storage nodes: together, apart with the stock policy, apart with ours",
    replicas: 1,
    steps,
    tables,
};

/// Arrangement: the clients run on the nodes' hosts.
const LOCAL: &str = "local";
/// Arrangement: clients on hosts of their own, the stock placement policy.
const SPLIT_STOCK: &str = "split, stock policy";
/// Arrangement: clients on hosts of their own, our placement policy.
const SPLIT_OURS: &str = "split, ours";

/// What doubling clients and nodes shall gain, and what share of linear growth shall stay.
const BAR: f64 = 0.85;

/// Aggregate MB/s of the thesis' Tables 7.2 and 7.3: one and two writers, one and two readers.
const THESIS: [(&str, [f64; 4]); 3] = [
    (LOCAL, [67.3, 145.2, 70.1, 142.6]),
    (SPLIT_STOCK, [67.8, 61.6, 68.7, 51.8]),
    (SPLIT_OURS, [70.4, 130.7, 69.8, 131.4]),
];

fn steps(options: &ExperimentOptions) -> Vec<ExperimentStep> {
    let mut steps = Vec::new();
    for clients in [1, 2, 4, 8].into_iter().filter(|n| *n <= options.largest) {
        for (arrangement, placement) in [
            (LOCAL, "stock"),
            (SPLIT_STOCK, "stock"),
            (SPLIT_OURS, "split"),
        ] {
            let mut hosts = Vec::new();
            for at in 0..clients {
                hosts.push(storage_host(at, arrangement == LOCAL, options));
            }
            if arrangement != LOCAL {
                hosts.extend((0..clients).map(|at| HostSpec::client(format!("c{at}"))));
            }
            steps.push(ExperimentStep {
                arrangement: arrangement.into(),
                clients,
                described: one_rack(options, placement, hosts, "own"),
            });
        }
    }
    steps
}

fn tables(text: &mut String, rows: &[ExperimentRow]) {
    let _ = writeln!(
        text,
        "| clients x nodes | arrangement | write MB/s | of linear | conflicts | disks busy | \
         processors | read MB/s | of linear | conflicts | disks busy | processors | {LAST}\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {0} x {0} | {1}{2} | {3} | {4} | {5:.0} % | {6:.0} % | {7:.0} % | {8} | {9} | \
             {10:.0} % | {11:.0} % | {12:.0} % | {13}",
            row.clients,
            row.arrangement,
            signs(row.waited, None),
            in_words(row.write),
            share(of_linear(rows, row, |r| r.write.0)),
            row.conflicts.0 * 100.0,
            row.busy.0 * 100.0,
            row.cpu.0 * 100.0,
            in_words(row.read),
            share(of_linear(rows, row, |r| r.read.0)),
            row.conflicts.1 * 100.0,
            row.busy.1 * 100.0,
            row.cpu.1 * 100.0,
            last(row),
        );
    }
    text.push_str(
        "\n## Beside the thesis (Tables 7.2 and 7.3)\n\nAggregate MB/s; the thesis' \
        disks are real.\n\n",
    );
    text.push_str(
        "| | | 1 writer | 2 writers | gain | 1 reader | 2 readers | gain \
        |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (arrangement, thesis) in THESIS {
        gains(text, arrangement, "thesis", thesis);
        if let Some(here) = one_and_two(rows, arrangement) {
            gains(text, arrangement, "here", here);
        }
    }
    bars(text, rows);
}

fn gains(text: &mut String, arrangement: &str, whose: &str, f: [f64; 4]) {
    let _ = writeln!(
        text,
        "| {arrangement} | {whose} | {:.1} | {:.1} | {:+.0} % | {:.1} | {:.1} | {:+.0} % |",
        f[0],
        f[1],
        (f[1] / f[0] - 1.0) * 100.0,
        f[2],
        f[3],
        (f[3] / f[2] - 1.0) * 100.0,
    );
}

/// MB/s of one and two writers, one and two readers.
fn one_and_two(rows: &[ExperimentRow], arrangement: &str) -> Option<[f64; 4]> {
    let of = |clients: usize| {
        rows.iter()
            .find(|row| row.clients == clients && row.arrangement == arrangement)
    };
    let (one, two) = (of(1)?, of(2)?);
    Some([one.write.0, two.write.0, one.read.0, two.read.0])
}

/// What was asked for, and what came.
fn bars(text: &mut String, rows: &[ExperimentRow]) {
    let verdict = |share: f64| if share >= BAR { "met" } else { "NOT met" };
    let asked = BAR * 100.0;
    if let Some([w1, w2, r1, r2]) = one_and_two(rows, SPLIT_OURS) {
        for (what, gain) in [("writing", w2 / w1 - 1.0), ("reading", r2 / r1 - 1.0)] {
            let _ = write!(
                text,
                "\n- 1 x 1 to 2 x 2, ours, {what}: {:+.0} % (asked: {asked:.0} %): {}",
                gain * 100.0,
                verdict(gain)
            );
        }
    }
    let largest = rows.iter().map(|row| row.clients).max().unwrap_or(1);
    let most = rows
        .iter()
        .filter(|row| row.clients == largest && largest > 2);
    for row in most {
        let (write, read) = (
            of_linear(rows, row, |r| r.write.0),
            of_linear(rows, row, |r| r.read.0),
        );
        let _ = write!(
            text,
            "\n- {largest} x {largest}, {}: {} of linear writing, {} reading",
            row.arrangement,
            share(write),
            share(read)
        );
        if row.arrangement == SPLIT_OURS {
            let least = write.unwrap_or(0.0).min(read.unwrap_or(0.0));
            let _ = write!(text, " (asked: {asked:.0} %): {}", verdict(least));
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::scaling::tests::{row, steps_are_right};
    use super::*;

    #[test]
    fn every_step_is_a_right_description() {
        steps_are_right(PAIRS);
    }

    #[test]
    fn bars_are_judged_by_our_policy() {
        let rows = |two: f64, eight: f64| {
            let one = [row(SPLIT_OURS, 1, 10.0), row(SPLIT_STOCK, 1, 10.0)];
            let more = [
                row(SPLIT_OURS, 2, two),
                row(SPLIT_STOCK, 2, 9.0),
                row(SPLIT_OURS, 8, eight),
                row(SPLIT_STOCK, 8, 20.0),
            ];
            [one.to_vec(), more.to_vec()].concat()
        };
        let said = |rows: &[ExperimentRow]| PAIRS.page(&ExperimentOptions::default(), "c", rows);
        let good = said(&rows(18.6, 70.0));
        assert_eq!(good.matches(": met").count(), 3, "{good}");
        assert!(
            good.contains("-10 %"),
            "stock's figure stands beside: {good}"
        );
        let bad = said(&rows(18.4, 67.0));
        assert_eq!(bad.matches("NOT met").count(), 3, "{bad}");
    }
}
