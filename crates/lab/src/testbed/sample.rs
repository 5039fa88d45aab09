//! Watching a testbed while it works: disks, links, streams, processors, four times a second.

use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::describe::Description;
use super::net;
use super::up::Testbed;
use crate::error::{LabError, Result};
use crate::procfs;

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
    pub busy: f64,
    /// MB/s read from it.
    pub read_mbs: f64,
    /// MB/s written to it.
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
    pub at: f64,
    /// In the order of [`Watch::disk_names`].
    pub disks: Vec<DiskSample>,
    /// The busier direction of every storage host's link, MB/s, in the order of the nodes.
    pub links_mbs: Vec<f64>,
    /// Share of all processors in use, 0 to 1, without what ran at a lower priority.
    pub cpu: f64,
    /// Share of all processors that ran at a lower priority (nice): others' work on a shared machine.
    pub cpu_low: f64,
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
    first_of_node: bool,
}

/// Counters at one look.
#[derive(Clone, Debug, Default)]
struct Counters {
    disks: Vec<(u64, u64, u64)>,
    links: Vec<(u64, u64)>,
    cpu: CpuTicks,
}

/// Time of all processors since the start of the machine.
#[derive(Clone, Copy, Debug, Default)]
struct CpuTicks {
    /// Working, at ordinary or higher priority, and in the kernel.
    busy: u64,
    /// Working for programs of a lower priority.
    low: u64,
    /// Everything.
    all: u64,
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
        let targets = targets(testbed);
        let names = targets.iter().map(|t| t.name.clone()).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let samples = Arc::new(Mutex::new(Vec::new()));
        let (begun, ends, keeps) = (Instant::now(), Arc::clone(&stop), Arc::clone(&samples));
        let thread = std::thread::Builder::new()
            .name("lab-watch".into())
            .spawn(move || look_on(&targets, begun, &ends, &keeps))
            .map_err(|e| LabError::Talk(format!("starting the thread that watches: {e}")))?;
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
                first_of_node: number == 0,
            });
        }
    }
    targets
}

fn look_on(targets: &[Target], begun: Instant, stop: &AtomicBool, keep: &Mutex<Vec<Sample>>) {
    let (mut before, mut then) = (count(targets), Instant::now());
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(EVERY);
        let (now, at) = (count(targets), Instant::now());
        let mut sample = between(&before, &now, (at - then).as_secs_f64());
        sample.at = (at - begun).as_secs_f64();
        for (target, disk) in targets.iter().zip(&mut sample.disks) {
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

fn count(targets: &[Target]) -> Counters {
    let disks = targets
        .iter()
        .map(|t| t.device.as_deref().map_or((0, 0, 0), device_counters));
    let links = targets
        .iter()
        .filter(|t| t.first_of_node)
        .map(|t| link_counters(t.pid));
    Counters {
        disks: disks.collect(),
        links: links.collect(),
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
    let all = now.cpu.all.saturating_sub(before.cpu.all).max(1) as f64;
    let share = |a: u64, b: u64| b.saturating_sub(a) as f64 / all;
    Sample {
        at: 0.0,
        disks: disks.collect(),
        links_mbs: links.collect(),
        cpu: share(before.cpu.busy, now.cpu.busy),
        cpu_low: share(before.cpu.low, now.cpu.low),
    }
}

/// Sectors read and written, and milliseconds busy.
fn device_counters(device: &str) -> (u64, u64, u64) {
    let text = std::fs::read_to_string(format!("/sys/block/{device}/stat")).unwrap_or_default();
    let field = |at: usize| {
        let field = text.split_whitespace().nth(at);
        field.and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    (field(2), field(6), field(9))
}

/// Bytes received and sent by the link of the host on which `pid` runs.
fn link_counters(pid: u32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("eth0:"));
    let field = |at: usize| {
        let field = line.and_then(|line| line.split_whitespace().nth(at));
        field.and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    (field(0), field(8))
}

/// Time of the processors, in ticks. The kernel's work for programs of a lower priority counts as
/// ordinary: it is not told apart.
fn cpu_counters() -> CpuTicks {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|n| n.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let all: u64 = ticks.iter().take(8).sum();
    let low = ticks.get(1).copied().unwrap_or(0);
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    CpuTicks {
        busy: all.saturating_sub(idle + low),
        low,
        all,
    }
}

/// Processor seconds so far of every host's processes, in the order of the description. The
/// kernel's own threads are nobody's.
pub(super) fn cpu_by_host(described: &Description) -> Vec<f64> {
    let spaces: Vec<Option<u64>> = described
        .hosts()
        .map(|(_, host)| {
            let path = format!("/run/netns/{}", net::namespace(&described.name, &host.name));
            std::fs::metadata(path).ok().map(|m| m.st_ino())
        })
        .collect();
    let mut seconds = vec![0.0; spaces.len()];
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids {
        let link = std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap_or_default();
        let text = link.to_string_lossy();
        let space = text.strip_prefix("net:[").and_then(|t| t.strip_suffix(']'));
        let space: Option<u64> = space.and_then(|t| t.parse().ok());
        let host = spaces.iter().position(|s| s.is_some() && *s == space);
        if let (Some(host), Ok(usage)) = (host, procfs::usage(pid)) {
            seconds[host] += usage.user_s + usage.system_s;
        }
    }
    seconds
}

/// Replicas being written: data files in the `rbw` directories of a volume.
fn writers(current: &Path) -> usize {
    let names = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    let pools = names(current);
    let rbw = pools
        .iter()
        .flat_map(|pool| names(&current.join(pool).join("current/rbw")));
    rbw.filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("blk_") && !name.ends_with(".meta")
    })
    .count()
}

/// Streams to and from the node: established connections of its data port. Clients of a testbed keep
/// none for later.
fn streams(pid: u32, port: u16) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    text.lines().filter(|line| is_stream(line, port)).count()
}

/// A line of `/proc/net/tcp`: established, at `port`.
fn is_stream(line: &str, port: u16) -> bool {
    const ESTABLISHED: &str = "01";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, local, _, state, ..] = fields.as_slice() else {
        return false;
    };
    let own = local.split_once(':').map(|(_, port)| port);
    let own = own.and_then(|port| u16::from_str_radix(port, 16).ok());
    *state == ESTABLISHED && own == Some(port)
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

    #[test]
    fn a_connection_of_the_data_port_is_a_stream() {
        let line = |state: &str, from: &str, to: &str| {
            format!("   1: 0100007F:{from} 0100007F:{to} {state} 00000000:00000000 01:00000014")
        };
        assert!(is_stream(&line("01", "268A", "9C40"), 0x268A));
        assert!(!is_stream(&line("0A", "268A", "9C40"), 0x268A), "listening");
        assert!(!is_stream(&line("06", "268A", "9C40"), 0x268A), "closed");
        assert!(
            !is_stream(&line("01", "9C40", "268A"), 0x268A),
            "the client's end"
        );
        assert!(!is_stream("sl local_address", 1));
    }
}
