//! An arena of the staging area in memory.
#![expect(
    unsafe_code,
    reason = "a mapping is memory that outlives no one: see each block"
)]

use std::fs::File;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::layout::{ARENA_BYTES, ARENA_SEGMENTS, HUGE_PAGE, SEGMENT_BYTES, data_at};

/// madvise(2), Linux 6.1: huge pages now, whatever the settings for huge pages say. Not known to libc.
const MADV_COLLAPSE: libc::c_int = 25;

/// One arena in memory. Unmapped when the last segment and the area have let go of it.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
}

// SAFETY: the mapping is plain memory at a fixed address; who may touch which bytes of it when is decided by
// `Segment`, with atomics and locks that are valid across threads.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself only hands out its address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps an arena of `file`, whose bytes at `offset` are allocated. Its data begins at a huge page's address.
    pub(super) fn new(file: &File, offset: u64) -> Result<Self, Errno> {
        let whole = ARENA_BYTES + HUGE_PAGE;
        // SAFETY: a new mapping at an address of the kernel's choosing touches no memory that exists.
        let first = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                whole,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?
        .cast::<u8>();
        let data = first.addr() + data_at(0);
        let before = data.next_multiple_of(HUGE_PAGE) - data;
        let behind = whole - before - ARENA_BYTES;
        // SAFETY: `before` is less than a huge page: an arena fits behind it.
        let start = unsafe { first.add(before) };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: replaces pages of the mapping that was just made, which nobody has a reference to.
        let mapped = unsafe { mmap(start.cast(), ARENA_BYTES, access, flags, file, offset) };
        let unmap = |from: *mut u8, len: usize| {
            if len > 0 {
                // SAFETY: pages of the new mapping that nobody uses. Failure would leave their addresses taken,
                // which harms nobody.
                let _ = unsafe { munmap(from.cast(), len) };
            }
        };
        if let Err(errno) = mapped {
            unmap(first, whole);
            return Err(errno);
        }
        unmap(first, before);
        // SAFETY: the end of the arena is inside the first mapping, or its end.
        unmap(unsafe { start.add(ARENA_BYTES) }, behind);
        NonNull::new(start)
            .map(|start| Self { start })
            .ok_or(Errno::NOMEM)
    }

    /// Puts huge pages behind the data, which is allocated, now; whether there are some.
    pub(super) fn make_huge(&self) -> bool {
        // SAFETY: the data's range lies in the mapping and begins and ends at multiples of a huge page.
        // The advice changes neither contents nor protection; the kernel lets others use the memory meanwhile.
        let rc = unsafe {
            let data = self.start.as_ptr().add(data_at(0));
            libc::madvise(data.cast(), ARENA_SEGMENTS * SEGMENT_BYTES, MADV_COLLAPSE)
        };
        rc == 0
    }

    /// The first byte; valid for `ARENA_BYTES`, page-aligned.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the one that `new` mapped. Whoever reads or writes it holds an `Arc` of this.
        // Failure would leave it mapped, which harms nobody.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), ARENA_BYTES) };
    }
}
