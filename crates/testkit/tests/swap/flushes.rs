//! Many writers that hflush, a kill, and the other kind on the directories: how much of what was
//! acknowledged it keeps.
//!
//! Apache's start cuts the data file of a replica that was being written to what it takes for
//! intact. So the length of the file tells, without a recovery of each.

use super::{Lab, NODES};
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::power::writers::Dice;
use hayloft_testkit::process::Signal;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::{Outcome, TestkitError};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Kills, for a longer look by hand.
const KILLS: &str = "HAYLOFT_SWAP_KILLS";
const KILLS_DEFAULT: u64 = 2;
/// The seed of moments and records.
const SEED: &str = "HAYLOFT_SWAP_SEED";
const WRITERS: u64 = 48;
/// One block a file.
const FILE_BLOCK: u64 = 256 << 20;
/// Bytes that share a checksum.
const CHUNK: u64 = 512;
/// Of so many files one may lose acknowledged bytes of its last chunk. The kill fell between the
/// writes of that chunk and of its checksum, a moment that the stock node has too.
const ONE_OF: usize = 48;

fn number(name: &str, usual: u64) -> Result<u64> {
    let Ok(text) = std::env::var(name) else {
        return Ok(usual);
    };
    let bad = |_| TestkitError::Talk(format!("{name}: {text:?} is no number"));
    text.parse().map_err(bad)
}

impl Lab {
    /// No acknowledged byte is lost when `first` is killed and `then` starts, but for the moment
    /// that [`ONE_OF`] tells of.
    pub(super) fn flushes(&mut self, first: Kind, then: Kind) -> Result<Outcome> {
        let now = std::time::UNIX_EPOCH.elapsed();
        let any = now.map_or(1, |t| u64::from(t.subsec_nanos()));
        let (kills, seed) = (number(KILLS, KILLS_DEFAULT)?, number(SEED, any)?);
        let mut dice = Dice::new(seed);
        let (mut files, mut lost, mut more_than_a_chunk) = (0, Vec::new(), false);
        for kill in 0..kills {
            let dir = format!("/flushes-{first:?}-{then:?}-{kill}");
            self.all_become(first)?;
            let told = self.flush_until_killed(&dir, &mut dice)?;
            for index in 0..NODES {
                self.cluster.node(index).become_kind(then)?;
                self.cluster.start_node(index)?;
            }
            self.cluster.wait_all_live()?;
            files += told.len();
            for (path, acked) in told {
                let kept = self.kept(&path)?;
                if kept < acked {
                    more_than_a_chunk |= kept < acked - acked % CHUNK;
                    lost.push(format!("{path}: {kept} of {acked}"));
                }
            }
            self.fs.fs(&["-rm", "-r", "-skipTrash", &dir])?;
        }
        println!(
            "swap: {SEED}={seed} {KILLS}={kills}: {first:?}, then {then:?}: {} of {files} files \
                lost acknowledged bytes",
            lost.len()
        );
        expect(files > 0, || "nothing was acknowledged".into())?;
        let seldom = lost.len() <= files / ONE_OF && !more_than_a_chunk;
        // Those of the stock node are printed.
        expect(seldom || first == Kind::Apache, || lost.join("; "))?;
        passed()
    }

    /// What each file's writer was told.
    fn flush_until_killed(&mut self, dir: &str, dice: &mut Dice) -> Result<Vec<(String, u64)>> {
        let conf = json!({
            "dfs.client.block.write.retries": 0,
            "dfs.client.block.write.replace-datanode-on-failure.enable": false,
        });
        let mut writing = Vec::new();
        for writer in 0..WRITERS {
            let path = format!("{dir}/{writer}");
            let seed = dice.below(u64::MAX >> 1);
            let more = json!({"conf": conf, "replication": 1, "blockSize": FILE_BLOCK});
            self.fs.create(&path, &path, seed, more)?;
            let records = json!({
                "handle": path,
                "chunk": 50 + dice.below(1500),
                "sync": writer % 8 == 0,
                "pauseMillis": dice.below(3),
            });
            let call = self.fs.begin("loop", records)?;
            writing.push((path, call));
        }
        sleep(Duration::from_millis(1000 + dice.below(2000)));
        for index in 0..NODES {
            self.cluster.node(index).signal(Signal::KILL)?;
        }
        for index in 0..NODES {
            self.cluster.node(index).kill()?;
        }
        let mut told = Vec::new();
        for (path, call) in writing {
            let end: Value = call.wait_at_most(seconds(180))?;
            let _ = self.fs.handle("abandon", &path);
            let acked = end["acked"].as_u64().unwrap_or_default();
            if acked > 0 {
                told.push((path, acked));
            }
        }
        Ok(told)
    }

    /// Bytes of a file's one block that its node has.
    fn kept(&mut self, path: &str) -> Result<u64> {
        let id = self.fs.blocks(path)?.first().map(|block| block.id);
        let id = id.ok_or_else(|| TestkitError::Expectation(format!("{path} has no block")))?;
        let data = format!("blk_{id}");
        let is_data = |path: &PathBuf| path.file_name() == Some(data.as_ref());
        let nodes = self.cluster.nodes();
        let files = nodes.flat_map(|node| node.block_files(id)).filter(is_data);
        let len = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        Ok(files.map(|path| len(&path)).max().unwrap_or(0))
    }
}
