//! The contract that every engine and every decorator keeps. What its calls say and answer is in
//! `types`.
//!
//! **Any offset, any length.** An engine accepts reads and writes at any offset and of any length;
//! [`Capabilities`] says which are cheap. Alignment is the engine's concern, not the caller's.
//!
//! **Submission.** An operation may start as soon as the method is called, before its future is
//! polled, when the disk's queue has room. When the queue is full, the future waits for a place:
//! full means wait, never fail. Dropping the future before it got a place cancels the operation;
//! afterwards the operation runs to its end, and its buffers stay alive until then.
//!
//! **Buffers** go in by value and come back with the result, on errors too. A buffer whose caller
//! went away is dropped after the kernel is done with it.
//!
//! **Order.** Operations on one file are not ordered against each other. A caller that waits for a
//! completion sees its effect in everything it submits afterwards.
//!
//! **Visibility.** A completed write is visible to every later read through any handle, to other
//! processes, and to the [`fd`](EngineFile::fd). (This and the next paragraph hold for engines that
//! [keep data](Capabilities::keeps_data).)
//!
//! **Durability.** A completed write outlives `kill -9` of this process. It outlives power loss
//! only after a completed [`sync`](EngineFile::sync). The *name* of a new file outlives power loss
//! only after the directory was synced ([`Meta::sync_dir`](crate::Meta::sync_dir)).
//!
//! **Drop** of a file has it closed by a thread of its disk, soon: closing waits for the device at
//! times, the task that drops it never does. It does not sync, does not wait for submitted
//! operations (they keep the descriptor open until they end), and reports no errors.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::disk::Disk;
use crate::error::IoError;
use crate::names_and_directories::Meta;
use crate::types::{Advice, Capabilities, Completion, IoFuture, OpenMode, SyncKind};

/// A way of doing I/O on one volume. See the [module](self) for the contract.
pub trait Engine: Send + Sync + fmt::Debug + 'static {
    /// The name in the configuration; a decorator gives the name of what it wraps.
    fn name(&self) -> &str;

    /// What this engine can do.
    fn capabilities(&self) -> Capabilities;

    /// The device that its operations are scheduled on.
    fn disk(&self) -> &Arc<Disk>;

    /// Opens `path`; operations through the handle run in `class`.
    ///
    /// Errors: `NotFound`, `Exists` (`CreateNew`), `Denied`, `Invalid` (not a regular file),
    /// `NoSpace`, `ReadOnly`, `MediaError`, `Retry` (out of descriptors).
    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        class: IoClass,
    ) -> IoFuture<Result<Arc<dyn EngineFile>, IoError>>;

    /// Work on names and directories of the same volume, in `class`. Goes through the engine so
    /// that decorators see it.
    fn meta(&self, class: IoClass) -> Meta;
}

/// An open file. See the [module](self) for the contract.
pub trait EngineFile: Send + Sync + fmt::Debug + 'static {
    /// The name it was opened with; a later rename does not change it.
    fn path(&self) -> &Path;

    /// The same open file, its operations in another class.
    fn with_class(&self, class: IoClass) -> Arc<dyn EngineFile>;

    /// Reads `len` bytes at `offset` into the start of `buf` and sets its `len`. Short only when
    /// the file ends before `offset + len`; 0 at or beyond the end.
    ///
    /// Errors: `Invalid` when `len` is above the capacity or `offset + len` above 2^63;
    /// `MediaError`.
    fn read_at(&self, buf: AlignedBuf, offset: u64, len: usize)
    -> IoFuture<Completion<AlignedBuf>>;

    /// Whether what a caller wants to send from [`fd`](Self::fd) had better be read into the page
    /// cache by [`load`](Self::load), and not into a buffer: what is at `offset` is to stay in
    /// there.
    fn caches(&self, offset: u64) -> bool;

    /// Reads the range into the page cache and nowhere else. The result is how many bytes from
    /// `offset` on were brought there or found; less than `len` at the end of the file, and 0 where
    /// it has no meaning. Pages may be evicted in the next moment.
    ///
    /// Errors: `Invalid` when `offset + len` is above 2^63; `MediaError`, and whatever a pipe may
    /// fail of: reading them is the other way.
    fn load(&self, offset: u64, len: usize) -> IoFuture<Result<usize, IoError>>;

    /// Writes all of `bufs`, one after the other, from `offset` on: all or an error. After an
    /// error, any part of the range may have been written. A gap between the end and `offset`
    /// reads as zeros.
    ///
    /// Errors: `NoSpace`, `ReadOnly`, `MediaError`, `Invalid` (opened for reading, or beyond 2^63).
    fn write_at(&self, bufs: Vec<Bytes>, offset: u64) -> IoFuture<Completion<Vec<Bytes>>>;

    /// As [`write_at`](Self::write_at), on the calling thread, which is one of the disk's. It waits
    /// for no queue: no other write of the file may be under way. Gives the bytes written.
    ///
    /// Errors: as `write_at`.
    fn write_here(&self, bufs: &[Bytes], offset: u64) -> Result<usize, IoError>;

    /// Reserves space for the first `len` bytes without changing the length; space beyond the end
    /// is given back by `truncate` to the final length. `Unsupported` where the file system cannot.
    fn allocate(&self, len: u64) -> IoFuture<Result<(), IoError>>;

    /// Sets the length: cuts, or extends with zeros. Space reserved beyond `len` is given back.
    fn truncate(&self, len: u64) -> IoFuture<Result<(), IoError>>;

    /// Completes when everything whose write completed before the call is durable. After a failed
    /// sync, what was written before is in an unknown state: a repeated sync may succeed without
    /// the data being there.
    fn sync(&self, kind: SyncKind) -> IoFuture<Result<(), IoError>>;

    /// Starts writing the range to the device without waiting for it; nothing becomes durable by
    /// it. `len` 0 means to the end. A no-op where it has no meaning.
    fn start_writeback(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>>;

    /// Writes the dirty pages of the range to the device, in its turn among the device's writes,
    /// and waits for that; nothing becomes durable by it. `len` 0 means to the end. A no-op where
    /// it has no meaning.
    fn write_back(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>>;

    /// Gives a hint about the range; `len` 0 means to the end. A no-op where it has no meaning.
    fn advise(&self, advice: Advice, offset: u64, len: u64) -> IoFuture<Result<(), IoError>>;

    /// The length in bytes now.
    fn length(&self) -> IoFuture<Result<u64, IoError>>;

    /// The descriptor, for sendfile and for passing to another process; `None` when the engine
    /// has none whose contents are the file's.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// The operations of an [`EngineFile`] that move no bytes. Each goes through one method of the
/// file, which is given the operation and the call to make.
macro_rules! without_bytes {
    ($through:ident) => {
        fn allocate(&self, len: u64) -> IoFuture<Result<(), IoError>> {
            self.$through(IoOp::Allocate, move |f| f.allocate(len))
        }

        fn truncate(&self, len: u64) -> IoFuture<Result<(), IoError>> {
            self.$through(IoOp::Truncate, move |f| f.truncate(len))
        }

        fn sync(&self, kind: SyncKind) -> IoFuture<Result<(), IoError>> {
            self.$through(IoOp::Sync, move |f| f.sync(kind))
        }

        fn start_writeback(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
            self.$through(IoOp::Writeback, move |f| f.start_writeback(offset, len))
        }

        fn advise(&self, advice: Advice, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
            self.$through(IoOp::Advise, move |f| f.advise(advice, offset, len))
        }

        fn length(&self) -> IoFuture<Result<u64, IoError>> {
            self.$through(IoOp::Length, |f| f.length())
        }
    };
}
pub(crate) use without_bytes;
