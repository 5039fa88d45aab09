//! A regular file: through the page cache, and [around](super::around_cache) it where the engine
//! says so.
//!
//! The kernel keeps the two ways coherent. A direct read or write first writes out dirty pages of
//! its range, and a direct write drops the cached pages of its range. Writes are cut at page
//! boundaries, so that the two never share a page within one write.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, fadvise, fallocate, fdatasync, fsync, ftruncate};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::around_cache::{Around, Direct, DirectLimits, Parts};
use super::whole_transfers::{at, read_fully, slices, write_fully};
use crate::blocking_engine::Blocking;
use crate::class::IoClass;
use crate::disk::Stream;
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::known_without_disk::known;
use crate::read_into_cache::load;
use crate::system_calls;
use crate::types::{Advice, OpenMode, SyncKind};
use crate::wait_out_shortage::patiently;

/// Bytes handed to the page cache in one call. The kernel allocates in as few pieces of memory as
/// it can for what it is given. A virtual machine has given freed pieces of 2 MiB and more back to
/// its host (free page reporting); touching them again costs ten times the copying. The call itself
/// costs nothing beside either (docs/decisions/0009-direct-by-default.md).
const CACHED_CALL_MAX: usize = 512 * 1024;

/// Reads up to this many bytes may be copied out of the page cache on the caller's thread: about
/// 60 microseconds of copying, less than handing over would cost twice.
const INLINE_READ_MAX: usize = 256 * 1024;

/// Opens a regular file, gives what is known of it; never waits on a pipe, never follows into a
/// device.
pub(super) fn open_regular(path: &Path, mode: OpenMode) -> Result<(File, Metadata), IoError> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(mode != OpenMode::ReadOnly)
        .create_new(mode == OpenMode::CreateNew)
        .mode(0o644)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let failed = |e: std::io::Error| IoError::from_std(IoOp::Open, path, &e);
    let file = patiently(|| options.open(path)).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if meta.is_file() {
        return Ok((file, meta));
    }
    let what = "not a regular file";
    Err(IoError::new(IoErrorKind::Invalid, IoOp::Open, path, what))
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct RegularFile {
    file: File,
    inode: u64,
    path: PathBuf,
    /// This file system refuses `RWF_NOWAIT`: do not ask again.
    nowait_refused: AtomicBool,
    around: Option<Around>,
}

impl RegularFile {
    /// `limits`: transfers of these sizes go around the page cache; `None`: none does.
    pub(super) fn open(
        path: &Path,
        mode: OpenMode,
        limits: Option<DirectLimits>,
    ) -> Result<Self, IoError> {
        let (file, meta) = open_regular(path, mode)?;
        let writable = mode != OpenMode::ReadOnly;
        let around = limits.map(|limits| Around::new(limits, writable));
        if let Some(around) = around.as_ref().filter(|_| writable) {
            // An earlier handle may have left dirty bytes anywhere in it.
            around.dirty.add_range(0..meta.len());
        }
        Ok(Self {
            file,
            inode: meta.ino(),
            path: path.to_owned(),
            nowait_refused: AtomicBool::new(false),
            around,
        })
    }

    fn failed(&self, op: IoOp, errno: Errno) -> IoError {
        IoError::from_errno(op, &self.path, errno)
    }

    /// What a call says of a hint that a file system need not know.
    fn hint(&self, result: Result<(), Errno>) -> Result<(), IoError> {
        match result {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::SPIPE) => Ok(()),
            Err(errno) => Err(self.failed(IoOp::Writeback, errno)),
        }
    }

    fn write_cached(&self, slices: &mut [IoSlice<'_>], offset: u64) -> (usize, Result<(), Errno>) {
        let written = write_fully(&self.file, slices, offset, CACHED_CALL_MAX);
        if let Some(around) = &self.around {
            around.dirty.add(offset, written.0);
        }
        written
    }

    /// The middle of a write around the cache; what the kernel does not take that way, through it.
    fn write_body(
        &self,
        (around, direct): (&Around, &Direct),
        mut rest: &mut [IoSlice<'_>],
        offset: u64,
    ) -> (usize, Result<(), Errno>) {
        if let Err(errno) = around.dirty.write_back_before(&self.file, offset) {
            return (0, Err(errno));
        }
        let (done, result) = direct.write(rest, offset);
        if result != Err(Errno::INVAL) {
            return (done, result);
        }
        IoSlice::advance_slices(&mut rest, done);
        let (more, result) = self.write_cached(rest, at(offset, done));
        (done + more, result)
    }

    /// A write whose middle goes around the cache.
    fn write_parts(
        &self,
        (around, direct, parts): (&Around, &Direct, Parts),
        bufs: &[&Bytes],
        offset: u64,
    ) -> (usize, Result<(), Errno>) {
        let Parts { head, body, tail } = parts;
        let mut done = 0;
        let mut step = |(n, result): (usize, Result<(), Errno>)| {
            done += n;
            result
        };
        let result = step(self.write_cached(&mut slices(bufs, 0, head), offset))
            .and_then(|()| {
                let mut middle = slices(bufs, head, body);
                step(self.write_body((around, direct), &mut middle, at(offset, head)))
            })
            .and_then(|()| {
                let mut end = slices(bufs, head + body, tail);
                step(self.write_cached(&mut end, at(offset, head + body)))
            });
        (done, result)
    }
}

impl Blocking for RegularFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, target: &mut [u8], len: usize, offset: u64) -> Result<usize, IoError> {
        let failed = |errno| {
            let error = self.failed(IoOp::Read, errno);
            error.with_context(format_args!("at {offset}+{len}"))
        };
        let around = self.around.as_ref();
        let direct = around.and_then(|a| a.for_read(&self.file, &self.path, (target, len), offset));
        let (done, ended) = match direct {
            Some(direct) => direct.read(target, len, offset).map_err(failed)?,
            None => (0, false),
        };
        if ended || done == len {
            return Ok(done);
        }
        let rest = read_fully(&self.file, &mut target[done..len], at(offset, done));
        rest.map(|more| done + more).map_err(failed)
    }

    fn read_at_once(&self, target: &mut [u8], offset: u64) -> (usize, bool) {
        let len = target.len();
        if len > INLINE_READ_MAX || self.nowait_refused.load(Ordering::Relaxed) {
            return (0, false);
        }
        let mut into = [IoSliceMut::new(target)];
        match preadv2(&self.file, &mut into, offset, ReadWriteFlags::NOWAIT) {
            Ok(n) if n == len => (n, true),
            Ok(n) => {
                let end = at(offset, n);
                let at_end = known(self.file.as_fd()).is_some_and(|facts| end >= facts.len);
                (n, at_end)
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.nowait_refused.store(true, Ordering::Relaxed);
                (0, false)
            }
            // Not resident; or an error, which a thread meets again and reports.
            Err(_) => (0, false),
        }
    }

    fn caches(&self, class: IoClass, offset: u64) -> bool {
        let around = self.around.as_ref();
        around.is_none_or(|around| around.caches(class, offset))
    }

    fn load(&self, offset: u64, len: usize) -> Result<usize, IoError> {
        load(&self.file, offset, len).map_err(|e| {
            self.failed(IoOp::Read, e)
                .with_context(format_args!("at {offset}+{len}, into the page cache"))
        })
    }

    fn write(&self, bufs: &[&Bytes], offset: u64) -> (usize, Result<(), IoError>) {
        let around = self.around.as_ref();
        let way =
            around.and_then(|a| Some((a, a.for_write(&self.file, &self.path, bufs, offset)?)));
        let (done, result) = match way {
            Some((around, (direct, parts))) => {
                self.write_parts((around, direct, parts), bufs, offset)
            }
            None => self.write_cached(&mut slices(bufs, 0, usize::MAX), offset),
        };
        let failed = |errno| {
            let error = self.failed(IoOp::Write, errno);
            error.with_context(format_args!("at {offset}, after {done} bytes"))
        };
        (done, result.map_err(failed))
    }

    /// Reads get here when the page cache does not have them. Writes into it reach no device.
    fn stream(&self, op: IoOp, offset: u64, len: usize) -> Option<Stream> {
        let around = self.around.as_ref();
        let on_device = op != IoOp::Write || around.is_some_and(|a| len >= a.limits.write_min);
        on_device.then_some(Stream {
            id: self.inode,
            offset,
        })
    }

    fn allocate(&self, len: u64) -> Result<(), IoError> {
        if len == 0 {
            return Ok(());
        }
        fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, len)
            .map_err(|e| self.failed(IoOp::Allocate, e))
    }

    fn truncate(&self, len: u64) -> Result<(), IoError> {
        ftruncate(&self.file, len).map_err(|e| self.failed(IoOp::Truncate, e))
    }

    fn sync(&self, kind: SyncKind) -> Result<(), IoError> {
        match kind {
            SyncKind::Data => fdatasync(&self.file),
            SyncKind::All => fsync(&self.file),
        }
        .map_err(|e| self.failed(IoOp::Sync, e))
    }

    fn start_writeback(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.hint(system_calls::start_writeback(
            self.file.as_fd(),
            offset,
            len,
        ))
    }

    fn write_back(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.hint(system_calls::write_back(self.file.as_fd(), offset, len))
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> Result<(), IoError> {
        use rustix::fs::Advice as Kernel;
        let advice = match advice {
            Advice::Normal => Kernel::Normal,
            Advice::Sequential => Kernel::Sequential,
            Advice::Random => Kernel::Random,
            Advice::WillNeed => Kernel::WillNeed,
            Advice::DontNeed => Kernel::DontNeed,
        };
        fadvise(&self.file, offset, NonZeroU64::new(len), advice)
            .map_err(|e| self.failed(IoOp::Advise, e))
    }

    fn length(&self) -> Result<u64, IoError> {
        let meta = self.file.metadata();
        meta.map(|m| m.len())
            .map_err(|e| IoError::from_std(IoOp::Length, &self.path, &e))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A direct write behind what another handle wrote begins the write-back of that first.
    #[test]
    fn a_file_that_is_there_may_have_dirty_bytes_of_another_handle() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("f");
        std::fs::write(&path, [7; 5000]).expect("writes");
        let limits = Some(DirectLimits::default());
        let dirty = |mode| {
            let file = RegularFile::open(&path, mode, limits).expect("opens");
            let around = file.around.expect("was asked for");
            let begun = around.dirty.write_back_before(&file.file, u64::MAX);
            begun.expect("begins");
            around
        };
        let open = |mode| RegularFile::open(&path, mode, limits).expect("opens");
        let of = |file: &RegularFile| file.around.as_ref().expect("was asked for").dirty.range();
        assert_eq!(of(&open(OpenMode::ReadWrite)), Some(0..5000));
        assert_eq!(of(&open(OpenMode::ReadOnly)), None);
        assert_eq!(
            dirty(OpenMode::ReadWrite).dirty.range(),
            None,
            "once is enough"
        );
    }
}
