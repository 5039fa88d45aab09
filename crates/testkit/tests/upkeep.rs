//! What a node notices by itself: damage that no client reads, slow peers, slow disks, disks that
//! do not answer.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{lab_binary, scratch};
use hayloft_testkit::modelled::{self, HostedDisk, HostedFileSystem, ModelledDisk, Params};
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec, http};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

const MIB: u64 = 1 << 20;
/// One more than it takes to call one of the others slow.
const NODES: usize = 4;
/// Takes what clients write at 2 MiB a second.
const SLOW_NODE: usize = 3;
/// Has five volumes, the last of them on a slow disk.
const WITH_SLOW_DISK: usize = 0;
/// Has two volumes, the last of them on a disk that stops to answer.
const WITH_HUNG_DISK: usize = 1;

fn main() -> ExitCode {
    Suite::run("upkeep", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("block_scanner_finds_a_flipped_byte", |lab| lab.flipped());
        on.case("directory_scanner_finds_vanished_files", |lab| {
            lab.vanished()
        });
        on.case("slow_peer_is_named", |lab| {
            let late = "the stock node's averages appear after five minutes";
            ours_only(late, || lab.slow_peer())
        });
        on.case("hung_disk_costs_its_volume_and_no_more", |lab| {
            let why = "the stock node looks at a volume only after an error";
            on_modelled_disk(|| ours_only(why, || lab.hung_disk()))
        });
        on.case("slow_disk_is_named_and_avoided", |lab| {
            let late = "the stock node's averages appear after five minutes";
            on_modelled_disk(|| ours_only(late, || lab.slow_disk()))
        });
        Ok(())
    })
}

/// Runs a case that asks nothing of the stock node, and says why.
fn ours_only(why: &str, case: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
    match Kind::under_test() {
        Kind::Apache => Ok(Outcome::Skipped(why.into())),
        Kind::Hayloft => case(),
    }
}

/// Runs a case where disks can be modelled.
fn on_modelled_disk(case: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
    match modelled::missing(HostedFileSystem::Ext4) {
        Some(what) => Ok(Outcome::Skipped(what.to_string())),
        None => case(),
    }
}

fn start() -> Result<Lab> {
    let stock = Kind::under_test() == Kind::Apache;
    let base = scratch("slow-disk-")?;
    let missing = modelled::missing(HostedFileSystem::Ext4);
    let modelled = |name, write_bytes_s| match &missing {
        None if stock => Ok(None),
        None => modelled_disk(base.path().join(name), write_bytes_s).map(Some),
        Some(_) => Ok(None),
    };
    // 4 MB/s, when a write on the other disks takes a few milliseconds.
    let disk = modelled("disk", 4_000_000)?;
    let hung = modelled("hung", FAST)?;
    let mut builder = Cluster::builder("upkeep")
        .conf("dfs.datanode.directoryscan.interval", 3)
        .conf("dfs.blocksize", 4 * MIB)
        .conf("dfs.replication", 2)
        // Acknowledgements carry what nodes know of their load, and of being called slow.
        .conf("dfs.pipeline.ecn", true)
        // But a client that hears of congestion sleeps for half a minute, and this machine may
        // be busy.
        .conf("dfs.pipeline.congestion.ratio", 1000)
        .conf("dfs.pipeline.slownode", true)
        .conf("dfs.datanode.outliers.report.interval", "2s")
        .conf("dfs.datanode.peer.stats.enabled", true)
        .conf("dfs.datanode.min.outlier.detection.nodes", NODES - 1)
        .conf(
            "dfs.datanode.peer.metrics.min.outlier.detection.samples",
            20,
        )
        // A sender shall feel at once that its peer is slow.
        .conf("dfs.datanode.transfer.socket.send.buffer.size", 65_536)
        .conf("dfs.datanode.transfer.socket.recv.buffer.size", 65_536)
        .conf("dfs.datanode.fileio.profiling.sampling.percentage", 100);
    for node in 0..NODES {
        let mut spec = NodeSpec::new(Kind::under_test());
        if node == SLOW_NODE {
            spec = spec.conf("dfs.datanode.data.write.bandwidthPerSec", 2 * MIB);
        }
        if let (WITH_SLOW_DISK, Some(disk)) = (node, &disk) {
            let mut volumes = vec![VolumeSpec::default(); 4];
            volumes.push(VolumeSpec::at(disk.dir().join("data")));
            spec = spec
                .volumes(volumes)
                // Another one may be slow for a moment on a busy machine.
                .conf("dfs.datanode.max.slowdisks.to.exclude", 2)
                // Five busy volumes of one real disk are uneven at times; half a quantum on the
                // slow one takes 500 ms.
                .conf("dfs.datanode.slowdisk.low.threshold.ms", 200)
                // Through the page cache every disk is fast for a while.
                .conf("hayloft.io.engine", "direct")
                .conf(
                    "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
                    0,
                );
        }
        if let (WITH_HUNG_DISK, Some(disk)) = (node, &hung) {
            spec = spec
                .volumes(vec![
                    VolumeSpec::default(),
                    VolumeSpec::at(disk.dir().join("data")),
                ])
                .conf("dfs.datanode.failed.volumes.tolerated", 1)
                .conf("dfs.datanode.disk.check.timeout", "5s")
                .conf("hayloft.io.engine", "direct")
                .conf(
                    "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
                    0,
                );
        }
        builder = builder.node(spec);
    }
    let cluster = builder.start()?;
    let fs = cluster.driver()?;
    Ok(Lab {
        fs,
        cluster,
        disk,
        hung,
        files: 0,
        _base: base,
    })
}

/// As fast as it goes, bytes a second.
const FAST: u64 = 2_000_000_000;

fn modelled_disk(dir: PathBuf, write_bytes_s: u64) -> Result<ModelledDisk> {
    let log = dir.with_extension("log");
    let disk = HostedDisk {
        size: 1 << 30,
        file_system: HostedFileSystem::Ext4,
        params: Params {
            // Reading is fast, so that making the file system takes no time.
            read_bytes_s: FAST,
            write_bytes_s,
            buffer_bytes: 0,
            ..Params::default()
        },
        dir,
        backing: None,
    };
    ModelledDisk::mount(&lab_binary()?, &disk, &log)
}

struct Lab {
    // Dropped first to last: the nodes end before the disks go.
    fs: Driver,
    cluster: Cluster,
    disk: Option<ModelledDisk>,
    hung: Option<ModelledDisk>,
    files: u64,
    _base: tempfile::TempDir,
}

impl Lab {
    /// Writes a block, somewhere.
    fn write(&mut self) -> Result<()> {
        self.files += 1;
        let path = format!("/f{}", self.files);
        self.fs.put(&path, 4 * MIB, self.files, json!({}))
    }

    /// A report of the NameNode; empty without one.
    fn report(&self, attribute: &str) -> Result<Vec<Value>> {
        let status = self.cluster.namenode_bean(0, "NameNodeStatus")?;
        let text = status[attribute].as_str().unwrap_or("[]");
        serde_json::from_str(text)
            .map_err(|e| TestkitError::Talk(format!("{attribute}: {e}: {text}")))
    }

    /// Writes until the NameNode reports something. Writes until the NameNode reports one for which
    /// `is` holds: a disk that really was slow for a moment is reported too.
    fn write_until_reported(
        &mut self,
        attribute: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Value>> {
        wait::until(attribute, seconds(150), || {
            for _ in 0..4 {
                self.write()?;
            }
            let report = self.report(attribute)?;
            Ok(if report.iter().any(&is) {
                Seen::Done(report)
            } else {
                Seen::NotYet(format!("{report:?} after {} files", self.files))
            })
        })
    }

    /// A file of one block with two replicas, and the files of one of them with their node.
    fn replica(&mut self, path: &str) -> Result<(i64, usize, Vec<PathBuf>)> {
        self.fs.put(path, 100_000, 7, json!({}))?;
        self.fs.wait_replicas(path, 2, seconds(30))?;
        let block = self.fs.blocks(path)?.remove(0);
        let node = self.cluster.node_at(&block.nodes[0]);
        let node = node.ok_or_else(|| TestkitError::Expectation(format!("unknown: {block:?}")))?;
        let files = self.cluster.node(node).block_files(block.id);
        expect(files.len() == 2, || {
            format!("files of a replica: {files:?}")
        })?;
        Ok((block.id, node, files))
    }

    /// Waits until two nodes have data files of the block, equal to `good`. No client reads through
    /// a node meanwhile.
    fn wait_two_good(&self, block: i64, good: &[u8]) -> Result<()> {
        wait::until("two good replicas", seconds(150), || {
            let files = self
                .cluster
                .nodes()
                .flat_map(|node| node.block_files(block));
            let data = files.filter(|file| file.extension().is_none());
            let seen: Vec<bool> = data
                .map(|file| std::fs::read(file).is_ok_and(|bytes| bytes == good))
                .collect();
            Ok(match seen[..] {
                [true, true] => Seen::Done(()),
                _ => Seen::NotYet(format!("data files that are good: {seen:?}")),
            })
        })
    }

    /// Flipped while the node was down; its scanner begins anew, as it forgot how far it was.
    fn flipped(&mut self) -> Result<Outcome> {
        let (block, node, files) = self.replica("/unread")?;
        self.cluster.node(node).stop()?;
        let data = files.iter().find(|file| file.extension().is_none());
        let data =
            data.ok_or_else(|| TestkitError::Expectation(format!("no data in {files:?}")))?;
        let good = std::fs::read(data).map_err(TestkitError::file("reading", data))?;
        hayloft_testkit::files::flip_byte(data, 54_321)?;
        let volumes: Vec<PathBuf> = self
            .cluster
            .node(node)
            .volumes()
            .map(PathBuf::from)
            .collect();
        for volume in volumes {
            let pools = std::fs::read_dir(volume.join("current"))
                .into_iter()
                .flatten();
            for pool in pools.flatten() {
                // Not every volume has one yet.
                let _ = std::fs::remove_file(pool.path().join("scanner.cursor"));
            }
        }
        self.cluster.start_node(node)?;
        self.cluster.wait_all_live()?;
        self.wait_two_good(block, &good)?;
        self.fs.check("/unread", 100_000, 7)?;
        passed()
    }

    fn vanished(&mut self) -> Result<Outcome> {
        let (block, _, files) = self.replica("/lost")?;
        let data = files.iter().find(|file| file.extension().is_none());
        let data =
            data.ok_or_else(|| TestkitError::Expectation(format!("no data in {files:?}")))?;
        let good = std::fs::read(data).map_err(TestkitError::file("reading", data))?;
        for file in &files {
            std::fs::remove_file(file).map_err(TestkitError::file("removing", file))?;
        }
        self.wait_two_good(block, &good)?;
        self.fs.check("/lost", 100_000, 7)?;
        passed()
    }

    fn slow_peer(&mut self) -> Result<Outcome> {
        let report = self.write_until_reported("SlowPeersReport", |_| true)?;
        let slow = format!("127.0.0.1:{}", self.cluster.node(SLOW_NODE).http_port());
        println!("upkeep:   {}", Value::from(report.clone()));
        expect(report.len() == 1, || {
            format!("more than {slow}: {report:?}")
        })?;
        expect(report[0]["SlowNode"] == slow.as_str(), || {
            format!("not {slow}: {report:?}")
        })?;
        let by = &report[0]["SlowPeerLatencyWithReportingNodes"][0];
        let number = |key: &str| by[key].as_f64().unwrap_or(f64::NAN);
        let (latency, limit) = (number("ReportedLatency"), number("UpperLimitLatency"));
        // 64 KiB at 2 MiB a second take 31 ms; the socket buffers swallow some.
        expect(latency > limit && limit >= 5.0 && latency < 100.0, || {
            by.to_string()
        })?;
        let reporter = by["ReportingNode"].as_str().unwrap_or_default().to_owned();
        let others = (0..NODES).filter(|node| *node != SLOW_NODE);
        let known = others.map(|node| self.cluster.nodes().nth(node).map(|n| n.ipc()));
        let known: Vec<_> = known.flatten().collect();
        let node = known.iter().position(|ipc| *ipc == reporter);
        let node = node
            .ok_or_else(|| TestkitError::Expectation(format!("{reporter} is none of {known:?}")))?;
        // It says so itself, too, by Apache's name of such averages.
        let web = ([127, 0, 0, 1], self.cluster.node(node).http_port());
        let bean = http::jmx(web.into(), "Hadoop:service=DataNode,name=DataNodeInfo")?;
        let averages = bean["SendPacketDownstreamAvgInfo"].as_str();
        let averages: Value = serde_json::from_str(averages.unwrap_or("null"))
            .map_err(|e| TestkitError::Talk(format!("{bean}: {e}")))?;
        let average = averages[format!("[{slow}]RollingAvgTime")].as_f64();
        expect(average.is_some_and(|ms| ms > limit), || bean.to_string())?;
        passed()
    }

    fn slow_disk(&mut self) -> Result<Outcome> {
        let dir = self.disk.as_ref().map(|disk| disk.dir().join("data"));
        let dir = dir.unwrap_or_default();
        // It would only make every second write slow.
        self.cluster.node(SLOW_NODE).stop()?;
        let ipc = self.cluster.node(WITH_SLOW_DISK).ipc();
        let id = format!("{ipc}:{}/", dir.display());
        let writes = |disk: &Value| disk["Latencies"]["WRITE"].as_f64().unwrap_or(0.0);
        let is_it = |disk: &Value| disk["SlowDiskID"] == id.as_str() && writes(disk) > 200.0;
        let report = self.write_until_reported("SlowDisksReport", is_it)?;
        println!("upkeep:   {}", Value::from(report.clone()));
        let others = report
            .iter()
            .filter(|disk| !is_it(disk) && writes(disk) > 200.0);
        expect(others.count() == 0, || {
            format!("not {id} alone: {report:?}")
        })?;
        // The node searched before it told: new replicas go elsewhere by now. It searches again
        // every two seconds, and a search that sees nothing but the short end of a block's writes
        // lets the disk in once more, until the next block is seen to be slow. Of 32 replicas on
        // three nodes two would be there by turns, in each round.
        let mut seen = vec![self.replicas_below(&dir)];
        wait::until("16 files that avoid the slow disk", seconds(120), || {
            for _ in 0..16 {
                self.write()?;
            }
            let after = self.replicas_below(&dir);
            let avoided = seen.last() == Some(&after) && !after.is_empty();
            seen.push(after);
            Ok(if avoided {
                Seen::Done(())
            } else {
                let counts: Vec<_> = seen.iter().map(BTreeSet::len).collect();
                Seen::NotYet(format!("replicas on the slow disk, by round: {counts:?}"))
            })
        })?;
        passed()
    }

    /// The process behind the disk stands still, so that what is asked of the device waits in the
    /// kernel. The node cannot be told so; it sees a transfer that does not end, gives the volume
    /// up, and serves what it has elsewhere.
    fn hung_disk(&mut self) -> Result<Outcome> {
        let disk = self.hung.take();
        let disk = disk.ok_or_else(|| TestkitError::Expectation("no such disk".into()))?;
        let dir = disk.dir().join("data");
        wait::until("a replica on the disk", seconds(60), || {
            self.write()?;
            Ok(if self.replicas_below(&dir).is_empty() {
                Seen::NotYet(format!("{} files are elsewhere", self.files))
            } else {
                Seen::Done(())
            })
        })?;
        let hung = disk.hang()?;
        let failed = |lab: &Self| {
            let bean = lab.cluster.namenode_bean(0, "FSNamesystemState")?;
            Ok::<_, TestkitError>(bean["VolumeFailuresTotal"].as_u64().unwrap_or(0))
        };
        wait::until("the volume to be given up", seconds(240), || {
            self.write()?;
            Ok(match failed(self)? {
                0 => Seen::NotYet(format!("{} files", self.files)),
                n => Seen::Done(n),
            })
        })?;
        // The disk still gives no answer; what waits for it keeps nothing else of the node.
        for _ in 0..8 {
            self.write()?;
        }
        let bean = self.cluster.namenode_bean(0, "NameNodeInfo")?;
        let nodes: BTreeMap<String, Value> =
            serde_json::from_str(bean["LiveNodes"].as_str().unwrap_or("{}"))
                .map_err(|e| TestkitError::Talk(format!("LiveNodes: {e}")))?;
        let silent = |node: &Value| node["lastContact"].as_u64().is_none_or(|s| s > 15);
        expect(nodes.len() == NODES && !nodes.values().any(silent), || {
            format!("heartbeats stay away: {nodes:?}")
        })?;
        expect(failed(self)? == 1, || "other volumes failed too".into())?;
        drop(hung);
        self.hung = Some(disk);
        passed()
    }

    /// Names of the data files of replicas under a directory. A replica that moved from one of its
    /// directories to another while they were looked through is found by the second look.
    fn replicas_below(&self, dir: &std::path::Path) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for _ in 0..2 {
            let nodes = self.cluster.nodes();
            let files = nodes.flat_map(|node| node.all_block_files());
            let data = files.filter(|file| file.starts_with(dir) && file.extension().is_none());
            let names = data.filter_map(|file| Some(file.file_name()?.to_str()?.to_owned()));
            found.extend(names);
        }
        found
    }
}
