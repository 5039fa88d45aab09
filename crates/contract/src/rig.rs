//! An engine on a directory and a disk of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, Engine, EngineFile, IoClass, IoError, IoErrorKind, IoOp,
    OpenMode, SyncKind,
};

use crate::breach::{Breach, Verdict, bytes};

/// What the disks of all rigs allow, small enough to be filled by a test.
pub(crate) const DEPTH: usize = 8;

/// An engine in a scratch directory, which goes with it.
#[derive(Debug)]
pub struct EngineRig {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) disk: Arc<Disk>,
    pub(crate) dir: tempfile::TempDir,
}

impl EngineRig {
    /// The engine that `make` gives for a new directory below `parent` and a disk, for which
    /// `config` sets what the contract does not.
    ///
    /// # Errors
    /// Of `make`, or when there can be no directory.
    pub fn new(
        parent: &Path,
        config: DiskConfig,
        make: impl FnOnce(&Path, &Arc<Disk>) -> Result<Arc<dyn Engine>, IoError>,
    ) -> Result<Self, IoError> {
        let dir = tempfile::Builder::new()
            .prefix("hayloft-engine-test-")
            .tempdir_in(parent);
        let dir = dir.map_err(|e| {
            IoError::new(IoErrorKind::Other, IoOp::CreateDir, parent, e.to_string())
        })?;
        let config = DiskConfig {
            depth_per_class: DEPTH,
            data_threads: 2,
            depth: 4,
            background_threads: 1,
            background_max: 1,
            quantum: Some(1 << 20),
            ..config
        };
        let disk = Disk::for_path(dir.path(), &config)?;
        let engine = make(dir.path(), &disk)?;
        Ok(Self { engine, disk, dir })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) async fn create(&self, name: &str) -> Verdict<TriedFile> {
        self.open(name, OpenMode::CreateNew).await
    }

    /// Opens what must open.
    pub(crate) async fn open(&self, name: &str, mode: OpenMode) -> Verdict<TriedFile> {
        let file = self.opened(name, mode).await;
        let failed = |error: &IoError| Breach::failed(opening(name, mode), "an open file", error);
        Ok(TriedFile {
            file: file.map_err(|error| failed(&error))?,
            name: name.to_owned(),
        })
    }

    /// Opens what must not open, with an error of this kind, which `expected` names.
    pub(crate) async fn refuses(
        &self,
        name: &str,
        mode: OpenMode,
        kind: IoErrorKind,
        expected: &str,
    ) -> Verdict {
        let call = opening(name, mode);
        match self.opened(name, mode).await {
            Ok(_) => Err(Breach::new(call, expected, "an open file")),
            Err(error) if error.kind() == kind => Ok(()),
            Err(error) => Err(Breach::failed(call, expected, &error)),
        }
    }

    async fn opened(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn EngineFile>, IoError> {
        let path = self.path(name);
        self.engine.open(&path, mode, IoClass::ClientWrite).await
    }

    /// `bytes` as they read back: zeros from an engine that keeps no data.
    pub(crate) fn kept(&self, bytes: &[u8]) -> Vec<u8> {
        if self.engine.capabilities().keeps_data {
            bytes.to_vec()
        } else {
            vec![0; bytes.len()]
        }
    }

    /// A step of the case itself, on names of the directory or on its own files.
    pub(crate) fn step<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Verdict<T> {
        let failed = |error: E| Breach::new(what, "success", format!("the error \"{error}\""));
        result.map_err(failed)
    }
}

/// `open` as an author of an engine reads it.
fn opening(name: &str, mode: OpenMode) -> String {
    let mode = match mode {
        OpenMode::ReadOnly => "HAYLOFT_READ_ONLY",
        OpenMode::ReadWrite => "HAYLOFT_READ_WRITE",
        OpenMode::CreateNew => "HAYLOFT_CREATE_NEW",
    };
    match name {
        "" => format!("open of the volume's directory with {mode}"),
        name => format!("open of {name} with {mode}"),
    }
}

/// An open file, whose calls say in a sentence what they did otherwise.
#[derive(Clone, Debug)]
pub(crate) struct TriedFile {
    pub(crate) file: Arc<dyn EngineFile>,
    name: String,
}

impl TriedFile {
    pub(crate) fn with_class(&self, class: IoClass) -> Self {
        let (file, name) = (self.file.with_class(class), self.name.clone());
        Self { file, name }
    }

    /// A call on this file, in words.
    pub(crate) fn call(&self, what: impl std::fmt::Display) -> String {
        format!("{what} on {}", self.name)
    }

    pub(crate) async fn write(&self, data: &[u8], offset: u64) -> Verdict {
        self.write_all(vec![Bytes::copy_from_slice(data)], offset)
            .await
    }

    /// Writes all of `bufs`, which come back.
    pub(crate) async fn write_all(&self, bufs: Vec<Bytes>, offset: u64) -> Verdict {
        let len = bufs.iter().map(Bytes::len).sum();
        let call = self.call(format_args!("write of {} at {offset}", bytes(len)));
        let expected = format!("{} written", bytes(len));
        let done = self.file.write_at(bufs.clone(), offset).await;
        match done.result {
            Ok(count) if count == len => {}
            Ok(count) => return Err(Breach::new(call, expected, bytes(count))),
            Err(error) => return Err(Breach::failed(call, expected, &error)),
        }
        if done.buf == bufs {
            return Ok(());
        }
        Err(Breach::new(call, "the buffers back as they were", "others"))
    }

    /// What is read from `offset` on, `len` bytes at most.
    pub(crate) async fn read(&self, offset: u64, len: usize) -> Verdict<Vec<u8>> {
        let done = self
            .file
            .read_at(AlignedBuf::unpooled(len), offset, len)
            .await;
        let call = self.reading(offset, len);
        match done.result {
            Ok(count) if count == done.buf.len() => Ok(done.buf.as_slice().to_vec()),
            Ok(count) => Err(Breach::new(call, bytes(count), bytes(done.buf.len()))),
            Err(error) => Err(Breach::failed(call, "bytes", &error)),
        }
    }

    /// A read of `len` bytes gives exactly `expected`.
    pub(crate) async fn reads(&self, offset: u64, len: usize, expected: &[u8]) -> Verdict {
        let came = self.read(offset, len).await?;
        match Breach::of_bytes(self.reading(offset, len), offset, expected, &came) {
            Some(breach) => Err(breach),
            None => Ok(()),
        }
    }

    pub(crate) fn reading(&self, offset: u64, len: usize) -> String {
        self.call(format_args!("read of {} at {offset}", bytes(len)))
    }

    pub(crate) async fn has_length(&self, expected: u64) -> Verdict {
        let (call, wanted) = (self.call("length"), expected.to_string());
        match self.file.length().await {
            Ok(came) if came == expected => Ok(()),
            Ok(came) => Err(Breach::new(call, wanted, came.to_string())),
            Err(error) => Err(Breach::failed(call, wanted, &error)),
        }
    }

    pub(crate) async fn truncate(&self, len: u64) -> Verdict {
        let call = self.call(format_args!("truncate to {len}"));
        self.succeeds(call, self.file.truncate(len).await)
    }

    pub(crate) async fn sync(&self, kind: SyncKind) -> Verdict {
        let what = match kind {
            SyncKind::Data => "HAYLOFT_SYNC_DATA",
            SyncKind::All => "HAYLOFT_SYNC_ALL",
        };
        let call = self.call(format_args!("sync with {what}"));
        self.succeeds(call, self.file.sync(kind).await)
    }

    /// A call that gives nothing but success.
    pub(crate) fn succeeds(&self, call: String, result: Result<(), IoError>) -> Verdict {
        result.map_err(|error| Breach::failed(call, "success", &error))
    }
}

/// Bytes that differ by position and `seed`.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x.to_le_bytes()[3]
        })
        .collect()
}

/// Asks until it holds, for up to ten seconds; then its last answer is what is wrong.
pub(crate) async fn eventually(mut holds: impl AsyncFnMut() -> Verdict) -> Verdict {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match holds().await {
            Ok(()) => return Ok(()),
            Err(breach) if Instant::now() > deadline => return Err(breach.after("10 s")),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
