//! What can go wrong in the lab, and what to do about it.

use std::path::PathBuf;
use std::time::Duration;

/// Short for results of this crate.
pub type Result<T, E = TestkitError> = std::result::Result<T, E>;

/// An error of the lab. Each says what was being done and where.
#[derive(Debug, thiserror::Error)]
pub enum TestkitError {
    /// A file or directory could not be used.
    #[error("{doing} {path}: {source}")]
    File {
        /// Verb in the -ing form.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A program needed by the lab is missing or unusable.
    #[error("{what}: {todo}")]
    Missing {
        /// What is missing.
        what: String,
        /// What to install or set.
        todo: String,
    },
    /// A process could not be started, signalled or waited for.
    #[error("process {name}: {problem}\n{tail}")]
    Process {
        /// Role of the process, for example `namenode-1`.
        name: String,
        /// What happened.
        problem: String,
        /// The end of its log, when there is one.
        tail: String,
    },
    /// Something did not come true in time.
    #[error("waited {waited:?} for {what}; last seen: {last}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        waited: Duration,
        /// The last observation.
        last: String,
    },
    /// The driver answered with an exception of the stock client.
    #[error("client: {operation}: {class}: {message}")]
    Client {
        /// The driver operation.
        operation: String,
        /// Java class of the exception.
        class: String,
        /// Its message.
        message: String,
    },
    /// Talking to a process of the lab failed.
    #[error("{0}")]
    Talk(String),
    /// A test's expectation was not met.
    #[error("{0}")]
    Expectation(String),
}

impl TestkitError {
    /// Adapter for `map_err` on file operations.
    pub fn file(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            doing,
            path,
            source,
        }
    }
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
