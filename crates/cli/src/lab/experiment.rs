//! `hayloft lab experiment`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use hayloft_lab::experiments::scaling::{self, ExperimentOptions, NAMES};
use hayloft_lab::experiments::{domains, durability, netblock, pages};
use hayloft_testkit::TestkitError;

use super::{PlaceArgs, Steps};
use crate::error::CliError;

/// `hayloft lab experiment`.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// Which: pairs, layouts, domains, netblock, durability.
    name: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// Where tables, plots and raw data go.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Rounds of every step.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// MiB that each client writes and reads.
    #[arg(long, value_name = "MIB", default_value_t = 192, value_parser = clap::value_parser!(u32).range(16..=65536))]
    mib: u32,
    /// Largest number of clients and nodes.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=8))]
    largest: u16,
    /// Whose storage nodes.
    #[arg(long, default_value = "hayloft", value_parser = ["hayloft", "apache"])]
    kind: String,
    /// Rate of every host's link, Mbit/s [default: 200; of `layouts`: 100].
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
    /// Seed of `durability` [default: another each time].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

const DOMAINS: &str = "domains";
const NETBLOCK: &str = "netblock";
const DURABILITY: &str = "durability";
const LAYOUTS: &str = "layouts";
/// Links slower than the disks: a copy in the client's own host is worth something, as in the
/// paper.
const LAYOUTS_LINK_MBIT: u32 = 100;

fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("write it as KEY=VALUE".into()),
    }
}

pub fn run(args: &ExperimentArgs) -> Result<ExitCode, CliError> {
    let mut options = ExperimentOptions {
        rounds: usize::from(args.rounds),
        mib: args.mib,
        largest: usize::from(args.largest),
        kind: args.kind.clone(),
        ..ExperimentOptions::default()
    };
    options.conf.extend(args.conf.iter().cloned());
    if args.name == LAYOUTS {
        options.link_mbit = LAYOUTS_LINK_MBIT;
    }
    options.link_mbit = args.link_mbit.unwrap_or(options.link_mbit);
    if args.name == DOMAINS {
        return domains(args);
    }
    if args.name == NETBLOCK {
        return netblock(args, &options);
    }
    if args.name == DURABILITY {
        return durability(args);
    }
    if !NAMES.iter().any(|(name, _)| *name == args.name) {
        let known = NAMES
            .map(|(name, about)| format!("\n  {name}: {about}"))
            .concat();
        return Err(CliError::new(
            format!("there is no experiment {}", args.name),
            "hayloft lab experiment",
            format!(
                "choose one of:{known}\n  {DOMAINS}: three hosts of four nodes, replicas never \
                    twice in a host\n  {NETBLOCK}: a disk over the network, by blocks or by HDFS' \
                    protocol\n  {DURABILITY}: what is left of acknowledged data after kills, \
                    power cuts and bad disks"
            ),
        ));
    }
    make_out(args)?;
    let mut command = format!(
        "hayloft lab experiment {} --rounds {} --mib {} --largest {} --kind {} --link-mbit {}",
        args.name, args.rounds, args.mib, args.largest, args.kind, options.link_mbit
    );
    for (key, value) in &args.conf {
        command.push_str(&format!(" -D {key}={value}"));
    }
    let work = args.place.all().join(&args.name);
    let mut steps = Steps::new();
    let rows = scaling::run(
        &args.name,
        &options,
        &command,
        (&work, &args.out),
        &mut |what| steps.tell(what),
    )?;
    drop(steps);
    println!("{}", pages::page(&args.name, &options, &command, &rows));
    Ok(ExitCode::SUCCESS)
}

fn make_out(args: &ExperimentArgs) -> Result<(), CliError> {
    std::fs::create_dir_all(&args.out)
        .map_err(|e| CliError::from(TestkitError::file("creating", &args.out)(e)))
}

fn netblock(args: &ExperimentArgs, options: &ExperimentOptions) -> Result<ExitCode, CliError> {
    make_out(args)?;
    let command = format!(
        "hayloft lab experiment {NETBLOCK} --rounds {} --mib {} --link-mbit {}",
        args.rounds, args.mib, options.link_mbit
    );
    let work = args.place.all().join(NETBLOCK);
    let mut steps = Steps::new();
    let places = (work.as_path(), args.out.as_path());
    let page = netblock::run(options, &command, places, &mut |what| steps.tell(what))?;
    drop(steps);
    println!("{page}");
    Ok(ExitCode::SUCCESS)
}

fn domains(args: &ExperimentArgs) -> Result<ExitCode, CliError> {
    make_out(args)?;
    let command = format!("hayloft lab experiment {DOMAINS} --blocks {}", args.blocks);
    let work = args.place.all().join(DOMAINS);
    let mut steps = Steps::new();
    let places = (work.as_path(), args.out.as_path());
    let page = domains::run(args.blocks, "Hayloft", &command, places, &mut |what| {
        steps.tell(what);
    })?;
    drop(steps);
    println!("{page}");
    Ok(ExitCode::SUCCESS)
}

fn durability(args: &ExperimentArgs) -> Result<ExitCode, CliError> {
    // However it ends, the kernel then unmounts the disks.
    hayloft_testkit::mounts::in_own_namespace();
    hayloft_testkit::hadoop::use_own_binary();
    make_out(args)?;
    let any = || {
        UNIX_EPOCH
            .elapsed()
            .map_or(1, |t| u64::from(t.subsec_nanos()))
    };
    let options = durability::DurabilityOptions {
        rounds: u64::from(args.rounds),
        writing: Duration::from_secs(args.seconds),
        seed: args.seed.unwrap_or_else(any),
    };
    let command = format!(
        "hayloft lab experiment {DURABILITY} --rounds {} --seconds {} --seed {}",
        args.rounds, args.seconds, options.seed
    );
    let mut steps = Steps::new();
    let page = durability::run(&options, &command, &args.out, &mut |what| steps.tell(what))?;
    drop(steps);
    println!("{page}");
    Ok(ExitCode::SUCCESS)
}
