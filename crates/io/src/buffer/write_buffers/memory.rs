//! Memory of a write buffer, in two parts that `frozen` divides. Below it bytes never change again
//! and are shared; from it on only the one [`Room`] of the buffer may write.
#![expect(
    unsafe_code,
    reason = "one piece of memory is shared below a mark and written above it: see each block"
)]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::WRITE_BUFFER;
use crate::buffer::AlignedBuf;

/// Memory of one buffer, until the last slice of it is dropped.
pub(super) struct Memory {
    start: NonNull<u8>,
    /// Bytes below do not change any more.
    frozen: AtomicUsize,
    /// Goes back to its pool with this. Nothing touches its bytes but by `start`.
    _owner: AlignedBuf,
}

// SAFETY: plain memory at a fixed address. Bytes below `frozen` are only read, those above it are
// only touched through the one `Room`, which is not shared.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Frozen bytes, shared without copying.
    pub(super) fn share(self: &Arc<Self>, range: Range<usize>) -> Bytes {
        let frozen = self.frozen.load(Ordering::Acquire);
        assert!(
            range.start <= range.end && range.end <= frozen,
            "only frozen bytes are shared"
        );
        let memory = Arc::clone(self);
        Bytes::from_owner(Shared { memory, range })
    }

    /// Whether `bytes` are the frozen bytes from `at` on.
    pub(super) fn holds(&self, at: usize, bytes: &[u8]) -> bool {
        let end = at.checked_add(bytes.len());
        end.is_some_and(|end| end <= self.frozen.load(Ordering::Acquire))
            && bytes.as_ptr().addr() == self.start.addr().get() + at
    }
}

/// Frozen bytes of a buffer.
struct Shared {
    memory: Arc<Memory>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range lies below `frozen` (checked when it was shared): inside the memory,
        // initialised, and nothing writes there while `memory` lives, which this keeps alive.
        unsafe {
            let from = self.memory.start.add(self.range.start);
            std::slice::from_raw_parts(from.as_ptr(), self.range.len())
        }
    }
}

/// The only right to write the bytes of a buffer that are not frozen.
pub(super) struct Room {
    pub(super) memory: Arc<Memory>,
    /// Offset in the file of the buffer's first byte.
    pub(super) base: u64,
    filled: usize,
}

impl Room {
    /// A buffer that begins at `base`, filled from `from` on. `None` where the memory is not
    /// mapped by itself.
    pub(super) fn new(owner: AlignedBuf, base: u64, from: usize) -> Option<Self> {
        let start = owner.region.fixed_start()?;
        let memory = Arc::new(Memory {
            start,
            frozen: AtomicUsize::new(from),
            _owner: owner,
        });
        Some(Self {
            memory,
            base,
            filled: from,
        })
    }

    pub(super) fn len(&self) -> usize {
        WRITE_BUFFER - self.filled
    }

    /// Offset in the file of the next byte.
    pub(super) fn next(&self) -> u64 {
        self.base + self.filled as u64
    }

    /// What is not filled yet, at most `at_most` bytes of it. Holds what earlier uses left.
    pub(super) fn unfilled(&mut self, at_most: usize) -> &mut [u8] {
        let len = self.len().min(at_most);
        // SAFETY: `filled..filled + len` is inside the buffer and not below `frozen`: no shared
        // slice covers it. This is the only `Room` of the memory, and it is borrowed mutably.
        unsafe {
            let from = self.memory.start.add(self.filled);
            std::slice::from_raw_parts_mut(from.as_ptr(), len)
        }
    }

    pub(super) fn advance(&mut self, n: usize) {
        assert!(n <= self.len(), "more than fits was not filled");
        self.filled += n;
    }

    /// Forgets what was filled and not frozen.
    pub(super) fn discard(&mut self) {
        self.filled = self.memory.frozen.load(Ordering::Acquire);
    }

    /// Makes all that was filled immutable; gives the bytes that became so.
    pub(super) fn freeze(&mut self) -> Range<usize> {
        let before = self.memory.frozen.swap(self.filled, Ordering::Release);
        before..self.filled
    }
}
