//! An arena of the staging area in memory.
#![expect(
    unsafe_code,
    reason = "MADV_COLLAPSE is known to neither rustix nor libc"
)]

use std::fs::File;
use std::ptr::NonNull;

use rustix::io::Errno;

use super::layout::{ARENA_BYTES, ARENA_SEGMENTS, SEGMENT_BYTES, data_at};
use crate::mapping::{HUGE_PAGE, Pages};

/// madvise(2), Linux 6.1: huge pages now, whatever the settings for huge pages say.
const MADV_COLLAPSE: libc::c_int = 25;

/// One arena in memory. Unmapped when the last segment and the area have let go of it; who may touch which bytes of it
/// when is decided by `Segment`, with atomics and locks.
#[derive(Debug)]
pub(super) struct Mapping(Pages);

impl Mapping {
    /// Maps an arena of `file`, at `offset`; only what is allocated may be touched. Its data begins at a huge page's address.
    pub(super) fn new(file: &File, offset: u64) -> Result<Self, Errno> {
        Pages::of_file(file, offset, ARENA_BYTES, HUGE_PAGE, data_at(0)).map(Self)
    }

    /// Puts huge pages behind the data now; whether there are some. Each of them has to have a small one already.
    pub(super) fn make_huge(&self) -> bool {
        // SAFETY: the data's range lies in the mapping and begins and ends at multiples of a huge page.
        // The advice changes neither contents nor protection; the kernel lets others use the memory meanwhile.
        let rc = unsafe {
            let data = self.start().as_ptr().add(data_at(0));
            libc::madvise(data.cast(), ARENA_SEGMENTS * SEGMENT_BYTES, MADV_COLLAPSE)
        };
        rc == 0
    }

    /// The first byte; valid for `ARENA_BYTES`, page-aligned.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.0.start()
    }
}
