//! What a process may run out of, and what becomes of the work then.
//!
//! That the process lacks something says nothing of a disk or a file. Work waits for it, a moment
//! here ([`patiently`]) and longer where it is ordered. Shortages are counted by everyone who meets
//! one. One place logs them: an error for each would fill the log.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::error::IoError;

/// How long [`patiently`] waits, in all.
const PATIENCE: Duration = Duration::from_secs(2);
/// First and longest pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

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

    /// What an error says there is too little of; `None` when it is about something else.
    #[must_use]
    pub fn lacking(error: &io::Error) -> Option<Self> {
        let inside = error.get_ref().and_then(|e| e.downcast_ref::<IoError>());
        match inside {
            Some(inside) => inside.lacks(),
            None => Self::of(Errno::from_io_error(error)?),
        }
    }

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

/// Does `work`, again and again for two seconds while the process lacks something for it. It must
/// have no effect when it fails so. Blocks: for threads of disks.
///
/// # Errors
/// Those of `work`; a shortage that lasted. It is `EIO` when the disk means something else by it.
pub fn patiently<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let (began, mut pause) = (Instant::now(), PAUSE);
    loop {
        let error = match work() {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let Some(means) = Means::lacking(&error) else {
            return Err(error);
        };
        // What is the disk's is no shortage: advice to give the process more would mislead.
        let of_disk = is_of_the_disk(means);
        if !of_disk {
            means.note();
        }
        if began.elapsed() >= PATIENCE {
            return Err(if of_disk { Errno::IO.into() } else { error });
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
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
    fn a_shortage_that_passes_is_waited_for_and_counted() {
        for (errno, means) in [
            (Errno::MFILE, Means::Descriptors),
            (Errno::NFILE, Means::Descriptors),
            (Errno::NOMEM, Means::Memory),
            (Errno::NOBUFS, Means::Buffers),
            (Errno::AGAIN, Means::Threads),
        ] {
            let (before, mut left) = (means.met(), 3);
            let done = patiently(|| {
                if left > 0 {
                    left -= 1;
                    return Err(io::Error::from(errno));
                }
                Ok(7)
            });
            assert_eq!(done.expect("in the end"), 7);
            // This process has memory: it is the disk that says so, which is no shortage.
            let counted = if means == Means::Memory { 0 } else { 3 };
            assert!(means.met() >= before + counted, "{means:?}");
        }
    }

    #[test]
    fn other_errors_and_shortages_that_last_are_given_back() {
        let began = Instant::now();
        let error = patiently(|| Err::<(), _>(io::Error::from(Errno::IO))).expect_err("EIO");
        assert!(Means::lacking(&error).is_none() && began.elapsed() < PATIENCE);
        let error = patiently(|| Err::<(), _>(io::Error::from(Errno::MFILE))).expect_err("lasts");
        assert_eq!(Means::lacking(&error), Some(Means::Descriptors));
        assert!(began.elapsed() >= PATIENCE);
    }

    #[test]
    fn each_has_its_own_count() {
        for (at, means) in Means::ALL.into_iter().enumerate() {
            assert_eq!(means as usize, at);
        }
    }
}
