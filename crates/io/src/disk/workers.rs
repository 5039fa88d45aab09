//! From work that blocks to a future: a place in a bounded queue, and a thread that does it.

use std::sync::Arc;

use futures_util::future::Either;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Disk;
use super::job::Job;
use super::schedule::Request;
use super::task_lane::{Doing, Task};
use crate::class::IoClass;
use crate::error::IoOp;

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

pub(super) const LANES: usize = 4;

/// A place in the queue of a class; held until the operation is done.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Disk {
    /// Calls `queue` with a place of `class` in `lane`: before this returns when one is free, else
    /// when the future gets one. The work behind it holds the place until it is done.
    fn with_place_in<F>(
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

    /// As [`with_place_in`](Self::with_place_in), among the reads and writes.
    pub(crate) fn with_place<F>(
        &self,
        class: IoClass,
        queue: F,
    ) -> impl Future<Output = ()> + Send + use<F>
    where
        F: FnOnce(Place) + Send + 'static,
    {
        self.with_place_in(class, Lane::Data, queue)
    }

    /// Makes a job of `work`, which gives its value and the bytes it moved, and has `queue` queue
    /// it; the future gives the value, or `None` when it panicked.
    ///
    /// With a free place the job is queued before this returns, else when the future gets one. A
    /// queued job runs to its end whatever happens to the future.
    fn submit<T, F, Q>(
        &self,
        class: IoClass,
        lane: Lane,
        work: F,
        queue: Q,
    ) -> impl Future<Output = Option<T>> + Send + use<T, F, Q>
    where
        T: Send + 'static,
        F: FnOnce() -> (T, u64) + Send + 'static,
        Q: FnOnce(Job) + Send + 'static,
    {
        let (tell, done) = oneshot::channel();
        let waiting = self.with_place_in(class, lane, move |place| {
            queue(Box::new(move || {
                let (value, bytes) = work();
                drop(place);
                // The caller may have gone away; the value, buffers included, is dropped here then.
                let _ = tell.send(value);
                bytes
            }));
        });
        async move {
            waiting.await;
            done.await.ok()
        }
    }

    /// Submits a read or a write.
    pub(crate) fn transfer<T, F>(
        &self,
        request: Request,
        work: F,
    ) -> impl Future<Output = Option<T>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> (T, u64) + Send + 'static,
    {
        let lane = Arc::clone(&self.data);
        let queue = move |job| lane.push_or_hold(request, job);
        self.submit(request.class, Lane::Data, work, queue)
    }

    /// Submits what is neither.
    pub(super) fn task<T, F>(
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
        let queue = move |job| lane.push_or_hold(class, Task { job, watched });
        self.submit(class, kind, move || (work(), 0), queue)
    }
}
