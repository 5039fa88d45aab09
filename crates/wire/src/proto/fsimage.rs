//! Messages in a NameNode's image of its namespace (fsimage.proto), as far as a scan for cold files
//! reads it.
//!
//! An image is the eight bytes `HDFSIMG1`, sections of delimited messages, a delimited
//! [`FileSummary`] that says where they are, and its length in four bytes.

use bytes::Bytes;

use super::hdfs::Block;
use super::{wire_enums, wire_messages};

wire_enums! {
    /// What an inode is.
    pub enum InodeType = "hadoop.hdfs.fsimage.INodeSection.INode.Type" {
        /// `FILE`.
        File = 1,
        /// `DIRECTORY`.
        Directory = 2,
        /// `SYMLINK`.
        Symlink = 3,
    }
}

wire_messages! {
    /// Where a section is; offsets and lengths in bytes of the file.
    pub struct ImageSection = "hadoop.hdfs.fsimage.FileSummary.Section" {
        #[prost(string, optional, tag = "1")]
        pub name: Option<String>,
        #[prost(uint64, optional, tag = "2")]
        pub length: Option<u64>,
        #[prost(uint64, optional, tag = "3")]
        pub offset: Option<u64>,
    }

    /// What an image holds.
    pub struct FileSummary = "hadoop.hdfs.fsimage.FileSummary" {
        #[prost(uint32, required, tag = "1")]
        pub ondisk_version: u32,
        #[prost(uint32, required, tag = "2")]
        pub layout_version: u32,
        /// Java class that compresses each section; absent when none does.
        #[prost(string, optional, tag = "3")]
        pub codec: Option<String>,
        #[prost(message, repeated, tag = "4")]
        pub sections: Vec<ImageSection>,
    }

    /// Head of section `STRING_TABLE`; entries follow.
    pub struct StringTableSection = "hadoop.hdfs.fsimage.StringTableSection" {
        #[prost(uint32, optional, tag = "1")]
        pub num_entry: Option<u32>,
        /// High bits of an entry's id that say which table it belongs to.
        #[prost(uint32, optional, tag = "2", default = "0")]
        pub mask_bits: Option<u32>,
    }

    /// A string by its number.
    pub struct StringTableEntry = "hadoop.hdfs.fsimage.StringTableSection.Entry" {
        #[prost(uint32, optional, tag = "1")]
        pub id: Option<u32>,
        #[prost(string, optional, tag = "2")]
        pub str: Option<String>,
    }

    /// An extended attribute.
    pub struct XattrCompact = "hadoop.hdfs.fsimage.INodeSection.XAttrCompactProto" {
        /// Two bits of name space, 24 of the name's number in the string table, one more of name
        /// space, five of nothing.
        #[prost(fixed32, required, tag = "1")]
        pub name: u32,
        #[prost(bytes = "bytes", optional, tag = "2")]
        pub value: Option<Bytes>,
    }

    /// The extended attributes of an inode.
    pub struct XattrFeature = "hadoop.hdfs.fsimage.INodeSection.XAttrFeatureProto" {
        #[prost(message, repeated, tag = "1")]
        pub x_attrs: Vec<XattrCompact>,
    }

    /// There while a file is being written.
    pub struct FileUnderConstruction =
        "hadoop.hdfs.fsimage.INodeSection.FileUnderConstructionFeature" {
        #[prost(string, optional, tag = "1")]
        pub client_name: Option<String>,
    }

    /// A file. Times in milliseconds since 1970.
    pub struct InodeFile = "hadoop.hdfs.fsimage.INodeSection.INodeFile" {
        #[prost(uint32, optional, tag = "1")]
        pub replication: Option<u32>,
        #[prost(uint64, optional, tag = "2")]
        pub modification_time: Option<u64>,
        #[prost(uint64, optional, tag = "3")]
        pub access_time: Option<u64>,
        #[prost(message, repeated, tag = "6")]
        pub blocks: Vec<Block>,
        #[prost(message, optional, tag = "7")]
        pub file_uc: Option<FileUnderConstruction>,
        /// Its own; it inherits one when absent or 0.
        #[prost(uint32, optional, tag = "10")]
        pub storage_policy_id: Option<u32>,
    }

    /// A directory; its own storage policy is an extended attribute.
    pub struct InodeDirectory = "hadoop.hdfs.fsimage.INodeSection.INodeDirectory" {
        #[prost(uint64, optional, tag = "1")]
        pub modification_time: Option<u64>,
        #[prost(message, optional, tag = "6")]
        pub x_attrs: Option<XattrFeature>,
    }

    /// A file, directory or symbolic link.
    pub struct Inode = "hadoop.hdfs.fsimage.INodeSection.INode" {
        #[prost(enumeration = "InodeType", required, tag = "1")]
        pub r#type: i32,
        #[prost(uint64, required, tag = "2")]
        pub id: u64,
        #[prost(bytes = "bytes", optional, tag = "3")]
        pub name: Option<Bytes>,
        #[prost(message, optional, tag = "4")]
        pub file: Option<InodeFile>,
        #[prost(message, optional, tag = "5")]
        pub directory: Option<InodeDirectory>,
    }

    /// Head of section `INODE`; inodes follow.
    pub struct InodeSection = "hadoop.hdfs.fsimage.INodeSection" {
        #[prost(uint64, optional, tag = "1")]
        pub last_inode_id: Option<u64>,
        #[prost(uint64, optional, tag = "2")]
        pub num_inodes: Option<u64>,
    }

    /// The children of a directory: inodes, and numbers of references to inodes that snapshots
    /// hold too.
    pub struct DirEntry = "hadoop.hdfs.fsimage.INodeDirectorySection.DirEntry" {
        #[prost(uint64, optional, tag = "1")]
        pub parent: Option<u64>,
        #[prost(uint64, repeated, packed = "true", tag = "2")]
        pub children: Vec<u64>,
        #[prost(uint32, repeated, packed = "true", tag = "3")]
        pub ref_children: Vec<u32>,
    }

    /// A reference; its number is its place in section `INODE_REFERENCE`.
    pub struct InodeReference = "hadoop.hdfs.fsimage.INodeReferenceSection.INodeReference" {
        #[prost(uint64, optional, tag = "1")]
        pub referred_id: Option<u64>,
    }
}
