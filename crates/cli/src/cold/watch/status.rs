//! What a pass did, and what the watch says of itself.

use std::fmt::Write as _;
use std::path::PathBuf;

use hayloft_console::size;
use serde::{Deserialize, Serialize};

use super::super::scanned_file::FileSums;
use super::super::set_policies::ChangeSums;

/// What a pass saw and did. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassReport {
    /// Its number.
    pub pass: u64,
    /// When it began.
    pub started_ms: u64,
    /// How long it took, milliseconds.
    pub took_ms: u64,
    /// Whether it was to change anything.
    pub apply: bool,
    /// What is below the paths.
    pub total: FileSums,
    /// Cold paths that are not due yet, or wait for their turn.
    pub waiting_paths: u64,
    /// Directories and files that are due and have their turn.
    pub due_paths: u64,
    /// Files in those.
    pub due_files: u64,
    /// Their lengths, bytes.
    pub due_bytes: u64,
    /// What became of them.
    pub set: ChangeSums,
    /// What was there; none when nothing was to be set.
    pub undo_file: Option<PathBuf>,
    /// Paths that are used again.
    pub back_paths: u64,
    /// What became of those.
    pub given_back: ChangeSums,
    /// Paths that the watch has set and still knows.
    pub archived_paths: u64,
    /// Paths of the command that are no directories now.
    pub missing_paths: Vec<String>,
    /// Why paths wait that are due.
    pub not_set: Option<String>,
    /// The clock was set, so nothing counted.
    pub clock_was_set: bool,
    /// From when on reads are known from the audit logs.
    pub reads_known_since_ms: Option<u64>,
}

/// What the watch says of itself between two passes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchStatus {
    /// When it said so, milliseconds since 1970.
    pub at_ms: u64,
    /// The last pass that ended.
    pub last_pass: Option<PassReport>,
    /// When the next one is to begin, milliseconds since 1970; none after `--once`.
    pub next_pass_ms: Option<u64>,
    /// What stopped the last attempt.
    pub error: Option<String>,
    /// Whether a watch runs there; known when it is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<bool>,
}

impl PassReport {
    /// Whether the NameNode refused some of it, or there was no room for it.
    pub fn has_failures(&self) -> bool {
        self.set.failed + self.given_back.failed > 0 || self.not_set.is_some()
    }

    /// As text: a line, and more for what went wrong.
    pub fn text(&self) -> String {
        let total = &self.total;
        let (done, back) = if self.apply {
            (
                format!(
                    "{} of {} due paths are set",
                    self.set.changed, self.due_paths
                ),
                format!("{} have what they had", self.given_back.changed),
            )
        } else {
            (
                format!("--apply would set {} paths", self.due_paths),
                format!("give {} back what they had", self.back_paths),
            )
        };
        // Writing to a string cannot fail.
        let mut out = format!(
            "pass {}: {} of {} files are cold ({}), {} are COLD; {done} ({} files, {}), {back}; {} \
             wait\n",
            self.pass,
            total.cold_files,
            total.files,
            size::show(total.cold_bytes),
            total.settled_files,
            self.due_files,
            size::show(self.due_bytes),
            self.waiting_paths,
        );
        if self.set.left > 0 {
            let left = self.set.left;
            let _ = writeln!(out, "  {left} paths changed meanwhile and were left alone");
        }
        if let Some(why) = &self.not_set {
            let _ = writeln!(out, "  {why}");
        }
        for path in &self.missing_paths {
            let _ = writeln!(out, "  {path}: is no directory now");
        }
        for why in self.set.failures.iter().chain(&self.given_back.failures) {
            let _ = writeln!(out, "  {why}");
        }
        if let Some(undo) = &self.undo_file {
            let _ = writeln!(
                out,
                "  'hayloft cold scan --undo {}' puts back what was there",
                undo.display()
            );
        }
        out
    }
}

impl WatchStatus {
    /// Whether the last attempt failed, the last pass had failures, or the watch that was to make
    /// the next pass is gone.
    pub fn has_failures(&self) -> bool {
        let of_pass = self
            .last_pass
            .as_ref()
            .is_some_and(PassReport::has_failures);
        let is_gone = self.runs == Some(false) && self.next_pass_ms.is_some();
        self.error.is_some() || of_pass || is_gone
    }

    /// As text, at `now_ms`.
    pub fn text(&self, now_ms: u64) -> String {
        let mut out = match &self.last_pass {
            Some(pass) => {
                let ago = now_ms.saturating_sub(pass.started_ms) / 1000;
                format!("{}  it began {} ago\n", pass.text(), span(ago))
            }
            None => "no pass has ended\n".to_owned(),
        };
        match self.next_pass_ms {
            Some(next_ms) if next_ms > now_ms => {
                let _ = writeln!(out, "next pass in {}", span((next_ms - now_ms) / 1000));
            }
            Some(_) => out.push_str("the next pass is due: it runs, or no watch does\n"),
            None => {}
        }
        if self.runs == Some(false) {
            out.push_str("no watch runs\n");
        }
        if let Some(error) = &self.error {
            let _ = writeln!(out, "the last attempt failed: {error}");
        }
        out
    }
}

fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_was_set_and_when_the_next_pass_is() {
        let sums = ChangeSums {
            changed: 3,
            left: 2,
            failed: 1,
            failures: vec!["/a: refused".to_owned()],
            ..ChangeSums::default()
        };
        let pass = PassReport {
            pass: 7,
            started_ms: 1_000_000,
            apply: true,
            due_paths: 4,
            set: sums,
            undo_file: Some("s/undo-7.jsonl".into()),
            missing_paths: vec!["/gone".to_owned()],
            not_set: Some("no room".to_owned()),
            ..PassReport::default()
        };
        assert!(pass.has_failures());
        let status = WatchStatus {
            last_pass: Some(pass),
            next_pass_ms: Some(8_200_000),
            error: Some("why".to_owned()),
            runs: Some(false),
            ..WatchStatus::default()
        };
        let text = status.text(1_000_000);
        for part in [
            "pass 7: ",
            "3 of 4 due paths are set",
            "  /a: refused\n",
            "  /gone: is no directory now\n",
            "--undo s/undo-7.jsonl'",
            "next pass in 2 h\n",
            "failed: why\n",
            "  2 paths changed meanwhile",
            "  no room\n",
            "no watch runs\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(status.has_failures() && !WatchStatus::default().has_failures());
        let gone = WatchStatus {
            next_pass_ms: Some(1),
            runs: Some(false),
            ..WatchStatus::default()
        };
        assert!(gone.has_failures());
        let full = PassReport {
            not_set: Some("no room".to_owned()),
            ..PassReport::default()
        };
        assert!(full.has_failures());
        assert!(status.text(9_000_000).contains("is due"));
        let json = serde_json::to_string(&status).expect("JSON");
        assert_eq!(
            serde_json::from_str::<WatchStatus>(&json).expect("read"),
            status
        );
        let dry = PassReport::default().text();
        assert!(dry.contains("--apply would set 0 paths"), "{dry}");
        assert!(WatchStatus::default().text(0).contains("no pass"));
    }
}
