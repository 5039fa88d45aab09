//! `posix`: ordinary reads and writes through the page cache, on the disk's threads.
//!
//! Better than the others where data is read again soon or the kernel's own write-back does well
//! (one stream, flash). Worse with many writers on rotating media: their pages reach the device
//! interleaved.
//!
//! Reads try the page cache on the calling thread first (`preadv2` with `RWF_NOWAIT`, which never
//! waits for the device) when they are small; what is not resident goes to a thread of the disk.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, fadvise, fallocate};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwritev};

use super::EngineConfig;
use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::disk::{Disk, Lane};
use crate::engine::{
    Advice, Capabilities, Completion, Engine, EngineFile, IoFuture, OpenMode, SyncKind,
};
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::meta::Meta;
use crate::sys;

/// Buffers passed to the kernel in one call; Linux takes no more than 1024 (`IOV_MAX`).
const IOV_MAX: usize = 1024;

/// Reads up to this many bytes may be copied out of the page cache on the caller's thread: about
/// 30 microseconds of copying, less than handing over would cost twice.
const INLINE_READ_MAX: usize = 128 * 1024;

/// Page-cache I/O. See the [module](self).
#[derive(Debug)]
pub struct Posix {
    disk: Arc<Disk>,
}

impl Posix {
    /// The engine on the disk of `config`.
    #[must_use]
    pub fn new(config: &EngineConfig) -> Self {
        Self {
            disk: Arc::clone(&config.disk),
        }
    }
}

impl Engine for Posix {
    fn name(&self) -> &'static str {
        "posix"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            preferred_alignment: 1,
            memory_alignment: 1,
            descriptor: true,
            kernel_visible: true,
            survives_kill: true,
            durable_sync: true,
            keeps_data: true,
        }
    }

    fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        class: IoClass,
    ) -> IoFuture<Result<Arc<dyn EngineFile>, IoError>> {
        let disk = Arc::clone(&self.disk);
        self.disk.run(class, IoOp::Open, path, move |path| {
            let file = open_regular(path, mode)?;
            let shared = Shared {
                file,
                path: path.to_owned(),
                nowait_refused: AtomicBool::new(false),
            };
            Ok(Arc::new(PosixFile {
                shared: Arc::new(shared),
                disk,
                class,
            }) as Arc<dyn EngineFile>)
        })
    }

    fn meta(&self, class: IoClass) -> Meta {
        Meta::new(Arc::clone(&self.disk), class)
    }
}

/// Opens a regular file; never waits on a pipe, never follows into a device.
pub(super) fn open_regular(path: &Path, mode: OpenMode) -> Result<File, IoError> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    match mode {
        OpenMode::ReadOnly => {}
        OpenMode::ReadWrite => {
            options.write(true);
        }
        OpenMode::CreateNew => {
            options.write(true).create_new(true).mode(0o644);
        }
    }
    let failed = |e: std::io::Error| IoError::from_std(IoOp::Open, path, &e);
    let file = options.open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(IoError::new(
            IoErrorKind::Invalid,
            IoOp::Open,
            path,
            "not a regular file",
        ));
    }
    Ok(file)
}

#[derive(Debug)]
struct Shared {
    file: File,
    path: PathBuf,
    /// This file system refuses `RWF_NOWAIT`: do not ask again.
    nowait_refused: AtomicBool,
}

impl Shared {
    fn failed(&self, op: IoOp, errno: Errno) -> IoError {
        IoError::from_errno(op, &self.path, errno)
    }

    /// Reads until `len` bytes or the end, from `done` on. Blocking.
    fn read_fully(
        &self,
        buf: &mut AlignedBuf,
        offset: u64,
        len: usize,
        mut done: usize,
    ) -> Result<usize, IoError> {
        while done < len {
            let at = offset + u64::try_from(done).expect("usize fits in u64 on Linux");
            match pread(&self.file, &mut buf.as_mut_capacity()[done..len], at) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(self
                        .failed(IoOp::Read, errno)
                        .with_context(format_args!("at {offset}+{len}")));
                }
            }
        }
        Ok(done)
    }

    /// What the page cache has of the range, without waiting; the flag says that it is all there
    /// is (complete, or up to the end of the file).
    fn read_resident(&self, buf: &mut AlignedBuf, offset: u64, len: usize) -> (usize, bool) {
        if len > INLINE_READ_MAX || self.nowait_refused.load(Ordering::Relaxed) {
            return (0, false);
        }
        let mut target = [IoSliceMut::new(&mut buf.as_mut_capacity()[..len])];
        match preadv2(&self.file, &mut target, offset, ReadWriteFlags::NOWAIT) {
            Ok(n) if n == len => (n, true),
            Ok(n) => {
                let end = offset + u64::try_from(n).expect("usize fits in u64 on Linux");
                let at_end = self.file.metadata().is_ok_and(|m| end >= m.len());
                (n, at_end)
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.nowait_refused.store(true, Ordering::Relaxed);
                (0, false)
            }
            Err(_) => (0, false), // A thread meets the error again and reports it.
        }
    }

    /// Writes all of `bufs`. Blocking.
    fn write_fully(&self, bufs: &[Bytes], offset: u64) -> Result<usize, IoError> {
        let mut slices: Vec<IoSlice<'_>> = bufs
            .iter()
            .filter(|b| !b.is_empty())
            .map(|b| IoSlice::new(b))
            .collect();
        let mut rest = &mut slices[..];
        let mut done = 0_usize;
        while !rest.is_empty() {
            let at = offset + u64::try_from(done).expect("usize fits in u64 on Linux");
            let batch = &rest[..rest.len().min(IOV_MAX)];
            match pwritev(&self.file, batch, at) {
                Ok(0) => {
                    return Err(IoError::new(
                        IoErrorKind::Other,
                        IoOp::Write,
                        &self.path,
                        "the kernel wrote nothing",
                    )
                    .with_context(format_args!("at {at}")));
                }
                Ok(n) => {
                    done += n;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(self
                        .failed(IoOp::Write, errno)
                        .with_context(format_args!("at {at}")));
                }
            }
        }
        Ok(done)
    }
}

#[derive(Debug)]
struct PosixFile {
    shared: Arc<Shared>,
    disk: Arc<Disk>,
    class: IoClass,
}

impl PosixFile {
    fn run<T, F>(&self, op: IoOp, work: F) -> IoFuture<Result<T, IoError>>
    where
        T: Send + 'static,
        F: FnOnce(&Shared) -> Result<T, Errno> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        self.disk.run(self.class, op, &self.shared.path, move |_| {
            work(&shared).map_err(|e| shared.failed(op, e))
        })
    }
}

/// Checks that a transfer stays within what file offsets can say.
pub(super) fn check_range(
    op: IoOp,
    path: &Path,
    offset: u64,
    len: usize,
    capacity: usize,
) -> Result<(), IoError> {
    let end = u64::try_from(len)
        .ok()
        .and_then(|len| offset.checked_add(len));
    if len > capacity || end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(IoError::new(
            IoErrorKind::Invalid,
            op,
            path,
            format!("{len} bytes at {offset} with a buffer of {capacity}"),
        ));
    }
    Ok(())
}

/// The sum of the lengths, or the largest number when it does not fit.
pub(super) fn total_len(bufs: &[Bytes]) -> usize {
    bufs.iter()
        .fold(0_usize, |sum, b| sum.saturating_add(b.len()))
}

impl EngineFile for PosixFile {
    fn path(&self) -> &Path {
        &self.shared.path
    }

    fn with_class(&self, class: IoClass) -> Arc<dyn EngineFile> {
        Arc::new(Self {
            shared: Arc::clone(&self.shared),
            disk: Arc::clone(&self.disk),
            class,
        })
    }

    fn read_at(
        &self,
        mut buf: AlignedBuf,
        offset: u64,
        len: usize,
    ) -> IoFuture<Completion<AlignedBuf>> {
        buf.set_len(0);
        if let Err(error) = check_range(IoOp::Read, &self.shared.path, offset, len, buf.capacity())
        {
            return Box::pin(std::future::ready(Completion {
                buf,
                result: Err(error),
            }));
        }
        let (resident, whole) = self.shared.read_resident(&mut buf, offset, len);
        if whole {
            buf.set_len(resident);
            return Box::pin(std::future::ready(Completion {
                buf,
                result: Ok(resident),
            }));
        }
        let shared = Arc::clone(&self.shared);
        let done = self.disk.submit(self.class, Lane::Data, move || {
            let result = shared.read_fully(&mut buf, offset, len, resident);
            buf.set_len(*result.as_ref().unwrap_or(&0));
            Completion { buf, result }
        });
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            done.await.unwrap_or_else(|| Completion {
                buf: AlignedBuf::empty(),
                result: Err(closed(IoOp::Read, &shared.path)),
            })
        })
    }

    fn write_at(&self, bufs: Vec<Bytes>, offset: u64) -> IoFuture<Completion<Vec<Bytes>>> {
        let total = total_len(&bufs);
        if let Err(error) = check_range(IoOp::Write, &self.shared.path, offset, total, total) {
            return Box::pin(std::future::ready(Completion {
                buf: bufs,
                result: Err(error),
            }));
        }
        let shared = Arc::clone(&self.shared);
        let done = self.disk.submit(self.class, Lane::Data, move || {
            let result = shared.write_fully(&bufs, offset);
            Completion { buf: bufs, result }
        });
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            done.await.unwrap_or_else(|| Completion {
                buf: Vec::new(),
                result: Err(closed(IoOp::Write, &shared.path)),
            })
        })
    }

    fn allocate(&self, len: u64) -> IoFuture<Result<(), IoError>> {
        self.run(IoOp::Allocate, move |s| {
            if len == 0 {
                return Ok(());
            }
            fallocate(&s.file, FallocateFlags::KEEP_SIZE, 0, len)
        })
    }

    fn truncate(&self, len: u64) -> IoFuture<Result<(), IoError>> {
        self.run(IoOp::Truncate, move |s| rustix::fs::ftruncate(&s.file, len))
    }

    fn sync(&self, kind: SyncKind) -> IoFuture<Result<(), IoError>> {
        self.run(IoOp::Sync, move |s| match kind {
            SyncKind::Data => rustix::fs::fdatasync(&s.file),
            SyncKind::All => rustix::fs::fsync(&s.file),
        })
    }

    fn start_writeback(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.run(IoOp::Writeback, move |s| {
            match sys::start_writeback(s.file.as_fd(), offset, len) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::SPIPE) => Ok(()),
                other => other,
            }
        })
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        use rustix::fs::Advice as Kernel;
        let advice = match advice {
            Advice::Normal => Kernel::Normal,
            Advice::Sequential => Kernel::Sequential,
            Advice::Random => Kernel::Random,
            Advice::WillNeed => Kernel::WillNeed,
            Advice::DontNeed => Kernel::DontNeed,
        };
        self.run(IoOp::Advise, move |s| {
            fadvise(&s.file, offset, std::num::NonZeroU64::new(len), advice)
        })
    }

    fn length(&self) -> IoFuture<Result<u64, IoError>> {
        self.run(IoOp::Length, |s| {
            let stat = rustix::fs::fstat(&s.file)?;
            u64::try_from(stat.st_size).map_err(|_| Errno::IO)
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.file.as_fd())
    }
}

/// The error when a worker died with the operation; only a panic in this crate can cause it.
pub(super) fn closed(op: IoOp, path: &Path) -> IoError {
    IoError::new(IoErrorKind::Closed, op, path, "the worker gave no answer")
}
