//! Start-up: what lies in the directories of a pool becomes replicas in memory.
//!
//! - `find_files`: finding replica files in a tree of directories
//! - `intact_length`: how much of a replica that was being written is intact
//! - `lazy_persist`: what is left of replicas that are in memory first
//! - `rbw_to_rwr`: replicas that were being written when the last process ended
//! - `unclean_stop`: replicas that may have been damaged by a stop that was not clean
//!
//! One call of [`load`] per volume, all at the same time; inside, several threads walk. Everything
//! here blocks and runs on the disk's threads.

mod find_files;
mod intact_length;
mod lazy_persist;
mod rbw_to_rwr;
mod unclean_stop;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use hayloft_io::{DataFiles, Means, patiently};
use hayloft_wire::ids::{Block, ReplicaState};
use tracing::{info, warn};

use crate::layout::dirs::{DELETING, make_dir, now_ms, read_small};
use crate::layout::names::{self, PoolPaths};
use crate::layout::replica_cache::{self, REPLICAS_BYTES_MAX};
use crate::layout::used_cache::{DFS_USED_BYTES_MAX, UsedCache};
use crate::replica::file_pair::{self, Pair};
use crate::volume::stop_mark::{Doubt, Mark};

pub use find_files::{Found, Orphans, walk};
#[cfg(test)]
pub use intact_length::CANNOT_BE_CUT;
pub use intact_length::{Cut, Valid, validate};
pub use rbw_to_rwr::FoundRbw;
pub use unclean_stop::is_whole;

/// How far loading has come, for the log.
#[derive(Debug, Default)]
pub struct Progress {
    /// Directories read.
    pub directories: AtomicU64,
    /// Replicas found.
    pub replicas: AtomicU64,
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
    /// The pool has a mark of its own, which goes when they were verified.
    pub has_mark: bool,
    /// What another node wrote before is durable; since 1970, in milliseconds.
    pub of_other_node_since_ms: Option<u64>,
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
    /// Which replicas of the volume may be damaged, when the last stop was not clean.
    pub doubt: Option<Doubt>,
    /// The volume is a `RAM_DISK`.
    pub in_memory: bool,
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
    let of_pool = Mark::doubt(&paths.root);
    let doubt = Doubt::of_both(options.doubt, of_pool);
    let options = &LoadOptions {
        doubt,
        ..options.clone()
    };
    let used = take_used(paths, options.used_expiry);
    let cached = take_cache(paths, options.cache_expiry);
    let cached = cached.filter(|_| options.doubt.is_none());
    #[cfg(test)]
    let from_cache = cached.is_some();
    let (mut finalized, mut orphans) = match cached {
        Some(found) => (found, Orphans::default()),
        None => walk(&paths.finalized(), options.threads, progress)?,
    };
    lazy_persist::add_copies(data_files, paths, &mut finalized, &mut orphans, progress)?;
    put_in_place(paths, &mut finalized, &mut orphans)?;
    if options.in_memory {
        lazy_persist::complete_sums(data_files, paths, &finalized);
    }
    let since = options.doubt.map(|doubt| {
        let since_ms = doubt.starts_at(finalized.iter().map(|found| found.changed_ms));
        (since_ms, doubt.of_other_node)
    });
    let recent = match since {
        Some((since_ms, _)) => unclean_stop::look_at(data_files, paths, &mut finalized, since_ms)?,
        None => Vec::new(),
    };
    let of_other_node = since.filter(|&(_, of_other_node)| of_other_node);
    let rbw = rbw_to_rwr::load_rbw(options, paths, &mut orphans)?;
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
        has_mark: of_pool.is_some(),
        of_other_node_since_ms: of_other_node.map(|(since_ms, _)| since_ms),
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
    if let Err(error) = file_pair::sync_dir(&paths.current()) {
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
    let age_ms = now_ms().checked_sub(saved.at_ms)?;
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
    file_pair::move_pair(&from, &from.at(to.to_owned()), false)
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
