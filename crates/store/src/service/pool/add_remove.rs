//! Adding and removing block pools.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayloft_io::{IoClass, IoError, IoErrorKind, IoOp, locks};
use hayloft_wire::ids::PoolId;
use tracing::{info, warn};

use crate::config::tolerated;
use crate::error::{StoreError, StoreErrorKind};
use crate::found_at_start::{self, Progress};
use crate::layout::names::CURRENT;
use crate::replica::block_pool::Pool;
use crate::replica::{LiveReplica, Slot};
use crate::service::pool::version_again;
use crate::service::pool::volume_joins::{Joining, add_slice, adopt};
use crate::service::startup;
use crate::state::StoreState;
use crate::types::{PoolSpec, StartOption};
use crate::volume::Volume;

/// How often progress of loading is logged.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// See [`Store::add_pool`](crate::Store::add_pool).
pub async fn add_pool(
    store: &Arc<StoreState>,
    spec: PoolSpec,
    start: StartOption,
) -> Result<(), StoreError> {
    let _changing = store.changing.lock().await;
    if store.stop.is_cancelled() {
        return Err(StoreError::closed("the store is shut down"));
    }
    check_cluster(store, &spec)?;
    if let Ok(there) = store.pool(&spec.pool) {
        return check_same(&there.spec, &spec);
    }
    let pool = Arc::new(Pool::new(spec, Arc::clone(&store.lazy)));
    let started = Instant::now();
    let volumes = store.volumes();
    let progress = Arc::new(Progress::default());
    version_again::mend(&pool, &volumes).await;
    let loads = volumes
        .iter()
        .map(|v| add_slice(store, &pool, v, start, &progress));
    let loads = futures_util::future::join_all(loads);
    let loads = with_progress(pool.id(), &progress, loads).await;
    let outcomes: Vec<_> = volumes.iter().zip(loads).collect();
    // Before any joins: what a refused pool had put on a volume would count as used there.
    bear_refusals(store, &outcomes)?;
    for (volume, outcome) in outcomes {
        match outcome {
            Ok(joining) => adopt(store, &pool, joining).await,
            // The directory of this pool is wrong, and others are served there.
            Err(error)
                if error.kind() == StoreErrorKind::Incompatible
                    && !locks::read(&volume.slices).is_empty() =>
            {
                warn!(volume = %volume.root.display(), pool = %pool.id(), %error, "this pool does \
                    without the volume");
            }
            Err(e) => crate::transitions::volume_failure::fail(store, volume, &e.to_string()).await,
        }
    }
    startup::check_tolerance(store, store.volumes().len())?;
    if pool.slices().is_empty() {
        return Err(StoreError::new(
            StoreErrorKind::VolumeFailed,
            format!("block pool {}: no volume left", pool.id()),
        ));
    }
    let (replicas, took_ms) = (pool.map.len(), started.elapsed().as_millis());
    info!(pool = %pool.id(), replicas, volumes = pool.slices().len(), took_ms,
        "block pool loaded");
    locks::write(&store.pools).insert(pool.id().clone(), Arc::clone(&pool));
    if let Some(protection) = &store.protection {
        protection.pool_loaded(store, &pool).await;
    }
    store.remember().await;
    for volume in &volumes {
        crate::transitions::volume_failure::leave_if_failed(store, volume);
    }
    Ok(())
}

/// Whether the pool can do without the volumes whose part of it cannot be used: others have theirs,
/// and so many may fail. What all refuse lies with the NameNode, not with a directory.
fn bear_refusals(
    store: &StoreState,
    outcomes: &[(&Arc<Volume>, Result<Joining, StoreError>)],
) -> Result<(), StoreError> {
    let usable = outcomes
        .iter()
        .filter(|(_, outcome)| outcome.is_ok())
        .count();
    // The store stops, or the process lacks what loading takes: no volume is to blame.
    let lacking = outcomes.iter().find_map(|(volume, outcome)| {
        let error = outcome.as_ref().err()?;
        (error.kind() == StoreErrorKind::Retry && !volume.is_failed()).then_some(error)
    });
    if let Some(error) = lacking {
        return Err(error.clone());
    }
    let mut refused = outcomes
        .iter()
        .filter_map(|(_, outcome)| outcome.as_ref().err());
    let Some(first) = refused.find(|error| error.kind() == StoreErrorKind::Incompatible) else {
        return Ok(());
    };
    // A volume that is new to the pool says nothing for the NameNode.
    let vouched = |(_, outcome): &(_, Result<Joining, StoreError>)| {
        outcome.as_ref().is_ok_and(|joining| !joining.is_new())
    };
    if !outcomes.iter().any(vouched) {
        return Err(first.clone());
    }
    let newly = outcomes
        .iter()
        .filter(|(volume, outcome)| outcome.is_err() && !volume.is_failed());
    let failed = locks::read(&store.volumes).failed.len() + newly.count();
    match tolerated(store.tolerated_failures(), usable, failed) {
        true => Ok(()),
        false => Err(first.clone()),
    }
}

/// A node belongs to one cluster; a new one to that of its first NameNode.
fn check_cluster(store: &StoreState, spec: &PoolSpec) -> Result<(), StoreError> {
    let mut identity = store.identity();
    if identity.cluster_id.is_empty() {
        identity.cluster_id.clone_from(&spec.cluster_id);
    }
    if identity.cluster_id == spec.cluster_id {
        return Ok(());
    }
    let roots = store.volumes().iter().fold(String::new(), |mut list, v| {
        write!(list, " {}", v.root.display()).expect("writing to a String cannot fail");
        list
    });
    Err(StoreError::incompatible(format!(
        "Incompatible clusterIDs in{roots}: namenode clusterID = {}; datanode clusterID = {}. \
                Connect this node to \
             the NameNode of its own cluster. If the NameNode was formatted anew and the old \
             blocks are not wanted, \
             empty these directories and start again",
        spec.cluster_id, identity.cluster_id
    )))
}

fn check_same(ours: &PoolSpec, theirs: &PoolSpec) -> Result<(), StoreError> {
    if ours.namespace_id == theirs.namespace_id {
        return Ok(());
    }
    Err(StoreError::incompatible(format!(
        "Incompatible namespaceIDs of block pool {}: namenode namespaceID = {}; datanode \
                namespaceID = {}",
        ours.pool, theirs.namespace_id, ours.namespace_id
    )))
}

async fn with_progress<T>(pool: &PoolId, progress: &Progress, work: impl Future<Output = T>) -> T {
    use std::sync::atomic::Ordering::Relaxed;
    let mut ticks = tokio::time::interval(PROGRESS_EVERY);
    ticks.tick().await;
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => {
                let directories = progress.directories.load(Relaxed);
                let replicas = progress.replicas.load(Relaxed);
                info!(%pool, replicas, directories, "loading block pool");
            }
        }
    }
}

/// Takes the pool out of the tables and stops its writers.
pub async fn forget_pool(store: &Arc<StoreState>, id: &PoolId) -> Option<Arc<Pool>> {
    let _changing = store.changing.lock().await;
    let pool = locks::write(&store.pools).remove(id)?;
    pool.map.watched().clear_all();
    crate::cache::uncache_all(&pool).await;
    stop_writers(store, &pool).await;
    for slice in pool.slices() {
        locks::write(&slice.volume.slices).retain(|s| s.pool != *id);
    }
    Some(pool)
}

/// Tells every writer of a pool to stop and waits a while; whether all have stopped.
pub async fn stop_writers(store: &StoreState, pool: &Pool) -> bool {
    stop_all(store, live_replicas(pool, None)).await
}

/// Tells every writer on a volume to stop and waits a while; whether all have stopped.
pub async fn stop_writers_on(store: &StoreState, volume: &Volume) -> bool {
    let pools = store.pools();
    let live = pools
        .iter()
        .flat_map(|pool| live_replicas(pool, Some(volume.index)));
    stop_all(store, live.collect()).await
}

/// Replicas that are not finalized, all of them or those on one volume.
pub fn live_replicas(pool: &Pool, volume: Option<u16>) -> Vec<Arc<LiveReplica>> {
    let mut live = Vec::new();
    pool.map.for_each(|_, slot| {
        if let Slot::Live(replica) = slot
            && volume.is_none_or(|index| index == slot.volume())
        {
            live.push(Arc::clone(replica));
        }
    });
    live
}

async fn stop_all(store: &StoreState, live: Vec<Arc<LiveReplica>>) -> bool {
    for replica in &live {
        replica.status().cancel.cancel();
    }
    let waits = live.iter().map(|replica| replica.writer.lock());
    let limit = store.config.writer_stop_timeout.min(Duration::from_secs(5));
    let stopped = tokio::time::timeout(limit, futures_util::future::join_all(waits))
        .await
        .is_ok();
    if !stopped {
        warn!("some writers have not stopped in time");
    }
    stopped
}

/// See [`Store::remove_pool`](crate::Store::remove_pool).
pub async fn remove_pool(
    store: &Arc<StoreState>,
    id: &PoolId,
    force: bool,
) -> Result<(), StoreError> {
    if !force {
        refuse_with_replicas(store, id).await?;
    }
    let _ = forget_pool(store, id).await;
    if let Some(protection) = &store.protection {
        protection.pool_removed(store, id).await;
    }
    let mut first_error = None;
    for volume in store.volumes() {
        let root = volume.root.join(CURRENT).join(id.as_str());
        match remove_tree(&volume, &root).await {
            Ok(()) => volume.commits.loaded(&root),
            Err(error) => {
                warn!(path = %root.display(), %error,
                    "cannot delete the directory of a block pool");
                let doing = format!("deleting block pool {id}");
                first_error.get_or_insert(StoreError::io(doing, error));
            }
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// Looks on the disks: a pool that is no longer served is not in memory, and its replicas are
/// there.
async fn refuse_with_replicas(store: &Arc<StoreState>, id: &PoolId) -> Result<(), StoreError> {
    let doing = || format!("looking for replicas of block pool {id}");
    for volume in store.volumes() {
        let root = volume.root.join(CURRENT).join(id.as_str());
        let found = volume
            .meta(IoClass::Delete)
            .run(IoOp::List, &root, move |root| {
                found_at_start::first_replica(root)
                    .map_err(|e| IoError::from_std(IoOp::List, root, &e).with_context(e))
            })
            .await
            .map_err(|e| StoreError::io(doing(), e))?;
        if let Some(path) = found {
            return Err(StoreError::illegal(format!(
                "Cannot delete block pool, it contains some block files: {} is there; use \
                        force to delete it with them",
                path.display()
            )));
        }
    }
    Ok(())
}

async fn remove_tree(volume: &Volume, root: &Path) -> Result<(), IoError> {
    match volume.meta(IoClass::Delete).remove_dir_all(root).await {
        Err(e) if e.kind() == IoErrorKind::NotFound => Ok(()),
        other => other,
    }
}
