//! What commands ask a NameNode of its namespace (ClientNamenodeProtocol.proto): listings, storage
//! policies, storages.
//!
//! Fields that no command looks at are left out.

use bytes::Bytes;

use super::file_status::HdfsFileStatus;
use super::hdfs::{DatanodeInfo, StorageReport, StorageTypes};
use super::{wire_enums, wire_messages};

wire_enums! {
    /// Which DataNodes are asked about.
    pub enum DatanodeReportType = "hadoop.hdfs.DatanodeReportTypeProto" {
        /// `ALL`.
        All = 1,
        /// `LIVE`.
        Live = 2,
        /// `DEAD`.
        Dead = 3,
        /// `DECOMMISSIONING`.
        Decommissioning = 4,
        /// `ENTERING_MAINTENANCE`.
        EnteringMaintenance = 5,
        /// `IN_MAINTENANCE`.
        InMaintenance = 6,
    }

    /// What is done with safe mode.
    pub enum SafeModeAction = "hadoop.hdfs.SafeModeActionProto" {
        /// `SAFEMODE_LEAVE`.
        Leave = 1,
        /// `SAFEMODE_ENTER`.
        Enter = 2,
        /// `SAFEMODE_GET`: it is asked about.
        Get = 3,
        /// `SAFEMODE_FORCE_EXIT`.
        ForceExit = 4,
    }
}

wire_messages! {
    /// A part of a directory's listing, in the order of names.
    pub struct DirectoryListing = "hadoop.hdfs.DirectoryListingProto" {
        #[prost(message, repeated, tag = "1")]
        pub partial_listing: Vec<HdfsFileStatus>,
        #[prost(uint32, required, tag = "2")]
        pub remaining_entries: u32,
    }

    /// Request of `ClientProtocol.getListing`.
    pub struct GetListingRequest = "hadoop.hdfs.GetListingRequestProto" {
        #[prost(string, required, tag = "1")]
        pub src: String,
        /// The last name of the part before; empty at first.
        #[prost(bytes = "bytes", required, tag = "2")]
        pub start_after: Bytes,
        #[prost(bool, required, tag = "3")]
        pub need_location: bool,
    }

    /// Answer to `ClientProtocol.getListing`: nothing when the path does not exist.
    pub struct GetListingResponse = "hadoop.hdfs.GetListingResponseProto" {
        #[prost(message, optional, tag = "1")]
        pub dir_list: Option<DirectoryListing>,
    }

    /// Request of `ClientProtocol.getFileInfo`.
    pub struct GetFileInfoRequest = "hadoop.hdfs.GetFileInfoRequestProto" {
        #[prost(string, required, tag = "1")]
        pub src: String,
    }

    /// Answer to `ClientProtocol.getFileInfo`: nothing when the path does not exist.
    pub struct GetFileInfoResponse = "hadoop.hdfs.GetFileInfoResponseProto" {
        #[prost(message, optional, tag = "1")]
        pub fs: Option<HdfsFileStatus>,
    }

    /// Request of `ClientProtocol.setStoragePolicy`.
    pub struct SetStoragePolicyRequest = "hadoop.hdfs.SetStoragePolicyRequestProto" {
        #[prost(string, required, tag = "1")]
        pub src: String,
        #[prost(string, required, tag = "2")]
        pub policy_name: String,
    }

    /// Answer to `ClientProtocol.setStoragePolicy`.
    pub struct SetStoragePolicyResponse = "hadoop.hdfs.SetStoragePolicyResponseProto" {}

    /// Request of `ClientProtocol.unsetStoragePolicy`.
    pub struct UnsetStoragePolicyRequest = "hadoop.hdfs.UnsetStoragePolicyRequestProto" {
        #[prost(string, required, tag = "1")]
        pub src: String,
    }

    /// Answer to `ClientProtocol.unsetStoragePolicy`.
    pub struct UnsetStoragePolicyResponse = "hadoop.hdfs.UnsetStoragePolicyResponseProto" {}

    /// A storage policy that the NameNode knows.
    pub struct BlockStoragePolicy = "hadoop.hdfs.BlockStoragePolicyProto" {
        #[prost(uint32, required, tag = "1")]
        pub policy_id: u32,
        #[prost(string, required, tag = "2")]
        pub name: String,
        #[prost(message, required, tag = "3")]
        pub creation_policy: StorageTypes,
    }

    /// Request of `ClientProtocol.getStoragePolicies`.
    pub struct GetStoragePoliciesRequest = "hadoop.hdfs.GetStoragePoliciesRequestProto" {}

    /// Answer to `ClientProtocol.getStoragePolicies`.
    pub struct GetStoragePoliciesResponse = "hadoop.hdfs.GetStoragePoliciesResponseProto" {
        #[prost(message, repeated, tag = "1")]
        pub policies: Vec<BlockStoragePolicy>,
    }

    /// Request of `ClientProtocol.getDatanodeStorageReport`, for the superuser.
    pub struct GetDatanodeStorageReportRequest =
        "hadoop.hdfs.GetDatanodeStorageReportRequestProto" {
        #[prost(enumeration = "DatanodeReportType", required, tag = "1")]
        pub r#type: i32,
    }

    /// A DataNode and its storages.
    pub struct DatanodeStorageReport = "hadoop.hdfs.DatanodeStorageReportProto" {
        #[prost(message, required, tag = "1")]
        pub datanode_info: DatanodeInfo,
        #[prost(message, repeated, tag = "2")]
        pub storage_reports: Vec<StorageReport>,
    }

    /// Answer to `ClientProtocol.getDatanodeStorageReport`.
    pub struct GetDatanodeStorageReportResponse =
        "hadoop.hdfs.GetDatanodeStorageReportResponseProto" {
        #[prost(message, repeated, tag = "1")]
        pub datanode_storage_reports: Vec<DatanodeStorageReport>,
    }

    /// Request of `ClientProtocol.getFsStats`, which the active NameNode alone answers.
    pub struct GetFsStatusRequest = "hadoop.hdfs.GetFsStatusRequestProto" {}

    /// Answer to `ClientProtocol.getFsStats`.
    pub struct GetFsStatsResponse = "hadoop.hdfs.GetFsStatsResponseProto" {
        #[prost(uint64, required, tag = "1")]
        pub capacity: u64,
        #[prost(uint64, required, tag = "2")]
        pub used: u64,
        #[prost(uint64, required, tag = "3")]
        pub remaining: u64,
        #[prost(uint64, required, tag = "4")]
        pub under_replicated: u64,
        #[prost(uint64, required, tag = "5")]
        pub corrupt_blocks: u64,
        #[prost(uint64, required, tag = "6")]
        pub missing_blocks: u64,
    }

    /// Request of `ClientProtocol.setSafeMode`.
    pub struct SetSafeModeRequest = "hadoop.hdfs.SetSafeModeRequestProto" {
        #[prost(enumeration = "SafeModeAction", required, tag = "1")]
        pub action: i32,
        /// Whether a standby refuses.
        #[prost(bool, optional, tag = "2", default = "false")]
        pub checked: Option<bool>,
    }

    /// Answer to `ClientProtocol.setSafeMode`: whether the NameNode is in it now.
    pub struct SetSafeModeResponse = "hadoop.hdfs.SetSafeModeResponseProto" {
        #[prost(bool, required, tag = "1")]
        pub result: bool,
    }
}
