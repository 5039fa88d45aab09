//! What a device was asked for: the kernel's `block:block_rq_issue` tracepoint, in a trace instance
//! of our own so that no other tracing is disturbed.

use hayloft_testkit::error::{Result, TestkitError};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

/// Memory of the trace on each processor, KiB: a request takes about 80 bytes.
const BUFFER_KIB: u32 = 16 << 10;

/// Requests of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// How many.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Stretches of requests that follow each other on the device without a gap, whatever happens
    /// in the other direction.
    pub runs: u64,
}

/// What a device was asked for during a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Reads.
    pub reads: Requests,
    /// Writes, without flushes and discards.
    pub writes: Requests,
    /// Times the device had to go elsewhere: requests, of either direction, that do not begin where
    /// the one before ended.
    pub seeks: u64,
    /// Events that did not fit into the trace's memory.
    pub lost: u64,
}

/// A tracer of one device. Dropping it removes its trace instance.
#[derive(Debug)]
pub struct Tracer {
    instance: PathBuf,
}

impl Tracer {
    /// Prepares tracing of the block device `major:minor`.
    ///
    /// # Errors
    /// When the kernel's tracing cannot be used (it needs root); the message says why.
    pub fn new((major, minor): (u32, u32)) -> Result<Self> {
        let root = tracing_root()?;
        let instance = root
            .join("instances")
            .join(format!("hayloft-{}", std::process::id()));
        std::fs::create_dir(&instance).map_err(TestkitError::file("creating", &instance))?;
        let tracer = Self { instance };
        tracer.set("buffer_size_kb", &BUFFER_KIB.to_string())?;
        // The kernel's internal device number: 20 bits for the minor one.
        let filter = format!("dev == {}", u64::from(major) << 20 | u64::from(minor));
        tracer.set("events/block/block_rq_issue/filter", &filter)?;
        tracer.set("tracing_on", "0")?;
        tracer.set("events/block/block_rq_issue/enable", "1")?;
        Ok(tracer)
    }

    /// Forgets what was traced and begins.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn begin(&self) -> Result<()> {
        self.set("trace", "")?;
        self.set("tracing_on", "1")
    }

    /// Ends tracing; what was seen since [`Tracer::begin`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn end(&self) -> Result<Traffic> {
        self.set("tracing_on", "0")?;
        let path = self.instance.join("trace");
        let file = std::fs::File::open(&path).map_err(TestkitError::file("opening", &path))?;
        let mut count = Count::default();
        for line in BufReader::new(file).lines() {
            count.line(&line.map_err(TestkitError::file("reading", &path))?);
        }
        count.traffic.lost = self.lost();
        Ok(count.traffic)
    }

    fn lost(&self) -> u64 {
        let cpus = std::fs::read_dir(self.instance.join("per_cpu"));
        let overrun = |dir: &Path| {
            let stats = std::fs::read_to_string(dir.join("stats")).unwrap_or_default();
            let line = stats.lines().find_map(|line| line.strip_prefix("overrun:"));
            line.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        cpus.into_iter()
            .flatten()
            .flatten()
            .map(|entry| overrun(&entry.path()))
            .sum()
    }

    fn set(&self, name: &str, value: &str) -> Result<()> {
        let path = self.instance.join(name);
        std::fs::write(&path, value).map_err(TestkitError::file("writing", path))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.set("events/block/block_rq_issue/enable", "0");
        let _ = std::fs::remove_dir(&self.instance);
    }
}

/// Where tracefs is mounted; mounts it at its usual place when it is not.
fn tracing_root() -> Result<PathBuf> {
    let usual = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let found = || {
        usual
            .iter()
            .map(PathBuf::from)
            .find(|dir| dir.join("instances").is_dir())
    };
    if let Some(dir) = found() {
        return Ok(dir);
    }
    let flags = rustix::mount::MountFlags::empty();
    let mounted = rustix::mount::mount("tracefs", usual[0], "tracefs", flags, None);
    found().ok_or_else(|| TestkitError::Missing {
        what: format!("the kernel's tracing is not at {} ({mounted:?})", usual[0]),
        todo: "run as root to see device requests".into(),
    })
}

/// Requests counted line by line.
#[derive(Default)]
struct Count {
    traffic: Traffic,
    /// Sectors at which the last read and the last write ended.
    ends: [Option<u64>; 2],
    /// Sector at which the last request ended.
    end: Option<u64>,
}

impl Count {
    /// `... block_rq_issue: 254,0 WS 1048576 () 12345 + 2048 none,0,0 [comm]`
    fn line(&mut self, line: &str) {
        let Some((_, event)) = line.split_once("block_rq_issue: ") else {
            return;
        };
        let mut words = event.split_whitespace();
        let (Some(_device), Some(kind)) = (words.next(), words.next()) else {
            return;
        };
        let numbers = event.split_once(") ").map_or("", |(_, rest)| rest);
        let mut numbers = numbers.split_whitespace();
        let sector: Option<u64> = numbers.next().and_then(|n| n.parse().ok());
        let sectors: Option<u64> = numbers.nth(1).and_then(|n| n.parse().ok());
        let (Some(sector), Some(sectors)) = (sector, sectors) else {
            return;
        };
        // "FF" is a flush, "D" a discard; "FWFS" is a write with a flush before it.
        let write = kind.trim_start_matches('F').starts_with('W');
        let read = kind.starts_with('R');
        if sectors == 0 || !(read || write) {
            return;
        }
        let side = if read {
            &mut self.traffic.reads
        } else {
            &mut self.traffic.writes
        };
        side.count += 1;
        side.bytes += sectors * 512;
        let end = &mut self.ends[usize::from(write)];
        if *end != Some(sector) {
            side.runs += 1;
        }
        if self.end != Some(sector) {
            self.traffic.seeks += 1;
        }
        *end = Some(sector + sectors);
        self.end = *end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_runs_by_direction_and_seeks_over_both() {
        let mut count = Count::default();
        for line in [
            "# tracer: nop",
            "  kworker/1:1H-123 [001] ..... 1.0: block_rq_issue: 254,0 W 4096 () 100 + 8 none,0,0 \
                [kworker/1:1H]",
            "  java-9 [001] ..... 1.1: block_rq_issue: 254,0 WS 4096 () 108 + 8 be,0,4 [java]",
            "  java-9 [001] ..... 1.2: block_rq_issue: 254,0 RA 8192 () 500 + 16 none,0,0 [java]",
            "  a-9 [001] ..... 1.3: block_rq_issue: 254,0 WFS 4096 () 116 + 8 none,0,0 [a]",
            "  a-9 [001] ..... 1.3: block_rq_issue: 254,0 FF 0 () 0 + 0 none,0,0 [a]",
            "  a-9 [001] ..... 1.3: block_rq_issue: 254,0 DS 4096 () 900 + 8 none,0,0 [a]",
        ] {
            count.line(line);
        }
        let Traffic {
            reads,
            writes,
            seeks,
            ..
        } = count.traffic;
        assert_eq!((writes.count, writes.bytes, writes.runs), (3, 12288, 1));
        assert_eq!((reads.count, reads.bytes, reads.runs), (1, 8192, 1));
        assert_eq!(seeks, 3, "there, to the read, and back");
    }
}
