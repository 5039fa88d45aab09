//! Memory that is a real tmpfs: a node killed at each step of a copy and of an eviction, with
//! memory that stays (the process ended) and that is empty (the host did); a tmpfs that is gone.

use crate::{BLOCK, COPIED, INTERVAL, Lab, NEVER, SOON, start, until};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{class, scratch};
use hayloft_testkit::mounts::TestMount;
use hayloft_testkit::suite::{CaseGroup, expect, expect_eq, passed, seconds};
use hayloft_testkit::{Outcome, Suite, TestkitError, VolumeSpec};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Size of the tmpfs, MiB: more than the node may lock.
const MEMORY_MIB: u32 = 8;
/// A step takes milliseconds: a kill may come too late.
const TRIES: u32 = 20;
/// Where the data of a replica is: at each step, and after a start.
pub const IN_MEMORY: &[&str] = &["memory"];
const COPYING: &[&str] = &["memory", "tmp"];
pub const WITH_COPY: &[&str] = &["lazypersist", "memory"];
const LEAVING: &[&str] = &["finalized", "memory"];

pub fn cases(suite: &mut Suite) -> CaseGroup<'_, OnTmpfs> {
    let end = |on: OnTmpfs, failed| on.lab.cluster.conclude(failed);
    let mut on = suite.group(OnTmpfs::start, end);
    for (name, step) in [
        ("killed_with_a_replica_in_memory_only", IN_MEMORY),
        ("killed_while_a_replica_is_copied", COPYING),
        ("killed_with_a_replica_and_its_copy", WITH_COPY),
        ("killed_while_a_replica_leaves_memory", LEAVING),
    ] {
        on.case(name, move |on| on.killed(step));
    }
    on.case("a_full_tmpfs_has_writers_go_to_disk", OnTmpfs::full)
        .case("a_tmpfs_that_is_unmounted", OnTmpfs::gone);
    on
}

pub struct OnTmpfs {
    // Dropped first to last: the node ends before its memory goes.
    pub lab: Lab,
    memory: Option<TestMount>,
    at: PathBuf,
    _base: tempfile::TempDir,
}

impl OnTmpfs {
    fn start() -> Result<Self> {
        let base = scratch("memory-")?;
        let at = base.path().join("memory");
        let memory = Some(TestMount::tmpfs(&at, MEMORY_MIB)?);
        let lab = start(VolumeSpec {
            storage_type: Some("RAM_DISK"),
            path: Some(at.join("data")),
        })?;
        Ok(Self {
            lab,
            memory,
            at,
            _base: base,
        })
    }

    /// Kills the node, if it runs, and starts it with so many seconds between copies.
    fn restart(&mut self, interval: u64) -> Result<()> {
        let node = self.lab.cluster.node(0);
        node.kill()?;
        node.conf_mut().set(INTERVAL, interval);
        self.lab.cluster.start_node(0)?;
        self.lab.fs.wait_takes_blocks(SOON)
    }

    pub fn block(&self, file: &str) -> Result<i64> {
        Ok(self.lab.fs.blocks(file)?.remove(0).id)
    }

    /// Where the data of a block lies, in alphabetical order.
    pub fn places(&mut self, id: i64) -> Vec<&'static str> {
        let place_of = |path: &PathBuf| {
            let mut places = ["memory", "finalized", "lazypersist", "tmp"].into_iter();
            places.find(|place| path.iter().any(|part| part == *place))
        };
        let name = format!("blk_{id}");
        let files = self.lab.cluster.node(0).block_files(id);
        let data = files.iter().filter(|path| path.ends_with(&name));
        let mut places: Vec<_> = data.filter_map(place_of).collect();
        places.sort_unstable();
        places
    }

    /// Removes a directory; nothing is left of any block.
    pub fn remove(&mut self, dir: &str) -> Result<()> {
        self.lab.fs.fs(&["-rm", "-r", "-skipTrash", dir])?;
        until("all blocks", Vec::new(), || {
            Ok(self.lab.cluster.node(0).all_block_files())
        })
    }

    /// Writes `dir/1`, waits for the step and kills the node; false when that came too late.
    fn is_killed_at(&mut self, step: &[&str], dir: &str) -> Result<bool> {
        self.restart(if step == IN_MEMORY { NEVER } else { 3 })?;
        self.lab.put_in_memory(&format!("{dir}/1"), 1)?;
        let id = self.block(&format!("{dir}/1"))?;
        let mut wants_room = None;
        if step == LEAVING {
            (2..=4).try_for_each(|n| self.lab.put_in_memory(&format!("{dir}/{n}"), n))?;
            self.lab.wait_count(COPIED, 4)?;
            let fifth = json!({"path": format!("{dir}/5"), "bytes": BLOCK, "seed": 5});
            wants_room = Some(self.lab.fs.begin("put", fifth)?);
        }
        let limit = Instant::now() + seconds(8);
        while self.places(id) != step && Instant::now() < limit {}
        self.lab.cluster.node(0).kill()?;
        // It fails where the kill came in time: the node was the only one.
        let _ended = wants_room.map(|put| put.wait());
        Ok(self.places(id) == step)
    }

    fn killed(&mut self, step: &[&str]) -> Result<Outcome> {
        for empty in [false, true] {
            let mut tries = (0..TRIES).map(|n| format!("/lazy/{}-{empty}-{n}", step.join("-")));
            let dir = loop {
                let too_late = || TestkitError::Expectation("all kills came too late".into());
                let dir = tries.next().ok_or_else(too_late)?;
                if self.is_killed_at(step, &dir)? {
                    break dir;
                }
                self.restart(1)?;
                self.remove(&dir)?;
            };
            if empty {
                self.empty()?;
            }
            self.restart(1)?;
            self.found(step, empty, &format!("{dir}/1"))?;
            self.remove(&dir)?;
        }
        passed()
    }

    /// What a start makes of the replica: the NameNode counts it once, or as missing.
    fn found(&mut self, step: &[&str], empty: bool, file: &str) -> Result<()> {
        let has_copy = step == WITH_COPY || step == LEAVING;
        let (storage, places): (_, &[&str]) = match (has_copy, empty) {
            (true, _) => (Some("DISK"), &["finalized"]),
            (false, false) => (Some("RAM_DISK"), WITH_COPY),
            (false, true) => (None, &[]),
        };
        self.found_as(storage, places, file)
    }

    /// Memory after the host was switched off.
    pub fn empty(&mut self) -> Result<()> {
        self.memory = None;
        self.memory = Some(TestMount::tmpfs(&self.at, MEMORY_MIB)?);
        Ok(())
    }

    /// Waits until the replica is in these places; the NameNode counts it once, or as missing.
    pub fn found_as(
        &mut self,
        storage: Option<&str>,
        places: &[&'static str],
        file: &str,
    ) -> Result<()> {
        let id = self.block(file)?;
        until(file, places.to_vec(), || Ok(self.places(id)))?;
        if let Some(storage) = storage {
            return self.lab.served(storage, &[(file, 1)]);
        }
        self.lab.fs.wait_replicas(file, 0, SOON)?;
        let said = self.lab.fs.tool(class::FSCK, &[file])?.out;
        expect(said.contains("is CORRUPT"), || said)
    }

    fn full(&mut self) -> Result<Outcome> {
        self.restart(NEVER)?;
        self.lab.put_in_memory("/lazy/full/1", 1)?;
        let filler = self.memory.as_ref().map(TestMount::fill).transpose()?;
        let filler = filler.unwrap_or_default();
        // At once the node has not seen it yet; later it has.
        for (file, seed) in [("/lazy/full/2", 2), ("/lazy/full/3", 3)] {
            self.lab.fs.put(file, BLOCK, seed, json!({}))?;
            self.lab.served("DISK", &[(file, seed)])?;
            std::thread::sleep(seconds(5));
        }
        expect_eq("counted", self.lab.count("RamDiskBlocksWriteFallback")?, 2)?;
        self.lab.served("RAM_DISK", &[("/lazy/full/1", 1)])?;
        std::fs::remove_file(&filler).map_err(TestkitError::file("removing", &filler))?;
        std::thread::sleep(seconds(5));
        self.lab.put_in_memory("/lazy/full/4", 4)?;
        self.remove("/lazy/full")?;
        passed()
    }

    fn gone(&mut self) -> Result<Outcome> {
        self.restart(10)?;
        self.lab.put_in_memory("/lazy/gone/1", 1)?;
        self.lab.wait_count(COPIED, 1)?;
        self.lab.put_in_memory("/lazy/gone/only", 9)?;
        let only = self.block("/lazy/gone/only")?;
        self.memory = None;
        expect_eq("of the other", self.places(only), Vec::new())?;
        self.wait_failed(1)?;
        self.lab.fs.wait_replicas("/lazy/gone/only", 0, SOON)?;
        self.lab.fs.put("/lazy/gone/2", BLOCK, 2, json!({}))?;
        let there = [("/lazy/gone/1", 1), ("/lazy/gone/2", 2)];
        self.lab.served("DISK", &there)?;
        // Nothing is made where nothing is mounted.
        self.restart(1)?;
        self.wait_failed(1)?;
        let made = self.at.join("data/current").exists();
        expect_eq("made on the disk above", made, false)?;
        self.lab.served("DISK", &there)?;
        self.memory = Some(TestMount::tmpfs(&self.at, MEMORY_MIB)?);
        self.restart(1)?;
        self.wait_failed(0)?;
        self.lab.put_in_memory("/lazy/gone/3", 3)?;
        self.remove("/lazy/gone")?;
        passed()
    }

    fn wait_failed(&mut self, failed: u64) -> Result<()> {
        until("failed volumes", Some(failed), || {
            let bean = self.lab.cluster.namenode_bean(0, "FSNamesystemState")?;
            Ok(bean["VolumeFailuresTotal"].as_u64())
        })
    }
}
