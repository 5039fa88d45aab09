//! Memory that is mapped by itself: what is dropped goes back to the system at once and whole.
//!
//! An allocator keeps large pieces that were freed, and touches all of what it hands out as zeroes
//! a second time. It cannot align without taking more. Buffers that come and go by the megabyte are
//! better off without one.
#![expect(
    unsafe_code,
    reason = "a mapping is memory that its owner vouches for: see each block"
)]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Bytes of a huge page, in which the kernel maps memory where it has some: a direct transfer pins
/// each page, and hands the device each stretch of memory by itself.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory of its own, aligned as wanted. Pages that were never touched cost nothing.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory at a fixed address, which `Mapping` itself changes only through `&mut`. Code
// that divides it by `start` sees to it that threads do not get into each other's way.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes at a multiple of `alignment`; `None` when the system has no memory. Both are
    /// multiples of the page size, and not 0.
    pub(crate) fn new(len: usize, alignment: usize) -> Option<Self> {
        let page = rustix::param::page_size();
        assert!(
            len > 0 && len.is_multiple_of(page) && alignment.is_power_of_two() && alignment >= page,
            "{len} bytes at {alignment}: whole pages are mapped"
        );
        // Mappings begin at pages; what is too much before and behind is given back.
        let whole = len.checked_add(alignment - page)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the kernel's choosing touches no memory
        // that exists.
        let first =
            unsafe { mmap_anonymous(std::ptr::null_mut(), whole, access, MapFlags::PRIVATE) };
        let first = NonNull::new(first.ok()?.cast::<u8>())?;
        let at = first.addr().get();
        let before = at.next_multiple_of(alignment) - at;
        // SAFETY: `before` is a multiple of the page size below `alignment`, so `before + len <=
        // whole`.
        let (start, end) = unsafe { (first.add(before), first.add(before + len)) };
        unmap(first, before);
        unmap(end, whole - before - len);
        Some(Self { start, len })
    }

    /// The first byte, for the code that divides the memory: it stays where it is until this is
    /// dropped.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.start, self.len);
    }
}

/// Only for pages of a mapping made here that no code reads or writes any more.
fn unmap(start: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: as the callers promise: the rims of a new mapping, and the pages of one whose
        // owner, and with it every borrow, has gone. Failure would leave them mapped, which harms
        // no code.
        let _ = unsafe { munmap(start.as_ptr().cast(), len) };
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are private to this value, readable and initialised (zeroes at first)
        // as long as it lives, and only change through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the mutable borrow of `self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
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
