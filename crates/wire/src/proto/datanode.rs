//! DataNode to NameNode (DatanodeProtocol.proto, DatanodeLifelineProtocol.proto).

use bytes::Bytes;

use super::hdfs::{
    Block, BlockEcReconstructionInfo, DatanodeId, DatanodeInfos, DatanodeStorage, ExtendedBlock,
    LocatedBlock, RollingUpgradeStatus, StorageReport, StorageTypes, StorageUuids,
};
use super::hdfs_server::{ExportedBlockKeys, NnHaStatusHeartbeat, RecoveringBlock, StorageInfo};
use super::{wire_enums, wire_messages};

wire_enums! {
    /// Which command a `DatanodeCommand` holds.
    pub enum DatanodeCommandType = "hadoop.hdfs.datanode.DatanodeCommandProto.Type" {
        /// `BalancerBandwidthCommand`.
        BalancerBandwidthCommand = 0,
        /// `BlockCommand`.
        BlockCommand = 1,
        /// `BlockRecoveryCommand`.
        BlockRecoveryCommand = 2,
        /// `FinalizeCommand`.
        FinalizeCommand = 3,
        /// `KeyUpdateCommand`.
        KeyUpdateCommand = 4,
        /// `RegisterCommand`.
        RegisterCommand = 5,
        /// `UnusedUpgradeCommand`.
        UnusedUpgradeCommand = 6,
        /// `NullDatanodeCommand`.
        NullDatanodeCommand = 7,
        /// `BlockIdCommand`.
        BlockIdCommand = 8,
        /// `BlockECReconstructionCommand`.
        BlockEcReconstructionCommand = 9,
    }

    /// What to do with the blocks.
    pub enum BlockCommandAction = "hadoop.hdfs.datanode.BlockCommandProto.Action" {
        /// `TRANSFER`.
        Transfer = 1,
        /// `INVALIDATE`.
        Invalidate = 2,
        /// `SHUTDOWN`.
        Shutdown = 3,
    }

    /// What to do with the block ids.
    pub enum BlockIdCommandAction = "hadoop.hdfs.datanode.BlockIdCommandProto.Action" {
        /// `CACHE`.
        Cache = 1,
        /// `UNCACHE`.
        Uncache = 2,
    }

    /// What happened to a replica.
    pub enum BlockStatus = "hadoop.hdfs.datanode.ReceivedDeletedBlockInfoProto.BlockStatus" {
        /// `RECEIVING`.
        Receiving = 1,
        /// `RECEIVED`.
        Received = 2,
        /// `DELETED`.
        Deleted = 3,
    }

    /// Codes for `ErrorReportRequest::error_code`, which is an integer on the wire.
    pub enum ErrorReportCode = "hadoop.hdfs.datanode.ErrorReportRequestProto.ErrorCode" {
        /// `NOTIFY`.
        Notify = 0,
        /// `DISK_ERROR`.
        DiskError = 1,
        /// `INVALID_BLOCK`.
        InvalidBlock = 2,
        /// `FATAL_DISK_ERROR`.
        FatalDiskError = 3,
    }
}

wire_messages! {
    /// Registration of a DataNode; part of nearly every request.
    pub struct DatanodeRegistration = "hadoop.hdfs.datanode.DatanodeRegistrationProto" {
        #[prost(message, required, tag = "1")]
        pub datanode_id: DatanodeId,
        #[prost(message, required, tag = "2")]
        pub storage_info: StorageInfo,
        #[prost(message, required, tag = "3")]
        pub keys: ExportedBlockKeys,
        #[prost(string, required, tag = "4")]
        pub software_version: String,
    }

    /// A command: `cmd_type` says which of the other fields holds it.
    pub struct DatanodeCommand = "hadoop.hdfs.datanode.DatanodeCommandProto" {
        #[prost(enumeration = "DatanodeCommandType", required, tag = "1")]
        pub cmd_type: i32,
        #[prost(message, optional, tag = "2")]
        pub balancer_cmd: Option<BalancerBandwidthCommand>,
        #[prost(message, optional, tag = "3")]
        pub blk_cmd: Option<BlockCommand>,
        #[prost(message, optional, tag = "4")]
        pub recovery_cmd: Option<BlockRecoveryCommand>,
        #[prost(message, optional, tag = "5")]
        pub finalize_cmd: Option<FinalizeCommand>,
        #[prost(message, optional, tag = "6")]
        pub key_update_cmd: Option<KeyUpdateCommand>,
        #[prost(message, optional, tag = "7")]
        pub register_cmd: Option<RegisterCommand>,
        #[prost(message, optional, tag = "8")]
        pub blk_id_cmd: Option<BlockIdCommand>,
        #[prost(message, optional, tag = "9")]
        pub blk_ec_reconstruction_cmd: Option<BlockEcReconstructionCommand>,
    }

    /// Set the balancer bandwidth, bytes a second.
    pub struct BalancerBandwidthCommand = "hadoop.hdfs.datanode.BalancerBandwidthCommandProto" {
        #[prost(uint64, required, tag = "1")]
        pub bandwidth: u64,
    }

    /// Transfer or delete blocks; the lists run in parallel with `blocks`.
    pub struct BlockCommand = "hadoop.hdfs.datanode.BlockCommandProto" {
        #[prost(enumeration = "BlockCommandAction", required, tag = "1")]
        pub action: i32,
        #[prost(string, required, tag = "2")]
        pub block_pool_id: String,
        #[prost(message, repeated, tag = "3")]
        pub blocks: Vec<Block>,
        #[prost(message, repeated, tag = "4")]
        pub targets: Vec<DatanodeInfos>,
        #[prost(message, repeated, tag = "5")]
        pub target_storage_uuids: Vec<StorageUuids>,
        #[prost(message, repeated, tag = "6")]
        pub target_storage_types: Vec<StorageTypes>,
    }

    /// Cache or release blocks.
    pub struct BlockIdCommand = "hadoop.hdfs.datanode.BlockIdCommandProto" {
        #[prost(enumeration = "BlockIdCommandAction", required, tag = "1")]
        pub action: i32,
        #[prost(string, required, tag = "2")]
        pub block_pool_id: String,
        #[prost(uint64, repeated, packed = "true", tag = "3")]
        pub block_ids: Vec<u64>,
    }

    /// Recover blocks as primary.
    pub struct BlockRecoveryCommand = "hadoop.hdfs.datanode.BlockRecoveryCommandProto" {
        #[prost(message, repeated, tag = "1")]
        pub blocks: Vec<RecoveringBlock>,
    }

    /// Finalize an upgrade of a pool.
    pub struct FinalizeCommand = "hadoop.hdfs.datanode.FinalizeCommandProto" {
        #[prost(string, required, tag = "1")]
        pub block_pool_id: String,
    }

    /// New block token keys.
    pub struct KeyUpdateCommand = "hadoop.hdfs.datanode.KeyUpdateCommandProto" {
        #[prost(message, required, tag = "1")]
        pub keys: ExportedBlockKeys,
    }

    /// Register again.
    pub struct RegisterCommand = "hadoop.hdfs.datanode.RegisterCommandProto" {}

    /// Rebuild internal blocks of striped groups.
    pub struct BlockEcReconstructionCommand =
        "hadoop.hdfs.datanode.BlockECReconstructionCommandProto" {
        #[prost(message, repeated, tag = "1")]
        pub block_ec_reconstructioninfo: Vec<BlockEcReconstructionInfo>,
    }

    /// Request of `DatanodeProtocol.registerDatanode`.
    pub struct RegisterDatanodeRequest = "hadoop.hdfs.datanode.RegisterDatanodeRequestProto" {
        #[prost(message, required, tag = "1")]
        pub registration: DatanodeRegistration,
    }

    /// Answer to `DatanodeProtocol.registerDatanode`.
    pub struct RegisterDatanodeResponse = "hadoop.hdfs.datanode.RegisterDatanodeResponseProto" {
        #[prost(message, required, tag = "1")]
        pub registration: DatanodeRegistration,
    }

    /// Failed volumes; date in milliseconds since the epoch, capacity in bytes.
    pub struct VolumeFailureSummary = "hadoop.hdfs.datanode.VolumeFailureSummaryProto" {
        #[prost(string, repeated, tag = "1")]
        pub failed_storage_locations: Vec<String>,
        #[prost(uint64, required, tag = "2")]
        pub last_volume_failure_date: u64,
        #[prost(uint64, required, tag = "3")]
        pub estimated_capacity_lost_total: u64,
    }

    /// Request of `DatanodeProtocol.sendHeartbeat` and `DatanodeLifelineProtocol.sendLifeline`.
    pub struct HeartbeatRequest = "hadoop.hdfs.datanode.HeartbeatRequestProto" {
        #[prost(message, required, tag = "1")]
        pub registration: DatanodeRegistration,
        #[prost(message, repeated, tag = "2")]
        pub reports: Vec<StorageReport>,
        #[prost(uint32, optional, tag = "3", default = "0")]
        pub xmits_in_progress: Option<u32>,
        #[prost(uint32, optional, tag = "4", default = "0")]
        pub xceiver_count: Option<u32>,
        #[prost(uint32, optional, tag = "5", default = "0")]
        pub failed_volumes: Option<u32>,
        #[prost(uint64, optional, tag = "6", default = "0")]
        pub cache_capacity: Option<u64>,
        #[prost(uint64, optional, tag = "7", default = "0")]
        pub cache_used: Option<u64>,
        #[prost(message, optional, tag = "8")]
        pub volume_failure_summary: Option<VolumeFailureSummary>,
        #[prost(bool, optional, tag = "9", default = "false")]
        pub request_full_block_report_lease: Option<bool>,
        #[prost(message, repeated, tag = "10")]
        pub slow_peers: Vec<SlowPeerReport>,
        #[prost(message, repeated, tag = "11")]
        pub slow_disks: Vec<SlowDiskReport>,
    }

    /// Answer to `DatanodeProtocol.sendHeartbeat`.
    pub struct HeartbeatResponse = "hadoop.hdfs.datanode.HeartbeatResponseProto" {
        #[prost(message, repeated, tag = "1")]
        pub cmds: Vec<DatanodeCommand>,
        #[prost(message, required, tag = "2")]
        pub ha_status: NnHaStatusHeartbeat,
        #[prost(message, optional, tag = "3")]
        pub rolling_upgrade_status: Option<RollingUpgradeStatus>,
        #[prost(message, optional, tag = "4")]
        pub rolling_upgrade_status_v2: Option<RollingUpgradeStatus>,
        /// Zero when no lease is granted.
        #[prost(uint64, optional, tag = "5", default = "0")]
        pub full_block_report_lease_id: Option<u64>,
        #[prost(bool, optional, tag = "6", default = "false")]
        pub is_slownode: Option<bool>,
    }

    /// Request of `DatanodeProtocol.blockReport`.
    pub struct BlockReportRequest = "hadoop.hdfs.datanode.BlockReportRequestProto" {
        #[prost(message, required, tag = "1")]
        pub registration: DatanodeRegistration,
        #[prost(string, required, tag = "2")]
        pub block_pool_id: String,
        #[prost(message, repeated, tag = "3")]
        pub reports: Vec<StorageBlockReport>,
        #[prost(message, optional, tag = "4")]
        pub context: Option<BlockReportContext>,
    }

    /// Which part of a split full block report this is, under which lease.
    pub struct BlockReportContext = "hadoop.hdfs.datanode.BlockReportContextProto" {
        #[prost(int32, required, tag = "1")]
        pub total_rpcs: i32,
        #[prost(int32, required, tag = "2")]
        pub cur_rpc: i32,
        #[prost(int64, required, tag = "3")]
        pub id: i64,
        #[prost(uint64, optional, tag = "4", default = "0")]
        pub lease_id: Option<u64>,
    }

    /// Full report of one storage; see [`crate::block_report`] for the buffers.
    pub struct StorageBlockReport = "hadoop.hdfs.datanode.StorageBlockReportProto" {
        #[prost(message, required, tag = "1")]
        pub storage: DatanodeStorage,
        /// The old form, three longs a replica; send it empty when `blocks_buffers` is used.
        #[prost(uint64, repeated, packed = "true", tag = "2")]
        pub blocks: Vec<u64>,
        #[prost(uint64, optional, tag = "3")]
        pub number_of_blocks: Option<u64>,
        #[prost(bytes = "bytes", repeated, tag = "4")]
        pub blocks_buffers: Vec<Bytes>,
    }

    /// Answer to `DatanodeProtocol.blockReport`.
    pub struct BlockReportResponse = "hadoop.hdfs.datanode.BlockReportResponseProto" {
        #[prost(message, optional, tag = "1")]
        pub cmd: Option<DatanodeCommand>,
    }

    /// Request of `DatanodeProtocol.cacheReport`: the ids of all blocks that are cached.
    pub struct CacheReportRequest = "hadoop.hdfs.datanode.CacheReportRequestProto" {
        #[prost(message, required, tag = "1")]
        pub registration: DatanodeRegistration,
        #[prost(string, required, tag = "2")]
        pub block_pool_id: String,
        #[prost(uint64, repeated, packed = "true", tag = "3")]
        pub blocks: Vec<u64>,
    }

    /// Answer to `DatanodeProtocol.cacheReport`.
    pub struct CacheReportResponse = "hadoop.hdfs.datanode.CacheReportResponseProto" {
        #[prost(message, optional, tag = "1")]
        pub cmd: Option<DatanodeCommand>,
    }

    /// One change in an incremental block report.
    pub struct ReceivedDeletedBlockInfo = "hadoop.hdfs.datanode.ReceivedDeletedBlockInfoProto" {
        #[prost(message, required, tag = "1")]
        pub block: Block,
        #[prost(enumeration = "BlockStatus", required, tag = "3")]
        pub status: i32,
        #[prost(string, optional, tag = "2")]
        pub delete_hint: Option<String>,
    }

    /// Changes on one storage.
    pub struct StorageReceivedDeletedBlocks =
        "hadoop.hdfs.datanode.StorageReceivedDeletedBlocksProto" {
        #[prost(string, required, tag = "1")]
        pub storage_uuid: String,
        #[prost(message, repeated, tag = "2")]
        pub blocks: Vec<ReceivedDeletedBlockInfo>,
        #[prost(message, optional, tag = "3")]
        pub storage: Option<DatanodeStorage>,
    }

    /// Request of `DatanodeProtocol.blockReceivedAndDeleted`.
    pub struct BlockReceivedAndDeletedRequest =
        "hadoop.hdfs.datanode.BlockReceivedAndDeletedRequestProto" {
        #[prost(message, required, tag = "1")]
        pub registration: DatanodeRegistration,
        #[prost(string, required, tag = "2")]
        pub block_pool_id: String,
        #[prost(message, repeated, tag = "3")]
        pub blocks: Vec<StorageReceivedDeletedBlocks>,
    }

    /// Answer to `DatanodeProtocol.blockReceivedAndDeleted`.
    pub struct BlockReceivedAndDeletedResponse =
        "hadoop.hdfs.datanode.BlockReceivedAndDeletedResponseProto" {}

    /// Request of `DatanodeProtocol.errorReport`.
    pub struct ErrorReportRequest = "hadoop.hdfs.datanode.ErrorReportRequestProto" {
        /// Spelt as in Hadoop.
        #[prost(message, required, tag = "1")]
        pub registartion: DatanodeRegistration,
        #[prost(uint32, required, tag = "2")]
        pub error_code: u32,
        #[prost(string, required, tag = "3")]
        pub msg: String,
    }

    /// Answer to `DatanodeProtocol.errorReport`.
    pub struct ErrorReportResponse = "hadoop.hdfs.datanode.ErrorReportResponseProto" {}

    /// Request of `DatanodeProtocol.reportBadBlocks`.
    pub struct ReportBadBlocksRequest = "hadoop.hdfs.datanode.ReportBadBlocksRequestProto" {
        #[prost(message, repeated, tag = "1")]
        pub blocks: Vec<LocatedBlock>,
    }

    /// Answer to `DatanodeProtocol.reportBadBlocks`.
    pub struct ReportBadBlocksResponse = "hadoop.hdfs.datanode.ReportBadBlocksResponseProto" {}

    /// Request of `DatanodeProtocol.commitBlockSynchronization`.
    pub struct CommitBlockSynchronizationRequest =
        "hadoop.hdfs.datanode.CommitBlockSynchronizationRequestProto" {
        #[prost(message, required, tag = "1")]
        pub block: ExtendedBlock,
        #[prost(uint64, required, tag = "2")]
        pub new_gen_stamp: u64,
        #[prost(uint64, required, tag = "3")]
        pub new_length: u64,
        #[prost(bool, required, tag = "4")]
        pub close_file: bool,
        #[prost(bool, required, tag = "5")]
        pub delete_block: bool,
        /// Spelt as in Hadoop.
        #[prost(message, repeated, tag = "6")]
        pub new_taragets: Vec<DatanodeId>,
        #[prost(string, repeated, tag = "7")]
        pub new_target_storages: Vec<String>,
    }

    /// Answer to `DatanodeProtocol.commitBlockSynchronization`.
    pub struct CommitBlockSynchronizationResponse =
        "hadoop.hdfs.datanode.CommitBlockSynchronizationResponseProto" {}

    /// Latencies to a slow peer, in milliseconds.
    pub struct SlowPeerReport = "hadoop.hdfs.datanode.SlowPeerReportProto" {
        #[prost(string, optional, tag = "1")]
        pub data_node_id: Option<String>,
        #[prost(double, optional, tag = "2")]
        pub aggregate_latency: Option<f64>,
        #[prost(double, optional, tag = "3")]
        pub median: Option<f64>,
        #[prost(double, optional, tag = "4")]
        pub mad: Option<f64>,
        #[prost(double, optional, tag = "5")]
        pub upper_limit_latency: Option<f64>,
    }

    /// Latencies of a slow disk, in milliseconds.
    pub struct SlowDiskReport = "hadoop.hdfs.datanode.SlowDiskReportProto" {
        #[prost(string, optional, tag = "1")]
        pub base_path: Option<String>,
        #[prost(double, optional, tag = "2")]
        pub mean_metadata_op_latency: Option<f64>,
        #[prost(double, optional, tag = "3")]
        pub mean_read_io_latency: Option<f64>,
        #[prost(double, optional, tag = "4")]
        pub mean_write_io_latency: Option<f64>,
    }

    /// Answer to `DatanodeLifelineProtocol.sendLifeline`.
    pub struct LifelineResponse = "hadoop.hdfs.datanodelifeline.LifelineResponseProto" {}
}
