//! Where raw data comes from, and whether a page may call it a result.

use hayloft_testkit::hadoop::{hayloft_binary, lab_binary, repository_root};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Commits of [`MEASURED`] after which data is old.
pub const OLD: u32 = 60;
/// The crates whose change makes figures old.
const MEASURED: [&str; 3] = ["crates/io", "crates/node", "crates/store"];
/// Begins the line of a page whose raw data names no commit.
pub const NOT_SIGNED: &str = "**Not signed**";
/// Begins the line of a page whose raw data is old.
pub const IS_OLD: &str = "**Old**";

/// How raw data was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DataOrigin {
    /// The commit from which the node was built, 12 digits, with what has to be said of it. Data of
    /// earlier versions names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The day, `YYYY-MM-DD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// The command.
    #[serde(default)]
    pub command: String,
    /// The machine in general terms, its settings, and those of the peers.
    #[serde(default)]
    pub conditions: BTreeMap<String, String>,
    /// The machine's load before anything was started: the kernel's three averages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_before: Option<String>,
}

impl DataOrigin {
    /// That of a run which begins now.
    #[must_use]
    pub fn now(command: &str, conditions: BTreeMap<String, String>) -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let three = load.map(|text| text.split(' ').take(3).collect::<Vec<_>>().join(" "));
        Self {
            commit: built_commit(),
            date: Some(today()),
            command: command.to_owned(),
            conditions,
            load_before: three,
        }
    }

    /// The commit, when the data may be signed: it names one, and nothing has to be said beside it.
    #[must_use]
    pub fn signed(&self) -> Option<&str> {
        let commit = self.commit.as_deref()?;
        (!commit.contains(' ')).then_some(commit)
    }

    /// A line that says where data comes from, with the commits of the measured crates since then.
    #[must_use]
    pub fn line(&self, since: Option<u32>) -> String {
        let Some(commit) = self.signed() else {
            let why = match &self.commit {
                Some(commit) => format!("it was measured at `{commit}`"),
                None => "the raw data names no commit".into(),
            };
            return format!("{NOT_SIGNED}: {why}.");
        };
        let date = self.date.as_deref().unwrap_or("no date");
        let load = self.load_before.as_deref().unwrap_or("not told");
        let measured = format!("easured at `{commit}` ({date}, load before: {load})");
        match since {
            Some(since) if since > OLD => {
                format!("{IS_OLD}: m{measured}, {since} commits of io, node and store ago.")
            }
            Some(since) => format!("M{measured}, {since} commits of io, node and store ago."),
            None => format!("M{measured}."),
        }
    }

    /// What is wrong with a part of a page that is made of this data: it passes for a result and is
    /// none. `since`: the commits of the measured crates until now, where that is known.
    #[must_use]
    pub fn fault_of(&self, part: &str, since: Option<u32>) -> Option<String> {
        if self.signed().is_none() && !part.contains(NOT_SIGNED) {
            return Some(format!(
                "its raw data names no commit, and no {NOT_SIGNED} says so"
            ));
        }
        let old = self.signed().is_some() && since.is_some_and(|since| since > OLD);
        (old && !part.contains(IS_OLD)).then(|| {
            format!("its raw data is more than {OLD} commits old, and no {IS_OLD} says so")
        })
    }
}

/// Commits of the measured crates since `commit`, by git; `None` when it does not know.
#[must_use]
pub fn commits_since(commit: &str) -> Option<u32> {
    let range = format!("{commit}..HEAD");
    let words = ["rev-list", "--count", &range, "--"];
    git(&[words.as_slice(), &MEASURED].concat())?.parse().ok()
}

/// The commits since then as a page recorded them when it was made, by the data's commit: so a page
/// can be made again and be the same.
#[must_use]
pub fn recorded(page: &str) -> BTreeMap<String, u32> {
    let of_line = |line: &str| {
        let (_, rest) = line.split_once("easured at `")?;
        let (commit, rest) = rest.split_once('`')?;
        let (_, rest) = rest.split_once("), ")?;
        let (count, _) = rest.split_once(" commits of io")?;
        Some((commit.to_owned(), count.parse().ok()?))
    };
    page.lines().filter_map(of_line).collect()
}

fn git(words: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    let ran = command
        .arg("-C")
        .arg(repository_root())
        .args(words)
        .output();
    let ran = ran.ok().filter(|ran| ran.status.success())?;
    Some(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

/// The commit of what measures and is measured, as both programs have it built in; that of the
/// work tree says nothing of them. `None`: they do not know.
fn built_commit() -> Option<String> {
    let node = commit_of(&hayloft_binary().ok()?)?;
    let lab = commit_of(&lab_binary().ok()?)?;
    Some(if node == lab {
        node
    } else {
        format!("{node} by hayloft-lab of {lab}")
    })
}

/// What a program says of its commit.
fn commit_of(program: &Path) -> Option<String> {
    let said = Command::new(program).arg("--version").output().ok()?;
    commit_in(&String::from_utf8(said.stdout).ok()?).map(str::to_owned)
}

/// The commit in a version such as `hayloft 0.1.0 (0123456789ab with changes)`.
fn commit_in(version: &str) -> Option<&str> {
    let (_, rest) = version.split_once('(')?;
    let (commit, _) = rest.split_once(')')?;
    let digits = commit.split(' ').next()?;
    (digits.len() == 12 && digits.bytes().all(|b| b.is_ascii_hexdigit())).then_some(commit)
}

/// Today, `YYYY-MM-DD`, UTC.
#[must_use]
pub fn today() -> String {
    civil_date(rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec)
}

/// `YYYY-MM-DD` of a Unix time (days to civil date by the 400-year cycle of the calendar).
fn civil_date(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(civil_date(0), "1970-01-01");
        assert_eq!(civil_date(951_782_400), "2000-02-29");
        assert_eq!(civil_date(1_767_225_600), "2026-01-01");
    }

    fn measured_at(commit: &str) -> DataOrigin {
        DataOrigin {
            commit: Some(commit.into()),
            date: Some("2026-11-27".into()),
            ..DataOrigin::default()
        }
    }

    #[test]
    fn data_is_old_after_sixty_commits_and_unsigned_without_one() {
        let origin = measured_at("abc");
        assert!(!origin.line(Some(60)).contains(IS_OLD));
        let old = origin.line(Some(61));
        assert!(
            old.starts_with("**Old**: measured at `abc` (2026-11-27"),
            "{old}"
        );
        assert!(DataOrigin::default().line(Some(0)).contains(NOT_SIGNED));
        let changed = measured_at("abc with changes");
        assert!(changed.line(None).contains(NOT_SIGNED));
    }

    #[test]
    fn a_page_that_passes_for_a_result_is_refused() {
        let (none, signed) = (DataOrigin::default(), measured_at("abc"));
        assert!(none.fault_of("| 1 |", None).is_some());
        assert_eq!(none.fault_of(&none.line(None), None), None);
        assert!(signed.fault_of(&signed.line(Some(3)), Some(61)).is_some());
        assert_eq!(signed.fault_of(&signed.line(Some(3)), Some(60)), None);
        assert_eq!(signed.fault_of(&signed.line(Some(61)), Some(90)), None);
    }

    #[test]
    fn a_page_is_made_again_by_what_it_recorded() {
        let (one, other) = (measured_at("abc"), measured_at("def"));
        let page = format!("# A\n{}\n\n{}\n", one.line(Some(7)), other.line(Some(75)));
        let wanted = [("abc".to_owned(), 7), ("def".to_owned(), 75)];
        assert_eq!(recorded(&page), BTreeMap::from(wanted));
    }

    #[test]
    fn a_run_names_commit_date_and_load() {
        let origin = DataOrigin::now("c", BTreeMap::new());
        assert_eq!(origin.date, Some(today()));
        let load = origin.load_before.expect("the kernel tells");
        assert_eq!(load.split(' ').count(), 3, "{load}");
    }

    #[test]
    fn a_version_tells_its_commit_and_changes() {
        let of = |text| commit_in(text);
        assert_eq!(of("hayloft 0.1.0 (0123456789ab)\n"), Some("0123456789ab"));
        let changed = of("hayloft 0.1.0 (0123456789ab with changes)\n");
        assert_eq!(changed, Some("0123456789ab with changes"));
        assert_eq!(of("hayloft 0.1.0 (commit unknown)\n"), None);
        assert_eq!(of("hayloft 0.1.0\n"), None);
        assert_eq!(
            measured_at("0123456789ab by hayloft-lab of cd").signed(),
            None
        );
    }
}
