//! Replicas on a RAM_DISK volume: clients read them by themselves, also while they leave memory.

use super::{BLOCK, Lab};
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{NodeSpec, Outcome, VolumeSpec};
use serde_json::json;
use std::time::Duration;

/// Memory for two replicas, which is what the node may lock here.
pub fn start() -> Result<Lab> {
    let volumes = vec![VolumeSpec::typed("DISK"), VolumeSpec::typed("RAM_DISK")];
    let node = NodeSpec::new(Kind::under_test()).volumes(volumes);
    let lab = Lab::with(node.conf("dfs.datanode.lazywriter.interval.sec", 1))?;
    lab.fs.fs(&["-mkdir", "/lazy"])?;
    lab.fs.set_policy("/lazy", "LAZY_PERSIST")?;
    Ok(lab)
}

impl Lab {
    /// Waits until the NameNode says this of the storage of a file of one block.
    fn wait_type(&self, path: &str, wanted: &str) -> Result<()> {
        wait::until(&format!("{path} on {wanted}"), seconds(60), || {
            let types = self.fs.blocks(path)?.remove(0).types;
            Ok(match types == [wanted] {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{types:?}")),
            })
        })
    }

    /// A reader that has a replica open reads it to the end, whatever has become of it; the next
    /// reader opens the copy on disk. Neither asks the node for a byte.
    pub fn leaves_memory(&mut self) -> Result<Outcome> {
        self.fs.put("/lazy/1", BLOCK, 1, json!({}))?;
        self.wait_type("/lazy/1", "RAM_DISK")?;
        expect_eq(
            "from memory",
            self.read("/lazy/1", BLOCK, 1, json!({}))?,
            BLOCK,
        )?;
        // The copy on disk is there when another replica may take its place.
        std::thread::sleep(seconds(5));
        let more = json!({"path": "/lazy/1", "seed": 1, "buffer": 64 << 10, "pauseMillis": 500});
        let reading = self.fs.begin("read", more)?;
        std::thread::sleep(Duration::from_secs(1));
        for file in 2..=3 {
            self.fs
                .put(&format!("/lazy/{file}"), BLOCK, file, json!({}))?;
        }
        self.wait_type("/lazy/1", "DISK")?;
        self.wait_type("/lazy/3", "RAM_DISK")?;
        let answer = reading.wait()?;
        let seen = (answer["bytes"].as_u64(), answer["mismatch"].as_i64());
        expect_eq("bytes and first mismatch", seen, (Some(BLOCK), Some(-1)))?;
        expect_eq("read alone", answer["shortCircuit"].as_u64(), Some(BLOCK))?;
        for file in 1..=3 {
            let path = format!("/lazy/{file}");
            expect_eq(&path, self.read(&path, BLOCK, file, json!({}))?, BLOCK)?;
        }
        passed()
    }
}
