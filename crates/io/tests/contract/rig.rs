//! An engine by test name, on a directory and a disk of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hayloft_io::calibrate::Media;
use hayloft_io::decorators::{Effect, FaultRule, Faults, Faulty, IoMetrics, Metered};
use hayloft_io::{
    AlignedBuf, DirectLimits, Disk, DiskConfig, Engine, EngineConfig, EngineFile, IoClass, IoError,
    OpenMode, engine_by_name,
};

/// What the disks of all rigs allow, small enough to be filled by a test.
pub const DEPTH: usize = 8;

pub struct Rig {
    pub engine: Arc<dyn Engine>,
    pub disk: Arc<Disk>,
    pub dir: tempfile::TempDir,
}

impl Rig {
    pub fn new(name: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (name, variant) = name.split_once("_as_").unwrap_or((name, ""));
        let disk_config = DiskConfig {
            depth_per_class: DEPTH,
            data_threads: 2,
            depth: 4,
            background_threads: 1,
            media: (variant == "rotating").then_some(Media::Rotating),
            quantum: Some(1 << 20),
            ..DiskConfig::default()
        };
        let disk = Disk::for_path(dir.path(), &disk_config).expect("the directory exists");
        let mut config = EngineConfig::new(Arc::clone(&disk));
        if !variant.is_empty() {
            // Around the page cache whenever alignment allows, however small.
            config.direct = DirectLimits {
                read_min: 1,
                write_min: 1,
                cache_client_reads: variant == "cached",
            };
        }
        let plain = |name| engine_by_name(name, &config).expect("a known name");
        let engine = match name {
            "metered" => metered(plain("posix")),
            "faulty" => faulty(plain("posix")),
            "stacked" => metered(faulty(plain("direct"))),
            plain_name => plain(plain_name),
        };
        Self { engine, disk, dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub async fn create(&self, name: &str) -> Arc<dyn EngineFile> {
        self.open(name, OpenMode::CreateNew)
            .await
            .expect("a new file")
    }

    pub async fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn EngineFile>, IoError> {
        self.engine
            .open(&self.path(name), mode, IoClass::ClientWrite)
            .await
    }

    /// `bytes` as they read back: zeros from an engine that keeps no data.
    pub fn kept(&self, bytes: &[u8]) -> Vec<u8> {
        if self.engine.capabilities().keeps_data {
            bytes.to_vec()
        } else {
            vec![0; bytes.len()]
        }
    }
}

fn metered(inner: Arc<dyn Engine>) -> Arc<dyn Engine> {
    Arc::new(Metered::new(inner, Arc::new(IoMetrics::default())))
}

/// With rules that never change a result.
fn faulty(inner: Arc<dyn Engine>) -> Arc<dyn Engine> {
    let faults = Faults::new(1);
    faults.add(FaultRule::new(Effect::Errno(libc::EIO)).at(|path| path.ends_with("never")));
    Arc::new(Faulty::new(inner, faults))
}

/// Bytes that differ by position and `seed`.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
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

pub async fn write(file: &Arc<dyn EngineFile>, bytes: &[u8], offset: u64) {
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

pub async fn read(file: &Arc<dyn EngineFile>, offset: u64, len: usize) -> Vec<u8> {
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
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}
