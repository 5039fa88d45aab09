//! Replicas that are written to memory first (the policy `LAZY_PERSIST`): on `RAM_DISK` volumes,
//! within the budget of locked memory, and copied to a disk some time later.
//!
//! - `evict`: from memory to the second copy: when room is short, or memory has lost the replica
//! - `lazy_writer`: the second copies, verified and durable before one counts
//! - `placement`: which new replica goes to memory
//! - `second_copy`: second copies that are no longer those of their replicas
//!
//! The second copy lies in `current/lazypersist/subdirA/subdirB` of a DISK volume, as Apache's node
//! has it. A start of either node takes what lies there for finalized replicas, and of two equal
//! ones keeps that on the disk. So whatever moment a process ends in, a replica that was persisted
//! is found.

mod evict;
mod lazy_writer;
mod placement;
mod second_copy;

pub(crate) use lazy_writer::start;
#[cfg(test)]
pub(crate) use lazy_writer::{Step, persist_all, persist_one};
pub(crate) use placement::place;
