//! The pool that bounds buffers.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use super::slab::{Slab, part_size};
use super::{ALIGNMENT, AlignedBuf, BUFFER_MAX, Memory, Region};
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::locks;
use crate::mapped_memory::HUGE_PAGE;

/// Where a buffer's memory goes when the buffer does.
pub(super) struct Home {
    pool: Arc<PoolShared>,
    _permit: OwnedSemaphorePermit,
}

impl Home {
    pub(super) fn take_back(self, region: Region) {
        self.pool.put_back(region);
        // The permit is released after the region is idle, so idle + in use stays bounded.
    }
}

/// A region that waits for its next use.
struct Rested {
    region: Region,
    since: Instant,
}

struct Idle {
    /// Those that were used last at the end.
    regions: Vec<Rested>,
    bytes: usize,
    in_use: usize,
}

struct PoolShared {
    budget: usize,
    idle: Mutex<Idle>,
    /// Those of which a buffer has a part.
    slabs: Mutex<Vec<Weak<Slab>>>,
    /// Callers that wait in [`BufferPool::acquire`].
    waiting: AtomicUsize,
}

impl PoolShared {
    fn put_back(&self, region: Region) {
        let mut idle = locks::lock(&self.idle);
        idle.in_use -= region.capacity;
        idle.bytes += region.capacity;
        idle.regions.push(Rested {
            region,
            since: Instant::now(),
        });
    }

    /// Takes the idle region of exactly `capacity` that was used last, else drops those that were
    /// not used for longest until a new one fits.
    fn take(&self, capacity: usize) -> Region {
        let mut dropped = Vec::new();
        {
            let mut idle = locks::lock(&self.idle);
            idle.in_use += capacity;
            if let Some(at) = idle
                .regions
                .iter()
                .rposition(|r| r.region.capacity == capacity)
            {
                idle.bytes -= capacity;
                return idle.regions.remove(at).region;
            }
            let mut count = 0;
            while idle.in_use + idle.bytes > self.budget && count < idle.regions.len() {
                idle.bytes -= idle.regions[count].region.capacity;
                count += 1;
            }
            dropped.extend(idle.regions.drain(..count));
        }
        // Returning memory to the system is done outside the lock, before asking for more.
        drop(dropped);
        Region::new(capacity)
    }

    /// Drops regions that have waited for `idle`.
    fn trim(&self, idle: Duration) {
        let dropped: Vec<Rested> = {
            let mut state = locks::lock(&self.idle);
            let count = state
                .regions
                .partition_point(|rested| rested.since.elapsed() >= idle);
            let dropped: Vec<Rested> = state.regions.drain(..count).collect();
            state.bytes -= dropped.iter().map(|r| r.region.capacity).sum::<usize>();
            dropped
        };
        drop(dropped); // Outside the lock.
    }
}

/// A source of [`AlignedBuf`]s with a budget in bytes.
///
/// Buffers in use and idle ones kept for reuse together never exceed the budget; when it is used
/// up, [`acquire`](BufferPool::acquire) waits, first come first served. Each small buffer costs up
/// to one page more than its capacity outside the budget (alignment). From 2 MiB on a buffer lies
/// in huge pages where the system has some; smaller ones may [share](BufferPool::try_acquire_below)
/// them.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<PoolShared>,
    pages: Arc<Semaphore>,
}

impl BufferPool {
    /// A pool of at most `budget` bytes, rounded down to whole pages (at least one).
    #[must_use]
    pub fn new(budget: usize) -> Self {
        let pages = (budget / ALIGNMENT).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Self {
            shared: Arc::new(PoolShared {
                budget: pages * ALIGNMENT,
                idle: Mutex::new(Idle {
                    regions: Vec::new(),
                    bytes: 0,
                    in_use: 0,
                }),
                slabs: Mutex::default(),
                waiting: AtomicUsize::new(0),
            }),
            pages: Arc::new(Semaphore::new(pages)),
        }
    }

    /// The budget in bytes.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.shared.budget
    }

    /// Bytes in buffers that are out now, and in huge pages that these have parts of.
    #[must_use]
    pub fn in_use(&self) -> usize {
        locks::lock(&self.shared.idle).in_use
    }

    /// Bytes in buffers that are kept for reuse.
    #[must_use]
    pub fn idle(&self) -> usize {
        locks::lock(&self.shared.idle).bytes
    }

    /// Gives the memory of buffers that were not used for `idle` back to the system. To be called
    /// every now and then by the pool's owner.
    pub fn trim(&self, idle: Duration) {
        self.shared.trim(idle);
    }

    /// A buffer of at least `capacity` bytes with `len` 0; waits until the budget has room.
    ///
    /// Dropping the future gives up the place in the line.
    ///
    /// # Errors
    /// `Invalid` when `capacity` is above the budget or [`BUFFER_MAX`]: it could never be served.
    pub async fn acquire(&self, capacity: usize) -> Result<AlignedBuf, IoError> {
        let (capacity, pages) = self.size(capacity)?;
        let _in_line = Waiting::new(&self.shared.waiting);
        let permit = Arc::clone(&self.pages)
            .acquire_many_owned(pages)
            .await
            .expect("the semaphore of a pool is never closed");
        Ok(self.buffer(capacity, permit))
    }

    /// As [`acquire`](BufferPool::acquire), but `None` instead of waiting.
    ///
    /// # Errors
    /// As `acquire`.
    pub fn try_acquire(&self, capacity: usize) -> Result<Option<AlignedBuf>, IoError> {
        let (capacity, pages) = self.size(capacity)?;
        match Arc::clone(&self.pages).try_acquire_many_owned(pages) {
            Ok(permit) => Ok(Some(self.buffer(capacity, permit))),
            Err(TryAcquireError::NoPermits) => Ok(None),
            Err(TryAcquireError::Closed) => unreachable!("the semaphore of a pool is never closed"),
        }
    }

    fn size(&self, capacity: usize) -> Result<(usize, u32), IoError> {
        if capacity > BUFFER_MAX.min(self.shared.budget) {
            return Err(IoError::new(
                IoErrorKind::Invalid,
                IoOp::Allocate,
                "buffer".as_ref(),
                format!("{capacity} bytes asked of a pool of {}", self.shared.budget),
            ));
        }
        let capacity = capacity.max(1).next_multiple_of(ALIGNMENT);
        let pages =
            u32::try_from(capacity / ALIGNMENT).expect("BUFFER_MAX is far below 2^32 pages");
        Ok((capacity, pages))
    }

    /// As [`try_acquire`](BufferPool::try_acquire), for what a device transfers and for less than
    /// all of the budget: `None`, too, where more than `limit` bytes would be in use.
    ///
    /// A buffer from 256 KiB to 1 MiB is part of a huge page that others have parts of. That holds
    /// as long as no caller waits for memory and a quarter of `limit` is left for others.
    ///
    /// # Errors
    /// As `acquire`.
    pub fn try_acquire_below(
        &self,
        capacity: usize,
        limit: usize,
    ) -> Result<Option<AlignedBuf>, IoError> {
        let (rounded, _) = self.size(capacity)?;
        if let Some(part) = self.part(rounded, limit) {
            return Ok(Some(part));
        }
        if self.in_use() + rounded > limit {
            return Ok(None);
        }
        self.try_acquire(capacity)
    }

    /// Part of a huge page, if `capacity` is worth it and there is room for one. A page is in use
    /// until all of its parts are free: a caller that waits must not see it handed on for ever.
    fn part(&self, capacity: usize, limit: usize) -> Option<AlignedBuf> {
        let size = part_size(capacity)?;
        if self.shared.waiting.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let of_another = {
            let mut slabs = self.slabs();
            slabs.retain(|slab| slab.strong_count() > 0);
            let mut live = slabs.iter().filter_map(Weak::upgrade);
            live.find_map(|slab| slab.take(size))
        };
        let part = match of_another {
            Some(part) => part,
            None if self.in_use() + HUGE_PAGE > limit / 4 * 3 => return None,
            None => {
                let pages = u32::try_from(HUGE_PAGE / ALIGNMENT).expect("a few hundred");
                let permit = Arc::clone(&self.pages).try_acquire_many_owned(pages).ok()?;
                let slab = Arc::new(Slab::new(self.buffer(HUGE_PAGE, permit), size)?);
                let part = slab.take(size)?;
                self.slabs().push(Arc::downgrade(&slab));
                part
            }
        };
        Some(AlignedBuf {
            region: Region {
                memory: Memory::Part(part),
                start: 0,
                capacity,
            },
            len: 0,
            home: None,
        })
    }

    fn slabs(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Slab>>> {
        locks::lock(&self.shared.slabs)
    }

    fn buffer(&self, capacity: usize, permit: OwnedSemaphorePermit) -> AlignedBuf {
        let region = self.shared.take(capacity);
        AlignedBuf {
            region,
            len: 0,
            home: Some(Home {
                pool: Arc::clone(&self.shared),
                _permit: permit,
            }),
        }
    }
}

/// A caller waits, until this is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool")
            .field("budget", &self.budget())
            .field("in_use", &self.in_use())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn buffers_are_aligned_reused_and_bounded() {
        let pool = BufferPool::new(64 * 1024);
        let mut a = pool.acquire(10_000).await.expect("fits");
        assert_eq!(a.capacity(), 12_288);
        assert_eq!(a.as_mut_capacity().as_ptr().addr() % ALIGNMENT, 0);
        a.extend_from_slice(b"hello");
        assert_eq!(a.as_slice(), b"hello");
        let b = pool.acquire(48 * 1024).await.expect("fits");
        assert!(pool.try_acquire(8192).expect("within the budget").is_none());
        let waiting = tokio::time::timeout(Duration::from_millis(20), pool.acquire(8192)).await;
        assert!(waiting.is_err(), "a full pool makes its caller wait");
        let frozen = a.freeze();
        let again = frozen.clone();
        drop(frozen);
        assert!(pool.try_acquire(8192).expect("within the budget").is_none());
        drop(again);
        let c = pool.acquire(8192).await.expect("room again");
        assert_eq!(pool.in_use(), 48 * 1024 + 8192);
        drop((b, c));
        assert_eq!(pool.in_use(), 0);
        assert!(pool.acquire(64 * 1024 + 1).await.is_err());
        let whole = pool
            .acquire(64 * 1024)
            .await
            .expect("idle regions make room");
        assert_eq!(whole.capacity(), 64 * 1024);
    }

    #[tokio::test]
    async fn buffers_that_are_not_used_go_back_to_the_system() {
        let pool = BufferPool::new(8 << 20);
        let take = |bytes| pool.try_acquire(bytes).expect("fits").expect("is free");
        drop((take(2 << 20), take(2 << 20), take(4096)));
        assert_eq!((pool.in_use(), pool.idle()), (0, (4 << 20) + 4096));
        pool.trim(Duration::from_secs(60));
        assert_eq!(pool.idle(), (4 << 20) + 4096, "they have just been used");
        tokio::time::sleep(Duration::from_millis(30)).await;
        let used = take(2 << 20);
        drop(take(4096));
        pool.trim(Duration::from_millis(30));
        assert_eq!(pool.idle(), 4096, "what was used last stays");
        drop(used);
        assert_eq!(pool.idle(), (2 << 20) + 4096);
        // Those that have waited longest make room.
        drop(take(8 << 20));
        assert_eq!((pool.in_use(), pool.idle()), (0, 8 << 20));
    }

    /// A pool, and buffers of it for a device.
    fn sharing(budget: usize, limit: usize) -> (BufferPool, impl Fn(usize) -> Option<AlignedBuf>) {
        let pool = BufferPool::new(budget);
        let same = pool.clone();
        let take = move |bytes| same.try_acquire_below(bytes, limit).expect("fits");
        (pool, take)
    }

    #[test]
    fn middling_buffers_share_huge_pages() {
        const PART: usize = 512 << 10;
        let (pool, take) = sharing(6 << 20, 6 << 20);
        let free = |bytes| take(bytes).expect("is free");
        let mut buffers: Vec<AlignedBuf> = (0..4).map(|_| free(PART - ALIGNMENT)).collect();
        assert_eq!((pool.in_use(), pool.idle()), (HUGE_PAGE, 0));
        for (at, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!(buffer.capacity(), PART - ALIGNMENT);
            let memory = buffer.as_mut_capacity();
            assert_eq!(memory.as_ptr().addr() % PART, 0, "in one stretch");
            memory.fill(u8::try_from(at).expect("small"));
        }
        for (at, buffer) in buffers.iter_mut().enumerate() {
            let memory = buffer.as_mut_capacity();
            assert!(memory.iter().all(|&byte| usize::from(byte) == at));
        }
        // What one gives back, the next one has; other sizes are in other pages.
        let first = buffers.swap_remove(0);
        let place = first.as_slice().as_ptr();
        drop(first.freeze());
        let mut again = free(PART);
        assert_eq!(again.as_mut_capacity().as_ptr(), place);
        let other = free(2 * PART);
        assert_eq!(pool.in_use(), 2 * HUGE_PAGE);
        // Beyond three quarters a buffer has memory of its own.
        let own = free(PART);
        assert_eq!(pool.in_use(), 2 * HUGE_PAGE + PART);
        drop((buffers, other, again, own));
        assert_eq!((pool.in_use(), pool.idle()), (0, 2 * HUGE_PAGE + PART));
        drop(free(6 << 20));
        assert_eq!((pool.in_use(), pool.idle()), (0, 6 << 20));
    }

    #[test]
    fn a_limit_below_the_budget_leaves_the_rest_to_others() {
        let (pool, take) = sharing(4 << 20, 2 << 20);
        let buffers: Vec<_> = std::iter::from_fn(|| take(512 << 10)).collect();
        assert_eq!((buffers.len(), pool.in_use()), (4, 2 << 20));
        assert!(pool.try_acquire(2 << 20).expect("fits").is_some());
        // Where there is no room for a huge page at all.
        let (pool, take) = sharing(1 << 20, 1 << 20);
        let buffers: Vec<_> = std::iter::from_fn(|| take(256 << 10)).collect();
        assert_eq!((buffers.len(), pool.in_use()), (4, 1 << 20));
    }

    #[tokio::test]
    async fn who_waits_gets_the_pages_that_others_share() {
        let (pool, take) = sharing(4 << 20, 4 << 20);
        let mut parts = vec![take(512 << 10), take(512 << 10)];
        let large = take(2 << 20);
        let waiting = pool.acquire(2 << 20);
        let mut waiting = std::pin::pin!(waiting);
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, waiting.as_mut()).await.is_err());
        // A part would be free, and with it the page would stay in use for ever.
        parts.pop();
        assert!(take(512 << 10).is_none());
        parts.clear();
        let waited = tokio::time::timeout(Duration::from_secs(5), waiting).await;
        assert!(waited.expect("the page is free").is_ok());
        assert!(take(512 << 10).is_some(), "no caller waits any more");
        drop(large);
    }
}
