//! One right per block to change what the replica map and the directories say about it.
//!
//! Held across I/O on purpose: it is the right to that one block, not a lock on shared data. Who
//! holds a latch never waits for another latch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use hayloft_io::locks;
use tokio::sync::OwnedMutexGuard;

const SHARDS: usize = 64;

type Shard = Mutex<HashMap<i64, Arc<tokio::sync::Mutex<()>>>>;

/// The latches of one pool. Only those in use take memory.
#[derive(Debug)]
pub struct Latches {
    shards: Arc<[Shard]>,
}

/// The right to one block, until dropped.
#[derive(Debug)]
pub struct Latch {
    id: i64,
    shards: Arc<[Shard]>,
    guard: Option<OwnedMutexGuard<()>>,
}

fn shard(shards: &[Shard], id: i64) -> &Shard {
    let n = usize::try_from(id.rem_euclid(64)).expect("below 64");
    &shards[n]
}

impl Latches {
    /// None held.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Waits for the right to block `id`.
    pub async fn acquire(&self, id: i64) -> Latch {
        let lock = {
            let mut shard = locks::lock(shard(&self.shards, id));
            Arc::clone(shard.entry(id).or_default())
        };
        // Before the wait: a task that stops waiting leaves no entry behind either.
        let mut latch = Latch {
            id,
            shards: Arc::clone(&self.shards),
            guard: None,
        };
        latch.guard = Some(lock.lock_owned().await);
        latch
    }
}

impl Drop for Latch {
    fn drop(&mut self) {
        let mut shard = locks::lock(shard(&self.shards, self.id));
        self.guard = None;
        // A task that waits holds a second reference; the map's own is the only one otherwise.
        if shard
            .get(&self.id)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            shard.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_block_is_held_once_and_leaves_nothing_behind() {
        let latches = Arc::new(Latches::new());
        let first = latches.acquire(7).await;
        let other = latches.acquire(8).await;
        let waiting = tokio::spawn({
            let latches = Arc::clone(&latches);
            async move { drop(latches.acquire(7).await) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.expect("no panic");
        drop(other);
        assert!(
            latches
                .shards
                .iter()
                .all(|s| s.lock().expect("not poisoned").is_empty())
        );
    }

    #[tokio::test]
    async fn a_task_that_stops_waiting_leaves_nothing_behind() {
        let latches = Latches::new();
        let first = latches.acquire(7).await;
        let mut waiting = Box::pin(latches.acquire(7));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(first);
        drop(waiting);
        let shard = latches.shards[7].lock().expect("not poisoned");
        assert!(shard.is_empty());
    }
}
