//! Hosts that compute and store, under three layouts. [`LAYOUTS`]: more clients on as many servers,
//! each reading its own file, then another's; the HDFS/PVFS paper's Figures 5 and 9. [`SCALING`]:
//! as many servers as clients; its Figures 8 and 10.

use hayloft_testkit::error::Result;

use super::testbeds::{about, bring_up, measure, one_rack, scaled, slow_disks, storage_host};
use crate::describe::Description;
use crate::runner::options::ExperimentOptions;
use crate::runner::table::{Plot, Shown};
use crate::runner::{Experiment, Run};

/// More clients on as many servers.
pub const LAYOUTS: Experiment = Experiment {
    name: "layouts",
    question: "random, round-robin and hybrid layouts; clients read their own file or another's",
    paper: "the HDFS/PVFS paper's Figures 5 and 9",
    options: slow_links,
    about: |options| {
        let more = format!(
            "Storage nodes: {}; {LAYOUT_REPLICAS} replicas on {LAYOUT_HOSTS} hosts, each a \
             client's and a node's; 12 clients are two streams of each. `random` is the stock \
             policy: first replica in the client's own host, the others at random. {}",
            options.kind,
            scaled(options, LAYOUT_HOSTS)
        );
        about(options, &more)
    },
    measure: carry_out_layouts,
    shown: Shown {
        title: "Layouts",
        tables: include_str!("tables/layouts.txt"),
        plots: &[
            Plot {
                name: "write",
                of: ("write", "mbs"),
            },
            Plot {
                name: "read",
                of: ("read", "mbs"),
            },
            Plot {
                name: "read-other",
                of: ("read other", "mbs"),
            },
        ],
        paper: "The paper (50 servers, 10 Gbit/s links, up to 50 clients) gives curves, not \
                figures. Its Figure 5: hybrid writes faster than round-robin, and both scale \
                better than HDFS's random layout. Figure 9 (a), own file: hybrid and random read \
                faster than round-robin, which keeps no copy with the writer. Figure 9 (b), \
                another's file: all three alike, and at the rate of round-robin in (a).",
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// As many servers as clients.
pub const SCALING: Experiment = Experiment {
    name: "scaling",
    question: "the three layouts on 2, 4 and 8 servers with as many clients",
    paper: "the HDFS/PVFS paper's Figures 8 and 10",
    options: slow_links,
    about: |options| {
        let more = format!(
            "Storage nodes: {}; {SCALING_REPLICAS} replicas. Each server is a client, too, and \
             reads its own file. {}",
            options.kind,
            scaled(options, SERVERS[2])
        );
        about(options, &more)
    },
    measure: carry_out_scaling,
    shown: Shown {
        title: "Layouts as servers grow",
        tables: include_str!("tables/scaling.txt"),
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
        paper: "The paper (5 to 50 servers, three replicas) gives curves, not figures. Its Figure \
                8: writing grows almost linearly with the servers in all layouts. Figure 10: \
                reading does, too, and hybrid and random read faster than round-robin.",
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// `random` places as the stock policy does.
const ALL_LAYOUTS: [&str; 3] = ["random", "round-robin", "hybrid"];
/// Hosts of [`LAYOUTS`], each of them a client and a storage node.
const LAYOUT_HOSTS: usize = 6;
/// Replicas, as in the paper.
const LAYOUT_REPLICAS: u16 = 3;
/// Two servers cannot hold three, and a server's share of the work shall not depend on how many
/// there are.
const SCALING_REPLICAS: u16 = 2;
const CLIENTS: [usize; 4] = [1, 3, 6, 12];
const SERVERS: [usize; 3] = [2, 4, 8];

/// Links slower than the disks: a copy in the client's own host is worth something, as in the
/// paper.
fn slow_links() -> ExperimentOptions {
    ExperimentOptions {
        disk_mbs: (4, 4),
        link_mbit: 25,
        ..slow_disks()
    }
}

/// A layout on so many hosts.
fn described(
    options: &ExperimentOptions,
    layout: &str,
    (servers, replicas): (usize, u16),
    read: &str,
) -> Description {
    let hosts = (0..servers).map(|at| storage_host(at, true, options));
    let mut described = one_rack(options, layout, hosts.collect(), read);
    described.workload.replication = replicas;
    described
}

/// One testbed a layout, and all numbers of clients on it.
fn carry_out_layouts(run: &mut Run<'_>, part: &str) -> Result<()> {
    let largest = run.options.largest;
    let counts = || {
        CLIENTS
            .into_iter()
            .filter(move |clients| (*clients).min(LAYOUT_HOSTS) <= largest)
    };
    let first = counts().next().unwrap_or(1).to_string();
    let peers = ALL_LAYOUTS.map(|layout| (first.as_str(), layout));
    run.rounds(part, &peers, &mut |turn, at| {
        let size = (LAYOUT_HOSTS, LAYOUT_REPLICAS);
        let described = described(turn.options, ALL_LAYOUTS[at], size, "both");
        let mut testbed = bring_up(turn, described)?;
        for clients in counts() {
            let mut workload = testbed.described().workload.clone();
            let hosts = clients.min(LAYOUT_HOSTS);
            (workload.clients, workload.streams) = (hosts, clients / hosts);
            workload.mib = turn.mib();
            testbed.set_workload(workload);
            measure(turn, &clients.to_string(), &testbed)?;
        }
        Ok(())
    })
}

fn carry_out_scaling(run: &mut Run<'_>, part: &str) -> Result<()> {
    let largest = run.options.largest;
    for servers in SERVERS.into_iter().filter(|servers| *servers <= largest) {
        let row = servers.to_string();
        let peers = ALL_LAYOUTS.map(|layout| (row.as_str(), layout));
        run.rounds(part, &peers, &mut |turn, at| {
            let size = (servers, SCALING_REPLICAS);
            let mut described = described(turn.options, ALL_LAYOUTS[at], size, "own");
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

    #[test]
    fn every_step_is_a_right_description() {
        for layout in ALL_LAYOUTS {
            let sizes = SERVERS.map(|servers| (servers, SCALING_REPLICAS));
            for size in sizes.into_iter().chain([(LAYOUT_HOSTS, LAYOUT_REPLICAS)]) {
                let described = described(&slow_links(), layout, size, "own");
                is_right(&described);
                assert_eq!(described.clients(), size.0, "each server is a client");
                assert!(size.0 >= usize::from(size.1), "as many servers as replicas");
            }
        }
    }
}
