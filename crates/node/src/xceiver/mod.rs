//! The data transfer port, both sides: blocks to and from clients and other nodes.
//!
//! - `block_receiver`: WRITE_BLOCK: receiving a block, as any node of a pipeline and in every stage
//! - `block_sender`: replica data into a socket, as packets: for readers, copies and transfers
//! - `check_token`: whether the block token of a request permits it
//! - `context`: what all connections of the data transfer service share
//! - `domain_server`: the domain socket beside the data transfer port
//! - `error`: why an operation ended early
//! - `log_writers`: clients that write logs, and threads for them
//! - `namenode_reporter`: what the data transfer service tells and asks the NameNode side
//! - `net`: connections, their threads and their limits
//! - `ops`: the operations of the data transfer port, one file each
//! - `packet`: packets as they come in: parsed and checked once, here
//! - `process_wide`: what the data transfer services of one process have together
//! - `reconstruction`: reconstruction of striped files
//! - `segments`: memory that clients of this host share with the node
//! - `server`: the data transfer port: connections in, one task each, one operation after another
//! - `settings`: what the data transfer service takes from the configuration
//! - `stats`: counts of what the data transfer service is doing
//!
//! ```text
//! serve ── a task per connection ── server: one operation after another
//!            block_receiver/  WRITE_BLOCK, and what copies between nodes receive
//!            block_sender/    what READ_BLOCK and copies between nodes send
//!            ops/             one file an operation
//! reconstruction/ lost blocks of striped files, from those that are left
//! shared:    packet/ (packets as they come in), net/ (connections, other nodes, limits)
//! ```
//!
//! What is bounded: connections (`dfs.datanode.max.transfer.threads`) and memory for block data
//! ([`DATA_MEMORY`], and one small buffer for each stream beyond it). So is every queue of a
//! pipeline, every wait for a socket, and what strangers can write to the log.

mod block_receiver;
mod block_sender;
mod check_token;
mod context;
mod domain_server;
mod error;
mod log_writers;
mod namenode_reporter;
mod net;
mod ops;
mod packet;
mod process_wide;
mod reconstruction;
mod segments;
mod server;
mod settings;
mod stats;
#[cfg(test)]
mod tests;

pub use crate::xceiver::namenode_reporter::NameNodeLink;
pub use crate::xceiver::net::domain_listener::{DomainListener, NoListener, path_of};
pub use crate::xceiver::net::throttle::{MoveLimit, MovePermit, Throttle, Throttles};
pub use crate::xceiver::ops::transfer_block::{Purpose, transfer_block};
pub use crate::xceiver::reconstruction::reconstruct;
pub use context::Xceivers;
pub use domain_server::serve_domain;
pub use error::XferError;
pub use log_writers::LOG_THREADS_MAX;
pub use process_wide::XceiverShared;
pub use server::serve;
pub use settings::{DATA_MEMORY, ReconstructionSettings, Settings};
pub use stats::{Activity, Counter, Gauge, XceiverStats};
