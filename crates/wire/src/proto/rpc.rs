//! Hadoop RPC headers and SASL (RpcHeader.proto, ProtobufRpcEngine2.proto,
//! IpcConnectionContext.proto, ProtocolInfo.proto).

use bytes::Bytes;

use super::{wire_enums, wire_messages};

wire_enums! {
    /// Serialisation engine of a call; only `RpcProtocolBuffer` is spoken by HDFS daemons.
    pub enum RpcKind = "hadoop.common.RpcKindProto" {
        /// `RPC_BUILTIN`.
        RpcBuiltin = 0,
        /// `RPC_WRITABLE`.
        RpcWritable = 1,
        /// `RPC_PROTOCOL_BUFFER`.
        RpcProtocolBuffer = 2,
    }

    /// What a request frame is; only `RpcFinalPacket` is used in practice.
    pub enum RpcOperation = "hadoop.common.RpcRequestHeaderProto.OperationProto" {
        /// `RPC_FINAL_PACKET`.
        RpcFinalPacket = 0,
        /// `RPC_CONTINUATION_PACKET`.
        RpcContinuationPacket = 1,
        /// `RPC_CLOSE_CONNECTION`.
        RpcCloseConnection = 2,
    }

    /// Outcome of a call. `Error` keeps the connection, `Fatal` ends it.
    pub enum RpcStatus = "hadoop.common.RpcResponseHeaderProto.RpcStatusProto" {
        /// `SUCCESS`.
        Success = 0,
        /// `ERROR`.
        Error = 1,
        /// `FATAL`.
        Fatal = 2,
    }

    /// Detail of an unsuccessful call; codes from 10 end the connection.
    pub enum RpcErrorCode = "hadoop.common.RpcResponseHeaderProto.RpcErrorCodeProto" {
        /// `ERROR_APPLICATION`.
        ErrorApplication = 1,
        /// `ERROR_NO_SUCH_METHOD`.
        ErrorNoSuchMethod = 2,
        /// `ERROR_NO_SUCH_PROTOCOL`.
        ErrorNoSuchProtocol = 3,
        /// `ERROR_RPC_SERVER`.
        ErrorRpcServer = 4,
        /// `ERROR_SERIALIZING_RESPONSE`.
        ErrorSerializingResponse = 5,
        /// `ERROR_RPC_VERSION_MISMATCH`.
        ErrorRpcVersionMismatch = 6,
        /// `FATAL_UNKNOWN`.
        FatalUnknown = 10,
        /// `FATAL_UNSUPPORTED_SERIALIZATION`.
        FatalUnsupportedSerialization = 11,
        /// `FATAL_INVALID_RPC_HEADER`.
        FatalInvalidRpcHeader = 12,
        /// `FATAL_DESERIALIZING_REQUEST`.
        FatalDeserializingRequest = 13,
        /// `FATAL_VERSION_MISMATCH`.
        FatalVersionMismatch = 14,
        /// `FATAL_UNAUTHORIZED`.
        FatalUnauthorized = 15,
    }

    /// Step of a SASL exchange.
    pub enum SaslState = "hadoop.common.RpcSaslProto.SaslState" {
        /// `SUCCESS`.
        Success = 0,
        /// `NEGOTIATE`.
        Negotiate = 1,
        /// `INITIATE`.
        Initiate = 2,
        /// `CHALLENGE`.
        Challenge = 3,
        /// `RESPONSE`.
        Response = 4,
        /// `WRAP`.
        Wrap = 5,
    }
}

wire_messages! {
    /// Trace identifiers of a call.
    pub struct RpcTraceInfo = "hadoop.common.RPCTraceInfoProto" {
        #[prost(int64, optional, tag = "1")]
        pub trace_id: Option<i64>,
        #[prost(int64, optional, tag = "2")]
        pub parent_id: Option<i64>,
        #[prost(bytes = "bytes", optional, tag = "3")]
        pub span_context: Option<Bytes>,
    }

    /// Who stands behind a call, for audit logs.
    pub struct RpcCallerContext = "hadoop.common.RPCCallerContextProto" {
        #[prost(string, required, tag = "1")]
        pub context: String,
        #[prost(bytes = "bytes", optional, tag = "2")]
        pub signature: Option<Bytes>,
    }

    /// Header of every call on a Hadoop RPC connection.
    pub struct RpcRequestHeader = "hadoop.common.RpcRequestHeaderProto" {
        #[prost(enumeration = "RpcKind", optional, tag = "1")]
        pub rpc_kind: Option<i32>,
        #[prost(enumeration = "RpcOperation", optional, tag = "2")]
        pub rpc_op: Option<i32>,
        #[prost(sint32, required, tag = "3")]
        pub call_id: i32,
        /// 16 bytes.
        #[prost(bytes = "bytes", required, tag = "4")]
        pub client_id: Bytes,
        /// -1 on connection messages.
        #[prost(sint32, optional, tag = "5", default = "-1")]
        pub retry_count: Option<i32>,
        #[prost(message, optional, tag = "6")]
        pub trace_info: Option<RpcTraceInfo>,
        #[prost(message, optional, tag = "7")]
        pub caller_context: Option<RpcCallerContext>,
        #[prost(int64, optional, tag = "8")]
        pub state_id: Option<i64>,
        #[prost(bytes = "bytes", optional, tag = "9")]
        pub router_federated_state: Option<Bytes>,
        #[prost(bytes = "bytes", optional, tag = "10")]
        pub authorization_header: Option<Bytes>,
    }

    /// Header of every answer. The call id is unsigned here: negative ids appear as 2^32 - n.
    pub struct RpcResponseHeader = "hadoop.common.RpcResponseHeaderProto" {
        #[prost(uint32, required, tag = "1")]
        pub call_id: u32,
        #[prost(enumeration = "RpcStatus", required, tag = "2")]
        pub status: i32,
        #[prost(uint32, optional, tag = "3")]
        pub server_ipc_version_num: Option<u32>,
        #[prost(string, optional, tag = "4")]
        pub exception_class_name: Option<String>,
        #[prost(string, optional, tag = "5")]
        pub error_msg: Option<String>,
        #[prost(enumeration = "RpcErrorCode", optional, tag = "6")]
        pub error_detail: Option<i32>,
        #[prost(bytes = "bytes", optional, tag = "7")]
        pub client_id: Option<Bytes>,
        #[prost(sint32, optional, tag = "8", default = "-1")]
        pub retry_count: Option<i32>,
        #[prost(int64, optional, tag = "9")]
        pub state_id: Option<i64>,
        #[prost(bytes = "bytes", optional, tag = "10")]
        pub router_federated_state: Option<Bytes>,
    }

    /// One step of a SASL exchange, or a wrapped frame once a quality of protection is agreed.
    pub struct RpcSasl = "hadoop.common.RpcSaslProto" {
        #[prost(uint32, optional, tag = "1")]
        pub version: Option<u32>,
        #[prost(enumeration = "SaslState", required, tag = "2")]
        pub state: i32,
        #[prost(bytes = "bytes", optional, tag = "3")]
        pub token: Option<Bytes>,
        #[prost(message, repeated, tag = "4")]
        pub auths: Vec<SaslAuth>,
    }

    /// One authentication method on offer.
    pub struct SaslAuth = "hadoop.common.RpcSaslProto.SaslAuth" {
        #[prost(string, required, tag = "1")]
        pub method: String,
        #[prost(string, required, tag = "2")]
        pub mechanism: String,
        #[prost(string, optional, tag = "3")]
        pub protocol: Option<String>,
        #[prost(string, optional, tag = "4")]
        pub server_id: Option<String>,
        #[prost(bytes = "bytes", optional, tag = "5")]
        pub challenge: Option<Bytes>,
    }

    /// Which method of which protocol a call is for.
    pub struct RequestHeader = "hadoop.common.RequestHeaderProto" {
        #[prost(string, required, tag = "1")]
        pub method_name: String,
        #[prost(string, required, tag = "2")]
        pub declaring_class_protocol_name: String,
        #[prost(uint64, required, tag = "3")]
        pub client_protocol_version: u64,
    }

    /// Users of a connection.
    pub struct UserInformation = "hadoop.common.UserInformationProto" {
        #[prost(string, optional, tag = "1")]
        pub effective_user: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub real_user: Option<String>,
    }

    /// First message on a connection: user and protocol.
    pub struct IpcConnectionContext = "hadoop.common.IpcConnectionContextProto" {
        #[prost(message, optional, tag = "2")]
        pub user_info: Option<UserInformation>,
        #[prost(string, optional, tag = "3")]
        pub protocol: Option<String>,
    }
}
