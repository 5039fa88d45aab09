//! Replicas whose writers have gone while bytes of them were in staging only.
//!
//! Usually a second later nothing is staged of them any more. On a disk that takes nothing (it is full, or gives errors
//! without failing its check) the bytes stay until a recovery comes, the disk takes them, or the node stops: they were
//! acknowledged. But segments are for all volumes, so that all of them together keep a quarter of the area at most.
//! Beyond that the largest is given up: it is told to the NameNode as lost, and what its files have stays for the next start.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tracing::error;

use crate::inner::Inner;
use crate::pool::Pool;
use crate::replica::LiveReplica;
use crate::types::StoreEvent;

/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5000 });

#[derive(Debug)]
struct Entry {
    pool: Arc<Pool>,
    live: Weak<LiveReplica>,
    /// A write of it has failed since its writer went.
    failed: bool,
}

/// Those of a store.
#[derive(Debug, Default)]
pub struct Abandoned(Mutex<Vec<Entry>>);

impl Abandoned {
    /// The writer of a replica goes. Nothing to do when nothing of it is staged.
    pub fn note(&self, pool: &Arc<Pool>, live: &Arc<LiveReplica>) {
        if staged_of(live) == 0 {
            return;
        }
        self.entries().push(Entry {
            pool: Arc::clone(pool),
            live: Arc::downgrade(live),
            failed: false,
        });
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that hold more than `limit` bytes together, the largest first.
    fn too_many(&self, limit: u64) -> Vec<(Arc<Pool>, Arc<LiveReplica>)> {
        let mut entries = self.entries();
        let mut stuck = Vec::new();
        entries.retain_mut(|entry| {
            let Some(live) = entry.live.upgrade() else {
                return false;
            };
            let bytes = staged_of(&live);
            let failed = |status: &crate::replica::Status| {
                let staged = status.staged.as_ref();
                staged.is_some_and(|staged| staged.error().is_some())
            };
            entry.failed |= failed(&live.status());
            if entry.failed && bytes > 0 {
                stuck.push((bytes, Arc::clone(&entry.pool), live));
            }
            bytes > 0
        });
        drop(entries);
        stuck.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
        let mut left: u64 = stuck.iter().map(|(bytes, ..)| bytes).sum();
        let beyond = stuck.into_iter().take_while(|(bytes, ..)| {
            let beyond = left > limit;
            left -= bytes;
            beyond
        });
        beyond.map(|(_, pool, live)| (pool, live)).collect()
    }
}

/// Bytes that are staged of it, and not in its files.
fn staged_of(live: &LiveReplica) -> u64 {
    let staged = live.status().staged.clone();
    staged.map_or(0, |staged| staged.unwritten())
}

/// Looks at them until the store stops.
pub async fn look_after(inner: Arc<Inner>) {
    loop {
        tokio::select! {
            () = inner.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let quarter = inner.staging.get().map_or(0, |s| s.capacity_bytes() / 4);
        for (pool, live) in inner.abandoned.too_many(inner.left_to_keep(quarter)) {
            // Writes of a disk that hangs end when its volume fails: nobody else waits for them.
            let work = give_up(Arc::clone(&inner), pool, live);
            inner.tasks.spawn(work);
        }
    }
}

async fn give_up(inner: Arc<Inner>, pool: Arc<Pool>, live: Arc<LiveReplica>) {
    // Whoever has the right to it works on it: a recovery, a deletion.
    let Ok(_right) = Arc::clone(&live.writer).try_lock_owned() else {
        return;
    };
    if !pool.map.is_live(&live) {
        return;
    }
    let (block, staged) = (pool.extended(live.block()), staged_of(&live));
    error!(%block, volume = %live.slice.volume.root.display(), staged,
        "a replica was left by its writer, and its disk does not take what is staged of it: it is given up, since other \
         volumes need the memory. Check the disk and its free space");
    pool.map.remove(live.id);
    live.stop_staging().await;
    live.drop_staging();
    live.release_promise();
    let storage = live.slice.volume.info.clone();
    inner.tell(StoreEvent::Lost { block, storage }).await;
}
