//! What was appended and not taken yet.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::memory::Memory;

/// Appended bytes that lie together in memory.
pub(super) enum Piece {
    Own(Arc<Memory>, Range<usize>),
    Other(Bytes),
}

impl Piece {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Own(_, range) => range.len(),
            Self::Other(bytes) => bytes.len(),
        }
    }

    pub(super) fn split(self, at: usize) -> (Self, Self) {
        match self {
            Self::Own(memory, range) => {
                let middle = range.start + at;
                let now = Self::Own(Arc::clone(&memory), range.start..middle);
                (now, Self::Own(memory, middle..range.end))
            }
            Self::Other(bytes) => {
                let now = Self::Other(bytes.slice(..at));
                (now, Self::Other(bytes.slice(at..)))
            }
        }
    }

    pub(super) fn into_bytes(self) -> Bytes {
        match self {
            Self::Own(memory, range) => memory.share(range),
            Self::Other(bytes) => bytes,
        }
    }
}
