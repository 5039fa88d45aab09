//! The system calls that the safe wrappers lack.
#![expect(
    unsafe_code,
    reason = "sync_file_range(2) and cachestat(2) are not wrapped by rustix"
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

/// cachestat(2), the same number on every architecture; libc does not name it yet.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    off: u64,
    len: u64,
}

/// Numbers of pages.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    nr_cache: u64,
    nr_dirty: u64,
    nr_writeback: u64,
    nr_evicted: u64,
    nr_recently_evicted: u64,
}

/// Whether every page of the range is in the page cache now, so that sending it from the file does
/// not wait for the device. False when that cannot be known (kernels before 6.5, file systems
/// without a page cache) and for an empty range.
#[must_use]
pub fn is_resident(fd: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let Some(end) = offset.checked_add(len).filter(|_| len > 0) else {
        return false;
    };
    let page = rustix::param::page_size() as u64;
    let range = CachestatRange { off: offset, len };
    let mut stat = Cachestat::default();
    // SAFETY: the descriptor is open for as long as the borrow lives; both pointers are to structs of
    // the kernel's layout on this stack, which outlive the call, and only the second is written to.
    let rc = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            std::ptr::from_ref(&range),
            std::ptr::from_mut(&mut stat),
            0_u32,
        )
    };
    rc == 0 && stat.nr_cache >= end.div_ceil(page) - offset / page
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::is_resident;

    #[test]
    fn what_was_just_written_is_resident_and_holes_are_not() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&[7; 10_000]).expect("room");
        file.set_len(1 << 20).expect("room");
        let fd = file.as_fd();
        assert!(!is_resident(fd, 0, 0));
        assert!(!is_resident(fd, u64::MAX, 2));
        assert!(
            !is_resident(fd, 500_000, 100_000),
            "never written, never read"
        );
        // On a kernel without cachestat nothing is known to be resident, which is safe.
        if is_resident(fd, 0, 1) {
            assert!(is_resident(fd, 100, 9_900));
            assert!(!is_resident(fd, 0, 1 << 20));
        }
    }
}
