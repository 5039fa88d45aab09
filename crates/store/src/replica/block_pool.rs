//! A block pool that is loaded: its replicas and its parts on the volumes.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Instant;

use hayloft_io::locks;
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};

use crate::error::{StoreError, StoreErrorKind};
use crate::replica::FinalReplica;
use crate::replica::degraded::DegradedReplica;
use crate::replica::memory_counts::LazyPersist;
use crate::replica::removed_storages::RemovedStorages;
use crate::replica::rolling_mode::RollingMode;
use crate::replica::{Gone, Latches, ReplicaMap, Slot};
use crate::types::{PoolSpec, StorageInfo};
use crate::volume::BlockPoolSlice;

/// One pool.
#[derive(Debug)]
pub struct Pool {
    /// As the NameNode introduced it.
    pub(crate) spec: PoolSpec,
    /// Its replicas.
    pub map: ReplicaMap,
    /// The right to change a block.
    pub latches: Latches,
    /// Its parts on healthy volumes.
    slices: RwLock<Vec<Arc<BlockPoolSlice>>>,
    /// Storages of volumes that have left. Changed only while `slices` is held, so that no storage
    /// is in both.
    removed: Mutex<RemovedStorages>,
    /// Replicas of failed disks that are served by decoding. One in `map` takes precedence.
    pub degraded: Mutex<HashMap<i64, DegradedReplica>>,
    /// Which replicas are protected is known: until then none counts as unprotected.
    pub protection_known: AtomicBool,
    /// What its NameNode says of a rolling upgrade.
    pub(crate) rolling: RollingMode,
}

impl Pool {
    /// A pool without replicas.
    #[must_use]
    pub(crate) fn new(spec: PoolSpec, lazy: Arc<LazyPersist>) -> Self {
        Self {
            spec,
            map: ReplicaMap::new(lazy),
            latches: Latches::new(),
            slices: RwLock::default(),
            removed: Mutex::default(),
            degraded: Mutex::default(),
            protection_known: AtomicBool::new(false),
            rolling: RollingMode::default(),
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
    pub fn slices(&self) -> Vec<Arc<BlockPoolSlice>> {
        locks::read(&self.slices).clone()
    }

    /// Its parts on healthy volumes, and the storages that have left and are not among these.
    #[must_use]
    pub(crate) fn storages(&self) -> (Vec<Arc<BlockPoolSlice>>, Vec<StorageInfo>) {
        let slices = locks::read(&self.slices);
        (slices.clone(), self.removed().named(Instant::now()))
    }

    fn removed(&self) -> MutexGuard<'_, RemovedStorages> {
        locks::lock(&self.removed)
    }

    /// Its part on the volume with this number.
    ///
    /// # Errors
    /// `VolumeFailed` when the volume is no longer there.
    pub fn slice(&self, volume: u16) -> Result<Arc<BlockPoolSlice>, StoreError> {
        let slices = locks::read(&self.slices);
        slices
            .iter()
            .find(|s| s.volume.index == volume && !s.volume.is_failed())
            .cloned()
            .ok_or_else(|| self.volume_failed())
    }

    /// Waits for `work` on a volume, but no longer than the volume is in use: a disk that gives no
    /// answer ends nothing that it has begun.
    ///
    /// # Errors
    /// `VolumeFailed`, and those of `work`.
    pub(crate) async fn unless_gone<T>(
        &self,
        volume: u16,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let slice = self.slice(volume)?;
        tokio::select! {
            biased;
            done = work => done,
            () = slice.volume.gone.cancelled() => Err(self.volume_failed()),
        }
    }

    /// The error for a replica on a volume that has failed or was taken out.
    #[must_use]
    pub(crate) fn volume_failed(&self) -> StoreError {
        StoreError::new(
            StoreErrorKind::VolumeFailed,
            format!("pool {}: the volume of the replica has failed", self.id()),
        )
    }

    /// Sets what is known of a block, unless its volume has left. What left with it was taken from
    /// the map and told once; what came later would stay there for good.
    ///
    /// # Errors
    /// `VolumeFailed`.
    pub fn put(&self, id: i64, slot: Slot) -> Result<(), StoreError> {
        self.while_here(slot.volume(), || self.map.insert(id, slot))
            .map(drop)
    }

    /// As [`put`](Self::put) while the pool still says `there` of the block; whether it did.
    ///
    /// # Errors
    /// `VolumeFailed`.
    pub(crate) fn put_instead(
        &self,
        id: i64,
        there: &Slot,
        slot: Slot,
    ) -> Result<bool, StoreError> {
        self.while_here(slot.volume(), || self.map.replace_if(id, there, slot))
            .map(|replaced| replaced.is_some())
    }

    /// A replica in memory has a second copy, unless the replica has changed or the volume of the
    /// copy has left; whether that counts.
    pub(crate) fn persist(&self, id: i64, replica: &FinalReplica, copy: FinalReplica) -> bool {
        let persist = || self.map.in_memory.persist(id, replica, copy);
        self.while_here(copy.volume, persist).unwrap_or(false)
    }

    /// Changes the map while a volume cannot leave, so that [`leave`](Self::leave) finds the change
    /// there or was here before. What is replaced is given back: files are closed without a lock.
    fn while_here<T>(&self, volume: u16, change: impl FnOnce() -> T) -> Result<T, StoreError> {
        let slices = locks::read(&self.slices);
        if !slices.iter().any(|s| s.volume.index == volume) {
            return Err(self.volume_failed());
        }
        Ok(change())
    }

    /// Takes in the part on a volume that joins.
    pub(crate) fn join(&self, slice: Arc<BlockPoolSlice>) {
        let mut slices = locks::write(&self.slices);
        self.removed().forget(&slice.volume.info.id);
        if slice.volume.info.storage_type.is_transient() {
            self.map.in_memory.volume_joins(slice.volume.index);
        }
        slices.push(slice);
    }

    /// Forgets the part on a volume that leaves, and gives back the replicas that were on it.
    pub(crate) fn leave(&self, volume: u16) -> Vec<Gone> {
        {
            let mut slices = locks::write(&self.slices);
            let (gone, here) = slices.drain(..).partition(|s| s.volume.index == volume);
            let gone: Vec<Arc<BlockPoolSlice>> = gone;
            *slices = here;
            for BlockPoolSlice { volume, .. } in gone.iter().map(Arc::as_ref) {
                // Whatever happens: by an empty list of a storage that is in use, the NameNode
                // would miss all that is on it.
                if !slices.iter().any(|s| s.volume.info.id == volume.info.id) {
                    self.removed().remember(volume.info.clone(), Instant::now());
                }
            }
        }
        let gone = self.map.retain(|_, slot| slot.volume() != volume);
        self.map.in_memory.volume_left(volume);
        gone
    }

    /// What is known of a block.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn slot(&self, id: i64) -> Result<Slot, StoreError> {
        self.map.get(id).ok_or_else(|| self.not_found(id))
    }

    /// The error for a block that is not here.
    #[must_use]
    pub(crate) fn not_found(&self, id: i64) -> StoreError {
        StoreError::not_found(format!("Replica not found for {}:blk_{id}", self.id()))
    }

    /// Whether a block has a replica here, in whatever state. One on a volume that has just failed
    /// is none, though it has yet to leave the map.
    #[must_use]
    pub fn has(&self, id: i64) -> bool {
        let slot = self.map.get(id);
        slot.is_some_and(|slot| self.slice(slot.volume()).is_ok())
    }

    /// The degraded replica of a block, unless another one is here.
    pub fn degraded_replica(&self, id: i64) -> Option<DegradedReplica> {
        let found = locks::lock(&self.degraded).get(&id).cloned();
        found.filter(|_| !self.has(id))
    }

    /// Looks at each degraded replica that no other takes the place of. Heartbeats do, so none is
    /// copied.
    pub fn for_each_degraded(&self, mut look: impl FnMut(i64, &DegradedReplica)) {
        for (id, replica) in locks::lock(&self.degraded).iter() {
            if !self.has(*id) {
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
