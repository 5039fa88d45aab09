//! Stock shell and client operations on healthy nodes, one at a time.

use hayloft_lab::error::Result;
use hayloft_lab::files::{check_local, flip_byte, write_local};
use hayloft_lab::hadoop::class;
use hayloft_lab::node::{Kind, Node};
use hayloft_lab::pattern;
use hayloft_lab::suite::{expect, expect_eq, passed, seconds};
use hayloft_lab::{Cluster, Driver, LabError, Outcome, Suite};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;

fn main() -> ExitCode {
    Suite::run("shell", |suite| {
        let mut cluster = Cluster::builder("shell")
            .nodes(3, Kind::under_test())
            .conf("dfs.blocksize", BLOCK)
            .conf(
                "dfs.client.block.write.replace-datanode-on-failure.policy",
                "NEVER",
            )
            .start()?;
        let driver = cluster.driver()?;
        let local = cluster.dir().join("local");
        std::fs::create_dir_all(&local).map_err(LabError::file("creating", &local))?;
        let lab = Lab {
            fs: &driver,
            local: &local,
        };
        suite.case("put_and_get_of_every_size", || lab.put_and_get());
        suite.case("cat_tail_head_text", || lab.cat_tail_head_text());
        suite.case("append_to_file", || lab.append_to_file());
        suite.case("copy_move_getmerge_rm_expunge", || lab.copies());
        suite.case("checksums_of_files", || lab.checksums());
        suite.case("truncate", || lab.truncate());
        suite.case("namespace_commands", || lab.namespace_commands());
        suite.case("setrep_down_and_up", || lab.setrep());
        suite.case("ranges", || lab.ranges());
        suite.case("checksum_types_and_sizes", || lab.checksum_types(&cluster));
        suite.case("append_at_every_chunk_position", || lab.appends());
        suite.case("append_with_another_checksum", || {
            lab.append_other_checksum()
        });
        suite.case("hflush_and_hsync_visibility", || lab.visibility());
        suite.case("read_while_being_written", || lab.read_while_written());
        suite.case("packet_sizes_and_caching_hints", || lab.client_settings());
        suite.case("concat", || lab.concat());
        suite.case("many_small_files", || lab.many_small_files());
        suite.case("eight_streams_at_once", || lab.streams());
        suite.case("admin_queries", || lab.admin_queries(cluster.node(0)));
        suite.case("verify_meta_of_all_replicas", || lab.verify_metas(&cluster));
        suite.case("verify_meta_notices_a_flipped_byte", || {
            lab.verify_meta_can_fail(&cluster)
        });
        suite.case("fsck_healthy", || lab.fsck());
        if suite.has_failures() {
            println!("{}", cluster.log_tails());
        } else {
            cluster.succeed();
        }
        Ok(())
    })
}

struct Lab<'a> {
    fs: &'a Driver,
    local: &'a Path,
}

impl Lab<'_> {
    fn local(&self, name: &str) -> (PathBuf, String) {
        let path = self.local.join(name);
        let text = path.display().to_string();
        (path, text)
    }

    fn shell(&self, args: &[&str], more: Value) -> Result<hayloft_lab::driver::ToolRun> {
        self.fs.tool_with(class::FS_SHELL, args, more)
    }

    /// Empty, one byte, around a chunk, a packet and a block, exactly a block, several blocks.
    fn put_and_get(&self) -> Result<Outcome> {
        self.fs.fs(&["-mkdir", "-p", "/put"])?;
        let block = usize::try_from(BLOCK).expect("small");
        for size in [
            0,
            1,
            511,
            512,
            513,
            65_536,
            block - 1,
            block,
            block + 1,
            3 * block + 12_345,
        ] {
            let seed = size as u64;
            let (source, source_text) = self.local(&format!("in-{size}"));
            let (back, back_text) = self.local(&format!("out-{size}"));
            write_local(&source, size, seed)?;
            let path = format!("/put/{size}");
            self.fs.fs(&["-put", &source_text, &path])?;
            self.fs.fs(&["-get", &path, &back_text])?;
            check_local(&back, size, seed)?;
            let blocks = self.fs.blocks(&path)?;
            expect_eq(
                &format!("blocks of {path}"),
                blocks.len(),
                size.div_ceil(block),
            )?;
            expect(blocks.iter().all(|b| b.nodes.len() == 3), || {
                format!("{path}: {blocks:?}")
            })?;
        }
        passed()
    }

    fn cat_tail_head_text(&self) -> Result<Outcome> {
        let text: String = (0..40_000).map(|i| format!("line {i}\n")).collect();
        let (plain, plain_text) = self.local("lines.txt");
        std::fs::write(&plain, &text).map_err(LabError::file("writing", &plain))?;
        self.fs.fs(&["-put", &plain_text, "/lines.txt"])?;
        expect(self.fs.fs(&["-cat", "/lines.txt"])? == text, || {
            "cat differs".into()
        })?;
        let twice = self.fs.fs(&["-cat", "/lines.txt", "/lines.txt"])?;
        expect(twice == text.repeat(2), || "cat of two differs".into())?;
        expect(
            self.fs.fs(&["-tail", "/lines.txt"])? == text[text.len() - 1024..],
            || "tail differs".into(),
        )?;
        expect(
            self.fs.fs(&["-head", "/lines.txt"])? == text[..1024],
            || "head differs".into(),
        )?;
        expect(self.fs.fs(&["-text", "/lines.txt"])? == text, || {
            "text differs".into()
        })?;
        let gzip = std::process::Command::new("gzip")
            .args(["-kf", &plain_text])
            .status();
        if gzip.is_ok_and(|status| status.success()) {
            self.fs
                .fs(&["-put", &format!("{plain_text}.gz"), "/lines.txt.gz"])?;
            expect(self.fs.fs(&["-text", "/lines.txt.gz"])? == text, || {
                "text of gzip differs".into()
            })?;
        }
        passed()
    }

    fn append_to_file(&self) -> Result<Outcome> {
        let (part, part_text) = self.local("part");
        std::fs::write(&part, "local part\n").map_err(LabError::file("writing", &part))?;
        self.fs.fs(&["-appendToFile", &part_text, "/appended"])?;
        self.fs
            .fs(&["-appendToFile", &part_text, &part_text, "/appended"])?;
        self.shell(
            &["-appendToFile", "-", "/appended"],
            json!({"stdin": "from stdin\n"}),
        )?
        .ok()?;
        let want = format!("{}from stdin\n", "local part\n".repeat(3));
        expect_eq("appended", self.fs.fs(&["-cat", "/appended"])?, want)?;
        self.shell(&["-put", "-", "/from-stdin"], json!({"stdin": "piped"}))?
            .ok()?;
        expect_eq(
            "put -",
            self.fs.fs(&["-cat", "/from-stdin"])?,
            "piped".to_owned(),
        )?;
        passed()
    }

    fn copies(&self) -> Result<Outcome> {
        let size = 1_500_000;
        let (source, source_text) = self.local("copy-source");
        write_local(&source, size, 77)?;
        let bytes = size as u64;
        self.fs.fs(&["-mkdir", "-p", "/copy/dir"])?;
        self.fs.fs(&["-copyFromLocal", &source_text, "/copy/a"])?;
        self.fs.fs(&["-cp", "/copy/a", "/copy/b"])?;
        self.fs.fs(&["-mv", "/copy/b", "/copy/dir/c"])?;
        self.fs.check("/copy/dir/c", bytes, 77)?;
        let (back, back_text) = self.local("copy-back");
        self.fs.fs(&["-copyToLocal", "/copy/dir/c", &back_text])?;
        check_local(&back, size, 77)?;
        self.fs.fs(&["-moveFromLocal", &back_text, "/copy/moved"])?;
        expect(!back.exists(), || "moveFromLocal left the source".into())?;
        let (_, twice_text) = self.local("merged");
        self.fs.fs(&["-mkdir", "/copy/merge"])?;
        self.fs.fs(&["-cp", "/copy/a", "/copy/merge/1"])?;
        self.shell(&["-put", "-", "/copy/merge/2"], json!({"stdin": "tail"}))?
            .ok()?;
        self.fs.fs(&["-getmerge", "/copy/merge", &twice_text])?;
        let merged = std::fs::read(&twice_text).map_err(LabError::file("reading", &twice_text))?;
        expect(
            merged.len() == size + 4 && merged.ends_with(b"tail"),
            || format!("merged {}", merged.len()),
        )?;
        self.fs.fs(&["-rm", "/copy/moved"])?;
        self.fs.fs(&["-expunge"])?;
        self.fs.fs(&["-rm", "-skipTrash", "/copy/a"])?;
        expect_eq(
            "test -e",
            self.shell(&["-test", "-e", "/copy/a"], json!({}))?.code,
            1,
        )?;
        self.fs.check("/copy/dir/c", bytes, 77)?;
        passed()
    }

    /// Equal data gives equal checksums; CRC combined is independent of the block size.
    fn checksums(&self) -> Result<Outcome> {
        let composite = json!({"dfs.checksum.combine.mode": "COMPOSITE_CRC"});
        let sum = |path: &str, conf: &Value, length: Option<u64>| -> Result<String> {
            let answer = self.fs.call(
                "checksum",
                json!({"path": path, "conf": conf, "length": length.unwrap_or(u64::MAX >> 1)}),
            )?;
            Ok(format!("{}:{}", answer["algorithm"], answer["hex"]))
        };
        let bytes = 2 * BLOCK + 4321;
        self.fs.put("/sum-a", bytes, 5, json!({}))?;
        self.fs
            .put("/sum-b", bytes, 5, json!({"blockSize": 512 * 1024}))?;
        self.fs.put("/sum-c", bytes, 6, json!({}))?;
        self.fs.put("/sum-d", bytes, 5, json!({"replication": 1}))?;
        let plain = json!({});
        let a = sum("/sum-a", &plain, None)?;
        expect(a.contains("MD5-of-") && a.contains("CRC32C"), || a.clone())?;
        expect_eq(
            "same data, same shape",
            sum("/sum-d", &plain, None)?,
            a.clone(),
        )?;
        expect(sum("/sum-b", &plain, None)? != a, || {
            "the MD5 form depends on the block size".into()
        })?;
        expect(sum("/sum-c", &plain, None)? != a, || {
            "other data, other sum".into()
        })?;
        let combined = sum("/sum-a", &composite, None)?;
        expect(combined.contains("COMPOSITE"), || combined.clone())?;
        expect_eq(
            "composite over block sizes",
            sum("/sum-b", &composite, None)?,
            combined.clone(),
        )?;
        expect(sum("/sum-c", &composite, None)? != combined, || {
            "other data, other sum".into()
        })?;
        for length in [1, 511, 512, 700, BLOCK, BLOCK + 1, BLOCK + 700, bytes] {
            let path = format!("/sum-part-{length}");
            self.fs.put(&path, length, 5, json!({}))?;
            for conf in [&plain, &composite] {
                let part = sum("/sum-a", conf, Some(length))?;
                expect_eq(
                    &format!("first {length} bytes"),
                    part,
                    sum(&path, conf, None)?,
                )?;
            }
        }
        let shown = self.fs.fs(&["-checksum", "/sum-a"])?;
        expect(shown.contains("MD5-of-"), || shown)?;
        passed()
    }

    fn truncate(&self) -> Result<Outcome> {
        let bytes = 2 * BLOCK + 1000;
        self.fs.put("/truncated", bytes, 9, json!({}))?;
        for length in [
            2 * BLOCK + 999,
            2 * BLOCK + 512,
            2 * BLOCK,
            BLOCK + 12_345,
            BLOCK + 12_288,
            1,
            0,
        ] {
            self.fs
                .fs(&["-truncate", "-w", &length.to_string(), "/truncated"])?;
            self.fs.check("/truncated", length, 9)?;
        }
        self.fs
            .put("/truncated", 700, 9, json!({"appendTo": true}))?;
        self.fs.check("/truncated", 700, 9)?;
        passed()
    }

    fn namespace_commands(&self) -> Result<Outcome> {
        let fs = |args: &[&str]| self.fs.fs(args);
        fs(&["-mkdir", "-p", "/names/sub"])?;
        fs(&["-touchz", "/names/zero"])?;
        fs(&["-touch", "/names/touched"])?;
        self.fs
            .put("/names/sub/data", 3000, 1, json!({"replication": 2}))?;
        expect_eq(
            "test -z",
            self.shell(&["-test", "-z", "/names/zero"], json!({}))?.code,
            0,
        )?;
        expect_eq(
            "test -s",
            self.shell(&["-test", "-s", "/names/sub/data"], json!({}))?
                .code,
            0,
        )?;
        let du = fs(&["-du", "/names/sub"])?;
        expect(du.split_whitespace().take(2).eq(["3000", "6000"]), || du)?;
        let count = fs(&["-count", "/names"])?;
        expect(
            count.split_whitespace().take(3).eq(["2", "3", "3000"]),
            || count,
        )?;
        let stat = fs(&["-stat", "%b %r %o", "/names/sub/data"])?;
        expect_eq("stat", stat.trim().to_owned(), format!("3000 2 {BLOCK}"))?;
        let found = fs(&["-find", "/names", "-name", "data"])?;
        expect_eq(
            "find",
            found.trim().to_owned(),
            "/names/sub/data".to_owned(),
        )?;
        let listed = fs(&["-ls", "-R", "/names"])?;
        expect(listed.lines().count() == 4, || listed)?;
        let df = fs(&["-df", "/"])?;
        expect(df.contains("hdfs://"), || df)?;
        passed()
    }

    fn setrep(&self) -> Result<Outcome> {
        self.fs.put("/setrep", 2 * BLOCK + 5, 3, json!({}))?;
        // With -w the tool itself waits, ten seconds at a time: once is enough.
        for (wait, count) in [("-w", "1"), ("-R", "3"), ("-R", "2"), ("-R", "3")] {
            self.fs.fs(&["-setrep", wait, count, "/setrep"])?;
            let want = count.parse().expect("a digit");
            self.fs.wait_replicas("/setrep", want, seconds(60))?;
            self.fs.check("/setrep", 2 * BLOCK + 5, 3)?;
        }
        passed()
    }

    fn ranges(&self) -> Result<Outcome> {
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

    /// Every type at several chunk sizes, with the header and length of the meta file on disk.
    fn checksum_types(&self, cluster: &Cluster) -> Result<Outcome> {
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
                    hayloft_lab::files::merge(more, json!({"appendTo": true})),
                )?;
                self.fs.check(&path, bytes + 1003, chunk)?;
                let block = self.fs.blocks(&path)?.remove(0);
                for node in cluster.nodes() {
                    check_meta(node, &block, code, chunk)?;
                }
            }
        }
        passed()
    }

    /// Appends of many sizes, so that the last chunk is cut anywhere; the sum is re-made each time.
    fn appends(&self) -> Result<Outcome> {
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
    fn append_other_checksum(&self) -> Result<Outcome> {
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

    fn visibility(&self) -> Result<Outcome> {
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
    fn read_while_written(&self) -> Result<Outcome> {
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

    fn client_settings(&self) -> Result<Outcome> {
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

    fn concat(&self) -> Result<Outcome> {
        // The pattern goes by file offset, so the sources are cut out of one file.
        let whole = self.local("concat").0;
        let block = usize::try_from(BLOCK).expect("small");
        for (name, from, to) in [
            ("a", 0, block),
            ("b", block, 2 * block),
            ("c", 2 * block, 2 * block + 500),
        ] {
            let mut data = vec![0; to - from];
            pattern::fill(71, from as u64, &mut data);
            std::fs::write(&whole, data).map_err(LabError::file("writing", &whole))?;
            self.fs.fs(&[
                "-put",
                &whole.display().to_string(),
                &format!("/concat-{name}"),
            ])?;
        }
        self.fs.call(
            "concat",
            json!({"path": "/concat-a", "sources": ["/concat-b", "/concat-c"]}),
        )?;
        self.fs.check("/concat-a", 2 * BLOCK + 500, 71)?;
        passed()
    }

    fn many_small_files(&self) -> Result<Outcome> {
        for bytes in [1, 700, 5000] {
            let request = json!({"path": format!("/small-{bytes}"), "count": 80, "bytes": bytes, "seed": bytes});
            self.fs.call("many", request.clone())?;
            let answer = self.fs.call("readMany", request)?;
            expect(answer["bad"] == json!([]), || answer.to_string())?;
        }
        self.fs
            .fs(&["-rm", "-r", "-skipTrash", "/small-1", "/small-700"])?;
        passed()
    }

    fn streams(&self) -> Result<Outcome> {
        let request =
            json!({"path": "/streams", "streams": 8, "bytes": 6 * BLOCK, "replication": 2});
        self.fs.call("writeStreams", request.clone())?;
        let answer = self.fs.call("readStreams", request)?;
        expect(
            answer["equal"] == true && answer["bytes"] == 48 * BLOCK,
            || answer.to_string(),
        )?;
        passed()
    }

    fn admin_queries(&self, node: &Node) -> Result<Outcome> {
        let ipc = node.ipc();
        let report = self.fs.dfsadmin(&["-report"])?;
        expect(report.contains("Live datanodes (3)"), || report.clone())?;
        let info = self.fs.dfsadmin(&["-getDatanodeInfo", &ipc])?;
        expect(info.contains("Uptime"), || info)?;
        let volumes = self.fs.dfsadmin(&["-getVolumeReport", &ipc])?;
        expect(volumes.contains("data-0"), || volumes)?;
        self.fs.dfsadmin(&["-triggerBlockReport", &ipc])?;
        self.fs
            .dfsadmin(&["-triggerBlockReport", "-incremental", &ipc])?;
        self.fs.dfsadmin(&["-setBalancerBandwidth", "12345678"])?;
        hayloft_lab::wait::until("the new balancer bandwidth", seconds(20), || {
            let said = self.fs.dfsadmin(&["-getBalancerBandwidth", &ipc])?;
            Ok(if said.contains("12345678") {
                hayloft_lab::wait::Seen::Done(())
            } else {
                hayloft_lab::wait::Seen::NotYet(said)
            })
        })?;
        self.fs.dfsadmin(&["-refreshNamenodes", &ipc])?;
        self.fs.dfsadmin(&["-evictWriters", &ipc])?;
        let properties = self
            .fs
            .dfsadmin(&["-reconfig", "datanode", &ipc, "properties"])?;
        expect(properties.contains("dfs.datanode.data.dir"), || properties)?;
        self.fs.put("/after-admin", 1000, 2, json!({}))?;
        self.fs.check("/after-admin", 1000, 2)?;
        passed()
    }

    fn verify_metas(&self, cluster: &Cluster) -> Result<Outcome> {
        let counts: Result<Vec<usize>> = cluster
            .nodes()
            .map(|node| self.fs.verify_metas(node))
            .collect();
        let counts = counts?;
        expect(counts.iter().all(|&count| count > 100), || {
            format!("too few replicas: {counts:?}")
        })?;
        passed()
    }

    /// The check above would be worth nothing if it could not fail.
    fn verify_meta_can_fail(&self, cluster: &Cluster) -> Result<Outcome> {
        self.fs
            .put("/flipped", 5000, 4, json!({"replication": 1}))?;
        let block = self.fs.blocks("/flipped")?.remove(0);
        let at = cluster.node_at(&block.nodes[0]);
        let node = at.and_then(|index| cluster.nodes().nth(index));
        let node =
            node.ok_or_else(|| LabError::Expectation(format!("unknown node in {block:?}")))?;
        let files = node.block_files(block.id);
        let find = |is_meta: bool| {
            let found = files.iter().find(|f| f.extension().is_some() == is_meta);
            found.ok_or_else(|| LabError::Expectation(format!("incomplete replica: {files:?}")))
        };
        let (data, meta) = (find(false)?, find(true)?);
        self.fs.verify_meta(meta)?;
        flip_byte(data, 1234)?;
        let verdict = self.fs.verify_meta(meta);
        expect(verdict.is_err(), || {
            "verifyMeta missed a flipped byte".into()
        })?;
        // Whole again, or the block scanner may find it in a later case.
        flip_byte(data, 1234)?;
        passed()
    }

    fn fsck(&self) -> Result<Outcome> {
        self.fs.wait_healthy("/", seconds(60))?;
        let run = self
            .fs
            .tool(class::FSCK, &["/put", "-files", "-blocks", "-locations"])?
            .ok()?;
        expect(run.out.contains("Live_repl=3"), || run.out)?;
        passed()
    }
}

fn label(conf: &Value, error: &LabError) -> LabError {
    LabError::Expectation(format!("with {conf}: {error}"))
}

/// Header and length of a replica's meta file, when the node has a replica.
fn check_meta(node: &Node, block: &hayloft_lab::files::Block, kind: u8, chunk: u64) -> Result<()> {
    let files = node.block_files(block.id);
    let meta = files
        .iter()
        .find(|path| path.extension().is_some_and(|e| e == "meta"));
    let meta = meta.ok_or_else(|| {
        LabError::Expectation(format!("{} has no replica of {block:?}", node.name()))
    })?;
    let bytes = std::fs::read(meta).map_err(LabError::file("reading", meta))?;
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
