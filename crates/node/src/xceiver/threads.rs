//! The threads that connections are served by: a connection stays with the one that it was given.
//!
//! What a task of a shared pool of threads waits for wakes up any of them: a stream would move from processor to processor
//! with nearly every packet and every write that ends, and its data from cache to cache. So each thread here has a runtime
//! of its own, and a new connection goes to the one with the least to do.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Threads at most, however many processors there are.
const THREADS_MAX: usize = 64;

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
}

/// The place of a connection.
#[derive(Debug)]
pub struct Place {
    load: Arc<Load>,
}

/// Counts an operation in progress while it lives.
#[derive(Debug)]
pub struct Busy<'a>(&'a Load);

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
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let mut workers = Vec::new();
        for number in 0..processors.min(THREADS_MAX) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
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
        connection: impl FnOnce(Place) -> F,
    ) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let worker = self
            .workers
            .iter()
            .min_by_key(|worker| worker.load.now())
            .expect("there is a processor");
        let place = Place::new(&worker.load);
        tasks.spawn_on(connection(place), &worker.runtime)
    }
}

impl Load {
    fn now(&self) -> (usize, usize) {
        let busy = self.busy.load(Ordering::Relaxed);
        (busy, self.connections.load(Ordering::Relaxed))
    }
}

impl Place {
    fn new(load: &Arc<Load>) -> Self {
        load.connections.fetch_add(1, Ordering::Relaxed);
        Self {
            load: Arc::clone(load),
        }
    }

    /// An operation begins.
    #[must_use]
    pub fn busy(&self) -> Busy<'_> {
        self.load.busy.fetch_add(1, Ordering::Relaxed);
        Busy(&self.load)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.load.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use tokio::sync::Semaphore;

    use super::*;

    fn two() -> Threads {
        let mut threads = Threads::start().expect("threads");
        let more = Threads::start().expect("threads");
        threads.workers.truncate(1);
        let Threads { mut workers, _stop } = more;
        threads.workers.extend(workers.drain(..1));
        // Its threads go on for as long as the test.
        let _never = _stop.disarm();
        threads
    }

    #[tokio::test]
    async fn a_connection_goes_where_the_least_is_to_do() {
        let threads = two();
        let tasks = TaskTracker::new();
        let go_on = Arc::new(Semaphore::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut handles = Vec::new();
        for idle in [false, true, true, false] {
            let (go_on, seen) = (Arc::clone(&go_on), Arc::clone(&seen));
            let (ready, started) = tokio::sync::oneshot::channel();
            handles.push(threads.spawn(&tasks, |place| async move {
                let _busy = (!idle).then(|| place.busy());
                let me = std::thread::current().id();
                seen.lock().expect("no panic holds it").push(me);
                let _heard = ready.send(());
                let _permit = go_on.acquire().await.expect("open");
                assert_eq!(me, std::thread::current().id());
            }));
            started.await.expect("it runs");
        }
        let seen = seen.lock().expect("no panic holds it").clone();
        assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 2);
        // The second and third avoid the busy first, and so does the fourth.
        assert_eq!(seen[1..], [seen[1]; 3]);
        go_on.add_permits(4);
        for handle in handles {
            handle.await.expect("no panic");
        }
        let left = |worker: &Worker| worker.load.now() == (0, 0);
        assert!(threads.workers.iter().all(left));
    }

    #[tokio::test]
    async fn threads_can_be_shared() {
        let me = std::thread::current().id();
        let connection = |_place| async move { assert_eq!(std::thread::current().id(), me) };
        let shared = Threads::shared();
        let done = shared.spawn(&TaskTracker::new(), connection);
        done.await.expect("no panic");
    }

    #[tokio::test]
    async fn the_threads_end_with_their_owner() {
        let threads = Threads::start().expect("threads");
        let never = threads.spawn(&TaskTracker::new(), |_place| std::future::pending());
        drop(threads);
        assert!(never.await.expect_err("cut off").is_cancelled());
    }
}
