//! Whole files through the shell: made, copied, cut, counted, summed.

use crate::{BLOCK, Lab};
use hayloft_testkit::error::Result;
use hayloft_testkit::files::{check_local, write_local};
use hayloft_testkit::hadoop::class;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Outcome, TestkitError, pattern};
use serde_json::{Value, json};
use std::path::PathBuf;

impl Lab {
    /// Empty, one byte, around a chunk, a packet and a block, exactly a block, several blocks.
    pub fn put_and_get(&self) -> Result<Outcome> {
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
            // A file may be closed when one node has reported its replica.
            self.fs.wait_replicas(&path, 3, seconds(30))?;
        }
        passed()
    }

    pub fn cat_tail_head_text(&self) -> Result<Outcome> {
        let text: String = (0..40_000).map(|i| format!("line {i}\n")).collect();
        let (plain, plain_text) = self.local("lines.txt");
        std::fs::write(&plain, &text).map_err(TestkitError::file("writing", &plain))?;
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

    /// Keys and values as the stock shell prints them, from a compressed file too.
    pub fn sequence_file(&self) -> Result<Outcome> {
        for compression in ["NONE", "RECORD", "BLOCK"] {
            let path = format!("/sequence-{compression}");
            let request = json!({"path": path, "count": 3000, "compression": compression});
            self.fs.call("sequenceFile", request)?;
            let want: String = (0..3000).map(|i| format!("{i}\tvalue {i}\n")).collect();
            let text = self.fs.fs(&["-text", &path])?;
            expect(text == want, || {
                format!("{compression}: {} bytes of text", text.len())
            })?;
        }
        passed()
    }

    /// What is appended while `-tail -f` runs is shown; it ends when the file is gone.
    pub fn tail_follow(&self) -> Result<Outcome> {
        let first = "first line\n".repeat(200);
        self.shell(&["-put", "-", "/followed"], json!({ "stdin": first }))?
            .ok()?;
        let args = ["-tail", "-f", "-s", "300", "/followed"];
        let request = json!({"class": class::FS_SHELL, "args": args});
        let following = self.fs.begin("tool", request)?;
        // The client tells nothing of a tool before its end; it looks three times a second.
        std::thread::sleep(seconds(2));
        for seed in 1..4 {
            // Not by the shell: the driver runs one tool at a time.
            self.fs
                .put("/followed", 3000, seed, json!({"appendTo": true}))?;
            std::thread::sleep(seconds(1));
        }
        self.fs.call("delete", json!({"path": "/followed"}))?;
        let end = following.wait_at_most(seconds(60))?;
        let out = end["out"].as_str().unwrap_or_default();
        expect(out.starts_with(&first[first.len() - 1024..]), || {
            "the end of the file was not shown first".into()
        })?;
        // The pattern is no text: bytes that are not UTF-8 are shown as one character.
        expect(out.chars().count() > 1024 + 3 * 1500, || {
            format!("only {} characters were shown", out.chars().count())
        })?;
        passed()
    }

    pub fn get_and_put_options(&self) -> Result<Outcome> {
        let size = 2_500_001;
        let (source, source_text) = self.local("options-in");
        write_local(&source, size, 78)?;
        let (back, back_text) = self.local("options-out");
        self.fs.fs(&["-put", &source_text, "/options"])?;
        self.fs.fs(&["-get", "-crc", "/options", &back_text])?;
        check_local(&back, size, 78)?;
        let crc = back.with_file_name(".options-out.crc");
        let sums = std::fs::metadata(&crc).map_err(TestkitError::file("reading", &crc))?;
        expect_eq(
            "local checksum file",
            sums.len(),
            8 + size.div_ceil(512) as u64 * 4,
        )?;
        let (dir, dir_text) = self.local("options-dir");
        std::fs::create_dir_all(&dir).map_err(TestkitError::file("creating", &dir))?;
        for number in 0..12 {
            write_local(
                &dir.join(format!("f{number}")),
                200_000 + number,
                number as u64,
            )?;
        }
        self.fs
            .fs(&["-put", "-t", "4", "-q", "20", &dir_text, "/options-dir"])?;
        for number in 0..12u64 {
            self.fs
                .check(&format!("/options-dir/f{number}"), 200_000 + number, number)?;
        }
        let (_, got_text) = self.local("options-got");
        self.fs
            .fs(&["-get", "-t", "4", "/options-dir", &got_text])?;
        for number in 0..12 {
            let got = PathBuf::from(&got_text).join(format!("f{number}"));
            check_local(&got, 200_000 + number, number as u64)?;
        }
        passed()
    }

    pub fn append_to_file(&self) -> Result<Outcome> {
        let (part, part_text) = self.local("part");
        std::fs::write(&part, "local part\n").map_err(TestkitError::file("writing", &part))?;
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

    pub fn copies(&self) -> Result<Outcome> {
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
        let merged =
            std::fs::read(&twice_text).map_err(TestkitError::file("reading", &twice_text))?;
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
    pub fn checksums(&self) -> Result<Outcome> {
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

    pub fn truncate(&self) -> Result<Outcome> {
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

    pub fn namespace_commands(&self) -> Result<Outcome> {
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

    pub fn setrep(&self) -> Result<Outcome> {
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

    pub fn concat(&self) -> Result<Outcome> {
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
            std::fs::write(&whole, data).map_err(TestkitError::file("writing", &whole))?;
            self.fs.fs(&[
                "-put",
                &whole.display().to_string(),
                &format!("/concat-{name}"),
            ])?;
        }
        self.fs
            .fs(&["-concat", "/concat-a", "/concat-b", "/concat-c"])?;
        self.fs.check("/concat-a", 2 * BLOCK + 500, 71)?;
        passed()
    }

    pub fn many_small_files(&self) -> Result<Outcome> {
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

    pub fn streams(&self) -> Result<Outcome> {
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
}
