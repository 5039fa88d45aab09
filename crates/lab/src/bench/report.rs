//! Raw samples, medians, and a page that says where we lose.

use super::Options;
use crate::error::{LabError, Result};
use crate::node::Kind;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// One row measured once.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// `Apache` or `Hayloft`.
    pub kind: String,
    /// Round, from 0.
    pub round: u32,
    /// What was done.
    pub row: String,
    /// Client throughput.
    pub mib_per_s: f64,
    /// The node's CPU seconds in user mode per GiB moved.
    pub user_s_per_gib: f64,
    /// The node's CPU seconds in the kernel per GiB moved.
    pub system_s_per_gib: f64,
}

/// One start with many blocks.
#[derive(Clone, Debug, Serialize)]
pub struct StartSample {
    /// `Apache` or `Hayloft`.
    pub kind: String,
    /// Round, from 0.
    pub round: u32,
    /// Whether the page cache was emptied before.
    pub cold: bool,
    /// Seconds until its ports accepted connections.
    pub listening_s: f64,
    /// Seconds until the NameNode had processed its full block report.
    pub reported_s: f64,
    /// CPU seconds of the node by then.
    pub cpu_s: f64,
    /// Resident memory three seconds later, MiB.
    pub rss_mib: u64,
    /// Largest resident memory so far, MiB.
    pub peak_mib: u64,
}

/// All of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The command that made it.
    pub command: String,
    /// The machine in general terms.
    pub machine: BTreeMap<&'static str, String>,
    /// MiB moved per row.
    pub mib: u64,
    /// Blocks of the start-up measurement.
    pub blocks: u64,
    /// Flags of the stock DataNode's JVM.
    pub jvm_flags: Vec<String>,
    /// Rows.
    pub samples: Vec<Sample>,
    /// Largest resident memory of each node process after its rows: kind, round, KiB.
    pub peaks: Vec<(String, u32, u64)>,
    /// Starts with many blocks.
    pub starts: Vec<StartSample>,
}

impl Report {
    pub(super) fn begin(options: &Options) -> Self {
        Self {
            command: options.command.clone(),
            machine: machine(),
            mib: options.mib,
            blocks: options.blocks,
            jvm_flags: options.jvm_flags.clone(),
            samples: Vec::new(),
            peaks: Vec::new(),
            starts: Vec::new(),
        }
    }

    pub(super) fn peak(&mut self, kind: Kind, round: u32, kib: u64) {
        self.peaks.push((format!("{kind:?}"), round, kib));
    }

    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|e| LabError::Talk(format!("results: {e}")))?;
        for (name, text) in [("results.json", json), ("README.md", self.to_markdown())] {
            let path = dir.join(name);
            std::fs::write(&path, text).map_err(LabError::file("writing", path))?;
        }
        Ok(())
    }

    /// Every comparison: name, unit, whether more is better, stock values, our values.
    fn comparisons(&self) -> Vec<Comparison> {
        let mut all = Vec::new();
        let mut rows: Vec<&str> = Vec::new();
        for sample in &self.samples {
            if !rows.contains(&sample.row.as_str()) {
                rows.push(&sample.row);
            }
        }
        let of = |row: &str, value: fn(&Sample) -> f64| {
            [Kind::Apache, Kind::Hayloft].map(|kind| {
                let kind = format!("{kind:?}");
                self.samples
                    .iter()
                    .filter(|s| s.kind == kind && s.row == row)
                    .map(value)
                    .collect()
            })
        };
        for row in &rows {
            all.push(Comparison::new(
                row,
                "MiB/s",
                true,
                of(row, |s| s.mib_per_s),
            ));
        }
        for row in &rows {
            let values = of(row, |s| s.user_s_per_gib + s.system_s_per_gib);
            all.push(Comparison::new(
                &format!("node CPU, {row}"),
                "s/GiB",
                false,
                values,
            ));
        }
        let peaks = [Kind::Apache, Kind::Hayloft].map(|kind| {
            let kind = format!("{kind:?}");
            self.peaks
                .iter()
                .filter(|p| p.0 == kind)
                .map(|p| mib_f64(p.2 / 1024))
                .collect()
        });
        all.push(Comparison::new(
            "peak resident memory over all rows",
            "MiB",
            false,
            peaks,
        ));
        for cold in [true, false] {
            let temperature = if cold { "cold" } else { "warm" };
            let name = |what: &str| format!("{temperature} start, {} blocks: {what}", self.blocks);
            let of = |value: fn(&StartSample) -> f64| {
                [Kind::Apache, Kind::Hayloft].map(|kind| {
                    let kind = format!("{kind:?}");
                    self.starts
                        .iter()
                        .filter(|s| s.kind == kind && s.cold == cold)
                        .map(value)
                        .collect()
                })
            };
            all.push(Comparison::new(
                &name("ports open"),
                "s",
                false,
                of(|s| s.listening_s),
            ));
            all.push(Comparison::new(
                &name("all blocks reported"),
                "s",
                false,
                of(|s| s.reported_s),
            ));
            all.push(Comparison::new(&name("CPU"), "s", false, of(|s| s.cpu_s)));
            all.push(Comparison::new(
                &name("resident"),
                "MiB",
                false,
                of(|s| mib_f64(s.rss_mib)),
            ));
            all.push(Comparison::new(
                &name("peak"),
                "MiB",
                false,
                of(|s| mib_f64(s.peak_mib)),
            ));
        }
        all.retain(|c| c.values.iter().all(|values| !values.is_empty()));
        all
    }

    /// The page for people: medians with spread, ratio, and the losing cases by name.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut page = String::from("# Stock DataNode and Hayloft on one machine\n\n");
        let _ = writeln!(page, "Command: `{}`\n", self.command);
        for (name, value) in &self.machine {
            let _ = writeln!(page, "- {name}: {value}");
        }
        let flags = if self.jvm_flags.is_empty() {
            "none (the JVM's defaults)".into()
        } else {
            self.jvm_flags.join(" ")
        };
        let _ = writeln!(page, "- stock DataNode 3.5.0, JVM flags: {flags}");
        let _ = writeln!(
            page,
            "- one NameNode, one client JVM, one storage directory and replication 1 for both; {} MiB per row; \
             every byte read was compared\n",
            self.mib
        );
        page.push_str("Median (lowest to highest). Ratio: Hayloft over stock.\n\n");
        page.push_str("| | unit | stock DataNode | Hayloft | ratio |\n|---|---|---|---|---|\n");
        let comparisons = self.comparisons();
        for c in &comparisons {
            let [stock, ours] = c.values.each_ref().map(|values| spread(values));
            let _ = writeln!(
                page,
                "| {} | {} | {stock} | {ours} | {:.2} |",
                c.name,
                c.unit,
                c.ratio()
            );
        }
        page.push_str("\n## Where Hayloft is not better\n\n");
        let losing: Vec<&Comparison> = comparisons.iter().filter(|c| c.loses()).collect();
        if losing.is_empty() {
            page.push_str("No row of this run; other machines, disks and loads may differ.\n");
        }
        for c in losing {
            let _ = writeln!(page, "- {}: ratio {:.2}", c.name, c.ratio());
        }
        page
    }
}

struct Comparison {
    name: String,
    unit: &'static str,
    more_is_better: bool,
    /// Stock, ours.
    values: [Vec<f64>; 2],
}

impl Comparison {
    fn new(name: &str, unit: &'static str, more_is_better: bool, values: [Vec<f64>; 2]) -> Self {
        Self {
            name: name.into(),
            unit,
            more_is_better,
            values,
        }
    }

    fn ratio(&self) -> f64 {
        median(&self.values[1]) / median(&self.values[0])
    }

    fn loses(&self) -> bool {
        if self.more_is_better {
            self.ratio() <= 1.0
        } else {
            self.ratio() >= 1.0
        }
    }
}

fn mib_f64(mib: u64) -> f64 {
    f64::from(u32::try_from(mib).unwrap_or(u32::MAX))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> f64 {
    let values = sorted(values);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

fn spread(values: &[f64]) -> String {
    let all = sorted(values);
    let digits = if median(values) >= 100.0 { 0 } else { 2 };
    let (low, high) = (
        all.first().copied().unwrap_or(f64::NAN),
        all.last().copied().unwrap_or(f64::NAN),
    );
    format!(
        "{:.digits$} ({low:.digits$} to {high:.digits$})",
        median(values)
    )
}

/// The machine in general terms: nothing that names it.
fn machine() -> BTreeMap<&'static str, String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = read("/proc/meminfo");
    let kib: u64 = memory
        .lines()
        .find(|line| line.starts_with("MemTotal:"))
        .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0);
    let kernel = read("/proc/sys/kernel/osrelease");
    BTreeMap::from([
        ("cores", cores.to_string()),
        ("memory", format!("{} GiB", kib >> 20)),
        (
            "kernel",
            format!(
                "Linux {}",
                kernel.trim().split('-').next().unwrap_or_default()
            ),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(stock: f64, ours: f64) -> Report {
        let sample = |kind: &str, mib_per_s| Sample {
            kind: kind.into(),
            round: 0,
            row: "write, 1 stream".into(),
            mib_per_s,
            user_s_per_gib: 1.0,
            system_s_per_gib: 1.0,
        };
        Report {
            command: "x".into(),
            machine: BTreeMap::new(),
            mib: 1,
            blocks: 0,
            jvm_flags: Vec::new(),
            samples: vec![sample("Apache", stock), sample("Hayloft", ours)],
            peaks: vec![("Apache".into(), 0, 4096), ("Hayloft".into(), 0, 1024)],
            starts: Vec::new(),
        }
    }

    #[test]
    fn losing_rows_are_named() {
        let page = report(100.0, 50.0).to_markdown();
        let losing = page.split("## Where").nth(1).expect("the section is there");
        assert!(losing.contains("write, 1 stream: ratio 0.50"), "{page}");
        assert!(
            !losing.contains("peak"),
            "a quarter of the memory is no loss: {page}"
        );
    }

    #[test]
    fn medians_of_even_and_odd() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
    }
}
