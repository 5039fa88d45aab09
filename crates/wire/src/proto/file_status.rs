//! What HDFS says of a file or directory (hdfs.proto, acl.proto): its kind, permission and keys.
//!
//! Fields that nothing here looks at are left out.

use bytes::Bytes;

use super::hdfs::{CipherSuite, ErasureCodingPolicy};
use super::{wire_enums, wire_messages};

wire_enums! {
    /// What a name stands for.
    pub enum FileType = "hadoop.hdfs.HdfsFileStatusProto.FileType" {
        /// `IS_DIR`.
        IsDir = 1,
        /// `IS_FILE`.
        IsFile = 2,
        /// `IS_SYMLINK`.
        IsSymlink = 3,
    }

    /// How files of an encryption zone are encrypted.
    pub enum CryptoProtocolVersion = "hadoop.hdfs.CryptoProtocolVersionProto" {
        /// `UNKNOWN_PROTOCOL_VERSION`.
        UnknownProtocolVersion = 1,
        /// `ENCRYPTION_ZONES`.
        EncryptionZones = 2,
    }
}

wire_messages! {
    /// Permission bits.
    pub struct FsPermission = "hadoop.hdfs.FsPermissionProto" {
        #[prost(uint32, required, tag = "1")]
        pub perm: u32,
    }

    /// Keys of a file in an encryption zone.
    pub struct FileEncryptionInfo = "hadoop.hdfs.FileEncryptionInfoProto" {
        #[prost(enumeration = "CipherSuite", required, tag = "1")]
        pub suite: i32,
        #[prost(enumeration = "CryptoProtocolVersion", required, tag = "2")]
        pub crypto_protocol_version: i32,
        #[prost(bytes = "bytes", required, tag = "3")]
        pub key: Bytes,
        #[prost(bytes = "bytes", required, tag = "4")]
        pub iv: Bytes,
        #[prost(string, required, tag = "5")]
        pub key_name: String,
        #[prost(string, required, tag = "6")]
        pub ez_key_version_name: String,
    }

    /// A file, directory or symbolic link. Times in milliseconds since 1970.
    pub struct HdfsFileStatus = "hadoop.hdfs.HdfsFileStatusProto" {
        #[prost(enumeration = "FileType", required, tag = "1")]
        pub file_type: i32,
        /// Its name in the listed directory; empty when it was asked for itself.
        #[prost(bytes = "bytes", required, tag = "2")]
        pub path: Bytes,
        #[prost(uint64, required, tag = "3")]
        pub length: u64,
        #[prost(message, required, tag = "4")]
        pub permission: FsPermission,
        #[prost(string, required, tag = "5")]
        pub owner: String,
        #[prost(string, required, tag = "6")]
        pub group: String,
        #[prost(uint64, required, tag = "7")]
        pub modification_time: u64,
        #[prost(uint64, required, tag = "8")]
        pub access_time: u64,
        #[prost(uint32, optional, tag = "10", default = "0")]
        pub block_replication: Option<u32>,
        #[prost(uint64, optional, tag = "11", default = "0")]
        pub blocksize: Option<u64>,
        #[prost(uint64, optional, tag = "13", default = "0")]
        pub file_id: Option<u64>,
        #[prost(message, optional, tag = "15")]
        pub file_encryption_info: Option<FileEncryptionInfo>,
        /// Its own policy or the one it inherits; 0 for none, and for all but the superuser.
        #[prost(uint32, optional, tag = "16", default = "0")]
        pub storage_policy: Option<u32>,
        #[prost(message, optional, tag = "17")]
        pub ec_policy: Option<ErasureCodingPolicy>,
        /// The space of names, behind a router.
        #[prost(string, optional, tag = "19")]
        pub namespace: Option<String>,
    }
}
