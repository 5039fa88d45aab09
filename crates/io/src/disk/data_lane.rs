//! The data lane of a disk: threads carry out what the scheduler chooses.
//!
//! The task that queues or ends something asks the scheduler what may start now. There are as many
//! threads as requests may be under way, started on demand: what was chosen never waits for one.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::job::{Job, STACK_BYTES, guarded};
use super::may_wait::MayWait;
use super::schedule::{Next, Policy, Request, Scheduler, Ticket};
use super::stats::DiskStats;
use crate::locks;
use crate::means::Means;

struct Core {
    scheduler: Scheduler<Job>,
    stats: DiskStats,
    /// Requests under way, by key.
    under_way: Vec<Option<Ticket>>,
    /// Chosen, waiting for a thread to wake up.
    ready: VecDeque<(usize, Job)>,
    /// When to ask the scheduler again.
    ask_at: Option<Instant>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Core {
    fn start(&mut self, ticket: Ticket) -> usize {
        self.stats.served(&ticket);
        let key = self.under_way.iter().position(Option::is_none);
        let key = key.unwrap_or_else(|| {
            self.under_way.push(None);
            self.under_way.len() - 1
        });
        self.under_way[key] = Some(ticket);
        key
    }

    fn end(&mut self, now: Instant, key: usize, bytes: u64) {
        let ticket = self.under_way[key].take();
        let ticket = ticket.expect("a request ends once");
        self.stats.finished(now, &ticket, bytes);
        self.scheduler.finished(now, &ticket, bytes);
    }

    fn longest(&self) -> Option<Duration> {
        let started = self.under_way.iter().flatten().map(|t| t.served).min();
        started.map(|at| at.elapsed())
    }
}

/// See the [module](self).
pub(crate) struct DataLane {
    name: String,
    threads_max: usize,
    thread_idle: Duration,
    core: Mutex<Core>,
    work: Condvar,
}

impl DataLane {
    /// A lane with its first thread, which stays: work never depends on being able to start one.
    pub(super) fn start(
        disk: &str,
        policy: Policy,
        thread_idle: Duration,
    ) -> io::Result<Arc<Self>> {
        let lane = Arc::new(Self {
            name: format!("data:{disk}"),
            threads_max: policy.cached_max.saturating_add(policy.depth).max(1),
            thread_idle,
            core: Mutex::new(Core {
                scheduler: Scheduler::new(policy),
                stats: DiskStats::default(),
                under_way: Vec::new(),
                ready: VecDeque::new(),
                ask_at: None,
                threads: 1,
                idle: 0,
                closed: false,
            }),
            work: Condvar::new(),
        });
        lane.spawn()?;
        Ok(lane)
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        locks::lock(&self.core)
    }

    /// Queues a job. The caller holds a place for it. A thread that [may wait](MayWait) has done a
    /// small one when this returns, if it may start now and none of its kind waited before it.
    pub(super) fn push(self: &Arc<Self>, request: Request, job: Job) {
        let mut now = Instant::now();
        let mut core = self.lock();
        let first = MayWait::takes(&request) && core.scheduler.has_cached_place();
        core.scheduler.push(now, request, job);
        if first && let Next::Serve(ticket, job) = core.scheduler.next(now) {
            let key = core.start(ticket);
            drop(core);
            let bytes = guarded(job);
            now = Instant::now();
            core = self.lock();
            core.end(now, key, bytes);
        }
        self.serve(core, now, false);
    }

    /// Starts what may start now. `taking`: the caller is a thread that takes the next job itself.
    fn serve(self: &Arc<Self>, mut core: MutexGuard<'_, Core>, now: Instant, taking: bool) {
        core.ask_at = loop {
            match core.scheduler.next(now) {
                Next::Serve(ticket, job) => {
                    let key = core.start(ticket);
                    core.ready.push_back((key, job));
                }
                Next::At(time) => break Some(time),
                Next::Nothing => break None,
            }
        };
        // A thread must be awake for each job, and one to ask again in time.
        let wanted = core.ready.len() + usize::from(core.ask_at.is_some());
        let wanted = wanted.saturating_sub(usize::from(taking));
        let wake = wanted.min(core.idle);
        let mut start = 0;
        while wake + start < wanted && core.threads < self.threads_max {
            core.threads += 1;
            start += 1;
        }
        drop(core);
        for _ in 0..wake {
            self.work.notify_one();
        }
        for _ in 0..start {
            if let Err(error) = self.spawn() {
                // The threads that there are take what was chosen.
                Means::Threads.note();
                tracing::debug!(lane = self.name, %error, "cannot start another I/O thread");
                self.lock().threads -= 1;
            }
        }
    }

    fn spawn(self: &Arc<Self>) -> io::Result<()> {
        let lane = Arc::clone(self);
        thread::Builder::new()
            .name(self.name.clone())
            .stack_size(STACK_BYTES)
            .spawn(move || lane.work())
            .map(drop)
    }

    fn work(self: &Arc<Self>) {
        let mut core = self.lock();
        loop {
            if let Some((key, job)) = core.ready.pop_front() {
                drop(core);
                let bytes = guarded(job);
                let now = Instant::now();
                core = self.lock();
                core.end(now, key, bytes);
                self.serve(core, now, true);
                core = self.lock();
                continue;
            }
            if core.closed && core.scheduler.waiting() == 0 {
                break;
            }
            let now = Instant::now();
            if core.ask_at.is_some_and(|at| at <= now) {
                self.serve(core, now, true);
                core = self.lock();
                continue;
            }
            let pause = core.ask_at.map_or(self.thread_idle, |at| at - now);
            core.idle += 1;
            let (guard, timeout) = self
                .work
                .wait_timeout(core, pause)
                .unwrap_or_else(PoisonError::into_inner);
            core = guard;
            core.idle -= 1;
            let unneeded = core.ready.is_empty() && core.ask_at.is_none() && core.threads > 1;
            if timeout.timed_out() && pause == self.thread_idle && unneeded {
                break;
            }
        }
        core.threads -= 1;
    }

    /// Lets what is queued finish and then ends the threads.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    pub(super) fn threads(&self) -> usize {
        self.lock().threads
    }

    pub(super) fn stats(&self) -> DiskStats {
        let core = self.lock();
        let mut stats = core.stats.clone();
        stats.load.waiting = core.scheduler.waiting_by_class();
        for ticket in core.under_way.iter().flatten() {
            stats.load.running[ticket.request.class.index()] += 1;
        }
        stats.load.longest = core.longest();
        stats
    }

    pub(super) fn policy(&self) -> Policy {
        *self.lock().scheduler.policy()
    }

    /// How long the request that has been under way longest has been so.
    pub(super) fn longest(&self) -> Option<Duration> {
        self.lock().longest()
    }
}
