//! The search through a volume whose disk had errors in different places: what is bad is told
//! before a client asks for it, the rest goes on being served.
//!
//! First of all come the neighbours of what could not be read, by block id: what was written
//! together lies together. Then the checksum files of all replicas, which take minutes where the
//! data takes hours; then the data. A search that found something is followed by another one. It
//! rests after each piece three times as long as that took: a quarter of the disk's time at most,
//! in the class of I/O that no client waits for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hayloft_io::IoClass;
use hayloft_wire::ids::PoolId;
use tracing::info;

use super::verify_replica::{Looker, Pace, Sure};
use crate::replica::Slot;
use crate::replica::block_pool::Pool;

/// Places with an error after which a volume is looked through: one or two are those of sectors.
const PLACES: usize = 3;
/// Neighbours of a bad replica of which the checksum files are read first of all.
const NEIGHBOURS: usize = 32;
/// Neighbours of which the data is read next.
const NEIGHBOURS_DATA: usize = 8;
/// Rests after a piece, as many times as long as it took.
const RESTS: u32 = 3;

/// What is read of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It is opened, and its checksums are read.
    Sums,
    /// It is compared with them.
    Data,
}

/// A replica that could not be read, and how many neighbours are still to come before the others.
#[derive(Clone, Debug)]
struct Centre {
    pool: PoolId,
    id: i64,
    sums: usize,
    data: usize,
}

/// What is still to be read.
#[derive(Debug, Default)]
struct Todo {
    sums: BTreeMap<PoolId, BTreeSet<i64>>,
    data: BTreeMap<PoolId, BTreeSet<i64>>,
    centres: VecDeque<Centre>,
}

/// Bad replicas that were found: no search reads them again.
type Seen = BTreeSet<(PoolId, i64)>;

/// Searches whenever there are errors in enough places, and new ones among them.
pub async fn run(looker: &Looker) {
    let errors = &looker.volume.errors;
    let mut seen = Seen::new();
    loop {
        // One that panicked may have left this behind.
        errors.searching.store(false, Ordering::Relaxed);
        errors.changed.notified().await;
        let window = looker.store.config.errors.window;
        if errors.places(window) < PLACES {
            continue;
        }
        errors.searching.store(true, Ordering::Relaxed);
        search(looker, &mut seen).await;
    }
}

/// Looks through the volume until it finds nothing any more.
async fn search(looker: &Looker, seen: &mut Seen) {
    let volume = looker.volume.root.display();
    let mut searched = false;
    loop {
        let centres = looker.volume.errors.take_centres();
        // Errors elsewhere are a reason too: in what protects replicas, in directories.
        let elsewhere = centres.is_empty() && !searched;
        let new = |centre: &(PoolId, i64)| !seen.contains(centre);
        let centres: Vec<_> = centres.into_iter().filter(new).collect();
        if centres.is_empty() && !elsewhere {
            return;
        }
        searched = true;
        let began = Instant::now();
        info!(%volume, "the disk had errors in several places: all its replicas are read");
        loop {
            let before = seen.len();
            let read = pass(looker, centres.clone(), seen).await;
            let units = match &looker.store.protection {
                Some(protection) => protection.search_units(&looker.volume, RESTS).await,
                None => 0,
            };
            let bad = seen.len() - before;
            let took_s = began.elapsed().as_secs();
            info!(%volume, read, bad, units, took_s, "all replicas of the volume were read");
            if bad + units == 0 {
                break;
            }
        }
    }
}

/// Reads everything once but what is known to be bad; how many replicas.
async fn pass(looker: &Looker, centres: Vec<(PoolId, i64)>, seen: &mut Seen) -> usize {
    let mut todo = Todo::of(looker, seen);
    let mut pace = Pace::Rest(RESTS);
    let mut read = 0;
    let mut more = centres;
    loop {
        for (pool, id) in more {
            todo.add_centre(pool, id);
        }
        let Some((part, pool, id)) = todo.next() else {
            return read;
        };
        if let Ok(pool) = looker.store.pool(&pool) {
            read += usize::from(part == Part::Data);
            if look(looker, &pool, id, part, &mut pace).await.is_break() {
                seen.insert((pool.id().clone(), id));
                todo.forget(pool.id(), id);
                todo.add_centre(pool.id().clone(), id);
            }
        }
        let new = looker.volume.errors.take_centres().into_iter();
        more = new.filter(|centre| !seen.contains(centre)).collect();
    }
}

/// Breaks at a replica that is bad.
async fn look(
    looker: &Looker,
    pool: &Arc<Pool>,
    id: i64,
    part: Part,
    pace: &mut Pace,
) -> ControlFlow<()> {
    let Some(replica) = looker.here(pool, id) else {
        return ControlFlow::Continue(());
    };
    let is_bad = match part {
        Part::Data => looker.scan(pool, id, pace, u32::MAX).await,
        Part::Sums => {
            let began = Instant::now();
            let glance = looker.glance(pool, id, &replica, None, IoClass::Scan);
            let looked = looker.unless_broken((pool.id(), id), glance).await;
            let looked = looked.unwrap_or(Ok(0));
            let bytes = *looked.as_ref().unwrap_or(&0);
            let is_bad = match looked {
                Ok(_) => false,
                Err(found) => looker.settle(pool, id, &replica, found, Sure::No).await,
            };
            pace.rest(bytes, began.elapsed()).await;
            is_bad
        }
    };
    if is_bad {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

impl Todo {
    /// All finalized replicas of the volume but those that are known to be bad.
    fn of(looker: &Looker, seen: &Seen) -> Self {
        let mut todo = Self::default();
        for pool in looker.store.pools() {
            let mut ids = BTreeSet::new();
            pool.map.for_each(|id, slot| {
                if matches!(slot, Slot::Finalized(r) if r.volume == looker.volume.index) {
                    ids.insert(id);
                }
            });
            ids.retain(|id| !seen.contains(&(pool.id().clone(), *id)));
            todo.sums.insert(pool.id().clone(), ids.clone());
            todo.data.insert(pool.id().clone(), ids);
        }
        todo
    }

    fn add_centre(&mut self, pool: PoolId, id: i64) {
        self.centres.push_back(Centre {
            pool,
            id,
            sums: NEIGHBOURS,
            data: NEIGHBOURS_DATA,
        });
    }

    fn forget(&mut self, pool: &PoolId, id: i64) {
        for part in [&mut self.sums, &mut self.data] {
            if let Some(ids) = part.get_mut(pool) {
                ids.remove(&id);
            }
        }
    }

    /// The next replica, and what is read of it.
    fn next(&mut self) -> Option<(Part, PoolId, i64)> {
        while let Some(centre) = self.centres.front_mut() {
            let (part, left, among) = if centre.sums > 0 {
                (
                    Part::Sums,
                    &mut centre.sums,
                    self.sums.get_mut(&centre.pool),
                )
            } else if centre.data > 0 {
                (
                    Part::Data,
                    &mut centre.data,
                    self.data.get_mut(&centre.pool),
                )
            } else {
                self.centres.pop_front();
                continue;
            };
            match among.and_then(|ids| take_nearest(ids, centre.id)) {
                Some(id) => {
                    *left -= 1;
                    return Some((part, centre.pool.clone(), id));
                }
                None => *left = 0,
            }
        }
        let parts = [(Part::Sums, &mut self.sums), (Part::Data, &mut self.data)];
        parts.into_iter().find_map(|(part, all)| {
            let found = all
                .iter_mut()
                .find_map(|(pool, ids)| Some((pool, ids.pop_first()?)));
            found.map(|(pool, id)| (part, pool.clone(), id))
        })
    }
}

/// Takes the id out that is nearest.
fn take_nearest(ids: &mut BTreeSet<i64>, to: i64) -> Option<i64> {
    let below = ids.range(..=to).next_back().copied();
    let above = ids.range(to..).next().copied();
    let nearest = below
        .into_iter()
        .chain(above)
        .min_by_key(|id| id.abs_diff(to))?;
    ids.remove(&nearest);
    Some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_come_first_then_checksums_then_data() {
        let pool = PoolId::new("BP-1-127.0.0.1-1").expect("a pool");
        let all: BTreeSet<i64> = (0..200).collect();
        let mut todo = Todo {
            sums: BTreeMap::from([(pool.clone(), all.clone())]),
            data: BTreeMap::from([(pool.clone(), all)]),
            centres: VecDeque::new(),
        };
        todo.forget(&pool, 100);
        todo.add_centre(pool.clone(), 100);
        let order: Vec<(Part, i64)> = std::iter::from_fn(|| todo.next())
            .map(|(part, _, id)| (part, id))
            .collect();
        assert_eq!(order.len(), 2 * 199);
        let near = |from: usize, to: usize, part: Part, far: i64| {
            order[from..to]
                .iter()
                .all(|(p, id)| *p == part && (id - 100).abs() <= far)
        };
        let data = NEIGHBOURS + NEIGHBOURS_DATA;
        assert!(near(0, NEIGHBOURS, Part::Sums, 16), "{order:?}");
        assert!(near(NEIGHBOURS, data, Part::Data, 4), "{order:?}");
        let rest = 199 - NEIGHBOURS;
        assert!(
            order[data..data + rest]
                .iter()
                .all(|(part, _)| *part == Part::Sums)
        );
        assert!(
            order[data + rest..]
                .iter()
                .all(|(part, _)| *part == Part::Data)
        );
    }
}
