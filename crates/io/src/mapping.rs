//! Anonymous memory by itself: what is dropped goes back to the system at once and whole.
//!
//! An allocator keeps large pieces that were freed, touches all of what it hands out as zeroes a second time, and
//! cannot align without taking more. Buffers that come and go by the megabyte are better off without one.
#![expect(
    unsafe_code,
    reason = "a mapping is memory that its owner vouches for: see each block"
)]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Zeroed memory of its own, aligned as wanted. Pages that were never touched cost nothing.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that nobody else knows of; it is only reached through this value's borrows.
unsafe impl Send for Mapping {}
// SAFETY: shared borrows only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes at a multiple of `alignment`; `None` when the system has no memory. Both are multiples of the page
    /// size, and not 0.
    pub(crate) fn new(len: usize, alignment: usize) -> Option<Self> {
        let page = rustix::param::page_size();
        assert!(
            len > 0 && len.is_multiple_of(page) && alignment.is_power_of_two() && alignment >= page,
            "{len} bytes at {alignment}: whole pages are mapped"
        );
        // Mappings begin at pages; what is too much before and behind is given back.
        let whole = len.checked_add(alignment - page)?;
        // SAFETY: a new private mapping at an address of the kernel's choosing touches no memory that exists.
        let first = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                whole,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .ok()?
        .cast::<u8>();
        let before = first.addr().next_multiple_of(alignment) - first.addr();
        let behind = whole - before - len;
        // SAFETY: `before + len <= whole`: `before` is less than `alignment` and a multiple of the page size.
        let start = unsafe { first.add(before) };
        if before > 0 {
            // SAFETY: whole pages of the new mapping, which nobody has a reference to. Failure would leave them mapped
            // and untouched, which harms nobody.
            let _ = unsafe { munmap(first.cast(), before) };
        }
        if behind > 0 {
            // SAFETY: as above; they begin where the kept ones end.
            let _ = unsafe { munmap(start.add(len).cast(), behind) };
        }
        NonNull::new(start).map(|start| Self { start, len })
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` on are mapped, readable and initialised (zeroes at first) as long as
        // `self` lives, and only change through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the mutable borrow of `self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the pages that `new` kept; all borrows of them have ended with those of `self`. Failure
        // would leave them mapped, which harms nobody.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_aligned_zeroed_and_their_own() {
        for alignment in [4096, 64 << 10, 2 << 20] {
            let mut some: Vec<Mapping> = (0..4)
                .map(|_| Mapping::new(3 * 4096, alignment).expect("memory"))
                .collect();
            for (n, mapping) in (1_u8..).zip(&mut some) {
                assert_eq!(mapping.len(), 3 * 4096);
                assert_eq!(mapping.as_ptr().addr() % alignment, 0);
                assert!(mapping.iter().all(|byte| *byte == 0));
                mapping.fill(n);
            }
            some.remove(1);
            for (n, mapping) in [1, 3, 4].iter().zip(&some) {
                assert!(mapping.iter().all(|byte| byte == n));
            }
        }
    }
}
