//! Types shared by the protocols between servers (HdfsServer.proto).

use std::fmt;

use bytes::Bytes;

use super::hdfs::{Block, ErasureCodingPolicy, LocatedBlock};
use super::{wire_enums, wire_messages};

wire_enums! {
    /// State of a replica.
    pub enum ReplicaState = "hadoop.hdfs.ReplicaStateProto" {
        /// `FINALIZED`.
        Finalized = 0,
        /// `RBW`.
        Rbw = 1,
        /// `RWR`.
        Rwr = 2,
        /// `RUR`.
        Rur = 3,
        /// `TEMPORARY`.
        Temporary = 4,
    }

    /// High availability state of a NameNode.
    pub enum NnHaState = "hadoop.hdfs.NNHAStatusHeartbeatProto.State" {
        /// `ACTIVE`.
        Active = 0,
        /// `STANDBY`.
        Standby = 1,
        /// `OBSERVER`.
        Observer = 2,
    }
}

wire_messages! {
    /// A key for block tokens.
    @skip_debug
    pub struct BlockKey = "hadoop.hdfs.BlockKeyProto" {
        #[prost(uint32, required, tag = "1")]
        pub key_id: u32,
        #[prost(uint64, required, tag = "2")]
        pub expiry_date: u64,
        #[prost(bytes = "bytes", optional, tag = "3")]
        pub key_bytes: Option<Bytes>,
    }

    /// Block token keys. The message is required in registrations even when tokens are off.
    pub struct ExportedBlockKeys = "hadoop.hdfs.ExportedBlockKeysProto" {
        #[prost(bool, required, tag = "1")]
        pub is_block_token_enabled: bool,
        #[prost(uint64, required, tag = "2")]
        pub key_update_interval: u64,
        #[prost(uint64, required, tag = "3")]
        pub token_life_time: u64,
        #[prost(message, required, tag = "4")]
        pub current_key: BlockKey,
        #[prost(message, repeated, tag = "5")]
        pub all_keys: Vec<BlockKey>,
    }

    /// What a NameNode says of itself in the handshake.
    pub struct NamespaceInfo = "hadoop.hdfs.NamespaceInfoProto" {
        #[prost(string, required, tag = "1")]
        pub build_version: String,
        #[prost(uint32, required, tag = "2")]
        pub unused: u32,
        #[prost(string, required, tag = "3")]
        pub block_pool_id: String,
        #[prost(message, required, tag = "4")]
        pub storage_info: StorageInfo,
        #[prost(string, required, tag = "5")]
        pub software_version: String,
        /// Bit 0: the NameNode reads block report buffers.
        #[prost(uint64, optional, tag = "6", default = "0")]
        pub capabilities: Option<u64>,
        #[prost(enumeration = "NnHaState", optional, tag = "7")]
        pub state: Option<i32>,
    }

    /// A block under recovery, with its new generation stamp.
    pub struct RecoveringBlock = "hadoop.hdfs.RecoveringBlockProto" {
        #[prost(uint64, required, tag = "1")]
        pub new_gen_stamp: u64,
        #[prost(message, required, tag = "2")]
        pub block: LocatedBlock,
        #[prost(message, optional, tag = "3")]
        pub truncate_block: Option<Block>,
        #[prost(message, optional, tag = "4")]
        pub ec_policy: Option<ErasureCodingPolicy>,
        /// One byte a location, for striped groups.
        #[prost(bytes = "bytes", optional, tag = "5")]
        pub block_indices: Option<Bytes>,
    }

    /// Request of `versionRequest`; DatanodeProtocol and NamenodeProtocol share it.
    pub struct VersionRequest = "hadoop.hdfs.VersionRequestProto" {}

    /// Answer to `DatanodeProtocol.versionRequest`.
    pub struct VersionResponse = "hadoop.hdfs.VersionResponseProto" {
        #[prost(message, required, tag = "1")]
        pub info: NamespaceInfo,
    }

    /// Layout version (signed; travels as two's complement), namespace, cluster and creation time.
    pub struct StorageInfo = "hadoop.hdfs.StorageInfoProto" {
        /// Signed: -57 travels as 2^32 - 57.
        #[prost(uint32, required, tag = "1")]
        pub layout_version: u32,
        /// Spelt as in Hadoop.
        #[prost(uint32, required, tag = "2")]
        pub namespce_id: u32,
        #[prost(string, required, tag = "3")]
        pub cluster_id: String,
        #[prost(uint64, required, tag = "4")]
        pub c_time: u64,
    }

    /// High availability state of a NameNode, with its transaction id.
    pub struct NnHaStatusHeartbeat = "hadoop.hdfs.NNHAStatusHeartbeatProto" {
        #[prost(enumeration = "NnHaState", required, tag = "1")]
        pub state: i32,
        #[prost(uint64, required, tag = "2")]
        pub txid: u64,
    }
}

impl fmt::Debug for BlockKey {
    /// Without the key itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockKey({})", self.key_id)
    }
}
