//! Stock clients that write until the event, and what was acknowledged to them when.
//!
//! An acknowledgement is what the client's own call returned: `close`, `hflush`, `hsync`. Its time
//! is when the lab heard of it, a moment later: what is called 15 s old is at least that old.

use crate::driver::Driver;
use crate::error::{Result, TestkitError};
use crate::pattern;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{Scope, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

/// Bytes of each hflush: a line of a log.
const FLUSH_RECORD: u64 = 1024;
const FLUSH_PAUSE_MS: u64 = 50;
/// Bytes of each hsync: no whole number of chunks or pages.
const SYNC_RECORD: u64 = 10_000;
const SYNC_PAUSE_MS: u64 = 100;
/// How often the lab asks a log how far it is.
const LOOK: Duration = Duration::from_millis(100);
/// How long a client may take to hear of the end, in looks.
const LAST_LOOKS: u32 = 1200;
/// Largest file, bytes; it is one block.
pub const BLOCK: u64 = 16 << 20;

/// Whether clients ask for syncs. One sync commits the whole log of a file system: it takes along
/// what others did not sync, so there are rounds without any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// No client asks for one.
    None,
    /// Some hsync, some close with `SYNC_BLOCK`, the others ask for nothing.
    Some,
    /// All of them: hsync, or close with `SYNC_BLOCK`.
    All,
}

/// How far a round is, for its writers.
#[derive(Debug, Default)]
pub struct WriterPhase(AtomicU8);

impl WriterPhase {
    const HURRY: u8 = 1;
    const OVER: u8 = 2;

    /// From now on no client pauses between two files: the event shall come in the midst of closes.
    pub fn hurry(&self) {
        self.0.store(Self::HURRY, Ordering::Release);
    }

    /// The event was.
    pub fn end(&self) {
        self.0.store(Self::OVER, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::OVER
    }

    /// Waits between two files, unless there is a hurry.
    fn pause(&self, pause: Duration) {
        let start = Instant::now();
        while start.elapsed() < pause && self.0.load(Ordering::Acquire) == 0 {
            sleep((pause - start.elapsed().min(pause)).min(LOOK / 2));
        }
    }
}

/// A closed file of one block.
#[derive(Clone, Debug)]
pub struct Closed {
    /// Its path.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Seed of its pattern.
    pub seed: u64,
    /// When the close had returned.
    pub at: Instant,
    /// Whether it was created with `SYNC_BLOCK`.
    pub synced: bool,
}

/// A file that grew record by record, each of them flushed, until the event.
#[derive(Clone, Debug)]
pub struct Log {
    /// Its path.
    pub path: String,
    /// Seed of its pattern.
    pub seed: u64,
    /// Bytes of a record.
    pub record: u64,
    /// Whether records were hsynced and not hflushed.
    pub synced: bool,
    /// Acknowledged length by time.
    pub points: Vec<(Instant, u64)>,
    /// Acknowledged length at last.
    pub acked: u64,
}

impl Log {
    /// The length that was acknowledged at least `age` before `event`.
    #[must_use]
    pub fn acked_before(&self, event: Instant, age: Duration) -> u64 {
        let old = |(at, _): &&(Instant, u64)| event.saturating_duration_since(*at) >= age;
        let points = self.points.iter().filter(old);
        points.map(|(_, length)| *length).max().unwrap_or(0)
    }
}

/// All that was acknowledged by one node in a round.
#[derive(Clone, Debug, Default)]
pub struct Acked {
    /// Closed files.
    pub closed: Vec<Closed>,
    /// Logs with at least one acknowledged record.
    pub logs: Vec<Log>,
}

/// Reproducible numbers.
#[derive(Clone, Copy, Debug)]
pub struct Dice {
    seed: u64,
    thrown: u64,
}

impl Dice {
    /// Numbers of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, thrown: 0 }
    }

    /// The next number, from 0 to below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        pattern::fill(self.seed, self.thrown * 8, &mut bytes);
        self.thrown += 1;
        u64::from_le_bytes(bytes) % bound.max(1)
    }
}

/// What all writers of one node share.
#[derive(Clone, Copy)]
struct Desk<'a> {
    fs: &'a Driver,
    dir: &'a str,
    phase: &'a WriterPhase,
    seed: u64,
}

/// A writer of closed files.
struct Files {
    name: &'static str,
    /// Smallest and largest, bytes.
    bytes: (u64, u64),
    pause: Duration,
    synced: bool,
}

/// A dead node is an error soon, and no other is looked for: there is none.
fn client() -> Value {
    json!({
        "dfs.client.block.write.retries": 0,
        "dfs.client.block.write.locateFollowingBlock.retries": 3,
        "dfs.client.block.write.replace-datanode-on-failure.enable": false,
        "dfs.client.socket-timeout": 5000,
    })
}

/// Writes below `dir` until `phase` ends; errors before that end a file, not the writer.
///
/// # Errors
/// When the driver is gone.
pub fn write(
    fs: &Driver,
    dir: &str,
    syncs: Syncs,
    seed: u64,
    phase: &WriterPhase,
) -> Result<Acked> {
    let desk = Desk {
        fs,
        dir,
        phase,
        seed,
    };
    let small = |name, synced| Files {
        name,
        bytes: (1, 200_000),
        pause: Duration::from_millis(250),
        synced,
    };
    let bulk = |synced| Files {
        name: if synced { "sync-bulk" } else { "bulk" },
        bytes: (1 << 20, BLOCK),
        // Where all is synced, nearly always some of it is on its way.
        pause: Duration::from_millis(if syncs == Syncs::All { 20 } else { 1500 }),
        synced,
    };
    std::thread::scope(|scope| {
        let mut files = Vec::new();
        let mut logs = Vec::new();
        if syncs != Syncs::All {
            files.push(desk.closing(scope, small("small", false)));
            files.push(desk.closing(scope, small("little", false)));
            files.push(desk.closing(scope, bulk(false)));
            logs.push(desk.logging(scope, false));
        }
        if syncs != Syncs::None {
            files.push(desk.closing(scope, small("sync", true)));
            files.push(desk.closing(scope, bulk(true)));
            logs.push(desk.logging(scope, true));
        }
        let mut acked = Acked::default();
        for writer in files {
            acked.closed.extend(joined(writer)?);
        }
        for writer in logs {
            acked.logs.extend(joined(writer)?);
        }
        Ok(acked)
    })
}

fn joined<T>(writer: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    writer
        .join()
        .map_err(|_| TestkitError::Talk("a writer panicked".into()))?
}

impl<'a> Desk<'a> {
    fn is_over(&self) -> bool {
        self.phase.is_over()
    }

    fn closing<'s>(
        self,
        scope: &'s Scope<'s, '_>,
        files: Files,
    ) -> ScopedJoinHandle<'s, Result<Vec<Closed>>>
    where
        'a: 's,
    {
        scope.spawn(move || self.close_files(&files))
    }

    fn logging<'s>(
        self,
        scope: &'s Scope<'s, '_>,
        synced: bool,
    ) -> ScopedJoinHandle<'s, Result<Vec<Log>>>
    where
        'a: 's,
    {
        scope.spawn(move || self.write_logs(synced))
    }

    fn close_files(&self, files: &Files) -> Result<Vec<Closed>> {
        let named = u64::from(files.name.as_bytes()[0]) << 32 | (files.name.len() as u64) << 40;
        let mut dice = Dice::new(self.seed ^ named);
        let mut closed = Vec::new();
        for number in 0_u64.. {
            if self.is_over() {
                break;
            }
            let (least, most) = files.bytes;
            let bytes = least + dice.below(most - least);
            let path = format!("{}/{}-{number}", self.dir, files.name);
            let seed = (self.seed ^ named).wrapping_add(number);
            let more = json!({"conf": client(), "blockSize": BLOCK, "syncBlock": files.synced});
            match self.fs.put(&path, bytes, seed, more) {
                Ok(()) => closed.push(Closed {
                    path,
                    bytes,
                    seed,
                    at: Instant::now(),
                    synced: files.synced,
                }),
                Err(TestkitError::Client { .. }) => {}
                Err(error) => return Err(error),
            }
            self.phase.pause(files.pause);
        }
        Ok(closed)
    }

    fn write_logs(&self, synced: bool) -> Result<Vec<Log>> {
        let mut logs = Vec::new();
        let kind = if synced { "hsync" } else { "hflush" };
        for number in 0_u64.. {
            if self.is_over() {
                break;
            }
            let log = Log {
                path: format!("{}/{kind}-log-{number}", self.dir),
                seed: self.seed.wrapping_add(number + 1000),
                record: if synced { SYNC_RECORD } else { FLUSH_RECORD },
                synced,
                points: Vec::new(),
                acked: 0,
            };
            match self.write_log(log) {
                Ok(log) if log.acked > 0 => logs.push(log),
                Ok(_) | Err(TestkitError::Client { .. }) => sleep(LOOK),
                Err(error) => return Err(error),
            }
        }
        Ok(logs)
    }

    /// Writes one log until an error or the end, and leaves it open as a dead client does.
    fn write_log(&self, mut log: Log) -> Result<Log> {
        // A hsync syncs the block that it is in; the blocks before it are synced if they were
        // asked to be. So either all is one block, or each is.
        let blocks = log.synced && self.seed % 2 == 1;
        let block_bytes = if blocks { 1 << 20 } else { BLOCK * 4 };
        let handle = log.path.clone();
        let more = json!({"conf": client(), "blockSize": block_bytes, "syncBlock": blocks});
        self.fs.create(&handle, &log.path, log.seed, more)?;
        let pause = if log.synced {
            SYNC_PAUSE_MS
        } else {
            FLUSH_PAUSE_MS
        };
        let writing = self.fs.begin(
            "loop",
            json!({
                "handle": handle, "chunk": log.record, "sync": log.synced, "pauseMillis": pause,
            }),
        )?;
        let mut last_looks = 0;
        loop {
            let end = writing.wait_briefly(LOOK)?;
            if self.is_over() {
                self.fs.handle("stopLoop", &handle)?;
                last_looks += 1;
            }
            let seen = match &end {
                Some(end) => end.clone(),
                None => self.fs.handle("progress", &handle)?,
            };
            let acked = seen["acked"].as_u64().unwrap_or_default();
            if acked > log.acked {
                log.points.push((Instant::now(), acked));
                log.acked = acked;
            }
            if end.is_some() {
                break;
            }
            if last_looks > LAST_LOOKS {
                return Err(TestkitError::Talk(format!("{}: does not end", log.path)));
            }
        }
        // It cuts streams that are cut already.
        let _ = self.fs.handle("abandon", &handle);
        Ok(log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_depend_on_their_seed_only_and_keep_below_their_bound() {
        let throw = |seed| {
            let mut dice = Dice::new(seed);
            [dice.below(6), dice.below(1000), dice.below(1)]
        };
        assert_eq!(throw(1), throw(1));
        assert_ne!(throw(1), throw(2));
        let mut dice = Dice::new(3);
        assert!((0..100).all(|_| dice.below(6) < 6));
    }

    #[test]
    fn old_bytes_are_those_acknowledged_long_before_the_event() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let log = Log {
            path: String::new(),
            seed: 0,
            record: 10,
            synced: false,
            points: vec![(at(1), 10), (at(2), 20), (at(20), 200)],
            acked: 200,
        };
        let before = |age| log.acked_before(at(20), Duration::from_secs(age));
        assert_eq!([before(0), before(18), before(19)], [200, 20, 10]);
        assert_eq!(before(30), 0);
    }
}
