//! A writer keeps the end of what was synced: see [`kept_end`].

use std::fs::File;

use hayloft_io::{IoClass, IoError, IoOp};
use tracing::debug;

use crate::replica::file_pair;
use crate::replica::kept_end;
use crate::replica::{LiveReplica, Tail};

/// Keeps `end`, and the one that is promised already, beside the checksums. It counts when the meta
/// file was synced with its inode, which the caller does, and tells the replica of then. False
/// where the file system has no such place.
pub async fn keep(live: &LiveReplica, class: IoClass, end: Tail) -> bool {
    let promised = live.status().kept_end;
    let path = live.pair().meta();
    let ends: Vec<Tail> = promised.into_iter().chain([end]).collect();
    let meta = path.clone();
    let work = move || kept_end::keep(&File::open(&meta)?, &ends);
    let kept: Result<(), IoError> =
        file_pair::on_disk(&live.slice, class, IoOp::Other, &path, work).await;
    if let Err(error) = &kept {
        debug!(block = %live.block(), %error, "the end of a replica cannot be kept beside it");
    }
    kept.is_ok()
}
