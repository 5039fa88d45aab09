//! Services towards NameNodes.
//!
//! [`NameNodes`] is the handle of the rest of the node. Under it there is one service per name
//! service (block pool) and in it one actor per NameNode:
//!
//! ```text
//! NameNodes --- PoolService --- Actor: handshake, then side by side
//!                  |              heartbeat     on time; answers bring leases, commands
//!                  |              ibr           block changes, at once
//!                  |              block_report  full block reports, when leased
//!                  |              error_reports bad blocks, errors
//!                  |              lifeline      when heartbeats are late
//!                  `-- Commander: NameNode commands, one queue per pool
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `ibr::queue`, `active_namenode`, `block_report::lease`, `version` | pure rules |
//! | `actor_news` | what is known of a NameNode, and what waits to be told to it |
//! | `actor_loops` | what goes on side by side towards a NameNode |
//! | `handshake`, `registration_checks` | registering; what is checked before |
//! | `token_keys` | block tokens on or off, and their keys |
//! | `heartbeat`, `ibr`, `error_reports`, `lifeline` | what it is told |
//! | `block_report`, `cache_report` | all blocks, or all cached ones, in their turn |
//! | `for_the_node` | what the rest of the node asks |
//! | `pool_service`, `start_actors` | one pool: its actors, and their start |
//! | `held_pools` | which name service has which pool |
//! | `queued_command`, `commands` | a NameNode's orders, one after the other |
//! | `store_events` | what the store tells |
//! | `service_side`, `settings` | what all services share; their configuration |
//! | `inventory`, `work` | what the store and the rest of the node do for them |

mod active_namenode;
mod actor_loops;
mod actor_news;
mod block_report;
mod cache_report;
mod commands;
mod error_reports;
mod for_the_node;
mod handshake;
mod heartbeat;
mod held_pools;
mod ibr;
mod inventory;
mod lifeline;
mod pool_service;
mod queued_command;
mod registration_checks;
mod service_side;
mod settings;
mod start_actors;
mod store_events;
mod token_keys;
mod version;
mod work;

#[cfg(test)]
mod tests;

pub use actor_news::Phase;
pub use for_the_node::{ActorInfo, NameNodes, NameNodesParts};
pub use work::{NodeLoad, NodeWork, Targets};
