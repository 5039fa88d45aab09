//! The scan of an image: directories first, then the files, some millions at a time.
//!
//! An image has the inodes in one section and says in another which directory each is in. The two
//! are in different orders, and an image of a large cluster is larger than memory. So a pass takes
//! the files with the smallest numbers, as many as its table holds, and the next pass goes on from
//! there.

use std::cell::Cell;
use std::collections::HashMap;

use hayloft_wire::proto::fsimage::{DirEntry, Inode, InodeFile, InodeSection, InodeType};

use super::super::age::Cutoff;
use super::super::cold_directories::DirTree;
use super::super::scanned_file::{FileClass, ScannedFile};
use super::super::spool::{Spool, unspooled};
use super::directories::{self, ImageDirs, is_surely};
use super::file::{DIRECTORIES, INODES, Image};
use crate::error::CliError;

/// Files of one pass: 128 MiB of memory at most, while they are looked for.
const PASS_FILES: usize = 4 << 20;

/// Looks at all files below `path`, sums them up, and gives to `spool` those that are cold, or have
/// the policy COLD and were used. `told` hears how many bytes have been read and how many are to be
/// read as far as is known. None when `path` is no directory in the image.
///
/// # Errors
/// The image cannot be read or is damaged, the spool is full.
pub fn scan(
    image: &Image,
    path: &str,
    cutoff: Cutoff,
    cold_policy: u8,
    spool: Option<&mut Spool>,
    told: &dyn Fn(u64, u64),
) -> Result<Option<DirTree>, CliError> {
    Scan {
        image,
        cutoff,
        cold_policy,
        spool,
        told,
        read: Cell::new(0),
        whole: Cell::new(0),
        pass_files: PASS_FILES,
    }
    .run(path)
}

/// A scan under way.
pub(super) struct Scan<'a> {
    pub image: &'a Image,
    pub cutoff: Cutoff,
    pub cold_policy: u8,
    pub spool: Option<&'a mut Spool>,
    pub told: &'a dyn Fn(u64, u64),
    pub read: Cell<u64>,
    pub whole: Cell<u64>,
    pub pass_files: usize,
}

/// The files of one pass with their directories, and whether more are left.
struct Pass {
    files: Vec<(u64, u32)>,
    more: bool,
}

impl Scan<'_> {
    pub fn run(mut self, path: &str) -> Result<Option<DirTree>, CliError> {
        let inodes = self.image.section_len(INODES);
        let directories = self.image.section_len(DIRECTORIES);
        self.whole.set(self.image.bytes_to_read());
        let referred = directories::references(self.image)?;
        let dirs = ImageDirs::read(self.image, &referred, &|bytes| self.tell(bytes))?;
        let found = dirs.into_tree(self.image, path, self.cutoff, self.cold_policy)?;
        let Some((mut tree, numbers)) = found else {
            return Ok(None);
        };
        let mut from = 0;
        loop {
            let pass = self.files_from(from, &numbers, &referred)?;
            let Some(last) = pass.files.last().map(|(id, _)| *id) else {
                break;
            };
            self.classify(&pass, &mut tree)?;
            if !pass.more {
                break;
            }
            from = last.saturating_add(1);
            self.whole.set(self.whole.get() + inodes + directories);
        }
        tree.sum_up();
        Ok(Some(tree))
    }

    fn tell(&self, bytes: u64) {
        self.read.set(self.read.get() + bytes);
        (self.told)(self.read.get(), self.whole.get());
    }

    /// The files and links with the smallest numbers that are at least `from`, in that order.
    fn files_from(
        &self,
        from: u64,
        numbers: &HashMap<u64, u32>,
        referred: &[u64],
    ) -> Result<Pass, CliError> {
        let keep = self.pass_files.max(1);
        let mut files: Vec<(u64, u32)> = Vec::new();
        let (mut most, mut more) = (u64::MAX, false);
        let mut section = self.image.needed(DIRECTORIES)?;
        while let Some(bytes) = section.next_bytes()? {
            self.tell(bytes.len() as u64);
            let entry: DirEntry = section.decode(bytes)?;
            let Some(&dir) = numbers.get(&entry.parent()) else {
                continue;
            };
            for id in directories::children(self.image, &entry, referred)? {
                if id < from || numbers.contains_key(&id) {
                    continue;
                }
                if id > most {
                    more = true;
                    continue;
                }
                files.push((id, dir));
                if files.len() == 2 * keep {
                    most = smallest(&mut files, keep);
                    more = true;
                }
            }
        }
        if files.len() > keep {
            smallest(&mut files, keep);
            more = true;
        }
        files.sort_unstable();
        Ok(Pass { files, more })
    }

    /// Adds the files of a pass to their directories.
    fn classify(&mut self, pass: &Pass, tree: &mut DirTree) -> Result<(), CliError> {
        let image = self.image;
        let mut section = image.needed(INODES)?;
        let _head: InodeSection = section.head()?;
        while let Some(bytes) = section.next_bytes()? {
            self.tell(bytes.len() as u64);
            if is_surely(&bytes, InodeType::Directory) {
                continue;
            }
            let inode: Inode = section.decode(bytes)?;
            let Some(file) = &inode.file else { continue };
            let place = pass.files.binary_search_by_key(&inode.id, |(id, _)| *id);
            let Ok(place) = place else { continue };
            let dir = pass.files[place].1;
            let found = scanned(file, tree.at(dir).policy);
            if matches!(
                tree.add_file(dir, &found),
                FileClass::Cold | FileClass::Reread
            ) && let Some(spool) = &mut self.spool
            {
                let name = directories::name_of(image, &inode)?;
                let kept = spool.push(dir, &found, tree.used_ms(&found), name);
                kept.map_err(|error| unspooled(&error))?;
            }
        }
        Ok(())
    }
}

/// Keeps the `keep` smallest; returns the largest of them.
fn smallest(files: &mut Vec<(u64, u32)>, keep: usize) -> u64 {
    files.select_nth_unstable(keep - 1);
    files.truncate(keep);
    files[keep - 1].0
}

fn scanned(file: &InodeFile, dir_policy: u8) -> ScannedFile {
    let lengths = file.blocks.iter().map(|block| block.num_bytes());
    let own = u8::try_from(file.storage_policy_id()).unwrap_or(0);
    ScannedFile {
        len: lengths.fold(0, u64::saturating_add),
        modified_ms: file.modification_time(),
        accessed_ms: file.access_time(),
        policy: directories::inherited(own, dir_policy),
        open: file.file_uc.is_some(),
    }
}
