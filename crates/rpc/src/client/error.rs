//! What a call can end with.

use std::time::Duration;

use hayloft_wire::rpc::RpcErrorCode;

/// Why a call failed. Cloneable, because one lost connection fails many calls.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The address cannot be resolved or no server accepts the connection: try again later.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// Host and port as configured.
        address: String,
        /// What the system said.
        reason: String,
    },
    /// One side could not prove to the other who it is; nothing was called. Try again later.
    #[error("{address} is not called, because nothing proves who is who: {reason}")]
    Unproven {
        /// Host and port as configured.
        address: String,
        /// What failed, and what to do about it.
        reason: String,
    },
    /// The connection was lost. The server may or may not have carried out the call.
    #[error("the connection to {address} was lost: {reason}")]
    Lost {
        /// Host and port as configured.
        address: String,
        /// What the system said, or which limit was met.
        reason: String,
    },
    /// No answer in time. The server may or may not have carried out the call.
    #[error("{address} did not answer {method} within {after:?}")]
    Timeout {
        /// Host and port as configured.
        address: String,
        /// The method called.
        method: &'static str,
        /// The time waited.
        after: Duration,
    },
    /// The server answered with an exception.
    #[error("{class}: {message}")]
    Remote {
        /// Fully qualified Java class of the exception.
        class: String,
        /// Its message, usually with a Java stack trace after the first line.
        message: String,
        /// The kind of failure, when the server told.
        code: Option<RpcErrorCode>,
    },
    /// The server sent bytes that make no sense.
    #[error("{address} sent an answer that cannot be understood: {reason}")]
    Malformed {
        /// Host and port as configured.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The request is larger than the server accepts (`ipc.maximum.data.length`); it was not sent.
    #[error(
        "a request of {len} bytes for {method} is not sent: servers accept {limit} bytes \
         (ipc.maximum.data.length)"
    )]
    TooLarge {
        /// The method called.
        method: &'static str,
        /// Bytes of the request.
        len: usize,
        /// Limit in bytes.
        limit: usize,
    },
}

impl RpcError {
    /// The Java class of the exception with which the server answered.
    #[must_use]
    pub fn remote_class(&self) -> Option<&str> {
        match self {
            Self::Remote { class, .. } => Some(class),
            _ => None,
        }
    }

    /// Whether the server answered with the exception whose simple class name is `simple`.
    #[must_use]
    pub fn is_remote(&self, simple: &str) -> bool {
        self.remote_class().is_some_and(|class| {
            class
                .rsplit(['.', '$'])
                .next()
                .is_some_and(|last| last == simple)
        })
    }

    /// Whether the NameNode refused because it is not the active one.
    #[must_use]
    pub fn is_standby(&self) -> bool {
        self.is_remote("StandbyException")
    }

    /// One line for the log: a remote exception without its stack trace.
    #[must_use]
    pub fn brief(&self) -> String {
        let text = self.to_string();
        text.lines().next().unwrap_or_default().to_owned()
    }
}
