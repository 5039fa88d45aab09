//! `hayloft plan`: how large to build, what that costs, and what a year loses.
//!
//! - `chart`: a plan as SVG: what reaches the workers against the number of disks
//! - `cost`: `hayloft plan cost`: what a cluster costs in three layouts
//! - `disks`: what the disks do: from calibrations, or as typed
//! - `durability`: `hayloft plan durability`: data lost a year, by formulas that a simulation
//!   checks
//! - `report`: a plan, and how it reads as text
//! - `rules`: how many disks links feed and how many workers they serve

mod chart;
mod cost;
mod disks;
mod durability;
mod report;
mod rules;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::json::print_json;

use self::disks::PlannedDisk;
use self::report::SuperPlan;
use self::rules::{Assumptions, Links};

/// `hayloft plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// What to plan.
    #[command(subcommand)]
    command: PlanCommand,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// How many disks the links of a SuperDataNode feed, and how many workers it serves.
    Super(SuperArgs),
    /// What a cluster costs with local disks, with network disks, and with SuperDataNodes.
    Cost(cost::CostArgs),
    /// How much data is lost in a year, with replicas and with parity.
    Durability(Box<durability::DurabilityArgs>),
}

#[derive(Debug, Args)]
struct SuperArgs {
    /// Calibrated disks: volumes, or copies of the files that `hayloft calibrate` wrote.
    #[arg(value_name = "DIR|FILE", required_unless_present = "disk_rate")]
    calibrations: Vec<PathBuf>,
    /// MB (10^6 bytes) that a disk moves in a second on average, instead of calibrations.
    #[arg(long, value_name = "MB/S", conflicts_with = "calibrations",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    disk_rate: Option<u64>,
    /// Disks of the SuperDataNode, like the calibrated ones
    /// [default: as many as were calibrated, else 48].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    disks: Option<u64>,
    /// Links of the SuperDataNode: 10Gb, 4x1Gb. May be repeated
    /// [default: some usual ones].
    #[arg(long, value_name = "[N x]RATE", value_parser = Links::parse)]
    links: Vec<Links>,
    /// Share of the bytes that is read, in per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(0..=100))]
    reads: u32,
    /// Share of a link's bits that carry data, in per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = 80,
        value_parser = clap::value_parser!(u64).range(1..=100))]
    link_use: u64,
    /// Disks that one worker keeps busy: fewest and most.
    #[arg(long, value_name = "N-N", default_value = "1-2", value_parser = range)]
    disks_per_worker: (u64, u64),
    /// Workers for each one that the bandwidth is enough for: above 1 for archives.
    #[arg(long, value_name = "TIMES", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=100))]
    oversubscribe: u64,
    /// Also draw the plan into this file, as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

/// Disks of the paper's machine.
const DISKS_DEFAULT: u64 = 48;

/// Plans, reports, draws.
pub fn run(args: &PlanArgs) -> Result<ExitCode, CliError> {
    let args = match &args.command {
        PlanCommand::Super(args) => args,
        PlanCommand::Cost(args) => return cost::run(args),
        PlanCommand::Durability(args) => return durability::run(args),
    };
    let plan = super_plan(args)?;
    if let Some(svg) = &args.svg {
        chart::draw(&plan, svg)?;
    }
    if args.json {
        print_json(&plan)?;
    } else {
        print!("{}", report::text(&plan));
    }
    Ok(ExitCode::SUCCESS)
}

fn super_plan(args: &SuperArgs) -> Result<SuperPlan, CliError> {
    let read = |path: &PathBuf| disks::calibrated(path, args.reads);
    let calibrated: Vec<PlannedDisk> = args
        .calibrations
        .iter()
        .map(read)
        .collect::<Result<_, _>>()?;
    let count = calibrated.len() as u64;
    let sum: u64 = calibrated.iter().map(|disk| disk.bytes_s).sum();
    let disk_bytes_s = match args.disk_rate {
        Some(mb) => mb * 1_000_000,
        None => sum / count.max(1),
    };
    let usual = if count > 0 { count } else { DISKS_DEFAULT };
    let disks = args.disks.unwrap_or(usual);
    let assumptions = Assumptions {
        link_use_percent: args.link_use,
        disks_per_worker: args.disks_per_worker,
        oversubscription: args.oversubscribe,
    };
    let links: &[Links] = if args.links.is_empty() {
        &Links::USUAL
    } else {
        &args.links
    };
    let of = |links: &Links| rules::plan(*links, disks, disk_bytes_s, &assumptions);
    Ok(SuperPlan {
        disks,
        disk_bytes_s,
        calibrated,
        read_percent: args.reads,
        assumptions,
        links: links.iter().map(of).collect(),
    })
}

/// Most disks of one worker.
const WORKER_DISKS_MAX: u64 = 64;

/// Reads `1-2`, or `2` for `2-2`.
fn range(text: &str) -> Result<(u64, u64), String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (number(least), number(most)) {
        (Some(least), Some(most)) if 1 <= least && least <= most && most <= WORKER_DISKS_MAX => {
            Ok((least, most))
        }
        _ => Err(format!(
            "must be two numbers such as 1-2, of 1 to {WORKER_DISKS_MAX}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_of_a_worker_are_a_range() {
        assert_eq!((range("1-2"), range(" 4 ")), (Ok((1, 2)), Ok((4, 4))));
        for wrong in ["", "0-1", "2-1", "1-65", "a", "1-2-3"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
