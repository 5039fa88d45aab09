//! What the hardware gives without any HDFS: the device by O_DIRECT, loopback TCP,
//! one sent by the other.

use super::bare::{self, Bare};
use super::figures::Figure;
use super::measure::rate;
use super::raw::{self, RawTransfer, in_parallel};
use super::record::BenchSample;
use super::rows::Client;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::load::{Latency, Offsets};
use hayloft_testkit::machine;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Transfers in flight.
const DEPTH: u64 = 4;
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

/// Measures every limit once, on the file system under `dir`.
///
/// # Errors
/// When the file system refuses O_DIRECT, or a socket fails.
pub(super) fn measure(dir: &Path, mib: u64, round: u32) -> Result<Vec<BenchSample>> {
    let mut samples = Vec::new();
    let mut add = |name: String, figures: Vec<(Figure, f64)>| {
        samples.push(BenchSample {
            workload: name,
            client: Client::None,
            peer: LIMIT.to_owned(),
            round,
            figures: figures.into_iter().collect(),
            failed: None,
        });
    };
    let bytes = (mib << 20).next_multiple_of(TRANSFER as u64);
    let mut device = Device::new(dir, mib)?;
    for (name, direction) in [
        ("device-write", RawTransfer::Write),
        ("device-read", RawTransfer::Read),
    ] {
        let rate = device.rate(direction)?;
        add(name.into(), vec![(Figure::Rate, rate)]);
    }
    for in_flight in [1, 16, 64] {
        let (took, latencies) = small_reads(&device.path, bytes, in_flight)?;
        let latency = Latency::of(latencies);
        let us = super::measure::as_f64;
        let ops = us(latency.count) / took.as_secs_f64();
        add(
            format!("device-pread-{in_flight}"),
            vec![
                (Figure::Ops, ops),
                (Figure::P50, us(latency.p50_us)),
                (Figure::P99, us(latency.p99_us)),
                (Figure::P999, us(latency.p999_us)),
            ],
        );
    }
    for (what, keeps) in [("loopback", false), ("loopback-kept", true)] {
        for streams in [1, 4] {
            let took = loopback(streams, bytes, keeps)?;
            let name = format!("{what}-{streams}");
            add(name, vec![(Figure::Rate, rate(bytes, took))]);
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
            transfers(&self.path, self.bytes, RawTransfer::Write)?;
        }
        self.written = true;
        Ok(())
    }

    /// Writes or reads all of it, MB/s; what was not written before is written first.
    ///
    /// # Errors
    /// When a transfer fails.
    pub(super) fn rate(&mut self, direction: RawTransfer) -> Result<f64> {
        if direction == RawTransfer::Read {
            self.fill()?;
        }
        self.written = true;
        let took = transfers(&self.path, self.bytes, direction)?;
        Ok(rate(self.bytes, took))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

pub(super) fn open(path: &Path, flags: OFlags) -> Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::open(path, flags | OFlags::DIRECT | OFlags::CLOEXEC, mode);
    file.map(File::from)
        .map_err(|e| TestkitError::file("opening with O_DIRECT", path)(e.into()))
}

/// Moves all of the file in large transfers, [`DEPTH`] in flight, in the order of their offsets; a
/// write ends when the device has it.
fn transfers(path: &Path, bytes: u64, direction: RawTransfer) -> Result<Duration> {
    let file = open(path, flags(direction))?;
    let offsets = (0..bytes).step_by(TRANSFER);
    let began = Instant::now();
    raw::transfers(&file, direction, (DEPTH, TRANSFER), offsets)
        .map_err(TestkitError::file("transferring", path))?;
    if direction == RawTransfer::Write {
        file.sync_data()
            .map_err(TestkitError::file("syncing", path))?;
    }
    Ok(began.elapsed())
}

fn flags(direction: RawTransfer) -> OFlags {
    match direction {
        RawTransfer::Read => OFlags::RDONLY,
        RawTransfer::Write => OFlags::WRONLY,
    }
}

fn small_reads(path: &Path, bytes: u64, in_flight: u64) -> Result<(Duration, Vec<u32>)> {
    let file = open(path, OFlags::RDONLY)?;
    let places = bytes / 4096 - (SMALL as u64 / 4096) + 1;
    let count = if in_flight == 1 {
        SMALL_READS / 4
    } else {
        SMALL_READS
    };
    let mut random = Offsets::new(in_flight);
    let offsets = (0..count).map(|_| random.below(places) * 4096);
    let began = Instant::now();
    let took = raw::transfers(&file, RawTransfer::Read, (in_flight, SMALL), offsets)
        .map_err(TestkitError::file("reading", path))?;
    let elapsed = began.elapsed();
    let latencies = took.into_iter().map(hayloft_testkit::load::tally::micros);
    Ok((elapsed, latencies.collect()))
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
    in_parallel(streams, &worker).map_err(failed)?;
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
        assert_eq!(samples.len(), 9);
        let positive = |s: &BenchSample| s.figures.values().all(|value| *value > 0.0);
        assert!(samples.iter().all(positive), "{samples:?}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
    }
}
