//! Replicas on volumes: states, on-disk layout, block pools, capacity, recovery of a directory at
//! start-up.
//!
//! - `background`: what the store does on its own: deletes, scanners, moves between volumes
//! - `cache`: replicas that a NameNode has ordered into memory
//! - `check_swap`: whether Apache's DataNode may start on the directories of a stopped node, and
//!   Hayloft's on Apache's
//! - `config`: what the store needs to be told
//! - `counts`: what the store has done since it was opened
//! - `error`: what went wrong with a replica or a volume
//! - `found_at_start`: start-up: what lies in the directories of a pool becomes replicas in memory
//! - `identity`: which node and cluster a store is of, and how it takes that over from its volumes
//! - `inside`: what a protection of replicas may use of the store's insides
//! - `lazy_persist`: replicas that are written to memory first, and their copies on disks
//! - `layout`: Apache's on-disk layout -57: names, places and small files, as pure functions
//! - `protection`: what the store asks of what protects its finalized replicas against failing
//!   disks
//! - `reader`: reading one replica
//! - `replica`: replicas in memory: their states, the map of all of them, and those that are
//!   changing
//! - `reports_from_memory`: reports from memory: no disk is touched
//! - `service`: a store from its start to its stop
//! - `shared`: what the stores of one process have together
//! - `state`: what all parts of the store share
//! - `store`: the store's front door: volumes and block pools
//! - `store_replicas`: the store's front door for single replicas
//! - `store_tasks`: the background work of a store, and which runtime it runs on
//! - `transitions`: what replicas and volumes go through
//! - `types`: the values that go in and out of the store
//! - `upgrade_leftovers`: what deleted replicas lie in `trash`, and letting some of them go
//! - `volume`: volumes: configured directories
//! - `writer`: writing one replica
//!
//! [`Store`] is the whole of it. It gives out a [`ReplicaWriter`] for each replica being written
//! and a [`ReplicaReader`] for each one being read. It takes the NameNode's orders (invalidate,
//! recover, move), and reports from memory. Changes go up as [`StoreEvent`]s through one bounded
//! channel.

mod background;
mod cache;
mod check_swap;
mod config;
mod counts;
mod error;
mod found_at_start;
mod identity;
pub mod inside;
mod layout;
mod lazy_persist;
pub mod offline;
mod protection;
mod reader;
mod replica;
mod reports_from_memory;
mod service;
mod shared;
mod state;
mod store;
mod store_replicas;
mod store_tasks;
#[cfg(test)]
mod tests;
mod transitions;
mod types;
mod upgrade_leftovers;
mod volume;
mod writer;

pub use check_swap::{Obstacle, check_start, check_swap};
pub use config::{
    CacheConfig, DirectoryScanConfig, ErrorsConfig, ReservedSpace, ScanConfig, StoreConfig,
    VolumeChoosing, VolumeConfig,
};
pub use counts::ScanReport;
pub use error::{StoreError, StoreErrorKind};
pub use layout::dirs::now_ms;
pub use layout::names::subdir;
pub use layout::version::is_volume;
pub use reader::{PlainFiles, ReplicaReader, ReplicaWatch};
pub use replica::locked_memory::CacheUse;
pub use replica::memory_counts::LazyPersistUse;
pub use replica::watched::ReplicaMarks;
pub use reports_from_memory::{VolumeReport, VolumeSpace, VolumeTimes};
pub use service::upgrade::{HeldByUpgrades, RollingUpgradeState};
pub use service::whose_directories::nodes_below;
pub use shared::StoreShared;
pub use state::StoreProtection;
pub use store::Store;
pub use types::{
    FailureSummary, NodeStorageInfo, PacketData, PacketDataError, Pieces, PoolSpec, RecoveryInfo,
    ReplicaRef, ReplicaReport, StartOption, StorageInfo, StorageReport, StoreEvent, TakenOver,
    WriteOptions,
};
pub use upgrade_leftovers::{TrashedReplica, UpgradeLeftovers, hold_volume, upgrade_leftovers};
pub use volume::error_places::DiskErrors;
pub use writer::{AckHandle, Due, ReplicaWriter};
