//! What users of the lab are told: what failed, where, and what to do about it.

use std::fmt;
use std::path::Path;

use hayloft_testkit::TestkitError;

/// Exit code: there is a finding (some rows failed, a testbed is not there).
pub const FINDING: u8 = 1;
/// Exit code: wrong usage, or an environment that does not allow the work.
pub const USAGE: u8 = 2;
/// Exit code: interrupted from the terminal.
pub const INTERRUPTED: u8 = 130;

/// An error on its way to the user, shown as `what (where): what to do`.
#[derive(Debug)]
pub struct LabError {
    text: String,
    code: u8,
}

impl LabError {
    /// An error of usage or environment, exit code 2. An empty place or advice is left out.
    pub fn new(what: impl fmt::Display, place: impl fmt::Display, advice: &str) -> Self {
        let (mut text, place) = (what.to_string(), place.to_string());
        if !place.is_empty() {
            text += &format!(" ({place})");
        }
        if !advice.is_empty() {
            text += &format!(": {advice}");
        }
        Self { text, code: USAGE }
    }

    /// The same as a finding, exit code 1: the work was done and something is wrong.
    pub fn finding(mut self) -> Self {
        self.code = FINDING;
        self
    }

    /// Adapter for `map_err` on file operations.
    pub fn file<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(std::io::Error) -> Self + 'a {
        move |error| {
            let advice = "check that the directory exists and is yours to write";
            Self::new(format!("cannot {doing}: {error}"), path.display(), advice)
        }
    }

    /// Exit code of the process.
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<TestkitError> for LabError {
    fn from(error: TestkitError) -> Self {
        match error {
            TestkitError::Missing { what, todo } => {
                Self::new(format!("{what} not found"), "", &todo)
            }
            TestkitError::Process {
                name,
                problem,
                tail,
            } => {
                let advice = format!("the end of its log says why\n{tail}");
                Self::new(format!("{name} {problem}"), "", &advice)
            }
            other => Self::new(other, "", ""),
        }
    }
}
