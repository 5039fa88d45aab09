//! A node with two volumes, one of them by an engine that gives EIO when it is told to.

use super::{BLOCK, compile, failed_volumes, metric};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, NodeSpec, Outcome, TestkitError, VolumeSpec};
use odd_node::{NODES, ODD, OddNode};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[path = "../devices/odd_node.rs"]
#[expect(dead_code, reason = "the suite devices needs more of it")]
mod odd_node;

/// How long an error counts.
const WINDOW: Duration = Duration::from_secs(20);
/// Files with errors at which the volume is given up.
const LIMIT: usize = 12;
/// What the header promises is prompt: the time of a check, and of telling the NameNode.
const PROMPT: Duration = Duration::from_secs(30);

pub fn start() -> Result<Lab> {
    let base = scratch("halfdead-engines-")?;
    let plugin = base.path().join("failing.so");
    compile::plugin("tests/halfdead/failing.c", &plugin, &[]);
    let flag = base.path().join("fails");
    let volumes = [base.path().join("plain"), base.path().join("odd")];
    let key = format!("hayloft.io.engine.{}", volumes[1].display());
    let engine = format!("plugin:{} {}", plugin.display(), flag.display());
    let spec = NodeSpec::new(Kind::Hayloft)
        .volumes(volumes.iter().map(VolumeSpec::at).collect())
        .conf("dfs.datanode.failed.volumes.tolerated", 1)
        .conf(
            "hayloft.disk.errors.window",
            format!("{}s", WINDOW.as_secs()),
        )
        .conf("hayloft.disk.errors.limit", LIMIT)
        .conf(&key, engine);
    let cluster = Cluster::builder("halfdead-engines")
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", NODES)
        .conf("dfs.client.socket-timeout", 10_000)
        .node(spec)
        .node(NodeSpec::new(Kind::Hayloft))
        .start()?;
    Ok(Lab {
        odd: OddNode::new(cluster)?,
        flag,
        volume: volumes[1].clone(),
        files: 0,
        _base: base,
    })
}

pub struct Lab {
    odd: OddNode,
    /// While a file with this name and an ending is there, the engine fails.
    flag: PathBuf,
    /// The directory with that engine.
    volume: PathBuf,
    files: u64,
    // Dropped after the nodes have ended.
    _base: tempfile::TempDir,
}

impl Lab {
    pub fn conclude(self, failed: bool) {
        self.odd.cluster.conclude(failed);
    }

    fn flag(&self, call: &str) -> PathBuf {
        self.flag.with_extension(call)
    }

    fn set(&self, call: &str) -> Result<()> {
        let flag = self.flag(call);
        std::fs::write(&flag, "").map_err(TestkitError::file("writing", &flag))
    }

    fn clear(&self, call: &str) -> Result<()> {
        let flag = self.flag(call);
        std::fs::remove_file(&flag).map_err(TestkitError::file("removing", &flag))
    }

    fn put(&mut self, blocks: u64) -> Result<()> {
        self.files += 1;
        let path = format!("/file-{}", self.files);
        self.odd.put(&path, blocks * BLOCK)
    }

    /// Starts the node anew: a volume that failed comes back.
    fn restart(&mut self) -> Result<()> {
        self.odd.stop()?;
        self.odd.start()?;
        self.odd.wait_failed(0)
    }

    /// Waits for the failure of the volume, in time.
    fn failed_within(&mut self, since: Instant) -> Result<()> {
        wait::until("a failed volume", PROMPT, || {
            Ok(match failed_volumes(&self.odd.cluster)? {
                1 => Seen::Done(()),
                n => Seen::NotYet(format!("{n} after {} s", since.elapsed().as_secs())),
            })
        })?;
        println!(
            "halfdead: the volume was failed after {:.1} s",
            since.elapsed().as_secs_f64()
        );
        self.odd.check_alive()
    }

    pub fn fails(&mut self, calls: &[&str]) -> Result<Outcome> {
        self.put(4)?;
        self.odd.wait_replicas()?;
        calls.iter().try_for_each(|call| self.set(call))?;
        let since = Instant::now();
        // Blocks go to both volumes in turn, and the client gets over it.
        self.put(2)?;
        self.failed_within(since)?;
        self.odd.check_all()?;
        self.put(2)?;
        calls.iter().try_for_each(|call| self.clear(call))?;
        self.restart()?;
        self.odd.wait_replicas()?;
        self.odd.check_all()?;
        passed()
    }

    /// In the midst of a block on it.
    pub fn fails_later(&mut self) -> Result<Outcome> {
        let bytes = 4 * BLOCK;
        self.odd.fs.create("l", "/later", 70, json!({}))?;
        self.odd.fs.write("l", bytes / 2 + 1000)?;
        self.odd.fs.handle("hflush", "l")?;
        self.set("write")?;
        let since = Instant::now();
        self.odd.fs.write("l", bytes / 2 - 1000)?;
        self.odd.fs.handle("close", "l")?;
        self.odd.files.add("/later", bytes, 70);
        self.failed_within(since)?;
        self.clear("write")?;
        self.restart()?;
        self.odd.wait_replicas()?;
        self.odd.check_all()?;
        passed()
    }

    /// Data files of replicas on the volume.
    fn on_volume(&mut self) -> usize {
        let files = self.odd.cluster.node(ODD).all_block_files();
        let here = |path: &&PathBuf| path.starts_with(&self.volume) && path.extension().is_none();
        files.iter().filter(here).count()
    }

    fn places(&mut self) -> Result<f64> {
        let name = format!(
            "hayloft_volume_error_files{{volume=\"{}\"",
            self.volume.display()
        );
        metric(&mut self.odd.cluster, ODD, &name)
    }

    /// Has clients read from the odd node alone while reads of blocks fail, until it counts as many
    /// errors; nothing can be read of what is on that volume.
    fn read_in_vain(&mut self, path: &str, wanted: impl Fn(f64, u64) -> bool) -> Result<()> {
        self.set("blocks")?;
        let met = wait::until("errors", seconds(60), || {
            self.odd.check_all()?;
            let _ = self.odd.fs.check(path, 1, 0);
            let failed = failed_volumes(&self.odd.cluster)?;
            let places = self.places()?;
            Ok(if wanted(places, failed) {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("errors in {places} files, failed volumes {failed}"))
            })
        });
        self.clear("blocks")?;
        met
    }

    pub fn errors_stop(&mut self) -> Result<Outcome> {
        self.restart()?;
        self.put(2)?;
        self.odd.wait_replicas()?;
        self.read_in_vain("/file-1", |places, _| places > 0.0)?;
        expect_eq("failed volumes", failed_volumes(&self.odd.cluster)?, 0)?;
        // New replicas go to the other volume, and all of them have room.
        let before = self.on_volume();
        self.put(6)?;
        let after = self.on_volume();
        expect(after <= before, || {
            format!("{before} replicas there, then {after}")
        })?;
        wait::until("the errors to be forgotten", WINDOW + seconds(30), || {
            Ok(match self.places()? {
                0.0 => Seen::Done(()),
                n => Seen::NotYet(format!("errors in {n} files")),
            })
        })?;
        let before = self.on_volume();
        self.put(6)?;
        let after = self.on_volume();
        expect(after >= before + 2, || {
            format!("{before} replicas there, then {after}")
        })?;
        self.odd.check_all()?;
        passed()
    }

    pub fn too_many(&mut self) -> Result<Outcome> {
        self.restart()?;
        self.put(40)?;
        self.read_in_vain("/file-1", |_, failed| failed == 1)?;
        self.odd.check_alive()?;
        let log = self.odd.log()?;
        expect(log.contains("places within"), || {
            "the log does not say why".into()
        })?;
        self.odd.check_all()?;
        self.restart()?;
        passed()
    }
}
