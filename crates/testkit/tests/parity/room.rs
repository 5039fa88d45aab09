//! Disks of a node are full.

use crate::{BLOCK, HOSTS, Lab, NodeDisk};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::mounts::{TestMount, run};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, http, ports};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const HOST: usize = 0;
/// The disk that takes no replica either: the first, where the node would leave its status.
const FULL: usize = 0;
/// Left on it, bytes: records fit.
const FOR_RECORDS: u64 = BLOCK / 4;
/// Left on the others, bytes: a replica fits, and no parity of one behind it.
const FOR_REPLICA: u64 = BLOCK * 3 / 2;
/// Units of a full group, one of them parity: so much of its room a node keeps for itself.
const UNITS: u64 = 7;
/// Rounds that look for room: one each 5 s.
const ROUNDS_S: u64 = 11;

/// What a node says of itself, in bytes.
fn bytes(status: &Value, name: &str) -> u64 {
    status[name].as_u64().unwrap_or(u64::MAX)
}

/// Why a volume takes no files of groups; null when it does.
fn refuses(status: &Value, directory: &str) -> Value {
    let rows = status["volumes"].as_array().into_iter().flatten();
    let mut ours = rows.filter(|row| row["directory"] == *directory);
    ours.next()
        .map_or(Value::Null, |row| row["refuses"].clone())
}

impl Lab {
    /// A disk of the host that can be filled.
    fn mount(&self, disk: usize) -> Result<&TestMount> {
        match self.disk(HOST, disk) {
            NodeDisk::Mount(mount) => Ok(mount),
            NodeDisk::Modelled(_) => Err(TestkitError::Expectation("it is modelled".into())),
        }
    }

    /// Leaves so many bytes free on these disks.
    fn fill(&mut self, left: &[(usize, u64)]) -> Result<Vec<PathBuf>> {
        let fillers = left
            .iter()
            .map(|(disk, left)| self.mount(*disk)?.fill_but(*left));
        let fillers = fillers.collect::<Result<Vec<_>>>()?;
        self.wait_room_known()?;
        Ok(fillers)
    }

    fn remove(&mut self, fillers: Vec<PathBuf>) -> Result<()> {
        for path in fillers {
            std::fs::remove_file(&path).map_err(TestkitError::file("removing", &path))?;
        }
        self.wait_room_known()
    }

    /// Waits until the node has told the NameNode how much is free.
    fn wait_room_known(&mut self) -> Result<()> {
        let xfer = self.cluster.node(HOST).xfer();
        wait::until("the NameNode knows of the room", seconds(30), || {
            let free = (0..self.disks_each).map(|disk| self.mount(disk)?.free());
            let free: u64 = free.sum::<Result<u64>>()?;
            let told = free - free / UNITS;
            let bean = self.cluster.namenode_bean(0, "NameNodeInfo")?;
            let live = bean["LiveNodes"].as_str().unwrap_or_default();
            let live: Value = serde_json::from_str(live).unwrap_or_default();
            let nodes = live.as_object().into_iter().flatten();
            let mut ours = nodes.filter(|(_, node)| node["xferaddr"] == *xfer);
            let remaining = ours.next().and_then(|(_, node)| node["remaining"].as_u64());
            Ok(match remaining {
                Some(remaining) if remaining.abs_diff(told) < BLOCK => Seen::Done(()),
                _ => Seen::NotYet(format!("{remaining:?}, not {told}: {live}")),
            })
        })
    }

    /// Nothing is wrong by the exit code and the numbers, and this much has no parity: as the
    /// command and the web port say.
    fn expect_unprotected(&mut self, unprotected: u64, protected: u64) -> Result<()> {
        let (code, now) = self.parity(HOST, &["status"])?;
        expect_eq("exit code", code, Some(0))?;
        for (name, wanted) in [
            ("unprotected_bytes", unprotected),
            ("protected_bytes", protected),
            ("degraded_bytes", 0),
            ("lost_bytes", 0),
        ] {
            expect_eq(name, bytes(&now, name), wanted)?;
        }
        let web = ports::local(self.cluster.node(HOST).http_port());
        let metrics = http::get(web, "/prom")?;
        let metric = format!("hayloft_parity_bytes{{state=\"unprotected\"}} {unprotected}");
        expect(metrics.lines().any(|line| line == metric), || {
            format!("{metric} is not in {metrics}")
        })
    }

    /// Deletes all files but the first `stay`.
    fn delete_all_but(&mut self, stay: usize) -> Result<()> {
        let gone: Vec<_> = self.files.drain(stay..).map(|(path, ..)| path).collect();
        let mut arguments = vec!["-rm", "-skipTrash"];
        arguments.extend(gone.iter().map(String::as_str));
        self.fs.fs(&arguments).map(drop)
    }

    /// Nothing may be made or removed in the directory of groups on one disk.
    pub fn refused_dir(&mut self) -> Result<Outcome> {
        self.some_protected(HOST)?;
        let stay = self.files.len();
        let dir = self.disk(HOST, FULL).data();
        let groups = dir.join("hayloft-parity");
        let chattr = |flag: &str| run(Command::new("chattr").arg(flag).arg(&groups));
        chattr("+i")?;
        let outcome = self.beside_refused_dir(&dir);
        chattr("-i")?;
        outcome?;
        // It is tried again.
        let name = dir.display().to_string();
        self.wait_status(HOST, "the disk takes parity again", |now| {
            refuses(now, &name).is_null()
        })?;
        self.delete_all_but(stay)?;
        self.wait_protected(HOST)?;
        passed()
    }

    fn beside_refused_dir(&mut self, dir: &Path) -> Result<()> {
        self.write("refused", 24)?;
        let now = self.wait_protected(HOST)?;
        let why = refuses(&now, &dir.display().to_string());
        println!("parity: a disk takes no parity: {why}");
        expect(why.is_string(), || now.to_string())?;
        self.check_all()
    }

    /// Most of what is on full disks is deleted: the room is there again.
    pub fn deleted_room(&mut self) -> Result<Outcome> {
        self.some_protected(HOST)?;
        let stay = self.files.len();
        self.write("room", 42)?;
        self.wait_protected(HOST)?;
        let left: Vec<_> = (0..self.disks_each).map(|disk| (disk, 2 * BLOCK)).collect();
        let fillers = self.fill(&left)?;
        // Every third: of no group more than half goes.
        let (gone, kept): (Vec<_>, Vec<_>) = (stay..self.files.len()).partition(|at| at % 3 == 0);
        let mut arguments = vec!["-rm".to_owned(), "-skipTrash".to_owned()];
        arguments.extend(gone.iter().map(|at| self.files[*at].0.clone()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.fs.fs(&arguments)?;
        let rest = kept.iter().map(|at| self.files[*at].clone());
        let rest: Vec<_> = self.files[..stay].iter().cloned().chain(rest).collect();
        self.files = rest;
        let now = self.wait_status(HOST, "what is kept has made room", |now| {
            bytes(now, "kept_bytes") <= 4 * BLOCK
        })?;
        println!("parity: after deletes on full disks: {now}");
        self.wait_room_known()?;
        self.wait_protected(HOST)?;
        self.check_all()?;
        self.delete_all_but(stay)?;
        self.remove(fillers)?;
        self.wait_protected(HOST)?;
        passed()
    }

    pub fn no_room(&mut self) -> Result<Outcome> {
        let before = self.some_protected(HOST)?;
        let protected = bytes(&before, "protected_bytes");
        let on_full = self.fill(&[(FULL, FOR_RECORDS)])?;
        let others = (0..self.disks_each).filter(|disk| *disk != FULL);
        let left: Vec<_> = others.map(|disk| (disk, FOR_REPLICA)).collect();
        let on_others = self.fill(&left)?;
        // Until each of them has a replica there are no partners, and then no room.
        for n in 0..left.len() {
            self.write(&format!("last-{n}"), 1)?;
            self.fs
                .wait_replicas(&format!("/last-{n}/0"), HOSTS, seconds(20))?;
        }
        let new = left.len() as u64 * BLOCK;
        self.wait_status(HOST, "new replicas are unprotected", |now| {
            bytes(now, "unprotected_bytes") == new
        })?;
        std::thread::sleep(seconds(ROUNDS_S));
        self.expect_unprotected(new, protected)?;
        // The other node takes what this one cannot.
        let stay = self.files.len();
        self.write("on", 3)?;
        self.check_all()?;
        self.expect_unprotected(new, protected)?;
        self.delete_all_but(stay)?;
        self.remove(on_full)?;
        let now = self.wait_protected(HOST)?;
        expect_eq("unprotected", bytes(&now, "unprotected_bytes"), 0)?;
        self.remove(on_others)?;
        self.one_full(&now)
    }

    /// One disk is full: groups are smaller, and nothing comes to that disk.
    fn one_full(&mut self, before: &Value) -> Result<Outcome> {
        let dir = self.disk(HOST, FULL).data().display().to_string();
        let on_full = |status: &Value| {
            let volumes = status["volumes"].as_array();
            let mut rows = volumes.into_iter().flatten();
            let row = rows.find(|row| row["directory"] == *dir);
            row.map(|row| (bytes(row, "parity_bytes"), bytes(row, "protected_bytes")))
        };
        let there = on_full(before);
        expect(there.is_some(), || format!("no row of {dir}: {before}"))?;
        let stay = self.files.len();
        // Not even a record fits.
        let filler = vec![self.mount(FULL)?.fill()?];
        self.wait_room_known()?;
        self.write("beside", 12)?;
        let wanted = bytes(before, "protected_bytes") + 5 * BLOCK;
        let now = self.wait_status(HOST, "parity beside a full disk", |now| {
            bytes(now, "protected_bytes") >= wanted
        })?;
        expect_eq("parity and replicas on the full disk", on_full(&now), there)?;
        self.check_all()?;
        self.delete_all_but(stay)?;
        self.remove(filler)?;
        self.wait_protected(HOST)?;
        self.expect_none_corrupt()?;
        passed()
    }
}
