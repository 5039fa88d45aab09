//! The harness of the cluster tests: one cluster a file, many cases, a printed line for each.

use crate::Cluster;
use crate::error::{Result, TestkitError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How a case ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All it claims was seen.
    Passed,
    /// It could not be run here; the reason is printed.
    Skipped(String),
}

/// Cases of one test file.
///
/// Arguments of the test program that are not flags, and `HAYLOFT_LAB_CASES`, are substrings of
/// case names: only those run.
#[derive(Debug)]
pub struct Suite {
    name: &'static str,
    only: Vec<String>,
    passed: usize,
    failed: Vec<String>,
    skipped: usize,
    start: Instant,
}

impl Suite {
    /// Begins a suite.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        let from_env = std::env::var("HAYLOFT_LAB_CASES")
            .ok()
            .filter(|text| !text.is_empty());
        let only = std::env::args()
            .skip(1)
            .filter(|arg| !arg.starts_with('-'))
            .chain(from_env)
            .collect();
        println!(
            "{name}: nodes under test: {:?}",
            crate::node::Kind::under_test()
        );
        Self {
            name,
            only,
            passed: 0,
            failed: Vec::new(),
            skipped: 0,
            start: Instant::now(),
        }
    }

    /// Runs one case and prints how it went. A panic fails the case, not the suite.
    pub fn case(&mut self, name: &str, case: impl FnOnce() -> Result<Outcome>) {
        if !self.only.is_empty() && !self.only.iter().any(|only| name.contains(only.as_str())) {
            return;
        }
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(case));
        let seconds = start.elapsed().as_secs_f64();
        match result {
            Ok(Ok(Outcome::Passed)) => {
                self.passed += 1;
                println!("{}: ok      {seconds:6.1}s {name}", self.name);
            }
            Ok(Ok(Outcome::Skipped(reason))) => {
                self.skipped += 1;
                println!("{}: skipped {seconds:6.1}s {name}: {reason}", self.name);
            }
            Ok(Err(error)) => self.fail(name, seconds, &error.to_string()),
            Err(_) => self.fail(name, seconds, "panicked (see above)"),
        }
    }

    fn fail(&mut self, name: &str, seconds: f64, problem: &str) {
        println!("{}: FAILED  {seconds:6.1}s {name}: {problem}", self.name);
        self.failed.push(name.to_owned());
    }

    /// Whether any case has failed so far.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Ends a cluster whose cases have all been run: prints the ends of its logs if any has failed,
    /// and else leaves nothing of it.
    pub fn conclude(&self, cluster: Cluster) {
        if self.has_failures() {
            println!("{}", cluster.log_tails());
        } else {
            cluster.succeed();
        }
    }

    /// Prints the summary; failure when a case failed or none ran.
    #[must_use]
    pub fn finish(self) -> ExitCode {
        let Self {
            name,
            passed,
            failed,
            skipped,
            start,
            only,
        } = self;
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{name}: {passed} passed, {} failed, {skipped} skipped in {seconds:.1}s",
            failed.len()
        );
        for case in &failed {
            println!("{name}: failed: {case}");
        }
        let nothing_ran = passed + skipped == 0 && only.is_empty();
        if failed.is_empty() && !nothing_ran {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// Runs a whole file: `body` gets the suite; an error of `body` itself (a cluster that does
    /// not start) fails the file.
    #[must_use]
    pub fn run(name: &'static str, body: impl FnOnce(&mut Self) -> Result<()>) -> ExitCode {
        let mut suite = Self::new(name);
        if let Err(error) = body(&mut suite) {
            println!("{name}: FAILED outside of cases: {error}");
            suite.failed.push("(outside of cases)".into());
        }
        suite.finish()
    }
}

/// The case has shown what it claims.
///
/// # Errors
/// Never; for the last line of a case.
pub fn passed() -> Result<Outcome> {
    Ok(Outcome::Passed)
}

/// Checks an expectation of a case.
///
/// # Errors
/// [`TestkitError::Expectation`] with `message` when it does not hold.
pub fn expect(holds: bool, message: impl FnOnce() -> String) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(TestkitError::Expectation(message()))
    }
}

/// Checks equality, showing both.
///
/// # Errors
/// [`TestkitError::Expectation`].
pub fn expect_eq<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Result<()> {
    expect(got == want, || {
        format!("{what}: got {got:?}, want {want:?}")
    })
}

/// Seconds, for waits.
#[must_use]
pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
