//! Apache's node killed at each step of its copy and of its eviction; then ours starts, with memory
//! that stays and that is empty.
//!
//! Its copy goes right to `lazypersist`, checksums first. Its eviction renames the data first, then
//! the checksums, and frees the memory last. What lasts for a moment only is left by hand.

use crate::tmpfs::{IN_MEMORY, OnTmpfs, WITH_COPY};
use crate::{BLOCK, COPIED, INTERVAL, NEVER, NO_LIBHADOOP, SOON, until};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{CaseGroup, expect, expect_eq, passed};
use hayloft_testkit::{Outcome, TestkitError};
use std::path::PathBuf;

/// How far Apache's node had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    /// A replica in memory only.
    Memory,
    /// Half of the copy's data.
    HalfACopy,
    /// The whole copy.
    Copy,
    /// The copy's data is where it belongs, and its checksums are not.
    DataInPlace,
    /// Both are, and memory has the replica still.
    InPlace,
}

pub fn cases(on: &mut CaseGroup<'_, OnTmpfs>) {
    for (name, left) in [
        ("apaches_killed_with_a_replica_in_memory_only", Left::Memory),
        ("apaches_killed_while_it_copies", Left::HalfACopy),
        ("apaches_killed_with_a_copy", Left::Copy),
        ("apaches_killed_between_two_renames", Left::DataInPlace),
        ("apaches_killed_before_memory_is_free", Left::InPlace),
    ] {
        on.case(name, move |on| on.apaches(left));
    }
}

impl OnTmpfs {
    fn apaches(&mut self, left: Left) -> Result<Outcome> {
        if !self.lab.lets_apaches_node_lock() {
            return Ok(Outcome::Skipped(NO_LIBHADOOP.into()));
        }
        for empty in [false, true] {
            let dir = format!("/lazy/apaches-{left:?}-{empty}");
            let file = format!("{dir}/1");
            let interval = if left == Left::Memory { NEVER } else { 1 };
            self.lab.hand_over(Kind::Apache, interval)?;
            self.lab.put_in_memory(&file, 1)?;
            if left != Left::Memory {
                self.lab.wait_count(COPIED, 1)?;
            }
            let node = self.lab.cluster.node(0);
            node.kill()?;
            node.become_kind(Kind::under_test())?;
            node.conf_mut().set(INTERVAL, 1);
            self.leave(left, self.block(&file)?)?;
            if empty {
                self.empty()?;
            }
            self.lab.cluster.start_node(0)?;
            self.lab.fs.wait_takes_blocks(SOON)?;
            match (left, empty) {
                (Left::Memory | Left::HalfACopy, false) => {
                    self.found_as(Some("RAM_DISK"), WITH_COPY, &file)?;
                }
                (Left::Memory, true) => self.found_as(None, &[], &file)?,
                // Half of it is served to no client.
                (Left::HalfACopy, true) => {
                    until(&file, true, || {
                        let said = self.lab.fs.tool(class::FSCK, &[&file])?.out;
                        Ok(said.contains("is CORRUPT"))
                    })?;
                    let read = self.lab.fs.check(&file, BLOCK, 1);
                    expect(read.is_err(), || "half a replica was read".into())?;
                }
                _ => self.found_as(Some("DISK"), &["finalized"], &file)?,
            }
            self.remove(&dir)?;
        }
        passed()
    }

    /// Puts the files of a whole copy to where a kill at that step would have left them.
    fn leave(&mut self, left: Left, id: i64) -> Result<()> {
        let places: &[&str] = if left == Left::Memory {
            IN_MEMORY
        } else {
            WITH_COPY
        };
        expect_eq(
            "places when it was killed",
            self.places(id),
            places.to_vec(),
        )?;
        let files = self.lab.cluster.node(0).block_files(id).into_iter();
        let is_copy = |path: &PathBuf| path.iter().any(|part| part == "lazypersist");
        for file in files.filter(is_copy) {
            let is_data = file.extension().is_none();
            if left == Left::HalfACopy && is_data {
                let cut = std::fs::File::options().write(true).open(&file);
                let cut = cut.and_then(|file| file.set_len(BLOCK / 2));
                cut.map_err(TestkitError::file("cutting", &file))?;
            }
            if left == Left::InPlace || left == Left::DataInPlace && is_data {
                let parts = file.iter().map(|part| match part {
                    part if part == "lazypersist" => "finalized".as_ref(),
                    part => part,
                });
                let there: PathBuf = parts.collect();
                let dir = there.parent().unwrap_or(&there);
                std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
                let moved = std::fs::rename(&file, &there);
                moved.map_err(TestkitError::file("renaming", &file))?;
            }
        }
        Ok(())
    }
}
