//! Owned, page-aligned buffers and the pool that bounds them.
//!
//! - `pool`: the pool that bounds buffers
//! - `slab`: huge pages that are given out in equal parts
//! - `write_buffers`: received bytes of one file on their way to it

mod pool;
mod slab;
mod write_buffers;

use std::fmt;
use std::ptr::NonNull;

use bytes::Bytes;

use crate::mapped_memory::{HUGE_PAGE, Mapping};
pub use pool::BufferPool;
use pool::Home;
use slab::Part;
pub use write_buffers::{ReservedRoom, WRITE_BUFFER, WriteBuffers};

/// Alignment, in bytes, of the start of every [`AlignedBuf`] and of its capacity: what direct I/O
/// needs on every device that is sold.
pub const ALIGNMENT: usize = 4096;

/// Largest single buffer, in bytes; more is a mistake in arithmetic somewhere above.
pub const BUFFER_MAX: usize = 1 << 30;

/// Buffers of at least this many bytes are mapped by themselves: the system has their memory back
/// when they go.
const MAPPED_MIN: usize = 256 << 10;

/// Memory of one buffer. The range of the wanted capacity in it is aligned and never moves.
struct Region {
    memory: Memory,
    start: usize,
    capacity: usize,
}

enum Memory {
    /// Over-allocated, so that an aligned range lies inside it.
    Allocated(Box<[u8]>),
    Mapped(Mapping),
    /// In a huge page that others have parts of.
    Part(Part),
}

impl Region {
    fn new(capacity: usize) -> Self {
        let alignment = if capacity >= HUGE_PAGE {
            HUGE_PAGE
        } else {
            ALIGNMENT
        };
        let mapped = (capacity >= MAPPED_MIN)
            .then(|| Mapping::new(capacity, alignment))
            .flatten();
        let Some(mapping) = mapped else {
            return Self::allocated(capacity);
        };
        let region = Self {
            memory: Memory::Mapped(mapping),
            start: 0,
            capacity,
        };
        if alignment == HUGE_PAGE {
            crate::system_calls::want_huge_pages(region.bytes(capacity));
        }
        region
    }

    fn allocated(capacity: usize) -> Self {
        let extra = if capacity > 0 { ALIGNMENT - 1 } else { 0 };
        let memory = vec![0_u8; capacity + extra].into_boxed_slice();
        let address = memory.as_ptr().addr();
        let start = if capacity > 0 {
            address.next_multiple_of(ALIGNMENT) - address
        } else {
            0
        };
        Self {
            memory: Memory::Allocated(memory),
            start,
            capacity,
        }
    }

    /// Where memory begins that is mapped for this alone, and stays there wherever the region goes.
    fn mapped_start(&self) -> Option<NonNull<u8>> {
        match &self.memory {
            Memory::Mapped(mapping) => Some(mapping.start()),
            Memory::Allocated(_) | Memory::Part(_) => None,
        }
    }

    /// Where memory begins that stays at its place wherever the region goes.
    fn fixed_start(&self) -> Option<NonNull<u8>> {
        match &self.memory {
            Memory::Mapped(mapping) => Some(mapping.start()),
            Memory::Part(part) => Some(part.start()),
            Memory::Allocated(_) => None,
        }
    }

    fn bytes(&self, len: usize) -> &[u8] {
        let memory = match &self.memory {
            Memory::Allocated(memory) => &memory[..],
            Memory::Mapped(mapping) => &mapping[..],
            Memory::Part(part) => part.bytes(),
        };
        &memory[self.start..self.start + len]
    }

    fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        let memory = match &mut self.memory {
            Memory::Allocated(memory) => &mut memory[..],
            Memory::Mapped(mapping) => &mut mapping[..],
            Memory::Part(part) => part.bytes_mut(),
        };
        &mut memory[self.start..self.start + len]
    }
}

/// An owned buffer whose start and capacity are multiples of [`ALIGNMENT`].
///
/// It holds `len` valid bytes out of `capacity`. A buffer from a [`BufferPool`] gives its share of
/// the budget back when it (or the [`Bytes`] made of it) is dropped. Its memory is never
/// uninitialised, but may hold bytes of an earlier use beyond `len`.
pub struct AlignedBuf {
    region: Region,
    len: usize,
    home: Option<Home>,
}

impl AlignedBuf {
    /// A buffer outside any pool, of at least `capacity` bytes, zeroed, with `len` 0. For tests and
    /// for rare small uses; the data path takes its buffers from a pool.
    ///
    /// # Panics
    /// When `capacity` is above [`BUFFER_MAX`].
    #[must_use]
    pub fn unpooled(capacity: usize) -> Self {
        assert!(
            capacity <= BUFFER_MAX,
            "buffer of {capacity} bytes is above the limit of {BUFFER_MAX}"
        );
        Self {
            region: Region::new(capacity.next_multiple_of(ALIGNMENT)),
            len: 0,
            home: None,
        }
    }

    /// A buffer without memory, for places that must give a buffer back and have none.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            region: Region::new(0),
            len: 0,
            home: None,
        }
    }

    /// Valid bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no valid bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.region.capacity
    }

    /// The valid bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.region.bytes(self.len)
    }

    /// The valid bytes, to change.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.region.bytes_mut(self.len)
    }

    /// All `capacity` bytes, valid or not: to fill from a socket or a device, then [`set_len`].
    ///
    /// [`set_len`]: AlignedBuf::set_len
    pub fn as_mut_capacity(&mut self) -> &mut [u8] {
        self.region.bytes_mut(self.region.capacity)
    }

    /// Declares the first `len` bytes valid.
    ///
    /// # Panics
    /// When `len` is above the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.region.capacity,
            "len {len} is above the capacity {}",
            self.region.capacity
        );
        self.len = len;
    }

    /// Appends `bytes`.
    ///
    /// # Panics
    /// When they do not fit; check `capacity() - len()` first.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let end = self
            .len
            .checked_add(bytes.len())
            .expect("two slices in memory cannot overflow usize");
        assert!(
            end <= self.region.capacity,
            "{end} bytes do not fit in {}",
            self.region.capacity
        );
        let start = self.len;
        self.region.bytes_mut(end)[start..].copy_from_slice(bytes);
        self.len = end;
    }

    fn is_pooled(&self) -> bool {
        self.home.is_some() || matches!(self.region.memory, Memory::Part(_))
    }

    /// Turns the valid bytes into shared, immutable [`Bytes`] without copying; the memory returns
    /// to its pool when the last clone is dropped.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len)
            .field("capacity", &self.region.capacity)
            .field("pooled", &self.is_pooled())
            .finish()
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            let region = std::mem::replace(&mut self.region, Region::new(0));
            home.take_back(region);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_begin_at_huge_pages() {
        for capacity in [HUGE_PAGE, 2 * HUGE_PAGE, 2 * HUGE_PAGE + ALIGNMENT] {
            let mut buf = AlignedBuf::unpooled(capacity);
            assert_eq!(buf.capacity(), capacity);
            let memory = buf.as_mut_capacity();
            assert_eq!(memory.as_ptr().addr() % HUGE_PAGE, 0);
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
        }
    }
}
