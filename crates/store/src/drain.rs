//! Replicas that are closed while bytes of them are staged.
//!
//! The close of a block is acknowledged, and its replica reported finalized, as soon as all of it outlives a killed
//! process: in its files or in [staging](hayloft_io::staging). Its files stay in `rbw` until they are complete, with
//! a [`Marker`] beside them; then they move to `finalized`, which never holds anything else than whole replicas. In
//! the map such a replica is a live one in the state FINALIZED, whose [`draining`](crate::replica::Status::draining)
//! is set; its writer keeps the right to it. So whoever wants to change the replica waits, and finds it finalized;
//! readers get from staging what is not in the files.
//!
//! **After a kill** the next start writes what was staged to the files and finds the markers: a replica that is as
//! long as its marker says, all of whose checksums are right, is finalized. One that is not is what it would be
//! without a marker, a replica that was being written: staging was lost too, as with the power.
//!
//! Not for synced closes, copies between nodes, nor where no room was reserved for the whole block.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hayloft_wire::ids::Block;
use tracing::{info, warn};

use crate::error::{StoreError, StoreErrorKind};
use crate::files::{self, Pair};
use crate::inner::Inner;
use crate::layout::names::{self, CLOSED, PoolPaths};
use crate::load::{cut, whole};
use crate::pool::Pool;
use crate::replica::{LiveReplica, Slot};

/// Bytes of a marker file, at most: two numbers and a line's end.
const MARKER_BYTES_MAX: u64 = 64;

/// How long a stop waits for replicas that are draining.
const STOP: Duration = Duration::from_secs(30);

/// What the file `rbw/blk_ID.closed` says, as text: generation stamp, a space, length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Generation stamp of the replica.
    pub generation_stamp: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Marker {
    /// The contents of the file.
    #[must_use]
    pub fn encode(self) -> String {
        format!("{} {}\n", self.generation_stamp, self.len)
    }

    /// `None` for anything that [`encode`](Self::encode) did not make, such as half of it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (stamp, len) = text.strip_suffix('\n')?.split_once(' ')?;
        let marker = Self {
            generation_stamp: stamp.parse().ok()?,
            len: len.parse().ok()?,
        };
        (marker.encode() == text).then_some(marker)
    }

    /// The marker of a block; `None` without one, or when it cannot be understood.
    fn read(paths: &PoolPaths, id: i64) -> Option<Self> {
        let path = paths.closed_marker(id);
        let short = fs::symlink_metadata(&path).ok()?.len() <= MARKER_BYTES_MAX;
        let text = if short {
            fs::read_to_string(&path).ok()
        } else {
            None
        };
        Self::parse(&text?)
    }
}

/// At the start: finalizes a replica in `rbw` that was closed, if its files are complete now; gives it back with its
/// length then. Blocking.
pub fn finish_closed(paths: &PoolPaths, block: Block, pinned: bool) -> Option<Block> {
    let marker = Marker::read(paths, block.id)?;
    let from = Pair {
        dir: paths.rbw(),
        id: block.id,
        generation_stamp: block.generation_stamp,
    };
    let to = from.at(paths.finalized_dir(block.id));
    let finish = || -> io::Result<bool> {
        if marker.generation_stamp != block.generation_stamp {
            return Ok(false);
        }
        let Some(valid) = whole(&from.data(), &from.meta(), marker.len)? else {
            return Ok(false);
        };
        // What is behind belongs to nothing: room that was reserved, or the end of a write that was rounded up.
        cut(&from.data(), &from.meta(), &valid)?;
        if pinned {
            files::pin(&from.data())?;
        }
        // Acknowledged long ago, and the process that did is gone: no reason to leave it to chance any longer.
        files::move_pair(&from, &to, true)?;
        Ok(true)
    };
    match finish() {
        Ok(true) => {
            info!(%block, "finalized a replica that was closed before the process ended");
            Some(Block {
                num_bytes: marker.len,
                ..block
            })
        }
        Ok(false) => {
            warn!(%block, closed_at = marker.len,
                "a replica that was closed is not complete: what was staged of it is lost, as after power loss");
            None
        }
        Err(error) => {
            warn!(%block, %error, "cannot finalize a replica that was closed");
            None
        }
    }
}

/// At the start, after all replicas were looked at: no marker is of use any more.
pub fn remove_markers(paths: &PoolPaths) -> io::Result<()> {
    for entry in fs::read_dir(paths.rbw())? {
        let entry = entry?;
        let name = entry.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(CLOSED));
        if stem.is_some_and(|stem| matches!(names::parse(stem), Some(names::ReplicaFile::Data(_))))
        {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// What the map holds of a block once it is not draining any more.
///
/// # Errors
/// `NotFound`; `WriterBusy` when its disk takes too long.
pub async fn settled_slot(inner: &Inner, pool: &Pool, id: i64) -> Result<Slot, StoreError> {
    loop {
        let slot = pool.slot(id)?;
        let Slot::Live(live) = &slot else {
            return Ok(slot);
        };
        let Some(drained) = live.status().draining.clone() else {
            return Ok(slot);
        };
        let limit = inner.config.writer_stop_timeout;
        if tokio::time::timeout(limit, drained.cancelled())
            .await
            .is_err()
        {
            let text = format!(
                "the disk has not taken all of {} within {} s: try again later",
                live.block(),
                limit.as_secs()
            );
            return Err(StoreError::new(StoreErrorKind::WriterBusy, text));
        }
        if pool.map.is_live(live) {
            // It was left as it is, by a stop or with its volume.
            return Err(pool.not_found(id));
        }
    }
}

/// Waits until none of these replicas is draining; whether that was so in time.
pub async fn all_drained(live: &[Arc<LiveReplica>]) -> bool {
    let draining: Vec<_> = live
        .iter()
        .filter_map(|live| live.status().draining.clone())
        .collect();
    let all = futures_util::future::join_all(draining.iter().map(|token| token.cancelled()));
    let drained = tokio::time::timeout(STOP, all).await.is_ok();
    if !drained {
        warn!(
            "the disks have not taken all of the closed replicas yet: what is left of them when the node ends is finished by its next start"
        );
    }
    drained
}
