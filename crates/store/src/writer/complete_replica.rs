//! Completing a replica.

use std::sync::Arc;

use hayloft_io::{IoError, SyncKind, together};

use super::ReplicaWriter;
use super::pending_packets::DIRECT_MIN;
use crate::error::StoreError;
use crate::transitions::move_to_finalized::finalize_live;
use crate::transitions::run_commit_rounds;
use crate::types::ReplicaRef;

impl ReplicaWriter {
    /// Completes the replica at the length it has. When this fails or the process dies on the way,
    /// the replica is still RBW or already finalized, never in between. All of its bytes are in its
    /// files then, and durable within seconds.
    ///
    /// # Errors
    /// `Cancelled`, `Corrupt` (the files do not have the lengths they should), `Io`.
    pub async fn finalize(self) -> Result<ReplicaRef, StoreError> {
        if self.cancel.is_cancelled() {
            return Err(self.was_cancelled());
        }
        let store = Arc::clone(&self.store);
        store.complete(self.finalize_owned()).await
    }

    async fn finalize_owned(mut self) -> Result<ReplicaRef, StoreError> {
        let result = self.finalize_files().await.map_err(|e| self.examine(e));
        self.done = result.is_ok();
        result
    }

    async fn finalize_files(&mut self) -> Result<ReplicaRef, StoreError> {
        let block = self.live.block();
        let failed = |e| StoreError::io(format!("finalizing replica {block}"), e);
        if self.live.status().unsettled {
            return Err(StoreError::illegal(format!(
                "an earlier write of {block} failed"
            )));
        }
        self.write_all().await?;
        self.allocated().await;
        let status = self.live.snapshot();
        let on_disk = self.data.length().await.map_err(failed)?;
        if on_disk != status.bytes_on_disk {
            let text = format!(
                "{block}: the data file has {on_disk} bytes instead of {}",
                status.bytes_on_disk
            );
            return Err(StoreError::corrupt(text));
        }
        self.give_back(on_disk).await.map_err(failed)?;
        self.write_back().await.map_err(|e| {
            self.live.note_failure(&e);
            failed(e)
        })?;
        if self.store.config.sync_on_close {
            let _alone = self.live.syncing.write().await;
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
        let durable = self.store.config.sync_on_close || self.durable_finalize;
        let synced_len = self.live.status().synced_len;
        let done = finalize_live(&self.store, &self.pool, &self.live, durable).await?;
        if self.store.config.sync_on_close || (durable && synced_len == done.bytes_on_disk) {
            run_commit_rounds::forget(&self.live.slice.volume, &self.pool, self.live.id);
        }
        Ok(done)
    }

    /// Gives back the room of a device behind the end of the replica. The next commit round holds
    /// its file open, and many small replicas a second would fill a device meanwhile.
    async fn give_back(&self, len: u64) -> Result<(), IoError> {
        if self.live.slice.volume.engine.capabilities().stubs {
            self.data.truncate(len).await?;
        }
        Ok(())
    }

    /// Has the checksums and an unaligned end of a long replica, whose other data went around the
    /// page cache, written to the device. Otherwise power loss soon after could leave a finalized
    /// replica of full length without them, which Apache's node reports as good.
    async fn write_back(&self) -> Result<(), IoError> {
        let direct = !self.live.slice.volume.engine.capabilities().page_cache;
        if direct && self.bytes_on_disk() >= DIRECT_MIN {
            let writes = together(|| (self.data.write_back(0, 0), self.meta.write_back(0, 0)));
            let (data, meta) = futures_util::future::join(writes.0, writes.1).await;
            data.and(meta)?;
        }
        Ok(())
    }
}
