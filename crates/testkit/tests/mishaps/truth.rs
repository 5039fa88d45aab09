//! Whether every byte is there or told, and whether the status is so.

use crate::lab::Lab;
use crate::ledger::Written;
use hayloft_testkit::error::{Result, TestkitError, expect};
use hayloft_testkit::hadoop::class;
use hayloft_testkit::suite::seconds;
use hayloft_testkit::wait::{self, Seen};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A reader that meets what has just happened may ask again for so long.
const READABLE_WITHIN: Duration = Duration::from_secs(45);
/// What is lost is told within this time.
const TOLD_WITHIN: Duration = Duration::from_secs(90);
/// How old a status may be, milliseconds.
const FRESH_MS: u64 = 60_000;

/// How one reading ended.
enum Reading {
    Right,
    /// The client's error.
    Failed(String),
}

impl Lab {
    /// Reads a file once. Other bytes than were written are an error, whatever has happened.
    fn read(&self, file: &Written) -> Result<Reading> {
        let patience = json!({ "conf": { "dfs.client.retry.window.base": 100 } });
        match self
            .fs
            .check_with(&file.path, file.bytes, file.seed, patience)
        {
            Ok(()) => Ok(Reading::Right),
            Err(TestkitError::Client { class, message, .. }) => {
                Ok(Reading::Failed(format!("{class}: {message}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a file until that succeeds.
    fn read_in_time(&self, file: &Written) -> Result<Reading> {
        let began = Instant::now();
        loop {
            let read = self.read(file)?;
            if matches!(read, Reading::Right) || began.elapsed() > READABLE_WITHIN {
                return Ok(read);
            }
            std::thread::sleep(seconds(1));
        }
    }

    /// Paths that the NameNode lists as corrupt or missing.
    fn told(&self) -> Result<BTreeSet<String>> {
        let run = self
            .fs
            .tool(class::FSCK, &["/", "-list-corruptfileblocks"])?;
        let paths = run.out.lines().filter(|line| line.starts_with("blk_"));
        let paths = paths.filter_map(|line| line.split_whitespace().last());
        Ok(paths.map(str::to_owned).collect())
    }

    /// Reads all files that are on nodes which run: `away` are addresses of those that do not.
    /// Files that may be lost are forgotten if the NameNode lists them.
    pub fn check_all(&mut self, away: &[String], may_lose: bool) -> Result<()> {
        let mut lost = Vec::new();
        for file in self.ledger.files.clone() {
            if !away.is_empty() && self.is_on(&file, away)? {
                continue;
            }
            match self.read_in_time(&file)? {
                Reading::Right => self.ledger.reads += 1,
                Reading::Failed(why) if may_lose && !file.safe => lost.push((file, why)),
                Reading::Failed(why) => {
                    let told = self.told()?.contains(&file.path);
                    let (_, status) = self.parity(&["status"])?;
                    return Err(TestkitError::Expectation(format!(
                        "{file:?} cannot be read ({why}); told: {told}; status {status}"
                    )));
                }
            }
        }
        for (file, why) in lost {
            wait::until("a lost file told", TOLD_WITHIN, || {
                std::thread::sleep(seconds(1));
                Ok(match self.told()?.contains(&file.path) {
                    true => Seen::Done(()),
                    false => Seen::NotYet(format!("{file:?} is not listed; {why}")),
                })
            })?;
            self.fs.fs(&["-rm", "-skipTrash", &file.path])?;
            self.ledger.forget(&file.path);
            self.ledger.lost += 1;
        }
        Ok(())
    }

    /// Whether the NameNode knows a block of the file on one of these nodes, or on none.
    fn is_on(&self, file: &Written, nodes: &[String]) -> Result<bool> {
        let blocks = self.fs.blocks(&file.path)?;
        let mut blocks = blocks.iter();
        Ok(blocks.any(|block| {
            block.nodes.is_empty() || block.nodes.iter().any(|node| nodes.contains(node))
        }))
    }

    /// What the status says is so: a good exit code, and nothing lost when all can be read.
    pub fn check_status(&self) -> Result<()> {
        wait::until("a status that is so", seconds(30), || {
            let (code, now) = self.parity(&["status"])?;
            let of = |name: &str| now[name].as_u64().unwrap_or(u64::MAX);
            let lacking = of("degraded_bytes").saturating_add(of("lost_bytes"));
            expect(code != Some(0) || lacking == 0, || {
                format!("exit code 0 with something degraded or lost: {now}")
            })?;
            let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
            let now_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
            let old = now_ms.saturating_sub(of("at_ms"));
            expect(code != Some(0) || old <= FRESH_MS, || {
                format!("exit code 0, {old} ms old: {now}")
            })?;
            std::thread::sleep(seconds(1));
            Ok(match of("lost_bytes") {
                0 => Seen::Done(()),
                _ => Seen::NotYet(format!("all files are there, and the status says {now}")),
            })
        })
    }
}
