//! Staging: bytes on their way to the disk, in shared memory that a killed process leaves behind.
//!
//! One [`Staging`] area a process: a file in shared memory, mapped, grown as needed up to a budget. Its unit is
//! the segment: 256 KiB of one *main* file and the bytes that belong to them in its *side* file, with a
//! descriptor that makes the segment recoverable alone. A [`StagedFile`] is a pair of files whose
//! newest bytes are in segments; [`Landing`] receives into them from a socket, without a copy.
//!
//! **Committed** ([`StagedFile::try_append`]) means: in a segment whose descriptor counts the bytes. A process
//! killed at any instant leaves descriptors that are right (see `layout` and `segment`). The next
//! [`Staging::finish_earlier`] writes every committed byte to its files before anybody looks at them.
//! What is lost with the power is what the page cache would have lost too; a sync of the files after
//! [`StagedFile::flush`] is what makes bytes outlive that.
//!
//! **Back pressure.** A file gathers two quanta: one is on its way to the disk while the other fills. Whoever brings
//! more waits ([`Landing::room`]) for a write in progress. A file that may [`burst`](StageSpec::burst) gathers its fair share
//! of the budget, as long as there is memory for it that need not be found first: a burst is taken as it comes, and a stream
//! that keeps being faster than its disk waits. Memory for more segments is found on a thread of its own; who needs
//! them waits for it, without a thread and without a lock.
//! Segments of all files together are bounded by the budget. When none is free, [`StagedFile::make_room`] and
//! [`Landing::reserve`] wait, and everything that waits to become a quantum is written at once. Nobody waits
//! with bytes that are received but not committed, so whatever is held is written and freed without him.
//!
//! **Names.** A descriptor holds the names of its files. Whoever renames or cuts them closes the [`StagedFile`]
//! first ([`StagedFile::close`]).

mod append;
mod area;
mod arenas;
mod earlier;
mod file;
mod flush;
mod grow;
mod home;
mod landing;
mod layout;
mod mapping;
mod overlay;
mod replay;
mod segment;
mod share;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::error::IoError;
use area::Area;
use home::Home;
use layout::ARENA_BYTES;

pub use file::{Append, SideShape, StageSpec, StagedFile};
pub use landing::{Landing, Reserved};
pub use layout::SEGMENT_BYTES;
pub use replay::{Replayed, Root};
pub use share::QUANTA;

/// Bytes that can be reserved or waited for at once.
pub const ROOM_MAX: usize = 1 << 20;

/// Smallest budget: one arena. A smaller one is raised to it.
pub const BUDGET_MIN: u64 = ARENA_BYTES as u64;

/// Without new bytes for this long, what is committed is written and its segments are freed.
const IDLE: Duration = Duration::from_secs(1);
/// The same while somebody waits for segments.
const IDLE_SHORT: Duration = Duration::from_millis(10);
/// Arenas that nobody used for this long are given back: memory that has to be found again is slow.
const SHRINK: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 600 });
/// How often files are looked at.
const SWEEP: Duration = Duration::from_millis(250);

/// Where the area is and how large it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagingConfig {
    /// A directory in shared memory (tmpfs).
    pub dir: PathBuf,
    /// Tells the areas of several nodes on one machine apart; letters, digits and `-`.
    pub name: String,
    /// Bytes of memory, descriptors and side bytes included.
    pub budget: u64,
    /// Directories that staged files lie in; nothing outside is written by a replay.
    pub roots: Vec<Root>,
}

impl StagingConfig {
    fn path(&self) -> PathBuf {
        self.dir.join(format!("hayloft-staging-{}", self.name))
    }
}

/// What all parts share.
#[derive(Debug)]
pub(crate) struct Shared {
    area: Arc<Area>,
    runtime: tokio::runtime::Handle,
    files: Mutex<Vec<Weak<StagedFile>>>,
    /// Files that hold segments, counted every now and then, and those that came since.
    active: AtomicUsize,
    /// Writes in progress, of all files.
    jobs: AtomicUsize,
    /// Segments that are being received into.
    landing: AtomicUsize,
    /// So many of the active files take nothing more.
    sealed_files: AtomicUsize,
    /// Segments that these hold.
    sealed: AtomicUsize,
}

impl Shared {
    /// Within a runtime.
    fn new(area: Area) -> Self {
        Self {
            area: Arc::new(area),
            runtime: tokio::runtime::Handle::current(),
            files: Mutex::default(),
            active: AtomicUsize::new(0),
            jobs: AtomicUsize::new(0),
            landing: AtomicUsize::new(0),
            sealed_files: AtomicUsize::new(0),
            sealed: AtomicUsize::new(0),
        }
    }

    /// Whether `n` more segments may be received into. A share is kept for bytes that are complete, so that peers who
    /// stop in the middle of a packet cannot keep everybody else from committing.
    fn may_land(&self, n: usize) -> bool {
        let most = self.area.segments_there() / 4 * 3;
        self.landing.load(Ordering::Relaxed).saturating_add(n) <= most
    }

    /// Somebody waits for segments and nothing is under way that will free some.
    fn is_stuck(&self) -> bool {
        self.area.is_short() && self.jobs.load(Ordering::Relaxed) == 0
    }

    /// Has something written: of the file that has most of it, else all that lies in quiet files.
    fn relieve(&self) {
        let files = self.files();
        let largest = files.iter().max_by_key(|f| f.full_segments());
        if !largest.is_some_and(|f| f.write_full()) {
            files.iter().for_each(|f| f.sweep(IDLE_SHORT));
        }
    }

    fn files(&self) -> Vec<Arc<StagedFile>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|f| f.strong_count() > 0);
        files.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The staging area of a process. See the [module](self).
pub struct Staging {
    path: PathBuf,
    home: Arc<Home>,
}

impl Staging {
    /// Writes what an earlier process left in the area to its files and removes it. Blocking. Before anybody
    /// looks at the files, and whether or not anything will be staged.
    ///
    /// # Errors
    /// `Locked` when another process uses the area for other directories; `Invalid` when it has bytes for these, or when
    /// its layout is of another version (nothing is touched then); `Denied` when the file under its name is not this user's own; `NotFound` without the
    /// directory; else as reading the area. What cannot be written to its files now is no error: it is kept for
    /// the next time.
    pub fn finish_earlier(config: &StagingConfig) -> Result<Replayed, IoError> {
        earlier::finish(config, &config.path())
    }

    /// Writes what earlier starts had to [keep](Replayed::kept) to its files, as far as its directory is usable now, while
    /// the process has an area of its own. Blocking. Before anybody looks at the files.
    ///
    /// # Errors
    /// As of [`finish_earlier`](Self::finish_earlier).
    pub fn finish_kept(config: &StagingConfig) -> Result<Replayed, IoError> {
        earlier::finish_kept(config, &config.path())
    }

    /// Makes a new area. Blocking, within a runtime. What was there before has to be
    /// [finished](Self::finish_earlier).
    ///
    /// # Errors
    /// `Exists`, `Denied`, `NotFound`; `NoSpace` when not even the smallest area fits.
    pub fn create(config: &StagingConfig) -> Result<Arc<Self>, IoError> {
        let home = Home::new(config)?;
        Ok(Arc::new(Self {
            path: config.path(),
            home,
        }))
    }

    /// Stages a pair of files. `None` when they cannot be: side bytes that do not fit into segments, paths that
    /// are too long or relative; and as long as there is no area because somebody removed it.
    #[must_use]
    pub fn stage(&self, spec: StageSpec) -> Option<Arc<StagedFile>> {
        let shared = self.home.shared();
        if shared.area.is_lost() {
            return None;
        }
        let file = StagedFile::new(&shared, spec)?;
        shared.active.fetch_add(1, Ordering::Relaxed);
        let mut files = shared.files.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= 64 && files.len().is_power_of_two() {
            files.retain(|f| f.strong_count() > 0);
        }
        files.push(Arc::downgrade(&file));
        drop(files);
        Some(file)
    }

    /// The file of the area.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Memory that the area takes now, in bytes.
    #[must_use]
    pub fn backed_bytes(&self) -> usize {
        self.home.shared().area.backed_bytes()
    }

    /// Segments that hold something.
    #[must_use]
    pub fn segments_in_use(&self) -> usize {
        self.home.shared().area.segments_in_use()
    }

    /// Bytes that segments can hold in all: less than the budget where the file system has less memory.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        ((self.segments_in_use() + self.segments_free()) * SEGMENT_BYTES) as u64
    }

    /// Segments that could be taken now.
    #[must_use]
    pub fn segments_free(&self) -> usize {
        self.home.shared().area.free_segments()
    }

    /// A clean end: the area is removed, unless bytes are in it that could not be written. Close or discard all
    /// files before; from now on nothing is staged.
    pub fn end(&self) {
        self.home.end();
    }

    /// From now on the area stays as it is, as if the process had been killed, and another can take it. For tests
    /// of crashes.
    pub fn crash(&self) {
        self.home.crash();
    }
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging")
            .field("path", &self.path())
            .field("in_use", &self.segments_in_use())
            .finish_non_exhaustive()
    }
}
