//! From a path to the physical device under it, by st_dev, the mount table and sysfs.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use super::media::Media;
use crate::error::{IoError, IoOp};
use crate::mount;

/// Layers of device mapper, partition and the like that are followed down, at most.
const LAYERS_MAX: usize = 8;

/// A device number; of the whole physical disk where that can be found out, else of what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceId {
    major: u32,
    minor: u32,
}

impl DeviceId {
    /// The device under an existing path, or the one that a block device's path names. Partitions
    /// become their disk; a mapped device with one device below becomes that; a file system that
    /// spans several, or none, stands for itself.
    ///
    /// # Errors
    /// When `path` cannot be examined.
    pub fn of_path(path: &Path) -> Result<Self, IoError> {
        let meta = fs::metadata(path).map_err(|e| IoError::from_std(IoOp::Stat, path, &e))?;
        let number = match meta.file_type().is_block_device() {
            true => meta.rdev(),
            false => meta.dev(),
        };
        let mut id = Self {
            major: major(number),
            minor: minor(number),
        };
        if id.major == 0
            && let Some(below) = Self::of_mount_source(path)
        {
            id = below;
        }
        Ok(id.physical())
    }

    /// File systems such as btrfs give their files anonymous device numbers, but are mounted from
    /// a device node.
    fn of_mount_source(path: &Path) -> Option<Self> {
        let source = mount::mount_of(path).ok()?.source;
        if !source.starts_with("/dev/") {
            return None;
        }
        let rdev = fs::metadata(&source).ok()?.rdev();
        (major(rdev) != 0).then(|| Self {
            major: major(rdev),
            minor: minor(rdev),
        })
    }

    fn physical(mut self) -> Self {
        for _ in 0..LAYERS_MAX {
            match self.below() {
                Some(below) => self = below,
                None => break,
            }
        }
        self
    }

    fn below(self) -> Option<Self> {
        let here = self.sysfs()?;
        if here.join("partition").exists() {
            return read_number_pair(&here.parent()?.join("dev"));
        }
        let mut slaves = fs::read_dir(here.join("slaves")).ok()?;
        let only = slaves.next()?.ok()?;
        if slaves.next().is_some() {
            return None;
        }
        read_number_pair(&only.path().join("dev"))
    }

    fn sysfs(self) -> Option<PathBuf> {
        fs::canonicalize(format!("/sys/dev/block/{}:{}", self.major, self.minor)).ok()
    }

    /// The kernel's name, or one made of the number.
    pub(super) fn name(self) -> String {
        self.sysfs()
            .and_then(|dir| dir.file_name().map(|n| n.to_string_lossy().into_owned()))
            .unwrap_or_else(|| format!("dev-{}:{}", self.major, self.minor))
    }

    /// What `queue/rotational` says; `None` without a block device.
    fn rotational(self) -> Option<bool> {
        let text = fs::read_to_string(self.sysfs()?.join("queue/rotational")).ok()?;
        Some(text.trim() == "1")
    }

    /// What the kernel says, without believing that a virtual disk rotates: hypervisors leave that
    /// flag at its default. A hard disk behind one needs `hayloft calibrate` or the key.
    pub(super) fn media(self) -> Media {
        let virtual_disk = ["vd", "xvd", "nbd", "loop", "ram", "zram"];
        let name = self.name();
        let rotates = self.rotational() == Some(true)
            && !virtual_disk.iter().any(|prefix| name.starts_with(prefix));
        if rotates {
            Media::Rotating
        } else {
            Media::Flash
        }
    }
}

/// Reads `major:minor` from a sysfs `dev` file.
fn read_number_pair(file: &Path) -> Option<DeviceId> {
    let text = fs::read_to_string(file).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(DeviceId {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}
