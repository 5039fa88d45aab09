//! Ten thousand directives that come and go, over files that fit, that do not, and whose replicas
//! are damaged, gone, written or deleted meanwhile.

use super::{LOCKED, Lab, SOON, STATE, locked_by};
use hayloft_testkit::error::Result;
use hayloft_testkit::files::flip_byte;
use hayloft_testkit::http;
use hayloft_testkit::process_usage::{Usage, mappings, usage};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Directives in all, and how many are there at a time.
const DIRECTIVES: u64 = 10_000;
const AT_A_TIME: u64 = 2_500;
/// Files with a replica on both nodes, and their bytes. A node has room for 40 of them.
const FILES: u64 = 100;
const BYTES: u64 = 100_000;
/// The first files have a damaged replica on the first node, the next one whose files are gone
/// there, and the next are open. The last are deleted while they are cached.
const DAMAGED: u64 = 8;
const GONE: u64 = 8;
const OPEN: u64 = 4;
const DELETED: u64 = 4;

fn path_of(file: u64) -> String {
    format!("/many/f{file}")
}

/// The most that each of these processes has locked, as it is looked at until the end.
struct Watch<'a> {
    pids: [u32; 2],
    ended: &'a AtomicBool,
    most: &'a AtomicU64,
}

impl Watch<'_> {
    fn run(&self) -> Result<()> {
        while !self.ended.load(Ordering::Acquire) {
            for pid in self.pids {
                self.most.fetch_max(locked_by(pid)?, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Lab {
    /// More directives than there are files come and go in rounds.
    pub fn many(&mut self) -> Result<Outcome> {
        let of = json!({"path": "/many", "count": FILES, "bytes": BYTES, "seed": 100});
        self.fs.call("many", of)?;
        let all: Vec<u64> = (0..FILES).collect();
        wait::until("two replicas of each", SOON, || {
            let (replicas, _) = self.replicas_of(&all)?;
            Ok(match replicas == 2 * FILES {
                true => Seen::Done(()),
                false => Seen::NotYet(replicas.to_string()),
            })
        })?;
        let pids = [self.pid(0)?, self.pid(1)?];
        let before = pids.map(usage);
        let (ended, most) = (AtomicBool::new(false), AtomicU64::new(0));
        let watch = Watch {
            pids,
            ended: &ended,
            most: &most,
        };
        let watched = thread::scope(|scope| {
            let watching = scope.spawn(|| watch.run());
            let done = self.come_and_go();
            ended.store(true, Ordering::Release);
            let panicked = |_| TestkitError::Talk("the watch of locked memory panicked".into());
            done.and(watching.join().map_err(panicked)?)
        });
        watched?;
        let most = most.into_inner();
        expect(most > LOCKED / 2 && most <= LOCKED, || {
            format!("{most} bytes were locked, {LOCKED} may be")
        })?;
        for (node, before) in before.into_iter().enumerate() {
            self.wait_locked(node, 0)?;
            expect_eq(
                "blocks",
                self.state(node)?["NumBlocksCached"].as_u64(),
                Some(0),
            )?;
            self.settled(node, before?)?;
        }
        let failed = self.state(0)?["NumBlocksFailedToCache"].as_u64();
        expect(failed.is_some_and(|failed| failed > 0), || {
            format!("{failed:?} blocks were not cached")
        })?;
        self.wait_told_by_all(&[])?;
        let of = json!({"path": "/many", "count": FILES - DELETED, "bytes": BYTES, "seed": 100});
        let read = self.fs.call("readMany", of)?;
        expect_eq("files that differ", &read["bad"], &json!([]))?;
        self.fs.fs(&["-rm", "-r", "-skipTrash", "/many"])?;
        passed()
    }

    /// How many replicas these files have, and how many of them are cached, as clients are told.
    fn replicas_of(&self, files: &[u64]) -> Result<(u64, u64)> {
        let paths: Vec<String> = files.iter().copied().map(path_of).collect();
        let told = self.fs.call("replicasOf", json!({ "paths": paths }))?;
        let number = |name: &str| told[name].as_u64().unwrap_or_default();
        Ok((number("replicas"), number("cached")))
    }

    fn pid(&mut self, node: usize) -> Result<u32> {
        Ok(self.cluster.node(node).process()?.pid())
    }

    fn state(&mut self, node: usize) -> Result<Value> {
        let web = SocketAddr::from(([127, 0, 0, 1], self.cluster.node(node).http_port()));
        http::jmx(web, STATE)
    }

    /// Rounds that follow each other before the nodes have let go of what the last one wanted.
    fn come_and_go(&mut self) -> Result<()> {
        self.spoil()?;
        // First come those of which something is wanted: the nodes have room for these.
        let mut files: Vec<u64> = (FILES - DELETED..FILES).chain(0..FILES - DELETED).collect();
        for round in 0..DIRECTIVES / AT_A_TIME {
            let paths: Vec<String> = files.iter().copied().map(path_of).collect();
            let add = json!({"pool": "pool", "replication": 2, "paths": paths, "count": AT_A_TIME});
            self.fs.call("addDirectives", add)?;
            self.wait_told_by_all(&files)?;
            if round == 1 {
                for file in FILES - DELETED..FILES {
                    self.fs.call("delete", json!({"path": path_of(file)}))?;
                }
                files.retain(|file| *file < FILES - DELETED);
            }
            let removed = self.fs.call("removeDirectives", json!({"pool": "pool"}))?;
            expect_eq("directives", removed["removed"].as_u64(), Some(AT_A_TIME))?;
        }
        for file in DAMAGED + GONE..DAMAGED + GONE + OPEN {
            self.fs.handle("close", &path_of(file))?;
        }
        Ok(())
    }

    /// Damages replicas of the first node, removes others behind its back, and opens some.
    fn spoil(&mut self) -> Result<()> {
        for file in 0..DAMAGED + GONE {
            let block = self.fs.blocks(&path_of(file))?.remove(0);
            for path in self.cluster.node(0).block_files(block.id) {
                if file >= DAMAGED {
                    std::fs::remove_file(&path).map_err(TestkitError::file("removing", &path))?;
                } else if path.extension().is_none() {
                    flip_byte(&path, 4321)?;
                }
            }
        }
        for file in DAMAGED + GONE..DAMAGED + GONE + OPEN {
            let path = path_of(file);
            self.fs.append(&path, &path, 100 + file, json!({}))?;
        }
        Ok(())
    }

    /// Waits until clients are told of as many cached replicas of these files as the nodes have,
    /// most of what they have room for; without files, of none.
    fn wait_told_by_all(&mut self, files: &[u64]) -> Result<()> {
        let wanted = if files.is_empty() { 0 } else { 40 };
        wait::until("cached replicas that clients are told of", SOON, || {
            let (_, told) = self.replicas_of(files)?;
            let mut had = 0;
            for node in 0..2 {
                had += self.state(node)?["NumBlocksCached"].as_u64().unwrap_or(0);
            }
            let used = self.cluster.namenode_bean(0, "NameNodeInfo")?["CacheUsed"].as_u64();
            let is_right = told == had && had >= wanted;
            Ok(match is_right && (wanted > 0 || used == Some(0)) {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{told} told, {had} there, {used:?} bytes")),
            })
        })
    }

    /// Waits until a node has what it had before, and maps no block.
    fn settled(&mut self, node: usize, before: Usage) -> Result<()> {
        let pid = self.pid(node)?;
        wait::until("what was used to be given back", seconds(40), || {
            let (now, mapped) = (usage(pid)?, mappings(pid, "blk_")?);
            // Some connections are kept for their next request, with their threads.
            let descriptors = now.descriptors <= before.descriptors + 4;
            let is_back = descriptors && now.threads <= before.threads + 4 && mapped == 0;
            Ok(match is_back {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{before:?} -> {now:?}, {mapped} blocks mapped")),
            })
        })
    }
}
