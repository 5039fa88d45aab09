//! Work that may end its process is done in one of its own, which gives one line as its answer.
//!
//! The process that asks calls [`ask`]. The other one takes its standard output for that line alone
//! ([`Line::take`]), so that nothing that a library prints is mistaken for it, and
//! [says](Line::say) it.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, kill_process_group, setrlimit, waitid,
};

/// Bytes of a line, at most.
const LINE_MAX: usize = 16 * 1024;
/// Bytes kept of what the process writes to its standard error.
const WORDS_MAX: usize = 2000;
/// Characters of these in an error.
const WORDS_SHOWN: usize = 300;
/// How soon an end is seen of a process whose own children keep its pipes open.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The line that this process owes its parent.
#[derive(Debug)]
pub struct Line(File);

impl Line {
    /// Takes standard output for the line; what is printed from now on goes to standard error. The
    /// process ends with its parent, and leaves no core.
    ///
    /// # Errors
    /// When there is no standard output or no descriptor is left.
    pub fn take() -> io::Result<Self> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        // Its parent tells what became of it; an image of it would only fill a disk.
        let _as_is = setrlimit(Resource::Core, none);
        let own = io::stdout().as_fd().try_clone_to_owned()?;
        crate::system_calls::print_to_stderr()?;
        Ok(Self(File::from(own)))
    }

    /// Says it. What is more than 16 KiB is cut, and a line break is a space.
    ///
    /// # Errors
    /// When the parent went away.
    pub fn say(mut self, words: &str) -> io::Result<()> {
        let mut bytes = words.replace('\n', " ").into_bytes();
        bytes.truncate(LINE_MAX - 1);
        bytes.push(b'\n');
        self.0.write_all(&bytes)
    }
}

/// Starts `command` and waits for its line, for at most `limit`. It is ended then, with what it
/// started in its process group. Blocking.
///
/// # Errors
/// Outside: there can be no such process. Inside: it ended, or took longer, without its line; how,
/// in words that go on after "it".
pub fn ask(command: &mut Command, limit: Duration) -> io::Result<Result<String, String>> {
    let deadline = Instant::now() + limit;
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Ended(command.process_group(0).spawn()?);
    let mut line = Gathered::new(child.0.stdout.take(), LINE_MAX)?;
    let mut words = Gathered::new(child.0.stderr.take(), WORDS_MAX)?;
    loop {
        line.gather();
        words.gather();
        if let Some(said) = line.first_line() {
            return Ok(Ok(said));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || child.has_ended() {
            // What it wrote last.
            line.gather();
            words.gather();
            break;
        }
        wait_for(&[&line, &words], left.min(LOOK_AGAIN));
    }
    if let Some(said) = line.first_line() {
        return Ok(Ok(said));
    }
    let how = match child.end()? {
        Some(status) => in_words(status),
        None => format!("gave no answer within {} s", limit.as_secs()),
    };
    Ok(Err(how + &words.quoted()))
}

/// How a process ended, in words that go on after "it".
fn in_words(status: ExitStatus) -> String {
    let Some(signal) = status.signal() else {
        let code = status.code().unwrap_or_default();
        return format!("ended its process itself, with exit code {code}");
    };
    let (name, why) = match signal {
        libc::SIGBUS => ("SIGBUS", ": a file is shorter than what is read of it"),
        libc::SIGSEGV => ("SIGSEGV", ": it used memory that is not there"),
        libc::SIGABRT => ("SIGABRT", ": it called abort"),
        libc::SIGILL => ("SIGILL", ": it has instructions that this processor lacks"),
        libc::SIGFPE => ("SIGFPE", ": it divided by zero"),
        libc::SIGTRAP => ("SIGTRAP", ": it stopped itself"),
        libc::SIGSYS => ("SIGSYS", ": it made a call that is not allowed here"),
        libc::SIGKILL => ("SIGKILL", ": it, or the lack of memory, had it killed"),
        _ => return format!("was ended by signal {signal}"),
    };
    format!("was ended by {name}{why}")
}

/// A process that ends when this is dropped, at the latest.
struct Ended(Child);

impl Ended {
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.0.id()).ok()?)
    }

    /// Whether it has; its number stays its own.
    fn has_ended(&self) -> bool {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.pid()
            .is_some_and(|pid| !matches!(waitid(WaitId::Pid(pid), how), Ok(None)))
    }

    /// Ends it; how it had ended by itself.
    fn end(&mut self) -> io::Result<Option<ExitStatus>> {
        let by_itself = self.has_ended();
        if let Some(pid) = self.pid() {
            // The group is there for as long as its first process was not waited for.
            let _gone = kill_process_group(pid, Signal::KILL);
        }
        let status = self.0.wait()?;
        Ok(by_itself.then_some(status))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _nothing_else_to_do = self.end();
        }
    }
}

/// The beginning of what comes through a pipe; the rest is read away.
struct Gathered {
    pipe: Option<File>,
    kept: Vec<u8>,
    most: usize,
}

impl Gathered {
    fn new(pipe: Option<impl Into<std::os::fd::OwnedFd>>, most: usize) -> io::Result<Self> {
        let pipe = pipe.map(|pipe| File::from(pipe.into()));
        if let Some(pipe) = &pipe {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        let kept = Vec::new();
        Ok(Self { pipe, kept, most })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(File::as_fd)
    }

    /// Reads what is there now, a few buffers at most: a writer without end does not hold us.
    fn gather(&mut self) {
        let mut buf = [0; 4096];
        for _ in 0..16 {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut buf) {
                Ok(0) => self.pipe = None,
                Ok(n) => {
                    let room = self.most.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(&buf[..n.min(room)]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    fn first_line(&self) -> Option<String> {
        let end = self.kept.iter().position(|b| *b == b'\n')?;
        Some(String::from_utf8_lossy(&self.kept[..end]).into_owned())
    }

    /// What a process wrote, for the end of a sentence about it.
    fn quoted(&self) -> String {
        let text = String::from_utf8_lossy(&self.kept);
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = text.chars().map(plain).collect();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.is_empty() {
            return words;
        }
        let shown: String = words.chars().take(WORDS_SHOWN).collect();
        format!(" (it wrote: {shown})")
    }
}

/// Waits until one of the pipes has something, or for `most`.
fn wait_for(pipes: &[&Gathered], most: Duration) {
    let fds = pipes.iter().filter_map(|pipe| pipe.fd());
    let mut fds: Vec<PollFd<'_>> = fds
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let time = Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    // Interrupted or not, the caller looks again.
    let _looked = poll(&mut fds, Some(&time));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, seconds: u64) -> Result<String, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        ask(&mut command, Duration::from_secs(seconds)).expect("sh runs")
    }

    #[test]
    fn the_line_counts_and_not_what_follows() {
        let said = shell("echo noise >&2; echo well; exit 7", 20);
        assert_eq!(said, Ok("well".to_owned()));
        let began = Instant::now();
        assert_eq!(shell("echo well; sleep 60", 50), Ok("well".to_owned()));
        assert!(
            began.elapsed() < Duration::from_secs(40),
            "nothing waits for it"
        );
    }

    #[test]
    fn an_end_without_a_line_is_told() {
        for (script, wanted) in [
            ("exit 0", "ended its process itself, with exit code 0"),
            ("kill -BUS $$", "was ended by SIGBUS: "),
            ("kill -SEGV $$", "was ended by SIGSEGV: "),
            ("kill -USR1 $$", "was ended by signal 10"),
            ("echo ab; exit 3", ""),
            (
                "printf 'cd\\nef' >&2; exit 3",
                "exit code 3 (it wrote: cd ef)",
            ),
            ("sleep 60", "gave no answer within 1 s"),
            // Its child keeps the pipes open.
            ("sleep 60 & exit 4", "exit code 4"),
        ] {
            let limit = if script == "sleep 60" { 1 } else { 30 };
            match shell(script, limit) {
                Ok(said) => assert_eq!((said.as_str(), wanted), ("ab", "")),
                Err(how) => assert!(
                    how.contains(wanted) && !wanted.is_empty(),
                    "{script}: {how}"
                ),
            }
        }
    }

    #[test]
    fn a_writer_without_end_is_bounded() {
        let how = shell("yes >&2", 1).expect_err("no line");
        assert!(
            how.starts_with("gave no answer within 1 s (it wrote: y y y"),
            "{how}"
        );
        assert!(how.len() < 500, "{}", how.len());
        let how = shell("yes | tr -d '\\n'", 1).expect_err("no line");
        assert_eq!(how, "gave no answer within 1 s");
    }
}
