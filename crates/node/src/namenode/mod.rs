//! Services towards NameNodes.
//!
//! [`NameNodes`] is the handle of the rest of the node. Under it there is one service per name
//! service (block pool) and in it one actor per NameNode:
//!
//! ```text
//! NameNodes --- PoolService --- Actor: handshake, then side by side
//!                  |              heartbeat    on time; answers bring leases, claims, commands
//!                  |              incremental  block changes, at once
//!                  |              report       full block reports, when leased
//!                  |              notices      bad blocks, errors
//!                  |              lifeline     when heartbeats are late
//!                  `-- Commander: NameNode commands, one queue per pool
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `ibr`, `claim`, `schedule`, `trouble`, `version` | the rules, as pure structures |
//! | `actor`, `heartbeat`, `incremental`, `report`, `error_reports`, `lifeline` | one NameNode |
//! | `pool`, `commands`, `registration` | one pool |
//! | `events` | news from the store |
//! | `inventory`, `work` | what the store and the rest of the node do for them |

mod actor;
mod claim;
mod commands;
mod error_reports;
mod events;
mod handle;
mod heartbeat;
mod ibr;
mod incremental;
mod inventory;
mod lifeline;
mod pool;
mod registration;
mod report;
mod schedule;
mod service_side;
mod settings;
mod trouble;
mod version;
mod work;

#[cfg(test)]
mod tests;

pub use actor::Phase;
pub use handle::{ActorInfo, NameNodes, NameNodesParts};
pub use work::{Load, NodeWork, TransferOrder};
