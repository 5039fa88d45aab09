//! What is left of what was acknowledged: what the NameNode counts on, and what can be read.

use super::writers::{Acked, BLOCK, Closed, Log};
use crate::driver::Driver;
use crate::error::{Result, TestkitError};
use crate::files::BlockOnNode;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Files that are looked at at the same time.
const READERS: usize = 4;
/// How long a log may take to be closed by lease recovery. What takes longer has lost its block.
const RECOVERY: Duration = Duration::from_secs(30);

/// Of a client's error, characters.
const WORDS_MAX: usize = 160;

/// What became of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftBehind {
    /// It can be read, and every byte is what was written.
    Whole,
    /// The NameNode counts on it, and it cannot be read, or has other bytes. Why.
    Unreadable(String),
    /// The NameNode does not count on it: it has no replica, or calls it corrupt. Why.
    Gone(String),
}

/// A closed file afterwards.
#[derive(Clone, Debug)]
pub struct ClosedLeft {
    /// Which.
    pub file: Closed,
    /// How long before the event it was closed.
    pub age: Duration,
    /// What became of it.
    pub left: LeftBehind,
    /// Its block.
    pub block: Option<i64>,
}

/// A log afterwards.
#[derive(Clone, Debug)]
pub struct LogLeft {
    /// Which.
    pub log: Log,
    /// What became of what the NameNode counts on.
    pub left: LeftBehind,
    /// Length up to which it can be read and is what was written.
    pub kept: u64,
}

/// One node's round afterwards.
#[derive(Clone, Debug)]
pub struct Findings {
    /// When the event came.
    pub event: Instant,
    /// Closed files.
    pub closed: Vec<ClosedLeft>,
    /// Logs.
    pub logs: Vec<LogLeft>,
}

/// A replica that cannot be read is an error soon: there is no other.
fn client() -> Value {
    json!({
        "dfs.client.retry.window.base": 10,
        "dfs.client.max.block.acquire.failures": 1,
        "dfs.client.socket-timeout": 10_000,
    })
}

/// Looks at all that was acknowledged before `event`.
///
/// # Errors
/// When the driver is gone, or the NameNode does not answer.
pub fn look(fs: &Driver, acked: Acked, event: Instant) -> Result<Findings> {
    std::thread::scope(|scope| {
        let logs = acked.logs;
        let recovered = scope.spawn(move || {
            let looked = logs.into_iter().map(|log| look_at_log(fs, log));
            looked.collect::<Result<Vec<_>>>()
        });
        let closed = look_at_closed(fs, acked.closed, event)?;
        let logs = recovered
            .join()
            .map_err(|_| TestkitError::Talk("a reader of logs panicked".into()))??;
        Ok(Findings {
            event,
            closed,
            logs,
        })
    })
}

fn look_at_closed(fs: &Driver, files: Vec<Closed>, event: Instant) -> Result<Vec<ClosedLeft>> {
    let next = AtomicUsize::new(0);
    let read = || -> Result<Vec<ClosedLeft>> {
        let mut seen = Vec::new();
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (block, left) = what_is_left(fs, file)?;
            seen.push(ClosedLeft {
                age: event.saturating_duration_since(file.at),
                left,
                block,
                file: file.clone(),
            });
        }
        Ok(seen)
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
        let mut all = Vec::new();
        for reader in readers {
            let seen = reader.join();
            all.extend(seen.map_err(|_| TestkitError::Talk("a reader panicked".into()))??);
        }
        Ok(all)
    })
}

/// Whether the NameNode counts on a replica of the block; why not, if it does not.
fn counted_on(block: &BlockOnNode) -> std::result::Result<(), String> {
    let id = block.id;
    if block.corrupt {
        return Err(format!("the NameNode calls blk_{id} corrupt"));
    }
    if block.nodes.is_empty() {
        return Err(format!("the NameNode has no replica of blk_{id}"));
    }
    Ok(())
}

fn what_is_left(fs: &Driver, file: &Closed) -> Result<(Option<i64>, LeftBehind)> {
    debug_assert!(file.bytes <= BLOCK, "one block");
    // What the NameNode counts on, it says before anything is read: a read that fails is reported.
    let blocks = fs.blocks(&file.path)?;
    let block = blocks.first().map(|block| block.id);
    for one in &blocks {
        if let Err(why) = counted_on(one) {
            return Ok((block, LeftBehind::Gone(why)));
        }
    }
    let read = fs.check_with(
        &file.path,
        file.bytes,
        file.seed,
        json!({ "conf": client() }),
    );
    match read {
        Ok(()) => Ok((block, LeftBehind::Whole)),
        Err(error @ (TestkitError::Client { .. } | TestkitError::Expectation(_))) => {
            Ok((block, LeftBehind::Unreadable(first_line(&error))))
        }
        Err(error) => Err(error),
    }
}

impl Findings {
    /// Adds to what is lost what of it is on the disk, as `files` tells.
    pub fn explain(&mut self, files: impl Fn(i64) -> String) {
        for closed in &mut self.closed {
            if let (LeftBehind::Unreadable(why) | LeftBehind::Gone(why), Some(block)) =
                (&mut closed.left, closed.block)
            {
                *why = format!("{}: {why}", files(block));
            }
        }
    }
}

fn look_at_log(fs: &Driver, log: Log) -> Result<LogLeft> {
    let gone = |log, why: &TestkitError| {
        Ok(LogLeft {
            log,
            left: LeftBehind::Gone(first_line(why)),
            kept: 0,
        })
    };
    match fs.recover_lease(&log.path, RECOVERY) {
        Ok(()) => {}
        Err(error @ (TestkitError::Timeout { .. } | TestkitError::Client { .. })) => {
            return gone(log, &error);
        }
        Err(error) => return Err(error),
    }
    let (mut kept, mut left) = (0, LeftBehind::Whole);
    let blocks = fs.blocks(&log.path)?;
    if blocks.is_empty() {
        left = LeftBehind::Gone("lease recovery left no block".into());
    }
    for block in blocks {
        if let Err(why) = counted_on(&block) {
            left = LeftBehind::Gone(why);
            break;
        }
        let request = json!({
            "path": log.path, "seed": log.seed, "offset": kept, "length": block.length,
            "conf": client(),
        });
        let (good, problem) = match fs.call("read", request) {
            Ok(read) => good_part(&read, kept, block.length),
            Err(error @ TestkitError::Client { .. }) => {
                let good = readable(fs, &log, kept, block.length)?;
                (good, Some(first_line(&error)))
            }
            Err(error) => return Err(error),
        };
        kept += good;
        if let Some(problem) = problem {
            left = LeftBehind::Unreadable(format!("{}: {problem}", log.path));
            break;
        }
    }
    Ok(LogLeft { log, left, kept })
}

/// How many of the bytes from `from` on can be read, of a block that cannot be read as a whole;
/// to within a record.
fn readable(fs: &Driver, log: &Log, from: u64, length: u64) -> Result<u64> {
    let (mut good, mut bad) = (0, length);
    while bad - good > log.record {
        let half = u64::midpoint(good, bad);
        let request = json!({
            "path": log.path, "seed": log.seed, "offset": from, "length": half, "pread": true,
            "conf": client(),
        });
        match fs.call("read", request) {
            Ok(read) if good_part(&read, from, half) == (half, None) => good = half,
            Ok(_) | Err(TestkitError::Client { .. }) => bad = half,
            Err(error) => return Err(error),
        }
    }
    Ok(good)
}

/// How many bytes of a block, read from file offset `from` on, are right, and what is wrong then.
fn good_part(read: &Value, from: u64, length: u64) -> (u64, Option<String>) {
    let bytes = read["bytes"].as_u64().unwrap_or_default();
    match read["mismatch"].as_u64() {
        Some(at) => (
            at.saturating_sub(from).min(length),
            Some(format!("another byte at {at}")),
        ),
        None if bytes < length => (bytes, Some(format!("{bytes} bytes of {length}"))),
        None => (length, None),
    }
}

fn first_line(error: &TestkitError) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_good_part_ends_before_the_first_wrong_byte() {
        let part = |bytes: u64, mismatch: i64| {
            let read = json!({"bytes": bytes, "mismatch": mismatch});
            let (good, problem) = good_part(&read, 100, 50);
            (good, problem.is_some())
        };
        assert_eq!(part(50, -1), (50, false));
        assert_eq!(part(20, -1), (20, true), "too short");
        assert_eq!(part(50, 110), (10, true), "offsets are the file's");
    }
}
