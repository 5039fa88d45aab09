//! Tokens (Security.proto).

use bytes::Bytes;

use super::wire_messages;

wire_messages! {
    /// A security token: opaque identifier, its password, and what it is for.
    pub struct Token = "hadoop.common.TokenProto" {
        #[prost(bytes = "bytes", required, tag = "1")]
        pub identifier: Bytes,
        #[prost(bytes = "bytes", required, tag = "2")]
        pub password: Bytes,
        #[prost(string, required, tag = "3")]
        pub kind: String,
        #[prost(string, required, tag = "4")]
        pub service: String,
    }
}
