//! Threads that make blocking calls for one disk, behind bounded queues. Reads and writes go
//! through the scheduler of the [`data`] lane, everything else has lanes of its own.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::Either;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::DiskConfig;
use super::data::{self, Work};
use super::schedule::{Policy, Request};
use super::stats::DiskStats;
use crate::class::IoClass;

/// Stack of a worker: its calls are shallow.
pub(super) const STACK_BYTES: usize = 256 * 1024;

/// Kinds of work that have places and threads of their own, because one may block for long while
/// another is quick: a name never waits behind data or a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Reads and writes, ordered by the scheduler.
    Data,
    /// Waiting for the device.
    Sync,
    /// Names, directories, opening.
    Meta,
}

const LANES: usize = 3;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A place in the queue of a class; held until the operation is done.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

/// Work that was submitted within [`together`].
enum Held {
    /// For the threads of a lane.
    Job(Arc<LaneShared>, IoClass, Job),
    /// For the scheduler.
    Data(Arc<data::Lane>, Request, data::Job),
}

thread_local! {
    /// What was submitted within [`together`] on this thread; `None` outside.
    static HELD_BACK: RefCell<Option<Vec<Held>>> = const { RefCell::new(None) };
}

/// Keeps the work for the end of [`together`]; gives it back outside.
fn hold_back(work: Held) -> Option<Held> {
    HELD_BACK.with_borrow_mut(|held| match held {
        Some(held) => {
            held.push(work);
            None
        }
        None => Some(work),
    })
}

/// Hands everything that `submit` submits to the disks' threads at once: operations for the same
/// threads are carried out by one of them, one after the other.
///
/// For quick operations that belong together, such as a write of data and one of its checksums:
/// waking a thread costs as much as copying a packet. Transfers that reach the device are not
/// joined: the scheduler orders them. `submit` only calls the methods and returns their futures;
/// what finds no free place is submitted on its own when it is polled.
pub fn together<T>(submit: impl FnOnce() -> T) -> T {
    /// Hands over also when `submit` panics.
    struct HandOver;
    impl Drop for HandOver {
        fn drop(&mut self) {
            for work in joined(HELD_BACK.take().unwrap_or_default()) {
                match work {
                    Held::Job(lane, class, job) => lane.push(class, job),
                    Held::Data(lane, request, job) => lane.push(request, Work::Blocking(job)),
                }
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

/// Joins what goes to the same lane in the same class, in order.
fn joined(held: Vec<Held>) -> Vec<Held> {
    let mut out: Vec<Held> = Vec::new();
    for work in held {
        match work {
            Held::Job(lane, class, job) => {
                let same = out.iter_mut().find_map(|other| match other {
                    Held::Job(l, c, earlier) if Arc::ptr_eq(l, &lane) && *c == class => {
                        Some(earlier)
                    }
                    _ => None,
                });
                match same {
                    Some(earlier) => append(earlier, Box::new(|| ()), |first| {
                        Box::new(move || {
                            run(first);
                            run(job);
                        })
                    }),
                    None => out.push(Held::Job(lane, class, job)),
                }
            }
            Held::Data(lane, request, job) => {
                let same = out.iter_mut().find_map(|other| match other {
                    Held::Data(l, r, earlier)
                        if Arc::ptr_eq(l, &lane) && r.class == request.class =>
                    {
                        r.bytes = r.bytes.saturating_add(request.bytes);
                        Some(earlier)
                    }
                    _ => None,
                });
                match same {
                    Some(earlier) => append(earlier, Box::new(|| 0), |first| {
                        Box::new(move || {
                            let moved = guarded(first).unwrap_or(0);
                            moved.saturating_add(guarded(job).unwrap_or(0))
                        })
                    }),
                    None => out.push(Held::Data(lane, request, job)),
                }
            }
        }
    }
    out
}

/// Replaces `place` by what `joined` makes of it; `nothing` stands in meanwhile.
fn append<J>(place: &mut J, nothing: J, joined: impl FnOnce(J) -> J) {
    let first = std::mem::replace(place, nothing);
    *place = joined(first);
}

/// Runs a job; the panic hook reports a panic, and the waiting caller sees a closed channel.
fn run(job: Job) {
    let _ = guarded(job);
}

/// Runs work and gives its value, `None` when it panicked; see [`run`].
pub(super) fn guarded<T>(work: Box<dyn FnOnce() -> T + Send>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
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

    /// How long the oldest of the jobs that run has been running.
    fn longest(&self) -> Option<Duration> {
        let queues = self.lock();
        let since = queues.threads.iter().filter_map(|t| match t {
            Thread::Since(start) => Some(*start),
            Thread::Gone | Thread::Idle => None,
        });
        since.min().map(|start| start.elapsed())
    }

    fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }
}

/// All lanes of one disk. Dropping it lets queued work finish and then ends the threads.
pub(super) struct Workers {
    data: Arc<data::Lane>,
    sync: Arc<LaneShared>,
    meta: Arc<LaneShared>,
    /// Syncs and names of background classes.
    background: Arc<LaneShared>,
    /// By lane and class.
    places: [[Arc<Semaphore>; IoClass::COUNT]; LANES],
    depth: usize,
}

impl Workers {
    pub(super) fn new(disk: &str, config: &DiskConfig, policy: Policy) -> io::Result<Self> {
        let lane = |label: &str, threads| {
            LaneShared::start(format!("{label}:{disk}"), threads, config.thread_idle)
        };
        let depth = config.depth_per_class.clamp(1, Semaphore::MAX_PERMITS);
        Ok(Self {
            data: data::Lane::start(disk, policy, config.thread_idle)?,
            sync: lane("sync", config.sync_threads)?,
            meta: lane("meta", config.meta_threads)?,
            background: lane("back", config.background_threads)?,
            places: std::array::from_fn(|_| {
                std::array::from_fn(|_| Arc::new(Semaphore::new(depth)))
            }),
            depth,
        })
    }

    /// The lane of reads and writes.
    pub(super) fn data(&self) -> &Arc<data::Lane> {
        &self.data
    }

    /// Calls `queue` with a place of `class` in `lane`: before this returns when one is free, else
    /// when the future gets one. The work behind it holds the place until it is done.
    pub(super) fn with_place<F>(
        &self,
        class: IoClass,
        lane: Lane,
        queue: F,
    ) -> impl Future<Output = ()> + Send + use<F>
    where
        F: FnOnce(Place) + Send + 'static,
    {
        let places = Arc::clone(&self.places[lane as usize][class.index()]);
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

    /// Queues `work`, which gives its value and the bytes it moved; the future gives the value, or
    /// `None` when it panicked.
    ///
    /// With a free place the work is queued before this returns, else when the future gets one.
    /// Queued work runs to its end whatever happens to the future.
    pub(super) fn transfer<T, F>(
        &self,
        request: Request,
        work: F,
    ) -> impl Future<Output = Option<T>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> (T, u64) + Send + 'static,
    {
        let (tell, done) = oneshot::channel();
        let lane = Arc::clone(&self.data);
        let waiting = self.with_place(request.class, Lane::Data, move |place| {
            let job = Box::new(move || {
                let (value, bytes) = work();
                drop(place);
                // The caller may have gone away; the value, buffers included, is dropped here then.
                let _ = tell.send(value);
                bytes
            });
            push_blocking(&lane, request, job);
        });
        async move {
            waiting.await;
            done.await.ok()
        }
    }

    /// As [`transfer`](Self::transfer), for work that is not a read or a write.
    pub(super) fn submit<T, F>(
        &self,
        class: IoClass,
        kind: Lane,
        work: F,
    ) -> impl Future<Output = Option<T>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let lane = match kind {
            _ if class.is_background() => &self.background,
            Lane::Sync => &self.sync,
            Lane::Meta | Lane::Data => &self.meta,
        };
        let lane = Arc::clone(lane);
        let (tell, done) = oneshot::channel();
        let waiting = self.with_place(class, kind, move |place| {
            let job = Box::new(move || {
                let value = work();
                drop(place);
                let _ = tell.send(value); // As above.
            });
            if let Some(Held::Job(lane, class, job)) = hold_back(Held::Job(lane, class, job)) {
                lane.push(class, job);
            }
        });
        async move {
            waiting.await;
            done.await.ok()
        }
    }

    pub(super) fn pending(&self, class: IoClass) -> usize {
        let free =
            |lane: &[Arc<Semaphore>; IoClass::COUNT]| lane[class.index()].available_permits();
        self.places.iter().map(|lane| self.depth - free(lane)).sum()
    }

    pub(super) fn threads(&self) -> usize {
        let others = [&self.sync, &self.meta, &self.background];
        let others: usize = others.iter().map(|lane| lane.lock().alive()).sum();
        self.data.threads() + others
    }

    pub(super) fn longest_running(&self) -> Option<Duration> {
        let names = [&self.meta, &self.background];
        let names = names.iter().filter_map(|lane| lane.longest()).max();
        names.max(self.longest_transfer())
    }

    pub(super) fn longest_transfer(&self) -> Option<Duration> {
        self.data.longest().max(self.sync.longest())
    }

    pub(super) fn stats(&self) -> DiskStats {
        self.data.stats()
    }
}

/// Queues a transfer for a thread, or keeps it for the end of [`together`] when it is quick.
pub(super) fn push_blocking(lane: &Arc<data::Lane>, request: Request, job: data::Job) {
    if request.stream.is_some() {
        return lane.push(request, Work::Blocking(job));
    }
    let held = Held::Data(Arc::clone(lane), request, job);
    if let Some(Held::Data(lane, request, job)) = hold_back(held) {
        lane.push(request, Work::Blocking(job));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.data.close();
        for lane in [&self.sync, &self.meta, &self.background] {
            lane.close();
        }
    }
}
