//! The directories of a scan: what lies in each, and which are wholly cold.
//!
//! Memory grows with the directories, not with the files: each file is added to its directory's
//! sums and forgotten.

use super::age::Cutoff;
use super::scanned_file::{FileClass, FileSums, ScannedFile};

/// Most directories of a scan: their numbers have 32 bits, one of which says "none".
const DIRECTORIES_MAX: usize = u32::MAX as usize - 1;

/// Which wholly cold directories a plan takes as a whole: those without directories below, and with
/// no more than this in them. What is in the others comes file by file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafLimit {
    /// Cold files.
    pub files: u64,
    /// Their lengths, bytes.
    pub bytes: u64,
}

/// A directory of a scan.
#[derive(Clone, Debug)]
pub struct ScannedDir {
    /// Number of its parent; its own for the first.
    pub parent: u32,
    /// Its name; for the first the path of the scan.
    pub name: Box<str>,
    /// The policy that counts for it: its own or an inherited one; 0 for none.
    pub policy: u8,
    /// Names were added to it or removed since the cutoff.
    pub changed: bool,
    /// Something in it has a policy of its own other than COLD, so would not take one from it.
    pub foreign: bool,
    /// No directories are below it.
    pub leaf: bool,
    /// Files in it and, once summed up, below it.
    pub sums: FileSums,
    /// Every file below it is cold or settled, nothing changed, nothing is foreign; known once
    /// summed up.
    pub wholly_cold: bool,
}

/// The directories below one path. A directory's number is larger than its parent's.
#[derive(Debug)]
pub struct DirTree {
    dirs: Vec<ScannedDir>,
    cutoff: Cutoff,
    /// Number of the policy COLD.
    cold_policy: u8,
    /// Files that were accessed after their last change: only kept access times show that.
    read_later: u64,
    /// Which directories are taken as a whole; all that are wholly cold without it.
    leaf_limit: Option<LeafLimit>,
}

impl DirTree {
    /// A tree of the one directory `path`.
    pub fn new(path: &str, policy: u8, modified_ms: u64, cutoff: Cutoff, cold_policy: u8) -> Self {
        let first = ScannedDir {
            parent: 0,
            name: path.into(),
            policy,
            changed: modified_ms >= cutoff.at_ms,
            foreign: false,
            leaf: true,
            sums: FileSums::default(),
            wholly_cold: false,
        };
        Self {
            dirs: vec![first],
            cutoff,
            cold_policy,
            read_later: 0,
            leaf_limit: None,
        }
    }

    /// The same, with a rule on which directories are taken as a whole.
    pub fn limited(mut self, limit: Option<LeafLimit>) -> Self {
        self.leaf_limit = limit;
        self
    }

    /// The rule on which directories are taken as a whole.
    pub fn leaf_limit(&self) -> Option<LeafLimit> {
        self.leaf_limit
    }

    /// Adds a directory below another; returns its number.
    ///
    /// # Errors
    /// There are more directories than have numbers.
    pub fn add_dir(
        &mut self,
        parent: u32,
        name: &str,
        policy: u8,
        modified_ms: u64,
    ) -> Result<u32, String> {
        let number = u32::try_from(self.dirs.len())
            .ok()
            .filter(|_| self.dirs.len() < DIRECTORIES_MAX)
            .ok_or_else(|| format!("there are more than {DIRECTORIES_MAX} directories"))?;
        self.note_policy(parent, policy);
        self.at_mut(parent).leaf = false;
        self.dirs.push(ScannedDir {
            parent,
            name: name.into(),
            policy,
            changed: modified_ms >= self.cutoff.at_ms,
            foreign: false,
            leaf: true,
            sums: FileSums::default(),
            wholly_cold: false,
        });
        Ok(number)
    }

    /// Adds a file to a directory; says what it is.
    pub fn add_file(&mut self, dir: u32, file: &ScannedFile) -> FileClass {
        let class = self.classify(file);
        if file.accessed_ms > file.modified_ms {
            self.read_later += 1;
        }
        self.note_policy(dir, file.policy);
        let count = |is: bool| if is { (1, file.len) } else { (0, 0) };
        let (cold_files, cold_bytes) = count(class == FileClass::Cold);
        let settled = matches!(class, FileClass::Settled | FileClass::Reread);
        let (settled_files, settled_bytes) = count(settled);
        self.at_mut(dir).sums.add(&FileSums {
            files: 1,
            bytes: file.len,
            cold_files,
            cold_bytes,
            settled_files,
            settled_bytes,
        });
        class
    }

    fn classify(&self, file: &ScannedFile) -> FileClass {
        let cold = !file.open && self.cutoff.is_cold(file.modified_ms, file.accessed_ms);
        match (file.policy == self.cold_policy, cold) {
            (true, true) => FileClass::Settled,
            (true, false) => FileClass::Reread,
            (false, true) => FileClass::Cold,
            (false, false) => FileClass::Warm,
        }
    }

    /// When a file was last used, milliseconds since 1970.
    pub fn used_ms(&self, file: &ScannedFile) -> u64 {
        self.cutoff.used_ms(file.modified_ms, file.accessed_ms)
    }

    /// A policy that differs from the directory's is the child's own. One that is the same may be
    /// its own too: a listing does not tell. Then the child does not take the directory's new one,
    /// and the next scan finds it as a file of another policy.
    fn note_policy(&mut self, dir: u32, policy: u8) {
        if policy != self.at(dir).policy && policy != self.cold_policy {
            self.at_mut(dir).foreign = true;
        }
    }

    /// Adds up what lies below each directory, and finds the wholly cold ones. Once, at the end.
    pub fn sum_up(&mut self) {
        let mut spoilt = vec![false; self.dirs.len()];
        // Children before their parents.
        for i in (0..self.dirs.len()).rev() {
            let dir = &mut self.dirs[i];
            let wrong = spoilt[i] || dir.changed || dir.foreign || dir.sums.has_warm();
            dir.wholly_cold = !wrong && dir.sums.cold_files > 0;
            let (sums, parent) = (dir.sums, dir.parent as usize);
            if parent != i {
                self.dirs[parent].sums.add(&sums);
                spoilt[parent] |= wrong;
            }
        }
    }

    /// A directory.
    pub fn at(&self, dir: u32) -> &ScannedDir {
        &self.dirs[dir as usize]
    }

    fn at_mut(&mut self, dir: u32) -> &mut ScannedDir {
        &mut self.dirs[dir as usize]
    }

    /// Number of directories.
    pub fn len(&self) -> usize {
        self.dirs.len()
    }

    /// Numbers of all directories, parents before their children.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        0..u32::try_from(self.dirs.len()).unwrap_or(u32::MAX)
    }

    /// Sums of everything below the path of the scan.
    pub fn total(&self) -> &FileSums {
        &self.dirs[0].sums
    }

    /// Files that were accessed after their last change.
    pub fn read_later(&self) -> u64 {
        self.read_later
    }

    /// How deep a directory is below the first.
    pub fn depth(&self, dir: u32) -> usize {
        let (mut at, mut depth) = (dir, 0);
        while at != 0 {
            at = self.at(at).parent;
            depth += 1;
        }
        depth
    }

    /// The path of a directory.
    pub fn path(&self, dir: u32) -> String {
        let mut names = Vec::new();
        let mut at = dir;
        while at != 0 {
            names.push(&*self.at(at).name);
            at = self.at(at).parent;
        }
        let root = &*self.dirs[0].name;
        let mut path = root.trim_end_matches('/').to_owned();
        for name in names.iter().rev() {
            path.push('/');
            path.push_str(name);
        }
        if path.is_empty() {
            "/".to_owned()
        } else {
            path
        }
    }

    /// Whether a directory is given the policy as a whole: it is wholly cold and no directory above
    /// it is. Never `/`: whatever comes into the cluster would be cold from the start.
    pub fn is_target(&self, dir: u32) -> bool {
        self.takes_policy(dir) && (dir == 0 || self.covered_by(self.at(dir).parent).is_none())
    }

    fn takes_policy(&self, dir: u32) -> bool {
        let found = self.at(dir);
        let fits = self.leaf_limit.is_none_or(|limit| {
            let sums = &found.sums;
            found.leaf && sums.cold_files <= limit.files && sums.cold_bytes <= limit.bytes
        });
        found.wholly_cold && fits && !(dir == 0 && &*self.dirs[0].name == "/")
    }

    /// The directory at or above `dir` that is given the policy as a whole.
    pub fn covered_by(&self, dir: u32) -> Option<u32> {
        let mut at = dir;
        let mut found = None;
        loop {
            if self.takes_policy(at) {
                found = Some(at);
            }
            if at == 0 {
                return found;
            }
            at = self.at(at).parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::age::ColdBy;
    use super::*;

    const COLD: u8 = 2;
    const HOT: u8 = 7;
    const CUTOFF: Cutoff = Cutoff {
        at_ms: 1000,
        by: ColdBy::Access,
    };

    fn file(used_ms: u64, policy: u8) -> ScannedFile {
        ScannedFile {
            len: 10,
            modified_ms: 1,
            accessed_ms: used_ms,
            policy,
            open: false,
        }
    }

    fn tree() -> DirTree {
        DirTree::new("/", 0, 0, CUTOFF, COLD)
    }

    fn targets(tree: &mut DirTree) -> Vec<String> {
        tree.sum_up();
        let numbers = tree.numbers().filter(|d| tree.is_target(*d));
        numbers.map(|d| tree.path(d)).collect()
    }

    #[test]
    fn the_topmost_wholly_cold_directory_is_the_target() {
        let mut tree = tree();
        let a = tree.add_dir(0, "a", 0, 5).expect("added");
        let b = tree.add_dir(a, "b", 0, 5).expect("added");
        let c = tree.add_dir(0, "c", 0, 5).expect("added");
        assert_eq!(tree.add_file(a, &file(5, 0)), FileClass::Cold);
        assert_eq!(tree.add_file(b, &file(6, 0)), FileClass::Cold);
        assert_eq!(tree.add_file(c, &file(7, 0)), FileClass::Cold);
        assert_eq!(tree.add_file(c, &file(1000, 0)), FileClass::Warm);
        assert_eq!(targets(&mut tree), ["/a"]);
        assert_eq!((tree.covered_by(b), tree.covered_by(c)), (Some(a), None));
        assert_eq!(tree.at(a).sums.cold_files, 2);
        let total = tree.total();
        assert_eq!(
            (total.files, total.cold_files, total.cold_bytes),
            (4, 3, 30)
        );
        assert_eq!(
            (tree.path(b), tree.depth(b), tree.read_later()),
            ("/a/b".into(), 2, 4)
        );
    }

    #[test]
    fn what_is_in_use_below_spoils_what_is_above() {
        type Spoil = fn(&mut DirTree, u32);
        let spoil: [(&str, Spoil); 5] = [
            ("a file in use", |t, d| {
                t.add_file(d, &file(2000, 0));
            }),
            ("a file being written", |t, d| {
                t.add_file(
                    d,
                    &ScannedFile {
                        open: true,
                        ..file(5, 0)
                    },
                );
            }),
            ("a new empty directory", |t, d| {
                t.add_dir(d, "new", 0, 1000).expect("added");
            }),
            ("a file with a policy of its own", |t, d| {
                t.add_file(d, &file(5, HOT));
            }),
            ("a directory with one", |t, d| {
                t.add_dir(d, "hot", HOT, 5).expect("added");
            }),
        ];
        for (what, spoil) in spoil {
            let mut tree = tree();
            let a = tree.add_dir(0, "a", 0, 5).expect("added");
            let b = tree.add_dir(a, "b", 0, 5).expect("added");
            let c = tree.add_dir(a, "c", 0, 5).expect("added");
            tree.add_file(b, &file(5, 0));
            tree.add_file(c, &file(5, 0));
            spoil(&mut tree, b);
            assert_eq!(targets(&mut tree), ["/a/c"], "{what}");
        }
    }

    #[test]
    fn what_is_cold_already_is_no_work_and_no_hindrance() {
        let mut tree = DirTree::new("/data", 0, 0, CUTOFF, COLD);
        let done = tree.add_dir(0, "done", COLD, 5).expect("added");
        assert_eq!(tree.add_file(done, &file(999, COLD)), FileClass::Settled);
        assert_eq!(tree.add_file(done, &file(2000, COLD)), FileClass::Reread);
        assert_eq!(targets(&mut tree), [""; 0]);
        assert_eq!(tree.total().settled_files, 2);
        tree = DirTree::new("/data", 0, 0, CUTOFF, COLD);
        let done = tree.add_dir(0, "done", COLD, 5).expect("added");
        tree.add_file(done, &file(2000, COLD));
        tree.add_file(0, &file(5, 0));
        assert_eq!(targets(&mut tree), ["/data"]);
    }

    #[test]
    fn a_limit_takes_directories_one_by_one() {
        let mut tree = tree();
        let a = tree.add_dir(0, "a", 0, 5).expect("added");
        let names = [("b", 1), ("c", 2), ("d", 3)];
        for (name, files) in names {
            let dir = tree.add_dir(a, name, 0, 5).expect("added");
            for _ in 0..files {
                tree.add_file(dir, &file(5, 0));
            }
        }
        assert_eq!(targets(&mut tree), ["/a"]);
        let limit = |files, bytes| Some(LeafLimit { files, bytes });
        let mut tree = tree.limited(limit(2, 100));
        assert_eq!(targets(&mut tree), ["/a/b", "/a/c"]);
        assert_eq!((tree.covered_by(3), tree.covered_by(4)), (Some(3), None));
        let mut tree = tree.limited(limit(9, 10));
        assert_eq!(targets(&mut tree), ["/a/b"]);
    }

    #[test]
    fn the_root_itself_is_never_a_target() {
        let mut tree = tree();
        let a = tree.add_dir(0, "a", 0, 5).expect("added");
        tree.add_file(a, &file(5, 0));
        tree.add_file(0, &file(5, 0));
        assert_eq!(targets(&mut tree), ["/a"]);
        assert_eq!(tree.covered_by(0), None);
        let mut empty = DirTree::new("/", 0, 0, CUTOFF, COLD);
        empty.add_dir(0, "empty", 0, 5).expect("added");
        assert_eq!(targets(&mut empty), [""; 0]);
    }
}
