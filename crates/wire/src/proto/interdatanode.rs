//! DataNode to DataNode block recovery (InterDatanodeProtocol.proto).

use super::hdfs::{Block, ExtendedBlock};
use super::hdfs_server::{RecoveringBlock, ReplicaState};
use super::wire_messages;

wire_messages! {
    /// Request of `InterDatanodeProtocol.initReplicaRecovery`.
    pub struct InitReplicaRecoveryRequest = "hadoop.hdfs.InitReplicaRecoveryRequestProto" {
        #[prost(message, required, tag = "1")]
        pub block: RecoveringBlock,
    }

    /// Answer to `InterDatanodeProtocol.initReplicaRecovery`.
    pub struct InitReplicaRecoveryResponse = "hadoop.hdfs.InitReplicaRecoveryResponseProto" {
        #[prost(bool, required, tag = "1")]
        pub replica_found: bool,
        #[prost(enumeration = "ReplicaState", optional, tag = "2")]
        pub state: Option<i32>,
        #[prost(message, optional, tag = "3")]
        pub block: Option<Block>,
    }

    /// Request of `InterDatanodeProtocol.updateReplicaUnderRecovery`.
    pub struct UpdateReplicaUnderRecoveryRequest =
        "hadoop.hdfs.UpdateReplicaUnderRecoveryRequestProto" {
        #[prost(message, required, tag = "1")]
        pub block: ExtendedBlock,
        #[prost(uint64, required, tag = "2")]
        pub recovery_id: u64,
        #[prost(uint64, required, tag = "3")]
        pub new_length: u64,
        #[prost(uint64, optional, tag = "4", default = "0")]
        pub new_block_id: Option<u64>,
    }

    /// Answer to `InterDatanodeProtocol.updateReplicaUnderRecovery`.
    pub struct UpdateReplicaUnderRecoveryResponse =
        "hadoop.hdfs.UpdateReplicaUnderRecoveryResponseProto" {
        #[prost(string, optional, tag = "1")]
        pub storage_uuid: Option<String>,
    }
}
