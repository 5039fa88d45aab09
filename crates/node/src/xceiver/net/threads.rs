//! The threads that connections are served by: a connection stays with the one that it was given.
//!
//! What a task of a shared pool of threads waits for wakes up any of them: a stream would move from
//! processor to processor with nearly every packet and every write that ends, and its data from
//! cache to cache. So each thread here has a runtime of its own, and a new connection goes to the
//! one with the least to do. When kept-alive connections crowd on one, some of them move between
//! two requests; see [`relief`](crate::xceiver::net::rebalance).

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::xceiver::net::rebalance::{Relief, Use, relief};

/// Threads at most, however many processors there are.
const THREADS_MAX: usize = 64;

/// Polls of tasks after which a thread looks for tasks that other threads have woken. A stream that
/// is received without a pause takes half a millisecond a poll and wakes itself up again; the ends
/// of its own disk writes come from other threads. With the runtime's default of 31 the disk stood
/// idle while tens of megabytes were received.
const LOOK_FOR_WOKEN: u32 = 1;

/// Polls of tasks after which it asks the kernel for sockets and timers: a small read beside such a
/// stream waits as long.
const LOOK_FOR_EVENTS: u32 = 4;

/// One thread.
#[derive(Debug)]
struct Worker {
    runtime: Handle,
    load: Arc<Load>,
}

/// What a thread has to do.
#[derive(Debug, Default)]
struct Load {
    /// Operations in progress.
    busy: AtomicUsize,
    /// Connections, those that wait for a request included.
    connections: AtomicUsize,
    /// Number of the last look, from 0 on.
    look: AtomicU64,
    /// Connections with an operation that began or ended since.
    active: AtomicUsize,
    /// The same between the last look and the one before.
    active_before: AtomicUsize,
    /// Connections that shall move, and where to.
    give: AtomicUsize,
    to: AtomicUsize,
}

/// The place of a connection.
#[derive(Debug)]
pub struct ThreadPlace {
    load: Arc<Load>,
    /// The look after which it was last counted among the active; one more, 0 is never.
    counted: AtomicU64,
}

/// Counts an operation in progress while it lives.
#[derive(Debug)]
pub struct Busy<'a>(&'a ThreadPlace);

/// What was found by the last look.
#[derive(Debug)]
struct Looked {
    at: Instant,
    /// How long each thread has been busy since it was started.
    busy: Vec<Duration>,
}

/// The threads; they end when this is dropped.
#[derive(Debug)]
pub struct Threads {
    workers: Vec<Worker>,
    looked: Mutex<Option<Looked>>,
    _stop: DropGuard,
}

impl Threads {
    /// One thread for each processor.
    ///
    /// # Errors
    /// No threads, or no descriptors, are left.
    pub fn start() -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let mut workers = Vec::new();
        for number in 0..processors.min(THREADS_MAX) {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .global_queue_interval(LOOK_FOR_WOKEN)
                .event_interval(LOOK_FOR_EVENTS)
                .build()?;
            workers.push(Worker {
                runtime: runtime.handle().clone(),
                load: Arc::default(),
            });
            let stop = stop.clone();
            std::thread::Builder::new()
                .name(format!("hayloft-xfer-{number}"))
                .spawn(move || runtime.block_on(stop.cancelled()))?;
        }
        Ok(Self {
            workers,
            looked: Mutex::default(),
            _stop: guard,
        })
    }

    /// No threads of their own: those of the runtime that this is called in.
    #[must_use]
    pub fn shared() -> Self {
        Self {
            workers: vec![Worker {
                runtime: Handle::current(),
                load: Arc::default(),
            }],
            looked: Mutex::default(),
            _stop: CancellationToken::new().drop_guard(),
        }
    }

    /// Runs a connection on the thread that has the least to do.
    pub fn spawn<F>(
        &self,
        tasks: &TaskTracker,
        connection: impl FnOnce(ThreadPlace) -> F,
    ) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let least = (0..self.workers.len()).min_by_key(|at| self.workers[*at].load.now());
        self.spawn_on(least.expect("there is a processor"), tasks, connection)
    }

    /// Runs a connection on the thread with this number, of those that [`ThreadPlace::shall_move`]
    /// gives.
    pub fn spawn_on<F>(
        &self,
        thread: usize,
        tasks: &TaskTracker,
        connection: impl FnOnce(ThreadPlace) -> F,
    ) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let worker = &self.workers[thread];
        let place = ThreadPlace::new(&worker.load);
        tasks.spawn_on(connection(place), &worker.runtime)
    }

    /// Looks how busy the threads were since the last call, and has connections move when one has
    /// clearly more to do than another. To be called every now and then.
    pub fn look(&self) {
        if self.workers.len() < 2 {
            return;
        }
        let busy = |worker: &Worker| worker.runtime.metrics().worker_total_busy_duration(0);
        let now = Looked {
            at: Instant::now(),
            busy: self.workers.iter().map(busy).collect(),
        };
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let active: Vec<usize> = self.workers.iter().map(|w| w.load.next_look()).collect();
        let Some(before) = looked.replace(now) else {
            return;
        };
        let Some(now) = &*looked else { return };
        let time = now.at.saturating_duration_since(before.at);
        let uses = (0..self.workers.len()).map(|at| {
            let busy = now.busy[at].saturating_sub(before.busy[at]);
            let in_progress = self.workers[at].load.busy.load(Ordering::Relaxed);
            Use::new(busy, time, active[at].max(in_progress))
        });
        let uses: Vec<_> = uses.collect();
        if let Some(found) = relief(&uses) {
            self.relieve(found);
        }
    }

    /// Has connections move.
    pub fn relieve(&self, Relief { from, to, count }: Relief) {
        tracing::debug!(from, to, count, "connections move to another thread");
        let load = &self.workers[from].load;
        load.to.store(to, Ordering::Relaxed);
        load.give.store(count, Ordering::Release);
    }

    /// Connections of each thread.
    #[cfg(test)]
    pub fn connections(&self) -> Vec<usize> {
        let loads = self.workers.iter().map(|w| w.load.now());
        loads.map(|(_, connections)| connections).collect()
    }
}

impl Load {
    fn now(&self) -> (usize, usize) {
        let busy = self.busy.load(Ordering::Relaxed);
        (busy, self.connections.load(Ordering::Relaxed))
    }

    /// Begins to count anew, and takes back what was not given; gives the connections that were
    /// active.
    fn next_look(&self) -> usize {
        self.give.store(0, Ordering::Relaxed);
        self.look.fetch_add(1, Ordering::Relaxed);
        let active = self.active.swap(0, Ordering::Relaxed);
        self.active_before.store(active, Ordering::Relaxed);
        active
    }
}

impl ThreadPlace {
    fn new(load: &Arc<Load>) -> Self {
        load.connections.fetch_add(1, Ordering::Relaxed);
        Self {
            load: Arc::clone(load),
            counted: AtomicU64::new(0),
        }
    }

    /// Counts the connection among the active ones, once for each look.
    fn count(&self) {
        let look = self.load.look.load(Ordering::Relaxed) + 1;
        if self.counted.swap(look, Ordering::Relaxed) != look {
            self.load.active.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Between two operations: where the connection shall move to, if it shall. Who asks does it.
    #[must_use]
    pub fn shall_move(&self) -> Option<usize> {
        let load = &self.load;
        if load.give.load(Ordering::Acquire) == 0 {
            return None;
        }
        let alone = load.busy.load(Ordering::Relaxed) == 0
            && load.active.load(Ordering::Relaxed) < 2
            && load.active_before.load(Ordering::Relaxed) < 2;
        let take = |left: usize| left.checked_sub(1);
        let taken = !alone
            && load
                .give
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok();
        taken.then(|| load.to.load(Ordering::Relaxed))
    }

    /// An operation begins.
    #[must_use]
    pub fn busy(&self) -> Busy<'_> {
        self.load.busy.fetch_add(1, Ordering::Relaxed);
        self.count();
        Busy(self)
    }
}

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        self.load.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.load.busy.fetch_sub(1, Ordering::Relaxed);
        self.0.count();
    }
}

#[cfg(test)]
mod tests;
