//! Why a node does not start, or stopped by itself.

use std::io;

use hayloft_store::StoreError;

use crate::xceiver::NoListener;
use hayloft_conf::ConfigError;

/// Why a node does not start, or stopped by itself. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The volumes cannot be used.
    #[error("cannot open the volumes of dfs.datanode.data.dir: {0}")]
    Store(#[from] StoreError),
    /// The data directories hold replicas of another number of nodes than the configuration names.
    #[error("{0}")]
    OtherNodes(String),
    /// A port cannot be listened on.
    #[error(
        "cannot listen on {address} ({key}): {source}; choose another address or stop what uses it"
    )]
    Listen {
        /// The key that names the address.
        key: &'static str,
        /// The address.
        address: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The socket for clients of this host cannot be listened on.
    #[error("cannot listen on the domain socket {path} (dfs.domain.socket.path): {source}")]
    DomainSocket {
        /// Its path.
        path: String,
        /// Why, and what to do.
        source: NoListener,
    },
    /// The web port cannot be served as the configuration asks.
    #[error("the web port: {0}")]
    Web(String),
    /// Who may call the RPC port cannot be told.
    #[error("service-level authorization: {0}; correct it, and start again")]
    Policy(String),
    /// The node cannot prove who it is.
    #[error("the node cannot log in with Kerberos: {0}")]
    Kerberos(String),
    /// This build has not what the configuration asks for.
    #[error("{0}")]
    Refused(String),
    /// A service ended the node.
    #[error("{0}")]
    Stopped(String),
}
