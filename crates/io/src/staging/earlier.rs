//! Areas as files: made, trusted, locked, and finished after a kill. Blocking.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use tracing::{info, warn};

use super::StagingConfig;
use super::layout::{self, Header, PAGE};
use super::replay::{self, Replayed};
use crate::error::{IoError, IoErrorKind, IoOp};

/// Areas with bytes that could not be written yet, at most; of more the oldest is given up.
const KEPT_MAX: usize = 4;

/// How long another process may keep its area after it gave up its directories.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 10_000 });

/// Replays the area under `path`, if there is one, and those kept by earlier starts.
pub(super) fn finish(config: &StagingConfig, path: &Path) -> Result<Replayed, IoError> {
    let mut all = replay_kept(config, path)?;
    let now = std::time::SystemTime::now();
    let stamp = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".kept-{stamp:032}"));
    all = all.and(finish_one(config, path, Some(Path::new(&aside)))?);
    tell(path, &all);
    Ok(all)
}

/// Replays those that earlier starts kept of the area under `path`.
pub(super) fn finish_kept(config: &StagingConfig, path: &Path) -> Result<Replayed, IoError> {
    let all = replay_kept(config, path)?;
    tell(path, &all);
    Ok(all)
}

fn tell(path: &Path, all: &Replayed) {
    if *all != Replayed::default() {
        info!(area = %path.display(), files = all.files, segments = all.segments, bytes = all.bytes, gone = all.gone,
            damaged = all.damaged, kept = all.kept, "finished the writes of an earlier process");
    }
}

fn replay_kept(config: &StagingConfig, path: &Path) -> Result<Replayed, IoError> {
    let mut all = Replayed::default();
    for kept in kept_areas(&config.dir, path)? {
        all = all.and(finish_one(config, &kept, None)?);
    }
    Ok(all)
}

/// Areas that earlier starts could not finish, oldest first.
fn kept_areas(dir: &Path, path: &Path) -> Result<Vec<PathBuf>, IoError> {
    let failed = |e: io::Error| IoError::from_std(IoOp::List, dir, &e);
    let Some(prefix) = path
        .file_name()
        .and_then(|n| n.to_str())
        .map(|n| format!("{n}.kept-"))
    else {
        return Ok(Vec::new());
    };
    let mut kept = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry
            .file_name()
            .to_str()
            .is_some_and(|n| n.starts_with(&prefix))
        {
            kept.push(entry.path());
        }
    }
    kept.sort();
    while kept.len() > KEPT_MAX {
        let oldest = kept.remove(0);
        warn!(area = %oldest.display(), "too many staging areas of earlier starts could not be finished: the oldest is given up");
        std::fs::remove_file(&oldest).map_err(|e| IoError::from_std(IoOp::Unlink, &oldest, &e))?;
    }
    Ok(kept)
}

/// Replays one area and removes it; what could not be written stays, in `aside` if given.
fn finish_one(
    config: &StagingConfig,
    path: &Path,
    aside: Option<&Path>,
) -> Result<Replayed, IoError> {
    let failed = |op, e: io::Error| IoError::from_std(op, path, &e);
    let file = match OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
    {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Replayed::default()),
        Err(e) => return Err(failed(IoOp::Open, e)),
    };
    check_ours(&file, path)?;
    lock_patiently(config, &file, path)?;
    let mut page = vec![0; PAGE];
    let n = file
        .read_at(&mut page, 0)
        .map_err(|e| failed(IoOp::Read, e))?;
    let replayed = match layout::examine_header(&page[..n], layout::boot_id()) {
        Header::Unfinished => Replayed::default(),
        Header::Ours => replay::replay(&file, path, &config.roots)?,
        Header::OtherBoot => {
            warn!(area = %path.display(), "the staging area of an earlier process is of another boot of this machine: which of \
                its bytes outlived that is not known, and none are written. hayloft.staging.dir should be in memory (tmpfs)");
            Replayed::default()
        }
        Header::Other(version) => {
            let text = format!(
                "the staging area has layout version {version}, this program writes {}: it may hold acknowledged data. Start \
                 and cleanly stop the program that wrote it, or remove the file to give its data up",
                layout::VERSION
            );
            return Err(IoError::new(IoErrorKind::Invalid, IoOp::Read, path, text));
        }
        Header::Foreign => {
            let text = "not a staging area: remove the file, or choose another hayloft.staging.dir";
            return Err(IoError::new(IoErrorKind::Invalid, IoOp::Read, path, text));
        }
    };
    match aside {
        Some(aside) if replayed.kept > 0 => {
            std::fs::rename(path, aside).map_err(|e| failed(IoOp::Rename, e))?;
        }
        None if replayed.kept > 0 => {}
        _ => std::fs::remove_file(path).map_err(|e| failed(IoOp::Unlink, e))?,
    }
    Ok(replayed)
}

/// Shared memory is a place where anybody can put a file of any name.
fn check_ours(file: &File, path: &Path) -> Result<(), IoError> {
    let meta = file
        .metadata()
        .map_err(|e| IoError::from_std(IoOp::Stat, path, &e))?;
    let me = rustix::process::geteuid().as_raw();
    if meta.is_file() && meta.uid() == me && meta.nlink() == 1 {
        return Ok(());
    }
    let text = format!(
        "not a file of this user (uid {me}) alone: it is not trusted. Remove it, or choose another hayloft.staging.dir"
    );
    Err(IoError::new(IoErrorKind::Denied, IoOp::Open, path, text))
}

/// Waits for a process that is ending: it gives up the locks on its directories before the one on its area.
fn lock_patiently(config: &StagingConfig, file: &File, path: &Path) -> Result<(), IoError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match lock(file, path) {
            Err(e) if e.kind() == IoErrorKind::Locked && Instant::now() < until => {
                std::thread::sleep(PATIENCE / 100);
            }
            Err(e) if e.kind() == IoErrorKind::Locked => {
                let failed = |e| IoError::from_std(IoOp::Read, path, &e);
                let Some(ours) = replay::wanted_by(file, &config.roots).map_err(failed)? else {
                    return Err(e);
                };
                let text = format!(
                    "another process has acknowledged data for {} in this staging area and has not ended: end it (its directories \
                     are not locked any more), and start again",
                    ours.display()
                );
                return Err(IoError::new(IoErrorKind::Invalid, IoOp::Lock, path, text));
            }
            other => return other,
        }
    }
}

fn lock(file: &File, path: &Path) -> Result<(), IoError> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| {
        if errno == rustix::io::Errno::WOULDBLOCK {
            let text = "another process uses this staging area";
            return IoError::new(IoErrorKind::Locked, IoOp::Lock, path, text);
        }
        IoError::from_errno(IoOp::Lock, path, errno)
    })
}

/// A new, empty area with its header.
pub(super) fn create(path: &Path) -> Result<File, IoError> {
    let failed = |op, e: io::Error| IoError::from_std(op, path, &e);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| failed(IoOp::Open, e))?;
    lock(&file, path)?;
    if let Err(e) = file.write_all_at(&layout::header(layout::boot_id()), 0) {
        // It would be in the way of the next attempt.
        let _ = std::fs::remove_file(path);
        return Err(failed(IoOp::Write, e));
    }
    Ok(file)
}
