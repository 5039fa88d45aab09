//! Replicas on volumes: states, on-disk layout, block pools, capacity, recovery of a directory at
//! start-up.
//!
//! [`Store`] is the whole of it. It gives out a [`ReplicaWriter`] for each replica being written
//! and a [`ReplicaReader`] for each one being read. It takes the NameNode's orders (invalidate,
//! recover, move), and reports from memory. Changes go up as [`StoreEvent`]s through one bounded
//! channel.

mod background;
mod check_swap;
mod config;
mod counts;
mod error;
mod found_at_start;
mod identity;
pub mod inside;
mod layout;
mod protection;
mod reader;
mod replica;
mod reports_from_memory;
mod service;
mod shared;
mod state;
mod store;
mod store_replicas;
#[cfg(test)]
mod tests;
mod transitions;
mod types;
mod upgrade_leftovers;
mod volume;
mod writer;

pub use check_swap::{Obstacle, check_swap};
pub use config::{
    DirectoryScanConfig, ErrorsConfig, ReservedSpace, ScanConfig, StoreConfig, VolumeChoosing,
    VolumeConfig,
};
pub use counts::ScanReport;
pub use error::{StoreError, StoreErrorKind};
pub use layout::version::is_volume;
pub use reader::ReplicaReader;
pub use reports_from_memory::{VolumeReport, VolumeTimes};
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
