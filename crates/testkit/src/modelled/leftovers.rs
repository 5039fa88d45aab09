//! What a modelled disk occupies, written down so that the next process after a crash can undo it.
//!
//! Each disk has a directory under `/run/hayloft-modelled` with its record, which its owner keeps
//! locked as long as it lives: a record that can be locked is a leftover.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::error::{Result, TestkitError};
use crate::mounts::run;

/// Where the records are; gone after a reboot, as the mounts are.
const REGISTRY: &str = "/run/hayloft-modelled";
const RECORD: &str = "record.json";
/// Largest record that is read, bytes.
const RECORD_MAX: u64 = 64 << 10;

/// What is to be undone, as far as it came.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AccessRecord {
    /// The FUSE mount point.
    pub fuse: PathBuf,
    /// The backing file.
    pub backing: PathBuf,
    /// Where the file system is mounted.
    pub dir: PathBuf,
    /// Whether `dir` is ours to remove.
    pub dir_created: bool,
    /// The loop device, once there is one.
    pub loop_device: Option<PathBuf>,
    /// Its I/O scheduler before we chose another.
    pub scheduler: Option<String>,
}

/// A record of ours, locked.
#[derive(Debug)]
pub struct Owned {
    /// Its directory.
    home: PathBuf,
    _lock: File,
    /// What it says.
    pub record: AccessRecord,
}

impl Owned {
    /// Begins a record, with a directory for the FUSE mount point.
    ///
    /// # Errors
    /// [`TestkitError::File`] when `/run` cannot be written.
    pub fn begin(dir: &Path, backing: &Path) -> Result<Self> {
        std::fs::create_dir_all(REGISTRY).map_err(TestkitError::file("creating", REGISTRY))?;
        let home = tempfile::Builder::new()
            .prefix(&format!("{}-", std::process::id()))
            .tempdir_in(REGISTRY)
            .map_err(TestkitError::file("creating a directory in", REGISTRY))?
            .keep();
        let fuse = home.join("fuse");
        std::fs::create_dir(&fuse).map_err(TestkitError::file("creating", &fuse))?;
        let path = home.join(RECORD);
        let file = File::create(&path).map_err(TestkitError::file("creating", &path))?;
        file.try_lock()
            .map_err(|e| TestkitError::file("locking", &path)(e.into()))?;
        let owned = Self {
            home,
            _lock: file,
            record: AccessRecord {
                fuse,
                backing: backing.to_owned(),
                dir: dir.to_owned(),
                ..AccessRecord::default()
            },
        };
        owned.save()?;
        Ok(owned)
    }

    /// Writes the record down; before each step that it tells how to undo.
    ///
    /// # Errors
    /// [`TestkitError::File`] when it cannot be written.
    pub fn save(&self) -> Result<()> {
        let path = self.home.join(RECORD);
        let text = serde_json::to_vec_pretty(&self.record)
            .map_err(|e| TestkitError::Talk(format!("writing {}: {e}", path.display())))?;
        // The same inode, because it is the one that is locked.
        std::fs::write(&path, text).map_err(TestkitError::file("writing", &path))
    }

    /// Takes back the file system and the loop device; the FUSE mount must still answer.
    ///
    /// # Errors
    /// The first thing that could not be undone.
    pub fn undo_upper(&self) -> Result<()> {
        undo_upper(&self.record)
    }

    /// Takes back everything that is left and forgets the record.
    ///
    /// # Errors
    /// The first thing that could not be undone.
    pub fn undo_all(self) -> Result<()> {
        undo(&self.record, &self.home)
    }
}

/// Removes what owners that are gone left behind; returns the directories that were freed.
///
/// # Errors
/// [`TestkitError::File`] when the records cannot be listed. A leftover that cannot be undone is
/// reported in the result's second part and stays.
pub fn sweep() -> Result<(Vec<PathBuf>, Vec<TestkitError>)> {
    let (mut freed, mut stuck) = (Vec::new(), Vec::new());
    let entries = match std::fs::read_dir(REGISTRY) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((freed, stuck)),
        Err(error) => return Err(TestkitError::file("listing", REGISTRY)(error)),
    };
    for home in entries.flatten().map(|entry| entry.path()) {
        match leftover(&home) {
            Some((_lock, record)) => match undo(&record, &home) {
                Ok(()) => freed.push(record.dir),
                Err(error) => stuck.push(error),
            },
            None => continue,
        }
    }
    Ok((freed, stuck))
}

/// The record in `home`, if no process holds it any more.
fn leftover(home: &Path) -> Option<(File, AccessRecord)> {
    use std::io::Read as _;
    let mut file = File::open(home.join(RECORD)).ok()?;
    file.try_lock().ok()?;
    let mut text = Vec::new();
    file.by_ref().take(RECORD_MAX).read_to_end(&mut text).ok()?;
    Some((file, serde_json::from_slice(&text).ok()?))
}

fn undo(record: &AccessRecord, home: &Path) -> Result<()> {
    undo_upper(record)?;
    if is_mounted(&record.fuse) {
        run(Command::new("umount").arg("--lazy").arg(&record.fuse))?;
    }
    remove(&record.backing)?;
    std::fs::remove_dir(&record.fuse).map_err(TestkitError::file("removing", &record.fuse))?;
    std::fs::remove_dir_all(home).map_err(TestkitError::file("removing", home))
}

fn undo_upper(record: &AccessRecord) -> Result<()> {
    if is_mounted(&record.dir) {
        // A process that still uses it keeps it until it lets go, and gets errors from then on.
        if run(Command::new("umount").arg(&record.dir)).is_err() {
            run(Command::new("umount").arg("--lazy").arg(&record.dir))?;
        }
    }
    if let Some(device) = &record.loop_device
        && is_ours(device, &record.fuse)
    {
        if let Some(scheduler) = &record.scheduler {
            // Best effort: the next user of the device merely finds another scheduler.
            let _ = std::fs::write(queue(device).join("scheduler"), scheduler);
        }
        run(Command::new("losetup").arg("--detach").arg(device))?;
    }
    if record.dir_created && !is_mounted(&record.dir) {
        // Not empty means that another program put something there, which stays.
        let _ = std::fs::remove_dir(&record.dir);
    }
    Ok(())
}

fn remove(file: &Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(TestkitError::file("removing", file)(error))
        }
        _ => Ok(()),
    }
}

/// The sysfs directory of a loop device's queue.
pub fn queue(device: &Path) -> PathBuf {
    sysfs(device).join("queue")
}

fn sysfs(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

/// Whether the loop device is still over our file: its number may be another's by now.
fn is_ours(device: &Path, fuse: &Path) -> bool {
    let under = std::fs::read_to_string(sysfs(device).join("loop/backing_file"));
    under.is_ok_and(|under| Path::new(under.trim_end()).starts_with(fuse))
}

/// Whether something is mounted at exactly `point`, by the kernel's table (asking the mount itself
/// could wait for a dead one).
pub fn is_mounted(point: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let point = point
        .display()
        .to_string()
        .replace('\\', "\\134")
        .replace(' ', "\\040");
    table
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(point.as_str()))
}
