//! The block scanner: every finalized replica is read once in a period and compared with its
//! checksums. One task per volume, in the class of I/O that no client waits for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hayloft_io::IoClass;
use hayloft_wire::ids::PoolId;
use tokio::time::Instant;
use tracing::{debug, info};

use super::verify_replica::{Looker, Pace};
use crate::background::scanner_cursor::Cursor;
use crate::layout::dirs::now_ms;
use crate::layout::names;
use crate::replica::Slot;
use crate::replica::block_pool::Pool;
use crate::state::StoreState;
use crate::transitions::check_volume;
use crate::volume::BlockPoolSlice;

/// How often the place in a round is saved.
const SAVE_EVERY: Duration = Duration::from_secs(600);
/// How long a volume without anything to scan is left alone.
const IDLE: Duration = Duration::from_secs(1);
/// Directories that a round goes through.
const DIRECTORIES: u8 = 32;

/// Starts a scanner on every volume that has none.
pub fn start(store: &Arc<StoreState>) {
    let config = store.config.scan;
    if config.bytes_per_second == 0 || config.period.is_zero() {
        return;
    }
    for volume in store.volumes() {
        if volume.is_scanned.swap(true, Ordering::Relaxed) {
            continue;
        }
        let looker = Looker::new(store, &volume);
        store.serve("block scanner", move || {
            let scanner = Scanner {
                looker: looker.clone(),
                pace: Pace::rate(config.bytes_per_second),
                rounds: HashMap::new(),
            };
            scanner.run()
        });
    }
}

struct Scanner {
    looker: Looker,
    pace: Pace,
    rounds: HashMap<PoolId, Round>,
}

/// The place in the round through one pool.
struct Round {
    cursor: Cursor,
    /// Ids of the present directory that are still to do, last first.
    todo: Vec<i64>,
    /// The next directory.
    next: u8,
    saved: Instant,
}

impl Scanner {
    async fn run(mut self) {
        let stop = self.looker.store.stop.clone();
        let gone = self.looker.volume.gone.clone();
        while !stop.is_cancelled() && !gone.is_cancelled() {
            let work = async {
                if !self.scan_next().await {
                    tokio::time::sleep(IDLE).await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = gone.cancelled() => return,
                () = work => {}
            }
        }
        for (pool, round) in &self.rounds {
            self.save(pool, &round.cursor).await;
        }
    }

    /// Scans the next replica of the round that began first; false when none is due.
    async fn scan_next(&mut self) -> bool {
        let mut pools = self.looker.store.pools();
        pools.sort_unstable_by_key(|p| {
            let round = self.rounds.get(p.id());
            (round.map(|r| r.cursor.iter_start_ms), p.id().clone())
        });
        for pool in pools {
            let Some(slice) = self.looker.volume.slice(pool.id()) else {
                continue;
            };
            if let Some(id) = self.next_of(&pool, &slice).await {
                let max = check_volume::LOOKS_LACKED_MAX;
                self.looker.scan(&pool, id, &mut self.pace, max).await;
                return true;
            }
        }
        false
    }

    /// The next replica of a pool's round; begins a round when that is due.
    async fn next_of(&mut self, pool: &Pool, slice: &BlockPoolSlice) -> Option<i64> {
        if !self.rounds.contains_key(pool.id()) {
            let round = self.begin(pool, slice).await;
            self.looker.counts.began(round.cursor.iter_start_ms);
            if round.cursor.at_end {
                self.looker.counts.ended();
            }
            self.rounds.insert(pool.id().clone(), round);
        }
        let period_ms =
            u64::try_from(self.looker.store.config.scan.period.as_millis()).unwrap_or(u64::MAX);
        let volume = self.looker.volume.index;
        let round = self.rounds.get_mut(pool.id())?;
        if round.cursor.at_end {
            if now_ms() < round.cursor.iter_start_ms.saturating_add(period_ms) {
                return None;
            }
            round.cursor = Cursor::begin(now_ms());
            round.next = 0;
            self.looker.counts.began(round.cursor.iter_start_ms);
        }
        while round.todo.is_empty() {
            if round.next == DIRECTORIES {
                round.cursor.at_end = true;
                self.looker.counts.ended();
                let volume = self.looker.volume.root.display();
                info!(pool = %pool.id(), %volume, "block scanner has finished a round");
                let cursor = round.cursor.clone();
                self.save(pool.id(), &cursor).await;
                return None;
            }
            round.todo = ids_in(pool, volume, round.next);
            round.next += 1;
        }
        let id = round.todo.pop()?;
        round.cursor.set_place(id);
        if round.saved.elapsed() > SAVE_EVERY {
            round.saved = Instant::now();
            let cursor = round.cursor.clone();
            self.save(pool.id(), &cursor).await;
        }
        Some(id)
    }

    /// Goes on with the round that was saved, or begins one.
    async fn begin(&self, pool: &Pool, slice: &BlockPoolSlice) -> Round {
        let path = slice
            .paths
            .root
            .join(crate::background::scanner_cursor::FILE);
        let saved = slice
            .volume
            .meta(IoClass::Scan)
            .read_small(&path, crate::background::scanner_cursor::BYTES_MAX)
            .await;
        let cursor = saved
            .ok()
            .and_then(|bytes| Cursor::parse(&bytes))
            .unwrap_or_else(|| Cursor::begin(now_ms()));
        let (mut todo, mut next) = (Vec::new(), 0);
        if let Some((directory, last)) = cursor.place() {
            todo = ids_in(pool, self.looker.volume.index, directory);
            todo.retain(|id| order(*id) > order(last));
            next = directory + 1;
        }
        Round {
            cursor,
            todo,
            next,
            saved: Instant::now(),
        }
    }

    async fn save(&self, pool: &PoolId, cursor: &Cursor) {
        let Some(slice) = self.looker.volume.slice(pool) else {
            return;
        };
        let path = slice
            .paths
            .root
            .join(crate::background::scanner_cursor::FILE);
        let contents = cursor.encode(now_ms());
        if let Err(error) = self
            .looker
            .volume
            .meta(IoClass::Scan)
            .replace(&path, contents, crate::layout::dirs::FILE_MODE)
            .await
        {
            debug!(path = %path.display(), %error, "cannot save the place of the block scanner");
        }
    }
}

/// The order of a round within a first-level directory.
fn order(id: i64) -> (u8, i64) {
    (names::subdir_numbers(id).1, id)
}

/// Finalized replicas on a volume in one first-level directory, the first to scan last.
fn ids_in(pool: &Pool, volume: u16, directory: u8) -> Vec<i64> {
    let mut ids = Vec::new();
    pool.map.for_each(|id, slot| {
        let here = matches!(slot, Slot::Finalized(r) if r.volume == volume);
        if here && names::subdir_numbers(id).0 == directory {
            ids.push(id);
        }
    });
    ids.sort_unstable_by_key(|id| std::cmp::Reverse(order(*id)));
    ids
}
