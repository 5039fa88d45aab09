//! Replicas that were being written when the last process ended: they come back as RWR, or as RBW
//! after an upgrade restart, cut to what is intact.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hayloft_io::DataFiles;
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::{Block, ReplicaState};
use tracing::{info, warn};

use super::find_files::{Found, Orphans, walk};
use super::intact_length::{self, Valid, cut, validate};
use super::{LoadOptions, Progress, unclean_stop};
use crate::layout::dirs::read_small;
use crate::layout::names::{self, PoolPaths};
use crate::replica::state::{Move, after};

/// Bytes of the marker of an upgrade restart, at most: a number of milliseconds.
const MARKER_BYTES_MAX: usize = 64;

/// A replica that was being written when the last process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRbw {
    /// Id, generation stamp and the length that was found intact; the files are cut to it.
    pub block: Block,
    /// RWR, or RBW when an upgrade restart asked for it and not too much time has passed.
    pub state: ReplicaState,
    /// Checksum of the meta file, when it has a header.
    pub checksum: Option<DataChecksum>,
    /// CRC of the last chunk when that is partial.
    pub last_crc: u32,
    /// Written since the system was booted: no power loss has taken bytes of it.
    pub as_written: bool,
}

/// The replicas in `rbw`, cut to what is intact. Parts without their counterpart go to `orphans`.
pub fn load_rbw(
    options: &LoadOptions,
    paths: &PoolPaths,
    orphans: &mut Orphans,
) -> io::Result<Vec<FoundRbw>> {
    let rbw = paths.rbw();
    let (mut found, strays) = walk(&rbw, 1, &Progress::default())?;
    // Data here whose meta file got as far as `finalized` (a stop in the middle of finalizing).
    for (id, dir, len) in strays.data {
        let Some(at) = orphans.meta.iter().position(|(block, _)| block.id == id) else {
            warn!(block = id, dir = %dir.display(), "data file without meta file in rbw: not \
                served");
            continue;
        };
        let (mut block, from) = orphans.meta.swap_remove(at);
        block.num_bytes = len;
        let name = names::meta_name(id, block.generation_stamp);
        fs::rename(from.join(&name), rbw.join(&name))?;
        found.push(Found {
            block,
            pinned: false,
            dir: None,
            changed_ms: u64::MAX,
        });
    }
    orphans.meta.extend(strays.meta);
    let recent = |found: &Found| {
        let recent = |since_ms| unclean_stop::is_recent(found.changed_ms, since_ms);
        options.doubt.is_some_and(|doubt| recent(doubt.since_ms))
    };
    let load_one =
        |found: Found| load_one_rbw(&options.data_files, paths, found.block, recent(&found));
    found.into_iter().map(load_one).collect()
}

/// `recent`: any of its chunks may be damaged, not only what is behind the last good one.
fn load_one_rbw(
    files: &DataFiles,
    paths: &PoolPaths,
    block: Block,
    recent: bool,
) -> io::Result<FoundRbw> {
    let data = paths.rbw().join(names::data_name(block.id));
    let meta = paths
        .rbw()
        .join(names::meta_name(block.id, block.generation_stamp));
    let mut as_written = was_written_since_boot(&meta) && files.are_plain();
    let valid = if recent {
        unclean_stop::validate_all(files, &data, &meta)
    } else {
        validate(files, &data, &meta)
    };
    let valid = valid.and_then(|valid| {
        let valid = match intact_length::with_kept_end(files, &data, &meta, valid) {
            Err(error) if unclean_stop::is_passing(files, &error) => return Err(error),
            Err(error) => {
                warn!(%block, %error, "cannot tell whether more of a replica that was being \
                    written is intact than its checksums say");
                valid
            }
            Ok(valid) => valid,
        };
        let reaches = intact_length::reaches_last_chunk(files, &data, &meta, &valid);
        if as_written && !reaches.unwrap_or(false) {
            as_written = false;
            // Where this fails the cut does too, and the next start finds as much.
            let _ = unclean_stop::disown(&meta);
        }
        cut(files, &data, &meta, &valid)?;
        Ok(valid)
    });
    as_written &= valid.is_ok();
    let valid = match valid {
        Err(error) if unclean_stop::is_passing(files, &error) => return Err(error),
        other => other,
    };
    let valid = valid.unwrap_or_else(|error| {
        warn!(%block, %error, "cannot verify a replica that was being written; taking it as empty");
        Valid {
            len: 0,
            checksum: None,
            last_crc: 0,
        }
    });
    if valid.len < block.num_bytes {
        info!(%block, on_disk = block.num_bytes, intact = valid.len, "cut a replica that was \
            being written to what is intact");
    }
    let restarted = after(ReplicaState::Rbw, Move::Restart)
        .expect("any replica being written may be found again");
    let state = if restart_allowed(paths, block.id) {
        ReplicaState::Rbw
    } else {
        restarted
    };
    Ok(FoundRbw {
        block: Block::new(block.id, block.generation_stamp, valid.len),
        state,
        checksum: valid.checksum,
        last_crc: valid.last_crc,
        as_written,
    })
}

/// Whether a meta file was last written since the system was booted.
fn was_written_since_boot(meta: &Path) -> bool {
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let up = Duration::from_secs(u64::try_from(up.tv_sec).unwrap_or(0));
    let written = fs::metadata(meta).and_then(|meta| meta.modified());
    // Clocks of files are coarse, but behind: what counts is written long after the boot.
    written.is_ok_and(|written| {
        let age = SystemTime::now().duration_since(written);
        // A time in the future says nothing.
        age.is_ok_and(|age| age < up)
    })
}

/// Whether an upgrade restart left a marker whose time has not come; the marker is used up.
fn restart_allowed(paths: &PoolPaths, id: i64) -> bool {
    let marker = paths.restart_marker(id);
    let text = match read_small(&marker, MARKER_BYTES_MAX) {
        Ok(None) => return false,
        other => other.ok().flatten().unwrap_or_default(),
    };
    if let Err(error) = fs::remove_file(&marker) {
        warn!(path = %marker.display(), %error, "cannot remove the marker of an upgrade restart");
    }
    let text = String::from_utf8_lossy(&text);
    text.trim()
        .parse::<u64>()
        .is_ok_and(|until_ms| until_ms > crate::layout::dirs::now_ms())
}
