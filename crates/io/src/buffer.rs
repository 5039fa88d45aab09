//! Owned, page-aligned buffers and the pool that bounds them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::error::{IoError, IoErrorKind, IoOp};
use crate::mapping::{HUGE_PAGE, Mapping};

/// Alignment, in bytes, of the start of every [`AlignedBuf`] and of its capacity: what direct I/O
/// needs on every device that is sold.
pub const ALIGNMENT: usize = 4096;

/// Largest single buffer, in bytes; more is a mistake in arithmetic somewhere above.
pub const BUFFER_MAX: usize = 1 << 30;

/// Buffers of at least this many bytes are mapped by themselves: the system has their memory back when they go.
const MAPPED_MIN: usize = 256 << 10;

/// Memory of one buffer. The range of the wanted capacity in it is aligned and never moves.
struct Region {
    memory: Memory,
    start: usize,
    capacity: usize,
}

enum Memory {
    /// Over-allocated, so that an aligned range lies inside it.
    Allocated(Box<[u8]>),
    Mapped(Mapping),
}

impl Region {
    fn new(capacity: usize) -> Self {
        let alignment = if capacity >= HUGE_PAGE {
            HUGE_PAGE
        } else {
            ALIGNMENT
        };
        let mapped = (capacity >= MAPPED_MIN)
            .then(|| Mapping::new(capacity, alignment))
            .flatten();
        let Some(mapping) = mapped else {
            return Self::allocated(capacity);
        };
        let region = Self {
            memory: Memory::Mapped(mapping),
            start: 0,
            capacity,
        };
        if alignment == HUGE_PAGE {
            crate::sys::want_huge_pages(region.bytes(capacity));
        }
        region
    }

    fn allocated(capacity: usize) -> Self {
        let extra = if capacity > 0 { ALIGNMENT - 1 } else { 0 };
        let memory = vec![0_u8; capacity + extra].into_boxed_slice();
        let address = memory.as_ptr().addr();
        let start = if capacity > 0 {
            address.next_multiple_of(ALIGNMENT) - address
        } else {
            0
        };
        Self {
            memory: Memory::Allocated(memory),
            start,
            capacity,
        }
    }

    fn bytes(&self, len: usize) -> &[u8] {
        let memory = match &self.memory {
            Memory::Allocated(memory) => &memory[..],
            Memory::Mapped(mapping) => &mapping[..],
        };
        &memory[self.start..self.start + len]
    }

    fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        let memory = match &mut self.memory {
            Memory::Allocated(memory) => &mut memory[..],
            Memory::Mapped(mapping) => &mut mapping[..],
        };
        &mut memory[self.start..self.start + len]
    }
}

/// An owned buffer whose start and capacity are multiples of [`ALIGNMENT`].
///
/// It holds `len` valid bytes out of `capacity`. A buffer from a [`BufferPool`] gives its share of
/// the budget back when it (or the [`Bytes`] made of it) is dropped. Its memory is never
/// uninitialised, but may hold bytes of an earlier use beyond `len`.
pub struct AlignedBuf {
    region: Region,
    len: usize,
    home: Option<Home>,
}

struct Home {
    pool: Arc<PoolShared>,
    _permit: OwnedSemaphorePermit,
}

impl AlignedBuf {
    /// A buffer outside any pool, of at least `capacity` bytes, zeroed, with `len` 0. For tests and
    /// for rare small uses; the data path takes its buffers from a pool.
    ///
    /// # Panics
    /// When `capacity` is above [`BUFFER_MAX`].
    #[must_use]
    pub fn unpooled(capacity: usize) -> Self {
        assert!(
            capacity <= BUFFER_MAX,
            "buffer of {capacity} bytes is above the limit of {BUFFER_MAX}"
        );
        Self {
            region: Region::new(capacity.next_multiple_of(ALIGNMENT)),
            len: 0,
            home: None,
        }
    }

    /// A buffer without memory, for places that must give a buffer back and have none.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            region: Region::new(0),
            len: 0,
            home: None,
        }
    }

    /// Valid bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no valid bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.region.capacity
    }

    /// The valid bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.region.bytes(self.len)
    }

    /// The valid bytes, to change.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.region.bytes_mut(self.len)
    }

    /// All `capacity` bytes, valid or not: to fill from a socket or a device, then [`set_len`].
    ///
    /// [`set_len`]: AlignedBuf::set_len
    pub fn as_mut_capacity(&mut self) -> &mut [u8] {
        self.region.bytes_mut(self.region.capacity)
    }

    /// Declares the first `len` bytes valid.
    ///
    /// # Panics
    /// When `len` is above the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.region.capacity,
            "len {len} is above the capacity {}",
            self.region.capacity
        );
        self.len = len;
    }

    /// Appends `bytes`.
    ///
    /// # Panics
    /// When they do not fit; check `capacity() - len()` first.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let end = self
            .len
            .checked_add(bytes.len())
            .expect("two slices in memory cannot overflow usize");
        assert!(
            end <= self.region.capacity,
            "{end} bytes do not fit in {}",
            self.region.capacity
        );
        let start = self.len;
        self.region.bytes_mut(end)[start..].copy_from_slice(bytes);
        self.len = end;
    }

    /// Turns the valid bytes into shared, immutable [`Bytes`] without copying; the memory returns
    /// to its pool when the last clone is dropped.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len)
            .field("capacity", &self.region.capacity)
            .field("pooled", &self.home.is_some())
            .finish()
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            let region = std::mem::replace(&mut self.region, Region::new(0));
            home.pool.put_back(region);
            // The permit is released after the region is idle, so idle + in use stays bounded.
        }
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
}

impl PoolShared {
    fn put_back(&self, region: Region) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.in_use -= region.capacity;
        idle.bytes += region.capacity;
        idle.regions.push(Rested {
            region,
            since: Instant::now(),
        });
    }

    /// Takes the idle region of exactly `capacity` that was used last, else drops those that were not used for
    /// longest until a new one fits.
    fn take(&self, capacity: usize) -> Region {
        let mut dropped = Vec::new();
        {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
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
        drop(dropped); // Returning memory to the system is done outside the lock, before asking for more.
        Region::new(capacity)
    }

    /// Drops regions that have waited for `idle`.
    fn trim(&self, idle: Duration) {
        let dropped: Vec<Rested> = {
            let mut state = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
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
/// up, [`acquire`](BufferPool::acquire) waits, first come first served. Each small buffer costs up to
/// one page more than its capacity outside the budget (alignment).
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
            }),
            pages: Arc::new(Semaphore::new(pages)),
        }
    }

    /// The budget in bytes.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.shared.budget
    }

    /// Bytes in buffers that are out now.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .in_use
    }

    /// Bytes in buffers that are kept for reuse.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.shared
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .bytes
    }

    /// Gives the memory of buffers that were not used for `idle` back to the system. To be called every now and then
    /// by the pool's owner.
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

    #[test]
    fn large_buffers_begin_at_huge_pages() {
        for capacity in [HUGE_PAGE, 2 * HUGE_PAGE, 2 * HUGE_PAGE + ALIGNMENT] {
            let mut buf = AlignedBuf::unpooled(capacity);
            assert_eq!(buf.capacity(), capacity);
            let memory = buf.as_mut_capacity();
            assert_eq!(memory.as_ptr().addr() % HUGE_PAGE, 0);
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
        }
    }

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
}
