//! Bytes to typed messages and back, for everything a DataNode speaks.
//!
//! No sockets, no files, no async runtime, no unsafe code. Decoders take buffers and answer with a
//! value, or with "not enough bytes yet" (`Ok(None)`, the buffer as it was). An error means that
//! the peer cannot be understood: close the connection. Every number from a peer meets a limit
//! before it is used in arithmetic or for an allocation; the limits are in [`limits`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`ids`] | blocks, block pools, storage types, replica states |
//! | [`checksum`] | chunk checksums, meta file headers, block checksums |
//! | [`transfer`] | data transfer operations and their answers |
//! | [`packet`], [`pipeline_ack`] | the data of a block and its acknowledgements |
//! | [`rpc`] | Hadoop RPC frames, as client and as server |
//! | [`block_report`] | full block reports |
//! | [`block_token`] | block token identifiers |
//! | [`token_text`] | tokens of users, as text |
//! | [`encryption_user`] | holders of keys of encrypted data transfer |
//! | [`proto`] | the messages themselves |
//! | [`frame`], [`varint`] | what all of these are built on |
//! | [`schema`] | descriptions of the messages, and the check of received bytes against them |

pub mod block_report;
pub mod block_token;
pub mod checksum;
pub mod encryption_user;
pub mod frame;
pub mod ids;
pub mod limits;
pub mod packet;
pub mod pipeline_ack;
pub mod proto;
pub mod rpc;
pub mod schema;
pub mod token_text;
pub mod transfer;
pub mod varint;
