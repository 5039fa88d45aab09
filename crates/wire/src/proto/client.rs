//! Clients to a NameNode (ClientNamenodeProtocol.proto): what it takes to write a file and to
//! delete it.
//!
//! Hayloft's nodes are no HDFS clients; the lab's load client is one. What commands ask NameNodes
//! is in `namespace`.

use super::hdfs::{DatanodeInfo, ExtendedBlock, LocatedBlock};
use super::wire_messages;

wire_messages! {
    /// Permission bits.
    pub struct FsPermission = "hadoop.hdfs.FsPermissionProto" {
        #[prost(uint32, required, tag = "1")]
        pub perm: u32,
    }

    /// Request of `ClientProtocol.create`.
    pub struct CreateRequest = "hadoop.hdfs.CreateRequestProto" {
        #[prost(string, required, tag = "1")]
        pub src: String,
        #[prost(message, required, tag = "2")]
        pub masked: FsPermission,
        #[prost(string, required, tag = "3")]
        pub client_name: String,
        /// Bits: 1 create, 2 overwrite, 4 append.
        #[prost(uint32, required, tag = "4")]
        pub create_flag: u32,
        #[prost(bool, required, tag = "5")]
        pub create_parent: bool,
        #[prost(uint32, required, tag = "6")]
        pub replication: u32,
        #[prost(uint64, required, tag = "7")]
        pub block_size: u64,
    }

    /// Answer to `ClientProtocol.create`.
    pub struct CreateResponse = "hadoop.hdfs.CreateResponseProto" {}

    /// Request of `ClientProtocol.addBlock`.
    pub struct AddBlockRequest = "hadoop.hdfs.AddBlockRequestProto" {
        #[prost(string, required, tag = "1")]
        pub src: String,
        #[prost(string, required, tag = "2")]
        pub client_name: String,
        #[prost(message, optional, tag = "3")]
        pub previous: Option<ExtendedBlock>,
        #[prost(message, repeated, tag = "4")]
        pub exclude_nodes: Vec<DatanodeInfo>,
        #[prost(uint64, optional, tag = "5", default = "0")]
        pub file_id: Option<u64>,
        /// "host:port" of nodes to prefer.
        #[prost(string, repeated, tag = "6")]
        pub favored_nodes: Vec<String>,
    }

    /// Answer to `ClientProtocol.addBlock`.
    pub struct AddBlockResponse = "hadoop.hdfs.AddBlockResponseProto" {
        #[prost(message, required, tag = "1")]
        pub block: LocatedBlock,
    }

    /// Request of `ClientProtocol.complete`.
    pub struct CompleteRequest = "hadoop.hdfs.CompleteRequestProto" {
        #[prost(string, required, tag = "1")]
        pub src: String,
        #[prost(string, required, tag = "2")]
        pub client_name: String,
        #[prost(message, optional, tag = "3")]
        pub last: Option<ExtendedBlock>,
        #[prost(uint64, optional, tag = "4", default = "0")]
        pub file_id: Option<u64>,
    }

    /// Answer to `ClientProtocol.complete`: false while a block lacks replicas, ask again.
    pub struct CompleteResponse = "hadoop.hdfs.CompleteResponseProto" {
        #[prost(bool, required, tag = "1")]
        pub result: bool,
    }

    /// Request of `ClientProtocol.delete`.
    pub struct DeleteRequest = "hadoop.hdfs.DeleteRequestProto" {
        #[prost(string, required, tag = "1")]
        pub src: String,
        #[prost(bool, required, tag = "2")]
        pub recursive: bool,
    }

    /// Answer to `ClientProtocol.delete`: whether there was anything.
    pub struct DeleteResponse = "hadoop.hdfs.DeleteResponseProto" {
        #[prost(bool, required, tag = "1")]
        pub result: bool,
    }
}
