//! What the stubs of a volume have of its device: found by a walk.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::Path;

use rustix::fs::getxattr;
use tracing::warn;

use super::free_units::{Extent, Room, UNIT};
use super::whose_device::HEADER;
use super::{DeviceId, PLAIN_SUFFIX, extents_attribute};
use crate::data_files::DEPTH_MAX;
use crate::engines::inode::{InodeFacts, InodeKey};
use crate::error::{IoError, IoOp};

/// Where a file system puts what it has no name for: nothing that the store finds.
const LOST_AND_FOUND: &str = "lost+found";

/// The device's units as the stubs name them.
#[derive(Debug)]
pub(super) struct Inventory {
    pub room: Room,
    /// Stubs that name units that another names too. What is on those is not written over.
    pub contested: HashSet<InodeKey>,
}

/// A walk under way.
struct Walk<'a> {
    device: &'a DeviceId,
    units: u64,
    room: Room,
    /// Who has an extent, by its first unit.
    owners: HashMap<u64, (InodeKey, Extent)>,
    seen: HashSet<InodeKey>,
    contested: HashSet<InodeKey>,
}

impl Inventory {
    /// Walks all directories below `root`.
    ///
    /// # Errors
    /// When a directory cannot be listed: units of what was not seen would be given out again.
    pub(super) fn of(root: &Path, device: &DeviceId, units: u64) -> Result<Self, IoError> {
        let mut walk = Walk {
            device,
            units,
            room: Room::new(HEADER / UNIT, units),
            owners: HashMap::new(),
            seen: HashSet::new(),
            contested: HashSet::new(),
        };
        walk.directory(root, 0)?;
        Ok(Self {
            room: walk.room,
            contested: walk.contested,
        })
    }
}

impl Walk<'_> {
    fn directory(&mut self, dir: &Path, depth: usize) -> Result<(), IoError> {
        let failed = |e: std::io::Error| IoError::from_std(IoOp::Other, dir, &e);
        if depth > DEPTH_MAX {
            return Err(failed(std::io::Error::other("directories too deep")));
        }
        for entry in fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() && entry.file_name() == LOST_AND_FOUND && depth == 0 {
                // Of the file system, which others than root may not read.
            } else if kind.is_dir() {
                self.directory(&entry.path(), depth + 1)?;
            } else if kind.is_file() && is_stub(&entry.path()) {
                self.file(&entry.path())?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path) -> Result<(), IoError> {
        let failed = |e: std::io::Error| IoError::from_std(IoOp::Open, path, &e);
        let file = File::open(path).map_err(failed)?;
        let facts = InodeFacts::of(&file).map_err(|e| failed(e.into()))?;
        if !self.seen.insert(facts.key) {
            return Ok(());
        }
        match extents_attribute::read(&file, self.device, self.units, facts.len) {
            Ok(extents) => {
                for extent in extents {
                    self.claim(path, facts.key, extent);
                }
            }
            // It has no place that can be trusted: reading it fails, and the replica is reported.
            Err(why) => warn!(path = %path.display(), why, "a stub cannot be read"),
        }
        Ok(())
    }

    fn claim(&mut self, path: &Path, key: InodeKey, extent: Extent) {
        if self.room.claim(extent) {
            self.owners.insert(extent.first, (key, extent));
            return;
        }
        warn!(path = %path.display(), first = extent.first, "two replicas name the same place on \
            the device");
        self.contested.insert(key);
        let (from, to) = (extent.first, extent.first + u64::from(extent.units));
        let others = self.owners.values();
        let others = others.filter(|(_, o)| o.first < to && from < o.first + u64::from(o.units));
        self.contested.extend(others.map(|(owner, _)| *owner));
        // What of it no other has is taken unit by unit: this stub names it.
        for first in from..to {
            self.room.claim(Extent { first, units: 1 });
        }
    }
}

/// Whether it is a replica's data, or was it under another name.
fn is_stub(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let has_place = || getxattr(path, extents_attribute::ATTRIBUTE, &mut [0_u8; 0][..]).is_ok();
    !name.ends_with(PLAIN_SUFFIX) && (name.starts_with("blk_") || has_place())
}
