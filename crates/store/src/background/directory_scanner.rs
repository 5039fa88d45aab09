//! The directory scanner: compares directories with the replica map every few hours, for files that
//! came, went or changed behind our back.
//!
//! What differs is looked at again under the block's latch before anything is done, because
//! replicas come and go while directories are read.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayloft_io::{IoClass, IoErrorKind, IoOp};
use tracing::{info, warn};

use crate::background::settle_differences::{Differences, Step, settle};
use crate::error::StoreError;
use crate::found_at_start::{Found, Orphans, Progress, walk};
use crate::layout::dirs::now_ms;
use crate::layout::names;
use crate::replica::block_pool::Pool;
use crate::replica::file_pair::on_disk;
use crate::replica::{FinalReplica, Slot};
use crate::state::StoreState;
use crate::transitions::check_volume::{check, check_soon, examine};
use crate::volume::{BlockPoolSlice, Volume};

/// First-level directories, each of which is a step that can be followed by a pause.
const DIRECTORIES: u8 = 32;
/// The longest pause of a throttled scan after one step.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Scans at every interval until the store stops. The first scan comes after a random part of it:
/// nodes that were started together do not scan together.
pub async fn run(store: Arc<StoreState>) {
    let interval = store.config.directory_scan.interval;
    if interval.is_zero() {
        return;
    }
    let mut wait = interval.mul_f64(rand::random::<f64>());
    loop {
        tokio::select! {
            () = store.stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        tokio::select! {
            () = store.stop.cancelled() => return,
            () = scan_all(&store) => {}
        }
        store.counts.directories_compared(now_ms());
        wait = interval;
    }
}

/// Scans every pool on every volume, the volumes at the same time. A volume that hangs does not
/// hold the others up; its scan ends when the volume is given up.
pub async fn scan_all(store: &Arc<StoreState>) {
    let volumes = store.volumes();
    let scans = volumes.iter().map(|volume| async move {
        tokio::select! {
            () = volume.gone.cancelled() => {}
            () = scan_volume(store, volume) => {}
        }
    });
    futures_util::future::join_all(scans).await;
}

async fn scan_volume(store: &Arc<StoreState>, volume: &Arc<Volume>) {
    for pool in store.pools() {
        let Ok(slice) = pool.slice(volume.index) else {
            continue;
        };
        let started = Instant::now();
        match scan(store, &pool, &slice).await {
            Ok(found) => {
                let took_ms = started.elapsed().as_millis();
                info!(pool = %pool.id(), volume = %volume.root.display(), ?found, took_ms,
                    "directories compared with memory");
            }
            Err(error) => {
                let error = examine(store, volume, error);
                if error
                    .io_error()
                    .is_some_and(|e| e.kind() == IoErrorKind::NotFound)
                {
                    check_soon(store, volume);
                }
                warn!(pool = %pool.id(), volume = %volume.root.display(), %error, "cannot compare \
                    directories with memory");
            }
        }
    }
}

/// Scans one pool on one volume, directory by directory.
pub async fn scan(
    store: &Arc<StoreState>,
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
            check(store, &slice.volume).await;
            if slice.volume.is_failed() {
                return Ok(all);
            }
        }
        for step in steps {
            settle(store, pool, slice, step, &mut all).await?;
            handled += 1;
            if handled % store.config.directory_scan.reconcile_batch.max(1) == 0 {
                tokio::time::sleep(store.config.directory_scan.reconcile_pause).await;
            }
        }
        tokio::time::sleep(pause(busy, store.config.directory_scan.run_ms_per_second)).await;
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
