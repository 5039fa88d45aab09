//! The page of a run for people.

use super::bars::{self, Verdict};
use super::figures::Figure;
use super::limits::LIMIT;
use super::peers::STOCK;
use super::record::BenchRecord;
use super::rows::Client;
use hayloft_testkit::congestion;
use std::fmt::Write as _;

/// Figures with a table of their own, in order.
const TABLES: [(&str, &[Figure]); 5] = [
    (
        "Throughput",
        &[Figure::Rate, Figure::SettledRate, Figure::SentRate],
    ),
    (
        "Processor time",
        &[
            Figure::NodeCpu,
            Figure::NodeUser,
            Figure::NodeSystem,
            Figure::MachineCpu,
            Figure::ClientCpu,
        ],
    ),
    (
        "Latency",
        &[Figure::Ops, Figure::P50, Figure::P99, Figure::P999],
    ),
    ("Memory", &[Figure::MemoryPeak]),
    (
        "The device",
        &[
            Figure::Requests,
            Figure::RequestSize,
            Figure::RunLength,
            Figure::Seeks,
            Figure::Extents,
        ],
    ),
];
const START: [Figure; 4] = [
    Figure::Listening,
    Figure::Reported,
    Figure::StartCpu,
    Figure::MemoryPeak,
];

/// The page: conditions, bars, tables, plots, rows in which Hayloft is not better, failures.
#[must_use]
pub fn markdown(record: &BenchRecord, plots: &[String]) -> String {
    let mut page = String::from("# Stock DataNode and Hayloft on one machine\n\n");
    if record.modelled {
        page.push_str(
            "**The disk is modelled**: it tells how streams share a head, not how fast \
            a disk is.\n\n",
        );
    }
    if record.interrupted {
        page.push_str(
            "**The run was interrupted**: what is here was measured, the rest was not.\n\n",
        );
    }
    let _ = writeln!(page, "Command: `{}`\n", record.command);
    for (name, value) in &record.conditions {
        let _ = writeln!(page, "- {name}: {value}");
    }
    let _ = writeln!(
        page,
        "- {} MiB per row, up to {} rounds, peers in turn within each; every byte that was read \
            was compared\n",
        record.mib, record.rounds
    );
    if let Some(note) = congestion::note(&record.conditions) {
        let _ = writeln!(page, "{note}\n");
    }
    bars_table(&mut page, &bars::verdicts(record));
    for plot in plots {
        let _ = writeln!(page, "![{plot}]({plot})\n");
    }
    page.push_str("Values are medians (lowest-highest). Rows name the client.\n");
    for (title, figures) in TABLES {
        let mut section = String::new();
        for &figure in figures {
            table(&mut section, record, figure, |workload| {
                !workload.starts_with("start")
            });
        }
        if !section.is_empty() {
            let _ = write!(page, "\n## {title}\n{section}");
        }
    }
    let mut section = String::new();
    for figure in START {
        table(&mut section, record, figure, |workload| {
            workload.starts_with("start")
        });
    }
    if !section.is_empty() {
        let _ = write!(page, "\n## Start-up\n{section}");
    }
    losses(&mut page, record);
    failures(&mut page, record);
    page
}

fn bars_table(page: &mut String, verdicts: &[Verdict]) {
    if verdicts.is_empty() {
        return;
    }
    page.push_str(
        "## Bars\n\n| workload | client | peer | wanted | is | |\n|---|---|---|---|---|---|\n",
    );
    for verdict in verdicts {
        let met = if verdict.met { "met" } else { "**not met**" };
        let beside = verdict.beside.as_ref();
        let beside = beside.map_or_else(String::new, |text| format!("; {text}"));
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {:.2} | {met}{beside} |",
            verdict.workload,
            verdict.client.name(),
            verdict.peer,
            verdict.wanted,
            verdict.value
        );
    }
    page.push('\n');
    let of_null = |verdict: &Verdict| verdict.beside.is_some() && verdict.wanted.contains("null");
    if verdicts.iter().any(of_null) {
        page.push_str(
            "Null acknowledges what it drops. An engine that writes to the device has the raw \
                device as its limit.\n\n",
        );
    }
}

/// A table of one figure: rows by peers. Nothing when no peer has the figure.
fn table(page: &mut String, record: &BenchRecord, figure: Figure, wanted: impl Fn(&str) -> bool) {
    let columns: Vec<&str> = record
        .peers
        .iter()
        .map(String::as_str)
        .chain([LIMIT])
        .filter(|peer| {
            let has = |s: &&super::record::BenchSample| {
                s.peer == **peer && s.figures.contains_key(&figure)
            };
            record
                .samples
                .iter()
                .any(|sample| has(&sample) && wanted(&sample.workload))
        })
        .collect();
    let mut lines = String::new();
    for (workload, client) in record
        .rows()
        .into_iter()
        .filter(|(workload, _)| wanted(workload))
    {
        let cells: Vec<String> = columns
            .iter()
            .map(|peer| {
                record
                    .spread(workload, client, peer, figure)
                    .map_or(String::new(), |s| s.text())
            })
            .collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            let _ = writeln!(
                lines,
                "| {workload} | {} | {} |",
                client.name(),
                cells.join(" | ")
            );
        }
    }
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n**{}**\n", figure.heading());
    let _ = writeln!(page, "| workload | client | {} |", columns.join(" | "));
    let _ = writeln!(page, "|---|---|{}", "---|".repeat(columns.len()));
    page.push_str(&lines);
}

/// Where an engine is not better than the stock DataNode.
fn losses(page: &mut String, record: &BenchRecord) {
    const JUDGED: [Figure; 7] = [
        Figure::Rate,
        Figure::SettledRate,
        Figure::Ops,
        Figure::P99,
        Figure::NodeCpu,
        Figure::MachineCpu,
        Figure::MemoryPeak,
    ];
    let mut lines = String::new();
    for (workload, client) in record.rows() {
        for figure in JUDGED {
            let Some(stock) = record.spread(workload, client, STOCK, figure) else {
                continue;
            };
            for peer in record.peers.iter().filter(|peer| !peer.starts_with(STOCK)) {
                let Some(own) = record.spread(workload, client, peer, figure) else {
                    continue;
                };
                let ratio = own.median / stock.median;
                let worse = if figure.more_is_better() {
                    ratio <= 1.0
                } else {
                    ratio >= 1.0
                };
                if worse {
                    let (by, what) = (client.name(), figure.heading());
                    let _ = writeln!(
                        lines,
                        "- {workload} ({by}), {peer}: {what}, {ratio:.2} of stock's"
                    );
                }
            }
        }
    }
    if record.peers.iter().any(|peer| peer == STOCK) {
        page.push_str("\n## Where Hayloft is not better\n\n");
        page.push_str(if lines.is_empty() {
            "No row of this run; other machines, disks and loads may differ.\n"
        } else {
            &lines
        });
    }
}

fn failures(page: &mut String, record: &BenchRecord) {
    let mut failures = record.failures().peekable();
    if failures.peek().is_none() {
        return;
    }
    page.push_str("\n## What failed\n\n");
    for sample in failures {
        let reason = sample.failed.as_deref().unwrap_or_default();
        let first = reason.lines().next().unwrap_or_default();
        let client: Client = sample.client;
        let _ = writeln!(
            page,
            "- {} ({}), {}, round {}: {first}",
            sample.workload,
            client.name(),
            sample.peer,
            sample.round
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn losing_rows_and_bars_are_named() {
        let native = Client::Native;
        let record = record(&[
            (
                "cold-1",
                native,
                "stock",
                &[(Figure::Rate, 100.0), (Figure::NodeCpu, 1.0)],
            ),
            (
                "cold-1",
                native,
                "posix",
                &[(Figure::Rate, 50.0), (Figure::NodeCpu, 0.5)],
            ),
        ]);
        let page = markdown(&record, &["rate.svg".into()]);
        assert!(
            page.contains("cold-1 (native), posix: MB/s, 0.50 of stock's"),
            "{page}"
        );
        assert!(
            !page.contains("posix: node CPU"),
            "half the CPU is no loss: {page}"
        );
        assert!(
            page.contains("**not met**") && page.contains("| met |"),
            "{page}"
        );
        assert!(page.contains("![rate.svg](rate.svg)"));
        assert!(page.contains("| cold-1 | native | 100 | 50.0 |"), "{page}");
    }
}
