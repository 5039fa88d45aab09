//! The disk side of a block being received: one task that owns the replica's writer.
//!
//! Group commit: while one store write is in progress, further runs gather in the queue; the next write takes
//! all of them. The task outlives its connection until the write in progress is over, so a replica's
//! next taker never meets a write of the previous one.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hayloft_io::Advice;
use hayloft_store::{PacketData, ReplicaRef, ReplicaWriter, StoreError, StoreErrorKind};
use hayloft_wire::checksum::DataChecksum;
use tokio::sync::{mpsc, oneshot, watch};

use super::super::context::Xceivers;
use super::super::inflow::Run;

/// Runs that may wait for the disk.
const QUEUE_RUNS: usize = 8;

/// Bytes that one store write takes at most, once it has a run.
const GROUP_BYTES: u64 = 4 << 20;

/// Data is dropped from the page cache this far behind the writer, in steps of this size
/// (Apache's lag): dirty pages cannot be dropped, so they get time to be written.
const CACHE_LAG: u64 = 8 << 20;

/// What to do when the block is complete.
#[derive(Clone, Debug)]
pub enum Finish {
    /// Finalize and tell the NameNode, with a hint which replica may go.
    Report {
        /// Uuid of the node whose replica may be deleted.
        delete_hint: Option<String>,
    },
    /// Finalize without telling: the client goes on with a new generation stamp.
    Quietly,
    /// Becomes a replica being written.
    ConvertToRbw,
}

/// How far the disk task is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Packets whose data is as durable as they asked for, in order of arrival.
    pub packets: u64,
    /// How the block ended.
    pub end: Option<End>,
}

/// How writing a block ended.
#[derive(Clone, Debug)]
pub enum End {
    /// Complete.
    Done(ReplicaRef),
    /// Cannot go on.
    Failed(Arc<StoreError>),
}

/// Page cache hints of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCache {
    /// Start write-back at once.
    pub sync_behind: bool,
    /// Drop what was written.
    pub drop_behind: bool,
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

/// The queue to the disk task and what it says.
#[derive(Debug)]
pub struct Disk {
    /// Runs of packets, in order. Dropping it lets go of the writer.
    pub queue: mpsc::Sender<Run>,
    /// Lets the written replica be completed; `None` when that needs no leave. Dropping it unsent lets go of
    /// the writer.
    pub allow: Option<oneshot::Sender<()>>,
    /// Progress.
    pub progress: watch::Receiver<Progress>,
}

/// Starts the task. `checksum` is what the packets carry.
pub fn start(
    x: &Xceivers,
    writer: ReplicaWriter,
    checksum: DataChecksum,
    finish: Finish,
    when: When,
    cache: WriteCache,
) -> Disk {
    let (allow, allowed) = match when {
        When::Written => (None, None),
        When::Allowed => {
            let (allow, allowed) = oneshot::channel();
            (Some(allow), Some(allowed))
        }
    };
    let (queue, runs) = mpsc::channel(QUEUE_RUNS);
    let (tell, progress) = watch::channel(Progress {
        packets: 0,
        end: None,
    });
    let task = Task {
        x: x.clone(),
        writer,
        checksum,
        finish,
        allowed,
        cache,
        tell,
        dropped: 0,
        flushed: 0,
    };
    x.tasks().spawn(task.run(runs));
    Disk {
        queue,
        allow,
        progress,
    }
}

struct Task {
    x: Xceivers,
    writer: ReplicaWriter,
    checksum: DataChecksum,
    finish: Finish,
    allowed: Option<oneshot::Receiver<()>>,
    cache: WriteCache,
    tell: watch::Sender<Progress>,
    dropped: u64,
    flushed: u64,
}

fn taken_over() -> StoreError {
    StoreError::new(StoreErrorKind::Cancelled, super::TAKEN_OVER)
}

/// Runs that are written together.
#[derive(Default)]
struct Group {
    packets: Vec<PacketData>,
    count: u64,
    bytes: u64,
    end: u64,
    sync: bool,
    last: bool,
}

impl Task {
    async fn run(mut self, mut runs: mpsc::Receiver<Run>) {
        let outcome = match self.write_all(&mut runs).await {
            Ok(true) => self.wait_until_allowed().await,
            other => other,
        };
        match outcome {
            Ok(true) => self.complete().await,
            Ok(false) => {} // The connection ended first; the writer is dropped as it is.
            Err(error) => {
                self.blame(&error);
                // The writer goes before anyone learns of it: the next taker waits for this.
                let tell = self.into_tell();
                tell.send_modify(|p| p.end = Some(End::Failed(Arc::new(error))));
            }
        }
    }

    /// Lets go of the writer.
    fn into_tell(self) -> watch::Sender<Progress> {
        self.tell
    }

    /// Writes until the last packet (true) or the end of the queue (false).
    async fn write_all(&mut self, runs: &mut mpsc::Receiver<Run>) -> Result<bool, StoreError> {
        loop {
            let run = tokio::select! {
                biased;
                () = self.writer.cancelled() => return Err(taken_over()),
                run = runs.recv() => run,
            };
            let Some(run) = run else { return Ok(false) };
            let mut group = Group::default();
            self.gather(&mut group, run);
            while group.bytes < GROUP_BYTES && !group.last {
                let Ok(run) = runs.try_recv() else { break };
                self.gather(&mut group, run);
            }
            let last = group.last;
            self.write_group(group).await?;
            if last {
                return Ok(true);
            }
        }
    }

    /// Waits until every node behind has acknowledged the last packet (true) or never will (false).
    async fn wait_until_allowed(&mut self) -> Result<bool, StoreError> {
        let Some(allowed) = self.allowed.take() else {
            return Ok(true);
        };
        tokio::select! {
            biased;
            () = self.writer.cancelled() => Err(taken_over()),
            allowed = allowed => Ok(allowed.is_ok()),
        }
    }

    fn gather(&self, group: &mut Group, run: Run) {
        for packet in run.packets {
            group.count += 1;
            group.sync |= packet.header.sync_block;
            group.last |= packet.header.last_packet_in_block;
            if packet.data.is_empty() {
                continue;
            }
            let offset = packet.header.offset_in_block.unsigned_abs();
            let sums = if packet.sums.is_empty() {
                self.computed_sums(&packet.data)
            } else {
                packet.sums
            };
            group.bytes += packet.data.len() as u64;
            group.end = group.end.max(offset + packet.data.len() as u64);
            group.packets.push(PacketData {
                offset,
                data: packet.data.into(),
                sums,
            });
        }
    }

    /// Writers to memory may leave checksums out; on a disk there are always some.
    fn computed_sums(&self, data: &[u8]) -> Bytes {
        let mut sums = BytesMut::with_capacity(self.checksum.sums_len(data.len()));
        self.checksum.compute(data, &mut sums);
        sums.freeze()
    }

    async fn write_group(&mut self, group: Group) -> Result<(), StoreError> {
        let began = tokio::time::Instant::now();
        if !group.packets.is_empty() {
            self.writer.write(group.packets).await?;
            self.x.stats().add_written(group.bytes);
        }
        if group.sync {
            self.writer.sync().await?;
            if group.last {
                self.writer.finalize_durably();
            }
        }
        let took = began.elapsed();
        if took > self.x.settings().slow_io {
            tracing::warn!(
                block = %self.writer.block(), storage = %self.writer.storage().id, bytes = group.bytes, sync = group.sync,
                millis = took.as_millis(), "slow write to disk"
            );
        }
        // Rests on: data and checksums are with the kernel (survive kill -9), or on the device if asked for.
        self.tell.send_modify(|p| p.packets += group.count);
        self.mind_page_cache(group.end).await;
        Ok(())
    }

    async fn mind_page_cache(&mut self, end: u64) {
        if !(self.cache.sync_behind || self.cache.drop_behind) {
            return;
        }
        let step = if self.cache.sync_behind { 1 } else { CACHE_LAG };
        if end.saturating_sub(self.flushed) >= step {
            self.writer
                .start_writeback(self.flushed, end - self.flushed)
                .await;
            self.flushed = end;
        }
        let behind = end.saturating_sub(CACHE_LAG);
        if self.cache.drop_behind && behind.saturating_sub(self.dropped) >= CACHE_LAG {
            self.writer
                .advise(Advice::DontNeed, self.dropped, behind - self.dropped)
                .await;
            self.dropped = behind;
        }
    }

    /// Completes the block, tells the NameNode, and only then lets the last packet be acknowledged.
    async fn complete(self) {
        let Self {
            x,
            writer,
            finish,
            tell,
            ..
        } = self;
        let block = writer.block();
        let outcome = match &finish {
            Finish::ConvertToRbw => x.store().convert_temporary_to_rbw(writer).await,
            Finish::Report { .. } | Finish::Quietly => writer.finalize().await,
        };
        let end = match outcome {
            Ok(replica) => {
                if let Finish::Report { delete_hint } = &finish {
                    x.link()
                        .received(&replica.block, &replica.storage, delete_hint.as_deref());
                }
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
        };
        tell.send_modify(|p| p.end = Some(end));
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
