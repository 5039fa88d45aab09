//! Telling a file that is being renamed from one that is gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{StoreError, StoreErrorKind};
use crate::replica::block_pool::Pool;
use crate::replica::{Latch, LiveReplica, ReplicaDir, Slot};

/// How long a file that is not there may be one that is just being renamed.
pub const RENAME_WAIT: Duration = Duration::from_secs(3);

pub const RENAME_POLL: Duration = Duration::from_millis(5);

/// What the names of a replica's files follow from.
#[derive(PartialEq, Eq)]
pub enum FileNames {
    Finalized(u16, u64),
    Live(ReplicaDir, u64),
}

impl FileNames {
    pub fn of(slot: &Slot) -> Self {
        match slot {
            Slot::Finalized(replica) => Self::Finalized(replica.volume, replica.generation_stamp),
            Slot::Live(live) => {
                let status = live.status();
                Self::Live(status.place, status.generation_stamp)
            }
        }
    }
}

/// Keeps the files of a replica where they are.
pub enum RenameGuard {
    /// No task changes a finalized replica without its latch.
    Finalized(#[expect(dead_code, reason = "held, not used")] Latch),
    /// The right to a live replica; `None` when its writer kept that, and renamed nothing for long.
    Live(
        Arc<LiveReplica>,
        #[expect(dead_code, reason = "held, not used")] Option<OwnedMutexGuard<()>>,
    ),
}

impl RenameGuard {
    /// Waits until no task renames the files of the replica. `None` when its names have changed.
    pub async fn wait(
        pool: &Pool,
        id: i64,
        slot: &Slot,
        names: &FileNames,
    ) -> Result<Option<Self>, StoreError> {
        let Slot::Live(live) = slot else {
            let latch = timeout(RENAME_WAIT, pool.latches.acquire(id)).await;
            let busy = |_| {
                let text = format!("blk_{id} is being changed: try again later");
                StoreError::new(StoreErrorKind::WriterBusy, text)
            };
            return latch
                .map(|latch| Some(Self::Finalized(latch)))
                .map_err(busy);
        };
        let deadline = Instant::now() + RENAME_WAIT;
        loop {
            let writer_lock = Arc::clone(&live.writer).try_lock_owned().ok();
            let now = pool.map.get(id);
            if !now.is_some_and(|now| slot.is_same(&now) && FileNames::of(&now) == *names) {
                return Ok(None);
            }
            if writer_lock.is_some() || Instant::now() >= deadline {
                return Ok(Some(Self::Live(Arc::clone(live), writer_lock)));
            }
            sleep(RENAME_POLL).await;
        }
    }

    pub fn holds(&self, slot: &Slot) -> bool {
        match (self, slot) {
            (Self::Finalized(_), Slot::Finalized(_)) => true,
            (Self::Live(held, _), Slot::Live(live)) => Arc::ptr_eq(held, live),
            _ => false,
        }
    }
}
