//! What the watch remembers of paths from pass to pass, and what follows from it.
//!
//! Two thresholds keep data from going to and fro. A path is due when it was cold in several passes
//! running. One that the watch has set gets its old policy back when several passes saw it used
//! anew. A pass that finds its last use older than `--older-than` ends that count. So a restore
//! that reads it once does not bring it back.

use std::collections::{BTreeMap, HashMap};

use hayloft_console::progress::say;
use serde::{Deserialize, Serialize};

use super::super::choose_targets::Planned;
use super::super::directory_uses::{above, is_kept};
use super::super::undo::ColdTarget;

/// Most paths in each of the two tables.
const PATHS_MAX: usize = 500_000;

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMemory {
    /// Cold paths, and in how many passes running.
    pub candidates: BTreeMap<String, u32>,
    /// What the watch has set.
    pub archived: BTreeMap<String, ArchivedPath>,
}

/// A path to which the watch gave the policy COLD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedPath {
    /// Whether it is a directory.
    directory: bool,
    /// The policy of its own that it had.
    before: Option<String>,
    /// The pass that set it.
    pass: u64,
    /// Its last use that was counted, milliseconds since 1970.
    used_ms: u64,
    /// Passes that saw it used anew.
    uses: u32,
}

/// When a path is due, and how much of that a pass takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Passes running in which it was cold.
    pub after_passes: u32,
    /// Passes in which it was used anew, for its old policy.
    pub back_after: u32,
    /// Files that a pass sets, and paths that it gives back.
    pub files: u64,
    /// Their lengths, bytes.
    pub bytes: u64,
    /// Room of the ARCHIVE storages, bytes.
    pub room: u64,
    /// This pass cannot tell what is cold: it counts none, and those of passes before are void.
    pub hold: bool,
    /// This pass changes policies.
    pub apply: bool,
}

/// One pass over what is remembered.
#[derive(Debug)]
pub struct PassOver {
    memory: PathMemory,
    thresholds: Thresholds,
    seen: BTreeMap<String, u32>,
    used: HashMap<String, u64>,
    /// Cold paths of this pass that are not due yet, or wait for their turn.
    pub waiting: u64,
    /// What is due in this pass.
    pub due: Vec<ColdTarget>,
    /// Files in that.
    pub due_files: u64,
    /// Their lengths, bytes.
    pub due_bytes: u64,
    full: bool,
    /// Due targets that there is no room for.
    pub without_room: u64,
}

impl PassOver {
    /// Begins a pass.
    pub fn new(memory: PathMemory, thresholds: Thresholds) -> Self {
        Self {
            memory,
            thresholds,
            seen: BTreeMap::new(),
            used: HashMap::new(),
            waiting: 0,
            due: Vec::new(),
            due_files: 0,
            due_bytes: 0,
            full: false,
            without_room: 0,
        }
    }

    /// Takes what the plan finds. Paths that tables do not keep stay as they are.
    pub fn take(&mut self, found: Planned) {
        match found {
            Planned::Target {
                target,
                files,
                bytes,
            } if is_kept(&target.path) => self.take_cold(target, files, bytes),
            Planned::Target { .. } => {}
            Planned::Reread { dir, path, used_ms } => self.take_used(&dir, &path, used_ms),
        }
    }

    fn take_cold(&mut self, target: ColdTarget, files: u64, bytes: u64) {
        // It was set and is not any more: by an operator, or the call was never made. A pass that
        // does not set it again forgets nothing.
        if self.thresholds.apply {
            self.memory.archived.remove(&target.path);
        }
        let before = self.memory.candidates.get(&target.path);
        // The table's places go to those that have waited.
        if before.is_none() && self.seen.len() >= PATHS_MAX {
            self.waiting += 1;
            return;
        }
        if self.thresholds.hold {
            self.waiting += 1;
            return;
        }
        let passes = before.copied().unwrap_or(0).saturating_add(1);
        self.seen.insert(target.path.clone(), passes);
        let limits = &self.thresholds;
        if passes >= limits.after_passes && bytes > limits.room.saturating_sub(self.due_bytes) {
            self.without_room += 1;
            self.waiting += 1;
            return;
        }
        // One that no pass has room for is the last of the first pass that comes to it.
        let large = files > limits.files || bytes > limits.bytes;
        let (files, bytes) = (
            self.due_files.saturating_add(files),
            self.due_bytes.saturating_add(bytes),
        );
        let fits = large || files <= limits.files && bytes <= limits.bytes;
        if passes < limits.after_passes || self.full {
            self.waiting += 1;
        } else if fits {
            (self.due_files, self.due_bytes) = (files, bytes);
            self.due.push(target);
            self.full = large;
        } else {
            // Smaller ones behind it wait too, or a large one would never have its turn.
            (self.full, self.waiting) = (true, self.waiting + 1);
        }
    }

    /// A file below what the watch has set counts for that.
    fn take_used(&mut self, dir: &str, path: &str, used_ms: u64) {
        let mut at = if self.memory.archived.contains_key(path) {
            path
        } else {
            dir
        };
        while !self.memory.archived.contains_key(at) {
            if at == "/" {
                return;
            }
            at = above(at);
        }
        let last = self.used.entry(at.to_owned()).or_default();
        *last = used_ms.max(*last);
    }

    /// The scan is over: counts uses. Returns what gets its old policy back, as many paths as a
    /// pass takes; the others wait.
    pub fn count_uses(&mut self) -> Vec<ColdTarget> {
        let mut back = Vec::new();
        for (path, archived) in &mut self.memory.archived {
            match self.used.get(path) {
                Some(used_ms) if *used_ms > archived.used_ms => {
                    archived.used_ms = *used_ms;
                    archived.uses = archived.uses.saturating_add(1);
                }
                Some(_) => {}
                None => archived.uses = 0,
            }
            let has_room = (back.len() as u64) < self.thresholds.files;
            if has_room && archived.uses >= self.thresholds.back_after {
                back.push(ColdTarget {
                    path: path.clone(),
                    directory: archived.directory,
                    before: archived.before.clone(),
                    seen_policy: None,
                });
            }
        }
        back
    }

    /// What is remembered after the pass. `set` are the targets that got the policy, in the pass of
    /// that number; `back` those that have their old one.
    pub fn end(mut self, set: &[ColdTarget], pass: u64, back: &[ColdTarget]) -> PathMemory {
        self.memory.candidates = self.seen;
        for target in back {
            self.memory.archived.remove(&target.path);
        }
        for target in set {
            self.memory.candidates.remove(&target.path);
            self.memory.add(target, pass);
        }
        self.memory.forget_oldest();
        self.memory
    }
}

impl PathMemory {
    /// Remembers a target that the pass of that number has set, or was about to.
    pub fn add(&mut self, target: &ColdTarget, pass: u64) {
        let archived = ArchivedPath {
            directory: target.directory,
            before: target.before.clone(),
            pass,
            used_ms: 0,
            uses: 0,
        };
        self.archived.insert(target.path.clone(), archived);
    }

    /// Forgets what the oldest passes have set, where there is too much: it stays COLD, and the
    /// undo files of those passes still have it.
    pub fn forget_oldest(&mut self) {
        if self.archived.len() > PATHS_MAX {
            let mut passes: Vec<u64> = self.archived.values().map(|a| a.pass).collect();
            let over = passes.len() - PATHS_MAX;
            say(&format!(
                "warning: the watch remembers {PATHS_MAX} archived paths and forgets {over}, those \
                 that it set first: only their undo files have them"
            ));
            let (_, last, _) = passes.select_nth_unstable(over - 1);
            let last = *last;
            let older = self.archived.values().filter(|a| a.pass < last).count();
            let mut of_last = over.saturating_sub(older);
            self.archived.retain(|_, archived| {
                let goes = archived.pass == last && of_last > 0;
                of_last -= usize::from(goes);
                archived.pass >= last && !goes
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLDS: Thresholds = Thresholds {
        after_passes: 2,
        back_after: 2,
        files: 10,
        bytes: 100,
        room: 1000,
        hold: false,
        apply: true,
    };

    fn cold(path: &str, files: u64, bytes: u64) -> Planned {
        let target = ColdTarget {
            path: path.to_owned(),
            directory: files != 1,
            before: Some("ONE_SSD".to_owned()),
            seen_policy: None,
        };
        Planned::Target {
            target,
            files,
            bytes,
        }
    }

    fn used(path: &str, used_ms: u64) -> Planned {
        Planned::Reread {
            dir: above(path).to_owned(),
            path: path.to_owned(),
            used_ms,
        }
    }

    /// A pass that applies what is due; its memory, what was set and what was given back.
    fn pass(
        memory: PathMemory,
        thresholds: Thresholds,
        found: &[Planned],
    ) -> (PathMemory, Vec<String>, Vec<String>) {
        let mut over = PassOver::new(memory, thresholds);
        found.iter().cloned().for_each(|found| over.take(found));
        let back = over.count_uses();
        let due = std::mem::take(&mut over.due);
        let names = |of: &[ColdTarget]| of.iter().map(|t| t.path.clone()).collect();
        let (set, given) = (names(&due), names(&back));
        (over.end(&due, 1, &back), set, given)
    }

    #[test]
    fn a_path_is_set_after_passes_running_only() {
        let found = [cold("/a", 1, 5)];
        let (memory, set, _) = pass(PathMemory::default(), THRESHOLDS, &found);
        assert!(set.is_empty());
        // Read between: it begins anew.
        let (memory, ..) = pass(memory, THRESHOLDS, &[]);
        let (memory, set, _) = pass(memory, THRESHOLDS, &found);
        assert!(set.is_empty());
        let held = Thresholds {
            hold: true,
            ..THRESHOLDS
        };
        let (memory, set, _) = pass(memory, held, &found);
        assert!(set.is_empty() && memory.candidates.is_empty());
        let (memory, set, _) = pass(memory, THRESHOLDS, &found);
        assert!(set.is_empty());
        let (memory, set, _) = pass(memory, THRESHOLDS, &found);
        assert_eq!(set, ["/a"]);
        assert!(memory.candidates.is_empty() && memory.archived.contains_key("/a"));
        // It is cold again: the policy was taken away.
        let dry = Thresholds {
            apply: false,
            ..THRESHOLDS
        };
        let (memory, ..) = pass(memory, dry, &found);
        assert!(memory.archived.contains_key("/a"));
        let memory = PathMemory {
            candidates: BTreeMap::new(),
            ..memory
        };
        let (memory, set, _) = pass(memory, THRESHOLDS, &found);
        assert!(set.is_empty() && memory.archived.is_empty());
    }

    #[test]
    fn what_the_archive_has_no_room_for_waits_and_stops_no_other() {
        let little = Thresholds {
            after_passes: 1,
            room: 9,
            ..THRESHOLDS
        };
        let found = [
            cold("/a", 1, 5),
            cold("/b", 1, 5),
            cold("/c", 1, 4),
            cold("/d", 99, 999),
        ];
        let mut over = PassOver::new(PathMemory::default(), little);
        found.into_iter().for_each(|found| over.take(found));
        let due: Vec<&str> = over.due.iter().map(|target| &*target.path).collect();
        assert_eq!((due, over.without_room), (vec!["/a", "/c"], 2));
    }

    #[test]
    fn a_pass_takes_no_more_than_its_limits_and_always_something() {
        let once = Thresholds {
            after_passes: 1,
            ..THRESHOLDS
        };
        let found = [
            cold("/a", 1, 60),
            cold("/large", 1, 900),
            cold("/small", 1, 1),
        ];
        // What is always before it keeps no large one waiting.
        let (memory, set, _) = pass(PathMemory::default(), once, &found);
        assert_eq!(set, ["/a", "/large"]);
        let (_, set, _) = pass(memory, once, &found[2..]);
        assert_eq!(set, ["/small"]);
        let (_, set, _) = pass(PathMemory::default(), once, &found[1..]);
        assert_eq!(set, ["/large"]);
        let many = [cold("/d", 9, 1), cold("/e", 2, 1)];
        let (_, set, _) = pass(PathMemory::default(), once, &many);
        assert_eq!(set, ["/d"]);
    }

    fn archived(paths: &[&str]) -> PathMemory {
        let mut memory = PathMemory::default();
        for path in paths {
            let Planned::Target { target, .. } = cold(path, 2, 1) else {
                continue;
            };
            memory.add(&target, 1);
        }
        memory
    }

    #[test]
    fn what_is_used_in_two_passes_comes_back_with_what_it_had() {
        let memory = archived(&["/d", "/f", "/x"]);
        let (memory, _, back) = pass(memory, THRESHOLDS, &[used("/d/deep/a", 5), used("/f", 6)]);
        assert!(back.is_empty());
        // The same use seen again is none.
        let (memory, _, back) = pass(memory, THRESHOLDS, &[used("/d/deep/a", 5), used("/f", 6)]);
        assert!(back.is_empty());
        // Another file of the directory; the other one is not in use any more.
        let (memory, _, back) = pass(memory, THRESHOLDS, &[used("/d/b", 7)]);
        assert_eq!(back, ["/d"]);
        let (memory, _, back) = pass(memory, THRESHOLDS, &[used("/f", 8), used("/other", 9)]);
        assert!(back.is_empty());
        let mut over = PassOver::new(memory, THRESHOLDS);
        over.take(used("/f", 9));
        let back = over.count_uses();
        assert_eq!(back[0].before.as_deref(), Some("ONE_SSD"));
        assert_eq!(over.end(&[], 5, &back).archived.len(), 1);
    }

    #[test]
    fn a_pass_gives_back_no_more_than_its_limit() {
        let one = Thresholds {
            files: 1,
            back_after: 1,
            ..THRESHOLDS
        };
        let found = [used("/a", 5), used("/b", 5)];
        let (memory, _, back) = pass(archived(&["/a", "/b"]), one, &found);
        assert_eq!(back, ["/a"]);
        let (_, _, back) = pass(memory, one, &found[1..]);
        assert_eq!(back, ["/b"]);
    }

    #[test]
    fn full_tables_keep_what_waited_and_forget_what_was_set_first() {
        let mut over = PassOver::new(PathMemory::default(), THRESHOLDS);
        for n in 0..PATHS_MAX {
            over.seen.insert(n.to_string(), 1);
        }
        over.memory.candidates.insert("/old".to_owned(), 1);
        over.take(cold("/new", 1, 1));
        over.take(cold("/old", 1, 1));
        assert!(!over.seen.contains_key("/new") && over.seen.contains_key("/old"));
        let mut memory = archived(&["/first"]);
        for n in 0..PATHS_MAX {
            let mut other = memory.archived["/first"].clone();
            other.pass = 2;
            memory.archived.insert(n.to_string(), other);
        }
        memory.forget_oldest();
        assert_eq!(memory.archived.len(), PATHS_MAX);
        assert!(!memory.archived.contains_key("/first"));
        let mut over = PassOver::new(PathMemory::default(), THRESHOLDS);
        over.take(cold("/hostile\nname", 1, 1));
        assert!(over.seen.is_empty());
    }
}
