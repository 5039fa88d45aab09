//! The staging area's memory: a file in shared memory, mapped arena by arena, and its free segments.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tracing::{error, warn};

use super::layout::{ARENA_BYTES, ARENA_SEGMENTS, arena_offset};
use super::mapping::Mapping;
use super::segment::Segment;
use crate::error::{IoError, IoErrorKind, IoOp};

#[derive(Debug)]
struct Arena {
    map: Arc<Mapping>,
    /// A bit for each free segment.
    free: u16,
    /// Its bytes are allocated: touching them cannot fail.
    backed: bool,
    /// When a segment was given back last.
    used: Instant,
}

/// How long small pages do after there were no huge ones.
const SMALL_FOR: Duration = Duration::from_secs(60);

/// The first arenas, whose memory is kept longer: two quanta of a stream on flash and what is being received.
pub(super) const ARENAS_WARM: usize = 4;

const ALL_FREE: u16 = u16::MAX;
const _: () = assert!(ARENA_SEGMENTS == 16, "a bit of u16 for each segment");

#[derive(Debug, Default)]
struct Arenas {
    list: Vec<Arena>,
    /// Growing failed: said once.
    said: bool,
    /// There were no huge pages: not asked for until then.
    small_until: Option<Instant>,
}

impl Arenas {
    /// Huge pages for an arena whose bytes were just allocated. Looking for some takes long where memory is in pieces: who
    /// got none does not ask again for a while.
    fn make_huge(&mut self, map: &Mapping) {
        if self.small_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.small_until = (!map.make_huge()).then(|| Instant::now() + SMALL_FOR);
    }
}

/// The file and its segments.
#[derive(Debug)]
pub(super) struct Area {
    file: File,
    path: PathBuf,
    arenas: Mutex<Arenas>,
    arenas_max: usize,
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Told when somebody begins to wait.
    pub(super) pressure: Notify,
    /// Somebody removed or renamed the file: what is committed from now on would not be found.
    lost: AtomicBool,
    /// Descriptors in use.
    owned: AtomicUsize,
    /// The process is taken to be dead: descriptors stay as they are (tests of crashes).
    frozen: AtomicBool,
}

impl Area {
    /// An area in `file` (which has its header and nothing else) of at most `arenas_max` arenas; the first is
    /// made now.
    pub(super) fn new(file: File, path: PathBuf, arenas_max: usize) -> Result<Self, IoError> {
        let area = Self {
            file,
            path,
            arenas: Mutex::default(),
            arenas_max,
            permits: Arc::new(Semaphore::new(arenas_max * ARENA_SEGMENTS)),
            waiting: AtomicUsize::new(0),
            pressure: Notify::new(),
            lost: AtomicBool::new(false),
            owned: AtomicUsize::new(0),
            frozen: AtomicBool::new(false),
        };
        area.grow(&mut area.lock())
            .map_err(|errno| area.failed(IoOp::Allocate, errno))?;
        Ok(area)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Segments that the budget allows.
    pub(super) fn segments_max(&self) -> usize {
        self.arenas_max * ARENA_SEGMENTS
    }

    fn failed(&self, op: IoOp, errno: Errno) -> IoError {
        IoError::from_errno(op, &self.path, errno)
    }

    fn lock(&self) -> MutexGuard<'_, Arenas> {
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grow(&self, arenas: &mut Arenas) -> Result<(), Errno> {
        self.watch_name();
        let offset = arena_offset(arenas.list.len());
        self.back(offset)?;
        let map = Arc::new(Mapping::new(&self.file, offset)?);
        arenas.make_huge(&map);
        arenas.list.push(Arena {
            map,
            free: ALL_FREE,
            backed: true,
            used: Instant::now(),
        });
        Ok(())
    }

    /// Allocates an arena's bytes, so that touching them never fails.
    fn back(&self, offset: u64) -> Result<(), Errno> {
        fallocate(
            self.file.as_fd(),
            FallocateFlags::empty(),
            offset,
            ARENA_BYTES as u64,
        )
    }

    /// `n` segments at once, or `None` when the budget or the file system under the area has not as many.
    pub(super) fn try_take(self: &Arc<Self>, n: usize) -> Option<Vec<Arc<Segment>>> {
        if n == 0 {
            return Some(Vec::new());
        }
        let permits = u32::try_from(n).ok()?;
        let permit = Arc::clone(&self.permits)
            .try_acquire_many_owned(permits)
            .ok()?;
        self.pick(n, permit)
    }

    /// As [`try_take`](Self::try_take), but waits, first come first served. Whoever waits must hold nothing that
    /// only he can free.
    pub(super) async fn take(self: &Arc<Self>, n: usize) -> Result<Vec<Arc<Segment>>, IoError> {
        let too_many = || {
            let text = format!("{n} segments of at most {}", self.segments_max());
            IoError::new(IoErrorKind::Invalid, IoOp::Allocate, &self.path, text)
        };
        if n > self.segments_max() {
            return Err(too_many());
        }
        loop {
            let count = u32::try_from(n).map_err(|_| too_many())?;
            let _waiting = Waiting::new(self);
            let permit = Arc::clone(&self.permits).acquire_many_owned(count).await;
            let permit = permit.map_err(|_| self.closed())?;
            if let Some(segments) = self.pick(n, permit) {
                return Ok(segments);
            }
        }
    }

    fn closed(&self) -> IoError {
        IoError::new(
            IoErrorKind::Closed,
            IoOp::Allocate,
            &self.path,
            "staging has ended",
        )
    }

    /// Takes segments for `permit`. When the file system has no room for them, the budget shrinks to what there is.
    fn pick(
        self: &Arc<Self>,
        n: usize,
        mut permit: OwnedSemaphorePermit,
    ) -> Option<Vec<Arc<Segment>>> {
        let mut picked = Vec::with_capacity(n);
        {
            let mut arenas = self.lock();
            while picked.len() < n {
                match self.pick_one(&mut arenas) {
                    Ok(place) => picked.push(place),
                    Err(errno) => {
                        if !std::mem::replace(&mut arenas.said, true) {
                            warn!(area = %self.path.display(), arenas = arenas.list.len(), error = %errno,
                                "the staging area cannot grow to hayloft.memory.limit; going on with what it has: \
                                 enlarge the file system or lower the limit");
                        }
                        break;
                    }
                }
            }
        }
        let missing = n - picked.len();
        let one = |permit: &mut OwnedSemaphorePermit| {
            permit
                .split(1)
                .expect("a permit for each segment was acquired")
        };
        let segments = picked
            .into_iter()
            .map(|(arena, slot, map)| {
                Arc::new(Segment::new(
                    Arc::clone(self),
                    arena,
                    slot,
                    map,
                    one(&mut permit),
                ))
            })
            .collect();
        if missing == 0 {
            return Some(segments);
        }
        // These segments do not exist.
        permit.forget();
        None
    }

    /// The lowest free segment: what was used last is warm, and a single stream touches few.
    fn pick_one(&self, arenas: &mut Arenas) -> Result<(usize, usize, Arc<Mapping>), Errno> {
        let at = match arenas.list.iter().position(|a| a.free != 0) {
            Some(at) => at,
            None if arenas.list.len() < self.arenas_max => {
                self.grow(arenas)?;
                arenas.list.len() - 1
            }
            None => return Err(Errno::NOSPC),
        };
        if !arenas.list[at].backed {
            self.back(arena_offset(at))?;
            arenas.list[at].backed = true;
            let map = Arc::clone(&arenas.list[at].map);
            arenas.make_huge(&map);
        }
        let arena = &mut arenas.list[at];
        let slot = arena.free.trailing_zeros();
        arena.free &= !(1 << slot);
        Ok((at, slot as usize, Arc::clone(&arena.map)))
    }

    /// Takes a segment's place back. Called when the last user of its bytes has gone.
    pub(super) fn give_back(&self, arena: usize, slot: usize) {
        let mut arenas = self.lock();
        let arena = &mut arenas.list[arena];
        arena.free |= 1 << slot;
        arena.used = Instant::now();
    }

    /// Gives the memory of arenas that were not used for a while back to the system: of the first ones,
    /// which every stream uses, after `warm` only.
    pub(super) fn shrink_when_idle(&self, idle: Duration, warm: Duration) {
        let mut arenas = self.lock();
        for (at, arena) in arenas.list.iter_mut().enumerate().skip(1) {
            let idle = if at < ARENAS_WARM { warm } else { idle };
            if arena.free != ALL_FREE || !arena.backed || arena.used.elapsed() < idle {
                continue;
            }
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A hole reads as zeros: free descriptors. What cannot be given back is kept.
            if fallocate(
                self.file.as_fd(),
                flags,
                arena_offset(at),
                ARENA_BYTES as u64,
            )
            .is_ok()
            {
                arena.backed = false;
            }
        }
    }

    /// Whether somebody waits for segments.
    pub(super) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Segments that are not taken.
    pub(super) fn free_segments(&self) -> usize {
        self.permits.available_permits()
    }

    /// Segments whose descriptors are in use, or whose bytes somebody still looks at.
    pub(super) fn segments_in_use(&self) -> usize {
        let arenas = self.lock();
        let free: usize = arenas
            .list
            .iter()
            .map(|a| a.free.count_ones() as usize)
            .sum();
        arenas.list.len() * ARENA_SEGMENTS - free
    }

    /// Bytes of memory that the area takes now.
    pub(super) fn backed_bytes(&self) -> usize {
        self.lock().list.iter().filter(|a| a.backed).count() * ARENA_BYTES
    }

    /// From now on descriptors stay as they are, as if the process had been killed.
    pub(super) fn freeze(&self) {
        self.frozen.store(true, Ordering::Release);
        self.permits.close();
        // Else the next owner waits for the last mapping to go; an error shows when it takes the lock.
        let _ = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::Unlock);
    }

    /// Descriptors in use.
    pub(super) fn owned(&self) -> usize {
        self.owned.load(Ordering::Acquire)
    }

    pub(super) fn count_owned(&self, owned: bool) {
        if owned {
            self.owned.fetch_add(1, Ordering::AcqRel);
        } else {
            self.owned.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }

    /// Whether the file was removed or renamed under us.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Looks whether the file still has its name: the next process finds it by that only. A few microseconds: shared
    /// memory.
    pub(super) fn watch_name(&self) {
        if self.is_lost() || self.permits.is_closed() || self.has_its_name() {
            return;
        }
        if !self.lost.swap(true, Ordering::Relaxed) {
            error!(area = %self.path.display(),
                "somebody removed or renamed the staging area, which is in use: what it holds is written to the disks now, and staging \
                 goes on in a fresh area. Nothing acknowledged is lost unless the node is killed before that is done. \
                 Keep cleaners of temporary files away from it; systemd-logind removes it when a user logs out who is no system \
                 user (RemoveIPC=): run the node as a system user");
            // A fresh area is wanted.
            self.pressure.notify_one();
        }
    }

    /// Also when the system does not say.
    fn has_its_name(&self) -> bool {
        let Ok(ours) = rustix::fs::fstat(&self.file) else {
            return true;
        };
        match rustix::fs::lstat(&self.path) {
            Ok(named) => (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino),
            Err(errno) => !matches!(errno, Errno::NOENT | Errno::NOTDIR),
        }
    }

    /// Nobody gets segments any more.
    pub(super) fn close(&self) {
        self.permits.close();
    }
}

/// Counts one who waits.
struct Waiting<'a>(&'a Area);

impl<'a> Waiting<'a> {
    fn new(area: &'a Area) -> Self {
        area.waiting.fetch_add(1, Ordering::Relaxed);
        area.pressure.notify_one();
        Self(area)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{SEGMENT_BYTES, data_at};
    use super::*;
    use crate::mapping::HUGE_PAGE;

    /// Kilobytes of huge pages in the mapping that begins at `start`.
    fn huge_kb(start: usize) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("reads");
        let lines = maps.lines();
        let mut of_mapping = lines.skip_while(|line| !line.starts_with(&format!("{start:x}-")));
        let line = of_mapping.find_map(|line| line.strip_prefix("ShmemPmdMapped:"));
        let kb = line.and_then(|line| line.trim().split(' ').next());
        kb.and_then(|kb| kb.parse().ok()).unwrap_or(0)
    }

    #[test]
    fn data_lies_in_huge_pages_also_after_memory_was_given_back() {
        let shm = Path::new("/dev/shm");
        if !shm.is_dir() {
            println!("skipped: there is no {}", shm.display());
            return;
        }
        let file = tempfile::NamedTempFile::new_in(shm).expect("a file");
        let path = file.path().to_owned();
        let area = Area::new(file.reopen().expect("opens"), path, 3).expect("an area");
        let area = Arc::new(area);
        let all = 3 * ARENA_SEGMENTS;
        for _ in 0..2 {
            let segments = area.try_take(all).expect("as many as there are");
            let starts: Vec<usize> = {
                let arenas = area.lock();
                let starts = arenas.list.iter().map(|a| a.map.start().addr().get());
                starts.collect()
            };
            for start in &starts {
                assert!((start + data_at(0)).is_multiple_of(HUGE_PAGE));
            }
            if area.lock().small_until.is_some() {
                println!("skipped: the kernel gave no huge pages (madvise(MADV_COLLAPSE))");
                return;
            }
            for start in starts {
                let whole = ARENA_SEGMENTS * SEGMENT_BYTES / 1024;
                assert_eq!(huge_kb(start), whole as u64);
            }
            drop(segments);
            area.shrink_when_idle(Duration::ZERO, Duration::ZERO);
            assert_eq!(area.backed_bytes(), ARENA_BYTES);
        }
    }
}
