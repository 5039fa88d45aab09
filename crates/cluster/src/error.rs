//! What can go wrong with the processes of a cluster, and what to do about it.

use std::path::PathBuf;
use std::time::Duration;

/// Short for results of this crate.
pub type Result<T, E = ClusterError> = std::result::Result<T, E>;

/// An error of a cluster. Each says what was being done and where.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
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
    /// A program that is needed is missing or unusable.
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
    /// A stock client ended an operation with an exception.
    #[error("client: {operation}: {class}: {message}")]
    Client {
        /// The operation.
        operation: String,
        /// Java class of the exception.
        class: String,
        /// Its message.
        message: String,
    },
    /// Talking to a process failed.
    #[error("{0}")]
    Talk(String),
    /// What the caller counts on does not hold.
    #[error("{0}")]
    Expectation(String),
}

impl ClusterError {
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
