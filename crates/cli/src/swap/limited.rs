//! Commands of this host that end in time: one that hangs is ended, with all that it began.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::CliError;

/// Seconds from the request to end until the kill.
const OBEYS: &str = "10";
/// For what only looks.
const LOOK: Duration = Duration::from_secs(20);

/// The same command, ended after some time.
pub fn limited(command: &Command, limit: Duration) -> Command {
    let mut timeout = Command::new("timeout");
    timeout.args(["-k", OBEYS, &limit.as_secs().to_string()]);
    timeout.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => timeout.env(name, value),
            None => timeout.env_remove(name),
        };
    }
    timeout
}

/// What a command prints; nothing when it fails or is not there.
///
/// # Errors
/// When it does not end in time.
pub fn said<A: AsRef<OsStr>>(program: &str, args: &[A]) -> Result<String, CliError> {
    said_within(program, args, LOOK)
}

fn said_within<A: AsRef<OsStr>>(
    program: &str,
    args: &[A],
    limit: Duration,
) -> Result<String, CliError> {
    let mut command = Command::new(program);
    command.args(args);
    let began = Instant::now();
    let ran = limited(&command, limit).stdin(Stdio::null()).output();
    let Ok(ran) = ran else {
        return Ok(String::new());
    };
    if !ran.status.success() && began.elapsed() >= limit {
        let words: Vec<_> = args
            .iter()
            .map(|arg| arg.as_ref().to_string_lossy())
            .collect();
        let what = format!("no answer in {} s", limit.as_secs());
        let advice = "run it by hand to see what it waits for";
        return Err(CliError::new(
            what,
            format!("{program} {}", words.join(" ")),
            advice,
        ));
    }
    let text = ran.status.success().then_some(ran.stdout);
    Ok(String::from_utf8_lossy(&text.unwrap_or_default()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_hangs_is_named_and_ended() {
        let began = Instant::now();
        let late = said_within("sh", &["-c", "sleep 60"], Duration::from_secs(1));
        let late = late.expect_err("late").to_string();
        assert!(
            late.contains("no answer in 1 s") && late.contains("sleep 60"),
            "{late}"
        );
        assert!(began.elapsed() < Duration::from_secs(30));
        assert_eq!(said("echo", &["one"]).expect("ends"), "one\n");
        assert_eq!(said("false", &["one"]).expect("ends"), "");
        assert_eq!(said("/nonexistent", &["one"]).expect("ends"), "");
    }
}
