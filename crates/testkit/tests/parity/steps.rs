//! The node is killed as soon as the disks show that a step was reached.

use crate::{BLOCK, HOSTS, Lab};
use hayloft_testkit::Outcome;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::suite::{expect, passed, seconds};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest wait for a step.
const STEP_WITHIN: Duration = Duration::from_secs(60);

/// Files of groups that were not there before, on all disks of a host.
struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    fn count(&self, extension: &str) -> usize {
        let files = self.0.iter();
        let of = files.filter(|path| path.extension().is_some_and(|e| e == extension));
        of.count()
    }

    fn parity_bytes(&self) -> u64 {
        let files = self.0.iter();
        let parity = files.filter(|path| path.extension().is_some_and(|e| e == "p0"));
        let len = parity.filter_map(|path| std::fs::metadata(path).ok());
        len.map(|found| found.len()).max().unwrap_or(0)
    }
}

/// A step, by what lies on the disks once it is reached.
type Step = (&'static str, fn(&NewFiles) -> bool);

const STEPS: [Step; 5] = [
    ("a parity file is begun", |new| new.count("p0") > 0),
    ("it has bytes", |new| new.parity_bytes() > 0),
    ("it has all", |new| new.parity_bytes() == BLOCK),
    ("a copy of the record is there", |new| {
        new.count("record") > 0
    }),
    ("both are", |new| new.count("record") > 1),
];

impl Lab {
    /// All files of groups on the disks of a host.
    pub fn group_files(&self, host: usize) -> BTreeSet<PathBuf> {
        let disks = (0..self.disks_each).map(|disk| self.disk(host, disk).data());
        let files = |data: PathBuf| {
            let dir = std::fs::read_dir(data.join("hayloft-parity"));
            let entries = dir.into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        disks.flat_map(files).collect()
    }

    /// Looks at the disks without a pause, and kills the node once a step is reached.
    fn kill_at(
        &mut self,
        host: usize,
        (name, reached): Step,
        before: &BTreeSet<PathBuf>,
    ) -> Result<()> {
        let began = Instant::now();
        loop {
            let new = self.group_files(host).difference(before).cloned().collect();
            if reached(&NewFiles(new)) {
                break;
            }
            if began.elapsed() > STEP_WITHIN {
                return Err(TestkitError::Expectation(format!("never seen: {name}")));
            }
        }
        self.cluster.node(host).kill()?;
        self.cluster.start_node(host)?;
        self.cluster.wait_all_live()
    }

    pub fn killed_at_steps(&mut self) -> Result<Outcome> {
        for (n, step) in STEPS.into_iter().enumerate() {
            let before = self.group_files(0);
            self.write(&format!("step-{n}"), 14)?;
            self.kill_at(0, step, &before)?;
        }
        self.check_all()?;
        for (path, ..) in &self.files {
            self.fs.wait_replicas(path, HOSTS, seconds(60))?;
        }
        self.wait_protected(0)?;
        let (code, answer) = self.parity(0, &["scrub", "--wait", "60"])?;
        expect(code == Some(0), || answer.to_string())?;
        self.check_all()?;
        passed()
    }

    /// Data files of replicas in a directory of a host's volumes, below `current`.
    fn replicas_in(&self, host: usize, dir: &str) -> usize {
        let disks = (0..self.disks_each).map(|disk| self.disk(host, disk).data());
        disks
            .map(|data| count_blocks(&data.join("current"), dir, false))
            .sum()
    }

    /// Kills the node while it rebuilds: when a decoded replica lies in `tmp`, and when one more is
    /// in its place. The first may go on to its place between two looks.
    pub fn kill_while_rebuilding(&mut self, host: usize) -> Result<()> {
        for dir in ["tmp", "finalized"] {
            let before = self.replicas_in(host, dir);
            let in_place = self.replicas_in(host, "finalized");
            let began = Instant::now();
            let mut looks = 0;
            while self.replicas_in(host, dir) <= before
                && self.replicas_in(host, "finalized") <= in_place
            {
                looks += 1;
                if looks % 50 == 0 {
                    // A dead disk is noticed by what reads it.
                    let (path, bytes, seed) = &self.files[looks / 50 % self.files.len()];
                    self.fs.check(path, *bytes, *seed)?;
                    // What was left is in its place before it could be counted.
                    let (_, now) = self.parity(host, &["status"])?;
                    if dir == "finalized" && now["rebuild_remaining_bytes"] == 0 {
                        println!("parity: all was rebuilt before the second kill");
                        return Ok(());
                    }
                }
                if began.elapsed() > STEP_WITHIN {
                    let text = format!("no replica came to {dir}");
                    return Err(TestkitError::Expectation(text));
                }
            }
            self.cluster.node(host).kill()?;
            self.cluster.start_node(host)?;
            self.cluster.wait_all_live()?;
            println!("parity: killed while a replica came to {dir}");
        }
        Ok(())
    }
}

/// Data files below directories called `wanted`.
fn count_blocks(dir: &Path, wanted: &str, inside: bool) -> usize {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let count = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            return count_blocks(&entry.path(), wanted, inside || name == *wanted);
        }
        let name = name.to_string_lossy();
        usize::from(inside && name.starts_with("blk_") && !name.ends_with(".meta"))
    };
    entries.into_iter().map(count).sum()
}
