//! Snapshots that the node takes by itself, where `hayloft.snapshot.to` names a store.
//!
//! | module | what it is |
//! |---|---|
//! | `service` | takes one after the other, in a build that can |
//! | `store_sink` | a snapshot put back, through the store |
//! | `store_source` | replicas read through the store, in a class of I/O that no client waits for |

#[cfg(feature = "snapshots")]
mod service;
#[cfg(feature = "snapshots")]
mod store_sink;
#[cfg(feature = "snapshots")]
mod store_source;

use std::sync::{Arc, Mutex};

use hayloft_conf::{Configuration, keys};
use hayloft_io::locks;

#[cfg(feature = "snapshots")]
pub use service::{SnapshotNode, serve};

/// How the snapshots of a node stand.
#[derive(Clone, Debug, Default)]
pub struct SnapshotState {
    /// Where they go; empty when none is taken.
    pub to: String,
    /// Where a snapshot is put back from, while that is not done.
    pub restoring: Option<String>,
    /// What came of that.
    pub restored: Option<String>,
    /// Replicas of it that are missing or altered.
    pub restore_broken: u64,
    /// One is being taken, and so many bytes of it are done, of so many.
    pub running: Option<(u64, u64)>,
    /// Name of the last one.
    pub last: Option<String>,
    /// When that was begun, in milliseconds since 1970.
    pub last_ms: Option<u64>,
    /// Replicas in it.
    pub replicas: u64,
    /// Replicas that were damaged or could not be looked at, and are not in it.
    pub left_out: u64,
    /// Seconds since the oldest closed replica that no snapshot has was written; `None` while that
    /// is not known.
    pub lag_s: Option<u64>,
    /// Bytes written to the store since the node started.
    pub uploaded_bytes: u64,
    /// Snapshots that failed since the node started.
    pub failures: u64,
    /// Why the last one failed, if it did.
    pub error: Option<String>,
}

/// The state, shared with those who tell of it.
#[derive(Clone, Debug)]
pub struct Snapshots(Arc<Mutex<SnapshotState>>);

impl Snapshots {
    /// That of a node which is to take snapshots, or put one back; `None` when it is not.
    pub fn of(config: &Configuration) -> Option<Self> {
        let to = config.get(&keys::SNAPSHOT_TO);
        let restoring = config.get(&keys::SNAPSHOT_RESTORE_FROM);
        if to.is_none() && restoring.is_none() {
            return None;
        }
        let state = SnapshotState {
            to: to.unwrap_or_default(),
            restoring,
            ..SnapshotState::default()
        };
        Some(Self(Arc::new(Mutex::new(state))))
    }

    /// As of now.
    pub fn state(&self) -> SnapshotState {
        locks::lock(&self.0).clone()
    }

    #[cfg(feature = "snapshots")]
    fn change(&self, change: impl FnOnce(&mut SnapshotState)) {
        change(&mut locks::lock(&self.0));
    }
}

/// Why a node with this configuration does not start in a build without snapshots: it would be
/// without those that it is to take, and nothing would tell.
#[cfg(not(feature = "snapshots"))]
pub fn refusal(config: &Configuration) -> Option<String> {
    let keys = [&keys::SNAPSHOT_TO, &keys::SNAPSHOT_RESTORE_FROM];
    let key = keys.into_iter().find(|key| config.get(key).is_some())?;
    Some(format!(
        "{} is set, and this build of hayloft has no snapshots: start the one that 'make build' \
         makes (cargo feature snapshots), or clear the key",
        key.name()
    ))
}

/// Nothing: a store that gives no answer stops no node.
#[cfg(feature = "snapshots")]
pub fn refusal(_: &Configuration) -> Option<String> {
    None
}
