//! What went wrong on a disk, said so that the caller knows what to do next.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::means::Means;

/// What the caller should do about an [`IoError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IoErrorKind {
    /// The process lacks something (descriptors, memory, threads: [`Means`]), or the
    /// call was interrupted or came too early. It says nothing of the disk: try again later.
    Retry,
    /// The file system or the quota is full: choose another volume.
    NoSpace,
    /// The file system is read-only: take the volume out of writing.
    ReadOnly,
    /// The device or its file system reported damage or disappeared: fail the volume.
    MediaError,
    /// No such file or directory.
    NotFound,
    /// The name is taken already.
    Exists,
    /// The process lacks the permission: an operator has to act.
    Denied,
    /// Another process (or another part of this one) holds the lock.
    Locked,
    /// The engine or the disk was shut down; nothing was done.
    Closed,
    /// The request cannot be carried out on any disk (bad argument, wrong file type): a bug or a
    /// configuration mistake, never worth a retry.
    Invalid,
    /// The file is longer than the limit that the caller gave.
    TooLarge,
    /// This file system or engine cannot do it: do without.
    Unsupported,
    /// Anything else; see `errno`.
    Other,
}

impl IoErrorKind {
    /// Whether the volume under the path should be checked, and failed if the check fails too.
    #[must_use]
    pub fn suspects_volume(self) -> bool {
        matches!(self, Self::MediaError | Self::ReadOnly)
    }

    fn from_errno(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN
            | Errno::INTR
            | Errno::NOMEM
            | Errno::MFILE
            | Errno::NFILE
            | Errno::NOBUFS
            | Errno::BUSY => Self::Retry,
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace,
            Errno::ROFS => Self::ReadOnly,
            Errno::IO
            | Errno::NODATA
            | Errno::UCLEAN
            | Errno::NODEV
            | Errno::NXIO
            | Errno::REMOTEIO
            | Errno::STALE
            | Errno::SHUTDOWN
            | Errno::BADMSG => Self::MediaError,
            Errno::NOENT => Self::NotFound,
            Errno::EXIST | Errno::NOTEMPTY => Self::Exists,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            Errno::INVAL
            | Errno::BADF
            | Errno::FBIG
            | Errno::ISDIR
            | Errno::NOTDIR
            | Errno::NAMETOOLONG
            | Errno::LOOP
            | Errno::XDEV
            | Errno::SPIPE => Self::Invalid,
            Errno::OPNOTSUPP | Errno::NOSYS => Self::Unsupported,
            _ => Self::Other,
        }
    }
}

/// The operation that failed; also the label of metering and the selector of fault rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "each variant is the name of its operation")]
pub enum IoOp {
    Open,
    Read,
    Write,
    Allocate,
    Truncate,
    Sync,
    Writeback,
    Advise,
    Length,
    CreateDir,
    Rename,
    Unlink,
    RemoveDir,
    Link,
    List,
    Stat,
    ReadSmall,
    Replace,
    SyncDir,
    Space,
    Lock,
    Mount,
    Other,
}

impl IoOp {
    /// Every operation, in the order of its discriminant.
    pub const ALL: [Self; 23] = [
        Self::Open,
        Self::Read,
        Self::Write,
        Self::Allocate,
        Self::Truncate,
        Self::Sync,
        Self::Writeback,
        Self::Advise,
        Self::Length,
        Self::CreateDir,
        Self::Rename,
        Self::Unlink,
        Self::RemoveDir,
        Self::Link,
        Self::List,
        Self::Stat,
        Self::ReadSmall,
        Self::Replace,
        Self::SyncDir,
        Self::Space,
        Self::Lock,
        Self::Mount,
        Self::Other,
    ];

    /// Whether one operation of this kind is a matter of moments on a disk that is well, however
    /// much lies on it: the others walk or remove whole trees.
    #[must_use]
    pub fn ends_soon(self) -> bool {
        !matches!(self, Self::List | Self::RemoveDir | Self::Other)
    }

    /// The verb used in messages and metric labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Allocate => "allocate",
            Self::Truncate => "truncate",
            Self::Sync => "sync",
            Self::Writeback => "start writeback of",
            Self::Advise => "advise on",
            Self::Length => "take length of",
            Self::CreateDir => "create directory",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
            Self::RemoveDir => "remove directory",
            Self::Link => "link",
            Self::List => "list",
            Self::Stat => "stat",
            Self::ReadSmall => "read small file",
            Self::Replace => "replace",
            Self::SyncDir => "sync directory",
            Self::Space => "take space of",
            Self::Lock => "lock",
            Self::Mount => "find mount point of",
            Self::Other => "work on",
        }
    }
}

impl fmt::Display for IoOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone)]
struct Inner {
    kind: IoErrorKind,
    op: IoOp,
    path: PathBuf,
    errno: Option<i32>,
    context: String,
}

/// A failed operation. `Display` is one line: what was being done, on what, why it failed.
///
/// Cheap to clone and to move (one pointer), because it travels in every completion.
#[derive(Clone)]
pub struct IoError(Arc<Inner>);

impl IoError {
    /// An error that the kernel reported.
    #[must_use]
    pub fn from_errno(op: IoOp, path: &Path, errno: Errno) -> Self {
        Self(Arc::new(Inner {
            kind: IoErrorKind::from_errno(errno),
            op,
            path: path.to_owned(),
            errno: Some(errno.raw_os_error()),
            context: String::new(),
        }))
    }

    /// An error that the standard library reported; one without an errno becomes `Other`, with
    /// its text as context. One that was made of an `IoError` is that again.
    #[must_use]
    pub fn from_std(op: IoOp, path: &Path, error: &io::Error) -> Self {
        if let Some(inside) = error.get_ref().and_then(|e| e.downcast_ref::<Self>()) {
            return inside.clone();
        }
        match Errno::from_io_error(error) {
            Some(errno) => Self::from_errno(op, path, errno),
            None => Self::new(IoErrorKind::Other, op, path, error.to_string()),
        }
    }

    /// An error of our own making, explained in `context`.
    #[must_use]
    pub fn new(kind: IoErrorKind, op: IoOp, path: &Path, context: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            op,
            path: path.to_owned(),
            errno: None,
            context: context.into(),
        }))
    }

    /// Adds where or why (`at 4096+65536`); contexts are appended, separated by `, `.
    #[must_use]
    pub fn with_context(mut self, more: impl fmt::Display) -> Self {
        use fmt::Write as _;
        let inner = Arc::make_mut(&mut self.0);
        if !inner.context.is_empty() {
            inner.context.push_str(", ");
        }
        write!(inner.context, "{more}").expect("writing to a String cannot fail");
        self
    }

    /// The same of another name: of the file whose bytes are on the device that failed.
    #[must_use]
    pub fn of(mut self, path: &Path) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        path.clone_into(&mut inner.path);
        self
    }

    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> IoErrorKind {
        self.0.kind
    }

    /// The operation that failed.
    #[must_use]
    pub fn op(&self) -> IoOp {
        self.0.op
    }

    /// The file or directory it failed on, by the name it was opened with.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What the process has too little of, if that is why it failed. It says nothing of the file or
    /// the disk then: the same may work a moment later.
    #[must_use]
    pub fn lacks(&self) -> Option<Means> {
        Means::of(Errno::from_raw_os_error(self.0.errno?))
    }

    /// The kernel's errno, when the kernel said it.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.0.errno
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            op,
            path,
            errno,
            context,
            kind,
        } = &*self.0;
        write!(f, "cannot {op} {}", path.display())?;
        if !context.is_empty() {
            write!(f, " ({context})")?;
        }
        match errno {
            Some(errno) => write!(f, ": {}", io::Error::from_raw_os_error(*errno)),
            None => write!(f, ": {kind:?}"),
        }
    }
}

impl fmt::Debug for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoError")
            .field("kind", &self.0.kind)
            .field("op", &self.0.op)
            .field("path", &self.0.path)
            .field("errno", &self.0.errno)
            .field("context", &self.0.context)
            .finish()
    }
}

impl std::error::Error for IoError {}

impl From<IoError> for io::Error {
    fn from(error: IoError) -> Self {
        let kind = match error.kind() {
            IoErrorKind::NotFound => io::ErrorKind::NotFound,
            IoErrorKind::Exists => io::ErrorKind::AlreadyExists,
            IoErrorKind::Denied => io::ErrorKind::PermissionDenied,
            IoErrorKind::NoSpace => io::ErrorKind::StorageFull,
            IoErrorKind::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            IoErrorKind::Invalid | IoErrorKind::TooLarge => io::ErrorKind::InvalidInput,
            IoErrorKind::Unsupported => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_is_one_line_with_what_where_why() {
        let e = IoError::from_errno(IoOp::Write, Path::new("/d/blk_1"), Errno::NOSPC)
            .with_context("at 4096+65536");
        assert_eq!(e.kind(), IoErrorKind::NoSpace);
        let text = e.to_string();
        assert!(
            text.starts_with("cannot write /d/blk_1 (at 4096+65536): No space left"),
            "{text}"
        );
        assert!(!text.contains('\n'));
    }

    #[test]
    fn what_the_process_lacks_says_nothing_of_a_disk() {
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::AGAIN,
            Errno::NOBUFS,
        ] {
            let error = IoError::from_errno(IoOp::Open, Path::new("/d/blk_1"), errno);
            assert_eq!(error.kind(), IoErrorKind::Retry);
            assert!(error.lacks().is_some() && !error.kind().suspects_volume());
            // By way of an error of the standard library, too.
            let wrapped = io::Error::from(error.clone());
            assert_eq!(Means::lacking(&wrapped), error.lacks());
            let again = IoError::from_std(IoOp::Read, Path::new("/d"), &wrapped);
            assert_eq!(again.lacks(), error.lacks());
        }
        let busy = IoError::from_errno(IoOp::RemoveDir, Path::new("/d"), Errno::BUSY);
        assert!(busy.lacks().is_none(), "it may last");
    }

    #[test]
    fn operations_are_listed_in_order() {
        for (i, op) in IoOp::ALL.iter().enumerate() {
            assert_eq!(*op as usize, i);
        }
    }
}
