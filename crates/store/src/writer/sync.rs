//! What outlives power loss.

use hayloft_io::SyncKind;

use super::ReplicaWriter;
use crate::error::StoreError;
use crate::finish::pair_of;

impl ReplicaWriter {
    /// hsync: everything written is durable; the first time, the directory entries too.
    ///
    /// # Errors
    /// `Io`: what was written since the last sync may not be durable, whatever a later sync says: each one after it fails,
    /// of later writers, too.
    pub async fn sync(&mut self) -> Result<(), StoreError> {
        self.live.refuse_after_failed_sync()?;
        let failed = |e| {
            self.live.note_failure(&e);
            StoreError::io(format!("syncing replica {}", self.live.block()), e)
        };
        let len = self.bytes_on_disk();
        if let Some(staged) = &self.staged {
            staged.flush().await.map_err(|e| self.examine(failed(e)))?;
            self.data_synced |= staged.main_synced() >= len;
        }
        let sync_data = async {
            if self.data_synced {
                return Ok(());
            }
            self.data.sync(SyncKind::Data).await
        };
        let (data, meta) =
            futures_util::future::join(sync_data, self.meta.sync(SyncKind::Data)).await;
        data.and(meta).map_err(|e| self.examine(failed(e)))?;
        self.data_synced = true;
        self.synced_len = len;
        if let Some(staged) = &self.staged {
            staged.note_synced(len);
        }
        if !self.names_durable {
            let dir = pair_of(&self.live).dir;
            let meta = self.live.slice.volume.meta(self.class);
            meta.sync_dir(&dir)
                .await
                .map_err(|e| self.examine(failed(e)))?;
            self.names_durable = true;
        }
        Ok(())
    }

    /// The writer asked for a synced close: what [`finalize`](Self::finalize) does outlives power loss when
    /// it returns. The data does only after [`sync`](Self::sync).
    pub fn finalize_durably(&mut self) {
        self.durable_finalize = true;
    }
}
