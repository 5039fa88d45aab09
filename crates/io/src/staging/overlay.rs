//! Reading files while their newest bytes are in segments.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::file::StagedFile;
use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::engine::{Advice, Completion, EngineFile, IoFuture, SyncKind};
use crate::error::{IoError, IoErrorKind, IoOp};

/// Which of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Main,
    Side,
}

/// A file as it is with the committed bytes that are still in segments. For reading.
#[derive(Clone, Debug)]
struct Overlay {
    file: Arc<dyn EngineFile>,
    staged: Arc<StagedFile>,
    which: Which,
}

impl StagedFile {
    /// The main file, opened by the caller for reading, with what is still in segments.
    #[must_use]
    pub fn overlay_main(self: &Arc<Self>, file: Arc<dyn EngineFile>) -> Arc<dyn EngineFile> {
        Arc::new(Overlay {
            file,
            staged: Arc::clone(self),
            which: Which::Main,
        })
    }

    /// The side file, opened by the caller for reading, with what is still in segments.
    #[must_use]
    pub fn overlay_side(self: &Arc<Self>, file: Arc<dyn EngineFile>) -> Arc<dyn EngineFile> {
        Arc::new(Overlay {
            file,
            staged: Arc::clone(self),
            which: Which::Side,
        })
    }
}

impl Overlay {
    /// Parts of the range that are in segments. Taken before the file is read: what is not among them was in
    /// the file already.
    fn parts(&self, offset: u64, len: usize) -> Vec<(u64, Bytes)> {
        match self.which {
            Which::Main => self.staged.in_segments(offset, len),
            Which::Side => {
                let parts = self.staged.side_in_segments(offset, len);
                parts.into_iter().map(|(at, b)| (at, b.into())).collect()
            }
        }
    }

    fn refused<T: Send + 'static>(&self, op: IoOp) -> IoFuture<Result<T, IoError>> {
        let text = "opened for reading";
        let error = IoError::new(IoErrorKind::Invalid, op, self.file.path(), text);
        Box::pin(std::future::ready(Err(error)))
    }
}

/// Puts the parts into their places in the first `len` bytes at `offset`; how far bytes reach without a gap from
/// `there` on.
fn lay_over(buf: &mut AlignedBuf, offset: u64, parts: &[(u64, Bytes)], there: usize) -> usize {
    let mut reach = there;
    for (at, bytes) in parts {
        let from = usize::try_from(*at - offset).expect("inside the buffer");
        let end = from + bytes.len();
        buf.as_mut_capacity()[from..end].copy_from_slice(bytes);
        if from <= reach {
            reach = reach.max(end);
        }
    }
    buf.set_len(reach);
    reach
}

impl EngineFile for Overlay {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn with_class(&self, class: IoClass) -> Arc<dyn EngineFile> {
        Arc::new(Self {
            file: self.file.with_class(class),
            ..self.clone()
        })
    }

    fn read_at(
        &self,
        mut buf: AlignedBuf,
        offset: u64,
        len: usize,
    ) -> IoFuture<Completion<AlignedBuf>> {
        let end = offset.checked_add(len as u64);
        if len > buf.capacity() || end.is_none_or(|end| i64::try_from(end).is_err()) {
            // Refused there as everywhere.
            return self.file.read_at(buf, offset, len);
        }
        let parts = self.parts(offset, len);
        if parts.is_empty() {
            return self.file.read_at(buf, offset, len);
        }
        // What has to come from the file: up to the last byte that no part covers.
        let mut from_file = len;
        for (at, bytes) in parts.iter().rev() {
            let from = usize::try_from(*at - offset).expect("inside the range");
            if from + bytes.len() != from_file {
                break;
            }
            from_file = from;
        }
        if from_file == 0 {
            let n = lay_over(&mut buf, offset, &parts, 0);
            return Box::pin(std::future::ready(Completion { buf, result: Ok(n) }));
        }
        let read = self.file.read_at(buf, offset, from_file);
        Box::pin(async move {
            let Completion { mut buf, result } = read.await;
            let result = result.map(|n| lay_over(&mut buf, offset, &parts, n));
            Completion { buf, result }
        })
    }

    /// Nobody sends from here: some of it is elsewhere.
    fn caches(&self, _offset: u64) -> bool {
        false
    }

    fn load(&self, offset: u64, len: usize) -> IoFuture<Result<usize, IoError>> {
        self.file.load(offset, len)
    }

    fn write_at(&self, bufs: Vec<Bytes>, _offset: u64) -> IoFuture<Completion<Vec<Bytes>>> {
        let refused = self.refused(IoOp::Write);
        Box::pin(async move {
            Completion {
                buf: bufs,
                result: refused.await,
            }
        })
    }

    fn allocate(&self, _len: u64) -> IoFuture<Result<(), IoError>> {
        self.refused(IoOp::Allocate)
    }

    fn truncate(&self, _len: u64) -> IoFuture<Result<(), IoError>> {
        self.refused(IoOp::Truncate)
    }

    fn sync(&self, kind: SyncKind) -> IoFuture<Result<(), IoError>> {
        self.file.sync(kind)
    }

    fn start_writeback(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.file.start_writeback(offset, len)
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.file.advise(advice, offset, len)
    }

    fn length(&self) -> IoFuture<Result<u64, IoError>> {
        let (length, which) = (self.file.length(), self.which);
        let staged = Arc::clone(&self.staged);
        Box::pin(async move {
            let there = length.await?;
            Ok(match which {
                Which::Main => there.max(staged.committed()),
                Which::Side => there,
            })
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
