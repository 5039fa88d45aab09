//! Clients to a NameNode (ClientNamenodeProtocol.proto): what it takes to read and write a file and
//! to delete it.
//!
//! A node's web port is such a client, and so is the lab's load client. What commands ask NameNodes
//! is in `namespace`.

use super::file_status::{CryptoProtocolVersion, FileEncryptionInfo, FsPermission, HdfsFileStatus};
use super::hdfs::{
    ChecksumType, DatanodeId, DatanodeInfo, ErasureCodingPolicy, ExtendedBlock, LocatedBlock,
};
use super::security::UserEncryptionKey;
use super::{wire_enums, wire_messages};

wire_enums! {
    /// Where a new block shall not go.
    pub enum AddBlockFlag = "hadoop.hdfs.AddBlockFlagProto" {
        /// `NO_LOCAL_WRITE`.
        NoLocalWrite = 1,
        /// `IGNORE_CLIENT_LOCALITY`.
        IgnoreClientLocality = 2,
    }
}

wire_messages! {
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
        /// What the client can encrypt with; without it no file of an encryption zone is created.
        #[prost(enumeration = "CryptoProtocolVersion", repeated, packed = "false", tag = "8")]
        pub crypto_protocol_version: Vec<i32>,
        /// Permission before the client's umask, for directories with default ACLs.
        #[prost(message, optional, tag = "9")]
        pub unmasked: Option<FsPermission>,
        #[prost(string, optional, tag = "10")]
        pub ec_policy_name: Option<String>,
        #[prost(string, optional, tag = "11")]
        pub storage_policy: Option<String>,
    }

    /// Answer to `ClientProtocol.create`.
    pub struct CreateResponse = "hadoop.hdfs.CreateResponseProto" {
        #[prost(message, optional, tag = "1")]
        pub fs: Option<HdfsFileStatus>,
    }

    /// Blocks of a file, or of a range of it.
    pub struct LocatedBlocks = "hadoop.hdfs.LocatedBlocksProto" {
        /// Without the last block of a file being written.
        #[prost(uint64, required, tag = "1")]
        pub file_length: u64,
        #[prost(message, repeated, tag = "2")]
        pub blocks: Vec<LocatedBlock>,
        #[prost(bool, required, tag = "3")]
        pub under_construction: bool,
        #[prost(message, optional, tag = "4")]
        pub last_block: Option<LocatedBlock>,
        #[prost(bool, required, tag = "5")]
        pub is_last_block_complete: bool,
        #[prost(message, optional, tag = "6")]
        pub file_encryption_info: Option<FileEncryptionInfo>,
        #[prost(message, optional, tag = "7")]
        pub ec_policy: Option<ErasureCodingPolicy>,
    }

    /// Request of `ClientProtocol.getBlockLocations`.
    pub struct GetBlockLocationsRequest = "hadoop.hdfs.GetBlockLocationsRequestProto" {
        #[prost(string, required, tag = "1")]
        pub src: String,
        #[prost(uint64, required, tag = "2")]
        pub offset: u64,
        #[prost(uint64, required, tag = "3")]
        pub length: u64,
    }

    /// Answer to `ClientProtocol.getBlockLocations`.
    pub struct GetBlockLocationsResponse = "hadoop.hdfs.GetBlockLocationsResponseProto" {
        #[prost(message, optional, tag = "1")]
        pub locations: Option<LocatedBlocks>,
    }

    /// Request of `ClientProtocol.append`.
    pub struct AppendRequest = "hadoop.hdfs.AppendRequestProto" {
        #[prost(string, required, tag = "1")]
        pub src: String,
        #[prost(string, required, tag = "2")]
        pub client_name: String,
        /// Bits: 4 append, 32 to a new block.
        #[prost(uint32, optional, tag = "3")]
        pub flag: Option<u32>,
    }

    /// Answer to `ClientProtocol.append`: the last block when it has room.
    pub struct AppendResponse = "hadoop.hdfs.AppendResponseProto" {
        #[prost(message, optional, tag = "1")]
        pub block: Option<LocatedBlock>,
        #[prost(message, optional, tag = "2")]
        pub stat: Option<HdfsFileStatus>,
    }

    /// Request of `ClientProtocol.abandonBlock`.
    pub struct AbandonBlockRequest = "hadoop.hdfs.AbandonBlockRequestProto" {
        #[prost(message, required, tag = "1")]
        pub b: ExtendedBlock,
        #[prost(string, required, tag = "2")]
        pub src: String,
        #[prost(string, required, tag = "3")]
        pub holder: String,
        #[prost(uint64, optional, tag = "4", default = "0")]
        pub file_id: Option<u64>,
    }

    /// Answer to `ClientProtocol.abandonBlock`.
    pub struct AbandonBlockResponse = "hadoop.hdfs.AbandonBlockResponseProto" {}

    /// Request of `ClientProtocol.getAdditionalDatanode`.
    pub struct GetAdditionalDatanodeRequest = "hadoop.hdfs.GetAdditionalDatanodeRequestProto" {
        #[prost(string, required, tag = "1")]
        pub src: String,
        #[prost(message, required, tag = "2")]
        pub blk: ExtendedBlock,
        #[prost(message, repeated, tag = "3")]
        pub existings: Vec<DatanodeInfo>,
        #[prost(message, repeated, tag = "4")]
        pub excludes: Vec<DatanodeInfo>,
        #[prost(uint32, required, tag = "5")]
        pub num_additional_nodes: u32,
        #[prost(string, required, tag = "6")]
        pub client_name: String,
        #[prost(string, repeated, tag = "7")]
        pub existing_storage_uuids: Vec<String>,
        #[prost(uint64, optional, tag = "8", default = "0")]
        pub file_id: Option<u64>,
    }

    /// Answer to `ClientProtocol.getAdditionalDatanode`: the nodes there were, and new ones.
    pub struct GetAdditionalDatanodeResponse =
        "hadoop.hdfs.GetAdditionalDatanodeResponseProto" {
        #[prost(message, required, tag = "1")]
        pub block: LocatedBlock,
    }

    /// Request of `ClientProtocol.updateBlockForPipeline`.
    pub struct UpdateBlockForPipelineRequest = "hadoop.hdfs.UpdateBlockForPipelineRequestProto" {
        #[prost(message, required, tag = "1")]
        pub block: ExtendedBlock,
        #[prost(string, required, tag = "2")]
        pub client_name: String,
    }

    /// Answer to `ClientProtocol.updateBlockForPipeline`: a new generation stamp.
    pub struct UpdateBlockForPipelineResponse =
        "hadoop.hdfs.UpdateBlockForPipelineResponseProto" {
        #[prost(message, required, tag = "1")]
        pub block: LocatedBlock,
    }

    /// Request of `ClientProtocol.updatePipeline`.
    pub struct UpdatePipelineRequest = "hadoop.hdfs.UpdatePipelineRequestProto" {
        #[prost(string, required, tag = "1")]
        pub client_name: String,
        #[prost(message, required, tag = "2")]
        pub old_block: ExtendedBlock,
        #[prost(message, required, tag = "3")]
        pub new_block: ExtendedBlock,
        #[prost(message, repeated, tag = "4")]
        pub new_nodes: Vec<DatanodeId>,
        #[prost(string, repeated, tag = "5")]
        pub storage_ids: Vec<String>,
    }

    /// Answer to `ClientProtocol.updatePipeline`.
    pub struct UpdatePipelineResponse = "hadoop.hdfs.UpdatePipelineResponseProto" {}

    /// Request of `ClientProtocol.renewLease`.
    pub struct RenewLeaseRequest = "hadoop.hdfs.RenewLeaseRequestProto" {
        #[prost(string, required, tag = "1")]
        pub client_name: String,
        #[prost(string, repeated, tag = "2")]
        pub namespaces: Vec<String>,
    }

    /// Answer to `ClientProtocol.renewLease`.
    pub struct RenewLeaseResponse = "hadoop.hdfs.RenewLeaseResponseProto" {}

    /// What the cluster takes where a client says nothing.
    pub struct FsServerDefaults = "hadoop.hdfs.FsServerDefaultsProto" {
        #[prost(uint64, required, tag = "1")]
        pub block_size: u64,
        #[prost(uint32, required, tag = "2")]
        pub bytes_per_checksum: u32,
        #[prost(uint32, required, tag = "3")]
        pub write_packet_size: u32,
        #[prost(uint32, required, tag = "4")]
        pub replication: u32,
        #[prost(uint32, required, tag = "5")]
        pub file_buffer_size: u32,
        #[prost(bool, optional, tag = "6", default = "false")]
        pub encrypt_data_transfer: Option<bool>,
        #[prost(enumeration = "ChecksumType", optional, tag = "8", default = "Crc32")]
        pub checksum_type: Option<i32>,
    }

    /// Request of `ClientProtocol.getServerDefaults`.
    pub struct GetServerDefaultsRequest = "hadoop.hdfs.GetServerDefaultsRequestProto" {}

    /// Answer to `ClientProtocol.getServerDefaults`.
    pub struct GetServerDefaultsResponse = "hadoop.hdfs.GetServerDefaultsResponseProto" {
        #[prost(message, required, tag = "1")]
        pub server_defaults: FsServerDefaults,
    }

    /// Request of `ClientProtocol.getDataEncryptionKey`.
    pub struct GetDataEncryptionKeyRequest = "hadoop.hdfs.GetDataEncryptionKeyRequestProto" {}

    /// Answer to `ClientProtocol.getDataEncryptionKey`; no key where nothing is encrypted.
    pub struct GetDataEncryptionKeyResponse = "hadoop.hdfs.GetDataEncryptionKeyResponseProto" {
        #[prost(message, optional, tag = "1")]
        pub data_encryption_key: Option<UserEncryptionKey>,
    }

    /// Request of `ClientProtocol.reportBadBlocks`.
    pub struct ReportBadReplicasRequest = "hadoop.hdfs.ReportBadBlocksRequestProto" {
        #[prost(message, repeated, tag = "1")]
        pub blocks: Vec<LocatedBlock>,
    }

    /// Answer to `ClientProtocol.reportBadBlocks`.
    pub struct ReportBadReplicasResponse = "hadoop.hdfs.ReportBadBlocksResponseProto" {}

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
        #[prost(enumeration = "AddBlockFlag", repeated, packed = "false", tag = "7")]
        pub flags: Vec<i32>,
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
