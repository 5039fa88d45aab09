//! What a process may run out of, and how often it did.
//!
//! That the process lacks something says nothing of a disk or a file. What becomes of the work then
//! is in `shortage`. Shortages are counted by everyone who meets one. One place logs them: an error
//! for each would fill the log.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// What there may be too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Means {
    /// Open files and sockets, of the process (`EMFILE`) or of the system (`ENFILE`).
    Descriptors,
    /// Memory (`ENOMEM`).
    Memory,
    /// Threads: a limit on processes, or memory for a stack.
    Threads,
    /// Memory of the kernel for sockets (`ENOBUFS`).
    Buffers,
}

static MET: [AtomicU64; Means::ALL.len()] = [const { AtomicU64::new(0) }; Means::ALL.len()];

impl Means {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 4] = [
        Self::Descriptors,
        Self::Memory,
        Self::Threads,
        Self::Buffers,
    ];

    /// The label of metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptors",
            Self::Memory => "memory",
            Self::Threads => "threads",
            Self::Buffers => "socket_buffers",
        }
    }

    /// What to do about a shortage.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::Descriptors => "raise the limit on open files (LimitNOFILE, ulimit -n)",
            Self::Memory => {
                "give the process more memory (MemoryMax, ulimit -v), or lower \
                hayloft.memory.limit"
            }
            Self::Threads => "raise the limit on processes (TasksMax, ulimit -u)",
            Self::Buffers => "give the kernel more memory for sockets (net.ipv4.tcp_mem)",
        }
    }

    /// How often it was met in this process.
    #[must_use]
    pub fn met(self) -> u64 {
        MET[self as usize].load(Ordering::Relaxed)
    }

    /// Counts one more time.
    pub fn note(self) {
        MET[self as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// What an errno says there is too little of; `None` when it is about something else.
    pub(crate) fn of(errno: Errno) -> Option<Self> {
        match errno {
            Errno::MFILE | Errno::NFILE => Some(Self::Descriptors),
            Errno::NOMEM => Some(Self::Memory),
            Errno::NOBUFS => Some(Self::Buffers),
            // Of files and sockets no one else hears of this one.
            Errno::AGAIN => Some(Self::Threads),
            _ => None,
        }
    }
}

/// Bytes that a process with enough memory can have at any time.
const SOME_MEMORY: usize = 4 << 20;

/// Whether a shortage that lasts is none of the process: ext4 says `ENOMEM` for each name on a
/// device that has become shorter, or is gone. Blocks.
#[must_use]
pub fn is_of_the_disk(means: Means) -> bool {
    let there = || Vec::<u8>::new().try_reserve_exact(SOME_MEMORY).is_ok();
    means == Means::Memory && there() && std::fs::File::open("/dev/null").is_ok()
}

/// How many descriptors the process may have; the largest number when there is no limit.
#[must_use]
pub fn descriptors_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many descriptors the process has; `None` where `/proc` does not say.
#[must_use]
pub fn descriptors_open() -> Option<u64> {
    let listed = std::fs::read_dir("/proc/self/fd").ok()?;
    u64::try_from(listed.count()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_count() {
        for (at, means) in Means::ALL.into_iter().enumerate() {
            assert_eq!(means as usize, at);
        }
    }
}
