//! What a replica's growth changes: its two files, and what is known of it.

use std::sync::Arc;

use hayloft_io::{EngineFile, SyncKind};
use hayloft_wire::checksum::DataChecksum;
use tokio_util::sync::CancellationToken;

use crate::error::StoreError;
use crate::plan::{Plan, Tail};
use crate::replica::LiveReplica;
use crate::volume::footprint;

/// Reports what the whole pipeline has acknowledged. Cheap to clone; of no effect once another
/// writer took the replica over.
#[derive(Clone, Debug)]
pub struct AckHandle {
    pub(super) live: Arc<LiveReplica>,
    pub(super) cancel: CancellationToken,
}

impl AckHandle {
    /// As [`super::ReplicaWriter::set_bytes_acked`].
    pub fn set_bytes_acked(&self, bytes: u64) {
        if !self.cancel.is_cancelled() {
            acknowledge(&self.live, bytes);
        }
    }
}

pub(super) fn acknowledge(live: &LiveReplica, bytes: u64) {
    let mut status = live.status();
    status.bytes_acked = status.bytes_acked.max(bytes.min(status.bytes_on_disk));
}

/// Writes what was planned and takes note of it. Data goes before checksums when a checksum of a
/// partial chunk is replaced: a killed process then leaves the old checksum, which still tells
/// where the acknowledged bytes end; the other way round they could not be told from damage. With `guard`, data
/// reaches the device before, so that this is true of power loss too.
pub(super) async fn carry_out(
    live: &LiveReplica,
    disk: DataChecksum,
    before: Tail,
    plan: Plan,
    guard: bool,
    (data, meta): (Arc<dyn EngineFile>, Arc<dyn EngineFile>),
) -> Result<(), StoreError> {
    let Plan {
        data: pieces,
        sums,
        first_chunk,
        completes_chunk,
        tail,
    } = plan;
    let sums_at = disk.meta_len(first_chunk.saturating_mul(u64::from(disk.bytes_per_checksum())));
    let write_data = data.write_at(pieces, before.len);
    let outcome = if sums.is_empty() {
        write_data.await.result
    } else if completes_chunk {
        let mut written = write_data.await.result;
        if guard && written.is_ok() {
            written = data.sync(SyncKind::Data).await.and(written);
        }
        match written {
            Ok(_) => meta.write_at(vec![sums.into()], sums_at).await.result,
            Err(e) => Err(e),
        }
    } else {
        let write_sums = meta.write_at(vec![sums.into()], sums_at);
        let (data, meta) = futures_util::future::join(write_data, write_sums).await;
        data.result.and(meta.result)
    };
    if let Err(error) = outcome {
        live.status().unsettled = true;
        live.note_failure(&error);
        return Err(StoreError::io(
            format!("writing replica {}", live.block()),
            error,
        ));
    }
    grow(live, disk, before, tail);
    Ok(())
}

/// Takes note that a replica has grown.
pub(super) fn grow(live: &LiveReplica, disk: DataChecksum, before: Tail, tail: Tail) {
    let grown = footprint(tail.len, Some(disk)).saturating_sub(footprint(before.len, Some(disk)));
    let mut status = live.status();
    status.bytes_on_disk = tail.len;
    status.last_crc = tail.crc;
    let used_up = grown.min(status.promised);
    status.promised -= used_up;
    let allocated = used_up.min(status.allocated_ahead);
    status.allocated_ahead -= allocated;
    drop(status);
    live.slice.used.add(grown);
    live.slice.volume.release(used_up);
    live.slice.volume.release_allocated(allocated);
}
