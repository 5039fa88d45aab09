//! Commit rounds at work: they sync what [`CommitRounds`] has collected.
//!
//! [`CommitRounds`]: crate::volume::unsynced::CommitRounds

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hayloft_io::{EngineFile, IoError, IoErrorKind};
use tokio::sync::RwLock;
use tracing::{error, warn};

use super::check_volume;
use crate::layout::dirs::now_ms;
use crate::replica::block_pool::Pool;
use crate::replica::{LiveReplica, Slot};
use crate::state::StoreState;
use crate::types::StoreEvent;
use crate::volume::Volume;
use crate::volume::stop_mark::Mark;
use crate::volume::unsynced::{CLASS, CommitRounds, Committed, ReplicaKey, Touched};

/// Files that a round syncs at the same time. A client's syncs have the other threads.
const AT_ONCE: usize = 2;

/// Takes note that `written` of the data file of a replica, and its checksums, were written. A
/// quantum of dirty bytes is written back at once, in the background.
pub fn touch(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    live: &Arc<LiveReplica>,
    (data, meta): (&Arc<dyn EngineFile>, &Arc<dyn EngineFile>),
    written: Range<u64>,
) {
    let volume = Arc::clone(&live.slice.volume);
    let key = ReplicaKey {
        pool: address_of(pool),
        id: live.id,
        live: Arc::as_ptr(live).addr(),
    };
    let replica = Arc::new(PoolReplica {
        pool: Arc::clone(pool),
        live: Arc::clone(live),
    });
    let touched = Touched::new(key, replica, data, meta);
    let Some((touched, range)) = volume.commits.touch(&volume, touched, written) else {
        return;
    };
    let (tasks, store) = (store.tasks.clone(), Arc::clone(store));
    tasks.spawn(async move {
        let _lost = LostOnPanic(&volume.commits);
        let work = volume.commits.write_back(&touched.data, range);
        if let Err(error) = touched.watched(&volume.commits, work).await {
            failed(&store, &volume, &touched, &error).await;
        }
    });
}

/// A replica is deleted, or durable: its files are closed, so that its space is given back.
pub fn forget(volume: &Volume, pool: &Arc<Pool>, id: i64) {
    volume.commits.forget(address_of(pool), id);
}

fn address_of(pool: &Arc<Pool>) -> usize {
    Arc::as_ptr(pool).addr()
}

/// Carries out the rounds of a volume until the store stops or the volume leaves.
pub async fn run(store: Arc<StoreState>, volume: Arc<Volume>) {
    loop {
        tokio::select! {
            () = store.stop.cancelled() => return,
            () = volume.gone.cancelled() => return,
            () = tokio::time::sleep(store.config.commit_interval) => {}
            () = volume.commits.early.notified() => {}
        }
        round(&store, &volume).await;
    }
}

/// Work that panics has synced nothing of what it took.
struct LostOnPanic<'a>(&'a CommitRounds);

impl Drop for LostOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.note_panicked();
        }
    }
}

/// Makes all that was written before it durable; whether that was so. Also the last thing before a
/// clean stop.
pub async fn round(store: &Arc<StoreState>, volume: &Arc<Volume>) -> bool {
    let rounds = &volume.commits;
    let _running = rounds.running.lock().await;
    let began = now_ms();
    let _lost = LostOnPanic(rounds);
    let (replicas, dirs) = rounds.take();
    if replicas.is_empty() && dirs.is_empty() {
        rounds.ended.notify_waiters();
        return true;
    }
    if !volume.engine.capabilities().page_cache {
        for touched in &replicas {
            // A hint: the sync below writes what this does not.
            let _ = touched.data.start_writeback(0, 0).await;
            let _ = touched.meta.start_writeback(0, 0).await;
        }
    }
    // All are on the device before the first sync: one commit of the file system's log is enough
    // for them then. A commit for each holds up the threads that create and rename files.
    let mut durable = each(&replicas, store, volume, |touched| {
        touched.watched(rounds, touched.write_back(rounds))
    })
    .await;
    durable &= each(&replicas, store, volume, |touched| {
        touched.watched(rounds, touched.sync())
    })
    .await;
    for dir in &dirs {
        durable &= sync_names(store, volume, dir).await;
    }
    drop(replicas);
    rounds.ended.notify_waiters();
    if durable && let Err(error) = Mark::stamp(volume, began).await {
        warn!(volume = %volume.root.display(), %error,
            "cannot write the stamp of a commit round: after a stop that is not clean more \
             replicas are looked at");
    }
    durable
}

/// Makes the names in a directory durable; whether that was so. The next round tries again what
/// failed, but the kernel may not tell of it twice.
async fn sync_names(store: &Arc<StoreState>, volume: &Arc<Volume>, dir: &Path) -> bool {
    let error = match volume.meta(CLASS).sync_dir(dir).await {
        Ok(()) => return true,
        // No names are left to make durable: a pool was removed, for example.
        Err(error) if error.kind() == IoErrorKind::NotFound => return true,
        Err(error) => error,
    };
    if error.lacks().is_some() {
        // Nothing was asked of the disk: the next round does.
        volume.commits.touch_dir(dir);
        return false;
    }
    if !volume.is_failed() {
        volume.commits.note_lost();
        volume.commits.touch_dir(dir);
        warn!(dir = %dir.display(), %error, "cannot make the names in a directory durable");
        check_volume::suspect(store, volume, &error);
    }
    false
}

/// Does it for every replica, a few at a time; whether that worked for all.
async fn each<'a, F>(
    replicas: &'a [Touched],
    store: &Arc<StoreState>,
    volume: &Arc<Volume>,
    work: impl Fn(&'a Touched) -> F,
) -> bool
where
    F: Future<Output = Result<(), IoError>>,
{
    let mut all = true;
    for some in replicas.chunks(AT_ONCE) {
        let outcomes = futures_util::future::join_all(some.iter().map(&work)).await;
        for (touched, outcome) in some.iter().zip(outcomes) {
            if let Err(error) = outcome {
                all = false;
                failed(store, volume, touched, &error).await;
            }
        }
    }
    all
}

/// The kernel tells once that bytes did not reach the device. Nothing of the replica counts as
/// synced from then on, and a NameNode that counts on it hears of it.
async fn failed(store: &Arc<StoreState>, volume: &Arc<Volume>, touched: &Touched, error: &IoError) {
    if volume.is_failed() {
        return;
    }
    let event = touched.replica.lost_event(error);
    check_volume::suspect(store, volume, error);
    if let Some(event) = event {
        store.send_event(event).await;
    }
}

/// A live replica and its pool.
#[derive(Debug)]
struct PoolReplica {
    pool: Arc<Pool>,
    live: Arc<LiveReplica>,
}

impl Committed for PoolReplica {
    fn syncing(&self) -> &RwLock<()> {
        &self.live.syncing
    }

    fn note_lost_writes(&self) {
        self.live.note_lost_writes();
        // Reopened since: the same files.
        if let Some(Slot::Live(now)) = self.pool.map.get(self.live.id)
            && now.slice.volume.index == self.live.slice.volume.index
        {
            now.note_lost_writes();
        }
    }

    fn lost_event(&self, error: &IoError) -> Option<StoreEvent> {
        let Self { pool, live } = self;
        let volume = &live.slice.volume;
        if !volume.slices_have(&live.slice) {
            return None;
        }
        let block = pool.extended(live.block());
        error!(%block, volume = %volume.root.display(), %error,
            "written bytes of a replica did not reach the disk: it is reported corrupt when its \
             block is closed. Check the disk");
        let stamp = block.block.generation_stamp;
        let counts = matches!(pool.map.get(live.id), Some(Slot::Finalized(now))
            if now.generation_stamp == stamp && now.volume == volume.index);
        counts.then(|| StoreEvent::Corrupt {
            block,
            storage: volume.info.clone(),
        })
    }
}
