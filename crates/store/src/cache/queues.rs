//! What waits to be cached, by volume. Nothing runs where nothing waits.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use hayloft_io::locks;

use crate::replica::block_pool::Pool;
use crate::replica::cached::ToCache;

/// A replica that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub pool: Arc<Pool>,
    pub of: ToCache,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    workers: usize,
    /// So long it may grow before those that are not to be cached any more leave it.
    swept_at: usize,
}

/// Replicas that wait before a queue is looked through for the first time.
const SWEPT_AT: usize = 1024;

/// The queues of the volumes, by their numbers. Those that are still to be cached have room each,
/// which limits them; a queue has at most as many others.
#[derive(Debug, Default)]
pub(crate) struct CacheQueues(Mutex<HashMap<u16, Queue>>);

impl CacheQueues {
    /// Adds a replica on a volume; whether one more worker is to be started, of `workers_max`.
    pub(super) fn push(&self, volume: u16, waiting: Waiting, workers_max: usize) -> bool {
        let mut all = locks::lock(&self.0);
        let queue = all.entry(volume).or_default();
        if queue.waiting.len() >= queue.swept_at.max(SWEPT_AT) {
            let waiting = &mut queue.waiting;
            waiting.retain(|of| of.pool.map.is_to_be_cached(&of.of));
            queue.swept_at = waiting.len() * 2;
        }
        queue.waiting.push_back(waiting);
        let more = queue.workers < workers_max;
        queue.workers += usize::from(more);
        more
    }

    /// The next replica for a worker. Without one the worker counts no longer, and has to end.
    pub(super) fn next(&self, volume: u16) -> Option<Waiting> {
        let mut all = locks::lock(&self.0);
        let queue = all.get_mut(&volume)?;
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queue.workers -= 1;
            if queue.workers == 0 {
                all.remove(&volume);
            }
        }
        next
    }
}
