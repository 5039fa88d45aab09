//! What the calls to engines and files say and answer: modes, kinds of sync, hints, results.

use futures_util::future::BoxFuture;

use crate::error::IoError;

/// A result that gives the buffer back.
#[derive(Debug)]
#[must_use = "the result inside may be an error"]
pub struct Completion<B> {
    /// What the caller put in; after a read, its `len` is the number of bytes read (0 on errors).
    pub buf: B,
    /// Bytes transferred, or why not.
    pub result: Result<usize, IoError>,
}

impl<B> Completion<B> {
    /// The buffer and the count together, or the error alone.
    ///
    /// # Errors
    /// The error of the operation; the buffer is dropped then.
    pub fn into_result(self) -> Result<(B, usize), IoError> {
        let Self { buf, result } = self;
        result.map(|n| (buf, n))
    }
}

/// A future that owns all it needs.
pub type IoFuture<T> = BoxFuture<'static, T>;

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    ReadOnly,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// A new file for reading and writing; `Exists` when the name is taken.
    CreateNew,
}

/// What must be durable when a sync completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// The bytes, and the length needed to read them back (fdatasync).
    Data,
    /// Also timestamps and the rest of the inode (fsync).
    All,
}

/// A hint; never changes what is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No special pattern.
    Normal,
    /// Read from low to high offsets.
    Sequential,
    /// Read at scattered offsets.
    Random,
    /// Will be read soon: start now.
    WillNeed,
    /// Will not be read soon: cached pages that are clean may go.
    DontNeed,
}

/// What an engine can do and what is cheap on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Writes complete in the page cache: as fast as memory until that is full of them, whatever
    /// the device takes.
    pub page_cache: bool,
    /// Alignment (bytes) of memory that avoids copying; 1 when it makes no difference.
    pub memory_alignment: usize,
    /// [`EngineFile::fd`](crate::EngineFile::fd) gives a descriptor from which the kernel can send
    /// and that can be passed to another process.
    pub descriptor: bool,
    /// Bytes read are bytes written (false for `null`), in this process and others; they outlive
    /// it, and after a sync power loss too.
    pub keeps_data: bool,
    /// The bytes are on a device of the engine's. The files are stubs: they have the length, and
    /// say where the bytes are. [`DataFiles`](crate::DataFiles) opens them for blocking code.
    pub stubs: bool,
}
