//! Taking volumes out of use and putting others in while the node runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hayloft_io::locks;
use tracing::{info, warn};

use crate::config::VolumeConfig;
use crate::error::{StoreError, StoreErrorKind};
use crate::found_at_start::Progress;
use crate::service::pool::{add_remove, volume_joins};
use crate::service::startup::admit;
use crate::service::whose_directories;
use crate::state::StoreState;
use crate::transitions::run_commit_rounds;
use crate::types::StartOption;
use crate::volume::Volume;
use crate::volume::stop_mark::Mark;

/// See [`Store::reconfigure_volumes`](crate::Store::reconfigure_volumes).
///
/// Volumes are added before others are removed: a node that moves to new disks is never without.
pub async fn reconfigure(
    store: &Arc<StoreState>,
    wanted: Vec<VolumeConfig>,
) -> Vec<(PathBuf, Result<(), StoreError>)> {
    let _changing = store.changing.lock().await;
    let present = store.volumes();
    let mut results = Vec::new();
    if wanted.is_empty() {
        let text = "No directory is specified: a node needs at least one volume";
        return vec![(PathBuf::new(), Err(StoreError::illegal(text)))];
    }
    *locks::lock(&store.configured) = wanted.iter().map(|config| config.path.clone()).collect();
    for config in &wanted {
        match present.iter().find(|v| v.root == config.path) {
            Some(same) if same.info.storage_type == config.storage_type => {}
            Some(other) => {
                let text = format!(
                    "Changing storage type is not allowed: {} is {} and cannot become {} while it \
                        is in use; take it out first",
                    config.path.display(),
                    other.info.storage_type,
                    config.storage_type
                );
                results.push((config.path.clone(), Err(StoreError::illegal(text))));
            }
            None => results.push((config.path.clone(), add(store, config).await)),
        }
    }
    forget_failures(store, &wanted);
    for volume in present {
        if !wanted.iter().any(|config| config.path == volume.root) {
            results.push((volume.root.clone(), remove(store, &volume).await));
        }
    }
    store.remember().await;
    results
}

/// Failures of directories that left the configuration, or that work again, are no longer told.
fn forget_failures(store: &StoreState, wanted: &[VolumeConfig]) {
    let mut volumes = locks::write(&store.volumes);
    let healthy: Vec<PathBuf> = volumes.healthy.iter().map(|v| v.root.clone()).collect();
    volumes.failed.retain(|f| {
        wanted.iter().any(|config| config.path == f.path) && !healthy.contains(&f.path)
    });
}

/// Puts a volume into use with all pools that are loaded.
async fn add(store: &Arc<StoreState>, config: &VolumeConfig) -> Result<(), StoreError> {
    let look = whose_directories::look_at(store, config).await;
    look.check(store)?;
    let opened = store.open_volume(config).await?;
    look.confirm(store, &opened)?;
    let volume = admit(store, opened).await?;
    crate::transitions::delete::start_lanes(store);
    crate::background::block_scanner::start(store);
    crate::background::suspects::start(store);
    let outcome = load_pools(store, &volume).await;
    if let Err(error) = &outcome {
        warn!(volume = %volume.root.display(), %error, "the new volume cannot be used");
        volume.set_failed();
        crate::transitions::volume_failure::take_out(store, &volume).await;
    }
    outcome
}

async fn load_pools(store: &Arc<StoreState>, volume: &Arc<Volume>) -> Result<(), StoreError> {
    let progress = Arc::new(Progress::default());
    for pool in store.pools() {
        let joining =
            volume_joins::add_slice(store, &pool, volume, StartOption::Regular, &progress).await?;
        pool.protection_known.store(false, Ordering::Release);
        volume_joins::adopt(store, &pool, joining).await;
        if let Some(protection) = &store.protection {
            protection.pool_loaded(store, &pool).await;
        }
        crate::transitions::volume_failure::leave_if_failed(store, volume);
    }
    let replicas = progress.replicas.load(Ordering::Relaxed);
    info!(volume = %volume.root.display(), replicas, "volume added");
    Ok(())
}

/// Takes a volume out of use. Its files stay as they are. Its writers are told to stop and get a
/// short while for it: the next owner finds the directory quiet.
async fn remove(store: &Arc<StoreState>, volume: &Arc<Volume>) -> Result<(), StoreError> {
    if store.volumes().len() <= 1 {
        let text = format!(
            "{}: the last volume cannot be taken out",
            volume.root.display()
        );
        return Err(StoreError::illegal(text));
    }
    volume.set_failed();
    add_remove::stop_writers_on(store, volume).await;
    let durable = tokio::select! {
        biased;
        () = store.ending.cancelled() => {
            let text = format!("{} is not taken out: the node stops", volume.root.display());
            return Err(StoreError::closed(text));
        }
        durable = leave_in_order(store, volume) => durable,
    };
    let closed = crate::transitions::volume_failure::take_out(store, volume).await;
    info!(volume = %volume.root.display(), "volume removed");
    let late = "what was written last may not be on its disk yet: sync its file system before you \
        detach it";
    let open = "its disk gives no answer: the directory cannot be put in again before that, or \
        before the node is started anew";
    let text = match (durable, closed) {
        (true, true) => return Ok(()),
        (false, true) => late.to_owned(),
        (true, false) => open.to_owned(),
        (false, false) => format!("{late}; {open}"),
    };
    let text = format!("{} was taken out, but {text}", volume.root.display());
    Err(StoreError::new(StoreErrorKind::Io, text))
}

/// Makes durable what was written to a volume that leaves; returns whether that came to its end.
/// A slow disk gets the time that a check of it may take.
///
/// The mark says so, unless recent replicas are still being verified: their stamp stays then, and
/// the next start on the directory verifies them anew.
async fn leave_in_order(store: &Arc<StoreState>, volume: &Arc<Volume>) -> bool {
    let at_ms = crate::layout::dirs::now_ms();
    let leave = async {
        let durable = run_commit_rounds::round(store, volume).await;
        if durable && let Err(error) = Mark::close(volume, at_ms).await {
            warn!(volume = %volume.root.display(), %error,
                    "cannot mark the volume as left in order: the next start on it verifies its \
                     newest replicas");
        }
        durable
    };
    let limit = store.config.check_timeout;
    tokio::time::timeout(limit, leave).await.unwrap_or(false)
}
