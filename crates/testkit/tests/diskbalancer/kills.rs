//! Nodes that are killed in a move between their disks, and what a start of either kind makes of
//! it: the replica is there once, and every byte of it.
//!
//! Half a copy is seen in the directories, and the node is killed. What lasts for a moment only is
//! left there by hand, as the code of either kind leaves it.

use crate::refusals::request;
use crate::{BLOCK, Lab};
use hayloft_rpc::{CLIENT_DATANODE_PROTOCOL, RpcOptions, current_user};
use hayloft_testkit::blocking_rpc::BlockingRpc;
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::process::Signal;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, Suite, TestkitError};
use hayloft_wire::proto::clientdatanode::SubmitDiskBalancerPlanResponse;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The one replica that moves, bytes: its copy takes long enough to be seen.
const BIG: u64 = 64 << 20;
const FILE: &str = "/big";
const SEED: u64 = 77;
/// A copy may be through before it is seen.
const TRIES: usize = 20;

/// How far a move has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Part of the data is in `tmp` of the other disk.
    Half,
    /// The whole copy is there, and has no name yet.
    Whole,
    /// It has its name, and the source has its own still.
    Both,
}

pub fn cases(suite: &mut Suite) {
    let start = || Lab::with(&[Kind::under_test()], false)?.0.with_big_file();
    let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
    for (name, step) in [
        ("killed_with_half_a_copy", Step::Half),
        ("killed_with_a_whole_copy_without_a_name", Step::Whole),
        ("killed_with_a_replica_on_both_disks", Step::Both),
    ] {
        on.case(name, move |lab| lab.killed_at(step));
    }
}

/// Whether a file of a volume is in the pool's `tmp`. The volume itself may be in another.
fn is_in_tmp(path: &Path) -> bool {
    let mut inside = path.iter().skip_while(|part| *part != "current");
    inside.any(|part| part == "tmp")
}

/// All files below a directory that may change meanwhile.
fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => below(&path),
            false => vec![path],
        })
        .collect()
}

impl Lab {
    fn with_big_file(self) -> Result<Self> {
        let more = json!({"replication": 1, "blockSize": BIG});
        self.fs.put(FILE, BIG, SEED, more)?;
        Ok(self)
    }

    /// Each kind is killed; ours starts on what it left, also after Apache's.
    fn killed_at(&mut self, step: Step) -> Result<Outcome> {
        let ours = Kind::under_test();
        if ours == Kind::Apache {
            return Ok(Outcome::Skipped("it is about a change of kinds".into()));
        }
        for (first, then) in [
            (ours, &[ours][..]),
            (ours, &[Kind::Apache, ours]),
            (Kind::Apache, &[ours]),
        ] {
            self.kill_at(first, step)?;
            for kind in then {
                self.cluster.swap_node(0, *kind)?;
                self.cluster.wait_all_live()?;
                self.is_there_once(*kind)?;
            }
        }
        passed()
    }

    /// The number of the disk that has the replica, and its two files.
    fn source(&mut self) -> Result<(usize, Vec<PathBuf>)> {
        let id = self.fs.blocks(FILE)?.remove(0).id;
        let mut files = self.cluster.node(0).block_files(id);
        files.sort();
        let on_second = files
            .first()
            .is_some_and(|f| f.starts_with(self.disks[1].path()));
        expect(files.len() == 2, || format!("not one replica: {files:?}"))?;
        Ok((usize::from(on_second), files))
    }

    /// Has a node of this kind move the replica, and ends it at that step.
    fn kill_at(&mut self, first: Kind, step: Step) -> Result<()> {
        for _ in 0..TRIES {
            self.cluster.swap_node(0, first)?;
            self.cluster.wait_all_live()?;
            // The NameNode may mean the node before it. One that reads has loaded its replicas.
            wait::until("a node that reads", seconds(30), || {
                Ok(match self.fs.check(FILE, BIG, SEED) {
                    Ok(()) => Seen::Done(()),
                    Err(error) => Seen::NotYet(error.to_string()),
                })
            })?;
            let (source, files) = self.source()?;
            let is_killed = if step == Step::Half {
                wait::until("a node that takes plans", seconds(30), || {
                    Ok(match self.submit(source) {
                        Ok(()) => Seen::Done(()),
                        Err(error) => Seen::NotYet(error.to_string()),
                    })
                })?;
                self.kill_half_way(1 - source, &files[0])?
            } else {
                self.cluster.node(0).kill()?;
                self.leave(first, step, source, &files)?;
                true
            };
            if is_killed {
                println!("{first:?} was killed at {step:?}");
                return Ok(());
            }
        }
        let why = "all kills came too late";
        Err(TestkitError::Expectation(why.into()))
    }

    /// Begins the move: Apache's command takes longer than the copy.
    fn submit(&mut self, source: usize) -> Result<()> {
        let plan = self.plan_json(0, (source, 1 - source), BIG, 1)?;
        let options = RpcOptions {
            user: current_user(),
            ..RpcOptions::default()
        };
        let ipc = self.cluster.node(0).ipc();
        let rpc = BlockingRpc::new("DataNode", &ipc, CLIENT_DATANODE_PROTOCOL, options)?;
        let _: SubmitDiskBalancerPlanResponse =
            rpc.call("submitDiskBalancerPlan", &request(&plan.to_string()))?;
        Ok(())
    }

    /// Kills the node when the other disk has part of the data; false when that came too late.
    fn kill_half_way(&mut self, target: usize, data: &Path) -> Result<bool> {
        let (name, dir) = (data.file_name(), self.disks[target].path().to_owned());
        let copied = || {
            let files = below(&dir).into_iter();
            let mut copies = files.filter(|path| path.file_name() == name);
            let copy = copies.next()?;
            let bytes = std::fs::metadata(&copy).ok()?.len();
            Some((is_in_tmp(&copy), bytes))
        };
        let limit = Instant::now() + seconds(20);
        while copied().is_none_or(|(_, bytes)| bytes == 0) && Instant::now() < limit {}
        self.cluster.node(0).signal(Signal::KILL)?;
        self.cluster.node(0).kill()?;
        let left = copied();
        println!("the other disk has {left:?} of {BIG} bytes");
        Ok(left.is_some_and(|(in_tmp, bytes)| in_tmp && bytes > 0 && bytes < BIG))
    }

    /// Leaves a copy on the other disk: where a node of this kind has it before it has its name
    /// (ours: `move_replica::copy_and_switch`), or where it belongs.
    fn leave(&self, kind: Kind, step: Step, source: usize, files: &[PathBuf]) -> Result<()> {
        let [from, to] = [source, 1 - source].map(|disk| self.disks[disk].path());
        for file in files {
            let outside = || TestkitError::Expectation(format!("{} is elsewhere", file.display()));
            let there = to.join(file.strip_prefix(from).map_err(|_| outside())?);
            // The pool has `current/finalized/subdirA/subdirB` and `tmp`.
            let pool = there.ancestors().nth(5).ok_or_else(outside)?;
            let of_pool = there.strip_prefix(pool).map_err(|_| outside())?;
            let copy = match (step, kind) {
                (Step::Both, _) => there.clone(),
                (_, Kind::Hayloft) => pool
                    .join("tmp/move-0")
                    .join(file.file_name().ok_or_else(outside)?),
                (_, Kind::Apache) => {
                    let dirs: PathBuf = of_pool.iter().skip(2).collect();
                    pool.join("tmp").join(dirs)
                }
            };
            let dir = copy.parent().ok_or_else(outside)?;
            std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
            std::fs::copy(file, &copy).map_err(TestkitError::file("copying to", &copy))?;
        }
        Ok(())
    }

    fn is_there_once(&mut self, kind: Kind) -> Result<()> {
        self.fs.wait_replicas(FILE, 1, seconds(60))?;
        self.fs.check(FILE, BIG, SEED)?;
        let node = self.cluster.nodes().next();
        let verified = node.map_or(Ok(0), |node| self.fs.verify_metas(node))?;
        expect(verified > 0, || "nothing was verified".into())?;
        if kind == Kind::Apache {
            // It may serve one of two, and leave both.
            return Ok(());
        }
        wait::until("nothing but the replica", seconds(60), || {
            let dirs = self
                .disks
                .iter()
                .map(|disk| disk.path().join("data/current"));
            let all: Vec<PathBuf> = dirs.flat_map(|dir| below(&dir)).collect();
            let is_block = |path: &&PathBuf| {
                let name = path.file_name().unwrap_or_default();
                name.as_encoded_bytes().starts_with(b"blk_") || is_in_tmp(path)
            };
            let left: Vec<&PathBuf> = all.iter().filter(is_block).collect();
            let in_place = left
                .iter()
                .all(|path| path.iter().any(|p| p == "finalized"));
            let on_one = left
                .windows(2)
                .all(|two| two[0].parent() == two[1].parent());
            Ok(if left.len() == 2 && in_place && on_one {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{left:?}"))
            })
        })
    }

    /// Ended in the middle of a move, the node's directories are Apache's to go on with.
    pub fn killed(&mut self) -> Result<Outcome> {
        if Kind::under_test() == Kind::Apache {
            return Ok(Outcome::Skipped("it is about a change of kinds".into()));
        }
        let counts = self.counts(0);
        let (source, target) = if counts[0] > counts[1] {
            (0, 1)
        } else {
            (1, 0)
        };
        // All that is read from now on comes from the node under test.
        self.cluster.node(1).stop()?;
        for round in 0..4 {
            // As fast as the disks: it is killed while it copies.
            let file = self.by_hand(0, (source, target), 12 * BLOCK + round, 1000)?;
            self.run(&["-execute", &file, "-skipDateCheck"])?;
            std::thread::sleep(Duration::from_millis(10 * round));
            self.cluster.node(0).kill()?;
            println!("killed with {:?} replicas", self.counts(0));
            self.cluster.start_node(0)?;
            // The client finds its connection to the killed node broken.
            let _broken = self.query(0, &[]);
            let idle = self.query(0, &[])?;
            expect(idle.contains("Result: NO_PLAN"), || idle.clone())?;
            self.check_files()?;
        }
        let file = self.by_hand(0, (target, source), 12 * BLOCK, 1000)?;
        self.run(&["-execute", &file, "-skipDateCheck"])?;
        self.cluster.node(0).kill()?;
        for kind in [Kind::Apache, Kind::Hayloft] {
            self.cluster.swap_node(0, kind)?;
            self.check_files()?;
            let node = self.cluster.nodes().next();
            node.map_or(Ok(0), |node| self.fs.verify_metas(node))?;
            // Apache's may serve one of two, and leave both.
            if kind == Kind::Hayloft {
                self.no_block_twice()?;
            }
        }
        self.cluster.start_node(1)?;
        self.fs.wait_healthy("/files", seconds(60))?;
        passed()
    }

    /// No replica is left on both disks of the node under test.
    fn no_block_twice(&self) -> Result<()> {
        let files = self.cluster.nodes().next().map(|n| n.all_block_files());
        let mut seen = BTreeSet::new();
        for path in files.unwrap_or_default() {
            let name = path.file_name().map(std::ffi::OsStr::to_os_string);
            expect(seen.insert(name), || {
                format!("{} is there twice", path.display())
            })?;
        }
        Ok(())
    }
}
