//! Who shares the area, how much of a file is written at a time, and how much of it may wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::select;

use super::Shared;
use super::file::{SEGMENT, StagedFile, State};
use super::layout::SEGMENT_BYTES;
use crate::error::IoError;

/// Quanta that a file may always gather: one is on its way to the disk while the other fills.
pub const QUANTA: usize = 2;

/// What has to be waited for.
enum Wait {
    /// A write in progress.
    Write,
    /// The same, or more memory than is needed, which somebody finds when there is time.
    WriteOrMore,
    /// Memory for so many segments.
    Memory(usize),
}

impl Shared {
    /// Counts the files anew.
    pub(super) fn count(&self, files: &[Arc<StagedFile>]) {
        let (mut active, mut sealed) = (0, 0);
        for file in files {
            let (is_active, is_sealed) = file.count();
            active += usize::from(is_active);
            sealed += usize::from(is_active && is_sealed);
        }
        self.active.store(active, Ordering::Relaxed);
        self.sealed_files.store(sealed, Ordering::Relaxed);
    }

    /// A quantum of each file if all gather as much as they may. An eighth of the area is left for what they are
    /// receiving: a stream that finds no segment free receives elsewhere, and copies.
    pub(super) fn fair_share(&self) -> usize {
        let files = self.active.load(Ordering::Relaxed).max(1);
        self.shared_by_all() * SEGMENT_BYTES / files / QUANTA
    }

    /// Bytes of each file that grows if all gather as much as is left beside those that are on their way only.
    pub(super) fn burst_share(&self) -> usize {
        let [active, ended, sealed] =
            [&self.active, &self.sealed_files, &self.sealed].map(|n| n.load(Ordering::Relaxed));
        let files = active.saturating_sub(ended).max(1);
        self.shared_by_all().saturating_sub(sealed) * SEGMENT_BYTES / files
    }

    fn shared_by_all(&self) -> usize {
        let segments = self.area.segments_there();
        segments - segments / 8
    }

    /// A file that was counted has ended.
    pub(super) fn one_less(&self, sealed: bool) {
        let less = |counter: &AtomicUsize| {
            let less = |n: usize| Some(n.saturating_sub(1));
            let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        };
        less(&self.active);
        if sealed {
            less(&self.sealed_files);
        }
    }
}

impl StagedFile {
    /// Whether any segment is its own, and whether it takes no more; one that has none is left out of account from now on.
    pub(super) fn count(&self) -> (bool, bool) {
        let mut state = self.lock();
        state.counted = !state.segments.is_empty();
        (state.counted, state.sealed)
    }

    /// Takes nothing from now on: what is left is only on its way to the files, and leaves all of the rest of the area to
    /// those that grow.
    pub fn seal(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.sealed, true) {
            let n = state.segments.len();
            self.shared.sealed.fetch_add(n, Ordering::Relaxed);
            if state.counted {
                self.shared.sealed_files.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Leaves the file out of account: it has ended.
    pub(super) fn uncount(&self, state: &mut State) {
        if std::mem::take(&mut state.counted) {
            self.shared.one_less(state.sealed);
        }
    }

    /// The quantum: less when the budget is shared by many.
    fn quantum_now(&self) -> usize {
        let share = self.shared.fair_share();
        self.quantum.min(share).max(SEGMENT_BYTES)
    }

    /// Bytes to write in one go.
    pub(super) fn write_now(&self) -> usize {
        (self.quantum_now() / self.cuts).max(SEGMENT_BYTES)
    }

    /// Writes of the file in progress at the same time: one more than a quantum has, for the next to be there when
    /// one ends. Their order does not matter: until all have returned, what they write is in segments too.
    pub(super) fn jobs_max(&self) -> usize {
        self.cuts + 1
    }

    /// Full segments that are worth a write now, in bytes.
    pub(super) fn worth_writing(&self, state: &State) -> usize {
        let write = self.write_now();
        let free = || self.while_idle.as_ref().is_none_or(|disk| disk.is_idle());
        if state.jobs == 0 && free() {
            self.eager.min(write)
        } else {
            write
        }
    }

    /// What whoever brings bytes that need `n` more segments waits for. For a write in progress, when the file has
    /// gathered what it may, or has two quanta and more would take memory that has to be found first. For that memory, when
    /// the file needs it: somebody finds it, or says that there is none, whatever the file does. Hence nobody waits for
    /// what nobody does.
    fn wait_for(&self, state: &State, n: usize) -> Option<Wait> {
        if state.error.is_some() || state.closed {
            return None;
        }
        let area = &self.shared.area;
        let held = state.segments.len() * SEGMENT_BYTES;
        if state.jobs > 0 && held >= QUANTA * self.quantum_now() {
            if self.has_gathered_all(state) {
                return Some(Wait::Write);
            }
            if n > 0 && !area.has_spare_memory(n) {
                return Some(Wait::WriteOrMore);
            }
        }
        (n > 0 && area.lacks_memory(n)).then_some(Wait::Memory(n))
    }

    /// Bytes that the file may gather while they are written.
    fn may_gather(&self) -> usize {
        let quanta = QUANTA * self.quantum_now();
        if self.burst {
            quanta.max(self.shared.burst_share())
        } else {
            quanta
        }
    }

    /// Whether it may gather no more before some of it is written.
    pub(super) fn has_gathered_all(&self, state: &State) -> bool {
        state.segments.len() * SEGMENT_BYTES >= self.may_gather()
    }

    /// Whether whoever brings bytes that need `n` more segments waits.
    pub(super) fn is_full(&self, state: &State, n: usize) -> bool {
        self.wait_for(state, n).is_some()
    }

    /// Waits while the file [is full](Self::is_full); `needs` says how many segments are needed.
    pub(super) async fn not_full(&self, needs: impl Fn(&State) -> usize) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            let mut changed = std::pin::pin!(self.shared.area.changed.notified());
            changed.as_mut().enable();
            let wait = {
                let state = self.lock();
                self.wait_for(&state, needs(&state))
            };
            match wait {
                None => return,
                Some(Wait::Write) => progress.await,
                Some(Wait::WriteOrMore) => {
                    self.shared.area.ask_ahead();
                    select(progress, changed).await;
                }
                Some(Wait::Memory(n)) => {
                    self.shared.area.ask(n);
                    select(progress, changed).await;
                }
            }
        }
    }

    /// Where the segments that it has end.
    pub(super) fn covered(state: &State) -> u64 {
        let last = state.segments.back().map(|s| s.base + SEGMENT);
        // A last segment that was written and given back leaves a frontier in the middle of its range.
        last.map_or(state.frontier, |end| end.max(state.frontier))
    }

    /// Segments that [`ROOM_MAX`](super::ROOM_MAX) more bytes need.
    pub(super) fn needs(&self, state: &State) -> usize {
        let end = state.frontier.saturating_add(super::ROOM_MAX as u64);
        segments_between(Self::covered(state), end).saturating_sub(state.spare.len())
    }

    /// Waits until there are segments for `bytes` more, which the next [`try_append`](Self::try_append) uses. Bytes
    /// that were received in place must have been appended before: nobody may wait with segments that only
    /// he can free.
    ///
    /// # Errors
    /// The error of an earlier write; `Closed`; `Invalid` above [`ROOM_MAX`](super::ROOM_MAX).
    pub async fn make_room(&self, bytes: usize) -> Result<(), IoError> {
        if bytes > super::ROOM_MAX {
            return Err(self.invalid(format!("room for {bytes} bytes at once")));
        }
        self.usable(&self.lock())?;
        // One more for bytes that begin inside a segment.
        let count = bytes.div_ceil(SEGMENT_BYTES) + 1;
        self.not_full(|_| count).await;
        let segments = self.shared.area.take(count).await?;
        let mut state = self.lock();
        self.usable(&state)?;
        state.spare = segments;
        Ok(())
    }
}

/// Segments that the bytes from `from` to `end` touch.
pub(super) fn segments_between(from: u64, end: u64) -> usize {
    if end <= from {
        return 0;
    }
    usize::try_from(end.div_ceil(SEGMENT) - from / SEGMENT).unwrap_or(usize::MAX)
}
