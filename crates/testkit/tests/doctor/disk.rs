//! A small disk of a file, on which faults are planted.

use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::mounts::run;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of the disk: as few as XFS takes.
const SIZE: u64 = 320 << 20;

/// A loop device over a file that has all its room, with a file system on it.
#[derive(Debug)]
pub struct Disk {
    base: tempfile::TempDir,
    device: PathBuf,
}

impl Disk {
    /// With an ext4 that is mounted with these options.
    pub fn ext4(options: &str) -> Result<Self> {
        // Without `nodiscard` the file has holes again.
        let made = ["mkfs.ext4", "-qF", "-E", "nodiscard"];
        Self::made(&made, options, SIZE)
    }

    /// With an XFS.
    pub fn xfs(options: &str) -> Result<Self> {
        Self::made(&["mkfs.xfs", "-qfK"], options, SIZE)
    }

    /// With a file system of another command, and another size.
    pub fn made(mkfs: &[&str], options: &str, size: u64) -> Result<Self> {
        let base = scratch("doctor-disk-")?;
        let image = base.path().join("image");
        let file = File::create(&image).map_err(TestkitError::file("creating", &image))?;
        file.set_len(size)
            .map_err(TestkitError::file("sizing", &image))?;
        Self::on(base, &image, mkfs, options, Some(&file))
    }

    /// Over a file of another file system; nothing is allocated there.
    pub fn over(image: &Path, mkfs: &[&str], options: &str) -> Result<Self> {
        Self::on(scratch("doctor-disk-")?, image, mkfs, options, None)
    }

    fn on(
        base: tempfile::TempDir,
        image: &Path,
        mkfs: &[&str],
        options: &str,
        allocate: Option<&File>,
    ) -> Result<Self> {
        let device = run(Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image))?;
        let disk = Self {
            base,
            device: PathBuf::from(device.trim()),
        };
        run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&disk.device))?;
        if let Some(file) = allocate {
            let len = file
                .metadata()
                .map_err(TestkitError::file("looking at", image))?
                .len();
            fallocate(file, FallocateFlags::empty(), 0, len)
                .map_err(|error| TestkitError::file("allocating", image)(error.into()))?;
        }
        let data = disk.data();
        std::fs::create_dir_all(disk.mounted()).map_err(TestkitError::file("creating", &data))?;
        disk.mount(options)?;
        std::fs::create_dir_all(&data).map_err(TestkitError::file("creating", &data))?;
        Ok(disk)
    }

    fn mount(&self, options: &str) -> Result<()> {
        let mut mount = Command::new("mount");
        run(mount
            .args(["-o", options])
            .arg(&self.device)
            .arg(self.mounted()))
        .map(drop)
    }

    /// Mounts it anew with other options.
    pub fn remount(&self, options: &str) -> Result<()> {
        run(Command::new("umount").arg(self.mounted()))?;
        self.mount(options)
    }

    /// Where it is mounted.
    pub fn mounted(&self) -> PathBuf {
        self.base.path().join("mounted")
    }

    /// The data directory on it.
    pub fn data(&self) -> PathBuf {
        self.mounted().join("data")
    }

    /// The file that it is made of.
    pub fn image(&self) -> PathBuf {
        self.base.path().join("image")
    }

    /// Its name, such as `loop0`.
    pub fn name(&self) -> String {
        let name = self.device.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Writes to a file of the device's in sysfs; gives what it said before.
    pub fn set(&self, file: &str, value: &str) -> Result<String> {
        let path = Path::new("/sys/block").join(self.name()).join(file);
        let before = std::fs::read_to_string(&path);
        let before = before.map_err(TestkitError::file("reading", &path))?;
        std::fs::write(&path, value).map_err(TestkitError::file("writing", &path))?;
        let chosen = before
            .split_whitespace()
            .find_map(|word| word.strip_prefix('['));
        let chosen = chosen.map_or(before.trim(), |word| word.trim_end_matches(']'));
        Ok(chosen.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.mounted())
            .status();
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}
