//! Finding replica files in a tree of directories.

use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use hayloft_io::{IoError, IoOp, Means, patiently};
use hayloft_wire::ids::Block;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, StatxFlags, openat, statx};

use super::Progress;
use crate::layout::names::{self, ReplicaFile};

/// Directories below the one given that are looked into.
const DEPTH_MAX: usize = 4;
/// The sticky bit of a data file says that the replica is pinned.
const STICKY: u16 = 0o1000;

/// A data file with its meta file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Id, generation stamp of the meta file, length of the data file.
    pub block: Block,
    /// The data file has the sticky bit.
    pub pinned: bool,
    /// Where it lies; `None` when that is known to be right.
    pub dir: Option<PathBuf>,
    /// When its data file was last changed, or given its name, in milliseconds since 1970.
    pub changed_ms: u64,
}

/// Files without their counterpart.
#[derive(Clone, Debug, Default)]
pub struct Orphans {
    /// Data files: id, directory, length.
    pub data: Vec<(i64, PathBuf, u64)>,
    /// Meta files, with directory; the length is 0.
    pub meta: Vec<(Block, PathBuf)>,
}

#[derive(Default)]
struct Finds {
    found: Vec<Found>,
    orphans: Orphans,
}

/// Finds the replicas in `root` and below, with up to `threads` threads. Names that are no
/// replica's are passed over.
pub fn walk(root: &Path, threads: usize, progress: &Progress) -> io::Result<(Vec<Found>, Orphans)> {
    let mut all = Finds::default();
    let children = read_dir(root, &mut all, progress)?;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut finds = Finds::default();
        while let Some(child) = children.get(next.fetch_add(1, Ordering::Relaxed)) {
            walk_below(child, 1, &mut finds, progress)?;
        }
        Ok::<_, io::Error>(finds)
    };
    let helpers = threads.min(children.len()).saturating_sub(1);
    let parts: Vec<io::Result<Finds>> = std::thread::scope(|scope| {
        let help = |_| match std::thread::Builder::new().spawn_scoped(scope, work) {
            Ok(helper) => Some(helper),
            Err(_) => {
                // There are as many as the system lets there be; one is here.
                Means::Threads.note();
                None
            }
        };
        let handles: Vec<_> = (0..helpers).map_while(help).collect();
        let mut parts = vec![work()];
        parts.extend(handles.into_iter().map(|h| {
            h.join()
                .unwrap_or_else(|_| Err(io::Error::other("a walking thread panicked")))
        }));
        parts
    });
    for part in parts {
        let part = part?;
        all.found.extend(part.found);
        all.orphans.data.extend(part.orphans.data);
        all.orphans.meta.extend(part.orphans.meta);
    }
    Ok((all.found, all.orphans))
}

fn walk_below(dir: &Path, depth: usize, finds: &mut Finds, progress: &Progress) -> io::Result<()> {
    for child in read_dir(dir, finds, progress)? {
        if depth < DEPTH_MAX {
            walk_below(&child, depth + 1, finds, progress)?;
        }
    }
    Ok(())
}

fn with_path(path: &Path) -> impl Fn(rustix::io::Errno) -> io::Error {
    move |errno| IoError::from_errno(IoOp::List, path, errno).into()
}

/// Reads one directory: pairs its files, gives back the directories in it.
fn read_dir(path: &Path, finds: &mut Finds, progress: &Progress) -> io::Result<Vec<PathBuf>> {
    let failed = with_path(path);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = || openat(rustix::fs::CWD, path, flags, Mode::empty()).map_err(&failed);
    let fd = patiently(open)?;
    let mut dirs = Vec::new();
    let mut data: Vec<Data> = Vec::new();
    let mut metas: Vec<(i64, u64)> = Vec::new();
    for entry in Dir::read_from(&fd).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if matches!(name, "." | "..") {
            continue;
        }
        match names::parse(name) {
            Some(ReplicaFile::Meta(id, gs)) => metas.push((id, gs)),
            Some(ReplicaFile::Data(id)) => {
                data.extend(stat(&fd, id, entry.file_name()).map_err(&failed)?);
            }
            None if entry.file_type() == FileType::Directory => dirs.push(path.join(name)),
            // File systems that do not tell the type in the entry.
            None if entry.file_type() == FileType::Unknown && path.join(name).is_dir() => {
                dirs.push(path.join(name))
            }
            None => {}
        }
    }
    progress.directories.fetch_add(1, Ordering::Relaxed);
    progress
        .replicas
        .fetch_add(u64::try_from(data.len()).unwrap_or(0), Ordering::Relaxed);
    pair(path, data, metas, finds);
    Ok(dirs)
}

/// What a directory walk learns of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Data {
    id: i64,
    len: u64,
    pinned: bool,
    changed_ms: u64,
}

/// A data file, if it is a regular file.
fn stat(
    dir: &impl std::os::fd::AsFd,
    id: i64,
    name: &CStr,
) -> Result<Option<Data>, rustix::io::Errno> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW;
    match statx(
        dir.as_fd(),
        name,
        flags,
        StatxFlags::SIZE
            | StatxFlags::MODE
            | StatxFlags::TYPE
            | StatxFlags::MTIME
            | StatxFlags::CTIME,
    ) {
        Ok(s) if FileType::from_raw_mode(s.stx_mode.into()) == FileType::RegularFile => {
            let ms = |t: rustix::fs::StatxTimestamp| {
                let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
                seconds.saturating_mul(1000) + u64::from(t.tv_nsec) / 1_000_000
            };
            Ok(Some(Data {
                id,
                len: s.stx_size,
                pinned: s.stx_mode & STICKY != 0,
                changed_ms: ms(s.stx_mtime).max(ms(s.stx_ctime)),
            }))
        }
        Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Joins data and meta files of one directory. Of several meta files of a block, the one with the
/// highest generation stamp counts.
fn pair(path: &Path, mut data: Vec<Data>, mut metas: Vec<(i64, u64)>, finds: &mut Finds) {
    data.sort_unstable();
    metas.sort_unstable();
    let mut next = 0;
    for Data {
        id,
        len,
        pinned,
        changed_ms,
    } in data
    {
        let mut newest = None;
        while let Some(&(meta_id, gs)) = metas.get(next) {
            if meta_id > id {
                break;
            }
            next += 1;
            let older = if meta_id == id {
                newest.replace(gs)
            } else {
                Some(gs)
            };
            if let Some(gs) = older {
                finds
                    .orphans
                    .meta
                    .push((Block::new(meta_id, gs, 0), path.to_owned()));
            }
        }
        match newest {
            Some(gs) => {
                let right = is_right_place(path, id);
                let dir = if right { None } else { Some(path.to_owned()) };
                finds.found.push(Found {
                    block: Block::new(id, gs, len),
                    pinned,
                    dir,
                    changed_ms,
                });
            }
            None => finds.orphans.data.push((id, path.to_owned(), len)),
        }
    }
    let rest = metas[next..]
        .iter()
        .map(|(id, gs)| (Block::new(*id, *gs, 0), path.to_owned()));
    finds.orphans.meta.extend(rest);
}

/// Whether the path ends in `finalized/subdirA/subdirB` as the id says.
fn is_right_place(path: &Path, id: i64) -> bool {
    let (a, b) = names::subdir_numbers(id);
    let mut parts = path
        .components()
        .rev()
        .filter_map(|c| c.as_os_str().to_str());
    parts.next().and_then(names::parse_subdir) == Some(b)
        && parts.next().and_then(names::parse_subdir) == Some(a)
        && parts.next() == Some(names::FINALIZED)
}
