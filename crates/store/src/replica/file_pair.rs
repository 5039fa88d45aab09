//! Moving the two files of a replica between directories. A stop at any point leaves a whole pair
//! in one directory, and at most a lone meta file in the other, which start-up removes.
//!
//! First the meta file gets a hard link in the new directory, then the data file is renamed, then
//! the meta file's old name goes. Everything here blocks.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use hayloft_io::{DataFiles, IoClass, IoError, IoOp, OpenMode, patiently};

use crate::layout::dirs::make_dir;
use crate::layout::names::{PoolPaths, data_name, meta_name};
use crate::volume::BlockPoolSlice;

/// A replica's files in one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Directory.
    pub dir: PathBuf,
    /// Block id.
    pub id: i64,
    /// Generation stamp in the name of the meta file.
    pub generation_stamp: u64,
}

impl Pair {
    /// The files of a finalized replica.
    #[must_use]
    pub fn finalized(paths: &PoolPaths, id: i64, generation_stamp: u64) -> Self {
        Self {
            dir: paths.finalized_dir(id),
            id,
            generation_stamp,
        }
    }

    /// The data file.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.join(data_name(self.id))
    }

    /// The meta file.
    #[must_use]
    pub fn meta(&self) -> PathBuf {
        self.dir.join(meta_name(self.id, self.generation_stamp))
    }

    /// The same block in another directory.
    #[must_use]
    pub fn at(&self, dir: PathBuf) -> Self {
        Self {
            dir,
            ..self.clone()
        }
    }

    /// With another generation stamp.
    #[must_use]
    pub fn with_gs(&self, generation_stamp: u64) -> Self {
        Self {
            generation_stamp,
            ..self.clone()
        }
    }
}

/// Moves a pair; with `durable`, the new names outlive power loss when it returns. Never replaces
/// a data file. A move that failed after it had renamed the data is gone on with.
pub fn move_pair(from: &Pair, to: &Pair, durable: bool) -> io::Result<()> {
    make_dir(&to.dir)?;
    if to.data().try_exists()? {
        if !is_moved(from, to)? {
            return Err(at(&to.data(), io::ErrorKind::AlreadyExists.into()));
        }
    } else {
        link_meta(&from.meta(), &to.meta())?;
        fs::rename(from.data(), to.data()).map_err(|e| at(&from.data(), e))?;
    }
    match fs::remove_file(from.meta()) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(&from.meta(), e)),
        _ => {}
    }
    if durable {
        sync_dir(&to.dir)?;
        sync_dir(&from.dir)?;
    }
    Ok(())
}

/// Whether the data file and this generation's meta file are in their new directory, and the data
/// file nowhere else.
pub fn is_moved(from: &Pair, to: &Pair) -> io::Result<bool> {
    Ok(!from.data().try_exists()? && to.data().try_exists()? && to.meta().try_exists()?)
}

/// Gives the meta file a second name. A file in the way has no data file beside it (the caller
/// looked), so it is a left-over.
pub fn link_meta(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(to).map_err(|e| at(to, e))?;
            fs::hard_link(from, to).map_err(|e| at(from, e))
        }
        other => other.map_err(|e| at(from, e)),
    }
}

/// Moves a finalized pair to where it can be written, under a new generation stamp. Files that an
/// upgrade's snapshot shares (hard links) are copied instead, through `scratch`.
pub fn reopen(files: &DataFiles, from: &Pair, to: &Pair, scratch: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let shared = |path: &Path| {
        fs::metadata(path)
            .map(|m| m.nlink() > 1)
            .map_err(|e| at(path, e))
    };
    if !shared(&from.data())? && !shared(&from.meta())? {
        return move_pair(from, to, false);
    }
    if to.data().try_exists()? {
        return Err(at(&to.data(), io::ErrorKind::AlreadyExists.into()));
    }
    // The copy becomes a pair at the rename of its data. Until the old pair is gone there are two;
    // the one with the higher generation stamp counts.
    let copy = scratch.join(format!("{}.unshared", data_name(from.id)));
    files.copy(&from.data(), &copy).map_err(|e| at(&copy, e))?;
    patiently(|| fs::copy(from.meta(), to.meta())).map_err(|e| at(&to.meta(), e))?;
    // The originals were on the device for long: the copies are before those go.
    sync_data(files, &copy)?;
    sync_file(&to.meta())?;
    fs::rename(&copy, to.data()).map_err(|e| at(&copy, e))?;
    sync_dir(&to.dir)?;
    files
        .remove(&from.data())
        .map_err(|e| at(&from.data(), e))?;
    fs::remove_file(from.meta()).map_err(|e| at(&from.meta(), e))
}

/// Gives a pair another generation stamp where it is: one rename, which with `durable` outlives
/// power loss when it returns. One that failed after it had renamed is gone on with.
pub fn bump(pair: &Pair, generation_stamp: u64, durable: bool) -> io::Result<()> {
    if pair.generation_stamp == generation_stamp {
        return Ok(());
    }
    let to = pair.with_gs(generation_stamp).meta();
    match fs::rename(pair.meta(), &to) {
        // An earlier attempt came further.
        Err(e) if e.kind() == io::ErrorKind::NotFound && to.try_exists()? => {}
        other => other.map_err(|e| at(&pair.meta(), e))?,
    }
    if durable {
        sync_dir(&pair.dir)?;
    }
    Ok(())
}

/// Files that were synced by name.
#[cfg(test)]
pub static SYNCED: std::sync::Mutex<Vec<PathBuf>> = std::sync::Mutex::new(Vec::new());

/// Makes a file durable, also what other descriptors wrote.
pub fn sync_file(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    hayloft_io::locks::lock(&SYNCED).push(path.to_owned());
    patiently(|| File::open(path))
        .and_then(|f| f.sync_all())
        .map_err(|e| at(path, e))
}

/// Makes the bytes of a data file durable.
pub fn sync_data(files: &DataFiles, path: &Path) -> io::Result<()> {
    #[cfg(test)]
    hayloft_io::locks::lock(&SYNCED).push(path.to_owned());
    files
        .open(path, OpenMode::ReadOnly)
        .and_then(|f| f.sync())
        .map_err(|e| at(path, e))
}

/// Makes the names in a directory durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    patiently(|| File::open(dir))
        .and_then(|d| d.sync_all())
        .map_err(|e| at(dir, e))
}

/// Gives back the blocks that were reserved behind the end of a data file, which is `len` bytes
/// long. What is dirty of it is written to the device before. ext4 takes the length for final then,
/// and after power loss would read allocated blocks that were never written as zeros.
pub fn trim(files: &DataFiles, data: &Path, len: u64) -> io::Result<()> {
    let file = files.open(data, OpenMode::ReadWrite);
    let file = file.map_err(|e| at(data, e))?;
    // To the length that it has: what is behind goes, nothing else.
    if file.length()? == len {
        file.write_back().map_err(|e| at(data, e))?;
        file.set_len(len).map_err(|e| at(data, e))?;
    }
    Ok(())
}

/// Makes a data file ready to be finalized: gives back the room behind `len`, if that is given, and
/// pins it if wanted.
pub fn trim_and_pin(
    files: &DataFiles,
    data: &Path,
    len: Option<u64>,
    pinned: bool,
) -> io::Result<()> {
    if let Some(len) = len {
        trim(files, data, len)?;
    }
    if pinned {
        pin(data)?;
    }
    Ok(())
}

/// Sets the sticky bit of a data file, which says that the replica is pinned.
pub fn pin(data: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(data)?.permissions().mode();
    fs::set_permissions(data, fs::Permissions::from_mode(mode | 0o1000))
}

/// Names the file in the error. The kind stays, and so does the errno, which says whether the
/// volume is to be suspected.
fn at(path: &Path, error: io::Error) -> io::Error {
    tracing::debug!(path = %path.display(), %error, "file operation failed");
    error
}

/// Runs file operations on the disk's threads, as part of `slice`.
///
/// # Errors
/// What `work` returns, with `path`.
pub async fn on_disk<T, F>(
    slice: &BlockPoolSlice,
    class: IoClass,
    op: IoOp,
    path: &Path,
    work: F,
) -> Result<T, IoError>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    on_disk_with_sync(slice, class, op, path, false, work).await
}

/// As [`on_disk`]; where `work` waits for the device on its way (`syncs`), new replicas and other
/// names do not wait behind it.
///
/// # Errors
/// What `work` returns, with `path`.
pub async fn on_disk_with_sync<T, F>(
    slice: &BlockPoolSlice,
    class: IoClass,
    op: IoOp,
    path: &Path,
    syncs: bool,
    work: F,
) -> Result<T, IoError>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    let meta = slice.volume.meta(class).that_syncs(syncs);
    meta.run(op, path, move |path| {
        work().map_err(|e| IoError::from_std(op, path, &e))
    })
    .await
}

/// Moves a copy to its `target`, if it is given one, and removes its directory.
pub async fn settle_copy(
    slice: &BlockPoolSlice,
    copy: Pair,
    target: Option<Pair>,
    pinned: bool,
) -> Result<(), IoError> {
    let path = copy.data();
    let data_files = slice.volume.data_files();
    let work = move || {
        if let Some(target) = target {
            if pinned {
                pin(&copy.data())?;
            }
            // The source goes next: from here on the copy must outlive power loss.
            move_pair(&copy, &target, true)?;
        }
        data_files.remove_tree(&copy.dir)
    };
    on_disk_with_sync(slice, IoClass::Balancer, IoOp::Rename, &path, true, work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pair in `rbw` of a new directory, and where it is to go.
    fn pairs() -> (tempfile::TempDir, Pair, Pair) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let from = Pair {
            dir: dir.path().join("rbw"),
            id: 7,
            generation_stamp: 1001,
        };
        let to = from.at(dir.path().join("finalized"));
        make_dir(&from.dir).expect("creates");
        fs::write(from.data(), "data").expect("writes");
        fs::write(from.meta(), "meta").expect("writes");
        (dir, from, to)
    }

    fn is_whole(pair: &Pair) -> bool {
        let is = |path: &Path, text: &str| fs::read_to_string(path).is_ok_and(|t| t == text);
        is(&pair.data(), "data") && is(&pair.meta(), "meta")
    }

    /// After each of its steps a move may fail, and is tried again.
    #[test]
    fn a_move_that_failed_half_way_is_gone_on_with() {
        for steps in 0..=4 {
            let (_dir, from, to) = pairs();
            if steps > 0 {
                make_dir(&to.dir).expect("creates");
            }
            if steps > 1 {
                link_meta(&from.meta(), &to.meta()).expect("links");
            }
            if steps > 2 {
                fs::rename(from.data(), to.data()).expect("renames");
            }
            if steps > 3 {
                fs::remove_file(from.meta()).expect("removes");
            }
            assert_eq!(is_moved(&from, &to).expect("looks"), steps > 2);
            move_pair(&from, &to, true).expect("moves");
            assert!(is_whole(&to), "after {steps} steps");
            assert_eq!(fs::read_dir(&from.dir).expect("there").count(), 0);
        }
    }

    #[test]
    fn a_move_replaces_no_data() {
        let (_dir, from, to) = pairs();
        make_dir(&to.dir).expect("creates");
        fs::write(to.data(), "other").expect("writes");
        let refused = move_pair(&from, &to, false).expect_err("is in the way");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert!(is_whole(&from));
        // Nor what is there when there is nothing to move, but another generation.
        fs::remove_file(from.data()).expect("removes");
        fs::write(to.with_gs(1000).meta(), "older").expect("writes");
        let refused = move_pair(&from, &to, false).expect_err("is in the way");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
    }
}
