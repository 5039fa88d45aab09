//! Disks that fill up, turn read-only, fail and vanish.

use crate::{BLOCK, Lab, NODES};
use hayloft_testkit::error::Result;
use hayloft_testkit::mounts::TestMount;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError};
use serde_json::json;
use std::path::PathBuf;

impl Lab {
    /// Reads and writes on every node until the NameNode knows of one more failed volume.
    ///
    /// The stock DataNode checks a volume by its directories only: it may miss a disk that turned
    /// read-only or gives EIO inside of files, so it need not notice where `stock_notices` is
    /// false.
    fn one_more_failed(
        &mut self,
        read: &str,
        bytes: u64,
        seed: u64,
        stock_notices: bool,
    ) -> Result<()> {
        let must = stock_notices || Kind::under_test() == Kind::Hayloft;
        let before = self.failed;
        let mut rounds = 0;
        self.failed = wait::until(
            "one more failed volume at the NameNode",
            seconds(120),
            || {
                rounds += 1;
                self.fs.check(read, bytes, seed)?;
                let _ = self
                    .fs
                    .put("/poke", 4 * BLOCK, 8, json!({"replication": NODES}));
                // Looked at once a second: each look writes.
                std::thread::sleep(seconds(1));
                let seen = self.failed_volumes()?.unwrap_or(before);
                let enough = seen == before + 1 || (!must && rounds > 5);
                Ok(if enough {
                    Seen::Done(seen)
                } else {
                    Seen::NotYet(seen.to_string())
                })
            },
        )?;
        Ok(())
    }

    /// A client that gives up at the first node that refuses a block, although no other block was
    /// written since the disk broke. (Of the stock node each block that meets the disk fails.) A
    /// disk that is slow to fail is not what is asked here: the client waits longer than usual.
    fn written_past(&self, path: &str) -> Result<()> {
        if Kind::under_test() != Kind::Hayloft {
            return Ok(());
        }
        let conf =
            json!({"dfs.client.block.write.retries": 0, "dfs.client.socket-timeout": 60_000});
        let more = json!({"replication": NODES, "conf": conf});
        self.fs.put(path, 6 * BLOCK, 15, more)?;
        self.fs.check(path, 6 * BLOCK, 15)?;
        self.fs.wait_replicas(path, NODES, seconds(60))
    }

    fn failed_volumes(&self) -> Result<Option<u64>> {
        Ok(self.cluster.namenode_bean(0, "FSNamesystemState")?["VolumeFailuresTotal"].as_u64())
    }

    pub fn full(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs
            .create("f", "/full", 6, json!({"replication": NODES}))?;
        let request =
            json!({"handle": "f", "bytes": 12 * BLOCK, "chunk": 65_536, "pauseMillis": 15});
        let writing = self.fs.begin("loop", request)?;
        let fillers = [self.disk(0, 0).fill()?, self.disk(0, 1).fill()?];
        let end = writing.wait()?;
        let others =
            (0..5).try_for_each(|n| self.fs.put(&format!("/full-{n}"), BLOCK, 7, json!({})));
        for filler in fillers {
            std::fs::remove_file(&filler).map_err(TestkitError::file("removing", filler))?;
        }
        expect(end["failure"].is_null(), || end.to_string())?;
        others?;
        self.fs.handle("close", "f")?;
        self.fs.check("/full", 12 * BLOCK, 6)?;
        self.cluster.wait_all_live()?;
        // News of the replica that did not fit may come after the writer's new generation stamp.
        // Then the NameNode takes it for corrupt, and only a full report lets it order another.
        let ipc = self.cluster.node(0).ipc();
        self.fs.dfsadmin(&["-triggerBlockReport", &ipc])?;
        self.fs.wait_replicas("/full", NODES, seconds(120))?;
        self.fs.check("/full", 12 * BLOCK, 6)?;
        self.fs.fs(&["-rm", "-skipTrash", "/full"])?;
        passed()
    }

    /// Nowhere is room: a writer under way gets an exception in time, and so does a new one; what
    /// was acknowledged is there, and once there is room again all goes on.
    pub fn all_full(&mut self) -> Result<Outcome> {
        let conf = json!({"dfs.client.block.write.locateFollowingBlock.retries": 2});
        let more = json!({"replication": 2, "conf": conf});
        self.fs.create("n", "/nowhere", 12, more.clone())?;
        let request =
            json!({"handle": "n", "bytes": 200 * BLOCK, "chunk": 65_536, "pauseMillis": 5});
        let writing = self.fs.begin("loop", request)?;
        let fillers: Result<Vec<PathBuf>> = self.disks.iter().map(TestMount::fill).collect();
        let fillers = fillers?;
        let end = writing.wait_at_most(seconds(120));
        // Replicas that the writer gave up may have left room for a block.
        let filled = self.disks.iter().try_for_each(|disk| disk.fill().map(drop));
        let refused = self.fs.put("/no-room", BLOCK, 13, more);
        for filler in fillers {
            std::fs::remove_file(&filler).map_err(TestkitError::file("removing", filler))?;
        }
        filled?;
        let end = end?;
        let failure = end["failure"].as_str().unwrap_or_default().to_owned();
        // What the client makes of nodes that refuse one after the other.
        let known = ["could only be written to 0 of", "All datanodes"];
        expect(known.iter().any(|text| failure.contains(text)), || {
            format!("the writer under way got {failure:?}")
        })?;
        let Err(TestkitError::Client { class, message, .. }) = refused else {
            return Err(TestkitError::Expectation(format!(
                "a new file: {refused:?}"
            )));
        };
        // The replica that the writer gave up may leave a node just enough room to begin with
        // another.
        expect(known.iter().any(|text| message.contains(text)), || {
            format!("a new file got {class}: {message}")
        })?;
        let _ = self.fs.handle("abandon", "n");
        self.cluster.wait_all_live()?;
        self.fs.recover_lease("/nowhere", seconds(90))?;
        let (length, acked) = (self.fs.length("/nowhere")?, end["acked"].as_u64());
        expect(length >= acked.unwrap_or_default(), || {
            format!("{length} bytes left of {acked:?} acknowledged")
        })?;
        self.fs.check("/nowhere", length, 12)?;
        wait::until("room again at the NameNode", seconds(60), || {
            // Each node tells of its room when it has looked for itself: one that says it has none
            // is not asked.
            let all = json!({"replication": NODES});
            Ok(match self.fs.put("/room", BLOCK, 14, all) {
                Ok(()) => Seen::Done(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })?;
        self.fs.wait_replicas("/room", NODES, seconds(60))?;
        self.fs.check("/room", BLOCK, 14)?;
        self.fs.fs(&["-rm", "-skipTrash", "/nowhere", "/room"])?;
        passed()
    }

    pub fn read_only(&mut self) -> Result<Outcome> {
        self.fs.put("/read-only", 8 * BLOCK, 8, json!({}))?;
        self.disk(1, 0).abort()?;
        self.written_past("/past-read-only")?;
        self.one_more_failed("/read-only", 8 * BLOCK, 8, false)?;
        self.fs.wait_replicas("/read-only", 3, seconds(90))?;
        self.fs
            .put("/ro-after", 4 * BLOCK, 8, json!({"replication": NODES}))?;
        // With one disk left the node takes blocks as before. (The stock node does not know of its
        // bad disk: every second block meets it.)
        if Kind::under_test() == Kind::Hayloft {
            self.fs.wait_replicas("/ro-after", NODES, seconds(10))?;
        }
        passed()
    }

    pub fn eio(&mut self) -> Result<Outcome> {
        self.fs.put("/eio", 16 * BLOCK, 9, json!({}))?;
        self.disk(2, 0).break_disk()?;
        self.written_past("/past-eio")?;
        self.one_more_failed("/eio", 16 * BLOCK, 9, false)?;
        self.fs.check("/eio", 16 * BLOCK, 9)?;
        self.fs.wait_replicas("/eio", 3, seconds(90))?;
        passed()
    }

    fn vanish(&self, node: usize, volume: usize) -> Result<()> {
        let data = self.disk(node, volume).path().join("data");
        std::fs::rename(&data, data.with_file_name("gone"))
            .map_err(TestkitError::file("moving", &data))?;
        // A file in its place: the node cannot make the directory again.
        std::fs::write(&data, "").map_err(TestkitError::file("writing", data))
    }

    pub fn vanished(&mut self) -> Result<Outcome> {
        self.fs.put("/vanished", 16 * BLOCK, 10, json!({}))?;
        self.vanish(3, 0)?;
        self.one_more_failed("/vanished", 16 * BLOCK, 10, true)?;
        self.fs.check("/vanished", 16 * BLOCK, 10)?;
        self.fs.wait_replicas("/vanished", 3, seconds(90))?;
        passed()
    }

    pub fn start_with_failed(&mut self) -> Result<Outcome> {
        self.cluster.node(3).stop()?;
        self.cluster.start_node(3)?;
        self.cluster.wait_all_live()?;
        let expected = self.failed;
        self.cluster.namenode(0).wait_bean(
            "the failed volume",
            "FSNamesystemState",
            seconds(30),
            |bean| {
                let seen = bean["VolumeFailuresTotal"].as_u64();
                (seen == Some(expected), format!("{seen:?}"))
            },
        )?;
        self.fs.check("/vanished", 16 * BLOCK, 10)?;
        passed()
    }

    /// One failed volume is tolerated: at the second the node ends by itself.
    pub fn too_many_failed(&mut self) -> Result<Outcome> {
        self.vanish(3, 1)?;
        wait::until("the end of the node", seconds(90), || {
            // Looked at once a second: each look writes.
            std::thread::sleep(seconds(1));
            let _ = self
                .fs
                .put("/poke", 4 * BLOCK, 11, json!({"replication": NODES}));
            let ended = self.cluster.node(3).process()?.check_alive().is_err();
            Ok(if ended {
                Seen::Done(())
            } else {
                Seen::NotYet("it runs".into())
            })
        })?;
        self.cluster.node(3).wait_ended(seconds(1))?;
        self.fs.check("/vanished", 16 * BLOCK, 10)?;
        passed()
    }
}
