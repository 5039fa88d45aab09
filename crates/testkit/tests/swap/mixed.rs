//! Both kinds in one cluster at once, and a rolling upgrade.

use crate::{BLOCK, Lab, NODES};
use hayloft_testkit::Outcome;
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use serde_json::json;
use std::path::{Path, PathBuf};

impl Lab {
    /// Node 1 is the stock one, nodes 0 and 2 are ours; the client's order of them is by chance.
    pub fn mixed(&mut self) -> Result<Outcome> {
        self.all_become(self.ours)?;
        self.cluster.swap_node(1, Kind::Apache)?;
        self.cluster.wait_all_live()?;
        for number in 0..8u64 {
            let path = format!("/mixed-{number}");
            self.put(&path, 2 * BLOCK + number * 1000, number, json!({}))?;
            self.put(&path, 333, number, json!({"appendTo": true}))?;
        }
        self.put("/mixed-open", 100, 50, json!({}))?;
        self.fs.append("m", "/mixed-open", 50, json!({}))?;
        for _ in 0..20 {
            self.fs.write("m", 70_001)?;
            self.fs.handle("hflush", "m")?;
        }
        // One node of each kind leaves the pipeline in turn.
        for victim in [0, 1] {
            self.cluster.node(victim).kill()?;
            self.fs.write("m", 100_000)?;
            self.fs.handle("hsync", "m")?;
            self.cluster.start_node(victim)?;
            self.cluster.wait_all_live()?;
        }
        self.fs.handle("close", "m")?;
        self.files
            .insert("/mixed-open".into(), (100 + 20 * 70_001 + 200_000, 50));
        self.check_all()?;
        // What the killed nodes kept of the open block is out of date; the NameNode replaces it
        // once it is told so, and it waits long for copies that met such a leftover.
        for node in self.cluster.nodes() {
            self.fs.dfsadmin(&["-triggerBlockReport", &node.ipc()])?;
        }
        self.fs.wait_replicas("/mixed-open", 3, seconds(180))?;
        passed()
    }

    pub fn mixed_recovery(&mut self) -> Result<Outcome> {
        for number in 0..3 {
            let path = format!("/mixed-lease-{number}");
            self.leave_open(&path)?;
            self.recover(&path)?;
        }
        passed()
    }

    pub fn mixed_replication(&mut self) -> Result<Outcome> {
        self.put("/mixed-copy", 3 * BLOCK + 5, 51, json!({"replication": 1}))?;
        self.fs.fs(&["-setrep", "3", "/mixed-copy"])?;
        self.fs.wait_replicas("/mixed-copy", 3, seconds(60))?;
        let mut sums = Vec::new();
        for mode in ["MD5MD5CRC", "COMPOSITE_CRC"] {
            let conf = json!({"dfs.checksum.combine.mode": mode});
            for _ in 0..4 {
                sums.push((
                    mode,
                    self.fs
                        .call("checksum", json!({"path": "/mixed-copy", "conf": conf}))?["hex"]
                        .clone(),
                ));
            }
        }
        sums.dedup();
        expect(sums.len() == 2, || {
            format!("the kinds give different checksums: {sums:?}")
        })?;
        self.check_all()?;
        passed()
    }

    /// Prepare, delete (into trash), upgrade each node under a writing client, finalize.
    pub fn rolling_upgrade(&mut self) -> Result<Outcome> {
        self.all_become(self.ours)?;
        self.put("/trashed", 2 * BLOCK, 52, json!({}))?;
        // Without a standby to make the rollback image, the NameNode wants safe mode for it.
        self.fs.dfsadmin(&["-safemode", "enter"])?;
        self.fs.dfsadmin(&["-rollingUpgrade", "prepare"])?;
        self.fs.dfsadmin(&["-safemode", "leave"])?;
        wait::until("the rollback image", seconds(60), || {
            let said = self.fs.dfsadmin(&["-rollingUpgrade", "query"])?;
            Ok(if said.contains("Proceed with rolling upgrade") {
                Seen::Done(())
            } else {
                Seen::NotYet(said)
            })
        })?;
        self.wait_marker(true)?;
        self.fs.fs(&["-rm", "-skipTrash", "/trashed"])?;
        self.files.remove("/trashed");
        wait::until("trash on a volume", seconds(60), || {
            let count = self.trashed();
            Ok(if count > 0 {
                Seen::Done(())
            } else {
                Seen::NotYet("no file in any trash".into())
            })
        })?;
        self.fs.create("r", "/rolling", 53, json!({}))?;
        let request =
            json!({"handle": "r", "bytes": 6 * BLOCK, "chunk": 20_000, "pauseMillis": 60});
        let writing = self.fs.begin("loop", request)?;
        for index in 0..NODES {
            let ipc = self.cluster.node(index).ipc();
            self.fs.dfsadmin(&["-shutdownDatanode", &ipc, "upgrade"])?;
            self.cluster.node(index).wait_ended(seconds(60))?;
            self.cluster.start_node(index)?;
            self.cluster.wait_all_live()?;
            // One at a time: the writer must be past this node's restart before the next.
            let acked = self.fs.acked("r")?;
            self.fs.wait_acked("r", (acked + 1).min(6 * BLOCK))?;
        }
        let end = writing.wait()?;
        expect(end["failure"].is_null(), || end.to_string())?;
        self.fs.handle("close", "r")?;
        self.files.insert("/rolling".into(), (6 * BLOCK, 53));
        self.fs.dfsadmin(&["-rollingUpgrade", "finalize"])?;
        self.wait_marker(false)?;
        wait::until("the trash to be emptied", seconds(60), || {
            let count = self.trashed();
            Ok(if count == 0 {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{count} files"))
            })
        })?;
        self.check_all()?;
        passed()
    }

    fn pools(&self) -> Vec<PathBuf> {
        let volumes = self
            .cluster
            .nodes()
            .flat_map(|n| n.volumes().map(Path::to_path_buf).collect::<Vec<_>>());
        let entries = volumes.flat_map(|v| {
            std::fs::read_dir(v.join("current"))
                .into_iter()
                .flatten()
                .flatten()
        });
        entries.map(|e| e.path()).filter(|p| p.is_dir()).collect()
    }

    fn trashed(&self) -> usize {
        self.pools()
            .iter()
            .map(|pool| files_below(&pool.join("trash")))
            .sum()
    }

    fn wait_marker(&self, wanted: bool) -> Result<()> {
        wait::until(
            &format!("rolling upgrade marker: {wanted}"),
            seconds(60),
            || {
                let marks: Vec<bool> = self
                    .pools()
                    .iter()
                    .map(|p| p.join("RollingUpgradeInProgress").exists())
                    .collect();
                let all = marks.iter().all(|&mark| mark == wanted);
                Ok(if all {
                    Seen::Done(())
                } else {
                    Seen::NotYet(format!("{marks:?}"))
                })
            },
        )
    }
}

fn files_below(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|e| {
            if e.path().is_dir() {
                files_below(&e.path())
            } else {
                1
            }
        })
        .sum()
}
