//! The engines side by side: sequential quanta through the same trait that the node uses.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::calibration_file::EnginePoint;
use super::measure::{MeasureError, TimeSlice, rate};
use super::measured_file::{REQUEST, Scratch, noise};
use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::disk::{Disk, DiskConfig};
use crate::engine::EngineFile;
use crate::engines::{EngineConfig, engine_for};
use crate::error::IoError;
use crate::types::{Advice, OpenMode, SyncKind};

/// The engines that a volume can have.
const COMPARED: [&str; 2] = ["posix", "direct"];
/// Bytes of one write or read: what the node hands over at least.
const QUANTUM: u64 = 4 << 20;
/// Bytes that each engine may use.
pub const SPACE: u64 = 256 << 20;

/// Measures each engine that works in `scratch`, for `time` all together.
///
/// # Errors
/// [`MeasureError`].
pub async fn compare(
    scratch: &Scratch,
    time: Duration,
    space: u64,
    stop: &AtomicBool,
    told: &dyn Fn(&str),
) -> Result<Vec<EnginePoint>, MeasureError> {
    let mut points = Vec::new();
    let failed = |error: IoError| MeasureError::Io {
        doing: "trying an engine",
        path: scratch.path().to_owned(),
        source: std::io::Error::other(error),
    };
    let each = time / 2;
    for name in COMPARED {
        told(name);
        let disk = Disk::for_path(scratch.path(), &DiskConfig::default()).map_err(failed)?;
        let config = EngineConfig::new(disk);
        let choice = engine_for(name, scratch.path(), &config).map_err(failed)?;
        if choice.engine.name() != name {
            continue; // It does not work here; another one stands for it.
        }
        let path = scratch.path().join(name);
        let file = choice
            .engine
            .open(&path, OpenMode::CreateNew, IoClass::ClientWrite)
            .await
            .map_err(failed)?;
        let point = one(name, &file, each, space.min(SPACE), stop).await;
        drop(file);
        let _ = std::fs::remove_file(&path);
        points.push(point?.map_err(failed)?);
    }
    Ok(points)
}

async fn one(
    name: &str,
    file: &Arc<dyn EngineFile>,
    time: Duration,
    space: u64,
    stop: &AtomicBool,
) -> Result<Result<EnginePoint, IoError>, MeasureError> {
    let cpu = processor_time();
    let length = usize::try_from(QUANTUM).unwrap_or(REQUEST);
    let bufs: Vec<Bytes> = vec![noise(length).freeze()];
    // Without space reserved beforehand every write would also be one of the file system's.
    let _ = file.allocate(space).await;
    let slice = TimeSlice::of(stop, time / 2);
    let (start, mut size) = (Instant::now(), 0);
    while size + QUANTUM <= space && (size < 2 * QUANTUM || !slice.over()) {
        slice.check()?;
        if let Err(error) = file.write_at(bufs.clone(), size).await.result {
            return Ok(Err(error));
        }
        size += QUANTUM;
    }
    if let Err(error) = file.sync(SyncKind::Data).await {
        return Ok(Err(error));
    }
    let write_bytes_s = rate(size, start.elapsed());
    // Best effort: where it is not heeded, the page cache is measured, and the rate says so.
    let _ = file.advise(Advice::DontNeed, 0, 0).await;
    let slice = TimeSlice::of(stop, time / 2);
    let (start, mut read) = (Instant::now(), 0);
    let mut buffer = AlignedBuf::unpooled(length);
    while read < size && (read < 2 * QUANTUM || !slice.over()) {
        slice.check()?;
        let done = file.read_at(buffer, read, length).await;
        if let Err(error) = done.result {
            return Ok(Err(error));
        }
        buffer = done.buf;
        read += QUANTUM;
    }
    let read_bytes_s = rate(read, start.elapsed());
    let used = processor_time().saturating_sub(cpu).as_secs_f64();
    Ok(Ok(EnginePoint {
        engine: name.to_owned(),
        read_bytes_s,
        write_bytes_s,
        cpu_s_per_gib: used * rate(1 << 30, Duration::from_secs(1))
            / rate(size + read, Duration::from_secs(1)).max(1.0),
    }))
}

/// Processor time of this process so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The kernel's name of the device under `dir`.
///
/// # Errors
/// When it cannot be asked.
pub fn device_name(dir: &Path) -> Result<String, IoError> {
    Ok(Disk::for_path(dir, &DiskConfig::default())?
        .name()
        .to_owned())
}
