//! A block pool that is loaded: its replicas and its parts on the volumes.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};

use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};

use crate::error::{StoreError, StoreErrorKind};
use crate::replica::{Latches, ReplicaMap, Slot};
use crate::types::PoolSpec;
use crate::volume::Slice;

/// One pool.
#[derive(Debug)]
pub struct Pool {
    /// As the NameNode introduced it.
    pub spec: PoolSpec,
    /// Its replicas.
    pub map: ReplicaMap,
    /// The right to change a block.
    pub latches: Latches,
    /// Its parts on healthy volumes.
    pub slices: RwLock<Vec<Arc<Slice>>>,
    /// A rolling upgrade runs: what is deleted goes to `trash`.
    pub rolling_upgrade: AtomicBool,
    /// There may be a marker or trash on a volume.
    pub upgrade_leftovers: AtomicBool,
    /// A volume could not be given the marker of the rolling upgrade that runs.
    pub upgrade_unmarked: AtomicBool,
}

impl Pool {
    /// A pool without replicas.
    #[must_use]
    pub fn new(spec: PoolSpec) -> Self {
        Self {
            spec,
            map: ReplicaMap::new(),
            latches: Latches::new(),
            slices: RwLock::default(),
            rolling_upgrade: AtomicBool::new(false),
            upgrade_leftovers: AtomicBool::new(false),
            upgrade_unmarked: AtomicBool::new(false),
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &PoolId {
        &self.spec.pool
    }

    /// A block of this pool.
    #[must_use]
    pub fn extended(&self, block: Block) -> ExtendedBlock {
        ExtendedBlock::new(self.spec.pool.clone(), block)
    }

    /// Its parts on healthy volumes.
    #[must_use]
    pub fn slices(&self) -> Vec<Arc<Slice>> {
        self.slices
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Its part on the volume with this number.
    ///
    /// # Errors
    /// `VolumeFailed` when the volume is no longer there.
    pub fn slice(&self, volume: u16) -> Result<Arc<Slice>, StoreError> {
        let slices = self.slices.read().unwrap_or_else(PoisonError::into_inner);
        slices
            .iter()
            .find(|s| s.volume.index == volume && !s.volume.is_failed())
            .cloned()
            .ok_or_else(|| {
                StoreError::new(
                    StoreErrorKind::VolumeFailed,
                    format!("pool {}: the volume of the replica has failed", self.id()),
                )
            })
    }

    /// What is known of a block.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn slot(&self, id: i64) -> Result<Slot, StoreError> {
        self.map.get(id).ok_or_else(|| self.not_found(id))
    }

    /// The error for a block that is not here.
    #[must_use]
    pub fn not_found(&self, id: i64) -> StoreError {
        StoreError::new(
            StoreErrorKind::NotFound,
            format!("Replica not found for {}:blk_{id}", self.id()),
        )
    }
}
