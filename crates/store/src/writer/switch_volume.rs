//! A new replica whose first write fails goes to another volume: no client was promised any of it
//! yet, and what is to be written is still in memory.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use hayloft_io::{EngineFile, WriteBehind, locks};
use hayloft_wire::ids::StorageType;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::warn;

use super::ReplicaWriter;
use super::growth::ReplicaFiles;
use super::volume_for_new_replica::{NewReplica, Tried};
use crate::error::{StoreError, StoreErrorKind};
use crate::replica::block_pool::Pool;
use crate::replica::latch::Latch;
use crate::replica::{LiveReplica, Slot, Tail};
use crate::state::StoreState;
use crate::transitions::delete;
use crate::transitions::stop_writer::WriterLock;
use crate::writer::write_plan::Plan;

/// What is kept of a new replica until its first write has ended well.
#[derive(Debug)]
pub(super) struct Unwritten {
    /// Volumes that did not take it.
    tried: Tried,
    /// The write.
    first: Option<(Tail, Plan)>,
    /// The volume was given up: it may be one that gives no answer.
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// Where a replica has gone.
#[derive(Debug)]
pub(super) struct Moved {
    live: Arc<LiveReplica>,
    writer_lock: WriterLock,
    data: Arc<dyn EngineFile>,
    meta: Arc<dyn EngineFile>,
}

impl Moved {
    /// The replica there.
    pub(super) fn live(&self) -> Arc<LiveReplica> {
        Arc::clone(&self.live)
    }
}

impl Unwritten {
    pub(super) fn new(tried: Tried, live: &LiveReplica) -> Self {
        let gone = live.slice.volume.gone.clone();
        Self {
            tried,
            first: None,
            gone: Box::pin(gone.cancelled_owned()),
        }
    }

    /// Whether the volume was given up.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> bool {
        self.gone.as_mut().poll(cx).is_ready()
    }

    /// Keeps the first write. Its data is in memory until it has ended anyway.
    pub(super) fn keep(&mut self, before: Tail, plan: &Plan) {
        if self.first.is_none() {
            self.first = Some((before, plan.clone()));
        }
    }
}

impl ReplicaWriter {
    /// A write has failed. Begins to write the replica on another volume, if this was its first
    /// write and the volume is to blame; gives the error back otherwise.
    pub(super) fn go_elsewhere(&mut self, error: StoreError) -> Result<(), StoreError> {
        let unwritten = self.unwritten.take();
        let Some(Unwritten {
            mut tried,
            first: Some(first),
            ..
        }) = unwritten
        else {
            return Err(error);
        };
        let untouched = self.bytes_on_disk() == 0 && !self.cancel.is_cancelled();
        if !untouched || !Tried::is_of_volume(&error) {
            return Err(error);
        }
        tried.failed(&self.live.slice, self.live.block(), error);
        let status = self.live.snapshot();
        let mut storage_type = self.live.slice.volume.info.storage_type;
        if storage_type.is_transient() {
            // It was to go to disk later: it does so now.
            self.store.lazy.counts.fell_back();
            storage_type = StorageType::Disk;
        }
        let new = NewReplica {
            id: self.live.id,
            storage_type,
            storage_id: None,
            checksum: status.checksum,
            class: self.class,
            status: crate::replica::Status {
                checksum: None,
                unsettled: false,
                // Nothing was written there yet.
                sync_failed: false,
                allocated_ahead: 0,
                allocated_len: 0,
                ..status
            },
        };
        let going = Going {
            store: Arc::clone(&self.store),
            pool: Arc::clone(&self.pool),
            old: Arc::clone(&self.live),
            old_lock: Arc::clone(&self.writer_lock),
            write_behind: self.write_behind.clone(),
        };
        self.moving = Some(self.store.tasks.spawn_here(going.go(new, tried, first)));
        Ok(())
    }

    /// Goes on with a replica that was written elsewhere.
    pub(super) fn adopt(&mut self, moved: Moved) {
        let Moved {
            live,
            writer_lock,
            data,
            meta,
        } = moved;
        {
            // Under the lock: who reports what readers may see reports it of one or the other.
            let mut current = locks::lock(&self.current);
            let shown = current.status().bytes_shown;
            let mut status = live.status();
            status.bytes_shown = status.bytes_shown.max(shown);
            drop(status);
            *current = Arc::clone(&live);
        }
        (self.names_durable, self.data_synced) = (false, false);
        (self.live, self.writer_lock) = (live, writer_lock);
        (self.data, self.meta) = (data, meta);
    }
}

/// A replica on its way to another volume.
struct Going {
    store: Arc<StoreState>,
    pool: Arc<Pool>,
    old: Arc<LiveReplica>,
    #[expect(dead_code, reason = "held, not used")]
    old_lock: WriterLock,
    write_behind: Option<Arc<WriteBehind>>,
}

impl Going {
    async fn go(
        self,
        new: NewReplica,
        mut tried: Tried,
        (before, plan): (Tail, Plan),
    ) -> Result<Moved, StoreError> {
        let Self {
            store, pool, old, ..
        } = &self;
        // No other task creates or removes files of the block meanwhile.
        let latch = self.latch().await?;
        loop {
            let mut writer = new.open_somewhere(store, pool, &mut tried).await?;
            // What it does about a replica that is not written to its end is not for this one.
            writer.done = true;
            let live = Arc::clone(&writer.live);
            // Who wants the replica stops the same writer as before.
            live.status().cancel = old.status().cancel.clone();
            if let Err(error) = self.write(&writer, before, plan.clone()).await {
                live.release_reserved();
                let of_volume = Tried::is_of_volume(&error);
                let error = writer.examine(error);
                self.clear(&live).await;
                if !of_volume {
                    return Err(error);
                }
                tried.failed(&live.slice, live.block(), error);
                continue;
            }
            if !self.switch(&live) {
                live.release_reserved();
                self.clear(&live).await;
                return Err(self.was_taken());
            }
            drop(latch);
            old.release_reserved();
            self.clear(old).await;
            return Ok(Moved {
                live,
                writer_lock: Arc::clone(&writer.writer_lock),
                data: Arc::clone(&writer.data),
                meta: Arc::clone(&writer.meta),
            });
        }
    }

    /// The right to the block, unless another task wants the replica or has removed it.
    async fn latch(&self) -> Result<Latch, StoreError> {
        let Self { pool, old, .. } = self;
        let cancel = old.status().cancel.clone();
        let latch = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(self.was_taken()),
            latch = pool.latches.acquire(old.id) => latch,
        };
        let ours = match pool.map.get(old.id) {
            Some(Slot::Live(there)) => Arc::ptr_eq(&there, old),
            Some(Slot::Finalized(_)) => false,
            // It left the map with its volume.
            None => old.slice.volume.is_failed(),
        };
        if ours {
            Ok(latch)
        } else {
            Err(self.was_taken())
        }
    }

    fn was_taken(&self) -> StoreError {
        let text = format!("another writer or a recovery took {}", self.old.block());
        StoreError::new(StoreErrorKind::Cancelled, text)
    }

    /// Writes what the first write was to write, unless the volume is given up.
    async fn write(
        &self,
        writer: &ReplicaWriter,
        before: Tail,
        plan: Plan,
    ) -> Result<(), StoreError> {
        let live = &writer.live;
        let files = ReplicaFiles {
            store: Arc::clone(&self.store),
            pool: Arc::clone(&self.pool),
            live: Arc::clone(live),
            data: Arc::clone(&writer.data),
            meta: Arc::clone(&writer.meta),
            class: writer.class,
        };
        let (writer_lock, write_behind) =
            (Arc::clone(&writer.writer_lock), self.write_behind.clone());
        // To its end even if no task waits for it: files are not left half written.
        let written = self.store.tasks.spawn_here(async move {
            let _writer_lock = writer_lock;
            files.write_plan(before, plan, false, write_behind).await
        });
        tokio::select! {
            biased;
            written = written => match written {
                Ok(written) => written.map(drop),
                Err(error) => {
                    let text = format!("a write of {} did not end: {error}", live.block());
                    Err(StoreError::closed(text))
                }
            },
            // A disk that gives no answer.
            () = live.slice.volume.gone.cancelled() => Err(self.pool.volume_failed()),
        }
    }

    /// Puts the replica into the map instead of the old one; whether that was possible. The caller
    /// holds the latch.
    fn switch(&self, live: &Arc<LiveReplica>) -> bool {
        let Self { pool, old, .. } = self;
        let (ours, now) = (Slot::Live(Arc::clone(old)), Slot::Live(Arc::clone(live)));
        if matches!(pool.put_instead(live.id, &ours, now.clone()), Ok(true)) {
            return true;
        }
        if !old.slice.volume.is_failed() {
            return false;
        }
        // It left the map with its volume.
        let free = pool.map.get(live.id).is_none() && !old.status().cancel.is_cancelled();
        free && pool.put(live.id, now).is_ok()
    }

    /// Removes files that are of no more use. A bad disk may refuse, or give no answer: the next
    /// start meets them then, older than what it finds elsewhere.
    async fn clear(&self, live: &Arc<LiveReplica>) {
        let (place, block) = (live.snapshot().place, live.block());
        let (store, pool, slice) = (&self.store, &self.pool, &live.slice);
        let cleared = tokio::select! {
            biased;
            () = slice.volume.gone.cancelled() => return,
            cleared = delete::discard_files(store, pool, slice, place, block, false) => cleared,
        };
        if let Err(error) = cleared {
            warn!(%block, volume = %slice.volume.root.display(), %error, "cannot remove what was \
                begun of a replica that is on another volume now");
        }
    }
}
