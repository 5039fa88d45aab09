//! A disk is exchanged, one hangs, one dies, then a host and a disk of the other.

use crate::{Lab, NodeDisk};
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
            let dir = disk.data();
            raw += allocated(&dir).map_err(TestkitError::file("listing", &dir))?;
        }
        let data: u64 = self.files.iter().map(|(_, bytes, _)| bytes).sum();
        #[expect(clippy::cast_precision_loss, reason = "some MiB")]
        Ok(raw as f64 / data as f64)
    }

    /// Volumes that nodes have told the NameNode to have failed.
    fn failed_volumes(&self) -> Result<u64> {
        let bean = self.cluster.namenode_bean(0, "FSNamesystemState")?;
        let failed = bean["VolumeFailuresTotal"].as_u64();
        failed.ok_or_else(|| TestkitError::Expectation(format!("no count of volumes: {bean}")))
    }

    /// `count` disks of a host fail by `fail`. All that was on them is read and has its replicas
    /// all the time, until it is rebuilt, and the NameNode has nothing copied.
    fn lose_disks<T>(
        &mut self,
        (host, count): (usize, u64),
        fail: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        for host in 0..crate::HOSTS {
            self.some_protected(host)?;
        }
        let (copies, failures) = (self.copies()?, self.failed_volumes()?);
        let failed = fail(self)?;
        let started = std::time::Instant::now();
        wait::until("the disks' replicas rebuilt", seconds(180), || {
            self.check_all()?;
            self.expect_replicas()?;
            std::thread::sleep(seconds(1));
            let (_, now) = self.parity(host, &["status"])?;
            expect_eq("lost", now["lost_bytes"].as_u64(), Some(0))?;
            let of = |name: &str| now[name].as_u64().unwrap_or(u64::MAX);
            let noticed = self.failed_volumes()? == failures + count;
            let whole = of("degraded_bytes") == 0 && of("rebuild_remaining_bytes") == 0;
            Ok(if noticed && whole {
                Seen::Done(())
            } else {
                Seen::NotYet(now.to_string())
            })
        })?;
        println!("parity: noticed and rebuilt after {:?}", started.elapsed());
        self.check_all()?;
        self.expect_replicas()?;
        expect_eq("copies that the NameNode ordered", self.copies()?, copies)?;
        Ok(failed)
    }

    pub fn dead_disk(&mut self) -> Result<Outcome> {
        self.lose_disks((0, 1), |lab| {
            lab.disk(0, 3).kill()?;
            lab.kill_while_rebuilding(0)
        })?;
        passed()
    }

    pub fn two_dead_disks(&mut self) -> Result<Outcome> {
        const HOST: usize = 0;
        const OTHER: usize = 1;
        self.lose_disks((HOST, 2), |lab| {
            // Every block comes from the disks that are left.
            lab.cluster.node(OTHER).kill()?;
            lab.disk(HOST, 3).kill()?;
            lab.disk(HOST, 6).vanish()?;
            lab.check_all()?;
            lab.cluster.start_node(OTHER)?;
            lab.cluster.wait_all_live()
        })?;
        let now = self.wait_protected(HOST)?;
        let volumes = now["volumes"].as_array().cloned().unwrap_or_default();
        let used = volumes.iter().filter(|v| v["in_use"] == true).count();
        expect_eq("disks in use", used, self.disks_each - 2)?;
        let units = ["protected_bytes", "parity_bytes"];
        let left = volumes.iter().filter(|v| v["in_use"] != true);
        let mut left = left.flat_map(|v| units.map(|name| v[name].as_u64()));
        expect(left.all(|bytes| bytes == Some(0)), || {
            format!("groups count on units of dead disks: {now}")
        })?;
        self.expect_none_corrupt()?;
        passed()
    }

    /// One more than groups can decode, while the configuration tolerates no failed volume: the
    /// node goes on, and starts again with what is left.
    pub fn third_disk(&mut self) -> Result<Outcome> {
        const HOST: usize = 0;
        for host in 0..crate::HOSTS {
            self.some_protected(host)?;
        }
        let failures = self.failed_volumes()?;
        self.disk(HOST, 0).kill()?;
        wait::until("one more failed volume", seconds(120), || {
            self.check_all()?;
            std::thread::sleep(seconds(1));
            let seen = self.failed_volumes()?;
            Ok(match seen == failures + 1 {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{seen}")),
            })
        })?;
        self.cluster.node(HOST).process()?.check_alive()?;
        self.cluster.node(HOST).stop()?;
        self.cluster.start_node(HOST)?;
        self.cluster.wait_all_live()?;
        self.check_all()?;
        for (path, ..) in &self.files {
            self.fs.wait_replicas(path, crate::HOSTS, seconds(120))?;
        }
        passed()
    }

    pub fn hung_disk(&mut self) -> Result<Outcome> {
        let (host, disk) = crate::HUNG;
        if let NodeDisk::Mount(_) = self.disk(host, disk) {
            return Ok(Outcome::Skipped("no modelled disk can be mounted".into()));
        }
        let hung = self.lose_disks((host, 1), |lab| {
            // What is in the page cache needs no disk.
            let caches = Path::new("/proc/sys/vm/drop_caches");
            std::fs::write(caches, "3").map_err(TestkitError::file("writing", caches))?;
            match lab.disk(host, disk) {
                NodeDisk::Modelled(disk) => disk.hang(),
                NodeDisk::Mount(_) => Err(TestkitError::Expectation("it cannot hang".into())),
            }
        })?;
        // It answers again, with old content: the node has given it up.
        drop(hung);
        self.check_all()?;
        self.wait_protected(host)?;
        passed()
    }

    fn reconfigure(&mut self, host: usize) -> Result<()> {
        self.cluster.rewrite_node_conf(host)?;
        let ipc = self.cluster.node(host).ipc();
        let said = self.fs.reconfigure(&ipc, seconds(60))?;
        expect(said.contains("SUCCESS"), || said)?;
        // The NameNode may take long to miss what it believes to be there.
        self.fs.dfsadmin(&["-triggerBlockReport", &ipc])?;
        Ok(())
    }

    pub fn hot_swapped(&mut self) -> Result<Outcome> {
        const HOST: usize = 1;
        let dir = self.disk(HOST, 2).data();
        for out in [true, false] {
            match out {
                true => self.cluster.node(HOST).remove_volume(&dir),
                false => self.cluster.node(HOST).add_volume(None, &dir),
            }
            self.reconfigure(HOST)?;
            self.check_all()?;
            for (path, ..) in &self.files {
                self.fs.wait_replicas(path, crate::HOSTS, seconds(90))?;
            }
            let now = self.wait_protected(HOST)?;
            let volumes = now["volumes"].as_array().map_or(0, Vec::len);
            println!("parity: {volumes} volumes after the exchange");
            self.check_all()?;
        }
        passed()
    }

    pub fn host_and_disk(&mut self) -> Result<Outcome> {
        self.wait_protected(1)?;
        self.cluster.node(0).kill()?;
        self.disk(1, 5).kill()?;
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
