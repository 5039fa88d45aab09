//! The process that models a disk: drive and FUSE threads here, everything that may wait for them
//! in child processes.
//!
//! A thread that waits in the kernel for an answer of its own process could never be killed, so
//! this process never touches the file system that it carries: `losetup`, `mkfs`, `mount` and
//! `umount` are programs of their own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use serde::{Deserialize, Serialize};

use super::drive::Drive;
use super::fuse::{DISK, DiskFile, STATS};
use super::leftovers::{Owned, is_mounted, queue};
use super::model::Params;
use super::stats::Stats;
use super::volatile::Volatile;
use crate::error::{Result, TestkitError};
use crate::mounts::{loop_device, run};

/// Smallest disk, bytes: an ext4 with a journal of useful size, and XFS's own limit.
pub const SIZE_MIN: u64 = 512 << 20;
/// Largest disk, bytes.
pub const SIZE_MAX: u64 = 16 << 40;

/// The file system on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostedFileSystem {
    /// ext4, as `mkfs.ext4` makes it, all of it written at once.
    Ext4,
    /// XFS, as `mkfs.xfs` makes it.
    Xfs,
    /// None: the disk is not mounted, others use its device or its file.
    Raw,
}

impl HostedFileSystem {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Raw => "raw",
        }
    }

    fn make(self, device: &Path) -> Result<()> {
        let mut command = Command::new(format!("mkfs.{}", self.name()));
        match self {
            Self::Raw => return Ok(()),
            // Nothing left to be written later, during a measurement.
            Self::Ext4 => command.args([
                "-q",
                "-F",
                "-E",
                "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
            ]),
            Self::Xfs => command.args(["-q", "-f", "-K"]),
        };
        run(command.arg(device))?;
        Ok(())
    }
}

/// A disk to be modelled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostedDisk {
    /// Its size, bytes; a multiple of 4096 is used.
    pub size: u64,
    /// The file system on it.
    pub file_system: HostedFileSystem,
    /// How it behaves.
    pub params: Params,
    /// Where it is mounted; created if it is not there.
    pub dir: PathBuf,
    /// The sparse file that holds its bytes; beside `dir` by default. Where it lies should be
    /// faster than the model.
    pub backing: Option<PathBuf>,
}

/// What a user of the disk needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostedPlace {
    /// Always true.
    pub modelled: bool,
    /// Where the file system is mounted.
    pub dir: PathBuf,
    /// The loop device.
    pub device: PathBuf,
    /// The file with the statistics.
    pub stats: PathBuf,
    /// How it behaves.
    pub params: Params,
    /// Its size, bytes.
    pub size: u64,
}

/// A disk carried by this process. [`stop`](Self::stop) takes everything down; so does dropping.
pub struct Carried {
    drive: Arc<Drive>,
    thread: Option<JoinHandle<()>>,
    session: Option<BackgroundSession>,
    owned: Option<Owned>,
    place: HostedPlace,
}

impl Carried {
    /// Mounts the disk. Needs root, FUSE and loop devices.
    ///
    /// # Errors
    /// [`TestkitError::Missing`] when something that it needs is not there, [`TestkitError::Talk`]
    /// when a parameter makes no sense, else what failed; what was set up by then is taken down.
    pub fn start(disk: &HostedDisk) -> Result<Self> {
        Self::begin(disk, None)
    }

    /// As [`Carried::start`], with a cache that loses what no flush followed.
    ///
    /// # Errors
    /// As [`Carried::start`].
    pub fn start_volatile(disk: &HostedDisk) -> Result<Self> {
        Self::begin(disk, Some(Volatile::default()))
    }

    fn begin(disk: &HostedDisk, cache: Option<Volatile>) -> Result<Self> {
        check(disk)?;
        let dir = absolute(&disk.dir)?;
        let backing = match &disk.backing {
            Some(backing) => absolute(backing)?,
            None => beside(&dir)?,
        };
        if is_mounted(&dir) {
            return Err(TestkitError::Talk(format!(
                "something is mounted at {} already",
                dir.display()
            )));
        }
        let size = disk.size / 4096 * 4096;
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&backing)
            .map_err(TestkitError::file("creating", &backing))?;
        let sized = file.set_len(size);
        let owned = sized
            .map_err(TestkitError::file("sizing", &backing))
            .and_then(|()| Owned::begin(&dir, &backing))
            .inspect_err(|_| {
                let _ = std::fs::remove_file(&backing);
            })?;
        let drive = Arc::new(Drive::new(disk.params, size, file));
        let mut carried = Self {
            place: HostedPlace {
                modelled: true,
                dir,
                device: PathBuf::new(),
                stats: owned.record.fuse.join(STATS),
                params: disk.params,
                size,
            },
            thread: None,
            session: None,
            owned: Some(owned),
            drive,
        };
        // From here on, dropping `carried` takes down what is there.
        carried.serve(cache)?;
        carried.attach()?;
        disk.file_system.make(&carried.place.device)?;
        carried.mount(disk.file_system)?;
        carried.drive.take_time(true);
        Ok(carried)
    }

    /// Where everything is.
    #[must_use]
    pub fn place(&self) -> &HostedPlace {
        &self.place
    }

    /// What the disk did so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.drive.stats()
    }

    /// Unmounts and removes everything; the last statistics.
    ///
    /// # Errors
    /// What could not be undone.
    pub fn stop(mut self) -> Result<Stats> {
        let stats = self.drive.stats();
        self.take_down()?;
        Ok(stats)
    }

    fn serve(&mut self, cache: Option<Volatile>) -> Result<()> {
        // Threads inherit it: while they write the backing file, memory is never reclaimed by
        // waiting for pages that they would have to write, and only their own device's
        // backlog slows them. Without the privilege the disk merely may stutter.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        let spun_up = self.drive.spin_up();
        self.thread = Some(spun_up.map_err(TestkitError::file("starting a thread for", DISK))?);
        let mut config = Config::default();
        config.acl = SessionACL::Owner;
        config.mount_options = vec![
            MountOption::FSName("hayloft-modelled-disk".into()),
            MountOption::Subtype("hayloft".into()),
        ];
        let fuse = self.fuse()?;
        let files = DiskFile::new(Arc::clone(&self.drive), cache);
        let session = Session::new(files, &fuse, &config).and_then(Session::spawn);
        self.session = Some(session.map_err(TestkitError::file("mounting FUSE at", fuse))?);
        let _ = rustix::process::configure_io_flusher_behavior(false);
        go_first();
        Ok(())
    }

    fn fuse(&self) -> Result<PathBuf> {
        let owned = self.owned.as_ref();
        owned
            .map(|owned| owned.record.fuse.clone())
            .ok_or_else(|| TestkitError::Talk("the modelled disk was taken down".into()))
    }

    /// A loop device over the FUSE file, with the queue of a SATA disk.
    fn attach(&mut self) -> Result<()> {
        let disk = self.fuse()?.join(DISK);
        let device = loop_device(&disk)?;
        self.place.device.clone_from(&device);
        let queue = queue(&device);
        let before = std::fs::read_to_string(queue.join("scheduler")).unwrap_or_default();
        if let Some(owned) = &mut self.owned {
            owned.record.loop_device = Some(device);
            owned.record.scheduler = chosen(&before);
            owned.save()?;
        }
        // What the kernel chooses for a SATA disk by itself. A request of the loop device becomes
        // one of FUSE.
        for (name, value) in [
            ("scheduler", "mq-deadline"),
            ("rotational", "1"),
            ("max_sectors_kb", "1024"),
            ("read_ahead_kb", "128"),
        ] {
            let path = queue.join(name);
            std::fs::write(&path, value).map_err(TestkitError::file("setting", path))?;
        }
        Ok(())
    }

    fn mount(&mut self, file_system: HostedFileSystem) -> Result<()> {
        if file_system == HostedFileSystem::Raw {
            return Ok(());
        }
        let dir = self.place.dir.clone();
        if !dir.exists() {
            std::fs::create_dir_all(&dir).map_err(TestkitError::file("creating", &dir))?;
            if let Some(owned) = &mut self.owned {
                owned.record.dir_created = true;
                owned.save()?;
            }
        }
        run(Command::new("mount")
            .args(["-t", file_system.name(), "-o", "noatime"])
            .arg(&self.place.device)
            .arg(dir))?;
        Ok(())
    }

    fn take_down(&mut self) -> Result<()> {
        // No client waits for what is written last.
        self.drive.take_time(false);
        let Some(owned) = self.owned.take() else {
            return Ok(());
        };
        let upper = owned.undo_upper();
        if let Some(session) = self.session.take() {
            // Unmounts FUSE; an error is met again, and told, when the record is undone.
            let _ = session.umount_and_join();
        }
        self.drive.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        upper.and_then(|()| owned.undo_all())
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        // Errors leave the record for a sweep.
        let _ = self.take_down();
    }
}

/// A disk does not wait for a processor: on a busy machine its threads go first, or the model would
/// not be what is measured. They sleep or copy, and children do not inherit it. Best effort; what
/// is late is counted.
fn go_first() {
    let _ = Command::new("chrt")
        .args(["--all-tasks", "--reset-on-fork", "--fifo", "--pid", "1"])
        .arg(std::process::id().to_string())
        .output();
}

fn check(disk: &HostedDisk) -> Result<()> {
    disk.params.check().map_err(TestkitError::Talk)?;
    if !(SIZE_MIN..=SIZE_MAX).contains(&disk.size) {
        return Err(TestkitError::Talk(format!(
            "the disk's size must be within {SIZE_MIN} and {SIZE_MAX} bytes, not {}",
            disk.size
        )));
    }
    match super::missing(disk.file_system) {
        Some(missing) => Err(missing),
        None => Ok(()),
    }
}

/// The scheduler in brackets: `[none] mq-deadline`.
fn chosen(schedulers: &str) -> Option<String> {
    let (_, rest) = schedulers.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn absolute(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).map_err(TestkitError::file("resolving", path))?;
    // The kernel's tables have it without links.
    match path.canonicalize() {
        Ok(real) => Ok(real),
        Err(_) => Ok(path),
    }
}

fn beside(dir: &Path) -> Result<PathBuf> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let parent = dir.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent).map_err(TestkitError::file("creating", parent))?;
    Ok(parent.join(format!(".{name}.modelled-disk")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_in_use_is_the_one_in_brackets() {
        assert_eq!(
            chosen("none [mq-deadline] kyber\n"),
            Some("mq-deadline".into())
        );
        assert_eq!(chosen("none"), None);
    }

    #[test]
    fn sizes_and_parameters_are_checked_before_anything_is_touched() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut disk = HostedDisk {
            size: 1,
            file_system: HostedFileSystem::Ext4,
            params: Params::default(),
            dir: dir.path().join("d"),
            backing: None,
        };
        assert!(Carried::start(&disk).is_err());
        disk.size = SIZE_MIN;
        disk.params.rpm = 0;
        assert!(Carried::start(&disk).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
    }
}
