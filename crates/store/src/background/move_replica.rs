//! Moving replicas between volumes of this node.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use hayloft_io::{IoClass, IoError, IoOp};
use hayloft_wire::checksum::{DataChecksum, META_HEADER_LEN};
use hayloft_wire::ids::{Block, ExtendedBlock, StorageType};
use tracing::warn;

use crate::error::{StoreError, StoreErrorKind};
use crate::lifecycle::volume_failure::examine;
use crate::replica::block_pool::Pool;
use crate::replica::files::{self, Pair};
use crate::replica::{FinalReplica, ReplicaDir, Slot};
use crate::state::StoreState;
use crate::types::ReplicaRef;
use crate::volume::{BlockPoolSlice, footprint};

/// Bytes copied at a time, at least; a whole number of chunks.
const PIECE_BYTES: usize = 1 << 20;

/// See [`Store::move_block`](crate::Store::move_block).
pub async fn move_block(
    inner: &Arc<StoreState>,
    block: &ExtendedBlock,
    target: StorageType,
    storage_id: Option<&str>,
) -> Result<ReplicaRef, StoreError> {
    let pool = inner.pool(&block.pool)?;
    let id = block.block.id;
    let (replica, from) = source(&pool, block)?;
    let storage_id = storage_id.filter(|id| !id.is_empty());
    if from.volume.info.storage_type == target
        && storage_id.is_none_or(|id| *id == *from.volume.info.id)
    {
        return Err(StoreError::new(
            StoreErrorKind::AlreadyExists,
            format!("Replica {block} already exists on storage {target}"),
        ));
    }
    let slice = inner.choose_slice(&pool, target, storage_id, replica.len, Some(replica.volume))?;
    let outcome = copy_and_switch(inner, &pool, id, replica, &from, &slice).await;
    slice.volume.release_reserved(replica.len);
    outcome
}

fn source(
    pool: &Pool,
    block: &ExtendedBlock,
) -> Result<(FinalReplica, Arc<BlockPoolSlice>), StoreError> {
    let slot = pool.slot(block.block.id)?;
    let Slot::Finalized(replica) = slot else {
        let text = format!("Replica {block} is not finalized and cannot be moved");
        return Err(StoreError::not_found(text));
    };
    if replica.generation_stamp < block.block.generation_stamp {
        let text = format!(
            "Replica {block} has the older generation stamp {}",
            replica.generation_stamp
        );
        return Err(StoreError::new(
            StoreErrorKind::UnexpectedGenerationStamp,
            text,
        ));
    }
    Ok((replica, pool.slice(replica.volume)?))
}

/// Copies to `tmp` of the other volume without a latch, then switches under the latch if
/// the replica is still the same.
async fn copy_and_switch(
    inner: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    replica: FinalReplica,
    from: &Arc<BlockPoolSlice>,
    to: &Arc<BlockPoolSlice>,
) -> Result<ReplicaRef, StoreError> {
    let old = Block::new(id, replica.generation_stamp, replica.len);
    let unique = to
        .delete_sequence
        .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let source = Pair::finalized(&from.paths, id, replica.generation_stamp);
    // A directory of its own: a copy from another node may be in `tmp` under the same name.
    let scratch = source.at(to.paths.tmp().join(format!("move-{unique}")));
    let failed = |e| {
        let e = StoreError::io(
            format!("moving replica {old} to {}", to.volume.root.display()),
            e,
        );
        examine(inner, &to.volume, examine(inner, &from.volume, e))
    };
    let copied = copy(to, source, scratch.clone(), replica.len).await;
    let checksum = copied.map_err(failed)?;
    let _latch = pool.latches.acquire(id).await;
    let unchanged = pool.map.is_finalized(id, &replica);
    let target = scratch.at(to.paths.finalized_dir(id));
    let target = unchanged.then_some(target);
    settle_copy(to, scratch, target, replica.pinned)
        .await
        .map_err(failed)?;
    if !unchanged {
        let text = format!("replica {old} changed while it was moved");
        return Err(StoreError::illegal(text));
    }
    to.used.add(footprint(replica.len, Some(checksum)));
    let slot = Slot::Finalized(FinalReplica {
        volume: to.volume.index,
        ..replica
    });
    let leaves = || to.volume.is_failed().then(|| pool.volume_failed());
    leaves().map_or(Ok(()), Err)?;
    pool.put(id, slot.clone())?;
    if let Some(refused) = leaves() {
        // The copy leaves with its volume: the source stays. If that has left too, the copy is told
        // as lost with its own.
        let _ = pool.put(id, Slot::Finalized(replica));
        return Err(refused);
    }
    if let Err(error) = crate::lifecycle::delete::discard_files(
        inner,
        pool,
        from,
        ReplicaDir::Finalized,
        old,
        false,
    )
    .await
    {
        // The move is done, and the NameNode has to hear of it.
        warn!(block = %old, volume = %from.volume.root.display(), %error, "cannot delete the \
            source of a moved replica; it is a duplicate that the next start deletes");
    }
    Ok(crate::replica::reference::reference_of(pool, to, id, &slot))
}

/// Copies a pair to the directory `to`, which goes again when that fails.
async fn copy(
    slice: &BlockPoolSlice,
    from: Pair,
    to: Pair,
    len: u64,
) -> Result<DataChecksum, IoError> {
    let path = to.data();
    let work = move || {
        let copied = copy_verified(&from, &to, len);
        if copied.is_err() {
            // The first error is the one to report; what stays goes at the next start.
            let _ = fs::remove_dir_all(&to.dir);
        }
        copied
    };
    files::on_disk(slice, IoClass::Balancer, IoOp::Write, &path, work).await
}

/// Moves a copy to its `target`, if it is given one, and removes its directory.
async fn settle_copy(
    slice: &BlockPoolSlice,
    copy: Pair,
    target: Option<Pair>,
    pinned: bool,
) -> Result<(), IoError> {
    let path = copy.data();
    let work = move || {
        if let Some(target) = target {
            if pinned {
                files::pin(&copy.data())?;
            }
            // The source goes next: from here on the copy must outlive power loss.
            files::move_pair(&copy, &target, true)?;
        }
        fs::remove_dir_all(&copy.dir)
    };
    files::on_disk_with_sync(slice, IoClass::Balancer, IoOp::Rename, &path, true, work).await
}

/// Copies a pair to the device and compares every chunk with its checksum on the way. Blocking.
fn copy_verified(from: &Pair, to: &Pair, len: u64) -> io::Result<DataChecksum> {
    let damaged = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    crate::layout::dirs::make_dir(&to.dir)?;
    fs::copy(from.meta(), to.meta())?;
    let mut meta = io::BufReader::with_capacity(64 << 10, File::open(to.meta())?);
    let mut header = [0; META_HEADER_LEN];
    meta.read_exact(&mut header)?;
    let checksum = DataChecksum::decode_meta_header(&header).map_err(|e| damaged(e.to_string()))?;
    let (mut data, mut copy) = (File::open(from.data())?, File::create_new(to.data())?);
    let piece = PIECE_BYTES.next_multiple_of(checksum.chunk_size());
    let (mut buf, mut sums) = (vec![0; piece], vec![0; checksum.sums_len(piece)]);
    let mut left = len;
    while left > 0 {
        let n = usize::try_from(left).map_or(piece, |left| left.min(piece));
        let sums = &mut sums[..checksum.sums_len(n)];
        data.read_exact(&mut buf[..n])?;
        meta.read_exact(sums)?;
        checksum
            .verify(&buf[..n], sums)
            .map_err(|e| damaged(e.to_string()))?;
        copy.write_all(&buf[..n])?;
        left -= n as u64;
    }
    if data.read(&mut [0])? != 0 {
        return Err(damaged(format!("the data file is longer than {len} bytes")));
    }
    copy.sync_all()?;
    meta.into_inner().sync_all()?;
    Ok(checksum)
}
