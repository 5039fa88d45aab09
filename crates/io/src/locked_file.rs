//! Pages of a file that stay in memory: the file's own pages of the page cache, mapped and locked.
//!
//! No byte is read through the mapping: a file that became shorter would end the process by a
//! signal. What reads the file by calls finds its pages in memory.
#![expect(
    unsafe_code,
    reason = "a mapping is memory that its owner vouches for: see each block"
)]

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, munmap};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The beginning of a file, mapped for reading, whose pages are locked piece by piece. All of them
/// are given back when this is dropped. It outlives the file's name and descriptor.
#[derive(Debug)]
pub struct LockedFile {
    start: NonNull<u8>,
    /// Whole pages.
    bytes: usize,
    locked: usize,
}

// SAFETY: an address and two numbers; the memory at the address is never read or written.
unsafe impl Send for LockedFile {}
// SAFETY: as above.
unsafe impl Sync for LockedFile {}

impl LockedFile {
    /// Maps the first `bytes` of a file, rounded up to whole pages, and locks none of them.
    ///
    /// # Errors
    /// `InvalidInput` for no bytes, or more than an address has; out of memory or mappings; a file
    /// that cannot be mapped.
    pub fn map(file: &File, bytes: u64) -> io::Result<Self> {
        let whole = usize::try_from(in_pages(bytes)).ok().filter(|n| *n > 0);
        let whole = whole.ok_or_else(|| {
            let text = format!("{bytes} bytes of a file cannot be mapped");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choosing touches no memory that
        // exists. No code reads it, so it does not matter what becomes of the file.
        let start = unsafe { mmap(none, whole, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            start,
            bytes: whole,
            locked: 0,
        })
    }

    /// Locks the pages of the first `bytes`, no more than are mapped: reads those from the device
    /// that are not in memory. Blocks as long as that takes.
    ///
    /// # Errors
    /// `PermissionDenied` or `OutOfMemory` beyond [`locked_memory_max`], or when the file is
    /// shorter than that, or cannot be read. The pages that were locked before stay so.
    pub fn lock_to(&mut self, bytes: u64) -> io::Result<()> {
        let end = usize::try_from(in_pages(bytes)).unwrap_or(usize::MAX);
        let end = end.min(self.bytes);
        let Some(more) = end.checked_sub(self.locked).filter(|more| *more > 0) else {
            return Ok(());
        };
        // SAFETY: `locked + more <= bytes`: inside of the mapping, at a whole page. Locking changes
        // no byte.
        unsafe {
            let from = self.start.add(self.locked);
            mlock(from.as_ptr().cast(), more)?;
        }
        self.locked = end;
        Ok(())
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // SAFETY: the whole of a mapping made in `map`, which no code reads. Unmapping unlocks.
        // Failure would leave it mapped, which harms no code.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// `bytes` rounded up to whole pages of this machine; the largest number where that is none.
#[must_use]
pub fn in_pages(bytes: u64) -> u64 {
    let page = rustix::param::page_size() as u64;
    bytes.checked_next_multiple_of(page).unwrap_or(u64::MAX)
}

/// Mappings that a process may have (`vm.max_map_count`); Linux's default where `/proc` does not
/// say.
#[must_use]
pub fn mappings_max() -> u64 {
    let told = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    told.and_then(|text| text.trim().parse().ok())
        .unwrap_or(65_530)
}

/// Bytes that the process may lock in memory (`RLIMIT_MEMLOCK`, `ulimit -l`); the largest number
/// when there is no limit.
#[must_use]
pub fn locked_memory_max() -> u64 {
    let limit = getrlimit(Resource::Memlock);
    limit.current.unwrap_or(u64::MAX)
}

/// Has the process lock up to `bytes`, as far as the system lets it raise its own limit. Gives
/// [`locked_memory_max`] from here on.
#[must_use]
pub fn raise_locked_memory_max(bytes: u64) -> u64 {
    let limit = getrlimit(Resource::Memlock);
    if limit.current.is_some_and(|now| now < bytes) {
        let wanted = limit.maximum.map_or(bytes, |most| most.min(bytes));
        let raised = Rlimit {
            current: Some(wanted.max(locked_memory_max())),
            ..limit
        };
        // What could not be raised is seen below.
        let _ = setrlimit(Resource::Memlock, raised);
    }
    locked_memory_max()
}

/// Bytes that the process has locked in memory; `None` where `/proc` does not say.
#[must_use]
pub fn locked_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmLck:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard};

    /// What is locked is counted for the process: one test at a time.
    fn alone() -> MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        crate::locks::lock(&ONE)
    }

    fn locked() -> u64 {
        locked_memory().expect("Linux says so")
    }

    fn file_of(bytes: usize) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, &vec![7; bytes]).expect("written");
        file
    }

    #[test]
    fn pages_are_locked_piece_by_piece_and_given_back_whole() {
        let _alone = alone();
        let (before, page) = (locked(), in_pages(1));
        let bytes = 3 * page + 1;
        let file = file_of(usize::try_from(bytes).expect("small"));
        let mut mapped = LockedFile::map(&file, bytes).expect("mapped");
        assert_eq!(locked(), before, "nothing is locked yet");
        for (to, pages) in [(1, 1), (page, 1), (page + 1, 2), (bytes, 4), (u64::MAX, 4)] {
            mapped.lock_to(to).expect("locked");
            assert_eq!(locked(), before + pages * page, "to {to}");
        }
        drop(file);
        assert_eq!(locked(), before + 4 * page, "without its descriptor");
        drop(mapped);
        assert_eq!(locked(), before);
    }

    #[test]
    fn a_file_that_became_shorter_ends_nothing() {
        let _alone = alone();
        let (before, page) = (locked(), in_pages(1));
        let file = file_of(usize::try_from(4 * page).expect("small"));
        let mut mapped = LockedFile::map(&file, 4 * page).expect("mapped");
        mapped.lock_to(page).expect("locked");
        file.set_len(2 * page).expect("cut");
        assert!(mapped.lock_to(4 * page).is_err(), "there is no such page");
        drop(mapped);
        assert_eq!(locked(), before);
    }

    #[test]
    fn what_the_process_may_not_lock_is_an_error() {
        let _alone = alone();
        let (before, most) = (locked(), locked_memory_max());
        if most > 1 << 30 {
            eprintln!("skipped: this process may lock {most} bytes");
            return;
        }
        let bytes = most + in_pages(1);
        let file = tempfile::tempfile().expect("a file");
        file.set_len(bytes).expect("sparse");
        let mut mapped = LockedFile::map(&file, bytes).expect("mapped");
        let refused = mapped.lock_to(bytes);
        if refused.is_ok() {
            eprintln!("skipped: this process may lock more than its limit");
            return;
        }
        assert_eq!(locked(), before);
    }

    #[test]
    fn no_bytes_are_no_pages() {
        let file = file_of(1);
        for bytes in [0, u64::MAX] {
            assert!(LockedFile::map(&file, bytes).is_err(), "{bytes}");
        }
        assert_eq!(in_pages(0), 0);
    }
}
