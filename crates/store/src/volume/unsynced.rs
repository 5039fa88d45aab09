//! Commit rounds: what replicas' files hold becomes durable within seconds, unasked.
//!
//! An acknowledged byte is in the page cache or on the device. The file's length, its place on the
//! device and its names are not durable until they are synced. Every few seconds a round syncs each
//! file that was written since the last one, and then the directories whose names have changed. A
//! file that is written slowly and for long is in each of them.
//!
//! On engines that write through the page cache the rounds also bound what is dirty there. A file
//! is written back a quantum at a time, in the disk's order. Writers wait while more is dirty than
//! the disk takes in five seconds.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hayloft_io::{EngineFile, IoClass, IoError, SyncKind, locks};
use tokio::sync::{Notify, RwLock};

use super::Volume;
use crate::types::StoreEvent;

/// A round begins early when so many replicas wait for it: each keeps two descriptors open.
const EARLY: usize = 512;

/// Writers wait while so many replicas do.
const REPLICAS_MAX: usize = 2048;

/// Dirty bytes that a disk may have whatever its rate is: two quanta of rotating media.
const DIRTY_MIN: u64 = 64 << 20;

/// Dirty bytes of a disk whose rate is not known yet.
const DIRTY_FIRST: u64 = 256 << 20;

/// Dirty bytes are limited to what the disk takes in this time, in seconds.
const DIRTY_SECONDS: u64 = 5;

/// Dirty bytes of a file from which on they are written back before the next round.
const WRITE_BACK_MIN: u64 = 1 << 20;

/// A replica as commit rounds know it.
pub trait Committed: fmt::Debug + Send + Sync {
    /// Held for reading by what may use up the kernel's only word of lost bytes, for writing by a
    /// sync that a client relies on.
    fn syncing(&self) -> &RwLock<()>;

    /// Written bytes did not reach the device: nothing of the replica counts as synced from then
    /// on.
    fn note_lost_writes(&self);

    /// What the NameNode has to hear of lost bytes, when it counts on the replica; logs them.
    /// `None` also of a replica that is no longer here.
    fn lost_event(&self, error: &IoError) -> Option<StoreEvent>;
}

/// What tells replicas apart: the addresses of the pool and the replica, and the block id. They are
/// not used again while an entry holds both.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaKey {
    /// Address of the pool.
    pub pool: usize,
    /// Block id.
    pub id: i64,
    /// Address of the live replica.
    pub live: usize,
}

/// A replica that was written since the last round, its files open until they are durable.
#[derive(Clone, Debug)]
pub struct Touched {
    pub key: ReplicaKey,
    pub replica: Arc<dyn Committed>,
    pub data: Arc<dyn EngineFile>,
    pub meta: Arc<dyn EngineFile>,
    /// What of the data may be dirty in the page cache, where the engine writes through it.
    dirty: Range<u64>,
}

/// What is written and may not be durable, and how fast it becomes so.
#[derive(Debug, Default)]
struct Uncommitted {
    /// By address of the pool and number of the block.
    replicas: HashMap<(usize, i64), Touched>,
    dirs: BTreeSet<PathBuf>,
    /// Dirty bytes in the page cache, being written back or not.
    dirty: u64,
    /// Bytes a second that write-back came to lately.
    rate: Option<u64>,
    /// When write-back last began or ended, while some goes on.
    since: Option<Instant>,
    writing_back: usize,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct CommitRounds {
    state: Mutex<Uncommitted>,
    /// Held by a round: the next one begins when all that it took is durable.
    pub running: tokio::sync::Mutex<()>,
    /// Told when a round or a write-back has ended.
    pub ended: Notify,
    /// Told when a round shall begin early.
    pub early: Notify,
    /// Bytes of memory that may be dirty at most.
    most: AtomicU64,
    /// Parts of pools whose recent replicas are still being verified: the stamp stays until then.
    verifying: AtomicUsize,
    /// Directories of pools whose replicas are in doubt, and that were not loaded yet.
    unloaded: Mutex<BTreeSet<PathBuf>>,
    /// Something that this process wrote may not be on the device, whatever a later sync says: the
    /// stamp stays, so that the next start looks at it.
    lost: AtomicBool,
}

impl CommitRounds {
    fn lock(&self) -> MutexGuard<'_, Uncommitted> {
        locks::lock(&self.state)
    }

    /// Sets how many bytes may be dirty at most, whatever the disk's rate.
    pub fn limit_dirty(&self, bytes: u64) {
        self.most.store(bytes.max(DIRTY_MIN), Ordering::Relaxed);
    }

    /// Bytes that may be dirty now.
    fn limit(&self, state: &Uncommitted) -> u64 {
        let most = match self.most.load(Ordering::Relaxed) {
            0 => u64::MAX,
            most => most,
        };
        let rate = state.rate.map(|rate| rate.saturating_mul(DIRTY_SECONDS));
        rate.unwrap_or(DIRTY_FIRST).max(DIRTY_MIN).min(most)
    }

    /// Dirty bytes in the page cache.
    #[cfg(test)]
    pub fn dirty(&self) -> u64 {
        self.lock().dirty
    }

    /// A round has ended by a panic: what it took is in no count any more, and may not be durable.
    pub fn note_panicked(&self) {
        self.note_lost();
        let mut state = self.lock();
        state.dirty = state.replicas.values().map(|t| len(&t.dirty)).sum();
        drop(state);
        self.ended.notify_waiters();
    }

    fn has_room(&self, page_cache: bool, len: u64) -> bool {
        let state = self.lock();
        let limit = self.limit(&state);
        let dirty = page_cache && state.dirty > 0 && state.dirty.saturating_add(len) > limit;
        state.replicas.len() < REPLICAS_MAX && !dirty
    }

    /// Waits while the disk is too far behind for `len` bytes more.
    pub async fn room(&self, volume: &Volume, len: u64) {
        let page_cache = volume.engine.capabilities().page_cache;
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if self.has_room(page_cache, len) {
                return;
            }
            self.early.notify_one();
            tokio::select! {
                () = ended => {}
                () = volume.gone.cancelled() => return,
            }
        }
    }

    /// Takes note that `written` of the data file of a replica, and its checksums, were written.
    /// Gives the range that is to be written back now, if there is one.
    pub fn touch(
        &self,
        volume: &Volume,
        touched: Touched,
        written: Range<u64>,
    ) -> Option<(Touched, Range<u64>)> {
        let page_cache = volume.engine.capabilities().page_cache;
        let key = (touched.key.pool, touched.key.id);
        let mut state = self.lock();
        let entry = state.replicas.entry(key).or_insert_with(|| touched.clone());
        if entry.key.live != touched.key.live {
            // Appended to or recovered since: the same files, opened anew.
            *entry = Touched {
                dirty: entry.dirty.clone(),
                ..touched
            };
        }
        let mut due = None;
        if page_cache {
            // What was cut off and is written again is dirty once.
            let before = len(&entry.dirty);
            let dirty = join(&entry.dirty, &written);
            entry.dirty = dirty.clone();
            let touched = entry.clone();
            let more = len(&dirty).saturating_sub(before);
            state.dirty = state.dirty.saturating_add(more);
            let quantum = match len(&dirty) < WRITE_BACK_MIN {
                true => u64::MAX,
                false => {
                    let all = state.replicas.values();
                    let gathering = all.filter(|touched| !touched.dirty.is_empty()).count();
                    let quantum = volume.engine.disk().quantum();
                    write_back_from(self.limit(&state), quantum, gathering)
                }
            };
            if len(&dirty) >= quantum {
                if let Some(entry) = state.replicas.get_mut(&key) {
                    entry.dirty = 0..0;
                }
                due = Some((touched, dirty));
            }
        }
        let early = state.replicas.len() == EARLY;
        drop(state);
        if early {
            self.early.notify_one();
        }
        due
    }

    /// A replica is deleted, or durable: its files are closed, and its space is given back. `pool`
    /// is the address of its pool.
    pub fn forget(&self, pool: usize, id: i64) {
        let mut state = self.lock();
        let gone = state.replicas.remove(&(pool, id));
        if let Some(gone) = &gone {
            state.dirty = state.dirty.saturating_sub(len(&gone.dirty));
        }
        drop(state);
        if gone.is_some() {
            self.ended.notify_waiters();
        }
        drop(gone); // Outside the lock.
    }

    /// Takes note that names in a directory have changed.
    pub fn touch_dir(&self, dir: &Path) {
        let mut state = self.lock();
        if !state.dirs.contains(dir) {
            state.dirs.insert(dir.to_owned());
        }
    }

    /// Writes dirty bytes of a file to the device, and measures the disk by it.
    pub async fn write_back(
        &self,
        data: &Arc<dyn EngineFile>,
        range: Range<u64>,
    ) -> Result<(), IoError> {
        if range.is_empty() {
            return Ok(());
        }
        {
            let mut state = self.lock();
            state.writing_back += 1;
            state.since.get_or_insert_with(Instant::now);
        }
        let bytes = len(&range);
        // Also after a panic: writers would wait for ever.
        let _ended = WritingBack(self, bytes);
        data.write_back(range.start, bytes).await
    }

    /// Takes what waits for a round: replicas, and directories.
    pub fn take(&self) -> (Vec<Touched>, BTreeSet<PathBuf>) {
        let mut state = self.lock();
        let replicas = std::mem::take(&mut state.replicas);
        let mut replicas: Vec<Touched> = replicas.into_values().collect();
        // As they lie on the disk, more or less: block numbers follow the time of creation.
        replicas.sort_unstable_by_key(|touched| touched.key.id);
        (replicas, std::mem::take(&mut state.dirs))
    }

    /// Whether the stamp may say that all that was written is durable. Nothing of an earlier
    /// process is still to be verified or synced then, and nothing of this one was lost.
    pub fn may_stamp(&self) -> bool {
        self.verifying.load(Ordering::Acquire) == 0 && !self.lost.load(Ordering::Acquire)
    }

    /// The replicas of the pools in these directories are in doubt.
    pub fn expect_pools(&self, dirs: Vec<PathBuf>) {
        locks::lock(&self.unloaded).extend(dirs);
    }

    /// A pool was loaded, and its replicas that are in doubt are [being
    /// verified](Self::verifying); or its directory is gone, or says itself that it is in doubt.
    pub fn loaded(&self, dir: &Path) {
        locks::lock(&self.unloaded).remove(dir);
    }

    /// Directories of pools that are in doubt and not loaded.
    pub fn unloaded(&self) -> Vec<PathBuf> {
        locks::lock(&self.unloaded).iter().cloned().collect()
    }

    /// Something written may not be on the device: this process never moves the stamp again.
    pub fn note_lost(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// What an earlier process wrote is being verified or synced, until the guard says that all of
    /// it was. One that is dropped before, by a stop or a panic, leaves the stamp where it is.
    pub fn verifying(volume: &Arc<Volume>) -> Verifying {
        volume.commits.verifying.fetch_add(1, Ordering::AcqRel);
        Verifying(Arc::clone(volume))
    }
}

/// See [`CommitRounds::verifying`].
#[derive(Debug)]
#[must_use]
pub struct Verifying(Arc<Volume>);

impl Verifying {
    /// All was verified or synced.
    pub fn done(self) {
        self.0.commits.verifying.fetch_sub(1, Ordering::AcqRel);
    }
}

/// So many bytes are on their way to the device.
struct WritingBack<'a>(&'a CommitRounds, u64);

impl Drop for WritingBack<'_> {
    fn drop(&mut self) {
        let Self(rounds, bytes) = *self;
        let mut state = rounds.lock();
        state.dirty = state.dirty.saturating_sub(bytes);
        state.writing_back -= 1;
        let now = Instant::now();
        let took = state.since.map_or(Duration::ZERO, |since| now - since);
        state.since = (state.writing_back > 0).then_some(now);
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = bytes.saturating_mul(1000) / millis;
        state.rate = Some(state.rate.map_or(rate, |before| before / 4 * 3 + rate / 4));
        drop(state);
        rounds.ended.notify_waiters();
    }
}

/// Dirty bytes of a file from which on it is written back, while so many files gather some: the
/// disk's quantum where there is room for it. Half of what may be dirty is gathered, the other half
/// is on its way to the disk; many files come to that before one of them has a quantum.
fn write_back_from(limit: u64, quantum: u64, gathering: usize) -> u64 {
    let share = limit / 2 / gathering.max(1) as u64;
    quantum.min(share.max(WRITE_BACK_MIN))
}

fn len(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

fn join(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    if a.is_empty() {
        return b.clone();
    }
    a.start.min(b.start)..a.end.max(b.end)
}

impl Touched {
    /// Of a replica and its open files.
    pub fn new(
        key: ReplicaKey,
        replica: Arc<dyn Committed>,
        data: &Arc<dyn EngineFile>,
        meta: &Arc<dyn EngineFile>,
    ) -> Self {
        Self {
            key,
            replica,
            data: Arc::clone(data),
            meta: Arc::clone(meta),
            dirty: 0..0,
        }
    }

    /// Has the device take what is dirty, but for what is needed to find it there.
    pub async fn write_back(&self, rounds: &CommitRounds) -> Result<(), IoError> {
        if self.dirty.is_empty() {
            self.data.write_back(0, 0).await?;
        } else {
            rounds.write_back(&self.data, self.dirty.clone()).await?;
        }
        self.meta.write_back(0, 0).await
    }

    /// Does what may use up the kernel's only word of lost bytes. A client's sync waits for its
    /// end and finds the loss noted: its own sync would not hear of it.
    pub async fn watched(
        &self,
        rounds: &CommitRounds,
        work: impl Future<Output = Result<(), IoError>>,
    ) -> Result<(), IoError> {
        let _no_sync_passes = self.replica.syncing().read().await;
        let outcome = work.await;
        if outcome.is_err() {
            rounds.note_lost();
            self.replica.note_lost_writes();
        }
        outcome
    }

    /// Syncs data, then checksums.
    pub async fn sync(&self) -> Result<(), IoError> {
        self.data.with_class(CLASS).sync(SyncKind::Data).await?;
        self.meta.with_class(CLASS).sync(SyncKind::Data).await
    }
}

/// Clients' syncs and new names go first where a disk is short of threads.
pub const CLASS: IoClass = IoClass::Replication;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_writers_have_the_disks_whole_quantum_and_many_keep_the_limit() {
        let quantum = 32 << 20;
        let limit = 80_000_000 * DIRTY_SECONDS;
        for writers in 1..=4 {
            assert_eq!(write_back_from(limit, quantum, writers), quantum);
        }
        for writers in [8, 32, 100] {
            let from = write_back_from(limit, quantum, writers);
            assert!(2 * from * writers as u64 <= limit, "{writers}: {from}");
            assert!(from < quantum);
        }
        assert_eq!(write_back_from(limit, quantum, 100_000), WRITE_BACK_MIN);
    }
}
