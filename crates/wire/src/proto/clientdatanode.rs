//! Clients and administrators to a DataNode (ClientDatanodeProtocol.proto).

use super::hdfs::{DatanodeLocalInfo, DatanodeVolumeInfo, ExtendedBlock};
use super::security::Token;
use super::wire_messages;

wire_messages! {
    /// Request of `ClientDatanodeProtocol.getReplicaVisibleLength`.
    pub struct GetReplicaVisibleLengthRequest = "hadoop.hdfs.GetReplicaVisibleLengthRequestProto" {
        #[prost(message, required, tag = "1")]
        pub block: ExtendedBlock,
    }

    /// Answer to `ClientDatanodeProtocol.getReplicaVisibleLength`.
    pub struct GetReplicaVisibleLengthResponse =
        "hadoop.hdfs.GetReplicaVisibleLengthResponseProto" {
        #[prost(uint64, required, tag = "1")]
        pub length: u64,
    }

    /// Request of `ClientDatanodeProtocol.refreshNamenodes`.
    pub struct RefreshNamenodesRequest = "hadoop.hdfs.RefreshNamenodesRequestProto" {}

    /// Answer to `ClientDatanodeProtocol.refreshNamenodes`.
    pub struct RefreshNamenodesResponse = "hadoop.hdfs.RefreshNamenodesResponseProto" {}

    /// Request of `ClientDatanodeProtocol.deleteBlockPool`.
    pub struct DeleteBlockPoolRequest = "hadoop.hdfs.DeleteBlockPoolRequestProto" {
        #[prost(string, required, tag = "1")]
        pub block_pool: String,
        #[prost(bool, required, tag = "2")]
        pub force: bool,
    }

    /// Answer to `ClientDatanodeProtocol.deleteBlockPool`.
    pub struct DeleteBlockPoolResponse = "hadoop.hdfs.DeleteBlockPoolResponseProto" {}

    /// Request of `ClientDatanodeProtocol.getBlockLocalPathInfo`.
    pub struct GetBlockLocalPathInfoRequest = "hadoop.hdfs.GetBlockLocalPathInfoRequestProto" {
        #[prost(message, required, tag = "1")]
        pub block: ExtendedBlock,
        #[prost(message, required, tag = "2")]
        pub token: Token,
    }

    /// Answer to `ClientDatanodeProtocol.getBlockLocalPathInfo`.
    pub struct GetBlockLocalPathInfoResponse = "hadoop.hdfs.GetBlockLocalPathInfoResponseProto" {
        #[prost(message, required, tag = "1")]
        pub block: ExtendedBlock,
        #[prost(string, required, tag = "2")]
        pub local_path: String,
        #[prost(string, required, tag = "3")]
        pub local_meta_path: String,
    }

    /// Request of `ClientDatanodeProtocol.shutdownDatanode`.
    pub struct ShutdownDatanodeRequest = "hadoop.hdfs.ShutdownDatanodeRequestProto" {
        #[prost(bool, required, tag = "1")]
        pub for_upgrade: bool,
    }

    /// Answer to `ClientDatanodeProtocol.shutdownDatanode`.
    pub struct ShutdownDatanodeResponse = "hadoop.hdfs.ShutdownDatanodeResponseProto" {}

    /// Request of `ClientDatanodeProtocol.evictWriters`.
    pub struct EvictWritersRequest = "hadoop.hdfs.EvictWritersRequestProto" {}

    /// Answer to `ClientDatanodeProtocol.evictWriters`.
    pub struct EvictWritersResponse = "hadoop.hdfs.EvictWritersResponseProto" {}

    /// Request of `ClientDatanodeProtocol.getDatanodeInfo`.
    pub struct GetDatanodeInfoRequest = "hadoop.hdfs.GetDatanodeInfoRequestProto" {}

    /// Answer to `ClientDatanodeProtocol.getDatanodeInfo`.
    pub struct GetDatanodeInfoResponse = "hadoop.hdfs.GetDatanodeInfoResponseProto" {
        #[prost(message, required, tag = "1")]
        pub local_info: DatanodeLocalInfo,
    }

    /// Request of `ClientDatanodeProtocol.getVolumeReport`.
    pub struct GetVolumeReportRequest = "hadoop.hdfs.GetVolumeReportRequestProto" {}

    /// Answer to `ClientDatanodeProtocol.getVolumeReport`.
    pub struct GetVolumeReportResponse = "hadoop.hdfs.GetVolumeReportResponseProto" {
        #[prost(message, repeated, tag = "1")]
        pub volume_info: Vec<DatanodeVolumeInfo>,
    }

    /// Request of `ClientDatanodeProtocol.triggerBlockReport`.
    pub struct TriggerBlockReportRequest = "hadoop.hdfs.TriggerBlockReportRequestProto" {
        #[prost(bool, required, tag = "1")]
        pub incremental: bool,
        #[prost(string, optional, tag = "2")]
        pub nn_address: Option<String>,
    }

    /// Answer to `ClientDatanodeProtocol.triggerBlockReport`.
    pub struct TriggerBlockReportResponse = "hadoop.hdfs.TriggerBlockReportResponseProto" {}

    /// Request of `ClientDatanodeProtocol.getBalancerBandwidth`.
    pub struct GetBalancerBandwidthRequest = "hadoop.hdfs.GetBalancerBandwidthRequestProto" {}

    /// Answer to `ClientDatanodeProtocol.getBalancerBandwidth`.
    pub struct GetBalancerBandwidthResponse = "hadoop.hdfs.GetBalancerBandwidthResponseProto" {
        #[prost(uint64, required, tag = "1")]
        pub bandwidth: u64,
    }

    /// Request of `ClientDatanodeProtocol.submitDiskBalancerPlan`.
    pub struct SubmitDiskBalancerPlanRequest = "hadoop.hdfs.SubmitDiskBalancerPlanRequestProto" {
        #[prost(string, required, tag = "1")]
        pub plan_id: String,
        #[prost(string, required, tag = "2")]
        pub plan: String,
        #[prost(uint64, optional, tag = "3")]
        pub plan_version: Option<u64>,
        #[prost(bool, optional, tag = "4")]
        pub ignore_date_check: Option<bool>,
        #[prost(string, required, tag = "5")]
        pub plan_file: String,
    }

    /// Answer to `ClientDatanodeProtocol.submitDiskBalancerPlan`.
    pub struct SubmitDiskBalancerPlanResponse = "hadoop.hdfs.SubmitDiskBalancerPlanResponseProto" {}

    /// Request of `ClientDatanodeProtocol.cancelDiskBalancerPlan`.
    pub struct CancelPlanRequest = "hadoop.hdfs.CancelPlanRequestProto" {
        #[prost(string, required, tag = "1")]
        pub plan_id: String,
    }

    /// Answer to `ClientDatanodeProtocol.cancelDiskBalancerPlan`.
    pub struct CancelPlanResponse = "hadoop.hdfs.CancelPlanResponseProto" {}

    /// Request of `ClientDatanodeProtocol.queryDiskBalancerPlan`.
    pub struct QueryPlanStatusRequest = "hadoop.hdfs.QueryPlanStatusRequestProto" {}

    /// Answer to `ClientDatanodeProtocol.queryDiskBalancerPlan`.
    pub struct QueryPlanStatusResponse = "hadoop.hdfs.QueryPlanStatusResponseProto" {
        #[prost(uint32, optional, tag = "1")]
        pub result: Option<u32>,
        #[prost(string, optional, tag = "2")]
        pub plan_id: Option<String>,
        #[prost(string, optional, tag = "3")]
        pub current_status: Option<String>,
        #[prost(string, optional, tag = "4")]
        pub plan_file: Option<String>,
    }

    /// Request of `ClientDatanodeProtocol.getDiskBalancerSetting`.
    pub struct DiskBalancerSettingRequest = "hadoop.hdfs.DiskBalancerSettingRequestProto" {
        #[prost(string, required, tag = "1")]
        pub key: String,
    }

    /// Answer to `ClientDatanodeProtocol.getDiskBalancerSetting`.
    pub struct DiskBalancerSettingResponse = "hadoop.hdfs.DiskBalancerSettingResponseProto" {
        #[prost(string, required, tag = "1")]
        pub value: String,
    }
}
