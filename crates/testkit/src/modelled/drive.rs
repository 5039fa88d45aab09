//! The drive: a queue of requests and the thread that answers each when the model says so.
//!
//! Bytes of writes are in the backing file before the request is queued, bytes of reads are taken
//! from it when the request is chosen; what the model rules is when the answer is given. The
//! model's clock goes on from the end of one request to the start of the next, so the time that
//! this machine needs to answer is not added to the disk's.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fuser::{Errno, ReplyData, ReplyWrite};

use super::model::{MediaKind, Model, Params, Request};
use super::stats::{Recorder, Stats};

/// Largest request of the FUSE connection, bytes.
pub const REQUEST_MAX: u32 = 1 << 20;

/// How long an idle drive waits for a request's neighbours before it moves the head, nanoseconds.
/// The host's loop driver hands over requests of one submission out of order (some by a kernel
/// thread), which a SATA link does not. Not charged: service begins at the arrival all the same.
const SETTLE: u64 = 200_000;

/// Whom to answer.
pub enum Answer {
    /// Bytes of the backing file.
    Read(ReplyData),
    /// So many bytes were written.
    Write(ReplyWrite),
}

struct Waiting {
    request: Request,
    answer: Answer,
}

struct DriveState {
    queue: VecDeque<Waiting>,
    model: Model,
    recorder: Recorder,
    stopped: bool,
}

/// The drive. Shared by the FUSE threads, which queue, and its own thread, which answers.
///
/// The queue is bounded by the FUSE connection, which has at most so many requests in flight.
pub struct Drive {
    backing: File,
    /// Before it says that it cannot read.
    retries: Duration,
    capacity: u64,
    began: Instant,
    state: Mutex<DriveState>,
    arrived: Condvar,
    /// Answer at once: while the file system is made, and at the end.
    at_once: AtomicBool,
}

impl Drive {
    /// A drive of `capacity` bytes over `backing`, answering at once until
    /// [`take_time`](Self::take_time).
    pub fn new(params: Params, capacity: u64, backing: File) -> Self {
        Self {
            backing,
            retries: Duration::from_micros(params.retries_us),
            capacity,
            began: Instant::now(),
            state: Mutex::new(DriveState {
                queue: VecDeque::new(),
                model: Model::new(params, capacity),
                recorder: Recorder::new(0),
                stopped: false,
            }),
            arrived: Condvar::new(),
            at_once: AtomicBool::new(true),
        }
    }

    /// Size of the disk, bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The file that holds the bytes.
    pub fn backing(&self) -> &File {
        &self.backing
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, DriveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests take the model's time; otherwise they are answered at once.
    pub fn take_time(&self, yes: bool) {
        self.at_once.store(!yes, Ordering::Release);
        if yes {
            self.reset();
        }
    }

    /// Begins the statistics anew.
    pub fn reset(&self) {
        let now = self.now();
        self.state().recorder = Recorder::new(now);
    }

    /// The statistics so far.
    pub fn stats(&self) -> Stats {
        let now = self.now();
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let cpu_s = Duration::try_from(cpu).map_or(0.0, |d| d.as_secs_f64());
        let state = self.state();
        let params = *state.model.params();
        state.recorder.stats(&params, self.capacity, now, cpu_s)
    }

    /// How it is now.
    pub fn params(&self) -> Params {
        *self.state().model.params()
    }

    /// From the next request on it takes as long as a drive with `params`. What it cannot read it
    /// tries for as long as before.
    pub fn become_like(&self, params: Params) {
        self.state().model.become_like(params);
    }

    /// Counts a flush.
    pub fn flushed(&self) {
        self.state().recorder.flushed();
    }

    /// Queues a request; its answer comes when the model has served it.
    pub fn queue(&self, kind: MediaKind, offset: u64, length: u64, answer: Answer) {
        let request = Request {
            kind,
            offset,
            length,
            arrived: self.now(),
        };
        let mut state = self.state();
        if state.stopped {
            drop(state);
            refuse(answer);
            return;
        }
        state.queue.push_back(Waiting { request, answer });
        drop(state);
        self.arrived.notify_one();
    }

    /// Ends the thread once the queue is empty; what comes later is refused.
    pub fn stop(&self) {
        self.state().stopped = true;
        self.arrived.notify_all();
    }

    /// Starts the drive's thread.
    ///
    /// # Errors
    /// When the kernel gives no thread.
    pub fn spin_up(self: &Arc<Self>) -> std::io::Result<std::thread::JoinHandle<()>> {
        let drive = Arc::clone(self);
        let builder = std::thread::Builder::new().name("modelled-drive".into());
        builder.spawn(move || {
            // Without it, each sleep ends up to 50 us late; with it the model's times are kept
            // within a few microseconds. Not having it costs precision only.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            drive.run();
        })
    }

    fn run(&self) {
        let mut buffer = Vec::new();
        while let Some((waiting, due)) = self.next() {
            self.answer(waiting, due, &mut buffer);
        }
    }

    /// The next request and when it is to be answered; `None` at the end.
    fn next(&self) -> Option<(Waiting, Option<u64>)> {
        let mut state = self.state();
        loop {
            if !state.queue.is_empty() {
                break;
            }
            if state.stopped {
                return None;
            }
            state = self
                .arrived
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if self.at_once.load(Ordering::Acquire) {
            return state.queue.pop_front().map(|waiting| (waiting, None));
        }
        if let Some(wait) = self.unsettled(&state) {
            drop(state);
            std::thread::sleep(wait);
            state = self.state();
        }
        let queued = state.queue.len();
        let state = &mut *state;
        let requests = state.queue.iter().map(|waiting| waiting.request);
        let chosen = state.model.choose(requests, state.model.free_at());
        let waiting = state.queue.remove(chosen)?;
        let service = state.model.serve(&waiting.request);
        state.recorder.served(&waiting.request, &service, queued);
        Some((waiting, Some(service.end)))
    }

    /// How long to wait before choosing, when the drive was idle and would have to move the head.
    fn unsettled(&self, state: &DriveState) -> Option<Duration> {
        let first = state.queue.front()?.request;
        let chosen = state.queue.iter().map(|waiting| waiting.request);
        if first.arrived <= state.model.free_at() || state.model.follows(chosen) {
            return None;
        }
        let left = (first.arrived + SETTLE).checked_sub(self.now())?;
        Some(Duration::from_nanos(left))
    }

    fn answer(&self, waiting: Waiting, due: Option<u64>, buffer: &mut Vec<u8>) {
        let Waiting { request, answer } = waiting;
        let length = usize::try_from(request.length).unwrap_or(0);
        let read = match &answer {
            Answer::Read(_) => {
                buffer.resize(length.max(buffer.len()), 0);
                self.backing
                    .read_exact_at(&mut buffer[..length], request.offset)
            }
            Answer::Write(_) => Ok(()),
        };
        if let Some(due) = due {
            let left = due.saturating_sub(self.now());
            if left > 0 {
                std::thread::sleep(Duration::from_nanos(left));
            }
            let now = self.now();
            self.state().recorder.answered(due, now);
        }
        match (answer, read) {
            (Answer::Read(reply), Ok(())) => reply.data(&buffer[..length]),
            (Answer::Write(reply), Ok(())) => {
                reply.written(u32::try_from(request.length).unwrap_or(0));
            }
            (answer, Err(_)) => {
                std::thread::sleep(self.retries);
                refuse(answer);
            }
        }
    }
}

fn refuse(answer: Answer) {
    match answer {
        Answer::Read(reply) => reply.error(Errno::EIO),
        Answer::Write(reply) => reply.error(Errno::EIO),
    }
}
