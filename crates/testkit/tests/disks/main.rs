//! Which disk a block is on: chosen, moved, come and gone; the balancer and the mover. [`broken`]:
//! disks that fail. [`odd`]: directories that cannot be used at a start.

mod broken;
mod odd;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::mounts::{TestMount, in_own_namespace};
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
/// Size of each small disk, MiB: room for test data and for what the NameNode wants free (it
/// places a block only where five would fit).
const DISK_MIB: u32 = 256;
/// Nodes, each with two `DISK` volumes on small disks and an `ARCHIVE` one.
const NODES: usize = 4;
/// The node that sends its full block reports one storage at a time.
const IN_PARTS: usize = 0;
/// The node with a `RAM_DISK` volume, too.
const ON_RAM: usize = 1;
/// The node that drops news for a full block report when more than this waits for the NameNode.
const FORGETFUL: usize = 3;
const NEWS_MAX: usize = 2;
/// The node that gives blocks to the volume with more space: to no other, if one has this much
/// more.
const BY_SPACE: usize = 2;
const MORE_SPACE: u64 = 64 << 20;

fn main() -> ExitCode {
    in_own_namespace();
    Suite::run("disks", |suite| {
        if !suite.may_mount_disks("everything") {
            return Ok(());
        }
        let mut on = suite.group(start, end);
        on.case("all_volumes_of_a_type_are_used", |lab| lab.volumes_used());
        on.case("volume_with_more_space_is_preferred", |lab| lab.by_space());
        on.case("full_report_in_parts", |lab| lab.report_in_parts());
        on.case("storage_policy_at_write", |lab| lab.policy_at_write());
        on.case("lazy_persist_goes_to_disk", |lab| lab.lazy_persist());
        on.case("mover_follows_a_changed_policy", |lab| lab.mover());
        on.case("volume_added_and_removed_while_running", |lab| {
            lab.hot_swap(0)
        });
        on.case("volume_removed_and_its_news_dropped", |lab| {
            lab.hot_swap(FORGETFUL)
        });
        on.case("balancer_fills_empty_nodes", |lab| lab.balancer());
        on.case("disk_full_mid_write", |lab| lab.full());
        on.case("all_disks_full", |lab| lab.all_full());
        on.case("disk_turned_read_only", |lab| lab.read_only());
        on.case("disk_gives_eio", |lab| lab.eio());
        on.case("directory_vanished", |lab| lab.vanished());
        on.case("start_with_a_failed_volume", |lab| lab.start_with_failed());
        on.case("more_failed_volumes_than_tolerated", |lab| {
            lab.too_many_failed()
        });
        let mut on = suite.group(odd::start, |lab, failed| lab.cluster.conclude(failed));
        on.case("odd_directory_at_a_start", |lab| lab.plain_rows());
        on.case("odd_directory_of_a_virtual_node", |lab| lab.virtual_rows());
        on.case("disk_not_mounted_at_a_start", |lab| lab.not_mounted());
        Ok(())
    })
}

fn start() -> Result<Lab> {
    // The mounts must be there before the cluster is.
    let base = hayloft_testkit::hadoop::scratch("small-disks-")?;
    let (disks, cluster) = on_small_disks(base.path())?;
    Ok(Lab {
        fs: cluster.driver()?,
        cluster,
        disks,
        failed: 0,
        _base: base,
    })
}

fn end(lab: Lab, failed: bool) {
    if failed {
        let paths = lab.disks.iter().map(TestMount::path);
        let df = std::process::Command::new("df")
            .arg("-m")
            .args(paths)
            .output();
        let df = df.map(|df| String::from_utf8_lossy(&df.stdout).into_owned());
        println!("{}", df.unwrap_or_default());
    }
    lab.cluster.conclude(failed);
}

/// Four nodes on small disks of their own, which are mounted first.
fn on_small_disks(base: &Path) -> Result<(Vec<TestMount>, Cluster)> {
    let mut disks = Vec::new();
    let mut builder = Cluster::builder("disks")
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.client.socket-timeout", 10_000)
        .conf(
            "dfs.client.block.write.replace-datanode-on-failure.best-effort",
            true,
        )
        // The default keeps a whole GiB of each disk free.
        .conf(
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
            0,
        )
        .conf("dfs.balancer.getBlocks.min-block-size", 1);
    for node in 0..NODES {
        let mut volumes = Vec::new();
        for volume in 0..2 {
            let at = base.join(format!("disk-{node}-{volume}"));
            let image = base.join(format!("image-{node}-{volume}"));
            disks.push(TestMount::ext4(&image, &at, DISK_MIB)?);
            // A directory below the mount point can be moved away, the mount point cannot.
            volumes.push(VolumeSpec::at(at.join("data")));
        }
        volumes.push(VolumeSpec::typed("ARCHIVE"));
        volumes.extend((node == ON_RAM).then(|| VolumeSpec::typed("RAM_DISK")));
        let mut spec = NodeSpec::new(Kind::under_test())
            .volumes(volumes)
            .conf("dfs.datanode.failed.volumes.tolerated", 1);
        if node == IN_PARTS {
            spec = spec.conf("dfs.blockreport.split.threshold", 0);
        }
        if node == FORGETFUL {
            spec = spec.conf("hayloft.blockreport.incremental.pending.max", NEWS_MAX);
        }
        if node == BY_SPACE {
            let policy = "dfs.datanode.available-space-volume-choosing-policy.";
            spec = spec
                .conf(
                    "dfs.datanode.fsdataset.volume.choosing.policy",
                    "org.apache.hadoop.hdfs.server.datanode.fsdataset.AvailableSpaceVolumeChoosingPolicy",
                )
                .conf(&format!("{policy}balanced-space-threshold"), MORE_SPACE)
                .conf(&format!("{policy}balanced-space-preference-fraction"), 1.0);
        }
        builder = builder.node(spec);
    }
    Ok((disks, builder.start()?))
}

struct Lab {
    // Dropped first to last: the nodes end before their disks go.
    fs: Driver,
    cluster: Cluster,
    disks: Vec<TestMount>,
    /// Failed volumes that the NameNode should know of.
    failed: u64,
    /// Where the disks are mounted.
    _base: tempfile::TempDir,
}

impl Lab {
    fn disk(&self, node: usize, volume: usize) -> &TestMount {
        &self.disks[node * 2 + volume]
    }

    fn count(&self, node: usize, volume: usize) -> usize {
        let dir = self.disk(node, volume).path().join("data");
        let of_volume = |path: &PathBuf| path.starts_with(&dir);
        self.cluster.nodes().nth(node).map_or(0, |n| {
            n.all_block_files().iter().filter(|p| of_volume(p)).count()
        })
    }

    fn types(&self, path: &str) -> Result<Vec<String>> {
        Ok(self
            .fs
            .blocks(path)?
            .into_iter()
            .flat_map(|block| block.types)
            .collect())
    }

    fn wait_types(&self, path: &str, wanted: &str) -> Result<()> {
        wait::until(&format!("{path} on {wanted} only"), seconds(60), || {
            let types = self.types(path)?;
            let all = !types.is_empty() && types.iter().all(|kind| kind == wanted);
            Ok(if all {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{types:?}"))
            })
        })
    }

    fn volumes_used(&mut self) -> Result<Outcome> {
        self.fs.put("/spread", 12 * BLOCK, 1, json!({}))?;
        self.fs.check("/spread", 12 * BLOCK, 1)?;
        for node in 0..NODES {
            for volume in 0..2 {
                expect(self.count(node, volume) > 0, || {
                    format!("nothing on volume {volume} of node {node}")
                })?;
            }
        }
        passed()
    }

    /// Something else fills a disk of the node that chooses by space: new blocks go to its other
    /// one, and to both once it is gone.
    fn by_space(&mut self) -> Result<Outcome> {
        let ballast = self.disk(BY_SPACE, 0).path().join("ballast");
        let bytes = vec![1; usize::try_from(MORE_SPACE * 3 / 2).expect("some MiB")];
        std::fs::write(&ballast, bytes).map_err(TestkitError::file("writing", &ballast))?;
        let more = json!({"replication": NODES});
        let put = |path: &str| -> Result<[usize; 2]> {
            let counts = || [self.count(BY_SPACE, 0), self.count(BY_SPACE, 1)];
            let before = counts();
            // A moment for nodes that look at their disks only now and then.
            std::thread::sleep(seconds(2));
            self.fs.put(path, 8 * BLOCK, 3, more.clone())?;
            self.fs.check(path, 8 * BLOCK, 3)?;
            let after = counts();
            Ok([after[0] - before[0], after[1] - before[1]])
        };
        let lopsided = put("/by-space");
        std::fs::remove_file(&ballast).map_err(TestkitError::file("removing", &ballast))?;
        let even = put("/by-turns")?;
        let lopsided = lopsided?;
        // Of data and of checksums: two files a block.
        expect(lopsided == [0, 16], || format!("{lopsided:?} files"))?;
        expect(even == [8, 8], || format!("{even:?} files afterwards"))?;
        self.fs
            .fs(&["-rm", "-skipTrash", "/by-space", "/by-turns"])?;
        passed()
    }

    fn policy_at_write(&mut self) -> Result<Outcome> {
        self.fs.fs(&["-mkdir", "/cold"])?;
        self.fs.set_policy("/cold", "COLD")?;
        self.fs.put("/cold/f", 3 * BLOCK, 2, json!({}))?;
        self.wait_types("/cold/f", "ARCHIVE")?;
        self.fs.check("/cold/f", 3 * BLOCK, 2)?;
        passed()
    }

    /// Files that may wait in memory are on DISK at once, also beside a RAM disk.
    fn lazy_persist(&mut self) -> Result<Outcome> {
        self.fs.fs(&["-mkdir", "/lazy"])?;
        self.fs.set_policy("/lazy", "LAZY_PERSIST")?;
        let more = json!({"replication": NODES});
        self.fs.put("/lazy/f", 3 * BLOCK, 2, more)?;
        self.fs.wait_replicas("/lazy/f", NODES, seconds(30))?;
        self.wait_types("/lazy/f", "DISK")?;
        self.fs.check("/lazy/f", 3 * BLOCK, 2)?;
        if Kind::under_test() == Kind::Hayloft {
            let log = self.cluster.node(ON_RAM).log();
            let text =
                std::fs::read_to_string(&log).map_err(TestkitError::file("reading", &log))?;
            let warned = |line: &str| line.contains("WARN") && line.contains("[RAM_DISK]");
            expect(text.lines().any(warned), || "no warning".into())?;
        }
        passed()
    }

    /// Full block reports that the NameNode has taken; it counts every ten seconds.
    fn reports(&mut self) -> Result<u64> {
        let rpc = self.cluster.namenode(0).rpc();
        let port = rpc.rsplit(':').next().unwrap_or_default();
        let bean = format!("RpcDetailedActivityForPort{port}");
        let count = &self.cluster.namenode_bean(0, &bean)?["BlockReportNumOps"];
        Ok(count.as_u64().unwrap_or_default())
    }

    /// Past the threshold a full report is one RPC a storage; the NameNode misses nothing.
    fn report_in_parts(&mut self) -> Result<Outcome> {
        self.fs.put("/parts", 6 * BLOCK, 15, json!({}))?;
        let mut before = self.reports()?;
        loop {
            // The NameNode's counters are read out every ten seconds.
            std::thread::sleep(seconds(11));
            let now = self.reports()?;
            if now == before {
                break;
            }
            before = now;
        }
        // Two disks, ARCHIVE, and what else it has.
        for node in [IN_PARTS + 2, IN_PARTS] {
            let node = self.cluster.node(node);
            let (ipc, volumes) = (node.ipc(), node.volumes().count() as u64);
            let parts = if node.name() == "node-0" { volumes } else { 1 };
            self.fs.dfsadmin(&["-triggerBlockReport", &ipc])?;
            let wanted = before + parts;
            wait::until(&format!("{parts} report(s) of {ipc}"), seconds(30), || {
                let now = self.reports()?;
                Ok(if now >= wanted {
                    Seen::Done(())
                } else {
                    Seen::NotYet(format!("{before} -> {now}"))
                })
            })?;
            let now = self.reports()?;
            expect(now == wanted, || {
                format!("{now} reports instead of {wanted}")
            })?;
            before = now;
        }
        self.fs.wait_healthy("/", seconds(30))?;
        self.fs.wait_replicas("/parts", 3, seconds(30))?;
        passed()
    }

    /// Down to ARCHIVE and back to DISK: REPLACE_BLOCK within and between nodes.
    fn mover(&mut self) -> Result<Outcome> {
        self.fs.fs(&["-mkdir", "/moved"])?;
        self.fs.put("/moved/f", 6 * BLOCK + 123, 3, json!({}))?;
        for (policy, wanted) in [("COLD", "ARCHIVE"), ("HOT", "DISK")] {
            self.fs.set_policy("/moved", policy)?;
            let run = self.fs.tool(class::MOVER, &["-p", "/moved"])?;
            expect(run.code == 0, || {
                format!("mover: {} {}{}", run.code, run.out, run.err)
            })?;
            self.wait_types("/moved/f", wanted)?;
            self.fs.wait_replicas("/moved/f", 3, seconds(60))?;
            self.fs.check("/moved/f", 6 * BLOCK + 123, 3)?;
        }
        passed()
    }

    fn reconfigure(&self, node: usize) -> Result<String> {
        self.cluster.rewrite_node_conf(node)?;
        let node = self.cluster.nodes().nth(node);
        let ipc = node
            .map(hayloft_testkit::node::Node::ipc)
            .unwrap_or_default();
        self.fs.reconfigure(&ipc, seconds(60))
    }

    fn hot_swap(&mut self, node: usize) -> Result<Outcome> {
        let added = self.cluster.dir().join(format!("added-volume-{node}"));
        std::fs::create_dir_all(&added).map_err(TestkitError::file("creating", &added))?;
        self.cluster.node(node).add_volume(None, &added);
        let said = self.reconfigure(node)?;
        expect(said.contains("SUCCESS"), || said)?;
        let mut written = Vec::new();
        wait::until("blocks on the added volume", seconds(60), || {
            let path = format!("/hot-{node}-{}", written.len());
            self.fs
                .put(&path, 2 * BLOCK, 4, json!({"replication": NODES}))?;
            written.push(path);
            let files = self.cluster.node(node).all_block_files();
            // Of data and of checksums.
            let there = files.iter().filter(|p| p.starts_with(&added)).count() / 2;
            Ok(if there > NEWS_MAX {
                Seen::Done(())
            } else {
                Seen::NotYet(there.to_string())
            })
        })?;
        self.cluster.node(node).remove_volume(&added);
        let said = self.reconfigure(node)?;
        expect(said.contains("SUCCESS"), || said)?;
        for path in &written {
            self.fs.check(path, 2 * BLOCK, 4)?;
            self.fs.wait_replicas(path, NODES, seconds(90))?;
            let blocks = self.fs.blocks(path)?;
            // The NameNode may take long to miss what it believes to be there.
            wait::until("the replicas on other volumes", seconds(90), || {
                let node = self.cluster.node(node);
                let mut gone: Vec<i64> = blocks.iter().map(|b| b.id).collect();
                gone.retain(|id| node.block_files(*id).is_empty());
                Ok(if gone.is_empty() {
                    Seen::Done(())
                } else {
                    Seen::NotYet(format!("without {gone:?}"))
                })
            })?;
            self.fs.fs(&["-rm", "-skipTrash", path])?;
        }
        passed()
    }

    fn balancer(&mut self) -> Result<Outcome> {
        for node in 1..NODES {
            self.cluster.node(node).stop()?;
        }
        // Dead to the NameNode, or it would still choose them.
        self.cluster.namenode(0).wait_live(1, seconds(60))?;
        // It counts a node as dead by the clock, and stops choosing it some seconds later.
        std::thread::sleep(seconds(8));
        self.fs
            .put("/lopsided", 90 * BLOCK, 5, json!({"replication": 1}))?;
        for node in 1..NODES {
            self.cluster.start_node(node)?;
        }
        self.cluster.wait_all_live()?;
        // As long as the NameNode has not heard how much room the nodes have, everything is
        // balanced.
        wait::until("blocks on three nodes", seconds(90), || {
            let run = self.fs.tool(class::BALANCER, &["-threshold", "5"])?;
            expect(run.code == 0, || {
                format!("balancer: {} {}{}", run.code, run.out, run.err)
            })?;
            let blocks = self.fs.blocks("/lopsided")?;
            let mut holders: Vec<String> = blocks.into_iter().flat_map(|b| b.nodes).collect();
            holders.sort();
            holders.dedup();
            Ok(if holders.len() >= 3 {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("only on {holders:?}: {}", run.out))
            })
        })?;
        self.fs.check("/lopsided", 90 * BLOCK, 5)?;
        self.fs.fs(&["-rm", "-skipTrash", "/lopsided"])?;
        passed()
    }
}
