//! A main file and its side file on their way to the disk through segments.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;

use super::Shared;
use super::layout::{SEGMENT_BYTES, SIDE_BYTES, UNIT_MAX, paths_fit};
use super::segment::Segment;
use crate::behind::WriteBehind;
use crate::disk::Disk;
use crate::engine::EngineFile;
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::known::known;

/// Bytes of a segment, as offsets are counted.
pub(super) const SEGMENT: u64 = SEGMENT_BYTES as u64;

/// How side bytes follow from main bytes: every `grain` bytes of the main file, the last ones fewer, have `unit`
/// bytes in the side file, from `base` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideShape {
    /// Bytes of the main file that a unit belongs to.
    pub grain: u32,
    /// Side bytes per grain; 0: none.
    pub unit: u32,
    /// Offset of the first unit in the side file.
    pub base: u64,
}

impl SideShape {
    /// Whether files of this shape can be staged: grains must not straddle segments, and the side bytes of a
    /// segment have to fit into their place.
    #[must_use]
    pub fn fits(self) -> bool {
        let grain = self.grain as usize;
        grain > 0
            && SEGMENT_BYTES.is_multiple_of(grain)
            && self.unit as usize <= UNIT_MAX
            && (SEGMENT_BYTES / grain).saturating_mul(self.unit as usize) <= SIDE_BYTES
    }

    pub(super) fn grain(self) -> u64 {
        u64::from(self.grain)
    }

    /// Bytes of the units of `grains` grains; these are counted within a segment or a run.
    pub(super) fn units(self, grains: u64) -> usize {
        usize::try_from(grains).map_or(usize::MAX, |n| n.saturating_mul(self.unit as usize))
    }

    /// Where the unit of the grain that holds `offset` is.
    pub(super) fn offset(self, offset: u64) -> u64 {
        self.base
            .saturating_add((offset / self.grain()).saturating_mul(u64::from(self.unit)))
    }
}

/// What to stage.
#[derive(Debug)]
pub struct StageSpec {
    /// Main file, open for writing.
    pub main: Arc<dyn EngineFile>,
    /// Side file, open for writing.
    pub side: Arc<dyn EngineFile>,
    /// Side bytes.
    pub shape: SideShape,
    /// Bytes that both files have already.
    pub len: u64,
    /// Bytes that were promised to outlive power loss, at most: a unit that covers one of them is replaced on the
    /// device only after the bytes that its successor covers.
    pub synced: u64,
    /// Bytes written to the disk in one go while more is coming. The file gathers [`QUANTA`](super::QUANTA) of them at most, unless it
    /// may `burst`.
    pub quantum: usize,
    /// The file may gather more than its quanta while they are written, up to its fair share of the area, as long as there is
    /// memory that need not be found first: a burst is taken as fast as it comes, also where the disk is slower.
    pub burst: bool,
    /// Writes that a quantum is cut into, at least 1: several under way keep a disk busy that does not seek between them.
    pub cuts: usize,
    /// Bytes that are worth a write when none of the file is in progress: less than the quantum where a write
    /// costs no seek.
    pub eager: usize,
    /// `eager` counts only while this disk is idle, else the quantum; `None`: always.
    pub while_idle: Option<Arc<Disk>>,
}

/// A segment of a file. Places are relative to `base`, a multiple of the segment size.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) memory: Arc<Segment>,
    pub(super) base: u64,
    /// The first byte; the bytes before it are in the file.
    pub(super) start: usize,
    /// End of what is committed.
    pub(super) end: usize,
    /// End of what is in the file.
    pub(super) written: usize,
    /// A write of it is in progress.
    pub(super) busy: bool,
}

impl Held {
    /// Place of the unit of the grain at `offset` in the side region.
    pub(super) fn side_place(&self, shape: SideShape, offset: u64) -> usize {
        let first = (self.base + self.start as u64) / shape.grain();
        shape.units(offset / shape.grain() - first)
    }
}

#[derive(Debug)]
pub(super) struct State {
    /// In order of `base`, those that are in the file left out.
    pub(super) segments: VecDeque<Held>,
    /// Everything below outlives a killed process.
    pub(super) committed: u64,
    /// Everything below is in place: committed, or received and shared already.
    pub(super) frontier: u64,
    /// Segments that somebody waited for.
    pub(super) spare: Vec<Arc<Segment>>,
    /// Bytes are being received behind `frontier`.
    pub(super) reserved: bool,
    /// Writes in progress.
    pub(super) jobs: usize,
    pub(super) error: Option<IoError>,
    /// A sync on the way failed: whatever a later one says, bytes that were written before may not be on the device.
    pub(super) sync_failed: bool,
    /// When a failed write is tried again of a file that nobody appends to any more.
    pub(super) retry_at: Instant,
    pub(super) closed: bool,
    /// Nothing is written because a quantum is there.
    pub(super) held: bool,
    /// Committed bytes were given up.
    pub(super) discarded: bool,
    /// Nothing more comes: see [`StagedFile::seal`].
    pub(super) sealed: bool,
    /// It is one of those that the area is shared by.
    pub(super) counted: bool,
    pub(super) synced: u64,
    /// Main bytes below were written and synced on the way.
    pub(super) main_synced: u64,
    pub(super) last_commit: Instant,
}

/// A main file and its side file, whose newest bytes are in segments. Cheap to share.
///
/// **Committed** bytes outlive a killed process: they are in a segment whose record counts them, or in the file.
/// They reach the files in quanta while more comes, all of them by [`flush`](Self::flush) and after a second without
/// new ones. After a failed write nothing more is taken; what was committed stays in the segments.
///
/// **Drop** without [`close`](Self::close) or [`discard`](Self::discard) leaves what is not in the files to the next
/// process, and its segments out of use in this one.
pub struct StagedFile {
    pub(super) shared: Arc<Shared>,
    pub(super) main: Arc<dyn EngineFile>,
    pub(super) side: Arc<dyn EngineFile>,
    pub(super) shape: SideShape,
    pub(super) inode: u64,
    pub(super) quantum: usize,
    pub(super) burst: bool,
    pub(super) cuts: usize,
    pub(super) eager: usize,
    pub(super) while_idle: Option<Arc<Disk>>,
    pub(super) me: Weak<Self>,
    /// What happens to the page cache behind what is written; nothing while it is not set.
    pub(super) behind: OnceLock<Arc<WriteBehind>>,
    state: Mutex<State>,
    /// Told whenever a write ends.
    pub(super) progress: Notify,
}

/// Whether bytes were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "bytes that were not taken have to be offered again"]
pub enum Append {
    /// Committed: they outlive a killed process.
    Committed,
    /// Nothing was taken: no segments are free. See [`StagedFile::make_room`].
    NoRoom,
}

impl StagedFile {
    /// `None` when the file cannot be staged (shape, or paths too long).
    pub(super) fn new(shared: &Arc<Shared>, spec: StageSpec) -> Option<Arc<Self>> {
        let fits = paths_fit(spec.main.path(), spec.side.path());
        if !spec.shape.fits() || !fits || !spec.main.path().is_absolute() {
            return None;
        }
        let inode = spec
            .main
            .fd()
            .and_then(known)
            .map_or(0, |facts| facts.inode);
        Some(Arc::new_cyclic(|me| Self {
            shared: Arc::clone(shared),
            main: spec.main,
            side: spec.side,
            shape: spec.shape,
            inode,
            quantum: spec.quantum.max(SEGMENT_BYTES),
            burst: spec.burst,
            cuts: spec.cuts.max(1),
            while_idle: spec.while_idle,
            eager: spec
                .eager
                .clamp(SEGMENT_BYTES, spec.quantum.max(SEGMENT_BYTES)),
            me: me.clone(),
            behind: OnceLock::new(),
            state: Mutex::new(State {
                segments: VecDeque::new(),
                committed: spec.len,
                frontier: spec.len,
                spare: Vec::new(),
                reserved: false,
                jobs: 0,
                error: None,
                sync_failed: false,
                retry_at: Instant::now(),
                closed: false,
                held: false,
                discarded: false,
                sealed: false,
                counted: true,
                synced: spec.synced,
                main_synced: 0,
                last_commit: Instant::now(),
            }),
            progress: Notify::new(),
        }))
    }

    /// Has the page cache minded behind what is written from now on. Only the first call counts.
    pub fn mind_page_cache(&self, behind: &Arc<WriteBehind>) {
        let _ = self.behind.set(Arc::clone(behind));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that outlive a killed process.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.lock().committed
    }

    /// Bytes in segments that are not in the files yet.
    #[must_use]
    pub fn unwritten(&self) -> u64 {
        let state = self.lock();
        state
            .segments
            .iter()
            .map(|s| (s.end - s.written) as u64)
            .sum()
    }

    /// Bytes that the segments take which hold any that is not in the files yet: whole ones, however little is in them.
    #[must_use]
    pub fn memory_of_unwritten(&self) -> u64 {
        let state = self.lock();
        let unwritten = state.segments.iter().filter(|s| s.written < s.end);
        unwritten.count() as u64 * SEGMENT
    }

    /// Bytes of both files that are in segments only. Exact while no write is in progress.
    #[must_use]
    pub fn unwritten_of_both(&self) -> u64 {
        let state = self.lock();
        let units = |held: &Held, place: usize| {
            let grains = (held.base + place as u64).div_ceil(self.shape.grain());
            grains.saturating_mul(u64::from(self.shape.unit))
        };
        let missing = |s: &Held| {
            let side = units(s, s.end).saturating_sub(units(s, s.written));
            (s.end - s.written) as u64 + side
        };
        state.segments.iter().map(missing).sum()
    }

    /// Whether somebody has removed the area: what is committed from now on outlives a killed process only after the
    /// next [`flush`](Self::flush) or [`close`](Self::close). To be left as soon as possible.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.shared.area.is_lost()
    }

    /// As [`is_lost`](Self::is_lost), and looks before it answers, not every now and then: for what must not rest on an area
    /// that is gone. A few microseconds.
    #[must_use]
    pub fn is_lost_now(&self) -> bool {
        self.shared.area.watch_name();
        self.is_lost()
    }

    /// The write that failed, if one did: nothing more is taken.
    #[must_use]
    pub fn error(&self) -> Option<IoError> {
        self.lock().error.clone()
    }

    /// Whether a sync that was needed on the way failed: bytes that were written before may be lost with the power, also
    /// when a later sync succeeds (the kernel tells of a failure once).
    #[must_use]
    pub fn sync_failed(&self) -> bool {
        self.lock().sync_failed
    }

    /// Frees the segments of which `done` is true.
    pub(super) fn release(&self, state: &mut State, done: impl Fn(&Held) -> bool) {
        let before = state.segments.len();
        state.segments.retain(|held| {
            let done = done(held);
            if done {
                held.memory.release();
            }
            !done
        });
        if state.sealed {
            let freed = before - state.segments.len();
            self.shared.sealed.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Full segments that are not being written.
    pub(super) fn full_segments(&self) -> usize {
        let state = self.lock();
        let full = |s: &&Held| !s.busy && s.end == SEGMENT_BYTES;
        state.segments.iter().filter(full).count()
    }

    /// How long nothing was committed.
    pub(super) fn idle_for(&self) -> Duration {
        self.lock().last_commit.elapsed()
    }

    pub(super) fn invalid(&self, text: String) -> IoError {
        IoError::new(IoErrorKind::Invalid, IoOp::Write, self.main.path(), text)
    }

    pub(super) fn usable(&self, state: &State) -> Result<(), IoError> {
        self.alive(state)?;
        if state.closed || state.sealed {
            return Err(self.closed("the staged file is closed"));
        }
        Ok(())
    }

    /// No write has failed, and the area still counts.
    pub(super) fn alive(&self, state: &State) -> Result<(), IoError> {
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        if self.shared.area.is_frozen() {
            return Err(self.closed("staging has ended"));
        }
        Ok(())
    }

    pub(super) fn closed(&self, text: &str) -> IoError {
        IoError::new(IoErrorKind::Closed, IoOp::Write, self.main.path(), text)
    }

    /// Committed bytes of a range that are in segments, with their offsets, in order. What is not among them is
    /// in the file.
    pub(super) fn in_segments(&self, offset: u64, len: usize) -> Vec<(u64, Bytes)> {
        let end = offset.saturating_add(len as u64);
        let state = self.lock();
        let mut parts = Vec::new();
        for held in &state.segments {
            let from = offset.max(held.base + held.start as u64);
            let to = end.min(held.base + held.end as u64);
            if from < to {
                let place = |at: u64| usize::try_from(at - held.base).expect("in the segment");
                parts.push((from, held.memory.share(place(from)..place(to))));
            }
        }
        parts
    }

    /// As [`in_segments`](Self::in_segments), of the side file; offsets are those of the side file.
    pub(super) fn side_in_segments(&self, offset: u64, len: usize) -> Vec<(u64, Vec<u8>)> {
        let end = offset.saturating_add(len as u64);
        let state = self.lock();
        let mut parts = Vec::new();
        if self.shape.unit == 0 {
            return parts;
        }
        for held in state.segments.iter().filter(|s| s.end > s.start) {
            let first = self.shape.offset(held.base + held.start as u64);
            let last = held.base + held.end as u64 - 1;
            let behind = self.shape.offset(last) + u64::from(self.shape.unit);
            let (from, to) = (offset.max(first), end.min(behind));
            if from < to {
                let place = |at: u64| usize::try_from(at - first).expect("in the region");
                parts.push((from, held.memory.side(place(from)..place(to))));
            }
        }
        parts
    }

    /// Gives up what is not in the files: they were deleted, or their disk is lost.
    pub fn discard(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.discarded = true;
        state.spare.clear();
        self.release(&mut state, |_| true);
        self.uncount(&mut state);
        drop(state);
        self.progress.notify_waiters();
    }
}

/// The segment that covers `at`.
pub(super) fn find(segments: &VecDeque<Held>, at: u64) -> Option<&Held> {
    segments
        .iter()
        .rev()
        .find(|s| s.base + s.start as u64 <= at && at < s.base + SEGMENT)
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        let mut state = self.lock();
        self.release(&mut state, |held| held.written == held.end);
        self.uncount(&mut state);
    }
}

impl fmt::Debug for StagedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("StagedFile")
            .field("main", &self.main.path())
            .field("committed", &state.committed)
            .field("segments", &state.segments.len())
            .field("jobs", &state.jobs)
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}
