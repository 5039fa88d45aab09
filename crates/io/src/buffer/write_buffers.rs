//! Received bytes of one file on their way to it, in memory that is aligned as the file is.
//!
//! A write around the page cache needs memory, offset and length that are aligned. Received bytes
//! get that for nothing when a socket fills memory whose first byte belongs to a multiple of
//! [`WRITE_BUFFER`] in the file. Bytes that arrive elsewhere are copied there, or kept as they are
//! where no such memory is free.
//!
//! A buffer is in two [parts](memory): bytes that never change again and are shared with the mirror
//! and the disk, and behind them room to write.

mod memory;
mod piece;
mod reserved;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use super::BufferPool;
use crate::locks;
use memory::{Memory, Room};
use piece::Piece;
pub use reserved::ReservedRoom;

/// Bytes of one write buffer; each begins at a multiple of this in its file.
pub const WRITE_BUFFER: usize = 1 << 20;

struct BuffersState {
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
    state: Arc<Mutex<BuffersState>>,
}

impl WriteBuffers {
    /// For bytes from `offset` on, in memory of `pool`.
    #[must_use]
    pub fn new(pool: &BufferPool, offset: u64) -> Self {
        Self {
            pool: pool.clone(),
            state: Arc::new(Mutex::new(BuffersState {
                pieces: VecDeque::new(),
                received: VecDeque::new(),
                room: None,
                end: offset,
                frontier: offset,
                lent: false,
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BuffersState> {
        locks::lock(&self.state)
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
    fn copy(&self, state: &mut BuffersState, bytes: &Bytes) -> usize {
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

impl BuffersState {
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
