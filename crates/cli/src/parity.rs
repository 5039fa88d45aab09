//! `hayloft parity`: parity over the disks of a node.
//!
//! The node leaves its numbers beside the groups, on its first volume, and looks there for
//! requests. So the command works on the node's host, whatever ports are open. A running node is
//! asked for its numbers as of now. While it is down the command says what was so last.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use hayloft_conf::{Configuration, keys};
use hayloft_console::progress::ProgressStep;
use hayloft_console::size;
use hayloft_protection::{ParityRequest, ParityStatus};

use crate::disk_look_process::{Apart, Said};
use crate::error::{CliError, FINDING};
use crate::given::{WhereArgs, conf_dir, data_dirs};

/// A running node says anew how it is at least so often.
const FRESH: Duration = Duration::from_secs(120);
/// A running node that is asked says so within this time, unless its disks are slow.
const ASKED: Duration = Duration::from_secs(10);
/// A disk that gives no answer for so long is left out.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// How often the node's answer is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// `hayloft parity`.
#[derive(Debug, Args)]
pub struct ParityArgs {
    /// What to do.
    #[command(subcommand)]
    command: ParityCommand,
}

#[derive(Debug, Subcommand)]
enum ParityCommand {
    /// Say how much is protected, unprotected, degraded, lost and still to be rebuilt, as of now
    /// (exit code 1 if anything is degraded, damaged, lost or unprotected for long, or if no node
    /// says so).
    Status(WhereArgs),
    /// Have the node compare all parity and records with their checksums, mend what is damaged, and
    /// wait until that is done (exit code 1 if something is degraded, damaged or lost then).
    Scrub(WaitArgs),
    /// Have the node rebuild lost units now, and wait until that is done
    /// (exit code 1 if some are left).
    Rebuild(WaitArgs),
}

#[derive(Debug, Args)]
struct WaitArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Give up after so many seconds; the node goes on.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400,
        value_parser = clap::value_parser!(u64).range(1..=864_000))]
    wait: u64,
}

/// Reports, or has the node work and reports then.
pub fn run(args: &ParityArgs) -> Result<ExitCode, CliError> {
    match &args.command {
        ParityCommand::Status(place) => {
            let mut volumes = volumes(place)?;
            let (status, answered) = read_anew(&mut volumes)?;
            let code = report(place, &status)?;
            if answered {
                return Ok(code);
            }
            let (within, old) = (ASKED.as_secs(), age(&status).as_secs());
            eprintln!(
                "hayloft: the node gave no answer within {within} s: the numbers are {old} s old"
            );
            Ok(ExitCode::from(FINDING))
        }
        ParityCommand::Scrub(wait) => request(wait, ParityRequest::Scrub),
        ParityCommand::Rebuild(wait) => request(wait, ParityRequest::Rebuild),
    }
}

/// The directories of the node's volumes.
fn volumes(args: &WhereArgs) -> Result<Vec<PathBuf>, CliError> {
    let config = Configuration::load(&conf_dir(args.conf.as_deref())?, &[])?;
    if config.get(&keys::PARITY).is_none() {
        let advice = "set hayloft.parity to K+M, such as 6+1";
        return Err(CliError::new("no parity is configured", "", advice));
    }
    data_dirs(&config)
}

/// The newest status on the volumes: the node changes to another one when a disk fails. Volumes
/// that give no answer are taken out of the list.
fn read(volumes: &mut Vec<PathBuf>) -> Result<ParityStatus, CliError> {
    let until = Instant::now() + ANSWER_WITHIN;
    let asked: Vec<PathBuf> = std::mem::take(volumes);
    let answers: Vec<_> = asked.iter().map(|volume| ask(volume)).collect();
    let mut newest: Option<ParityStatus> = None;
    for (volume, answer) in asked.into_iter().zip(answers) {
        let left = until.saturating_duration_since(Instant::now());
        match answer.within(left).map(status) {
            Some(Ok(Some(found))) if newest.as_ref().is_none_or(|n| n.at_ms < found.at_ms) => {
                newest = Some(found);
            }
            Some(Ok(_)) => {}
            // A dead disk is what this command is for: another volume has the numbers.
            Some(Err(error)) => {
                eprintln!("hayloft: warning: {}: {error}", volume.display());
                continue;
            }
            None => {
                eprintln!("hayloft: warning: {}: no answer", volume.display());
                continue;
            }
        }
        volumes.push(volume);
    }
    newest.ok_or_else(|| {
        let advice = "start the node, and give it a minute";
        CliError::new("no node has said anything of parity here", "", advice)
    })
}

/// What a running node says now; one that does not is given up after a while, and what it said last
/// stands. Whether it said anything, where it could be asked.
fn read_anew(volumes: &mut Vec<PathBuf>) -> Result<(ParityStatus, bool), CliError> {
    let before = read(volumes)?;
    if age(&before) > FRESH || leave(ParityRequest::Status, volumes) == 0 {
        return Ok((before, true));
    }
    let until = Instant::now() + ASKED;
    loop {
        std::thread::sleep(LOOK_EVERY / 2);
        let now = read(volumes)?;
        let answered = now.at_ms > before.at_ms;
        if answered || Instant::now() > until {
            return Ok((now, answered));
        }
    }
}

/// Asks what the node says on a volume; nothing comes while the disk gives no answer.
fn ask(volume: &Path) -> Apart {
    on_file("cat", &ParityStatus::file(volume))
}

/// What `cat` made of the file of the node's numbers.
fn status(said: Said) -> std::io::Result<Option<ParityStatus>> {
    match said {
        Ok(text) => ParityStatus::parse(&text).map(Some),
        // None was written there yet.
        Err(error) if error.contains("No such file") => Ok(None),
        Err(error) => Err(std::io::Error::other(error)),
    }
}

/// Leaves a request on each volume that takes it in time; on how many.
fn leave(request: ParityRequest, volumes: &[PathBuf]) -> usize {
    let until = Instant::now() + ANSWER_WITHIN;
    let touch = |volume: &PathBuf| on_file("touch", &request.file(volume));
    let left: Vec<_> = volumes.iter().map(touch).collect();
    let taken = left.iter().filter(|answer| {
        let wait = until.saturating_duration_since(Instant::now());
        answer.within(wait).is_some_and(|said| said.is_ok())
    });
    taken.count()
}

/// Runs a program on a file.
fn on_file(program: &str, file: &Path) -> Apart {
    let mut command = Command::new(program);
    Apart::start(command.arg("--").arg(file), ParityStatus::BYTES_MAX)
}

fn request(args: &WaitArgs, request: ParityRequest) -> Result<ExitCode, CliError> {
    let mut volumes = volumes(&args.place)?;
    let before = read(&mut volumes)?;
    if age(&before) > FRESH {
        let advice = "start the node; without it no parity is read or written";
        return Err(CliError::new("no node runs on these directories", "", advice).finding());
    }
    // On each that answers: one may be read-only, or not in use any more.
    if leave(request, &volumes) == 0 {
        let advice = "run the command as the user of the node";
        return Err(CliError::new("the request cannot be written", "", advice));
    }
    let total = before.rebuild_remaining_bytes;
    let step = ProgressStep::bytes(request.name(), total);
    let until = SystemTime::now() + Duration::from_secs(args.wait);
    loop {
        std::thread::sleep(LOOK_EVERY);
        let now = read(&mut volumes)?;
        step.at(total.saturating_sub(now.rebuild_remaining_bytes));
        if now.done(request) > before.done(request) {
            step.done("done");
            return report(&args.place, &now);
        }
        if SystemTime::now() > until {
            let advice = "it goes on; 'hayloft parity status' shows how far it is";
            return Err(CliError::new("the node has not finished", "", advice).finding());
        }
    }
}

fn age(status: &ParityStatus) -> Duration {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    now.saturating_sub(Duration::from_millis(status.at_ms))
}

fn report(args: &WhereArgs, status: &ParityStatus) -> Result<ExitCode, CliError> {
    if args.json {
        crate::json::print_json(status)?;
    } else {
        let seconds = age(status).as_secs();
        println!(
            "parity {} over {} groups, {seconds} s ago",
            status.shape, status.groups
        );
        for (name, bytes) in [
            ("protected", status.protected_bytes),
            ("unprotected", status.unprotected_bytes),
            ("overdue", status.overdue_bytes),
            ("degraded", status.degraded_bytes),
            ("damaged", status.damaged_bytes),
            ("lost", status.lost_bytes),
            ("still to rebuild", status.rebuild_remaining_bytes),
            ("parity files", status.parity_bytes),
            ("kept for groups", status.kept_bytes),
            ("new, in memory", status.memory_bytes),
        ] {
            println!("  {name:<18}{}", size::show(bytes));
        }
        report_rebuild(status);
        report_volumes(status);
        report_groups(status);
    }
    let old = age(status) > FRESH;
    if old {
        eprintln!("hayloft: no node runs on these directories, or its disks take no status");
    }
    Ok(if status.is_well() && !old {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FINDING)
    })
}

fn report_rebuild(status: &ParityStatus) {
    if status.rebuild_remaining_bytes == 0 {
        return;
    }
    let rebuilt = size::show(status.rebuilt_bytes);
    match status.rebuild_seconds_left {
        Some(left) => println!("rebuild: {rebuilt} done, about {left} s left"),
        None => println!("rebuild: {rebuilt} done, time left not known yet"),
    }
}

/// A row for each data directory.
fn report_volumes(status: &ParityStatus) {
    if status.volumes.is_empty() {
        return;
    }
    println!(
        "{:>11} {:>11} {:>11} {:>11} {:>11} {:>11}  volume",
        "protected", "unprotected", "degraded", "lost", "to rebuild", "parity"
    );
    for volume in &status.volumes {
        let bytes = [
            volume.protected_bytes,
            volume.unprotected_bytes,
            volume.degraded_bytes,
            volume.lost_bytes,
            volume.rebuild_remaining_bytes,
            volume.parity_bytes,
        ];
        let row: Vec<String> = bytes
            .iter()
            .map(|bytes| format!("{:>11}", size::show(*bytes)))
            .collect();
        let gone = match (volume.in_use, volume.unattended) {
            (true, _) => "",
            (false, true) => " (its node does not run)",
            (false, false) => " (gone)",
        };
        println!("{}  {}{gone}", row.join(" "), volume.directory);
        if let Some(why) = &volume.refuses {
            println!("{:>11} takes no files of parity groups: {why}", "");
        }
    }
}

/// The groups that lack units; the JSON names some of very many too.
fn report_groups(status: &ParityStatus) {
    const SHOWN: usize = 10;
    if status.lacking_groups == 0 {
        return;
    }
    println!("groups that lack units: {}", status.lacking_groups);
    for group in status.groups_that_lack_units.iter().take(SHOWN) {
        println!(
            "  {} lacks {}: degraded {}, lost {}, to rebuild {}",
            group.group,
            group.lacks,
            size::show(group.degraded_bytes),
            size::show(group.lost_bytes),
            size::show(group.rebuild_remaining_bytes)
        );
    }
    if status.groups_that_lack_units.len() > SHOWN {
        println!("  more: --json");
    }
}
