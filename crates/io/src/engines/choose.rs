//! The engine for a directory: what the configuration names, or the next best that works there.

use std::fs::{self, OpenOptions};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::{Errno, pwrite};

use super::plugin::Plugin;
use super::stub::{self, DeviceCheck, Stubs};
use super::{EngineConfig, engine_by_name, on_threads, plugin_parts};
use crate::blocking_engine::BlockingEngine as _;
use crate::buffer::{ALIGNMENT, AlignedBuf};
use crate::disk::Media;
use crate::engine::Engine;
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::mount::mount_of;
use crate::types::OpenMode;

/// An engine that works in a directory.
#[derive(Debug)]
pub struct Choice {
    /// The engine; its name may differ from the one asked for.
    pub engine: Arc<dyn Engine>,
    /// Why it differs, and what to change; for the log.
    pub remark: Option<String>,
}

/// The engine called `name` for files under the existing directory `dir`, tried out there. Where
/// `direct` does not work, `posix` is taken; the remark says why.
///
/// Blocking: creates, writes and removes a file of one page in `dir` for `direct`.
///
/// # Errors
/// `Invalid` for an unknown name, and for a plug-in that cannot be used. Never because an engine of
/// ours does not work.
pub fn engine_for(name: &str, dir: &Path, config: &EngineConfig) -> Result<Choice, IoError> {
    if let Some((path, options)) = plugin_parts(name) {
        let (plugin, asked) = (Plugin::open(path, options, dir)?, name);
        let engine = if plugin.is_device() {
            let (name, can) = (plugin.name().to_owned(), plugin.capabilities());
            let device = plugin.open(dir, OpenMode::ReadWrite)?;
            let own_disk = block_device_of(asked).is_some();
            let stubs = Stubs::open(name, can, device, dir, config.wipe_device, own_disk)?;
            on_threads(stubs, config)
        } else {
            on_threads(plugin, config)
        };
        return Ok(Choice {
            engine,
            remark: None,
        });
    }
    if name != "direct" {
        let engine = engine_by_name(name, config)?;
        return Ok(Choice {
            engine,
            remark: None,
        });
    }
    if let Err(why) = probe_direct(dir) {
        let dir = dir.display();
        return Ok(Choice {
            engine: engine_by_name("posix", config)?,
            remark: Some(format!(
                "the engine direct cannot be used under {dir}: {why}; using posix instead \
                    (hayloft.io.engine.{dir} = posix silences this)"
            )),
        });
    }
    let mut config = config.clone();
    let remark = why_cached(dir, config.disk.media());
    if remark.is_some() {
        config.direct.write_min = usize::MAX;
    }
    let engine = engine_by_name(name, &config)?;
    Ok(Choice { engine, remark })
}

/// The block device that the options of a plug-in begin with, if `name` is one's: its bytes are
/// there, and not on the disk of the volume's directory. Blocking.
#[must_use]
pub fn block_device_of(name: &str) -> Option<&Path> {
    let (_, options) = plugin_parts(name)?;
    let device = Path::new(options.split_whitespace().next()?);
    let is_one = device.metadata().ok()?.file_type().is_block_device();
    is_one.then_some(device)
}

/// Compares the stubs of the volume in `dir` with the device of the plug-in `name`, as
/// [`engine_for`] has it. Changes nothing, but the plug-in opens its device as for a node: the
/// caller holds the lock of `dir`.
///
/// Blocking.
///
/// # Errors
/// `Invalid` for engines without a device, for a plug-in that cannot be used and for a directory
/// that no node has used; those of the directory and the device.
pub fn check_device(name: &str, dir: &Path) -> Result<DeviceCheck, IoError> {
    let without = || {
        let text = format!("the engine {name} has no device: there is nothing to check here");
        IoError::new(IoErrorKind::Invalid, IoOp::Open, dir, text)
    };
    let (path, options) = plugin_parts(name).ok_or_else(without)?;
    // Else a plug-in may take the device for the directory.
    stub::must_have_device(dir)?;
    let plugin = Plugin::open(path, options, dir)?;
    if !plugin.is_device() {
        return Err(without());
    }
    stub::check(&plugin.open(dir, OpenMode::ReadOnly)?, dir)
}

/// Why `direct` writes through the page cache under `dir`; `None` where it goes around it.
fn why_cached(dir: &Path, media: Media) -> Option<String> {
    if media == Media::Rotating {
        return Some(
            "writes go through the page cache, which a rotating disk gets them from in long runs"
                .to_owned(),
        );
    }
    let fs_type = mount_of(dir).ok()?.fs_type;
    let proven = matches!(fs_type.as_str(), "ext4" | "xfs");
    (!proven).then(|| {
        format!("writes go through the page cache: on {fs_type} nothing is gained around it")
    })
}

/// Distinguishes the files of probes at the same time.
static PROBES: AtomicU64 = AtomicU64::new(0);

/// Writes one page around the page cache, or says what is in the way.
fn probe_direct(dir: &Path) -> Result<(), String> {
    let fs_type = mount_of(dir).map_or_else(|_| "unknown".to_owned(), |m| m.fs_type);
    if matches!(fs_type.as_str(), "tmpfs" | "ramfs") {
        return Err(format!(
            "{fs_type} is memory and has nothing around its cache"
        ));
    }
    let count = PROBES.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".hayloft-probe.{}.{count}", std::process::id()));
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_DIRECT)
        .open(&path);
    // An open that fails with EINVAL may have created the file.
    let result = opened.and_then(|file| {
        let mut page = AlignedBuf::unpooled(ALIGNMENT);
        page.set_len(ALIGNMENT);
        match pwrite(file.as_fd(), page.as_slice(), 0) {
            Ok(_) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    });
    let _ = fs::remove_file(&path); // A leftover is harmless, empty or one page, and named as ours.
    let Err(error) = result else { return Ok(()) };
    match Errno::from_io_error(&error) {
        Some(Errno::INVAL | Errno::OPNOTSUPP) => Err(format!(
            "its file system ({fs_type}) does not take O_DIRECT; put the volume on ext4 or XFS"
        )),
        // A full or read-only volume says nothing about O_DIRECT; the engine copes with both.
        Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::ACCESS | Errno::PERM) => Ok(()),
        _ => Err(format!("a trial write failed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, DiskConfig};

    fn choose(name: &str, dir: &Path) -> Result<Choice, IoError> {
        let disk = Disk::for_path(dir, &DiskConfig::default()).expect("the directory exists");
        engine_for(name, dir, &EngineConfig::new(disk))
    }

    #[test]
    fn memory_file_systems_get_posix_and_a_remark() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
            println!("skipped: no /dev/shm here");
            return;
        };
        let choice = choose("direct", dir.path()).expect("a known name");
        assert_eq!(choice.engine.name(), "posix");
        let remark = choice.remark.expect("it differs");
        assert!(
            remark.contains("tmpfs") && remark.contains("hayloft.io.engine."),
            "{remark}"
        );
        let left = fs::read_dir(dir.path()).expect("readable").count();
        assert_eq!(left, 0, "the probe leaves nothing");
    }

    #[test]
    fn names_are_checked_and_plain_ones_are_not_probed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        assert!(choose("nonsense", dir.path()).is_err());
        let choice = choose("posix", dir.path()).expect("known");
        assert_eq!((choice.engine.name(), choice.remark), ("posix", None));
    }
}
