//! Types shared by all HDFS protocols (hdfs.proto, erasurecoding.proto).

use bytes::Bytes;

use super::security::Token;
use super::{wire_enums, wire_messages};

wire_enums! {
    /// Kind of medium under a volume.
    pub enum StorageType = "hadoop.hdfs.StorageTypeProto" {
        /// `DISK`.
        Disk = 1,
        /// `SSD`.
        Ssd = 2,
        /// `ARCHIVE`.
        Archive = 3,
        /// `RAM_DISK`.
        RamDisk = 4,
        /// `PROVIDED`.
        Provided = 5,
        /// `NVDIMM`.
        Nvdimm = 6,
    }

    /// Cipher for data transfer encryption.
    pub enum CipherSuite = "hadoop.hdfs.CipherSuiteProto" {
        /// `UNKNOWN`.
        Unknown = 1,
        /// `AES_CTR_NOPADDING`.
        AesCtrNopadding = 2,
        /// `SM4_CTR_NOPADDING`.
        Sm4CtrNopadding = 3,
    }

    /// Whether a policy may be used for new files.
    pub enum ErasureCodingPolicyState = "hadoop.hdfs.ErasureCodingPolicyState" {
        /// `DISABLED`.
        Disabled = 1,
        /// `ENABLED`.
        Enabled = 2,
        /// `REMOVED`.
        Removed = 3,
    }

    /// Checksum algorithm of a replica's chunks.
    pub enum ChecksumType = "hadoop.hdfs.ChecksumTypeProto" {
        /// `CHECKSUM_NULL`.
        Null = 0,
        /// `CHECKSUM_CRC32`.
        Crc32 = 1,
        /// `CHECKSUM_CRC32C`.
        Crc32c = 2,
    }

    /// How a block checksum is formed from chunk checksums.
    pub enum BlockChecksumType = "hadoop.hdfs.BlockChecksumTypeProto" {
        /// `MD5CRC`.
        Md5crc = 1,
        /// `COMPOSITE_CRC`.
        CompositeCrc = 2,
    }

    /// What a block token permits.
    pub enum AccessMode = "hadoop.hdfs.AccessModeProto" {
        /// `READ`.
        Read = 1,
        /// `WRITE`.
        Write = 2,
        /// `COPY`.
        Copy = 3,
        /// `REPLACE`.
        Replace = 4,
    }

    /// Administrative state of a DataNode.
    pub enum AdminState = "hadoop.hdfs.DatanodeInfoProto.AdminState" {
        /// `NORMAL`.
        Normal = 0,
        /// `DECOMMISSION_INPROGRESS`.
        DecommissionInprogress = 1,
        /// `DECOMMISSIONED`.
        Decommissioned = 2,
        /// `ENTERING_MAINTENANCE`.
        EnteringMaintenance = 3,
        /// `IN_MAINTENANCE`.
        InMaintenance = 4,
    }

    /// State of a storage.
    pub enum StorageState = "hadoop.hdfs.DatanodeStorageProto.StorageState" {
        /// `NORMAL`.
        Normal = 0,
        /// `READ_ONLY_SHARED`.
        ReadOnlyShared = 1,
    }
}

wire_messages! {
    /// A block with its pool. Block ids are signed in HDFS and travel as two's complement.
    pub struct ExtendedBlock = "hadoop.hdfs.ExtendedBlockProto" {
        #[prost(string, required, tag = "1")]
        pub pool_id: String,
        /// Signed id as two's complement; see [`crate::ids::Block`].
        #[prost(uint64, required, tag = "2")]
        pub block_id: u64,
        #[prost(uint64, required, tag = "3")]
        pub generation_stamp: u64,
        #[prost(uint64, optional, tag = "4", default = "0")]
        pub num_bytes: Option<u64>,
    }

    /// Identity and ports of a DataNode.
    pub struct DatanodeId = "hadoop.hdfs.DatanodeIDProto" {
        #[prost(string, required, tag = "1")]
        pub ip_addr: String,
        #[prost(string, required, tag = "2")]
        pub host_name: String,
        #[prost(string, required, tag = "3")]
        pub datanode_uuid: String,
        #[prost(uint32, required, tag = "4")]
        pub xfer_port: u32,
        #[prost(uint32, required, tag = "5")]
        pub info_port: u32,
        #[prost(uint32, required, tag = "6")]
        pub ipc_port: u32,
        #[prost(uint32, optional, tag = "7", default = "0")]
        pub info_secure_port: Option<u32>,
    }

    /// Version and uptime (seconds) of a DataNode.
    pub struct DatanodeLocalInfo = "hadoop.hdfs.DatanodeLocalInfoProto" {
        #[prost(string, required, tag = "1")]
        pub software_version: String,
        #[prost(string, required, tag = "2")]
        pub config_version: String,
        #[prost(uint64, required, tag = "3")]
        pub uptime: u64,
    }

    /// Space on one volume, in bytes.
    pub struct DatanodeVolumeInfo = "hadoop.hdfs.DatanodeVolumeInfoProto" {
        #[prost(string, required, tag = "1")]
        pub path: String,
        #[prost(enumeration = "StorageType", required, tag = "2")]
        pub storage_type: i32,
        #[prost(uint64, required, tag = "3")]
        pub used_space: u64,
        #[prost(uint64, required, tag = "4")]
        pub free_space: u64,
        #[prost(uint64, required, tag = "5")]
        pub reserved_space: u64,
        #[prost(uint64, required, tag = "6")]
        pub reserved_space_for_replicas: u64,
        #[prost(uint64, required, tag = "7")]
        pub num_blocks: u64,
    }

    /// A list of DataNodes.
    pub struct DatanodeInfos = "hadoop.hdfs.DatanodeInfosProto" {
        #[prost(message, repeated, tag = "1")]
        pub datanodes: Vec<DatanodeInfo>,
    }

    /// A DataNode as the NameNode sees it.
    pub struct DatanodeInfo = "hadoop.hdfs.DatanodeInfoProto" {
        #[prost(message, required, tag = "1")]
        pub id: DatanodeId,
        #[prost(uint64, optional, tag = "2", default = "0")]
        pub capacity: Option<u64>,
        #[prost(uint64, optional, tag = "3", default = "0")]
        pub dfs_used: Option<u64>,
        #[prost(uint64, optional, tag = "4", default = "0")]
        pub remaining: Option<u64>,
        #[prost(uint64, optional, tag = "5", default = "0")]
        pub block_pool_used: Option<u64>,
        #[prost(uint64, optional, tag = "6", default = "0")]
        pub last_update: Option<u64>,
        #[prost(uint32, optional, tag = "7", default = "0")]
        pub xceiver_count: Option<u32>,
        #[prost(string, optional, tag = "8")]
        pub location: Option<String>,
        #[prost(uint64, optional, tag = "9")]
        pub non_dfs_used: Option<u64>,
        #[prost(enumeration = "AdminState", optional, tag = "10", default = "Normal")]
        pub admin_state: Option<i32>,
        #[prost(uint64, optional, tag = "11", default = "0")]
        pub cache_capacity: Option<u64>,
        #[prost(uint64, optional, tag = "12", default = "0")]
        pub cache_used: Option<u64>,
        #[prost(uint64, optional, tag = "13", default = "0")]
        pub last_update_monotonic: Option<u64>,
        #[prost(string, optional, tag = "14")]
        pub upgrade_domain: Option<String>,
        #[prost(uint64, optional, tag = "15", default = "0")]
        pub last_block_report_time: Option<u64>,
        #[prost(uint64, optional, tag = "16", default = "0")]
        pub last_block_report_monotonic: Option<u64>,
        #[prost(uint32, optional, tag = "17", default = "0")]
        pub num_blocks: Option<u32>,
        #[prost(string, optional, tag = "18")]
        pub software_version: Option<String>,
    }

    /// One storage (volume) of a DataNode.
    pub struct DatanodeStorage = "hadoop.hdfs.DatanodeStorageProto" {
        #[prost(string, required, tag = "1")]
        pub storage_uuid: String,
        #[prost(enumeration = "StorageState", optional, tag = "2", default = "Normal")]
        pub state: Option<i32>,
        #[prost(enumeration = "StorageType", optional, tag = "3", default = "Disk")]
        pub storage_type: Option<i32>,
    }

    /// Space of one storage in a heartbeat, in bytes.
    pub struct StorageReport = "hadoop.hdfs.StorageReportProto" {
        #[prost(string, required, tag = "1")]
        pub storage_uuid: String,
        #[prost(bool, optional, tag = "2", default = "false")]
        pub failed: Option<bool>,
        #[prost(uint64, optional, tag = "3", default = "0")]
        pub capacity: Option<u64>,
        #[prost(uint64, optional, tag = "4", default = "0")]
        pub dfs_used: Option<u64>,
        #[prost(uint64, optional, tag = "5", default = "0")]
        pub remaining: Option<u64>,
        #[prost(uint64, optional, tag = "6", default = "0")]
        pub block_pool_used: Option<u64>,
        /// Send it: an id alone is taken for a DISK.
        #[prost(message, optional, tag = "7")]
        pub storage: Option<DatanodeStorage>,
        #[prost(uint64, optional, tag = "8")]
        pub non_dfs_used: Option<u64>,
        #[prost(string, optional, tag = "9")]
        pub mount: Option<String>,
    }

    /// A list of storage types.
    pub struct StorageTypes = "hadoop.hdfs.StorageTypesProto" {
        #[prost(enumeration = "StorageType", repeated, packed = "false", tag = "1")]
        pub storage_types: Vec<i32>,
    }

    /// A block with its locations and token.
    pub struct LocatedBlock = "hadoop.hdfs.LocatedBlockProto" {
        #[prost(message, required, tag = "1")]
        pub b: ExtendedBlock,
        #[prost(uint64, required, tag = "2")]
        pub offset: u64,
        #[prost(message, repeated, tag = "3")]
        pub locs: Vec<DatanodeInfo>,
        #[prost(bool, required, tag = "4")]
        pub corrupt: bool,
        #[prost(message, required, tag = "5")]
        pub block_token: Token,
        #[prost(bool, repeated, packed = "true", tag = "6")]
        pub is_cached: Vec<bool>,
        #[prost(enumeration = "StorageType", repeated, packed = "false", tag = "7")]
        pub storage_types: Vec<i32>,
        #[prost(string, repeated, tag = "8")]
        pub storage_ids: Vec<String>,
        /// One byte a location, for striped groups.
        #[prost(bytes = "bytes", optional, tag = "9")]
        pub block_indices: Option<Bytes>,
        #[prost(message, repeated, tag = "10")]
        pub block_tokens: Vec<Token>,
    }

    /// A cipher offered or chosen for encryption, with its keys.
    pub struct CipherOption = "hadoop.hdfs.CipherOptionProto" {
        #[prost(enumeration = "CipherSuite", required, tag = "1")]
        pub suite: i32,
        #[prost(bytes = "bytes", optional, tag = "2")]
        pub in_key: Option<Bytes>,
        #[prost(bytes = "bytes", optional, tag = "3")]
        pub in_iv: Option<Bytes>,
        #[prost(bytes = "bytes", optional, tag = "4")]
        pub out_key: Option<Bytes>,
        #[prost(bytes = "bytes", optional, tag = "5")]
        pub out_iv: Option<Bytes>,
    }

    /// Extra option of an erasure coding schema.
    pub struct EcSchemaOptionEntry = "hadoop.hdfs.ECSchemaOptionEntryProto" {
        #[prost(string, required, tag = "1")]
        pub key: String,
        #[prost(string, required, tag = "2")]
        pub value: String,
    }

    /// Codec with its number of data and parity units.
    pub struct EcSchema = "hadoop.hdfs.ECSchemaProto" {
        #[prost(string, required, tag = "1")]
        pub codec_name: String,
        #[prost(uint32, required, tag = "2")]
        pub data_units: u32,
        #[prost(uint32, required, tag = "3")]
        pub parity_units: u32,
        #[prost(message, repeated, tag = "4")]
        pub options: Vec<EcSchemaOptionEntry>,
    }

    /// Erasure coding policy. Built-in policies may send only the id.
    pub struct ErasureCodingPolicy = "hadoop.hdfs.ErasureCodingPolicyProto" {
        #[prost(string, optional, tag = "1")]
        pub name: Option<String>,
        #[prost(message, optional, tag = "2")]
        pub schema: Option<EcSchema>,
        #[prost(uint32, optional, tag = "3")]
        pub cell_size: Option<u32>,
        #[prost(uint32, required, tag = "4")]
        pub id: u32,
        #[prost(enumeration = "ErasureCodingPolicyState", optional, tag = "5", default = "Enabled")]
        pub state: Option<i32>,
    }

    /// Which block checksum is asked for.
    pub struct BlockChecksumOptions = "hadoop.hdfs.BlockChecksumOptionsProto" {
        #[prost(enumeration = "BlockChecksumType", optional, tag = "1", default = "Md5crc")]
        pub block_checksum_type: Option<i32>,
        #[prost(uint64, optional, tag = "2")]
        pub stripe_length: Option<u64>,
    }

    /// A block: id, generation stamp, length in bytes.
    pub struct Block = "hadoop.hdfs.BlockProto" {
        /// Signed id as two's complement; see [`crate::ids::Block`].
        #[prost(uint64, required, tag = "1")]
        pub block_id: u64,
        #[prost(uint64, required, tag = "2")]
        pub gen_stamp: u64,
        #[prost(uint64, optional, tag = "3", default = "0")]
        pub num_bytes: Option<u64>,
    }

    /// State of a rolling upgrade of a pool.
    pub struct RollingUpgradeStatus = "hadoop.hdfs.RollingUpgradeStatusProto" {
        #[prost(string, required, tag = "1")]
        pub block_pool_id: String,
        #[prost(bool, optional, tag = "2", default = "false")]
        pub finalized: Option<bool>,
    }

    /// A list of storage ids.
    pub struct StorageUuids = "hadoop.hdfs.StorageUuidsProto" {
        #[prost(string, repeated, tag = "1")]
        pub storage_uuids: Vec<String>,
    }

    /// Identifier of a block token in its protobuf form.
    pub struct BlockTokenSecret = "hadoop.hdfs.BlockTokenSecretProto" {
        #[prost(uint64, optional, tag = "1")]
        pub expiry_date: Option<u64>,
        #[prost(uint32, optional, tag = "2")]
        pub key_id: Option<u32>,
        #[prost(string, optional, tag = "3")]
        pub user_id: Option<String>,
        #[prost(string, optional, tag = "4")]
        pub block_pool_id: Option<String>,
        #[prost(uint64, optional, tag = "5")]
        pub block_id: Option<u64>,
        #[prost(enumeration = "AccessMode", repeated, packed = "false", tag = "6")]
        pub modes: Vec<i32>,
        #[prost(enumeration = "StorageType", repeated, packed = "false", tag = "7")]
        pub storage_types: Vec<i32>,
        #[prost(string, repeated, tag = "8")]
        pub storage_ids: Vec<String>,
        #[prost(bytes = "bytes", optional, tag = "9")]
        pub handshake_secret: Option<Bytes>,
    }

    /// One internal block (or several) of a striped group to rebuild.
    pub struct BlockEcReconstructionInfo = "hadoop.hdfs.BlockECReconstructionInfoProto" {
        #[prost(message, required, tag = "1")]
        pub block: ExtendedBlock,
        #[prost(message, required, tag = "2")]
        pub source_dn_infos: DatanodeInfos,
        #[prost(message, required, tag = "3")]
        pub target_dn_infos: DatanodeInfos,
        #[prost(message, required, tag = "4")]
        pub target_storage_uuids: StorageUuids,
        #[prost(message, required, tag = "5")]
        pub target_storage_types: StorageTypes,
        #[prost(bytes = "bytes", required, tag = "6")]
        pub live_block_indices: Bytes,
        #[prost(message, required, tag = "7")]
        pub ec_policy: ErasureCodingPolicy,
        #[prost(bytes = "bytes", optional, tag = "8")]
        pub exclude_reconstructed_indices: Option<Bytes>,
    }
}
