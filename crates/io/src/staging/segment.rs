//! One segment: who may write which of its bytes, and the publication of what is committed.
//!
//! A segment's data is in two parts, divided by `frozen`: below it bytes never change again and may be shared;
//! from it on only the one [`Room`] may write. The descriptor and the side bytes are changed under a lock.
#![expect(
    unsafe_code,
    reason = "segments live in mapped memory that the kernel also writes to"
)]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::area::Area;
use super::arenas::Place;
use super::layout::{
    OWNED_AT, RECORD_BYTES, Record, SEGMENT_BYTES, SEQUENCE_AT, SIDE_BYTES, Target, data_at,
    descriptor_at, encode_record, encode_target, record_at, side_at, target_at,
};
use super::mapping::Mapping;

/// A segment of the area, until nobody uses its bytes any more.
#[derive(Debug)]
pub(super) struct Segment {
    area: Arc<Area>,
    arena: usize,
    slot: usize,
    map: Arc<Mapping>,
    /// Bytes below do not change.
    frozen: AtomicUsize,
    /// A [`Room`] exists.
    lent: AtomicBool,
    /// The descriptor is in use.
    owned: AtomicBool,
    /// Guards descriptor and side bytes; the sequence number of the record in force.
    published: Mutex<u64>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Segment {
    pub(super) fn new(area: Arc<Area>, place: Place, permit: OwnedSemaphorePermit) -> Self {
        Self {
            area,
            arena: place.arena,
            slot: place.slot,
            map: place.map,
            frozen: AtomicUsize::new(0),
            lent: AtomicBool::new(false),
            owned: AtomicBool::new(false),
            published: Mutex::new(0),
            permit: Some(permit),
        }
    }

    /// An address in the arena, or its end: nothing of a full last segment lies there.
    fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= super::layout::ARENA_BYTES);
        // SAFETY: all callers pass offsets of this segment's descriptor, side region or data, which the layout
        // places inside the arena, or the end of the data, which may be the arena's; the mapping is that long and
        // lives as long as `self.map`.
        unsafe { self.map.start().add(offset) }
    }

    /// A word of the descriptor that a killed process leaves whole.
    fn word(&self, at: usize) -> &AtomicU64 {
        let word = self.at(descriptor_at(self.slot) + at).cast::<u64>();
        // SAFETY: the descriptor begins on a page and `at` is 0 or 8: aligned. The word is only ever accessed
        // as an atomic in this process, and nobody else maps the file.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }
    }

    /// Changes a word of the descriptor: in one store, after everything that was written before.
    fn set(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Release);
        #[cfg(test)]
        steps::step();
    }

    /// Copies to the descriptor or the side region; the caller holds `published`.
    fn put(&self, offset: usize, bytes: &[u8]) {
        #[cfg(test)]
        if let Some(half) = steps::half(bytes) {
            // A process may be killed in the middle of it.
            self.put(offset, &bytes[..half]);
            return self.put(offset + half, &bytes[half..]);
        }
        // SAFETY: within the descriptor or the side region (asserted by the callers); both are accessed only by
        // the holder of `published`, and `bytes` is other memory, as nobody gets references into them.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset).as_ptr(), bytes.len());
        }
        #[cfg(test)]
        steps::step();
    }

    /// Says in the descriptor where the bytes go; nothing is committed yet. False when the paths do not fit.
    pub(super) fn attach(&self, target: &Target) -> bool {
        let Some(bytes) = encode_target(target) else {
            return false;
        };
        let mut sequence = self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let base = descriptor_at(self.slot);
        self.set(OWNED_AT, 0);
        *sequence = 0;
        self.put(base + target_at(), &bytes);
        self.put(base + record_at(0), &encode_record(Record::default(), 0));
        self.set(SEQUENCE_AT, 0);
        // A process that is killed before this line has a free segment, after it an empty one.
        self.set(OWNED_AT, 1);
        if !self.owned.swap(true, Ordering::AcqRel) {
            self.area.count_owned(true);
        }
        self.frozen.store(target.start as usize, Ordering::Release);
        true
    }

    /// Puts side bytes in place and then the record in force that counts them. A process that is killed at any
    /// instant leaves the old record or the new one: the new one goes to the place that is not in force, and the
    /// sequence word decides in one store. The side bytes of the last unit may be overwritten before that: the old
    /// record has its own copy of them.
    pub(super) fn publish(&self, side_from: usize, side: &[u8], record: Record) {
        assert!(
            side_from <= SIDE_BYTES && side.len() <= SIDE_BYTES - side_from,
            "the caller counts side bytes"
        );
        let mut sequence = self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.put(side_at(self.slot) + side_from, side);
        *sequence += 1;
        let bytes: [u8; RECORD_BYTES] = encode_record(record, *sequence);
        self.put(descriptor_at(self.slot) + record_at(*sequence), &bytes);
        self.set(SEQUENCE_AT, *sequence);
    }

    /// What was committed is in its files (or not wanted any more): the descriptor is free.
    pub(super) fn release(&self) {
        if !self.area.is_frozen() {
            self.set(OWNED_AT, 0);
            if self.owned.swap(false, Ordering::AcqRel) {
                self.area.count_owned(false);
            }
        }
    }

    /// A copy of side bytes.
    pub(super) fn side(&self, range: Range<usize>) -> Vec<u8> {
        assert!(
            range.start <= range.end && range.end <= SIDE_BYTES,
            "the caller counts side bytes"
        );
        let _published = self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut copy = vec![0; range.len()];
        // SAFETY: the source is inside the side region, which only changes under the lock that is held; the
        // destination is a fresh vector of the same length.
        unsafe {
            let from = self.at(side_at(self.slot) + range.start);
            std::ptr::copy_nonoverlapping(from.as_ptr(), copy.as_mut_ptr(), copy.len());
        }
        copy
    }

    /// Where frozen bytes end.
    pub(super) fn frozen(&self) -> usize {
        self.frozen.load(Ordering::Acquire)
    }

    /// Frozen bytes, shared without copying.
    pub(super) fn share(self: &Arc<Self>, range: Range<usize>) -> Bytes {
        assert!(
            range.start <= range.end && range.end <= self.frozen(),
            "only frozen bytes are shared"
        );
        Bytes::from_owner(Shared {
            segment: Arc::clone(self),
            range,
        })
    }

    /// Whether `bytes` are the frozen bytes at `at` of this segment.
    pub(super) fn holds(&self, at: usize, bytes: &[u8]) -> bool {
        let end = at.checked_add(bytes.len());
        let inside = end.is_some_and(|end| end <= self.frozen());
        inside && bytes.as_ptr() == self.at(data_at(self.slot) + at).as_ptr().cast_const()
    }

    /// Whether the frozen bytes at `at` are equal to `bytes`.
    pub(super) fn equals(self: &Arc<Self>, at: usize, bytes: &[u8]) -> bool {
        at.checked_add(bytes.len())
            .is_some_and(|end| end <= self.frozen())
            && self.share(at..at + bytes.len()) == bytes
    }

    /// The right to write behind the frozen bytes; `None` while somebody has it.
    pub(super) fn room(self: &Arc<Self>) -> Option<Room> {
        if self.lent.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(Room {
            filled: self.frozen(),
            segment: Arc::clone(self),
        })
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if !self.owned.load(Ordering::Acquire) {
            self.area.give_back(self.arena, self.slot);
        } else if let Some(permit) = self.permit.take() {
            // Nobody released it: what it holds is for the next process to find.
            permit.forget();
        }
    }
}

/// Frozen bytes of a segment.
struct Shared {
    segment: Arc<Segment>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        let from = self
            .segment
            .at(data_at(self.segment.slot) + self.range.start);
        // SAFETY: the range lies in the segment's data and below `frozen` (checked when it was shared): nobody
        // writes there any more while the segment lives, and `self.segment` keeps it alive. Its slot is taken
        // again only when the last reference is dropped.
        unsafe { std::slice::from_raw_parts(from.as_ptr(), self.range.len()) }
    }
}

/// The only right to write a segment's bytes that are not frozen.
#[derive(Debug)]
pub(super) struct Room {
    segment: Arc<Segment>,
    filled: usize,
}

impl Room {
    /// Bytes that fit.
    pub(super) fn len(&self) -> usize {
        SEGMENT_BYTES - self.filled
    }

    /// What is not filled yet, `at_most` bytes of it. Holds what earlier uses left.
    pub(super) fn unfilled(&mut self, at_most: usize) -> &mut [u8] {
        let len = self.len().min(at_most);
        let from = self.segment.at(data_at(self.segment.slot) + self.filled);
        // SAFETY: `filled..filled + len` is inside the segment's data and not below `frozen`: no shared slice
        // covers it. This is the only `Room` of the segment (`lent`), and it is borrowed mutably. The memory is
        // initialised: pages of a file.
        unsafe { std::slice::from_raw_parts_mut(from.as_ptr(), len) }
    }

    /// Declares the next `n` bytes filled.
    pub(super) fn advance(&mut self, n: usize) {
        assert!(n <= self.len(), "more than fits was not filled");
        self.filled += n;
    }

    /// Makes all that was filled immutable and gives it back.
    pub(super) fn freeze(&mut self) -> Bytes {
        let before = self.segment.frozen();
        self.segment.frozen.store(self.filled, Ordering::Release);
        self.segment.share(before..self.filled)
    }

    /// As [`freeze`](Self::freeze), without taking the bytes.
    pub(super) fn settle(&mut self) {
        self.segment.frozen.store(self.filled, Ordering::Release);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.segment.lent.store(false, Ordering::Release);
    }
}

/// For tests: stopping at every step that a killed process could have come to.
#[cfg(test)]
pub(super) mod steps {
    use std::cell::RefCell;

    type Hook = Box<dyn FnMut()>;

    thread_local! {
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    /// Calls `hook` after every change of mapped memory by this thread, until it is replaced.
    pub fn hook(hook: Option<Hook>) {
        HOOK.with(|h| *h.borrow_mut() = hook);
    }

    pub(super) fn step() {
        HOOK.with(|h| {
            if let Some(hook) = h.borrow_mut().as_mut() {
                hook();
            }
        });
    }

    /// Where a copy is divided while somebody watches.
    pub(super) fn half(bytes: &[u8]) -> Option<usize> {
        let watched = HOOK.with(|h| h.borrow().is_some());
        // Down to pieces of a few bytes.
        (watched && bytes.len() > 6).then_some(bytes.len() / 2)
    }
}
