//! Published runs: one file a version and machine, `bench/results/VERSION/MACHINE.json`.
//!
//! `hayloft-lab bench --show FILE#RUN` makes a run's page again, `hayloft-lab bench --pages` the
//! published ones. What else a run leaves is below target/bench and not published.

use super::EDITS;
use super::record::{BenchRecord, in_lines};
use super::rows::Client;
use hayloft_testkit::congestion;
use hayloft_testkit::error::{Result, TestkitError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The runs of one version on one machine, by name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PublishedRuns {
    /// The runs.
    pub runs: BTreeMap<String, BenchRecord>,
}

impl PublishedRuns {
    /// Those of a file; of a `results.json` the one run that it is, named as its folder.
    ///
    /// # Errors
    /// When the file cannot be read, or is neither.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).map_err(TestkitError::file("reading", file))?;
        if let Ok(published) = serde_json::from_str(&text) {
            return Ok(published);
        }
        let name = file.parent().and_then(Path::file_name);
        let name = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let runs = BTreeMap::from([(name, BenchRecord::from_json(&text)?)]);
        Ok(Self { runs })
    }

    /// The run that `FILE#RUN` names, or all of FILE.
    ///
    /// # Errors
    /// As [`read`](Self::read), and when FILE has no such run.
    pub fn named(what: &str) -> Result<Vec<(String, BenchRecord)>> {
        let (file, run) = match what.split_once('#') {
            Some((file, run)) => (file, Some(run)),
            None => (what, None),
        };
        let mut published = Self::read(Path::new(file))?;
        let Some(run) = run else {
            return Ok(published.runs.into_iter().collect());
        };
        match published.runs.remove_entry(run) {
            Some(found) => Ok(vec![found]),
            None => {
                let has: Vec<_> = published.runs.keys().map(String::as_str).collect();
                let problem = format!("{file} has no run {run}; it has {}", has.join(", "));
                Err(TestkitError::Talk(problem))
            }
        }
    }

    /// Adds a run to a file, in place of one of the same name.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn add(file: &Path, name: &str, record: &BenchRecord) -> Result<()> {
        let mut published = if file.exists() {
            Self::read(file)?
        } else {
            Self::default()
        };
        published.runs.insert(name.to_owned(), record.rounded());
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
        }
        std::fs::write(file, in_lines(&published)?).map_err(TestkitError::file("writing", file))
    }
}

/// Several runs as one, with what the first one says of itself; of a row in several the last one
/// counts.
///
/// # Errors
/// When there is none, or their conditions are not the same.
pub(super) fn joined(runs: impl IntoIterator<Item = BenchRecord>) -> Result<BenchRecord> {
    let mut runs = runs.into_iter();
    let none = || TestkitError::Talk("no run was given".into());
    let mut whole = runs.next().ok_or_else(none)?;
    for run in runs {
        same_conditions(&whole, &run)?;
        let rows: BTreeSet<(&str, Client)> = run.rows().into_iter().collect();
        let replaced = |workload: &str, client| rows.contains(&(workload, client));
        whole
            .samples
            .retain(|it| !replaced(&it.workload, it.client));
        whole
            .warm_ups
            .retain(|it| !replaced(&it.workload, it.client));
        drop(rows);
        for peer in run.peers {
            if !whole.peers.contains(&peer) {
                whole.peers.push(peer);
            }
        }
        whole.samples.extend(run.samples);
        whole.warm_ups.extend(run.warm_ups);
        whole.interrupted |= run.interrupted;
        whole.rounds = whole.rounds.min(run.rounds);
    }
    Ok(whole)
}

/// Refuses one page of runs of two commits, and of two whose connections or whose NameNode's
/// answers cost something else.
/// What a record does not name may be anything.
fn same_conditions(first: &BenchRecord, other: &BenchRecord) -> Result<()> {
    if let (Some(one), Some(another)) = (&first.origin.commit, &other.origin.commit)
        && one != another
    {
        return Err(TestkitError::Talk(format!(
            "these runs cannot share a page, one is of commit {one}, another of {another}"
        )));
    }
    for name in [congestion::CONDITION, EDITS] {
        let of = |record: &BenchRecord| {
            let named = record.origin.conditions.get(name).cloned();
            named.or_else(|| before(name, record))
        };
        if let (Some(one), Some(another)) = (of(first), of(other))
            && one != another
        {
            return Err(TestkitError::Talk(format!(
                "these runs cannot share a page, one has as {name}: {one}, another: {another}; \
                    show them one by one"
            )));
        }
    }
    Ok(())
}

/// What a condition was in runs that were made before it was recorded, where that is known.
fn before(name: &str, record: &BenchRecord) -> Option<String> {
    (name == EDITS && !record.modelled).then(|| "on the nodes' disk".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::page;
    use super::super::targets::BenchTargets;
    use super::*;
    use hayloft_testkit::hadoop::repository_root;
    use std::path::PathBuf;

    #[test]
    fn a_run_is_added_and_found_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("0.1.0/machine.json");
        let of = |mib| BenchRecord {
            mib,
            ..BenchRecord::default()
        };
        PublishedRuns::add(&file, "writes", &of(1)).expect("a new file");
        PublishedRuns::add(&file, "reads", &of(2)).expect("a second run");
        PublishedRuns::add(&file, "writes", &of(3)).expect("in place of the first");
        let at = file.display();
        let named = |run: &str| PublishedRuns::named(&format!("{at}#{run}"));
        let found = named("writes").expect("is there");
        assert_eq!((found.len(), found[0].1.mib), (1, 3));
        let all = PublishedRuns::named(&at.to_string()).expect("all of them");
        assert_eq!(all.len(), 2);
        let error = named("starts").expect_err("is not there").to_string();
        assert!(error.contains("it has reads, writes"), "{error}");
    }

    #[test]
    fn every_published_run_can_be_shown() {
        let versions = repository_root().join("bench/results");
        let below = |dir: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(dir).expect("published runs").flatten();
            entries.map(|entry| entry.path()).collect()
        };
        let targets = BenchTargets::load().expect("the targets can be read");
        let mut shown = 0;
        for file in below(&versions).iter().flat_map(|version| below(version)) {
            let json = file
                .extension()
                .is_some_and(|extension| extension == "json");
            if !json || file.ends_with("experiments.json") {
                continue; // A page, or the lab's.
            }
            for (name, record) in PublishedRuns::read(&file).expect("it can be read").runs {
                let page = page::markdown(&record, &targets.targets, "");
                // Earlier runs do not name it.
                let named = record.origin.conditions.contains_key(congestion::CONDITION);
                assert_eq!(page.contains(congestion::CONDITION), named, "{name}");
                shown += 1;
            }
        }
        assert!(shown > 0, "there are published runs");
    }

    #[test]
    fn runs_under_other_conditions_do_not_share_a_page() {
        let of = |condition: &str, value: Option<&str>| {
            let mut record = BenchRecord::default();
            let pair = value.map(|value| (condition.to_owned(), value.to_owned()));
            record.origin.conditions.extend(pair);
            record
        };
        let tcp = |name| of(congestion::CONDITION, name);
        let error = same_conditions(&tcp(Some("bbr")), &tcp(Some("cubic")));
        let error = error.expect_err("they differ").to_string();
        assert!(error.contains("bbr") && error.contains("cubic"), "{error}");
        for (one, another) in [
            (Some("bbr"), Some("bbr")),
            (None, Some("bbr")),
            (None, None),
        ] {
            same_conditions(&tcp(one), &tcp(another)).expect("nothing is known against it");
        }
        let edits = |place| of(EDITS, place);
        let (early, now) = (edits(None), edits(Some("in shared memory")));
        same_conditions(&early, &now).expect_err("they were on the disk");
        same_conditions(&now, &now).expect("the same");
        let modelled = BenchRecord {
            modelled: true,
            ..BenchRecord::default()
        };
        same_conditions(&modelled, &now).expect("they were never on that disk");
    }

    #[test]
    fn of_a_row_in_two_runs_the_last_one_counts() {
        use super::super::figures::Figure::Rate;
        use super::super::record::tests::record;
        let java = Client::Java;
        let first = record(&[
            ("cold-1", java, "stock", &[(Rate, 1.0)]),
            ("warm-1", java, "stock", &[(Rate, 2.0)]),
        ]);
        let second = record(&[("cold-1", java, "direct", &[(Rate, 3.0)])]);
        let whole = joined([first, second]).expect("they can be joined");
        assert_eq!(whole.peers, ["stock", "direct"]);
        let of = |row, peer| whole.values(row, java, peer, Rate);
        assert!(
            of("cold-1", "stock").is_empty(),
            "never beside another run's"
        );
        assert_eq!(
            (of("cold-1", "direct"), of("warm-1", "stock")),
            (vec![3.0], vec![2.0])
        );
        joined([]).expect_err("none");
    }
}
