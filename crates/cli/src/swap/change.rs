//! The change itself: stop the node that runs, put the shell profile there or take it away, start
//! the other. Where a step fails, the node that is not wanted is started.
//!
//! A process in a session of its own does it, so that neither Ctrl-C nor the end of `hayloft swap`
//! leaves the host without a node. Where that process is killed, another one follows.

use std::io::{Read as _, Seek as _};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::MemfdFlags;

use super::host::{Action, HostArgs, SwapHost};
use super::limited::limited;
use super::profile;
use super::report::starts_next;
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
/// What that process says; that it was killed, and which node was started then.
pub fn change(host: &SwapHost, args: &[String], to: WhichNode) -> Result<(), String> {
    let by_process = |to: WhichNode| {
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
        ran(command.stdin(lock))
    };
    mended(to, by_process, || starts_next(host))
}

/// Changes over by a process. One that is killed may have stopped a node and started none: once, it
/// is followed by another one, to the node that starts next by then.
fn mended(
    to: WhichNode,
    by_process: impl Fn(WhichNode) -> Result<Ran, String>,
    starts_next: impl Fn() -> WhichNode,
) -> Result<(), String> {
    let first = by_process(to)?;
    if first.status.success() || first.status.code() == Some(BAD.into()) {
        return first.told();
    }
    let limit = Instant::now() + COMMAND_LIMIT;
    while has_command(first.pid) && Instant::now() < limit {
        std::thread::sleep(PAUSE);
    }
    let next = starts_next();
    let again = by_process(next).and_then(Ran::told);
    let then = again.map_or_else(|why| why, |()| format!("{} was started", next.name()));
    Err(format!("the change was killed: {}; {then}", first.text))
}

/// Whether a command of a killed change goes on: all are run by `timeout`, in its session. Daemons
/// that they left behind are there, too.
fn has_command(change: u32) -> bool {
    let session = change.to_string();
    let mut processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.any(|process| {
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        let (name, rest) = stat.rsplit_once(") ").unwrap_or_default();
        let mut fields = rest.split(' ');
        let runs = fields.next() != Some("Z");
        runs && name.ends_with(" (timeout") && fields.nth(2) == Some(session.as_str())
    })
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
    stop(host, before.map(|of| of.pid))?;
    // Whether it ran before or not: a change that was killed may have stopped it.
    let start_other = |why: String| {
        let name = to.other().name();
        let started = set_profile(host, to.other()).and_then(|()| start(host));
        Err(match started {
            Ok(()) => format!("{why}; {name} was started"),
            Err(more) => format!("{why}; {name} does not start: {more}"),
        })
    };
    if to == WhichNode::Apache
        && let Err(obstacle) = hayloft_store::check_swap(&host.volumes)
    {
        return start_other(obstacle.to_string());
    }
    let done = set_profile(host, to).and_then(|()| start(host));
    done.or_else(start_other)
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

/// How a command ended.
struct Ran {
    pid: u32,
    status: ExitStatus,
    /// What it said, else its status.
    text: String,
}

impl Ran {
    /// What it said where it failed.
    fn told(self) -> Result<(), String> {
        match self.status.success() {
            true => Ok(()),
            false => Err(self.text),
        }
    }
}

/// Runs a command that may hang: it is ended then, with what it began.
fn run_in_time(command: &Command, limit: Duration) -> Result<(), String> {
    let began = Instant::now();
    let ran = ran(limited(command, limit).stdin(Stdio::null()))?;
    if ran.status.success() || began.elapsed() < limit {
        return ran.told();
    }
    let name = command.get_program().to_string_lossy();
    let seconds = limit.as_secs();
    Err(format!(
        "{name} did not end within {seconds} s and was ended"
    ))
}

/// Runs a command to its end. What it says goes into memory: a daemon that it leaves behind holds
/// no pipe open.
fn ran(command: &mut Command) -> Result<Ran, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let said = rustix::fs::memfd_create("said", MemfdFlags::CLOEXEC);
    let mut said = std::fs::File::from(said.map_err(|error| failed(error.into()))?);
    let of = |file: &std::fs::File| file.try_clone().map(Stdio::from).map_err(failed);
    command.stdout(of(&said)?).stderr(of(&said)?);
    let mut child = command.spawn().map_err(failed)?;
    let (pid, status) = (child.id(), child.wait().map_err(failed)?);
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
    Ok(Ran { pid, status, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Result<Ran, String> {
        ran(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn a_change_that_is_killed_is_followed_by_another_one() {
        let changes = |scripts: [&str; 2]| {
            let begun = std::cell::RefCell::new(Vec::new());
            let by_process = |to| {
                begun.borrow_mut().push(to);
                sh(scripts[begun.borrow().len() - 1])
            };
            let said = mended(WhichNode::Apache, by_process, || WhichNode::Hayloft);
            (said, begun.into_inner())
        };
        let killed = "the change was killed: sh: signal: 9 (SIGKILL)";
        let both = vec![WhichNode::Apache, WhichNode::Hayloft];
        let first = vec![WhichNode::Apache];
        assert_eq!(changes(["exit 0", ""]), (Ok(()), first.clone()));
        let refused = changes(["echo no; exit 3", ""]);
        assert_eq!(refused, (Err("no".to_owned()), first));
        let (said, begun) = changes(["kill -KILL $$", "exit 0"]);
        assert_eq!(said, Err(format!("{killed}; Hayloft was started")));
        assert_eq!(begun, both);
        let (said, begun) = changes(["kill -KILL $$", "echo no; exit 3"]);
        assert_eq!(said, Err(format!("{killed}; no")));
        assert_eq!(begun, both);
        let (said, _) = changes(["echo panicked; exit 101", "kill -KILL $$"]);
        assert!(said.is_err_and(|why| why.contains("panicked; sh: signal: 9")));
    }

    #[test]
    fn commands_of_a_killed_change_are_known_by_its_session() {
        // A process of its own group begins a session under its own number, as a change does.
        let began = Instant::now();
        let mut change = Command::new("setsid");
        let script = "timeout 20 sleep 5 & sleep 20 & sleep 1; kill -KILL $$";
        change.args(["sh", "-c", script]);
        let change = ran(&mut change).expect("runs").pid;
        assert!(has_command(change) && !has_command(std::process::id()));
        while has_command(change) && began.elapsed() < Duration::from_secs(15) {
            std::thread::sleep(PAUSE);
        }
        // The other one, which `timeout` does not run, is as a daemon.
        assert!(began.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn what_a_failed_command_says_is_told_and_a_daemon_does_not_hold_it() {
        let sh = |script: &str| sh(script).and_then(Ran::told);
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
