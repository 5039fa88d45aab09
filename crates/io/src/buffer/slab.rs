//! Huge pages that are given out in equal parts.
//!
//! Each stretch of memory is a segment of a device's request, and a request has a limited number of
//! them (128 or 254 are common): a piece of a MiB in small pages is two or more requests, or as
//! many as fill a virtual device's queue by themselves.
#![expect(
    unsafe_code,
    reason = "parts of one piece of memory have owners of their own: see each block"
)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{AlignedBuf, MAPPED_MIN};
use crate::mapped_memory::HUGE_PAGE;

/// Largest part: of a larger buffer half a huge page would be waste.
const PART_MAX: usize = HUGE_PAGE / 2;

/// Size of the parts that a buffer of `capacity` bytes is one of; `None` when it has memory of its
/// own.
pub(super) fn part_size(capacity: usize) -> Option<usize> {
    let worth = (MAPPED_MIN..=PART_MAX).contains(&capacity);
    worth.then(|| capacity.next_power_of_two())
}

/// A huge page's worth of memory, and which parts of it are free.
pub(super) struct Slab {
    start: NonNull<u8>,
    part: usize,
    /// A bit for each free part.
    free: AtomicU32,
    /// Goes back to its pool when no buffer has a part any more. No code touches its bytes but by
    /// `start`.
    _whole: AlignedBuf,
}

// SAFETY: plain memory at a fixed address. `Slab` itself reads and writes none of it; each part has
// one owner, by its bit.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Slab {
    /// Divides `whole`, a buffer of a huge page's size, into parts of `part` bytes (a power of two
    /// from [`MAPPED_MIN`] to [`PART_MAX`]). `None` when its memory is not mapped by itself.
    pub(super) fn new(whole: AlignedBuf, part: usize) -> Option<Self> {
        let count = HUGE_PAGE / part;
        assert!(
            whole.capacity() == HUGE_PAGE && part_size(part) == Some(part) && count <= 32,
            "{part} bytes of {}",
            whole.capacity()
        );
        Some(Self {
            start: whole.region.mapped_start()?,
            part,
            free: AtomicU32::new(u32::MAX >> (32 - count)),
            _whole: whole,
        })
    }

    /// A free part, if parts are of `size` bytes and one is free.
    pub(super) fn take(self: &Arc<Self>, size: usize) -> Option<Part> {
        let take = |free: u32| (self.part == size && free != 0).then(|| free & (free - 1));
        // Acquire: what the part's last owner did to it comes before what the next one does.
        let free = &self.free;
        let before = free.fetch_update(Ordering::Acquire, Ordering::Relaxed, take);
        Some(Part {
            slab: Arc::clone(self),
            at: before.ok()?.trailing_zeros(),
        })
    }
}

/// A part of a huge page, until this is dropped.
pub(super) struct Part {
    slab: Arc<Slab>,
    /// The bit that it took.
    at: u32,
}

impl Part {
    /// The first byte, which stays at its place until this is dropped.
    pub(super) fn start(&self) -> NonNull<u8> {
        let offset = self.at as usize * self.slab.part;
        // SAFETY: `at` is one of the bits that `new` set: the part begins and ends within the huge
        // page, which is mapped as long as its slab lives.
        unsafe { self.slab.start.add(offset) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the part's bytes are mapped and initialised (zeroes at first), see `start`; they
        // belong to no other buffer while its bit is taken, and change only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.slab.part) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the mutable borrow of `self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.slab.part) }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Release: see `take`.
        self.slab.free.fetch_or(1 << self.at, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_powers_of_two() {
        assert_eq!(part_size(MAPPED_MIN - 1), None);
        assert_eq!(part_size(MAPPED_MIN), Some(MAPPED_MIN));
        assert_eq!(part_size(MAPPED_MIN + 1), Some(2 * MAPPED_MIN));
        assert_eq!(part_size(PART_MAX), Some(PART_MAX));
        assert_eq!(part_size(PART_MAX + 1), None);
    }

    #[test]
    fn each_part_has_one_owner_whatever_threads_do() {
        let slab = Slab::new(AlignedBuf::unpooled(HUGE_PAGE), MAPPED_MIN).expect("is mapped");
        let slab = Arc::new(slab);
        std::thread::scope(|scope| {
            for mark in 0..4 {
                let slab = &slab;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let mut parts = [slab.take(MAPPED_MIN), slab.take(MAPPED_MIN)];
                        for part in parts.iter_mut().flatten() {
                            part.bytes_mut()[..4096].fill(mark);
                        }
                        for part in parts.iter().flatten() {
                            assert!(part.bytes()[..4096].iter().all(|&byte| byte == mark));
                        }
                    }
                });
            }
        });
        let all: Vec<Part> = std::iter::from_fn(|| slab.take(MAPPED_MIN)).collect();
        assert_eq!(all.len(), 8);
        assert!(slab.take(2 * MAPPED_MIN).is_none());
    }
}
