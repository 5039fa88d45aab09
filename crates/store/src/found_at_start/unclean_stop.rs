//! Replicas that may have been damaged by a stop that was not clean.
//!
//! What was written before the last commit round is durable. A replica that is newer is looked at
//! before it is reported: its lengths, its last chunk, holes of its data file, and blocks allocated
//! and never written. The whole of it is verified later, in the background.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use hayloft_io::{DataFile, DataFiles, IoError, IoErrorKind, IoOp, OpenMode, patiently};
use hayloft_wire::ids::Block;
use tracing::{error, warn};

use super::find_files::Found;
use super::intact_length::validate;
use super::intact_length::{Valid, whole};
use super::move_to;
use crate::layout::names::PoolPaths;
use crate::replica::file_pair::Pair;

/// Clocks of files are this coarse, in milliseconds, and a stamp may be as much too late.
const SLACK_MS: u64 = 2000;

/// Whether a file that was last changed at `changed_ms` may be newer than what is durable.
pub fn is_recent(changed_ms: u64, since_ms: u64) -> bool {
    changed_ms.saturating_add(SLACK_MS) >= since_ms
}

/// Looks at the recent ones among finalized replicas. One that is damaged goes to `rbw`, where it
/// is cut to what is intact. It is reported as a replica whose end is not known. Gives the others,
/// the newest first.
pub fn look_at(
    files: &DataFiles,
    paths: &PoolPaths,
    finalized: &mut Vec<Found>,
    since_ms: u64,
) -> io::Result<Vec<Block>> {
    let mut recent = Vec::new();
    let mut passing = None;
    finalized.retain(|found| {
        if !is_recent(found.changed_ms, since_ms) {
            return true;
        }
        let damage = match damage_of(files, paths, found.block) {
            Ok(None) => {
                recent.push((found.changed_ms, found.block));
                return true;
            }
            Ok(Some(damage)) => damage.to_owned(),
            Err(error) if is_passing(files, &error) => {
                passing = Some(error);
                return true;
            }
            Err(error) => error.to_string(),
        };
        let block = found.block;
        warn!(%block, damage, "a replica is damaged since the last stop, which was not clean: it \
            is taken as one that was being written");
        let from = paths.finalized_dir(block.id);
        let meta = Pair::finalized(paths, block.id, block.generation_stamp).meta();
        // What is intact of it is not all that was acknowledged. Of one whose meta file cannot be
        // opened nothing is intact.
        let _ = disown(&meta);
        if let Err(error) = move_to(&from, &paths.rbw(), block) {
            error!(%block, %error, "cannot move a damaged replica to rbw: it is not served");
        }
        false
    });
    recent.sort_unstable_by_key(|(changed, _)| std::cmp::Reverse(*changed));
    match passing {
        Some(error) => Err(error),
        None => Ok(recent.into_iter().map(|(_, block)| block).collect()),
    }
}

/// Whether an error says nothing of the replica: the process lacks something, or it is of a device
/// that may be back soon, as one over a network is.
pub fn is_passing(files: &DataFiles, error: &io::Error) -> bool {
    let error = IoError::from_std(IoOp::Read, Path::new(""), error);
    let kind = error.kind();
    let of_device = kind.suspects_volume() || kind == IoErrorKind::Retry;
    error.lacks().is_some() || !files.are_plain() && of_device
}

/// What is wrong with a finalized replica, as far as a quick look tells.
fn damage_of(
    files: &DataFiles,
    paths: &PoolPaths,
    block: Block,
) -> io::Result<Option<&'static str>> {
    let pair = Pair::finalized(paths, block.id, block.generation_stamp);
    let (data, meta) = (pair.data(), pair.meta());
    let valid = validate(files, &data, &meta)?;
    let Some(checksum) = valid.checksum else {
        return Ok(Some("its meta file has no header"));
    };
    if fs::metadata(&meta)?.len() < checksum.meta_len(block.num_bytes) {
        return Ok(Some("checksums are missing"));
    }
    if valid.len != block.num_bytes {
        return Ok(Some("its last chunk does not match its checksum"));
    }
    let data = files.open(&data, OpenMode::ReadOnly)?;
    if has_gaps(&data, block.num_bytes) && !is_whole(files, paths, block)? {
        return Ok(Some("parts of its data file were never written"));
    }
    Ok(None)
}

/// Whether bytes below the length have no blocks on the device, or blocks without contents. Where
/// the file system does not tell, the background finds out. A device does not tell either, and has
/// other bytes there than zeros: what is on one is always taken for doubtful.
fn has_gaps(data: &DataFile, len: u64) -> bool {
    let Some(data) = data.as_plain() else {
        return true;
    };
    let Ok(extents) = hayloft_io::extents(data) else {
        return false;
    };
    let mut covered = 0;
    for extent in extents {
        if extent.logical > covered || extent.unwritten && extent.logical < len {
            return true;
        }
        covered = extent.logical.saturating_add(extent.len);
    }
    covered < len
}

/// Whether all checksums of a finalized replica are right. Reads all of it.
pub fn is_whole(files: &DataFiles, paths: &PoolPaths, block: Block) -> io::Result<bool> {
    let pair = Pair::finalized(paths, block.id, block.generation_stamp);
    let (data, meta) = (pair.data(), pair.meta());
    Ok(whole(files, &data, &meta, block.num_bytes)?.is_some())
}

/// As [`validate()`], but every chunk is compared, not only the last: power loss may leave any of
/// them unwritten.
pub fn validate_all(
    files: &DataFiles,
    data: &std::path::Path,
    meta: &std::path::Path,
) -> io::Result<Valid> {
    let valid = validate(files, data, meta)?;
    let Some(checksum) = valid.checksum else {
        return Ok(valid);
    };
    let data = files.open(data, OpenMode::ReadOnly)?;
    let intact = super::intact_length::intact(&data, &patiently(|| File::open(meta))?, &valid)?;
    if intact == valid.len {
        return Ok(valid);
    }
    let chunk = u64::from(checksum.bytes_per_checksum());
    Ok(Valid {
        len: intact - intact % chunk,
        checksum: Some(checksum),
        last_crc: 0,
    })
}

/// Has this start and later ones take a replica for one that may have lost acknowledged bytes, as
/// after power loss.
pub fn disown(meta: &Path) -> io::Result<()> {
    patiently(|| fs::OpenOptions::new().write(true).open(meta))?
        .set_modified(SystemTime::UNIX_EPOCH)
}
