//! Reads and writes at every position, of every checksum, seen while they happen.

use crate::{BLOCK, Lab};
use hayloft_testkit::error::Result;
use hayloft_testkit::node::{Kind, Node};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Outcome, TestkitError};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;

impl Lab {
    pub fn ranges(&self) -> Result<Outcome> {
        let bytes = 3 * BLOCK + 777;
        self.fs.put("/ranges", bytes, 21, json!({}))?;
        let edges = [
            0,
            1,
            511,
            512,
            513,
            4096,
            65_535,
            65_536,
            BLOCK - 1,
            BLOCK,
            BLOCK + 1,
            3 * BLOCK,
            bytes - 1,
        ];
        let mut ranges = Vec::new();
        for offset in edges {
            for length in [1, 2, 511, 512, 513, 70_000, BLOCK + 2] {
                ranges.push([offset, length.min(bytes - offset)]);
            }
        }
        for verify in [true, false] {
            let request =
                json!({"path": "/ranges", "seed": 21, "ranges": ranges, "noVerify": !verify});
            let answer = self.fs.call("ranges", request)?;
            let results = answer["ranges"].as_array().cloned().unwrap_or_default();
            expect_eq("results", results.len(), ranges.len() * 2)?;
            for (result, range) in results.chunks(2).zip(&ranges) {
                for one in result {
                    let good = one["bytes"] == range[1] && one["mismatch"] == -1;
                    expect(good, || format!("range {range:?}: {one}"))?;
                }
            }
        }
        passed()
    }

    /// A stock client that closes a file before the NameNode has heard of its block is refused and
    /// sleeps for 400 ms: of these files most with the stock node, one in a hundred with ours (the
    /// NameNode answers reports before it has worked on them). On a busy machine some more.
    pub fn closes(&mut self) -> Result<Outcome> {
        let namenode_log = self.cluster.namenode(0).log();
        if Kind::under_test() == Kind::Apache {
            let reason = "the stock node acknowledges a block before it reports it";
            return Ok(Outcome::Skipped(reason.into()));
        }
        let request = json!({"path": "/closes", "streams": 4, "files": 40, "bytes": 10_000});
        let answer = self.fs.call("createFiles", request)?;
        let files = answer["micros"].as_array().map_or(0, Vec::len);
        expect_eq("files", files, 160)?;
        let log = std::fs::read_to_string(&namenode_log)
            .map_err(TestkitError::file("reading", namenode_log))?;
        // The paths of the lines that say so: a file may be refused twice.
        let files_with = |what: &str| -> BTreeSet<&str> {
            let lines = log.lines().filter(|line| line.contains(what));
            let words = lines.flat_map(str::split_whitespace);
            words.filter(|word| word.starts_with("/closes/")).collect()
        };
        let closed = files_with("is closed by").len();
        expect_eq(
            "files that were closed by the NameNode's log",
            closed,
            files,
        )?;
        let refused = files_with("is COMMITTED but not COMPLETE").len();
        expect(refused <= files / 4, || {
            format!("{refused} of {files} closes came before the report of their block")
        })?;
        self.fs.fs(&["-rm", "-r", "-skipTrash", "/closes"])?;
        passed()
    }

    /// Every type at several chunk sizes, with the header and length of the meta file on disk.
    pub fn checksum_types(&self) -> Result<Outcome> {
        for (kind, code) in [("NULL", 0u8), ("CRC32", 1), ("CRC32C", 2)] {
            for chunk in [1u64, 10, 512, 4096, 65_536, 1_000_000] {
                let bytes = if chunk < 100 { 3001 } else { 1_250_007 };
                let conf = json!({"dfs.checksum.type": kind, "dfs.bytes-per-checksum": chunk});
                let path = format!("/crc-{kind}-{chunk}");
                let block_size = if chunk == 512 || chunk == 4096 || chunk == 65_536 {
                    BLOCK
                } else {
                    1_000_000
                };
                let more = json!({"conf": conf, "blockSize": block_size});
                self.fs.put(&path, bytes, chunk, more.clone())?;
                self.fs.check(&path, bytes, chunk)?;
                self.fs.put(
                    &path,
                    1003,
                    chunk,
                    hayloft_testkit::files::merge(more, json!({"appendTo": true})),
                )?;
                self.fs.check(&path, bytes + 1003, chunk)?;
                let block = self.fs.blocks(&path)?.remove(0);
                for node in self.cluster.nodes() {
                    check_meta(node, &block, code, chunk)?;
                }
            }
        }
        passed()
    }

    /// Appends of many sizes, so that the last chunk is cut anywhere; the sum is re-made each time.
    pub fn appends(&self) -> Result<Outcome> {
        for (kind, chunk) in [("CRC32C", 512), ("CRC32", 4096), ("NULL", 512)] {
            let path = format!("/append-{kind}");
            let conf = json!({"dfs.checksum.type": kind, "dfs.bytes-per-checksum": chunk});
            let mut bytes = 0;
            self.fs.put(&path, 0, 31, json!({"conf": conf}))?;
            for more in [
                1, 1, 510, 1, 511, 512, 513, 70_000, 4096, BLOCK, 3, 1_000_000,
            ] {
                self.fs
                    .put(&path, more, 31, json!({"conf": conf, "appendTo": true}))?;
                bytes += more;
                self.fs.check(&path, bytes, 31)?;
            }
            self.fs
                .append("new-block", &path, 31, json!({"newBlock": true}))?;
            self.fs.write("new-block", 100)?;
            self.fs.handle("close", "new-block")?;
            self.fs.check(&path, bytes + 100, 31)?;
        }
        passed()
    }

    /// A block keeps its checksum type: sums of another type are translated, another chunk size
    /// is refused, and what was there stays.
    pub fn append_other_checksum(&self) -> Result<Outcome> {
        let conf = |kind: &str, chunk: u64| json!({"dfs.checksum.type": kind, "dfs.bytes-per-checksum": chunk});
        for (disk, client) in [("CRC32", "CRC32C"), ("CRC32C", "CRC32")] {
            let path = format!("/other-{disk}-{client}");
            self.fs
                .put(&path, 1000, 35, json!({"conf": conf(disk, 512)}))?;
            self.fs.put(
                &path,
                70_001,
                35,
                json!({"conf": conf(client, 512), "appendTo": true}),
            )?;
            self.fs.check(&path, 71_001, 35)?;
        }
        self.fs.put(
            "/other-chunk",
            1000,
            35,
            json!({"conf": conf("CRC32C", 512)}),
        )?;
        let more = json!({"conf": conf("CRC32C", 4096), "appendTo": true});
        let refused = self.fs.put("/other-chunk", 5000, 35, more);
        expect(refused.is_err(), || {
            "an append with another chunk size was taken".into()
        })?;
        self.fs.recover_lease("/other-chunk", seconds(60))?;
        self.fs.check("/other-chunk", 1000, 35)?;
        passed()
    }

    pub fn visibility(&self) -> Result<Outcome> {
        self.fs.create("v", "/visible", 41, json!({}))?;
        let mut bytes = 0;
        for (step, more) in [1u64, 511, 1000, 65_536, 100_000, BLOCK - 167_048, 7]
            .into_iter()
            .enumerate()
        {
            self.fs.write("v", more)?;
            bytes += more;
            self.fs
                .handle(if step % 2 == 0 { "hflush" } else { "hsync" }, "v")?;
            self.fs.check("/visible", bytes, 41)?;
        }
        self.fs
            .call("hsync", json!({"handle": "v", "updateLength": true}))?;
        expect_eq("length at the NameNode", self.fs.length("/visible")?, bytes)?;
        self.fs.handle("close", "v")?;
        self.fs.check("/visible", bytes, 41)?;
        self.fs.append("v", "/visible", 41, json!({}))?;
        self.fs.write("v", 12_345)?;
        self.fs.handle("hflush", "v")?;
        self.fs.check("/visible", bytes + 12_345, 41)?;
        self.fs.handle("close", "v")?;
        passed()
    }

    /// Readers that open again and again see a growing prefix, never a wrong or missing byte.
    pub fn read_while_written(&self) -> Result<Outcome> {
        self.fs.create("w", "/growing", 51, json!({}))?;
        let total = 4 * BLOCK + 99;
        let request = json!({"handle": "w", "bytes": total, "chunk": 30_011, "pauseMillis": 5});
        let writing = self.fs.begin("loop", request)?;
        let mut last = 0;
        while last < total {
            let acked = self.fs.handle("progress", "w")?["acked"]
                .as_u64()
                .unwrap_or_default();
            let read = self
                .fs
                .call("read", json!({"path": "/growing", "seed": 51}))?;
            let bytes = read["bytes"].as_u64().unwrap_or_default();
            expect(bytes >= acked, || {
                format!("{bytes} visible, {acked} were acknowledged before")
            })?;
            expect(read["mismatch"] == -1, || format!("wrong byte: {read}"))?;
            last = bytes;
        }
        let end = writing.wait()?;
        expect(end["failure"].is_null(), || end.to_string())?;
        self.fs.handle("close", "w")?;
        self.fs.check("/growing", total, 51)?;
        passed()
    }

    /// A client that has nothing to write sends heartbeats through its pipeline. It gives a node up
    /// that does not acknowledge them for its socket timeout and 5 s, and the block gets a new
    /// generation stamp.
    pub fn idle_writer(&self) -> Result<Outcome> {
        let conf = json!({"dfs.client.socket-timeout": 3000});
        let more = json!({"conf": conf, "replication": 1});
        self.fs.create("idle", "/idle", 41, more)?;
        self.fs.write("idle", 100_000)?;
        self.fs.handle("hflush", "idle")?;
        let before = self.fs.blocks("/idle")?;
        // Idle for longer than the timeout and those 5 s.
        std::thread::sleep(seconds(11));
        self.fs.write("idle", 100_000)?;
        self.fs.handle("hflush", "idle")?;
        let after = self.fs.blocks("/idle")?;
        self.fs.handle("close", "idle")?;
        let stamps = |blocks: &[hayloft_testkit::files::BlockOnNode]| -> Vec<_> {
            blocks.iter().map(|b| (b.id, b.generation)).collect()
        };
        expect_eq(
            "block and generation stamp",
            stamps(&after),
            stamps(&before),
        )?;
        self.fs.check("/idle", 200_000, 41)?;
        passed()
    }

    pub fn client_settings(&self) -> Result<Outcome> {
        let bytes = 2 * BLOCK + 345;
        for (number, conf) in [
            json!({"dfs.client-write-packet-size": 1024}),
            json!({"dfs.client-write-packet-size": 1 << 20}),
            json!({"dfs.client-write-packet-size": 8 << 20}),
            json!({"dfs.client.cache.drop.behind.writes": true, "dfs.client.cache.drop.behind.reads": true}),
            json!({"dfs.client.cache.readahead": 0}),
            json!({"dfs.client.cache.readahead": 64 << 20}),
            json!({"dfs.client.hedged.read.threadpool.size": 4, "dfs.client.hedged.read.threshold.millis": 1}),
            json!({"dfs.client.socketcache.capacity": 0}),
            json!({"dfs.client.read.shortcircuit": true, "dfs.client.use.legacy.blockreader.local": true}),
            json!({"dfs.client.block.write.locateFollowingBlock.retries": 10, "dfs.client.use.datanode.hostname": true}),
        ]
        .into_iter()
        .enumerate()
        {
            let path = format!("/settings-{number}");
            self.fs.put(&path, bytes, 61, json!({"conf": conf})).map_err(|e| label(&conf, &e))?;
            for pread in [false, true] {
                let more = json!({"conf": conf, "pread": pread});
                self.fs.check_with(&path, bytes, 61, more).map_err(|e| label(&conf, &e))?;
            }
        }
        passed()
    }

    /// Without Kerberos, stock clients that are set for SASL or RPC protection talk in the clear to
    /// a node that has neither; none of them may hang or fail.
    pub fn protected_clients(&self) -> Result<Outcome> {
        for (number, conf) in [
            json!({"dfs.data.transfer.protection": "authentication"}),
            json!({"dfs.data.transfer.protection": "privacy"}),
            json!({"dfs.data.transfer.protection": "privacy,integrity", "hadoop.rpc.protection": "privacy"}),
            json!({"dfs.encrypt.data.transfer": true, "dfs.encrypt.data.transfer.algorithm": "rc4"}),
            json!({"dfs.encrypt.data.transfer": true, "dfs.encrypt.data.transfer.cipher.suites": "AES/CTR/NoPadding"}),
            json!({"hadoop.rpc.protection": "privacy,authentication"}),
            json!({"ipc.client.fallback-to-simple-auth-allowed": true}),
        ]
        .into_iter()
        .enumerate()
        {
            let path = format!("/protected-{number}");
            let start = Instant::now();
            self.fs.put(&path, 70_001, 62, json!({"conf": conf})).map_err(|e| label(&conf, &e))?;
            self.fs.check_with(&path, 70_001, 62, json!({"conf": conf})).map_err(|e| label(&conf, &e))?;
            // The RPC port, too.
            self.fs.create("p", &path, 62, json!({"conf": conf}))?;
            self.fs.write("p", 1000)?;
            self.fs.handle("hflush", "p")?;
            self.fs.check_with(&path, 1000, 62, json!({"conf": conf})).map_err(|e| label(&conf, &e))?;
            self.fs.handle("close", "p")?;
            expect(start.elapsed() < seconds(30), || {
                format!("with {conf}: took {:?}", start.elapsed())
            })?;
        }
        passed()
    }
}

fn label(conf: &Value, error: &TestkitError) -> TestkitError {
    TestkitError::Expectation(format!("with {conf}: {error}"))
}

/// Header and length of a replica's meta file, when the node has a replica.
fn check_meta(
    node: &Node,
    block: &hayloft_testkit::files::BlockOnNode,
    kind: u8,
    chunk: u64,
) -> Result<()> {
    let files = node.block_files(block.id);
    let meta = files
        .iter()
        .find(|path| path.extension().is_some_and(|e| e == "meta"));
    let meta = meta.ok_or_else(|| {
        TestkitError::Expectation(format!("{} has no replica of {block:?}", node.name()))
    })?;
    let bytes = std::fs::read(meta).map_err(TestkitError::file("reading", meta))?;
    let chunk_bytes = u32::try_from(chunk).expect("small").to_be_bytes();
    let header = [&[0, 1, kind], chunk_bytes.as_slice()].concat();
    expect(bytes.starts_with(&header), || {
        format!(
            "{}: header {:?}",
            meta.display(),
            &bytes[..bytes.len().min(7)]
        )
    })?;
    let sums = if kind == 0 {
        0
    } else {
        block.length.div_ceil(chunk) * 4
    };
    expect_eq("meta file length", bytes.len() as u64, 7 + sums)
}
