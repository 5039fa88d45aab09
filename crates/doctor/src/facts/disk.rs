//! What the kernel says of the devices under a directory, from the file system's down to the last
//! that it knows, through partitions, device mapper, RAID and loop devices.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

use crate::seen::{Looked, Texts, number, shown, text};

/// Devices below one directory that are looked at, at most.
const DISKS_MAX: usize = 64;

/// Files of a device in sysfs.
const FILES: [&str; 21] = [
    "queue/scheduler",
    "queue/read_ahead_kb",
    "queue/max_sectors_kb",
    "queue/max_hw_sectors_kb",
    "queue/rotational",
    "queue/write_cache",
    "queue/nr_requests",
    "cache_type",
    "ro",
    "device/model",
    "device/vendor",
    "device/ioerr_cnt",
    "device/iotmo_cnt",
    "device/iodone_cnt",
    "device/state",
    "md/degraded",
    "md/level",
    "md/sync_action",
    "dm/name",
    "dm/uuid",
    "loop/backing_file",
];

/// A block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFacts {
    /// The kernel's name, such as `sda`.
    pub name: String,
    /// Its files in sysfs that are there.
    pub texts: Texts,
    /// Drivers from it up to its bus, such as `sd`, `ata_piix`.
    pub drivers: Vec<String>,
    /// PCI numbers of the controller: vendor, device, vendor of the subsystem.
    pub pci: Option<[i64; 3]>,
    /// The file that it is made of.
    pub file: Option<Looked<FileFacts>>,
    /// Nothing of the kernel's is below it.
    pub lowest: bool,
}

/// The file of a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// Its length, bytes.
    pub len: u64,
    /// What it has on its file system, bytes.
    pub allocated: u64,
}

/// The devices under a directory whose file system was mounted from `source`. None for a file
/// system that has none.
///
/// # Errors
/// Why that cannot be told.
pub fn disks_of(dir: &Path, source: &str) -> Looked<Vec<DiskFacts>> {
    let of = fs::metadata(dir).map_err(|error| shown(dir, &error))?.dev();
    let (mut todo, mut seen) = (VecDeque::new(), BTreeSet::new());
    if major(of) != 0 {
        todo.push_back(device(of)?);
    } else if source.starts_with("/dev/") {
        // btrfs and the like give their files numbers without a device.
        let rdev = fs::metadata(source)
            .map_err(|e| shown(Path::new(source), &e))?
            .rdev();
        todo.push_back(device(rdev)?);
    }
    let mut found = Vec::new();
    while let Some(here) = todo.pop_front() {
        if found.len() >= DISKS_MAX || !seen.insert(here.clone()) {
            continue;
        }
        if here.join("partition").exists() {
            todo.extend(here.parent().map(Path::to_owned));
            continue;
        }
        let (disk, below) = look(&here);
        found.push(disk);
        todo.extend(below);
    }
    Ok(found)
}

/// Where sysfs has the device of this number.
fn device(number: u64) -> Looked<PathBuf> {
    let link = PathBuf::from(format!(
        "/sys/dev/block/{}:{}",
        major(number),
        minor(number)
    ));
    fs::canonicalize(&link).map_err(|error| shown(&link, &error))
}

/// A device, and those below it.
fn look(here: &Path) -> (DiskFacts, Vec<PathBuf>) {
    let mut texts = Texts::read(here, &FILES);
    // What a SCSI disk says of its own cache is in a folder with the disk's number.
    let cache = first_in(&here.join("device/scsi_disk")).map(|disk| disk.join("cache_type"));
    if let Some(cache) = cache {
        texts.add("device/cache_type", text(&cache));
    }
    let slaves = fs::read_dir(here.join("slaves"))
        .into_iter()
        .flatten()
        .flatten();
    let slaves = slaves.filter_map(|slave| fs::canonicalize(slave.path()).ok());
    let mut below: Vec<PathBuf> = slaves.collect();
    let file = texts.get("loop/backing_file").map(|file| {
        let path = Path::new(file);
        let meta = fs::metadata(path).map_err(|error| shown(path, &error))?;
        let on = if meta.is_file() {
            meta.dev()
        } else {
            meta.rdev()
        };
        below.extend(device(on).ok());
        Ok(FileFacts {
            len: meta.len(),
            allocated: meta.blocks().saturating_mul(512),
        })
    });
    let (drivers, pci) = controller(here);
    let disk = DiskFacts {
        name: name_of(here),
        lowest: below.is_empty(),
        texts,
        drivers,
        pci,
        file,
    };
    (disk, below)
}

/// Drivers from a device in sysfs upwards, and the numbers of the PCI device that carries it.
pub fn controller(here: &Path) -> (Vec<String>, Option<[i64; 3]>) {
    let (mut drivers, mut pci) = (Vec::new(), None);
    let start = fs::canonicalize(here.join("device"));
    let start = start.unwrap_or_else(|_| here.to_owned());
    for up in start
        .ancestors()
        .take_while(|up| up.starts_with("/sys/devices"))
    {
        if let Ok(driver) = fs::read_link(up.join("driver")) {
            drivers.push(name_of(&driver));
        }
        let numbers = ["vendor", "device", "subsystem_vendor"];
        let read = numbers.map(|name| text(&up.join(name)).ok().and_then(|text| number(&text)));
        if let ([Some(vendor), Some(device), Some(subsystem)], None) = (read, pci) {
            pci = Some([vendor, device, subsystem]);
        }
    }
    (drivers, pci)
}

fn first_in(dir: &Path) -> Option<PathBuf> {
    Some(fs::read_dir(dir).ok()?.next()?.ok()?.path())
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

impl DiskFacts {
    /// As messages and commands name it.
    #[must_use]
    pub fn node(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Whether heads move in it, as far as the kernel knows. Hypervisors leave that flag at its
    /// default, so that a virtual disk does not count as one.
    #[must_use]
    pub fn rotates(&self) -> bool {
        let made_up = ["vd", "xvd", "nbd", "loop", "ram", "zram", "dm-", "md"];
        let virtual_disk = made_up.iter().any(|prefix| self.name.starts_with(prefix));
        self.texts.get("queue/rotational") == Some("1") && !virtual_disk && !self.is_emulated()
    }

    /// Whether a hypervisor made it, by what it calls itself.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        let model = self.texts.get("device/model").unwrap_or_default();
        let model = model.to_ascii_uppercase();
        ["QEMU", "VBOX", "VMWARE", "VIRTUAL DISK"]
            .iter()
            .any(|mark| model.contains(mark))
    }
}
