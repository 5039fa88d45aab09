//! Packets on their way into the files.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use hayloft_io::WriteBuffers;

use super::Due;
use super::ReplicaWriter;
use super::growth::ReplicaFiles;
use super::pending_packets::PendingPackets;
use crate::error::{StoreError, StoreErrorKind};
use crate::replica::LiveReplica;
use crate::replica::block_pool::Pool;
use crate::state::StoreState;
use crate::types::PacketData;
use crate::writer::write_plan::{Plan, plan};

/// Takes room of the budget where a replica in memory becomes longer than its client said.
fn room_in_memory(
    store: &StoreState,
    pool: &Pool,
    live: &LiveReplica,
    len: u64,
) -> Result<(), StoreError> {
    let (memory, id) = (&pool.map.in_memory, live.id);
    let missing = memory.missing_room(id, len);
    if missing == 0 {
        return Ok(());
    }
    let more = store.cache.reserve_in_memory(missing).ok_or_else(|| {
        let text = format!("no room in memory for {len} bytes of {}", live.block());
        StoreError::new(StoreErrorKind::OutOfSpace, text)
    })?;
    drop(memory.add_room(id, more));
    Ok(())
}

impl ReplicaWriter {
    /// Gathers from now on what is written, when the checksum is known.
    pub(super) fn begin_pending(&mut self) {
        let (checksum, tail) = {
            let status = self.live.status();
            (status.checksum, status.tail())
        };
        let Some(checksum) = checksum else { return };
        let direct = !self.live.slice.volume.engine.capabilities().page_cache;
        let pool = &self.store.shared.write_memory;
        self.pending = Some(PendingPackets::new(pool, checksum, tail, direct));
    }

    /// Memory to receive packets' data in, where that saves a copy: around the page cache. Ask
    /// after [`set_checksum`](Self::set_checksum).
    #[must_use]
    pub fn receive_buffers(&self) -> Option<WriteBuffers> {
        self.pending
            .as_ref()
            .and_then(PendingPackets::receive_buffers)
    }

    /// End of the accepted bytes.
    #[must_use]
    pub fn received(&self) -> u64 {
        let pending = self.pending.as_ref();
        pending.map_or_else(|| self.bytes_on_disk(), |g| g.received().len)
    }

    /// Checks that packets can be written now, and plans it.
    fn planned(&self, packets: &[PacketData]) -> Result<Plan, StoreError> {
        let (Some(pending), Some(client)) = (&self.pending, self.client) else {
            return Err(StoreError::illegal("set_checksum comes before write"));
        };
        if self.cancel.is_cancelled() {
            return Err(self.was_cancelled());
        }
        let (disk, unsettled) = {
            let status = self.live.status();
            (status.checksum, status.unsettled)
        };
        if unsettled {
            let text = format!("an earlier write of {} failed", self.live.block());
            return Err(StoreError::illegal(text));
        }
        let disk = disk.unwrap_or(client);
        plan(pending.received(), disk, packets).map_err(|e| {
            let text = format!("{}: {e}", self.live.block());
            StoreError::illegal(text)
        })
    }

    /// Accepts a run of verified packets, in order. Data that is there already is skipped; a
    /// partial last chunk that is sent again or appended to is completed. Never waits, and writes
    /// nothing: [`poll_write`](Self::poll_write) does.
    ///
    /// # Errors
    /// `Illegal` for packets that leave a gap or that contradict what is there, `Cancelled`.
    pub fn accept(&mut self, packets: &[PacketData]) -> Result<(), StoreError> {
        let plan = self.planned(packets)?;
        if let Some(pending) = &mut self.pending
            && !plan.data.is_empty()
        {
            pending.accept(plan);
        }
        Ok(())
    }

    /// Goes on with writing what was accepted, as far as it is `due`; true when a write has ended
    /// or begun. What an acknowledgement rests on: all bytes up to
    /// [`bytes_on_disk`](Self::bytes_on_disk) and their checksums are in the replica's files,
    /// cached or on the device.
    ///
    /// # Errors
    /// `OutOfSpace`, `Io`. Nothing more can be written through this writer then: drop it, and let
    /// the pipeline recover.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, due: Due) -> Result<bool, StoreError> {
        let mut moved = false;
        loop {
            if let Some(moving) = &mut self.moving {
                let Poll::Ready(outcome) = moving.poll_unpin(cx) else {
                    return Ok(moved);
                };
                self.moving = None;
                moved = true;
                let outcome = outcome.unwrap_or_else(|error| {
                    let text = format!("a write of {} did not end: {error}", self.live.block());
                    Err(StoreError::closed(text))
                });
                self.adopt(outcome?);
            }
            if let Some(writing) = &mut self.writing {
                let outcome = match writing.poll_unpin(cx) {
                    Poll::Ready(outcome) => outcome,
                    Poll::Pending => {
                        let unwritten = self.unwritten.as_mut();
                        if !unwritten.is_some_and(|unwritten| unwritten.poll_gone(cx)) {
                            return Ok(moved);
                        }
                        // Its disk gives no answer: that write is of no more use to anyone.
                        Ok(Err(self.pool.volume_failed()))
                    }
                };
                self.writing = None;
                moved = true;
                let outcome = outcome.unwrap_or_else(|error| {
                    let text = format!("a write of {} did not end: {error}", self.live.block());
                    Err(StoreError::closed(text))
                });
                self.end_write(outcome)?;
                continue;
            }
            if !self.begin_write(cx, due)? {
                return Ok(moved);
            }
            moved = true;
        }
    }

    /// Whether a write is under way.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.writing.is_some() || self.moving.is_some()
    }

    /// A write has ended.
    fn end_write(&mut self, outcome: Result<bool, StoreError>) -> Result<(), StoreError> {
        match outcome {
            Ok(synced) => self.data_synced = synced,
            Err(error) => {
                let error = self.examine(error);
                return self.go_elsewhere(error);
            }
        }
        // The volume leaves the writers of such replicas alone, and has taken this one out of the
        // map.
        let first = self.unwritten.take().is_some();
        if first && self.live.slice.volume.is_failed() {
            return Err(self.pool.volume_failed());
        }
        self.allocate_ahead();
        Ok(())
    }

    fn begin_write(&mut self, cx: &mut Context<'_>, due: Due) -> Result<bool, StoreError> {
        if self.moving.is_some() {
            return Ok(false);
        }
        let Some(pending) = &mut self.pending else {
            return Ok(false);
        };
        let Some(cut) = pending.cut(due) else {
            return Ok(false);
        };
        let (before, plan) = pending.take(cut);
        if let Some(unwritten) = &mut self.unwritten {
            unwritten.keep(before, &plan);
            if self.live.slice.volume.is_failed() {
                return self.go_elsewhere(self.pool.volume_failed()).map(|()| true);
            }
        }
        if self.live.slice.volume.info.storage_type.is_transient()
            && let Err(error) = room_in_memory(&self.store, &self.pool, &self.live, plan.tail.len)
        {
            return self.go_elsewhere(error).map(|()| true);
        }
        // A checksum that covers synced bytes is about to be replaced.
        let chunk_start = pending.chunk_start(plan.first_chunk);
        let guard = plan.completes_chunk && self.live.status().needs_kept_end(chunk_start);
        self.data_synced = false;
        let files = ReplicaFiles {
            store: Arc::clone(&self.store),
            pool: Arc::clone(&self.pool),
            live: Arc::clone(&self.live),
            data: Arc::clone(&self.data),
            meta: Arc::clone(&self.meta),
            class: self.class,
        };
        let (writer_lock, write_behind) =
            (Arc::clone(&self.writer_lock), self.write_behind.clone());
        // To its end even if the writer goes away: files are not left half written.
        let writing = async move {
            let _writer_lock = writer_lock;
            files.write_plan(before, plan, guard, write_behind).await
        };
        // While all of the replica is kept, it may go to another volume, and this thread must not
        // wait for the first.
        let writing = match self.unwritten {
            Some(_) => Err(self.store.tasks.spawn(writing)),
            None => self.store.tasks.begin_here(cx, writing),
        };
        match writing {
            Ok(outcome) => self.end_write(outcome)?,
            Err(writing) => self.writing = Some(writing),
        }
        Ok(true)
    }

    /// Accepts packets and waits until all that was accepted is in the files.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept) and [`poll_write`](Self::poll_write).
    pub async fn write(&mut self, packets: Vec<PacketData>) -> Result<(), StoreError> {
        self.accept(&packets)?;
        drop(packets);
        self.write_all().await
    }

    /// Writes all that was accepted.
    ///
    /// # Errors
    /// As for [`poll_write`](Self::poll_write).
    pub(crate) async fn write_all(&mut self) -> Result<(), StoreError> {
        poll_fn(|cx| match self.poll_write(cx, Due::All) {
            Ok(_) if self.is_writing() => Poll::Pending,
            Ok(_) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }
}
