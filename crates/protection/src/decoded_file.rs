//! A decoded unit as a file of an engine, so that readers need not know.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::{
    Advice, AlignedBuf, Completion, EngineFile, IoClass, IoError, IoErrorKind, IoFuture, IoOp,
    SyncKind,
};
use hayloft_store::StoreError;

use super::decode::UnitReader;

/// Bytes that are served without a file of their own; read-only, without descriptor.
#[derive(Clone, Debug)]
pub struct ServedFile {
    /// The name in messages.
    path: PathBuf,
    bytes: ServedBytes,
}

/// Where the bytes come from.
#[derive(Clone, Debug)]
enum ServedBytes {
    /// The data of a unit, decoded.
    Decoded(Arc<UnitReader>),
    /// In memory: its checksums.
    Memory(Bytes),
}

impl ServedFile {
    /// Data and meta file of a unit, named `path` in messages.
    pub fn pair(reader: UnitReader, path: PathBuf) -> (Arc<dyn EngineFile>, Arc<dyn EngineFile>) {
        let sums = Self {
            path: path.clone(),
            bytes: ServedBytes::Memory(reader.sums().bytes().clone()),
        };
        let data = Self {
            path,
            bytes: ServedBytes::Decoded(Arc::new(reader)),
        };
        (Arc::new(data), Arc::new(sums))
    }

    fn refused(&self, op: IoOp) -> IoError {
        let text = "it is decoded from parity, and only read";
        IoError::new(IoErrorKind::Unsupported, op, &self.path, text)
    }

    fn unsupported<T: Send + 'static>(&self, op: IoOp) -> IoFuture<Result<T, IoError>> {
        Box::pin(std::future::ready(Err(self.refused(op))))
    }
}

fn as_io(path: &Path, error: &StoreError) -> IoError {
    // Volumes that failed were examined where it happened.
    IoError::new(IoErrorKind::Other, IoOp::Read, path, error.to_string())
}

fn nothing() -> IoFuture<Result<(), IoError>> {
    Box::pin(std::future::ready(Ok(())))
}

impl EngineFile for ServedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn with_class(&self, class: IoClass) -> Arc<dyn EngineFile> {
        let bytes = match &self.bytes {
            ServedBytes::Decoded(reader) => {
                ServedBytes::Decoded(Arc::new(reader.with_class(class)))
            }
            memory @ ServedBytes::Memory(_) => memory.clone(),
        };
        let path = self.path.clone();
        Arc::new(Self { path, bytes })
    }

    fn read_at(
        &self,
        mut buf: AlignedBuf,
        offset: u64,
        len: usize,
    ) -> IoFuture<Completion<AlignedBuf>> {
        let Self { path, bytes } = self.clone();
        let read = async move {
            buf.set_len(0);
            if len > buf.capacity() {
                let text = "the buffer is too small";
                let error = IoError::new(IoErrorKind::Invalid, IoOp::Read, &path, text);
                let result = Err(error);
                return Completion { buf, result };
            }
            let into = &mut buf.as_mut_capacity()[..len];
            let result = match bytes {
                ServedBytes::Memory(bytes) => {
                    let at = usize::try_from(offset)
                        .unwrap_or(usize::MAX)
                        .min(bytes.len());
                    let n = len.min(bytes.len() - at);
                    into[..n].copy_from_slice(&bytes[at..at + n]);
                    Ok(n)
                }
                ServedBytes::Decoded(reader) => {
                    let range = offset..offset.saturating_add(len as u64);
                    let read = reader.read(range, into).await;
                    read.map_err(|error| as_io(&path, &error))
                }
            };
            buf.set_len(result.as_ref().copied().unwrap_or(0));
            Completion { buf, result }
        };
        Box::pin(read)
    }

    fn caches(&self, _offset: u64) -> bool {
        false
    }

    fn load(&self, _offset: u64, _len: usize) -> IoFuture<Result<usize, IoError>> {
        Box::pin(std::future::ready(Ok(0)))
    }

    fn write_at(&self, bufs: Vec<Bytes>, _offset: u64) -> IoFuture<Completion<Vec<Bytes>>> {
        let refused = self.unsupported(IoOp::Write);
        Box::pin(async move {
            let result = refused.await;
            Completion { buf: bufs, result }
        })
    }

    fn write_here(&self, _bufs: &[Bytes], _offset: u64) -> Result<usize, IoError> {
        Err(self.refused(IoOp::Write))
    }

    fn allocate(&self, _len: u64) -> IoFuture<Result<(), IoError>> {
        self.unsupported(IoOp::Allocate)
    }

    fn truncate(&self, _len: u64) -> IoFuture<Result<(), IoError>> {
        self.unsupported(IoOp::Truncate)
    }

    fn sync(&self, _kind: SyncKind) -> IoFuture<Result<(), IoError>> {
        nothing()
    }

    fn start_writeback(&self, _offset: u64, _len: u64) -> IoFuture<Result<(), IoError>> {
        nothing()
    }

    fn write_back(&self, _offset: u64, _len: u64) -> IoFuture<Result<(), IoError>> {
        nothing()
    }

    fn advise(&self, _advice: Advice, _offset: u64, _len: u64) -> IoFuture<Result<(), IoError>> {
        nothing()
    }

    fn length(&self) -> IoFuture<Result<u64, IoError>> {
        let len = match &self.bytes {
            ServedBytes::Decoded(reader) => reader.sums().len(),
            ServedBytes::Memory(bytes) => bytes.len() as u64,
        };
        Box::pin(std::future::ready(Ok(len)))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
