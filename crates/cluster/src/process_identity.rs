//! Whether a recorded process is still that process: a pid alone may have been given to another.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process that cannot be confused with a later one of the same pid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    start_ticks: u64,
    /// The boot that the ticks count from.
    boot: String,
}

impl ProcessIdentity {
    /// The process that has this pid now; `None` if there is none.
    pub fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        Some(Self {
            pid,
            start_ticks: start_ticks(pid)?,
            boot: boot()?,
        })
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_alive(&self) -> bool {
        boot().as_ref() == Some(&self.boot) && start_ticks(self.pid) == Some(self.start_ticks)
    }

    /// Sends a signal to this process and no other. Does nothing once it has ended.
    ///
    /// Before Linux 5.3 nothing holds a process while it is looked at: there one that ends and
    /// whose pid is given to another in that moment is missed.
    pub fn signal(&self, signal: Signal) -> std::io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(());
        };
        // Opened first, checked second: the descriptor cannot come to mean another process.
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => Some(process),
            // Linux before 5.3, or a sandbox that knows none later.
            Err(Errno::NOSYS | Errno::PERM) => None,
            Err(Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if !self.is_alive() {
            return Ok(());
        }
        let sent = match process {
            Some(process) => pidfd_send_signal(process, signal),
            None => kill_process(pid, signal),
        };
        match sent {
            Err(Errno::SRCH) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Waits for its end; whether it ended within `limit`.
    pub fn wait_gone(&self, limit: Duration) -> bool {
        let start = Instant::now();
        while self.is_alive() {
            if start.elapsed() >= limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        true
    }
}

/// Field 22 of `/proc/<pid>/stat`; `None` when there is no such process or it is a zombie.
fn start_ticks(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command, field 2, is in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn boot() -> Option<String> {
    Some(
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .ok()?
            .trim()
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_pid() {
        let me = ProcessIdentity::of(std::process::id()).expect("this process runs");
        assert!(me.is_alive());
        let earlier = ProcessIdentity {
            start_ticks: me.start_ticks - 1,
            ..me.clone()
        };
        assert!(!earlier.is_alive());
        let before_boot = ProcessIdentity {
            boot: "another".into(),
            ..me
        };
        assert!(!before_boot.is_alive());
        // Signals to processes that are gone go nowhere, least of all to this one.
        earlier.signal(Signal::KILL).expect("nothing to do");
        before_boot.signal(Signal::KILL).expect("nothing to do");
    }

    #[test]
    fn a_child_is_signalled_and_its_end_seen() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let identity = ProcessIdentity::of(child.id()).expect("it runs");
        assert!(!identity.wait_gone(Duration::from_millis(50)));
        identity.signal(Signal::TERM).expect("sent");
        // A zombie counts as gone, so this does not wait for our own wait().
        assert!(identity.wait_gone(Duration::from_secs(10)));
        child.wait().expect("reaped");
    }
}
