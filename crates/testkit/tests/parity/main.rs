//! Two nodes of small disks each, with parity over the disks of a node: a stock NameNode and
//! stock clients never learn that a disk died. [`damage`]: damaged replicas. [`loss`]: disks and a
//! host that go. [`records`]: damaged records. [`room`]: full disks. [`steps`]: the node killed at
//! each step.

mod damage;
mod loss;
mod records;
mod room;
mod steps;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::modelled::{self, HostedFileSystem, ModelledDisk};
use hayloft_testkit::mounts::{TestMount, in_own_namespace};
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{
    Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec, parity,
};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
const HOSTS: usize = 2;
/// Disks of a node: six members and a parity file of each group are on one each.
const DISKS: usize = 7;
/// Size of each disk, MiB.
const DISK_MIB: u32 = 128;
/// Host and disk that hang.
const HUNG: (usize, usize) = (1, DISKS - 1);
const FILE_SYSTEM: HostedFileSystem = HostedFileSystem::Ext4;
/// Files of one block with a replica on each node: six on each disk.
const FILES: u64 = 42;
/// Nodes that survive one disk.
const ONE_DISK: TestNodes = TestNodes {
    shape: "6+1",
    disks: DISKS,
    hung: Some(HUNG),
    given_up_after_ms: 1000,
};
/// Nodes that survive two disks. Eight others are left then, for eight units. A node may be away
/// while its blocks are read from the other.
const TWO_DISKS: TestNodes = TestNodes {
    shape: "6+2",
    disks: 10,
    hung: None,
    given_up_after_ms: 60_000,
};
/// Groups that are not full are formed after two minutes.
const PROTECTED_WITHIN: Duration = Duration::from_secs(240);

fn main() -> ExitCode {
    in_own_namespace();
    Suite::run("parity", |suite| {
        if !suite.may_mount_disks("everything") {
            return Ok(());
        }
        let end = |lab: Lab, failed: bool| lab.cluster.conclude(failed);
        let mut on = suite.group(|| start(&ONE_DISK), end);
        on.case("closed_files_are_protected", |lab| lab.protected());
        // What lost records leave is cleaned away later, and would make room on full disks.
        on.case("full_disks_take_no_parity_and_stop_no_writer", |lab| {
            lab.no_room()
        });
        on.case("a_disk_that_takes_no_parity_stops_nothing", |lab| {
            lab.refused_dir()
        });
        on.case("deleted_room_comes_back_on_full_disks", |lab| {
            lab.deleted_room()
        });
        on.case("scrub_mends_flipped_bytes", |lab| lab.scrubbed());
        on.case("readers_get_what_damaged_replicas_should_have", |lab| {
            lab.read_damaged()
        });
        on.case("a_mended_replica_is_well_for_the_namenode", |lab| {
            lab.told_and_mended()
        });
        on.case("scrub_mends_damaged_records", |lab| lab.records_mended());
        on.case("groups_whose_records_are_lost_are_encoded_anew", |lab| {
            lab.records_lost()
        });
        on.case("appends_and_deletes_leave_the_rest_protected", |lab| {
            lab.changed()
        });
        on.case("killed_again_and_again_while_it_encodes", |lab| {
            lab.killed()
        });
        on.case("killed_at_each_step_of_encoding", |lab| {
            lab.killed_at_steps()
        });
        on.case("a_stock_node_used_the_directories", |lab| lab.swapped());
        on.case("a_disk_is_taken_out_and_put_back_in", |lab| {
            lab.hot_swapped()
        });
        on.case("a_hung_disk_costs_no_replication", |lab| lab.hung_disk());
        on.case("more_units_than_disks_are_refused", |lab| lab.refused());
        on.case("a_dead_disk_costs_no_replication", |lab| lab.dead_disk());
        on.case("a_host_and_a_disk_of_the_other_are_gone", |lab| {
            lab.host_and_disk()
        });
        let mut on = suite.group(|| start(&TWO_DISKS), end);
        on.case("two_dead_disks_cost_no_replication", |lab| {
            lab.two_dead_disks()
        });
        on.case("dead_disks_end_no_node_and_refuse_no_start", |lab| {
            lab.third_disk()
        });
        Ok(())
    })
}

/// What the nodes are.
struct TestNodes {
    /// K+M.
    shape: &'static str,
    /// Disks of each.
    disks: usize,
    /// Host and disk that can hang.
    hung: Option<(usize, usize)>,
    /// `dfs.namenode.heartbeat.recheck-interval`: nodes are dead after a little more than twice.
    given_up_after_ms: u64,
}

fn start(nodes: &TestNodes) -> Result<Lab> {
    let base = scratch("parity-disks-")?;
    let mut builder = Cluster::builder("parity")
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", HOSTS)
        .conf("dfs.client.socket-timeout", 10_000)
        .conf(
            "dfs.namenode.heartbeat.recheck-interval",
            nodes.given_up_after_ms,
        )
        .conf(
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
            0,
        );
    let mut disks = Vec::new();
    for host in 0..HOSTS {
        let mut volumes = Vec::new();
        for disk in 0..nodes.disks {
            let at = base.path().join(format!("disk-{host}-{disk}"));
            let disk =
                if nodes.hung == Some((host, disk)) && modelled::missing(FILE_SYSTEM).is_none() {
                    NodeDisk::Modelled(ModelledDisk::mount_small(at, FILE_SYSTEM)?)
                } else {
                    let image = base.path().join(format!("image-{host}-{disk}"));
                    NodeDisk::Mount(TestMount::ext4(&image, &at, DISK_MIB)?)
                };
            volumes.push(VolumeSpec::at(disk.data()));
            disks.push(disk);
        }
        let spec = NodeSpec::new(Kind::Hayloft)
            .volumes(volumes)
            .conf("dfs.datanode.disk.check.timeout", "5s")
            .conf("hayloft.parity", nodes.shape);
        builder = builder.node(spec);
    }
    let cluster = builder.start()?;
    Ok(Lab {
        fs: cluster.driver()?,
        cluster,
        disks_each: nodes.disks,
        disks,
        files: Vec::new(),
        _base: base,
    })
}

/// A disk of a node.
enum NodeDisk {
    /// It can die.
    Mount(TestMount),
    /// It can hang.
    Modelled(ModelledDisk),
}

impl NodeDisk {
    /// The node's directory on it.
    fn data(&self) -> PathBuf {
        let at = match self {
            Self::Mount(mount) => mount.path(),
            Self::Modelled(disk) => disk.dir(),
        };
        at.join("data")
    }

    fn kill(&self) -> Result<()> {
        match self {
            Self::Mount(mount) => mount.break_disk(),
            Self::Modelled(_) => Err(TestkitError::Expectation("it can only hang".into())),
        }
    }

    /// Puts a file where the node's directory was: the node cannot make it again.
    fn vanish(&self) -> Result<()> {
        let data = self.data();
        std::fs::rename(&data, data.with_file_name("gone"))
            .map_err(TestkitError::file("moving", &data))?;
        std::fs::write(&data, "").map_err(TestkitError::file("writing", &data))
    }
}

struct Lab {
    fs: Driver,
    cluster: Cluster,
    /// Disks of a host.
    disks_each: usize,
    disks: Vec<NodeDisk>,
    /// What is there: path, length, seed.
    files: Vec<(String, u64, u64)>,
    // Dropped after the nodes have ended.
    _base: tempfile::TempDir,
}

impl Lab {
    fn disk(&self, host: usize, disk: usize) -> &NodeDisk {
        &self.disks[host * self.disks_each + disk]
    }

    /// Writes files of one block, and remembers them.
    fn write(&mut self, dir: &str, count: u64) -> Result<()> {
        for n in 0..count {
            let path = format!("/{dir}/{n}");
            self.fs.put(&path, BLOCK, n, json!({}))?;
            self.files.push((path, BLOCK, n));
        }
        Ok(())
    }

    /// What a case needs that may run alone: protected files.
    fn some_protected(&mut self, host: usize) -> Result<Value> {
        if self.files.is_empty() {
            self.write("closed", FILES)?;
        }
        self.wait_protected(host)
    }

    fn check_all(&self) -> Result<()> {
        let check = |(path, bytes, seed): &(String, u64, u64)| self.fs.check(path, *bytes, *seed);
        self.files.iter().try_for_each(check)
    }

    /// Every file has a replica on each node, as the NameNode sees it.
    fn expect_replicas(&self) -> Result<()> {
        for (path, ..) in &self.files {
            let blocks = self.fs.blocks(path)?;
            let all = blocks.iter().all(|block| block.nodes.len() == HOSTS);
            expect(all, || format!("{path} lacks a replica: {blocks:?}"))?;
        }
        Ok(())
    }

    /// What `hayloft parity` says on a host: exit code and answer.
    fn parity(&mut self, host: usize, arguments: &[&str]) -> Result<(Option<i32>, Value)> {
        parity::said(self.cluster.node(host), arguments)
    }

    /// Waits until a node says what `is` wants.
    fn wait_status(
        &mut self,
        host: usize,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        wait::until(what, PROTECTED_WITHIN, || {
            std::thread::sleep(seconds(1));
            let (_, now) = self.parity(host, &["status"])?;
            Ok(if is(&now) {
                Seen::Done(now)
            } else {
                Seen::NotYet(now.to_string())
            })
        })
    }

    /// Waits until a node says that all that it has is protected.
    fn wait_protected(&mut self, host: usize) -> Result<Value> {
        let wanted: u64 = self.files.iter().map(|(_, bytes, _)| bytes).sum();
        let what = format!("{wanted} bytes of host {host} protected");
        self.wait_status(host, &what, |now| {
            now["protected_bytes"].as_u64() == Some(wanted)
        })
    }

    fn protected(&mut self) -> Result<Outcome> {
        self.write("closed", FILES)?;
        for host in 0..HOSTS {
            let now = self.wait_protected(host)?;
            expect_eq("degraded", now["degraded_bytes"].as_u64(), Some(0))?;
            expect_eq("lost", now["lost_bytes"].as_u64(), Some(0))?;
            println!("parity: host {host}: {now}");
        }
        self.check_all()?;
        let raw = self.raw_space()?;
        println!("parity: raw space over data {raw:.2}; wanted at most 2.4, three replicas have 3");
        expect(raw <= 2.4, || {
            format!("raw space is {raw:.2} times the data")
        })?;
        passed()
    }

    /// The data files of a node, in no order.
    fn data_files(&mut self, host: usize) -> Vec<PathBuf> {
        let files = self.cluster.node(host).all_block_files();
        let data = |path: &PathBuf| path.extension().is_none_or(|e| e != "meta");
        files.into_iter().filter(data).collect()
    }

    fn scrubbed(&mut self) -> Result<Outcome> {
        let damaged = self.data_files(0).into_iter().next();
        let damaged = damaged.ok_or_else(|| TestkitError::Expectation("no replica".into()))?;
        let read = || std::fs::read(&damaged).map_err(TestkitError::file("reading", &damaged));
        let before = read()?;
        hayloft_testkit::files::flip_byte(&damaged, 1000)?;
        expect(read()? != before, || "nothing was flipped".into())?;
        let (code, answer) = self.parity(0, &["scrub", "--wait", "60"])?;
        expect_eq("exit code", code, Some(0)).inspect_err(|_| println!("parity: {answer}"))?;
        wait::until("the flipped byte is mended", seconds(30), || {
            Ok(if read()? == before {
                Seen::Done(())
            } else {
                Seen::NotYet("it is not".into())
            })
        })?;
        self.expect_none_corrupt()?;
        passed()
    }

    /// No node has called a replica corrupt.
    fn expect_none_corrupt(&self) -> Result<()> {
        let corrupt = &self.cluster.namenode_bean(0, "FSNamesystem")?["CorruptBlocks"];
        expect_eq("corrupt blocks", corrupt.as_u64(), Some(0))
    }

    fn changed(&mut self) -> Result<Outcome> {
        for at in 0..6 {
            let (path, bytes, seed) = self.files[at].clone();
            self.fs.append("a", &path, seed, json!({}))?;
            self.fs.write("a", 300_000)?;
            self.fs.handle("close", "a")?;
            self.files[at].1 = bytes + 300_000;
        }
        for (path, ..) in self.files.drain(36..).collect::<Vec<_>>() {
            self.fs.fs(&["-rm", "-skipTrash", &path])?;
        }
        self.wait_protected(0)?;
        self.wait_protected(1)?;
        self.check_all()?;
        passed()
    }

    fn killed(&mut self) -> Result<Outcome> {
        for round in 0..6 {
            self.write(&format!("killed-{round}"), 14)?;
            // From before the first round of parity to far within it.
            std::thread::sleep(Duration::from_millis(700 * round));
            self.cluster.node(0).kill()?;
            self.cluster.start_node(0)?;
            self.cluster.wait_all_live()?;
        }
        for (path, ..) in &self.files {
            self.fs.wait_replicas(path, HOSTS, seconds(60))?;
        }
        self.wait_protected(0)?;
        self.check_all()?;
        let (code, answer) = self.parity(0, &["scrub", "--wait", "60"])?;
        expect(code == Some(0), || answer.to_string())?;
        passed()
    }

    fn swapped(&mut self) -> Result<Outcome> {
        self.cluster.swap_node(0, Kind::Apache)?;
        self.cluster.wait_all_live()?;
        self.check_all()?;
        for (path, ..) in self.files.drain(..5).collect::<Vec<_>>() {
            self.fs.fs(&["-rm", "-skipTrash", &path])?;
        }
        let (path, bytes, seed) = self.files[0].clone();
        self.fs.append("s", &path, seed, json!({}))?;
        self.fs.write("s", 5000)?;
        self.fs.handle("close", "s")?;
        self.files[0].1 = bytes + 5000;
        self.write("stock", 7)?;
        self.cluster.swap_node(0, Kind::Hayloft)?;
        self.cluster.wait_all_live()?;
        for (path, ..) in &self.files {
            self.fs.wait_replicas(path, HOSTS, seconds(60))?;
        }
        self.wait_protected(0)?;
        self.check_all()?;
        passed()
    }

    fn refused(&mut self) -> Result<Outcome> {
        let spec = NodeSpec::new(Kind::Hayloft).conf("hayloft.parity", "2+1");
        let (failed, log) = self.cluster.refused_node(spec)?;
        expect(failed, || "it ran".into())?;
        let said = |line: &&str| line.contains("error") && line.contains("hayloft.parity");
        let sentences = log.lines().filter(said).count();
        expect(sentences == 1, || log.clone())?;
        passed()
    }
}
