//! Published figures of the experiments: their raw data in one file, and the page made of it.

use std::collections::BTreeMap;
use std::path::Path;

use hayloft_bench::fair::origin::{commits_since, recorded};
use hayloft_testkit::error::{Result, TestkitError};

use crate::experiments::EXPERIMENTS;
use crate::runner::page::ExperimentPage;
use crate::runner::record::{Record, in_lines};
use crate::runner::table::Shown;

const HEAD: &str = "# Figures of the experiments

This page is generated from [experiments.json](experiments.json) by
`HAYLOFT_BLESS=1 cargo test -p hayloft-lab --test figures`: do not edit it.
[The experiments](../../../docs/evaluate/experiments.md) says what follows from which figure.

Commands are as they were given then; `hayloft lab` is `hayloft-lab` now. Three figures in a cell
are the median (lowest-highest) of the rounds. Answers of a modelled disk that came more than 2 ms
late are counted as late. Where raw data names no commit, stock nodes had other settings than
they have now: some of buffers, read-ahead, compilers and a warm start were missing.
";

/// `dd` on the modelled disk: measured by hand.
const DD: Shown = Shown {
    title: "dd on the modelled disk",
    tables: include_str!("experiments/tables/modelled-disk-dd.txt"),
    ..Shown::NOTHING
};

/// The runs of each experiment, by its name.
#[derive(Clone, Debug, Default)]
pub struct PublishedFigures(BTreeMap<String, Vec<Record>>);

/// What a page shows, under the names that raw data has.
fn shown() -> impl Iterator<Item = (&'static str, Shown)> {
    let experiments = EXPERIMENTS.iter().map(|one| (one.name, one.shown));
    experiments.chain([("modelled-disk-dd", DD)])
}

impl PublishedFigures {
    /// Those of a file.
    ///
    /// # Errors
    /// When it cannot be read or is something else, and when no page shows one of its sets.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).map_err(TestkitError::file("reading", file))?;
        let wrong = |what: String| TestkitError::Talk(format!("{}: {what}", file.display()));
        let sets = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let figures = Self(sets);
        let known = |name: &&String| shown().any(|(known, _)| known == name.as_str());
        match figures.0.keys().find(|name| !known(name)) {
            Some(name) => Err(wrong(format!("no table shows the set {name}"))),
            None => Ok(figures),
        }
    }

    /// Adds a run to a file, in place of runs of the same experiment and command.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn add(file: &Path, name: &str, record: Record) -> Result<()> {
        let mut all = match file.exists() {
            true => Self::read(file)?,
            false => Self::default(),
        };
        let runs = all.0.entry(name.to_owned()).or_default();
        runs.retain(|run| run.origin.command != record.origin.command);
        runs.push(record);
        std::fs::write(file, in_lines(&all.0)?).map_err(TestkitError::file("writing", file))
    }

    /// Every run's part of the page, with how many commits its crates have moved on by commit.
    fn parts<'a>(
        &'a self,
        since: &'a dyn Fn(&str) -> Option<u32>,
    ) -> impl Iterator<Item = (String, &'a Record)> {
        shown().flat_map(move |(name, shown)| {
            let runs = self.0.get(name).into_iter().flatten().enumerate();
            runs.map(move |(at, record)| {
                let page = ExperimentPage::new(&shown, record);
                let title = match at {
                    0 => format!("\n## {}\n\n`{name}`\n", shown.title),
                    _ => String::new(),
                };
                let head = page.head(record.origin.signed().and_then(since));
                (format!("{title}\n{head}{}", page.body(3)), record)
            })
        })
    }

    /// The page. How old data is comes from the committed page, so that the same data make the same
    /// page; or from git, when it is made anew.
    #[must_use]
    pub fn page(&self, committed: Option<&str>) -> String {
        let known = committed.map(recorded);
        let since = |commit: &str| match &known {
            Some(known) => known.get(commit).copied(),
            None => commits_since(commit),
        };
        let parts = self.parts(&since).map(|(part, _)| part);
        HEAD.to_owned() + &parts.collect::<String>()
    }

    /// What is wrong with a page of this data: each part that passes for a result and is none.
    #[must_use]
    pub fn faults_of(&self, page: &str) -> Vec<String> {
        let known = recorded(page);
        let since = |commit: &str| known.get(commit).copied();
        let fault = |(part, record): (String, &Record)| {
            // A part that the page lacks, it cannot mark either.
            let part = if page.contains(&part) {
                part
            } else {
                String::new()
            };
            let now = record.origin.signed().and_then(commits_since);
            let fault = record.origin.fault_of(&part, now)?;
            Some(format!("{}: {fault}", record.origin.command))
        };
        self.parts(&since).filter_map(fault).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayloft_bench::fair::origin::{DataOrigin, IS_OLD};

    fn measured_at(commit: Option<&str>) -> PublishedFigures {
        let origin = DataOrigin {
            commit: commit.map(str::to_owned),
            command: "hayloft-lab experiment pairs".into(),
            ..DataOrigin::default()
        };
        let record = Record {
            origin,
            ..Record::default()
        };
        PublishedFigures(BTreeMap::from([("pairs".to_owned(), vec![record])]))
    }

    #[test]
    fn a_page_is_refused_that_hides_what_its_data_lacks() {
        let unsigned = measured_at(None);
        let page = unsigned.page(None);
        assert_eq!(unsigned.faults_of(&page), Vec::<String>::new());
        let hidden = page.replace("**Not signed**", "Measured");
        assert_eq!(unsigned.faults_of(&hidden).len(), 1, "{hidden}");
    }

    #[test]
    fn a_page_says_again_how_old_it_found_its_data() {
        let figures = measured_at(Some("abc"));
        let old = "Measured at `abc` (no date, load before: not told), 61 commits of io, node";
        let page = figures.page(Some(old));
        assert!(page.contains(IS_OLD), "{page}");
        assert_eq!(
            figures.page(Some(&page)),
            page,
            "the same data make the same page"
        );
    }

    #[test]
    fn a_run_takes_the_place_of_the_same_command() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("experiments.json");
        let of = |commit: &str, command: &str| Record {
            origin: DataOrigin {
                commit: Some(commit.into()),
                command: command.into(),
                ..DataOrigin::default()
            },
            ..Record::default()
        };
        for (commit, command) in [("a", "one"), ("b", "other"), ("c", "one")] {
            PublishedFigures::add(&file, "pairs", of(commit, command)).expect("added");
        }
        let all = PublishedFigures::read(&file).expect("it is well");
        let commits: Vec<_> = all.0["pairs"]
            .iter()
            .map(|run| run.origin.commit.clone())
            .collect();
        assert_eq!(commits, [Some("b".into()), Some("c".into())]);
        PublishedFigures::add(&file, "unknown", of("d", "x")).expect("written");
        let error = PublishedFigures::read(&file)
            .expect_err("no table")
            .to_string();
        assert!(error.contains("no table shows the set unknown"), "{error}");
    }
}
