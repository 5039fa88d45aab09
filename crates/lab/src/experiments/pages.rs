//! Pages of the experiments: tables of what was measured beside what the papers report.

use std::fmt::Write as _;
use std::path::Path;

use super::scaling::{
    ExperimentOptions, ExperimentRow, LAYOUT_HOSTS, LAYOUT_REPLICAS, LOCAL, SPLIT_OURS, SPLIT_STOCK,
};
use crate::report;
use hayloft_testkit::error::Result;

/// What doubling clients and nodes shall gain, and what share of linear growth shall stay.
const BAR: f64 = 0.85;

/// Aggregate MB/s of the thesis' Tables 7.2 and 7.3: one and two writers, one and two readers.
const THESIS: [(&str, [f64; 4]); 3] = [
    (LOCAL, [67.3, 145.2, 70.1, 142.6]),
    (SPLIT_STOCK, [67.8, 61.6, 68.7, 51.8]),
    (SPLIT_OURS, [70.4, 130.7, 69.8, 131.4]),
];

/// Writes page, plots and figures of all steps so far to `out`.
///
/// # Errors
/// When a file cannot be written.
pub fn write(
    name: &str,
    options: &ExperimentOptions,
    command: &str,
    rows: &[ExperimentRow],
    out: &Path,
) -> Result<()> {
    let page = page(name, options, command, rows);
    report::save_page(out, &page, "rows.json", &rows)?;
    for (what, of) in plots(rows) {
        let path = out.join(format!("{what}.svg"));
        report::plot_scaling(
            &format!("{name}: {}", what.replace('-', " ")),
            rows,
            of,
            &path,
        )?;
    }
    Ok(())
}

type Figure = fn(&ExperimentRow) -> f64;

fn plots(rows: &[ExperimentRow]) -> Vec<(&'static str, Figure)> {
    let mut plots: Vec<(&'static str, Figure)> =
        vec![("write", |row| row.write.0), ("read", |row| row.read.0)];
    if rows.iter().any(|row| row.read_other.is_some()) {
        plots.push(("read-other", |row| row.read_other.map_or(0.0, |r| r.0)));
    }
    plots
}

/// The page of an experiment.
#[must_use]
pub fn page(
    name: &str,
    options: &ExperimentOptions,
    command: &str,
    rows: &[ExperimentRow],
) -> String {
    let replicas = if name == "layouts" {
        LAYOUT_REPLICAS
    } else {
        1
    };
    let mut text = format!(
        "# Experiment {name}\n\nCommand: `{command}`\n\n\
         One machine, every host a network namespace, links of {} Mbit/s, modelled hard disks \
         (not real ones) of {} MB/s \
         reading and {} MB/s writing, storage nodes: {} ({}), stock NameNode and stock clients, \
         {} MiB for each client in \
         blocks of 16 MiB, {replicas} replica(s), {} rounds; median (lowest to highest). Caches \
         are dropped before reading.\n\n",
        options.link_mbit,
        options.disk_mbs.0,
        options.disk_mbs.1,
        options.kind,
        options.listed_conf(),
        options.mib,
        options.rounds
    );
    if name == "layouts" {
        layouts(&mut text, rows);
    } else {
        pairs(&mut text, rows);
    }
    text.push_str(
        "\nOf linear: against the same arrangement with one client, times the clients. Conflicts: \
            share of the time in \
         which two streams were on one disk while another had none. Processors: without what \
         others' programs of a lower \
         priority took of this machine. Late: requests that a modelled disk answered more than 2 \
         ms after their time. A \
         directory beside this page holds every step with its description, figures and each \
         disk's utilisation over time.\n",
    );
    for (what, _) in plots(rows) {
        let _ = write!(text, "\n![{what}]({what}.svg)");
    }
    text.push('\n');
    text
}

fn pairs(text: &mut String, rows: &[ExperimentRow]) {
    text.push_str(
        "| clients x nodes | arrangement | write MB/s | of linear | conflicts | disks busy | \
            processors | read MB/s | of linear | \
         conflicts | disks busy | processors | late | limited by (write, read) |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {0} x {0} | {1} | {2} | {3} | {4:.0} % | {5:.0} % | {6:.0} % | {7} | {8} | {9:.0} \
                % | {10:.0} % | {11:.0} % | {12} | {13}, {14} |",
            row.clients,
            row.arrangement,
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
            row.late,
            row.limit.0,
            row.limit.1,
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

fn layouts(text: &mut String, rows: &[ExperimentRow]) {
    let _ = writeln!(
        text,
        "{LAYOUT_HOSTS} hosts, each a client's and a node's. `random` is the stock policy: first \
            replica in the client's own \
         host, the others at random.\n\n\
         | clients | layout | write MB/s | conflicts | disks busy | processors | read own file \
         MB/s | read another's MB/s | disks busy | \
         processors | late | limited by (write, read) \
         |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut sorted: Vec<&ExperimentRow> = rows.iter().collect();
    sorted.sort_by_key(|row| row.clients);
    for row in sorted {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} % | {:.0} % | {:.0} % | {} | {} | {:.0} % | {:.0} % | {} | \
                {}, {} |",
            row.clients,
            row.arrangement,
            in_words(row.write),
            row.conflicts.0 * 100.0,
            row.busy.0 * 100.0,
            row.cpu.0 * 100.0,
            in_words(row.read),
            row.read_other.map_or("-".into(), in_words),
            row.busy.1 * 100.0,
            row.cpu.1 * 100.0,
            row.late,
            row.limit.0,
            row.limit.1,
        );
    }
    text.push_str(
        "\nThe paper (50 servers, 10 Gbit/s links, up to 50 clients) gives curves, not figures. \
            Its Figure 5: hybrid writes \
         faster than round-robin, and both scale better than HDFS's random layout. Figure 9 (a), \
         own file: hybrid and random read faster \
         than round-robin, which keeps no copy with the writer. Figure 9 (b), another's file: all \
         three alike, and at the rate of \
         round-robin in (a).\n",
    );
}

fn in_words((median, low, high): (f64, f64, f64)) -> String {
    format!("{median:.1} ({low:.1} to {high:.1})")
}

fn share(share: Option<f64>) -> String {
    share.map_or("-".into(), |s| format!("{:.0} %", s * 100.0))
}

/// A row's rate over what one client gave in the same arrangement, times the clients.
fn of_linear(rows: &[ExperimentRow], row: &ExperimentRow, of: Figure) -> Option<f64> {
    let one = rows
        .iter()
        .find(|other| other.clients == 1 && other.arrangement == row.arrangement)?;
    #[expect(clippy::cast_precision_loss, reason = "a few clients")]
    let linear = of(one) * row.clients as f64;
    (linear > 0.0).then(|| of(row) / linear)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(arrangement: &str, clients: usize, mbs: f64) -> ExperimentRow {
        ExperimentRow {
            arrangement: arrangement.into(),
            clients,
            write: (mbs, mbs, mbs),
            read: (mbs, mbs, mbs),
            read_other: None,
            conflicts: (0.0, 0.0),
            busy: (0.0, 0.0),
            cpu: (0.0, 0.0),
            late: 0,
            limit: (String::new(), String::new()),
        }
    }

    #[test]
    fn linear_is_measured_against_one_client_of_the_same_arrangement() {
        let rows = [row("a", 1, 10.0), row("b", 1, 20.0), row("b", 4, 60.0)];
        let share = of_linear(&rows, &rows[2], |r| r.write.0).expect("there is one client");
        assert!((share - 0.75).abs() < 1e-9);
        assert_eq!(
            of_linear(&rows[1..], &row("a", 4, 1.0), |r| r.write.0),
            None
        );
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
        let said = |rows: &[ExperimentRow]| page("pairs", &ExperimentOptions::default(), "c", rows);
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
