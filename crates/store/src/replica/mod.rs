//! Replicas in memory: their states, the map of all of them, and those that are changing.

pub mod block_pool;
pub mod degraded;
pub mod file_pair;
pub mod finalized;
pub mod kept_end;
pub mod kept_open;
pub mod latch;
pub mod live;
pub mod map;
pub mod reference;
pub mod removed_storages;
pub mod rolling_mode;
pub mod state;
pub mod suspect;

pub use finalized::FinalReplica;
pub use latch::{Latch, Latches};
pub use live::{LiveReplica, ReplicaDir, Status, Tail};
pub use map::{Gone, ReplicaMap, Slot};
