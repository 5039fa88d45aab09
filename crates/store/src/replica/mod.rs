//! Replicas in memory: their states, the map of all of them, and those that are changing.
//!
//! - `block_pool`: a block pool that is loaded: its replicas and its parts on the volumes
//! - `cache_replica`: from a finalized replica to a cached one, and back
//! - `cached`: which replicas are locked in memory, or about to be
//! - `degraded`: finalized replicas whose disk is gone
//! - `file_pair`: where the two files of a replica lie, and how they move together
//! - `finalized`: a finalized replica, as the map has it
//! - `kept_end`: the end of a replica that a start finds whatever became of the checksum that
//!   covers it
//! - `kept_open`: files of finalized replicas that were read a moment ago, kept open
//! - `latch`: one right per block to change what the replica map and the directories say about it
//! - `live`: a replica that is not finalized, or that is under recovery
//! - `locked_memory`: memory that replicas are locked in: one budget of a process
//! - `map`: all replicas of a pool by block id: sharded, a few dozen bytes for a finalized one
//! - `memory_counts`: what was done with replicas on `RAM_DISK` volumes, in numbers
//! - `memory_replicas`: replicas on `RAM_DISK` volumes, and their second copies on disks
//! - `reference`: what is said of a replica, to peers and in reports
//! - `removed_storages`: storages that have left a pool
//! - `rolling_mode`: whether a rolling upgrade of a pool runs: then what is deleted goes to `trash`
//! - `state`: the states of a replica and every legal move between them, as one pure table
//! - `suspect`: a replica that may be damaged
//! - `watched`: replicas whose files other processes have open

pub mod block_pool;
mod cache_replica;
pub mod cached;
pub mod degraded;
pub mod file_pair;
pub mod finalized;
pub mod kept_end;
pub mod kept_open;
pub mod latch;
pub mod live;
pub mod locked_memory;
pub mod map;
pub mod memory_counts;
pub mod memory_replicas;
pub mod reference;
pub mod removed_storages;
pub mod rolling_mode;
pub mod state;
pub mod suspect;
pub mod watched;

pub use finalized::FinalReplica;
pub use latch::{Latch, Latches};
pub use live::{LiveReplica, ReplicaDir, Status, Tail};
pub use map::{Gone, ReplicaMap, Slot};
