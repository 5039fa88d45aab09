//! Stub files: for engines whose bytes are not in the kernel's files.
//!
//! - `check`: whether the stubs of a volume and its device fit together
//! - `either_file`: a file of such a volume: a stub or an ordinary one
//! - `extents_attribute`: where the content of a stub is
//! - `free_units`: which units of a device are free
//! - `headers`: the first MiB of a device: its header, twice, and what the disk does not give of it
//! - `inventory`: what the stubs of a volume have of its device: found by a walk
//! - `stub_file`: an open stub: its content is on the device
//! - `whose_device`: whose a device is: its first bytes and a file in the volume's directory name
//!   each other
//!
//! The names of replicas stay files in the volume's directory, so that walks, renames, hard links
//! and deletes work as ever. Such a file is sparse and has its true length. An extended attribute
//! says where on the device its content is, and is set before the length grows. Files whose names
//! end in `.meta` are ordinary ones: checksums stay beside the names.
//!
//! **kill -9.** A write completes when the device has the bytes and the file its length.
//!
//! **Power loss.** A sync flushes the device, then syncs the file with its attribute. Units of the
//! device that a removed file had are given out again only after the file system of the directory
//! is durable: until then power loss may bring the file back. After a flush that failed, the next
//! sync of each file that was written before fails too.
//!
//! **Removal.** The content goes with the last name and the last open handle. [`Meta`] and
//! [`DataFiles`](crate::DataFiles) hold a handle while they remove or replace a name, so that none
//! is missed; what a crash leaves is found by the walk at the next start.
//!
//! [`Meta`]: crate::Meta

mod check;
mod either_file;
mod extents_attribute;
mod free_units;
mod headers;
mod inventory;
mod stub_file;
mod whose_device;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::inode::{InodeFacts, InodeKey};
use super::regular_file::{RegularFile, open_regular};
use crate::blocking_engine::{Blocking, BlockingEngine, Elsewhere};
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::locks;
use crate::space::Space;
use crate::types::{Capabilities, OpenMode, SyncKind};
use either_file::EitherFile;
use free_units::{Extent, UNIT};
use headers::Named;
use inventory::{Inventory, Unread};
use stub_file::{Stub, StubFile};
use whose_device::Adopted;

pub use check::DeviceCheck;
pub(super) use check::check;
pub use whose_device::must_have_device;

/// Random, the same in the device's first bytes, the directory, and each stub.
type DeviceId = [u8; 16];

/// Files with names that end so are ordinary ones.
const PLAIN_SUFFIX: &str = ".meta";
/// Closed files that wait for a flush, at most: then there is one.
const UNFLUSHED_MAX: usize = 1 << 16;
/// Units that have been given up are made free when there are as many: 1 GiB.
const LEAVING_MAX: u64 = (1 << 30) / UNIT;

fn crc(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(crc).expect("a CRC of 32 bits")
}

/// An engine over one device. See the [module](self).
#[derive(Debug)]
pub(super) struct Stubs<D: Blocking>(Arc<StubVolume<D>>);

#[derive(Debug)]
struct StubVolume<D: Blocking> {
    name: String,
    capabilities: Capabilities,
    device: D,
    /// The engine's disk is the device: its files are served in the order of their places.
    own_disk: bool,
    adopted: Adopted,
    /// Units of the device.
    units: u64,
    root: PathBuf,
    /// `None` until the first use. The directory's lock is held then: no other process changes
    /// stubs.
    inventory: Mutex<Option<Inventory>>,
    open: Mutex<HashMap<InodeKey, Weak<Stub>>>,
    /// Files that were closed before a flush covered their writes, with the flushes that had failed
    /// before. Held when `open` is held or alone.
    unflushed: Mutex<Unflushed>,
    flushes: Flushes,
    /// Held while what was given up is made free: others that want room wait for it.
    letting_go: Mutex<()>,
}

/// Files that were closed before a flush covered their writes.
#[derive(Debug, Default)]
struct Unflushed {
    /// Flushes that had failed before the first such write, and when it was put here.
    files: HashMap<InodeKey, (u64, u64)>,
    stamps: u64,
}

impl Unflushed {
    fn put(&mut self, key: InodeKey, since: u64) {
        self.stamps += 1;
        self.files.insert(key, (since, self.stamps));
    }
}

/// Flushes of the device: callers that wait share one.
#[derive(Debug, Default)]
struct Flushes {
    begun: AtomicU64,
    failed: AtomicU64,
    /// The last that succeeded; held during one.
    done: Mutex<u64>,
}

impl<D: Blocking> Stubs<D> {
    /// For the volume in `root`, with its content on `device`. `wipe`: whatever is there goes.
    /// `own_disk`: the engine's disk is the device, and not what the directory is on.
    ///
    /// # Errors
    /// `Invalid` in words for the operator; those of the device.
    pub(super) fn open(
        name: String,
        capabilities: Capabilities,
        device: D,
        root: &Path,
        wipe: bool,
        own_disk: bool,
    ) -> Result<Self, IoError> {
        let adopted = whose_device::adopt(&device, root, wipe)?;
        Ok(Self(Arc::new(StubVolume {
            name,
            capabilities: Capabilities {
                descriptor: false,
                keeps_data: true,
                stubs: true,
                ..capabilities
            },
            device,
            own_disk,
            units: adopted.size / UNIT,
            adopted,
            root: root.to_owned(),
            inventory: Mutex::default(),
            open: Mutex::default(),
            unflushed: Mutex::default(),
            flushes: Flushes::default(),
            letting_go: Mutex::default(),
        })))
    }
}

impl<D: Blocking> StubVolume<D> {
    /// Does `work` with what is known of the device's units. Walks the directory before the first.
    fn with_inventory<T>(&self, work: impl FnOnce(&mut Inventory) -> T) -> Result<T, IoError> {
        let mut known = locks::lock(&self.inventory);
        if known.is_none() {
            *known = Some(Inventory::of(
                &self.root,
                &self.adopted.id,
                self.units,
                Unread::Fails,
            )?);
        }
        Ok(work(known.as_mut().expect("just made")))
    }

    /// Takes up to `wanted` units that lie together.
    fn take(&self, wanted: u64, after: Option<u64>) -> Result<Option<Extent>, IoError> {
        let scarce = self.with_inventory(|i| i.room.ready_units() < wanted)?;
        if scarce {
            self.let_go()?;
        }
        self.with_inventory(|i| i.room.take(wanted, after))
    }

    /// Makes what was given up free, once no power loss brings its stubs back.
    fn let_go(&self) -> Result<(), IoError> {
        let _turn = locks::lock(&self.letting_go);
        let leaving = self.with_inventory(|i| i.room.leaving())?;
        if leaving.is_empty() {
            return Ok(());
        }
        let durable = std::fs::File::open(&self.root)
            .map_err(|e| IoError::from_std(IoOp::Open, &self.root, &e))
            .and_then(|root| {
                let synced = rustix::fs::syncfs(root);
                synced.map_err(|e| IoError::from_errno(IoOp::Sync, &self.root, e))
            });
        if let Err(error) = durable {
            self.with_inventory(|i| i.room.keep_leaving(leaving))?;
            return Err(error);
        }
        // A trim without an answer may still be carried out: those units are for no other stub.
        let trimmed = |extent: &Extent| {
            let (at, len) = (extent.first * UNIT, u64::from(extent.units) * UNIT);
            match self.device.trim(at, len) {
                Err(error) => error.kind() == IoErrorKind::Unsupported,
                Ok(()) => true,
            }
        };
        let (free, lost): (Vec<Extent>, Vec<Extent>) = leaving.into_iter().partition(trimmed);
        self.with_inventory(|i| {
            i.room.let_go(&free);
            lost.iter().for_each(|extent| i.room.lose(*extent));
        })
    }

    /// Notes that no stub names these any more.
    fn give_up(&self, extents: &[Extent]) -> Result<(), IoError> {
        let many = self.with_inventory(|i| {
            extents.iter().for_each(|e| i.room.give_up(*e));
            i.room.free_units() - i.room.ready_units() >= LEAVING_MAX
        })?;
        if many { self.let_go() } else { Ok(()) }
    }

    /// Flushes what the device was given before the call.
    fn flush(&self) -> Result<(), IoError> {
        let before = self.flushes.begun.load(Ordering::Acquire);
        let mut done = locks::lock(&self.flushes.done);
        // One that began after this call came has covered it.
        if *done > before {
            return Ok(());
        }
        let this = self.flushes.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let failed = self.flushes.failed.load(Ordering::Acquire);
        let newest = locks::lock(&self.unflushed).stamps;
        match self.device.sync(SyncKind::Data) {
            Ok(()) => {
                *done = this;
                let covered = |since: u64, stamp: u64| since == failed && stamp <= newest;
                let mut unflushed = locks::lock(&self.unflushed);
                unflushed
                    .files
                    .retain(|_, (since, stamp)| !covered(*since, *stamp));
                Ok(())
            }
            Err(error) => {
                self.flushes.failed.fetch_add(1, Ordering::AcqRel);
                Err(error)
            }
        }
    }

    fn open_stub(self: &Arc<Self>, path: &Path, mode: OpenMode) -> Result<StubFile<D>, IoError> {
        let (file, _) = open_regular(path, mode)?;
        // The file is damaged, not the device.
        let damaged = |why: String| IoError::new(IoErrorKind::Invalid, IoOp::Open, path, why);
        let mut open = locks::lock(&self.open);
        // Asked under the lock: until then another handle may write, and be closed.
        let facts = InodeFacts::of(&file);
        let facts = facts.map_err(|e| IoError::from_errno(IoOp::Open, path, e))?;
        let stub = match open.get(&facts.key).and_then(Weak::upgrade) {
            Some(stub) => stub,
            None => {
                let contested = self.with_inventory(|i| i.contested.contains(&facts.key))?;
                let extents =
                    extents_attribute::read(&file, &self.adopted.id, self.units, facts.len);
                let extents = extents.map_err(|why| damaged(why.to_string()))?;
                let stub = Stub::new(extents, facts.len, contested);
                let earlier = locks::lock(&self.unflushed).files.remove(&facts.key);
                stub.set_dirty_since(earlier.map(|(since, _)| since));
                let stub = Arc::new(stub);
                open.insert(facts.key, Arc::downgrade(&stub));
                stub
            }
        };
        drop(open);
        if stub.contested && mode != OpenMode::ReadOnly {
            let text = "another replica names the same place on the device: it can be read, and \
                        its checksums tell whether it is whole";
            return Err(damaged(text.into()));
        }
        Ok(StubFile {
            volume: Arc::clone(self),
            stub: Some(stub),
            file,
            key: facts.key,
            path: path.to_owned(),
            writable: mode != OpenMode::ReadOnly,
        })
    }

    /// A handle of the file is closed. The last one frees the content of a file without a name,
    /// and otherwise the room behind its end.
    fn closed(&self, file: &StubFile<D>, stub: Arc<Stub>) {
        let mut open = locks::lock(&self.open);
        // Counted under the lock: of several handles that are closed together one is the last.
        let Some(stub) = Arc::into_inner(stub) else {
            return;
        };
        open.remove(&file.key);
        let unnamed = InodeFacts::of(&file.file).is_ok_and(|facts| facts.links == 0);
        let many = match stub.dirty_since().filter(|_| !unnamed) {
            Some(since) => {
                let mut unflushed = locks::lock(&self.unflushed);
                unflushed.put(file.key, since);
                unflushed.files.len() > UNFLUSHED_MAX
            }
            None => false,
        };
        if stub.contested {
            return;
        }
        let extents = stub.leave(&file.file, &self.adopted.id, unnamed);
        drop(open);
        if many {
            // The next sync of each of them tells of an error.
            let _ = self.flush();
        }
        if !extents.is_empty() {
            // On an error the next start finds them.
            let _ = self.give_up(&extents);
        }
    }
}

impl<D: Blocking> BlockingEngine for Stubs<D> {
    type File = EitherFile<D>;

    fn name(&self) -> &str {
        &self.0.name
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<EitherFile<D>, IoError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(PLAIN_SUFFIX) {
            return Ok(EitherFile::Plain(Box::new(RegularFile::open(
                path, mode, None,
            )?)));
        }
        Ok(EitherFile::Stub(self.0.open_stub(path, mode)?))
    }

    fn elsewhere(&self) -> Option<Arc<dyn Elsewhere>> {
        Some(Arc::new(Self(Arc::clone(&self.0))))
    }
}

impl<D: Blocking> Elsewhere for Stubs<D> {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Box<dyn Blocking>, IoError> {
        Ok(Box::new(BlockingEngine::open(self, path, mode)?))
    }

    fn space(&self) -> Result<Space, IoError> {
        self.0.let_go()?;
        let free = self.0.with_inventory(|i| i.room.free_units())? * UNIT;
        Ok(Space {
            capacity: self.0.units * UNIT - headers::HEADER,
            free,
            available: free,
        })
    }

    fn sync(&self) -> Result<(), IoError> {
        self.0.flush()
    }

    fn damage(&self) -> Option<String> {
        locks::lock(&self.0.adopted.damage).clone()
    }

    fn probe(&self) -> Result<(), IoError> {
        let adopted = &self.0.adopted;
        let ours = Named {
            id: adopted.id,
            size: adopted.size,
        };
        let damage = headers::is_still(&self.0.device, &self.0.root, ours)?;
        *locks::lock(&adopted.damage) = damage;
        // Without it no stub can be opened.
        self.0.with_inventory(|_| ())?;
        whose_device::probe(&self.0.device, &self.0.root, || self.0.flush())
    }
}

#[cfg(test)]
mod adoption_tests;
#[cfg(test)]
mod attribute_tests;
#[cfg(test)]
mod tests;
