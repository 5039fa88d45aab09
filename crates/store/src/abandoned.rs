//! Replicas whose writers have gone while bytes of them were in staging only.
//!
//! Usually a second later nothing is staged of them any more. On a disk that takes nothing (it is full, or gives errors
//! without failing its check) the bytes stay until a recovery comes, the disk takes them, or the node stops: they were
//! acknowledged. But segments are for all volumes, so that all of them together keep a quarter of the area at most.
//! Beyond that the largest is given up: it is told to the NameNode as lost, and what its files have stays for the next start.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hayloft_io::staging::StagedFile;
use tracing::error;

use crate::inner::Inner;
use crate::pool::Pool;
use crate::replica::LiveReplica;
use crate::types::StoreEvent;

/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5000 });

/// So often in a row they are too many before one is given up: room may come back any moment.
const LOOKS: u32 = 3;

#[derive(Debug)]
struct Entry {
    pool: Arc<Pool>,
    live: Weak<LiveReplica>,
    /// That of the writer who has gone: a successor has another one.
    staged: Weak<StagedFile>,
    /// Bytes of it that were not in its files when it was looked at last.
    bytes: u64,
    /// A write of it has failed since these became fewer.
    failed: bool,
}

/// Those of a store. No more than segments: each holds one, or is forgotten at the next look.
#[derive(Debug, Default)]
pub struct Abandoned(Mutex<Vec<Entry>>);

impl Abandoned {
    /// The writer of a replica goes, who had it staged in `staged`.
    pub fn note(&self, pool: &Arc<Pool>, live: &Arc<LiveReplica>, staged: &Arc<StagedFile>) {
        let bytes = staged.unwritten();
        if bytes == 0 {
            return;
        }
        self.entries().push(Entry {
            pool: Arc::clone(pool),
            live: Arc::downgrade(live),
            staged: Arc::downgrade(staged),
            bytes,
            failed: false,
        });
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that keep more than `limit` bytes of staging together, the largest first.
    fn too_many(&self, limit: u64) -> Vec<Stuck> {
        let mut stuck = Vec::new();
        self.entries().retain_mut(|entry| {
            let (Some(live), Some(staged)) = (entry.live.upgrade(), entry.staged.upgrade()) else {
                return false;
            };
            let bytes = staged.unwritten();
            if bytes < entry.bytes {
                entry.failed = false; // The disk takes them.
            }
            entry.bytes = bytes;
            entry.failed |= staged.error().is_some();
            if entry.failed && bytes > 0 {
                let memory = staged.memory_of_unwritten();
                stuck.push(Stuck {
                    pool: Arc::clone(&entry.pool),
                    live,
                    staged,
                    memory,
                });
            }
            bytes > 0
        });
        stuck.sort_by_key(|stuck| std::cmp::Reverse(stuck.memory));
        let mut left: u64 = stuck.iter().map(|stuck| stuck.memory).sum();
        let beyond = stuck.into_iter().take_while(|stuck| {
            let beyond = left > limit;
            left -= stuck.memory;
            beyond
        });
        beyond.collect()
    }
}

/// A replica whose disk does not take what is staged of it.
struct Stuck {
    pool: Arc<Pool>,
    live: Arc<LiveReplica>,
    staged: Arc<StagedFile>,
    /// Bytes of staging that it keeps others from.
    memory: u64,
}

/// Looks at them until the store stops.
pub async fn look_after(inner: Arc<Inner>) {
    let mut in_a_row = 0;
    loop {
        tokio::select! {
            () = inner.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let quarter = inner.staging.get().map_or(0, |s| s.capacity_bytes() / 4);
        let beyond = inner.abandoned.too_many(inner.left_to_keep(quarter));
        in_a_row = if beyond.is_empty() { 0 } else { in_a_row + 1 };
        if in_a_row < LOOKS {
            continue;
        }
        for stuck in beyond {
            // Writes of a disk that hangs end when its volume fails: nobody else waits for them.
            inner.tasks.spawn(give_up(Arc::clone(&inner), stuck));
        }
    }
}

async fn give_up(inner: Arc<Inner>, stuck: Stuck) {
    let Stuck {
        pool, live, staged, ..
    } = stuck;
    // Whoever has the right to it works on it: a recovery, a deletion.
    let Ok(_right) = Arc::clone(&live.writer).try_lock_owned() else {
        return;
    };
    let ours = live
        .status()
        .staged
        .as_ref()
        .is_some_and(|now| Arc::ptr_eq(now, &staged));
    // Without an error it is being tried right now, and may have begun to go.
    if !ours || !pool.map.is_live(&live) || staged.error().is_none() {
        return;
    }
    live.stop_staging().await;
    let bytes = staged.unwritten();
    if bytes == 0 {
        return; // The last attempt has succeeded.
    }
    let block = pool.extended(live.block());
    error!(%block, volume = %live.slice.volume.root.display(), staged = bytes,
        "a replica was left by its writer, and its disk does not take what is staged of it: it is given up, since other \
         volumes need the memory. Check the disk and its free space");
    pool.map.remove(live.id);
    live.drop_staging();
    let storage = live.slice.volume.info.clone();
    inner.tell(StoreEvent::Lost { block, storage }).await;
}
