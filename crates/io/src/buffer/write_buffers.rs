//! Received bytes of one file on their way to it, in memory that is aligned as the file is.
//!
//! A write around the page cache needs memory, offset and length that are aligned. Received bytes
//! get that for nothing when a socket fills memory whose first byte belongs to a multiple of
//! [`WRITE_BUFFER`] in the file. Bytes that arrive elsewhere are copied there, or kept as they are
//! where no such memory is free.
//!
//! A buffer is in two parts, divided by `frozen`: below it bytes never change again and are shared
//! with the mirror and the disk; from it on only the one [`Room`] of the buffer may write.
#![expect(
    unsafe_code,
    reason = "one piece of memory is shared below a mark and written above it: see each block"
)]

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{AlignedBuf, BufferPool};

/// Bytes of one write buffer; each begins at a multiple of this in its file.
pub const WRITE_BUFFER: usize = 1 << 20;

/// Memory of one buffer, until the last slice of it is dropped.
struct Memory {
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
    fn share(self: &Arc<Self>, range: Range<usize>) -> Bytes {
        let frozen = self.frozen.load(Ordering::Acquire);
        assert!(
            range.start <= range.end && range.end <= frozen,
            "only frozen bytes are shared"
        );
        let memory = Arc::clone(self);
        Bytes::from_owner(Shared { memory, range })
    }

    /// Whether `bytes` are the frozen bytes from `at` on.
    fn holds(&self, at: usize, bytes: &[u8]) -> bool {
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
struct Room {
    memory: Arc<Memory>,
    /// Offset in the file of the buffer's first byte.
    base: u64,
    filled: usize,
}

impl Room {
    /// A buffer that begins at `base`, filled from `from` on. `None` where the memory is not
    /// mapped by itself.
    fn new(owner: AlignedBuf, base: u64, from: usize) -> Option<Self> {
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

    fn len(&self) -> usize {
        WRITE_BUFFER - self.filled
    }

    /// Offset in the file of the next byte.
    fn next(&self) -> u64 {
        self.base + self.filled as u64
    }

    /// What is not filled yet, at most `at_most` bytes of it. Holds what earlier uses left.
    fn unfilled(&mut self, at_most: usize) -> &mut [u8] {
        let len = self.len().min(at_most);
        // SAFETY: `filled..filled + len` is inside the buffer and not below `frozen`: no shared
        // slice covers it. This is the only `Room` of the memory, and it is borrowed mutably.
        unsafe {
            let from = self.memory.start.add(self.filled);
            std::slice::from_raw_parts_mut(from.as_ptr(), len)
        }
    }

    fn advance(&mut self, n: usize) {
        assert!(n <= self.len(), "more than fits was not filled");
        self.filled += n;
    }

    /// Makes all that was filled immutable; gives the bytes that became so.
    fn freeze(&mut self) -> Range<usize> {
        let before = self.memory.frozen.swap(self.filled, Ordering::Release);
        before..self.filled
    }
}

/// Appended bytes that lie together in memory.
enum Piece {
    Own(Arc<Memory>, Range<usize>),
    Other(Bytes),
}

struct State {
    /// What was appended and not taken, in order.
    pieces: VecDeque<Piece>,
    /// Buffers with bytes received in place that are not appended yet, by where they begin.
    received: VecDeque<(u64, Arc<Memory>)>,
    /// Where the next byte goes, while it is not lent.
    room: Option<Room>,
    /// Offset in the file behind the appended bytes.
    end: u64,
    /// Offset behind the bytes received in place.
    frontier: u64,
    /// A [`ReservedRoom`] exists.
    lent: bool,
}

/// The write buffers of one file. Clones are the same.
#[derive(Clone)]
pub struct WriteBuffers {
    pool: BufferPool,
    state: Arc<Mutex<State>>,
}

impl WriteBuffers {
    /// For bytes from `offset` on, in memory of `pool`.
    #[must_use]
    pub fn new(pool: &BufferPool, offset: u64) -> Self {
        Self {
            pool: pool.clone(),
            state: Arc::new(Mutex::new(State {
                pieces: VecDeque::new(),
                received: VecDeque::new(),
                room: None,
                end: offset,
                frontier: offset,
                lent: false,
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_room(&self, offset: u64) -> Option<Room> {
        let within = offset % WRITE_BUFFER as u64;
        let memory = self
            .pool
            .try_acquire_below(WRITE_BUFFER, self.pool.budget());
        let from = usize::try_from(within).expect("less than a buffer");
        Room::new(memory.ok()??, offset - within, from)
    }

    /// Room for `want` bytes from `offset` on. `None` when `offset` is not where the received bytes
    /// end, when another reservation exists, or when the pool has no memory now: then receive
    /// elsewhere, and the bytes are copied when they are appended.
    #[must_use]
    pub fn try_reserve(&self, offset: u64, want: usize) -> Option<ReservedRoom> {
        let mut state = self.lock();
        if state.lent || offset != state.frontier || want == 0 {
            return None;
        }
        let mut rooms = Vec::with_capacity(2);
        rooms.extend(
            state
                .room
                .take_if(|room| room.next() == offset && room.len() > 0),
        );
        let mut have = rooms.first().map_or(0, Room::len);
        while have < want {
            let Some(room) = self.new_room(offset + have as u64) else {
                state.room = rooms.into_iter().next();
                return None;
            };
            have += room.len();
            rooms.push(room);
        }
        state.lent = true;
        Some(ReservedRoom {
            buffers: self.clone(),
            rooms,
            at: 0,
            remaining: want,
        })
    }

    /// Takes bytes that follow what was appended. Those that were received in place are not copied.
    /// `copy`: others are copied to aligned memory where the pool has some; else they are kept.
    pub fn append(&self, pieces: &[Bytes], copy: bool) {
        let mut state = self.lock();
        for piece in pieces {
            let mut rest = piece.clone();
            while !rest.is_empty() {
                let taken = state.append_in_place(&rest);
                let taken = if taken > 0 || !copy {
                    taken
                } else {
                    self.copy(&mut state, &rest)
                };
                if taken == 0 {
                    state.keep(rest);
                    break;
                }
                rest = rest.slice(taken..);
            }
        }
    }

    /// Copies as much as fits into the current buffer; 0 where there is none.
    fn copy(&self, state: &mut State, bytes: &Bytes) -> usize {
        let usable = !state.lent && state.frontier == state.end;
        if !usable {
            return 0;
        }
        let end = state.end;
        let fits = |room: &Room| room.next() == end && room.len() > 0;
        if !state.room.as_ref().is_some_and(fits) {
            state.room = self.new_room(end);
        }
        let Some(room) = &mut state.room else {
            return 0;
        };
        let target = room.unfilled(bytes.len());
        let n = target.len();
        target.copy_from_slice(&bytes[..n]);
        room.advance(n);
        let range = room.freeze();
        let memory = Arc::clone(&room.memory);
        state.push_own(memory, range);
        state.frontier = state.end;
        n
    }

    /// Gives back the memory behind the last byte: a stream that waits for its peer keeps none.
    pub fn release(&self) {
        let mut state = self.lock();
        state.room = None;
        if state.frontier == state.end {
            state.received.clear();
        }
    }

    /// Bytes appended and not taken.
    #[must_use]
    pub fn appended(&self) -> usize {
        self.lock().pieces.iter().map(Piece::len).sum()
    }

    /// Takes the next `len` appended bytes, in as few pieces as they lie in.
    ///
    /// # Panics
    /// When fewer were [appended](Self::appended).
    #[must_use]
    pub fn take(&self, len: usize) -> Vec<Bytes> {
        let mut state = self.lock();
        let (mut left, mut taken) = (len, Vec::with_capacity(4));
        while left > 0 {
            let mut piece = state.pieces.pop_front().expect("as many as were appended");
            if piece.len() > left {
                let (now, later) = piece.split(left);
                state.pieces.push_front(later);
                piece = now;
            }
            left -= piece.len();
            taken.push(piece.into_bytes());
        }
        taken
    }
}

impl std::fmt::Debug for WriteBuffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.lock();
        f.debug_struct("WriteBuffers")
            .field("end", &state.end)
            .field("frontier", &state.frontier)
            .finish_non_exhaustive()
    }
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Own(_, range) => range.len(),
            Self::Other(bytes) => bytes.len(),
        }
    }

    fn split(self, at: usize) -> (Self, Self) {
        match self {
            Self::Own(memory, range) => {
                let middle = range.start + at;
                let now = Self::Own(Arc::clone(&memory), range.start..middle);
                (now, Self::Own(memory, middle..range.end))
            }
            Self::Other(bytes) => {
                let now = Self::Other(bytes.slice(..at));
                (now, Self::Other(bytes.slice(at..)))
            }
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Own(memory, range) => memory.share(range),
            Self::Other(bytes) => bytes,
        }
    }
}

impl State {
    fn push_own(&mut self, memory: Arc<Memory>, range: Range<usize>) {
        self.end += range.len() as u64;
        if let Some(Piece::Own(last, before)) = self.pieces.back_mut()
            && Arc::ptr_eq(last, &memory)
            && before.end == range.start
        {
            before.end = range.end;
            return;
        }
        self.pieces.push_back(Piece::Own(memory, range));
    }

    /// Appends the beginning of `bytes` that was received at its place; how much that is.
    fn append_in_place(&mut self, bytes: &Bytes) -> usize {
        if self.frontier == self.end {
            return 0;
        }
        let end = self.end;
        while self
            .received
            .front()
            .is_some_and(|(base, _)| base + WRITE_BUFFER as u64 <= end)
        {
            self.received.pop_front();
        }
        let Some((base, memory)) = self.received.front() else {
            return 0;
        };
        let Ok(at) = usize::try_from(end.saturating_sub(*base)) else {
            return 0;
        };
        let n = bytes.len().min(WRITE_BUFFER - at);
        if !memory.holds(at, &bytes[..n]) {
            return 0;
        }
        let memory = Arc::clone(memory);
        self.push_own(memory, at..at + n);
        n
    }

    fn keep(&mut self, bytes: Bytes) {
        self.end += bytes.len() as u64;
        if self.end > self.frontier {
            self.frontier = self.end;
        }
        self.pieces.push_back(Piece::Other(bytes));
    }
}

/// Room in write buffers for a run of bytes. Fill what [`unfilled`](Self::unfilled) gives, say how
/// much with [`advance`](Self::advance), and [take](Self::take) it. Dropped, it leaves nothing.
pub struct ReservedRoom {
    buffers: WriteBuffers,
    rooms: Vec<Room>,
    /// The room that is being filled.
    at: usize,
    remaining: usize,
}

impl ReservedRoom {
    /// The next memory to fill, in order: for a gather read from a socket.
    pub fn unfilled(&mut self) -> Vec<IoSliceMut<'_>> {
        let mut left = self.remaining;
        let mut slices = Vec::with_capacity(self.rooms.len() - self.at);
        for room in &mut self.rooms[self.at..] {
            if left == 0 {
                break;
            }
            let slice = room.unfilled(left);
            left -= slice.len();
            slices.push(IoSliceMut::new(slice));
        }
        slices
    }

    /// The next `n` bytes were filled.
    ///
    /// # Panics
    /// When `n` is above what was reserved.
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.remaining, "more than was reserved");
        self.remaining -= n;
        let mut left = n;
        while left > 0 {
            let room = &mut self.rooms[self.at];
            let now = left.min(room.len());
            room.advance(now);
            left -= now;
            if room.len() == 0 {
                self.at += 1;
            }
        }
    }

    /// The bytes filled since the last call, immutable from now on, one piece a buffer.
    #[must_use]
    pub fn take(&mut self) -> Vec<Bytes> {
        let mut pieces = Vec::with_capacity(2);
        let mut state = self.buffers.lock();
        for room in &mut self.rooms {
            let range = room.freeze();
            if range.is_empty() {
                continue;
            }
            state.frontier = room.next();
            let known = state
                .received
                .back()
                .is_some_and(|(base, _)| *base == room.base);
            if !known {
                state
                    .received
                    .push_back((room.base, Arc::clone(&room.memory)));
            }
            pieces.push(room.memory.share(range));
        }
        pieces
    }
}

impl Drop for ReservedRoom {
    fn drop(&mut self) {
        let mut state = self.buffers.lock();
        state.lent = false;
        let frontier = state.frontier;
        // What was filled and not taken never was received.
        let of_next = |mut room: Room| {
            room.filled = room.memory.frozen.load(Ordering::Acquire);
            (room.next() == frontier && room.len() > 0).then_some(room)
        };
        state.room = self.rooms.drain(..).find_map(of_next);
    }
}

impl std::fmt::Debug for ReservedRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReservedRoom")
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(from: usize, len: usize) -> Vec<u8> {
        let byte = |i: usize| u8::try_from(i % 251).expect("below 256");
        (from..from + len).map(byte).collect()
    }

    fn pool() -> BufferPool {
        BufferPool::new(16 << 20)
    }

    /// Receives `len` bytes in place, as a socket would in two reads.
    fn receive(buffers: &WriteBuffers, from: usize, len: usize) -> Vec<Bytes> {
        let mut room = buffers
            .try_reserve(from as u64, len)
            .expect("there is room");
        let mut pieces = Vec::new();
        for (at, n) in [(0, len / 3), (len / 3, len - len / 3)] {
            let wanted = bytes(from + at, n);
            let mut rest = &wanted[..];
            for slice in &mut room.unfilled() {
                let now = rest.len().min(slice.len());
                slice[..now].copy_from_slice(&rest[..now]);
                rest = &rest[now..];
            }
            room.advance(n);
            pieces.extend(room.take());
        }
        pieces
    }

    #[test]
    fn what_is_received_in_place_lies_in_one_aligned_piece() {
        let buffers = WriteBuffers::new(&pool(), 0);
        let first = receive(&buffers, 0, 700_001);
        buffers.append(&first, true);
        let second = receive(&buffers, 700_001, 900_000);
        buffers.append(&second, true);
        assert_eq!(buffers.appended(), 1_600_001);
        let taken = buffers.take(WRITE_BUFFER);
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0].as_ptr().addr() % 4096, 0);
        assert!(taken[0] == bytes(0, WRITE_BUFFER));
        let rest = buffers.take(1_600_001 - WRITE_BUFFER);
        assert_eq!(rest.len(), 1);
        assert!(rest[0] == bytes(WRITE_BUFFER, 1_600_001 - WRITE_BUFFER));
    }

    #[test]
    fn other_bytes_are_copied_between_those_in_place() {
        let buffers = WriteBuffers::new(&pool(), 5000);
        buffers.append(&[Bytes::from(bytes(5000, 3000))], true);
        let pieces = receive(&buffers, 8000, 2000);
        // While it is lent nothing is copied behind it; what is received waits to be appended.
        buffers.append(&pieces, true);
        buffers.append(&[Bytes::from(bytes(10_000, 20_000))], true);
        let taken = buffers.take(25_000);
        assert_eq!(taken.len(), 1, "one buffer");
        assert!(taken[0] == bytes(5000, 25_000));
        assert_eq!(taken[0].as_ptr().addr() % 4096, 5000 % 4096);
    }

    #[test]
    fn without_memory_the_pieces_are_kept_as_they_are() {
        let pool = BufferPool::new(4096);
        let buffers = WriteBuffers::new(&pool, 0);
        assert!(buffers.try_reserve(0, 100).is_none());
        let piece = Bytes::from(bytes(0, 3000));
        buffers.append(std::slice::from_ref(&piece), true);
        buffers.append(&[Bytes::from(bytes(3000, 100))], false);
        let taken = buffers.take(3050);
        assert_eq!(taken[0].as_ptr(), piece.as_ptr());
        assert_eq!(taken.iter().map(Bytes::len).collect::<Vec<_>>(), [3000, 50]);
        assert!(buffers.take(50)[0] == bytes(3050, 50));
    }

    #[test]
    fn bytes_that_were_received_and_given_up_are_overwritten() {
        let buffers = WriteBuffers::new(&pool(), 0);
        let mut room = buffers.try_reserve(0, 8192).expect("there is room");
        room.unfilled()[0].fill(9);
        room.advance(8192);
        assert!(buffers.try_reserve(0, 1).is_none(), "it is lent");
        drop(room);
        let pieces = receive(&buffers, 0, 8192);
        buffers.append(&pieces, true);
        assert!(buffers.take(8192)[0] == bytes(0, 8192));
    }

    #[test]
    fn memory_goes_back_with_the_last_slice() {
        let pool = pool();
        let buffers = WriteBuffers::new(&pool, 0);
        let pieces = receive(&buffers, 0, 3 * WRITE_BUFFER);
        buffers.append(&pieces, true);
        drop(buffers.take(3 * WRITE_BUFFER));
        assert!(pool.in_use() >= 3 * WRITE_BUFFER);
        drop(pieces);
        drop(buffers);
        assert_eq!(pool.in_use(), 0);
    }
}
