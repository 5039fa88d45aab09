//! The physical device under one or more volumes, and the workers that do its blocking calls.
//!
//! - `closing`: closing files where a disk that gives no answer holds up no other file
//! - `config`: limits of a disk's queues and threads
//! - `data_lane`: the data lane of a disk: threads carry out what the scheduler chooses
//! - `device`: from a path to the physical device under it, by st_dev, the mount table and sysfs
//! - `job`: what the threads of a disk carry out
//! - `may_wait`: threads that may wait for a disk
//! - `media`: what kind of device a disk is
//! - `registry`: the disks of a process
//! - `schedule`: which request of a disk is served next
//! - `slowest`: the slowest transfers of a disk within the last minute
//! - `stats`: what a disk did: bytes, operations, times and run lengths by class
//! - `task_lane`: a lane of a disk that is not for reads and writes
//! - `together`: operations that belong together, in one hand-over
//! - `workers`: from work that blocks to a future
//!
//! Two volumes on partitions of one disk share one [`Disk`], hence one set of queues and workers.
//! A [`Disks`] registry hands them out; one per process is right, tests make their own.

mod closing;
mod config;
mod data_lane;
mod device;
mod job;
mod may_wait;
mod media;
mod registry;
pub(crate) mod schedule;
mod slowest;
mod stats;
mod task_lane;
mod together;
mod workers;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use closing::Aside;
pub use config::DiskConfig;
pub(crate) use data_lane::DataLane;
pub use device::DeviceId;
pub use may_wait::MayWait;
pub use media::Media;
pub use registry::Disks;
pub(crate) use schedule::{Request, Stream};
pub use slowest::{SlowTransfer, Slowest};
pub use stats::{ClassStats, DiskLoad, DiskStats};
pub use together::together;
pub(crate) use workers::{Lane, Place};

use crate::class::IoClass;
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::types::IoFuture;
use config::{QUANTUM_FLASH, QUANTUM_ROTATING};
use futures_util::future::Either;
use schedule::Policy;
use task_lane::{Doing, TaskLane};
use tokio::sync::Semaphore;
use workers::LANES;

/// One physical device: its identity and its bounded queues.
///
/// Reads and writes are ordered by the scheduler: classes by weight and deadline, on rotating media
/// one stream at a time for a quantum, on flash up to a depth. Names and syncs have places and
/// threads of their own and never wait for them. Threads start on demand and end when idle.
pub struct Disk {
    id: DeviceId,
    name: String,
    /// Reads and writes.
    data: Arc<DataLane>,
    sync: Arc<TaskLane>,
    meta: Arc<TaskLane>,
    send: Arc<TaskLane>,
    /// Syncs and names of background classes.
    background: Arc<TaskLane>,
    closing: Arc<TaskLane>,
    /// By [`Lane`] and class.
    places: [[Arc<Semaphore>; IoClass::COUNT]; LANES],
    places_max: usize,
}

impl Disk {
    /// A disk of its own for the device under `path`, outside any registry. See [`Disks::for_path`]
    /// for sharing. Blocking (a few stat calls).
    ///
    /// # Errors
    /// When `path` does not exist, or the threads cannot be started (`Retry`).
    pub fn for_path(path: &Path, config: &DiskConfig) -> Result<Arc<Self>, IoError> {
        Self::new(DeviceId::of_path(path)?, config, path)
    }

    fn new(id: DeviceId, config: &DiskConfig, path: &Path) -> Result<Arc<Self>, IoError> {
        let name = id.name();
        let media = config.media.unwrap_or_else(|| id.media());
        let by_media = match media {
            Media::Rotating => QUANTUM_ROTATING,
            Media::Flash => QUANTUM_FLASH,
        };
        let policy = Policy {
            media,
            quantum: config.quantum.unwrap_or(by_media).max(1),
            depth: config.depth.max(1),
            cached_max: config.data_threads.max(1),
            background_max: config.background_max.max(1),
            anticipation: config.anticipation,
        };
        Self::start(id, name, config, policy)
            .map(Arc::new)
            .map_err(|e| {
                IoError::from_std(IoOp::Open, path, &e)
                    .with_context("starting the I/O threads of its disk")
            })
    }

    fn start(
        id: DeviceId,
        name: String,
        config: &DiskConfig,
        policy: Policy,
    ) -> std::io::Result<Self> {
        let lane = |label: &str, threads| {
            TaskLane::start(format!("{label}:{name}"), threads, config.thread_idle)
        };
        let places = config.depth_per_class.clamp(1, Semaphore::MAX_PERMITS);
        let of_class = |_| Arc::new(Semaphore::new(places));
        Ok(Self {
            data: DataLane::start(&name, policy, config.thread_idle)?,
            sync: lane("sync", config.sync_threads)?,
            meta: lane("meta", config.meta_threads)?,
            send: lane("send", config.send_threads)?,
            background: lane("back", config.background_threads)?,
            // One: many closes at once gain nothing, and a task that closes does not wait.
            closing: lane("close", 1)?,
            places: std::array::from_fn(|_| std::array::from_fn(of_class)),
            places_max: places,
            id,
            name,
        })
    }

    /// The device's identity.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// The kernel's name (`sda`, `nvme0n1`), or `dev-0:37` for a file system without a device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work`, which may block, on one of this disk's threads, and gives its value back.
    ///
    /// Waits for a place in the queue of `class`; with a place it runs to its end even if the
    /// future is dropped. `work` must not wait for other work of the same disk.
    ///
    /// # Errors
    /// What `work` returns; `Closed` when it panicked.
    pub fn run<T, F>(
        &self,
        class: IoClass,
        op: IoOp,
        path: &Path,
        work: F,
    ) -> IoFuture<Result<T, IoError>>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> Result<T, IoError> + Send + 'static,
    {
        self.run_in(Lane::of(op), class, op, path, work)
    }

    /// As [`run`](Self::run), for `work` that sends from the page cache: on threads of its own,
    /// because a page that has left the page cache has the thread wait for the device.
    pub fn run_send<T, F>(
        &self,
        class: IoClass,
        path: &Path,
        work: F,
    ) -> IoFuture<Result<T, IoError>>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> Result<T, IoError> + Send + 'static,
    {
        self.run_in(Lane::Send, class, IoOp::Read, path, work)
    }

    /// As [`run`](Self::run), on another lane than that of `op`.
    pub(crate) fn run_in<T, F>(
        &self,
        lane: Lane,
        class: IoClass,
        op: IoOp,
        path: &Path,
        work: F,
    ) -> IoFuture<Result<T, IoError>>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> Result<T, IoError> + Send + 'static,
    {
        let path: Arc<Path> = path.into();
        let on_closed = Arc::clone(&path);
        let doing = Doing {
            what: op.name(),
            path: Arc::clone(&path),
        };
        let watched = op.ends_soon().then_some(doing);
        let work = move || work(&path);
        let done = match lane {
            Lane::Data => {
                let request = Request {
                    class,
                    stream: None,
                    bytes: 0,
                };
                Either::Left(self.transfer(request, move || (work(), 0)))
            }
            Lane::Sync | Lane::Meta | Lane::Send => {
                Either::Right(self.task(class, (lane, watched), work))
            }
        };
        Box::pin(async move {
            done.await.unwrap_or_else(|| {
                Err(IoError::new(
                    IoErrorKind::Closed,
                    op,
                    &on_closed,
                    "the worker gave no answer",
                ))
            })
        })
    }

    /// Where holders of a place queue reads and writes.
    pub(crate) fn data_lane(&self) -> &Arc<DataLane> {
        &self.data
    }

    /// Operations of `class` that are queued or running.
    #[must_use]
    pub fn pending(&self, class: IoClass) -> usize {
        let free =
            |places: &[Arc<Semaphore>; IoClass::COUNT]| places[class.index()].available_permits();
        let taken = self.places.iter().map(|lane| self.places_max - free(lane));
        taken.sum()
    }

    /// What the disk has done so far.
    #[must_use]
    pub fn stats(&self) -> DiskStats {
        self.data.stats()
    }

    /// What kind of device it is taken for.
    #[must_use]
    pub fn media(&self) -> Media {
        self.data.policy().media
    }

    /// Bytes that a writer should hand in at once, and that rotating media serve to one stream.
    #[must_use]
    pub fn quantum(&self) -> u64 {
        self.data.policy().quantum
    }

    /// Threads alive now.
    #[must_use]
    pub fn threads(&self) -> usize {
        let others: usize = self.task_lanes().iter().map(|lane| lane.threads()).sum();
        self.data.threads() + others
    }

    /// How long the read or write that has been running longest has been running; `None` when none
    /// runs. A disk that hangs shows here first.
    #[must_use]
    pub fn longest_transfer(&self) -> Option<Duration> {
        self.data.longest()
    }

    /// As [`longest_transfer`](Self::longest_transfer), of what is neither read nor write, and the
    /// verb for it: syncs, names, closing of files. Only of what is below `root`: one file system
    /// of a disk may hang alone. Work that can rightly take long, such as walking a tree, is left
    /// out.
    #[must_use]
    pub fn longest_other(&self, root: &Path) -> Option<(Duration, &'static str)> {
        let lanes = self.task_lanes().into_iter();
        lanes.filter_map(|lane| lane.longest_watched(root)).max()
    }

    /// Drops `what`, which holds the file `path` of this disk open, on a thread of the disk:
    /// closing a file may take as long as the disk gives no answer. Never waits. Files of the
    /// engines do this by themselves.
    pub fn close_aside<T: Send + 'static>(&self, path: &Path, what: T) {
        closing::close(&self.closing, path.into(), what);
    }

    /// `value`, which will be closed so when it is dropped.
    pub(crate) fn aside<T: Send + 'static>(&self, path: &Path, value: T) -> Aside<T> {
        Aside::new(&self.closing, path, value)
    }

    /// How long the oldest of all operations has been running, also of those that can rightly take
    /// long.
    #[must_use]
    pub fn longest_running(&self) -> Option<Duration> {
        let others = self.task_lanes().into_iter().filter_map(|l| l.longest());
        others.max().max(self.data.longest())
    }
}

impl Disk {
    fn task_lanes(&self) -> [&Arc<TaskLane>; 5] {
        [
            &self.sync,
            &self.meta,
            &self.send,
            &self.background,
            &self.closing,
        ]
    }
}

/// What is queued is finished, then the threads end.
impl Drop for Disk {
    fn drop(&mut self) {
        self.data.close();
        for lane in self.task_lanes() {
            lane.close();
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("name", &self.name)
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::locks;

    #[tokio::test]
    async fn threads_are_few_and_end_when_idle() {
        let config = DiskConfig {
            meta_threads: 3,
            thread_idle: Duration::from_millis(20),
            ..DiskConfig::default()
        };
        let disk = Disk::for_path(Path::new("/"), &config).expect("the root exists");
        assert_eq!(disk.threads(), 6, "one for each lane");
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let held: Vec<_> = (0..10)
            .map(|_| {
                let wait = Arc::clone(&wait);
                disk.run(IoClass::ClientRead, IoOp::Stat, Path::new("/"), move |_| {
                    let _ = locks::lock(&wait).recv();
                    Ok(())
                })
            })
            .collect();
        assert_eq!(disk.threads(), 8, "at most three for names");
        assert_eq!(disk.pending(IoClass::ClientRead), 10);
        drop(go);
        for done in held {
            done.await.expect("all are served");
        }
        for _ in 0..500 {
            if disk.threads() == 6 && disk.longest_running().is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} threads stay", disk.threads());
    }

    #[tokio::test]
    async fn what_is_submitted_together_takes_one_thread() {
        let disk = Disk::for_path(Path::new("/"), &DiskConfig::default()).expect("the root exists");
        while disk.longest_running().is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await; // The threads are still starting.
        }
        let job = |op, i: u32| {
            disk.run(IoClass::ClientWrite, op, Path::new("/"), move |_| {
                assert_ne!(i, 3, "part of the test");
                Ok((i, std::thread::current().id()))
            })
        };
        let write = |i| job(IoOp::Write, i);
        let (jobs, other) = together(|| {
            let inner = together(|| vec![write(0), write(1)]);
            (
                inner
                    .into_iter()
                    .chain([write(2), write(3), write(4)])
                    .collect::<Vec<_>>(),
                job(IoOp::Sync, 9),
            )
        });
        let done = futures_util::future::join_all(jobs).await;
        let thread = done[0].as_ref().expect("served").1;
        for (i, result) in (0..).zip(&done) {
            match result {
                Ok(served) => assert_eq!(*served, (i, thread)),
                Err(e) => assert_eq!(
                    (i, e.kind()),
                    (3, IoErrorKind::Closed),
                    "a panic is its own affair"
                ),
            }
        }
        assert_ne!(
            other.await.expect("served").1,
            thread,
            "other lanes have other threads"
        );
        let outside = write(5);
        assert_eq!(outside.await.expect("served at once").0, 5);
    }
}
