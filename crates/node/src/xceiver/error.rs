//! Why an operation ended early.

use std::io;

use hayloft_client::NodeTrouble;
use hayloft_store::{StoreError, StoreErrorKind};
use hayloft_wire::frame::FrameError;
use hayloft_wire::ids::IdError;
use hayloft_wire::proto::datatransfer::Status;

use crate::security::TokenRefused;

/// An operation that could not be completed. The task of the connection logs it, once.
#[derive(Debug, thiserror::Error)]
pub enum XferError {
    /// The connection with the client or upstream node broke or fell silent.
    #[error("connection with {peer}: {source}")]
    Socket {
        /// The other end.
        peer: String,
        /// What the system said.
        source: io::Error,
    },
    /// The peer sent what cannot be understood; the connection is of no more use.
    #[error("{peer} does not speak the protocol: {reason}")]
    Protocol {
        /// The other end.
        peer: String,
        /// What was wrong.
        reason: String,
    },
    /// Another node could not be reached or failed.
    #[error("node {node}: {reason}")]
    Remote {
        /// Its transfer address.
        node: String,
        /// What failed.
        reason: String,
        /// What it answered, when it did.
        status: Option<Status>,
    },
    /// The block token of a request is missing or does not permit it.
    #[error("{0}")]
    Token(#[from] TokenRefused),
    /// The replica or its volume.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The request contradicts itself or the replica.
    #[error("{0}")]
    Refused(String),
    /// Data and checksums do not match.
    #[error("{0}")]
    Checksum(String),
    /// There was no memory for a packet for too long.
    #[error(
        "no memory for a packet of {bytes} bytes from {peer} within {seconds} s: too many large \
            packets arrive at a time; \
         let clients send packets of at most 512 KiB (dfs.client-write-packet-size)"
    )]
    NoMemory {
        /// The other end.
        peer: String,
        /// Size of the packet.
        bytes: usize,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The block pool is not registered with its NameNode yet.
    #[error("Not ready to serve the block pool, {0}.")]
    NotReady(String),
    /// The write was taken over by a recovery or another writer, or the node shuts down.
    #[error("{0}")]
    Stopped(&'static str),
}

impl XferError {
    pub(super) fn protocol(peer: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Protocol {
            peer: peer.into(),
            reason: reason.to_string(),
        }
    }

    pub(super) fn remote(node: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Remote {
            node: node.into(),
            reason: reason.to_string(),
            status: None,
        }
    }

    pub(super) fn frame(peer: impl Into<String>, error: &FrameError) -> Self {
        Self::protocol(peer, error)
    }

    /// The peer went away or fell silent: nothing an operator has to look at.
    pub(super) fn is_peer_gone(&self) -> bool {
        matches!(self, Self::Socket { .. } | Self::Stopped(_))
    }

    /// A peer that has proved nothing can cause it.
    pub(super) fn needs_no_token(&self) -> bool {
        matches!(
            self,
            Self::Token(_) | Self::Protocol { .. } | Self::NotReady(_)
        )
    }

    /// The replica is damaged.
    pub(super) fn is_corrupt(&self) -> bool {
        matches!(self, Self::Store(e) if e.kind() == StoreErrorKind::Corrupt)
    }

    /// The process lacks something: no one else is to blame.
    pub(super) fn lacks_means(&self) -> bool {
        matches!(self, Self::Store(e) if e.kind() == StoreErrorKind::Retry)
    }

    /// The disk may be to blame.
    pub(super) fn suspects_disk(&self) -> bool {
        matches!(self, Self::Store(e)
            if matches!(e.kind(), StoreErrorKind::Io | StoreErrorKind::VolumeFailed))
    }
}

impl From<IdError> for XferError {
    fn from(error: IdError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<NodeTrouble> for XferError {
    fn from(trouble: NodeTrouble) -> Self {
        if trouble.corrupt {
            return Self::Checksum(trouble.to_string());
        }
        Self::remote(trouble.node, trouble.reason)
    }
}
