//! The directories of an image, and how they are linked.

use std::collections::HashMap;

use bytes::Bytes;
use hayloft_wire::proto::fsimage::{
    DirEntry, Inode, InodeDirectory, InodeReference, InodeSection, InodeType, StringTableEntry,
    StringTableSection,
};

use super::super::age::Cutoff;
use super::super::cold_directories::DirTree;
use super::file::{DIRECTORIES, INODES, Image, REFERENCES, STRINGS};
use crate::error::CliError;

/// Number of the inode `/` (`INodeId.ROOT_INODE_ID`).
const ROOT_ID: u64 = 16_385;
/// Name of the attribute that holds a directory's storage policy, in name space SYSTEM.
const POLICY_ATTRIBUTE: &str = "hsm.block.storage.policy.id";
/// Bits of an attribute's number that are its name's.
const NAME_SHIFT: u32 = 6;
const NAME_MASK: u32 = (1 << 24) - 1;
/// "No directory" among the numbers of directories.
const NONE: u32 = u32::MAX;

/// A directory of the image, scanned or not.
#[derive(Debug)]
struct ImageDir {
    name: Box<str>,
    modified_ms: u64,
    /// 0 for none of its own.
    own_policy: u8,
    first_child: u32,
    next_sibling: u32,
}

/// All directories of an image.
#[derive(Debug, Default)]
pub struct ImageDirs {
    numbers: HashMap<u64, u32>,
    dirs: Vec<ImageDir>,
}

/// Numbers of inodes that references refer to, by the number of the reference.
pub fn references(image: &Image) -> Result<Vec<u64>, CliError> {
    let mut referred = Vec::new();
    if let Some(mut section) = image.section(REFERENCES)? {
        while let Some(reference) = section.next::<InodeReference>()? {
            referred.push(reference.referred_id());
        }
    }
    Ok(referred)
}

/// The inodes in an entry of the section of directories, those behind references too.
///
/// # Errors
/// The entry names a reference that is not there.
pub fn children<'a>(
    image: &Image,
    entry: &'a DirEntry,
    referred: &'a [u64],
) -> Result<impl Iterator<Item = u64> + use<'a>, CliError> {
    let known = |number: &u32| usize::try_from(*number).is_ok_and(|n| n < referred.len());
    if !entry.ref_children.iter().all(known) {
        return Err(image.damaged("a directory has a reference that is not there"));
    }
    let behind = entry.ref_children.iter();
    let behind = behind.filter_map(move |n| referred.get(usize::try_from(*n).ok()?));
    Ok(entry.children.iter().copied().chain(behind.copied()))
}

/// Whether an inode is of a type, as far as its first bytes tell; Hadoop writes the type first.
pub(super) fn is_surely(inode: &Bytes, kind: InodeType) -> bool {
    const TYPE_KEY: u8 = 1 << 3;
    let value = u8::try_from(kind as i32).unwrap_or(u8::MAX);
    inode.starts_with(&[TYPE_KEY, value])
}

/// A tree, and the number in it of each of its directories by their inode.
pub type NumberedTree = (DirTree, HashMap<u64, u32>);

impl ImageDirs {
    /// Reads and links all directories. `told` hears of the bytes of inodes read.
    pub fn read(image: &Image, referred: &[u64], told: &dyn Fn(u64)) -> Result<Self, CliError> {
        let attribute = policy_attribute(image)?;
        let mut all = Self::default();
        let mut section = image.needed(INODES)?;
        let head: InodeSection = section.head()?;
        let mut count: u64 = 0;
        while let Some(bytes) = section.next_bytes()? {
            count += 1;
            told(bytes.len() as u64);
            if is_surely(&bytes, InodeType::File) {
                continue;
            }
            let inode: Inode = section.decode(bytes)?;
            if let Some(dir) = &inode.directory {
                all.add(image, &inode, dir, attribute)?;
            }
        }
        if count != head.num_inodes() {
            let what = format!("it has {count} inodes of {}", head.num_inodes());
            return Err(image.damaged(&what));
        }
        all.link(image, referred)?;
        Ok(all)
    }

    fn add(
        &mut self,
        image: &Image,
        inode: &Inode,
        dir: &InodeDirectory,
        attribute: Option<u32>,
    ) -> Result<(), CliError> {
        let name = name_of(image, inode)?;
        let number = u32::try_from(self.dirs.len()).unwrap_or(NONE);
        if number == NONE {
            return Err(image.damaged("it has more directories than have numbers"));
        }
        self.dirs.push(ImageDir {
            name: name.into(),
            modified_ms: dir.modification_time(),
            own_policy: attribute.map_or(0, |attribute| policy_of(dir, attribute)),
            first_child: NONE,
            next_sibling: NONE,
        });
        self.numbers.insert(inode.id, number);
        Ok(())
    }

    /// Makes the lists of children. A directory that has a parent already would make a circle
    /// possible: such an image is refused.
    fn link(&mut self, image: &Image, referred: &[u64]) -> Result<(), CliError> {
        let mut linked = vec![false; self.dirs.len()];
        // The root has none, and is not given one.
        if let Some(root) = self.numbers.get(&ROOT_ID) {
            linked[*root as usize] = true;
        }
        let mut section = image.needed(DIRECTORIES)?;
        while let Some(entry) = section.next::<DirEntry>()? {
            let Some(&parent) = self.numbers.get(&entry.parent()) else {
                return Err(image.damaged("a directory that is not there has children"));
            };
            for id in children(image, &entry, referred)? {
                let Some(&child) = self.numbers.get(&id) else {
                    continue;
                };
                if std::mem::replace(&mut linked[child as usize], true) {
                    return Err(image.damaged("a directory has two parents"));
                }
                let first = &mut self.dirs[parent as usize].first_child;
                let next = std::mem::replace(first, child);
                self.dirs[child as usize].next_sibling = next;
            }
        }
        Ok(())
    }

    fn children_of(&self, dir: u32) -> impl Iterator<Item = u32> {
        let next = |number: u32| (number != NONE).then_some(number);
        let first = next(self.dirs[dir as usize].first_child);
        std::iter::successors(first, move |child| {
            next(self.dirs[*child as usize].next_sibling)
        })
    }

    /// The directory at `path`, and the policy that counts for it; none when there is no such one.
    fn find(&self, image: &Image, path: &str) -> Result<Option<(u32, u8)>, CliError> {
        let root = self.numbers.get(&ROOT_ID).copied();
        let mut at = root.ok_or_else(|| image.damaged("it has no root directory"))?;
        let mut policy = self.dirs[at as usize].own_policy;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let mut named = self
                .children_of(at)
                .filter(|child| &*self.dirs[*child as usize].name == name);
            let Some(found) = named.next() else {
                return Ok(None);
            };
            at = found;
            policy = inherited(self.dirs[at as usize].own_policy, policy);
        }
        Ok(Some((at, policy)))
    }

    /// The tree below `path`; none when there is no such directory.
    ///
    /// What no directory leads to (it was deleted, and only snapshots have it) is left out.
    pub fn into_tree(
        self,
        image: &Image,
        path: &str,
        cutoff: Cutoff,
        cold_policy: u8,
    ) -> Result<Option<NumberedTree>, CliError> {
        let Some((first, policy)) = self.find(image, path)? else {
            return Ok(None);
        };
        let modified_ms = self.dirs[first as usize].modified_ms;
        let mut tree = DirTree::new(path, policy, modified_ms, cutoff, cold_policy);
        let mut in_tree = vec![NONE; self.dirs.len()];
        in_tree[first as usize] = 0;
        let mut ahead = vec![first];
        while let Some(dir) = ahead.pop() {
            let number = in_tree[dir as usize];
            let policy = tree.at(number).policy;
            for child in self.children_of(dir) {
                let found = &self.dirs[child as usize];
                let own = inherited(found.own_policy, policy);
                let added = tree.add_dir(number, &found.name, own, found.modified_ms);
                in_tree[child as usize] = added.map_err(|what| image.damaged(&what))?;
                ahead.push(child);
            }
        }
        let numbers = self.numbers.into_iter();
        let numbers = numbers.map(|(id, dir)| (id, in_tree[dir as usize]));
        let numbers = numbers.filter(|(_, n)| *n != NONE).collect();
        Ok(Some((tree, numbers)))
    }
}

/// A policy of its own, or the one that its directory has.
pub fn inherited(own: u8, of_dir: u8) -> u8 {
    if own == 0 { of_dir } else { own }
}

/// The name of an inode; empty for `/`.
pub fn name_of<'a>(image: &Image, inode: &'a Inode) -> Result<&'a str, CliError> {
    std::str::from_utf8(inode.name()).map_err(|_| image.damaged("a name is not UTF-8"))
}

/// Number of the name of the policy attribute in this image; `None` when no directory has one.
fn policy_attribute(image: &Image) -> Result<Option<u32>, CliError> {
    let Some(mut section) = image.section(STRINGS)? else {
        return Ok(None);
    };
    let _head: StringTableSection = section.head()?;
    while let Some(entry) = section.next::<StringTableEntry>()? {
        if entry.str() == POLICY_ATTRIBUTE {
            return Ok(Some(entry.id() & NAME_MASK));
        }
    }
    Ok(None)
}

fn policy_of(dir: &InodeDirectory, attribute: u32) -> u8 {
    let attributes = dir.x_attrs.iter().flat_map(|all| &all.x_attrs);
    let mut policies = attributes
        .filter(|one| (one.name >> NAME_SHIFT) & NAME_MASK == attribute)
        .filter_map(|one| one.value.as_ref()?.first().copied());
    policies.next().unwrap_or(0)
}
