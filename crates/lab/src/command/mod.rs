//! The commands: the comparison of record, clusters of hosts and links on one machine, modelled
//! disks, and what they show.

mod bench;
mod disk;
mod experiment;
mod place;
mod run;
mod steps;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hayloft_bench::cli::BenchArgs;

use crate::error::LabError;

/// What Hayloft is measured and tried on: benchmarks, hosts and links, modelled disks.
#[derive(Debug, Parser)]
#[command(name = "hayloft-lab", version = env!("HAYLOFT_VERSION"), max_term_width = 100)]
pub struct LabCli {
    /// What to do.
    #[command(subcommand)]
    command: LabCommand,
}

/// The commands. All but `bench` need root.
#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Measure the stock DataNode and Hayloft side by side on this machine.
    Bench(Box<BenchArgs>),
    /// Bring up a described cluster: hosts as network namespaces, shaped links, disks real or
    /// modelled.
    Up(run::LabUpArgs),
    /// Run a description's workload and report; on the cluster that is up, else on one made for it.
    Run(run::RunArgs),
    /// Take down a cluster, however it was left.
    Down(run::LabDownArgs),
    /// Run a program on a host of a cluster that is up.
    Exec(run::ExecArgs),
    /// Mount a modelled hard disk and keep it until Ctrl-C.
    Disk(Box<disk::DiskArgs>),
    /// Take down modelled disks whose process was killed.
    Sweep,
    /// Repeat an experiment of the papers, or `durability`; a wrong name prints the list.
    Experiment(experiment::ExperimentArgs),
}

/// Runs the command.
pub fn run(cli: LabCli) -> Result<ExitCode, LabError> {
    match &cli.command {
        LabCommand::Bench(args) => bench::run(BenchArgs::clone(args)),
        LabCommand::Up(args) => run::up(args),
        LabCommand::Run(args) => run::run(args),
        LabCommand::Down(args) => run::down(args),
        LabCommand::Exec(args) => run::exec(args),
        LabCommand::Disk(args) => disk::run(args),
        LabCommand::Sweep => disk::sweep(),
        LabCommand::Experiment(args) => experiment::run(args),
    }
}
