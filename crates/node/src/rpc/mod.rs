//! Hadoop RPC, client side.
//!
//! | module | what it is |
//! |---|---|
//! | [`connection`] | one TCP connection with many calls in flight; it never reconnects |
//! | [`client`] | one address: connects when a call needs it, again after the connection was lost |
//! | [`error`] | what a call can end with |
//! | [`user`] | whom we say we are |
//!
//! Requests and answers are framed as in Hadoop's `ProtobufRpcEngine2` over RPC version 9. On the
//! wire the authentication is SIMPLE, which a Hadoop client announces as "none" in the connection
//! header; SASL is not spoken here.

pub mod client;
pub mod connection;
pub mod error;
pub mod user;

#[cfg(test)]
mod tests;

pub use client::RpcClient;
pub use connection::{RpcConnection, RpcOptions};
pub use error::RpcError;
pub use user::current_user;

/// A protocol as a Hadoop server knows it: the declaring class and its protobuf version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Fully qualified name of the Java interface.
    pub name: &'static str,
    /// Version of the protobuf form (not the `versionID` of the Java interface).
    pub version: u64,
}

/// DataNode to NameNode.
pub const DATANODE_PROTOCOL: Protocol = Protocol {
    name: "org.apache.hadoop.hdfs.server.protocol.DatanodeProtocol",
    version: 1,
};

/// DataNode to NameNode, the port for signs of life only.
pub const DATANODE_LIFELINE_PROTOCOL: Protocol = Protocol {
    name: "org.apache.hadoop.hdfs.server.protocol.DatanodeLifelineProtocol",
    version: 1,
};

/// DataNode to DataNode, block recovery.
pub const INTER_DATANODE_PROTOCOL: Protocol = Protocol {
    name: "org.apache.hadoop.hdfs.server.protocol.InterDatanodeProtocol",
    version: 1,
};

/// Client to DataNode.
pub const CLIENT_DATANODE_PROTOCOL: Protocol = Protocol {
    name: "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol",
    version: 1,
};
