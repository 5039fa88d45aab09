//! Block recovery, after a writer died (lease recovery) or a file was truncated. It brings the
//! replicas of the last block to the same length and a new generation stamp. The NameNode chooses
//! one of the nodes as the primary and sends it an order with a heartbeat; this module carries it
//! out.
//!
//! | module | what it is |
//! |---|---|
//! | `waiting_orders` | the NameNode's command: orders wait for their turn |
//! | `check_order` | one of its orders, checked |
//! | `which_replicas_stay` | which replicas are kept and how long they become: pure functions |
//! | `lead` | the steps of one recovery |
//! | `calls_to_holders` | how the primary asks the nodes that hold replicas |
//! | `when_another_leads` | what this node does to its own replica |
//!
//! Nothing is kept of a recovery that fails. The NameNode sends a new order with a higher recovery
//! id when the old one's time is over. Participants refuse what is older than they have seen.

mod calls_to_holders;
mod check_order;
mod lead;
#[cfg(test)]
mod lead_tests;
mod waiting_orders;
pub(crate) mod when_another_leads;
mod which_replicas_stay;
#[cfg(test)]
mod which_replicas_stay_tests;

pub use waiting_orders::BlockRecovery;
