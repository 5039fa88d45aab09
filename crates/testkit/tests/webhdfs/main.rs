//! Hadoop's own tests of WebHDFS, over a stock NameNode in their JVM and Hayloft nodes. What fails
//! is run again over stock nodes: it may fail only where they fail too, for a reason named here.

mod known;
mod maven;

use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::{Outcome, Suite};
use maven::{SurefireRun, Verdict, Verdicts};
use std::process::ExitCode;
use std::sync::OnceLock;

fn main() -> ExitCode {
    Suite::run("webhdfs", |suite| {
        suite.case("hadoop_s_tests_of_webhdfs", || judge("hadoop", 265));
        suite.case("contracts_over_webhdfs", || judge("webhdfs", 190));
        suite.case("contracts_over_swebhdfs", || judge("swebhdfs", 190));
        Ok(())
    })
}

/// Runs an execution of `hadoop/web-check`, which has at least so many tests.
fn judge(execution: &str, at_least: usize) -> Result<Outcome> {
    static COMPILED: OnceLock<()> = OnceLock::new();
    if COMPILED.get().is_none() {
        maven::compile()?;
        let _ = COMPILED.set(());
    }
    let run = SurefireRun {
        execution,
        nodes: Kind::under_test(),
        only: None,
    };
    let verdicts = run.verdicts()?;
    let failed = named(&verdicts, &Verdict::Failed);
    let skipped = named(&verdicts, &Verdict::Skipped);
    let total = verdicts.len();
    expect(total >= at_least, || {
        format!("only {total} of at least {at_least} tests ran: is one of the classes missing?")
    })?;
    println!(
        "webhdfs: {execution}: {total} tests, {} passed, {} skipped by themselves, {} failed",
        total - failed.len() - skipped.len(),
        skipped.len(),
        failed.len()
    );
    for name in &skipped {
        println!("webhdfs: skipped by itself: {name}");
    }
    for (name, why) in known::LEFT_OUT {
        println!("webhdfs: left out: {name}: {why}");
    }
    let mut problems = known::stale(&verdicts);
    if !failed.is_empty() {
        problems.extend(compare(execution, &failed)?);
    }
    expect(problems.is_empty(), || problems.join("; "))?;
    passed()
}

fn named(verdicts: &Verdicts, wanted: &Verdict) -> Vec<String> {
    let found = verdicts.iter().filter(|(_, verdict)| *verdict == wanted);
    found.map(|(name, _)| name.clone()).collect()
}

/// Runs what failed over stock nodes, and answers with what is our fault or not explained.
fn compare(execution: &str, failed: &[String]) -> Result<Vec<String>> {
    let run = SurefireRun {
        execution,
        nodes: Kind::Apache,
        only: Some(failed),
    };
    let stock = run.verdicts()?;
    let mut problems = Vec::new();
    for name in failed {
        match (stock.get(name), known::reason(name)) {
            (Some(Verdict::Failed), Some(why)) => {
                println!("webhdfs: fails over stock nodes as well: {name}: {why}");
            }
            (Some(Verdict::Failed), None) => problems.push(format!(
                "{name} fails over stock nodes as well: say why in known.rs"
            )),
            (verdict, _) => problems.push(format!(
                "{name} fails, and over stock nodes the verdict is {verdict:?}"
            )),
        }
    }
    Ok(problems)
}
