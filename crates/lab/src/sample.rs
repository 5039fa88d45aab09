//! Watching a testbed while it works: disks, links, streams, processors, four times a second.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};

use hayloft_bench::fair::counters::device as device_counters;

use super::counters::{CpuTicks, cpu_counters, cpu_shares, link_counters, streams, writers};
use super::net;
use super::up::Testbed;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::where_processes_run;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(250);
/// Looks that are kept: an hour.
const SAMPLES_MAX: usize = 4 * 3600;
/// What the kernel's disk statistics count in, whatever the device.
const SECTOR_BYTES: f64 = 512.0;

/// One disk between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DiskSample {
    /// Share of the time in which it had a request, 0 to 1.
    #[serde(serialize_with = "short")]
    pub busy: f64,
    /// MB/s read from it.
    #[serde(serialize_with = "short")]
    pub read_mbs: f64,
    /// MB/s written to it.
    #[serde(serialize_with = "short")]
    pub write_mbs: f64,
    /// Replicas being written on it.
    pub writers: usize,
    /// Other streams to or from its node.
    pub readers: usize,
}

impl DiskSample {
    /// Streams that want this disk.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.writers + self.readers
    }
}

/// Everything between two looks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds since watching began.
    #[serde(serialize_with = "short")]
    pub at: f64,
    /// In the order of [`Watch::disk_names`].
    pub disks: Vec<DiskSample>,
    /// The busier direction of every host's link, MB/s, in the order of the description.
    #[serde(serialize_with = "all_short")]
    pub links_mbs: Vec<f64>,
    /// Share of all processors in use, 0 to 1, without what ran at a lower priority.
    #[serde(serialize_with = "short")]
    pub cpu: f64,
    /// Share of all processors that ran at a lower priority (nice): others' work on a shared
    /// machine.
    #[serde(serialize_with = "short")]
    pub cpu_low: f64,
}

/// Three decimals are what a look four times a second can tell, and raw data stays small.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn short<S: Serializer>(value: &f64, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_f64(three_decimals(*value))
}

fn all_short<S: Serializer>(values: &[f64], to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_seq(values.iter().copied().map(three_decimals))
}

fn three_decimals(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl Sample {
    /// Two streams are on one disk while another disk has none: what placement should avoid.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.disks.iter().any(|disk| disk.streams() > 1)
            && self.disks.iter().any(|disk| disk.streams() == 0)
    }

    /// Whether any disk has a stream.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.disks.iter().any(|disk| disk.streams() > 0)
    }
}

/// What is looked at.
#[derive(Clone, Debug)]
struct Target {
    name: String,
    device: Option<String>,
    volume: PathBuf,
    pid: u32,
    port: u16,
}

/// What is looked at, and the hosts whose links are.
#[derive(Clone, Debug)]
struct Watched {
    disks: Vec<Target>,
    hosts: Vec<String>,
}

/// Counters at one look.
#[derive(Clone, Debug, Default)]
struct Counters {
    disks: Vec<(u64, u64, u64)>,
    links: Vec<(u64, u64)>,
    cpu: CpuTicks,
}

/// A thread that watches.
#[derive(Debug)]
pub struct Watch {
    names: Vec<String>,
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    thread: Option<JoinHandle<()>>,
    begun: Instant,
}

impl Watch {
    /// Begins.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn begin(testbed: &Testbed) -> Result<Self> {
        let described = testbed.described();
        let hosts = described.hosts().map(|(_, host)| host.name.clone());
        let watched = Watched {
            disks: targets(testbed),
            hosts: hosts.collect(),
        };
        let names = watched.disks.iter().map(|t| t.name.clone()).collect();
        let switches = net::namespace(&described.name, net::SWITCH);
        let stop = Arc::new(AtomicBool::new(false));
        let samples = Arc::new(Mutex::new(Vec::new()));
        let (begun, ends, keeps) = (Instant::now(), Arc::clone(&stop), Arc::clone(&samples));
        let thread = std::thread::Builder::new()
            .name("lab-watch".into())
            .spawn(move || {
                // The ends of all links are there. A testbed that is gone has none.
                let _gone = where_processes_run::within(&switches, move || {
                    look_on(&watched, begun, &ends, &keeps);
                    Ok(())
                });
            })
            .map_err(|e| TestkitError::Talk(format!("starting the thread that watches: {e}")))?;
        Ok(Self {
            names,
            stop,
            samples,
            thread: Some(thread),
            begun,
        })
    }

    /// `host.node/disk` of every disk.
    #[must_use]
    pub fn disk_names(&self) -> &[String] {
        &self.names
    }

    /// Seconds since it began.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Ends and gives what was seen.
    #[must_use]
    pub fn end(mut self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
        std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn targets(testbed: &Testbed) -> Vec<Target> {
    let mut targets = Vec::new();
    for node in testbed.nodes() {
        let port = node.address.rsplit(':').next().and_then(|p| p.parse().ok());
        for (number, disk) in node.disks.iter().enumerate() {
            targets.push(Target {
                name: format!("{}/{number}", node.name),
                device: disk.device.clone(),
                volume: disk.dir.join("hdfs/current"),
                pid: node.pid(),
                port: port.unwrap_or(0),
            });
        }
    }
    targets
}

fn look_on(watched: &Watched, begun: Instant, stop: &AtomicBool, keep: &Mutex<Vec<Sample>>) {
    let (mut before, mut then) = (count(watched), Instant::now());
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(EVERY);
        let (now, at) = (count(watched), Instant::now());
        let mut sample = between(&before, &now, (at - then).as_secs_f64());
        sample.at = (at - begun).as_secs_f64();
        for (target, disk) in watched.disks.iter().zip(&mut sample.disks) {
            disk.writers = writers(&target.volume);
            disk.readers = streams(target.pid, target.port).saturating_sub(disk.writers);
        }
        let mut samples = keep.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() < SAMPLES_MAX {
            samples.push(sample);
        }
        drop(samples);
        (before, then) = (now, at);
    }
}

fn count(watched: &Watched) -> Counters {
    let disks = watched.disks.iter();
    let disks = disks.map(|t| t.device.as_deref().map_or((0, 0, 0), device_counters));
    Counters {
        disks: disks.collect(),
        links: link_counters(&watched.hosts),
        cpu: cpu_counters(),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "rates for people, not for accounts"
)]
fn between(before: &Counters, now: &Counters, seconds: f64) -> Sample {
    let per_second = |a: u64, b: u64| b.saturating_sub(a) as f64 / seconds;
    let disks = before
        .disks
        .iter()
        .zip(&now.disks)
        .map(|(a, b)| DiskSample {
            read_mbs: per_second(a.0, b.0) * SECTOR_BYTES / 1e6,
            write_mbs: per_second(a.1, b.1) * SECTOR_BYTES / 1e6,
            busy: (per_second(a.2, b.2) / 1000.0).min(1.0),
            ..DiskSample::default()
        });
    let links = before.links.iter().zip(&now.links);
    let links = links.map(|(a, b)| per_second(a.0, b.0).max(per_second(a.1, b.1)) / 1e6);
    let (cpu, cpu_low) = cpu_shares(before.cpu, now.cpu);
    Sample {
        at: 0.0,
        disks: disks.collect(),
        links_mbs: links.collect(),
        cpu,
        cpu_low,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_streams(streams: &[usize]) -> Sample {
        let disk = |writers: &usize| DiskSample {
            writers: *writers,
            ..DiskSample::default()
        };
        Sample {
            disks: streams.iter().map(disk).collect(),
            ..Sample::default()
        }
    }

    #[test]
    fn a_conflict_needs_an_idle_disk() {
        assert!(with_streams(&[2, 0]).is_conflict());
        assert!(!with_streams(&[2, 1]).is_conflict());
        assert!(!with_streams(&[1, 1]).is_conflict());
        assert!(!with_streams(&[0, 0]).is_active());
    }

    #[test]
    fn rates_are_differences_over_time() {
        let counters = |n: u64| Counters {
            disks: vec![(2000 * n, 4000 * n, 125 * n)],
            links: vec![(1_000_000 * n, 500_000 * n)],
            cpu: CpuTicks {
                busy: 30 * n,
                low: 10 * n,
                all: 100 * n,
            },
        };
        let sample = between(&counters(1), &counters(2), 0.25);
        assert!((sample.disks[0].busy - 0.5).abs() < 1e-9);
        assert!((sample.disks[0].read_mbs - 4.096).abs() < 1e-9);
        assert!((sample.disks[0].write_mbs - 8.192).abs() < 1e-9);
        assert!((sample.links_mbs[0] - 4.0).abs() < 1e-9);
        assert!((sample.cpu - 0.3).abs() < 1e-9);
        assert!((sample.cpu_low - 0.1).abs() < 1e-9);
    }
}
