//! The one system call that the safe wrappers lack.
#![expect(unsafe_code, reason = "sync_file_range(2) is not wrapped by rustix")]

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
