//! Experiments of the papers, as clusters and workloads of this lab.
//!
//! `pairs`: the thesis' Tables 7.2 and 7.3 and Figures 7.3 and 7.4: as many clients as storage
//! nodes, on the same hosts, apart under the stock policy, and apart under ours. `layouts`: the
//! HDFS/PVFS paper's Figures 5 and 9: hosts that compute and store, three layouts, every client
//! reading its own file or another's. Disks are modelled and slower than the links, so that disks
//! are the limit and two processors are not.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::describe::{Description, Disk, Host, NameNode, Network, Node, Rack, Workload};
use super::report::{self, spread};
use super::up::Testbed;
use super::workload::{self, Outcome};
use crate::error::{LabError, Result};

/// What may be chosen about an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds of every step.
    pub rounds: usize,
    /// MiB that each client writes and reads.
    pub mib: u32,
    /// Largest number of clients and nodes.
    pub largest: usize,
    /// Whose nodes.
    pub kind: String,
    /// Sequential rates of the modelled disks, MB/s: reading, writing.
    pub disk_mbs: (u32, u32),
    /// Rate of the links, Mbit/s.
    pub link_mbit: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rounds: 3,
            mib: 192,
            largest: 8,
            kind: "hayloft".into(),
            disk_mbs: (16, 15),
            link_mbit: 200,
        }
    }
}

/// One testbed of an experiment.
#[derive(Clone, Debug)]
pub struct Step {
    /// How the hosts and the policy are arranged: a column of the table.
    pub arrangement: String,
    /// Clients: a row of the table.
    pub clients: usize,
    /// What is brought up.
    pub described: Description,
}

/// Names of the experiments that [`steps`] knows, with what they show.
pub const NAMES: [(&str, &str); 2] = [
    (
        "pairs",
        "N clients and N storage nodes: together, apart with the stock policy, apart with ours",
    ),
    (
        "layouts",
        "random, round-robin and hybrid layouts; clients read their own file or another's",
    ),
];

/// Arrangements of `pairs`.
const LOCAL: &str = "local";
const SPLIT_STOCK: &str = "split, stock policy";
const SPLIT_OURS: &str = "split, ours";

/// The steps of an experiment.
///
/// # Errors
/// [`LabError::Expectation`] when there is none of this name.
pub fn steps(name: &str, options: &Options) -> Result<Vec<Step>> {
    match name {
        "pairs" => Ok(pairs(options)),
        "layouts" => Ok(layouts(options)),
        other => Err(LabError::Expectation(format!(
            "no experiment {other}; there are {}",
            NAMES.map(|(name, _)| name).join(", ")
        ))),
    }
}

fn pairs(options: &Options) -> Vec<Step> {
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
                hosts.extend((0..clients).map(client_host));
            }
            steps.push(Step {
                arrangement: arrangement.into(),
                clients,
                described: one_rack(options, placement, hosts, "own"),
            });
        }
    }
    steps
}

fn layouts(options: &Options) -> Vec<Step> {
    let mut steps = Vec::new();
    for clients in [1, 2, 4].into_iter().filter(|n| *n <= options.largest) {
        for layout in ["random", "round-robin", "hybrid"] {
            for read in ["own", "other"] {
                let hosts = (0..4)
                    .map(|at| storage_host(at, at < clients, options))
                    .collect();
                steps.push(Step {
                    arrangement: format!("{layout}, {read} file"),
                    clients,
                    described: one_rack(options, layout, hosts, read),
                });
            }
        }
    }
    steps
}

fn storage_host(at: usize, client: bool, options: &Options) -> Host {
    let disk = Disk {
        modelled: true,
        size_mib: 4096,
        read_mbs: options.disk_mbs.0,
        write_mbs: options.disk_mbs.1,
    };
    Host {
        name: format!("s{at}"),
        client,
        link_mbit: None,
        nodes: vec![Node {
            kind: options.kind.clone(),
            disks: vec![disk],
            conf: BTreeMap::new(),
        }],
    }
}

fn client_host(at: usize) -> Host {
    Host {
        name: format!("c{at}"),
        client: true,
        ..Host::default()
    }
}

fn one_rack(options: &Options, placement: &str, hosts: Vec<Host>, read: &str) -> Description {
    Description {
        name: "exp".into(),
        network: Network {
            link_mbit: options.link_mbit,
            uplink_mbit: 0,
        },
        namenode: NameNode {
            placement: placement.into(),
            ..NameNode::default()
        },
        racks: vec![Rack {
            name: "r1".into(),
            hosts,
        }],
        conf: BTreeMap::new(),
        workload: Workload {
            mib: options.mib,
            block_mib: 16,
            read: read.into(),
            rounds: options.rounds,
            ..Workload::default()
        },
    }
}

/// What a step gave.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Column.
    pub arrangement: String,
    /// Row.
    pub clients: usize,
    /// MB/s of all clients when writing: median, lowest, highest.
    pub write: (f64, f64, f64),
    /// The same when reading.
    pub read: (f64, f64, f64),
    /// Median share of the time with conflicts when writing and reading, 0 to 1.
    pub conflicts: (f64, f64),
    /// Median of the disks' mean utilisation when writing and reading, 0 to 1.
    pub busy: (f64, f64),
}

impl Row {
    fn of(step: &Step, outcome: &Outcome) -> Self {
        let of = |what: &str, f: &dyn Fn(&workload::Phase) -> f64| {
            spread(report::phases(outcome, what).map(f).collect())
        };
        let disks = |what: &str| {
            let all = report::phases(outcome, what).flat_map(|p| p.disk_busy.iter().copied());
            spread(all.collect()).0
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
        }
    }
}

/// Carries out the steps of an experiment, one testbed after the other below `work`, and writes
/// tables, plots and raw data to `out` after every step, so that an interrupted run leaves what it has.
///
/// # Errors
/// When a testbed does not come up or a client fails; what was measured before is in `out`.
pub fn run(
    name: &str,
    options: &Options,
    command: &str,
    (work, out): (&Path, &Path),
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<Row>> {
    let steps = steps(name, options)?;
    let mut rows = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let label = format!("{} x {}", step.clients, step.arrangement);
        tell(&format!("step {} of {}: {label}", at + 1, steps.len()));
        let slug: String = label
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let dir = work.join(&slug);
        super::up::down(&step.described.name, &dir)?;
        let testbed = Testbed::up(step.described.clone(), &dir, false, tell)?;
        let outcome = workload::run(&testbed, tell)?;
        drop(testbed);
        let row = Row::of(step, &outcome);
        tell(&format!(
            "{label}: write {:.1} MB/s, read {:.1} MB/s",
            row.write.0, row.read.0
        ));
        rows.push(row);
        report::write(&step.described, &outcome, command, &out.join(&slug))?;
        write(name, options, command, &rows, out)?;
    }
    Ok(rows)
}

/// Writes the table of all steps so far.
fn write(name: &str, options: &Options, command: &str, rows: &[Row], out: &Path) -> Result<()> {
    let save = |file: &str, text: String| {
        let path = out.join(file);
        std::fs::write(&path, text).map_err(LabError::file("writing", path))
    };
    let raw = serde_json::to_string_pretty(rows)
        .map_err(|e| LabError::Talk(format!("writing figures as JSON: {e}")))?;
    save("rows.json", raw)?;
    save("README.md", page(name, options, command, rows))?;
    for (what, of) in [
        ("write", (|row: &Row| row.write.0) as fn(&Row) -> f64),
        ("read", |row: &Row| row.read.0),
    ] {
        let path = out.join(format!("{what}.svg"));
        report::plot_scaling(&format!("{name}: {what}"), rows, of, &path)?;
    }
    Ok(())
}

/// The page of an experiment.
#[must_use]
pub fn page(name: &str, options: &Options, command: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "# Experiment {name}\n\nCommand: `{command}`\n\n\
         One machine, every host a network namespace, links of {} Mbit/s, modelled hard disks (not real ones) of {} MB/s \
         reading and {} MB/s writing, storage nodes: {}, stock NameNode and clients, {} MiB for each client in blocks of 16 MiB, \
         {} rounds; median (lowest to highest).\n\n\
         | clients and nodes | arrangement | write MB/s | of linear | conflicts | disks busy | read MB/s | of linear | conflicts | disks busy |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        options.link_mbit,
        options.disk_mbs.0,
        options.disk_mbs.1,
        options.kind,
        options.mib,
        options.rounds
    );
    for row in rows {
        let linear = |of: fn(&Row) -> f64| of_linear(rows, row, of);
        let share =
            |share: Option<f64>| share.map_or("-".into(), |s| format!("{:.0} %", s * 100.0));
        text.push_str(&format!(
            "| {} | {} | {} | {} | {:.0} % | {:.0} % | {} | {} | {:.0} % | {:.0} % |\n",
            row.clients,
            row.arrangement,
            in_words(row.write),
            share(linear(|r| r.write.0)),
            row.conflicts.0 * 100.0,
            row.busy.0 * 100.0,
            in_words(row.read),
            share(linear(|r| r.read.0)),
            row.conflicts.1 * 100.0,
            row.busy.1 * 100.0,
        ));
    }
    text.push_str(
        "\nOf linear: against the same arrangement with one client, times the clients. Conflicts: share of the time in \
         which two streams were on one disk while another had none. A directory beside this page holds every step with \
         its description, figures and each disk's utilisation over time.\n\n![writing](write.svg)\n![reading](read.svg)\n",
    );
    text
}

fn in_words((median, low, high): (f64, f64, f64)) -> String {
    format!("{median:.1} ({low:.1} to {high:.1})")
}

/// A row's rate over what one client gave in the same arrangement, times the clients.
fn of_linear(rows: &[Row], row: &Row, of: fn(&Row) -> f64) -> Option<f64> {
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

    fn row(arrangement: &str, clients: usize, mbs: f64) -> Row {
        Row {
            arrangement: arrangement.into(),
            clients,
            write: (mbs, mbs, mbs),
            read: (mbs, mbs, mbs),
            conflicts: (0.0, 0.0),
            busy: (0.0, 0.0),
        }
    }

    #[test]
    fn every_step_is_a_right_description() {
        for (name, _) in NAMES {
            let steps = steps(name, &Options::default()).expect("it is known");
            assert!(steps.len() > 8, "{name}");
            for step in steps {
                let text = step.described.to_toml();
                let again = Description::parse(&text).expect("it is right");
                assert_eq!(again.clients(), step.clients, "{name} {}", step.arrangement);
            }
        }
        assert!(steps("nothing", &Options::default()).is_err());
    }

    #[test]
    fn linear_is_measured_against_one_client_of_the_same_arrangement() {
        let rows = [row("a", 1, 10.0), row("b", 1, 20.0), row("b", 4, 60.0)];
        let share = of_linear(&rows, &rows[2], |r| r.write.0).expect("there is one client");
        assert!((share - 0.75).abs() < 1e-9);
        let page = page("pairs", &Options::default(), "cmd", &rows);
        assert!(page.contains("75 %") && page.contains("modelled"), "{page}");
    }
}
