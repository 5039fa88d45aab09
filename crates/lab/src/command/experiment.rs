//! `hayloft-lab experiment`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use hayloft_lab::experiments::fscost::FSCOST;
use hayloft_lab::experiments::layouts::{LAYOUTS, SCALING};
use hayloft_lab::experiments::one_disk::DiskExperiment;
use hayloft_lab::experiments::pairs::PAIRS;
use hayloft_lab::experiments::{
    DISK_EXPERIMENTS, EXPERIMENT_NAMES, ExperimentOptions, degraded, dfsio, domains, durability,
    netblock, parity, pfs, super_node,
};
use hayloft_testkit::TestkitError;

use super::place::PlaceArgs;
use super::steps::Steps;
use crate::error::LabError;

/// `hayloft-lab experiment`.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// Which: pairs, layouts, scaling, dfsio, domains, super, parity, degraded, netblock, pfs,
    /// durability, native, streams, fscost, virtual-disks, hadiofs.
    name: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// Where tables, plots and raw data go.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Rounds of every step.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// MiB that each client or stream writes and reads [default: 192; of `native` 1024, `fscost`
    /// 4096, `streams`, `virtual-disks` and `hadiofs` 256, `pfs` 32].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(16..=65536))]
    mib: Option<u32>,
    /// Largest number of clients and nodes.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=8))]
    largest: u16,
    /// Whose storage nodes.
    #[arg(long, default_value = "hayloft", value_parser = ["hayloft", "apache"])]
    kind: String,
    /// Rate of every host's link, Mbit/s [default: 200; of `layouts`, `scaling`, `pfs`: 100, of
    /// `super` 160].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    link_mbit: Option<u32>,
    /// Hadoop properties of every process, over those of the experiment.
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = property)]
    conf: Vec<(String, String)>,
    /// Blocks of `domains`.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(8..=100_000))]
    blocks: u64,
    /// Seconds that clients of `durability` write before a power cut; before other events a third.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(12..=3600))]
    seconds: u64,
    /// Parts, separated by commas: of `pfs` read-sizes, layouts, memory, loss, jobs; of `super`
    /// jobs, beside [default: all].
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    part: Vec<String>,
    /// Seed of `durability` [default: another each time].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Links slower than the disks: a copy in the client's own host is worth something, as in the
/// paper.
const LAYOUTS_LINK_MBIT: u32 = 100;

fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("write it as KEY=VALUE".into()),
    }
}

pub fn run(args: &ExperimentArgs) -> Result<ExitCode, LabError> {
    let name = args.name.as_str();
    if !EXPERIMENT_NAMES.iter().any(|(known, _)| *known == name) {
        let known = EXPERIMENT_NAMES.map(|(name, about)| format!("\n  {name}: {about}"));
        return Err(LabError::new(
            format!("there is no experiment {name}"),
            "hayloft-lab experiment",
            &format!("choose one of:{}", known.concat()),
        ));
    }
    if !args.part.is_empty() && !in_parts(name) {
        return Err(LabError::new(
            format!("the experiment {name} has no parts"),
            "hayloft-lab experiment",
            "leave --part out",
        ));
    }
    let of_one_disk = of_one_disk(name);
    if name == durability::NAME || name == FSCOST.name {
        // However it ends, the kernel then unmounts the disks. Not with a modelled disk: its
        // process might be the last in the namespace, and would wait for itself.
        hayloft_testkit::mounts::in_own_namespace();
    }
    std::fs::create_dir_all(&args.out).map_err(TestkitError::file("creating", &args.out))?;
    let command = |arguments: String| format!("hayloft-lab experiment {name} {arguments}");
    let work = args.place.all().join(name);
    let places = (work.as_path(), args.out.as_path());
    let options = options(args);
    let mut steps = Steps::new();
    let tell = &mut |what: &str| steps.tell(what);
    let page = match name {
        domains::NAME => {
            let command = command(format!("--blocks {}", args.blocks));
            domains::run(args.blocks, "Hayloft", &command, places, tell)
        }
        netblock::NAME
        | dfsio::NAME
        | parity::NAME
        | degraded::NAME
        | super_node::NAME
        | pfs::NAME => {
            let (rounds, mib, link) = (args.rounds, options.mib, options.link_mbit);
            let mut arguments = format!("--rounds {rounds} --mib {mib} --link-mbit {link}");
            if in_parts(name) {
                arguments += &format!(" --largest {}{}", args.largest, parts(args));
            }
            if name == super_node::NAME {
                arguments += &defined(args);
            }
            let command = command(arguments);
            match name {
                dfsio::NAME => dfsio::run(&options, &command, places, tell),
                degraded::NAME => degraded::run(&options, &command, places, tell),
                parity::NAME => parity::run(&options, &command, places, tell),
                super_node::NAME => super_node::run(&options, &args.part, &command, places, tell),
                pfs::NAME => pfs::run(&options, &args.part, &command, places, tell),
                _ => netblock::run(&options, &command, places, tell),
            }
        }
        durability::NAME => {
            let options = durability_options(args);
            let command = command(format!(
                "--rounds {} --seconds {} --seed {}",
                args.rounds, args.seconds, options.seed
            ));
            durability::run(&options, &command, &args.out, tell)
        }
        _ => match of_one_disk {
            Some(experiment) => {
                let arguments = format!("--rounds {} --mib {}", args.rounds, options.mib);
                let command = command(arguments + &defined(args));
                experiment.run(&options, &command, places, tell)
            }
            None => {
                let mut growing = [PAIRS, LAYOUTS, SCALING].into_iter();
                let experiment = growing.find(|one| one.name == name).unwrap_or(PAIRS);
                let arguments = format!(
                    "--rounds {} --mib {} --largest {} --kind {} --link-mbit {}",
                    args.rounds, options.mib, args.largest, args.kind, options.link_mbit
                );
                let command = command(arguments + &defined(args));
                experiment.run(&options, &command, places, tell)
            }
        },
    }?;
    drop(steps);
    println!("{page}");
    Ok(ExitCode::SUCCESS)
}

/// Whether parts of an experiment can be run alone.
fn in_parts(name: &str) -> bool {
    [super_node::NAME, pfs::NAME].contains(&name)
}

/// The experiment of that name, if it is one with the disk of one machine.
fn of_one_disk(name: &str) -> Option<DiskExperiment> {
    DISK_EXPERIMENTS.into_iter().find(|one| one.name == name)
}

/// The parts that the command names, as a part of it.
fn parts(args: &ExperimentArgs) -> String {
    let part = |part: &String| format!(" --part {part}");
    args.part.iter().map(part).collect()
}

/// The properties of the command, as its end.
fn defined(args: &ExperimentArgs) -> String {
    let property = |(key, value): &(String, String)| format!(" -D {key}={value}");
    args.conf.iter().map(property).collect()
}

fn options(args: &ExperimentArgs) -> ExperimentOptions {
    let mut options = ExperimentOptions {
        rounds: usize::from(args.rounds),
        largest: usize::from(args.largest),
        kind: args.kind.clone(),
        ..ExperimentOptions::default()
    };
    if let Some(experiment) = of_one_disk(&args.name) {
        options.mib = experiment.mib;
        // Nodes as users have them: the clock stops at the disk whenever they sync.
        options.conf.clear();
    }
    if args.name == pfs::NAME {
        (options.mib, options.link_mbit) = (pfs::MIB, pfs::LINK_MBIT);
    }
    options.mib = args.mib.unwrap_or(options.mib);
    options.conf.extend(args.conf.iter().cloned());
    if [parity::NAME, degraded::NAME].contains(&args.name.as_str()) {
        options.disk_mbs = parity::DISK_MBS;
    }
    if args.name == super_node::NAME {
        options.disk_mbs = super_node::DISK_MBS;
        options.link_mbit = super_node::LINK_MBIT;
    }
    if [LAYOUTS.name, SCALING.name].contains(&args.name.as_str()) {
        options.link_mbit = LAYOUTS_LINK_MBIT;
    }
    options.link_mbit = args.link_mbit.unwrap_or(options.link_mbit);
    options
}

fn durability_options(args: &ExperimentArgs) -> durability::DurabilityOptions {
    let any = || {
        UNIX_EPOCH
            .elapsed()
            .map_or(1, |t| u64::from(t.subsec_nanos()))
    };
    durability::DurabilityOptions {
        rounds: u64::from(args.rounds),
        writing: Duration::from_secs(args.seconds),
        seed: args.seed.unwrap_or_else(any),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_experiment() {
        let command = ExperimentArgs::augment_args(clap::Command::new("experiment"));
        let name = command.get_arguments().find(|arg| arg.get_id() == "name");
        let help = name.and_then(|arg| arg.get_help()).expect("has some");
        let help = help.to_string();
        for (name, _) in EXPERIMENT_NAMES {
            assert!(help.contains(name), "{name}: {help}");
        }
    }
}
