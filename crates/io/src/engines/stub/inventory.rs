//! What the stubs of a volume have of its device: found by a walk.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;
use rustix::io::Errno;
use tracing::warn;

use super::extents_attribute::NoExtents;
use super::free_units::{Extent, Room, UNIT};
use super::headers::HEADER;
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
    pub tally: Tally,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Stubs, each once, whatever its names.
    pub stubs: u64,
    /// Bytes that they have.
    pub bytes: u64,
    /// Extents that they name.
    pub extents: u64,
    /// Stubs without a place that can be trusted, and why; the first [`UNUSABLE_MAX`].
    pub unusable: Vec<(PathBuf, String)>,
    /// How many there are.
    pub unusable_count: u64,
    /// Files and directories of which it is not known what they name, and why; the first
    /// [`UNUSABLE_MAX`].
    pub unread: Vec<(PathBuf, String)>,
    /// How many there are.
    pub unread_count: u64,
}

/// Unusable stubs that are remembered, and unread ones.
const UNUSABLE_MAX: usize = 1000;

/// What becomes of a walk that comes to a stub or a directory that it cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It fails: units of what was not seen would be given out again.
    Fails,
    /// It is noted: no unit is given out.
    IsNoted,
}

/// What a walk comes to: an open stub, or what it cannot read.
type Seen<'a> = Result<(&'a File, InodeFacts), IoError>;

/// A walk under way.
pub(super) struct Walk<'a> {
    device: &'a DeviceId,
    unread: Unread,
    units: u64,
    room: Room,
    /// Who has an extent, by its first unit.
    owners: HashMap<u64, (InodeKey, Extent)>,
    seen: HashSet<InodeKey>,
    contested: HashSet<InodeKey>,
    pub(super) tally: Tally,
}

impl Inventory {
    /// Walks all directories below `root`.
    ///
    /// # Errors
    /// When a directory or a stub cannot be read, where that [fails](Unread::Fails).
    pub(super) fn of(
        root: &Path,
        device: &DeviceId,
        units: u64,
        unread: Unread,
    ) -> Result<Self, IoError> {
        let mut walk = Walk::new(device, units, unread);
        each_stub(root, 0, &mut |path, seen| walk.file(path, seen))?;
        Ok(Self {
            room: walk.room,
            contested: walk.contested,
            tally: walk.tally,
        })
    }

    /// Names of stubs that name units which another names too, `most` at most.
    pub(super) fn contested_paths(&self, root: &Path, most: usize) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        let is_one = |seen: &Seen<'_>| {
            let facts = seen.as_ref().ok().map(|(_, facts)| facts);
            facts.is_some_and(|facts| self.contested.contains(&facts.key))
        };
        if !self.contested.is_empty() {
            // What cannot be read is not among them.
            let _ = each_stub(root, 0, &mut |path, seen| {
                if is_one(&seen) && paths.len() < most {
                    paths.push(path.to_owned());
                }
                Ok(())
            });
        }
        paths
    }
}

/// Opens each stub below `dir` and calls `work`; once for each of its names. Calls it too with what
/// cannot be read.
fn each_stub(
    dir: &Path,
    depth: usize,
    work: &mut dyn FnMut(&Path, Seen<'_>) -> Result<(), IoError>,
) -> Result<(), IoError> {
    let failed = |e: std::io::Error| IoError::from_std(IoOp::Other, dir, &e);
    if depth > DEPTH_MAX {
        return work(
            dir,
            Err(failed(std::io::Error::other("directories too deep"))),
        );
    }
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) => return work(dir, Err(failed(e))),
    };
    for entry in entries {
        let kind = entry.and_then(|entry| Ok((entry.file_type()?, entry)));
        let (kind, entry) = match kind {
            Ok(there) => there,
            Err(e) => {
                work(dir, Err(failed(e)))?;
                continue;
            }
        };
        let path = entry.path();
        if kind.is_dir() && entry.file_name() == LOST_AND_FOUND && depth == 0 {
            // Of the file system, which others than root may not read.
        } else if kind.is_dir() {
            each_stub(&path, depth + 1, work)?;
        } else if kind.is_file() {
            match open_stub(&path) {
                Ok(Some((file, facts))) => work(&path, Ok((&file, facts)))?,
                Ok(None) => {}
                Err(error) => work(&path, Err(error))?,
            }
        }
    }
    Ok(())
}

/// `None`: it is no stub.
fn open_stub(path: &Path) -> Result<Option<(File, InodeFacts)>, IoError> {
    if !is_stub(path)? {
        return Ok(None);
    }
    let failed = |e: std::io::Error| IoError::from_std(IoOp::Open, path, &e);
    let file = File::open(path).map_err(failed)?;
    let facts = InodeFacts::of(&file).map_err(|e| failed(e.into()))?;
    Ok(Some((file, facts)))
}

impl<'a> Walk<'a> {
    pub(super) fn new(device: &'a DeviceId, units: u64, unread: Unread) -> Self {
        Self {
            device,
            unread,
            units,
            room: Room::new(HEADER / UNIT, units),
            owners: HashMap::new(),
            seen: HashSet::new(),
            contested: HashSet::new(),
            tally: Tally::default(),
        }
    }

    /// Takes a stub's room.
    pub(super) fn file(&mut self, path: &Path, seen: Seen<'_>) -> Result<(), IoError> {
        let (file, facts) = match seen {
            Ok(there) => there,
            Err(error) => return self.unread(path, error),
        };
        if !self.seen.insert(facts.key) {
            return Ok(());
        }
        self.tally.stubs += 1;
        self.tally.bytes += facts.len;
        match extents_attribute::read(file, self.device, self.units, facts.len) {
            Ok(extents) => {
                self.tally.extents += extents.len() as u64;
                for extent in extents {
                    self.claim(path, facts.key, extent);
                }
            }
            Err(NoExtents::Unread(errno)) => {
                return self.unread(path, IoError::from_errno(IoOp::Open, path, errno));
            }
            // It has no place that can be trusted: reading it fails, and the replica is reported.
            Err(NoExtents::Damaged(why)) => {
                warn!(path = %path.display(), why, "a stub cannot be read");
                self.tally.unusable_count += 1;
                if self.tally.unusable.len() < UNUSABLE_MAX {
                    self.tally.unusable.push((path.to_owned(), why));
                }
            }
        }
        Ok(())
    }

    fn unread(&mut self, path: &Path, error: IoError) -> Result<(), IoError> {
        if self.unread == Unread::Fails {
            return Err(error);
        }
        self.tally.unread_count += 1;
        if self.tally.unread.len() < UNUSABLE_MAX {
            self.tally.unread.push((path.to_owned(), error.to_string()));
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
fn is_stub(path: &Path) -> Result<bool, IoError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(PLAIN_SUFFIX) || name.starts_with("blk_") {
        return Ok(!name.ends_with(PLAIN_SUFFIX));
    }
    match getxattr(path, extents_attribute::ATTRIBUTE, &mut [0_u8; 0][..]) {
        Ok(_) => Ok(true),
        // The node may read its own: what it may not is another's.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(IoError::from_errno(IoOp::Open, path, errno)),
    }
}
