//! A file with two descriptors: one through the page cache, one around it (`O_DIRECT`).
//!
//! Transfers go around the cache where file offset, length and memory allow it and the transfer is
//! large enough to be worth it, reads only the first time; everything else, and the unaligned edges
//! of large writes, goes through the cache. The kernel keeps the two coherent: a direct read or
//! write first writes out dirty pages of its range, and a direct write drops the cached pages of
//! its range. Writes are cut at page boundaries, so that the two never share a page within one
//! write. No direct write begins behind dirty bytes of its file before their write-back has begun.

use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::{Errno, pread};

use super::again::ReadBefore;
use super::posix::{CACHED_CALL_MAX, PosixFile, write_fully};
use super::threaded::Blocking;
use crate::buffer::ALIGNMENT;
use crate::class::IoClass;
use crate::disk::Stream;
use crate::engine::{Advice, OpenMode, SyncKind};
use crate::error::{IoError, IoOp};
use crate::sys;

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

/// What a direct transfer must be a multiple of, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Address in memory.
    pub memory: usize,
    /// Offset and length of reads.
    pub read: usize,
    /// Offset and length of writes: at least a page, see the module.
    pub write: usize,
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
    pub alignment: Alignment,
    /// The kernel refused a transfer that should have been allowed: do not try again.
    refused: AtomicBool,
    read_before: ReadBefore,
}

impl Direct {
    pub(super) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }
}

/// A file with both descriptors. See the [module](self).
#[derive(Debug)]
pub(super) struct UnbufferedFile {
    buffered: PosixFile,
    writable: bool,
    /// Opened by the first transfer that wants it: many small files never do.
    direct: OnceLock<Option<Direct>>,
    limits: DirectLimits,
    dirty: Dirty,
}

/// What was written through the page cache since its write-back was last begun. A direct write
/// beyond such bytes makes the file longer at once: power loss would leave zeros for them.
#[derive(Debug, Default)]
struct Dirty(Mutex<Option<Range<u64>>>);

impl Dirty {
    fn lock(&self) -> MutexGuard<'_, Option<Range<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, offset: u64, len: usize) {
        let new = offset..at(offset, len);
        if new.is_empty() {
            return;
        }
        let mut dirty = self.lock();
        *dirty = Some(match dirty.take() {
            Some(old) => old.start.min(new.start)..old.end.max(new.end),
            None => new,
        });
    }

    /// What to write back before `offset` is written around the cache.
    fn take_before(&self, offset: u64) -> Option<Range<u64>> {
        self.lock().take_if(|dirty| dirty.start < offset)
    }
}

impl UnbufferedFile {
    pub(super) fn open(path: &Path, mode: OpenMode, limits: DirectLimits) -> Result<Self, IoError> {
        Ok(Self {
            buffered: PosixFile::open(path, mode)?,
            writable: mode != OpenMode::ReadOnly,
            direct: OnceLock::new(),
            limits,
            dirty: Dirty::default(),
        })
    }

    /// The descriptor around the cache; `None` when this file has none, or it proved useless.
    pub(super) fn direct(&self) -> Option<&Direct> {
        self.direct
            .get_or_init(|| self.open_direct())
            .as_ref()
            .filter(|d| !d.refused.load(Ordering::Relaxed))
    }

    fn open_direct(&self) -> Option<Direct> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(self.writable)
            .custom_flags(libc::O_DIRECT | libc::O_NOCTTY);
        let same = format!("/proc/self/fd/{}", self.buffered.file.as_raw_fd());
        let file = options.open(same).or_else(|_| self.open_by_name(&options));
        let file = file.ok()?;
        Some(Direct {
            alignment: Alignment::of(&file)?,
            file,
            refused: AtomicBool::new(false),
            read_before: ReadBefore::default(),
        })
    }

    /// Without /proc: by name, if that is still the same file.
    fn open_by_name(&self, options: &OpenOptions) -> std::io::Result<File> {
        let file = options.open(self.buffered.path())?;
        let (is, was) = (file.metadata()?, self.buffered.file.metadata()?);
        if (is.dev(), is.ino()) == (was.dev(), was.ino()) {
            return Ok(file);
        }
        Err(Errno::STALE.into())
    }

    /// The descriptor, when reading `len` bytes at `offset` to `target` may go around the cache:
    /// the first time.
    pub(super) fn direct_for_read(
        &self,
        target: *const u8,
        len: usize,
        offset: u64,
    ) -> Option<&Direct> {
        if len < self.limits.read_min {
            return None;
        }
        let direct = self.direct()?;
        let Alignment { memory, read, .. } = direct.alignment;
        let fits = target.addr().is_multiple_of(memory) && within(offset, read) == 0;
        (fits && !direct.read_before.again(offset, len)).then_some(direct)
    }

    /// The descriptor, and how a write is cut, when its middle may go around the cache.
    pub(super) fn direct_for_write(
        &self,
        bufs: &[&Bytes],
        offset: u64,
    ) -> Option<(&Direct, Parts)> {
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        if len < self.limits.write_min || !self.writable {
            return None;
        }
        let direct = self.direct()?;
        let parts = Parts::of(offset, len, direct.alignment.write);
        let body_fits = parts.body >= self.limits.write_min
            && cut(bufs, parts.head, parts.body).iter().all(|slice| {
                slice
                    .as_ptr()
                    .addr()
                    .is_multiple_of(direct.alignment.memory)
                    && slice.len().is_multiple_of(direct.alignment.read)
            });
        body_fits.then_some((direct, parts))
    }

    fn write_cached(&self, slices: &mut [IoSlice<'_>], offset: u64) -> (usize, Result<(), Errno>) {
        let written = write_fully(&self.buffered.file, slices, offset, CACHED_CALL_MAX);
        self.dirty.add(offset, written.0);
        written
    }

    /// The middle of a write around the cache; what the kernel does not take that way, through it.
    fn write_body(
        &self,
        direct: &Direct,
        slices: &mut [IoSlice<'_>],
        offset: u64,
    ) -> (usize, Result<(), Errno>) {
        let mut rest: &mut [IoSlice<'_>] = slices;
        if let Some(dirty) = self.dirty.take_before(offset) {
            let len = dirty.end - dirty.start;
            if let Err(error) = sys::start_writeback(self.buffered.file.as_fd(), dirty.start, len) {
                self.dirty
                    .add(dirty.start, usize::try_from(len).unwrap_or(0));
                return (0, Err(error));
            }
        }
        let (done, result) = {
            let mut copy = rest.to_vec();
            write_fully(&direct.file, &mut copy, offset, usize::MAX)
        };
        if result != Err(Errno::INVAL) {
            return (done, result);
        }
        // Either this file system wants more alignment than it told, or an earlier transfer was cut
        // short at an odd place.
        if done == 0 {
            direct.refuse();
        }
        IoSlice::advance_slices(&mut rest, done);
        let (more, result) = self.write_cached(rest, at(offset, done));
        (done + more, result)
    }
}

/// How a write is cut at page boundaries: bytes before, between and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub head: usize,
    pub body: usize,
    pub tail: usize,
}

impl Parts {
    fn of(offset: u64, len: usize, unit: usize) -> Self {
        let head = (unit - within(offset, unit)) % unit;
        let Some(rest) = len.checked_sub(head) else {
            return Self {
                head: len,
                body: 0,
                tail: 0,
            };
        };
        let tail = rest % unit;
        Self {
            head,
            body: rest - tail,
            tail,
        }
    }
}

/// The remainder of an offset.
fn within(offset: u64, unit: usize) -> usize {
    let unit = u64::try_from(unit).expect("usize fits in u64 on Linux");
    usize::try_from(offset % unit).expect("below a usize")
}

/// `offset` moved on by `done` bytes of a transfer whose range was checked.
fn at(offset: u64, done: usize) -> u64 {
    offset + u64::try_from(done).expect("usize fits in u64 on Linux")
}

/// `len` bytes of `bufs` after the first `skip`, without empty slices.
pub(super) fn cut<'a>(bufs: &[&'a Bytes], mut skip: usize, mut len: usize) -> Vec<IoSlice<'a>> {
    let mut out = Vec::with_capacity(bufs.len());
    for buf in bufs {
        let from = skip.min(buf.len());
        skip -= from;
        let n = len.min(buf.len() - from);
        len -= n;
        if n > 0 {
            out.push(IoSlice::new(&buf[from..from + n]));
        }
    }
    out
}

impl Blocking for UnbufferedFile {
    fn path(&self) -> &Path {
        self.buffered.path()
    }

    fn read(&self, target: &mut [u8], len: usize, offset: u64) -> Result<usize, IoError> {
        let Some(direct) = self.direct_for_read(target.as_ptr(), len, offset) else {
            return self.buffered.read(target, len, offset);
        };
        let unit = direct.alignment.read;
        // The whole last unit where there is room for it, else up to it.
        let whole = Some(len.next_multiple_of(unit)).filter(|whole| *whole <= target.len());
        let whole = whole.unwrap_or(len - len % unit);
        let mut done = 0;
        while done < whole {
            match pread(&direct.file, &mut target[done..whole], at(offset, done)) {
                Ok(n) if n > 0 && n.is_multiple_of(unit) => done += n,
                Ok(n) => return Ok((done + n).min(len)), // The end of the file.
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) => {
                    direct.refuse();
                    break;
                }
                Err(errno) => {
                    let error = self.buffered.failed(IoOp::Read, errno);
                    return Err(error.with_context(format_args!("at {offset}+{len}")));
                }
            }
        }
        let done = done.min(len);
        if done == len {
            return Ok(done);
        }
        let more = self
            .buffered
            .read(&mut target[done..], len - done, at(offset, done))?;
        Ok(done + more)
    }

    fn read_at_once(&self, target: &mut [u8], offset: u64) -> (usize, bool) {
        self.buffered.read_at_once(target, offset)
    }

    fn caches(&self, class: IoClass, offset: u64) -> bool {
        if self.limits.cache_client_reads && class == IoClass::ClientRead {
            return true;
        }
        // Without a descriptor around the cache, or before one was asked for, a read says what it
        // does.
        let direct = self.direct.get().and_then(Option::as_ref);
        direct.is_some_and(|direct| direct.read_before.has(offset))
    }

    fn load(&self, offset: u64, len: usize) -> Result<usize, IoError> {
        self.buffered.load(offset, len)
    }

    fn write(&self, bufs: &[&Bytes], offset: u64) -> (usize, Result<(), IoError>) {
        let Some((direct, parts)) = self.direct_for_write(bufs, offset) else {
            let written = self.buffered.write(bufs, offset);
            self.dirty.add(offset, written.0);
            return written;
        };
        let mut done = 0;
        let mut step = |(n, result): (usize, Result<(), Errno>)| {
            done += n;
            result
        };
        let body_at = at(offset, parts.head);
        let tail_from = parts.head + parts.body;
        let result = step(self.write_cached(&mut cut(bufs, 0, parts.head), offset))
            .and_then(|()| {
                let mut body = cut(bufs, parts.head, parts.body);
                step(self.write_body(direct, &mut body, body_at))
            })
            .and_then(|()| {
                let mut tail = cut(bufs, tail_from, parts.tail);
                step(self.write_cached(&mut tail, at(offset, tail_from)))
            });
        let said = |errno| {
            let error = self.buffered.failed(IoOp::Write, errno);
            error.with_context(format_args!("at {offset}, after {done} bytes"))
        };
        (done, result.map_err(said))
    }

    /// Small writes stay in the page cache.
    fn stream(&self, op: IoOp, offset: u64, len: usize) -> Option<Stream> {
        (op == IoOp::Read || len >= self.limits.write_min).then_some(Stream {
            id: self.buffered.inode,
            offset,
        })
    }

    fn allocate(&self, len: u64) -> Result<(), IoError> {
        self.buffered.allocate(len)
    }

    fn truncate(&self, len: u64) -> Result<(), IoError> {
        self.buffered.truncate(len)
    }

    fn sync(&self, kind: SyncKind) -> Result<(), IoError> {
        self.buffered.sync(kind)
    }

    fn start_writeback(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.buffered.start_writeback(offset, len)
    }

    fn write_back(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.buffered.write_back(offset, len)
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> Result<(), IoError> {
        self.buffered.advise(advice, offset, len)
    }

    fn length(&self) -> Result<u64, IoError> {
        self.buffered.length()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.buffered.fd()
    }
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

    #[test]
    fn slices_of_a_range_skip_and_stop() {
        let (a, b) = (Bytes::from_static(b"abc"), Bytes::from_static(b"defg"));
        let empty = Bytes::new();
        let bufs = [&a, &empty, &b];
        let cut = |skip, len| -> Vec<Vec<u8>> {
            cut(&bufs, skip, len).iter().map(|s| s.to_vec()).collect()
        };
        assert_eq!(cut(0, 7), [b"abc".to_vec(), b"defg".to_vec()]);
        assert_eq!(cut(2, 2), [b"c".to_vec(), b"d".to_vec()]);
        assert_eq!(cut(3, 9), [b"defg".to_vec()]);
        assert!(cut(7, 1).is_empty());
    }
}
