//! Where the packets of a block being received go: the replica's writer, and what waits for it.
//!
//! A packet counts as written when its data and checksums are in the replica's files, in the page
//! cache or on the device. Writes clock themselves: one is begun when a write buffer is full, or
//! when the socket has nothing more and no write of the block is under way. A stream whose sender
//! has more under way than was received gathers for a moment longer.
//!
//! Nothing here has a task of its own but the completion of a replica, which is carried out and
//! reported whatever becomes of the connection. A write in progress holds the right to the replica
//! until it is over (the store sees to that), so its next writer never meets it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use hayloft_io::{CacheHints, WRITE_BUFFER, WriteBuffers};
use hayloft_store::{
    Due, PacketData, Pieces, ReplicaRef, ReplicaWriter, StoreError, StoreErrorKind,
};
use hayloft_wire::checksum::DataChecksum;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::xceiver::context::Xceivers;
use crate::xceiver::packet::receiver::PacketBatch;

/// Bytes that may wait for the disk, once there is a run: more than the usual client has under way.
const WAITING_BYTES: u64 = 8 << 20;

/// Runs that may wait for the disk.
const WAITING_RUNS: usize = 256;

/// How long what was received may wait for more, where the sender is known to have more under way.
const GATHER: Duration = Duration::from_millis(1);

/// What a sender is taken to have under way before it is known, in bytes: the packets of a small
/// file are written together.
const WINDOW_MIN: u64 = 512 << 10;

/// Gatherings in vain after which a stream gathers no more.
const MISSES_MAX: u32 = 4;

/// What to do when the block is complete.
#[derive(Clone, Debug)]
pub enum Finish {
    /// Finalize and tell the NameNode, with a hint which replica may go.
    Report {
        /// Uuid of the node whose replica may be deleted.
        delete_hint: Option<String>,
        /// Done when the NameNode has heard, or after so long; zero does not wait.
        wait: Duration,
    },
    /// Finalize without telling: the client goes on with a new generation stamp.
    Quietly,
    /// Becomes a replica being written.
    ConvertToRbw,
}

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

/// How writing a block ended.
#[derive(Clone, Debug)]
pub enum End {
    /// Complete.
    Done(ReplicaRef),
    /// Cannot go on.
    Failed(Arc<StoreError>),
}

/// A block's writer with what waits for it. Polled by the task that receives.
pub struct ReplicaSink {
    x: Xceivers,
    checksum: DataChecksum,
    finish: Finish,
    /// The replica may be completed once its last packet is written.
    allowed: bool,
    cancel: CancellationToken,
    work: Work,
    /// Runs that the writer was not there for.
    held: VecDeque<PacketBatch>,
    /// Runs that the writer has accepted, in order of arrival.
    waiting: VecDeque<Waiting>,
    /// Packets whose data is as durable as they asked for, in order of arrival.
    written: u64,
    /// The last packet is among them.
    all_written: bool,
    gathering: Gathering,
    /// When the write under way began.
    began: Option<Instant>,
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

/// A run that is written when the replica's files end behind it.
struct Waiting {
    /// Offset in the block.
    end: u64,
    packets: u64,
    sync: bool,
    last: bool,
    /// Of the run: to be kept as long as its data.
    _token: Arc<()>,
}

impl ReplicaSink {
    /// Takes the writer over. `checksum` is what the packets carry.
    #[must_use]
    pub fn new(
        x: &Xceivers,
        mut writer: ReplicaWriter,
        checksum: DataChecksum,
        finish: Finish,
        when: CompleteWhen,
        cache: CacheHints,
    ) -> Self {
        writer.set_cache_hints(cache);
        Self {
            x: x.clone(),
            checksum,
            finish,
            allowed: when == CompleteWhen::Written,
            cancel: writer.cancel_token(),
            work: Work::Open(Box::new(writer)),
            held: VecDeque::new(),
            waiting: VecDeque::new(),
            written: 0,
            all_written: false,
            gathering: Gathering::default(),
            began: None,
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

    /// Memory to receive data in, where that saves a copy.
    #[must_use]
    pub fn landing(&self) -> Option<WriteBuffers> {
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

    /// Whether a run can be [pushed](Self::push) now.
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

    /// Takes a run, in order. [`poll`](Self::poll) writes it.
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
                waiting.sync |= packet.header.sync_block;
                waiting.last |= packet.header.last_packet_in_block;
                if packet.data.is_empty() {
                    continue;
                }
                let sums = if packet.sums.is_empty() {
                    computed_sums(self.checksum, &packet.data)
                } else {
                    packet.sums
                };
                packets.push(PacketData {
                    offset: packet.header.offset_in_block.unsigned_abs(),
                    data: packet.data,
                    sums,
                });
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
        let before = writer.bytes_on_disk();
        let moved = match writer.poll_write(cx, due) {
            Ok(moved) => moved,
            Err(error) => {
                self.fail(error);
                return true;
            }
        };
        let now = writer.bytes_on_disk();
        if now > before {
            self.x.stats().add_written(now - before);
            self.note_slow(now - before);
        }
        if moved {
            self.began = self.is_writing().then(Instant::now);
        }
        self.note_written(now) || self.begin_next() || moved
    }

    fn is_writing(&self) -> bool {
        matches!(&self.work, Work::Open(writer) if writer.is_writing())
    }

    /// Counts the runs that are written up to `end`; not those that wait for a sync.
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
            let completing = complete_replica(self.x.clone(), *writer, self.finish.clone());
            self.work = Work::Completing(self.x.tasks().spawn(completing));
        } else {
            self.began = Some(Instant::now());
            self.work = Work::Syncing(Box::pin(async move {
                let outcome = writer.sync().await;
                (writer, outcome)
            }));
        }
        true
    }

    fn synced(&mut self) {
        self.note_slow(0);
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

    fn note_slow(&mut self, bytes: u64) {
        let Some(took) = self.began.take().map(|began| began.elapsed()) else {
            return;
        };
        if let Work::Open(writer) = &self.work
            && took > self.x.settings().slow_io
        {
            tracing::warn!(
                block = %writer.block(), storage = %writer.storage().id, bytes,
                millis = took.as_millis(), "slow write to disk"
            );
        }
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
            tracing::warn!(block = %writer.block(), storage = %writer.storage().id, "cannot write: {error}");
            self.x.check_volumes_soon();
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

/// When less than a full buffer is written.
struct Gathering {
    /// The socket has nothing more now.
    drained: bool,
    /// Nothing more comes.
    ended: bool,
    /// The most bytes that were received and not written: the sender's window is at least so large.
    window: u64,
    /// Bytes that waited when the alarm was set.
    at_alarm: u64,
    alarm: Option<Pin<Box<Sleep>>>,
    /// The alarm is set.
    waiting: bool,
    misses: u32,
}

impl Default for Gathering {
    fn default() -> Self {
        Self {
            drained: false,
            ended: false,
            window: WINDOW_MIN,
            at_alarm: 0,
            alarm: None,
            waiting: false,
            misses: 0,
        }
    }
}

impl Gathering {
    fn ended() -> Self {
        Self {
            drained: true,
            ended: true,
            ..Self::default()
        }
    }

    fn received(&mut self, unwritten: u64) {
        self.window = self.window.max(unwritten);
        self.drained = false;
    }

    /// What to write of `unwritten` bytes, while no write is under way. A sender that has half of
    /// its window under way sends more without an acknowledgement; one that stops all the same is
    /// waited for a few times only.
    fn due(&mut self, cx: &mut Context<'_>, unwritten: u64) -> Due {
        if self.ended {
            return Due::All;
        }
        let full = unwritten >= WRITE_BUFFER as u64;
        if full {
            self.misses = self.misses.saturating_sub(1);
        }
        if !self.drained {
            return Due::Full;
        }
        let more_comes = unwritten > 0 && unwritten.saturating_mul(2) < self.window;
        if full || !more_comes || self.misses >= MISSES_MAX {
            self.waiting = false;
            return Due::Drained;
        }
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + GATHER)));
        if !self.waiting {
            self.waiting = true;
            self.at_alarm = unwritten;
            alarm.as_mut().reset(Instant::now() + GATHER);
        }
        if alarm.as_mut().poll(cx).is_pending() {
            return Due::Full;
        }
        self.waiting = false;
        if unwritten == self.at_alarm {
            self.misses += 1;
        }
        Due::Drained
    }
}

/// Writers to memory may leave checksums out; on a disk there are always some.
fn computed_sums(checksum: DataChecksum, data: &Pieces) -> Bytes {
    let mut sums = BytesMut::with_capacity(checksum.sums_len(data.len()));
    for piece in data.iter() {
        checksum.compute(piece, &mut sums);
    }
    sums.freeze()
}

/// Tells the NameNode of a block that was received. A client asks it to complete the file as soon
/// as it has the last acknowledgement; when that comes before the report, a stock client sleeps for
/// 400 ms and longer (`dfs.client.block.write.locateFollowingBlock.initial.delay.ms`) before it
/// asks again.
pub async fn tell(x: &Xceivers, replica: &ReplicaRef, finish: &Finish) {
    let Finish::Report { delete_hint, wait } = finish else {
        return;
    };
    let (block, link) = (&replica.block, x.link());
    link.received(block, &replica.storage, delete_hint.as_deref());
    if !wait.is_zero() {
        link.wait_told(block, *wait).await;
    }
}

/// Completes the block and tells the NameNode; only then is the last packet acknowledged.
async fn complete_replica(x: Xceivers, writer: ReplicaWriter, finish: Finish) -> End {
    let block = writer.block();
    let outcome = match &finish {
        Finish::ConvertToRbw => x.store().convert_temporary_to_rbw(writer).await,
        Finish::Report { .. } | Finish::Quietly => writer.finalize().await,
    };
    match outcome {
        Ok(replica) => {
            tell(&x, &replica, &finish).await;
            tracing::info!(block = %replica.block, bytes = replica.block.block.num_bytes,
                storage = %replica.storage.id, "received");
            End::Done(replica)
        }
        Err(error) => {
            tracing::warn!(%block, "cannot complete a received block: {error}");
            if error.kind() == StoreErrorKind::Io {
                x.check_volumes_soon();
            }
            End::Failed(Arc::new(error))
        }
    }
}
