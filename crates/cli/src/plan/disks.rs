//! What the disks do: from calibrations, or as typed.

use std::path::Path;

use hayloft_io::Media;
use hayloft_io::calibrate::{Calibration, RunPoint};
use serde::Serialize;

use crate::error::CliError;

/// Slowest disk that is planned with, bytes a second.
const RATE_MIN: f64 = 1e3;
/// Fastest, bytes a second.
const RATE_MAX: f64 = 1e12;

/// One disk of the plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedDisk {
    /// Its name, as calibrated.
    pub device: String,
    /// What it behaves like.
    pub media: Media,
    /// Bytes that it moves for one stream before it turns to another.
    pub quantum_bytes: u64,
    /// Bytes a second in runs of that length, reading.
    pub read_bytes_s: f64,
    /// The same, writing.
    pub write_bytes_s: f64,
    /// The same, with the share of reads that the plan assumes.
    pub bytes_s: u64,
}

/// Reads the calibration in `path`: of a volume, or a copy of the file.
pub fn calibrated(path: &Path, read_percent: u32) -> Result<PlannedDisk, CliError> {
    let place = path.display().to_string();
    let read = if path.is_dir() {
        Calibration::read(path)
    } else {
        Calibration::read_file(path)
    };
    let calibration = read
        .map_err(|error| CliError::new(error.to_string(), "", ""))?
        .ok_or_else(|| {
            let advice = "run 'hayloft calibrate' on the volume, or give --disk-rate";
            CliError::new("no calibration", place.clone(), advice)
        })?;
    of_calibration(&calibration, read_percent).ok_or_else(|| {
        let advice = "run 'hayloft calibrate' again, on a device that is not busy";
        CliError::new("the calibration tells no bandwidth", place, advice)
    })
}

fn of_calibration(calibration: &Calibration, read_percent: u32) -> Option<PlannedDisk> {
    let at = |rate: fn(&RunPoint) -> Option<f64>| {
        rate_at(&calibration.runs, calibration.quantum_bytes, rate)
    };
    // A curve may lack one direction; the other stands for it.
    let (read, write) = (at(|p| p.read_bytes_s), at(|p| p.write_bytes_s));
    let (read, write) = (read.or(write)?, write.or(read)?);
    let share = f64::from(read_percent) / 100.0;
    // Both take their time one after the other.
    let mixed = 1.0 / (share / read + (1.0 - share) / write);
    (RATE_MIN..=RATE_MAX).contains(&mixed).then(|| PlannedDisk {
        device: calibration.device.clone(),
        media: calibration.media,
        quantum_bytes: calibration.quantum_bytes,
        read_bytes_s: read,
        write_bytes_s: write,
        bytes_s: rounded(mixed),
    })
}

/// The rate at a run length, between two measured ones as far as the length (by its logarithm) is
/// between theirs. Beyond the ends of the curve, the rate at the end.
fn rate_at(runs: &[RunPoint], run_bytes: u64, rate: fn(&RunPoint) -> Option<f64>) -> Option<f64> {
    let measured = |p: &RunPoint| rate(p).filter(|r| *r > 0.0).map(|r| (p.run_bytes, r));
    let mut points: Vec<(u64, f64)> = runs.iter().filter_map(measured).collect();
    points.sort_by_key(|p| p.0);
    let above = points.iter().position(|p| p.0 >= run_bytes);
    match above {
        None => points.last().map(|p| p.1),
        Some(0) => points.first().map(|p| p.1),
        Some(i) => {
            let ((low, slow), (high, fast)) = (points[i - 1], points[i]);
            let log = |bytes: u64| whole(bytes).log2();
            let way = (log(run_bytes) - log(low)) / (log(high) - log(low));
            Some(slow + (fast - slow) * way)
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates and lengths below 2^53")]
fn whole(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate between the two limits"
)]
fn rounded(bytes_s: f64) -> u64 {
    bytes_s.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration(runs: &[(u64, Option<f64>, Option<f64>)]) -> Calibration {
        let point = |&(run_bytes, read, write): &(u64, Option<f64>, Option<f64>)| RunPoint {
            run_bytes,
            read_bytes_s: read,
            write_bytes_s: write,
        };
        Calibration {
            version: 1,
            measured_at_s: 0,
            device: "sda".into(),
            file_system: "ext4".into(),
            file_system_bytes: 1 << 40,
            media: Media::Rotating,
            quantum_bytes: 16 << 20,
            depth: 4,
            engine: "posix".into(),
            reason: String::new(),
            runs: runs.iter().map(point).collect(),
            depths: Vec::new(),
            mixes: Vec::new(),
            engines: Vec::new(),
        }
    }

    #[test]
    fn the_rate_is_that_at_the_quantum_and_of_the_mix() {
        let curve = [
            (4 << 20, Some(60e6), Some(30e6)),
            (16 << 20, Some(120e6), Some(60e6)),
            (64 << 20, Some(140e6), Some(100e6)),
        ];
        let disk = of_calibration(&calibration(&curve), 50).expect("a rate");
        assert_eq!((disk.read_bytes_s, disk.write_bytes_s), (120e6, 60e6));
        // Half the bytes at 120, half at 60: 80 MB/s, not 90.
        assert_eq!(disk.bytes_s, 80_000_000);
        let reads = of_calibration(&calibration(&curve), 100).expect("a rate");
        assert_eq!(reads.bytes_s, 120_000_000);
    }

    #[test]
    fn between_and_beyond_measured_lengths() {
        let curve = [(8 << 20, Some(50e6), None), (32 << 20, Some(100e6), None)];
        let disk = of_calibration(&calibration(&curve), 50).expect("reads stand for writes");
        assert_eq!((disk.read_bytes_s, disk.write_bytes_s), (75e6, 75e6));
        let short = of_calibration(&calibration(&curve[..1]), 50).expect("a rate");
        assert_eq!(short.bytes_s, 50_000_000);
        let long = of_calibration(&calibration(&curve[1..]), 50).expect("a rate");
        assert_eq!(long.bytes_s, 100_000_000);
        assert_eq!(of_calibration(&calibration(&[]), 50), None);
        let none = [(8 << 20, Some(0.0), Some(0.0))];
        assert_eq!(of_calibration(&calibration(&none), 50), None);
    }
}
