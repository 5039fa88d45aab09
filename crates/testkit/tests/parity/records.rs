//! Records of groups are damaged.

use crate::Lab;
use hayloft_testkit::Outcome;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::files::flip_byte;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const HOST: usize = 0;
/// A byte in the head of a record.
const IN_HEAD: usize = 20;
/// Copies of a record in groups with one parity file.
const COPIES: usize = 2;

/// What lies on disks of a group.
#[derive(Debug)]
struct GroupOnDisks {
    /// Its name.
    name: OsString,
    /// The copies of its record.
    copies: Vec<PathBuf>,
    /// Data files of its members.
    members: Vec<PathBuf>,
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(TestkitError::file("reading", path))
}

/// Whether a record names the block of a data file.
fn names(record: &[u8], data: &Path) -> bool {
    let name = data.file_name().and_then(|name| name.to_str());
    let id = name.and_then(|name| name.strip_prefix("blk_")?.parse::<i64>().ok());
    id.is_some_and(|id| record.windows(8).any(|bytes| bytes == id.to_be_bytes()))
}

impl Lab {
    /// The group of a host with the most members.
    fn largest_group(&mut self) -> Result<GroupOnDisks> {
        let mut records: BTreeMap<OsString, Vec<PathBuf>> = BTreeMap::new();
        for path in self.group_files(HOST) {
            if path.extension().is_some_and(|e| e == "record") {
                let name = path.file_stem().unwrap_or_default().to_owned();
                records.entry(name).or_default().push(path);
            }
        }
        let data = self.data_files(HOST);
        let mut groups = Vec::new();
        for (name, copies) in records {
            let record = read(&copies[0])?;
            let members = data.iter().filter(|data| names(&record, data));
            groups.push(GroupOnDisks {
                name,
                members: members.cloned().collect(),
                copies,
            });
        }
        let largest = groups.into_iter().max_by_key(|group| group.members.len());
        let largest = largest.filter(|group| !group.members.is_empty());
        let group = largest.ok_or_else(|| TestkitError::Expectation("no group".into()))?;
        expect_eq("copies of its record", group.copies.len(), COPIES)?;
        Ok(group)
    }

    /// One copy is damaged, in its head or behind, and a member too: all is mended.
    pub fn records_mended(&mut self) -> Result<Outcome> {
        self.some_protected(HOST)?;
        let group = self.largest_group()?;
        let whole = read(&group.copies[0])?;
        for (at, copy) in [IN_HEAD, whole.len() / 2].into_iter().zip(&group.copies) {
            let member = &group.members[at % group.members.len()];
            let before = read(member)?;
            flip_byte(copy, at)?;
            flip_byte(member, at)?;
            let (code, answer) = self.parity(HOST, &["scrub", "--wait", "60"])?;
            expect_eq("exit code", code, Some(0)).inspect_err(|_| println!("parity: {answer}"))?;
            wait::until("the member is mended", seconds(30), || {
                Ok(if read(member)? == before {
                    Seen::Done(())
                } else {
                    Seen::NotYet("it is not".into())
                })
            })?;
            // Both are of the next revision.
            let copies = [read(&group.copies[0])?, read(&group.copies[1])?];
            let sections = &whole[whole.len() / 2..];
            expect(
                copies[0] == copies[1] && copies[0].ends_with(sections),
                || format!("the copies of {group:?} differ"),
            )?;
        }
        self.expect_none_corrupt()?;
        self.check_all()?;
        passed()
    }

    /// A group has no whole record any more: its replicas are in other groups soon, and none is
    /// called corrupt.
    fn wait_encoded_anew(&mut self, group: &GroupOnDisks) -> Result<()> {
        wait::until("the group has gone", seconds(60), || {
            let files = self.group_files(HOST).into_iter();
            let left: Vec<_> = files
                .filter(|file| file.file_stem() == Some(&group.name))
                .collect();
            std::thread::sleep(seconds(1));
            Ok(if left.is_empty() {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{left:?}"))
            })
        })?;
        let wanted: u64 = self.files.iter().map(|(_, bytes, _)| bytes).sum();
        self.wait_status(HOST, "all is in whole groups", |now| {
            let bytes = |name: &str| now[name].as_u64();
            let short = ["degraded_bytes", "lost_bytes", "unprotected_bytes"];
            bytes("protected_bytes") == Some(wanted) && short.iter().all(|s| bytes(s) == Some(0))
        })?;
        self.expect_none_corrupt()?;
        self.expect_replicas()?;
        self.check_all()
    }

    pub fn records_lost(&mut self) -> Result<Outcome> {
        self.some_protected(HOST)?;
        // Each copy lacks another section: none is whole.
        let group = self.largest_group()?;
        let len = read(&group.copies[0])?.len();
        for (copy, at) in group.copies.iter().zip([len / 2, len - 1]) {
            flip_byte(copy, at)?;
        }
        let (code, answer) = self.parity(HOST, &["scrub", "--wait", "60"])?;
        // It may say that the group lacks units, not that data is lost.
        expect(matches!(code, Some(0 | 1)), || format!("{code:?}"))?;
        expect_eq("lost", answer["lost_bytes"].as_u64(), Some(0))?;
        self.wait_encoded_anew(&group)?;
        // No head can be read at a start.
        let group = self.largest_group()?;
        self.cluster.node(HOST).kill()?;
        for copy in &group.copies {
            flip_byte(copy, IN_HEAD)?;
        }
        self.cluster.start_node(HOST)?;
        self.cluster.wait_all_live()?;
        for (path, ..) in &self.files {
            self.fs.wait_replicas(path, crate::HOSTS, seconds(60))?;
        }
        self.wait_encoded_anew(&group)?;
        passed()
    }
}
