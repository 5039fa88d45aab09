//! What went wrong with a replica or a volume, said so that the caller knows what to answer.

use std::fmt;

use hayloft_io::{IoError, IoErrorKind};

/// What the caller should answer or do. The Apache exception class that a stock client or NameNode
/// expects for each kind is named, because clients decide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No such replica here: `ReplicaNotFoundException`.
    NotFound,
    /// The replica is here with another generation stamp than the one asked for:
    /// `ReplicaNotFoundException` on writes and recovery, `IOException` on reads.
    UnexpectedGenerationStamp,
    /// The replica is here already: `ReplicaAlreadyExistsException`.
    AlreadyExists,
    /// No volume has room: `DiskOutOfSpaceException`.
    OutOfSpace,
    /// The volume of the replica has failed; the replica is no longer served.
    VolumeFailed,
    /// Reading or writing failed. The volume is being checked when the error suspects it.
    Io,
    /// The process lacks descriptors, memory or threads. It says nothing of a disk: try
    /// again later.
    Retry,
    /// The block pool is not loaded (yet): try again later.
    NotReady,
    /// Data and checksums on the disk do not fit together.
    Corrupt,
    /// The previous writer did not let go in time: try again later.
    WriterBusy,
    /// The operation is not allowed in the state that the replica is in, or contradicts itself.
    Illegal,
    /// A newer block recovery owns the replica: `RecoveryInProgressException`.
    RecoveryInProgress,
    /// A directory belongs to another cluster, node or layout: an operator has to act.
    Incompatible,
    /// The store is shutting down.
    Closed,
    /// This writer was stopped by another one or by a recovery.
    Cancelled,
}

/// An error of the store. `Display` is one line: what was being done, on what, why it failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
    #[source]
    source: Option<IoError>,
}

impl StoreError {
    /// An error explained in `message`.
    #[must_use]
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// The operation makes no sense in the state that something is in.
    pub fn illegal(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Illegal, message)
    }

    /// Something is not there.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::NotFound, message)
    }

    /// Directories, or what is configured, do not fit.
    pub fn incompatible(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Incompatible, message)
    }

    /// Another process has the directory: nothing is wrong with it, the configuration is.
    pub(crate) fn in_use(doing: &str, error: IoError) -> Self {
        let todo = "another DataNode uses this directory: stop it, or remove the directory from \
            dfs.datanode.data.dir";
        Self {
            kind: StoreErrorKind::Incompatible,
            message: format!("{doing}: {error}; {todo}"),
            source: Some(error),
        }
    }

    pub(crate) fn is_in_use(&self) -> bool {
        let kind = self.source.as_ref().map(IoError::kind);
        self.kind == StoreErrorKind::Incompatible && kind == Some(IoErrorKind::Locked)
    }

    /// Bytes are not what they should be.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Corrupt, message)
    }

    /// The store, or what would do the work, has ended.
    pub fn closed(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Closed, message)
    }

    /// A failed disk operation, with what it was part of.
    #[must_use]
    pub fn io(doing: impl fmt::Display, error: IoError) -> Self {
        let kind = match error.kind() {
            IoErrorKind::Retry if error.lacks().is_some() => StoreErrorKind::Retry,
            IoErrorKind::NoSpace => StoreErrorKind::OutOfSpace,
            IoErrorKind::Closed => StoreErrorKind::Closed,
            _ => StoreErrorKind::Io,
        };
        Self {
            kind,
            message: format!("{doing}: {error}"),
            source: Some(error),
        }
    }

    /// What to answer or do.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// The disk operation behind it, if one failed.
    #[must_use]
    pub fn io_error(&self) -> Option<&IoError> {
        self.source.as_ref()
    }

    /// The simple name of the Java exception that a stock peer expects for this error.
    #[must_use]
    pub fn java_class(&self) -> &'static str {
        match self.kind {
            StoreErrorKind::NotFound | StoreErrorKind::UnexpectedGenerationStamp => {
                "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException"
            }
            StoreErrorKind::AlreadyExists => {
                "org.apache.hadoop.hdfs.server.datanode.ReplicaAlreadyExistsException"
            }
            StoreErrorKind::OutOfSpace => {
                "org.apache.hadoop.util.DiskChecker$DiskOutOfSpaceException"
            }
            StoreErrorKind::RecoveryInProgress => {
                "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException"
            }
            _ => "java.io.IOException",
        }
    }
}
