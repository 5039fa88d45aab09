//! What a replica's growth changes: its two files, and what is known of it.

use std::sync::{Arc, Mutex};

use hayloft_io::{
    EngineFile, FileWrite, IoClass, IoError, SyncKind, WriteBehind, locks, together, write_pair,
};
use hayloft_wire::checksum::DataChecksum;
use tokio_util::sync::CancellationToken;

use crate::error::StoreError;
use crate::replica::LiveReplica;
use crate::replica::Tail;
use crate::replica::block_pool::Pool;
use crate::state::StoreState;
use crate::transitions::run_commit_rounds;
use crate::volume::footprint;
use crate::writer::keep_synced_end::keep;
use crate::writer::write_plan::Plan;

/// Bytes of data that are written in one call with the checksum of the chunk that they complete:
/// what Apache's node writes so. Of more the chunk goes first, alone.
const PAIR_MAX: u64 = 64 << 10;

/// The replica that a writer writes: another one after it has gone to another volume. Shared with
/// those who report acknowledgements.
pub(super) type CurrentReplica = Arc<Mutex<Arc<LiveReplica>>>;

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

    /// Everything below `bytes` was received here and acknowledged by all nodes behind: readers may
    /// see it. Nothing is promised by it.
    pub fn set_bytes_shown(&self, bytes: u64) {
        if !self.cancel.is_cancelled() {
            let live = locks::lock(&self.current);
            let mut status = live.status();
            status.bytes_shown = status.bytes_shown.max(bytes);
        }
    }
}

pub(super) fn acknowledge(live: &LiveReplica, bytes: u64) {
    let mut status = live.status();
    status.bytes_acked = status.bytes_acked.max(bytes.min(status.bytes_on_disk));
}

/// A replica and its open files.
pub(super) struct ReplicaFiles {
    pub store: Arc<StoreState>,
    pub pool: Arc<Pool>,
    pub live: Arc<LiveReplica>,
    pub data: Arc<dyn EngineFile>,
    pub meta: Arc<dyn EngineFile>,
    pub class: IoClass,
}

impl ReplicaFiles {
    /// Writes what was planned behind `before` and takes note of it; whether the data was synced on
    /// the way.
    ///
    /// Where a checksum of a partial chunk is replaced, data and checksum are written right after
    /// one another, in Apache's order. Between the two the chunk, which was acknowledged in part,
    /// has a checksum of its beginning alone: a start of this node finds that, one of Apache's
    /// drops the chunk. With `guard` the chunk holds synced bytes: their end is
    /// [kept](crate::replica::kept_end) first.
    pub(super) async fn write_plan(
        self,
        before: Tail,
        plan: Plan,
        guard: bool,
        write_behind: Option<Arc<WriteBehind>>,
    ) -> Result<bool, StoreError> {
        let Self { live, data, .. } = &self;
        let disk = live.status().checksum;
        let volume = &live.slice.volume;
        let len = plan.tail.len - before.len;
        volume.commits.room(volume, len).await;
        let tail = plan.tail;
        let protection = self.store.protection.as_ref();
        let kept = protection.and_then(|p| p.keep_written(live, &plan.data));
        let synced = match self.write(disk, before, plan, guard).await {
            Ok(synced) => synced,
            Err(error) => {
                live.status().unsettled = true;
                live.note_failure(&error);
                let text = format!("writing replica {}", live.block());
                return Err(StoreError::io(text, error));
            }
        };
        grow(live, disk, before, tail);
        if let (Some(protection), Some(kept)) = (protection, kept) {
            protection.written(live, before.len, &kept);
        }
        let written = before.len..tail.len;
        run_commit_rounds::touch(&self.store, &self.pool, live, (data, &self.meta), written);
        if let Some(write_behind) = write_behind {
            write_behind.written(&**data, tail.len).await;
        }
        Ok(synced)
    }

    async fn write(
        &self,
        disk: Option<DataChecksum>,
        before: Tail,
        mut plan: Plan,
        guard: bool,
    ) -> Result<bool, IoError> {
        let Some(disk) = disk.filter(|_| !plan.sums.is_empty()) else {
            let written = self.data.write_at(plan.data, before.len).await;
            return written.result.map(|_| false);
        };
        if !plan.completes_chunk {
            self.write_whole(disk, before.len, plan).await?;
            return Ok(false);
        }
        if guard && !self.keep_end(before).await? {
            self.write_guarded(disk, before.len, plan).await?;
            return Ok(true);
        }
        let rest = if plan.tail.len - before.len > PAIR_MAX {
            plan.split_first_chunk(disk, before.len)
        } else {
            None
        };
        self.write_chunk(disk, before.len, plan).await?;
        if let Some((at, rest)) = rest {
            self.write_whole(disk, at, rest).await?;
        }
        Ok(false)
    }

    /// Data that begins with a chunk, and its checksums, in any order: of these chunks nothing was
    /// acknowledged.
    async fn write_whole(&self, disk: DataChecksum, at: u64, plan: Plan) -> Result<(), IoError> {
        let sums_at = plan.sums_at(disk);
        let (data, sums) = together(|| {
            let data = self.data.write_at(plan.data, at);
            (data, self.meta.write_at(vec![plan.sums.into()], sums_at))
        });
        let (data, meta) = futures_util::future::join(data, sums).await;
        data.result.and(meta.result).map(drop)
    }

    /// Data within a chunk that was acknowledged in part, and its checksum.
    async fn write_chunk(&self, disk: DataChecksum, at: u64, plan: Plan) -> Result<(), IoError> {
        let sums_at = plan.sums_at(disk);
        let write = |file: &Arc<dyn EngineFile>, bufs, offset| FileWrite {
            file: Arc::clone(file),
            bufs,
            offset,
        };
        let first = write(&self.data, plan.data, at);
        let second = write(&self.meta, vec![plan.sums.into()], sums_at);
        let on = self.live.slice.volume.engine.disk();
        write_pair(on, self.class, first, second).await
    }

    /// As [`write_chunk`](Self::write_chunk) where the end of the synced bytes cannot be kept: what
    /// follows them is on the device before their checksum goes.
    async fn write_guarded(&self, disk: DataChecksum, at: u64, plan: Plan) -> Result<(), IoError> {
        let sums_at = plan.sums_at(disk);
        self.data.write_at(plan.data, at).await.result?;
        self.data.sync(SyncKind::Data).await?;
        let sums = vec![plan.sums.into()];
        self.meta.write_at(sums, sums_at).await.result.map(drop)
    }

    /// Keeps the end of what may have to outlive power loss, and makes it do so; false where that
    /// cannot be.
    async fn keep_end(&self, end: Tail) -> Result<bool, IoError> {
        // Of a later end no client was told that it is on the device.
        let known = self.live.status().synced_len == end.len;
        if !known || !keep(&self.live, self.class, end).await {
            return Ok(false);
        }
        let syncs = (
            self.data.sync(SyncKind::Data),
            self.meta.sync(SyncKind::All),
        );
        let (data, meta) = futures_util::future::join(syncs.0, syncs.1).await;
        data.and(meta)?;
        self.live.status().kept_end = Some(end);
        Ok(true)
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
