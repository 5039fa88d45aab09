//! Experiments that grow a cluster: their steps, one testbed after the other, and their page.
//!
//! Disks are modelled and slower than the links, so that disks are the limit. Rows that processors
//! may have limited are marked.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::{ExperimentOptions, marks};
use crate::describe::{DataNodeSpec, Description, DiskSpec, HostSpec, Rack, WorkloadSpec};
use crate::report::{self, spread};
use crate::up::Testbed;
use crate::workload::{self, WHATS, WorkloadOutcome, WorkloadPhase};
use hayloft_testkit::error::Result;

/// An experiment that grows a cluster.
#[derive(Clone, Copy, Debug)]
pub struct ScalingExperiment {
    /// Its name.
    pub name: &'static str,
    /// What it shows, in a line.
    pub about: &'static str,
    /// Replicas of each block.
    pub(super) replicas: u16,
    /// Its steps, in order.
    pub(super) steps: fn(&ExperimentOptions) -> Vec<ExperimentStep>,
    /// Adds its tables to a page.
    pub(super) tables: fn(&mut String, &[ExperimentRow]),
}

/// One testbed of an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentStep {
    /// How the hosts and the policy are arranged: a column of the table.
    pub arrangement: String,
    /// Clients: a row of the table.
    pub clients: usize,
    /// What is brought up.
    pub described: Description,
}

pub(super) fn storage_host(at: usize, client: bool, options: &ExperimentOptions) -> HostSpec {
    let disk = DiskSpec {
        modelled: true,
        size_mib: 4096,
        read_mbs: options.disk_mbs.0,
        write_mbs: options.disk_mbs.1,
        ..DiskSpec::default()
    };
    HostSpec {
        name: format!("s{at}"),
        client,
        nodes: vec![DataNodeSpec {
            kind: options.kind.clone(),
            disks: vec![disk],
            ..DataNodeSpec::default()
        }],
        ..HostSpec::default()
    }
}

pub(super) fn one_rack(
    options: &ExperimentOptions,
    placement: &str,
    hosts: Vec<HostSpec>,
    read: &str,
) -> Description {
    Description {
        conf: options.conf.clone(),
        workload: WorkloadSpec {
            mib: options.mib,
            block_mib: 16,
            read: read.into(),
            rounds: options.rounds,
            ..WorkloadSpec::default()
        },
        ..Description::one_rack("exp", placement, options.link_mbit, hosts)
    }
}

/// A directory's name for what a label says.
pub(super) fn slug(label: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    label.chars().map(safe).collect()
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

/// What a step gave.
#[derive(Clone, Debug, Serialize)]
pub struct ExperimentRow {
    /// Column.
    pub arrangement: String,
    /// Row.
    pub clients: usize,
    /// MB/s of all clients when writing: median, lowest, highest.
    pub write: (f64, f64, f64),
    /// The same when reading what the client wrote itself.
    pub read: (f64, f64, f64),
    /// The same when reading what another client wrote, where that was done.
    pub read_other: Option<(f64, f64, f64)>,
    /// Median share of the time with conflicts when writing and reading, 0 to 1.
    pub conflicts: (f64, f64),
    /// Median of the disks' mean utilisation when writing and reading, 0 to 1.
    pub busy: (f64, f64),
    /// Median share of the processors in use when writing and reading, 0 to 1; work of a lower
    /// priority left out.
    pub cpu: (f64, f64),
    /// Requests of the modelled disks, of all phases, answered more than 2 ms late.
    pub late: u64,
    /// Share of the time in which clients and nodes could have gone on and had no processor, 0 to
    /// 1: the highest of the medians of writing and reading.
    pub waited: f64,
    /// What limited writing and reading.
    pub limit: (String, String),
}

impl ExperimentRow {
    fn of(step: &ExperimentStep, outcome: &WorkloadOutcome) -> Self {
        let of = |what: &str, f: &dyn Fn(&WorkloadPhase) -> f64| {
            spread(report::phases(outcome, what).map(f).collect())
        };
        let disks = |what: &str| {
            let all = report::phases(outcome, what).flat_map(|p| p.disk_busy.iter().copied());
            spread(all.collect()).0
        };
        let limit = |what: &str| {
            let all: Vec<_> = report::phases(outcome, what).collect();
            let middle = all.get(all.len() / 2);
            middle.map_or_else(String::new, |p| {
                p.limit(step.described.network.link_mbit).to_owned()
            })
        };
        Self {
            arrangement: step.arrangement.clone(),
            clients: step.clients,
            write: of("write", &|p| p.mbs),
            read: of("read", &|p| p.mbs),
            conflicts: (
                of("write", &|p| p.conflicts).0,
                of("read", &|p| p.conflicts).0,
            ),
            busy: (disks("write"), disks("read")),
            read_other: report::phases(outcome, "read other")
                .next()
                .map(|_| of("read other", &|p| p.mbs)),
            cpu: (of("write", &|p| p.cpu).0, of("read", &|p| p.cpu).0),
            waited: WHATS
                .iter()
                .map(|what| of(what, &WorkloadPhase::waited).0)
                .fold(0.0, f64::max),
            late: outcome
                .phases
                .iter()
                .flat_map(|p| &p.model)
                .map(|disk| disk.late)
                .sum(),
            limit: (limit("write"), limit("read")),
        }
    }
}

impl ScalingExperiment {
    /// Carries out its steps, one testbed after the other below `work`, and writes tables, plots
    /// and raw data to `out` after every step, so that an interrupted run leaves what it has. Gives
    /// back the page.
    ///
    /// # Errors
    /// When a testbed does not come up or a client fails; what was measured before is in `out`.
    pub fn run(
        self,
        options: &ExperimentOptions,
        command: &str,
        (work, out): (&Path, &Path),
        tell: &mut dyn FnMut(&str),
    ) -> Result<String> {
        let steps = (self.steps)(options);
        let mut rows = Vec::new();
        let mut running: Option<Testbed> = None;
        for (at, step) in steps.iter().enumerate() {
            let label = format!("{} x {}", step.clients, step.arrangement);
            tell(&format!("step {} of {}: {label}", at + 1, steps.len()));
            let slug = slug(&label);
            let testbed = match running.take().filter(|up| differ_in_workload(up, step)) {
                Some(mut testbed) => {
                    testbed.set_workload(step.described.workload.clone());
                    testbed
                }
                None => {
                    let dir = work.join(&slug);
                    crate::up::down(&step.described.name, &dir)?;
                    Testbed::up(step.described.clone(), &dir, false, tell)?
                }
            };
            let outcome = workload::run(&testbed, tell)?;
            running = Some(testbed);
            let row = ExperimentRow::of(step, &outcome);
            tell(&format!(
                "{label}: write {:.1} MB/s, read {:.1} MB/s",
                row.write.0, row.read.0
            ));
            rows.push(row);
            report::write(&step.described, &outcome, command, &out.join(&slug))?;
            self.write(options, command, &rows, out)?;
        }
        Ok(self.page(options, command, &rows))
    }

    /// Writes page, plots and figures of all steps so far to `out`.
    ///
    /// # Errors
    /// When a file cannot be written.
    fn write(
        self,
        options: &ExperimentOptions,
        command: &str,
        rows: &[ExperimentRow],
        out: &Path,
    ) -> Result<()> {
        let page = self.page(options, command, rows);
        report::save_page(out, &page, "rows.json", &rows)?;
        for (what, of) in plots(rows) {
            let path = out.join(format!("{what}.svg"));
            report::plot_scaling(
                &format!("{}: {}", self.name, what.replace('-', " ")),
                rows,
                of,
                &path,
            )?;
        }
        Ok(())
    }

    /// The page of an experiment.
    #[must_use]
    pub fn page(
        self,
        options: &ExperimentOptions,
        command: &str,
        rows: &[ExperimentRow],
    ) -> String {
        let Self { name, replicas, .. } = self;
        let mut text = format!(
            "# Experiment {name}\n\nCommand: `{command}`\n\n\
             One machine, every host a network namespace, links of {} Mbit/s, modelled hard \
             disks (not real ones) of {} MB/s reading and {} MB/s writing, storage nodes: {} \
             ({}), stock NameNode and stock clients, {} MiB for each client in blocks of 16 MiB, \
             {replicas} replica(s), {} rounds; median (lowest to highest). Caches are dropped \
             before reading.\n\n",
            options.link_mbit,
            options.disk_mbs.0,
            options.disk_mbs.1,
            options.kind,
            options.listed_conf(),
            options.mib,
            options.rounds
        );
        (self.tables)(&mut text, rows);
        text.push_str(&marks::legend(false));
        text.push_str(
            "\nOf linear: against the same arrangement with the fewest clients, as much for each \
             client. Conflicts: share of \
             the time in which two streams were on one disk while another had \
             none. Processors: without what others' programs of a lower priority took of this \
             machine. Late: requests that a modelled disk answered more than 2 ms after their \
             time. A directory beside this page holds every step with its description, figures \
             and each disk's utilisation over time.\n",
        );
        for (what, _) in plots(rows) {
            let _ = write!(text, "\n![{what}]({what}.svg)");
        }
        text.push('\n');
        text
    }
}

/// Whether a step can go on with the testbed of the one before.
fn differ_in_workload(testbed: &Testbed, step: &ExperimentStep) -> bool {
    let described = Description {
        workload: step.described.workload.clone(),
        ..testbed.described().clone()
    };
    described == step.described
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

pub(super) fn share(share: Option<f64>) -> String {
    share.map_or("-".into(), |s| format!("{:.0} %", s * 100.0))
}

/// Heads of the last columns of a table, see [`last`].
pub(super) const LAST: &str = "waited for one | late | limited by (write, read) |";

/// The last columns of a row.
pub(super) fn last(row: &ExperimentRow) -> String {
    let (write, read) = &row.limit;
    format!(
        "{:.0} % | {} | {write}, {read} |",
        row.waited * 100.0,
        row.late
    )
}

/// A row's rate over what the fewest clients of the experiment gave in the same arrangement, as
/// much for each client.
pub(super) fn of_linear(rows: &[ExperimentRow], row: &ExperimentRow, of: Figure) -> Option<f64> {
    let fewest = rows.iter().map(|other| other.clients).min()?;
    let first = rows
        .iter()
        .find(|other| other.clients == fewest && other.arrangement == row.arrangement)?;
    #[expect(clippy::cast_precision_loss, reason = "a few clients")]
    let linear = of(first) / fewest as f64 * row.clients as f64;
    (linear > 0.0).then(|| of(row) / linear)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row with this rate of writing and reading, MB/s.
    pub(in super::super) fn row(arrangement: &str, clients: usize, mbs: f64) -> ExperimentRow {
        ExperimentRow {
            arrangement: arrangement.into(),
            clients,
            write: (mbs, mbs, mbs),
            read: (mbs, mbs, mbs),
            read_other: None,
            conflicts: (0.0, 0.0),
            busy: (0.0, 0.0),
            cpu: (0.0, 0.0),
            waited: 0.0,
            late: 0,
            limit: (String::new(), String::new()),
        }
    }

    #[test]
    fn linear_is_measured_against_the_fewest_clients_of_the_same_arrangement() {
        let rows = [row("a", 1, 10.0), row("b", 1, 20.0), row("b", 4, 60.0)];
        let share = of_linear(&rows, &rows[2], |r| r.write.0).expect("there is one client");
        assert!((share - 0.75).abs() < 1e-9);
        let rows_from_two = [row("a", 2, 20.0), row("a", 8, 60.0)];
        let share = of_linear(&rows_from_two, &rows_from_two[1], |r| r.read.0);
        assert!((share.expect("there are two") - 0.75).abs() < 1e-9);
        assert_eq!(
            of_linear(&rows[1..], &row("a", 4, 1.0), |r| r.write.0),
            None
        );
    }

    /// It is a right description, and the same when read back.
    pub(in super::super) fn is_right(described: &Description) {
        let again = Description::parse(&described.to_toml()).expect("it is right");
        assert_eq!(again, *described);
    }

    /// Every step is a right description, with as many clients as it says.
    pub(in super::super) fn steps_are_right(of: ScalingExperiment) {
        let steps = (of.steps)(&ExperimentOptions::default());
        assert!(steps.len() >= 9, "{}", of.name);
        for step in steps {
            is_right(&step.described);
            assert_eq!(
                step.described.clients(),
                step.clients,
                "{}",
                step.arrangement
            );
        }
    }
}
