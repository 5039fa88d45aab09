//! A small write trial in a data directory: what its file system can do, and how fast places are
//! that were never written, against the same places again.
//!
//! The file has no name from the moment it is made, so that nothing is left behind by any end.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use hayloft_io::{AlignedBuf, is_resident};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl, statvfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use serde::{Deserialize, Serialize};

use crate::seen::{Looked, shown};

/// Bytes of a write.
const PART: usize = 1 << 20;
/// Parts that are written, at most and at least.
const PARTS: (u64, u64) = (64, 4);
/// After this time no more parts are written anew.
const TIME: Duration = Duration::from_secs(3);

/// What was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialFacts {
    /// Whether space can be allocated before it is written.
    pub allocates: bool,
    /// Whether writes can go around the page cache.
    pub direct: bool,
    /// Whether a read can refuse to wait.
    pub nowait: bool,
    /// Whether the kernel tells what is in the page cache.
    pub cachestat: bool,
    /// Median time of a write of 1 MiB to a new place, microseconds.
    pub first_us: u64,
    /// The same, where it has been written before.
    pub again_us: u64,
    /// Writes that were timed.
    pub parts: u64,
}

/// Tries a directory.
///
/// # Errors
/// Why it cannot be tried: no room, no permission, a read-only file system.
pub fn try_out(dir: &Path) -> Looked<TrialFacts> {
    let failed = |error: std::io::Error| shown(dir, &error);
    let space = statvfs(dir).map_err(|error| shown(dir, &error.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let parts = (free / 8 / PART as u64).min(PARTS.0);
    if parts < PARTS.1 {
        return Err(format!("{}: too little is free for a trial", dir.display()));
    }
    let file = tempfile::tempfile_in(dir).map_err(failed)?;
    let allocated = fallocate(&file, FallocateFlags::empty(), 0, parts * PART as u64);
    let mut buffer = AlignedBuf::unpooled(PART);
    buffer.set_len(PART);
    for (byte, value) in buffer.as_mut_slice().iter_mut().zip((0..=250).cycle()) {
        *byte = value;
    }
    file.write_all_at(&buffer.as_slice()[..4096], 0)
        .map_err(failed)?;
    let nowait = takes_nowait(&file);
    let cachestat = is_resident(file.as_fd(), 0, 4096);
    file.sync_data().map_err(failed)?;
    let direct = goes_direct(&file);
    let write = |part: u64| {
        let began = Instant::now();
        file.write_all_at(buffer.as_slice(), part * PART as u64)?;
        if !direct {
            file.sync_data()?;
        }
        Ok(began.elapsed())
    };
    let began = Instant::now();
    let (mut first, mut again) = (Vec::new(), Vec::new());
    // In turn, so that what else the disk does delays both alike.
    for part in 0..parts {
        if began.elapsed() > TIME {
            break;
        }
        first.push(write(part).map_err(failed)?);
        again.push(write(part).map_err(failed)?);
    }
    let parts = first.len() as u64;
    Ok(TrialFacts {
        allocates: !matches!(allocated, Err(Errno::OPNOTSUPP | Errno::NOSYS)),
        direct,
        nowait,
        cachestat,
        first_us: median_us(first),
        again_us: median_us(again),
        parts,
    })
}

/// Has the file written around the page cache; whether it can be.
fn goes_direct(file: &File) -> bool {
    let flags = fcntl_getfl(file);
    flags
        .and_then(|flags| fcntl_setfl(file, flags | OFlags::DIRECT))
        .is_ok()
}

/// Whether a read that must not wait is known at all; what it gives is another matter.
fn takes_nowait(file: &File) -> bool {
    let mut byte = [0];
    let mut into = [IoSliceMut::new(&mut byte)];
    let read = preadv2(file, &mut into, 0, ReadWriteFlags::NOWAIT);
    !matches!(read, Err(Errno::OPNOTSUPP | Errno::NOSYS))
}

fn median_us(mut times: Vec<Duration>) -> u64 {
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    u64::try_from(median.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_behind() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let tried = try_out(dir.path()).expect("there is room");
        assert!(
            tried.parts >= PARTS.1 && tried.first_us > 0 && tried.again_us > 0,
            "{tried:?}"
        );
        assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0);
    }

    #[test]
    fn what_cannot_be_written_says_why() {
        let why = try_out(Path::new("/proc")).expect_err("nothing is free there");
        assert!(why.starts_with("/proc: "), "{why}");
    }
}
