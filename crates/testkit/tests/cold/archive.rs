//! DISK and ARCHIVE volumes on one mount: a Hayloft node beside a stock one with the same keys,
//! each on a disk of its own of the same size. What they report is the same, and replicas move
//! between the two types by hard link.

use super::{BLOCK, volumes};
use hayloft_rpc::{RpcClient, RpcOptions};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::{class, scratch};
use hayloft_testkit::mounts::TestMount;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite};
use hayloft_wire::proto::hdfs::{StorageReport, StorageType};
use hayloft_wire::proto::namespace::{
    DatanodeReportType, GetDatanodeStorageReportRequest, GetDatanodeStorageReportResponse,
};
use hayloft_wire::rpc::names::CLIENT_NAMENODE_PROTOCOL;
use serde_json::json;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Size of each disk, MiB.
const DISK_MIB: u32 = 256;
/// Blocks of the file that moves.
const BLOCKS: u64 = 10;
/// Bytes by which what is used may differ: Apache counts directories too.
const SLACK: u64 = 1 << 20;
/// The two nodes.
const NODES: [Kind; 2] = [Kind::Hayloft, Kind::Apache];
const TIERING: &str = "dfs.datanode.same-disk-tiering.enabled";
const DEFAULT_SHARE: &str = "dfs.datanode.reserve-for-archive.default.percentage";
const SHARES: &str = "dfs.datanode.same-disk-tiering.capacity-ratio.percentage";

/// Adds the cases.
pub fn cases(suite: &mut Suite) {
    if !suite.may_mount_disks("disk_and_archive_on_one_mount") {
        return;
    }
    let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
    on.case("shares_of_a_mount_are_apaches", |lab| lab.shares());
    on.case("the_mover_links_what_it_moves", |lab| lab.mover());
    on.case("shares_of_single_volumes_are_apaches", |lab| {
        lab.single_shares()
    });
    on.case("a_second_disk_on_a_mount_is_refused", |lab| lab.second());
}

struct Lab {
    fs: Driver,
    cluster: Cluster,
    disks: Vec<TestMount>,
    _base: tempfile::TempDir,
}

/// Bytes that a node reports of one storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reported {
    capacity: u64,
    used: u64,
    remaining: u64,
    others: u64,
}

fn start() -> Result<Lab> {
    let base = scratch("one-mount-")?;
    let mut builder = Cluster::builder("one-mount")
        .conf("dfs.replication", 2)
        .conf("dfs.blocksize", BLOCK)
        .conf(
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
            0,
        )
        .conf(TIERING, true)
        .conf(DEFAULT_SHARE, 0.3)
        // Used space counted often enough for a test.
        .conf("fs.du.interval", 1000)
        .conf("fs.getspaceused.jitterMillis", 0);
    let mut disks = Vec::new();
    for (i, kind) in NODES.into_iter().enumerate() {
        let at = base.path().join(format!("disk-{i}"));
        let image = base.path().join(format!("image-{i}"));
        let disk = TestMount::ext4(&image, &at, DISK_MIB)?;
        let (hot, cold) = places(disk.path());
        let spec = NodeSpec::new(kind).volumes(volumes(&[("DISK", &hot), ("ARCHIVE", &cold)]));
        builder = builder.node(spec);
        disks.push(disk);
    }
    let cluster = builder.start()?;
    Ok(Lab {
        fs: cluster.driver()?,
        cluster,
        disks,
        _base: base,
    })
}

/// The directories of both types on a disk, one below the other.
fn places(disk: &Path) -> (PathBuf, PathBuf) {
    (disk.join("d"), disk.join("d/archive"))
}

impl Lab {
    /// What the NameNode knows of a node's storages: DISK and ARCHIVE.
    fn reported(&mut self) -> Result<Vec<[Reported; 2]>> {
        let rpc = self.cluster.namenode(0).rpc();
        let talk = |error: String| TestkitError::Talk(error);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| talk(error.to_string()))?;
        let request = GetDatanodeStorageReportRequest {
            r#type: DatanodeReportType::Live.into(),
        };
        let answer: GetDatanodeStorageReportResponse = runtime
            .block_on(async {
                let client = RpcClient::new(rpc, CLIENT_NAMENODE_PROTOCOL, RpcOptions::default());
                client.call("getDatanodeStorageReport", &request).await
            })
            .map_err(|error| talk(error.to_string()))?;
        let mut nodes = vec![[Reported::default(); 2]; NODES.len()];
        for node in &answer.datanode_storage_reports {
            let id = &node.datanode_info.id;
            let xfer = format!("{}:{}", id.ip_addr, id.xfer_port);
            let at = self.cluster.node_at(&xfer);
            let at = at.ok_or_else(|| TestkitError::Expectation(format!("who is {xfer}?")))?;
            for report in &node.storage_reports {
                nodes[at][usize::from(kind_of(report) == StorageType::Archive)] = Reported {
                    capacity: report.capacity(),
                    used: report.dfs_used(),
                    remaining: report.remaining(),
                    others: report.non_dfs_used(),
                };
            }
        }
        Ok(nodes)
    }

    /// Waits until both nodes report the same, and each no more than its disk has.
    fn wait_same(&mut self) -> Result<[Reported; 2]> {
        let whole: Vec<u64> = self
            .disks
            .iter()
            .map(|disk| {
                let stat = rustix::fs::statvfs(disk.path());
                stat.map_or(0, |stat| stat.f_blocks * stat.f_frsize)
            })
            .collect();
        wait::until("both nodes to report the same", seconds(60), || {
            let nodes = self.reported()?;
            let near = |a: u64, b: u64| a.abs_diff(b) <= SLACK;
            let same = (0..2).all(|kind| {
                let (ours, theirs) = (nodes[0][kind], nodes[1][kind]);
                ours.capacity == theirs.capacity
                    && near(ours.used, theirs.used)
                    && near(ours.remaining, theirs.remaining)
                    && near(ours.others, theirs.others)
            });
            let fits = nodes.iter().zip(&whole).all(|([disk, archive], whole)| {
                let sum = disk.capacity + archive.capacity;
                sum <= *whole && whole - sum <= 2
            });
            Ok(if same && fits {
                Seen::Done(nodes[0])
            } else {
                Seen::NotYet(format!("{nodes:?} of {whole:?}"))
            })
        })
    }

    fn shares(&mut self) -> Result<Outcome> {
        let [disk, archive] = self.wait_same()?;
        let percent = archive.capacity * 100 / (disk.capacity + archive.capacity);
        expect(percent.abs_diff(30) <= 1, || {
            format!("{disk:?} {archive:?}")
        })?;
        self.fs.put("/first", 20 * BLOCK, 1, json!({}))?;
        // Before the next heartbeats both report the same too: nothing.
        let [disk, archive] = wait::until("the file to be counted", seconds(60), || {
            let [disk, archive] = self.wait_same()?;
            Ok(if disk.used >= 20 * BLOCK {
                Seen::Done([disk, archive])
            } else {
                Seen::NotYet(format!("{disk:?} {archive:?}"))
            })
        })?;
        expect(archive.used < SLACK, || format!("{disk:?} {archive:?}"))?;
        // The files of one type are not others' to the other.
        expect(archive.others < 20 * BLOCK, || format!("{archive:?}"))?;
        passed()
    }

    /// Inodes of the data and meta files below a directory of a node's, without those of a deeper
    /// volume.
    fn inodes(&mut self, node: usize, archive: bool) -> Result<BTreeSet<u64>> {
        let (_, cold) = places(self.disks[node].path());
        let files = self.cluster.node(node).all_block_files();
        let files = files
            .iter()
            .filter(|path| path.starts_with(&cold) == archive);
        // A file that the node deletes meanwhile has none.
        let inode = |path: &PathBuf| match std::fs::metadata(path) {
            Ok(meta) => Some(Ok(meta.ino())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(TestkitError::file("asking", path)(error))),
        };
        files.filter_map(inode).collect()
    }

    fn mover(&mut self) -> Result<Outcome> {
        // It is the file of the case before, and not there where this one runs alone.
        self.fs.fs(&["-rm", "-skipTrash", "-f", "/first"])?;
        let bytes = BLOCKS * BLOCK;
        self.fs.put("/moved", bytes, 2, json!({}))?;
        self.fs.wait_replicas("/moved", NODES.len(), seconds(60))?;
        let mut there = Vec::new();
        for node in 0..NODES.len() {
            there.push(wait::until(
                "only the file to be there",
                seconds(60),
                || {
                    let files = self.inodes(node, false)?;
                    Ok(if files.len() as u64 == 2 * BLOCKS {
                        Seen::Done(files)
                    } else {
                        Seen::NotYet(files.len().to_string())
                    })
                },
            )?);
        }
        for (policy, archive) in [("COLD", true), ("HOT", false), ("COLD", true)] {
            self.fs.set_policy("/moved", policy)?;
            let run = self.fs.tool(class::MOVER, &["-p", "/moved"])?;
            expect(run.code == 0, || {
                format!("{} {}{}", run.code, run.out, run.err)
            })?;
            for (node, before) in there.iter().enumerate() {
                let kind = NODES[node].name();
                wait::until(&format!("{kind}: {policy}"), seconds(60), || {
                    let (here, left) = (self.inodes(node, archive)?, self.inodes(node, !archive)?);
                    // The meta file of Apache's is a link too.
                    Ok(if here == *before && left.is_empty() {
                        Seen::Done(())
                    } else {
                        Seen::NotYet(format!("{before:?} became {here:?} and {left:?}"))
                    })
                })?;
            }
            self.fs.wait_replicas("/moved", NODES.len(), seconds(60))?;
            self.fs.check("/moved", bytes, 2)?;
            let reported = self.wait_same()?;
            let (full, empty) = (
                reported[usize::from(archive)],
                reported[usize::from(!archive)],
            );
            expect(full.used >= bytes && empty.used < SLACK, || {
                format!("{policy}: {reported:?}")
            })?;
        }
        self.fs.expect_healthy("/moved")?;
        passed()
    }

    /// Restarts both nodes with these shares of their volumes.
    fn restart(&mut self, shares: impl Fn(&str, &str) -> String) -> Result<()> {
        for node in 0..NODES.len() {
            let (hot, cold) = places(self.disks[node].path());
            let value = shares(&hot.display().to_string(), &cold.display().to_string());
            let node_of = self.cluster.node(node);
            node_of.stop()?;
            node_of.conf_mut().set(SHARES, value);
            self.cluster.start_node(node)?;
        }
        self.cluster.wait_all_live()
    }

    fn single_shares(&mut self) -> Result<Outcome> {
        let share = |[disk, archive]: [Reported; 2]| {
            archive.capacity * 100 / (disk.capacity + archive.capacity).max(1)
        };
        self.restart(|hot, cold| format!("[0.4]file://{cold},[0.6]file://{hot}"))?;
        let percent = share(self.wait_same()?);
        expect(percent.abs_diff(40) <= 1, || format!("{percent} %"))?;
        // One alone: the other has the rest.
        self.restart(|_, cold| format!("[0.2]file://{cold}"))?;
        let percent = share(self.wait_same()?);
        expect(percent.abs_diff(20) <= 1, || format!("{percent} %"))?;
        // As hdfs-default.xml shows them, without a scheme: Apache's node finds no volume by that.
        self.restart(|hot, cold| format!("[0.5]{cold},[0.5]{hot}"))?;
        let percent = share(self.wait_same()?);
        expect(percent.abs_diff(30) <= 1, || format!("{percent} %"))?;
        self.fs.check("/moved", BLOCKS * BLOCK, 2)?;
        passed()
    }

    fn second(&mut self) -> Result<Outcome> {
        let disk = TestMount::tmpfs(&self.cluster.dir().join("second"), 64)?;
        let (one, two) = (disk.path().join("one"), disk.path().join("two"));
        for kind in NODES {
            let spec = NodeSpec::new(kind).volumes(volumes(&[("DISK", &one), ("DISK", &two)]));
            let (failed, log) = self.cluster.refused_node(spec)?;
            // Apache's ends without an exit code that says so.
            expect(failed || kind == Kind::Apache, || log.clone())?;
            let why = "Storage type DISK already exists on same mount";
            expect(log.contains(why), || format!("{}: {log}", kind.name()))?;
            for dir in [&one, &two] {
                let _ = std::fs::remove_dir_all(dir);
            }
        }
        passed()
    }
}

fn kind_of(report: &StorageReport) -> StorageType {
    let storage = report.storage.as_ref();
    storage.map_or(StorageType::Disk, |storage| storage.storage_type())
}
