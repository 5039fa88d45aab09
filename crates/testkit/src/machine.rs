//! The machine below a benchmark: its processors, its page cache, the device under a directory.

use crate::error::{Result, TestkitError};
use hayloft_io::{ALIGNMENT, AlignedBuf};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// CPU seconds of all processors since boot: everything but idle and waiting for disks.
///
/// # Errors
/// [`TestkitError::File`] when `/proc/stat` cannot be read.
pub fn busy_seconds() -> Result<f64> {
    let path = "/proc/stat";
    let stat = std::fs::read_to_string(path).map_err(TestkitError::file("reading", path))?;
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = first
        .split_whitespace()
        .skip(1)
        .filter_map(|n| n.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq
    Ok([0, 1, 2, 5, 6]
        .iter()
        .filter_map(|&i| ticks.get(i))
        .sum::<f64>()
        / 100.0)
}

/// MiB that a row must move, all rounds together, to tell processor time by: the kernel counts it
/// in ticks of 10 ms.
pub const CPU_MIB: f64 = 4096.0;

/// Two rounds that differ by at most this share are alike.
const ALIKE: f64 = 0.05;

/// Whether the last two of these rounds were alike, within 5 %: what works has warmed up.
#[must_use]
pub fn is_warm(paces: &[f64]) -> bool {
    match paces {
        [.., before, last] => (last - before).abs() <= ALIKE * before.abs().max(last.abs()),
        _ => false,
    }
}

/// Writes all dirty pages of the file system under `dir` to its device.
///
/// # Errors
/// When the device fails.
pub fn settle(dir: &Path) -> Result<()> {
    let file = std::fs::File::open(dir).map_err(TestkitError::file("opening", dir))?;
    rustix::fs::syncfs(&file)
        .map_err(|e| TestkitError::file("writing dirty pages of", dir)(e.into()))
}

/// Writes dirty pages and, as root, empties the page cache; whether that was possible.
#[must_use]
pub fn drop_caches() -> bool {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// Reads files, and those below directories, so that they are in the page cache. What cannot be
/// read is left out.
pub fn warm_files(paths: &[PathBuf]) {
    for path in paths {
        if let Ok(entries) = std::fs::read_dir(path) {
            let below = entries.flatten().map(|entry| entry.path());
            // A link may lead back.
            warm_files(&below.filter(|path| !path.is_symlink()).collect::<Vec<_>>());
        } else if let Ok(mut file) = std::fs::File::open(path) {
            let _ = std::io::copy(&mut file, &mut std::io::sink());
        }
    }
}

/// The machine is at rest when it was busy for less than this share of a processor, for so long.
const REST: (f64, Duration) = (0.1, Duration::from_millis(300));
/// How long rest is waited for: where others never rest, this would say nothing about the nodes.
const REST_LIMIT: Duration = Duration::from_secs(5);

/// Waits until the processors are idle, at most five seconds: what a node does for itself after a
/// load (commit rounds, compilers and collectors of a Java runtime) is not part of the next one.
///
/// # Errors
/// When the machine does not tell.
pub fn await_rest() -> Result<()> {
    let began = Instant::now();
    let (share, window) = REST;
    while began.elapsed() < REST_LIMIT {
        let before = busy_seconds()?;
        std::thread::sleep(window);
        if busy_seconds()? - before < share * window.as_secs_f64() {
            break;
        }
    }
    Ok(())
}

/// Bytes of a piece of memory that is warmed.
const WARM_PIECE: usize = 64 << 20;

/// Takes memory from the system, touches it and gives it back. A virtual machine may have returned
/// free pages to its host, and getting one back costs more than anything measured here; the peer
/// that is measured next shall not pay for that. Huge pages are taken: it is the large free pieces
/// that are returned, page caches and shared memory are made of them, and small pages would come
/// from what is left of others. At most half of what is free is taken.
pub fn warm_memory(bytes: usize) {
    let system = rustix::system::sysinfo();
    let free = system.freeram.saturating_mul(system.mem_unit.into());
    let bytes = bytes.min(usize::try_from(free / 2).unwrap_or(0));
    let pieces = bytes.div_ceil(WARM_PIECE);
    let touched: Vec<AlignedBuf> = (0..pieces)
        .map(|_| {
            let mut piece = AlignedBuf::unpooled(WARM_PIECE);
            for page in piece.as_mut_capacity().chunks_mut(ALIGNMENT) {
                page[0] = 1;
            }
            piece
        })
        .collect();
    std::hint::black_box(&touched);
}

/// The whole block device under a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `major`, `minor`.
    pub number: (u32, u32),
    /// Kernel name, such as `vda`.
    pub name: String,
}

impl Device {
    /// The device under `dir`: the disk, not the partition.
    ///
    /// # Errors
    /// When the file system has none (tmpfs, network).
    pub fn under(dir: &Path) -> Result<Self> {
        let meta = std::fs::metadata(dir).map_err(TestkitError::file("looking at", dir))?;
        let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let mut path = link
            .canonicalize()
            .map_err(TestkitError::file("looking for the device of", dir))?;
        if path.join("partition").exists() {
            path.pop();
        }
        let text = std::fs::read_to_string(path.join("dev")).unwrap_or_default();
        let number = text
            .trim()
            .split_once(':')
            .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let name = path.file_name().and_then(|name| name.to_str());
        Ok(Self {
            number: number.unwrap_or((major, minor)),
            name: name.unwrap_or("?").to_owned(),
        })
    }

    fn queue(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/{}/queue/{file}", self.name))
    }

    /// Read-ahead of the device, KiB; `None` when it does not say.
    #[must_use]
    pub fn readahead_kib(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.queue("read_ahead_kb")).ok()?;
        text.trim().parse().ok()
    }

    /// Raises the read-ahead to at least `kib` as long as the guard lives: Hadoop's documentation
    /// advises it, and it concerns every peer.
    #[must_use]
    pub fn raise_readahead(&self, kib: u64) -> ReadaheadGuard {
        let before = self.readahead_kib().filter(|&before| before < kib);
        let path = self.queue("read_ahead_kb");
        if before.is_some() {
            let _ = std::fs::write(&path, kib.to_string());
        }
        ReadaheadGuard { path, before }
    }
}

/// Restores a device's read-ahead.
#[derive(Debug)]
pub struct ReadaheadGuard {
    path: PathBuf,
    before: Option<u64>,
}

impl Drop for ReadaheadGuard {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = std::fs::write(&self.path, before.to_string());
        }
    }
}

/// The machine in general terms: nothing that names it.
#[must_use]
pub fn describe() -> BTreeMap<String, String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = read("/proc/meminfo");
    let kib: u64 = memory
        .lines()
        .find(|line| line.starts_with("MemTotal:"))
        .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0);
    let kernel = read("/proc/sys/kernel/osrelease");
    let version = kernel.trim().split('-').next().unwrap_or_default();
    let congestion = crate::congestion::present();
    [
        ("cores", cores.to_string()),
        ("memory", format!("{} GiB", kib >> 20)),
        ("kernel", format!("Linux {version}")),
        (
            crate::congestion::CONDITION,
            congestion.unwrap_or_else(|| "unknown".into()),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes() {
        let before = busy_seconds().expect("/proc/stat");
        let mut sum = 0_u64;
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 60 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(busy_seconds().expect("/proc/stat") > before);
    }

    #[test]
    fn warm_files_are_in_the_page_cache() {
        use rustix::fs::Advice;
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        std::fs::create_dir(dir.path().join("below")).expect("made");
        let path = dir.path().join("below/file");
        std::fs::write(&path, [7_u8; 9000]).expect("written");
        let file = std::fs::File::open(&path).expect("opened");
        let cached = || {
            let mut byte = [0];
            let slices = &mut [std::io::IoSliceMut::new(&mut byte)];
            rustix::io::preadv2(&file, slices, 8999, rustix::io::ReadWriteFlags::NOWAIT) == Ok(1)
        };
        file.sync_all().expect("synced");
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).expect("advised");
        if cached() {
            eprintln!("skipped: this file system keeps what it is told to drop");
            return;
        }
        let missing = dir.path().join("missing");
        warm_files(&[missing, dir.path().to_owned()]);
        assert!(cached());
    }

    #[test]
    fn knows_the_machine() {
        let machine = describe();
        assert!(machine["kernel"].starts_with("Linux "), "{machine:?}");
        assert_ne!(machine["cores"], "0");
    }
}
