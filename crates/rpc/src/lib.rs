//! Hadoop RPC over sockets: the client half and the server half.
//!
//! | module | what it is |
//! |---|---|
//! | [`client`] | calls to a NameNode or another DataNode |
//! | [`security`] | Kerberos: logins, names, what protects the bytes |
//! | [`server`] | the port that callers connect to; a [`server::Service`] answers them |
//! | [`log_limit`] | a bound on log lines that a peer can cause |
//! | [`repeated_failures`] | failures that repeat: when to log them, when to try again |
//!
//! Messages and their framing are of `hayloft-wire`: RPC version 9 with `ProtobufRpcEngine2`.

pub mod client;
pub mod log_limit;
pub mod repeated_failures;
pub mod security;
pub mod server;
#[cfg(test)]
mod token_tests;

pub use client::{RpcClient, RpcConnection, RpcError, RpcOptions, bind_to, current_user};
pub use hayloft_wire::rpc::names::{
    CLIENT_DATANODE_PROTOCOL, DATANODE_LIFELINE_PROTOCOL, DATANODE_PROTOCOL,
    INTER_DATANODE_PROTOCOL, Protocol,
};
pub use log_limit::LogLimit;
pub use repeated_failures::{AcceptTrouble, Trouble};
pub use security::{
    KerberosLogin, LoginSource, RpcQuality, RpcSecurity, ServerPrincipal, TokenProof,
};
