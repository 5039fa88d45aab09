//! Threads that make blocking calls for one disk, behind bounded queues.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::Either;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::DiskConfig;
use crate::class::IoClass;

/// Stack of a worker: its calls are shallow.
const STACK_BYTES: usize = 256 * 1024;

/// Kinds of work that have threads of their own, because one may block for long while another
/// is quick. Background classes have a lane of theirs for all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Reads and writes.
    Data,
    /// Waiting for the device.
    Sync,
    /// Names, directories, opening.
    Meta,
    /// Everything that no client waits for; chosen by the class.
    Background,
}

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A place in the queue of a class; held until the operation is done.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

/// One class's queue in one lane.
#[derive(Clone)]
pub(crate) struct Queue {
    lane: Arc<LaneShared>,
    class: IoClass,
}

impl Queue {
    /// Queues work for the lane's threads. The caller holds a [`Place`] for it.
    pub(crate) fn push(&self, job: Job) {
        if let Some(job) = hold_back(self, job) {
            self.lane.push(self.class, job);
        }
    }
}

thread_local! {
    /// What was submitted within [`together`] on this thread; `None` outside.
    static HELD_BACK: RefCell<Option<Vec<(Queue, Job)>>> = const { RefCell::new(None) };
}

/// Keeps the job for the end of [`together`]; gives it back outside.
fn hold_back(queue: &Queue, job: Job) -> Option<Job> {
    HELD_BACK.with_borrow_mut(|held| match held {
        Some(held) => {
            held.push((queue.clone(), job));
            None
        }
        None => Some(job),
    })
}

/// Hands everything that `submit` submits to the disks' threads at once: operations for the same
/// threads are carried out by one of them, one after the other.
///
/// For quick operations that belong together, such as a write of data and one of its checksums:
/// waking a thread costs as much as copying a packet. `submit` only calls the methods and returns
/// their futures; what finds no free place is submitted on its own when it is polled.
pub fn together<T>(submit: impl FnOnce() -> T) -> T {
    /// Hands over also when `submit` panics.
    struct HandOver;
    impl Drop for HandOver {
        fn drop(&mut self) {
            for (queue, mut jobs) in in_groups(HELD_BACK.take().unwrap_or_default()) {
                let job = if jobs.len() == 1 { jobs.pop() } else { None };
                queue.push(job.unwrap_or_else(|| Box::new(move || jobs.into_iter().for_each(run))));
            }
        }
    }
    if HELD_BACK.with_borrow(Option::is_some) {
        return submit(); // Within another: that one hands over.
    }
    HELD_BACK.set(Some(Vec::new()));
    let _hand_over = HandOver;
    submit()
}

/// Jobs by lane and class, in order.
fn in_groups(jobs: Vec<(Queue, Job)>) -> Vec<(Queue, Vec<Job>)> {
    let mut groups: Vec<(Queue, Vec<Job>)> = Vec::new();
    for (queue, job) in jobs {
        let same = |(other, _): &&mut (Queue, Vec<Job>)| {
            Arc::ptr_eq(&other.lane, &queue.lane) && other.class == queue.class
        };
        match groups.iter_mut().find(same) {
            Some((_, group)) => group.push(job),
            None => groups.push((queue, vec![job])),
        }
    }
    groups
}

/// Runs a job; the panic hook reports a panic, and the waiting caller sees a closed channel.
fn run(job: Job) {
    let _ = catch_unwind(AssertUnwindSafe(job));
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("lane", &self.lane.name)
            .field("class", &self.class)
            .finish()
    }
}

#[derive(Clone, Copy)]
enum Thread {
    Gone,
    Idle,
    Since(Instant),
}

#[derive(Default)]
struct Queues {
    by_class: [VecDeque<Job>; IoClass::COUNT],
    /// Where the next turn starts looking.
    turn: usize,
    queued: usize,
    idle: usize,
    threads: Vec<Thread>,
    closed: bool,
}

impl Queues {
    /// The next job; classes with work take turns.
    fn pop(&mut self) -> Option<Job> {
        if self.queued == 0 {
            return None;
        }
        for step in 0..IoClass::COUNT {
            let class = (self.turn + step) % IoClass::COUNT;
            if let Some(job) = self.by_class[class].pop_front() {
                self.turn = class + 1;
                self.queued -= 1;
                return Some(job);
            }
        }
        None
    }

    fn alive(&self) -> usize {
        self.threads
            .iter()
            .filter(|t| !matches!(t, Thread::Gone))
            .count()
    }

    /// A place for one more thread, when fewer than `max` live.
    fn slot(&mut self, max: usize) -> Option<usize> {
        if self.alive() >= max {
            return None;
        }
        let slot = self
            .threads
            .iter()
            .position(|t| matches!(t, Thread::Gone))
            .unwrap_or_else(|| {
                self.threads.push(Thread::Gone);
                self.threads.len() - 1
            });
        self.threads[slot] = Thread::Since(Instant::now());
        Some(slot)
    }
}

struct LaneShared {
    name: String,
    threads_max: usize,
    thread_idle: Duration,
    queues: Mutex<Queues>,
    work: Condvar,
}

impl LaneShared {
    /// A lane with its first thread, which stays as long as the lane: work never depends on being
    /// able to start a thread later.
    fn start(name: String, threads_max: usize, thread_idle: Duration) -> io::Result<Arc<Self>> {
        let lane = Arc::new(Self {
            name,
            threads_max: threads_max.max(1),
            thread_idle,
            queues: Mutex::default(),
            work: Condvar::new(),
        });
        let first = lane.lock().slot(1).expect("a new lane has no thread");
        lane.spawn(first)?;
        Ok(lane)
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<Self>, class: IoClass, job: Job) {
        let mut queues = self.lock();
        queues.by_class[class.index()].push_back(job);
        queues.queued += 1;
        if queues.idle >= queues.queued {
            drop(queues);
            self.work.notify_one();
            return;
        }
        let Some(slot) = queues.slot(self.threads_max) else {
            return; // A busy thread takes it when it is done.
        };
        drop(queues);
        if let Err(error) = self.spawn(slot) {
            tracing::warn!(lane = self.name, %error, "cannot start another I/O thread; check the limit on threads");
        }
    }

    fn spawn(self: &Arc<Self>, slot: usize) -> io::Result<()> {
        let lane = Arc::clone(self);
        let spawned = thread::Builder::new()
            .name(self.name.clone())
            .stack_size(STACK_BYTES)
            .spawn(move || lane.work(slot));
        if spawned.is_err() {
            self.lock().threads[slot] = Thread::Gone;
        }
        spawned.map(drop)
    }

    fn work(&self, slot: usize) {
        let mut queues = self.lock();
        loop {
            if let Some(job) = queues.pop() {
                queues.threads[slot] = Thread::Since(Instant::now());
                drop(queues);
                run(job);
                queues = self.lock();
                continue;
            }
            if queues.closed {
                break;
            }
            queues.threads[slot] = Thread::Idle;
            queues.idle += 1;
            let (guard, timeout) = self
                .work
                .wait_timeout(queues, self.thread_idle)
                .unwrap_or_else(PoisonError::into_inner);
            queues = guard;
            queues.idle -= 1;
            if timeout.timed_out() && queues.queued == 0 && queues.alive() > 1 {
                break;
            }
        }
        queues.threads[slot] = Thread::Gone;
    }

    fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }
}

/// All lanes of one disk. Dropping it lets queued work finish and then ends the threads.
pub(super) struct Workers {
    lanes: [Arc<LaneShared>; 4],
    places: [Arc<Semaphore>; IoClass::COUNT],
    depth: usize,
}

impl Workers {
    pub(super) fn new(disk: &str, config: &DiskConfig) -> io::Result<Self> {
        let lane = |label: &str, threads| {
            LaneShared::start(format!("{label}:{disk}"), threads, config.thread_idle)
        };
        let depth = config.depth_per_class.clamp(1, Semaphore::MAX_PERMITS);
        Ok(Self {
            lanes: [
                lane("data", config.data_threads)?,
                lane("sync", config.sync_threads)?,
                lane("meta", config.meta_threads)?,
                lane("back", config.background_threads)?,
            ],
            places: std::array::from_fn(|_| Arc::new(Semaphore::new(depth))),
            depth,
        })
    }

    /// Calls `queue` with a place in the queue of `class`: before this returns when one is free,
    /// else when the future gets one. The work behind it holds the place until it is done.
    pub(super) fn with_place<F>(
        &self,
        class: IoClass,
        queue: F,
    ) -> impl Future<Output = ()> + Send + use<F>
    where
        F: FnOnce(Place) + Send + 'static,
    {
        let places = Arc::clone(&self.places[class.index()]);
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => {
                queue(Place { _permit: place });
                Either::Left(std::future::ready(()))
            }
            Err(_full) => Either::Right(async move {
                let place = places
                    .acquire_owned()
                    .await
                    .expect("the places of a class are never closed");
                queue(Place { _permit: place });
            }),
        }
    }

    /// The queue of `class` in `lane`.
    pub(super) fn queue(&self, class: IoClass, lane: Lane) -> Queue {
        let lane = if class.is_background() {
            Lane::Background
        } else {
            lane
        };
        Queue {
            lane: Arc::clone(&self.lanes[lane as usize]),
            class,
        }
    }

    /// Queues `work`; the future gives its value, or `None` when it panicked.
    ///
    /// With a free place the work is queued before this returns, else when the future gets one.
    /// Queued work runs to its end whatever happens to the future.
    pub(super) fn submit<T, F>(
        &self,
        class: IoClass,
        lane: Lane,
        work: F,
    ) -> impl Future<Output = Option<T>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let queue = self.queue(class, lane);
        let (tell, done) = oneshot::channel();
        let waiting = self.with_place(class, move |place| {
            queue.push(Box::new(move || {
                let value = work();
                drop(place);
                // The caller may have gone away; the value, buffers included, is dropped here then.
                let _ = tell.send(value);
            }));
        });
        async move {
            waiting.await;
            done.await.ok()
        }
    }

    pub(super) fn pending(&self, class: IoClass) -> usize {
        self.depth - self.places[class.index()].available_permits()
    }

    pub(super) fn threads(&self) -> usize {
        self.lanes.iter().map(|lane| lane.lock().alive()).sum()
    }

    pub(super) fn longest_running(&self) -> Option<Duration> {
        let oldest = |lane: &Arc<LaneShared>| {
            let queues = lane.lock();
            let since = queues.threads.iter().filter_map(|t| match t {
                Thread::Since(start) => Some(*start),
                Thread::Gone | Thread::Idle => None,
            });
            since.min()
        };
        self.lanes
            .iter()
            .filter_map(oldest)
            .min()
            .map(|start| start.elapsed())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.close();
        }
    }
}
