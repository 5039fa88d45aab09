//! What the hardware gives without any HDFS: the device by O_DIRECT from several threads, loopback
//! TCP, one sent by the other.

use super::bare::{self, Bare, open};
use super::figures::{Figure, Figures};
use super::measure::{latencies, rate};
use super::record::BenchSample;
use super::rows::{Client, DeviceTransfer};
use hayloft_io::AlignedBuf;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::load::{LoadLatencies, Offsets};
use hayloft_testkit::machine;
use rustix::fs::{FallocateFlags, OFlags};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Transfers in flight.
const DEPTH: usize = 4;
/// Bytes of a large transfer.
const TRANSFER: usize = 4 << 20;
/// Bytes of a small one.
const SMALL: usize = 64 << 10;
/// Small reads of each measurement and flight, enough for a 99.9th percentile of sorts.
const SMALL_READS: usize = 4000;
/// Bytes handed to TCP at once.
const SEND: usize = 512 << 10;

/// Name of the column.
pub const LIMIT: &str = "limit";

/// Names of the rows.
pub const ROWS: [&str; 9] = [
    "device-write",
    "device-read",
    "device-pread-1",
    "device-pread-16",
    "device-pread-64",
    "loopback-1",
    "loopback-4",
    "loopback-kept-1",
    "loopback-kept-4",
];

/// Measures every limit once, on the file system under `dir`.
///
/// # Errors
/// When the file system refuses O_DIRECT, or a socket fails.
pub(super) fn measure(dir: &Path, mib: u64, round: u32) -> Result<Vec<BenchSample>> {
    let mut samples = Vec::new();
    let mut add = |workload: String, figures| {
        samples.push(BenchSample {
            workload,
            client: Client::None,
            peer: LIMIT.to_owned(),
            round,
            figures,
            failed: None,
        });
    };
    let bytes = (mib << 20).next_multiple_of(TRANSFER as u64);
    let mut device = Device::new(dir, mib)?;
    for (name, direction) in [
        ("device-write", DeviceTransfer::Write),
        ("device-read", DeviceTransfer::Read),
    ] {
        let rate = device.rate(direction)?;
        add(name.into(), Figures::from([(Figure::Rate, rate)]));
    }
    for in_flight in [1, 16, 64] {
        let (took, times) = small_reads(&device.path, bytes, in_flight)?;
        add(
            format!("device-pread-{in_flight}"),
            latencies(&times, took).into(),
        );
    }
    for (what, keeps) in [("loopback", false), ("loopback-kept", true)] {
        for streams in [1, 4] {
            let took = loopback(streams, bytes, keeps)?;
            let name = format!("{what}-{streams}");
            add(name, Figures::from([(Figure::Rate, rate(bytes, took))]));
        }
    }
    Ok(samples)
}

/// A file that is written and read without any HDFS; it is removed in the end.
pub(super) struct Device {
    path: PathBuf,
    bytes: u64,
    written: bool,
}

impl Device {
    /// A file of `mib` MiB in `dir`, allocated and not written.
    ///
    /// # Errors
    /// When the file system refuses O_DIRECT, or has no room.
    pub(super) fn new(dir: &Path, mib: u64) -> Result<Self> {
        let device = Self {
            path: dir.join("limit.raw"),
            bytes: (mib << 20).next_multiple_of(TRANSFER as u64),
            written: false,
        };
        let file = open(&device.path, OFlags::CREATE | OFlags::WRONLY)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, device.bytes)
            .map_err(|e| TestkitError::file("allocating", &device.path)(e.into()))?;
        machine::settle(dir)?;
        Ok(device)
    }

    /// Reads all of it and sends it, by a program that does nothing else; what was not written
    /// before is written first.
    ///
    /// # Errors
    /// When a transfer or a socket fails.
    pub(super) fn read_and_send(&mut self, streams: u32) -> Result<Bare> {
        self.fill()?;
        bare::read_and_send(&self.path, self.bytes, streams)
    }

    /// What is only allocated, the device does not read.
    fn fill(&mut self) -> Result<()> {
        if !self.written {
            self.rate(DeviceTransfer::Write)?;
        }
        Ok(())
    }

    /// Writes or reads all of it, MB/s; what was not written before is written first.
    ///
    /// # Errors
    /// When a transfer fails.
    pub(super) fn rate(&mut self, direction: DeviceTransfer) -> Result<f64> {
        if direction == DeviceTransfer::Read {
            self.fill()?;
        }
        let offsets: Vec<u64> = (0..self.bytes).step_by(TRANSFER).collect();
        let (took, _) = transfers(&self.path, direction, (DEPTH, TRANSFER), &offsets)?;
        self.written = true;
        Ok(rate(self.bytes, took))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Moves pieces of `size` bytes at `offsets`, so many in flight, each by a thread of its own; a
/// write ends when the device has all of it. How long it took, and each transfer.
fn transfers(
    path: &Path,
    direction: DeviceTransfer,
    (in_flight, size): (usize, usize),
    offsets: &[u64],
) -> Result<(Duration, LoadLatencies)> {
    let flags = match direction {
        DeviceTransfer::Read => OFlags::RDONLY,
        DeviceTransfer::Write => OFlags::WRONLY,
    };
    let file = open(path, flags)?;
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut buffer = AlignedBuf::unpooled(size);
        buffer.set_len(size);
        buffer.as_mut_slice().fill(0x5A);
        let mut times = LoadLatencies::default();
        while let Some(&at) = offsets.get(next.fetch_add(1, Ordering::Relaxed)) {
            let began = Instant::now();
            match direction {
                DeviceTransfer::Read => file.read_exact_at(buffer.as_mut_slice(), at)?,
                DeviceTransfer::Write => file.write_all_at(buffer.as_slice(), at)?,
            }
            times.record(began.elapsed());
        }
        Ok(times)
    };
    let failed = TestkitError::file("transferring by O_DIRECT", path);
    let began = Instant::now();
    let each = in_parallel(in_flight, &worker).map_err(failed)?;
    if direction == DeviceTransfer::Write {
        let synced = file.sync_data();
        synced.map_err(TestkitError::file("syncing", path))?;
    }
    let took = began.elapsed();
    let mut all = LoadLatencies::default();
    each.iter().for_each(|times| all.add(times));
    Ok((took, all))
}

/// Reads at random places, so many in flight.
fn small_reads(path: &Path, bytes: u64, in_flight: usize) -> Result<(Duration, LoadLatencies)> {
    let places = bytes / 4096 - (SMALL as u64 / 4096) + 1;
    let count = if in_flight == 1 {
        SMALL_READS / 4
    } else {
        SMALL_READS
    };
    let mut random = Offsets::new(in_flight as u64);
    let offsets: Vec<u64> = (0..count).map(|_| random.below(places) * 4096).collect();
    transfers(path, DeviceTransfer::Read, (in_flight, SMALL), &offsets)
}

/// Runs `worker` in `count` threads; what each gave.
fn in_parallel<T: Send>(
    count: usize,
    worker: &(impl Fn() -> std::io::Result<T> + Sync),
) -> std::io::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().map(bare::joined).collect()
    })
}

/// Sends `bytes` through TCP on the loopback, over so many connections. Who receives drops them, or
/// keeps them: in memory that was touched before, as a program that keeps data must, while what is
/// dropped always goes into the same few pages, which stay in the processor's cache.
fn loopback(streams: u64, bytes: u64, keeps: bool) -> Result<Duration> {
    let failed = |error: std::io::Error| TestkitError::Talk(format!("loopback TCP: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let share = bytes / streams;
    let kept = usize::try_from(if keeps { share } else { 0 }).unwrap_or(0);
    let memory: Vec<Vec<u8>> = (0..streams).map(|_| vec![1; kept.max(SEND)]).collect();
    let memory = Mutex::new(memory);
    let worker = || -> std::io::Result<()> {
        let mut sender = TcpStream::connect(address)?;
        let (mut receiver, _) = listener.accept()?;
        let mut of_all = memory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = of_all.pop().expect("there is one for each connection");
        drop(of_all);
        let drain = std::thread::spawn(move || -> std::io::Result<()> {
            let mut at = 0;
            loop {
                let end = buffer.len().min(at + SEND);
                match receiver.read(&mut buffer[at..end])? {
                    0 => return Ok(()),
                    n if keeps => at = (at + n) % buffer.len(),
                    _ => {}
                }
            }
        });
        let data = vec![0x5A; SEND];
        let mut left = share;
        while left > 0 {
            let piece = data.len().min(usize::try_from(left).unwrap_or(SEND));
            sender.write_all(&data[..piece])?;
            left -= piece as u64;
        }
        drop(sender);
        let gone = |_| std::io::Error::other("a thread panicked");
        drain.join().map_err(gone)?
    };
    let began = Instant::now();
    in_parallel(usize::try_from(streams).unwrap_or(1), &worker).map_err(failed)?;
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_measured_and_nothing_is_left() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let samples = match measure(dir.path(), 8, 0) {
            Ok(samples) => samples,
            Err(error) if error.to_string().contains("O_DIRECT") => {
                eprintln!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let names: Vec<&str> = samples.iter().map(|s| s.workload.as_str()).collect();
        assert_eq!(names, ROWS);
        let positive = |s: &BenchSample| s.figures.values().all(|value| *value > 0.0);
        assert!(samples.iter().all(positive), "{samples:?}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
    }
}
