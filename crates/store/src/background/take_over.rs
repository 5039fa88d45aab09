//! Taking a replica over from another store of this process: between virtual nodes of one host.
//!
//! On one file system the files get second names and no byte is copied; between disks they are
//! copied, and compared with their checksums. The source keeps its replica until its NameNode
//! orders it away, as after a copy over the network. An append to either breaks the link first.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hayloft_io::{IoClass, IoError, IoOp};
use hayloft_wire::ids::{Block, ExtendedBlock, StorageType};

use super::bring_files::{Pace, copy_verified, link_pair};
use super::move_replica::source;
use crate::error::{StoreError, StoreErrorKind};
use crate::replica::block_pool::Pool;
use crate::replica::file_pair::{self, Pair};
use crate::replica::reference::reference_of;
use crate::replica::{FinalReplica, Slot};
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::types::TakenOver;
use crate::volume::reservation::Reservation;
use crate::volume::{BlockPoolSlice, footprint};
use crate::writer::volume_for_new_replica::Tried;

const CLASS: IoClass = IoClass::Balancer;

/// The two sides of a take-over.
struct Sides<'a> {
    /// The store that will have the replica.
    here: &'a Arc<StoreState>,
    /// Its pool.
    pool: Arc<Pool>,
    /// The store that has it.
    there: &'a Arc<StoreState>,
    /// Its pool.
    source_pool: Arc<Pool>,
    /// Where the replica is there.
    from: Arc<BlockPoolSlice>,
    id: i64,
    replica: FinalReplica,
}

/// See [`Store::take_over`](crate::Store::take_over).
pub async fn take_over(
    here: Arc<StoreState>,
    there: Arc<StoreState>,
    block: ExtendedBlock,
    target: StorageType,
    storage_id: Option<String>,
) -> Result<TakenOver, StoreError> {
    let pool = here.pool(&block.pool)?;
    let source_pool = there.pool(&block.pool)?;
    let (replica, from) = source(&source_pool, &block)?;
    let id = block.block.id;
    let sides = Sides {
        here: &here,
        pool,
        there: &there,
        source_pool,
        from,
        id,
        replica,
    };
    sides.refuse_second()?;
    let storage_id = storage_id.as_deref().filter(|id| !id.is_empty());
    let mut tried = Tried::default();
    if let Some(to) = sides.beside(target, storage_id) {
        match sides.link_to(&to).await {
            Ok(None) => {}
            Err(e) if Tried::is_of(&e, &to) => tried.failed(&to, sides.block(), e),
            Ok(Some(taken)) => return Ok(taken),
            Err(e) => return Err(e),
        }
    }
    let len = replica.len;
    loop {
        let to = tried
            .choose(&here, &sides.pool, (target, storage_id), len)
            .await?;
        let reserved = Reservation::taken(&to.volume, len);
        let outcome = sides.copy_to(&to).await;
        drop(reserved);
        match outcome {
            Err(e) if Tried::is_of(&e, &to) => tried.failed(&to, sides.block(), e),
            Err(e) => {
                // It may be the files there that cannot be read.
                there.mark_suspect(&block);
                return Err(e);
            }
            taken => return taken,
        }
    }
}

impl Sides<'_> {
    fn block(&self) -> Block {
        Block::new(self.id, self.replica.generation_stamp, self.replica.len)
    }

    fn refuse_second(&self) -> Result<(), StoreError> {
        if self.pool.map.get(self.id).is_none() {
            return Ok(());
        }
        let text = format!("{} is here already", self.pool.extended(self.block()));
        Err(StoreError::new(StoreErrorKind::AlreadyExists, text))
    }

    /// A volume on the file system of the source that fits what is asked for.
    fn beside(&self, target: StorageType, storage_id: Option<&str>) -> Option<Arc<BlockPoolSlice>> {
        let fits = |slice: &Arc<BlockPoolSlice>| {
            let volume = &slice.volume;
            volume.info.storage_type == target
                && !volume.is_failed()
                && Arc::ptr_eq(&volume.file_system, &self.from.volume.file_system)
                && storage_id.is_none_or(|id| *id == *volume.info.id)
        };
        self.pool.slices().into_iter().find(fits)
    }

    fn pairs(&self, to: &BlockPoolSlice) -> (Pair, Pair) {
        let unique = to.delete_sequence.fetch_add(1, Ordering::Relaxed);
        let stamp = self.replica.generation_stamp;
        let source = Pair::finalized(&self.from.paths, self.id, stamp);
        let scratch = source.at(to.paths.tmp().join(format!("move-{unique}")));
        (source, scratch)
    }

    fn failed(&self, to: &BlockPoolSlice, error: IoError) -> StoreError {
        let doing = format!(
            "taking {} over to {}",
            self.block(),
            to.volume.root.display()
        );
        let error = StoreError::io(doing, error);
        let error = examine(self.there, &self.from.volume, error);
        examine(self.here, &to.volume, error)
    }

    /// Gives the files second names; `None` where the system does not allow that.
    async fn link_to(&self, to: &Arc<BlockPoolSlice>) -> Result<Option<TakenOver>, StoreError> {
        let (source, scratch) = self.pairs(to);
        let path = scratch.data();
        let len = self.replica.len;
        let linked = {
            // While this is held the replica stays as it is: what is appended to it afterwards goes
            // to a copy.
            let _latch = self.source_pool.latches.acquire(self.id).await;
            self.refuse_changed()?;
            let copy = scratch.clone();
            let link = move || link_pair(&source, &copy, len);
            file_pair::on_disk_with_sync(to, CLASS, IoOp::Link, &path, true, link).await
        };
        match linked {
            Ok(Some(bytes)) => self.settle(to, scratch, bytes, true).await.map(Some),
            Ok(None) => Ok(None),
            Err(error) => {
                discard(to, &scratch).await;
                Err(self.failed(to, error))
            }
        }
    }

    async fn copy_to(&self, to: &Arc<BlockPoolSlice>) -> Result<TakenOver, StoreError> {
        let (source, scratch) = self.pairs(to);
        let (len, pace) = (self.replica.len, Pace::Yielding);
        match copy_verified(&self.from, to, &source, &scratch, len, pace).await {
            Ok(checksum) => {
                let bytes = footprint(self.replica.len, Some(checksum));
                self.settle(to, scratch, bytes, false).await
            }
            Err(error) => {
                discard(to, &scratch).await;
                Err(self.failed(to, error))
            }
        }
    }

    fn refuse_changed(&self) -> Result<(), StoreError> {
        if self.source_pool.map.is_finalized(self.id, &self.replica) {
            return Ok(());
        }
        let text = format!("replica {} changed while it was taken over", self.block());
        Err(StoreError::illegal(text))
    }

    /// Puts the files in `scratch`, which take `bytes`, into their place and the replica into the
    /// map.
    async fn settle(
        &self,
        to: &Arc<BlockPoolSlice>,
        scratch: Pair,
        bytes: u64,
        linked: bool,
    ) -> Result<TakenOver, StoreError> {
        let _latch = self.pool.latches.acquire(self.id).await;
        let wanted = self.refuse_second().and_then(|()| self.refuse_changed());
        let target = scratch.at(to.paths.finalized_dir(self.id));
        let target = wanted.is_ok().then_some(target);
        file_pair::settle_copy(to, scratch, target, self.replica.pinned)
            .await
            .map_err(|error| self.failed(to, error))?;
        wanted?;
        to.used.add(bytes);
        let slot = Slot::Finalized(FinalReplica {
            volume: to.volume.index,
            ..self.replica
        });
        self.pool.put(self.id, slot.clone())?;
        Ok(TakenOver {
            replica: reference_of(&self.pool, to, self.id, &slot),
            linked,
        })
    }
}

/// Removes what was made of a copy. What stays goes at the next start.
async fn discard(to: &BlockPoolSlice, scratch: &Pair) {
    let dir = scratch.dir.clone();
    let data_files = to.volume.data_files();
    let clean = move || data_files.remove_tree(&dir);
    let _ = file_pair::on_disk(to, CLASS, IoOp::Unlink, &scratch.dir, clean).await;
}
