//! Tokens (Security.proto), and keys of encrypted data transfer (hdfs.proto).

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

    /// A key of encrypted data transfer, as a NameNode gives it to a user.
    @skip_debug
    pub struct UserEncryptionKey = "hadoop.hdfs.DataEncryptionKeyProto" {
        /// Number of the block key that it was made with.
        #[prost(uint32, required, tag = "1")]
        pub key_id: u32,
        #[prost(string, required, tag = "2")]
        pub block_pool_id: String,
        #[prost(bytes = "bytes", required, tag = "3")]
        pub nonce: Bytes,
        #[prost(bytes = "bytes", required, tag = "4")]
        pub encryption_key: Bytes,
        /// Milliseconds since the epoch.
        #[prost(uint64, required, tag = "5")]
        pub expiry_date: u64,
        #[prost(string, optional, tag = "6")]
        pub encryption_algorithm: Option<String>,
    }
}

impl fmt::Debug for Token {
    /// Without the identifier, which names a user, and without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} {})", self.kind, self.service)
    }
}

impl fmt::Debug for UserEncryptionKey {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "UserEncryptionKey({} {})",
            self.key_id, self.block_pool_id
        )
    }
}
