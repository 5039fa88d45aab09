//! Replicas in memory: their states, the map of all of them, and those that are changing.

pub mod block_pool;
pub mod duplicates;
pub mod exclusive;
pub mod files;
pub mod finalize;
pub mod latch;
pub mod live;
pub mod map;
pub mod removed_storages;
pub mod state;

pub use latch::{Latch, Latches};
pub use live::{LiveReplica, ReplicaDir, Status};
pub use map::{FinalReplica, Gone, ReplicaMap, Slot};
