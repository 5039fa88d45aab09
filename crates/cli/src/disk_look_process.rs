//! Processes of their own that look at disks for a command. One that waits for a hung disk cannot
//! end, so the command gives it up and goes on without it.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// This program, also after its file was replaced.
pub const OWN_PROGRAM: &str = "/proc/self/exe";
/// How often it is looked whether a process works.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a process printed, or its error.
pub type Said = Result<Vec<u8>, String>;

/// The first `most` bytes of a pipe. It is read to its end, so that its writer never waits.
pub fn taken(pipe: Option<impl Read>, most: u64) -> std::io::Result<Vec<u8>> {
    let mut taken = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.by_ref().take(most).read_to_end(&mut taken)?;
        std::io::copy(&mut pipe, &mut std::io::sink())?;
    }
    Ok(taken)
}

/// A process that runs by itself.
#[derive(Debug)]
pub struct Apart {
    answer: Receiver<Said>,
    /// None when it could not be started.
    process: Option<u32>,
}

impl Apart {
    /// Starts a process. At most `most` bytes of what it prints are taken.
    pub fn start(command: &mut Command, most: u64) -> Self {
        let (tell, answer) = channel();
        let child = command
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let process = child.as_ref().ok().map(std::process::Child::id);
        std::thread::spawn(move || {
            let run = || {
                let mut child = child?;
                let (out, err) = (child.stdout.take(), child.stderr.take());
                // Side by side: a process that fills one pipe waits, and never ends the other.
                let errors = std::thread::spawn(move || taken(err, most));
                let text = taken(out, most)?;
                let error = errors.join().unwrap_or_else(|_| Ok(Vec::new()))?;
                let well = child.wait()?.success();
                Ok(if well {
                    Ok(text)
                } else {
                    Err(String::from_utf8_lossy(&error).trim().to_owned())
                })
            };
            let said = run().unwrap_or_else(|error: std::io::Error| Err(error.to_string()));
            let _ = tell.send(said);
        });
        Self { answer, process }
    }

    /// What it said, unless that takes longer than `limit`.
    pub fn within(&self, limit: Duration) -> Option<Said> {
        self.answer.recv_timeout(limit).ok()
    }

    /// What it said, however long that takes, unless it does nothing for as long as `still`.
    pub fn while_it_works(&self, still: Duration) -> Option<Said> {
        let (mut steps, mut since) = (self.steps(), Instant::now());
        loop {
            match self.answer.recv_timeout(LOOK_EVERY) {
                Ok(said) => return Some(said),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.steps();
            if now != steps {
                (steps, since) = (now, Instant::now());
            } else if since.elapsed() >= still {
                return None;
            }
        }
    }

    /// How often it left a processor, as the system counts it: more with each answer of a disk.
    /// Nothing when the system does not say.
    fn steps(&self) -> Option<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process?)).ok()?;
        let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
        Some(counts.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Apart {
        Apart::start(Command::new("sh").args(["-c", script]), 1000)
    }

    #[test]
    fn what_it_prints_and_its_errors_are_told() {
        let second = Duration::from_secs(30);
        assert_eq!(
            shell("echo well").within(second),
            Some(Ok(b"well\n".to_vec()))
        );
        let failed = shell("echo no >&2; exit 1").while_it_works(second);
        assert_eq!(failed, Some(Err("no".to_owned())));
        let none = Apart::start(&mut Command::new("/nonexistent"), 1);
        assert!(
            none.while_it_works(second)
                .is_some_and(|said| said.is_err())
        );
    }

    #[test]
    fn one_that_says_more_than_is_taken_ends() {
        let limit = Duration::from_secs(30);
        let many = "head -c 300000 /dev/zero | tr '\\0' x";
        let said = shell(&format!("{many} >&2; {many}; exit 0")).within(limit);
        assert_eq!(said, Some(Ok(vec![b'x'; 1000])));
        let failed = shell(&format!("{many}; {many} >&2; exit 1")).within(limit);
        assert_eq!(failed, Some(Err("x".repeat(1000))));
    }

    #[test]
    fn one_that_does_nothing_is_given_up() {
        let (still, long) = (Duration::from_millis(700), Duration::from_secs(30));
        // Its end comes with that of what it waits for.
        let waits = shell("exec sleep 3");
        assert_eq!(waits.within(Duration::from_millis(1)), None);
        assert_eq!(waits.while_it_works(still), None);
        let works = shell("for i in 1 2 3 4 5 6 7 8; do sleep 0.2; done; echo done");
        assert_eq!(works.while_it_works(long), Some(Ok(b"done\n".to_vec())));
    }
}
