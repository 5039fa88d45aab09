//! Start-up: what lies in the directories of a pool becomes replicas in memory.
//!
//! One call of [`load`] per volume, all at the same time; inside, several threads walk. Everything
//! here blocks and runs on the disk's threads.

mod find_files;
mod intact_length;
mod unclean_stop;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use hayloft_io::{DataFiles, Means, patiently};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::{Block, ReplicaState};
use tracing::{info, warn};

use crate::layout::dirs::{DELETING, make_dir, read_small};
use crate::layout::names::{self, PoolPaths};
use crate::layout::replica_cache::{self, REPLICAS_BYTES_MAX};
use crate::layout::used_cache::{DFS_USED_BYTES_MAX, UsedCache};
use crate::replica::file_pair::{self, Pair};
use crate::replica::state::{Move, after};

pub use find_files::{Found, Orphans, walk};
#[cfg(test)]
pub use intact_length::CANNOT_BE_CUT;
pub use intact_length::{Cut, Valid, cut, validate};
pub use unclean_stop::is_whole;

/// Bytes of the marker of an upgrade restart, at most: a number of milliseconds.
const MARKER_BYTES_MAX: usize = 64;

/// How far loading has come, for the log.
#[derive(Debug, Default)]
pub struct Progress {
    /// Directories read.
    pub directories: AtomicU64,
    /// Replicas found.
    pub replicas: AtomicU64,
}

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

/// What one volume holds of a pool.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Finalized replicas, in their right places.
    pub finalized: Vec<Found>,
    /// Replicas that were being written.
    pub rbw: Vec<FoundRbw>,
    /// Left-overs of deletes, to be removed in the background.
    pub leftovers: Vec<PathBuf>,
    /// The replica cache was used.
    #[cfg(test)]
    pub from_cache: bool,
    /// Finalized replicas that are to be verified in the background, the newest first.
    pub recent: Vec<Block>,
    /// Bytes used, when a clean stop a short while ago saved them.
    pub used: Option<u64>,
}

/// How to load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// What opens the volume's data files.
    pub data_files: DataFiles,
    /// How long the replica cache is trusted.
    pub cache_expiry: Duration,
    /// How long the `dfsUsed` cache is trusted.
    pub used_expiry: Duration,
    /// Replicas that changed since then, in milliseconds since 1970, may be damaged: the last stop
    /// was not clean.
    pub unclean_since: Option<u64>,
    /// Threads that walk.
    pub threads: usize,
}

/// Makes the directories of the pool if they are missing, clears `tmp`, and finds the replicas.
pub fn load(paths: &PoolPaths, options: &LoadOptions, progress: &Progress) -> io::Result<Loaded> {
    let data_files = &options.data_files;
    for dir in [paths.finalized(), paths.rbw(), paths.lazy_persist()] {
        make_dir(&dir)?;
    }
    let leftovers = clear_tmp(data_files, &paths.tmp())?;
    let used = take_used(paths, options.used_expiry);
    let cached = take_cache(paths, options.cache_expiry);
    let cached = cached.filter(|_| options.unclean_since.is_none());
    #[cfg(test)]
    let from_cache = cached.is_some();
    let (mut finalized, mut orphans) = match cached {
        Some(found) => (found, Orphans::default()),
        None => walk(&paths.finalized(), options.threads, progress)?,
    };
    let (lazy, _) = walk(&paths.lazy_persist(), 1, progress)?;
    finalized.extend(lazy);
    put_in_place(paths, &mut finalized, &mut orphans)?;
    let recent = match options.unclean_since {
        Some(since_ms) => unclean_stop::look_at(data_files, paths, &mut finalized, since_ms)?,
        None => Vec::new(),
    };
    let rbw = load_rbw(options, paths, &mut orphans)?;
    reunite(paths, &mut finalized, &orphans)?;
    progress
        .replicas
        .fetch_add(u64::try_from(rbw.len()).unwrap_or(0), Ordering::Relaxed);
    Ok(Loaded {
        finalized,
        rbw,
        leftovers,
        #[cfg(test)]
        from_cache,
        recent,
        used,
    })
}

/// The first file of a replica in a directory or below, in any state, trash and backups included.
pub fn first_replica(dir: &Path) -> io::Result<Option<PathBuf>> {
    let entries = match patiently(|| fs::read_dir(dir)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if let Some(found) = first_replica(&path)? {
                return Ok(Some(found));
            }
        } else if entry.file_name().as_encoded_bytes().starts_with(b"blk_") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Removes the copies that were being received; puts aside what was being deleted, which may be a
/// lot, and gives back where.
fn clear_tmp(data_files: &DataFiles, tmp: &Path) -> io::Result<Vec<PathBuf>> {
    make_dir(tmp)?;
    let mut leftovers = Vec::new();
    let stamp = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    for entry in patiently(|| fs::read_dir(tmp))? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            data_files.remove(&entry.path())?;
        } else if entry.file_name() == DELETING {
            let aside = tmp.join(format!("{DELETING}-{stamp}"));
            fs::rename(entry.path(), &aside)?;
            leftovers.push(aside);
        } else {
            leftovers.push(entry.path());
        }
    }
    make_dir(&tmp.join(DELETING))?;
    Ok(leftovers)
}

/// The finalized replicas in the replica cache, if it is ours and young enough. The file is removed
/// in any case: from now on it is out of date.
fn take_cache(paths: &PoolPaths, expiry: Duration) -> Option<Vec<Found>> {
    let path = paths.current().join(names::REPLICAS);
    let meta = fs::metadata(&path).ok()?;
    let young = meta
        .modified()
        .ok()
        .and_then(|m| SystemTime::now().duration_since(m).ok())
        .is_some_and(|age| age <= expiry);
    let fits = usize::try_from(meta.len()).is_ok_and(|len| len <= REPLICAS_BYTES_MAX);
    let cached = if young && fits {
        fs::read(&path).ok()
    } else {
        None
    };
    if let Err(error) = fs::remove_file(&path) {
        // A cache that stays would be believed by the next process although it is out of date.
        warn!(path = %path.display(), %error, "cannot remove the replica cache; walking the \
            directories");
        return None;
    }
    // Nor may power loss bring it back.
    if let Err(error) = files::sync_dir(&paths.current()) {
        warn!(path = %path.display(), %error, "cannot make the removal of the replica cache \
            durable; walking the directories");
        return None;
    }
    let replicas = replica_cache::parse(&cached?)?;
    info!(path = %path.display(), replicas = replicas.len(), "using the replica cache of the last \
        clean stop");
    let found = replicas
        .into_iter()
        .filter(|r| r.state == ReplicaState::Finalized);
    Some(
        found
            .map(|r| Found {
                block: r.block,
                pinned: r.pinned,
                dir: None,
                changed_ms: 0,
            })
            .collect(),
    )
}

/// The space used that a clean stop saved, if it is young enough. The file is removed: from now on
/// it is out of date.
fn take_used(paths: &PoolPaths, expiry: Duration) -> Option<u64> {
    let path = paths.current().join(names::DFS_USED);
    let saved = read_small(&path, DFS_USED_BYTES_MAX);
    fs::remove_file(&path).ok()?;
    let saved = UsedCache::parse(&saved.ok()??)?;
    let age_ms = crate::layout::dirs::now_ms().checked_sub(saved.at_ms)?;
    (u128::from(age_ms) <= expiry.as_millis()).then_some(saved.used)
}

/// Moves finalized replicas that lie in another directory than their id says to where they belong.
/// What the process lacks is an error; else one that stays is not served.
fn put_in_place(
    paths: &PoolPaths,
    finalized: &mut Vec<Found>,
    orphans: &mut Orphans,
) -> io::Result<()> {
    let mut lacking = None;
    finalized.retain_mut(|found| {
        let right = paths.finalized_dir(found.block.id);
        let Some(dir) = found.dir.take() else {
            return true;
        };
        if dir == right {
            return true;
        }
        let moved = move_to(&dir, &right, found.block);
        // A move that was stopped had left its meta file there.
        let (id, stamp) = (found.block.id, found.block.generation_stamp);
        let ours = |block: &Block| (block.id, block.generation_stamp) == (id, stamp);
        orphans
            .meta
            .retain(|(block, dir)| !ours(block) || *dir != right);
        match moved {
            Ok(()) => return true,
            Err(error) if Means::lacking(&error).is_some() => lacking = Some(error),
            Err(error) => {
                warn!(block = %found.block, dir = %dir.display(), %error, "block lies in the \
                    wrong directory and cannot be moved; it is not served");
            }
        }
        false
    });
    lacking.map_or(Ok(()), Err)
}

/// Moves both files; refuses to replace others. Goes on with a move that was stopped.
fn move_to(from: &Path, to: &Path, block: Block) -> io::Result<()> {
    let from = Pair {
        dir: from.to_owned(),
        id: block.id,
        generation_stamp: block.generation_stamp,
    };
    files::move_pair(&from, &from.at(to.to_owned()), false)
}

/// The replicas in `rbw`, cut to what is intact. Parts without their counterpart go to `orphans`.
fn load_rbw(
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
        let unclean_since = options.unclean_since;
        unclean_since.is_some_and(|since_ms| unclean_stop::is_recent(found.changed_ms, since_ms))
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
            let _ = disown(&meta);
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

/// Has this start and later ones take a replica for one that may have lost acknowledged bytes, as
/// after power loss.
fn disown(meta: &Path) -> io::Result<()> {
    patiently(|| fs::OpenOptions::new().write(true).open(meta))?
        .set_modified(SystemTime::UNIX_EPOCH)
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

/// Gives finalized data whose meta file stayed in `rbw` its meta file back, and removes meta files
/// that belong to nothing. One that cannot be given back stays where it is.
fn reunite(paths: &PoolPaths, finalized: &mut Vec<Found>, orphans: &Orphans) -> io::Result<()> {
    let mut used = std::collections::HashSet::new();
    for (id, dir, len) in &orphans.data {
        // Of several the newest: an append or a recovery left the others behind.
        let of_it = orphans.meta.iter().filter(|(block, _)| block.id == *id);
        let newest = of_it.max_by_key(|(block, _)| block.generation_stamp);
        let Some((block, from)) = newest else {
            warn!(block = id, dir = %dir.display(), "data file without meta file: not served");
            continue;
        };
        let name = names::meta_name(*id, block.generation_stamp);
        let right = paths.finalized_dir(*id);
        if *dir == right {
            used.insert(*id);
            match fs::rename(from.join(&name), right.join(&name)) {
                Ok(()) => {}
                Err(error) if Means::lacking(&error).is_some() => return Err(error),
                Err(error) => {
                    warn!(block = id, dir = %from.display(), %error, "a meta file cannot be moved \
                        to its data: not served");
                    continue;
                }
            }
            finalized.push(Found {
                block: Block::new(*id, block.generation_stamp, *len),
                pinned: false,
                dir: None,
                changed_ms: u64::MAX,
            });
        }
    }
    for (block, dir) in orphans
        .meta
        .iter()
        .filter(|(block, _)| !used.contains(&block.id))
    {
        let path = dir.join(names::meta_name(block.id, block.generation_stamp));
        info!(path = %path.display(), "removing a meta file without data file");
        if let Err(error) = fs::remove_file(&path) {
            warn!(path = %path.display(), %error, "cannot remove a meta file without data file");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
