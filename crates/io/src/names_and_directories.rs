//! Names and directories: everything that touches a volume besides reading and writing open files.
//!
//! All calls run on the disk's threads, so that a slow or hung disk never blocks an async thread.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::class::IoClass;
use crate::data_files::DataFiles;
use crate::directory_lock::RecordLock;
use crate::disk::{Disk, Lane};
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::mount::{self, Mount};
use crate::space::Space;
use crate::types::IoFuture;
use crate::wait_out_shortage::patiently;

/// Watches, delays or refuses operations on names; how decorators take part in [`Meta`].
pub trait MetaHook: Send + Sync + fmt::Debug {
    /// Called on the disk's thread before the operation; may block it, an error is its result.
    ///
    /// # Errors
    /// Whatever the operation shall fail with.
    fn before(&self, class: IoClass, op: IoOp, path: &Path) -> Result<(), IoError>;

    /// Called after it, with how long it took.
    fn after(&self, class: IoClass, op: IoOp, took: Duration, failed: bool);
}

/// Operations on names, on one disk, in one class. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Meta {
    disk: Arc<Disk>,
    class: IoClass,
    hooks: Vec<Arc<dyn MetaHook>>,
    /// What is run waits for the device on its way.
    syncs: bool,
    data_files: DataFiles,
}

/// Distinguishes temporary files of one process.
static TEMPORARY: AtomicU64 = AtomicU64::new(0);

impl Meta {
    /// Plain operations without decorators.
    #[must_use]
    pub fn new(disk: Arc<Disk>, class: IoClass) -> Self {
        Self {
            disk,
            class,
            hooks: Vec::new(),
            syncs: false,
            data_files: DataFiles::plain(),
        }
    }

    /// The same for a volume with these data files.
    #[must_use]
    pub fn on(mut self, data_files: DataFiles) -> Self {
        self.data_files = data_files;
        self
    }

    /// The data files of the volume, for work that is [run](Self::run) here.
    #[must_use]
    pub fn data_files(&self) -> DataFiles {
        self.data_files.clone()
    }

    /// The same for work that waits for the device on its way if `syncs`: it is [run](Self::run)
    /// beside syncs, so that no other name waits for the device too.
    #[must_use]
    pub fn that_syncs(mut self, syncs: bool) -> Self {
        self.syncs = syncs;
        self
    }

    /// The same with one more hook, called outside the earlier ones.
    #[must_use]
    pub fn with_hook(mut self, hook: Arc<dyn MetaHook>) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Runs `work`, which may block, on the disk's threads under the hooks; for sequences that
    /// would be slow as single calls, such as walking a tree.
    ///
    /// # Errors
    /// What `work` or a hook returns; `Closed` when it panicked.
    pub fn run<T, F>(&self, op: IoOp, path: &Path, work: F) -> IoFuture<Result<T, IoError>>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> Result<T, IoError> + Send + 'static,
    {
        let hooks = self.hooks.clone();
        let class = self.class;
        let hooked = move |path: &Path| {
            for hook in hooks.iter().rev() {
                hook.before(class, op, path)?;
            }
            if hooks.is_empty() {
                return work(path);
            }
            let start = Instant::now();
            let result = work(path);
            for hook in &hooks {
                hook.after(class, op, start.elapsed(), result.is_err());
            }
            result
        };
        let lane = if self.syncs { Lane::Sync } else { Lane::of(op) };
        self.disk.run_in(lane, class, op, path, hooked)
    }

    fn simple<T, F>(&self, op: IoOp, path: &Path, work: F) -> IoFuture<Result<T, IoError>>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> io::Result<T> + Send + 'static,
    {
        self.run(op, path, move |path| {
            work(path).map_err(|e| IoError::from_std(op, path, &e))
        })
    }

    /// Creates a directory and those above it that are missing, with `mode` (such as 0o700); an
    /// existing one is left as it is.
    pub fn create_dir_all(&self, path: &Path, mode: u32) -> IoFuture<Result<(), IoError>> {
        self.simple(IoOp::CreateDir, path, move |path| {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(path)
        })
    }

    /// Renames within one file system, replacing `to` when it exists. Durable after `sync_dir` of
    /// both directories.
    pub fn rename(&self, from: &Path, to: &Path) -> IoFuture<Result<(), IoError>> {
        let (files, to) = (self.data_files(), to.to_owned());
        self.run(IoOp::Rename, from, move |from| {
            let _replaced = files.hold(&to);
            fs::rename(from, &to).map_err(|e| {
                IoError::from_std(IoOp::Rename, from, &e)
                    .with_context(format_args!("to {}", to.display()))
            })
        })
    }

    /// Removes a name; the space returns when the last name and descriptor are gone.
    pub fn unlink(&self, path: &Path) -> IoFuture<Result<(), IoError>> {
        let files = self.data_files();
        self.simple(IoOp::Unlink, path, move |path| files.remove(path))
    }

    /// Removes a directory with everything in it. Symbolic links are removed, not followed.
    pub fn remove_dir_all(&self, path: &Path) -> IoFuture<Result<(), IoError>> {
        let files = self.data_files();
        self.simple(IoOp::RemoveDir, path, move |path| files.remove_tree(path))
    }

    /// Whether the name is a directory; symbolic links are followed.
    pub fn is_dir(&self, path: &Path) -> IoFuture<Result<bool, IoError>> {
        self.simple(IoOp::Stat, path, |path| {
            fs::metadata(path).map(|m| m.is_dir())
        })
    }

    /// Whether the name exists; an error other than `NotFound` is an error.
    pub fn exists(&self, path: &Path) -> IoFuture<Result<bool, IoError>> {
        self.simple(IoOp::Stat, path, |path| fs::exists(path))
    }

    /// The whole of a small file; `TooLarge` when it is longer than `limit` bytes.
    ///
    /// Reads the file itself, not an engine's idea of it: for files that were written by
    /// [`replace`](Meta::replace) or by others.
    pub fn read_small(&self, path: &Path, limit: usize) -> IoFuture<Result<Vec<u8>, IoError>> {
        self.run(IoOp::ReadSmall, path, move |path| read_small(path, limit))
    }

    /// Replaces (or creates) a small file atomically and durably: after a crash at any moment the
    /// name holds the old or the new contents, and after success the new ones. Writes a temporary
    /// file beside it (`.NAME.PID.N.tmp`), syncs it, renames it, syncs the directory.
    pub fn replace(
        &self,
        path: &Path,
        contents: Vec<u8>,
        mode: u32,
    ) -> IoFuture<Result<(), IoError>> {
        self.run(IoOp::Replace, path, move |path| {
            replace(path, &contents, mode)
        })
    }

    /// As [`read_small`](Meta::read_small), from the device: what the page cache has of the file is
    /// dropped first, as far as the system does that.
    pub fn read_small_anew(&self, path: &Path, limit: usize) -> IoFuture<Result<Vec<u8>, IoError>> {
        self.run(IoOp::ReadSmall, path, move |path| {
            let file = File::open(path);
            let file = file.map_err(|e| IoError::from_std(IoOp::ReadSmall, path, &e))?;
            // A hint: a file system that does not know it has what it has.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            read_small(path, limit)
        })
    }

    /// Makes the names in a directory durable.
    pub fn sync_dir(&self, path: &Path) -> IoFuture<Result<(), IoError>> {
        self.simple(IoOp::SyncDir, path, |path| {
            patiently(|| File::open(path))?.sync_all()
        })
    }

    /// Space of the file system under `path`, or of the device of stubs.
    pub fn space(&self, path: &Path) -> IoFuture<Result<Space, IoError>> {
        let files = self.data_files();
        self.run(IoOp::Space, path, move |path| {
            if let Some(space) = files.space()? {
                return Ok(space);
            }
            Space::of_file_system(path)
        })
    }

    /// Takes the exclusive record lock on a file, creating it if needed and writing `contents`
    /// (such as `pid@host`) into it. See [`RecordLock`].
    pub fn lock(&self, path: &Path, contents: String) -> IoFuture<Result<RecordLock, IoError>> {
        self.run(IoOp::Lock, path, move |path| {
            RecordLock::acquire(path, contents.as_bytes())
        })
    }

    /// The mount that `path` lies on.
    pub fn mount_of(&self, path: &Path) -> IoFuture<Result<Mount, IoError>> {
        self.run(IoOp::Mount, path, mount::mount_of)
    }
}

/// See [`Meta::read_small`].
pub(crate) fn read_small(path: &Path, limit: usize) -> Result<Vec<u8>, IoError> {
    let failed = |e: io::Error| IoError::from_std(IoOp::ReadSmall, path, &e);
    let file = patiently(|| File::open(path)).map_err(failed)?;
    let mut contents = Vec::new();
    let one_more = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    file.take(one_more)
        .read_to_end(&mut contents)
        .map_err(failed)?;
    if contents.len() > limit {
        return Err(IoError::new(
            IoErrorKind::TooLarge,
            IoOp::ReadSmall,
            path,
            format!("longer than the limit of {limit} bytes"),
        ));
    }
    Ok(contents)
}

/// See [`Meta::replace`].
pub fn replace(path: &Path, contents: &[u8], mode: u32) -> Result<(), IoError> {
    let failed = |step: &'static str| {
        move |e: io::Error| IoError::from_std(IoOp::Replace, path, &e).with_context(step)
    };
    let no_name = || {
        IoError::new(
            IoErrorKind::Invalid,
            IoOp::Replace,
            path,
            "not a path of a file",
        )
    };
    let dir = path.parent().ok_or_else(no_name)?;
    let name = path.file_name().ok_or_else(no_name)?.to_string_lossy();
    let count = TEMPORARY.fetch_add(1, Ordering::Relaxed);
    let temporary = dir.join(format!(".{name}.{}.{count}.tmp", std::process::id()));
    let written = write_new(&temporary, contents, mode)
        .map_err(failed("writing the temporary file"))
        .and_then(|()| fs::rename(&temporary, path).map_err(failed("renaming the temporary file")));
    if written.is_err() {
        // The first error is the one to report; a leftover is harmless and named as ours.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    let dir = if dir.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        dir.to_owned()
    };
    patiently(|| File::open(&dir))
        .and_then(|d| d.sync_all())
        .map_err(failed("syncing the directory"))
}

fn write_new(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    // A leftover of a crashed process with our pid may be in the way; no process owns it.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    let mut file = patiently(|| options.open(path))?;
    file.write_all(contents)?;
    file.sync_all()
}
