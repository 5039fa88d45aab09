//! Reconfiguration of a running daemon (ReconfigurationProtocol.proto).

use super::wire_messages;

wire_messages! {
    /// Request of `ClientDatanodeProtocol.startReconfiguration`.
    pub struct StartReconfigurationRequest = "hadoop.hdfs.StartReconfigurationRequestProto" {}

    /// Answer to `ClientDatanodeProtocol.startReconfiguration`.
    pub struct StartReconfigurationResponse = "hadoop.hdfs.StartReconfigurationResponseProto" {}

    /// Request of `ClientDatanodeProtocol.getReconfigurationStatus`.
    pub struct GetReconfigurationStatusRequest =
        "hadoop.hdfs.GetReconfigurationStatusRequestProto" {}

    /// One changed property.
    pub struct GetReconfigurationStatusConfigChange =
        "hadoop.hdfs.GetReconfigurationStatusConfigChangeProto" {
        #[prost(string, required, tag = "1")]
        pub name: String,
        #[prost(string, required, tag = "2")]
        pub old_value: String,
        #[prost(string, optional, tag = "3")]
        pub new_value: Option<String>,
        #[prost(string, optional, tag = "4")]
        pub error_message: Option<String>,
    }

    /// Answer to `ClientDatanodeProtocol.getReconfigurationStatus`.
    pub struct GetReconfigurationStatusResponse =
        "hadoop.hdfs.GetReconfigurationStatusResponseProto" {
        #[prost(int64, required, tag = "1")]
        pub start_time: i64,
        #[prost(int64, optional, tag = "2")]
        pub end_time: Option<i64>,
        #[prost(message, repeated, tag = "3")]
        pub changes: Vec<GetReconfigurationStatusConfigChange>,
    }

    /// Request of `ClientDatanodeProtocol.listReconfigurableProperties`.
    pub struct ListReconfigurablePropertiesRequest =
        "hadoop.hdfs.ListReconfigurablePropertiesRequestProto" {}

    /// Answer to `ClientDatanodeProtocol.listReconfigurableProperties`.
    pub struct ListReconfigurablePropertiesResponse =
        "hadoop.hdfs.ListReconfigurablePropertiesResponseProto" {
        #[prost(string, repeated, tag = "1")]
        pub name: Vec<String>,
    }
}
