//! Two replicas of one block, on two volumes or on one, that are found when a volume is read.

use std::sync::Arc;
use std::time::Duration;

use hayloft_wire::ids::ReplicaState;
use tokio::sync::Notify;
use tracing::warn;

use crate::error::StoreError;
use crate::replica::Slot;
use crate::replica::block_pool::Pool;
use crate::state::StoreState;
use crate::transitions::delete::delete_duplicate;
use crate::transitions::stop_writer::{WriterLock, stop_live_writer};

/// How long a task that changes the block may keep it: its disk may give no answer, and the loser
/// waits for the next start.
const LATCH_WAIT: Duration = Duration::from_secs(10);

/// So long after the last one was settled no task waits for the others any more.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// The one of two replicas that was not taken into the map.
pub struct Duplicate {
    id: i64,
    loser: Slot,
    /// Number of the volume of the other one.
    winner: u16,
}

/// Adds a replica; of two of the same block gives the one back that loses. Without the block's
/// latch: what is known of the block may change meanwhile, and of that nothing is undone.
pub fn insert(pool: &Pool, id: i64, slot: Slot) -> Option<Duplicate> {
    loop {
        let Err(there) = pool.map.insert_new(id, slot.clone()) else {
            return None;
        };
        // Before the map is locked again: `Pool::put` locks it while it has the slices, which a
        // rank looks at.
        let (ours, theirs) = (rank(pool, &slot), rank(pool, &there));
        let wins = ours > theirs;
        if wins && pool.map.replace_if(id, &there, slot.clone()).is_none() {
            continue;
        }
        if wins && let Slot::Live(live) = &there {
            // No report may say that a replica is complete that is not known any more.
            live.status().cancel.cancel();
        }
        let (kept, keep, loser, lose) = if wins {
            (slot, ours, there, theirs)
        } else {
            (there, theirs, slot, ours)
        };
        warn!(pool = %pool.id(), block = id, ?keep, ?lose, "a block lies here twice; the one with \
            the higher generation stamp, then the longer is kept");
        let winner = kept.volume();
        return Some(Duplicate { id, loser, winner });
    }
}

/// Of two replicas of a block the one that ranks higher is kept: generation stamp, then length,
/// then finalized, then on a lasting medium. The stock node copies what it wrote to `RAM_DISK`.
fn rank(pool: &Pool, slot: &Slot) -> (u64, u64, bool, bool) {
    let (stamp, len, finalized, volume) = match slot {
        Slot::Finalized(r) => (r.generation_stamp, r.len, true, r.volume),
        Slot::Live(live) => {
            let block = live.block();
            let volume = live.slice.volume.index;
            (block.generation_stamp, block.num_bytes, false, volume)
        }
    };
    let lasting = pool
        .slice(volume)
        .is_ok_and(|slice| !slice.volume.info.storage_type.is_transient());
    (stamp, len, finalized, lasting)
}

/// Settles them one after the other, and waits while that goes on. The disk of a loser may give no
/// answer, and a task that waits here keeps volumes in and the node from stopping. What is left
/// then is done in the background.
pub async fn settle_all(duplicates: Vec<Duplicate>, store: &Arc<StoreState>, pool: &Arc<Pool>) {
    if duplicates.is_empty() {
        return;
    }
    let progress = Arc::new(Notify::new());
    let (inner_then, pool_then, told) =
        (Arc::clone(store), Arc::clone(pool), Arc::clone(&progress));
    let mut all = store.tasks.spawn(async move {
        for duplicate in duplicates {
            duplicate.settle(&inner_then, &pool_then).await;
            told.notify_one();
        }
    });
    loop {
        tokio::select! {
            _ = &mut all => return,
            () = store.ending.cancelled() => return,
            settled = tokio::time::timeout(PATIENCE, progress.notified()) => if settled.is_err() {
                warn!(pool = %pool.id(), "deleting the lesser replicas of blocks that lie here \
                    twice takes long: it goes on in the background");
                return;
            }
        }
    }
}

impl Duplicate {
    /// Deletes the loser, or puts it into the place of the winner where that has left with its
    /// volume.
    pub async fn settle(self, store: &Arc<StoreState>, pool: &Arc<Pool>) {
        let latch = tokio::time::timeout(LATCH_WAIT, pool.latches.acquire(self.id)).await;
        let Ok(_latch) = latch else {
            warn!(pool = %pool.id(), block = self.id, "a block that lies here twice is being \
                changed: the next start deletes one of the two");
            return;
        };
        let stopped = self.stop_live_writer(store).await;
        let there = pool.map.get(self.id);
        let usable = |slot: &Slot| pool.slice(slot.volume()).is_ok();
        // A copy that no writer goes on with is no replacement.
        let whole = self.loser.state() != ReplicaState::Temporary;
        if whole && pool.slice(self.winner).is_err() {
            if !there.as_ref().is_some_and(usable) {
                // Refused only if its volume has left, too.
                let _ = pool.put(self.id, self.loser);
            }
            return;
        }
        if let Err(error) = stopped {
            warn!(pool = %pool.id(), block = self.id, %error, "the lesser replica of a block that \
                lies here twice is still being written: the next start deletes it");
            return;
        }
        // Written anew meanwhile, or to its end, where the loser was: the names are the same.
        let in_its_place = |slot: &Slot| {
            slot.volume() == self.loser.volume() && slot.place() == self.loser.place()
        };
        if there.as_ref().is_some_and(in_its_place) {
            self.give_up();
        } else if store.config.delete_duplicates {
            self.delete(store, pool).await;
        }
    }

    /// The right to the loser once no writer has it. The right to one that is finalized is the
    /// block's latch.
    async fn stop_live_writer(&self, store: &StoreState) -> Result<Option<WriterLock>, StoreError> {
        match &self.loser {
            Slot::Finalized(_) => Ok(None),
            Slot::Live(live) => stop_live_writer(store, live).await.map(Some),
        }
    }

    /// Deletes the files of the loser, for which no task waits any more once their volume has
    /// failed. Not before: a rename that the disk does later would meet what others have put there,
    /// that wait for the block's latch.
    async fn delete(&self, store: &Arc<StoreState>, pool: &Arc<Pool>) {
        if let Ok(slice) = pool.slice(self.loser.volume()) {
            tokio::select! {
                biased;
                () = slice.volume.gone.cancelled() => {}
                () = self.delete_files(store, pool) => {}
            }
        }
        // After the files have left their names: a process killed before still has all that was
        // acknowledged.
        self.give_up();
    }

    /// Gives back what the loser has beside its files.
    fn give_up(&self) {
        if let Slot::Live(live) = &self.loser {
            live.release_reserved();
        }
    }

    async fn delete_files(&self, store: &Arc<StoreState>, pool: &Arc<Pool>) {
        delete_duplicate(store, pool, self.id, &self.loser).await;
    }
}
