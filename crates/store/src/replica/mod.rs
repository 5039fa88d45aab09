//! Replicas in memory: their states, the map of all of them, and those that are changing.

pub mod latch;
pub mod live;
pub mod map;
pub mod state;

pub use latch::{Latch, Latches};
pub use live::{LiveReplica, Place, Status};
pub use map::{FinalReplica, Gone, ReplicaMap, Slot};
