//! Finalized replicas whose disk is gone: they stay reported under its storage and are served by
//! decoding, until they are rebuilt on other disks.

use hayloft_wire::ids::{Block, ReplicaState};

use crate::locks;
use crate::replica::FinalReplica;
use crate::replica::block_pool::Pool;
use crate::types::{ReplicaRef, StorageInfo};
use crate::volume::Volume;

/// What a degraded replica is decoded as. Only what protects it knows what the numbers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedAs {
    /// The name of a group of units.
    pub group: u128,
    /// The number of a unit in it.
    pub unit: usize,
}

/// A finalized replica whose disk is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DegradedReplica {
    /// Generation stamp.
    pub generation_stamp: u64,
    /// Length in bytes.
    pub len: u64,
    /// Pinned to this node.
    pub pinned: bool,
    /// The storage that it was on.
    pub storage: StorageInfo,
    /// The unit that it is decoded as.
    pub unit: DecodedAs,
}

impl DegradedReplica {
    /// The block.
    #[must_use]
    pub fn block(&self, id: i64) -> Block {
        Block::new(id, self.generation_stamp, self.len)
    }

    /// What it is once it is rebuilt on a volume.
    #[must_use]
    pub fn on(&self, volume: &Volume) -> FinalReplica {
        FinalReplica {
            generation_stamp: self.generation_stamp,
            len: self.len,
            volume: volume.index,
            pinned: self.pinned,
        }
    }
}

impl Pool {
    /// The degraded replica of a block, unless another one is here.
    pub fn degraded_replica(&self, id: i64) -> Option<DegradedReplica> {
        let found = locks::lock(&self.degraded).get(&id).cloned();
        found.filter(|_| self.map.get(id).is_none())
    }

    /// Looks at each degraded replica that no other takes the place of. Heartbeats do, so none is
    /// copied.
    pub fn for_each_degraded(&self, mut look: impl FnMut(i64, &DegradedReplica)) {
        for (id, replica) in locks::lock(&self.degraded).iter() {
            if self.map.get(*id).is_none() {
                look(*id, replica);
            }
        }
    }

    /// All degraded replicas that no other takes the place of.
    pub fn all_degraded(&self) -> Vec<(i64, DegradedReplica)> {
        let mut all = Vec::new();
        self.for_each_degraded(|id, replica| all.push((id, replica.clone())));
        all
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
