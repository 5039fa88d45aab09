//! `hayloft-lab experiment all --quick`, a case an experiment: each runs whole with little data and
//! leaves a page, with raw data of what was measured.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use hayloft_lab::experiments::EXPERIMENTS;
use hayloft_lab::runner::record::Record;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{lab_binary, repository_root};
use hayloft_testkit::process::{Spawn, tail};
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::{Outcome, Suite, TestkitError};

/// Exit code of an experiment that cannot begin: something is missing on this machine.
const LACKING: i32 = 2;

/// The longest, on a machine that others use too.
const LIMIT: Duration = Duration::from_secs(1200);

/// All experiments, in groups that each take at most half an hour. Parts stand behind a name where
/// all together take longer than a case may.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "experiments_hosts",
        &["domains", "pairs", "scaling", "dfsio", "netblock"],
    ),
    (
        "experiments_failures",
        &[
            "durability",
            "power",
            "slow-replica",
            "parity",
            "degraded",
            "snapshots",
        ],
    ),
    ("experiments_jobs", &["super jobs", "super beside", "tasks"]),
    (
        "experiments_disks",
        &[
            "layouts",
            "native",
            "streams",
            "bare-disk",
            "virtual-disks",
            "fscost",
            "hadiofs",
        ],
    ),
    ("experiments_pfs", &["pfs read-sizes,layouts,memory,loss"]),
    ("experiments_pfs_jobs", &["pfs jobs"]),
];

/// Runs a group.
pub fn run(group: &'static str) -> ExitCode {
    Suite::run(group, |suite| {
        is_complete()?;
        for (_, cases) in GROUPS.iter().filter(|(name, _)| *name == group) {
            for case in *cases {
                suite.case(*case, move || quick(case));
            }
        }
        Ok(())
    })
}

/// An experiment and the parts of it that a case runs; none: all.
fn parts_of(case: &'static str) -> (&'static str, Vec<&'static str>) {
    let (name, parts) = case.split_once(' ').unwrap_or((case, ""));
    (name, parts.split_terminator(',').collect())
}

/// Each experiment is in one group, with all of its parts.
fn is_complete() -> Result<()> {
    let cases = || GROUPS.iter().flat_map(|(_, cases)| *cases);
    for experiment in EXPERIMENTS {
        let theirs = cases().map(|case| parts_of(case));
        let theirs: Vec<_> = theirs
            .filter(|(name, _)| *name == experiment.name)
            .collect();
        let parts: Vec<&str> = theirs.iter().flat_map(|(_, parts)| parts.clone()).collect();
        let whole = theirs.len() == 1 && parts.is_empty();
        expect(whole || parts == experiment.parts, || {
            format!("not in one group with all parts: {theirs:?}")
        })?;
    }
    let known = |case: &&&'static str| EXPERIMENTS.iter().any(|one| one.name == parts_of(case).0);
    expect(cases().all(|case| known(&case)), || {
        "an unknown experiment".into()
    })
}

fn quick(case: &'static str) -> Result<Outcome> {
    let (name, parts) = parts_of(case);
    let target = repository_root().join("target");
    let dir = tempfile::tempdir_in(&target)
        .map_err(TestkitError::file("making a directory in", &target))?;
    let (work, out) = (dir.path().join("work"), dir.path().join("out"));
    let mut argv = vec![
        lab_binary()?.display().to_string(),
        "experiment".into(),
        name.into(),
        "--quick".into(),
        "--state".into(),
        work.display().to_string(),
        "--out".into(),
        out.display().to_string(),
    ];
    for part in parts {
        argv.extend(["--part".to_owned(), part.to_owned()]);
    }
    let log = dir.path().join("log");
    let mut process = Spawn::new(name, argv, &log).start()?;
    let ended = process.wait(LIMIT)?;
    if ended.code() == Some(LACKING) {
        let said = std::fs::read_to_string(&log).map_err(TestkitError::file("reading", &log))?;
        let last = said.lines().last().unwrap_or_default();
        return Ok(Outcome::Skipped(last.to_owned()));
    }
    expect(ended.success(), || format!("{ended}: {}", tail(&log)))?;
    measured(&out)?;
    passed()
}

/// Every peer of a table gave figures.
fn measured(out: &Path) -> Result<()> {
    let path = out.join("record.json");
    let text = std::fs::read(&path).map_err(TestkitError::file("reading", &path))?;
    let record: Record =
        serde_json::from_slice(&text).map_err(|error| TestkitError::Talk(error.to_string()))?;
    let empty = record
        .samples
        .iter()
        .find(|s| s.figures == Default::default());
    expect(empty.is_none(), || format!("no figures: {empty:?}"))?;
    expect(!record.samples.is_empty(), || "nothing was measured".into())?;
    let page = std::fs::read_to_string(out.join("README.md"))
        .map_err(TestkitError::file("reading", out))?;
    expect(page.contains("| "), || format!("no table: {page}"))
}
