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
//! What is bounded: connections (`dfs.datanode.max.transfer.threads`), memory for block data ([`DATA_MEMORY`], and
//! one small buffer for each stream beyond it), every queue of a pipeline, every wait for a socket, the
//! lines that strangers can cause in the log.

mod balance;
mod checksum;
mod conn;
mod context;
mod error;
mod group_checksum;
mod inflow;
mod inplace;
mod link;
mod moderation;
mod outflow;
mod pacing;
mod peer;
mod range;
mod read;
mod relief;
mod server;
mod settings;
mod stats;
#[cfg(test)]
mod tests;
mod threads;
mod throttle;
mod transfer;
mod write;

pub use context::{DATA_MEMORY, Xceivers};
pub use error::XferError;
pub use link::NameNodeLink;
pub use server::serve;
pub use settings::Settings;
pub use stats::{Activity, Gauge, XceiverStats};
pub use throttle::{MoveLimit, MovePermit, Throttle, Throttles};
pub use transfer::{Purpose, Targets, transfer_block};
