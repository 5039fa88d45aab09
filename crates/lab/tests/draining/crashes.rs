//! Drains that are cut off: `kill -9`, a machine that starts again, a clean stop, a disk that gives no answer.

use crate::{BLOCK, DRAINED, Lab, MIB, NODE};
use hayloft_lab::error::Result;
use hayloft_lab::files::Block;
use hayloft_lab::hadoop::class;
use hayloft_lab::node::Kind;
use hayloft_lab::suite::{expect, passed, seconds};
use hayloft_lab::wait::{self, Seen};
use hayloft_lab::{Cluster, Driver, LabError, Outcome, pattern};
use serde_json::{Value, json};
use std::thread::sleep;
use std::time::{Duration, UNIX_EPOCH};

impl Lab {
    pub fn killed(&mut self) -> Result<Outcome> {
        let bytes = 2 * BLOCK - 77;
        let blocks = self.put_draining("/killed", bytes, 11)?;
        self.kill_draining(&blocks)?;
        self.restart()?;
        self.finished_after_kill("/killed", bytes, 11, &blocks)?;
        passed()
    }

    /// Killed while the next start writes what was staged, or verifies it.
    pub fn killed_twice(&mut self) -> Result<Outcome> {
        let bytes = 2 * BLOCK;
        let blocks = self.put_draining("/killed-twice", bytes, 12)?;
        self.kill_draining(&blocks)?;
        for millis in [150, 700, 1800] {
            self.cluster.start_node_without_waiting(NODE)?;
            sleep(Duration::from_millis(millis));
            self.node().kill()?;
        }
        self.restart()?;
        self.finished_after_kill("/killed-twice", bytes, 12, &blocks)?;
        passed()
    }

    fn finished_after_kill(
        &mut self,
        path: &str,
        bytes: u64,
        seed: u64,
        blocks: &[Block],
    ) -> Result<()> {
        self.fs.wait_replicas(path, 1, DRAINED)?;
        self.fs.check(path, bytes, seed)?;
        self.wait_drained(blocks)?;
        self.expect_whole(path, bytes, seed, blocks)?;
        self.expect_never_corrupt(blocks)?;
        self.remove(path, blocks)
    }

    /// Every file that a client has closed is there in full after `kill -9` at any moment.
    pub fn killed_at_random(&mut self) -> Result<Outcome> {
        let seed = UNIX_EPOCH
            .elapsed()
            .map_or(1, |t| u64::from(t.subsec_nanos()));
        println!("draining: killed_at_random_moments: seed {seed}");
        let mut all = 0;
        for round in 0..2 {
            let after = 1000 + 10 * u64::from(pattern::byte_at(seed, round));
            let Self { fs, cluster, .. } = self;
            let closed = closed_until_killed(fs, cluster, round, Duration::from_millis(after))?;
            println!("draining:   round {round}: {closed} files were closed in {after} ms");
            self.restart()?;
            let mut blocks = Vec::new();
            for file in 0..closed {
                let path = path_of(round, file);
                self.fs.check(&path, bytes_of(file), file)?;
                blocks.extend(self.fs.blocks(&path)?);
            }
            self.wait_drained(&blocks)?;
            self.expect_never_corrupt(&blocks)?;
            self.remove(&format!("/random-{round}"), &blocks)?;
            all += closed;
        }
        expect(all > 0, || "no file was closed".into())?;
        passed()
    }

    /// As after a reboot: what was only in memory is gone. Nothing may be given out for it.
    pub fn staging_lost(&mut self) -> Result<Outcome> {
        let bytes = 2 * BLOCK;
        let blocks = self.put_draining("/lost", bytes, 13)?;
        self.kill_draining(&blocks)?;
        let area = self.area()?;
        std::fs::remove_file(&area).map_err(LabError::file("removing", &area))?;
        self.restart()?;
        // A client may get an error, or the beginning; no byte that was not written.
        let conf = json!({"dfs.client.max.block.acquire.failures": 1, "dfs.client.retry.window.base": 100});
        let request = json!({"path": "/lost", "seed": 13, "conf": conf});
        if let Ok(read) = self.fs.call("read", request) {
            expect(read["mismatch"] == -1, || format!("wrong bytes: {read}"))?;
            expect(read["bytes"] != bytes, || format!("out of nowhere: {read}"))?;
        }
        wait::until("the NameNode to know of the loss", DRAINED, || {
            let said = self.fs.tool(class::FSCK, &["/lost"])?.out;
            Ok(if said.contains("is CORRUPT") {
                Seen::Done(())
            } else {
                Seen::NotYet(said)
            })
        })?;
        for block in &blocks {
            let files = self.files(block);
            expect(files.markers.is_empty(), || format!("{files:?}"))?;
        }
        let last = self.files(&blocks[1]);
        expect(last.finalized.is_empty(), || format!("{last:?}"))?;
        self.remove("/lost", &blocks)?;
        passed()
    }

    /// The stock node finds everything, without a start of ours in between.
    pub fn stopped(&mut self) -> Result<Outcome> {
        let bytes = 2 * BLOCK + 1;
        let blocks = self.put_draining("/stopped", bytes, 14)?;
        self.node().stop()?;
        for block in &blocks {
            let files = self.files(block);
            expect(files.is_drained(), || {
                format!("after a clean stop: {files:?}")
            })?;
        }
        let area = self.area()?;
        expect(!area.exists(), || format!("{} is left", area.display()))?;
        self.node().become_kind(Kind::Apache)?;
        self.restart()?;
        self.fs.wait_healthy("/stopped", DRAINED)?;
        self.expect_whole("/stopped", bytes, 14, &blocks)?;
        self.cluster.swap_node(NODE, Kind::Hayloft)?;
        self.cluster.wait_all_live()?;
        self.expect_whole("/stopped", bytes, 14, &blocks)?;
        self.expect_never_corrupt(&blocks)?;
        self.remove("/stopped", &blocks)?;
        passed()
    }

    /// The bytes are acknowledged and cannot be written any more: the replica is lost with its volume, and another node has one.
    pub fn hung(&mut self) -> Result<Outcome> {
        // A second volume, so that the node outlives the first.
        let other = self.cluster.dir().join("node-0/data-1");
        self.node().stop()?;
        let node = self.node();
        node.add_volume(None, &other);
        // All that the disk is asked for at once takes it a few seconds.
        node.conf_mut()
            .set("dfs.datanode.failed.volumes.tolerated", 1)
            .set("dfs.datanode.disk.check.timeout", "10s");
        self.restart()?;
        let bytes = BLOCK;
        let (path, blocks) = self.put_draining_to_disk("hung", bytes)?;
        let hung = self.disk.hang()?;
        // From here on nobody of ours may look at it either.
        let data = self.disk.dir().join("data");
        self.node().remove_volume(&data);
        wait::until("the NameNode to know of the loss", seconds(90), || {
            let bean = self.cluster.namenode_bean(0, "FSNamesystemState")?;
            let failed = bean["VolumeFailuresTotal"].as_u64().unwrap_or(0);
            let nodes = self.fs.blocks(&path)?.pop().map(|block| block.nodes);
            let nodes = nodes.unwrap_or_default();
            // It gets a copy on the other volume then.
            Ok(if failed > 0 && !nodes.is_empty() {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{failed} volumes failed, replicas on {nodes:?}"))
            })
        })?;
        self.fs.check(&path, bytes, 15)?;
        self.on_the_other_volume(&path, bytes, &blocks)?;
        drop(hung);
        passed()
    }

    /// An operator takes the volume out while its disk gives no answer: that ends, says what was lost, and the node goes on. After
    /// [`hung`](Self::hung), which leaves the node with another volume.
    pub fn hung_and_taken_out(&mut self) -> Result<Outcome> {
        let data = self.disk.dir().join("data");
        self.node().stop()?;
        self.node().add_volume(None, &data);
        self.restart()?;
        let bytes = BLOCK;
        let (path, blocks) = self.put_draining_to_disk("taken-out", bytes)?;
        let hung = self.disk.hang()?;
        self.node().remove_volume(&data);
        self.cluster.rewrite_node_conf(NODE)?;
        let ipc = self.node().ipc();
        let said = self.fs.reconfigure(&ipc, DRAINED)?;
        expect(said.contains("acknowledged bytes"), || {
            format!("not told that bytes were lost: {said}")
        })?;
        self.fs.check(&path, bytes, 15)?;
        self.on_the_other_volume(&path, bytes, &blocks)?;
        self.fs.put("/after", 2 * BLOCK, 16, json!({}))?;
        self.fs.check("/after", 2 * BLOCK, 16)?;
        drop(hung);
        passed()
    }

    /// A file of two replicas whose block drains to the slow disk.
    fn put_draining_to_disk(&mut self, name: &str, bytes: u64) -> Result<(String, Vec<Block>)> {
        // The volumes take turns; the other one's blocks drain at once, or nearly.
        for file in 0..4 {
            let path = format!("/{name}-{file}");
            self.fs.put(&path, bytes, 15, json!({"replication": 2}))?;
            let blocks = self.fs.blocks(&path)?;
            let markers = self.files(&blocks[0]).markers;
            if markers.iter().any(|m| m.starts_with(self.disk.dir())) {
                return Ok((path, blocks));
            }
        }
        Err(LabError::Expectation("no block drains to the disk".into()))
    }

    /// The copy is made from the other node, onto the volume that is left.
    fn on_the_other_volume(&mut self, path: &str, bytes: u64, blocks: &[Block]) -> Result<()> {
        let here = self.node().xfer();
        wait::until("two replicas that can be read", seconds(60), || {
            let files = self.files(&blocks[0]);
            Ok(if files.is_drained() {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("on the other volume of {here}: {files:?}"))
            })
        })?;
        self.fs.check(path, bytes, 15)?;
        self.fs.wait_healthy(path, DRAINED)
    }
}

fn path_of(round: u64, file: u64) -> String {
    format!("/random-{round}/{file}")
}

/// Some are large enough to drain, some are not.
fn bytes_of(file: u64) -> u64 {
    [3 * MIB, 700_000, 5 * MIB + 1][usize::try_from(file % 3).expect("below 3")]
}

/// Writes and closes one file after the other and kills the node meanwhile; how many were closed.
fn closed_until_killed(
    fs: &Driver,
    cluster: &mut Cluster,
    round: u64,
    after: Duration,
) -> Result<u64> {
    let conf: Value = json!({
        "dfs.client.block.write.retries": 0, "dfs.client.socket-timeout": 3000,
        "dfs.client.block.write.locateFollowingBlock.retries": 3,
        "dfs.client.block.write.replace-datanode-on-failure.enable": false,
    });
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let put = |file: &u64| {
                let more = json!({"conf": conf});
                fs.put(&path_of(round, *file), bytes_of(*file), *file, more)
                    .is_ok()
            };
            let closed = (0..100).take_while(put).count();
            u64::try_from(closed).expect("at most 100")
        });
        sleep(after);
        cluster.node(NODE).kill()?;
        let closed = writer.join();
        closed.map_err(|_| LabError::Talk("the writer panicked".into()))
    })
}
