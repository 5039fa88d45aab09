//! A file of such a volume: a stub or an ordinary one.

use std::path::Path;

use bytes::Bytes;

use super::stub_file::StubFile;
use crate::blocking_engine::Blocking;
use crate::disk::Stream;
use crate::engines::regular_file::RegularFile;
use crate::error::{IoError, IoOp};
use crate::types::SyncKind;

/// See the [module](self).
#[derive(Debug)]
pub(in crate::engines) enum EitherFile<D: Blocking> {
    Stub(StubFile<D>),
    Plain(Box<RegularFile>),
}

/// Passes calls on to the kind of file that it is.
macro_rules! either {
    ($self:ident, $file:ident => $call:expr) => {
        match $self {
            Self::Stub($file) => $call,
            Self::Plain($file) => $call,
        }
    };
}

impl<D: Blocking> Blocking for EitherFile<D> {
    fn path(&self) -> &Path {
        either!(self, f => f.path())
    }

    fn read(&self, target: &mut [u8], len: usize, offset: u64) -> Result<usize, IoError> {
        either!(self, f => f.read(target, len, offset))
    }

    fn read_at_once(&self, target: &mut [u8], offset: u64) -> (usize, bool) {
        either!(self, f => f.read_at_once(target, offset))
    }

    fn write(&self, bufs: &[&Bytes], offset: u64) -> (usize, Result<(), IoError>) {
        either!(self, f => f.write(bufs, offset))
    }

    fn stream(&self, op: IoOp, offset: u64, len: usize) -> Option<Stream> {
        match self {
            Self::Stub(file) => file.stream(op, offset, len),
            // Small: its place decides little.
            Self::Plain(_) => None,
        }
    }

    fn allocate(&self, len: u64) -> Result<(), IoError> {
        either!(self, f => f.allocate(len))
    }

    fn truncate(&self, len: u64) -> Result<(), IoError> {
        either!(self, f => f.truncate(len))
    }

    fn sync(&self, kind: SyncKind) -> Result<(), IoError> {
        either!(self, f => f.sync(kind))
    }

    fn start_writeback(&self, offset: u64, len: u64) -> Result<(), IoError> {
        either!(self, f => f.start_writeback(offset, len))
    }

    fn write_back(&self, offset: u64, len: u64) -> Result<(), IoError> {
        either!(self, f => f.write_back(offset, len))
    }

    fn length(&self) -> Result<u64, IoError> {
        either!(self, f => f.length())
    }
}
