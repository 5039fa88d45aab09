//! Tokens (Security.proto).

use std::fmt;

use bytes::Bytes;

use super::wire_messages;

wire_messages! {
    /// A security token: opaque identifier, its password, and what it is for.
    @skip_debug
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

impl fmt::Debug for Token {
    /// Without the identifier, which names a user, and without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} {})", self.kind, self.service)
    }
}
