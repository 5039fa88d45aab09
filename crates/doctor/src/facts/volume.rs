//! What there is to know of a data directory, found by a process of its own, as its disk may hang.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use hayloft_io::calibrate::Calibration;
use hayloft_io::mount_of;
use rustix::fs::{Access, access, statvfs};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::disk::{DiskFacts, disks_of};
use crate::seen::{Looked, Texts, shown, text_if_any};

/// Entries of `current` that are looked at: VERSION and block pools.
const ENTRIES_MAX: usize = 100;
/// Length of runs whose measured rate counts, bytes.
const LONG_RUN: u64 = 16 << 20;

/// A data directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// Its path.
    pub dir: PathBuf,
    /// The directory itself; nothing where there is none.
    pub folder: Looked<Option<FolderFacts>>,
    /// The file system that it is on, or would be made on.
    pub mount: Looked<MountFacts>,
    /// Its devices.
    pub disks: Looked<Vec<DiskFacts>>,
    /// Its room.
    pub space: Looked<SpaceFacts>,
    /// What the file system counts of its own errors.
    pub errors: Texts,
    /// What `hayloft calibrate` measured there.
    pub calibration: Looked<Option<CalibrationFacts>>,
}

/// A directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderFacts {
    /// Where links lead.
    pub real: PathBuf,
    /// Its owner.
    pub uid: u32,
    /// `current/VERSION`.
    pub version: Option<String>,
    /// Block pools that it has.
    pub pools: Vec<String>,
    /// What a node remembers there of its storages.
    pub memory: Option<String>,
    /// Process of the node that holds it, which still runs.
    pub node: Option<u32>,
}

/// Where it is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFacts {
    /// Directory of the mount.
    pub point: PathBuf,
    /// Such as `ext4`.
    pub fs_type: String,
    /// What is mounted.
    pub source: String,
    /// Of the mount and of the file system.
    pub options: Vec<String>,
}

/// Room of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceFacts {
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes free for nodes.
    pub available: u64,
    /// Files in all; 0 where they are made as needed.
    pub files: u64,
    /// Files that can still be made.
    pub files_available: u64,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CalibrationFacts {
    /// Whether it moves heads.
    pub rotating: bool,
    /// Bytes a second of long runs, read and written.
    pub rates: [Option<f64>; 2],
    /// Why it is another file system's.
    pub elsewhere: Option<String>,
}

impl VolumeFacts {
    /// Looks at a directory. Blocking, and for ever where a disk hangs.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        // A directory that is not there yet is made on the file system of the one above it.
        let there = dir.ancestors().find(|path| path.exists());
        let there = there.unwrap_or(Path::new("/"));
        let mount = mount_of(there).map_err(|error| error.to_string());
        let mount = mount.map(|mount| MountFacts {
            point: mount.point,
            fs_type: mount.fs_type,
            source: mount.source,
            options: mount.options,
        });
        let disks = mount
            .clone()
            .and_then(|mount| disks_of(there, &mount.source));
        let errors = mount
            .as_ref()
            .map_or_else(|_| Texts::default(), |of| counted(&of.source));
        Self {
            dir: dir.to_owned(),
            folder: folder_of(dir),
            mount,
            disks,
            space: space_of(there),
            errors,
            calibration: calibration_of(dir),
        }
    }

    /// Its path, for messages.
    #[must_use]
    pub fn place(&self) -> String {
        self.dir.display().to_string()
    }
}

fn folder_of(dir: &Path) -> Looked<Option<FolderFacts>> {
    let meta = match fs::metadata(dir) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(shown(dir, &error)),
    };
    if !meta.is_dir() {
        return Err(format!("{} is not a directory", dir.display()));
    }
    // Where that is not allowed, neither is it for the node.
    let current = match fs::read_dir(dir).and_then(|_| fs::read_dir(dir.join("current"))) {
        Ok(current) => Some(current),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(shown(dir, &error)),
    };
    // To read it does not suffice.
    let used = [dir.to_owned(), dir.join("current")];
    for used in &used[..1 + usize::from(current.is_some())] {
        if access(used, Access::WRITE_OK | Access::EXEC_OK) == Err(Errno::ACCESS) {
            return Err(format!("{}: this user may not write there", used.display()));
        }
    }
    let pools = current.into_iter().flatten().flatten().take(ENTRIES_MAX);
    let pools = pools.filter_map(|entry| entry.file_name().into_string().ok());
    let lock = text_if_any(&dir.join("in_use.lock"))?.unwrap_or_default();
    let node = lock
        .split('@')
        .next()
        .and_then(|pid| pid.trim().parse().ok());
    let runs = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    Ok(Some(FolderFacts {
        real: fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned()),
        uid: meta.uid(),
        pools: pools.filter(|name| name.starts_with("BP-")).collect(),
        version: text_if_any(&dir.join("current/VERSION"))?,
        memory: text_if_any(&dir.join(".hayloft-storages"))?,
        node: node.filter(runs),
    }))
}

fn space_of(dir: &Path) -> Looked<SpaceFacts> {
    let of = statvfs(dir).map_err(|error| shown(dir, &error.into()))?;
    let bytes = |blocks: u64| blocks.saturating_mul(of.f_frsize);
    Ok(SpaceFacts {
        capacity: bytes(of.f_blocks),
        available: bytes(of.f_bavail),
        files: of.f_files,
        files_available: of.f_favail,
    })
}

/// ext4 keeps its errors in sysfs, by the name of its device.
fn counted(source: &str) -> Texts {
    let device = fs::canonicalize(source).unwrap_or_default();
    let files = ["errors_count", "first_error_time", "last_error_func"];
    device.file_name().map_or_else(Texts::default, |name| {
        Texts::read(&Path::new("/sys/fs/ext4").join(name), &files)
    })
}

fn calibration_of(dir: &Path) -> Looked<Option<CalibrationFacts>> {
    let read = Calibration::read(dir).map_err(|error| error.to_string())?;
    Ok(read.map(|measured| {
        let runs = || measured.runs.iter().filter(|run| run.run_bytes >= LONG_RUN);
        let best = |rates: &mut dyn Iterator<Item = f64>| rates.reduce(f64::max);
        CalibrationFacts {
            rotating: measured.media == hayloft_io::Media::Rotating,
            rates: [
                best(&mut runs().filter_map(|run| run.read_bytes_s)),
                best(&mut runs().filter_map(|run| run.write_bytes_s)),
            ],
            elsewhere: measured.measured_elsewhere(dir),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_directory_holds_and_what_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let folder = |name: &str| folder_of(&dir.path().join(name));
        assert_eq!(folder("none"), Ok(None));
        fs::write(dir.path().join("file"), "").expect("written");
        assert!(
            folder("file")
                .expect_err("a file")
                .ends_with("file is not a directory")
        );
        fs::create_dir_all(dir.path().join("data/current/BP-1-10.0.0.1-2")).expect("made");
        let folder = folder("data").expect("seen").expect("there");
        assert_eq!(folder.pools, ["BP-1-10.0.0.1-2"]);
    }
}
