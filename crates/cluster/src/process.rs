//! Child processes with a log file, that die with us unless told otherwise.
//!
//! A test may panic, be interrupted or be killed with `kill -9`; its children must not stay. Each
//! supervised child is started under `setpriv --pdeathsig KILL` (util-linux), by which the kernel
//! kills it when its parent goes. The kernel's notion of parent is the *thread* that forked, so
//! every child is started by one thread that lives as long as this process. Should we go before the
//! child has asked for the signal, it finds that its parent is another one, and does not begin.

use crate::error::{ClusterError, Result};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;

/// How much of a log's end is shown with an error, bytes.
const TAIL_BYTES: u64 = 6 * 1024;

/// Becomes the program unless the parent, the first argument, went before the kernel was asked for
/// a signal at its end.
const IF_PARENT_LIVES: &str = r#"[ "$PPID" = "$1" ] || exit 1; shift; exec "$@""#;

/// A process to start: what, with which environment, logging where.
#[derive(Clone, Debug)]
pub struct Spawn {
    /// Role, for messages.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables added to our environment.
    pub env: Vec<(String, String)>,
    /// Where stderr (and stdout, unless piped) is appended.
    pub log: PathBuf,
    /// Whether stdin and stdout are pipes to us; otherwise stdin is empty and stdout is logged.
    pub piped: bool,
    /// Whether it outlives us (`hayloft up`), in a process group of its own.
    pub detached: bool,
}

impl Spawn {
    /// A supervised process without pipes.
    pub fn new(name: impl Into<String>, argv: Vec<String>, log: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            argv,
            env: Vec::new(),
            log: log.into(),
            piped: false,
            detached: false,
        }
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`ClusterError::Process`] when the program cannot be run, [`ClusterError::File`] for the
    /// log.
    pub fn start(self) -> Result<Process> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(ClusterError::file("opening log", &self.log))?;
        let mut command = self.command();
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        if self.piped {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        } else {
            let out = log
                .try_clone()
                .map_err(ClusterError::file("duplicating log", &self.log))?;
            command.stdin(Stdio::null()).stdout(out);
        }
        command.stderr(log);
        let child = spawn_from_lasting_thread(command).map_err(|error| ClusterError::Process {
            name: self.name.clone(),
            problem: format!("starting {:?}: {error}", self.argv),
            tail: String::new(),
        })?;
        Ok(Process {
            name: self.name,
            log: self.log,
            child,
            detached: self.detached,
        })
    }

    fn command(&self) -> Command {
        if self.detached {
            let mut command = Command::new(&self.argv[0]);
            command.args(&self.argv[1..]).process_group(0);
            return command;
        }
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--", "sh", "-c", IF_PARENT_LIVES])
            .args(["sh", &std::process::id().to_string()])
            .args(&self.argv);
        command
    }
}

type Job = Box<dyn FnOnce() + Send>;

fn spawn_from_lasting_thread(mut command: Command) -> std::io::Result<Child> {
    static JOBS: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let jobs = JOBS.get_or_init(|| {
        let (jobs, inbox) = channel::<Job>();
        std::thread::Builder::new()
            .name("spawner".into())
            .spawn(move || inbox.into_iter().for_each(|job| job()))
            .expect("a thread can be started");
        Mutex::new(jobs)
    });
    let (answer, result) = channel();
    let job: Job = Box::new(move || {
        let _ = answer.send(command.spawn());
    });
    let sent = jobs
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .send(job);
    let gone = || std::io::Error::other("the spawner thread is gone");
    sent.map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}

/// A running (or ended) child.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
    detached: bool,
}

impl Process {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its role.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its log file.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The pipes of a process started with `piped`; once.
    pub fn take_pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        Some((self.child.stdin.take()?, self.child.stdout.take()?))
    }

    /// An error about this process, with the end of its log.
    #[must_use]
    pub fn error(&self, problem: impl Into<String>) -> ClusterError {
        ClusterError::Process {
            name: self.name.clone(),
            problem: problem.into(),
            tail: tail(&self.log),
        }
    }

    /// `Ok` while it runs.
    ///
    /// # Errors
    /// [`ClusterError::Process`] with its exit status and the end of its log once it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.error(format!("ended with {status}"))),
            Err(error) => Err(self.error(format!("waiting: {error}"))),
        }
    }

    /// Sends a signal. A process that has ended already is not an error. After SIGSTOP it returns
    /// when each thread is stopped: one takes the signal when it next runs, and others go on till
    /// then. A thread that waits for a disk may take a second.
    ///
    /// # Errors
    /// [`ClusterError::Process`] when the kernel refuses.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return Ok(());
        }
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or_else(|| self.error("has no usable process id"))?;
        rustix::process::kill_process(pid, signal)
            .map_err(|e| self.error(format!("{signal:?}: {e}")))?;
        let sent = Instant::now();
        while signal == Signal::STOP && !self.is_stopped() && sent.elapsed().as_secs() < 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether no thread of it runs.
    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        threads.into_iter().flatten().flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')')
                .is_none_or(|(_, rest)| rest.starts_with(" T"))
        })
    }

    /// Waits for the end, at most `limit`.
    ///
    /// # Errors
    /// [`ClusterError::Process`] when it still runs after `limit`; it is left running.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if start.elapsed() >= limit => {
                    return Err(self.error(format!("still runs after {limit:?}")));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(self.error(format!("waiting: {error}"))),
            }
        }
    }

    /// SIGTERM, then waits for a clean end.
    ///
    /// # Errors
    /// When it does not end within `limit` (it is then killed) or cannot be signalled.
    pub fn stop(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(limit).inspect_err(|_| {
            let _ = self.kill();
        })
    }

    /// SIGKILL, then waits.
    ///
    /// # Errors
    /// When it cannot be signalled or is not gone after 10 s (stuck in the kernel).
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::KILL)?;
        self.wait(Duration::from_secs(10))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.detached {
            let _ = self.kill();
        }
    }
}

/// The last lines of a log; empty when it cannot be read.
#[must_use]
pub fn tail(log: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read()
        .map(|text| format!("--- end of {} ---\n{text}---", log.display()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, dir: &Path) -> Process {
        let argv = ["sh", "-c", script].map(String::from).to_vec();
        Spawn::new("shell", argv, dir.join("log"))
            .start()
            .expect("sh starts")
    }

    #[test]
    fn a_child_whose_parent_went_too_early_does_not_begin() {
        let asked = |parent: u32| {
            let words = [
                "-c",
                IF_PARENT_LIVES,
                "sh",
                &parent.to_string(),
                "echo",
                "a  b",
            ];
            Command::new("sh").args(words).output().expect("sh runs")
        };
        let ours = asked(std::process::id());
        assert_eq!(ours.stdout, b"a  b\n", "the words as they are: {ours:?}");
        let orphan = asked(1);
        assert!(
            orphan.stdout.is_empty() && !orphan.status.success(),
            "{orphan:?}"
        );
    }

    #[test]
    fn reports_an_early_end_with_the_log() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut process = shell("echo the reason >&2; exit 3", dir.path());
        let status = process.wait(Duration::from_secs(10)).expect("ends");
        assert_eq!(status.code(), Some(3));
        let error = process.check_alive().expect_err("it has ended").to_string();
        assert!(error.contains("the reason"), "{error}");
    }

    #[test]
    fn children_outlive_the_thread_that_asked_but_not_their_handle() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().to_owned();
        let asked = std::thread::spawn(move || shell("sleep 60", &path)).join();
        let mut process = asked.expect("the thread ends");
        std::thread::sleep(Duration::from_millis(200));
        process
            .check_alive()
            .expect("the asking thread's end does not kill it");
        let proc_dir = PathBuf::from(format!("/proc/{}", process.pid()));
        drop(process);
        assert!(!proc_dir.exists());
    }
}
