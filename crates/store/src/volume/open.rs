//! Opening a volume: its directory, its engine, its lock, its VERSION file.

use std::path::Path;
use std::sync::Arc;

use hayloft_io::calibrate::Calibration;
use hayloft_io::decorators::{IoMetrics, Metered, Sampling};
use hayloft_io::{
    Disk, Disks, ENGINE_AUTO, Engine, EngineConfig, IoClass, IoError, IoErrorKind, IoOp, Meta,
    RecordLock, block_device_of, engine_for, plugin_parts,
};
use tracing::{info, warn};

use super::OpenedVolume;
use super::stop_mark::Mark;
use crate::config::{StoreConfig, VolumeConfig};
use crate::error::{StoreError, StoreErrorKind};
use crate::layout::dirs::DIR_MODE;
use crate::layout::names::{CURRENT, IN_USE_LOCK, VERSION};
use crate::layout::version::{VERSION_BYTES_MAX, VolumeVersion};

/// Creates the directory if needed, locks it, opens its engine, reads its VERSION.
pub async fn open_volume(
    settings: &StoreConfig,
    disks: &Disks,
    sampling: &Arc<Sampling>,
    config: &VolumeConfig,
) -> Result<OpenedVolume, StoreError> {
    let root = &config.path;
    let doing = format!("opening volume {}", root.display());
    let failed = |e| StoreError::io(&doing, e);
    let mode = settings.perm;
    let made = tokio::task::spawn_blocking({
        let root = root.clone();
        move || prepare_root(&root, mode)
    });
    made.await
        .map_err(|e| StoreError::new(StoreErrorKind::Io, format!("{doing}: {e}")))?
        .map_err(|e| failed(IoError::from_std(IoOp::CreateDir, root, &e)))?;
    let calibration = match (read_calibration(root).await, &config.calibrated_in) {
        (None, Some(elsewhere)) => read_calibration(elsewhere).await,
        (own, _) => own,
    };
    let disk_config = settings.disk.config(calibration.as_ref());
    // A plug-in that hangs takes the threads of its disk: no other volume may be on them.
    let disk = match (
        block_device_of(&config.engine),
        plugin_parts(&config.engine),
    ) {
        // What was calibrated is what the directory is on.
        (Some(device), _) => Disk::for_path(device, &settings.disk.config(None)),
        (None, Some(_)) => Disk::for_path(root, &disk_config),
        (None, None) => disks.for_path(root, &disk_config),
    };
    let disk = disk.map_err(failed)?;
    let mut engine_config = EngineConfig::new(disk);
    engine_config.direct.cache_client_reads = settings.cache_client_reads;
    let (lock, engine) = open_engine(settings, config, calibration.as_ref(), engine_config).await?;
    #[cfg(any(test, feature = "faults"))]
    let engine = with_faults(settings, root, engine);
    let metrics = Arc::new(IoMetrics::sampled(Arc::clone(sampling)));
    let engine: Arc<dyn Engine> = Arc::new(Metered::new(engine, Arc::clone(&metrics)));
    let meta = engine.meta(IoClass::ClientWrite);
    let version = match meta
        .read_small(&root.join(CURRENT).join(VERSION), VERSION_BYTES_MAX)
        .await
    {
        Ok(bytes) => Some(VolumeVersion::parse(&bytes).map_err(|e| {
            StoreError::incompatible(format!("{doing}: {VERSION} cannot be used: {e}"))
        })?),
        Err(e) if e.kind() == IoErrorKind::NotFound => None,
        Err(e) => return Err(failed(e)),
    };
    fits(&engine, version.as_ref())
        .map_err(|why| StoreError::incompatible(format!("{doing}: {why}")))?;
    let look = meta.run(IoOp::Stat, root, |root| Ok(Mark::doubt(root)));
    let doubt = look.await.map_err(failed)?;
    Ok(OpenedVolume {
        config: config.clone(),
        engine,
        metrics,
        lock,
        version,
        doubt,
    })
}

/// Locks the volume's directory and opens its engine: one that opens a device touches none of a
/// node that has the directory.
async fn open_engine(
    settings: &StoreConfig,
    config: &VolumeConfig,
    calibration: Option<&Calibration>,
    engine_config: EngineConfig,
) -> Result<(RecordLock, Arc<dyn Engine>), StoreError> {
    let doing = format!("opening volume {}", config.path.display());
    let opened = async {
        let note = format!("{}@{}", std::process::id(), host_name());
        let meta = Meta::new(Arc::clone(&engine_config.disk), IoClass::ClientWrite);
        let lock = meta.lock(&config.path.join(IN_USE_LOCK), note).await?;
        choose_engine(config, calibration, engine_config, lock).await
    };
    // A plug-in, or a disk, may give no answer: the other volumes do not wait for it for ever.
    match tokio::time::timeout(settings.check_timeout, opened).await {
        Ok(opened) => opened.map_err(|e| match e.kind() {
            IoErrorKind::Locked => StoreError::in_use(&doing, e),
            _ => StoreError::io(&doing, e),
        }),
        Err(_) => {
            let seconds = settings.check_timeout.as_secs();
            let text = format!("{doing}: its engine gives no answer within {seconds} s");
            Err(StoreError::new(StoreErrorKind::Io, text))
        }
    }
}

/// Whether the engine keeps the bytes where the volume has them.
fn fits(engine: &Arc<dyn Engine>, version: Option<&VolumeVersion>) -> Result<(), String> {
    let (name, stubs) = (engine.name(), engine.capabilities().stubs);
    match version {
        Some(version) if version.stubs && !stubs => Err(format!(
            "its blocks are on a device, which {name} does not read: name the engine that wrote \
             them in hayloft.io.engine"
        )),
        Some(version) if !version.stubs && stubs => Err(format!(
            "its blocks are in files, which {name} does not read: give {name} a new directory"
        )),
        _ => Ok(()),
    }
}

/// What `hayloft calibrate` wrote for the volume; one that cannot be used is named in the log.
async fn read_calibration(root: &Path) -> Option<Calibration> {
    let dir = root.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let calibration = Calibration::read(&dir);
        let found = calibration.as_ref().ok().and_then(Option::as_ref);
        let elsewhere = found.and_then(|found| found.measured_elsewhere(&dir));
        (calibration, elsewhere)
    });
    let (calibration, elsewhere) = read.await.ok()?;
    if let Some(why) = elsewhere {
        warn!(volume = %root.display(), why, "the calibration seems to be another disk's: if the \
            directory was copied, run \
            'hayloft calibrate' here");
    }
    match calibration {
        Ok(calibration) => calibration,
        Err(error) => {
            warn!(volume = %root.display(), %error, "going on as if the volume were not \
                calibrated");
            None
        }
    }
}

/// The engine of a volume of which nothing is said. It writes with the least work of the processor,
/// and does not push what is read out of the page cache (docs/decisions/0009-direct-by-default.md).
const UNCALIBRATED: &str = "direct";

/// The configured engine, or the next best that works in the volume's directory. The lock comes
/// back with it: an engine that is too late keeps the directory locked until it has answered.
async fn choose_engine(
    config: &VolumeConfig,
    calibration: Option<&Calibration>,
    engine_config: EngineConfig,
    lock: RecordLock,
) -> Result<(RecordLock, Arc<dyn Engine>), IoError> {
    let disk = Arc::clone(&engine_config.disk);
    let name = match (config.engine.as_str(), calibration) {
        (ENGINE_AUTO, Some(calibration)) => calibration.engine.clone(),
        (ENGINE_AUTO, None) => UNCALIBRATED.to_owned(),
        (name, _) => name.to_owned(),
    };
    let probe = move |root: &Path| Ok((lock, engine_for(&name, root, &engine_config)?));
    let (lock, choice) = disk
        .run(IoClass::ClientWrite, IoOp::Open, &config.path, probe)
        .await?;
    // Neither the operator nor a calibration named the engine that does not work there.
    let named = config.engine != ENGINE_AUTO || calibration.is_some();
    match choice.remark {
        Some(remark) if named => warn!(volume = %config.path.display(), "{remark}"),
        Some(remark) => info!(volume = %config.path.display(), "{remark}"),
        None => {}
    }
    if !choice.engine.capabilities().keeps_data {
        warn!(
            volume = %config.path.display(),
            engine = choice.engine.name(),
            "this engine keeps no data: what is written to the volume is lost"
        );
    }
    info!(
        volume = %config.path.display(),
        engine = choice.engine.name(),
        disk = disk.name(),
        media = ?disk.media(),
        quantum = disk.quantum(),
        calibrated = calibration.is_some(),
        "volume's way to its disk"
    );
    Ok((lock, choice.engine))
}

/// The engine under the faults of a test, when they are for this directory or one above it.
#[cfg(any(test, feature = "faults"))]
fn with_faults(settings: &StoreConfig, root: &Path, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
    use hayloft_io::decorators::Faulty;
    match &settings.faults {
        Some((path, faults)) if root.starts_with(path) => {
            Arc::new(Faulty::new(engine, Arc::clone(faults)))
        }
        _ => engine,
    }
}

/// Makes the directory and gives it the configured permission.
fn prepare_root(root: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(root)?;
    let there = std::fs::metadata(root)?.permissions().mode() & 0o777;
    if there != mode & 0o777 {
        std::fs::set_permissions(root, std::fs::Permissions::from_mode(mode))?;
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(DIR_MODE)
        .create(root.join(CURRENT))
}

/// The name of this host.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
