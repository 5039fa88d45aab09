//! Data files for code that runs on a thread of the disk already, whichever engine keeps their
//! bytes: the kernel's own files, or [stubs](crate::engines).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::blocking_engine::{Blocking, Elsewhere};
use crate::error::IoError;
use crate::space::Space;
use crate::system_calls::write_back_file;
use crate::types::{OpenMode, SyncKind};
use crate::wait_out_shortage::patiently;

/// Bytes copied at a time.
const COPY: usize = 1 << 20;
/// Directories below each other, at most: those of a volume are eight deep.
pub(crate) const DEPTH_MAX: usize = 32;

/// The data files of a volume. All of it blocks. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct DataFiles(Option<Arc<dyn Elsewhere>>);

impl DataFiles {
    /// The kernel's own files.
    #[must_use]
    pub fn plain() -> Self {
        Self(None)
    }

    pub(crate) fn elsewhere(place: Option<Arc<dyn Elsewhere>>) -> Self {
        Self(place)
    }

    /// Whether the kernel's files have the bytes.
    #[must_use]
    pub fn are_plain(&self) -> bool {
        self.0.is_none()
    }

    /// Space where the bytes are; `None`: that of the file system.
    pub(crate) fn space(&self) -> Result<Option<Space>, IoError> {
        self.0.as_ref().map(|place| place.space()).transpose()
    }

    /// Makes all durable that is on the device, where the engine has one.
    ///
    /// # Errors
    /// Of the device.
    pub fn sync_device(&self) -> io::Result<()> {
        let synced = self.0.as_ref().map(|place| place.sync());
        Ok(synced.transpose().map(drop)?)
    }

    /// What is wrong with the device though it can be used, in words for the operator.
    #[must_use]
    pub fn damage_of_device(&self) -> Option<String> {
        self.0.as_ref()?.damage()
    }

    /// Whether the device answers, and is the one that it was, where the engine has one.
    ///
    /// # Errors
    /// Of the device.
    pub fn probe_device(&self) -> Result<(), IoError> {
        let looked = self.0.as_ref().map(|place| place.probe());
        looked.transpose().map(drop)
    }

    /// Opens an existing file, or creates a new one.
    ///
    /// # Errors
    /// As [`Engine::open`](crate::Engine::open).
    pub fn open(&self, path: &Path, mode: OpenMode) -> io::Result<DataFile> {
        let Some(place) = &self.0 else {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(mode != OpenMode::ReadOnly)
                .create_new(mode == OpenMode::CreateNew);
            return Ok(DataFile(Kept::Plain(patiently(|| options.open(path))?)));
        };
        Ok(DataFile(Kept::Elsewhere(place.open(path, mode)?)))
    }

    /// A handle for the time in which a name goes: the content goes when it is closed, unless
    /// another name or handle is left. A file that cannot be opened goes without.
    pub(crate) fn hold(&self, path: &Path) -> Option<Box<dyn Blocking>> {
        self.0.as_ref()?.open(path, OpenMode::ReadOnly).ok()
    }

    /// Removes a name, and with the last one the content.
    ///
    /// # Errors
    /// Of the file system. A file whose content cannot be found goes all the same.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let _held = self.hold(path);
        fs::remove_file(path)
    }

    /// Removes a directory with all that is in it. Symbolic links are removed, not followed.
    ///
    /// # Errors
    /// Of the file system.
    pub fn remove_tree(&self, dir: &Path) -> io::Result<()> {
        if self.are_plain() {
            return fs::remove_dir_all(dir);
        }
        self.remove_below(dir, 0)
    }

    fn remove_below(&self, dir: &Path, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(io::Error::other("directories too deep"));
        }
        for entry in patiently(|| fs::read_dir(dir))? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => self.remove_below(&entry.path(), depth + 1)?,
                kind if kind.is_file() => self.remove(&entry.path())?,
                _ => fs::remove_file(entry.path())?,
            }
        }
        fs::remove_dir(dir)
    }

    /// Copies the content of a file of this volume to a new one; the bytes copied.
    ///
    /// # Errors
    /// Of both. The new file may be there in part.
    pub fn copy(&self, from: &Path, to: &Path) -> io::Result<u64> {
        if self.are_plain() {
            return patiently(|| fs::copy(from, to));
        }
        // As fs::copy does it.
        match self.remove(to) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mode = fs::metadata(from)?.permissions();
        let from = self.open(from, OpenMode::ReadOnly)?;
        let new = self.open(to, OpenMode::CreateNew)?;
        fs::set_permissions(to, mode)?;
        let len = from.length()?;
        let mut bytes = vec![0; COPY];
        let mut at = 0;
        while at < len {
            let n = usize::try_from(len - at).unwrap_or(COPY).min(COPY);
            from.read_exact_at(&mut bytes[..n], at)?;
            new.write_all_at(&bytes[..n], at)?;
            at += n as u64;
        }
        Ok(len)
    }
}

/// An open data file. All of it blocks.
#[derive(Debug)]
pub struct DataFile(Kept);

#[derive(Debug)]
enum Kept {
    Plain(File),
    Elsewhere(Box<dyn Blocking>),
}

impl DataFile {
    /// Length, bytes.
    ///
    /// # Errors
    /// Of the file system.
    pub fn length(&self) -> io::Result<u64> {
        match &self.0 {
            Kept::Plain(file) => Ok(file.metadata()?.len()),
            Kept::Elsewhere(file) => Ok(file.length()?),
        }
    }

    /// Fills `target` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before; those of the device.
    pub fn read_exact_at(&self, target: &mut [u8], offset: u64) -> io::Result<()> {
        let file = match &self.0 {
            Kept::Plain(file) => return file.read_exact_at(target, offset),
            Kept::Elsewhere(file) => file,
        };
        let len = target.len();
        match file.read(target, len, offset)? {
            n if n == len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// Of the device.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match &self.0 {
            Kept::Plain(file) => file.write_all_at(bytes, offset),
            Kept::Elsewhere(file) => {
                let bytes = Bytes::copy_from_slice(bytes);
                Ok(file.write(&[&bytes], offset).1?)
            }
        }
    }

    /// Cuts, or extends with zeros. Room that was reserved behind is given back.
    ///
    /// # Errors
    /// Of the device.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        match &self.0 {
            Kept::Plain(file) => file.set_len(len),
            Kept::Elsewhere(file) => Ok(file.truncate(len)?),
        }
    }

    /// Makes bytes, length and inode durable.
    ///
    /// # Errors
    /// Of the device.
    pub fn sync(&self) -> io::Result<()> {
        match &self.0 {
            Kept::Plain(file) => file.sync_all(),
            Kept::Elsewhere(file) => Ok(file.sync(SyncKind::All)?),
        }
    }

    /// As [`write_back_file`].
    ///
    /// # Errors
    /// Of the device.
    pub fn write_back(&self) -> io::Result<()> {
        match &self.0 {
            Kept::Plain(file) => write_back_file(file),
            Kept::Elsewhere(file) => Ok(file.write_back(0, 0)?),
        }
    }

    /// The kernel's file, if that has the bytes.
    #[must_use]
    pub fn as_plain(&self) -> Option<&File> {
        match &self.0 {
            Kept::Plain(file) => Some(file),
            Kept::Elsewhere(_) => None,
        }
    }
}
