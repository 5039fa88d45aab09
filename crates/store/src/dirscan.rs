//! The directory scanner: compares directories with the replica map every few hours, for files that
//! came, went or changed behind our back.
//!
//! What differs is looked at again under the block's latch before anything is done, because replicas
//! come and go while directories are read.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayloft_io::{IoClass, IoOp};
use hayloft_wire::ids::Block;
use tracing::{info, warn};

use crate::error::StoreError;
use crate::failures::examine;
use crate::files::{Pair, on_disk};
use crate::inner::Inner;
use crate::layout::names;
use crate::load::{Found, Orphans, Progress, walk};
use crate::pool::Pool;
use crate::replica::{FinalReplica, Slot};
use crate::types::StoreEvent;
use crate::volume::{Slice, footprint};

/// First-level directories, each of which is a step that can be followed by a pause.
const DIRECTORIES: u8 = 32;
/// The longest pause of a throttled scan after one step.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What a scan found to be different, for the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Replicas found that were not known.
    pub added: usize,
    /// Replicas whose data file is gone.
    pub gone: usize,
    /// Replicas without meta file or of another length.
    pub damaged: usize,
    /// Meta files without data removed.
    pub lone_meta: usize,
}

/// Scans at every interval until the store stops; first after a random part of it, so that nodes that
/// were started together do not scan together.
pub async fn run(inner: Arc<Inner>) {
    let interval = inner.config.directory_scan.interval;
    if interval.is_zero() {
        return;
    }
    let mut wait = interval.mul_f64(rand::random::<f64>());
    loop {
        tokio::select! {
            () = inner.stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        tokio::select! {
            () = inner.stop.cancelled() => return,
            () = scan_all(&inner) => {}
        }
        wait = interval;
    }
}

/// Scans every pool on every volume.
pub async fn scan_all(inner: &Arc<Inner>) {
    for pool in inner.pools() {
        for slice in pool.slices() {
            let started = Instant::now();
            match scan(inner, &pool, &slice).await {
                Ok(found) => {
                    let took_ms = started.elapsed().as_millis();
                    info!(pool = %pool.id(), volume = %slice.volume.root.display(), ?found, took_ms, "directories compared with memory");
                }
                Err(error) => {
                    let error = examine(inner, &slice.volume, error);
                    warn!(pool = %pool.id(), volume = %slice.volume.root.display(), %error, "cannot compare directories with memory");
                }
            }
        }
    }
}

/// Scans one pool on one volume, directory by directory.
pub async fn scan(
    inner: &Arc<Inner>,
    pool: &Arc<Pool>,
    slice: &Arc<Slice>,
) -> Result<Differences, StoreError> {
    let mut all = Differences::default();
    let mut handled = 0;
    for directory in 0..DIRECTORIES {
        let started = Instant::now();
        let dir = slice.paths.finalized().join(format!("subdir{directory}"));
        let (found, orphans) = read(slice, dir).await?;
        let busy = started.elapsed();
        for step in differences(pool, slice, directory, found, orphans) {
            settle(inner, pool, slice, step, &mut all).await?;
            handled += 1;
            if handled % inner.config.directory_scan.reconcile_batch.max(1) == 0 {
                tokio::time::sleep(inner.config.directory_scan.reconcile_pause).await;
            }
        }
        tokio::time::sleep(pause(busy, inner.config.directory_scan.run_ms_per_second)).await;
    }
    Ok(all)
}

/// How long to rest after being busy, to run only `run_ms` of each second.
fn pause(busy: Duration, run_ms: u32) -> Duration {
    if run_ms == 0 || run_ms >= 1000 {
        return Duration::ZERO;
    }
    (busy * (1000 - run_ms) / run_ms).min(PAUSE_MAX)
}

async fn read(slice: &Slice, dir: PathBuf) -> Result<(Vec<Found>, Orphans), StoreError> {
    let path = dir.clone();
    on_disk(slice, IoClass::Scan, IoOp::List, &path, move || match walk(
        &dir,
        1,
        &Progress::default(),
    ) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok((Vec::new(), Orphans::default())),
        other => other,
    })
    .await
    .map_err(|e| StoreError::io("comparing directories with memory", e))
}

/// Something that looks different.
#[derive(Clone, Debug)]
enum Step {
    /// Files of a replica that the map does not have here.
    Unknown(Block),
    /// The map has a replica of which a file is missing or the length differs.
    Differs(i64, FinalReplica),
    /// A meta file without data file.
    LoneMeta(Block, PathBuf),
}

/// Compares what was read with the map.
fn differences(
    pool: &Pool,
    slice: &Slice,
    directory: u8,
    found: Vec<Found>,
    orphans: Orphans,
) -> Vec<Step> {
    let volume = slice.volume.index;
    let mut known: HashMap<i64, FinalReplica> = HashMap::new();
    pool.map.for_each(|id, slot| {
        if let Slot::Finalized(r) = slot
            && r.volume == volume
            && names::subdir_numbers(id).0 == directory
        {
            known.insert(id, *r);
        }
    });
    let mut steps = Vec::new();
    // Files in a wrong directory are left for the next start, which moves them.
    for found in found.into_iter().filter(|f| f.dir.is_none()) {
        let block = found.block;
        match known.remove(&block.id) {
            Some(r) if (r.generation_stamp, r.len) == (block.generation_stamp, block.num_bytes) => {
            }
            Some(r) => steps.push(Step::Differs(block.id, r)),
            None => steps.push(Step::Unknown(block)),
        }
    }
    steps.extend(known.into_iter().map(|(id, r)| Step::Differs(id, r)));
    steps.extend(
        orphans
            .meta
            .into_iter()
            .map(|(block, dir)| Step::LoneMeta(block, dir)),
    );
    steps
}

/// Lengths of the files of a finalized replica now; `None` for one that is not there.
async fn look(slice: &Slice, block: Block) -> Result<(Option<u64>, Option<u64>), StoreError> {
    let pair = Pair {
        dir: slice.paths.finalized_dir(block.id),
        id: block.id,
        generation_stamp: block.generation_stamp,
    };
    let path = pair.data();
    on_disk(slice, IoClass::Scan, IoOp::Stat, &path, move || {
        let len = |path: PathBuf| match fs::metadata(path) {
            Ok(meta) => Ok(Some(meta.len())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        };
        Ok((len(pair.data())?, len(pair.meta())?))
    })
    .await
    .map_err(|e| StoreError::io("comparing directories with memory", e))
}

/// Looks again under the latch, and does what is still to be done.
async fn settle(
    inner: &Arc<Inner>,
    pool: &Arc<Pool>,
    slice: &Arc<Slice>,
    step: Step,
    all: &mut Differences,
) -> Result<(), StoreError> {
    let storage = slice.volume.info.clone();
    match step {
        Step::Unknown(block) => {
            let _latch = pool.latches.acquire(block.id).await;
            let (Some(len), Some(_)) = look(slice, block).await? else {
                return Ok(());
            };
            if pool.map.get(block.id).is_some() {
                return Ok(()); // Moved or written meanwhile, or a copy on another volume.
            }
            let block = Block {
                num_bytes: len,
                ..block
            };
            let replica = FinalReplica {
                generation_stamp: block.generation_stamp,
                len,
                volume: slice.volume.index,
                pinned: false,
            };
            pool.map.insert(block.id, Slot::Finalized(replica));
            slice.used.add(footprint(len, None));
            all.added += 1;
            info!(%block, "found a replica that was not known");
            inner
                .tell(StoreEvent::Found {
                    block: pool.extended(block),
                    storage,
                })
                .await;
        }
        Step::Differs(id, replica) => {
            let _latch = pool.latches.acquire(id).await;
            let block = Block::new(id, replica.generation_stamp, replica.len);
            let (data, meta) = look(slice, block).await?;
            if !matches!(pool.map.get(id), Some(Slot::Finalized(now)) if now == replica) {
                return Ok(());
            }
            if data.is_none() {
                pool.map.remove(id);
                slice.used.sub(footprint(replica.len, None));
                all.gone += 1;
                warn!(%block, "the data file of a replica is gone; it is no longer served");
                inner
                    .tell(StoreEvent::Lost {
                        block: pool.extended(block),
                        storage,
                    })
                    .await;
            } else if data != Some(replica.len) || meta.is_none() {
                all.damaged += 1;
                warn!(%block, ?data, ?meta, "the files of a replica are not what they should be");
                inner
                    .tell(StoreEvent::Corrupt {
                        block: pool.extended(block),
                        storage,
                    })
                    .await;
            }
        }
        Step::LoneMeta(block, dir) => {
            let _latch = pool.latches.acquire(block.id).await;
            if pool.map.get(block.id).is_some() {
                return Ok(());
            }
            let pair = Pair {
                dir,
                id: block.id,
                generation_stamp: block.generation_stamp,
            };
            let path = pair.meta();
            let removed = on_disk(slice, IoClass::Scan, IoOp::Unlink, &path, move || {
                if pair.data().exists() {
                    Ok(false)
                } else {
                    fs::remove_file(pair.meta()).map(|()| true)
                }
            });
            let removed = removed
                .await
                .map_err(|e| StoreError::io("removing a meta file without data file", e))?;
            all.lone_meta += usize::from(removed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttled_scan_rests_in_proportion() {
        let busy = Duration::from_millis(100);
        assert_eq!(pause(busy, 1000), Duration::ZERO);
        assert_eq!(pause(busy, 0), Duration::ZERO);
        assert_eq!(pause(busy, 250), Duration::from_millis(300));
        assert_eq!(pause(Duration::from_secs(3600), 1), PAUSE_MAX);
    }
}
