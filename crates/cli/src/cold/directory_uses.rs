//! When directories were last used, where access times do not tell: what an audit log says.
//!
//! A use of a file is one of its directory. So the table grows with the directories in use, and has
//! a limit. When it is full, the oldest uses are forgotten. What is not in it counts as used when
//! the last of those was. So files may look used later than they were, never earlier.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Most directories that are known.
const DIRECTORIES_MAX: usize = 500_000;
/// Longest path that is kept, bytes. HDFS allows 8,000 characters.
const PATH_MAX: usize = 1024;

/// The directories in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryUses {
    /// What is not known of counts as used then, milliseconds since 1970.
    since_ms: u64,
    directories: HashMap<String, DirectoryUse>,
}

/// When a directory was last used, milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct DirectoryUse {
    /// Files in it.
    here_ms: u64,
    /// Everything below it: it came here by a rename.
    below_ms: u64,
}

impl DirectoryUse {
    fn last(&self) -> u64 {
        self.here_ms.max(self.below_ms)
    }
}

impl DirectoryUses {
    /// Notes that the file `path` was used.
    pub fn note_file(&mut self, path: &str, at_ms: u64) {
        self.note(above(path), at_ms, false);
    }

    /// Notes that everything at and below `path` was used: what it was before is not known.
    pub fn note_below(&mut self, path: &str, at_ms: u64) {
        self.note(path, at_ms, true);
    }

    fn note(&mut self, mut dir: &str, at_ms: u64, mut below: bool) {
        while !is_kept(dir) {
            (dir, below) = (above(dir), true);
        }
        if !self.directories.contains_key(dir) {
            self.directories
                .insert(dir.to_owned(), DirectoryUse::default());
        }
        if let Some(used) = self.directories.get_mut(dir) {
            let last = if below {
                &mut used.below_ms
            } else {
                &mut used.here_ms
            };
            *last = at_ms.max(*last);
        }
        if self.directories.len() > DIRECTORIES_MAX {
            self.forget_a_quarter();
        }
    }

    fn forget_a_quarter(&mut self) {
        let mut times: Vec<u64> = self.directories.values().map(DirectoryUse::last).collect();
        let quarter = times.len() / 4;
        let (_, oldest, _) = times.select_nth_unstable(quarter);
        let oldest = *oldest;
        self.directories.retain(|_, used| used.last() > oldest);
        self.unknown_until(oldest);
    }

    /// Uses before `at_ms` may be unknown: everything counts as used then.
    pub fn unknown_until(&mut self, at_ms: u64) {
        self.since_ms = self.since_ms.max(at_ms);
    }

    /// Forgets uses that make nothing warm any more: those before `cutoff_ms`. A later pass may
    /// look further back, so they count as unknown.
    pub fn forget_before(&mut self, cutoff_ms: u64) {
        self.directories.retain(|_, used| used.last() >= cutoff_ms);
        self.unknown_until(cutoff_ms.saturating_sub(1));
    }

    /// From when on uses are known, milliseconds since 1970.
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// When files of a directory were last used, at the latest; milliseconds since 1970.
    pub fn last_use(&self, dir: &str) -> u64 {
        self.since_ms.max(self.known_use(dir))
    }

    /// When a use of files of a directory was last seen, milliseconds since 1970; 0 for never.
    pub fn known_use(&self, dir: &str) -> u64 {
        let here = self.directories.get(dir).map_or(0, |used| used.here_ms);
        let (mut last, mut at) = (here, dir);
        loop {
            last = last.max(self.directories.get(at).map_or(0, |used| used.below_ms));
            if at == "/" {
                return last;
            }
            at = above(at);
        }
    }
}

/// Whether a path is kept in tables: it is short, and of characters that a line of a log may have.
pub fn is_kept(path: &str) -> bool {
    path == "/" || path.len() <= PATH_MAX && !path.contains(char::is_control)
}

/// The directory that a path is in; `/` for itself.
pub fn above(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((dir, _)) if !dir.is_empty() => dir,
        _ => "/",
    }
}

/// Whether `path` is `dir` or lies below it.
pub fn lies_in(path: &str, dir: &str) -> bool {
    let mut at = path;
    loop {
        if at == dir {
            return true;
        }
        if at == "/" {
            return false;
        }
        at = above(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_counts_for_the_directory_and_a_rename_for_all_below() {
        let mut uses = DirectoryUses::default();
        uses.unknown_until(5);
        uses.note_file("/a/b/f", 10);
        uses.note_file("/a/b/g", 8);
        uses.note_file("/f", 7);
        uses.note_below("/moved", 9);
        for (dir, last) in [
            ("/a/b", 10),
            ("/a/b/c", 5),
            ("/a", 5),
            ("/", 7),
            ("/moved", 9),
            ("/moved/deep/er", 9),
            ("/moved2", 5),
        ] {
            assert_eq!(uses.last_use(dir), last, "{dir}");
        }
        uses.forget_before(9);
        assert_eq!((uses.last_use("/a/b"), uses.last_use("/")), (10, 8));
        assert_eq!((uses.known_use("/a/b"), uses.known_use("/")), (10, 0));
    }

    #[test]
    fn a_path_lies_in_what_is_above_it() {
        for (path, dir, is) in [
            ("/a/b", "/a", true),
            ("/a", "/a", true),
            ("/ab", "/a", false),
            ("/a", "/", true),
            ("/", "/a", false),
        ] {
            assert_eq!(lies_in(path, dir), is, "{path} {dir}");
        }
    }

    #[test]
    fn what_cannot_be_kept_counts_for_what_is_above() {
        let mut uses = DirectoryUses::default();
        uses.note_file(&format!("/a/{}/f", "n".repeat(PATH_MAX)), 10);
        uses.note_file("/b/with\nline/f", 11);
        assert_eq!((uses.last_use("/a/x"), uses.last_use("/b/x/y")), (10, 11));
        assert_eq!(uses.directories.len(), 2);
    }

    #[test]
    fn a_full_table_forgets_the_oldest_and_takes_the_rest_for_used_then() {
        let mut uses = DirectoryUses::default();
        for n in 0..=DIRECTORIES_MAX as u64 {
            uses.note_file(&format!("/{n}/f"), n);
        }
        assert!(uses.directories.len() <= DIRECTORIES_MAX);
        let newest = DIRECTORIES_MAX as u64;
        assert_eq!(uses.last_use(&format!("/{newest}")), newest);
        assert_eq!(uses.last_use("/0"), uses.since_ms());
        assert!(uses.since_ms() >= newest / 4);
    }
}
