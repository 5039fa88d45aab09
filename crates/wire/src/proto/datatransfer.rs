//! Data transfer operations and answers (datatransfer.proto).

use bytes::Bytes;

use super::hdfs::{
    BlockChecksumOptions, ChecksumType, CipherOption, DatanodeInfo, DatanodeInfos,
    ErasureCodingPolicy, ExtendedBlock, StorageType,
};
use super::security::Token;
use super::{wire_enums, wire_messages};

wire_enums! {
    /// Outcome of a data transfer operation or of a packet.
    pub enum Status = "hadoop.hdfs.Status" {
        /// `SUCCESS`.
        Success = 0,
        /// `ERROR`.
        Error = 1,
        /// `ERROR_CHECKSUM`.
        ErrorChecksum = 2,
        /// `ERROR_INVALID`.
        ErrorInvalid = 3,
        /// `ERROR_EXISTS`.
        ErrorExists = 4,
        /// `ERROR_ACCESS_TOKEN`.
        ErrorAccessToken = 5,
        /// `CHECKSUM_OK`.
        ChecksumOk = 6,
        /// `ERROR_UNSUPPORTED`.
        ErrorUnsupported = 7,
        /// `OOB_RESTART`.
        OobRestart = 8,
        /// `OOB_RESERVED1`.
        OobReserved1 = 9,
        /// `OOB_RESERVED2`.
        OobReserved2 = 10,
        /// `OOB_RESERVED3`.
        OobReserved3 = 11,
        /// `IN_PROGRESS`.
        InProgress = 12,
        /// `ERROR_BLOCK_PINNED`.
        ErrorBlockPinned = 13,
    }

    /// Value of the data byte that travels with passed descriptors.
    pub enum ShortCircuitFdResponse = "hadoop.hdfs.ShortCircuitFdResponse" {
        /// `DO_NOT_USE_RECEIPT_VERIFICATION`.
        DoNotUseReceiptVerification = 0,
        /// `USE_RECEIPT_VERIFICATION`.
        UseReceiptVerification = 1,
    }

    /// Outcome of a handshake step.
    pub enum DataTransferEncryptorStatus =
        "hadoop.hdfs.DataTransferEncryptorMessageProto.DataTransferEncryptorStatus" {
        /// `SUCCESS`.
        Success = 0,
        /// `ERROR_UNKNOWN_KEY`.
        ErrorUnknownKey = 1,
        /// `ERROR`.
        Error = 2,
    }

    /// Stage of a write. The numbers are not in pipeline order.
    pub enum BlockConstructionStage = "hadoop.hdfs.OpWriteBlockProto.BlockConstructionStage" {
        /// `PIPELINE_SETUP_APPEND`.
        PipelineSetupAppend = 0,
        /// `PIPELINE_SETUP_APPEND_RECOVERY`.
        PipelineSetupAppendRecovery = 1,
        /// `DATA_STREAMING`.
        DataStreaming = 2,
        /// `PIPELINE_SETUP_STREAMING_RECOVERY`.
        PipelineSetupStreamingRecovery = 3,
        /// `PIPELINE_CLOSE`.
        PipelineClose = 4,
        /// `PIPELINE_CLOSE_RECOVERY`.
        PipelineCloseRecovery = 5,
        /// `PIPELINE_SETUP_CREATE`.
        PipelineSetupCreate = 6,
        /// `TRANSFER_RBW`.
        TransferRbw = 7,
        /// `TRANSFER_FINALIZED`.
        TransferFinalized = 8,
    }
}

wire_messages! {
    /// One step of the SASL handshake on a data transfer connection.
    pub struct DataTransferEncryptorMessage = "hadoop.hdfs.DataTransferEncryptorMessageProto" {
        #[prost(enumeration = "DataTransferEncryptorStatus", required, tag = "1")]
        pub status: i32,
        #[prost(bytes = "bytes", optional, tag = "2")]
        pub payload: Option<Bytes>,
        #[prost(string, optional, tag = "3")]
        pub message: Option<String>,
        #[prost(message, repeated, tag = "4")]
        pub cipher_option: Vec<CipherOption>,
        #[prost(message, optional, tag = "5")]
        pub handshake_secret: Option<HandshakeSecret>,
        #[prost(bool, optional, tag = "6")]
        pub access_token_error: Option<bool>,
    }

    /// Secret of a block token for the handshake.
    pub struct HandshakeSecret = "hadoop.hdfs.HandshakeSecretProto" {
        #[prost(bytes = "bytes", required, tag = "1")]
        pub secret: Bytes,
        #[prost(string, required, tag = "2")]
        pub bpid: String,
    }

    /// Header of every operation: block, token, trace.
    pub struct BaseHeader = "hadoop.hdfs.BaseHeaderProto" {
        #[prost(message, required, tag = "1")]
        pub block: ExtendedBlock,
        #[prost(message, optional, tag = "2")]
        pub token: Option<Token>,
        #[prost(message, optional, tag = "3")]
        pub trace_info: Option<DataTransferTraceInfo>,
    }

    /// Trace identifiers of an operation.
    pub struct DataTransferTraceInfo = "hadoop.hdfs.DataTransferTraceInfoProto" {
        #[prost(uint64, optional, tag = "1")]
        pub trace_id: Option<u64>,
        #[prost(uint64, optional, tag = "2")]
        pub parent_id: Option<u64>,
        #[prost(bytes = "bytes", optional, tag = "3")]
        pub span_context: Option<Bytes>,
    }

    /// Header with the client's name; empty for a DataNode.
    pub struct ClientOperationHeader = "hadoop.hdfs.ClientOperationHeaderProto" {
        #[prost(message, required, tag = "1")]
        pub base_header: BaseHeader,
        #[prost(string, required, tag = "2")]
        pub client_name: String,
    }

    /// Page cache hints.
    pub struct CachingStrategy = "hadoop.hdfs.CachingStrategyProto" {
        #[prost(bool, optional, tag = "1")]
        pub drop_behind: Option<bool>,
        #[prost(int64, optional, tag = "2")]
        pub readahead: Option<i64>,
    }

    /// READ_BLOCK (81).
    pub struct OpReadBlock = "hadoop.hdfs.OpReadBlockProto" {
        #[prost(message, required, tag = "1")]
        pub header: ClientOperationHeader,
        #[prost(uint64, required, tag = "2")]
        pub offset: u64,
        #[prost(uint64, required, tag = "3")]
        pub len: u64,
        #[prost(bool, optional, tag = "4", default = "true")]
        pub send_checksums: Option<bool>,
        #[prost(message, optional, tag = "5")]
        pub caching_strategy: Option<CachingStrategy>,
    }

    /// Chunk checksum algorithm and chunk size in bytes.
    pub struct Checksum = "hadoop.hdfs.ChecksumProto" {
        #[prost(enumeration = "ChecksumType", required, tag = "1")]
        pub r#type: i32,
        #[prost(uint32, required, tag = "2")]
        pub bytes_per_checksum: u32,
    }

    /// WRITE_BLOCK (80).
    pub struct OpWriteBlock = "hadoop.hdfs.OpWriteBlockProto" {
        #[prost(message, required, tag = "1")]
        pub header: ClientOperationHeader,
        #[prost(message, repeated, tag = "2")]
        pub targets: Vec<DatanodeInfo>,
        #[prost(message, optional, tag = "3")]
        pub source: Option<DatanodeInfo>,
        #[prost(enumeration = "BlockConstructionStage", required, tag = "4")]
        pub stage: i32,
        #[prost(uint32, required, tag = "5")]
        pub pipeline_size: u32,
        #[prost(uint64, required, tag = "6")]
        pub min_bytes_rcvd: u64,
        #[prost(uint64, required, tag = "7")]
        pub max_bytes_rcvd: u64,
        #[prost(uint64, required, tag = "8")]
        pub latest_generation_stamp: u64,
        #[prost(message, required, tag = "9")]
        pub requested_checksum: Checksum,
        #[prost(message, optional, tag = "10")]
        pub caching_strategy: Option<CachingStrategy>,
        #[prost(enumeration = "StorageType", optional, tag = "11", default = "Disk")]
        pub storage_type: Option<i32>,
        #[prost(enumeration = "StorageType", repeated, packed = "false", tag = "12")]
        pub target_storage_types: Vec<i32>,
        #[prost(bool, optional, tag = "13", default = "false")]
        pub allow_lazy_persist: Option<bool>,
        #[prost(bool, optional, tag = "14", default = "false")]
        pub pinning: Option<bool>,
        #[prost(bool, repeated, packed = "false", tag = "15")]
        pub target_pinnings: Vec<bool>,
        #[prost(string, optional, tag = "16")]
        pub storage_id: Option<String>,
        #[prost(string, repeated, tag = "17")]
        pub target_storage_ids: Vec<String>,
    }

    /// TRANSFER_BLOCK (86).
    pub struct OpTransferBlock = "hadoop.hdfs.OpTransferBlockProto" {
        #[prost(message, required, tag = "1")]
        pub header: ClientOperationHeader,
        #[prost(message, repeated, tag = "2")]
        pub targets: Vec<DatanodeInfo>,
        #[prost(enumeration = "StorageType", repeated, packed = "false", tag = "3")]
        pub target_storage_types: Vec<i32>,
        #[prost(string, repeated, tag = "4")]
        pub target_storage_ids: Vec<String>,
    }

    /// REPLACE_BLOCK (83).
    pub struct OpReplaceBlock = "hadoop.hdfs.OpReplaceBlockProto" {
        #[prost(message, required, tag = "1")]
        pub header: BaseHeader,
        #[prost(string, required, tag = "2")]
        pub del_hint: String,
        #[prost(message, required, tag = "3")]
        pub source: DatanodeInfo,
        #[prost(enumeration = "StorageType", optional, tag = "4", default = "Disk")]
        pub storage_type: Option<i32>,
        #[prost(string, optional, tag = "5")]
        pub storage_id: Option<String>,
    }

    /// COPY_BLOCK (84).
    pub struct OpCopyBlock = "hadoop.hdfs.OpCopyBlockProto" {
        #[prost(message, required, tag = "1")]
        pub header: BaseHeader,
    }

    /// BLOCK_CHECKSUM (85).
    pub struct OpBlockChecksum = "hadoop.hdfs.OpBlockChecksumProto" {
        #[prost(message, required, tag = "1")]
        pub header: BaseHeader,
        #[prost(message, optional, tag = "2")]
        pub block_checksum_options: Option<BlockChecksumOptions>,
    }

    /// BLOCK_GROUP_CHECKSUM (90).
    pub struct OpBlockGroupChecksum = "hadoop.hdfs.OpBlockGroupChecksumProto" {
        #[prost(message, required, tag = "1")]
        pub header: BaseHeader,
        #[prost(message, required, tag = "2")]
        pub datanodes: DatanodeInfos,
        #[prost(message, repeated, tag = "3")]
        pub block_tokens: Vec<Token>,
        #[prost(message, required, tag = "4")]
        pub ec_policy: ErasureCodingPolicy,
        #[prost(uint32, repeated, packed = "false", tag = "5")]
        pub block_indices: Vec<u32>,
        #[prost(uint64, required, tag = "6")]
        pub requested_num_bytes: u64,
        #[prost(message, optional, tag = "7")]
        pub block_checksum_options: Option<BlockChecksumOptions>,
    }

    /// Id of a shared memory segment.
    pub struct ShortCircuitShmId = "hadoop.hdfs.ShortCircuitShmIdProto" {
        #[prost(int64, required, tag = "1")]
        pub hi: i64,
        #[prost(int64, required, tag = "2")]
        pub lo: i64,
    }

    /// A slot of a shared memory segment.
    pub struct ShortCircuitShmSlot = "hadoop.hdfs.ShortCircuitShmSlotProto" {
        #[prost(message, required, tag = "1")]
        pub shm_id: ShortCircuitShmId,
        #[prost(int32, required, tag = "2")]
        pub slot_idx: i32,
    }

    /// REQUEST_SHORT_CIRCUIT_FDS (87).
    pub struct OpRequestShortCircuitAccess = "hadoop.hdfs.OpRequestShortCircuitAccessProto" {
        #[prost(message, required, tag = "1")]
        pub header: BaseHeader,
        #[prost(uint32, required, tag = "2")]
        pub max_version: u32,
        #[prost(message, optional, tag = "3")]
        pub slot_id: Option<ShortCircuitShmSlot>,
        #[prost(bool, optional, tag = "4", default = "false")]
        pub supports_receipt_verification: Option<bool>,
    }

    /// RELEASE_SHORT_CIRCUIT_FDS (88).
    pub struct ReleaseShortCircuitAccessRequest =
        "hadoop.hdfs.ReleaseShortCircuitAccessRequestProto" {
        #[prost(message, required, tag = "1")]
        pub slot_id: ShortCircuitShmSlot,
        #[prost(message, optional, tag = "2")]
        pub trace_info: Option<DataTransferTraceInfo>,
    }

    /// Answer to RELEASE_SHORT_CIRCUIT_FDS.
    pub struct ReleaseShortCircuitAccessResponse =
        "hadoop.hdfs.ReleaseShortCircuitAccessResponseProto" {
        #[prost(enumeration = "Status", required, tag = "1")]
        pub status: i32,
        #[prost(string, optional, tag = "2")]
        pub error: Option<String>,
    }

    /// REQUEST_SHORT_CIRCUIT_SHM (89).
    pub struct ShortCircuitShmRequest = "hadoop.hdfs.ShortCircuitShmRequestProto" {
        #[prost(string, required, tag = "1")]
        pub client_name: String,
        #[prost(message, optional, tag = "2")]
        pub trace_info: Option<DataTransferTraceInfo>,
    }

    /// Answer to REQUEST_SHORT_CIRCUIT_SHM.
    pub struct ShortCircuitShmResponse = "hadoop.hdfs.ShortCircuitShmResponseProto" {
        #[prost(enumeration = "Status", required, tag = "1")]
        pub status: i32,
        #[prost(string, optional, tag = "2")]
        pub error: Option<String>,
        #[prost(message, optional, tag = "3")]
        pub id: Option<ShortCircuitShmId>,
    }

    /// Header of a packet; every field has a fixed width. See [`crate::packet`] for the codec in
    /// use.
    pub struct PacketHeader = "hadoop.hdfs.PacketHeaderProto" {
        #[prost(sfixed64, required, tag = "1")]
        pub offset_in_block: i64,
        #[prost(sfixed64, required, tag = "2")]
        pub seqno: i64,
        #[prost(bool, required, tag = "3")]
        pub last_packet_in_block: bool,
        #[prost(sfixed32, required, tag = "4")]
        pub data_len: i32,
        #[prost(bool, optional, tag = "5", default = "false")]
        pub sync_block: Option<bool>,
    }

    /// Acknowledgement of a packet. See [`crate::pipeline_ack`] for the codec in use.
    pub struct PipelineAck = "hadoop.hdfs.PipelineAckProto" {
        #[prost(sint64, required, tag = "1")]
        pub seqno: i64,
        #[prost(enumeration = "Status", repeated, packed = "false", tag = "2")]
        pub reply: Vec<i32>,
        #[prost(uint64, optional, tag = "3", default = "0")]
        pub downstream_ack_time_nanos: Option<u64>,
        #[prost(uint32, repeated, packed = "true", tag = "4")]
        pub flag: Vec<u32>,
    }

    /// Checksum of a read reply and the offset its first chunk starts at.
    pub struct ReadOpChecksumInfo = "hadoop.hdfs.ReadOpChecksumInfoProto" {
        #[prost(message, required, tag = "1")]
        pub checksum: Checksum,
        #[prost(uint64, required, tag = "2")]
        pub chunk_offset: u64,
    }

    /// Answer to an operation.
    pub struct BlockOpResponse = "hadoop.hdfs.BlockOpResponseProto" {
        #[prost(enumeration = "Status", required, tag = "1")]
        pub status: i32,
        /// Empty on success, else the name of the first node that failed.
        #[prost(string, optional, tag = "2")]
        pub first_bad_link: Option<String>,
        #[prost(message, optional, tag = "3")]
        pub checksum_response: Option<OpBlockChecksumResponse>,
        #[prost(message, optional, tag = "4")]
        pub read_op_checksum_info: Option<ReadOpChecksumInfo>,
        #[prost(string, optional, tag = "5")]
        pub message: Option<String>,
        #[prost(uint32, optional, tag = "6")]
        pub short_circuit_access_version: Option<u32>,
    }

    /// What the client says at the end of a complete read.
    pub struct ClientReadStatus = "hadoop.hdfs.ClientReadStatusProto" {
        #[prost(enumeration = "Status", required, tag = "1")]
        pub status: i32,
    }

    /// What a DataNode says at the end of a transfer.
    pub struct DnTransferAck = "hadoop.hdfs.DNTransferAckProto" {
        #[prost(enumeration = "Status", required, tag = "1")]
        pub status: i32,
    }

    /// A block checksum.
    pub struct OpBlockChecksumResponse = "hadoop.hdfs.OpBlockChecksumResponseProto" {
        #[prost(uint32, required, tag = "1")]
        pub bytes_per_crc: u32,
        #[prost(uint64, required, tag = "2")]
        pub crc_per_block: u64,
        /// 16 bytes of MD5, or 4 bytes of big-endian CRC.
        #[prost(bytes = "bytes", required, tag = "3")]
        pub block_checksum: Bytes,
        #[prost(enumeration = "ChecksumType", optional, tag = "4")]
        pub crc_type: Option<i32>,
        #[prost(message, optional, tag = "5")]
        pub block_checksum_options: Option<BlockChecksumOptions>,
    }

    /// CUSTOM (127).
    pub struct OpCustom = "hadoop.hdfs.OpCustomProto" {
        #[prost(string, required, tag = "1")]
        pub custom_id: String,
    }
}
