//! Replicas whose files are not there, opened by decoding.

use std::sync::Arc;

use hayloft_wire::ids::{Block, ExtendedBlock};

use super::replica_reader::ReplicaReader;
use crate::error::{StoreError, StoreErrorKind};
use crate::protection::Damage;
use crate::replica::Slot;
use crate::replica::block_pool::Pool;
use crate::replica::degraded::DecodedAs;
use crate::state::StoreState;
use crate::types::StorageInfo;

/// Opens a degraded replica; `None` when there is none.
pub(super) async fn open_degraded(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    wanted: &ExtendedBlock,
) -> Option<Result<ReplicaReader, StoreError>> {
    let replica = pool.degraded_replica(wanted.block.id)?;
    let here = replica.block(wanted.block.id);
    if here.generation_stamp < wanted.block.generation_stamp {
        let text = format!("Replica gen stamp < block genstamp, block={wanted}, replica={here}");
        let kind = StoreErrorKind::UnexpectedGenerationStamp;
        return Some(Err(StoreError::new(kind, text)));
    }
    decoded(store, pool, here, replica.storage, replica.unit).await
}

/// A finalized replica whose files cannot be opened, if its protection has all of it. The replica
/// is mended in the background.
pub(super) async fn instead(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    slot: &Slot,
    damage: Damage,
) -> Option<ReplicaReader> {
    let (Some(protection), Slot::Finalized(replica)) = (&store.protection, slot) else {
        return None;
    };
    let here = slot.block(id);
    let storage = pool.slice(replica.volume).ok()?.volume.info.clone();
    let unit = protection.covers(pool.id(), here.id, &storage.id, here.num_bytes)?;
    let opened = decoded(store, pool, here, storage.clone(), unit).await?;
    let reader = opened.ok()?;
    protection.heal(store, pool.extended(here), storage, damage);
    Some(reader)
}

async fn decoded(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    here: Block,
    storage: StorageInfo,
    unit: DecodedAs,
) -> Option<Result<ReplicaReader, StoreError>> {
    let protection = store.protection.as_ref()?;
    // Reads run on the disks of its sources; the reader only names one of the pool.
    let slice = pool.slices().into_iter().find(|s| !s.volume.is_failed())?;
    let opened = protection.decode(unit).await;
    let reader = opened
        .map(|files| ReplicaReader::decoded(store, &slice, storage, pool.extended(here), files));
    Some(reader)
}
