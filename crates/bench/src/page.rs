//! The page of a run for people.

use super::cells::{Cells, JUDGED, TOO_LITTLE, ahead, ratio};
use super::fair::limit::Lead;
use super::fair::origin::commits_since;
use super::fair::signs;
use super::fair::spread::Spread;
use super::fair::stock::is_stock;
use super::fair::table::MarkdownTable;
use super::figures::Figure;
use super::limits::LIMIT;
use super::peers::{DEFAULT, STOCK};
use super::record::{BenchRecord, RowMark};
use super::rows::Client;
use super::start;
use super::targets::BenchTarget;
use super::verdicts::{Verdict, verdicts};
use hayloft_testkit::congestion;
use std::fmt::Write as _;

/// Figures with a table of their own, in order.
const TABLES: [(&str, &[Figure]); 6] = [
    (
        "Throughput",
        &[
            Figure::Rate,
            Figure::SettledRate,
            Figure::Balanced,
            Figure::SentRate,
        ],
    ),
    (
        "Processor time",
        &[
            Figure::NodeCpu,
            Figure::NodeUser,
            Figure::NodeSystem,
            Figure::MachineCpu,
            Figure::ClientCpu,
            Figure::SentCpu,
        ],
    ),
    (
        "Latency",
        &[Figure::Ops, Figure::P50, Figure::P99, Figure::P999],
    ),
    (
        "What was in use",
        &[
            Figure::CpuShare,
            Figure::Waited,
            Figure::DiskBusy,
            Figure::PeerShare,
            Figure::ClientShare,
        ],
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
/// Figures of many blocks, each kind of row by itself.
const MANY_BLOCKS: [(&str, &[Figure]); 2] = [
    (
        "Start-up",
        &[
            Figure::Listening,
            Figure::Reported,
            Figure::ReportSent,
            Figure::StartCpu,
            Figure::MemoryPeak,
            Figure::MemoryAfter,
        ],
    ),
    ("Mass delete", &[Figure::Deleted]),
];

/// Headings of rows, by whether their client is one that users have.
const GROUPS: [(&str, bool); 2] = [
    ("clients that users have", true),
    ("limits, with the load client that no user has", false),
];

/// Where a record of now is from, see [`DataOrigin::line`](super::fair::origin::DataOrigin::line).
#[must_use]
pub fn stands(record: &BenchRecord) -> String {
    let origin = &record.origin;
    origin.line(origin.signed().and_then(commits_since))
}

/// The page: where its data is from (`stands`), conditions, targets, tables, rows in which Hayloft
/// is not better, marks, failures.
#[must_use]
pub fn markdown(record: &BenchRecord, targets: &[BenchTarget], stands: &str) -> String {
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
    let _ = writeln!(page, "Command: `{}`\n\n{stands}\n", record.origin.command);
    for (name, value) in &record.origin.conditions {
        let _ = writeln!(page, "- {name}: {value}");
    }
    let _ = writeln!(
        page,
        "- {} MiB per row, up to {} rounds, peers in turn within each; every byte that was read \
            was compared\n",
        record.mib, record.rounds
    );
    if let Some(note) = congestion::note(&record.origin.conditions) {
        let _ = writeln!(page, "{note}\n");
    }
    targets_table(&mut page, &verdicts(record, targets));
    let cells = Cells::new(record);
    let _ = writeln!(
        page,
        "Values are medians (lowest-highest). {TOO_LITTLE}\nShare and limit are those of the \
         engine `{DEFAULT}`: its value over the better stock setting's.\n{}",
        Lead::MEANING,
    );
    for (group, of_users) in GROUPS {
        for (title, figures) in TABLES {
            let mut section = String::new();
            for &figure in figures {
                table(&mut section, &cells, figure, |workload, client| {
                    client.is_of_users() == of_users && !start::is_row(workload)
                });
            }
            if !section.is_empty() {
                let _ = write!(page, "\n## {title}: {group}\n{section}");
            }
        }
    }
    for (title, figures) in MANY_BLOCKS {
        let mut section = String::new();
        for &figure in figures {
            table(&mut section, &cells, figure, |workload, _| {
                start::is_row(workload)
            });
        }
        if !section.is_empty() {
            let _ = write!(page, "\n## {title}\n{section}");
        }
    }
    losses(&mut page, record);
    if !cells.marks.is_empty() {
        let (list, legend) = (marks_list(&cells.marks), signs::legend(&page));
        let _ = write!(page, "\n## Marked rows\n\n{legend}\n{list}");
    }
    failures(&mut page, record);
    page
}

/// A line for each mark.
pub(super) fn marks_list(marks: &[RowMark]) -> String {
    let line = |mark: &RowMark| {
        let (by, sign) = (mark.client.name(), mark.reason.sign());
        let figure = mark
            .figure
            .map_or_else(String::new, |f| format!(", {}", f.heading()));
        let row = format!("{}/{by}, {}{figure}", mark.workload, mark.peer);
        format!("- {sign} {row}: {}\n", mark.seen)
    };
    marks.iter().map(line).collect()
}

fn targets_table(page: &mut String, verdicts: &[Verdict]) {
    if verdicts.is_empty() {
        return;
    }
    let mut table = MarkdownTable::new(&["workload", "client", "peer", "wanted", "is", ""]);
    for verdict in verdicts {
        let met = match verdict.met {
            Some(true) => "met",
            Some(false) => "**not met**",
            None => "not judged: the row moved less than 4 GiB",
        };
        let beside = verdict.beside.as_ref();
        let beside = beside.map_or_else(String::new, |text| format!("; {text}"));
        table.row(&[
            verdict.workload.clone(),
            verdict.client.name().to_owned(),
            verdict.peer.clone(),
            verdict.wanted.clone(),
            format!("{:.2}", verdict.value),
            format!("{met}{beside}"),
        ]);
    }
    let _ = write!(page, "## Targets\n\n{}", table.text().unwrap_or_default());
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
fn table(
    page: &mut String,
    cells: &Cells<'_>,
    figure: Figure,
    wanted: impl Fn(&str, Client) -> bool,
) {
    let record = cells.record;
    let peers = record.peers.iter().map(String::as_str).chain([LIMIT]);
    let columns: Vec<&str> = peers
        .filter(|&peer| {
            record.samples.iter().any(|sample| {
                let has = sample.peer == peer && sample.figures.contains_key(&figure);
                has && wanted(&sample.workload, sample.client)
            })
        })
        .collect();
    let ends = ["share", "limited by"];
    let mut table =
        MarkdownTable::new(&[["workload", "client"].as_slice(), &columns, &ends].concat());
    let rows = record.rows().into_iter();
    for row in rows.filter(|&(workload, client)| wanted(workload, client)) {
        let of_peer = columns.iter();
        let mut of_row: Vec<String> = of_peer
            .map(|peer| cells.text(row, peer, figure, Spread::text))
            .collect();
        if of_row.iter().all(String::is_empty) {
            continue;
        }
        of_row.push(cells.share(row, DEFAULT, figure).unwrap_or_default());
        of_row.push(cells.limit(row, DEFAULT).name().to_owned());
        table.row(&[vec![row.0.to_owned(), row.1.name().to_owned()], of_row].concat());
    }
    if let Some(text) = table.text() {
        let _ = write!(page, "\n**{}**\n\n{text}", figure.heading());
    }
}

/// Where an engine is not better than the stock DataNode: every row of the run.
fn losses(page: &mut String, record: &BenchRecord) {
    let cells = Cells::new(record);
    let mut lines = String::new();
    for row in record.rows() {
        for figure in JUDGED {
            for peer in record.peers.iter().filter(|peer| !is_stock(peer)) {
                let ahead = ahead(&cells, row, peer, figure);
                if let Some(ahead) = ahead.filter(|ahead| *ahead <= 1.0) {
                    let ratio = ratio(ahead, figure);
                    let (by, what) = (row.1.name(), figure.heading());
                    let name = format!("{} ({by}), {peer}", row.0);
                    let _ = writeln!(lines, "- {name}: {what}, {ratio:.2} of stock's");
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
        let _ = writeln!(
            page,
            "- {} ({}), {}, round {}: {first}",
            sample.workload,
            sample.client.name(),
            sample.peer,
            sample.round
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::super::targets::BenchTargets;
    use super::*;

    fn page(record: &BenchRecord) -> String {
        let own = BenchTargets::load().expect("the targets can be read");
        markdown(record, &own.targets, "")
    }

    #[test]
    fn losing_rows_and_targets_are_named() {
        let stock = [(Figure::Rate, 100.0), (Figure::NodeCpu, 1.0)];
        let own = [(Figure::Rate, 50.0), (Figure::NodeCpu, 0.5)];
        let (java, load) = (Client::Java, Client::Load);
        let record = record(&[
            ("cold-1", java, "stock", &stock),
            ("cold-1", java, "posix", &own),
            ("cold-1", load, "posix", &[(Figure::Rate, 60.0)]),
        ]);
        let page = page(&record);
        let loss = "cold-1 (java), posix: MB/s, 0.50 of stock's";
        assert!(page.contains(loss), "{page}");
        assert!(!page.contains("posix: node CPU"), "half is no loss: {page}");
        assert!(
            page.contains("**not met**") && page.contains("| met |"),
            "{page}"
        );
        assert!(page.contains("| cold-1 | java | 100 | 50.0 |"), "{page}");
        let limits = page.split("## Throughput: limits").nth(1).expect("apart");
        assert!(limits.contains("| cold-1 | load | 60.0 |"), "{page}");
    }

    #[test]
    fn slow_starts_and_deletes_are_losses_too() {
        let none = Client::None;
        let record = record(&[
            ("start-list-warm", none, "stock", &[(Figure::Reported, 3.0)]),
            (
                "start-list-warm",
                none,
                "direct",
                &[(Figure::Reported, 15.0)],
            ),
            ("delete-warm", none, "stock", &[(Figure::Deleted, 64.0)]),
            ("delete-warm", none, "direct", &[(Figure::Deleted, 128.0)]),
        ]);
        let page = page(&record);
        for loss in [
            "start-list-warm (-), direct: all blocks reported, s, 5.00 of stock's",
            "delete-warm (-), direct: all blocks deleted, s, 2.00 of stock's",
        ] {
            assert!(page.contains(loss), "{page}");
        }
    }

    #[test]
    fn processor_time_of_little_data_is_a_dash_and_marks_stand_at_values() {
        let value = [(Figure::Rate, 100.0), (Figure::NodeCpu, 1.0)];
        let mut record = record(&[("cold-1", Client::Java, "stock", &value)]);
        record.mib = 512;
        record.warm_ups.push(super::super::record::WarmUp {
            workload: "cold-1".into(),
            client: Client::Java,
            peer: "stock".into(),
            paces: vec![50.0, 100.0],
        });
        let page = page(&record);
        assert!(page.contains("| cold-1 | java | 100\\* |"), "{page}");
        assert!(page.contains("| cold-1 | java | - |"), "{page}");
        assert!(page.contains("- \\* cold-1/java, stock: 50, 100"), "{page}");
    }
}
