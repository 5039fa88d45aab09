//! Snapshots of a node's closed replicas in an object store, and back.
//!
//! | module | what it is |
//! |---|---|
//! | `target` | where snapshots are kept: an object store, or a directory |
//! | `names` | names of objects, and what they are by their names |
//! | `manifest` | what a snapshot consists of, as text |
//! | `replica_check` | a replica's bytes compared with its meta file as they pass |
//! | `source` | where replicas are read: directories, or a running node's store |
//! | `claim` | who is at work on a node's snapshots, so that none harms another |
//! | `catalog` | manifests that are there, and objects |
//! | `rate` | bytes a second |
//! | `create`, `upload` | a snapshot, taken |
//! | `verify` | a snapshot, compared with itself |
//! | `fetch` | a replica on its way back |
//! | `restore`, `directories` | a snapshot, put back; on data directories |
//! | `prune` | old snapshots removed, and objects that none names |
//!
//! A snapshot is its manifest, which is written last: without it there is no snapshot. Each node
//! has a folder of its own, named after its uuid. No object is written in place.

mod catalog;
mod claim;
mod create;
mod directories;
mod error;
mod fetch;
mod manifest;
mod names;
mod prune;
mod rate;
mod replica_check;
mod restore;
mod source;
mod target;
#[cfg(test)]
mod tests;
mod upload;
mod verify;

pub use catalog::{SnapshotListed, list};
pub use create::{Covered, CreateOptions, CreateReport, covered, create};
pub use directories::{RestoreVolume, restore};
pub use error::{SnapshotError, SnapshotErrorKind};
pub use fetch::IncomingReplica;
pub use manifest::{Manifest, ManifestReplica};
pub use prune::{PruneOptions, PruneReport, prune};
pub use rate::Rate;
pub use replica_check::MetaFile;
pub use restore::{Begun, Incoming, RestoreOptions, RestoreReport, RestoreSink, restore_to};
pub use source::{
    DirectorySource, LocalReplica, NodeReplicas, ReadFailure, Reading, ReplicaBytes, Replicas,
    nodes_on, only,
};
pub use target::Target;
pub use verify::{VerifyOptions, VerifyReport, verify};

use std::sync::atomic::{AtomicU64, Ordering};

/// How far a command has come, for who shows it.
#[derive(Debug, Default)]
pub struct SnapshotProgress {
    total: AtomicU64,
    done: AtomicU64,
}

impl SnapshotProgress {
    /// Bytes done, and bytes in all as far as that is known.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (of(&self.done), of(&self.total))
    }

    fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}
