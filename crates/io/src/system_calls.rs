//! The system calls that the safe wrappers lack.
#![expect(
    unsafe_code,
    reason = "sync_file_range(2), cachestat(2), adjtimex(2) and FS_IOC_GOINGDOWN are not wrapped \
        by rustix, madvise(2) is unsafe there, and dup2(2) of standard output not built in"
)]

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

/// Starts writing dirty pages of the range to the device (sync_file_range(2) with
/// `SYNC_FILE_RANGE_WRITE`); `len` 0 means to the end. May block while the device's queue is full.
pub(crate) fn start_writeback(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<(), Errno> {
    sync_range(fd, offset, len, libc::SYNC_FILE_RANGE_WRITE)
}

/// Writes dirty pages of the range to the device and waits for that; nothing becomes durable by it,
/// since neither the length nor the place on the device is written.
pub(crate) fn write_back(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<(), Errno> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(fd, offset, len, flags)
}

/// Writes all dirty pages of a file to the device and waits for that. Nothing becomes durable by
/// it. Blocking.
///
/// # Errors
/// What the device answered. No later sync through the same descriptor meets that error again.
pub fn write_back_file(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::fd::AsFd as _;
    Ok(write_back(file.as_fd(), 0, 0)?)
}

fn sync_range(fd: BorrowedFd<'_>, offset: u64, len: u64, flags: libc::c_uint) -> Result<(), Errno> {
    let offset = libc::off64_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    let len = libc::off64_t::try_from(len).map_err(|_| Errno::INVAL)?;
    // SAFETY: the descriptor is open for as long as the borrow lives, and the call takes no
    // pointers.
    let rc = unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, len, flags) };
    if rc == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// Asks for huge pages behind whole huge pages of `memory` (madvise(2) with `MADV_HUGEPAGE`). A
/// wish: where the kernel has none, ordinary pages do.
pub(crate) fn want_huge_pages(memory: &[u8]) {
    // SAFETY: the range is memory that the caller has borrowed, so it is mapped throughout the
    // call. This advice changes neither its contents nor its protection, only the size of the pages
    // that the kernel takes for it.
    let _a_wish = unsafe {
        libc::madvise(
            memory.as_ptr().cast_mut().cast(),
            memory.len(),
            libc::MADV_HUGEPAGE,
        )
    };
}

/// `_IOR('X', 125, __u32)`: `EXT4_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN`, one number for both.
const FS_IOC_GOINGDOWN: libc::Ioctl = 0x8004_587D;
/// `FSOP_GOING_FLAGS_NOLOGFLUSH`: nothing is flushed, not even the log.
const GOING_NO_LOG_FLUSH: u32 = 2;

/// Shuts down the file system that the descriptor is on, as a power cut does: what it has not sent
/// to its device yet, log included, never gets there, and every later operation on it fails.
///
/// Needs `CAP_SYS_ADMIN`. ext4, XFS and F2FS know it.
///
/// # Errors
/// Of the system call: `ENOTTY` from a file system that does not know it, `EPERM`.
pub fn shut_down_file_system(on: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = GOING_NO_LOG_FLUSH;
    // SAFETY: the descriptor is open for as long as the borrow lives. `flags` is a live local of
    // the size that the request number names, and the kernel only reads it, during the call.
    let rc = unsafe { libc::ioctl(on.as_raw_fd(), FS_IOC_GOINGDOWN, &raw const flags) };
    if rc == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// Whether the kernel's clock follows a server of time (adjtimex(2)), and the largest error that it
/// reckons with, in microseconds. Nothing is changed.
///
/// # Errors
/// Of the system call: a sandbox forbids it.
pub fn clock_is_synchronised() -> Result<(bool, i64), Errno> {
    // SAFETY: `timex` holds integers only, of which every pattern of bits is a value.
    let mut clock: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `clock` is a live local that the call fills; `modes` of 0 asks and changes nothing.
    let state = unsafe { libc::adjtimex(&raw mut clock) };
    if state < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    let unsynchronised = state == libc::TIME_ERROR || clock.status & libc::STA_UNSYNC != 0;
    Ok((!unsynchronised, clock.maxerror))
}

/// Number of cachestat(2), the same on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of the kernel's interface.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

/// `struct cachestat` of the kernel's interface: numbers of pages.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Pages of the range that are in the page cache (cachestat(2), Linux 6.5), also those that are
/// just being read. Does not block. `len` 0 means to the end of the file.
pub(crate) fn cached_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    let range = CachestatRange { offset, len };
    let mut found = Cachestat::default();
    // SAFETY: the descriptor is open for as long as the borrow lives. `range` is read and `found`
    // written by the kernel during the call only; both are live locals with the kernel's layout and
    // size (`repr(C)`, two and five 64-bit words), and any bit pattern is a valid `Cachestat`.
    let rc = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            &raw const range,
            &raw mut found,
            0,
        )
    };
    if rc == 0 {
        Ok(found.cached)
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// Makes standard output another way to standard error.
pub(crate) fn print_to_stderr() -> std::io::Result<()> {
    // SAFETY: both numbers are those of the standard streams; nothing in this process owns number 1
    // as a descriptor of its own.
    match unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}
