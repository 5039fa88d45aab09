//! Two writes of which a killed process should leave both or none, as far as that can be.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::class::IoClass;
use crate::disk::{Disk, Request};
use crate::engine::EngineFile;
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::types::IoFuture;

/// A write to a file.
pub struct FileWrite {
    /// The file, of which no other write is under way.
    pub file: Arc<dyn EngineFile>,
    /// What is written, one after the other.
    pub bufs: Vec<Bytes>,
    /// Where, bytes.
    pub offset: u64,
}

impl fmt::Debug for FileWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWrite")
            .field("path", &self.file.path())
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl FileWrite {
    fn len(&self) -> u64 {
        self.bufs.iter().map(|buf| buf.len() as u64).sum()
    }

    fn carry_out(&self) -> Result<(), IoError> {
        self.file.write_here(&self.bufs, self.offset).map(drop)
    }
}

/// Writes `first` and, when that has succeeded, at once `second`: in one place of the queue, on one
/// thread, without a word to anyone between. A process that is killed between the two leaves the
/// first alone.
///
/// For small writes into the page cache: what reaches the device takes its time.
///
/// # Errors
/// Of either write: any part of both may have been written. `Closed` when one panicked.
pub fn write_pair(
    disk: &Disk,
    class: IoClass,
    first: FileWrite,
    second: FileWrite,
) -> IoFuture<Result<(), IoError>> {
    let request = Request {
        class,
        stream: None,
        bytes: first.len().saturating_add(second.len()),
    };
    let path = Arc::clone(&first.file);
    let done = disk.transfer(request, move || {
        let written = first.carry_out().and_then(|()| second.carry_out());
        (written, request.bytes)
    });
    Box::pin(async move {
        done.await.unwrap_or_else(|| {
            let what = "the worker gave no answer";
            let closed = IoErrorKind::Closed;
            Err(IoError::new(closed, IoOp::Write, path.path(), what))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decorators::{Effect, FaultRule, Faults, Faulty};
    use crate::disk::DiskConfig;
    use crate::engine::Engine;
    use crate::engines::{EngineConfig, engine_by_name};
    use crate::types::OpenMode;

    fn write(file: &Arc<dyn EngineFile>, bytes: &'static [u8], offset: u64) -> FileWrite {
        FileWrite {
            file: Arc::clone(file),
            bufs: vec![Bytes::from_static(bytes)],
            offset,
        }
    }

    #[tokio::test]
    async fn the_second_follows_the_first_and_never_without_it() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::for_path(dir.path(), &DiskConfig::default()).expect("a disk");
        let faults = Faults::new(1);
        let direct = engine_by_name("direct", &EngineConfig::new(Arc::clone(&disk)));
        let engine = Faulty::new(direct.expect("a known name"), Arc::clone(&faults));
        let names = ["data", "meta"].map(|name| dir.path().join(name));
        let mut files = Vec::new();
        for name in &names {
            let opened = engine.open(name, OpenMode::CreateNew, IoClass::ClientWrite);
            files.push(opened.await.expect("opens"));
        }
        let read = || {
            names
                .each_ref()
                .map(|name| std::fs::read(name).expect("there"))
        };
        let pair = |bytes, at| {
            let (first, second) = (write(&files[0], bytes, at), write(&files[1], b"sum", 0));
            write_pair(&disk, IoClass::ClientWrite, first, second)
        };
        let failing = FaultRule::new(Effect::Errno(5)).on(&[IoOp::Write]).times(1);
        let rule = faults.add(failing);
        pair(b"abc", 0).await.expect_err("the first fails");
        assert_eq!(read(), [Vec::<u8>::new(), Vec::new()]);
        faults.remove(rule);
        pair(b"abc", 0).await.expect("writes");
        assert_eq!(read(), [b"abc".to_vec(), b"sum".to_vec()]);
        pair(b"def", 3).await.expect("writes");
        assert_eq!(read()[0], b"abcdef");
    }
}
