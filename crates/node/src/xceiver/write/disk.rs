//! The disk side of a block being received: the replica's writer, and what waits for it.
//!
//! Group commit: while one store write is in progress, further runs gather; the next write takes all of them.
//! Nothing here has a task of its own but the completion of a replica, which is carried out and reported
//! whatever becomes of the connection. A write in progress holds the right to the replica until it is over (the
//! store sees to that), so its next taker never meets a write of the previous one.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use hayloft_io::CacheHints;
use hayloft_store::{
    Landing, PacketData, Pieces, ReplicaRef, ReplicaWriter, Staged, StoreError, StoreErrorKind,
};
use hayloft_wire::checksum::DataChecksum;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::super::context::Xceivers;
use super::super::inflow::Run;

/// Bytes that may wait for the disk, and that one store write takes at most, once it has a run.
const WAITING_BYTES: u64 = 4 << 20;

/// Runs that may wait for the disk.
const WAITING_RUNS: usize = 16;

/// What to do when the block is complete.
#[derive(Clone, Debug)]
pub enum Finish {
    /// Finalize and tell the NameNode, with a hint which replica may go.
    Report {
        /// Uuid of the node whose replica may be deleted.
        delete_hint: Option<String>,
        /// Done when the NameNode has heard, or after so long; zero waits for nobody.
        wait: Duration,
    },
    /// Finalize without telling: the client goes on with a new generation stamp.
    Quietly,
    /// Becomes a replica being written.
    ConvertToRbw,
}

/// When a replica whose last packet is written is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once: nobody behind has a say.
    Written,
    /// When [`Disk::allow`] says that every node behind has acknowledged the last packet. Until then the replica
    /// is one being written, which a recovery of the pipeline or of the block may still change.
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
pub struct Disk {
    x: Xceivers,
    checksum: DataChecksum,
    finish: Finish,
    /// The replica may be completed once its last packet is written.
    allowed: bool,
    cancel: CancellationToken,
    work: Work,
    waiting: Group,
    /// Packets whose data is as durable as they asked for, in order of arrival.
    written: u64,
    /// The last packet is among them.
    all_written: bool,
    end: Option<End>,
}

enum Work {
    /// Nothing in progress.
    Idle(Box<Pen>),
    /// A write in progress.
    Writing(BoxFuture<'static, (Box<Pen>, Result<Written, StoreError>)>),
    /// The completion in progress.
    Completing(JoinHandle<End>),
    /// The writer is gone; [`Disk::end`] says why.
    Over,
}

/// What a write came to.
struct Written {
    packets: u64,
    last: bool,
}

/// Packets that are written together.
#[derive(Default)]
struct Group {
    packets: Vec<PacketData>,
    /// Of the runs that they came in.
    tokens: Vec<Arc<()>>,
    count: u64,
    bytes: u64,
    sync: bool,
    last: bool,
}

impl Disk {
    /// Takes the writer over. `checksum` is what the packets carry.
    #[must_use]
    pub fn new(
        x: &Xceivers,
        mut writer: ReplicaWriter,
        checksum: DataChecksum,
        finish: Finish,
        when: When,
        cache: CacheHints,
    ) -> Self {
        writer.mind_page_cache(cache);
        Self {
            x: x.clone(),
            checksum,
            finish,
            allowed: when == When::Written,
            cancel: writer.cancel_token(),
            work: Work::Idle(Box::new(Pen {
                x: x.clone(),
                writer,
            })),
            waiting: Group::default(),
            written: 0,
            all_written: false,
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

    /// Where data can be received in place.
    #[must_use]
    pub fn landing(&self) -> Option<Landing> {
        match &self.work {
            Work::Idle(pen) => pen.writer.landing(),
            _ => None,
        }
    }

    /// Resolves when another taker wants the replica.
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
        self.waiting.bytes < WAITING_BYTES && self.waiting.tokens.len() < WAITING_RUNS
    }

    /// Takes a run, in order. [`poll`](Self::poll) writes it.
    pub fn push(&mut self, run: Run) {
        if self.end.is_some() {
            return;
        }
        let group = &mut self.waiting;
        for packet in run.packets {
            group.count += 1;
            group.sync |= packet.header.sync_block;
            group.last |= packet.header.last_packet_in_block;
            if packet.data.is_empty() {
                continue;
            }
            let offset = packet.header.offset_in_block.unsigned_abs();
            let sums = if packet.sums.is_empty() {
                computed_sums(self.checksum, &packet.data)
            } else {
                packet.sums
            };
            group.bytes += packet.data.len() as u64;
            group.packets.push(PacketData {
                offset,
                data: packet.data,
                sums,
            });
        }
        group.tokens.push(run.token);
        self.stage();
    }

    /// Commits what waits where that takes no waiting: in staging.
    fn stage(&mut self) {
        let Work::Idle(pen) = &mut self.work else {
            return;
        };
        let waiting = &mut self.waiting;
        if !waiting.packets.is_empty() {
            match pen.writer.stage(&waiting.packets) {
                Ok(Staged::Kept) => self.x.stats().add_written(waiting.bytes),
                Ok(Staged::NoRoom | Staged::Unstaged) => return,
                Err(error) => return self.after_write(Err(error)),
            }
            waiting.packets.clear();
            waiting.tokens.clear();
            waiting.bytes = 0;
        }
        if !waiting.sync {
            let Group { count, last, .. } = std::mem::take(waiting);
            self.after_write(Ok(Written {
                packets: count,
                last,
            }));
        }
    }

    /// Goes on as far as possible; true when something ended.
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
            Work::Writing(writing) => {
                let Poll::Ready((pen, outcome)) = writing.as_mut().poll(cx) else {
                    return false;
                };
                self.work = Work::Idle(pen);
                self.after_write(outcome);
                true
            }
            Work::Completing(completing) => {
                let Poll::Ready(outcome) = std::pin::Pin::new(completing).poll(cx) else {
                    return false;
                };
                self.work = Work::Over;
                self.end = Some(outcome.unwrap_or_else(|error| {
                    let text = format!("the completion of a replica did not end: {error}");
                    End::Failed(Arc::new(StoreError::new(StoreErrorKind::Closed, text)))
                }));
                true
            }
            Work::Idle(_) if self.waiting.count > 0 || self.all_written && self.allowed => {
                self.begin();
                true
            }
            Work::Idle(_) => false,
        }
    }

    /// Begins what comes next.
    fn begin(&mut self) {
        let Work::Idle(mut pen) = std::mem::replace(&mut self.work, Work::Over) else {
            return;
        };
        if self.waiting.count > 0 {
            let group = std::mem::take(&mut self.waiting);
            self.work = Work::Writing(Box::pin(async move {
                let outcome = pen.write(group).await;
                (pen, outcome)
            }));
        } else {
            let completing = complete(self.x.clone(), pen.writer, self.finish.clone());
            self.work = Work::Completing(self.x.tasks().spawn(completing));
        }
    }

    fn after_write(&mut self, outcome: Result<Written, StoreError>) {
        match outcome {
            // Rests on: data and checksums outlive a killed process, or are on the device if asked for.
            Ok(written) => {
                self.written += written.packets;
                self.all_written |= written.last;
            }
            Err(error) => {
                if let Work::Idle(pen) = &self.work {
                    pen.blame(&error);
                }
                // The writer goes before anyone learns of it: the next taker waits for this.
                self.work = Work::Over;
                self.waiting = Group::default();
                self.end = Some(End::Failed(Arc::new(error)));
            }
        }
    }

    /// Nobody waits any more: writes what was received, for a recovery to find, and lets go of the writer.
    pub fn abandon(mut self) {
        let idle = matches!(self.work, Work::Over | Work::Completing(_))
            || matches!(self.work, Work::Idle(_)) && self.waiting.count == 0;
        if idle || self.cancel.is_cancelled() {
            return;
        }
        let (tasks, cancel) = (self.x.tasks().clone(), self.cancel.clone());
        tasks.spawn(async move {
            let rest = std::future::poll_fn(|cx| {
                self.poll(cx);
                let busy = matches!(self.work, Work::Writing(_));
                if busy { Poll::Pending } else { Poll::Ready(()) }
            });
            tokio::select! {
                () = rest => {}
                () = cancel.cancelled() => {}
            }
        });
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

/// The writer.
struct Pen {
    x: Xceivers,
    writer: ReplicaWriter,
}

impl Pen {
    async fn write(&mut self, group: Group) -> Result<Written, StoreError> {
        let Group {
            packets,
            tokens,
            count,
            bytes,
            sync,
            last,
        } = group;
        let began = tokio::time::Instant::now();
        if !packets.is_empty() {
            self.writer.write(packets).await?;
            self.x.stats().add_written(bytes);
        }
        drop(tokens);
        if sync {
            self.writer.sync().await?;
            if last {
                self.writer.finalize_durably();
            }
        }
        let took = began.elapsed();
        if took > self.x.settings().slow_io {
            tracing::warn!(
                block = %self.writer.block(), storage = %self.writer.storage().id, bytes, sync,
                millis = took.as_millis(), "slow write to disk"
            );
        }
        Ok(Written {
            packets: count,
            last,
        })
    }

    /// A failed write makes the volume suspect.
    fn blame(&self, error: &StoreError) {
        if matches!(
            error.kind(),
            StoreErrorKind::Io | StoreErrorKind::VolumeFailed
        ) {
            tracing::warn!(block = %self.writer.block(), storage = %self.writer.storage().id, "cannot write: {error}");
            self.x.check_volumes_soon();
        }
    }
}

/// Tells the NameNode of a block that was received. A client asks it to complete the file as soon as it has
/// the last acknowledgement; when that comes before the report, a stock client sleeps for 400 ms and longer
/// (`dfs.client.block.write.locateFollowingBlock.initial.delay.ms`) before it asks again.
pub(super) async fn tell(x: &Xceivers, replica: &ReplicaRef, finish: &Finish) {
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
async fn complete(x: Xceivers, writer: ReplicaWriter, finish: Finish) -> End {
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
