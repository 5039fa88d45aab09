//! An engine on a directory and a disk of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, Engine, EngineFile, IoClass, IoError, IoErrorKind, IoOp, OpenMode,
};

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

    pub(crate) async fn create(&self, name: &str) -> Arc<dyn EngineFile> {
        self.open(name, OpenMode::CreateNew)
            .await
            .expect("a new file")
    }

    pub(crate) async fn open(
        &self,
        name: &str,
        mode: OpenMode,
    ) -> Result<Arc<dyn EngineFile>, IoError> {
        self.engine
            .open(&self.path(name), mode, IoClass::ClientWrite)
            .await
    }

    /// `bytes` as they read back: zeros from an engine that keeps no data.
    pub(crate) fn kept(&self, bytes: &[u8]) -> Vec<u8> {
        if self.engine.capabilities().keeps_data {
            bytes.to_vec()
        } else {
            vec![0; bytes.len()]
        }
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

pub(crate) async fn write(file: &Arc<dyn EngineFile>, bytes: &[u8], offset: u64) {
    let done = file
        .write_at(vec![Bytes::copy_from_slice(bytes)], offset)
        .await;
    assert_eq!(done.result.expect("writable"), bytes.len());
    assert_eq!(
        done.buf,
        [Bytes::copy_from_slice(bytes)],
        "the buffers come back"
    );
}

pub(crate) async fn read(file: &Arc<dyn EngineFile>, offset: u64, len: usize) -> Vec<u8> {
    let done = file.read_at(AlignedBuf::unpooled(len), offset, len).await;
    let n = done.result.expect("readable");
    assert_eq!(
        done.buf.len(),
        n,
        "the length of the buffer is what was read"
    );
    done.buf.as_slice().to_vec()
}

/// Asks until it holds, for up to ten seconds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}
