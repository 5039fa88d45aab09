//! An open stub: its content is on the device.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustix::fs::{fsync, ftruncate};
use rustix::io::Errno;

use super::extents_attribute::{self, EXTENTS_MAX};
use super::free_units::{Extent, UNIT, units_for};
use super::{DeviceId, StubVolume};
use crate::blocking_engine::Blocking;
use crate::disk::Stream;
use crate::engines::inode::InodeKey;
use crate::engines::whole_transfers::{at, parts};
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::locks;
use crate::types::SyncKind;

/// A stub that outgrows its room takes as much again as it has, at most this: 8 MiB.
const GROWTH: u64 = (8 << 20) / UNIT;
/// Zeros written at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What all handles of one file share.
#[derive(Debug)]
pub(super) struct Stub {
    /// Held during a write or a cut, as the kernel does with a file: what is cut off has no write
    /// on its way, and no gap is filled with zeros over one.
    changing: Mutex<()>,
    state: Mutex<StubState>,
    /// Another stub names a part of its place.
    pub contested: bool,
    /// Its first unit of the device.
    place: AtomicU64,
}

#[derive(Debug)]
struct StubState {
    extents: Vec<Extent>,
    /// Length, bytes.
    len: u64,
    /// Flushes that had failed before the first write that no sync has covered.
    dirty_since: Option<u64>,
    /// Writes so far.
    writes: u64,
}

impl Stub {
    pub(super) fn new(extents: Vec<Extent>, len: u64, contested: bool) -> Self {
        let place = AtomicU64::new(first_of(&extents));
        let state = Mutex::new(StubState {
            extents,
            len,
            dirty_since: None,
            writes: 0,
        });
        Self {
            changing: Mutex::default(),
            state,
            contested,
            place,
        }
    }

    /// Flushes that had failed before the first write that no sync has covered.
    pub(super) fn dirty_since(&self) -> Option<u64> {
        locks::lock(&self.state).dirty_since
    }

    pub(super) fn set_dirty_since(&self, since: Option<u64>) {
        locks::lock(&self.state).dirty_since = since;
    }

    /// What the file gives up when its last handle is closed: all, or what is behind its end.
    pub(super) fn leave(&self, file: &File, id: &DeviceId, all: bool) -> Vec<Extent> {
        let mut state = locks::lock(&self.state);
        if all {
            return std::mem::take(&mut state.extents);
        }
        let mut kept = state.extents.clone();
        let gone = cut_to(&mut kept, units_for(state.len));
        // Where the attribute cannot be written it names them, so they stay taken.
        if gone.is_empty() || extents_attribute::write(file, id, &kept).is_err() {
            return Vec::new();
        }
        gone
    }
}

impl StubState {
    fn units(&self) -> u64 {
        self.extents.iter().map(|e| u64::from(e.units)).sum()
    }

    /// Where `range` of the file is on the device: offset there, and length, piece by piece.
    fn pieces(&self, range: Range<u64>) -> Vec<(u64, u64)> {
        let mut pieces = Vec::new();
        let mut begin = 0;
        for extent in &self.extents {
            let end = begin + u64::from(extent.units) * UNIT;
            let (from, to) = (range.start.max(begin), range.end.min(end));
            if from < to {
                pieces.push((extent.first * UNIT + (from - begin), to - from));
            }
            begin = end;
        }
        pieces
    }
}

/// A handle. See the [module](super).
#[derive(Debug)]
pub(in super::super) struct StubFile<D: Blocking> {
    pub(super) volume: Arc<StubVolume<D>>,
    /// Taken by the drop.
    pub(super) stub: Option<Arc<Stub>>,
    pub(super) file: File,
    pub(super) key: InodeKey,
    pub(super) path: PathBuf,
    pub(super) writable: bool,
}

impl<D: Blocking> StubFile<D> {
    fn stub(&self) -> &Stub {
        self.stub.as_ref().expect("taken by the drop only")
    }

    fn failed(&self, op: IoOp, errno: Errno) -> IoError {
        IoError::from_errno(op, &self.path, errno)
    }

    /// An error of the device while it moved bytes of this stub: it is told of the stub, since
    /// errors in different replicas are different errors.
    fn on_device(&self, error: IoError, place: u64) -> IoError {
        let error = error.of(&self.path);
        error.with_context(format_args!("at {place} of its device"))
    }

    fn must_be_writable(&self, op: IoOp) -> Result<(), IoError> {
        if self.writable {
            return Ok(());
        }
        Err(self.failed(op, Errno::BADF))
    }

    /// Gives the stub room for `end` bytes, and up to `more` units beyond. The attribute names them
    /// before any byte is there.
    fn reserve(&self, state: &mut StubState, end: u64, more: u64) -> Result<(), IoError> {
        let needed = units_for(end);
        let mut there = state.units();
        if there >= needed {
            return Ok(());
        }
        let before = state.extents.clone();
        while there < needed {
            let after = state.extents.last().map(|e| e.first + u64::from(e.units));
            let wanted = needed - there + more;
            let taken = match self.volume.take(wanted, after) {
                Ok(taken) => taken,
                Err(error) => {
                    self.undo(state, before, &[])?;
                    return Err(error);
                }
            };
            match taken {
                Some(extent) if after == Some(extent.first) => {
                    let last = state.extents.last_mut().expect("`after` is its end");
                    last.units += extent.units;
                    there += u64::from(extent.units);
                }
                Some(extent) if state.extents.len() < EXTENTS_MAX => {
                    state.extents.push(extent);
                    there += u64::from(extent.units);
                }
                lost => {
                    self.undo(state, before, lost.as_slice())?;
                    return Err(self.failed(IoOp::Write, Errno::NOSPC));
                }
            }
        }
        let noted = extents_attribute::write(&self.file, &self.volume.adopted.id, &state.extents);
        if let Err(errno) = noted {
            self.undo(state, before, &[])?;
            return Err(self.failed(IoOp::Allocate, errno));
        }
        let first = first_of(&state.extents);
        self.stub().place.store(first, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back what was taken since `before`. No attribute has named it.
    fn undo(
        &self,
        state: &mut StubState,
        before: Vec<Extent>,
        more: &[Extent],
    ) -> Result<(), IoError> {
        let kept: u64 = before.iter().map(|e| u64::from(e.units)).sum();
        let mut taken = cut_to(&mut state.extents, kept);
        state.extents = before;
        taken.extend_from_slice(more);
        self.volume.give_up(&taken)
    }

    /// Writes zeros from `from` to `to`, both within the room that the stub has.
    fn zero(&self, state: &StubState, from: u64, to: u64) -> Result<(), IoError> {
        for (mut place, mut len) in state.pieces(from..to) {
            while len > 0 {
                let n = len.min(ZEROS.len() as u64);
                let zeros = Bytes::from_static(&ZEROS[..usize::try_from(n).unwrap_or(0)]);
                self.volume.device.write(&[&zeros], place).1?;
                (place, len) = (place + n, len - n);
            }
        }
        Ok(())
    }

    /// Prepares a write of `range`: room, and zeros in a gap before it. Gives its pieces.
    fn prepare(&self, range: Range<u64>) -> Result<Vec<(u64, u64)>, IoError> {
        let mut state = locks::lock(&self.stub().state);
        let more = units_for(range.end).min(GROWTH);
        self.reserve(&mut state, range.end, more)?;
        if range.start > state.len {
            let from = state.len;
            self.zero(&state, from, range.start)?;
        }
        Ok(state.pieces(range))
    }

    fn write_pieces(&self, bufs: &[&Bytes], pieces: &[(u64, u64)]) -> (usize, Result<(), IoError>) {
        let mut done = 0;
        for (place, len) in pieces {
            let len = usize::try_from(*len).unwrap_or(usize::MAX);
            let part = parts(bufs, done, len).map(|(buf, range)| buf.slice(range));
            let part: Vec<Bytes> = part.collect();
            let refs: Vec<&Bytes> = part.iter().collect();
            let (count, result) = self.volume.device.write(&refs, *place);
            done += count;
            if let Err(error) = result {
                return (done, Err(self.on_device(error, *place)));
            }
        }
        (done, Ok(()))
    }

    /// Notes that bytes up to `end` were written since `failed` flushes had failed.
    fn written(&self, end: u64, failed: u64) -> Result<(), IoError> {
        let mut state = locks::lock(&self.stub().state);
        let since = state.dirty_since.map_or(failed, |since| since.min(failed));
        state.dirty_since = Some(since);
        state.writes += 1;
        if end > state.len {
            ftruncate(&self.file, end).map_err(|e| self.failed(IoOp::Write, e))?;
            state.len = end;
        }
        Ok(())
    }

    /// Cuts the stub to `len` bytes, and gives back the units behind.
    fn cut(&self, state: &mut StubState, len: u64) -> Result<(), IoError> {
        let failed = |e| self.failed(IoOp::Truncate, e);
        if len < state.len {
            ftruncate(&self.file, len).map_err(failed)?;
            state.len = len;
        }
        let mut kept = state.extents.clone();
        let gone = cut_to(&mut kept, units_for(len));
        if gone.is_empty() {
            return Ok(());
        }
        extents_attribute::write(&self.file, &self.volume.adopted.id, &kept).map_err(failed)?;
        state.extents = kept;
        self.volume.give_up(&gone)
    }
}

fn first_of(extents: &[Extent]) -> u64 {
    extents.first().map_or(0, |extent| extent.first)
}

/// Cuts `extents` to `units`, gives what was behind.
fn cut_to(extents: &mut Vec<Extent>, units: u64) -> Vec<Extent> {
    let mut left = units;
    let mut gone = Vec::new();
    extents.retain_mut(|extent| {
        let there = u64::from(extent.units);
        let keep = left.min(there);
        left -= keep;
        let kept = u32::try_from(keep).expect("no more than there were");
        if keep < there {
            gone.push(Extent {
                first: extent.first + keep,
                units: extent.units - kept,
            });
        }
        extent.units = kept;
        keep > 0
    });
    gone
}

impl<D: Blocking> Drop for StubFile<D> {
    fn drop(&mut self) {
        if let Some(stub) = self.stub.take() {
            self.volume.closed(self, stub);
        }
    }
}

impl<D: Blocking> Blocking for StubFile<D> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, target: &mut [u8], len: usize, offset: u64) -> Result<usize, IoError> {
        let pieces = {
            let state = locks::lock(&self.stub().state);
            let end = at(offset, len).min(state.len);
            state.pieces(offset.min(end)..end)
        };
        let mut done = 0;
        for (place, len) in pieces {
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            let target = &mut target[done..done + len];
            let read = self.volume.device.read(target, len, place);
            let n = read.map_err(|e| self.on_device(e, place))?;
            done += n;
            if n < len {
                let text = format!("the device ends at {}", at(place, n));
                let kind = IoErrorKind::MediaError;
                return Err(IoError::new(kind, IoOp::Read, &self.path, text));
            }
        }
        Ok(done)
    }

    fn write(&self, bufs: &[&Bytes], offset: u64) -> (usize, Result<(), IoError>) {
        if let Err(error) = self.must_be_writable(IoOp::Write) {
            return (0, Err(error));
        }
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        if len == 0 {
            return (0, Ok(()));
        }
        let _turn = locks::lock(&self.stub().changing);
        let failed = self.volume.flushes.failed.load(Ordering::Acquire);
        let pieces = match self.prepare(offset..at(offset, len)) {
            Ok(pieces) => pieces,
            Err(error) => return (0, Err(error)),
        };
        let (count, result) = self.write_pieces(bufs, &pieces);
        if count == 0 {
            return (0, result);
        }
        match self.written(at(offset, count), failed) {
            Ok(()) => (count, result),
            Err(error) => (0, Err(error)),
        }
    }

    fn stream(&self, _op: IoOp, offset: u64, _len: usize) -> Option<Stream> {
        let id = self.stub().place.load(Ordering::Relaxed);
        self.volume.own_disk.then_some(Stream { id, offset })
    }

    fn allocate(&self, len: u64) -> Result<(), IoError> {
        self.must_be_writable(IoOp::Allocate)?;
        self.reserve(&mut locks::lock(&self.stub().state), len, 0)
    }

    fn truncate(&self, len: u64) -> Result<(), IoError> {
        self.must_be_writable(IoOp::Truncate)?;
        let _turn = locks::lock(&self.stub().changing);
        let failed = self.volume.flushes.failed.load(Ordering::Acquire);
        let mut state = locks::lock(&self.stub().state);
        if len <= state.len {
            return self.cut(&mut state, len);
        }
        self.reserve(&mut state, len, 0)?;
        let from = state.len;
        self.zero(&state, from, len)?;
        drop(state);
        self.written(len, failed)
    }

    fn sync(&self, _kind: SyncKind) -> Result<(), IoError> {
        let (since, writes) = {
            let state = locks::lock(&self.stub().state);
            (state.dirty_since, state.writes)
        };
        if let Some(since) = since {
            self.volume.flush()?;
            if self.volume.flushes.failed.load(Ordering::Acquire) != since {
                let text = "a flush failed since it was written: bytes of it may be lost";
                let kind = IoErrorKind::MediaError;
                return Err(IoError::new(kind, IoOp::Sync, &self.path, text));
            }
        }
        // The attribute must be durable too, which fdatasync does not promise.
        fsync(&self.file).map_err(|e| self.failed(IoOp::Sync, e))?;
        let mut state = locks::lock(&self.stub().state);
        if state.writes == writes {
            state.dirty_since = None;
        }
        Ok(())
    }

    fn length(&self) -> Result<u64, IoError> {
        Ok(locks::lock(&self.stub().state).len)
    }
}
