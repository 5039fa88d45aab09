//! A lane of a disk that is not for reads and writes: a queue by class and the threads that empty
//! it.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::job::{Job, STACK_BYTES, guarded};
use crate::class::IoClass;
use crate::locks;
use crate::means::Means;

/// What is done, and to what.
#[derive(Clone)]
pub(super) struct Doing {
    /// A verb.
    pub(super) what: &'static str,
    pub(super) path: Arc<Path>,
}

/// Something to do.
pub(super) struct Task {
    pub(super) job: Job,
    /// `None` when it can rightly take long, as walking a tree does.
    pub(super) watched: Option<Doing>,
}

enum Thread {
    Gone,
    Idle,
    /// Busy, or starting, since then; with what, when that is watched.
    Since(Instant, Option<Doing>),
}

#[derive(Default)]
struct Queues {
    by_class: [VecDeque<Task>; IoClass::COUNT],
    /// Where the next turn starts looking.
    turn: usize,
    queued: usize,
    idle: usize,
    threads: Vec<Thread>,
    closed: bool,
}

impl Queues {
    /// The next job; classes with work take turns.
    fn pop(&mut self) -> Option<Task> {
        if self.queued == 0 {
            return None;
        }
        for step in 0..IoClass::COUNT {
            let class = (self.turn + step) % IoClass::COUNT;
            if let Some(task) = self.by_class[class].pop_front() {
                self.turn = class + 1;
                self.queued -= 1;
                return Some(task);
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
        self.threads[slot] = Thread::Since(Instant::now(), None);
        Some(slot)
    }
}

/// See the [module](self).
pub(super) struct TaskLane {
    name: String,
    threads_max: usize,
    thread_idle: Duration,
    queues: Mutex<Queues>,
    work: Condvar,
}

impl TaskLane {
    /// A lane with its first thread, which stays as long as the lane: work never depends on being
    /// able to start a thread later.
    pub(super) fn start(
        name: String,
        threads_max: usize,
        thread_idle: Duration,
    ) -> io::Result<Arc<Self>> {
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
        locks::lock(&self.queues)
    }

    /// Queues a task. The caller bounds how many there are. A lane that has ended gives it back.
    pub(super) fn push(self: &Arc<Self>, class: IoClass, task: Task) -> Option<Task> {
        let mut queues = self.lock();
        if queues.closed && queues.alive() == 0 {
            return Some(task);
        }
        queues.by_class[class.index()].push_back(task);
        queues.queued += 1;
        if queues.idle >= queues.queued {
            drop(queues);
            self.work.notify_one();
            return None;
        }
        let Some(slot) = queues.slot(self.threads_max) else {
            return None; // A busy thread takes it when it is done.
        };
        drop(queues);
        if let Err(error) = self.spawn(slot) {
            // The threads that there are take it.
            Means::Threads.note();
            tracing::debug!(lane = self.name, %error, "cannot start another I/O thread");
        }
        None
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
            if let Some(task) = queues.pop() {
                queues.threads[slot] = Thread::Since(Instant::now(), task.watched);
                drop(queues);
                guarded(task.job);
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

    /// How long the oldest of the tasks that run has been running.
    pub(super) fn longest(&self) -> Option<Duration> {
        let queues = self.lock();
        let since = queues.threads.iter().filter_map(|t| match t {
            Thread::Since(start, _) => Some(*start),
            Thread::Gone | Thread::Idle => None,
        });
        since.min().map(|start| start.elapsed())
    }

    /// As [`longest`](Self::longest), of those that should not take long and are about something
    /// below `root`; with the verb for it.
    pub(super) fn longest_watched(&self, root: &Path) -> Option<(Duration, &'static str)> {
        let queues = self.lock();
        let since = queues.threads.iter().filter_map(|t| match t {
            Thread::Since(start, Some(doing)) if doing.path.starts_with(root) => {
                Some((*start, doing.what))
            }
            _ => None,
        });
        let (start, what) = since.min()?;
        Some((start.elapsed(), what))
    }

    /// Threads that live.
    pub(super) fn threads(&self) -> usize {
        self.lock().alive()
    }

    /// Lets what is queued finish and then ends the threads.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }
}
