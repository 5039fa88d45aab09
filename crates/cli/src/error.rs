//! What users are told: what failed, where, and what to do about it.

use std::fmt;
use std::path::Path;

use hayloft_cluster::ClusterError;
use hayloft_conf::ConfigError;
use hayloft_node::daemon::StartError;

/// Exit code: there is a finding (a cluster that should be up is not).
pub const FINDING: u8 = 1;
/// Exit code: wrong usage, or an environment that does not allow the work.
pub const USAGE: u8 = 2;
/// Exit code: data or service is at risk, where [`FINDING`] is said of less.
pub const BAD: u8 = 3;

/// Exit code: interrupted from the terminal.
pub const INTERRUPTED: u8 = 130;

/// An error on its way to the user, shown as `what (where): what to do`.
#[derive(Debug)]
pub struct CliError {
    what: String,
    place: String,
    advice: String,
    code: u8,
    lasting: bool,
}

impl CliError {
    /// An error of usage or environment, exit code 2.
    pub fn new(
        what: impl Into<String>,
        place: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            place: place.into(),
            advice: advice.into(),
            code: USAGE,
            lasting: false,
        }
    }

    /// The same as one that stays until the user does what it says: a service ends at it, and
    /// tries again after any other.
    pub fn lasting(mut self) -> Self {
        self.lasting = true;
        self
    }

    /// Whether it stays until the user does something.
    pub fn is_lasting(&self) -> bool {
        self.lasting
    }

    /// The same as a finding, exit code 1: the work was done and something is wrong.
    pub fn finding(mut self) -> Self {
        self.code = FINDING;
        self
    }

    /// Adapter for `map_err` on file operations.
    pub fn file<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(std::io::Error) -> Self + 'a {
        move |error| {
            Self::new(
                format!("cannot {doing}: {error}"),
                path.display().to_string(),
                "check that the directory exists and is yours to write",
            )
        }
    }

    /// Java, or what stands for it at `program`, does not start.
    pub fn no_java(error: &std::io::Error, program: &str) -> Self {
        let what = format!("cannot start Java: {error}");
        Self::new(what, program, "install a JDK, version 17 or later")
    }

    /// Exit code of the process.
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.place.is_empty() {
            write!(f, " ({})", self.place)?;
        }
        if !self.advice.is_empty() {
            write!(f, ": {}", self.advice)?;
        }
        Ok(())
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        // Its messages carry place and advice already.
        Self::new(error.to_string(), "", "")
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        let stopped = matches!(error, StartError::Stopped(_));
        let error = Self::new(error.to_string(), "", "");
        if stopped { error.finding() } else { error }
    }
}

impl From<ClusterError> for CliError {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Missing { what, todo } => {
                Self::new(format!("{what} not found"), "", todo)
            }
            ClusterError::Process {
                name,
                problem,
                tail,
            } => Self::new(
                format!("{name} {problem}"),
                "",
                format!("the end of its log says why\n{tail}"),
            ),
            other => Self::new(other.to_string(), "", ""),
        }
    }
}
