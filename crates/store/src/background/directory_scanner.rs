//! The directory scanner: compares directories with the replica map every few hours, for files that
//! came, went or changed behind our back.
//!
//! What differs is looked at again under the block's latch before anything is done, because
//! replicas come and go while directories are read.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayloft_io::{IoClass, IoErrorKind, IoOp};
use hayloft_wire::ids::Block;
use tracing::{info, warn};

use crate::error::StoreError;
use crate::layout::names;
use crate::lifecycle::volume_failure::{check, examine, suspect};
use crate::load::{Found, Orphans, Progress, walk};
use crate::replica::block_pool::Pool;
use crate::replica::files::{Pair, on_disk};
use crate::replica::{FinalReplica, Slot};
use crate::state::StoreState;
use crate::types::StoreEvent;
use crate::volume::{BlockPoolSlice, Volume, footprint};

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

/// Scans at every interval until the store stops; first after a random part of it, so that nodes
/// that were started together do not scan together.
pub async fn run(inner: Arc<StoreState>) {
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

/// Scans every pool on every volume, the volumes at the same time: one that hangs does not hold the
/// others up, and ends when the volume is given up.
pub async fn scan_all(inner: &Arc<StoreState>) {
    let volumes = inner.volumes();
    let scans = volumes.iter().map(|volume| async move {
        tokio::select! {
            () = volume.gone.cancelled() => {}
            () = scan_volume(inner, volume) => {}
        }
    });
    futures_util::future::join_all(scans).await;
}

async fn scan_volume(inner: &Arc<StoreState>, volume: &Arc<Volume>) {
    for pool in inner.pools() {
        let Ok(slice) = pool.slice(volume.index) else {
            continue;
        };
        let started = Instant::now();
        match scan(inner, &pool, &slice).await {
            Ok(found) => {
                let took_ms = started.elapsed().as_millis();
                info!(pool = %pool.id(), volume = %volume.root.display(), ?found, took_ms, "directories compared with memory");
            }
            Err(error) => {
                let error = examine(inner, volume, error);
                if error
                    .io_error()
                    .is_some_and(|e| e.kind() == IoErrorKind::NotFound)
                {
                    suspect(inner, volume, &error.to_string());
                }
                warn!(pool = %pool.id(), volume = %volume.root.display(), %error, "cannot compare \
                    directories with memory");
            }
        }
    }
}

/// Scans one pool on one volume, directory by directory.
pub async fn scan(
    inner: &Arc<StoreState>,
    pool: &Arc<Pool>,
    slice: &Arc<BlockPoolSlice>,
) -> Result<Differences, StoreError> {
    let mut all = Differences::default();
    let mut handled = 0;
    for directory in 0..DIRECTORIES {
        let started = Instant::now();
        let dir = slice.paths.finalized().join(format!("subdir{directory}"));
        let (found, orphans) = read(slice, dir).await?;
        let busy = started.elapsed();
        let steps = differences(pool, slice, directory, found, orphans);
        if steps
            .iter()
            .any(|step| matches!(step, Step::Differs { .. }))
        {
            // Files that are gone may mean that the disk is: then its replicas are not lost one by
            // one.
            check(inner, &slice.volume).await;
            if slice.volume.is_failed() {
                return Ok(all);
            }
        }
        for step in steps {
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

async fn read(slice: &BlockPoolSlice, dir: PathBuf) -> Result<(Vec<Found>, Orphans), StoreError> {
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
    Unknown(Found),
    /// The map has a replica of which a file is missing or the length differs.
    Differs {
        id: i64,
        /// As the map had it.
        replica: FinalReplica,
        /// Generation stamp of the meta file that lies there.
        on_disk: Option<u64>,
    },
    /// A meta file without data file.
    LoneMeta(Block, PathBuf),
}

/// Compares what was read with the map.
fn differences(
    pool: &Pool,
    slice: &BlockPoolSlice,
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
            Some(replica) => steps.push(Step::Differs {
                id: block.id,
                replica,
                on_disk: Some(block.generation_stamp),
            }),
            None => steps.push(Step::Unknown(found)),
        }
    }
    steps.extend(known.into_iter().map(|(id, replica)| Step::Differs {
        id,
        replica,
        on_disk: None,
    }));
    steps.extend(
        orphans
            .meta
            .into_iter()
            .map(|(block, dir)| Step::LoneMeta(block, dir)),
    );
    steps
}

/// Lengths of the files of a finalized replica now; `None` for one that is not there.
async fn look(
    slice: &BlockPoolSlice,
    block: Block,
) -> Result<(Option<u64>, Option<u64>), StoreError> {
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

/// Checks that the tree of finalized replicas is there: without it no single replica is gone, the
/// disk is.
async fn still_there(slice: &BlockPoolSlice) -> Result<(), StoreError> {
    let path = slice.paths.finalized();
    let dir = path.clone();
    on_disk(slice, IoClass::Scan, IoOp::Stat, &path, move || {
        fs::metadata(dir).map(|_| ())
    })
    .await
    .map_err(|e| StoreError::io("looking for the tree of finalized replicas", e))
}

/// Looks again under the latch, and does what is still to be done.
async fn settle(
    inner: &Arc<StoreState>,
    pool: &Arc<Pool>,
    slice: &Arc<BlockPoolSlice>,
    step: Step,
    all: &mut Differences,
) -> Result<(), StoreError> {
    let (id, event) = match step {
        Step::Unknown(found) => {
            let id = found.block.id;
            let _latch = pool.latches.acquire(id).await;
            (id, settle_unknown(pool, slice, &found, all).await?)
        }
        Step::Differs {
            id,
            replica,
            on_disk,
        } => {
            let _latch = pool.latches.acquire(id).await;
            let event = settle_differs(pool, slice, id, replica, on_disk, all).await?;
            (id, event)
        }
        Step::LoneMeta(block, dir) => {
            let _latch = pool.latches.acquire(block.id).await;
            all.lone_meta += usize::from(remove_lone_meta(pool, slice, block, dir).await?);
            (block.id, None)
        }
    };
    if let Some(event) = event {
        info!(pool = %pool.id(), block = id, "directory scanner: {event:?}");
        inner.send_event(event).await;
    }
    Ok(())
}

/// Serves a replica that is still not known.
async fn settle_unknown(
    pool: &Pool,
    slice: &Arc<BlockPoolSlice>,
    found: &Found,
    all: &mut Differences,
) -> Result<Option<StoreEvent>, StoreError> {
    let (Some(len), Some(_)) = look(slice, found.block).await? else {
        return Ok(None);
    };
    let block = Block {
        num_bytes: len,
        ..found.block
    };
    // Moved or written meanwhile, or a copy on another volume.
    if pool.map.get(block.id).is_some() {
        return Ok(None);
    }
    let replica = FinalReplica {
        generation_stamp: block.generation_stamp,
        len,
        volume: slice.volume.index,
        pinned: found.pinned,
    };
    if pool.put(block.id, Slot::Finalized(replica)).is_err() {
        return Ok(None);
    }
    slice.used.add(footprint(len, None));
    all.added += 1;
    Ok(Some(StoreEvent::Found {
        block: pool.extended(block),
        storage: slice.volume.info.clone(),
    }))
}

/// Drops a replica whose data is gone, tells of one that is damaged, and follows a meta file that
/// has another generation stamp.
async fn settle_differs(
    pool: &Pool,
    slice: &Arc<BlockPoolSlice>,
    id: i64,
    replica: FinalReplica,
    on_disk: Option<u64>,
    all: &mut Differences,
) -> Result<Option<StoreEvent>, StoreError> {
    let storage = slice.volume.info.clone();
    let mut block = Block::new(id, replica.generation_stamp, replica.len);
    let (data, mut meta) = look(slice, block).await?;
    let other = on_disk.filter(|gs| *gs != replica.generation_stamp);
    if let (Some(_), None, Some(gs)) = (data, meta, other) {
        block.generation_stamp = gs;
        meta = look(slice, block).await?.1;
    }
    if !matches!(pool.map.get(id), Some(Slot::Finalized(now)) if now == replica) {
        return Ok(None);
    }
    let Some(len) = data else {
        still_there(slice).await?;
        pool.map.remove(id);
        slice.used.sub(footprint(replica.len, None));
        all.gone += 1;
        let block = pool.extended(block);
        return Ok(Some(StoreEvent::Lost { block, storage }));
    };
    if meta.is_none() || len != replica.len {
        all.damaged += 1;
        block.generation_stamp = replica.generation_stamp;
        warn!(%block, data = len, ?meta, "the files of a replica are not what they should be");
        let block = pool.extended(block);
        return Ok(Some(StoreEvent::Corrupt { block, storage }));
    }
    if block.generation_stamp == replica.generation_stamp {
        return Ok(None);
    }
    warn!(%block, before = replica.generation_stamp, "the meta file of a replica has another \
        generation stamp now");
    let now = FinalReplica {
        generation_stamp: block.generation_stamp,
        ..replica
    };
    if pool.put(id, Slot::Finalized(now)).is_err() {
        return Ok(None);
    }
    all.added += 1;
    let block = pool.extended(block);
    Ok(Some(StoreEvent::Found { block, storage }))
}

/// Removes a meta file if there is still no replica of the block and no data file beside it.
async fn remove_lone_meta(
    pool: &Pool,
    slice: &BlockPoolSlice,
    block: Block,
    dir: PathBuf,
) -> Result<bool, StoreError> {
    if pool.map.get(block.id).is_some() {
        return Ok(false);
    }
    let pair = Pair {
        dir,
        id: block.id,
        generation_stamp: block.generation_stamp,
    };
    let path = pair.meta();
    on_disk(slice, IoClass::Scan, IoOp::Unlink, &path, move || {
        if pair.data().exists() {
            return Ok(false);
        }
        match fs::remove_file(pair.meta()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            outcome => Ok(outcome.is_ok()),
        }
    })
    .await
    .map_err(|e| StoreError::io("removing a meta file without data file", e))
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
