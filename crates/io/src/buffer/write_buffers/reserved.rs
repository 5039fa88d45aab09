//! Room that is lent to the reader of a socket.

use std::io::IoSliceMut;
use std::sync::Arc;

use bytes::Bytes;

use super::WriteBuffers;
use super::memory::Room;

/// Room in write buffers for a run of bytes. Fill what [`unfilled`](Self::unfilled) gives, say how
/// much with [`advance`](Self::advance), and [take](Self::take) it. Dropped, it leaves nothing.
pub struct ReservedRoom {
    pub(super) buffers: WriteBuffers,
    pub(super) rooms: Vec<Room>,
    /// The room that is being filled.
    pub(super) at: usize,
    pub(super) remaining: usize,
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
            room.discard();
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
