//! What a scan found and what was changed, as text and JSON.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use hayloft_console::progress::say;
use hayloft_console::size;
use serde::Serialize;
use serde_json::json;

use super::age::{ColdBy, Cutoff, PRECISION_KEY, Precision};
use super::cold_directories::DirTree;
use super::scanned_file::FileSums;
use super::set_policies::ChangeSums;
use crate::error::CliError;
use crate::json::print_json;

/// A directory that is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ShownDir {
    path: String,
    #[serde(flatten)]
    sums: FileSums,
    wholly_cold: bool,
}

/// What a scan found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ColdReport {
    cold_by: ColdBy,
    /// Milliseconds since 1970: what was used later is not cold.
    cutoff_ms: u64,
    /// `kept`, `off`, or `unknown` when no configuration tells.
    access_times: &'static str,
    /// Files that were read after their last change.
    read_later_files: u64,
    total: FileSums,
    directories_total: usize,
    /// Directories that --apply would give the policy as a whole.
    target_directories: u64,
    /// Files in them.
    target_directories_files: u64,
    /// Single files that it would give the policy.
    target_files: u64,
    /// Those with the most cold bytes.
    directories: Vec<ShownDir>,
    directories_not_shown: usize,
}

/// What `--apply` did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Directories that were to be changed as a whole.
    pub directories: u64,
    /// Single files that were to be changed.
    pub files: u64,
    /// What was there; none when there was nothing to change.
    pub undo_file: Option<PathBuf>,
    /// What became of them.
    #[serde(flatten)]
    pub sums: ChangeSums,
}

impl ColdReport {
    /// What `tree`, summed up, says.
    pub fn new(
        tree: &DirTree,
        cutoff: Cutoff,
        precision: &Precision,
        depth: usize,
        list: usize,
    ) -> Self {
        let cold = |dir: &u32| tree.at(*dir).sums.cold_files > 0 && tree.depth(*dir) <= depth;
        let mut shown: Vec<u32> = tree.numbers().filter(cold).collect();
        // Equal ones by name: an image and a NameNode list them in the same order.
        shown.sort_by(|a, b| {
            let (a, b) = (tree.at(*a), tree.at(*b));
            let bytes = b.sums.cold_bytes.cmp(&a.sums.cold_bytes);
            bytes.then_with(|| a.name.cmp(&b.name))
        });
        let not_shown = shown.len().saturating_sub(list);
        shown.truncate(list);
        let show = |dir: &u32| ShownDir {
            path: tree.path(*dir),
            sums: tree.at(*dir).sums,
            wholly_cold: tree.at(*dir).wholly_cold,
        };
        let targets: Vec<u32> = tree.numbers().filter(|dir| tree.is_target(*dir)).collect();
        let in_targets = targets
            .iter()
            .map(|dir| tree.at(*dir).sums.cold_files)
            .sum();
        Self {
            cold_by: cutoff.by,
            cutoff_ms: cutoff.at_ms,
            access_times: match precision {
                Precision::Unknown => "unknown",
                Precision::Kept(_) => "kept",
                Precision::Off(_) => "off",
            },
            read_later_files: tree.read_later(),
            total: *tree.total(),
            directories_total: tree.len(),
            target_directories: targets.len() as u64,
            target_directories_files: in_targets,
            target_files: tree.total().cold_files.saturating_sub(in_targets),
            directories: shown.iter().map(show).collect(),
            directories_not_shown: not_shown,
        }
    }

    /// Says that access times seem to be off when no file shows a later access than change.
    pub fn warn_of_unread(&self) {
        let asked = self.cold_by == ColdBy::Access && self.access_times != "off";
        if asked && self.total.files > 0 && self.read_later_files == 0 {
            say(&format!(
                "warning: no file of {} was read after its last change: either none is read, or \
                 access times are switched off ({PRECISION_KEY} is 0 on the NameNode); then files \
                 that are read look cold too",
                self.total.files
            ));
        }
    }
}

/// Says what the configuration makes of access times, where that matters.
pub fn warn_of_times(precision: &Precision, by: ColdBy, age: Duration) {
    match precision {
        Precision::Off(place) => say(&format!(
            "warning: access times are switched off ({PRECISION_KEY} is 0, {place}): {}",
            match by {
                ColdBy::Modification =>
                    "the last change decides, and files that are read look cold too",
                ColdBy::Access => "what they say may be old",
            }
        )),
        Precision::Kept(ms) if u128::from(*ms) > age.as_millis() && by == ColdBy::Access => {
            say(&format!(
                "warning: access times are exact to {} s only ({PRECISION_KEY}), longer than \
                 --older-than: files that are read look cold too",
                ms / 1000
            ));
        }
        Precision::Kept(_) | Precision::Unknown => {}
    }
}

/// How much a scan has seen.
pub fn seen(tree: &DirTree) -> String {
    format!("{} files in {} directories", tree.total().files, tree.len())
}

/// Prints what was found, and what was changed.
pub fn print(
    path: &str,
    age: Duration,
    found: &ColdReport,
    applied: Option<&Applied>,
    json: bool,
) -> Result<(), CliError> {
    if json {
        let answer = json!({
            "path": path,
            "older_than_s": age.as_secs(),
            "found": found,
            "applied": applied,
        });
        return print_json(&answer);
    }
    print!("{}", text(path, age, found));
    match applied {
        None => print!("{}", dry(found)),
        Some(applied) => print!("{}", done(applied)),
    }
    Ok(())
}

fn text(path: &str, age: Duration, found: &ColdReport) -> String {
    let mut out = String::new();
    let by = match found.cold_by {
        ColdBy::Access => "neither read nor changed",
        ColdBy::Modification => "not changed",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "Files below {path} that were {by} for {} days\n\
         {:>12} {:>10} {:>12} {:>10}  directory",
        age.as_secs() / 86_400,
        "cold bytes",
        "files",
        "all bytes",
        "files",
    );
    for dir in &found.directories {
        let _ = writeln!(
            out,
            "{:>12} {:>10} {:>12} {:>10}  {}{}",
            size::show(dir.sums.cold_bytes),
            dir.sums.cold_files,
            size::show(dir.sums.bytes),
            dir.sums.files,
            dir.path,
            if dir.wholly_cold { "  (wholly)" } else { "" }
        );
    }
    if found.directories_not_shown > 0 {
        let _ = writeln!(
            out,
            "... and {} more directories (--list N shows more of them)",
            found.directories_not_shown
        );
    }
    let total = &found.total;
    let _ = writeln!(
        out,
        "{} of {} files are cold, {} of {}; {} files ({}) have the policy COLD already",
        total.cold_files,
        total.files,
        size::show(total.cold_bytes),
        size::show(total.bytes),
        total.settled_files,
        size::show(total.settled_bytes),
    );
    out
}

const MOVER: &str = "No data has moved: 'hdfs mover' moves replicas to where their policies say.";

fn dry(found: &ColdReport) -> String {
    if found.total.cold_files == 0 {
        return String::new();
    }
    format!(
        "Nothing was changed. --apply gives the policy COLD to {} directories that are wholly cold \
         ({} files) and {} single files.\n",
        found.target_directories, found.target_directories_files, found.target_files
    )
}

fn done(applied: &Applied) -> String {
    let Some(undo) = &applied.undo_file else {
        return "There was nothing to change.\n".to_owned();
    };
    let sums = &applied.sums;
    format!(
        "{} of {} directories and files have the policy COLD now{}.\n{}{MOVER}\n\
         'hayloft cold scan --undo {}' puts back what was there.\n",
        sums.changed,
        applied.directories + applied.files,
        rest(sums),
        failures(sums),
        undo.display()
    )
}

/// Prints what was put back.
pub fn print_undone(sums: &ChangeSums, json: bool) -> Result<(), CliError> {
    if json {
        return print_json(&json!({ "undone": sums }));
    }
    print!(
        "{} have what they had{}.\n{}{MOVER}\n",
        sums.changed,
        rest(sums),
        failures(sums)
    );
    Ok(())
}

fn rest(sums: &ChangeSums) -> String {
    let mut out = String::new();
    for (count, what) in [
        (sums.missing, "are not there any more"),
        (
            sums.left,
            "were left alone: their policy is not COLD any more, or is from above",
        ),
        (sums.failed, "were refused"),
    ] {
        if count > 0 {
            let _ = write!(out, "; {count} {what}");
        }
    }
    out
}

fn failures(sums: &ChangeSums) -> String {
    sums.failures.iter().fold(String::new(), |mut out, why| {
        let _ = writeln!(out, "  {why}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_changed_is_told() {
        let sums = ChangeSums {
            changed: 3,
            missing: 1,
            left: 0,
            failed: 2,
            failures: vec!["/a: refused".to_owned()],
            unchanged: Vec::new(),
        };
        let applied = Applied {
            directories: 1,
            files: 5,
            undo_file: Some("undo".into()),
            sums,
        };
        let said = done(&applied);
        for part in [
            "3 of 6 ",
            "1 are not there any more; 2 were refused",
            "  /a: refused\n",
            "hdfs mover",
            "--undo undo",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(done(&Applied::default()).contains("nothing to change"));
    }
}
