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
mod identity;
pub mod inside;
mod layout;
mod load;
pub mod offline;
mod protection;
mod reader;
mod replica;
mod report;
mod service;
mod shared;
mod state;
mod store;
mod store_replicas;
#[cfg(test)]
mod tests;
mod transitions;
mod trashed;
mod types;
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
pub use report::{VolumeReport, VolumeTimes};
pub use service::directories::nodes_below;
pub use service::upgrade::{HeldByUpgrades, RollingUpgradeState};
pub use shared::StoreShared;
pub use state::StoreProtection;
pub use store::Store;
pub use trashed::{TrashedReplica, UpgradeLeftovers, hold_volume, upgrade_leftovers};
pub use types::{
    FailureSummary, NodeStorageInfo, PacketData, PacketDataError, Pieces, PoolSpec, RecoveryInfo,
    ReplicaRef, ReplicaReport, StartOption, StorageInfo, StorageReport, StoreEvent, TakenOver,
    WriteOptions,
};
pub use volume::errors::DiskErrors;
pub use writer::{AckHandle, Due, ReplicaWriter};
