//! What a replica's growth changes: its two files, and what is known of it.

use std::sync::Arc;

use hayloft_io::{EngineFile, IoError, SyncKind, WriteBehind, together};
use hayloft_wire::checksum::DataChecksum;
use tokio_util::sync::CancellationToken;

use crate::error::StoreError;
use crate::lifecycle::commit;
use crate::locks;
use crate::parity;
use crate::replica::LiveReplica;
use crate::replica::Tail;
use crate::replica::block_pool::Pool;
use crate::state::StoreState;
use crate::volume::footprint;
use crate::writer::append_plan::Plan;
use crate::writer::elsewhere::CurrentReplica;

/// Reports what the whole pipeline has acknowledged. Cheap to clone; of no effect once another
/// writer took the replica over.
#[derive(Clone, Debug)]
pub struct AckHandle {
    pub(super) current: CurrentReplica,
    pub(super) cancel: CancellationToken,
}

impl AckHandle {
    /// As [`super::ReplicaWriter::set_bytes_acked`].
    pub fn set_bytes_acked(&self, bytes: u64) {
        if !self.cancel.is_cancelled() {
            acknowledge(&locks::lock(&self.current), bytes);
        }
    }
}

pub(super) fn acknowledge(live: &LiveReplica, bytes: u64) {
    let mut status = live.status();
    status.bytes_acked = status.bytes_acked.max(bytes.min(status.bytes_on_disk));
}

/// A replica and its open files.
pub(super) struct ReplicaFiles {
    pub inner: Arc<StoreState>,
    pub pool: Arc<Pool>,
    pub live: Arc<LiveReplica>,
    pub data: Arc<dyn EngineFile>,
    pub meta: Arc<dyn EngineFile>,
}

impl ReplicaFiles {
    /// Writes what was planned behind `before` and takes note of it. Data goes before checksums
    /// when a checksum of a partial chunk is replaced. A killed process then leaves the old
    /// checksum, which still tells where the acknowledged bytes end. The other way round they could
    /// not be told from damage. With `guard`, data reaches the device before, so that this is true
    /// of power loss too.
    pub(super) async fn write_plan(
        self,
        before: Tail,
        plan: Plan,
        guard: bool,
        write_behind: Option<Arc<WriteBehind>>,
    ) -> Result<(), StoreError> {
        let Self { live, data, .. } = &self;
        let disk = live.status().checksum;
        let volume = &live.slice.volume;
        let len = plan.tail.len - before.len;
        volume.commits.room(volume, len).await;
        let tail = plan.tail;
        parity::note_write(&self.inner);
        let kept = parity::keep_written(&self.inner, live, &plan.data);
        if let Err(error) = self.write(disk, before, plan, guard).await {
            live.status().unsettled = true;
            live.note_failure(&error);
            let text = format!("writing replica {}", live.block());
            return Err(StoreError::io(text, error));
        }
        grow(live, disk, before, tail);
        if let Some(kept) = kept {
            parity::written(&self.inner, live, before.len, &kept);
        }
        let written = before.len..tail.len;
        commit::touch(&self.inner, &self.pool, live, (data, &self.meta), written);
        if let Some(write_behind) = write_behind {
            write_behind.written(&**data, tail.len).await;
        }
        Ok(())
    }

    async fn write(
        &self,
        disk: Option<DataChecksum>,
        before: Tail,
        plan: Plan,
        guard: bool,
    ) -> Result<(), IoError> {
        let Some(disk) = disk.filter(|_| !plan.sums.is_empty()) else {
            return self
                .data
                .write_at(plan.data, before.len)
                .await
                .result
                .map(drop);
        };
        let first = plan
            .first_chunk
            .saturating_mul(u64::from(disk.bytes_per_checksum()));
        let (sums, sums_at) = (vec![plan.sums.into()], disk.meta_len(first));
        if !plan.completes_chunk {
            let (data, sums) = together(|| {
                let data = self.data.write_at(plan.data, before.len);
                (data, self.meta.write_at(sums, sums_at))
            });
            let (data, meta) = futures_util::future::join(data, sums).await;
            return data.result.and(meta.result).map(drop);
        }
        self.data.write_at(plan.data, before.len).await.result?;
        if guard {
            self.data.sync(SyncKind::Data).await?;
        }
        self.meta.write_at(sums, sums_at).await.result.map(drop)
    }
}

/// Takes note that a replica has grown.
pub(super) fn grow(live: &LiveReplica, disk: Option<DataChecksum>, before: Tail, tail: Tail) {
    let grown = footprint(tail.len, disk).saturating_sub(footprint(before.len, disk));
    let mut status = live.status();
    status.bytes_on_disk = tail.len;
    status.last_crc = tail.crc;
    status.unwritten = false;
    let used_up = grown.min(status.bytes_reserved);
    status.bytes_reserved -= used_up;
    let allocated = used_up.min(status.allocated_ahead);
    status.allocated_ahead -= allocated;
    drop(status);
    live.slice.used.add(grown);
    live.slice.volume.release_reserved(used_up);
    live.slice.volume.release_allocated(allocated);
}
