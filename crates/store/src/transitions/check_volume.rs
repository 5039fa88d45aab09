//! Whether a volume can go on: errors of its disk are counted by their places, and checks decide.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hayloft_io::{IoError, is_of_the_disk, locks, told_if_broken};
use hayloft_wire::ids::PoolId;
use tracing::{error, warn};

use super::volume_failure::{fail, fail_in_turn};
use crate::config::tolerated;
use crate::error::{StoreError, StoreErrorKind};
use crate::layout::names::{self, ReplicaFile};
use crate::state::StoreState;
use crate::volume::{BlockPoolSlice, GoodCheck, Volume, probe_volume};

/// Takes note of an error that says that the medium or the file system is damaged, and checks the
/// volume in the background; it fails if the check fails.
pub fn suspect(store: &Arc<StoreState>, volume: &Arc<Volume>, error: &IoError) {
    if volume.is_failed() || store.stop.is_cancelled() {
        return;
    }
    note(store, volume, error);
    check_soon(store, volume);
}

/// Checks a volume in the background.
pub fn check_soon(store: &Arc<StoreState>, volume: &Arc<Volume>) {
    // One that waits for its turn serves all who ask meanwhile.
    if volume.check_waits.swap(true, Ordering::AcqRel) {
        return;
    }
    let (store, volume) = (Arc::clone(store), Arc::clone(volume));
    let tracker = store.tasks.clone();
    tracker.spawn(async move {
        // A panic does not keep later checks away.
        told_if_broken("check of a volume", check(&store, &volume)).await;
        volume.check_waits.store(false, Ordering::Release);
    });
}

/// Counts an error by its place, unless it is of another volume: what copies names both. Errors in
/// too many places have the volume given up.
fn note(store: &Arc<StoreState>, volume: &Arc<Volume>, error: &IoError) {
    let path = error.path();
    if !path.starts_with(&volume.root) {
        return;
    }
    let config = store.config.errors;
    let (places, new) = volume.errors.note(path, config.window);
    if !new {
        return;
    }
    warn!(volume = %volume.root.display(), %error, places, "an error of the disk: new replicas go \
        elsewhere for a while");
    if let Some((pool, id)) = replica_at(volume, path) {
        volume.errors.add_centre(pool, id);
    }
    volume.errors.changed.notify_one();
    if config.limit > 0 && places >= config.limit {
        let (store, volume) = (Arc::clone(store), Arc::clone(volume));
        let tracker = store.tasks.clone();
        tracker.spawn(async move { give_up(&store, &volume, places).await });
    }
}

/// The replica that a file belongs to.
fn replica_at(volume: &Volume, path: &Path) -> Option<(PoolId, i64)> {
    let name = path.file_name()?.to_str()?;
    let (ReplicaFile::Data(id) | ReplicaFile::Meta(id, _)) = names::parse(name)?;
    let slices = locks::read(&volume.slices);
    let slice = slices.iter().find(|s| path.starts_with(&s.paths.root))?;
    Some((slice.pool.clone(), id))
}

/// Fails a volume with errors in too many places, if the node may go on without it. Else it is
/// served as far as it can be read.
async fn give_up(store: &Arc<StoreState>, volume: &Arc<Volume>, places: usize) {
    let turn = store.failing.lock().await;
    if volume.is_failed() || store.stop.is_cancelled() {
        return;
    }
    let (healthy, failed) = {
        let volumes = locks::read(&store.volumes);
        let healthy = volumes.healthy.iter().filter(|v| !v.is_failed()).count();
        let failing = volumes.healthy.len() - healthy;
        (
            healthy.saturating_sub(1),
            volumes.failed.len() + failing + 1,
        )
    };
    let minutes = store.config.errors.window.as_secs().div_ceil(60);
    // What can be read of it is worth more than nothing.
    let protection = store.protection.as_ref();
    let spare = protection.is_none_or(|p| p.can_do_without(store, volume));
    if spare && tolerated(store.tolerated_failures(), healthy, failed) {
        let reason = format!("errors in {places} places within {minutes} minutes");
        fail_in_turn(store, volume, &reason, turn).await;
    } else if !volume.errors.is_told.swap(true, Ordering::Relaxed) {
        error!(volume = %volume.root.display(), places, minutes, "the disk has too many errors, \
            and the node may not go on without it (dfs.datanode.failed.volumes.tolerated, or data \
            without protection): it is served as far as it can be read. Exchange the disk");
    }
}

/// A volume that passed a check is taken to be good for this long: errors come in swarms.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// A check for which the process lacks something is made again after so long.
pub const LACKING: Duration = Duration::from_secs(1);

/// Looks of the block scanner at a replica for which the process lacks something. Then the next
/// pass looks at it: an engine may say so for ever.
pub const LOOKS_LACKED_MAX: u32 = 30;

/// Checks in a row for which a disk says that the process lacks what it has. Then it is the disk.
const LACKED_MAX: u32 = 3;

/// Checks a volume and fails it if the check fails or does not end in time. While a check runs,
/// others of the same volume wait for it and share its result.
pub async fn check(store: &Arc<StoreState>, volume: &Arc<Volume>) {
    let asked = Instant::now();
    let good_for = store.config.check_min_gap.min(GOOD_FOR);
    check_unless(store, volume, |last| last.ended + good_for > asked).await;
}

/// As [`check`], by a check that begins after `since`: what failed then may have been the last that
/// the disk did.
pub async fn check_since(store: &Arc<StoreState>, volume: &Arc<Volume>, since: Instant) {
    check_unless(store, volume, |last| last.began >= since).await;
}

async fn check_unless(
    store: &Arc<StoreState>,
    volume: &Arc<Volume>,
    suffices: impl Fn(&GoodCheck) -> bool,
) {
    let mut checked = volume.checked.lock().await;
    if volume.is_failed() || checked.as_ref().is_some_and(suffices) {
        return;
    }
    let limit = store.config.check_timeout;
    let mut lacked = 0;
    let reason = loop {
        let began = Instant::now();
        let slices = locks::read(&volume.slices).clone();
        match tokio::time::timeout(limit, probe_volume::check(volume)).await {
            Ok(Ok(())) => {
                let ended = Instant::now();
                *checked = Some(GoodCheck { began, ended });
                return;
            }
            // The check failed, not the volume.
            Ok(Err(error)) if lacked < LACKED_MAX && error.lacks().is_some() => tokio::select! {
                () = store.stop.cancelled() => return,
                () = volume.gone.cancelled() => return,
                () = tokio::time::sleep(LACKING) => {
                    let means = error.lacks().filter(|means| is_of_the_disk(*means));
                    lacked += u32::from(means.is_some());
                }
            },
            // A pool that left meanwhile took its directories with it.
            Ok(Err(_)) if !has_all(volume, &slices) => {}
            Ok(Err(error)) => break error.to_string(),
            Err(_) => break format!("no answer for {} s", limit.as_secs()),
        }
    };
    drop(checked);
    if !store.stop.is_cancelled() {
        fail(store, volume, &reason).await;
    }
}

/// Whether all of these pools are still on the volume.
fn has_all(volume: &Volume, slices: &[Arc<BlockPoolSlice>]) -> bool {
    let now = locks::read(&volume.slices);
    slices
        .iter()
        .all(|slice| now.iter().any(|there| Arc::ptr_eq(there, slice)))
}

/// Looks at a failed operation: when it suspects the volume, the volume is checked. Gives the
/// error back.
pub fn examine(store: &Arc<StoreState>, volume: &Arc<Volume>, error: StoreError) -> StoreError {
    if let Some(io) = error.io_error().filter(|e| e.kind().suspects_volume()) {
        suspect(store, volume, io);
    }
    if volume.is_failed() && error.kind() == StoreErrorKind::Io {
        return StoreError::new(StoreErrorKind::VolumeFailed, error.to_string());
    }
    error
}

/// Checks several volumes at the same time: one that hangs does not hold the others up.
pub async fn check_all(store: &Arc<StoreState>, volumes: &[Arc<Volume>]) {
    futures_util::future::join_all(volumes.iter().map(|v| check(store, v))).await;
}
