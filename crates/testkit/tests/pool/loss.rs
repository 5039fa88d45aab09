//! A disk dies, then a host and a disk of the other.

use crate::Lab;
use hayloft_testkit::Outcome;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Bytes that the files below a directory take on the disk.
fn allocated(dir: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let found = entry.metadata()?;
        bytes += if found.is_dir() {
            allocated(&entry.path())?
        } else {
            found.blocks() * 512
        };
    }
    Ok(bytes)
}

impl Lab {
    /// Copies of blocks that the NameNode has had made.
    fn copies(&self) -> Result<u64> {
        let bean = self.cluster.namenode_bean(0, "NameNodeActivity")?;
        let made = bean["SuccessfulReReplications"].as_u64();
        made.ok_or_else(|| TestkitError::Expectation(format!("no count of copies: {bean}")))
    }

    /// Bytes on the disks of all nodes for each byte of the files.
    pub fn raw_space(&self) -> Result<f64> {
        let mut raw = 0;
        for disk in &self.disks {
            let dir = disk.path().join("data");
            raw += allocated(&dir).map_err(TestkitError::file("listing", &dir))?;
        }
        let data: u64 = self.files.iter().map(|(_, bytes, _)| bytes).sum();
        #[expect(clippy::cast_precision_loss, reason = "some MiB")]
        Ok(raw as f64 / data as f64)
    }

    pub fn dead_disk(&mut self) -> Result<Outcome> {
        self.wait_protected(0)?;
        self.wait_protected(1)?;
        let before = self.copies()?;
        self.disk(0, 3).break_disk()?;
        let started = std::time::Instant::now();
        wait::until("the disk's replicas rebuilt", seconds(180), || {
            self.check_all()?;
            self.expect_replicas()?;
            std::thread::sleep(seconds(1));
            let (_, now) = self.pool(0, &["status"])?;
            expect_eq("lost", now["lost_bytes"].as_u64(), Some(0))?;
            let of = |name: &str| now[name].as_u64().unwrap_or(u64::MAX);
            let failed = self.cluster.namenode_bean(0, "FSNamesystemState")?;
            let noticed = failed["VolumeFailuresTotal"].as_u64() == Some(1);
            let whole = of("degraded_bytes") == 0 && of("rebuild_remaining_bytes") == 0;
            Ok(if noticed && whole {
                Seen::Done(())
            } else {
                Seen::NotYet(now.to_string())
            })
        })?;
        println!("pool: noticed and rebuilt after {:?}", started.elapsed());
        self.check_all()?;
        self.expect_replicas()?;
        expect_eq("copies that the NameNode ordered", self.copies()?, before)?;
        passed()
    }

    pub fn host_and_disk(&mut self) -> Result<Outcome> {
        self.wait_protected(1)?;
        self.cluster.node(0).kill()?;
        self.disk(1, 5).break_disk()?;
        // The first reads may meet the dead host.
        self.check_all()?;
        self.check_all()?;
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        for (path, ..) in &self.files {
            self.fs.wait_replicas(path, crate::HOSTS, seconds(90))?;
        }
        expect(!self.files.is_empty(), || "no files".into())?;
        passed()
    }
}
