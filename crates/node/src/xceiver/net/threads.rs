//! The threads that connections are served by: a connection stays with the one that it was given.
//!
//! What a task of a shared pool of threads waits for wakes up any of them. A stream would move from
//! processor to processor with nearly every packet and every write that ends, and its data from
//! cache to cache. So each thread here has a runtime of its own, and a new connection goes to the
//! one with the least to do.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Builder as Thread;

use hayloft_io::locks::lock;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::daemon::process_limits::{TRANSFER_THREADS_MAX, keep_a_blocking_thread};

/// Polls of tasks after which a thread looks for tasks that other threads have woken. A stream that
/// is received without a pause takes half a millisecond a poll and wakes itself up again. The ends
/// of its own disk writes come from other threads. With the runtime's default of 31 the disk stood
/// idle while tens of megabytes were received.
const LOOK_FOR_WOKEN: u32 = 1;

/// Polls of tasks after which it asks the kernel for sockets and timers: a small read beside such a
/// stream waits as long.
const LOOK_FOR_EVENTS: u32 = 4;

/// What a thread does.
type Work = Box<dyn FnOnce() + Send>;

/// One thread.
#[derive(Debug)]
struct Worker {
    runtime: Handle,
    load: Arc<ThreadLoad>,
}

/// What a thread has to do.
#[derive(Debug, Default)]
struct ThreadLoad {
    /// Operations in progress.
    busy: AtomicUsize,
    /// Connections, those that wait for a request included.
    connections: AtomicUsize,
}

/// The place of a connection.
#[derive(Debug)]
pub struct ThreadPlace(Arc<ThreadLoad>);

/// Counts an operation in progress while it lives.
#[derive(Debug)]
pub struct Busy<'a>(&'a ThreadPlace);

/// The threads; they end when this is dropped.
#[derive(Debug)]
pub struct Threads {
    workers: Vec<Worker>,
    _stop: DropGuard,
}

impl Threads {
    /// One thread for each processor.
    ///
    /// # Errors
    /// No threads, or no descriptors, are left.
    pub fn start() -> io::Result<Self> {
        Self::start_by(|thread, work| thread.spawn(work).map(drop))
    }

    /// The same, with threads that `spawn` starts.
    fn start_by(spawn: impl Fn(Thread, Work) -> io::Result<()>) -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let mut workers = Vec::new();
        for number in 0..processors.min(TRANSFER_THREADS_MAX) {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .global_queue_interval(LOOK_FOR_WOKEN)
                .event_interval(LOOK_FOR_EVENTS)
                .build()?;
            workers.push(Worker {
                runtime: runtime.handle().clone(),
                load: Arc::default(),
            });
            runtime.spawn(keep_a_blocking_thread(stop.clone()));
            let stop = stop.clone();
            // A runtime must not be dropped by an async task, as the work of a thread that did
            // not start would be.
            let kept = Arc::new(Mutex::new(Some(runtime)));
            let taken = Arc::clone(&kept);
            let work = move || {
                let runtime = lock(&taken).take();
                if let Some(runtime) = runtime {
                    runtime.block_on(stop.cancelled());
                }
            };
            let thread = Thread::new().name(format!("hayloft-xfer-{number}"));
            if let Err(error) = spawn(thread, Box::new(work)) {
                if let Some(runtime) = lock(&kept).take() {
                    runtime.shutdown_background();
                }
                return Err(error);
            }
        }
        Ok(Self {
            workers,
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
        let least = self.workers.iter().min_by_key(|worker| worker.load.now());
        let worker = least.expect("there is a processor");
        let place = ThreadPlace::new(&worker.load);
        tasks.spawn_on(connection(place), &worker.runtime)
    }
}

impl ThreadLoad {
    fn now(&self) -> (usize, usize) {
        let busy = self.busy.load(Ordering::Relaxed);
        (busy, self.connections.load(Ordering::Relaxed))
    }
}

impl ThreadPlace {
    fn new(load: &Arc<ThreadLoad>) -> Self {
        load.connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(load))
    }

    /// That of a connection with a thread of its own.
    #[must_use]
    pub fn alone() -> Self {
        Self::new(&Arc::default())
    }

    /// An operation begins.
    #[must_use]
    pub fn busy(&self) -> Busy<'_> {
        self.0.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self)
    }
}

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
