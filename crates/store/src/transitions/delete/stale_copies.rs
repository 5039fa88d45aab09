//! Second copies of replicas in memory that are no longer those of their replicas.

use std::sync::Arc;
use std::time::Duration;

use hayloft_wire::ids::Block;
use tracing::warn;

use super::discard_copy;
use crate::replica::block_pool::Pool;
use crate::replica::{FinalReplica, ReplicaDir};
use crate::state::StoreState;
use crate::volume::BlockPoolSlice;

/// How long a change of a replica in memory waits for the disk of its copy.
const PATIENCE: Duration = Duration::from_secs(2);

/// Deletes the stale copies of a block, whatever is known of it. The caller holds its latch.
pub(crate) async fn delete_stale(store: &Arc<StoreState>, pool: &Arc<Pool>, id: i64) {
    for copy in pool.map.in_memory.take_stale(id) {
        delete_copy(store, pool, id, copy).await;
    }
}

/// Deletes the files of a copy, which nothing knows any more. The caller holds the latch, and is
/// not kept by a disk that gives no answer: the delete goes on behind it. A copy that outlives the
/// process so is found at the next start, and the NameNode has it deleted.
pub(crate) async fn delete_copy(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    copy: FinalReplica,
) {
    let Ok(slice) = pool.slice(copy.volume) else {
        return;
    };
    let patience = match slice.volume.hangs() {
        true => Duration::ZERO,
        false => PATIENCE,
    };
    let block = Block::new(id, copy.generation_stamp, copy.len);
    let deleting = delete_files(Arc::clone(store), Arc::clone(pool), slice, block);
    let _ended = tokio::time::timeout(patience, store.tasks.spawn(deleting)).await;
}

async fn delete_files(
    store: Arc<StoreState>,
    pool: Arc<Pool>,
    slice: Arc<BlockPoolSlice>,
    block: Block,
) {
    let deleted = discard_copy(&store, &pool, &slice, ReplicaDir::LazyPersist, block);
    tokio::select! {
        biased;
        () = slice.volume.gone.cancelled() => {}
        deleted = deleted => if let Err(error) = deleted {
            warn!(%block, %error, "cannot delete the copy of a replica that was in memory; the \
                next start finds it again, and the NameNode has it deleted");
        }
    }
}
