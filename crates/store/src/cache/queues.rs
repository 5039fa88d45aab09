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
}

/// The queues of the volumes, by their numbers. Each entry has its room, which limits them.
#[derive(Debug, Default)]
pub(crate) struct CacheQueues(Mutex<HashMap<u16, Queue>>);

impl CacheQueues {
    /// Adds a replica on a volume; whether one more worker is to be started, of `workers_max`.
    pub(super) fn push(&self, volume: u16, waiting: Waiting, workers_max: usize) -> bool {
        let mut all = locks::lock(&self.0);
        let queue = all.entry(volume).or_default();
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
