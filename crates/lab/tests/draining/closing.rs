//! What clients and the NameNode see of a block that is closed and still on its way to the disk.

use crate::{BLOCK, DRAINED, Files, Lab, MIB, NODE};
use hayloft_lab::driver::Pending;
use hayloft_lab::error::Result;
use hayloft_lab::files::Block;
use hayloft_lab::load::{Check, Data, Place, Reader, Tally};
use hayloft_lab::node::Kind;
use hayloft_lab::suite::{expect, expect_eq, passed, seconds};
use hayloft_lab::wait::{self, Seen};
use hayloft_lab::{LabError, NodeSpec, Outcome};
use hayloft_wire::ids::{self, ExtendedBlock, PoolId};
use hayloft_wire::proto::hdfs::{DatanodeId, DatanodeInfo};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

impl Lab {
    /// While the marker is there nothing is below `finalized`, and the NameNode has no doubt of the block, nor after that.
    pub fn closes_early(&mut self) -> Result<Outcome> {
        let bytes = 2 * BLOCK;
        let blocks = self.put_draining("/closed", bytes, 1)?;
        let last = &blocks[1];
        let files = self.files(last);
        expect(files.finalized.is_empty() && files.rbw.len() == 2, || {
            format!("{files:?}")
        })?;
        let marker = &files.markers[0];
        // It may go at any time.
        if let Ok(text) = std::fs::read_to_string(marker) {
            for number in [last.generation, last.length] {
                let number = number.to_string();
                let mut words = text.split(|c: char| !c.is_ascii_digit());
                expect(words.any(|word| word == number), || {
                    format!("no {number} in {}: {text:?}", marker.display())
                })?;
            }
        }
        // A full report too says that it is finalized.
        let ipc = self.node().ipc();
        self.fs.dfsadmin(&["-triggerBlockReport", &ipc])?;
        self.fs.expect_healthy("/closed")?;
        self.expect_draining(&blocks)?;
        self.wait_drained(&blocks)?;
        self.fs.dfsadmin(&["-triggerBlockReport", &ipc])?;
        self.expect_whole("/closed", bytes, 1, &blocks)?;
        self.expect_never_corrupt(&blocks)?;
        expect_eq("blocks", self.fs.blocks("/closed")?, blocks.clone())?;
        self.remove("/closed", &blocks)?;
        passed()
    }

    /// All kinds of readers at the same time, so that none of them finds the block drained.
    pub fn readers(&mut self) -> Result<Outcome> {
        let bytes = 2 * BLOCK;
        let blocks = self.put_draining("/read", bytes, 2)?;
        let begin = |operation: &str, mut request: Value| {
            request["path"] = "/read".into();
            request["seed"] = 2.into();
            self.fs.begin(operation, request)
        };
        let socket = self.cluster.dir().join("no-such-socket");
        let whole = [
            json!({}),
            json!({"conf": {
                "dfs.client.read.shortcircuit": true, "dfs.domain.socket.path": socket.display().to_string(),
            }}),
        ];
        let whole: Vec<_> = whole.map(|more| begin("read", more)).into();
        // Around chunks, segments, quanta and blocks; the end is the last to reach the disk.
        let ranges: Vec<[u64; 2]> = [0, 512, 256 << 10, 4 * MIB, BLOCK, bytes - 1]
            .iter()
            .flat_map(|&at| [[at, 1], [at.saturating_sub(300), 70_000]])
            .map(|[at, length]| [at, length.min(bytes - at)])
            .collect();
        let parts = begin("ranges", json!({"ranges": ranges}))?;
        let sums = || CHECKSUMS.map(|mode| begin("checksum", sums_as(mode)));
        let meanwhile = sums();
        read_natively(&blocks[1])?;
        // A machine that is busy may read more slowly than the disk writes: the tests of the store hold the disk.
        if self.expect_draining(&blocks).is_err() {
            println!("draining:   the block had drained before all of it was read");
        }
        // What the disk has of the other is read behind all that it has to write.
        read_natively(&blocks[0])?;
        for read in whole {
            let read = read?.wait()?;
            expect(read["bytes"] == bytes && read["mismatch"] == -1, || {
                read.to_string()
            })?;
        }
        let parts = parts.wait()?["ranges"].as_array().cloned();
        let parts = parts.unwrap_or_default();
        expect(
            parts.len() == 2 * ranges.len() && parts.iter().all(|part| part["mismatch"] == -1),
            || format!("{ranges:?}: {parts:?}"),
        )?;
        let hex = |sums: [Result<Pending>; 2]| -> Result<Vec<Value>> {
            let hex = sums.into_iter().map(|sum| Ok(sum?.wait()?["hex"].clone()));
            hex.collect()
        };
        let meanwhile = hex(meanwhile)?;
        self.wait_drained(&blocks)?;
        self.expect_whole("/read", bytes, 2, &blocks)?;
        expect_eq("checksums after and before", hex(sums())?, meanwhile)?;
        self.remove("/read", &blocks)?;
        passed()
    }

    /// Not at a chunk's end, so that the appended bytes go on in the middle of one.
    pub fn append(&mut self) -> Result<Outcome> {
        let (bytes, more) = (BLOCK - 100_001, 250_000);
        let before = self.put_draining("/append", bytes, 3)?;
        self.fs.put("/append", more, 3, json!({"appendTo": true}))?;
        self.fs.check("/append", bytes + more, 3)?;
        let blocks = self.fs.blocks("/append")?;
        expect(
            blocks[0].id == before[0].id && blocks[0].generation > before[0].generation,
            || format!("{before:?}, then {blocks:?}"),
        )?;
        self.wait_drained(&blocks)?;
        self.expect_whole("/append", bytes + more, 3, &blocks)?;
        self.expect_never_corrupt(&blocks)?;
        self.remove("/append", &blocks)?;
        passed()
    }

    pub fn delete(&mut self) -> Result<Outcome> {
        let free = self.free()?;
        let blocks = self.put_draining("/deleted", 2 * BLOCK, 4)?;
        self.remove("/deleted", &blocks)?;
        wait::until("the room of deleted blocks", DRAINED, || {
            let now = self.free()?;
            // Directories and the node's own small files.
            Ok(if now + MIB / 2 >= free {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{now} bytes of {free}"))
            })
        })?;
        // The node goes on.
        let blocks = self.put_draining("/deleted", BLOCK, 5)?;
        self.wait_drained(&blocks)?;
        self.expect_whole("/deleted", BLOCK, 5, &blocks)?;
        self.remove("/deleted", &blocks)?;
        passed()
    }

    pub fn synced(&mut self) -> Result<Outcome> {
        self.closes_late("/sync-block", json!({"syncBlock": true}))?;
        self.restart_with(&[("dfs.datanode.synconclose", "true")])?;
        self.closes_late("/sync-on-close", json!({}))?;
        self.restart_with(&[("dfs.datanode.synconclose", "false")])?;
        passed()
    }

    pub fn switched_off(&mut self) -> Result<Outcome> {
        self.restart_with(&[("hayloft.staging.close", "false")])?;
        self.closes_late("/close-off", json!({}))?;
        self.restart_with(&[("hayloft.staging.close", "true")])?;
        passed()
    }

    /// A file whose blocks are below `finalized` when they are closed, and never have a marker.
    fn closes_late(&mut self, path: &str, more: Value) -> Result<()> {
        let bytes = BLOCK * 3 / 4;
        let rbw = self.rbw_dirs();
        let over = AtomicBool::new(false);
        let (put, seen) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| markers_until(&rbw, &over));
            let put = self.fs.put(path, bytes, 6, more);
            over.store(true, Ordering::Relaxed);
            (put, watch.join().unwrap_or_default())
        });
        put?;
        let blocks = self.fs.blocks(path)?;
        let files: Vec<Files> = blocks.iter().map(|block| self.files(block)).collect();
        expect(files.iter().all(Files::is_drained), || {
            format!("{path} is closed before {files:?}")
        })?;
        expect(seen.is_empty(), || format!("{path}: {seen:?}"))?;
        self.expect_whole(path, bytes, 6, &blocks)?;
        self.remove(path, &blocks)
    }

    fn rbw_dirs(&mut self) -> Vec<PathBuf> {
        let volumes = self.node().volumes().map(|volume| volume.join("current"));
        let pools = volumes.flat_map(|current| std::fs::read_dir(current).into_iter().flatten());
        let rbw = pools.flatten().map(|pool| pool.path().join("current/rbw"));
        rbw.filter(|dir| dir.is_dir()).collect()
    }

    /// Free bytes of the slow disk.
    fn free(&self) -> Result<u64> {
        let dir = self.disk.dir();
        let stat = rustix::fs::statvfs(dir).map_err(|e| LabError::Talk(e.to_string()))?;
        Ok(stat.f_bfree * stat.f_frsize)
    }

    /// Writers at the same time, of more than the node may keep in memory: they wait for the disk, not for ever, and not for
    /// each other.
    pub fn beyond_the_limit(&mut self) -> Result<Outcome> {
        self.restart_with(&[("hayloft.memory.limit", "16m")])?;
        let bytes = BLOCK - 5;
        let files: Vec<(String, u64)> = (0..4).map(|n| (format!("/much-{n}"), 70 + n)).collect();
        let begin = |(path, seed): &(String, u64)| {
            let request = json!({"path": path, "bytes": bytes, "seed": seed});
            self.fs.begin("put", request)
        };
        let puts = files.iter().map(begin).collect::<Result<Vec<_>>>()?;
        for put in puts {
            put.wait_at_most(seconds(90))?;
        }
        for (path, seed) in &files {
            self.fs.check(path, bytes, *seed)?;
        }
        for (path, seed) in &files {
            let blocks = self.fs.blocks(path)?;
            self.wait_drained(&blocks)?;
            self.expect_whole(path, bytes, *seed, &blocks)?;
            self.remove(path, &blocks)?;
        }
        self.restart_with(&[("hayloft.memory.limit", "256m")])?;
        passed()
    }

    /// A second node comes, and the first sends it what it has only in staging.
    pub fn setrep(&mut self) -> Result<Outcome> {
        let bytes = 2 * BLOCK;
        let blocks = self.put_draining("/copied", bytes, 8)?;
        self.fs.fs(&["-setrep", "2", "/copied"])?;
        let second = self.cluster.add_node(NodeSpec::new(Kind::under_test()))?;
        self.expect_draining(&blocks)?;
        self.fs.wait_replicas("/copied", 2, DRAINED)?;
        self.wait_drained(&blocks)?;
        self.expect_whole("/copied", bytes, 8, &blocks)?;
        let nodes: Vec<_> = self.cluster.nodes().collect();
        for block in &blocks {
            let of = |index: usize| -> Result<Vec<Vec<u8>>> {
                let mut files = nodes[index].block_files(block.id);
                files.sort();
                let read = files
                    .iter()
                    .map(|file| std::fs::read(file).map_err(LabError::file("reading", file)));
                read.collect()
            };
            wait::until("the copy in its files", seconds(30), || {
                let (ours, copy) = (of(NODE)?, of(second)?);
                let lengths = |files: &[Vec<u8>]| files.iter().map(Vec::len).collect::<Vec<_>>();
                Ok(if ours == copy && ours.len() == 2 {
                    Seen::Done(())
                } else {
                    Seen::NotYet(format!("{:?} and {:?}", lengths(&ours), lengths(&copy)))
                })
            })?;
        }
        passed()
    }
}

/// What `hdfs dfs -checksum` is made of: of checksums' digests, or of the checksums.
const CHECKSUMS: [&str; 2] = ["MD5MD5CRC", "COMPOSITE_CRC"];

fn sums_as(mode: &str) -> Value {
    json!({"conf": {"dfs.checksum.combine.mode": mode}})
}

/// Names of markers that were there at some time before `over`.
fn markers_until(dirs: &[PathBuf], over: &AtomicBool) -> Vec<PathBuf> {
    let mut seen = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let entries = dirs
            .iter()
            .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
        let marker = |path: &PathBuf| path.extension().is_some_and(|end| end == "closed");
        seen.extend(entries.map(|entry| entry.path()).filter(marker));
        std::thread::sleep(Duration::from_millis(3));
    }
    seen
}

/// Reads a block whole, and at places, with a client that is not Java, and checks the checksums that come with it.
fn read_natively(block: &Block) -> Result<()> {
    let bad = |what: &str| LabError::Talk(format!("{what} of {block:?}"));
    let node = block.nodes.first().ok_or_else(|| bad("the node"))?;
    let node: SocketAddr = node.parse().map_err(|_| bad("the address"))?;
    let pool = PoolId::new(&block.pool).map_err(|_| bad("the pool"))?;
    let id = DatanodeId {
        ip_addr: node.ip().to_string(),
        host_name: node.ip().to_string(),
        xfer_port: node.port().into(),
        ..DatanodeId::default()
    };
    let place = Place {
        block: ExtendedBlock::new(
            pool,
            ids::Block::new(block.id, block.generation, block.length),
        ),
        len: block.length,
        nodes: vec![DatanodeInfo {
            id,
            ..DatanodeInfo::default()
        }],
        storage_ids: Vec::new(),
        client: "draining".to_owned(),
    };
    let data = Data::new();
    let mut reader = Reader::new(&data, Check::Sums, 256 << 10);
    let len = block.length;
    for (offset, length) in [(0, len), (len - 1, 1), (len / 2 + 7, len / 3), (511, 2)] {
        reader.read(&place, 0, offset, length, &mut Tally::default())?;
    }
    Ok(())
}
