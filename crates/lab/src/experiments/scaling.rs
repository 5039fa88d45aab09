//! Experiments of the papers, as clusters and workloads of this lab.
//!
//! `pairs`: the thesis' Tables 7.2 and 7.3 and Figures 7.3 and 7.4: as many clients as storage
//! nodes, on the same hosts, apart under the stock policy, and apart under ours. `layouts`: the
//! HDFS/PVFS paper's Figures 5 and 9: hosts that compute and store, three layouts, three replicas,
//! every client reading its own file and then another's. Disks are modelled and slower than the
//! links, so that disks are the limit and two processors are not.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::pages;
use crate::describe::{
    DataNodeSpec, Description, DiskSpec, HostSpec, NameNodeSpec, Network, Rack, WorkloadSpec,
};
use crate::report::{self, spread};
use crate::up::Testbed;
use crate::workload::{self, WorkloadOutcome};
use hayloft_testkit::error::{Result, TestkitError};

/// What may be chosen about an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentOptions {
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
    /// Hadoop properties of every process.
    pub conf: BTreeMap<String, String>,
}

impl ExperimentOptions {
    /// The properties, for a page.
    pub(super) fn listed_conf(&self) -> String {
        let listed: Vec<String> = self
            .conf
            .iter()
            .map(|(key, value)| format!("`{key}={value}`"))
            .collect();
        listed.join(", ")
    }
}

impl Default for ExperimentOptions {
    fn default() -> Self {
        Self {
            rounds: 3,
            mib: 192,
            largest: 8,
            kind: "hayloft".into(),
            disk_mbs: (16, 15),
            link_mbit: 200,
            conf: BTreeMap::from(ENGINE.map(|(key, value)| (key.into(), value.into()))),
        }
    }
}

/// A block is on the disk when its close is acknowledged: the page cache of one machine would hide
/// disks from a dozen nodes.
const ENGINE: [(&str, &str); 2] = [
    ("hayloft.io.engine", "direct"),
    ("dfs.datanode.synconclose", "true"),
];

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

/// Arrangement of `pairs`: the clients run on the nodes' hosts.
pub const LOCAL: &str = "local";
/// Arrangement of `pairs`: clients on hosts of their own, the stock placement policy.
pub const SPLIT_STOCK: &str = "split, stock policy";
/// Arrangement of `pairs`: clients on hosts of their own, our placement policy.
pub const SPLIT_OURS: &str = "split, ours";

/// The steps of an experiment.
///
/// # Errors
/// [`TestkitError::Expectation`] when there is none of this name.
pub fn steps(name: &str, options: &ExperimentOptions) -> Result<Vec<ExperimentStep>> {
    match name {
        "pairs" => Ok(pairs(options)),
        "layouts" => Ok(layouts(options)),
        other => Err(TestkitError::Expectation(format!(
            "no experiment {other}; there are {}",
            NAMES.map(|(name, _)| name).join(", ")
        ))),
    }
}

fn pairs(options: &ExperimentOptions) -> Vec<ExperimentStep> {
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
            steps.push(ExperimentStep {
                arrangement: arrangement.into(),
                clients,
                described: one_rack(options, placement, hosts, "own"),
            });
        }
    }
    steps
}

/// Hosts of `layouts`, each of them a client and a storage node.
pub const LAYOUT_HOSTS: usize = 6;
/// Replicas of `layouts`, as in the paper.
pub const LAYOUT_REPLICAS: u16 = 3;

fn layouts(options: &ExperimentOptions) -> Vec<ExperimentStep> {
    let mut steps = Vec::new();
    for layout in ["random", "round-robin", "hybrid"] {
        for clients in [1, 3, 6].into_iter().filter(|n| *n <= options.largest) {
            let hosts = (0..LAYOUT_HOSTS).map(|at| storage_host(at, true, options));
            let mut described = one_rack(options, layout, hosts.collect(), "both");
            described.workload.clients = clients;
            described.workload.replication = LAYOUT_REPLICAS;
            steps.push(ExperimentStep {
                arrangement: layout.into(),
                clients,
                described,
            });
        }
    }
    steps
}

fn storage_host(at: usize, client: bool, options: &ExperimentOptions) -> HostSpec {
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
        link_mbit: None,
        nodes: vec![DataNodeSpec {
            kind: options.kind.clone(),
            disks: vec![disk],
            conf: BTreeMap::new(),
        }],
    }
}

fn client_host(at: usize) -> HostSpec {
    HostSpec {
        name: format!("c{at}"),
        client: true,
        ..HostSpec::default()
    }
}

fn one_rack(
    options: &ExperimentOptions,
    placement: &str,
    hosts: Vec<HostSpec>,
    read: &str,
) -> Description {
    Description {
        name: "exp".into(),
        network: Network {
            link_mbit: options.link_mbit,
            uplink_mbit: 0,
        },
        namenode: NameNodeSpec {
            placement: placement.into(),
            ..NameNodeSpec::default()
        },
        racks: vec![Rack {
            name: "r1".into(),
            hosts,
        }],
        conf: options.conf.clone(),
        workload: WorkloadSpec {
            mib: options.mib,
            block_mib: 16,
            read: read.into(),
            rounds: options.rounds,
            ..WorkloadSpec::default()
        },
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
    /// What limited writing and reading.
    pub limit: (String, String),
}

impl ExperimentRow {
    fn of(step: &ExperimentStep, outcome: &WorkloadOutcome) -> Self {
        let of = |what: &str, f: &dyn Fn(&workload::WorkloadPhase) -> f64| {
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

/// Carries out the steps of an experiment, one testbed after the other below `work`, and writes
/// tables, plots and raw data to `out` after every step, so that an interrupted run leaves what it
/// has.
///
/// # Errors
/// When a testbed does not come up or a client fails; what was measured before is in `out`.
pub fn run(
    name: &str,
    options: &ExperimentOptions,
    command: &str,
    (work, out): (&Path, &Path),
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<ExperimentRow>> {
    let steps = steps(name, options)?;
    let mut rows = Vec::new();
    let mut running: Option<Testbed> = None;
    for (at, step) in steps.iter().enumerate() {
        let label = format!("{} x {}", step.clients, step.arrangement);
        tell(&format!("step {} of {}: {label}", at + 1, steps.len()));
        let slug: String = label
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
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
        pages::write(name, options, command, &rows, out)?;
    }
    Ok(rows)
}

/// Whether a step can go on with the testbed of the one before.
fn differ_in_workload(testbed: &Testbed, step: &ExperimentStep) -> bool {
    let described = Description {
        workload: step.described.workload.clone(),
        ..testbed.described().clone()
    };
    described == step.described
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_a_right_description() {
        for (name, _) in NAMES {
            let steps = steps(name, &ExperimentOptions::default()).expect("it is known");
            assert!(steps.len() >= 9, "{name}");
            for step in steps {
                let text = step.described.to_toml();
                let again = Description::parse(&text).expect("it is right");
                assert_eq!(again.clients(), step.clients, "{name} {}", step.arrangement);
            }
        }
        assert!(steps("nothing", &ExperimentOptions::default()).is_err());
    }
}
