//! Bytes into segments: room for them, a copy unless they lie there already, and the commit that makes them outlive the process.

use std::time::Instant;

use bytes::Bytes;

use super::file::{Append, Held, SEGMENT, StagedFile, State, find};
use super::layout::{Record, SEGMENT_BYTES, Target, UNIT_MAX};
use super::segment::Room;
use super::share::segments_between;
use crate::error::IoError;

impl StagedFile {
    /// Takes `pieces`, which follow the committed bytes, and the side bytes from the grain on that holds their
    /// first byte. Bytes that lie at their place already (see [`Landing`](super::Landing)) are not copied. When it
    /// returns [`Append::Committed`], all of them outlive a killed process; else nothing was taken. Never waits.
    ///
    /// # Errors
    /// The error of an earlier write; `Closed`; `Invalid` when the bytes do not follow those committed, when the
    /// side bytes are not as many as belong to them, or when other bytes are being received at their place.
    pub fn try_append(&self, at: u64, pieces: &[Bytes], side: &[u8]) -> Result<Append, IoError> {
        let outcome = {
            let mut state = self.lock();
            let outcome = self.append_locked(&mut state, at, pieces, side);
            if !matches!(outcome, Ok(Append::NoRoom)) {
                state.spare.clear();
            }
            outcome
        };
        if matches!(outcome, Ok(Append::Committed)) {
            self.write_behind();
        }
        outcome
    }

    fn append_locked(
        &self,
        state: &mut State,
        at: u64,
        pieces: &[Bytes],
        side: &[u8],
    ) -> Result<Append, IoError> {
        self.usable(state)?;
        let total: u64 = pieces.iter().map(|p| p.len() as u64).sum();
        let end = at
            .checked_add(total)
            .filter(|end| i64::try_from(*end).is_ok());
        let (true, Some(end)) = (at == state.committed, end) else {
            let text = format!("{total} bytes at {at}, after {}", state.committed);
            return Err(self.invalid(text));
        };
        let grain = self.shape.grain();
        let units = self.shape.units(end.div_ceil(grain) - at / grain);
        if side.len() != units {
            let text = format!("{} side bytes for {total} at {at}, not {units}", side.len());
            return Err(self.invalid(text));
        }
        if total == 0 {
            return Ok(Append::Committed);
        }
        if end > state.frontier {
            if state.reserved {
                let text = format!("other bytes are being received at {}", state.frontier);
                return Err(self.invalid(text));
            }
            if !self.cover(state, end) {
                return Ok(Append::NoRoom);
            }
        }
        self.place(state, at, pieces)?;
        self.commit(state, at, end, side);
        Ok(Append::Committed)
    }

    /// Gets the segments for bytes up to `end`; all of them or none.
    pub(super) fn cover(&self, state: &mut State, end: u64) -> bool {
        let mut next = Self::covered(state);
        if next >= end {
            return true;
        }
        let count = segments_between(next, end);
        if state.spare.len() < count {
            if self.is_full(state, count) {
                return false;
            }
            let Some(more) = self.shared.area.try_take(count - state.spare.len()) else {
                return false;
            };
            state.spare.extend(more);
        }
        while next < end {
            let base = next - next % SEGMENT;
            let start = usize::try_from(next - base).expect("less than a segment");
            let Some(memory) = state.spare.pop() else {
                return false;
            };
            let target = Target {
                main: self.main.path().to_owned(),
                side: self.side.path().to_owned(),
                offset: next,
                side_offset: self.shape.offset(next),
                inode: self.inode,
                start: u32::try_from(start).expect("less than a segment"),
                unit: self.shape.unit,
            };
            if !memory.attach(&target) {
                return false; // Looked at when the file was staged.
            }
            state.segments.push_back(Held {
                memory,
                base,
                start,
                end: start,
                written: start,
                busy: false,
            });
            next = base + SEGMENT;
        }
        true
    }

    /// Brings `pieces` to their places in segments that cover them.
    fn place(&self, state: &mut State, at: u64, pieces: &[Bytes]) -> Result<(), IoError> {
        let mut at = at;
        let mut room: Option<(u64, Room)> = None;
        for piece in pieces {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let held = find(&state.segments, at)
                    .ok_or_else(|| self.invalid(format!("no segment covers the byte at {at}")))?;
                let place = usize::try_from(at - held.base).expect("inside the segment");
                let (now, later) = rest.split_at(rest.len().min(SEGMENT_BYTES - place));
                let there = usize::try_from(state.frontier.saturating_sub(at))
                    .map_or(now.len(), |n| n.min(now.len()));
                let (known, fresh) = now.split_at(there);
                if !known.is_empty()
                    && !held.memory.holds(place, known)
                    && !held.memory.equals(place, known)
                {
                    return Err(self.invalid(format!("other bytes were received at {at}")));
                }
                if !fresh.is_empty() {
                    if room.as_ref().is_none_or(|(base, _)| *base != held.base) {
                        room = held.memory.room().map(|room| (held.base, room));
                    }
                    let Some((_, room)) = &mut room else {
                        return Err(self.invalid(format!("bytes are being received at {at}")));
                    };
                    room.unfilled(fresh.len()).copy_from_slice(fresh);
                    room.advance(fresh.len());
                    room.settle();
                    state.frontier = at + (there + fresh.len()) as u64;
                }
                at += now.len() as u64;
                rest = later;
            }
        }
        Ok(())
    }

    /// Publishes the bytes from `at` to `end`, which are in place, in every segment that they touch, in order: a
    /// process that is killed in between has committed a prefix.
    fn commit(&self, state: &mut State, at: u64, end: u64, side: &[u8]) {
        let (grain, unit) = (self.shape.grain(), self.shape.unit as usize);
        let first = state.segments.partition_point(|s| s.base + SEGMENT <= at);
        for held in state.segments.iter_mut().skip(first) {
            let (from, to) = (at.max(held.base), end.min(held.base + SEGMENT));
            if from >= to {
                continue;
            }
            let range = self.shape.units(from / grain - at / grain)
                ..self.shape.units(to.div_ceil(grain) - at / grain);
            let units = &side[range];
            let side_from = held.side_place(self.shape, from);
            let mut last = [0; UNIT_MAX];
            last[..unit].copy_from_slice(&units[units.len() - unit..]);
            held.end = usize::try_from(to - held.base).expect("at most a segment");
            let record = Record {
                len: u32::try_from(held.end - held.start).expect("at most a segment"),
                side_len: u32::try_from(side_from + units.len()).expect("at most a page"),
                last,
            };
            held.memory.publish(side_from, units, record);
        }
        state.committed = end;
        state.last_commit = Instant::now();
    }
}
