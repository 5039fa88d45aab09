//! Taking volumes out of use and putting others in while the node runs.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::config::VolumeConfig;
use crate::error::{StoreError, StoreErrorKind};
use crate::inner::Inner;
use crate::load::Progress;
use crate::open::{admit, adopt_identity, open_volume};
use crate::pools;
use crate::replica::LiveReplica;
use crate::staging::{Unwritten, close_all};
use crate::types::StartOption;
use crate::volume::Volume;

/// See [`Store::reconfigure_volumes`](crate::Store::reconfigure_volumes).
///
/// Volumes are added before others are removed: a node that moves to new disks is never without.
pub async fn reconfigure(
    inner: &Arc<Inner>,
    wanted: Vec<VolumeConfig>,
) -> Vec<(PathBuf, Result<(), StoreError>)> {
    let _changing = inner.changing.lock().await;
    let present = inner.volumes();
    let mut results = Vec::new();
    if wanted.is_empty() {
        let text = "No directory is specified: a node needs at least one volume";
        return vec![(
            PathBuf::new(),
            Err(StoreError::new(StoreErrorKind::Illegal, text)),
        )];
    }
    for config in &wanted {
        match present.iter().find(|v| v.root == config.path) {
            Some(same) if same.info.storage_type == config.storage_type => {}
            Some(other) => {
                let text = format!(
                    "Changing storage type is not allowed: {} is {} and cannot become {} while it is in use; take it out first",
                    config.path.display(),
                    other.info.storage_type,
                    config.storage_type
                );
                results.push((
                    config.path.clone(),
                    Err(StoreError::new(StoreErrorKind::Illegal, text)),
                ));
            }
            None => results.push((config.path.clone(), add(inner, config).await)),
        }
    }
    forget_failures(inner, &wanted);
    for volume in present {
        if !wanted.iter().any(|config| config.path == volume.root) {
            results.push((volume.root.clone(), remove(inner, &volume).await));
        }
    }
    results
}

/// Failures of directories that left the configuration, or that work again, are no longer told.
fn forget_failures(inner: &Inner, wanted: &[VolumeConfig]) {
    let mut volumes = inner
        .volumes
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    let healthy: Vec<PathBuf> = volumes.healthy.iter().map(|v| v.root.clone()).collect();
    volumes.failed.retain(|f| {
        wanted.iter().any(|config| config.path == f.path) && !healthy.contains(&f.path)
    });
}

/// Puts a volume into use with all pools that are loaded.
async fn add(inner: &Arc<Inner>, config: &VolumeConfig) -> Result<(), StoreError> {
    let opened = open_volume(inner, config).await?;
    adopt_identity(inner, opened.identity().into_iter())?;
    crate::staging::finish_kept(inner, &config.path).await?;
    let volume = admit(inner, opened).await?;
    crate::deletes::start_lanes(inner);
    crate::scan::start(inner);
    let outcome = load_pools(inner, &volume).await;
    if let Err(error) = &outcome {
        warn!(volume = %volume.root.display(), %error, "the new volume cannot be used");
        volume.set_failed();
        crate::failures::take_out(inner, &volume).await;
    }
    outcome
}

async fn load_pools(inner: &Arc<Inner>, volume: &Arc<Volume>) -> Result<(), StoreError> {
    let progress = Arc::new(Progress::default());
    for pool in inner.pools() {
        let joining =
            pools::add_slice(inner, &pool, volume, StartOption::Regular, &progress).await?;
        pools::adopt(inner, &pool, joining).await;
        crate::failures::leave_if_failed(inner, volume);
    }
    let replicas = progress.replicas.load(Ordering::Relaxed);
    info!(volume = %volume.root.display(), replicas, "volume added");
    Ok(())
}

/// Takes a volume out of use. Its files stay as they are; its writers are told to stop and get a short while
/// to let go, so that whoever takes the directory next finds it quiet.
async fn remove(inner: &Arc<Inner>, volume: &Arc<Volume>) -> Result<(), StoreError> {
    if inner.volumes().len() <= 1 {
        let text = format!(
            "{}: the last volume cannot be taken out",
            volume.root.display()
        );
        return Err(StoreError::new(StoreErrorKind::Illegal, text));
    }
    volume.set_failed();
    let written = tokio::select! {
        biased;
        // It stays: the stop writes what is staged of all volumes, or keeps it for the next start.
        () = inner.ending.cancelled() => {
            let text = format!("{} is not taken out: the node stops", volume.root.display());
            return Err(StoreError::new(StoreErrorKind::Closed, text));
        }
        written = write_all(inner, volume) => written,
    };
    let closed = crate::failures::take_out(inner, volume).await;
    info!(volume = %volume.root.display(), "volume removed");
    let lost = "acknowledged bytes of replicas that were being written to it could not be written to its disk: these are lost on \
        this node; see its log";
    let open = "its disk gives no answer: the directory cannot be put in again before that, or before the node is started anew";
    let text = match (written, closed) {
        (true, true) => return Ok(()),
        (false, true) => lost.to_owned(),
        (true, false) => open.to_owned(),
        (false, false) => format!("{lost}; {open}"),
    };
    let text = format!("{} was taken out, but {text}", volume.root.display());
    Err(StoreError::new(StoreErrorKind::Io, text))
}

/// Stops the writers of a volume that leaves, and writes what is staged of its replicas; whether that came to its end. A
/// slow disk gets the time that a check of it may take, and one that gives no answer no more than that.
async fn write_all(inner: &Arc<Inner>, volume: &Arc<Volume>) -> bool {
    let until = Instant::now() + inner.config.check_timeout;
    loop {
        let round = async {
            pools::stop_writers_on(inner, volume).await;
            let mut unwritten = Unwritten::default();
            for pool in inner.pools() {
                let live = pools::live_replicas(&pool, Some(volume.index));
                unwritten = unwritten.and(close_all(&live).await);
            }
            unwritten
        };
        let Ok(unwritten) = tokio::time::timeout_at(until.into(), round).await else {
            warn!(volume = %volume.root.display(), "a volume that is to be taken out does not take what is staged for it in time");
            return !has_unwritten(inner, volume);
        };
        if !unwritten.late || Instant::now() >= until {
            return unwritten == Unwritten::default();
        }
        warn!(volume = %volume.root.display(), "a volume that is to be taken out has not taken what is staged for it yet; it gets more time");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Whether anything is staged for replicas of the volume that its files do not have.
fn has_unwritten(inner: &Inner, volume: &Volume) -> bool {
    let staged = |live: &Arc<LiveReplica>| live.status().staged.clone();
    inner.pools().iter().any(|pool| {
        let live = pools::live_replicas(pool, Some(volume.index));
        let mut staged = live.iter().filter_map(staged);
        staged.any(|staged| staged.unwritten_of_both() > 0)
    })
}
