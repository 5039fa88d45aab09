//! Finalized replicas whose disk is gone: they stay reported under its storage and are served by
//! decoding, until they are rebuilt on other disks.

use hayloft_wire::ids::Block;

use crate::replica::FinalReplica;
use crate::types::StorageInfo;
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
