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
//! | [`packet`], [`ack`] | the data of a block and its acknowledgements |
//! | [`rpc`] | Hadoop RPC frames, as client and as server |
//! | [`report`] | full block reports |
//! | [`token`] | block token identifiers |
//! | [`proto`] | the messages themselves |
//! | [`frame`], [`varint`] | what all of these are built on |
//! | [`schema`] | descriptions of the messages, and the check of received bytes against them |

pub mod ack;
pub mod checksum;
pub mod frame;
pub mod ids;
pub mod limits;
pub mod packet;
pub mod proto;
pub mod report;
pub mod rpc;
pub mod schema;
pub mod token;
pub mod transfer;
pub mod varint;
