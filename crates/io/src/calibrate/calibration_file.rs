//! The calibration file of a volume: `.hayloft-calibration.json` in its directory.
//!
//! Written by `hayloft calibrate`, read by the node when it opens the volume. JSON, so that an
//! operator can read and edit it; every number is therefore checked against a limit when it is
//! read. A file that fails a check is reported and not used at all: half a calibration is worse
//! than the defaults.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::disk::Media;
use crate::engines::{ENGINE_NAMES, ENGINE_REMOVED};
use crate::error::{IoError, IoOp};

/// Name of the file in the volume's directory.
pub const FILE_NAME: &str = ".hayloft-calibration.json";
/// Version of the format that is written and the only one that is read.
pub const VERSION: u32 = 1;
/// Smallest quantum that is accepted, bytes.
pub const QUANTUM_MIN: u64 = 64 << 10;
/// Largest quantum that is accepted, bytes: as large as the largest usual block.
pub const QUANTUM_MAX: u64 = 1 << 30;
/// Largest queue depth that is accepted.
pub const DEPTH_MAX: u32 = 256;

/// Largest file that is read, bytes.
const FILE_MAX: u64 = 1 << 20;
/// Most points of one curve.
const POINTS_MAX: usize = 64;
/// Most bytes of a text.
const TEXT_MAX: usize = 4096;
/// No device moves more bytes a second than this.
const RATE_MAX: f64 = 1e12;
/// Longest run or request of a curve, bytes.
const LENGTH_MAX: u64 = 1 << 40;

/// Bandwidth at one run length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPoint {
    /// Bytes moved in sequence before the next seek.
    pub run_bytes: u64,
    /// Bytes a second, reading; `None` when not measured.
    pub read_bytes_s: Option<f64>,
    /// Bytes a second, writing; `None` when not measured.
    pub write_bytes_s: Option<f64>,
}

/// Random reads at one queue depth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DepthPoint {
    /// Requests in flight.
    pub depth: u32,
    /// Bytes a second.
    pub bytes_s: f64,
    /// Median time of one request, microseconds.
    pub median_us: f64,
    /// 99th percentile of the time of one request, microseconds.
    pub p99_us: f64,
}

/// Reads and writes at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixPoint {
    /// Share of the bytes that was read, percent.
    pub read_percent: u32,
    /// Bytes a second, both together.
    pub bytes_s: f64,
}

/// One engine moving whole quanta in sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnginePoint {
    /// Its name in the configuration.
    pub engine: String,
    /// Bytes a second, reading.
    pub read_bytes_s: f64,
    /// Bytes a second, writing.
    pub write_bytes_s: f64,
    /// Processor seconds of this process (user and system) for each GiB moved.
    pub cpu_s_per_gib: f64,
}

/// What was measured on a volume's device, and the settings that follow from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`VERSION`].
    pub version: u32,
    /// When, seconds since 1970.
    pub measured_at_s: u64,
    /// The kernel's name of the device, such as `sda`.
    pub device: String,
    /// Type of the file system, such as `ext4`.
    pub file_system: String,
    /// Size of the file system, bytes: a directory copied to another disk shows by it.
    pub file_system_bytes: u64,
    /// What kind of device it behaves like.
    pub media: Media,
    /// Bytes served to one stream before the disk turns to another.
    pub quantum_bytes: u64,
    /// Requests in flight on the device.
    pub depth: u32,
    /// The engine's name in the configuration.
    pub engine: String,
    /// Why these settings, in words.
    pub reason: String,
    /// Bandwidth against run length, ascending.
    pub runs: Vec<RunPoint>,
    /// Bandwidth and times against queue depth, ascending.
    pub depths: Vec<DepthPoint>,
    /// Bandwidth of mixed reading and writing.
    pub mixes: Vec<MixPoint>,
    /// The engines side by side.
    pub engines: Vec<EnginePoint>,
}

/// Why a calibration could not be read or written.
#[derive(Debug, Error)]
pub enum CalibrationError {
    /// The file could not be read, written or renamed.
    #[error("{doing} the calibration {}: {source}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is not what `hayloft calibrate` writes, or a number is out of bounds.
    #[error("the calibration {} is not usable ({what}): run `hayloft calibrate` again or delete \
        it", path.display())]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// Type and size in bytes of the file system that `dir` lies on. Blocking.
///
/// # Errors
/// When `dir` does not exist, or its file system or the table of mounts cannot be asked.
pub fn file_system(dir: &Path) -> Result<(String, u64), IoError> {
    let kind = crate::mount_of(dir)?.fs_type;
    let stat = rustix::fs::statvfs(dir).map_err(|e| IoError::from_errno(IoOp::Stat, dir, e))?;
    Ok((kind, stat.f_blocks.saturating_mul(stat.f_frsize)))
}

impl Calibration {
    /// Where the calibration of the volume in `dir` is.
    #[must_use]
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(FILE_NAME)
    }

    /// Reads the calibration of the volume in `dir`; `None` when there is none. Blocking.
    ///
    /// # Errors
    /// [`CalibrationError::File`] when it is there and cannot be read. `Invalid` when it has
    /// another version or form, or a number out of bounds.
    pub fn read(dir: &Path) -> Result<Option<Self>, CalibrationError> {
        Self::read_file(&Self::path(dir))
    }

    /// Reads a calibration from the file at `path`, which may be a copy; `None` when there is none.
    /// Blocking.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_file(path: &Path) -> Result<Option<Self>, CalibrationError> {
        let failed = |source| CalibrationError::File {
            doing: "reading",
            path: path.to_owned(),
            source,
        };
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut text = Vec::new();
        file.take(FILE_MAX + 1)
            .read_to_end(&mut text)
            .map_err(failed)?;
        Self::parse(&text)
            .map(Some)
            .map_err(|what| CalibrationError::Invalid {
                path: path.to_owned(),
                what,
            })
    }

    /// Why the file system in `dir` looks like another one than the one that was measured: of
    /// another type, or an eighth larger or smaller. (Some change their size a little as they are
    /// used.) `None` when it does not, or cannot be asked. Blocking.
    #[must_use]
    pub fn measured_elsewhere(&self, dir: &Path) -> Option<String> {
        let (kind, bytes) = file_system(dir).ok()?;
        let same = bytes.abs_diff(self.file_system_bytes) <= self.file_system_bytes / 8;
        (kind != self.file_system || !same).then(|| {
            format!(
                "measured on {} of {} MiB, this is {kind} of {} MiB",
                self.file_system,
                self.file_system_bytes >> 20,
                bytes >> 20
            )
        })
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        /// The version alone, so that another one is named as such and not as a wrong form.
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        if u64::try_from(text.len()).map_or(true, |n| n > FILE_MAX) {
            return Err(format!("larger than {FILE_MAX} bytes"));
        }
        let head: Head = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        if head.version != VERSION {
            return Err(format!(
                "version {}, and {VERSION} is expected",
                head.version
            ));
        }
        let mut read: Self = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        if read.engine == ENGINE_REMOVED {
            read.engine = "direct".to_owned();
        }
        read.check()?;
        Ok(read)
    }

    /// Every number and text within its limit.
    ///
    /// # Errors
    /// Which field is not, in words.
    pub fn check(&self) -> Result<(), String> {
        within(
            "quantum_bytes",
            self.quantum_bytes,
            QUANTUM_MIN,
            QUANTUM_MAX,
        )?;
        within("depth", u64::from(self.depth), 1, u64::from(DEPTH_MAX))?;
        if !ENGINE_NAMES.contains(&self.engine.as_str()) {
            return Err(format!(
                "engine is none of {}: {:?}",
                ENGINE_NAMES.join(", "),
                shortened(&self.engine)
            ));
        }
        for text in [&self.device, &self.file_system, &self.reason] {
            if text.len() > TEXT_MAX {
                return Err(format!("a text is longer than {TEXT_MAX} bytes"));
            }
        }
        let points = [
            self.runs.len(),
            self.depths.len(),
            self.mixes.len(),
            self.engines.len(),
        ];
        if points.iter().any(|&n| n > POINTS_MAX) {
            return Err(format!("a curve has more than {POINTS_MAX} points"));
        }
        self.check_points()
    }

    fn check_points(&self) -> Result<(), String> {
        for point in &self.runs {
            within("run_bytes", point.run_bytes, 1, LENGTH_MAX)?;
            for rate in [point.read_bytes_s, point.write_bytes_s]
                .into_iter()
                .flatten()
            {
                finite("the bandwidth of a run length", rate)?;
            }
        }
        for point in &self.depths {
            within(
                "depth of a point",
                u64::from(point.depth),
                1,
                u64::from(DEPTH_MAX),
            )?;
            for number in [point.bytes_s, point.median_us, point.p99_us] {
                finite("a figure of a queue depth", number)?;
            }
        }
        for point in &self.mixes {
            within("read_percent", u64::from(point.read_percent), 0, 100)?;
            finite("the bandwidth of a mix", point.bytes_s)?;
        }
        for point in &self.engines {
            if point.engine.len() > TEXT_MAX {
                return Err(format!("a text is longer than {TEXT_MAX} bytes"));
            }
            for number in [point.read_bytes_s, point.write_bytes_s, point.cpu_s_per_gib] {
                finite("a figure of an engine", number)?;
            }
        }
        Ok(())
    }

    /// Replaces the calibration of the volume in `dir`, durably; a crash leaves the old one or the
    /// new one. Blocking.
    ///
    /// # Errors
    /// [`CalibrationError::File`] when the directory cannot be written, `Invalid` when `self`
    /// would not be accepted by [`read`](Self::read).
    pub fn write(&self, dir: &Path) -> Result<PathBuf, CalibrationError> {
        let path = Self::path(dir);
        self.check().map_err(|what| CalibrationError::Invalid {
            path: path.clone(),
            what,
        })?;
        let temporary = dir.join(format!("{FILE_NAME}.tmp"));
        let write = || -> io::Result<()> {
            let mut file = fs::File::create(&temporary)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            fs::File::open(dir)?.sync_all()
        };
        write().map_err(|source| {
            // What is left over is small and would be overwritten; not worth a second error.
            let _ = fs::remove_file(&temporary);
            CalibrationError::File {
                doing: "writing",
                path: path.clone(),
                source,
            }
        })?;
        Ok(path)
    }
}

fn within(what: &str, value: u64, min: u64, max: u64) -> Result<(), String> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} is {value}, outside {min} to {max}"))
}

fn finite(what: &str, value: f64) -> Result<(), String> {
    // NaN is not within any range.
    if (0.0..=RATE_MAX).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} is {value}, outside 0 to {RATE_MAX}"))
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
#[path = "calibration_file_tests.rs"]
mod tests;
