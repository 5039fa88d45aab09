//! How long the operations on each volume take.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use hayloft_io::IoOp;

use crate::state::StoreState;

/// Operations on names, as Apache's volume metrics count them.
const NAMES: [IoOp; 13] = [
    IoOp::Open,
    IoOp::Truncate,
    IoOp::CreateDir,
    IoOp::Rename,
    IoOp::Unlink,
    IoOp::RemoveDir,
    IoOp::Link,
    IoOp::List,
    IoOp::Stat,
    IoOp::ReadSmall,
    IoOp::Replace,
    IoOp::SyncDir,
    IoOp::Length,
];

/// How many operations were measured on a volume since it was opened, and how long they took
/// together, waiting in queues included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeTimes {
    /// The volume's directory.
    pub path: PathBuf,
    /// Operations on names.
    pub metadata: (u64, Duration),
    /// Reads that went through the engine: what came out of the page cache is not in it.
    pub read: (u64, Duration),
    /// Writes.
    pub write: (u64, Duration),
}

/// See [`Store::volume_times`](crate::Store::volume_times).
#[must_use]
pub fn volume_times(inner: &StoreState) -> Vec<VolumeTimes> {
    let volumes = inner.volumes();
    let times = volumes.iter().map(|volume| VolumeTimes {
        path: volume.root.clone(),
        metadata: volume.metrics.total(&NAMES),
        read: volume.metrics.total(&[IoOp::Read]),
        write: volume.metrics.total(&[IoOp::Write]),
    });
    times.collect()
}

/// See [`Store::avoid_volumes`](crate::Store::avoid_volumes).
pub fn avoid(inner: &StoreState, paths: &[&Path]) {
    for volume in inner.volumes() {
        let avoid = paths.contains(&volume.root.as_path());
        volume.avoid.store(avoid, Ordering::Relaxed);
    }
}
