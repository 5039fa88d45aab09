//! The data transfer port, both sides: blocks to and from clients and other nodes.
//!
//! ```text
//! serve ── a task per connection ── server: one operation after another
//!            write/      WRITE_BLOCK: receive, forward, disk (group commit), acknowledge
//!            read        READ_BLOCK
//!            balance     COPY_BLOCK, REPLACE_BLOCK
//!            transfer    TRANSFER_BLOCK and the NameNode's TRANSFER
//!            checksum, group_checksum
//! shared:    conn (socket with limits), inflow and outflow (packets in and out), peer (other nodes)
//! ```
//!
//! What is bounded: connections (`dfs.datanode.max.transfer.threads`), memory for block data
//! ([`DATA_MEMORY`], and one small buffer for each stream beyond it), every queue of a pipeline,
//! every wait for a socket, the lines that strangers can cause in the log.

mod block_receiver;
mod block_sender;
mod context;
mod error;
mod namenode_reporter;
mod net;
mod ops;
mod packet;
mod server;
mod settings;
mod stats;
#[cfg(test)]
mod tests;

pub use crate::xceiver::namenode_reporter::NameNodeLink;
pub use crate::xceiver::net::throttle::{MoveLimit, MovePermit, Throttle, Throttles};
pub use crate::xceiver::ops::transfer_block::{Purpose, Targets, transfer_block};
pub use context::{DATA_MEMORY, Xceivers};
pub use error::XferError;
pub use server::serve;
pub use settings::Settings;
pub use stats::{Activity, Gauge, XceiverStats};
