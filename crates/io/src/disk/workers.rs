//! Threads that make blocking calls for one disk, behind bounded queues. Reads and writes go
//! through the scheduler of the [`DataLane`], everything else has lanes of its own.

use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::DiskConfig;
use super::closing::Closer;
use super::data::{DataLane, Job};
use super::lane::{Doing, Task, TaskLane};
use super::schedule::{Policy, Request};
use super::stats::DiskStats;
use crate::class::IoClass;
use crate::error::IoOp;

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
    /// Sending from the page cache to a socket, which waits for the device where a page has left
    /// it.
    Send,
}

impl Lane {
    /// Where operations of a kind go.
    pub(crate) fn of(op: IoOp) -> Self {
        match op {
            IoOp::Read | IoOp::Write => Self::Data,
            // Starting to write back waits where the device's queue is full.
            IoOp::Sync | IoOp::SyncDir | IoOp::Replace | IoOp::Writeback => Self::Sync,
            _ => Self::Meta,
        }
    }
}

const LANES: usize = 4;

/// A place in the queue of a class; held until the operation is done.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

/// Work that was submitted within [`together`].
enum Held {
    /// For the threads of a lane.
    Task(Arc<TaskLane>, IoClass, Task),
    /// For the scheduler.
    Data(Arc<DataLane>, Request, Job),
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
                    Held::Task(lane, class, task) => drop(lane.push(class, task)),
                    Held::Data(lane, request, job) => lane.push(request, job),
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
            Held::Task(lane, class, task) => {
                let same = out.iter_mut().find_map(|other| match other {
                    Held::Task(l, c, earlier) if Arc::ptr_eq(l, &lane) && *c == class => {
                        Some(earlier)
                    }
                    _ => None,
                });
                match same {
                    Some(earlier) => append(earlier, Task::nothing(), |first| first.then(task)),
                    None => out.push(Held::Task(lane, class, task)),
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

/// Runs work and gives its value, `None` when it panicked; the panic hook reports that.
pub(super) fn guarded<T>(work: Box<dyn FnOnce() -> T + Send>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// All lanes of one disk. Dropping it lets queued work finish and then ends the threads.
pub(super) struct Workers {
    data: Arc<DataLane>,
    sync: Arc<TaskLane>,
    meta: Arc<TaskLane>,
    send: Arc<TaskLane>,
    /// Syncs and names of background classes.
    background: Arc<TaskLane>,
    closing: Arc<TaskLane>,
    /// By lane and class.
    places: [[Arc<Semaphore>; IoClass::COUNT]; LANES],
    depth: usize,
}

impl Workers {
    pub(super) fn new(disk: &str, config: &DiskConfig, policy: Policy) -> io::Result<Self> {
        let lane = |label: &str, threads| {
            TaskLane::start(format!("{label}:{disk}"), threads, config.thread_idle)
        };
        let depth = config.depth_per_class.clamp(1, Semaphore::MAX_PERMITS);
        Ok(Self {
            data: DataLane::start(disk, policy, config.thread_idle)?,
            sync: lane("sync", config.sync_threads)?,
            meta: lane("meta", config.meta_threads)?,
            send: lane("send", config.send_threads)?,
            background: lane("back", config.background_threads)?,
            // One: many closes at once gain nothing, and a task that closes does not wait.
            closing: lane("close", 1)?,
            places: std::array::from_fn(|_| {
                std::array::from_fn(|_| Arc::new(Semaphore::new(depth)))
            }),
            depth,
        })
    }

    /// The lane of reads and writes.
    pub(super) fn data(&self) -> &Arc<DataLane> {
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
            lane.push_or_hold(request, job);
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
        (kind, watched): (Lane, Option<Doing>),
        work: F,
    ) -> impl Future<Output = Option<T>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let lane = match kind {
            Lane::Send => &self.send,
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
            let task = Task { job, watched };
            if let Some(Held::Task(lane, class, task)) = hold_back(Held::Task(lane, class, task)) {
                lane.push(class, task);
            }
        });
        async move {
            waiting.await;
            done.await.ok()
        }
    }

    /// Where files are closed.
    pub(super) fn closer(&self) -> Closer {
        Closer::new(Arc::clone(&self.closing))
    }

    fn task_lanes(&self) -> [&Arc<TaskLane>; 5] {
        [
            &self.sync,
            &self.meta,
            &self.send,
            &self.background,
            &self.closing,
        ]
    }

    pub(super) fn pending(&self, class: IoClass) -> usize {
        let free =
            |lane: &[Arc<Semaphore>; IoClass::COUNT]| lane[class.index()].available_permits();
        self.places.iter().map(|lane| self.depth - free(lane)).sum()
    }

    pub(super) fn threads(&self) -> usize {
        let others: usize = self.task_lanes().iter().map(|lane| lane.threads()).sum();
        self.data.threads() + others
    }

    pub(super) fn longest_running(&self) -> Option<Duration> {
        let others = self.task_lanes().into_iter().filter_map(|l| l.longest());
        others.max().max(self.data.longest())
    }

    pub(super) fn longest_transfer(&self) -> Option<Duration> {
        self.data.longest()
    }

    pub(super) fn longest_other(&self, root: &Path) -> Option<(Duration, &'static str)> {
        let lanes = self.task_lanes().into_iter();
        lanes.filter_map(|lane| lane.longest_watched(root)).max()
    }

    pub(super) fn stats(&self) -> DiskStats {
        self.data.stats()
    }
}

impl DataLane {
    /// Queues a job, or keeps it for the end of [`together`] when it does not reach the device. The
    /// caller holds a place for it.
    pub(crate) fn push_or_hold(self: &Arc<Self>, request: Request, job: Job) {
        if request.stream.is_some() {
            return self.push(request, job);
        }
        let held = Held::Data(Arc::clone(self), request, job);
        if let Some(Held::Data(lane, request, job)) = hold_back(held) {
            lane.push(request, job);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.data.close();
        for lane in self.task_lanes() {
            lane.close();
        }
    }
}
