//! The writes of one handle: one thread at a time carries them out, in order of submission, and
//! joins adjacent ones.
//!
//! The kernel lets only one write to a file at a time anyway. A stream of small writes pays for one
//! hand-over as long as the thread is behind.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::whole_transfers::at;
use crate::blocking_engine::Blocking;
use crate::class::IoClass;
use crate::disk::{Aside, DataLane, Place, Request};
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::locks;
use crate::types::Completion;

/// A writer gives its thread to others after this many bytes, when more is waiting.
const WRITE_TURN_BYTES: usize = 8 << 20;

/// Adjacent writes that are waiting are joined up to this many bytes and buffers.
const JOIN_BYTES: usize = 4 << 20;
const JOIN_BUFFERS: usize = 1024;

/// A write that waits for its turn.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) bufs: Vec<Bytes>,
    pub(super) offset: u64,
    /// The sum of the lengths of `bufs`.
    pub(super) len: usize,
    pub(super) tell: oneshot::Sender<Completion<Vec<Bytes>>>,
    pub(super) place: Place,
}

impl Write {
    fn finish(self, result: Result<usize, IoError>) {
        let Self {
            bufs, tell, place, ..
        } = self;
        drop(place);
        // The caller may have gone away; the buffers are dropped here then.
        let _ = tell.send(Completion { buf: bufs, result });
    }
}

#[derive(Debug, Default)]
struct Waiting {
    writes: VecDeque<Write>,
    /// A thread has, or will get, the job of emptying `writes`.
    active: bool,
}

impl Waiting {
    /// Puts writes back to the front.
    fn put_back(&mut self, writes: Vec<Write>) {
        for write in writes.into_iter().rev() {
            self.writes.push_front(write);
        }
    }

    /// The first waiting write and those that continue it.
    fn next_batch(&mut self) -> Vec<Write> {
        let Some(first) = self.writes.pop_front() else {
            return Vec::new();
        };
        let mut end = at(first.offset, first.len);
        let (mut bytes, mut buffers) = (first.len, first.bufs.len());
        let mut batch = vec![first];
        while let Some(next) = self.writes.front() {
            bytes = bytes.saturating_add(next.len);
            buffers += next.bufs.len();
            if next.offset != end || bytes > JOIN_BYTES || buffers > JOIN_BUFFERS {
                break;
            }
            end = at(next.offset, next.len);
            batch.extend(self.writes.pop_front());
        }
        batch
    }
}

/// See the [module](self).
pub(super) struct WriteQueue<B: Blocking> {
    pub(super) file: Arc<Aside<B>>,
    pub(super) class: IoClass,
    lane: Arc<DataLane>,
    waiting: Mutex<Waiting>,
}

/// When a write panics, those waiting behind it are given up (their callers see `Closed`) rather
/// than left without a thread.
struct GiveUpOnPanic<'a>(&'a Mutex<Waiting>);

impl Drop for GiveUpOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *locks::lock(self.0) = Waiting::default();
        }
    }
}

impl<B: Blocking> WriteQueue<B> {
    /// No writes yet.
    pub(super) fn new(file: Arc<Aside<B>>, lane: &Arc<DataLane>, class: IoClass) -> Self {
        Self {
            file,
            class,
            lane: Arc::clone(lane),
            waiting: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        locks::lock(&self.waiting)
    }

    /// Queues a write whose range was checked.
    pub(super) fn push(self: &Arc<Self>, write: Write) {
        let next = (write.offset, write.len);
        let mut waiting = self.lock();
        waiting.writes.push_back(write);
        let active = std::mem::replace(&mut waiting.active, true);
        drop(waiting);
        if !active {
            self.queue_turn(next);
        }
    }

    /// Queues a turn of writing, which begins with so many bytes at an offset.
    fn queue_turn(self: &Arc<Self>, (offset, len): (u64, usize)) {
        let request = Request {
            class: self.class,
            stream: self.file.stream(IoOp::Write, offset, len),
            bytes: at(0, len),
        };
        let queue = Arc::clone(self);
        let turn = move || at(0, queue.turn());
        self.lane.push_or_hold(request, Box::new(turn));
    }

    /// Empties the queue, at most a turn's worth, then queues another turn; gives the bytes it was
    /// asked to write.
    fn turn(self: &Arc<Self>) -> usize {
        let _guard = GiveUpOnPanic(&self.waiting);
        let mut turn = 0_usize;
        let next = loop {
            let batch = {
                let mut waiting = self.lock();
                let batch = waiting.next_batch();
                let Some(first) = batch.first() else {
                    waiting.active = false;
                    return turn;
                };
                if turn >= WRITE_TURN_BYTES {
                    let next = (first.offset, first.len);
                    waiting.put_back(batch);
                    break next;
                }
                batch
            };
            turn = turn.saturating_add(batch.iter().map(|w| w.len).sum());
            self.carry_out(batch);
        };
        self.queue_turn(next);
        turn
    }

    /// Carries out joined writes. The one that meets an error gets it; those behind it go back to
    /// the queue and are tried on their own.
    fn carry_out(&self, batch: Vec<Write>) {
        let offset = batch.first().map_or(0, |w| w.offset);
        let slices: Vec<&Bytes> = batch.iter().flat_map(|w| &w.bufs).collect();
        let (mut done, result) = self.file.write(&slices, offset);
        let mut rest = batch.into_iter();
        for write in rest.by_ref() {
            let len = write.len;
            if len <= done {
                done -= len;
                write.finish(Ok(len));
                continue;
            }
            let error = result.err().unwrap_or_else(|| {
                let what = "wrote less than asked, without an error";
                IoError::new(IoErrorKind::Other, IoOp::Write, self.file.path(), what)
            });
            write.finish(Err(error));
            break;
        }
        let behind: Vec<Write> = rest.collect();
        if !behind.is_empty() {
            self.lock().put_back(behind);
        }
    }
}
