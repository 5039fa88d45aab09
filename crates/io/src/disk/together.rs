//! Operations that belong together, in one hand-over.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;

use super::data_lane::DataLane;
use super::job::{Job, guarded};
use super::schedule::Request;
use super::task_lane::{Task, TaskLane};
use crate::class::IoClass;

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

impl Held {
    /// Keeps the work for the end of [`together`]; hands it over at once outside.
    fn hold_back(self) {
        let outside = HELD_BACK.with_borrow_mut(|held| match held {
            Some(held) => {
                held.push(self);
                None
            }
            None => Some(self),
        });
        if let Some(work) = outside {
            work.hand_over();
        }
    }

    fn hand_over(self) {
        match self {
            Self::Task(lane, class, task) => drop(lane.push(class, task)),
            Self::Data(lane, request, job) => lane.push(request, job),
        }
    }

    /// Takes up `other`, to be done after this, when it goes to the same lane in the same class;
    /// gives it back else.
    fn join(&mut self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Task(lane, class, first), Self::Task(to, of, next))
                if Arc::ptr_eq(lane, &to) && *class == of =>
            {
                append(&mut first.job, next.job);
                first.watched = first.watched.take().filter(|_| next.watched.is_some());
                None
            }
            (Self::Data(lane, first, job), Self::Data(to, next, then))
                if Arc::ptr_eq(lane, &to) && first.class == next.class =>
            {
                first.bytes = first.bytes.saturating_add(next.bytes);
                append(job, then);
                None
            }
            (_, other) => Some(other),
        }
    }
}

/// Has `next` done after `job`.
fn append(job: &mut Job, next: Job) {
    let first = mem::replace(job, Box::new(|| 0));
    *job = Box::new(move || guarded(first).saturating_add(guarded(next)));
}

/// Joins what goes to the same lane in the same class, in order.
fn joined(held: Vec<Held>) -> Vec<Held> {
    let mut out: Vec<Held> = Vec::new();
    for work in held {
        let rest = out
            .iter_mut()
            .try_fold(work, |work, earlier| earlier.join(work));
        out.extend(rest);
    }
    out
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
            for held in joined(HELD_BACK.take().unwrap_or_default()) {
                held.hand_over();
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

impl DataLane {
    /// Queues a job, or keeps it for the end of [`together`] when it does not reach the device. The
    /// caller holds a place for it.
    pub(crate) fn push_or_hold(self: &Arc<Self>, request: Request, job: Job) {
        if request.stream.is_some() {
            return self.push(request, job);
        }
        Held::Data(Arc::clone(self), request, job).hold_back();
    }
}

impl TaskLane {
    /// Queues a task, or keeps it for the end of [`together`].
    pub(super) fn push_or_hold(self: &Arc<Self>, class: IoClass, task: Task) {
        Held::Task(Arc::clone(self), class, task).hold_back();
    }
}
