//! Giving back memory of cached replicas. It may be the last to hold a file without a name, whose
//! space is given back then; that may wait for the disk. No task of others waits with it.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::replica::block_pool::Pool;

/// How long the end of a pool or a store waits for it. A disk that gives no answer holds up no
/// more than that.
const UNCACHED_WITHIN: Duration = Duration::from_secs(10);

/// Drops it where blocking holds up no other task.
pub(super) fn drop_apart<T: Send + 'static>(what: T) -> JoinHandle<()> {
    tokio::task::spawn_blocking(move || drop(what))
}

/// Uncaches all of a pool, for good.
pub(crate) async fn uncache_all(pool: &Pool) {
    let all = pool.map.uncache_all();
    if !all.is_empty() {
        let _late = tokio::time::timeout(UNCACHED_WITHIN, drop_apart(all)).await;
    }
}
