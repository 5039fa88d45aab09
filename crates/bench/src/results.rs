//! Published runs: one file a version and machine, `bench/results/VERSION/MACHINE.json`.
//!
//! A page of docs/evaluate names a run as FILE#RUN, and `hayloft bench --show FILE#RUN` makes its
//! tables. What a run leaves besides (plots, its own page) is below target/bench and not published.

use super::record::{BenchRecord, rounded};
use hayloft_testkit::error::{Result, TestkitError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
    pub fn add(file: &Path, name: &str, mut record: BenchRecord) -> Result<()> {
        record.samples = record.samples.iter().map(rounded).collect();
        let mut published = if file.exists() {
            Self::read(file)?
        } else {
            Self::default()
        };
        published.runs.insert(name.to_owned(), record);
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
        }
        std::fs::write(file, published.to_json()?).map_err(TestkitError::file("writing", file))
    }

    /// As JSON with one sample a line, so that a new run is a change that can be read.
    fn to_json(&self) -> Result<String> {
        let failed = |error: serde_json::Error| TestkitError::Talk(error.to_string());
        let text = serde_json::to_string(self).map_err(failed)?;
        Ok(text.replace("{\"workload\"", "\n{\"workload\"") + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_added_and_found_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("0.1.0/machine.json");
        let of = |mib| BenchRecord {
            mib,
            ..BenchRecord::default()
        };
        PublishedRuns::add(&file, "writes", of(1)).expect("a new file");
        PublishedRuns::add(&file, "reads", of(2)).expect("a second run");
        PublishedRuns::add(&file, "writes", of(3)).expect("in place of the first");
        let at = file.display();
        let named = |run: &str| PublishedRuns::named(&format!("{at}#{run}"));
        let found = named("writes").expect("is there");
        assert_eq!((found.len(), found[0].1.mib), (1, 3));
        let all = PublishedRuns::named(&at.to_string()).expect("all of them");
        assert_eq!(all.len(), 2);
        let error = named("starts").expect_err("is not there").to_string();
        assert!(error.contains("it has reads, writes"), "{error}");
    }
}
