//! Hosts that compute and store, three layouts, three replicas; each client reads its own file,
//! then another's. The HDFS/PVFS paper's Figures 5 and 9.

use std::fmt::Write as _;

use super::scaling::{ExperimentRow, ExperimentStep, ScalingExperiment, one_rack, storage_host};
use super::{ExperimentOptions, in_words};

/// The experiment.
pub const LAYOUTS: ScalingExperiment = ScalingExperiment {
    name: "layouts",
    about: "random, round-robin and hybrid layouts; clients read their own file or another's",
    replicas: LAYOUT_REPLICAS,
    steps,
    tables,
};

/// Hosts, each of them a client and a storage node.
const LAYOUT_HOSTS: usize = 6;
/// Replicas, as in the paper.
const LAYOUT_REPLICAS: u16 = 3;

fn steps(options: &ExperimentOptions) -> Vec<ExperimentStep> {
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

fn tables(text: &mut String, rows: &[ExperimentRow]) {
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

#[cfg(test)]
mod tests {
    use super::super::scaling::tests::steps_are_right;
    use super::*;

    #[test]
    fn every_step_is_a_right_description() {
        steps_are_right(LAYOUTS);
    }
}
