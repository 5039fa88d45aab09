//! Measuring a volume: bandwidth against run length, queue depth, mixes, engines.
//!
//! All within a given time and space. The file is written first (which measures sequential
//! writing); what was written by then is what the rest is measured on, so a slow device is
//! measured on less space, not for longer.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::calibration_file::{DepthPoint, MixPoint, RunPoint};
use super::measured_file::{CalibrateTarget, REQUEST, Random, Scratch, noise};
use crate::locks;

/// Lengths of runs that are measured, bytes.
const RUNS: [u64; 9] = [
    64 << 10,
    256 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
    16 << 20,
    32 << 20,
    64 << 20,
];
const DEPTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];
const MIXES: [u32; 3] = [25, 50, 75];
/// Bytes of a random read.
const RANDOM: usize = 64 << 10;
/// Bytes of a read or write of the mixes.
const MIXED: usize = 1 << 20;
/// Places are multiples of this, bytes.
const STEP: u64 = 64 << 10;
/// Less than this, bytes, is not worth measuring on.
pub const SPACE_MIN: u64 = 64 << 20;
/// Share of the file system that must stay free, percent.
const KEEP_FREE: u64 = 5;

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct MeasurePlan {
    /// About how long, all in all.
    pub time: Duration,
    /// Bytes used at most.
    pub space: u64,
}

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// The user stopped it.
    #[error("stopped")]
    Interrupted,
    /// Too little space.
    #[error(
        "only {available} bytes are free of {capacity}: measuring with {space} bytes would leave \
            less than {KEEP_FREE} % free; free some, or give less with --space (at least \
            {SPACE_MIN})"
    )]
    Full {
        /// Free bytes.
        available: u64,
        /// Size of the file system.
        capacity: u64,
        /// Bytes that were to be used.
        space: u64,
    },
    /// The device or its file system refused.
    #[error("{doing} in {}: {source}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    /// Bandwidth against run length.
    pub runs: Vec<RunPoint>,
    /// Random reads against depth.
    pub depths: Vec<DepthPoint>,
    /// Reads and writes together.
    pub mixes: Vec<MixPoint>,
    /// Bytes that it was measured on.
    pub space: u64,
    /// Whether the page cache was out of the way.
    pub direct: bool,
}

/// Whether the file system under `dir` has room for `space` bytes and still some to spare.
///
/// # Errors
/// [`MeasureError::Full`], or `Io` when it cannot be asked.
pub fn check_space(dir: &Path, space: u64) -> Result<(), MeasureError> {
    let stat = rustix::fs::statvfs(dir).map_err(|errno| MeasureError::Io {
        doing: "asking for space",
        path: dir.to_owned(),
        source: errno.into(),
    })?;
    let capacity = stat.f_blocks.saturating_mul(stat.f_frsize);
    let available = stat.f_bavail.saturating_mul(stat.f_frsize);
    if available < space.saturating_add(capacity / 100 * KEEP_FREE) {
        return Err(MeasureError::Full {
            available,
            capacity,
            space,
        });
    }
    Ok(())
}

/// Until when to measure, and whether the user has lost patience.
#[derive(Clone, Copy, Debug)]
pub struct TimeSlice<'a> {
    stop: &'a AtomicBool,
    until: Instant,
}

impl<'a> TimeSlice<'a> {
    /// From now on for so long.
    pub fn of(stop: &'a AtomicBool, time: Duration) -> Self {
        Self {
            stop,
            until: Instant::now() + time,
        }
    }

    /// Whether the time is over.
    pub fn over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// An error once the user wants to stop.
    pub fn check(&self) -> Result<(), MeasureError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        Ok(())
    }
}

/// Measures in `scratch`; blocking, for about three quarters of the plan's time (the rest is for
/// the engines). `told` hears which share of the whole is done, 0 to 1, and what is next.
///
/// # Errors
/// [`MeasureError`]; `stop` makes it [`MeasureError::Interrupted`] within a request's time.
pub fn measure(
    scratch: &Scratch,
    plan: &MeasurePlan,
    stop: &AtomicBool,
    told: &dyn Fn(f64, &str),
) -> Result<Curves, MeasureError> {
    let failed = |doing: &'static str| {
        let path = scratch.path().to_owned();
        move |source| MeasureError::Io {
            doing,
            path,
            source,
        }
    };
    let mut target = CalibrateTarget::create(scratch).map_err(failed("creating a file"))?;
    told(0.0, "writing");
    fill(&mut target, plan, stop).map_err(|e| e.named(scratch))?;
    target.settle().map_err(failed("syncing"))?;
    let mut curves = Curves {
        space: target.size,
        direct: target.direct,
        ..Curves::default()
    };
    let lengths: Vec<u64> = RUNS
        .iter()
        .copied()
        .filter(|r| r * 4 <= target.size)
        .collect();
    for (n, &length) in lengths.iter().enumerate() {
        let mut point = RunPoint {
            run_bytes: length,
            read_bytes_s: None,
            write_bytes_s: None,
        };
        told(0.2 + 0.35 * share(n, lengths.len()), "run lengths");
        // Long runs take longer to say as much.
        let weight = if length >= 8 << 20 { 0.025 } else { 0.012 };
        for write in [false, true] {
            let slice = TimeSlice::of(stop, plan.time.mul_f64(weight));
            let rate = run_rate(&target, length, write, &slice).map_err(|e| e.named(scratch))?;
            *(if write {
                &mut point.write_bytes_s
            } else {
                &mut point.read_bytes_s
            }) = Some(rate);
        }
        curves.runs.push(point);
    }
    for (n, &depth) in DEPTHS.iter().enumerate() {
        told(0.55 + 0.12 * share(n, DEPTHS.len()), "queue depth");
        let slice = TimeSlice::of(stop, plan.time.mul_f64(0.02));
        let point = depth_point(&target, depth, &slice).map_err(|e| e.named(scratch))?;
        curves.depths.push(point);
    }
    for (n, &read_percent) in MIXES.iter().enumerate() {
        told(
            0.67 + 0.08 * share(n, MIXES.len()),
            "reads and writes mixed",
        );
        let slice = TimeSlice::of(stop, plan.time.mul_f64(0.025));
        let bytes_s = mix_rate(&target, read_percent, &slice).map_err(|e| e.named(scratch))?;
        curves.mixes.push(MixPoint {
            read_percent,
            bytes_s,
        });
    }
    Ok(curves)
}

impl MeasureError {
    fn named(self, scratch: &Scratch) -> Self {
        match self {
            Self::Io { doing, source, .. } => Self::Io {
                doing,
                path: scratch.path().to_owned(),
                source,
            },
            other => other,
        }
    }
}

fn transferring(source: io::Error) -> MeasureError {
    MeasureError::Io {
        doing: "measuring",
        path: PathBuf::new(),
        source,
    }
}

/// Writes the file for at most a fifth of the time, and at least the smallest useful size.
fn fill(
    target: &mut CalibrateTarget,
    plan: &MeasurePlan,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    let slice = TimeSlice::of(stop, plan.time.mul_f64(0.2));
    target.reserve(plan.space);
    let mut buffer = noise(REQUEST);
    let step = u64::try_from(REQUEST).unwrap_or(u64::MAX);
    while target.size + step <= plan.space && (target.size < SPACE_MIN || !slice.over()) {
        slice.check()?;
        target
            .transfer(true, &mut buffer, target.size, REQUEST)
            .map_err(transferring)?;
        target.size += step;
    }
    Ok(())
}

/// Bytes a second of runs of `length` at random places, at least two of them.
fn run_rate(
    target: &CalibrateTarget,
    length: u64,
    write: bool,
    slice: &TimeSlice<'_>,
) -> Result<f64, MeasureError> {
    let mut random = Random(length ^ 0x5851_F42D_4C95_7F2D);
    let mut buffer = noise(REQUEST);
    let request = length.min(u64::try_from(REQUEST).unwrap_or(u64::MAX));
    let bytes = usize::try_from(request).unwrap_or(REQUEST);
    let (start, mut runs) = (Instant::now(), 0_u64);
    while runs < 2 || !slice.over() {
        let from = random.place(target.size, length, STEP);
        for at in (from..from + length).step_by(bytes) {
            slice.check()?;
            target
                .transfer(write, &mut buffer, at, bytes)
                .map_err(transferring)?;
        }
        runs += 1;
    }
    Ok(rate(runs * length, start.elapsed()))
}

/// Random reads by `depth` threads.
fn depth_point(
    target: &CalibrateTarget,
    depth: u32,
    slice: &TimeSlice<'_>,
) -> Result<DepthPoint, MeasureError> {
    let start = Instant::now();
    let mut times = in_threads(depth, |n| {
        let mut random = Random(u64::from(n) * 7_919 + u64::from(depth) + 1);
        let mut buffer = noise(RANDOM);
        let mut times = Vec::new();
        while !slice.over() {
            slice.check()?;
            let at = random.place(target.size, 1 << 16, STEP);
            let began = Instant::now();
            target
                .transfer(false, &mut buffer, at, RANDOM)
                .map_err(transferring)?;
            times.push(began.elapsed());
        }
        Ok(times)
    })?;
    let elapsed = start.elapsed();
    times.sort();
    let at = |percent: usize| {
        let place = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(place).map_or(0.0, |t| t.as_secs_f64() * 1e6)
    };
    let count = u64::try_from(times.len()).unwrap_or(0);
    Ok(DepthPoint {
        depth,
        bytes_s: rate(count * (1 << 16), elapsed),
        median_us: at(50),
        p99_us: at(99),
    })
}

/// Four threads with runs of 1 MiB at random places, of which `read_percent` read.
fn mix_rate(
    target: &CalibrateTarget,
    read_percent: u32,
    slice: &TimeSlice<'_>,
) -> Result<f64, MeasureError> {
    let start = Instant::now();
    let counts = in_threads(4, |n| {
        let mut random = Random(u64::from(n) * 104_729 + u64::from(read_percent) + 1);
        let mut buffer = noise(MIXED);
        let mut done = Vec::new();
        while !slice.over() {
            slice.check()?;
            let write = random.next() % 100 >= u64::from(read_percent);
            let at = random.place(target.size, 1 << 20, STEP);
            target
                .transfer(write, &mut buffer, at, MIXED)
                .map_err(transferring)?;
            done.push(());
        }
        Ok(done)
    })?;
    let bytes = u64::try_from(counts.len()).unwrap_or(0) << 20;
    Ok(rate(bytes, start.elapsed()))
}

/// What `threads` threads find, together; the first error of any.
fn in_threads<T: Send>(
    threads: u32,
    work: impl Fn(u32) -> Result<Vec<T>, MeasureError> + Sync,
) -> Result<Vec<T>, MeasureError> {
    let all = Mutex::new(Ok(Vec::new()));
    std::thread::scope(|scope| {
        for n in 0..threads {
            let (all, work) = (&all, &work);
            scope.spawn(move || {
                let found = work(n);
                let mut all = locks::lock(all);
                match (&mut *all, found) {
                    (Ok(all), Ok(found)) => all.extend(found),
                    (Ok(_), Err(error)) => *all = Err(error),
                    (Err(_), _) => {}
                }
            });
        }
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate, of no more than 2^53 bytes"
)]
pub(super) fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-9)
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn share(n: usize, of: usize) -> f64 {
    n as f64 / of.max(1) as f64
}
