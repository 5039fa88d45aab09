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
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, fadvise, fallocate, fdatasync, fsync, ftruncate};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwrite, pwritev};

use super::EngineConfig;
use super::threaded::{Blocking, Threaded};
use crate::class::IoClass;
use crate::disk::{Disk, Stream};
use crate::engine::{Advice, Capabilities, Engine, EngineFile, IoFuture, OpenMode, SyncKind};
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::known::known;
use crate::load::load;
use crate::meta::Meta;
use crate::sys;

/// Buffers passed to the kernel in one call; Linux takes no more than 1024 (`IOV_MAX`).
const IOV_MAX: usize = 1024;

/// Bytes handed to the page cache in one call. The kernel allocates for what it is given in as few
/// pieces of memory as it can; from 2 MiB on these are pieces that a virtual machine has given back
/// to its host when they were freed (free page reporting), and touching them again costs ten times
/// the copying. The call itself costs nothing beside either
/// (docs/decisions/0008-small-calls-into-the-page-cache.md).
pub(super) const CACHED_CALL_MAX: usize = 512 * 1024;

/// Reads up to this many bytes may be copied out of the page cache on the caller's thread: about
/// 60 microseconds of copying, less than handing over would cost twice.
const INLINE_READ_MAX: usize = 256 * 1024;

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
            page_cache: true,
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
            let file = PosixFile::open(path, mode)?;
            let file = Arc::new(disk.aside(path, file));
            Ok(Arc::new(Threaded::new(file, disk, class)) as Arc<dyn EngineFile>)
        })
    }

    fn meta(&self, class: IoClass) -> Meta {
        Meta::new(Arc::clone(&self.disk), class)
    }
}

/// Opens a regular file, gives its inode with it; never waits on a pipe, never follows into a
/// device.
pub(super) fn open_regular(path: &Path, mode: OpenMode) -> Result<(File, u64), IoError> {
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
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(IoError::new(
            IoErrorKind::Invalid,
            IoOp::Open,
            path,
            "not a regular file",
        ));
    }
    Ok((file, meta.ino()))
}

/// A file through the page cache.
#[derive(Debug)]
pub(super) struct PosixFile {
    pub(super) file: File,
    pub(super) inode: u64,
    path: PathBuf,
    /// This file system refuses `RWF_NOWAIT`: do not ask again.
    nowait_refused: AtomicBool,
}

impl PosixFile {
    pub(super) fn open(path: &Path, mode: OpenMode) -> Result<Self, IoError> {
        let (file, inode) = open_regular(path, mode)?;
        Ok(Self {
            file,
            inode,
            path: path.to_owned(),
            nowait_refused: AtomicBool::new(false),
        })
    }

    pub(super) fn failed(&self, op: IoOp, errno: Errno) -> IoError {
        IoError::from_errno(op, &self.path, errno)
    }
}

impl Blocking for PosixFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, target: &mut [u8], len: usize, offset: u64) -> Result<usize, IoError> {
        read_fully(&self.file, &mut target[..len], offset).map_err(|e| {
            self.failed(IoOp::Read, e)
                .with_context(format_args!("at {offset}+{len}"))
        })
    }

    fn read_at_once(&self, target: &mut [u8], offset: u64) -> (usize, bool) {
        let len = target.len();
        if len > INLINE_READ_MAX || self.nowait_refused.load(Ordering::Relaxed) {
            return (0, false);
        }
        match preadv2(
            &self.file,
            &mut [IoSliceMut::new(target)],
            offset,
            ReadWriteFlags::NOWAIT,
        ) {
            Ok(n) if n == len => (n, true),
            Ok(n) => {
                let end = offset + u64::try_from(n).expect("usize fits in u64 on Linux");
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

    fn caches(&self, _class: IoClass, _offset: u64) -> bool {
        true
    }

    fn load(&self, offset: u64, len: usize) -> Result<usize, IoError> {
        load(&self.file, offset, len).map_err(|e| {
            self.failed(IoOp::Read, e)
                .with_context(format_args!("at {offset}+{len}, into the page cache"))
        })
    }

    fn write(&self, bufs: &[&Bytes], offset: u64) -> (usize, Result<(), IoError>) {
        let mut slices = slices_of(bufs);
        let (done, result) = write_fully(&self.file, &mut slices, offset, CACHED_CALL_MAX);
        let at = |e| {
            self.failed(IoOp::Write, e)
                .with_context(format_args!("at {offset}, after {done} bytes"))
        };
        (done, result.map_err(at))
    }

    /// Reads get here when the page cache does not have them; writes stay in it.
    fn stream(&self, op: IoOp, offset: u64, _len: usize) -> Option<Stream> {
        (op == IoOp::Read).then_some(Stream {
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
        match sys::start_writeback(self.file.as_fd(), offset, len) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::SPIPE) => Ok(()),
            Err(errno) => Err(self.failed(IoOp::Writeback, errno)),
        }
    }

    fn write_back(&self, offset: u64, len: u64) -> Result<(), IoError> {
        match sys::write_back(self.file.as_fd(), offset, len) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::SPIPE) => Ok(()),
            Err(errno) => Err(self.failed(IoOp::Writeback, errno)),
        }
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
        self.file
            .metadata()
            .map(|m| m.len())
            .map_err(|e| IoError::from_std(IoOp::Length, &self.path, &e))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// Reads until `target` is full or the file ends.
pub(super) fn read_fully(file: &File, target: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < target.len() {
        let at = offset + u64::try_from(done).expect("usize fits in u64 on Linux");
        match pread(file, &mut target[done..], at) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// The buffers as the kernel takes them, empty ones left out.
fn slices_of<'a>(bufs: &[&'a Bytes]) -> Vec<IoSlice<'a>> {
    bufs.iter()
        .filter(|b| !b.is_empty())
        .map(|b| IoSlice::new(b))
        .collect()
}

/// Writes all of `rest`, at most `call_max` bytes in a call, or says how much was written before
/// the error.
pub(super) fn write_fully(
    file: &File,
    mut rest: &mut [IoSlice<'_>],
    offset: u64,
    call_max: usize,
) -> (usize, Result<(), Errno>) {
    let mut done = 0_usize;
    while !rest.is_empty() {
        let at = offset + u64::try_from(done).expect("usize fits in u64 on Linux");
        match write_some(file, rest, at, call_max) {
            // Never on Linux for a length above 0; not to loop on.
            Ok(0) => return (done, Err(Errno::IO)),
            Ok(n) => {
                done += n;
                IoSlice::advance_slices(&mut rest, n);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return (done, Err(errno)),
        }
    }
    (done, Ok(()))
}

/// One call, for as many of the buffers as fit into `max` bytes.
fn write_some(file: &File, rest: &[IoSlice<'_>], at: u64, max: usize) -> Result<usize, Errno> {
    let mut bytes = 0;
    let fit = rest.iter().take(IOV_MAX).take_while(|buf| {
        bytes += buf.len();
        bytes <= max
    });
    match fit.count() {
        0 => pwrite(file, &rest[0][..max], at),
        n => pwritev(file, &rest[..n], at),
    }
}
