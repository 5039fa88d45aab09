//! Reads without a copy: stock clients map the node's files, with checksums only what is cached.

use super::{BLOCK, Lab};
use hayloft_testkit::driver::PendingCall;
use hayloft_testkit::error::Result;
use hayloft_testkit::files::merge;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::suite::{expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError};
use serde_json::{Value, json};

/// Bytes in hand at a time.
const PIECE: u64 = BLOCK / 4;

/// How much of the file a reader mapped. It is one block, all of which was read and right.
fn mapped_by(reading: PendingCall) -> Result<u64> {
    let answer = reading.wait()?;
    let seen = (answer["bytes"].as_u64(), answer["mismatch"].as_i64());
    expect_eq("bytes and first mismatch", seen, (Some(BLOCK), Some(-1)))?;
    Ok(answer["zeroCopy"].as_u64().unwrap_or_default())
}

impl Lab {
    fn read_mapped(&self, more: Value) -> Result<PendingCall> {
        let request = json!({"path": "/mapped", "seed": 9, "buffer": PIECE, "mapped": true});
        self.fs.begin("read", merge(request, more))
    }

    /// Waits until a reader that wants checksums maps so much, and the node has so much locked.
    fn wait_mapped(&mut self, mapped: u64, locked: u64) -> Result<()> {
        let path = format!("/proc/{}/status", self.cluster.node(0).process()?.pid());
        let locked = format!("VmLck:\t{:>8} kB", locked >> 10);
        wait::until(&format!("{mapped} mapped, {locked}"), seconds(60), || {
            let now = mapped_by(self.read_mapped(json!({}))?)?;
            let read = std::fs::read_to_string(&path);
            let status = read.map_err(TestkitError::file("reading", &path))?;
            Ok(match now == mapped && status.contains(&locked) {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{now} mapped: {status}")),
            })
        })
    }

    pub fn mapped(&mut self) -> Result<Outcome> {
        self.fs.put("/mapped", BLOCK, 9, json!({}))?;
        let skipping = self.read_mapped(json!({"skipChecksums": true}))?;
        expect_eq("without checksums", mapped_by(skipping)?, BLOCK)?;
        self.wait_mapped(0, 0)?;
        let add = ["-addDirective", "-path", "/mapped", "-pool", "pool"];
        for args in [&["-addPool", "pool"][..], &add] {
            self.fs.tool(class::CACHE_ADMIN, args)?.ok()?;
        }
        self.wait_mapped(BLOCK, BLOCK)?;
        passed()
    }

    /// What a reader has in hand stays locked, and what comes then is not mapped.
    pub fn uncached(&mut self) -> Result<Outcome> {
        let hold = self.sockets.path().join("hold");
        let reading = self.read_mapped(json!({ "hold": hold }))?;
        wait::until("a reader with bytes in hand", seconds(20), || {
            Ok(match hold.exists() {
                true => Seen::Done(()),
                false => Seen::NotYet("none".into()),
            })
        })?;
        let remove = ["-removeDirectives", "-path", "/mapped"];
        self.fs.tool(class::CACHE_ADMIN, &remove)?.ok()?;
        self.wait_mapped(0, BLOCK)?;
        std::fs::remove_file(&hold).map_err(TestkitError::file("removing", &hold))?;
        expect_eq("mapped of it", mapped_by(reading)?, PIECE)?;
        self.wait_mapped(0, 0)?;
        passed()
    }
}
