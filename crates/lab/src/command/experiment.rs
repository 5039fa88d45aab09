//! `hayloft-lab experiment`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::UNIX_EPOCH;

use clap::Args;
use hayloft_bench::fair::origin::DataOrigin;
use hayloft_lab::experiments::EXPERIMENTS;
use hayloft_lab::published::PublishedFigures;
use hayloft_lab::runner::Experiment;
use hayloft_lab::runner::options::ExperimentOptions;
use hayloft_testkit::TestkitError;

use super::place::PlaceArgs;
use super::steps::Steps;
use crate::error::{FINDING, LabError, USAGE};

/// `hayloft-lab experiment`.
#[derive(Clone, Debug, Args)]
pub struct ExperimentArgs {
    /// Which, or all: pairs, layouts, scaling, dfsio, domains, power, slow-replica, super, tasks,
    /// parity, degraded, netblock, pfs, durability, native, streams, bare-disk, fscost,
    /// virtual-disks, hadiofs, snapshots. `all` goes on where it was stopped: what has ended below
    /// `--out`, with these choices and the programs' commit, is not run again.
    name: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// Where tables, plots and raw data go.
    #[arg(long, value_name = "DIR", overrides_with = "out")]
    out: PathBuf,
    /// One round of little data, and none before it: whether it works, no result.
    #[arg(long, conflicts_with = "add_to")]
    quick: bool,
    /// Rounds that count [default: 3; of `native`, `streams`, `bare-disk`, `dfsio`, `tasks` 5, of
    /// `domains`, `power`, `durability` 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: Option<u16>,
    /// MiB that each client or stream writes and reads, in `bare-disk` all streams together
    /// [default: 192; of `native`, `streams`, `bare-disk`, `fscost` 4096, `virtual-disks`,
    /// `hadiofs`, `snapshots` 1024, `pfs` 32, `slow-replica` 96]. Of `tasks` at most 1024.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(16..=65536))]
    mib: Option<u32>,
    /// Largest number of clients and nodes [default: 8, quick 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8))]
    largest: Option<u16>,
    /// Whose storage nodes.
    #[arg(long, default_value = "hayloft", value_parser = ["hayloft", "apache", "apache-behind"])]
    kind: String,
    /// Rate of every host's link, Mbit/s [default: 200; of `layouts`, `scaling`, `pfs`, `super`
    /// 25]. Not of `domains`, `power`, `durability`, nor of those on one disk.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    link_mbit: Option<u32>,
    /// Hadoop properties of every process, over those of the experiment. Not of `domains`,
    /// `durability`, `fscost`, `virtual-disks`.
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = property)]
    conf: Vec<(String, String)>,
    /// Blocks of `domains` [default: 2000], files of `power` [default: 400, at most 1000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(8..=100_000))]
    blocks: Option<u64>,
    /// Seconds that clients of `durability` write before a power cut; before other events a third
    /// [default: 60].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(12..=3600))]
    seconds: Option<u64>,
    /// Parts, separated by commas: of `pfs` read-sizes, layouts, memory, loss, jobs; of `super`
    /// jobs, beside; of `slow-replica` link, disks, one-disk; of `durability` ext4, XFS [default:
    /// all].
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    part: Vec<String>,
    /// Also add the run to this file of published ones, such as
    /// bench/results/0.1.0/experiments.json.
    #[arg(long, value_name = "FILE")]
    add_to: Option<PathBuf>,
    /// Seed of `durability` [default: another each time].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Watts that a host of `power` draws.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    watts: Option<u32>,
}

/// The most that some experiments can end with: the experiment, its option, the most, and why.
const LIMITS: [(&str, &str, u64, &str); 2] = [
    (
        "power",
        "--blocks",
        1000,
        "the NameNode has about four copied in a second",
    ),
    ("tasks", "--mib", 1024, "its disks move 4 MB/s"),
];

/// What `--quick` takes.
const QUICK_MIB: u32 = 16;
const QUICK_LARGEST: usize = 2;
const QUICK_BLOCKS: u64 = 80;
const QUICK_SECONDS: u64 = 12;

fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("write it as KEY=VALUE".into()),
    }
}

pub fn run(args: &ExperimentArgs) -> Result<ExitCode, LabError> {
    let name = args.name.as_str();
    if name == "all" {
        return all(args);
    }
    let Some(experiment) = EXPERIMENTS.iter().find(|one| one.name == name) else {
        let known =
            EXPERIMENTS.map(|one| format!("\n  {}: {} ({})", one.name, one.question, one.from()));
        return Err(LabError::new(
            format!("there is no experiment {name}"),
            "hayloft-lab experiment",
            &format!("choose one of:{}", known.concat()),
        ));
    };
    experiment.chosen(&args.part)?;
    if let Some((key, _)) = args.conf.first().filter(|_| !experiment.takes_properties) {
        return Err(LabError::new(
            format!("the experiment {name} has no use for Hadoop properties, such as {key}"),
            "hayloft-lab experiment",
            "leave -D out",
        ));
    }
    if args.link_mbit.is_some() && (experiment.options)().link_mbit == 0 {
        return Err(LabError::new(
            format!("the experiment {name} has no links whose rate can be chosen"),
            "hayloft-lab experiment",
            "leave --link-mbit out",
        ));
    }
    not_too_much(args)?;
    let _alone = alone()?;
    if OWN_MOUNTS.contains(&name) {
        // However it ends, the kernel then unmounts the disks. Not with a modelled disk: its
        // process might be the last in the namespace, and would wait for itself.
        hayloft_testkit::mounts::in_own_namespace();
    }
    let options = options(args, experiment);
    let command = command(args, &options);
    let work = args.place.all().join(name);
    let mut steps = Steps::new();
    let tell = &mut |what: &str| steps.tell(what);
    let chosen = (&options, args.part.as_slice());
    let ran = experiment.run(chosen, &command, (&work, &args.out), tell);
    let (page, record) = ran.map_err(failure)?;
    steps.done();
    if let Some(file) = &args.add_to {
        PublishedFigures::add(file, name, record)?;
    }
    println!("{page}");
    Ok(ExitCode::SUCCESS)
}

/// An error where it could not end in time.
fn not_too_much(args: &ExperimentArgs) -> Result<(), LabError> {
    for (name, option, most, why) in LIMITS {
        let given = match option {
            "--blocks" => args.blocks,
            _ => args.mib.map(u64::from),
        };
        if args.name == name && given.is_some_and(|given| given > most) {
            return Err(LabError::new(
                format!("the experiment {name} takes at most {option} {most}: {why}"),
                "hayloft-lab experiment",
                &format!("give {option} {most} or less"),
            ));
        }
    }
    Ok(())
}

/// Experiments take turns for as long as what this gives is held: hosts of two have the same names,
/// so each would take down those of the other.
fn alone() -> Result<File, LabError> {
    let program = Path::new("/proc/self/exe");
    let file = File::open(program).map_err(LabError::file("open", program))?;
    let another = |_| {
        let what = "another experiment of this program runs";
        LabError::new(what, "hayloft-lab experiment", "wait for its end").finding()
    };
    file.try_lock().map_err(another)?;
    Ok(file)
}

/// What this machine lacks keeps an experiment from beginning; all else is a failure of it.
fn failure(error: TestkitError) -> LabError {
    let lacking = matches!(error, TestkitError::Missing { .. });
    let error = LabError::from(error);
    if lacking { error } else { error.finding() }
}

/// Every experiment by a process of its own, with the same choices and a directory below `--out`.
/// What lacks something on this machine says so, and is no failure. What has ended at this commit
/// with these choices is left out, so that a run of many hours can be stopped and go on.
fn all(args: &ExperimentArgs) -> Result<ExitCode, LabError> {
    let program = std::env::current_exe().map_err(LabError::file("find", Path::new("this")))?;
    let now = DataOrigin::now("", BTreeMap::new());
    let (mut lacking, mut failed) = (Vec::new(), Vec::new());
    for experiment in &EXPERIMENTS {
        let name = experiment.name;
        let out = args.out.join(name);
        let (ended, mark) = (
            out.join(ENDED),
            now.signed().map(|commit| mark(args, experiment, commit)),
        );
        if mark.is_some() && std::fs::read_to_string(&ended).ok() == mark {
            eprintln!("{name}: has ended at {}", now.signed().unwrap_or_default());
            continue;
        }
        let words = std::env::args_os().skip(1);
        let words = words.map(|word| if word == "all" { name.into() } else { word });
        let mut command = Command::new(&program);
        // Of an option that is given twice the last one counts.
        command.args(words).arg("--out").arg(out);
        let status = command
            .status()
            .map_err(LabError::file("start", &program))?;
        match status.code() {
            Some(0) => {
                if let Some(mark) = mark {
                    std::fs::write(&ended, mark).map_err(LabError::file("write", &ended))?;
                }
            }
            Some(code) if code == i32::from(USAGE) => lacking.push(name),
            _ => failed.push(name),
        }
    }
    eprintln!(
        "did not begin: {}; failed: {}",
        lacking.join(", "),
        failed.join(", ")
    );
    Ok(ExitCode::from(if failed.is_empty() { 0 } else { FINDING }))
}

/// Beside the result of an experiment of `all` that was not stopped before its end.
const ENDED: &str = "ended";

/// What an experiment has ended with: the commit, and all choices. No seed but one that was given:
/// without, it is another each time.
fn mark(args: &ExperimentArgs, experiment: &Experiment, commit: &str) -> String {
    let one = ExperimentArgs {
        name: experiment.name.to_owned(),
        seed: args.seed.or(Some(0)),
        ..args.clone()
    };
    format!("{commit}: {}\n", command(&one, &options(&one, experiment)))
}

/// Experiments with disks of their own that are no modelled ones.
const OWN_MOUNTS: [&str; 2] = ["durability", "fscost"];

/// The command with every choice, also those by default, so that it can be given again.
fn command(args: &ExperimentArgs, options: &ExperimentOptions) -> String {
    let mut text = format!(
        "hayloft-lab experiment {} --rounds {} --mib {} --largest {} --kind {}",
        args.name, options.rounds, options.mib, options.largest, options.kind
    );
    if options.link_mbit > 0 {
        text += &format!(" --link-mbit {}", options.link_mbit);
    }
    match args.name.as_str() {
        "domains" | "power" => text += &format!(" --blocks {}", options.blocks),
        "durability" => text += &format!(" --seconds {} --seed {}", options.seconds, options.seed),
        _ => {}
    }
    if options.watts > 0 {
        text += &format!(" --watts {}", options.watts);
    }
    for part in &args.part {
        text += &format!(" --part {part}");
    }
    for (key, value) in &args.conf {
        text += &format!(" -D {key}={value}");
    }
    text
}

fn options(args: &ExperimentArgs, experiment: &Experiment) -> ExperimentOptions {
    let any = || {
        UNIX_EPOCH
            .elapsed()
            .map_or(1, |t| u64::from(t.subsec_nanos()))
    };
    let mut options = (experiment.options)();
    if args.quick {
        (options.rounds, options.mib, options.first_counts) = (1, QUICK_MIB, true);
    }
    options.rounds = args.rounds.map_or(options.rounds, usize::from);
    options.mib = args.mib.unwrap_or(options.mib);
    let largest = if args.quick { QUICK_LARGEST } else { 8 };
    options.largest = args.largest.map_or(largest, usize::from);
    options.kind.clone_from(&args.kind);
    options.link_mbit = args.link_mbit.unwrap_or(options.link_mbit);
    options.conf.extend(args.conf.iter().cloned());
    let quick =
        |value: Option<u64>, quick, or| value.unwrap_or(if args.quick { quick } else { or });
    options.blocks = quick(args.blocks, QUICK_BLOCKS, options.blocks);
    options.seconds = quick(args.seconds, QUICK_SECONDS, options.seconds);
    options.seed = args.seed.unwrap_or_else(any);
    options.watts = args.watts.unwrap_or_default();
    options
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn experiments_take_turns() {
        let first = alone().expect("the only one");
        let refused = alone().expect_err("a second");
        assert_eq!(refused.code(), FINDING);
        assert!(refused.to_string().contains("wait"), "{refused}");
        drop(first);
        alone().expect("the next");
    }

    #[test]
    fn an_experiment_that_fails_is_told_from_one_that_cannot_begin() {
        let lacking = TestkitError::Missing {
            what: "a disk".into(),
            todo: "buy one".into(),
        };
        assert_eq!(failure(lacking).code(), USAGE);
        let failed = TestkitError::Expectation("it read something else".into());
        assert_eq!(failure(failed).code(), FINDING);
    }

    #[test]
    fn what_has_ended_is_known_by_its_commit_and_its_choices() {
        let experiment = EXPERIMENTS.iter().find(|one| one.name == "durability");
        let experiment = experiment.expect("it is known");
        let of = |commit, more: &[&str]| mark(&parsed("all", more), experiment, commit);
        let wanted = of("0123456789ab", &[]);
        assert_eq!(of("0123456789ab", &[]), wanted, "seeds differ");
        for (commit, more) in [
            ("ba9876543210", &[][..]),
            ("0123456789ab", &["--part", "XFS"]),
            ("0123456789ab", &["--seed", "7"]),
            ("0123456789ab", &["--quick"]),
        ] {
            assert_ne!(of(commit, more), wanted, "{commit} {more:?}");
        }
    }

    /// The arguments of the experiment `name` with these more words.
    fn parsed(name: &str, more: &[&str]) -> ExperimentArgs {
        let words = ["hayloft-lab", "experiment", name, "--out", "/nowhere"];
        let given = words.iter().chain(more);
        let cli = super::super::LabCli::try_parse_from(given).expect("it is a command");
        let super::super::LabCommand::Experiment(args) = cli.command else {
            panic!("{name} is an experiment");
        };
        args
    }

    #[test]
    fn choices_without_use_are_refused_in_words() {
        let property = (["-D", "dfs.replication=2"], "no use for Hadoop properties");
        let link = (["--link-mbit", "25"], "no links whose rate can be chosen");
        let without = ["fscost", "virtual-disks", "durability", "domains"];
        let of_properties = without.map(|name| (name, property));
        let of_links = [&without[..], &["native", "streams", "hadiofs", "power"]].concat();
        let of_links = of_links.into_iter().map(|name| (name, link));
        for (name, (given, why)) in of_properties.into_iter().chain(of_links) {
            let error = run(&parsed(name, &given)).expect_err(name);
            let said = error.to_string();
            assert!(said.contains(why), "{said}");
            assert_eq!(error.code(), USAGE);
        }
    }

    #[test]
    fn what_could_not_end_in_time_is_refused_early() {
        for (name, option, most, _) in LIMITS {
            let given = |number: u64| parsed(name, &[option, number.to_string().as_str()]);
            let said = run(&given(most + 1)).expect_err(name).to_string();
            let advice = format!("give {option} {most} or less");
            assert!(said.contains(&advice), "{said}");
            not_too_much(&given(most)).expect(name);
        }
        not_too_much(&parsed("domains", &["--blocks", "2000"])).expect("another experiment");
    }

    #[test]
    fn a_recorded_command_can_be_given_again() {
        for experiment in EXPERIMENTS {
            let args = parsed(experiment.name, &[]);
            let first = command(&args, &options(&args, &experiment));
            let words: Vec<&str> = first.split(' ').skip(3).collect();
            let args = parsed(experiment.name, &words);
            assert_eq!(command(&args, &options(&args, &experiment)), first);
        }
    }

    #[test]
    fn the_help_names_every_experiment() {
        let command = ExperimentArgs::augment_args(clap::Command::new("experiment"));
        let name = command.get_arguments().find(|arg| arg.get_id() == "name");
        let help = name.and_then(|arg| arg.get_help()).expect("has some");
        let help = help.to_string();
        for Experiment { name, .. } in EXPERIMENTS {
            assert!(help.contains(name), "{name}: {help}");
        }
    }
}
