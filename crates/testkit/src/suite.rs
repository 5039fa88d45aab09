//! The cluster tests as trials of `libtest-mimic`: in order, on one thread, one cluster a group.
//!
//! The cases of a group share what its first case starts. It ends before the next group begins, or
//! with the suite; after a failed case its directory stays. What no filter wants is not started.

pub use crate::error::expect;
use crate::error::{Result, TestkitError};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How a case ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All it claims was seen.
    Passed,
    /// It could not be run here; the reason is printed.
    Skipped(String),
}

/// The end of the group whose cases run now.
type GroupEnd = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Cases of one test file. The program takes the arguments of libtest: a part of a case's name,
/// `--exact`, `--skip`, `--list`.
#[derive(Default)]
pub struct Suite {
    trials: Vec<Trial>,
    end: GroupEnd,
}

impl Suite {
    /// Whether small disks can be mounted for the cases of the suite. If not, a case called `what`
    /// says why it is skipped, in the place of all that need them.
    pub fn may_mount_disks(&mut self, what: &str) -> bool {
        let may = crate::mounts::may_mount();
        if !may {
            self.case(what, || {
                let why = "small disks can only be mounted by root";
                Ok(Outcome::Skipped(why.into()))
            });
        }
        may
    }

    /// Adds a case that shares nothing.
    pub fn case(
        &mut self,
        name: impl Into<String>,
        case: impl FnOnce() -> Result<Outcome> + Send + 'static,
    ) {
        let timed = move || -> std::result::Result<Completion, Failed> {
            let start = Instant::now();
            Ok(match case()? {
                Outcome::Passed => {
                    print!("{:.1} s, ", start.elapsed().as_secs_f64());
                    Completion::Completed
                }
                Outcome::Skipped(reason) => Completion::ignored_with(reason),
            })
        };
        self.trials.push(Trial::ignorable_test(name, timed));
    }

    /// Begins a group of cases that share what `start` makes, as late as possible; `end` takes it
    /// and is told whether a case has failed.
    pub fn group<L: Send + 'static>(
        &mut self,
        start: impl FnOnce() -> Result<L> + Send + 'static,
        end: impl FnOnce(L, bool) + Send + 'static,
    ) -> CaseGroup<'_, L> {
        CaseGroup {
            suite: self,
            shared: Arc::new(Mutex::new(Shared {
                start: Some(Box::new(start)),
                lab: None,
                end: Some(Box::new(end)),
                failed: false,
            })),
        }
    }

    /// Runs what `body` adds, as far as the program's arguments want it.
    #[must_use]
    pub fn run(name: &'static str, body: impl FnOnce(&mut Self) -> Result<()>) -> ExitCode {
        let arguments = Arguments {
            test_threads: Some(1),
            ..Arguments::from_args()
        };
        let mut suite = Self::default();
        if let Err(error) = body(&mut suite) {
            eprintln!("{name}: failed before its first case: {error}");
            return ExitCode::FAILURE;
        }
        if !arguments.list {
            let kind = crate::node::Kind::under_test();
            println!("{name}: nodes under test: {kind:?}");
        }
        let conclusion = libtest_mimic::run(&arguments, suite.trials);
        end_group(&suite.end);
        conclusion.exit_code()
    }
}

/// What the cases of a group share.
struct Shared<L> {
    start: Option<Box<dyn FnOnce() -> Result<L> + Send>>,
    lab: Option<L>,
    end: Option<Box<dyn FnOnce(L, bool) + Send>>,
    failed: bool,
}

/// A group of cases, see [`Suite::group`].
pub struct CaseGroup<'a, L> {
    suite: &'a mut Suite,
    shared: Arc<Mutex<Shared<L>>>,
}

impl<L: Send + 'static> CaseGroup<'_, L> {
    /// Adds a case. An error or a panic fails it, and not the cases behind it.
    pub fn case(
        &mut self,
        name: impl Into<String>,
        case: impl FnOnce(&mut L) -> Result<Outcome> + Send + 'static,
    ) -> &mut Self {
        let (shared, open) = (Arc::clone(&self.shared), Arc::clone(&self.suite.end));
        self.suite.case(name, move || {
            begin(&shared, &open)?;
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            // A panic leaves it so.
            let failed = std::mem::replace(&mut shared.failed, true);
            let lab = shared.lab.as_mut().ok_or_else(|| {
                TestkitError::Expectation("what the group shares did not start".into())
            })?;
            let outcome = case(lab);
            shared.failed = failed || outcome.is_err();
            outcome
        });
        self
    }
}

/// Starts what a group shares, if this is its first case, behind the end of the group before.
fn begin<L: Send + 'static>(shared: &Arc<Mutex<Shared<L>>>, open: &GroupEnd) -> Result<()> {
    let start = shared
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .start
        .take();
    let Some(start) = start else {
        return Ok(());
    };
    end_group(open);
    let lab = start()?;
    let mut begun = shared.lock().unwrap_or_else(PoisonError::into_inner);
    begun.lab = Some(lab);
    let shared = Arc::clone(shared);
    let end = move || {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(lab), Some(end)) = (shared.lab.take(), shared.end.take()) {
            end(lab, shared.failed);
        }
    };
    *open.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(end));
    Ok(())
}

fn end_group(open: &GroupEnd) {
    let end = open.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(end) = end {
        end();
    }
}

/// The case has shown what it claims.
///
/// # Errors
/// Never; for the last line of a case.
pub fn passed() -> Result<Outcome> {
    Ok(Outcome::Passed)
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
