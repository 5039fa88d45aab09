//! `hayloft cold watch`: the scan again and again, as a service.
//!
//! | module | what it is |
//! |---|---|
//! | `arguments` | the command line |
//! | `pass` | one pass |
//! | `memory` | what is known of paths from pass to pass |
//! | `state` | the state directory |
//! | `status` | what a pass did, and what `--status` says |
//! | `clock` | whether the clock jumped |
//! | `access_times` | whether access times tell what is read |
//! | `audit_log`, `audit_line` | reads, from the NameNode's audit log |

mod access_times;
mod arguments;
mod audit_line;
mod audit_log;
#[cfg(test)]
mod audit_tests;
mod clock;
mod memory;
mod pass;
mod state;
mod status;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayloft_conf::Configuration;
use hayloft_console::progress::say;
use hayloft_store::now_ms;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use self::arguments::ColdWatchArgs;

use self::pass::ColdWatch;
use self::state::StateDirectory;
use self::status::{PassReport, WatchStatus};
use super::ask_namenode::ActiveNameNode;
use crate::error::{CliError, FINDING};
use crate::json::print_json;

/// First pause after a pass that failed; each further one is twice as long.
const RETRY: Duration = Duration::from_secs(60);
/// Longest of those.
const RETRY_MAX: Duration = Duration::from_secs(3600);

/// Watches until a signal ends it, makes one pass, or says what a watch did.
pub fn run(args: &ColdWatchArgs) -> Result<ExitCode, CliError> {
    if args.status {
        let mut status: WatchStatus = state::read_status(&args.state)?;
        status.runs = Some(state::is_watched(&args.state));
        if args.json {
            print_json(&status)?;
        } else {
            print!("{}", status.text(now_ms()));
        }
        return Ok(exit(status.has_failures()));
    }
    args.check_paths()?;
    let conf = crate::given::conf_dir(args.conf.as_deref())?;
    let config = Configuration::load(&conf, &[])?;
    let namenode = ActiveNameNode::of(&config, args.nameservice.as_deref())?;
    args.check_logs(namenode.count())?;
    let directory = StateDirectory::open(&args.state)?;
    // Signals are heard by the other thread while this one reads a disk.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| CliError::new(format!("cannot start: {error}"), "", ""))?;
    let watch = ColdWatch {
        args,
        config: &config,
        namenode: Arc::new(namenode),
        directory,
        stop: CancellationToken::new(),
        first: true,
    };
    runtime.block_on(go_on(watch))
}

fn exit(has_finding: bool) -> ExitCode {
    if has_finding {
        ExitCode::from(FINDING)
    } else {
        ExitCode::SUCCESS
    }
}

/// Cancels at SIGTERM and SIGINT.
fn stop_at_signals(stop: &CancellationToken) -> Result<(), CliError> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let unheard = |error| CliError::new(format!("cannot listen for signals: {error}"), "", "");
        let mut heard = signal(kind).map_err(unheard)?;
        let stop = stop.clone();
        tokio::spawn(async move {
            heard.recv().await;
            stop.cancel();
        });
    }
    Ok(())
}

async fn go_on(mut watch: ColdWatch<'_>) -> Result<ExitCode, CliError> {
    stop_at_signals(&watch.stop)?;
    let (args, stop) = (watch.args, watch.stop.clone());
    // Also what cannot mend by itself: a damaged state ends the watch before it waits.
    let last = watch.directory.load(watch.namenode.name())?.clock;
    let last_ms = last.filter(|_| !args.once).map_or(0, |clock| clock.wall_ms);
    let mut due = rest_of(last_ms, args.every);
    let mut status = WatchStatus {
        last_pass: state::read_status(&args.state)
            .ok()
            .and_then(|old: WatchStatus| old.last_pass),
        ..WatchStatus::default()
    };
    let mut retry = RETRY;
    loop {
        tokio::select! {
            () = tokio::time::sleep(due) => {}
            () = stop.cancelled() => return Ok(exit(args.once)),
        }
        let began = Instant::now();
        due = match watch.pass().await {
            Ok(None) => return Ok(exit(args.once)),
            Ok(Some(report)) => {
                if status.error.take().is_some() {
                    say("the watch goes on");
                }
                retry = RETRY;
                tell(&report, args.json)?;
                let failed = report.has_failures();
                let next = rest_of(report.started_ms, args.every);
                status.last_pass = Some(report);
                if let Err(error) =
                    note(&watch.directory, &mut status, (!args.once).then_some(next))
                {
                    say(&format!("warning: {error}"));
                }
                if args.once {
                    // One that was told to end may not have set all.
                    return Ok(exit(failed || stop.is_cancelled()));
                }
                if stop.is_cancelled() {
                    return Ok(ExitCode::SUCCESS);
                }
                next
            }
            Err(error) if args.once || error.is_lasting() => {
                status.error = Some(error.to_string());
                let _ = note(&watch.directory, &mut status, None);
                return Err(error);
            }
            Err(error) => {
                if status.error.is_none() {
                    say(&format!(
                        "warning: {error}; the watch waits and tries again"
                    ));
                }
                status.error = Some(error.to_string());
                let pause = pause_after(began.elapsed(), retry, args.every);
                retry = (retry * 2).min(RETRY_MAX);
                let _ = note(&watch.directory, &mut status, Some(pause));
                pause
            }
        };
    }
}

/// How long it is until the next attempt after one that failed and took that long: a scan of hours
/// that fails at its end is not made again at once.
fn pause_after(took: Duration, retry: Duration, every: Duration) -> Duration {
    retry.min(every).max(took)
}

/// How long it is until a pass after the one that began at `started_ms`. Never longer than
/// between two passes: the clock may have gone back.
fn rest_of(started_ms: u64, every: Duration) -> Duration {
    let gone = Duration::from_millis(now_ms().saturating_sub(started_ms));
    every.saturating_sub(gone)
}

fn note(
    directory: &StateDirectory,
    status: &mut WatchStatus,
    next: Option<Duration>,
) -> Result<(), CliError> {
    status.at_ms = now_ms();
    let in_ms = |next: Duration| u64::try_from(next.as_millis()).unwrap_or(u64::MAX);
    status.next_pass_ms = next.map(|next| status.at_ms.saturating_add(in_ms(next)));
    directory.save_status(status)
}

fn tell(report: &PassReport, json: bool) -> Result<(), CliError> {
    if json {
        let line = serde_json::to_string(report);
        let line = line.map_err(|e| CliError::new(format!("cannot write JSON: {e}"), "", ""))?;
        println!("{line}");
    } else {
        print!("{}", report.text());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_fails_late_waits_as_long() {
        let seconds = Duration::from_secs;
        assert_eq!(pause_after(seconds(1), RETRY, RETRY_MAX), RETRY);
        assert_eq!(pause_after(seconds(1), RETRY_MAX, RETRY), RETRY);
        assert_eq!(pause_after(seconds(9000), RETRY, RETRY_MAX), seconds(9000));
    }

    #[test]
    fn the_next_pass_is_never_later_than_the_pause_between_two() {
        let hour = Duration::from_secs(3600);
        assert_eq!(rest_of(0, hour), Duration::ZERO);
        assert_eq!(rest_of(now_ms() + 86_400_000, hour), hour);
        let half = rest_of(now_ms() - 1_800_000, hour);
        assert!(half <= hour / 2 && half > hour / 3, "{half:?}");
    }
}
