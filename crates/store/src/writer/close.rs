//! Completing a replica: in one step, or in two when much of it is still staged.

use std::sync::Arc;
use std::time::Duration;

use hayloft_io::{IoClass, IoOp, SyncKind};
use hayloft_wire::ids::ReplicaState;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, error, warn};

use super::ReplicaWriter;
use crate::drain::Marker;
use crate::error::{StoreError, StoreErrorKind};
use crate::files;
use crate::finish::{finalize_live, reference};
use crate::types::{ReplicaRef, StoreEvent};
use crate::volume::backlog::Draining;

/// A close waits for the disk when no more than this is staged: the second step costs more names than it saves time.
const DRAIN_FROM: u64 = 1 << 20;

/// How often files that cannot be completed are tried.
const ATTEMPTS: u32 = 5;
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 2000 });

impl ReplicaWriter {
    /// Completes the replica at the length it has: afterwards it is finalized whatever happens;
    /// when this fails or the process dies on the way, it is still RBW or already finalized, never
    /// in between.
    ///
    /// With [`StagingOptions::close`](crate::StagingOptions::close) it may return while bytes of the replica are
    /// staged, and is finalized all the same for everybody who asks: a killed process finishes it at the next
    /// start. See [`drain`](crate::drain).
    ///
    /// # Errors
    /// `Cancelled`, `Corrupt` (the files do not have the lengths they should), `Io`.
    pub async fn finalize(self) -> Result<ReplicaRef, StoreError> {
        if self.cancel.is_cancelled() {
            return Err(self.was_cancelled());
        }
        let inner = Arc::clone(&self.inner);
        inner.complete(self.finalize_owned()).await
    }

    async fn finalize_owned(mut self) -> Result<ReplicaRef, StoreError> {
        if self.may_drain().await
            && let Some(counted) = self.admitted()
            && self.mark_closed().await
        {
            self = match self.drain(counted) {
                Ok(replica) => return Ok(replica),
                Err(this) => *this,
            };
        }
        let result = self.finalize_files().await.map_err(|e| self.examine(e));
        self.done = result.is_ok();
        result
    }

    async fn finalize_files(&mut self) -> Result<ReplicaRef, StoreError> {
        let status = self.live.snapshot();
        let block = self.live.block();
        let failed = |e| StoreError::io(format!("finalizing replica {block}"), e);
        if status.unsettled {
            return Err(StoreError::new(
                StoreErrorKind::Illegal,
                format!("an earlier write of {block} failed"),
            ));
        }
        let staged = self.staged.as_ref().map_or(0, |staged| staged.unwritten());
        // Little says nothing of the disk.
        let ending = (staged > DRAIN_FROM).then(|| self.live.slice.volume.begin_ending());
        self.close_staging().await?;
        if let Some(ending) = ending {
            ending.has_written(staged);
        }
        self.allocated().await;
        let on_disk = self.data.length().await.map_err(failed)?;
        if on_disk != status.bytes_on_disk {
            let text = format!(
                "{block}: the data file has {on_disk} bytes instead of {}",
                status.bytes_on_disk
            );
            return Err(StoreError::new(StoreErrorKind::Corrupt, text));
        }
        if self.inner.config.sync_on_close {
            let (data, meta) = futures_util::future::join(
                self.data.sync(SyncKind::All),
                self.meta.sync(SyncKind::All),
            )
            .await;
            data.and(meta).map_err(|e| {
                self.live.note_failure(&e);
                failed(e)
            })?;
            self.live.refuse_after_failed_sync()?;
        }
        let durable = self.inner.config.sync_on_close || self.durable_finalize;
        finalize_live(&self.inner, &self.pool, &self.live, durable).await
    }

    /// Whether the close can be acknowledged before the files are complete: nothing was asked for but that it
    /// outlives a killed process, there is something to gain, and there is room on the device for all of it.
    async fn may_drain(&mut self) -> bool {
        let config = &self.inner.config;
        let allowed = config.staging.close && !config.sync_on_close && !self.durable_finalize;
        let Some(staged) = self.staged.clone().filter(|_| allowed) else {
            return false;
        };
        let worth = staged.unwritten() > DRAIN_FROM && !staged.is_lost_now();
        if !worth || staged.error().is_some() || self.inner.stop.is_cancelled() {
            return false;
        }
        self.allocated().await;
        let status = self.live.snapshot();
        let len = status.bytes_on_disk;
        let volume = &self.live.slice.volume;
        // The checksums of the data have no room reserved; they are a hundredth of it.
        let room = status.reserved >= len && volume.numbers().remaining >= len / 64;
        let ours = self.pool.map.is_live(&self.live) && !volume.is_failed();
        room && ours
            && status.state == ReplicaState::Rbw
            && !status.unsettled
            && staged.committed() == len
    }

    /// Whether the disk is not too far behind already: then the close waits for it, and so does the client.
    fn admitted(&self) -> Option<Draining> {
        let staged = self.staged.as_ref()?;
        self.live.slice.volume.admit(staged.unwritten())
    }

    /// Writes down that the replica is closed, for the next start.
    async fn mark_closed(&self) -> bool {
        let block = self.live.block();
        let marker = Marker {
            generation_stamp: block.generation_stamp,
            len: block.num_bytes,
        };
        let path = self.live.slice.paths.closed_marker(self.live.id);
        let name = path.clone();
        // Not synced: what is staged does not outlive power loss either.
        let write = move || {
            std::fs::write(&name, marker.encode()).inspect_err(|_| {
                // Half of one would stay until the next start; that it was there says enough.
                let _ = std::fs::remove_file(&name);
            })
        };
        let written = files::on_disk(
            &self.live.slice,
            IoClass::ClientWrite,
            IoOp::Replace,
            &path,
            write,
        );
        match written.await {
            Ok(()) => true,
            Err(error) => {
                debug!(%block, %error, "cannot write the marker of a closed replica: its close waits for the disk");
                false
            }
        }
    }

    /// From here on the replica is finalized for everybody who asks; its files follow. Not when its volume failed while
    /// the marker was written: what was staged has been given up then.
    fn drain(self, counted: Draining) -> Result<ReplicaRef, Box<Self>> {
        let drained = CancellationToken::new();
        {
            let mut status = self.live.status();
            // Whoever takes it out of the map cancels its writer under the same lock, before he gives up what is staged.
            if status.cancel.is_cancelled() || self.live.slice.volume.is_failed() {
                drop(status);
                return Err(Box::new(self));
            }
            status.state = ReplicaState::Finalized;
            status.bytes_acked = status.bytes_on_disk;
            status.draining = Some(drained.clone());
        }
        if let Some(staged) = &self.staged {
            staged.seal();
        }
        let replica = reference(&self.pool, &self.live);
        let tasks = self.inner.tasks.clone();
        tasks.spawn(self.complete_files(counted, drained.drop_guard()));
        Ok(replica)
    }

    /// The second step: until the files are complete and in their place, or that is given up. The replica is its own
    /// meanwhile: whoever wants to change it waits for the right to.
    async fn complete_files(mut self, _counted: Draining, _drained: DropGuard) {
        self.done = true;
        let block = self.live.block();
        let mut attempt = 1;
        let error = loop {
            let error = match self.finalize_files().await {
                Ok(_) => return,
                Err(error) => self.examine(error),
            };
            // Who took it out of the map has told what became of it; a start finishes what a stop leaves.
            let gone = !self.pool.map.is_live(&self.live) || self.live.slice.volume.is_failed();
            if gone || self.inner.stop.is_cancelled() {
                self.live.release_promise();
                debug!(%block, %error, "a closed replica was left as it is");
                return;
            }
            if attempt == ATTEMPTS || error.kind() == StoreErrorKind::Corrupt {
                break error;
            }
            warn!(%block, %error, attempt, "cannot complete the files of a closed replica yet");
            attempt += 1;
            tokio::time::sleep(PAUSE).await;
        };
        let (staged, memory) = self
            .staged
            .as_ref()
            .map_or((0, 0), |s| (s.unwritten(), s.memory_of_unwritten()));
        let kept = self.inner.may_keep(memory);
        if !kept {
            self.live.drop_staging();
        }
        error!(%block, volume = %self.live.slice.volume.root.display(), %error, staged, kept,
            "the files of a closed replica cannot be completed: it is reported lost, and looked at again at the next start, which \
             writes what was kept of it. Check the disk and its free space");
        self.live.release_promise();
        self.pool.map.remove(self.live.id);
        let lost = StoreEvent::Lost {
            block: self.pool.extended(block),
            storage: self.live.slice.volume.info.clone(),
        };
        self.inner.tell(lost).await;
    }
}
