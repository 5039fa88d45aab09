//! The staging area's memory: a file in shared memory, mapped arena by arena, and its free segments.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tracing::error;

use super::arenas::Arenas;
use super::layout::{ARENA_BYTES, ARENA_SEGMENTS};
use super::segment::Segment;
use crate::error::{IoError, IoErrorKind, IoOp};

/// The file and its segments.
#[derive(Debug)]
pub(super) struct Area {
    file: File,
    path: PathBuf,
    arenas: Mutex<Arenas>,
    /// Told whoever finds memory that somebody waits for it.
    pub(super) wanted: Condvar,
    /// Told when memory was found or refused, and when segments are free again.
    pub(super) changed: Notify,
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
    /// Growing failed: said once.
    said: AtomicBool,
    /// Segments that the file system has memory for, as far as is known.
    there: AtomicUsize,
    /// Permits for segments that did not exist when they were asked for.
    forgotten: AtomicUsize,
}

/// So long after memory was refused last, files share what the budget allows again: they ask for it then.
const LATELY: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });

/// What came of looking for segments.
enum Picked {
    All(Vec<Arc<Segment>>),
    /// There are as many, but not in memory yet: `changed` is told.
    Later(OwnedSemaphorePermit),
    /// Some of them do not exist.
    Refused,
}

impl Area {
    /// An area in `file` (which has its header and nothing else) of at most `arenas_max` arenas; the first is
    /// made now.
    pub(super) fn new(file: File, path: PathBuf, arenas_max: usize) -> Result<Self, IoError> {
        let area = Self {
            file,
            path,
            arenas: Mutex::new(Arenas::new(arenas_max)),
            wanted: Condvar::new(),
            changed: Notify::new(),
            arenas_max,
            permits: Arc::new(Semaphore::new(arenas_max * ARENA_SEGMENTS)),
            waiting: AtomicUsize::new(0),
            pressure: Notify::new(),
            lost: AtomicBool::new(false),
            owned: AtomicUsize::new(0),
            frozen: AtomicBool::new(false),
            said: AtomicBool::new(false),
            there: AtomicUsize::new(arenas_max * ARENA_SEGMENTS),
            forgotten: AtomicUsize::new(0),
        };
        area.begin()
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

    /// Segments that files share: what the budget allows, or what the file system had memory for when it was asked last.
    pub(super) fn segments_there(&self) -> usize {
        self.there.load(Ordering::Relaxed)
    }

    /// Memory was found for an arena, of `arenas` now, or refused.
    pub(super) fn note_memory(&self, arenas: usize, found: bool) {
        let segments = arenas.max(1) * ARENA_SEGMENTS;
        if found {
            self.there.fetch_max(segments, Ordering::Relaxed);
        } else {
            self.there.store(segments, Ordering::Relaxed);
        }
    }

    /// Segments that there was no memory for may be asked for again, some time after that: others may have given theirs
    /// back to the file system.
    pub(super) fn try_again(&self) {
        let (refused, lately) = {
            let arenas = self.lock();
            (arenas.is_refused(), arenas.was_refused_within(LATELY))
        };
        if refused || self.is_closed() {
            return;
        }
        if !lately {
            self.there.store(self.segments_max(), Ordering::Relaxed);
        }
        let forgotten = self.forgotten.swap(0, Ordering::Relaxed);
        if forgotten > 0 {
            self.permits.add_permits(forgotten);
        }
    }

    fn failed(&self, op: IoOp, errno: Errno) -> IoError {
        IoError::from_errno(op, &self.path, errno)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Arenas> {
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Finds memory for the first arena.
    fn begin(&self) -> Result<(), Errno> {
        let mut arenas = self.lock();
        arenas.ask(1);
        while let Some((at, map)) = arenas.begin() {
            let (map, huge) = self.back(at, map, arenas.wants_huge())?;
            arenas.backed(at, map, huge);
        }
        Ok(())
    }

    /// `n` segments at once, or `None` when the budget has not as many, or memory for them has to be found first: that
    /// is begun.
    pub(super) fn try_take(self: &Arc<Self>, n: usize) -> Option<Vec<Arc<Segment>>> {
        if n == 0 {
            return Some(Vec::new());
        }
        let permits = u32::try_from(n).ok()?;
        let permit = Arc::clone(&self.permits)
            .try_acquire_many_owned(permits)
            .ok()?;
        match self.pick(n, permit) {
            Picked::All(segments) => Some(segments),
            Picked::Later(_) | Picked::Refused => None,
        }
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
        let count = u32::try_from(n).map_err(|_| too_many())?;
        loop {
            let permit = {
                let _waiting = Waiting::new(self);
                Arc::clone(&self.permits).acquire_many_owned(count).await
            };
            let mut permit = permit.map_err(|_| self.closed())?;
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if self.is_closed() {
                    return Err(self.closed());
                }
                match self.pick(n, permit) {
                    Picked::All(segments) => return Ok(segments),
                    Picked::Later(same) => permit = same,
                    Picked::Refused => break,
                }
                changed.await;
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

    /// Takes segments for `permit`. When the file system has no memory for them, the budget shrinks to what there is.
    fn pick(self: &Arc<Self>, n: usize, mut permit: OwnedSemaphorePermit) -> Picked {
        let mut arenas = self.lock();
        let places = arenas.take(n);
        if places.is_none() {
            if arenas.is_refused() {
                let missing = n - arenas.free();
                drop(arenas);
                // These segments do not exist.
                if let Some(permits) = permit.split(missing) {
                    permits.forget();
                    self.forgotten.fetch_add(missing, Ordering::Relaxed);
                }
                return Picked::Refused;
            }
            arenas.ask(n);
        }
        self.see_to_memory(arenas);
        let Some(places) = places else {
            return Picked::Later(permit);
        };
        let segments = places.into_iter().map(|place| {
            let permit = permit
                .split(1)
                .expect("a permit for each segment was acquired");
            Arc::new(Segment::new(Arc::clone(self), place, permit))
        });
        Picked::All(segments.collect())
    }

    /// Has memory found if some is wanted.
    fn see_to_memory(self: &Arc<Self>, mut arenas: MutexGuard<'_, Arenas>) {
        // Who waits for it hears of the end elsewhere.
        let start = !self.is_closed() && arenas.must_grow();
        if arenas.is_asked() {
            self.wanted.notify_one();
        }
        drop(arenas);
        if start {
            self.start_growing();
        }
    }

    /// Whether the budget has `n` segments, but memory for them has to be found first.
    pub(super) fn lacks_memory(&self, n: usize) -> bool {
        !self.is_closed() && self.free_segments() >= n && {
            let arenas = self.lock();
            arenas.free() < n && arenas.can_grow()
        }
    }

    /// Has memory found for `n` segments, or refused; `changed` is told.
    pub(super) fn ask(self: &Arc<Self>, n: usize) {
        let mut arenas = self.lock();
        arenas.ask(n);
        self.see_to_memory(arenas);
    }

    /// Has memory found for more segments when there is time; `changed` is told.
    pub(super) fn ask_ahead(self: &Arc<Self>) {
        let mut arenas = self.lock();
        arenas.ask_ahead();
        self.see_to_memory(arenas);
    }

    /// Whether `n` segments are in memory and some are left for those who need them more.
    pub(super) fn has_spare_memory(&self, n: usize) -> bool {
        self.lock().has_spare(n)
    }

    /// Takes a segment's place back. Called when the last user of its bytes has gone.
    pub(super) fn give_back(&self, arena: usize, slot: usize) {
        self.lock().give_back(arena, slot);
        self.changed.notify_waiters();
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
        self.lock().in_use()
    }

    /// Bytes of memory that the area takes now.
    pub(super) fn backed_bytes(&self) -> usize {
        self.lock().backed_count() * ARENA_BYTES
    }

    /// From now on descriptors stay as they are, as if the process had been killed.
    pub(super) fn freeze(&self) {
        self.frozen.store(true, Ordering::Release);
        self.close();
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
        if self.is_lost() || self.is_closed() || self.has_its_name() {
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
        self.changed.notify_waiters();
        // With the lock: who finds memory has looked before, or waits.
        let _arenas = self.lock();
        self.wanted.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.permits.is_closed()
    }

    /// Whether growing fails for the first time.
    pub(super) fn first_refusal(&self) -> bool {
        !self.said.swap(true, Ordering::Relaxed)
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
