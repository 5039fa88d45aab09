//! The stock `hdfs fsck`, run and read.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hayloft_cluster::hadoop::{Hadoop, Jvm, class};
use serde_json::json;

use crate::disk_look_process::taken;
use crate::error::CliError;

/// Heap of the client, in MiB: the NameNode walks, the client prints.
const HEAP_MIB: u32 = 256;

/// Bytes of a line that are looked at: a path has at most 8,000.
const LINE_MAX: usize = 64 << 10;

/// Bytes of the client's errors that are kept.
const ERRORS_MAX: u64 = 16 << 10;

/// What fsck says before a block, and of all of them (`NamenodeFsck`, 3.5.0).
const VIOLATED: &str = "Replica placement policy is violated for ";
const TOTALS: [&str; 2] = [
    "Total blocks (validated):",
    "Total block groups (validated):",
];
const MISPLACED: [&str; 2] = [
    "Mis-replicated blocks:",
    "Unsatisfactory placement block groups:",
];

/// What fsck found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Blocks and block groups of the path.
    pub blocks: u64,
    /// Those whose replicas break the rule.
    pub misplaced: u64,
    /// The first of them.
    pub listed: Vec<Misplaced>,
    /// How long the look took.
    pub took: Duration,
    /// The sums were there: fsck came to its end.
    complete: bool,
}

/// A block that breaks the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced {
    path: String,
    block: String,
    why: String,
}

impl Misplaced {
    /// For `--json`.
    pub fn to_json(&self) -> serde_json::Value {
        json!({ "path": self.path, "block": self.block, "why": self.why })
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.path, self.block, self.why)
    }
}

impl Placement {
    /// Reads one line of fsck; names at most `list` blocks.
    fn read(&mut self, line: &str, list: usize) {
        if let Some((path, rest)) = line.split_once(VIOLATED) {
            if self.listed.len() < list {
                let (block, why) = rest.split_once(". ").unwrap_or((rest, ""));
                self.listed.push(Misplaced {
                    path: path.trim().trim_end_matches(':').to_owned(),
                    block: block.trim().to_owned(),
                    why: why.trim().to_owned(),
                });
            }
            return;
        }
        let number = |label: &str| {
            let rest = line.trim().strip_prefix(label)?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        if let Some(count) = TOTALS.iter().find_map(|label| number(label)) {
            self.blocks = self.blocks.saturating_add(count);
        }
        if let Some(count) = MISPLACED.iter().find_map(|label| number(label)) {
            self.misplaced = self.misplaced.saturating_add(count);
            self.complete = true;
        }
    }
}

/// How fsck is started.
pub struct Fsck {
    hadoop: Hadoop,
    conf: PathBuf,
    path: String,
    list: usize,
}

impl Fsck {
    /// For a path, with the operator's configuration.
    pub fn new(
        conf: &Path,
        home: Option<&Path>,
        path: &str,
        list: usize,
    ) -> Result<Self, CliError> {
        Ok(Self {
            hadoop: Hadoop::locate_in(home)?,
            conf: conf.to_owned(),
            path: path.to_owned(),
            list,
        })
    }

    /// Has the NameNode look at each block, and with `mend` copy those that break the rule.
    pub fn look(&self, mend: bool) -> Result<Placement, CliError> {
        let began = Instant::now();
        let jvm = Jvm::small(&self.conf, Path::new("."), HEAP_MIB);
        let mut args = vec![self.path.as_str()];
        if mend {
            args.push("-replicate");
        }
        let argv = self.hadoop.java("fsck", &jvm, class::FSCK, &args).argv;
        let mut command = Command::new(&argv[0]);
        let piped = command.args(&argv[1..]).stdin(Stdio::null());
        let spawned = piped.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| CliError::no_java(&error, &argv[0]))?;
        let stderr = child.stderr.take();
        let errors = std::thread::spawn(move || taken(stderr, ERRORS_MAX));
        let mut found = Placement::default();
        if let Some(stdout) = child.stdout.take() {
            self.read_all(BufReader::new(stdout), &mut found);
        }
        // fsck's own code tells of missing blocks, which is another question.
        let ended = child.wait();
        let said = errors.join().ok().and_then(Result::ok).unwrap_or_default();
        if ended.is_ok() && found.complete {
            found.took = began.elapsed();
            return Ok(found);
        }
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        Err(CliError::new(
            format!(
                "fsck of {} failed: {}",
                self.path,
                last.unwrap_or("no answer")
            ),
            self.conf.display().to_string(),
            "check that the path exists, the NameNode runs and you are its superuser",
        ))
    }

    fn read_all(&self, mut output: impl std::io::BufRead, found: &mut Placement) {
        let mut line = Vec::new();
        loop {
            line.clear();
            // fsck prints a dot for each file it has looked at: a line may be of any length.
            match (&mut output)
                .take(LINE_MAX as u64)
                .read_until(b'\n', &mut line)
            {
                Ok(n) if n > 0 => found.read(&String::from_utf8_lossy(&line), self.list),
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_fsck_are_understood() {
        let text = "FSCK started by hdfs\n\n/a b:  Replica placement policy is violated for \
            BP-1:blk_5_1001. Block should be additionally replicated on 1 more rack(s).\n\
            /c:  Replica placement policy is violated for BP-1:blk_6_1001. ours\n\n\
            Status: HEALTHY\n Total blocks (validated):\t8 (avg. block size 7 B)\n \
            Mis-replicated blocks:\t\t2 (25.0 %)\n\nErasure Coded Block Groups:\n \
            Total block groups (validated):\t3\n Unsatisfactory placement block groups:\t1 (3 %)\n";
        let mut found = Placement::default();
        for line in text.lines() {
            found.read(line, 1);
        }
        assert!(found.complete);
        assert_eq!((found.blocks, found.misplaced), (11, 3));
        let wanted = Misplaced {
            path: "/a b".into(),
            block: "BP-1:blk_5_1001".into(),
            why: "Block should be additionally replicated on 1 more rack(s).".into(),
        };
        assert_eq!(found.listed, [wanted]);
    }
}
