//! Blocks that are closed before their disk has them: acknowledged from staging, and draining to their files afterwards. The
//! disk is a modelled one that takes seconds for a block, so that there is time to look, to kill and to ask for the block.
//! [`closing`]: what clients see meanwhile. [`crashes`]: what cuts that off.

mod closing;
mod crashes;

use hayloft_lab::error::Result;
use hayloft_lab::files::Block;
use hayloft_lab::hadoop::{hayloft_binary, scratch};
use hayloft_lab::modelled::{self, Disk, FileSystem, ModelledDisk, Params};
use hayloft_lab::node::Kind;
use hayloft_lab::suite::expect;
use hayloft_lab::wait::{self, Seen};
use hayloft_lab::{Cluster, Driver, LabError, NodeSpec, Outcome, Suite, VolumeSpec};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Block size of the cluster's clients, bytes: two seconds of the disk.
const BLOCK: u64 = 8 * MIB;
/// What the disk writes, bytes a second.
const SLOW: u64 = 4_000_000;
/// The node on the slow disk; until [`Lab::setrep`] it is the only one.
const NODE: usize = 0;
/// How often a file is written until its close comes before the disk.
const ATTEMPTS: u32 = 3;
/// For all that waits for the disk; the longest file is written in 9 s.
const DRAINED: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    Suite::run("draining", |suite| {
        let reason = if Kind::under_test() == Kind::Apache {
            Some("the stock node closes into the page cache".to_owned())
        } else {
            modelled::missing(FileSystem::Ext4).map(|missing| missing.to_string())
        };
        if let Some(reason) = reason {
            suite.case("everything", || Ok(Outcome::Skipped(reason)));
            return Ok(());
        }
        let base = scratch("draining-disk-")?;
        let mut lab = start(base.path())?;
        suite.case("close_comes_before_the_disk", || lab.closes_early());
        suite.case("readers_meanwhile", || lab.readers());
        suite.case("append_waits_and_goes_on", || lab.append());
        suite.case("delete_leaves_nothing", || lab.delete());
        suite.case("a_synced_close_waits", || lab.synced());
        suite.case("a_close_waits_where_it_is_told_to", || lab.switched_off());
        suite.case("more_than_staging_holds", || lab.beyond_the_limit());
        suite.case("killed_then_finished_by_the_next_start", || lab.killed());
        suite.case("killed_again_in_the_next_start", || lab.killed_twice());
        suite.case("killed_at_random_moments", || lab.killed_at_random());
        suite.case("killed_and_staging_lost", || lab.staging_lost());
        suite.case("a_clean_stop_drains_first", || lab.stopped());
        suite.case("copied_meanwhile", || lab.setrep());
        suite.case("disk_hangs_meanwhile", || lab.hung());
        suite.case("disk_hangs_and_is_taken_out", || lab.hung_and_taken_out());
        suite.conclude(lab.cluster);
        Ok(())
    })
}

fn start(base: &Path) -> Result<Lab> {
    let disk = Disk {
        size: 512 * MIB,
        file_system: FileSystem::Ext4,
        params: Params {
            // Reading is fast, so that only writes take time.
            read_bytes_s: 2_000_000_000,
            write_bytes_s: SLOW,
            buffer_bytes: 0,
            ..Params::default()
        },
        dir: base.join("disk"),
        backing: None,
    };
    let disk = ModelledDisk::mount(&hayloft_binary()?, &disk, &base.join("disk.log"))?;
    let node = NodeSpec::new(Kind::under_test())
        .volumes(vec![VolumeSpec::at(disk.dir().join("data"))])
        // Through the page cache every disk is fast for a while.
        .conf("hayloft.io.engine", "direct")
        // A block fits into what a writer may have in memory.
        .conf("hayloft.io.quantum", BLOCK / 2)
        // What is read waits behind little.
        .conf("hayloft.io.depth", 2)
        .conf(
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
            0,
        );
    let cluster = Cluster::builder("draining")
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 1)
        .node(node)
        .start()?;
    let fs = cluster.driver()?;
    Ok(Lab { fs, cluster, disk })
}

struct Lab {
    // Dropped first to last: the nodes end before the disk goes.
    fs: Driver,
    cluster: Cluster,
    disk: ModelledDisk,
}

/// Where the files of one replica are.
#[derive(Debug, Default)]
struct Files {
    /// `blk_<id>.closed`: acknowledged, and not all of it is in the files yet.
    markers: Vec<PathBuf>,
    /// Data and checksums below `rbw`.
    rbw: Vec<PathBuf>,
    /// Data and checksums below `finalized`.
    finalized: Vec<PathBuf>,
    /// Anywhere else.
    other: Vec<PathBuf>,
}

impl Files {
    fn is_drained(&self) -> bool {
        self.finalized.len() == 2
            && self.markers.is_empty()
            && self.rbw.is_empty()
            && self.other.is_empty()
    }

    fn is_nothing(&self) -> bool {
        let Self {
            markers,
            rbw,
            finalized,
            other,
        } = self;
        [markers, rbw, finalized, other]
            .iter()
            .all(|files| files.is_empty())
    }
}

impl Lab {
    fn node(&mut self) -> &mut hayloft_lab::node::Node {
        self.cluster.node(NODE)
    }

    /// The files of a replica on the slow node, as they were found one after the other.
    fn files(&self, block: &Block) -> Files {
        let node = self.cluster.nodes().nth(NODE);
        let all = node.map(|node| node.all_block_files()).unwrap_or_default();
        let data = format!("blk_{}", block.id);
        let mut files = Files::default();
        for path in all {
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(rest) = name.and_then(|name| name.strip_prefix(&data)) else {
                continue;
            };
            let is_below = |dir: &str| path.components().any(|part| part.as_os_str() == dir);
            match rest {
                ".closed" => files.markers.push(path),
                _ if !rest.is_empty() && !rest.starts_with('_') => {} // of another block
                _ if is_below("rbw") => files.rbw.push(path),
                _ if is_below("finalized") => files.finalized.push(path),
                _ => files.other.push(path),
            }
        }
        files
    }

    /// Writes and closes a file of the pattern of `seed`, and fails unless its last whole block still drains then.
    /// A file system that is busy may hold up a close until there is nothing left to wait for: that is allowed, now and then.
    fn put_draining(&self, path: &str, bytes: u64, seed: u64) -> Result<Vec<Block>> {
        for attempt in 1.. {
            self.fs.put(path, bytes, seed, json!({}))?;
            let blocks = self.fs.blocks(path)?;
            match self.expect_draining(&blocks) {
                Err(_) if attempt < ATTEMPTS => {
                    println!("draining:   the close of {path} waited for the disk; once more");
                    self.wait_drained(&blocks)?;
                    self.remove(path, &blocks)?;
                }
                draining => return draining.map(|()| blocks),
            }
        }
        unreachable!("the last attempt returns");
    }

    /// Fails unless the last block that is large enough is closed and not yet in its files.
    fn expect_draining(&self, blocks: &[Block]) -> Result<()> {
        let last = blocks.iter().rfind(|block| block.length > 2 * MIB);
        let last = last.ok_or_else(|| LabError::Expectation("no block".into()))?;
        let files = self.files(last);
        expect(!files.markers.is_empty(), || {
            format!("block {} does not drain: {files:?}", last.id)
        })
    }

    /// Waits until every block is in its files, under their final names, and nothing else is left of the close.
    fn wait_drained(&self, blocks: &[Block]) -> Result<()> {
        self.wait_files("the blocks to drain", blocks, Files::is_drained)
    }

    fn wait_files(&self, what: &str, blocks: &[Block], are: fn(&Files) -> bool) -> Result<()> {
        wait::until(what, DRAINED, || {
            let seen: Vec<Files> = blocks.iter().map(|block| self.files(block)).collect();
            Ok(if seen.iter().all(are) {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{seen:?}"))
            })
        })
    }

    /// What is in the files is what was written: lengths, checksums, and what a client reads.
    fn expect_whole(&self, path: &str, bytes: u64, seed: u64, blocks: &[Block]) -> Result<()> {
        for block in blocks {
            let files = self.files(block);
            expect(files.is_drained(), || format!("{path}: {files:?}"))?;
            for file in &files.finalized {
                if file.extension().is_some() {
                    self.fs.verify_meta(file)?;
                    continue;
                }
                let length = std::fs::metadata(file).map_err(LabError::file("looking at", file))?;
                expect(length.len() == block.length, || {
                    let length = length.len();
                    format!("{}: {length} bytes of {}", file.display(), block.length)
                })?;
            }
        }
        self.fs.check(path, bytes, seed)?;
        self.fs.expect_healthy(path)
    }

    /// Fails if the NameNode ever called a replica of these blocks corrupt.
    fn expect_never_corrupt(&mut self, blocks: &[Block]) -> Result<()> {
        let log = self.cluster.namenode(0).log();
        let text = std::fs::read_to_string(&log).map_err(LabError::file("reading", log))?;
        for block in blocks {
            let name = format!("blk_{}_", block.id);
            let said = text
                .lines()
                .find(|line| line.contains("addToCorruptReplicasMap") && line.contains(&name));
            expect(said.is_none(), || said.unwrap_or_default().to_owned())?;
        }
        Ok(())
    }

    /// Kills the node and sees that a drain was cut off.
    fn kill_draining(&mut self, blocks: &[Block]) -> Result<()> {
        self.node().kill()?;
        self.expect_draining(blocks)?;
        let area = self.area()?;
        expect(area.exists(), || {
            format!("{} is gone already", area.display())
        })
    }

    /// The node's own staging area.
    fn area(&mut self) -> Result<PathBuf> {
        let area = self.node().staging_area();
        area.ok_or_else(|| LabError::Expectation("the node has no uuid".into()))
    }

    fn restart(&mut self) -> Result<()> {
        self.cluster.start_node(NODE)?;
        self.cluster.wait_all_live()
    }

    /// Cleanly restarts the node with this configuration over what it has.
    fn restart_with(&mut self, keys: &[(&str, &str)]) -> Result<()> {
        self.node().stop()?;
        for (key, value) in keys {
            self.node().conf_mut().set(*key, value);
        }
        self.restart()
    }

    /// Deletes files, and waits until the node has none of them.
    fn remove(&self, path: &str, blocks: &[Block]) -> Result<()> {
        self.fs.call("delete", json!({ "path": path }))?;
        self.wait_files("deleted blocks to go", blocks, Files::is_nothing)
    }
}
