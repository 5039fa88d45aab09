//! The system calls that the safe wrappers lack.
#![expect(
    unsafe_code,
    reason = "sync_file_range(2), cachestat(2) and SO_RCVLOWAT are not wrapped by rustix, and madvise(2) is unsafe there"
)]

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

/// Starts writing dirty pages of the range to the device (sync_file_range(2) with
/// `SYNC_FILE_RANGE_WRITE`); `len` 0 means to the end. May block while the device's queue is full.
pub(crate) fn start_writeback(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<(), Errno> {
    let offset = libc::off64_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    let len = libc::off64_t::try_from(len).map_err(|_| Errno::INVAL)?;
    // SAFETY: the descriptor is open for as long as the borrow lives, and the call takes no pointers.
    let rc =
        unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
    if rc == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// Asks for huge pages behind whole huge pages of `memory` (madvise(2) with `MADV_HUGEPAGE`). A wish: where the
/// kernel has none, ordinary pages do.
pub(crate) fn want_huge_pages(memory: &[u8]) {
    // SAFETY: the range is memory that the caller has borrowed, so it is mapped throughout the call, and this advice
    // changes neither its contents nor its protection, only the size of the pages that the kernel takes for it.
    let _a_wish = unsafe {
        libc::madvise(
            memory.as_ptr().cast_mut().cast(),
            memory.len(),
            libc::MADV_HUGEPAGE,
        )
    };
}

/// Asks that whoever waits for the stream socket is woken up only when `bytes` can be read, or at its end
/// (`SO_RCVLOWAT`, at least 1; Linux takes less when the receive buffer may not grow to twice as much).
///
/// # Errors
/// Of the system call: not a socket.
pub fn set_receive_low_water(socket: BorrowedFd<'_>, bytes: u32) -> Result<(), Errno> {
    let value = libc::c_int::try_from(bytes).map_err(|_| Errno::INVAL)?;
    let size = libc::socklen_t::try_from(size_of_val(&value)).expect("four");
    // SAFETY: the descriptor is open for as long as the borrow lives. `value` is a live local of the length
    // given, which the kernel reads during the call only.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size,
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
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

/// Pages of the range that are in the page cache (cachestat(2), Linux 6.5), also those that are just being
/// read. Does not block. `len` 0 means to the end of the file.
pub(crate) fn cached_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    let range = CachestatRange { offset, len };
    let mut found = Cachestat::default();
    // SAFETY: the descriptor is open for as long as the borrow lives. `range` is read and `found` written
    // by the kernel during the call only; both are live locals with the kernel's layout and size (`repr(C)`,
    // two and five 64-bit words), and any bit pattern is a valid `Cachestat`.
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
