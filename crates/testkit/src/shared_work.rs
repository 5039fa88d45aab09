//! What suites do to clusters that protect their data in different ways: the same work everywhere,
//! with every byte read again.

use std::time::Duration;

use serde_json::json;

use crate::error::{Result, TestkitError, expect};
use crate::hadoop::class;
use crate::striped::{EC_CELL, EcPolicy};
use crate::suite::{expect_eq, passed, seconds};
use crate::wait::{self, Seen};
use crate::{Cluster, Driver, Kind, NodeSpec, Outcome, VolumeSpec};

/// For copies of what a dead node had.
const COPIED_WITHIN: Duration = Duration::from_secs(120);

/// A node with a volume for each of DISK and ARCHIVE.
#[must_use]
pub fn with_archive(kind: Kind) -> NodeSpec {
    let archive = VolumeSpec::typed("ARCHIVE");
    NodeSpec::new(kind).volumes(vec![VolumeSpec::default(), archive])
}

/// A cluster, its clients, and the size of their blocks in bytes.
#[derive(Debug)]
pub struct SharedWork<'a> {
    /// The cluster.
    pub cluster: &'a mut Cluster,
    /// Stock clients.
    pub fs: &'a Driver,
    /// Bytes of a block.
    pub block: u64,
}

impl SharedWork<'_> {
    /// A case of a suite: it passes when `work` comes to its end.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn passes(mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<Outcome> {
        work(&mut self)?;
        passed()
    }

    /// So many files of so many blocks and a piece are written, read and appended to.
    ///
    /// # Errors
    /// A byte is another one, or a replica is missing.
    pub fn files(&mut self, files: u64, blocks: u64) -> Result<()> {
        let bytes = blocks * self.block + 777;
        for seed in 0..files {
            let path = format!("/file-{seed}");
            self.fs.put(&path, bytes, seed, json!({}))?;
            self.fs.check(&path, bytes, seed)?;
            self.fs
                .put(&path, self.block, seed, json!({"appendTo": true}))?;
            self.fs.wait_replicas(&path, 3, seconds(60))?;
            self.fs.check(&path, bytes + self.block, seed)?;
            self.fs.call("checksum", json!({ "path": path }))?;
        }
        Ok(())
    }

    /// Each of these nodes is killed; the others make copies of what it had.
    ///
    /// # Errors
    /// They do not, or a byte is another one.
    pub fn deaths(&mut self, victims: &[usize]) -> Result<()> {
        self.cluster.heal()?;
        self.fs.put("/copied", 4 * self.block, 31, json!({}))?;
        self.fs.wait_replicas("/copied", 3, seconds(60))?;
        for victim in victims {
            self.cluster.node(*victim).kill()?;
            self.wait_dead()?;
            self.fs.wait_replicas("/copied", 3, COPIED_WITHIN)?;
            self.fs.check("/copied", 4 * self.block, 31)?;
            self.cluster.heal()?;
        }
        Ok(())
    }

    /// Waits until the NameNode counts one node less than there are.
    fn wait_dead(&mut self) -> Result<()> {
        let others = self.cluster.nodes().count() - 1;
        self.cluster.namenode(0).wait_live(others, seconds(60))
    }

    /// A writer's nodes are killed at each of these places of its pipeline: it asks for another
    /// one, and one of the others copies to that.
    ///
    /// # Errors
    /// The writer fails, or a byte is another one.
    pub fn deaths_mid_write(&mut self, places: &[usize]) -> Result<()> {
        for place in places {
            self.cluster.heal()?;
            let path = format!("/killed-{place}");
            let total = 3 * self.block;
            self.fs.create("w", &path, 11, json!({}))?;
            let request =
                json!({"handle": "w", "bytes": total, "chunk": 65_536, "pauseMillis": 10});
            let writing = self.fs.begin("loop", request)?;
            self.fs.wait_acked("w", self.block + self.block / 2)?;
            let last = self.fs.blocks(&path)?.pop();
            let nodes = last.map(|block| block.nodes).unwrap_or_default();
            let victim = nodes
                .get(*place)
                .and_then(|node| self.cluster.node_at(node))
                .ok_or_else(|| TestkitError::Expectation(format!("{nodes:?}")))?;
            self.cluster.node(victim).kill()?;
            let end = writing.wait()?;
            expect(end["failure"].is_null() && end["acked"] == total, || {
                format!("the writer failed: {end}")
            })?;
            self.fs.handle("close", "w")?;
            self.fs.check(&path, total, 11)?;
        }
        self.cluster.heal()
    }

    /// So many striped files: each of these nodes, all of which have a block of each, is killed and
    /// comes back empty. The files are read and their checksums taken meanwhile.
    ///
    /// # Errors
    /// A block does not come back, or a byte or a checksum is another one.
    pub fn striped(&mut self, files: usize, victims: &[usize]) -> Result<()> {
        self.cluster.heal()?;
        let policy = EcPolicy::RS_3_2;
        let enable = ["-enablePolicy", "-policy", policy.name];
        self.fs.tool(class::EC, &enable)?.ok()?;
        self.fs.fs(&["-mkdir", "/striped"])?;
        let set = ["-setPolicy", "-path", "/striped", "-policy", policy.name];
        self.fs.tool(class::EC, &set)?.ok()?;
        let bytes = 6 * EC_CELL + 777;
        let paths: Vec<String> = (0..files).map(|n| format!("/striped/{n}")).collect();
        let mut sums = Vec::new();
        for path in &paths {
            self.fs.put(path, bytes, 21, json!({}))?;
            sums.push(self.fs.call("checksum", json!({ "path": path }))?);
        }
        for victim in victims {
            self.cluster.node(*victim).kill()?;
            for path in &paths {
                self.fs.check(path, bytes, 21)?;
            }
            // Its nodes' checksums are asked for, and one of them is made up.
            for (path, sum) in paths.iter().zip(&sums) {
                let now = self.fs.call("checksum", json!({ "path": path }))?;
                expect_eq(path, &now["hex"], &sum["hex"])?;
            }
            self.wait_dead()?;
            for file in self.cluster.node(*victim).all_block_files() {
                std::fs::remove_file(&file).map_err(TestkitError::file("removing", &file))?;
            }
            self.cluster.start_node(*victim)?;
            self.cluster.wait_all_live()?;
            self.fs.wait_striped(&paths, policy, &[], COPIED_WITHIN)?;
        }
        paths
            .iter()
            .try_for_each(|path| self.fs.check(path, bytes, 21))
    }

    /// A file of one replica goes from storage to storage by the mover, as each of these policies
    /// wants it, with the type that its blocks are on then.
    ///
    /// # Errors
    /// A block stays, or a byte is another one.
    pub fn moves(&mut self, blocks: u64, policies: &[(&str, &str)]) -> Result<()> {
        self.cluster.heal()?;
        self.fs.fs(&["-mkdir", "/moved"])?;
        let bytes = blocks * self.block + 123;
        let one = json!({"replication": 1});
        self.fs.put("/moved/f", bytes, 3, one)?;
        for (policy, wanted) in policies {
            self.fs.set_policy("/moved", policy)?;
            let run = self.fs.tool(class::MOVER, &["-p", "/moved"])?;
            expect(run.code == 0, || {
                format!("mover: {} {}{}", run.code, run.out, run.err)
            })?;
            wait::until(wanted, seconds(60), || {
                let blocks = self.fs.blocks("/moved/f")?;
                let mut types = blocks.iter().flat_map(|block| &block.types);
                Ok(match types.all(|on| on == wanted) {
                    true => Seen::Done(()),
                    false => Seen::NotYet(format!("{blocks:?}")),
                })
            })?;
            self.fs.check("/moved/f", bytes, 3)?;
        }
        Ok(())
    }

    /// The leases of three dead writers are recovered: the nodes call each other's RPC ports.
    ///
    /// # Errors
    /// They are not, or a byte is another one.
    pub fn leases(&mut self) -> Result<()> {
        for seed in 0..3 {
            let path = format!("/dead-{seed}");
            self.fs.create("d", &path, seed, json!({}))?;
            self.fs.write("d", self.block / 2)?;
            self.fs.handle("hflush", "d")?;
            self.fs.handle("abandon", "d")?;
            self.fs.recover_lease(&path, seconds(60))?;
            self.fs.check(&path, self.block / 2, seed)?;
        }
        Ok(())
    }
}
