//! The change itself: stop the node that runs, put the shell profile there or take it away, start
//! the other. Where a step fails, the node that ran is started again.
//!
//! A process in a session of its own does it, so that neither Ctrl-C nor the end of `hayloft swap`
//! leaves the host without a node.

use std::io::{Read as _, Seek as _};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::MemfdFlags;

use super::host::{Action, HostArgs, SwapHost};
use super::limited::limited;
use super::profile;
use super::running::{WhichNode, lives, running};
use crate::disk_look_process::OWN_PROGRAM;
use crate::error::BAD;

/// Hadoop's scripts kill a node that does not obey; some more for a slow disk.
const STOP_LIMIT: Duration = Duration::from_secs(120);
/// For what starts or stops the node: systemd gives each 90 s unless the unit says otherwise.
const COMMAND_LIMIT: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of what a command says that are kept.
const SAID_MAX: u64 = 16 << 10;

/// The hidden `hayloft swap change`.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    #[command(flatten)]
    host: HostArgs,
    /// Put Apache's node there, and not Hayloft.
    #[arg(long)]
    to_apache: bool,
}

/// Has another process change the node over, and waits for it.
///
/// # Errors
/// What that process says.
pub fn change(host: &SwapHost, args: &[String], to: WhichNode) -> Result<(), String> {
    let mut command = Command::new(OWN_PROGRAM);
    command.args(["swap", "change"]).args(args);
    command.arg("--conf").arg(&host.conf);
    if to == WhichNode::Apache {
        command.arg("--to-apache");
    }
    // Its standard input is the lock, which so lasts as long as it does.
    let lock = host
        .shared_lock()
        .map_err(|error| format!("the lock: {error}"))?;
    run(command.stdin(lock))
}

/// What that process does.
pub fn carry_out(args: &ChangeArgs) -> ExitCode {
    // It fails for a leader of a group alone, which this process is not.
    let _ = rustix::process::setsid();
    let to = match args.to_apache {
        true => WhichNode::Apache,
        false => WhichNode::Hayloft,
    };
    let host = SwapHost::find(&args.host).map_err(|error| error.to_string());
    match host.and_then(|host| steps(&host, to)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::from(BAD)
        }
    }
}

fn steps(host: &SwapHost, to: WhichNode) -> Result<(), String> {
    let before = running(&host.volumes)?;
    // One that starts, or never comes to hold its directories, is stopped as well.
    stop(host, before.as_ref().map(|of| of.pid))?;
    let started_again = |why: String| match before {
        None => Err(why),
        Some(was) => {
            let again = set_profile(host, was.node).and_then(|()| start(host));
            let name = was.node.name();
            Err(match again {
                Ok(()) => format!("{why}; {name} was started again"),
                Err(more) => format!("{why}; {name} does not start again: {more}"),
            })
        }
    };
    if to == WhichNode::Apache
        && let Err(obstacle) = hayloft_store::check_swap(&host.volumes)
    {
        return started_again(obstacle.to_string());
    }
    let done = set_profile(host, to).and_then(|()| start(host));
    done.or_else(started_again)
}

fn set_profile(host: &SwapHost, to: WhichNode) -> Result<(), String> {
    let done = match to {
        WhichNode::Hayloft => profile::install(&host.conf, &host.program),
        WhichNode::Apache => profile::remove(&host.conf),
    };
    let path = profile::path(&host.conf);
    done.map_err(|error| format!("cannot change {}: {error}", path.display()))
}

/// Stops the node, until it holds no directory and its process has ended. One that ends may let its
/// directories go before its ports, which answer for the node that is started then.
fn stop(host: &SwapHost, pid: Option<u32>) -> Result<(), String> {
    let said = run_in_time(&host.command(Action::Stop), COMMAND_LIMIT);
    let limit = Instant::now() + STOP_LIMIT;
    while pid.is_some_and(lives) && said.is_ok() && Instant::now() < limit {
        std::thread::sleep(PAUSE);
    }
    while let Some(still) = running(&host.volumes)? {
        if said.is_err() || Instant::now() > limit {
            let how = host.command_line(Action::Stop);
            let why = said.err().unwrap_or_default();
            return Err(format!(
                "{} (process {}) is not stopped by `{how}`: {why}: \
                 name the --unit that runs it, or swap by hand",
                still.node.name(),
                still.pid
            ));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn start(host: &SwapHost) -> Result<(), String> {
    run_in_time(&host.command(Action::Start), COMMAND_LIMIT)
}

/// Runs a command to its end, and tells what it said where it failed.
fn run(command: &mut Command) -> Result<(), String> {
    let (status, text) = ran(command)?;
    match status.success() {
        true => Ok(()),
        false => Err(text),
    }
}

/// The same of a command that may hang: it is ended then, with what it began.
fn run_in_time(command: &Command, limit: Duration) -> Result<(), String> {
    let began = Instant::now();
    let (status, text) = ran(limited(command, limit).stdin(Stdio::null()))?;
    match status.success() {
        true => Ok(()),
        false if began.elapsed() >= limit => {
            let name = command.get_program().to_string_lossy();
            let seconds = limit.as_secs();
            Err(format!(
                "{name} did not end within {seconds} s and was ended"
            ))
        }
        false => Err(text),
    }
}

/// How a command ended, and what it said. That goes into memory: a daemon that it leaves behind
/// holds no pipe open.
fn ran(command: &mut Command) -> Result<(ExitStatus, String), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let said = rustix::fs::memfd_create("said", MemfdFlags::CLOEXEC);
    let mut said = std::fs::File::from(said.map_err(|error| failed(error.into()))?);
    let of = |file: &std::fs::File| file.try_clone().map(Stdio::from).map_err(failed);
    command.stdout(of(&said)?).stderr(of(&said)?);
    let status = command.status().map_err(failed)?;
    let mut bytes = Vec::new();
    let read = said
        .rewind()
        .and_then(|()| said.take(SAID_MAX).read_to_end(&mut bytes));
    let text = read.map(|_| String::from_utf8_lossy(&bytes).trim().to_owned());
    let text = text.unwrap_or_default();
    let text = if text.is_empty() {
        format!("{name}: {status}")
    } else {
        text
    };
    Ok((status, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_command_says_is_told_and_a_daemon_does_not_hold_it() {
        let sh = |script: &str| run(Command::new("sh").args(["-c", script]));
        assert_eq!(sh("echo fine"), Ok(()));
        assert_eq!(sh("echo one; echo two >&2; exit 3"), Err("one\ntwo".into()));
        assert!(sh("exit 3").expect_err("failed").contains('3'));
        let began = Instant::now();
        assert_eq!(sh("sleep 20 & exit 0"), Ok(()));
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_what_it_began() {
        let dir = tempfile::tempdir().expect("a directory");
        let mark = dir.path().join("late");
        let mut hangs = Command::new("sh");
        hangs
            .args(["-c", "(sleep 3; touch \"$0\") & wait"])
            .arg(&mark);
        let limit = Duration::from_secs(1);
        let late = run_in_time(&hangs, limit).expect_err("it hangs");
        assert_eq!(late, "sh did not end within 1 s and was ended");
        std::thread::sleep(Duration::from_secs(4));
        assert!(!mark.exists(), "what it began goes on");
        let mut daemon = Command::new("sh");
        daemon
            .args(["-c", "(sleep 2; touch \"$0\") & exit 0"])
            .arg(&mark);
        assert_eq!(run_in_time(&daemon, limit), Ok(()));
        std::thread::sleep(Duration::from_secs(3));
        assert!(mark.exists(), "what a command leaves behind was ended");
    }
}
