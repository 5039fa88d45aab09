//! Why an operation on a file failed, by the exception that a Java client would throw.

use hayloft_rpc::RpcError;
use hayloft_wire::rpc::names::RETRIABLE_EXCEPTION;

/// Why an operation on a file failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FileError {
    /// A NameNode said no.
    #[error("{class}: {message}")]
    Remote {
        /// Java class of its exception.
        class: String,
        /// What it says, usually with a Java stack trace.
        message: String,
    },
    /// No NameNode answers.
    #[error("{0}")]
    Unreachable(String),
    /// No replica of a block can be read.
    #[error("{0}")]
    BlockMissing(String),
    /// Beyond the end of the file.
    #[error("Cannot seek after EOF")]
    BeyondEnd,
    /// There is no such file.
    #[error("{0}")]
    NotFound(String),
    /// What only security or encryption would allow.
    #[error("{0}")]
    NotAllowed(String),
    /// Too much is on its way: later it may be done.
    #[error("too many striped files are on their way through this node: try again later")]
    Busy,
    /// Everything else.
    #[error("{0}")]
    Failed(String),
}

impl FileError {
    pub(super) fn failed(what: impl std::fmt::Display) -> Self {
        Self::Failed(what.to_string())
    }

    /// The Java class of the exception.
    #[must_use]
    pub fn java_class(&self) -> &str {
        match self {
            Self::Remote { class, .. } => class,
            Self::Unreachable(_) => "java.net.ConnectException",
            Self::BlockMissing(_) => "org.apache.hadoop.hdfs.BlockMissingException",
            Self::BeyondEnd => "java.io.EOFException",
            Self::NotFound(_) => "java.io.FileNotFoundException",
            Self::NotAllowed(_) => "org.apache.hadoop.security.AccessControlException",
            Self::Busy => RETRIABLE_EXCEPTION,
            Self::Failed(_) => "java.io.IOException",
        }
    }

    /// The message of the exception.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Remote { message, .. } => message.clone(),
            other => other.to_string(),
        }
    }
}

impl From<RpcError> for FileError {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Remote { class, message, .. } => Self::Remote { class, message },
            RpcError::Connect { .. } => Self::Unreachable(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}
