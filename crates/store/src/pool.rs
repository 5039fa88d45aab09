//! A block pool that is loaded: its replicas and its parts on the volumes.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};

use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};

use crate::error::{StoreError, StoreErrorKind};
use crate::replica::{Gone, Latches, ReplicaMap, Slot};
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
            .ok_or_else(|| self.volume_failed())
    }

    /// The error for a replica on a volume that has failed or was taken out.
    #[must_use]
    pub fn volume_failed(&self) -> StoreError {
        StoreError::new(
            StoreErrorKind::VolumeFailed,
            format!("pool {}: the volume of the replica has failed", self.id()),
        )
    }

    /// Sets what is known of a block, unless its volume has left: what left with it was taken from the map and told once,
    /// and what came later would stay there for good.
    ///
    /// # Errors
    /// `VolumeFailed`.
    pub fn put(&self, id: i64, slot: Slot) -> Result<(), StoreError> {
        let _replaced = {
            // Held until the map has it, so that `leave` finds it there or was here before.
            let slices = self.slices.read().unwrap_or_else(PoisonError::into_inner);
            if !slices.iter().any(|s| s.volume.index == slot.volume()) {
                return Err(self.volume_failed());
            }
            self.map.insert(id, slot)
        };
        Ok(())
    }

    /// Forgets the part on a volume that leaves, and gives back the replicas that were on it.
    pub fn leave(&self, volume: u16) -> Vec<Gone> {
        self.slices
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|s| s.volume.index != volume);
        self.map.retain(|_, slot| slot.volume() != volume)
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
