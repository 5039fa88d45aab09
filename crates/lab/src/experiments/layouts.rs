//! Hosts that compute and store, under three layouts. [`LAYOUTS`]: more clients on as many servers,
//! each reading its own file, then another's; the HDFS/PVFS paper's Figures 5 and 9. [`SCALING`]:
//! as many servers as clients; its Figures 8 and 10.

use std::fmt::Write as _;

use super::marks::signs;
use super::scaling::{
    ExperimentRow, ExperimentStep, LAST, ScalingExperiment, last, of_linear, one_rack, share,
    storage_host,
};
use super::{ExperimentOptions, in_words};

/// More clients on as many servers.
pub const LAYOUTS: ScalingExperiment = ScalingExperiment {
    name: "layouts",
    about: "random, round-robin and hybrid layouts; clients read their own file or another's",
    replicas: LAYOUT_REPLICAS,
    steps: layout_steps,
    tables: layout_tables,
};

/// As many servers as clients.
pub const SCALING: ScalingExperiment = ScalingExperiment {
    name: "scaling",
    about: "the three layouts on 2, 4 and 8 servers with as many clients",
    replicas: SCALING_REPLICAS,
    steps: scaling_steps,
    tables: scaling_tables,
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

fn layout_steps(options: &ExperimentOptions) -> Vec<ExperimentStep> {
    let clients = [1, 3, 6].into_iter().filter(|n| *n <= options.largest);
    let sizes: Vec<_> = clients.map(|clients| (LAYOUT_HOSTS, clients)).collect();
    steps(options, &sizes, LAYOUT_REPLICAS, "both")
}

fn scaling_steps(options: &ExperimentOptions) -> Vec<ExperimentStep> {
    let servers = [2, 4, 8].into_iter().filter(|n| *n <= options.largest);
    let sizes: Vec<_> = servers.map(|servers| (servers, servers)).collect();
    steps(options, &sizes, SCALING_REPLICAS, "own")
}

/// Every layout on these hosts with so many of them as clients.
fn steps(
    options: &ExperimentOptions,
    sizes: &[(usize, usize)],
    replicas: u16,
    read: &str,
) -> Vec<ExperimentStep> {
    let mut steps = Vec::new();
    for layout in ALL_LAYOUTS {
        for &(servers, clients) in sizes {
            let hosts = (0..servers).map(|at| storage_host(at, true, options));
            let mut described = one_rack(options, layout, hosts.collect(), read);
            described.workload.clients = clients;
            described.workload.replication = replicas;
            steps.push(ExperimentStep {
                arrangement: layout.into(),
                clients,
                described,
            });
        }
    }
    steps
}

/// Rows with as many clients beside each other.
fn by_clients(rows: &[ExperimentRow]) -> Vec<&ExperimentRow> {
    let mut sorted: Vec<&ExperimentRow> = rows.iter().collect();
    sorted.sort_by_key(|row| row.clients);
    sorted
}

fn layout_tables(text: &mut String, rows: &[ExperimentRow]) {
    let _ = writeln!(
        text,
        "{LAYOUT_HOSTS} hosts, each a client's and a node's. `random` is the stock policy: first \
            replica in the client's own \
         host, the others at random.\n\n\
         | clients | layout | write MB/s | conflicts | disks busy | processors | read own file \
         MB/s | read another's MB/s | disks busy | \
         processors | {LAST}\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for row in by_clients(rows) {
        let _ = writeln!(
            text,
            "| {} | {}{} | {} | {:.0} % | {:.0} % | {:.0} % | {} | {} | {:.0} % | {:.0} % | {}",
            row.clients,
            row.arrangement,
            signs(row.waited, None),
            in_words(row.write),
            row.conflicts.0 * 100.0,
            row.busy.0 * 100.0,
            row.cpu.0 * 100.0,
            in_words(row.read),
            row.read_other.map_or("-".into(), in_words),
            row.busy.1 * 100.0,
            row.cpu.1 * 100.0,
            last(row),
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

fn scaling_tables(text: &mut String, rows: &[ExperimentRow]) {
    let _ = writeln!(
        text,
        "Each server is a client, too, and reads its own file.\n\n\
         | servers and clients | layout | write MB/s | of linear | disks busy | processors | read \
         own file MB/s | of linear | disks busy | processors | {LAST}\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for row in by_clients(rows) {
        let _ = writeln!(
            text,
            "| {} | {}{} | {} | {} | {:.0} % | {:.0} % | {} | {} | {:.0} % | {:.0} % | {}",
            row.clients,
            row.arrangement,
            signs(row.waited, None),
            in_words(row.write),
            share(of_linear(rows, row, |r| r.write.0)),
            row.busy.0 * 100.0,
            row.cpu.0 * 100.0,
            in_words(row.read),
            share(of_linear(rows, row, |r| r.read.0)),
            row.busy.1 * 100.0,
            row.cpu.1 * 100.0,
            last(row),
        );
    }
    text.push_str(
        "\nThe paper (5 to 50 servers, three replicas) gives curves, not figures. Its Figure 8: \
         writing grows almost linearly with the servers in all layouts. Figure 10: reading does, \
         too, and hybrid and random read faster than round-robin.\n",
    );
}

#[cfg(test)]
mod tests {
    use super::super::scaling::tests::{row, steps_are_right};
    use super::*;

    #[test]
    fn every_step_is_a_right_description() {
        steps_are_right(LAYOUTS);
        steps_are_right(SCALING);
    }

    #[test]
    fn servers_grow_with_clients() {
        for step in scaling_steps(&ExperimentOptions::default()) {
            let hosts = step.described.hosts().count();
            assert_eq!(hosts, step.clients, "{}", step.arrangement);
            assert!(hosts >= usize::from(SCALING_REPLICAS));
        }
    }

    #[test]
    fn pages_tell_linear_growth_and_mark_rows_that_processors_limited() {
        let held_up = ExperimentRow {
            waited: 0.4,
            ..row("hybrid", 8, 60.0)
        };
        let rows = [row("hybrid", 2, 20.0), held_up];
        let page = SCALING.page(&ExperimentOptions::default(), "c", &rows);
        let first = "| 2 | hybrid | 20.0 (20.0 to 20.0) | 100 % |";
        assert!(page.contains(first), "{page}");
        let second = "| 8 | hybrid † | 60.0 (60.0 to 60.0) | 75 % |";
        assert!(page.contains(second), "{page}");
        assert!(page.contains("\n†: processors may have limited"), "{page}");
        let page = LAYOUTS.page(&ExperimentOptions::default(), "c", &rows);
        assert_eq!(page.matches("hybrid †").count(), 1, "{page}");
    }
}
