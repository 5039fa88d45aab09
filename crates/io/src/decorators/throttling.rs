//! Bytes per second by class, adjustable while running.
//!
//! Each class has a bucket that fills at its rate, up to a tenth of a second's worth (at least
//! 64 KiB). A transfer waits until the bucket is not empty and then takes all it needs, going into
//! debt if necessary: any size passes, and the average holds. Waiting is first come, first served.
//! Only reads and writes count; a class without a rate is not touched.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::disk::Disk;
use crate::engine::{
    Advice, Capabilities, Completion, Engine, EngineFile, IoFuture, OpenMode, SyncKind,
};
use crate::error::IoError;
use crate::meta::Meta;

/// A waiting transfer looks at the rate again after this time at the latest.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Smallest burst, in bytes.
const BURST_MIN: u64 = 64 * 1024;

#[derive(Debug)]
struct Level {
    /// Bytes that may pass now; negative after a large transfer.
    bytes: i128,
    at: Instant,
    /// What is left of the last refill below one byte, in byte-nanoseconds per second.
    rest: u128,
}

#[derive(Debug)]
struct Bucket {
    /// Bytes per second; 0 for no limit.
    rate: AtomicU64,
    level: Mutex<Level>,
    /// Keeps waiters in line; one permit.
    line: Semaphore,
}

impl Bucket {
    fn new() -> Self {
        let level = Mutex::new(Level {
            bytes: i128::from(BURST_MIN),
            at: Instant::now(),
            rest: 0,
        });
        Self {
            rate: AtomicU64::new(0),
            level,
            line: Semaphore::new(1),
        }
    }

    fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, or says how long to wait before asking again.
    fn take(&self, bytes: u64) -> Result<(), Duration> {
        let rate = self.rate();
        if rate == 0 {
            return Ok(());
        }
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let flow = now
            .saturating_duration_since(level.at)
            .as_nanos()
            .saturating_mul(u128::from(rate))
            + level.rest;
        let burst = i128::from((rate / 10).max(BURST_MIN));
        let filled = i128::try_from(flow / 1_000_000_000).unwrap_or(i128::MAX);
        level.bytes = level.bytes.saturating_add(filled).min(burst);
        level.rest = flow % 1_000_000_000;
        level.at = now;
        if level.bytes > 0 {
            level.bytes -= i128::from(bytes);
            return Ok(());
        }
        let missing = u128::try_from(1 - level.bytes).expect("not positive, so the difference is");
        let nanos = (missing * 1_000_000_000).div_ceil(u128::from(rate));
        Err(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }

    async fn pass(&self, bytes: u64) {
        let _turn = self.line.acquire().await.expect("the line is never closed");
        while let Err(wait) = self.take(bytes) {
            tokio::time::sleep(wait.min(LOOK_AGAIN)).await;
        }
    }
}

/// The rates of all classes; shared by the engines of one node, or one per disk.
#[derive(Debug)]
pub struct ThrottledDisk {
    buckets: [Bucket; IoClass::COUNT],
}

impl Default for ThrottledDisk {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| Bucket::new()),
        }
    }
}

impl ThrottledDisk {
    /// Sets the rate of a class in bytes per second, 0 for none; waiting transfers obey the new
    /// rate within a tenth of a second.
    pub fn set_rate(&self, class: IoClass, bytes_per_second: u64) {
        self.buckets[class.index()]
            .rate
            .store(bytes_per_second, Ordering::Relaxed);
    }

    /// The rate of a class in bytes per second, 0 for none.
    #[must_use]
    pub fn rate(&self, class: IoClass) -> u64 {
        self.buckets[class.index()].rate()
    }

    /// Waits until `bytes` of `class` may pass. For transfers that do not go through an engine,
    /// such as sendfile. Dropping the future takes nothing.
    pub async fn pass(&self, class: IoClass, bytes: u64) {
        let bucket = &self.buckets[class.index()];
        if bucket.rate() > 0 {
            bucket.pass(bytes).await;
        }
    }
}

/// An engine whose reads and writes obey a [`ThrottledDisk`]. See the [module](self).
#[derive(Debug)]
pub struct Throttled {
    inner: Arc<dyn Engine>,
    throttle: Arc<ThrottledDisk>,
}

impl Throttled {
    /// `inner`, slowed down by `throttle`.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>, throttle: Arc<ThrottledDisk>) -> Self {
        Self { inner, throttle }
    }
}

impl Engine for Throttled {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn disk(&self) -> &Arc<Disk> {
        self.inner.disk()
    }

    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        class: IoClass,
    ) -> IoFuture<Result<Arc<dyn EngineFile>, IoError>> {
        let opened = self.inner.open(path, mode, class);
        let throttle = Arc::clone(&self.throttle);
        Box::pin(async move {
            let inner = opened.await?;
            Ok(Arc::new(ThrottledFile {
                inner,
                throttle,
                class,
            }) as Arc<dyn EngineFile>)
        })
    }

    fn meta(&self, class: IoClass) -> Meta {
        self.inner.meta(class)
    }
}

#[derive(Debug)]
struct ThrottledFile {
    inner: Arc<dyn EngineFile>,
    throttle: Arc<ThrottledDisk>,
    class: IoClass,
}

impl EngineFile for ThrottledFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn with_class(&self, class: IoClass) -> Arc<dyn EngineFile> {
        Arc::new(Self {
            inner: self.inner.with_class(class),
            throttle: Arc::clone(&self.throttle),
            class,
        })
    }

    fn read_at(
        &self,
        buf: AlignedBuf,
        offset: u64,
        len: usize,
    ) -> IoFuture<Completion<AlignedBuf>> {
        if self.throttle.rate(self.class) == 0 {
            return self.inner.read_at(buf, offset, len);
        }
        let (inner, throttle, class) = (
            Arc::clone(&self.inner),
            Arc::clone(&self.throttle),
            self.class,
        );
        Box::pin(async move {
            throttle
                .pass(class, u64::try_from(len).unwrap_or(u64::MAX))
                .await;
            inner.read_at(buf, offset, len).await
        })
    }

    fn caches(&self, offset: u64) -> bool {
        self.inner.caches(offset)
    }

    fn load(&self, offset: u64, len: usize) -> IoFuture<Result<usize, IoError>> {
        if self.throttle.rate(self.class) == 0 {
            return self.inner.load(offset, len);
        }
        let (inner, throttle, class) = (
            Arc::clone(&self.inner),
            Arc::clone(&self.throttle),
            self.class,
        );
        Box::pin(async move {
            throttle
                .pass(class, u64::try_from(len).unwrap_or(u64::MAX))
                .await;
            inner.load(offset, len).await
        })
    }

    fn write_at(&self, bufs: Vec<Bytes>, offset: u64) -> IoFuture<Completion<Vec<Bytes>>> {
        if self.throttle.rate(self.class) == 0 {
            return self.inner.write_at(bufs, offset);
        }
        let (inner, throttle, class) = (
            Arc::clone(&self.inner),
            Arc::clone(&self.throttle),
            self.class,
        );
        let len = bufs.iter().fold(0_u64, |sum, b| {
            sum.saturating_add(u64::try_from(b.len()).unwrap_or(u64::MAX))
        });
        Box::pin(async move {
            throttle.pass(class, len).await;
            inner.write_at(bufs, offset).await
        })
    }

    fn allocate(&self, len: u64) -> IoFuture<Result<(), IoError>> {
        self.inner.allocate(len)
    }

    fn truncate(&self, len: u64) -> IoFuture<Result<(), IoError>> {
        self.inner.truncate(len)
    }

    fn sync(&self, kind: SyncKind) -> IoFuture<Result<(), IoError>> {
        self.inner.sync(kind)
    }

    fn start_writeback(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.inner.start_writeback(offset, len)
    }

    fn write_back(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.inner.write_back(offset, len)
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.inner.advise(advice, offset, len)
    }

    fn length(&self) -> IoFuture<Result<u64, IoError>> {
        self.inner.length()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_average_holds_and_can_be_changed() {
        let throttle = ThrottledDisk::default();
        throttle.set_rate(IoClass::Scan, 1 << 20);
        let start = Instant::now();
        for _ in 0..40 {
            throttle.pass(IoClass::Scan, 256 * 1024).await;
        }
        let took = start.elapsed().as_secs_f64();
        assert!(
            (9.0..10.5).contains(&took),
            "10 MiB at 1 MiB/s took {took} s"
        );
        throttle.set_rate(IoClass::Scan, 0);
        let start = Instant::now();
        throttle.pass(IoClass::Scan, 1 << 40).await;
        throttle.pass(IoClass::ClientRead, 1 << 40).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
