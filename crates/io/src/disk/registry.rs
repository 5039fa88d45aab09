//! The disks of a process.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use super::{DeviceId, Disk, DiskConfig};
use crate::error::IoError;
use crate::locks;

/// One [`Disk`] per physical device; kept as long as it is used.
#[derive(Debug, Default)]
pub struct Disks(Mutex<HashMap<DeviceId, Weak<Disk>>>);

impl Disks {
    /// The disk under `path` (an existing file or directory), shared with every other path on the
    /// same physical device. A disk that is known already keeps its limits: the first volume on it
    /// decides. Blocking (a few stat calls).
    ///
    /// # Errors
    /// When `path` cannot be examined, or the threads cannot be started (`Retry`).
    pub fn for_path(&self, path: &Path, config: &DiskConfig) -> Result<Arc<Disk>, IoError> {
        let id = DeviceId::of_path(path)?;
        let mut known = locks::lock(&self.0);
        if let Some(disk) = known.get(&id).and_then(Weak::upgrade) {
            return Ok(disk);
        }
        let disk = Disk::new(id, config, path)?;
        known.retain(|_, disk| disk.strong_count() > 0);
        known.insert(id, Arc::downgrade(&disk));
        Ok(disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_on_one_device_share_a_disk() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let other = dir.path().join("other");
        std::fs::create_dir(&other).expect("a directory in it");
        let (disks, config) = (Disks::default(), DiskConfig::default());
        let a = disks.for_path(dir.path(), &config).expect("exists");
        let b = disks.for_path(&other, &config).expect("exists");
        assert!(Arc::ptr_eq(&a, &b));
        assert!(!a.name().is_empty());
        assert!(
            disks
                .for_path(&dir.path().join("missing"), &config)
                .is_err()
        );
    }
}
