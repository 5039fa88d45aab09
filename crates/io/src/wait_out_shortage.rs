//! What an error says that the process lacks, and work that waits a moment for it.
//!
//! Work waits longer where it is ordered. What there may be too little of is in `means`.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::IoError;
use crate::means::{Means, is_of_the_disk};

/// How long [`patiently`] waits, in all.
const PATIENCE: Duration = Duration::from_secs(2);
/// First and longest pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

impl Means {
    /// What an error says there is too little of; `None` when it is about something else.
    #[must_use]
    pub fn lacking(error: &io::Error) -> Option<Self> {
        let inside = error.get_ref().and_then(|e| e.downcast_ref::<IoError>());
        match inside {
            Some(inside) => inside.lacks(),
            None => Self::of(Errno::from_io_error(error)?),
        }
    }
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
}
