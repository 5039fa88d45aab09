//! The staging area of the store: finished at the start, made with the first pool, emptied at the end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hayloft_io::calibrate::Media;
use hayloft_io::staging::{
    Replayed, Root, SideShape, StageSpec, StagedFile, Staging, StagingConfig,
};
use hayloft_io::{EngineFile, IoError, IoErrorKind};
use hayloft_wire::checksum::DataChecksum;
use tracing::{info, warn};

use crate::error::{StoreError, StoreErrorKind};
use crate::inner::Inner;
use crate::replica::LiveReplica;
use crate::volume::Volume;

/// How long staged bytes of stopping writers may take to reach their files.
const CLOSE: Duration = Duration::from_secs(30);

/// On flash half quanta are written, three at a time: with two whole ones the disk is idle for a moment after each.
const CUTS_FLASH: usize = 2;

/// On flash nothing waits for a whole quantum while the disk has none of the replica: it would be idle.
const EAGER_FLASH: usize = 1 << 20;

/// Nor on rotating media while nobody else wants the disk, as at the beginning of a lone writer's block. As long as
/// the scheduler takes to be one of a stream, so that it waits for what follows.
const EAGER_ROTATING: usize = 4 << 20;

/// Longest name of an area that is taken from a node's uuid.
const NAME_MAX: usize = 64;

/// Where the area of this node is. Its name is the node's uuid, which all volumes agree on and which outlives a
/// change in their order. `None` without a directory.
fn config(inner: &Inner, usable: &[&Path]) -> Option<StagingConfig> {
    let options = &inner.config.staging;
    let dir = options.dir.clone()?;
    let uuid = inner.identity().datanode_uuid.clone();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let name: String = uuid.chars().filter(|c| plain(*c)).take(NAME_MAX).collect();
    let roots = inner.config.volumes.iter().map(|v| Root {
        path: std::path::absolute(&v.path).unwrap_or_else(|_| v.path.clone()),
        usable: usable.contains(&v.path.as_path()),
    });
    Some(StagingConfig {
        dir,
        name,
        budget: options.budget,
        roots: roots.collect(),
    })
}

/// Writes what a killed process acknowledged and had not written yet to the files of its replicas. Before anything
/// looks at them; the volumes are locked.
///
/// # Errors
/// `Incompatible` when the area cannot be read or trusted: to go on could lose acknowledged data.
pub async fn finish_earlier(inner: &Arc<Inner>, usable: &[&Path]) -> Result<(), StoreError> {
    let Some(config) = config(inner, usable) else {
        return Ok(());
    };
    let outcome = replay(move || Staging::finish_earlier(&config)).await;
    match outcome {
        Ok(_) => Ok(()),
        // Without the directory there is no area either.
        Err(e) if e.kind() == IoErrorKind::NotFound => Ok(()),
        // Whoever runs has closed the staging of volumes that left him: the locks on ours say that he has none of them.
        Err(e) if e.kind() == IoErrorKind::Locked => {
            warn!(error = %e, "another node with the uuid of this one is running");
            Ok(())
        }
        Err(e) => Err(StoreError::new(
            StoreErrorKind::Incompatible,
            format!("finishing the writes of an earlier process: {e}"),
        )),
    }
}

/// The same of what earlier starts kept of a volume that was not usable then and is put into use now.
///
/// # Errors
/// As of [`finish_earlier`].
pub async fn finish_kept(inner: &Arc<Inner>, root: &Path) -> Result<(), StoreError> {
    let Some(mut config) = config(inner, &[root]) else {
        return Ok(());
    };
    if config.roots.iter().all(|known| known.path != root) {
        config.roots.push(Root {
            path: root.to_owned(),
            usable: true,
        });
    }
    match replay(move || Staging::finish_kept(&config)).await {
        Err(e) if e.kind() != IoErrorKind::NotFound => Err(StoreError::new(
            StoreErrorKind::Incompatible,
            format!("finishing the writes of an earlier process: {e}"),
        )),
        _ => Ok(()),
    }
}

async fn replay(
    work: impl FnOnce() -> Result<Replayed, IoError> + Send + 'static,
) -> Result<Replayed, IoError> {
    let finished = tokio::task::spawn_blocking(work).await;
    finished.unwrap_or_else(|e| {
        let text = format!("the replay ended: {e}");
        let place = Path::new("staging");
        Err(IoError::new(
            IoErrorKind::Other,
            hayloft_io::IoOp::Other,
            place,
            text,
        ))
    })
}

/// Makes the area, once. Without one replicas are written without staging.
pub async fn start(inner: &Arc<Inner>) {
    let options = &inner.config.staging;
    if !options.enabled || inner.staging.get().is_some() {
        return;
    }
    let Some(config) = config(inner, &[]) else {
        return;
    };
    let made = tokio::task::spawn_blocking(move || Staging::create(&config)).await;
    match made {
        Ok(Ok(staging)) => {
            info!(area = %staging.path().display(), limit = options.budget, "staging");
            // Pools are added one at a time.
            if inner.staging.set(staging).is_ok() {
                let work = crate::abandoned::look_after(Arc::clone(inner));
                inner.tasks.spawn(work);
            }
        }
        Ok(Err(error)) => {
            warn!(%error, "no staging area: replicas are written without; check hayloft.staging.dir and its free space");
        }
        Err(error) => warn!(%error, "no staging area: replicas are written without"),
    }
}

/// Stages the files of a replica, when its engine keeps data in files (or nowhere) and its checksums fit.
pub fn stage(
    inner: &Inner,
    volume: &Volume,
    files: (&Arc<dyn EngineFile>, &Arc<dyn EngineFile>),
    checksum: DataChecksum,
    len: u64,
) -> Option<Arc<StagedFile>> {
    let capabilities = volume.engine.capabilities();
    if capabilities.keeps_data && !capabilities.survives_kill {
        return None; // Memory gains nothing.
    }
    let disk = volume.engine.disk();
    let quantum = usize::try_from(disk.quantum()).unwrap_or(usize::MAX);
    let flash = disk.media() == Media::Flash;
    let (cuts, eager, while_idle) = if flash {
        (CUTS_FLASH, EAGER_FLASH, None)
    } else {
        (1, EAGER_ROTATING, Some(Arc::clone(disk)))
    };
    inner.staging.get()?.stage(StageSpec {
        main: Arc::clone(files.0),
        side: Arc::clone(files.1),
        shape: SideShape {
            grain: checksum.bytes_per_checksum(),
            unit: u32::try_from(checksum.sum_size()).ok()?,
            base: checksum.meta_len(0),
        },
        len,
        synced: len,
        quantum,
        // Two quanta of rotating media are a burst already, and the page cache takes them by itself.
        burst: flash && inner.config.staging.burst && !capabilities.page_cache,
        cuts,
        eager: eager.min(quantum),
        while_idle,
    })
}

/// Whether bytes that were to be written are not in their files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// The disk has not taken some in time.
    pub late: bool,
    /// A write of some has failed.
    pub failed: bool,
}

impl Unwritten {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            late: self.late || other.late,
            failed: self.failed || other.failed,
        }
    }
}

/// Writes what is staged of replicas whose writers were told to stop; says what could not be.
pub async fn close_all(live: &[Arc<LiveReplica>]) -> Unwritten {
    let closes = live.iter().map(|live| async move {
        let mut unwritten = Unwritten::default();
        match tokio::time::timeout(CLOSE, live.close_staging()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                warn!(block = %live.block(), %error, "cannot write staged bytes");
                unwritten.failed = true;
            }
            Err(_) => {
                warn!(block = %live.block(), "the disk does not take staged bytes in time");
                unwritten.late = true;
            }
        }
        unwritten
    });
    let all = futures_util::future::join_all(closes).await;
    all.into_iter().fold(Unwritten::default(), Unwritten::and)
}
