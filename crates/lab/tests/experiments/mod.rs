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

/// All experiments, in groups that each take at most half an hour.
const GROUPS: [(&str, &[&str]); 4] = [
    ("experiments_hosts", &["domains", "pairs", "scaling"]),
    (
        "experiments_failures",
        &["durability", "parity", "degraded", "snapshots"],
    ),
    ("experiments_jobs", &["super", "dfsio", "netblock"]),
    (
        "experiments_disks",
        &[
            "layouts",
            "pfs",
            "native",
            "streams",
            "virtual-disks",
            "fscost",
            "hadiofs",
        ],
    ),
];

/// Runs a group.
pub fn run(group: &'static str) -> ExitCode {
    Suite::run(group, |suite| {
        let mut all: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let mut known = EXPERIMENTS.map(|experiment| experiment.name);
        all.sort_unstable();
        known.sort_unstable();
        expect(all == known, || format!("not one group for each: {all:?}"))?;
        for (_, names) in GROUPS.iter().filter(|(name, _)| *name == group) {
            for name in *names {
                suite.case(*name, move || quick(name));
            }
        }
        Ok(())
    })
}

fn quick(name: &str) -> Result<Outcome> {
    let target = repository_root().join("target");
    let dir = tempfile::tempdir_in(&target)
        .map_err(TestkitError::file("making a directory in", &target))?;
    let (work, out) = (dir.path().join("work"), dir.path().join("out"));
    let argv = [
        lab_binary()?.display().to_string(),
        "experiment".into(),
        name.into(),
        "--quick".into(),
        "--state".into(),
        work.display().to_string(),
        "--out".into(),
        out.display().to_string(),
    ];
    let log = dir.path().join("log");
    let mut process = Spawn::new(name, argv.to_vec(), &log).start()?;
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
