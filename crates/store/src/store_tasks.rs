//! The background work of a store, and which runtime it runs on.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Context, Poll};

use hayloft_io::MayWait;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerWaitFuture;

/// What a store has under way. Clones are the same.
#[derive(Clone, Debug)]
pub struct StoreTasks {
    tracker: TaskTracker,
    /// Where the store was opened; `None` outside any runtime, as in some tests.
    of_store: Option<Handle>,
}

impl StoreTasks {
    /// Nothing yet.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            tracker: TaskTracker::new(),
            of_store: Handle::try_current().ok(),
        }
    }

    /// Runs work of the store. It stays on the runtime of its caller, where that serves many. What
    /// a thread that [may wait](MayWait) for a disk begins goes to the store's own: that disk must
    /// not hold up the check of itself.
    pub fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match &self.of_store {
            Some(runtime) if MayWait::is_set() => self.tracker.spawn_on(work, runtime),
            _ => self.tracker.spawn(work),
        }
    }

    /// Runs what a writer waits for, and nothing else does, beside it.
    pub(crate) fn spawn_here<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(work)
    }

    /// As [`spawn_here`](Self::spawn_here). A thread that [may wait](MayWait) begins it at once:
    /// what ends by that needs no task, and is given back.
    pub(crate) fn begin_here<F>(
        &self,
        cx: &mut Context<'_>,
        work: F,
    ) -> Result<F::Output, JoinHandle<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if !MayWait::is_set() {
            return Err(self.spawn_here(work));
        }
        let mut work = Box::pin(self.tracker.track_future(work));
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(done)) => Ok(done),
            Ok(Poll::Pending) => Err(tokio::spawn(work)),
            // Its caller hears of it as of any task's.
            Err(panic) => Err(tokio::spawn(async move { resume_unwind(panic) })),
        }
    }

    /// Runs work on a runtime.
    pub(crate) fn spawn_on<F>(&self, work: F, runtime: &Handle) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn_on(work, runtime)
    }

    /// Lets [`wait`](Self::wait) end with the last task.
    pub(crate) fn close(&self) {
        self.tracker.close();
    }

    /// Waits until all has ended.
    pub(crate) fn wait(&self) -> TaskTrackerWaitFuture<'_> {
        self.tracker.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::thread::current;

    #[tokio::test]
    async fn what_a_thread_that_may_wait_begins_goes_elsewhere() {
        let tasks = StoreTasks::new();
        let here = current().id();
        let (told, heard) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.build().expect("a runtime");
            let _may_wait = MayWait::this_thread();
            let own = current().id();
            runtime.block_on(async {
                let beside = tasks.spawn_here(async { current().id() });
                assert_eq!(beside.await.expect("no panic"), own);
                let elsewhere = tasks.spawn(async { current().id() });
                let _heard = told.send(elsewhere.await.expect("no panic"));
            });
        });
        assert_eq!(heard.await.expect("told"), here);
    }

    #[tokio::test]
    async fn what_ends_at_once_needs_no_task_on_a_thread_that_may_wait() {
        let tasks = StoreTasks::new();
        let shared = poll_fn(|cx| Poll::Ready(tasks.begin_here(cx, async { 1 }))).await;
        assert_eq!(shared.expect_err("a task").await.expect("no panic"), 1);
        let _may_wait = MayWait::this_thread();
        let own = poll_fn(|cx| Poll::Ready(tasks.begin_here(cx, async { 2 }))).await;
        assert_eq!(own.expect("no task"), 2);
        let panics = poll_fn(|cx| {
            let work = async { panic!("as a defect does") };
            Poll::Ready(tasks.begin_here::<_>(cx, work))
        });
        let panicked: Result<(), _> = panics.await;
        assert!(
            panicked
                .expect_err("a task")
                .await
                .expect_err("told")
                .is_panic()
        );
        let work = || async {
            tokio::task::yield_now().await;
            3
        };
        let waiting = poll_fn(|cx| Poll::Ready(tasks.begin_here(cx, work()))).await;
        let waiting = waiting.expect_err("a task");
        tasks.close();
        let mut all = std::pin::pin!(tasks.wait());
        let ended = poll_fn(|cx| Poll::Ready(all.as_mut().poll(cx))).await;
        assert!(ended.is_pending(), "it counts as under way");
        assert_eq!(waiting.await.expect("no panic"), 3);
        all.await;
    }
}
