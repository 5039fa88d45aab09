//! Getting the exclusive right to change a replica.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use crate::error::{StoreError, StoreErrorKind};
use crate::replica::block_pool::Pool;
use crate::replica::{FinalReplica, LiveReplica, Slot};
use crate::state::StoreState;

/// The exclusive right to change a live replica. Shared with I/O in flight, so that no other task
/// gets it before that has ended.
pub type WriterLock = Arc<OwnedMutexGuard<()>>;

/// A replica that no other task can change now.
#[derive(Debug)]
pub enum Stopped {
    /// Complete; the block's latch is the right to it.
    Finalized(FinalReplica),
    /// Not complete, and its writer has stopped.
    Live(Arc<LiveReplica>, WriterLock),
}

/// Stops the writer of a replica, if there is one. The caller holds the block's latch.
///
/// Errors: `NotFound`; `WriterBusy` when the writer does not stop in time.
pub async fn stop_writer(store: &StoreState, pool: &Pool, id: i64) -> Result<Stopped, StoreError> {
    loop {
        match pool.slot(id)? {
            Slot::Finalized(replica) => return Ok(Stopped::Finalized(replica)),
            Slot::Live(live) => {
                let writer_lock = stop_live_writer(store, &live).await?;
                // It may have finalized the replica just before it stopped.
                if pool.map.is_live(&live) {
                    return Ok(Stopped::Live(live, writer_lock));
                }
            }
        }
    }
}

/// Tells the writer of a replica to stop, if there is one, and gets the right to it.
///
/// Errors: `WriterBusy` when the writer does not stop in time.
pub async fn stop_live_writer(
    store: &StoreState,
    live: &LiveReplica,
) -> Result<WriterLock, StoreError> {
    live.status().cancel.cancel();
    let limit = store.config.writer_stop_timeout;
    match tokio::time::timeout(limit, Arc::clone(&live.writer).lock_owned()).await {
        Ok(guard) => Ok(Arc::new(guard)),
        Err(_) => Err(StoreError::new(
            StoreErrorKind::WriterBusy,
            format!(
                "the writer of {} has not stopped within {} s",
                live.block(),
                limit.as_secs()
            ),
        )),
    }
}
