//! The way around the page cache: a second descriptor with `O_DIRECT`, and which transfers take it.
//!
//! A transfer goes around the cache where its file offset, length and memory allow it and it is
//! large enough to be worth it. A read does so only the first time. No direct write begins before
//! the write-back of dirty bytes below it.

use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use bytes::Bytes;
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::{Errno, pread};

use super::read_again::ReadBefore;
use super::whole_transfers::{at, slices, write_fully};
use crate::buffer::ALIGNMENT;
use crate::class::IoClass;
use crate::locks;
use crate::system_calls;

/// From which size on a transfer goes around the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectLimits {
    /// Bytes of a read. Smaller ones profit from cached pages and the kernel's read-ahead.
    pub read_min: usize,
    /// Aligned bytes of a write. Smaller ones would wait for the device each. `usize::MAX`: writes
    /// never go around the page cache, as on rotating media, which want them in long runs.
    pub write_min: usize,
    /// What clients read and is sent from the page cache is read into it
    /// ([`EngineFile::caches`](crate::EngineFile::caches)), and not only what is read again.
    pub cache_client_reads: bool,
}

impl Default for DirectLimits {
    fn default() -> Self {
        Self {
            read_min: 256 * 1024,
            write_min: 128 * 1024,
            cache_client_reads: false,
        }
    }
}

/// What an open file has for transfers around the page cache. See the [module](self).
#[derive(Debug)]
pub(super) struct Around {
    pub(super) limits: DirectLimits,
    pub(super) dirty: Dirty,
    writable: bool,
    /// Opened by the first transfer that wants it: many small files never do.
    descriptor: OnceLock<Option<Direct>>,
}

impl Around {
    pub(super) fn new(limits: DirectLimits, writable: bool) -> Self {
        Self {
            limits,
            dirty: Dirty::default(),
            writable,
            descriptor: OnceLock::new(),
        }
    }

    /// The descriptor around the cache; `None` when this file has none, or it proved useless.
    fn direct(&self, file: &File, path: &Path) -> Option<&Direct> {
        self.descriptor
            .get_or_init(|| Direct::open(file, path, self.writable))
            .as_ref()
            .filter(|d| !d.refused.load(Ordering::Relaxed))
    }

    /// The descriptor, when reading `len` bytes at `offset` to `target` may go around the cache:
    /// the first time.
    pub(super) fn for_read(
        &self,
        file: &File,
        path: &Path,
        (target, len): (&[u8], usize),
        offset: u64,
    ) -> Option<&Direct> {
        if len < self.limits.read_min {
            return None;
        }
        let direct = self.direct(file, path)?;
        let Alignment { memory, read, .. } = direct.alignment;
        let fits = target.as_ptr().addr().is_multiple_of(memory) && within(offset, read) == 0;
        (fits && !direct.read_before.again(offset, len)).then_some(direct)
    }

    /// The descriptor, and how a write is cut, when its middle may go around the cache.
    pub(super) fn for_write(
        &self,
        file: &File,
        path: &Path,
        bufs: &[&Bytes],
        offset: u64,
    ) -> Option<(&Direct, Parts)> {
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        if len < self.limits.write_min || !self.writable {
            return None;
        }
        let direct = self.direct(file, path)?;
        let Alignment {
            memory,
            read,
            write,
        } = direct.alignment;
        let parts = Parts::of(offset, len, write);
        let fits = |slice: &IoSlice<'_>| {
            slice.as_ptr().addr().is_multiple_of(memory) && slice.len().is_multiple_of(read)
        };
        let body_fits = parts.body >= self.limits.write_min
            && slices(bufs, parts.head, parts.body).iter().all(fits);
        body_fits.then_some((direct, parts))
    }

    /// Whether reads of `class` at `offset` go through the page cache, to stay there.
    pub(super) fn caches(&self, class: IoClass, offset: u64) -> bool {
        if self.limits.cache_client_reads && class == IoClass::ClientRead {
            return true;
        }
        // Without a descriptor around the cache, or before one was asked for, a read says what it
        // does.
        let direct = self.descriptor.get().and_then(Option::as_ref);
        direct.is_some_and(|direct| direct.read_before.has(offset))
    }
}

/// What was written through the page cache since its write-back was last begun. A direct write
/// beyond such bytes makes the file longer at once: power loss would leave zeros for them.
#[derive(Debug, Default)]
pub(super) struct Dirty(Mutex<Option<Range<u64>>>);

impl Dirty {
    fn lock(&self) -> MutexGuard<'_, Option<Range<u64>>> {
        locks::lock(&self.0)
    }

    pub(super) fn add(&self, offset: u64, len: usize) {
        self.add_range(offset..at(offset, len));
    }

    #[cfg(test)]
    pub(super) fn range(&self) -> Option<Range<u64>> {
        self.lock().clone()
    }

    pub(super) fn add_range(&self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let mut dirty = self.lock();
        *dirty = Some(match dirty.take() {
            Some(old) => old.start.min(new.start)..old.end.max(new.end),
            None => new,
        });
    }

    /// Begins the write-back of what is dirty below `offset`, which is written around the cache
    /// next.
    pub(super) fn write_back_before(&self, file: &File, offset: u64) -> Result<(), Errno> {
        let Some(dirty) = self.lock().take_if(|dirty| dirty.start < offset) else {
            return Ok(());
        };
        let len = dirty.end - dirty.start;
        let begun = system_calls::start_writeback(file.as_fd(), dirty.start, len);
        begun.inspect_err(|_| self.add_range(dirty))
    }
}

/// What a direct transfer must be a multiple of, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Alignment {
    /// Address in memory.
    memory: usize,
    /// Offset and length of reads.
    read: usize,
    /// Offset and length of writes: at least a page, so that a page of the cache has no part in
    /// them.
    write: usize,
}

impl Alignment {
    /// What holds on every device that is sold.
    const CAUTIOUS: Self = Self {
        memory: ALIGNMENT,
        read: ALIGNMENT,
        write: ALIGNMENT,
    };

    /// What the kernel says about an open file; `None` when it cannot go around the cache.
    fn of(file: &File) -> Option<Self> {
        let Ok(facts) = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
            return Some(Self::CAUTIOUS); // A kernel before 4.11, or a sandbox: try.
        };
        if facts.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
            return Some(Self::CAUTIOUS); // A file system that does not tell: try.
        }
        let power = |n: u32| usize::try_from(n).ok().filter(|n| n.is_power_of_two());
        let memory = power(facts.stx_dio_mem_align)?;
        let offset = power(facts.stx_dio_offset_align)?;
        Some(Self {
            memory,
            read: offset,
            write: offset.max(ALIGNMENT),
        })
    }
}

/// The descriptor around the page cache.
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    alignment: Alignment,
    /// The kernel refused a transfer that should have been allowed: do not try again.
    refused: AtomicBool,
    read_before: ReadBefore,
}

impl Direct {
    /// A second descriptor of `of`, which was opened at `path`.
    fn open(of: &File, path: &Path, writable: bool) -> Option<Self> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(writable)
            .custom_flags(libc::O_DIRECT | libc::O_NOCTTY);
        let same = format!("/proc/self/fd/{}", of.as_raw_fd());
        // Without /proc: by name, if that is still the same file.
        let by_name = |_| {
            let file = options.open(path)?;
            let (is, was) = (file.metadata()?, of.metadata()?);
            if (is.dev(), is.ino()) == (was.dev(), was.ino()) {
                return Ok(file);
            }
            Err(std::io::Error::from(Errno::STALE))
        };
        let file = options.open(same).or_else(by_name).ok()?;
        Some(Self {
            alignment: Alignment::of(&file)?,
            file,
            refused: AtomicBool::new(false),
            read_before: ReadBefore::default(),
        })
    }

    fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// How much of the first `len` bytes of `target` was read, and whether the file ends there.
    /// Without that, what is missing is to be read through the cache.
    pub(super) fn read(
        &self,
        target: &mut [u8],
        len: usize,
        offset: u64,
    ) -> Result<(usize, bool), Errno> {
        let unit = self.alignment.read;
        // The whole last unit where there is room for it, else up to it.
        let whole = Some(len.next_multiple_of(unit)).filter(|whole| *whole <= target.len());
        let whole = whole.unwrap_or(len - len % unit);
        let mut done = 0;
        while done < whole {
            match pread(&self.file, &mut target[done..whole], at(offset, done)) {
                Ok(n) if n > 0 && n.is_multiple_of(unit) => done += n,
                Ok(n) => return Ok(((done + n).min(len), true)),
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) => {
                    self.refuse();
                    break;
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok((done.min(len), false))
    }

    /// Writes aligned memory. After `EINVAL`, the rest is to be written through the cache.
    pub(super) fn write(&self, slices: &[IoSlice<'_>], offset: u64) -> (usize, Result<(), Errno>) {
        let (done, result) = write_fully(&self.file, &mut slices.to_vec(), offset, usize::MAX);
        // Either this file system wants more alignment than it told, or it cut an earlier transfer
        // short at an odd place.
        if result == Err(Errno::INVAL) && done == 0 {
            self.refuse();
        }
        (done, result)
    }
}

/// How a write is cut at page boundaries: bytes before, between and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) head: usize,
    pub(super) body: usize,
    pub(super) tail: usize,
}

impl Parts {
    fn of(offset: u64, len: usize, unit: usize) -> Self {
        let head = len.min((unit - within(offset, unit)) % unit);
        let tail = (len - head) % unit;
        Self {
            head,
            body: len - head - tail,
            tail,
        }
    }
}

/// The remainder of an offset.
fn within(offset: u64, unit: usize) -> usize {
    let unit = u64::try_from(unit).expect("usize fits in u64 on Linux");
    usize::try_from(offset % unit).expect("below a usize")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_cut_at_pages() {
        let parts = |offset, len| {
            let p = Parts::of(offset, len, 4096);
            (p.head, p.body, p.tail)
        };
        assert_eq!(parts(0, 8192), (0, 8192, 0));
        assert_eq!(parts(1, 8192), (4095, 4096, 1));
        assert_eq!(parts(4095, 1), (1, 0, 0));
        assert_eq!(parts(4090, 3), (3, 0, 0));
        assert_eq!(parts(4097, 4095 + 4095), (4095, 0, 4095));
        assert_eq!(parts(8192, 0), (0, 0, 0));
    }
}
