//! The page of what was found, and the bars.

use std::fmt::Write as _;

use serde::Serialize;

use super::jobs::{self, PfsJobRow};
use super::layouts::{COPIES, FOUR_STREAMS, ONE_STREAM, READ, SERVERS, WRITE};
use super::reads::{BUFFERED, BUFFERED_DIRECT, FILE, FILE_DIRECT, LINKS, PREADS, SIZES};
use super::session::{PfsRow, Way};
use super::{ExperimentOptions, PfsFindings};
use crate::experiments::{in_words, marks};

/// A figure that shall be reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Bar {
    /// Of what.
    pub what: String,
    /// At least this, or at most.
    pub wanted: f64,
    pub at_most: bool,
    pub got: f64,
}

impl Bar {
    fn met(&self) -> bool {
        if self.at_most {
            self.got <= self.wanted
        } else {
            self.got >= self.wanted
        }
    }
}

fn mbs(rows: &[PfsRow], servers: usize, way: &str, what: &str) -> Option<f64> {
    let of = |row: &&PfsRow| row.servers == servers && row.way == way && row.what == what;
    rows.iter().find(of).map(|row| row.mbs.0)
}

/// Every bar whose rows are there.
pub(super) fn bars(rows: &[PfsRow]) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut least = |what: String, wanted: f64, got: Option<f64>| {
        if let Some(got) = got.filter(|got| got.is_finite()) {
            let at_most = false;
            bars.push(Bar {
                what,
                wanted,
                at_most,
                got,
            });
        }
    };
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    for (figure, _) in LINKS {
        let of = |way: &str, what: &str| {
            let is = |row: &&PfsRow| row.figure == figure && row.way == way && row.what == what;
            rows.iter().find(is).map(|row| row.mbs.0)
        };
        let sizes = SIZES.iter().filter_map(|(_, size)| of(BUFFERED, size));
        let best = ratio(of(BUFFERED, SIZES[0].1), sizes.reduce(f64::max));
        least(format!("{figure}: 4 KiB reads to the best size"), 0.9, best);
        for (ours, theirs) in [(BUFFERED, FILE), (BUFFERED_DIRECT, FILE_DIRECT)] {
            let cold = SIZES.map(|(_, size)| (size, 1.3));
            for (what, wanted) in cold.into_iter().chain([(PREADS, 1.0)]) {
                let to_file = ratio(of(ours, what), of(theirs, what));
                least(
                    format!("{figure}: cold reads of {what} to {theirs}"),
                    wanted,
                    to_file,
                );
            }
        }
    }
    // With as many copies as servers every layout is the same.
    for servers in SERVERS.into_iter().filter(|servers| *servers > COPIES) {
        for (what, wanted) in [(WRITE, 1.15), (READ, 1.5)] {
            let of = |layout| mbs(rows, servers, layout, what);
            let name = format!("{what}, hybrid to round-robin, {servers} servers");
            least(name, wanted, ratio(of("hybrid"), of("round-robin")));
        }
    }
    for servers in &SERVERS[1..] {
        for what in [WRITE, READ] {
            let of = |servers| mbs(rows, servers, "hybrid", what);
            #[expect(clippy::cast_precision_loss, reason = "a few servers")]
            let more = *servers as f64 / SERVERS[0] as f64;
            let linear = ratio(of(*servers), of(SERVERS[0])).map(|grown| grown / more);
            least(
                format!("{what}, hybrid, {servers} servers to linear"),
                0.9,
                linear,
            );
        }
    }
    for hdfs in [Way::STOCK, Way::HAYLOFT] {
        for what in [ONE_STREAM, FOUR_STREAMS] {
            let of = |way| mbs(rows, 4, way, what);
            let name = format!("memory: {what}, hybrid to {hdfs}");
            least(name, 0.8, ratio(of("hybrid"), of(hdfs)));
        }
    }
    bars
}

/// Those of jobs.
pub(super) fn job_bars(rows: &[PfsJobRow]) -> Vec<Bar> {
    let seconds = |way: &str, job: &str| {
        let of = |row: &&PfsJobRow| row.way == way && row.job == job;
        rows.iter().find(of).map(|row| row.seconds.0)
    };
    let mut bars = Vec::new();
    let mut bar = |what: String, wanted: f64, at_most: bool, got: Option<f64>| {
        bars.extend(got.map(|got| Bar {
            what,
            wanted,
            at_most,
            got,
        }));
    };
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    for row in rows.iter().filter(|row| row.way == jobs::BOTH) {
        let ours = seconds(row.way, row.job);
        for hdfs in [Way::STOCK, Way::HAYLOFT] {
            let wanted = if row.job == jobs::GREP { 1.05 } else { 1.1 };
            let got = ratio(ours, seconds(hdfs, row.job));
            bar(
                format!("{}, time of pfs:// to {hdfs}", row.job),
                wanted,
                true,
                got,
            );
        }
        #[expect(clippy::cast_precision_loss, reason = "a few tasks")]
        let local = row.local_maps.map(|(local, all)| local as f64 / all as f64);
        bar(
            format!("{}, map tasks of pfs:// beside their data", row.job),
            0.9,
            false,
            local,
        );
    }
    let neither = seconds(jobs::NEITHER, jobs::GREP);
    let got = ratio(neither, seconds(jobs::BOTH, jobs::GREP));
    bar(
        "grep, time of neither module to both".into(),
        5.0,
        false,
        got,
    );
    bars
}

fn job_table(text: &mut String, rows: &[PfsJobRow], mib: u32) {
    let _ = writeln!(
        text,
        "\n## Figures 3 and 11\n\nJobs of stock MapReduce on YARN, four hosts with {} containers \
         each, {} files of {mib} MiB, two copies, caches dropped before each; every round \
         counts. Without `buf` the \
         mount has no page cache and nothing is read ahead; without `map` a file seems to be \
         nowhere.\n\n| job | | seconds | map tasks beside their data |\n|---|---|---|---|",
        jobs::CONTAINERS,
        jobs::FILES
    );
    for row in rows {
        let local = row
            .local_maps
            .map(|(local, all)| format!("{local} of {all}"));
        let (job, way, local) = (row.job, row.way, local.unwrap_or("-".into()));
        let _ = writeln!(
            text,
            "| {job} | {way} | {} | {local} |",
            in_words(row.seconds)
        );
    }
}

/// The page.
pub(super) fn page(options: &ExperimentOptions, findings: &PfsFindings) -> String {
    let mut text = format!(
        "# Hadoop on a parallel file system\n\nCommand: `{}`\n\n\
         MooseFS: a master beside the NameNode, a chunk server and a FUSE mount on every host. \
         HDFS ran on the same disks in the same run, first with stock DataNodes, then with \
         Hayloft's on what those had written. {} rounds after one that does not count; median \
         (lowest to highest). Caches are dropped before reading; what was written is on the disk \
         when its close returns ({}; `HDD_FSYNC_BEFORE_CLOSE=1`). Links are shaped in rate, not in \
         latency (tbf: there is no netem).\n\n",
        findings.command,
        findings.rounds,
        options.listed_conf(),
    );
    for (figure, about) in sections(options) {
        let rows: Vec<&PfsRow> = findings
            .rows
            .iter()
            .filter(|row| row.figure == figure)
            .collect();
        if !rows.is_empty() {
            table(&mut text, figure, &about, &rows);
        }
    }
    for loss in &findings.loss {
        let _ = writeln!(
            text,
            "All but one of {} servers killed, {}: {} files of {} MiB together, every byte equal.",
            loss.servers, loss.layout, loss.files, loss.mib
        );
    }
    if !findings.jobs.is_empty() {
        job_table(&mut text, &findings.jobs, findings.mib);
    }
    text.push_str("\n## Bars\n\n| | wanted | got | met |\n|---|---|---|---|\n");
    for bar in &findings.bars {
        let sign = if bar.at_most { "at most" } else { "at least" };
        let met = if bar.met() { "yes" } else { "no" };
        let _ = writeln!(
            text,
            "| {} | {sign} {} | {:.2} | {met} |",
            bar.what, bar.wanted, bar.got
        );
    }
    text.push_str(&marks::legend(false));
    text
}

fn sections(options: &ExperimentOptions) -> [(&'static str, String); 4] {
    let (read, write) = options.disk_mbs;
    let one = |figure| {
        let about = "One client reads a file of another host's server in calls of a size. Links \
                     of that rate, the machine's own disk.";
        (figure, about.to_owned())
    };
    let layouts = format!(
        "A client on each server writes {} MiB with {COPIES} copies, reads it, then the next \
         client's. Modelled disks (not real ones) of {read} MB/s reading and {write} MB/s \
         writing, links of {} Mbit/s.",
        options.mib, options.link_mbit
    );
    let memory = "One client writes three copies to four servers on tmpfs, links no limit.";
    [
        one(LINKS[0].0),
        one(LINKS[1].0),
        ("5, 7 to 10", layouts),
        ("6", memory.into()),
    ]
}

fn table(text: &mut String, figure: &str, about: &str, rows: &[&PfsRow]) {
    let _ = writeln!(
        text,
        "## Figure {figure}\n\n{about}\n\n| servers | | what | MB/s | disks busy | waited for a \
         processor | late |\n|---|---|---|---|---|---|---|"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {}{} | {} | {} | {:.0} % | {:.0} % | {} |",
            row.servers,
            row.way,
            marks::signs(row.waited, None),
            row.what,
            in_words(row.mbs),
            row.disk_busy * 100.0,
            row.waited * 100.0,
            row.late
        );
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(servers: usize, way: &'static str, what: &'static str, mbs: f64) -> PfsRow {
        PfsRow {
            figure: LINKS[0].0,
            servers,
            way,
            what,
            mbs: (mbs, mbs, mbs),
            waited: 0.3,
            disk_busy: 0.5,
            late: 0,
        }
    }

    #[test]
    fn a_bar_is_judged_when_both_of_its_rows_are_there() {
        let rows = [
            row(6, "hybrid", WRITE, 23.0),
            row(6, "round-robin", WRITE, 20.0),
            row(4, "hybrid", WRITE, 20.0),
            row(2, BUFFERED, "4 KiB", 80.0),
            row(2, BUFFERED, "1 MiB", 100.0),
            row(2, BUFFERED_DIRECT, "4 KiB", 130.0),
            row(2, FILE_DIRECT, "4 KiB", 50.0),
        ];
        let bars = bars(&rows);
        let met: Vec<(&str, bool)> = bars.iter().map(|b| (b.what.as_str(), b.met())).collect();
        let wanted = [
            ("4, 1 Gbit/s: 4 KiB reads to the best size", false),
            (
                "4, 1 Gbit/s: cold reads of 4 KiB to file://, direct mount",
                true,
            ),
            ("write, hybrid to round-robin, 6 servers", true),
        ];
        assert_eq!(met, wanted);
    }

    #[test]
    fn a_job_is_compared_with_both_kinds_of_nodes() {
        let row = |way, job, seconds, local_maps| PfsJobRow {
            way,
            job,
            seconds: (seconds, seconds, seconds),
            local_maps,
        };
        let rows = [
            row(jobs::BOTH, jobs::GREP, 10.0, Some((8, 8))),
            row(Way::STOCK, jobs::GREP, 10.0, Some((8, 8))),
            row(Way::HAYLOFT, jobs::GREP, 9.0, Some((8, 8))),
            row(jobs::NEITHER, jobs::GREP, 55.0, Some((0, 8))),
        ];
        let met: Vec<bool> = job_bars(&rows).iter().map(Bar::met).collect();
        assert_eq!(met, [true, false, true, true]);
    }

    #[test]
    fn the_page_has_rows_and_bars() {
        let findings = PfsFindings {
            rows: vec![row(2, BUFFERED, "4 KiB", 80.0)],
            bars: vec![Bar {
                what: "grep".into(),
                wanted: 1.05,
                at_most: true,
                got: 1.2,
            }],
            ..PfsFindings::default()
        };
        let text = page(&ExperimentOptions::default(), &findings);
        for wanted in [
            "| 2 | pfs:// † | 4 KiB | 80.0 (80.0 to 80.0) | 50 % | 30 % | 0 |",
            "| grep | at most 1.05 | 1.20 | no |",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
}
