//! Start-up: volumes that can be used, and the identity of the node.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hayloft_io::{IoClass, IoError, IoErrorKind, IoOp, Meta, is_of_the_disk, locks};
use tokio::sync::mpsc;
use tracing::{info, warn};
use uuid::Uuid;

use crate::background::space_watch::watch_space;
use crate::background::{directory_scanner, idle_files};
use crate::config::{StoreConfig, VolumeConfig, tolerated};
use crate::error::{StoreError, StoreErrorKind};
use crate::layout::dirs::{FILE_MODE, now_ms, pool_dirs};
use crate::layout::names::{CURRENT, VERSION};
use crate::layout::version::VolumeVersion;
use crate::lazy_persist;
use crate::service::whose_directories;
use crate::shared::StoreShared;
use crate::state::{StoreProtection, StoreState};
use crate::transitions::{check_volume, run_commit_rounds, volume_failure};
use crate::types::{FailedVolume, StorageInfo, StoreEvent};
use crate::volume::archive_share::SharedMount;
use crate::volume::stop_mark::Mark;
use crate::volume::unsynced::CommitRounds;
use crate::volume::{OpenedVolume, Volume};

/// How long a start waits for descriptors, memory or threads.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// So often a disk may say that the process lacks what it has; then it is the disk.
const OF_DISK_MAX: u32 = 3;

/// Opens the configured volumes. See [`Store::open`](crate::Store::open).
pub async fn open(
    config: StoreConfig,
    events: mpsc::Sender<StoreEvent>,
    shared: StoreShared,
    protection: Option<StoreProtection>,
) -> Result<Arc<StoreState>, StoreError> {
    let store = Arc::new(StoreState::new(config, events, shared, protection));
    let opened = open_volumes(&store).await?;
    check_tolerance(&store, opened.len())?;
    name_node(&store);
    for o in opened {
        let path = o.config.clone();
        match admit(&store, o).await {
            Ok(_) => {}
            Err(e) if e.kind() == StoreErrorKind::Retry => return Err(e),
            Err(e) => note_failure(&store, &path, &e),
        }
    }
    check_tolerance(&store, store.volumes().len())?;
    if let Some(protection) = &store.protection {
        protection.store_opened(&store).await?;
    }
    crate::transitions::delete::start_lanes(&store);
    crate::background::block_scanner::start(&store);
    crate::background::suspects::start(&store);
    let served = Arc::clone(&store);
    store.serve("directory scanner", move || {
        directory_scanner::run(Arc::clone(&served))
    });
    let served = Arc::clone(&store);
    store.serve("idle files", move || idle_files::run(Arc::clone(&served)));
    Ok(store)
}

/// Looks at the configured directories, and opens those that can be volumes of this node.
async fn open_volumes(store: &Arc<StoreState>) -> Result<Vec<OpenedVolume>, StoreError> {
    let looks = whose_directories::look_at_all(store).await;
    if let Some(identity) = whose_directories::whose(&looks)? {
        *store.identity() = identity;
    }
    whose_directories::recall(store, &looks);
    let attempts = looks.iter().map(|look| async {
        look.check(store)?;
        let opened = open_patiently(store, &look.config).await?;
        look.confirm(store, &opened)?;
        Ok::<_, StoreError>(opened)
    });
    let attempts = futures_util::future::join_all(attempts).await;
    let mut opened = Vec::new();
    for (look, attempt) in looks.iter().zip(attempts) {
        match attempt {
            Ok(o) => opened.push(o),
            // Nothing is wrong with the directory: to go on without it would hide a mistake.
            Err(e) if e.is_in_use() => return Err(e),
            // Nor is the volume to blame for what the process lacks.
            Err(e) if e.kind() == StoreErrorKind::Retry => return Err(e),
            Err(e) => note_failure(store, &look.config, &e),
        }
    }
    Ok(opened)
}

/// A node whose directories are all new gets a name.
fn name_node(store: &StoreState) {
    let mut identity = store.identity();
    if identity.datanode_uuid.is_empty() {
        identity.datanode_uuid = Uuid::new_v4().to_string();
    }
}

/// Opens a volume. While the process lacks something for that, it tries again for a while: what
/// was there before may be ending.
async fn open_patiently(
    store: &StoreState,
    volume: &VolumeConfig,
) -> Result<OpenedVolume, StoreError> {
    let until = Instant::now() + START_PATIENCE;
    let mut of_disk = 0;
    loop {
        match store.open_volume(volume).await {
            Err(error) if of_disk == OF_DISK_MAX && error.kind() == StoreErrorKind::Retry => {
                // Other directories are to be served all the same.
                return Err(StoreError::new(StoreErrorKind::Io, error.to_string()));
            }
            Err(error) if error.kind() == StoreErrorKind::Retry && Instant::now() < until => {
                warn!(volume = %volume.path.display(), %error, "opening a volume waits for what \
                    the process lacks");
                tokio::time::sleep(check_volume::LACKING).await;
                let means = error.io_error().and_then(IoError::lacks);
                of_disk += u32::from(means.is_some_and(is_of_the_disk));
            }
            outcome => return outcome,
        }
    }
}

fn note_failure(store: &StoreState, volume: &VolumeConfig, error: &StoreError) {
    warn!(volume = %volume.path.display(), %error, "volume cannot be used; going on without it if \
        that is tolerated");
    let failed = FailedVolume {
        path: volume.path.clone(),
        reason: error.to_string(),
        at: SystemTime::now(),
        capacity: 0,
    };
    locks::write(&store.volumes).failed.push(failed);
}

/// Reasons that the refusal of a start repeats; the log has all.
const REASONS: usize = 3;

/// Whether enough volumes are healthy to go on.
pub fn check_tolerance(store: &StoreState, healthy: usize) -> Result<(), StoreError> {
    let failures = volume_failure::summary(store);
    let failed = failures.reasons.len();
    if tolerated(store.tolerated_failures(), healthy, failed) {
        return Ok(());
    }
    let reasons = failures.reasons.iter().take(REASONS).map(String::as_str);
    let reasons: Vec<&str> = reasons.collect();
    let more = failed.saturating_sub(REASONS);
    Err(StoreError::new(
        StoreErrorKind::VolumeFailed,
        format!(
            "Too many failed volumes - current valid volumes: {healthy}, volumes failed: {failed}, \
             volume failures tolerated: {}; repair the directories or raise \
             dfs.datanode.failed.volumes.tolerated: {}{}",
            store.config.failed_volumes_tolerated,
            reasons.join("; "),
            if more > 0 {
                format!("; and {more} more")
            } else {
                String::new()
            }
        ),
    ))
}

/// Puts an opened volume into use. A new one is formatted as soon as the cluster is known.
pub async fn admit(
    store: &Arc<StoreState>,
    opened: OpenedVolume,
) -> Result<Arc<Volume>, StoreError> {
    let path = &opened.config.path;
    let doing = format!("opening volume {}", path.display());
    let meta = opened.engine.meta(IoClass::ClientWrite);
    let space = meta
        .space(path)
        .await
        .map_err(|e| StoreError::io(&doing, e))?;
    let mount = meta.mount_of(path).await.ok();
    let file_systems = &store.shared.file_systems;
    let name = match &mount {
        // Its space is that of its device.
        _ if opened.engine.capabilities().stubs => path.display().to_string(),
        _ if !file_systems.are_shared() => String::new(),
        // Parts of one file system that are mounted as several share its space all the same.
        Some(mount) if mount.source.starts_with("/dev/") => mount.source.clone(),
        _ => device_number(&meta, path)
            .await
            .map_err(|e| StoreError::io(&doing, e))?,
    };
    let file_system = file_systems.of(&name, space);
    let id = match &opened.version {
        Some(version) => version.storage_id.clone(),
        None => format!("DS-{}", Uuid::new_v4()),
    };
    let info = StorageInfo {
        id: id.into(),
        storage_type: opened.config.storage_type,
    };
    let mount = mount.filter(|_| !opened.engine.capabilities().stubs);
    let mount = mount.map(|mount| mount.point).unwrap_or_default();
    let volume = list(store, Volume::new(opened, info, mount, file_system))?;
    if volume.info.storage_type.is_transient() {
        lazy_persist::start(store);
    }
    let served = (Arc::clone(store), Arc::clone(&volume));
    store.serve("free space", move || {
        watch_space(Arc::clone(&served.0), Arc::clone(&served.1))
    });
    if let Err(error) = open_mark(store, &volume).await {
        volume.set_failed();
        volume_failure::remove_from_service(store, &volume);
        return Err(error);
    }
    if volume.doubt.is_some() {
        if let Err(error) = expect_pools(&volume).await {
            volume.set_failed();
            volume_failure::remove_from_service(store, &volume);
            return Err(StoreError::io(doing, error));
        }
        sync_earlier(store, &volume);
    }
    let served = (Arc::clone(store), Arc::clone(&volume));
    store.serve("commit rounds", move || {
        run_commit_rounds::run(Arc::clone(&served.0), Arc::clone(&served.1))
    });
    Ok(volume)
}

/// Notes which pools have replicas that may be damaged: the store looks at those of a pool when a
/// NameNode has it loaded, and not before.
async fn expect_pools(volume: &Volume) -> Result<(), IoError> {
    let meta = volume.meta(IoClass::ClientRead);
    let list = meta.run(IoOp::List, &volume.root, |root| {
        pool_dirs(root).map_err(|e| IoError::from_std(IoOp::List, root, &e))
    });
    volume.commits.expect_pools(list.await?);
    Ok(())
}

/// The number of the device, as the system tells file systems apart.
async fn device_number(meta: &Meta, path: &Path) -> Result<String, IoError> {
    use std::os::unix::fs::MetadataExt as _;
    let look = meta.run(IoOp::Stat, path, |path| {
        let facts = std::fs::metadata(path).map_err(|e| IoError::from_std(IoOp::Stat, path, &e))?;
        Ok(facts.dev().to_string())
    });
    look.await
}

/// Makes durable, in the background, what an earlier process wrote last: no commit round of this
/// one knows of it. The stamp stays until that is done.
fn sync_earlier(store: &Arc<StoreState>, volume: &Arc<Volume>) {
    let syncing = CommitRounds::verifying(volume);
    let (store, volume) = (Arc::clone(store), Arc::clone(volume));
    let tasks = store.tasks.clone();
    tasks.spawn(async move {
        let meta = volume.meta(IoClass::Replication).that_syncs(true);
        let data_files = meta.data_files();
        let synced = meta.run(IoOp::Sync, &volume.root, move |root| {
            let failed = |e| IoError::from_std(IoOp::Sync, root, &e);
            data_files.sync_device().map_err(failed)?;
            let dir = std::fs::File::open(root).map_err(failed)?;
            rustix::fs::syncfs(&dir).map_err(|e| failed(e.into()))
        });
        tokio::select! {
            // The mark stays open.
            () = store.stop.cancelled() => {}
            () = volume.gone.cancelled() => {}
            synced = synced => if let Err(error) = synced {
                warn!(volume = %volume.root.display(), %error, "cannot sync what was written \
                    before the last stop: the next start looks at it again");
                check_volume::suspect(&store, &volume, &error);
            } else {
                syncing.done();
            }
        }
    });
}

/// Adds a volume to those that are healthy, under the next number.
fn list(store: &StoreState, mut volume: Volume) -> Result<Arc<Volume>, StoreError> {
    let mut volumes = locks::write(&store.volumes);
    let index = volumes.next_index;
    let doing = format!("opening volume {}", volume.root.display());
    let Some(next_index) = index.checked_add(1) else {
        return Err(StoreError::illegal(format!(
            "{doing}: more volumes than can be numbered"
        )));
    };
    let known = |v: &&Arc<Volume>| v.info.id == volume.info.id;
    if let Some(same) = volumes.healthy.iter().find(known) {
        return Err(StoreError::incompatible(format!(
            "{doing}: its storageID {} is also that of {}: one is a copy of the other",
            volume.info.id,
            same.root.display()
        )));
    }
    let archive_share = store.config.archive_share;
    volume.shared_mount = SharedMount::find(archive_share, &volume, &volumes.healthy)
        .map_err(|what| StoreError::incompatible(format!("{doing}: {what}")))?;
    volumes.next_index = next_index;
    volume.index = index;
    let volume = Arc::new(volume);
    if let Some(shared) = &volume.shared_mount {
        shared.join(&volume);
    }
    volume.file_system.join(&volume);
    let StorageInfo { id, storage_type } = &volume.info;
    info!(volume = %volume.root.display(), storage = %id, kind = %storage_type, "volume in use");
    volumes.healthy.push(Arc::clone(&volume));
    Ok(volume)
}

/// Says, before anything is written to the volume, that it is in use.
async fn open_mark(store: &StoreState, volume: &Volume) -> Result<(), StoreError> {
    let eighth = store.config.page_cache / 8;
    volume.commits.limit_dirty(eighth);
    let since_ms = volume.doubt.map_or_else(now_ms, |doubt| doubt.since_ms);
    match (Mark::Open { since_ms }).write(volume).await {
        Ok(()) => Ok(()),
        // A full disk is a good one: without a mark nothing wrong is said of the last stop.
        Err(e) if e.kind() == IoErrorKind::NoSpace => Mark::remove(volume, &volume.root).await,
        Err(e) => Err(e),
    }
    .map_err(|e| {
        let doing = format!("marking volume {} as in use", volume.root.display());
        StoreError::io(doing, e)
    })
}

/// Writes the VERSION of a volume that has none. Called once the cluster is known.
pub async fn format_if_new(store: &StoreState, volume: &Volume) -> Result<(), StoreError> {
    let doing = format!("formatting volume {}", volume.root.display());
    let failed = |e| StoreError::io(&doing, e);
    let meta = volume.meta(IoClass::ClientWrite);
    let path = volume.root.join(CURRENT).join(VERSION);
    if meta.exists(&path).await.map_err(failed)? {
        return Ok(());
    }
    let version = {
        let identity = store.identity();
        VolumeVersion {
            storage_id: volume.info.id.to_string(),
            cluster_id: identity.cluster_id.clone(),
            ctime: 0,
            datanode_uuid: identity.datanode_uuid.clone(),
            stubs: volume.engine.capabilities().stubs,
        }
    };
    info!(volume = %volume.root.display(), cluster = version.cluster_id, "formatting new volume");
    meta.replace(&path, version.encode(SystemTime::now()), FILE_MODE)
        .await
        .map_err(failed)
}
