//! What outlives power loss.

use std::path::Path;
use std::sync::Arc;

use hayloft_io::{EngineFile, IoError, Meta, SyncKind};

use super::ReplicaWriter;
use crate::error::StoreError;
use crate::replica::{LiveReplica, Tail};
use crate::transitions::run_commit_rounds;
use crate::writer::keep_synced_end::keep;

impl ReplicaWriter {
    /// hsync: everything written is durable; the first time, the directory entries too.
    ///
    /// # Errors
    /// `Io`: what was written since the last sync may not be durable, whatever a later sync says.
    /// Each later one fails, of later writers too.
    pub async fn sync(&mut self) -> Result<(), StoreError> {
        self.live.refuse_after_failed_sync()?;
        self.write_all().await?;
        let end = self.live.status().tail();
        let to_keep = self.end_to_keep(end);
        let class = self.class;
        let files = (
            (!self.data_synced).then(|| Arc::clone(&self.data)),
            Arc::clone(&self.meta),
        );
        let dir = (!self.names_durable).then(|| self.live.pair().dir);
        let names = self.live.slice.volume.meta(self.class);
        let (live, writer_lock) = (Arc::clone(&self.live), Arc::clone(&self.writer_lock));
        let work = async move {
            // No other task gets at the files before it is known. The kernel tells of a failure
            // once, and a descriptor opened afterwards does not hear of it.
            let _writer_lock = writer_lock;
            let _alone = live.syncing.write().await;
            // Work in the background may have been told meanwhile.
            live.refuse_after_failed_sync()?;
            let kept = match to_keep {
                Some(end) if keep(&live, class, end).await => Some(end),
                _ => None,
            };
            let kind = kept.map_or(SyncKind::Data, |_| SyncKind::All);
            let synced = sync_files(files, kind, &names, dir.as_deref()).await;
            synced.map_err(|e| failed(&live, e))?;
            if kept.is_some() {
                live.status().kept_end = kept;
            }
            Ok(())
        };
        self.store
            .complete(work)
            .await
            .map_err(|e| self.examine(e))?;
        // Write-back of the same descriptor may have been told instead of this sync.
        self.live.refuse_after_failed_sync()?;
        self.data_synced = true;
        self.names_durable = true;
        self.live.status().synced_len = end.len;
        // The next round has nothing to do for it, unless more is written.
        run_commit_rounds::forget(&self.live.slice.volume, &self.pool, self.live.id);
        Ok(())
    }

    /// The end of what is to be synced, when it is in a chunk, whose checksum the next write
    /// replaces.
    fn end_to_keep(&self, end: Tail) -> Option<Tail> {
        let status = self.live.status();
        let checksum = status.checksum.filter(|sum| sum.sum_size() > 0)?;
        let partial = checksum.chunk_start(end.len) < end.len;
        (partial && status.kept_end != Some(end)).then_some(end)
    }

    /// The writer asked for a synced close: what [`finalize`](Self::finalize) does outlives power
    /// loss when it returns. The data does only after [`sync`](Self::sync).
    pub fn finalize_durably(&mut self) {
        self.durable_finalize = true;
    }
}

/// Syncs the data, where that is not synced, the checksums, and where they are new the names of
/// both.
async fn sync_files(
    (data, meta): (Option<Arc<dyn EngineFile>>, Arc<dyn EngineFile>),
    kind_of_meta: SyncKind,
    names: &Meta,
    dir: Option<&Path>,
) -> Result<(), IoError> {
    let sync_data = async {
        match &data {
            Some(data) => data.sync(SyncKind::Data).await,
            None => Ok(()),
        }
    };
    let (data, meta) = futures_util::future::join(sync_data, meta.sync(kind_of_meta)).await;
    data.and(meta)?;
    match dir {
        Some(dir) => names.sync_dir(dir).await,
        None => Ok(()),
    }
}

/// Takes note of what failed, and says what it was for.
fn failed(live: &LiveReplica, error: IoError) -> StoreError {
    live.note_failure(&error);
    StoreError::io(format!("syncing replica {}", live.block()), error)
}
