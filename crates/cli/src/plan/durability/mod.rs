//! `hayloft plan durability`: data lost a year, by formulas that a simulation checks.
//!
//! - `at_once`: what an event takes at once of several nodes: a lost domain, a power cut
//! - `causes`: what takes replicas: how often, how many at a time, and for how long
//! - `check_by_simulation`: the model against the simulation, where failures are frequent enough to
//!   count losses
//! - `described_cluster`: the cluster whose data may be lost, and how it keeps its data
//! - `events`: units of a simulated cluster, and what happens to them
//! - `markov_chain`: how often more units are gone at once than the others make up for
//! - `model`: how much a cluster loses a year, by formulas
//! - `random`: chance, with a seed
//! - `report`: how the plan reads as text, with its verdict
//! - `simulate`: the same cluster in virtual time, event by event
//! - `unit_places`: where the units of a simulated cluster lie

mod at_once;
mod causes;
mod check_by_simulation;
mod described_cluster;
mod events;
mod markov_chain;
mod model;
mod random;
mod report;
mod simulate;
mod unit_places;

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::error::CliError;
use crate::json::print_json;

use self::check_by_simulation::CheckedRow;
pub use self::described_cluster::Keeping;
use self::described_cluster::{ClusterCase, YEAR_SECONDS, hours, rate_of};
use self::model::LossForecast;

/// Where the defaults come from.
const SOURCES: &str = "\
The defaults are public figures where there are any. Disks: Backblaze's drive statistics (1.57 % \
in 2024). Hosts: 0.8 % of Yahoo's nodes failed each month (The Architecture of Open Source \
Applications, chapter on HDFS); the default takes a tenth of them for lost with their data. Power \
cuts: there, one half to one per cent of the nodes did not survive one. Latent errors: there, the \
scanner found 20 bad replicas a fortnight in a large cluster, here taken for 190 million replicas. \
Detection, scrub and scanner: Hadoop's own defaults.

The formulas are chains of Markov, solved exactly, with the waiting of copies from queueing \
theory, and the copysets of Cidon and others for power cuts. The sources name each.";

/// `hayloft plan durability`.
#[derive(Debug, Args)]
#[command(after_help = SOURCES)]
pub struct DurabilityArgs {
    /// How data is kept: replicas, or replicas that have parity K+M inside their node, such as
    /// 2x6+1. May be repeated.
    #[arg(long, value_name = "R|RxK+M", value_parser = Keeping::parse,
        default_values = ["3", "2", "2x6+1", "1x6+1"])]
    keep: Vec<Keeping>,
    /// Nodes of the cluster, each on a host of its own.
    #[arg(long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=20_000))]
    nodes: u32,
    /// Disks of a node.
    #[arg(long, value_name = "N", default_value_t = 12,
        value_parser = clap::value_parser!(u32).range(1..=512))]
    disks: u32,
    /// Failure domains that the nodes stand in, such as racks. 1 plans without them.
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=20_000))]
    domains: u32,
    /// Capacity of a disk, in TB (10^12 bytes).
    #[arg(long, value_name = "TB", default_value_t = 16.0, value_parser = between(0.001, 1000.0))]
    capacity: f64,
    /// How full the disks are, in per cent, parity included.
    #[arg(long, value_name = "PERCENT", default_value_t = 70.0, value_parser = between(0.1, 100.0))]
    fill: f64,
    /// Size of a block, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 128.0,
        value_parser = between(0.001, 1_048_576.0))]
    block: f64,
    /// Disks that die in a year, in per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.5, value_parser = between(0.0, 99.0))]
    disk_afr: f64,
    /// Hosts that are lost in a year with all data on their disks, in per cent. A host whose disks
    /// move to another one does not count.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = between(0.0, 99.0))]
    host_loss: f64,
    /// Failure domains that are lost in a year with all their data, in per cent: fire, water. No
    /// study says how many.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, value_parser = between(0.0, 99.0))]
    domain_loss: f64,
    /// Latent errors a year in each TB: bytes that turn out bad when they are read.
    #[arg(long, value_name = "N", default_value_t = 0.03, value_parser = between(0.0, 1000.0))]
    latent: f64,
    /// Days in which the scrub reads everything once. Hadoop's scanner reads 1 MiB/s of a volume
    /// [default: 21, or what that rate takes, if longer].
    #[arg(long, value_name = "DAYS", value_parser = between(0.01, 3650.0))]
    scrub: Option<f64>,
    /// Minutes until a new replica has parity.
    #[arg(long, value_name = "MINUTES", default_value_t = 2.0,
        value_parser = between(0.0, 525_600.0))]
    parity_age: f64,
    /// Data that is new each day, in per cent of what is stored.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = between(0.0, 1000.0))]
    new_data: f64,
    /// Share of the bandwidth of disks and links that copies and rebuilds get, in per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = 20.0,
        value_parser = between(0.001, 100.0))]
    rebuild_share: f64,
    /// What a disk moves, in MB (10^6 bytes) a second: a large hard disk's average over its
    /// zones.
    #[arg(long, value_name = "MB/S", default_value_t = 150.0, value_parser = between(0.1, 1e6))]
    disk_rate: f64,
    /// What the link of a node carries each way, in Gb (10^9 bits) a second.
    #[arg(long, value_name = "GB/S", default_value_t = 10.0, value_parser = between(0.001, 1e5))]
    link: f64,
    /// Minutes until the NameNode takes a node for dead; Hadoop's default.
    #[arg(long, value_name = "MINUTES", default_value_t = 10.5,
        value_parser = between(0.0, 525_600.0))]
    detect: f64,
    /// Power cuts of the whole cluster in a year.
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = between(0.0, 1000.0))]
    outages: f64,
    /// Nodes whose data does not come back from a power cut, in per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.5, value_parser = between(0.0, 99.0))]
    outage_loss: f64,
    /// Check the formulas too: simulate a small cluster with raised rates, event by event.
    #[arg(long)]
    simulate: bool,
    /// Seed of the simulation.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "simulate")]
    seed: u64,
    /// Years that the simulation lives through for each row.
    #[arg(long, value_name = "N", default_value_t = 2000.0, requires = "simulate",
        value_parser = between(16.0, 1e7))]
    years: f64,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

/// Everything that is reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DurabilityPlan {
    /// The cluster.
    pub cluster: ClusterCase,
    /// Losses, each keeping with replicas apart and, where there are several domains, without.
    pub rows: Vec<LossForecast>,
    /// The same when disks and latent errors are all that fails, for replicas apart.
    pub disks_alone: Vec<LossForecast>,
    /// What the simulation says; empty when it was not asked for.
    pub checked: Vec<CheckedRow>,
}

/// Plans and reports.
pub fn run(args: &DurabilityArgs) -> Result<ExitCode, CliError> {
    let plan = planned(args).map_err(|problem| CliError::new(problem, "", ""))?;
    if args.json {
        print_json(&plan)?;
    } else {
        print!("{}", report::text(&plan));
    }
    Ok(ExitCode::SUCCESS)
}

fn planned(args: &DurabilityArgs) -> Result<DurabilityPlan, String> {
    let cluster = cluster(args);
    let disks_only = ClusterCase {
        host_rate: 0.0,
        domain_rate: 0.0,
        outages: 0.0,
        ..cluster.clone()
    };
    let ways: &[bool] = if args.domains > 1 {
        &[true, false]
    } else {
        &[true]
    };
    let mut plan = DurabilityPlan {
        cluster,
        rows: Vec::new(),
        disks_alone: Vec::new(),
        checked: Vec::new(),
    };
    for keeping in &args.keep {
        for apart in ways {
            plan.rows
                .push(model::forecast(&plan.cluster, keeping, *apart)?);
        }
        plan.disks_alone
            .push(model::forecast(&disks_only, keeping, true)?);
        for apart in ways.iter().filter(|_| args.simulate) {
            let domains = if args.domains > 1 {
                4.max(keeping.replicas)
            } else {
                1
            };
            let raised = check_by_simulation::raised(keeping, domains);
            let row =
                check_by_simulation::checked(&raised, keeping, *apart, args.seed, args.years)?;
            plan.checked.push(row);
        }
    }
    Ok(plan)
}

/// The cluster that the arguments describe.
fn cluster(args: &DurabilityArgs) -> ClusterCase {
    let used_bytes = args.capacity * 1e12 * args.fill / 100.0;
    let block_bytes = args.block * f64::from(1 << 20);
    let scanned = used_bytes / f64::from(1 << 20) / YEAR_SECONDS;
    let scrub = args.scrub.map(|days| hours(24.0 * days));
    let a_year = |percent: f64| percent / 100.0 * 365.25;
    ClusterCase {
        nodes: args.nodes,
        disks: args.disks,
        domains: args.domains,
        used_bytes,
        block_bytes,
        disk_bytes_s: args.disk_rate * 1e6,
        link_bytes_s: args.link * 1e9 / 8.0,
        share: args.rebuild_share / 100.0,
        disk_rate: rate_of(args.disk_afr),
        host_rate: rate_of(args.host_loss),
        domain_rate: rate_of(args.domain_loss),
        latent_rate: args.latent * block_bytes / 1e12,
        scrub: scrub.unwrap_or_else(|| scanned.max(hours(24.0 * 21.0))),
        unprotected: (a_year(args.new_data) * hours(args.parity_age / 60.0)).min(1.0),
        detect: hours(args.detect / 60.0),
        outages: args.outages,
        outage_loss: args.outage_loss / 100.0,
    }
}

/// Reads a number between two others, both included.
fn between(
    least: f64,
    most: f64,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| match text.trim().parse::<f64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("must be a number from {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DurabilityArgs,
    }

    /// Options with the least and the most that they may be.
    const ENDS: [(&str, &str, &str); 18] = [
        ("--nodes", "1", "20000"),
        ("--disks", "1", "512"),
        ("--domains", "1", "20000"),
        ("--capacity", "0.001", "1000"),
        ("--fill", "0.1", "100"),
        ("--block", "0.001", "1048576"),
        ("--disk-afr", "0", "99"),
        ("--host-loss", "0", "99"),
        ("--domain-loss", "0", "99"),
        ("--latent", "0", "1000"),
        ("--scrub", "0.01", "3650"),
        ("--parity-age", "0", "525600"),
        ("--new-data", "0", "1000"),
        ("--rebuild-share", "0.001", "100"),
        ("--disk-rate", "0.1", "1e6"),
        ("--link", "0.001", "1e5"),
        ("--detect", "0", "525600"),
        ("--outages", "0", "1000"),
    ];

    #[test]
    fn what_is_no_number_or_beyond_its_ends_is_refused() {
        for (option, ..) in ENDS {
            for wrong in ["NaN", "inf", "-inf", "1e400", "-1", "1e10"] {
                let refused = Line::try_parse_from(["plan", &format!("{option}={wrong}")]);
                assert!(refused.is_err(), "{option} {wrong}");
            }
        }
    }

    #[test]
    fn at_the_ends_figures_are_told_or_refused_in_words() {
        let mut told = 0;
        let mut random = random::SeededRandom::new(1);
        for _ in 0..400 {
            let mut line = vec!["plan"];
            for (option, least, most) in ENDS {
                // All at an end is seldom a cluster that can be.
                match random.below(8) {
                    0 => line.extend([option, least]),
                    1 => line.extend([option, most]),
                    _ => {}
                }
            }
            let line = Line::try_parse_from(line).unwrap_or_else(|error| panic!("{error}"));
            let Ok(plan) = planned(&line.args) else {
                continue;
            };
            told += 1;
            for row in plan.rows.iter().chain(&plan.disks_alone) {
                let shares = [row.lost_share, row.any, row.unreadable];
                assert!(
                    shares.iter().all(|share| (0.0..=1.0).contains(share)),
                    "{row:?}"
                );
                assert!(row.events >= 0.0 && row.lost_bytes >= 0.0, "{row:?}");
            }
        }
        assert!(told > 10, "{told}");
    }
}
