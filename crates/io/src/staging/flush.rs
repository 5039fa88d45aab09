//! From segments to files.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join;

use super::file::{Held, SEGMENT, StagedFile, State};
use super::layout::SEGMENT_BYTES;
use crate::engine::SyncKind;
use crate::error::{IoError, IoOp};

/// Writes begin on a multiple of this where bytes before are still in the segment: what was written before is
/// written again rather than read and merged by the engine.
const ALIGN: usize = 4096;

/// How often a failed write is tried again when the writer has gone: a full disk may have room later.
const RETRY: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5000 });

/// One write: whole segments, or all that there is.
#[derive(Debug)]
pub(super) struct Job {
    offset: u64,
    pieces: Vec<Bytes>,
    side_offset: u64,
    side: Vec<u8>,
    /// A unit on the disk is replaced: the bytes that the new one covers go first.
    replaces: bool,
    /// They even have to be on the device first.
    guard: bool,
    /// Segments and how far they are written afterwards.
    ends: Vec<(u64, usize)>,
}

/// A write in progress. Whoever waits for it is told when the runtime that looks after it ends before it does.
struct InProgress {
    file: Arc<StagedFile>,
    /// As in [`Job`]; none once the end was told.
    ends: Option<Vec<(u64, usize)>>,
}

impl InProgress {
    fn end(mut self, error: Option<IoError>) {
        if let Some(ends) = self.ends.take() {
            self.file.finish(&ends, error);
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        if let Some(ends) = self.ends.take() {
            let error = self
                .file
                .closed("whoever looked after a write has ended before it did");
            self.file.finish(&ends, Some(error));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Take {
    /// Full segments, when there are as many bytes of them.
    Full(usize),
    /// Everything.
    All,
}

impl StagedFile {
    /// Begins no write because a quantum has come together until [`let_go`](Self::let_go): something is to happen
    /// to the file first that waits for writes in progress, such as the reservation of room. Everything else writes
    /// all the same: a flush, a file that is idle, somebody who waits for segments, and a file that has gathered what it
    /// may.
    pub fn hold(&self) {
        self.lock().held = true;
    }

    /// Ends [`hold`](Self::hold).
    pub fn let_go(&self) {
        self.lock().held = false;
        self.write_behind();
    }

    /// Starts writing what has become a quantum. Called after every commit; cheap when nothing is due.
    pub(super) fn write_behind(&self) {
        loop {
            let job = {
                let mut state = self.lock();
                if state.held && !self.has_gathered_all(&state) {
                    return;
                }
                let least = self.worth_writing(&state);
                self.take_job(&mut state, Take::Full(least))
            };
            let Some(job) = job else { return };
            self.start(job);
        }
    }

    /// Starts writing whatever segments are full; whether there was one.
    pub(super) fn write_full(&self) -> bool {
        let job = self.take_job(&mut self.lock(), Take::Full(SEGMENT_BYTES));
        let any = job.is_some();
        if let Some(job) = job {
            self.start(job);
        }
        any
    }

    /// The next write that is not in progress yet, at most of [`write_now`](Self::write_now).
    fn take_job(&self, state: &mut State, take: Take) -> Option<Job> {
        if state.closed
            || state.jobs >= self.jobs_max()
            || state.error.is_some()
            || self.shared.area.is_frozen()
        {
            return None;
        }
        let due = |s: &Held| {
            !s.busy && s.written < s.end && (take == Take::All || s.end == SEGMENT_BYTES)
        };
        let first = state.segments.iter().position(due)?;
        let write = self.write_now();
        let mut count = 0;
        let mut next_base = state.segments[first].base;
        for held in state.segments.iter().skip(first) {
            // Only the first may be written in part: a unit on the disk is replaced in order.
            let in_part = count > 0 && held.written != held.start;
            let long = count * SEGMENT_BYTES >= write;
            if !due(held) || held.base != next_base || in_part || long {
                break;
            }
            count += 1;
            next_base += SEGMENT;
        }
        if let Take::Full(least) = take
            && count * SEGMENT_BYTES < least
        {
            return None;
        }
        Some(self.make_job(state, first, count))
    }

    fn make_job(&self, state: &mut State, first: usize, count: usize) -> Job {
        let (shape, grain) = (self.shape, self.shape.grain());
        let lead = &state.segments[first];
        let written = lead.base + lead.written as u64;
        let replaces = !written.is_multiple_of(grain);
        let from = lead.start.max(lead.written - lead.written % ALIGN);
        let mut job = Job {
            offset: lead.base + from as u64,
            pieces: Vec::with_capacity(count),
            side_offset: shape.offset(written),
            side: Vec::new(),
            replaces,
            guard: replaces && written - written % grain < state.synced,
            ends: Vec::with_capacity(count),
        };
        for (n, held) in state
            .segments
            .iter_mut()
            .skip(first)
            .take(count)
            .enumerate()
        {
            let begin = if n == 0 { from } else { held.start };
            job.pieces.push(held.memory.share(begin..held.end));
            if shape.unit > 0 {
                let since = if n == 0 {
                    written
                } else {
                    held.base + held.start as u64
                };
                let last = held.base + held.end as u64 - 1;
                let end = held.side_place(shape, last) + shape.unit as usize;
                job.side
                    .extend(held.memory.side(held.side_place(shape, since)..end));
            }
            job.ends.push((held.base, held.end));
            held.busy = true;
        }
        state.jobs += 1;
        self.shared.jobs.fetch_add(1, Ordering::Relaxed);
        job
    }

    /// Runs a write to its end, whoever waits for it.
    fn start(&self, mut job: Job) {
        let Some(this) = self.me.upgrade() else {
            return;
        };
        let in_progress = InProgress {
            file: Arc::clone(&this),
            ends: Some(std::mem::take(&mut job.ends)),
        };
        // On the thread of whoever commits, where there is a runtime: he looks at what it frees.
        let here = tokio::runtime::Handle::try_current();
        let runtime = here.as_ref().unwrap_or(&self.shared.runtime);
        runtime.spawn(async move {
            let Job {
                offset,
                pieces,
                side_offset,
                side: bytes,
                replaces,
                guard,
                ends: _,
            } = job;
            let len: usize = pieces.iter().map(Bytes::len).sum();
            let main = this.main.write_at(pieces, offset);
            let side = |bytes: Vec<u8>| this.side.write_at(vec![bytes.into()], side_offset);
            let written = if this.shape.unit == 0 {
                main.await.result
            } else if replaces {
                let mut written = main.await.result;
                if guard && written.is_ok() {
                    let covered = in_progress
                        .ends
                        .as_deref()
                        .and_then(|ends| this.covered_by_sync(ends));
                    written = this.main.sync(SyncKind::Data).await.and(written);
                    if let (Some(covered), Ok(_)) = (covered, &written) {
                        let mut state = this.lock();
                        state.main_synced = state.main_synced.max(covered);
                    }
                }
                match written {
                    Ok(_) => side(bytes).await.result,
                    Err(e) => Err(e),
                }
            } else {
                let (main, side) = join(main, side(bytes)).await;
                main.result.and(side.result)
            };
            let error = written.err();
            let behind = this.behind.get().filter(|_| error.is_none());
            in_progress.end(error);
            if let Some(behind) = behind {
                behind.written(&*this.main, offset + len as u64).await;
            }
        });
    }

    /// Takes note of a write that has ended.
    fn finish(&self, ends: &[(u64, usize)], error: Option<IoError>) {
        {
            let mut state = self.lock();
            state.jobs -= 1;
            self.shared.jobs.fetch_sub(1, Ordering::Relaxed);
            for held in state.segments.iter_mut() {
                let Some((_, end)) = ends.iter().find(|(base, _)| *base == held.base) else {
                    continue;
                };
                held.busy = false;
                if error.is_none() {
                    held.written = *end;
                }
            }
            if let Some(error) = error {
                state.sync_failed |= error.op() == IoOp::Sync;
                state.retry_at = Instant::now() + RETRY;
                state.error.get_or_insert(error);
            } else {
                let short = self.shared.area.is_short();
                self.release_written(&mut state, short);
            }
        }
        self.progress.notify_waiters();
        self.write_behind();
    }

    /// Writes everything that is committed now to the files and waits for it. The files are not synced.
    ///
    /// # Errors
    /// Of a write, now or earlier; the bytes stay in segments. `Closed` when they were given up.
    pub async fn flush(&self) -> Result<(), IoError> {
        let target = self.committed();
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            let job = {
                let mut state = self.lock();
                self.alive(&state)?;
                let behind = |s: &Held| {
                    let end = s.base + s.end as u64;
                    s.base + (s.written as u64) < end.min(target)
                };
                if state.discarded {
                    return Err(self.closed("its bytes were given up"));
                }
                if !state.segments.iter().any(behind) {
                    return Ok(());
                }
                if state.closed {
                    return Err(self.closed("the staged file is closed"));
                }
                self.take_job(&mut state, Take::All)
            };
            match job {
                Some(job) => self.start(job),
                None => progress.await,
            }
        }
    }

    /// How far the main file is written when it is synced now, by the write that ends at `ends`: known when
    /// that is the only one and nothing before it is missing.
    fn covered_by_sync(&self, ends: &[(u64, usize)]) -> Option<u64> {
        let state = self.lock();
        let (first, last) = (ends.first()?, ends.last()?);
        let complete = state
            .segments
            .iter()
            .take_while(|s| s.base < first.0)
            .all(|s| s.written == s.end);
        (complete && state.jobs == 1).then(|| last.0 + last.1 as u64)
    }

    /// Main bytes below are on the device: a sync that was needed on the way covers them.
    #[must_use]
    pub fn main_synced(&self) -> u64 {
        self.lock().main_synced
    }

    /// Everything below `len` was synced in both files.
    pub fn note_synced(&self, len: u64) {
        let mut state = self.lock();
        state.synced = state.synced.max(len);
    }

    /// Writes everything, waits until nothing is in progress, and takes nothing any more; the files have what was
    /// committed, and their names may change. After a failed write this tries once more.
    ///
    /// # Errors
    /// Of a write; the bytes stay in segments, and this can be called again.
    pub async fn close(&self) -> Result<(), IoError> {
        self.settled().await;
        {
            let mut state = self.lock();
            state.error = None;
            state.closed = state.discarded;
        }
        loop {
            let flushed = self.flush().await;
            self.settled().await;
            flushed?;
            let mut state = self.lock();
            self.alive(&state)?;
            if state.segments.iter().any(|held| held.written != held.end) {
                continue; // Somebody has committed more meanwhile.
            }
            state.closed = true;
            state.spare.clear();
            self.release(&mut state, |_| true);
            self.uncount(&mut state);
            return Ok(());
        }
    }

    /// Takes nothing any more, begins no more writes, and waits for those in progress. What is not in the files
    /// stays in its segments, for [`discard`](Self::discard) or [`close`](Self::close).
    pub async fn stop(&self) {
        self.lock().closed = true;
        self.settled().await;
    }

    /// Waits until no write is in progress.
    async fn settled(&self) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            if self.lock().jobs == 0 {
                return;
            }
            progress.await;
        }
    }

    /// Called every now and then: what was committed some time ago is written and its segments are freed.
    pub(super) fn sweep(&self, idle: Duration) {
        self.write_behind();
        if self.idle_for() < idle {
            return;
        }
        let job = {
            let mut state = self.lock();
            state.spare.clear();
            // A writer who is still there learns of the error; without one nobody else would free these segments.
            if state.sealed && state.jobs == 0 && Instant::now() >= state.retry_at {
                state.error = None;
            }
            self.release_written(&mut state, true);
            self.take_job(&mut state, Take::All)
        };
        if let Some(job) = job {
            self.start(job);
        }
    }

    /// Frees segments whose bytes are in the file: full ones, and the others too when `all`, as far as nothing is
    /// being received into them, or was and may still be committed.
    fn release_written(&self, state: &mut State, all: bool) {
        let over = state.sealed || state.frontier == state.committed;
        let quiet = all && !state.reserved && over;
        self.release(state, |held| {
            let done = !held.busy && held.written == held.end;
            done && (held.end == SEGMENT_BYTES || quiet)
        });
    }
}
