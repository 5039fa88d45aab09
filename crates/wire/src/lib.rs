//! Bytes to typed messages and back, for everything a DataNode speaks.
//!
//! No sockets, no files, no async runtime, no unsafe code. Decoders take buffers and answer with a
//! value, with "not enough bytes yet" (a value too), or with an error that means the peer cannot be
//! understood. Every number from a peer meets a limit before it is used.

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
