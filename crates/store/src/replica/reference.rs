//! What is said of a replica, to peers and in reports.

use hayloft_wire::ids::{Block, ReplicaState};

use super::block_pool::Pool;
use super::{LiveReplica, Slot};
use crate::types::{ReplicaRef, ReplicaReport};
use crate::volume::BlockPoolSlice;

/// What is known of a live replica.
pub fn reference(pool: &Pool, live: &LiveReplica) -> ReplicaRef {
    let status = live.snapshot();
    ReplicaRef {
        block: pool.extended(Block::new(
            live.id,
            status.generation_stamp,
            status.bytes_on_disk,
        )),
        state: status.state,
        visible_len: status.visible_len(),
        bytes_on_disk: status.bytes_on_disk,
        storage: live.slice.volume.info.clone(),
        pinned: status.pinned,
    }
}

/// What is known of a replica on `slice`.
#[must_use]
pub fn reference_of(pool: &Pool, slice: &BlockPoolSlice, id: i64, slot: &Slot) -> ReplicaRef {
    match slot {
        Slot::Live(live) => reference(pool, live),
        Slot::Finalized(r) => ReplicaRef {
            block: pool.extended(Block::new(id, r.generation_stamp, r.len)),
            state: ReplicaState::Finalized,
            visible_len: Some(r.len),
            bytes_on_disk: r.len,
            storage: slice.volume.info.clone(),
            pinned: r.pinned,
        },
    }
}

/// What a report says of a replica: one under recovery is reported as what it was before, one
/// being copied not at all.
#[must_use]
pub fn reported(id: i64, slot: &Slot) -> Option<ReplicaReport> {
    match slot {
        Slot::Finalized(r) => Some(ReplicaReport {
            block: Block::new(id, r.generation_stamp, r.len),
            state: ReplicaState::Finalized,
        }),
        Slot::Live(live) => {
            let status = live.status();
            let state = status
                .recovery
                .map_or(status.state, |(_, original)| original);
            if state == ReplicaState::Temporary {
                return None;
            }
            let block = Block::new(id, status.generation_stamp, status.bytes_on_disk);
            Some(ReplicaReport { block, state })
        }
    }
}

/// What is known of a degraded replica.
pub fn reference_degraded(pool: &Pool, id: i64) -> Option<ReplicaRef> {
    let replica = pool.degraded_replica(id)?;
    Some(ReplicaRef {
        block: pool.extended(replica.block(id)),
        state: ReplicaState::Finalized,
        visible_len: Some(replica.len),
        bytes_on_disk: replica.len,
        storage: replica.storage,
        pinned: replica.pinned,
    })
}
