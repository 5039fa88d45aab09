//! Receiving straight into segments.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::ROOM_MAX;
use super::file::{SEGMENT, StagedFile};
use super::segment::Room;
use crate::error::IoError;

/// A place to receive the bytes that follow what a [`StagedFile`] has. To be used beside its owner, who then
/// offers the received bytes to [`StagedFile::try_append`], which finds them in place.
#[derive(Clone, Debug)]
pub struct Landing {
    file: Arc<StagedFile>,
}

impl StagedFile {
    /// A handle to receive in place.
    #[must_use]
    pub fn landing(self: &Arc<Self>) -> Landing {
        Landing {
            file: Arc::clone(self),
        }
    }
}

impl Landing {
    /// Where the next byte can be received: behind everything that was committed or received in place.
    #[must_use]
    pub fn next_offset(&self) -> u64 {
        self.file.lock().frontier
    }

    /// Whether the file has gathered as much as it may, or memory for more has to be found first: [`room`](Self::room) then
    /// waits.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let state = self.file.lock();
        self.file.is_full(&state, self.file.needs(&state))
    }

    /// Waits while the file has gathered as much as it may: for writes in progress, or until memory was found or refused,
    /// and nothing else. To be called before more is received, so that the socket pushes back instead of memory filling.
    pub async fn room(&self) {
        self.file.not_full(|state| self.file.needs(state)).await;
    }

    /// Room for `want` bytes from `offset` on, at once. `None` when there is none now, or when the bytes cannot be
    /// received in place: `offset` is not [`next_offset`](Self::next_offset), another reservation exists,
    /// `want` is 0 or above [`ROOM_MAX`], or the file takes nothing any more. Receive elsewhere then;
    /// the bytes are copied when they are appended.
    #[must_use]
    pub fn try_reserve(&self, offset: u64, want: usize) -> Option<Reserved> {
        let mut state = self.file.lock();
        let open = !(state.closed || state.sealed);
        let usable = state.error.is_none() && open && !state.reserved;
        if !usable || offset != state.frontier || want == 0 || want > ROOM_MAX {
            return None;
        }
        let end = offset.checked_add(want as u64)?;
        let spans = usize::try_from(end.div_ceil(SEGMENT) - offset / SEGMENT).ok()?;
        if !self.file.shared.may_land(spans) {
            return None;
        }
        let covered = self.file.cover(&mut state, end);
        state.spare.clear();
        if !covered {
            return None;
        }
        let first = state
            .segments
            .partition_point(|s| s.base + SEGMENT <= offset);
        let mut rooms = Vec::with_capacity(2);
        for held in state.segments.iter().skip(first) {
            if held.base >= end {
                break;
            }
            rooms.push(held.memory.room()?);
        }
        state.reserved = true;
        let shared = &self.file.shared;
        shared.landing.fetch_add(rooms.len(), Ordering::Relaxed);
        Some(Reserved {
            spans: rooms.len(),
            file: Arc::clone(&self.file),
            rooms,
            at: 0,
            offset,
            want,
            filled: 0,
        })
    }

    /// As [`try_reserve`](Self::try_reserve), but waits for segments while the budget is used up: the back pressure
    /// of the staging area. `None` when the bytes cannot be received in place, also when bytes received in
    /// place before are not appended yet and no segment is free: append them first, for nobody may wait
    /// with segments that only he can free; and while most of the budget is being received into, by
    /// peers who may stop there.
    ///
    /// # Errors
    /// The error of an earlier write; `Closed`.
    pub async fn reserve(&self, offset: u64, want: usize) -> Result<Option<Reserved>, IoError> {
        loop {
            if let Some(reserved) = self.try_reserve(offset, want) {
                return Ok(Some(reserved));
            }
            {
                let state = self.file.lock();
                if let Some(error) = &state.error {
                    return Err(error.clone());
                }
                let spans = want.div_ceil(super::SEGMENT_BYTES) + 1;
                let waits = self.file.shared.may_land(spans)
                    && !state.reserved
                    && !state.closed
                    && state.frontier == state.committed
                    && offset == state.frontier
                    && want > 0
                    && want <= ROOM_MAX;
                if !waits {
                    return Ok(None);
                }
            }
            self.file.make_room(want).await?;
        }
    }
}

/// Room in segments for a run of bytes; may straddle two or more of them. Fill what [`unfilled`](Self::unfilled)
/// gives, say how much with [`advance`](Self::advance), and take the bytes with [`freeze`](Self::freeze). Dropped, it
/// leaves nothing behind.
#[derive(Debug)]
pub struct Reserved {
    file: Arc<StagedFile>,
    rooms: Vec<Room>,
    /// Segments that it counts for.
    spans: usize,
    /// The room that is being filled.
    at: usize,
    offset: u64,
    want: usize,
    filled: usize,
}

impl Reserved {
    /// Offset in the main file of the first byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that can still be filled.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.want - self.filled
    }

    /// The next memory to fill, `remaining()` bytes of it, in order: for a gather read from a socket.
    pub fn unfilled(&mut self) -> Vec<IoSliceMut<'_>> {
        let mut left = self.remaining();
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
    /// When `n` is above [`remaining`](Self::remaining).
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.remaining(), "more than was reserved");
        self.filled += n;
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

    /// The filled bytes, immutable from now on, in one piece per segment.
    #[must_use]
    pub fn freeze(mut self) -> Vec<Bytes> {
        self.take()
    }

    /// The bytes that were filled since the last call, immutable from now on, in one piece per segment. What
    /// [`unfilled`](Self::unfilled) gives stays reserved, and keeps what was received there.
    #[must_use]
    pub fn take(&mut self) -> Vec<Bytes> {
        let mut pieces = Vec::with_capacity(self.rooms.len());
        for room in &mut self.rooms {
            let piece = room.freeze();
            if !piece.is_empty() {
                pieces.push(piece);
            }
        }
        self.file.lock().frontier = self.offset + self.filled as u64;
        pieces
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.rooms.clear();
        let shared = &self.file.shared;
        shared.landing.fetch_sub(self.spans, Ordering::Relaxed);
        self.file.lock().reserved = false;
    }
}
