//! Where the packets of a block being received go: the replica's writer, and what waits for it.
//!
//! A packet counts as written when its data and checksums are in the replica's files, in the page
//! cache or on the device. Writes clock themselves. One is begun when a write buffer is full, or
//! when the socket has nothing more and no write of the block is under way. A stream whose sender
//! has more under way than was received gathers for a moment longer.
//!
//! Nothing here has a task of its own but the completion of a replica, which is carried out and
//! reported whatever becomes of the connection. A write in progress holds the right to the replica
//! until it is over; the store sees to that. So its next writer never meets it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hayloft_io::{CacheHints, WriteBuffers};
use hayloft_store::{Due, ReplicaWriter, StoreError, StoreErrorKind};
use hayloft_wire::ids::ExtendedBlock;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::Instrument as _;

use crate::xceiver::block_receiver::completion::{End, Finish, complete_replica};
use crate::xceiver::block_receiver::when_to_write::Gathering;
use crate::xceiver::block_receiver::write_counts::{self, DiskClock};
use crate::xceiver::context::Xceivers;
use crate::xceiver::packet::PacketBatch;

/// Bytes that may wait for the disk, once there is a batch: more than the usual client has under
/// way.
const WAITING_BYTES: u64 = 8 << 20;

/// Batches that may wait for the disk.
const WAITING_RUNS: usize = 256;

/// When a replica whose last packet is written is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompleteWhen {
    /// At once: there is no mirror.
    Written,
    /// When [`ReplicaSink::allow`] says that every node behind has acknowledged the last packet.
    /// Until then the replica is one being written, which a recovery of the pipeline or of the
    /// block may still change.
    Allowed,
}

/// A block's writer with what waits for it. Polled by the task that receives.
pub struct ReplicaSink {
    x: Xceivers,
    /// Bytes of the replica that were there before.
    began_at: u64,
    finish: Finish,
    /// The replica may be completed once its last packet is written.
    allowed: bool,
    cancel: CancellationToken,
    work: Work,
    /// Batches that the writer was not there for.
    held: VecDeque<PacketBatch>,
    /// Batches that the writer has accepted, in order of arrival.
    waiting: VecDeque<Waiting>,
    /// Packets whose data is as durable as they asked for, in order of arrival.
    written: u64,
    /// The last packet is among them.
    all_written: bool,
    gathering: Gathering,
    /// What the disk does.
    clock: DiskClock,
    /// Bytes of the replica of which the clock was told.
    counted: u64,
    end: Option<End>,
}

enum Work {
    /// The writer is here; a write may be under way.
    Open(Box<ReplicaWriter>),
    /// A sync in progress.
    Syncing(BoxFuture<'static, (Box<ReplicaWriter>, Result<(), StoreError>)>),
    /// The completion in progress.
    Completing(JoinHandle<End>),
    /// The writer is gone; [`ReplicaSink::end`] says why.
    Over,
}

/// A batch that is written when the replica's files end behind it.
struct Waiting {
    /// Offset in the block.
    end: u64,
    packets: u64,
    sync: bool,
    last: bool,
    /// Of the batch: to be kept as long as its data.
    _token: Arc<()>,
}

impl ReplicaSink {
    /// Takes the writer over.
    #[must_use]
    pub fn new(
        x: &Xceivers,
        mut writer: ReplicaWriter,
        finish: Finish,
        when: CompleteWhen,
        cache: CacheHints,
    ) -> Self {
        writer.set_cache_hints(cache);
        let began_at = writer.bytes_on_disk();
        Self {
            x: x.clone(),
            began_at,
            counted: began_at,
            finish,
            allowed: when == CompleteWhen::Written,
            cancel: writer.cancel_token(),
            work: Work::Open(Box::new(writer)),
            held: VecDeque::new(),
            waiting: VecDeque::new(),
            written: 0,
            all_written: false,
            gathering: Gathering::default(),
            clock: DiskClock::default(),
            end: None,
        }
    }

    /// Packets whose data is as durable as they asked for, in order of arrival.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// How the block ended.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The block as it was completed, and how long the disk was busy with it.
    #[must_use]
    pub fn record(&self) -> (Option<ExtendedBlock>, Duration) {
        let block = match &self.end {
            Some(End::Done(block)) => Some(block.clone()),
            _ => None,
        };
        (block, self.clock.busy())
    }

    /// Memory to receive data in, where that saves a copy.
    #[must_use]
    pub fn receive_buffers(&self) -> Option<WriteBuffers> {
        match &self.work {
            Work::Open(writer) => writer.receive_buffers(),
            _ => None,
        }
    }

    /// Resolves when another writer wants the replica.
    pub fn cancelled(&self) -> WaitForCancellationFutureOwned {
        self.cancel.clone().cancelled_owned()
    }

    /// Every node behind has acknowledged the last packet: the replica may be completed.
    pub fn allow(&mut self) {
        self.allowed = true;
    }

    /// Whether a batch can be [pushed](Self::push) now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let held: u64 = self.held.iter().map(PacketBatch::data_len).sum();
        let unwritten = match &self.work {
            Work::Open(writer) => writer.received() - writer.bytes_on_disk(),
            _ => 0,
        };
        held + unwritten < WAITING_BYTES && self.held.len() + self.waiting.len() < WAITING_RUNS
    }

    /// The socket has nothing more now: what was received is written unless more is on its way.
    pub fn set_drained(&mut self, drained: bool) {
        self.gathering.drained = drained;
    }

    /// Takes a batch, in order. [`poll`](Self::poll) writes it.
    pub fn push(&mut self, run: PacketBatch) {
        if self.end.is_some() {
            return;
        }
        self.held.push_back(run);
        self.accept_held();
    }

    /// Hands what is held to the writer. Behind a packet that asked for a sync it waits for that.
    fn accept_held(&mut self) {
        while !self.waiting.back().is_some_and(|run| run.sync)
            && let Work::Open(writer) = &mut self.work
            && let Some(run) = self.held.pop_front()
        {
            let mut waiting = Waiting {
                end: 0,
                packets: run.packets.len() as u64,
                sync: false,
                last: false,
                _token: run.token,
            };
            let mut packets = Vec::with_capacity(run.packets.len());
            for packet in run.packets {
                waiting.sync |= packet.sync;
                waiting.last |= packet.last;
                packets.push(packet.body);
            }
            if let Err(error) = writer.accept(&packets) {
                return self.fail(error);
            }
            waiting.end = writer.received();
            self.gathering
                .received(writer.received() - writer.bytes_on_disk());
            self.waiting.push_back(waiting);
        }
    }

    /// Goes on as far as possible; true when something began or ended.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while self.step(cx) {
            moved = true;
        }
        moved
    }

    fn step(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.work {
            Work::Over => false,
            Work::Open(_) => self.step_open(cx),
            Work::Syncing(syncing) => {
                let Poll::Ready((writer, outcome)) = syncing.as_mut().poll(cx) else {
                    return false;
                };
                self.work = Work::Open(writer);
                match outcome {
                    Ok(()) => self.synced(),
                    Err(error) => self.fail(error),
                }
                true
            }
            Work::Completing(completing) => {
                let Poll::Ready(outcome) = Pin::new(completing).poll(cx) else {
                    return false;
                };
                self.work = Work::Over;
                self.clock.end();
                self.end = Some(outcome.unwrap_or_else(|error| {
                    let text = format!("the completion of a replica did not end: {error}");
                    End::Failed(Arc::new(StoreError::new(StoreErrorKind::Closed, text)))
                }));
                true
            }
        }
    }

    fn step_open(&mut self, cx: &mut Context<'_>) -> bool {
        let Work::Open(writer) = &mut self.work else {
            return false;
        };
        let waited_for = self.waiting.back().is_some_and(|run| run.sync || run.last);
        let crowded = self.held.len() + self.waiting.len() >= WAITING_RUNS;
        let due = if waited_for || crowded {
            Due::All
        } else if writer.is_writing() {
            Due::Full
        } else {
            self.gathering
                .due(cx, writer.received() - writer.bytes_on_disk())
        };
        if !writer.is_writing() {
            // A write may be over when it was begun.
            self.clock.begin();
        }
        let moved = match writer.poll_write(cx, due) {
            Ok(moved) => moved,
            Err(error) => {
                self.fail(error);
                return true;
            }
        };
        let now = writer.bytes_on_disk();
        // The task that writes may have ended before this turn.
        if now > self.counted {
            let work = write_counts::Work::Write(now - self.counted);
            self.counted = now;
            self.clock.end_of(work, &self.x, writer);
        }
        if moved && self.is_writing() {
            self.clock.begin();
        }
        self.note_written(now) || self.begin_next() || moved
    }

    fn is_writing(&self) -> bool {
        matches!(&self.work, Work::Open(writer) if writer.is_writing())
    }

    /// Counts the batches that are written up to `end`; not those that wait for a sync.
    fn note_written(&mut self, end: u64) -> bool {
        let before = self.written;
        while let Some(run) = self.waiting.front()
            && run.end <= end
            && !run.sync
        {
            // Rests on: data and checksums are in the replica's files.
            self.written += run.packets;
            self.all_written |= run.last;
            self.waiting.pop_front();
        }
        self.written > before
    }

    /// Begins a sync or the completion, when nothing is left to be written before.
    fn begin_next(&mut self) -> bool {
        if self.is_writing() {
            return false;
        }
        let sync = self.waiting.front().is_some_and(|run| run.sync);
        let complete = self.all_written && self.allowed;
        if !(sync || complete) {
            return false;
        }
        let Work::Open(mut writer) = std::mem::replace(&mut self.work, Work::Over) else {
            return false;
        };
        if complete {
            let added = writer.received().saturating_sub(self.began_at);
            self.clock.begin();
            let completing = complete_replica(self.x.clone(), *writer, self.finish.clone(), added);
            let completing = self.x.tasks().spawn(completing.in_current_span());
            self.work = Work::Completing(completing);
        } else {
            self.clock.begin();
            self.work = Work::Syncing(Box::pin(async move {
                let outcome = writer.sync().await;
                (writer, outcome)
            }));
        }
        true
    }

    fn synced(&mut self) {
        if let Work::Open(writer) = &self.work {
            self.clock.end_of(write_counts::Work::Sync, &self.x, writer);
        }
        // Only the last of them can have asked for it: what is behind is held.
        if let Some(run) = self.waiting.pop_front() {
            // Rests on: data and checksums are on the device.
            self.written += run.packets;
            if run.last {
                self.all_written = true;
                if let Work::Open(writer) = &mut self.work {
                    writer.finalize_durably();
                }
            }
        }
        self.accept_held();
    }

    /// The writer goes before its client learns of it: the next writer waits for this. A failed
    /// write makes the volume suspect.
    fn fail(&mut self, error: StoreError) {
        if let Work::Open(writer) = &self.work
            && matches!(
                error.kind(),
                StoreErrorKind::Io | StoreErrorKind::VolumeFailed
            )
        {
            tracing::warn!(
                block = %writer.block(), storage = %writer.storage().id, "cannot write: {error}"
            );
            self.x.store().check_volumes_soon();
        }
        self.work = Work::Over;
        self.held.clear();
        self.waiting.clear();
        self.end = Some(End::Failed(Arc::new(error)));
    }

    /// The connection is over: writes what was received, for a recovery to find, and lets go of the
    /// writer.
    pub fn abandon(mut self) {
        let idle = match &self.work {
            Work::Over | Work::Completing(_) => true,
            Work::Open(_) => self.waiting.is_empty() && self.held.is_empty(),
            Work::Syncing(_) => false,
        };
        if idle || self.cancel.is_cancelled() {
            return;
        }
        self.gathering = Gathering::ended();
        let (tasks, cancel) = (self.x.tasks().clone(), self.cancel.clone());
        tasks.spawn(async move {
            let rest = std::future::poll_fn(|cx| {
                self.poll(cx);
                let busy = self.is_writing() || matches!(self.work, Work::Syncing(_));
                if busy { Poll::Pending } else { Poll::Ready(()) }
            });
            tokio::select! {
                () = rest => {}
                () = cancel.cancelled() => {}
            }
        });
    }
}
