//! Starts with many blocks: how long they take, memory, the full report; and the end of all these
//! blocks.

use super::fair::stock::{client_flags, jvm_flags, libhadoop};
use super::figures::Figure;
use super::peers::{self, DEFAULT, Peer, STOCK};
use super::record::{BenchRecord, BenchSample};
use super::rig::directory_in;
use super::rows::Client;
use super::{BenchOptions, interrupt};
use hayloft_testkit::cluster::Cluster;
use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::{Result, TestkitError, expect};
use hayloft_testkit::hadoop::hayloft_binary;
use hayloft_testkit::made_blocks::{BLOCK_BYTES, make_blocks};
use hayloft_testkit::node::{Kind, NodeSpec, VolumeSpec};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{http, machine, ports, process_usage};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Name of the row of deletes.
pub(super) const DELETE: &str = "delete-warm";
/// Where the NameNode has the blocks' files.
const DIRECTORY: &str = "blocks";
/// Blocks that the NameNode orders a node to delete by one heartbeat, each second. With Hadoop's
/// own 1000 it would be what is measured.
const DELETED_AT_ONCE: u32 = 100_000;
/// Heap of a NameNode that knows a million blocks, MiB.
const NAMENODE_HEAP_MIB: u32 = 3072;
/// For each step.
const LIMIT: Duration = Duration::from_secs(600);

/// A way of starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The replicas are found by walking the directories, none of which is in the page cache.
    WalkCold,
    /// The same with what the last start left in the page cache.
    WalkWarm,
    /// They are read from the list that a clean stop left.
    ListWarm,
}

impl Way {
    const ALL: [Self; 3] = [Self::WalkCold, Self::WalkWarm, Self::ListWarm];

    fn name(self) -> &'static str {
        match self {
            Self::WalkCold => "start-walk-cold",
            Self::WalkWarm => "start-walk-warm",
            Self::ListWarm => "start-list-warm",
        }
    }
}

/// Whether a row is of this file.
pub(super) fn is_row(workload: &str) -> bool {
    workload == DELETE || workload.starts_with("start")
}

/// What the rows mean, for the record.
pub(super) fn condition(options: &BenchOptions) -> String {
    format!(
        "{} of {BLOCK_BYTES} bytes on {} volumes, which are directories of one disk; `cold`: \
         nothing of them is in memory, but programs are, `warm`: directories and inodes are, too; \
         `list`: they are read from the list that a clean stop left; deletes begin with the \
         client's order, and the NameNode passes on at most {DELETED_AT_ONCE} each second; the \
         stock node is stopped by `dfsadmin -shutdownDatanode`: only then it leaves a list; it \
         logs each deleted block at INFO, Hadoop's default level, and ours does not",
        options.blocks, options.volumes
    )
}

/// Starts either kind of node on the same directories in `base`, in turn, with a page cache and
/// without; then has each delete all that is there. Nothing is left of it, but logs of what failed.
///
/// # Errors
/// When the cluster does not come up or the NameNode never learns the blocks.
pub(super) fn measure(options: &BenchOptions, base: &Path, record: &mut BenchRecord) -> Result<()> {
    let disk = directory_in(base)?;
    let volume = |nth| VolumeSpec::at(disk.path().join(format!("data-{nth}")));
    let volumes = (0..options.volumes).map(volume).collect();
    let mut cluster = Cluster::builder("bench-blocks")
        .names_in_memory()
        .namenode_heap_mib(NAMENODE_HEAP_MIB)
        .node(NodeSpec::new(Kind::Hayloft).volumes(volumes))
        .conf("dfs.replication", 1)
        .conf("dfs.block.invalidate.limit", DELETED_AT_ONCE)
        .start()?;
    let driver = cluster.driver_with_flags(client_flags())?;
    cluster
        .node(0)
        .set_jvm_flags([jvm_flags(), options.jvm_flags.clone()].concat());
    let mut rig = ManyBlocks {
        options,
        programs: programs(&cluster, &driver)?,
        cluster,
        driver,
        disk,
    };
    let outcome = rig.run(record);
    if outcome.is_ok() || interrupt::asked() {
        rig.cluster.succeed();
        return Ok(());
    }
    outcome
}

/// Files of the programs that are started, and directories of such: of Java, of Hadoop, ours.
fn programs(cluster: &Cluster, driver: &Driver) -> Result<Vec<PathBuf>> {
    let java = std::fs::read_link(format!("/proc/{}/exe", driver.pid())).unwrap_or_default();
    let java = java.ancestors().nth(2).map(|home| home.join("lib"));
    let native = java.into_iter().chain(libhadoop());
    let jars = cluster.hadoop().jars().iter().cloned();
    Ok(native.chain(jars).chain([hayloft_binary()?]).collect())
}

/// The node that is started again and again, and its NameNode.
struct ManyBlocks<'a> {
    options: &'a BenchOptions,
    programs: Vec<PathBuf>,
    // Processes end before their directory goes.
    cluster: Cluster,
    driver: Driver,
    disk: tempfile::TempDir,
}

impl ManyBlocks<'_> {
    fn run(&mut self, record: &mut BenchRecord) -> Result<()> {
        self.fill()?;
        if self.starts(record)? {
            self.deletes(record)?;
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<()> {
        let (start, blocks) = (Instant::now(), self.options.blocks);
        make_blocks(&mut self.cluster, &self.driver, DIRECTORY, blocks)?;
        forget_stops(&mut self.cluster)?;
        // A file that is not yet on the disk is deleted at less cost.
        machine::settle(self.disk.path())?;
        let took = start.elapsed().as_secs_f64();
        (self.options.progress)(&format!("{blocks} blocks made in {took:.0} s"));
        Ok(())
    }

    /// Measures starts; whether it was not interrupted.
    fn starts(&mut self, record: &mut BenchRecord) -> Result<bool> {
        // The first round does not count: it finds what the filling left in memory.
        for round in 0..=self.options.rounds {
            for name in in_turn(round) {
                for way in Way::ALL {
                    let peer = peers::peer(name, &self.options.define)?;
                    if interrupt::asked() {
                        return Ok(false);
                    }
                    self.stop_and_become(&peer)?;
                    match way {
                        Way::ListWarm => self.expect_lists(name)?,
                        _ => forget_lists(&mut self.cluster)?,
                    }
                    if way == Way::WalkCold && !machine::drop_caches() {
                        continue;
                    }
                    // The page cache was emptied of them, too, and they are not what is measured.
                    machine::warm_files(&self.programs);
                    let figures = self.start_once()?;
                    let row = (way.name(), name, round);
                    self.tell(record, row, &figures);
                }
            }
        }
        Ok(true)
    }

    /// Measures deletes, of blocks that were made for each.
    fn deletes(&mut self, record: &mut BenchRecord) -> Result<()> {
        let mut is_filled = true;
        for round in 1..=self.options.rounds {
            for name in in_turn(round) {
                if interrupt::asked() {
                    return Ok(());
                }
                if !is_filled {
                    self.fill()?;
                }
                self.stop_and_become(&peers::peer(name, &self.options.define)?)?;
                forget_lists(&mut self.cluster)?;
                self.start_once()?;
                let figures = [(Figure::Deleted, self.delete_once()?)];
                is_filled = false;
                self.tell(record, (DELETE, name, round), &figures);
            }
        }
        Ok(())
    }

    /// Records a row, unless its round does not count.
    fn tell(
        &self,
        record: &mut BenchRecord,
        (workload, peer, round): (&str, &str, u32),
        figures: &[(Figure, f64)],
    ) {
        (self.options.progress)(&format!("{workload} of {peer}: {figures:?}"));
        let Some(round) = round.checked_sub(1) else {
            return;
        };
        record.samples.push(BenchSample {
            workload: workload.to_owned(),
            client: Client::None,
            peer: peer.to_owned(),
            round,
            figures: figures.iter().copied().collect(),
            failed: None,
        });
    }

    /// Stops the node so that it leaves a list of its replicas.
    fn stop(&mut self) -> Result<()> {
        let node = self.cluster.node(0);
        if node.kind() != Kind::Apache || !node.is_started() {
            return node.stop();
        }
        self.driver.dfsadmin(&["-shutdownDatanode", &node.ipc()])?;
        node.wait_ended(LIMIT)
    }

    /// What has no list cannot start from it.
    fn expect_lists(&mut self, peer: &str) -> Result<()> {
        let (lists, volumes) = (lists(&mut self.cluster)?.len(), self.options.volumes);
        expect(lists == volumes, || {
            format!("{peer} was stopped and left {lists} lists of replicas on {volumes} volumes")
        })
    }

    fn stop_and_become(&mut self, peer: &Peer) -> Result<()> {
        self.stop()?;
        let cluster = &mut self.cluster;
        // The NameNode must forget the node's blocks, or it could not be seen learning them.
        cluster.namenode(0).wait_live(0, LIMIT)?;
        cluster.node(0).become_kind(peer.kind)?;
        *cluster.node(0).conf_mut() = peer.conf.clone();
        Ok(())
    }

    fn start_once(&mut self) -> Result<[(Figure, f64); 6]> {
        let (cluster, blocks) = (&mut self.cluster, self.options.blocks);
        // The lab's NameNode tells of each block, which is a gigabyte of a log on the same disk.
        let web = ports::local(cluster.namenode(0).http_port());
        http::get(web, "/logLevel?log=BlockStateChange&level=WARN")?;
        let start = Instant::now();
        cluster.start_node(0)?;
        let listening = start.elapsed().as_secs_f64();
        wait::until("the NameNode to know every block", LIMIT, || {
            interrupt::check()?;
            let known = known_blocks(cluster)?;
            Ok(if known >= blocks {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{known} blocks"))
            })
        })?;
        let reported = start.elapsed().as_secs_f64();
        let usage = process_usage::usage(cluster.node(0).process()?.pid())?;
        let mib = |kib: u64| super::measure::as_f64(kib) / 1024.0;
        Ok([
            (Figure::Listening, listening),
            (Figure::Reported, reported),
            (Figure::ReportSent, report_sent(cluster)?),
            (Figure::StartCpu, usage.user_s + usage.system_s),
            (Figure::MemoryPeak, mib(usage.rss_peak_kib)),
            (Figure::MemoryAfter, mib(usage.rss_kib)),
        ])
    }

    /// Has a client delete all; seconds until no file is left.
    fn delete_once(&mut self) -> Result<f64> {
        self.cluster.namenode(0).wait_out_of_safe_mode(LIMIT)?;
        let node = self.cluster.node(0);
        let volumes: Vec<PathBuf> = node.volumes().map(Path::to_owned).collect();
        let directory = format!("/{DIRECTORY}");
        // What is deleted are blocks that a client can read. Its first call fails on a connection
        // to the NameNode that was before.
        let file = format!("{directory}/f000000");
        wait::until("a read of blocks", LIMIT, || {
            let read = self.driver.fs(&["-tail", &file]);
            Ok(read.map_or_else(|e| Seen::NotYet(e.to_string()), Seen::Done))
        })?;
        let start = Instant::now();
        self.driver.fs(&["-rm", "-r", "-skipTrash", &directory])?;
        wait::until("the end of the last file", LIMIT, || {
            interrupt::check()?;
            let left = || volumes.iter().find_map(|volume| a_block_file(volume));
            // A file that is renamed may move to where the first look has been.
            Ok(match left().or_else(left) {
                None => Seen::Done(()),
                Some(path) => Seen::NotYet(format!("{} is there", path.display())),
            })
        })?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Both peers, of which none always comes first.
fn in_turn(round: u32) -> [&'static str; 2] {
    if round.is_multiple_of(2) {
        [STOCK, DEFAULT]
    } else {
        [DEFAULT, STOCK]
    }
}

/// Some file of a block below a directory that changes meanwhile.
fn a_block_file(dir: &Path) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.find_map(|entry| {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let is_block = || entry.file_name().to_string_lossy().starts_with("blk_");
        match is_dir {
            true => a_block_file(&entry.path()),
            false => is_block().then(|| entry.path()),
        }
    })
}

/// Seconds that the node's full report took, by its own count.
fn report_sent(cluster: &mut Cluster) -> Result<f64> {
    let web = ports::local(cluster.node(0).http_port());
    let query = "Hadoop:service=DataNode,name=DataNodeActivity*";
    wait::until("the count of full reports", LIMIT, || {
        let bean = http::jmx(web, query)?;
        let count = bean["BlockReportsNumOps"].as_f64().unwrap_or_default();
        let mean_ms = bean["BlockReportsAvgTime"].as_f64().unwrap_or_default();
        Ok(match count > 0.0 {
            true => Seen::Done(count * mean_ms / 1000.0),
            false => Seen::NotYet(format!("{count}")),
        })
    })
}

/// The lists of replicas that a clean stop left, one a volume.
fn lists(cluster: &mut Cluster) -> Result<Vec<PathBuf>> {
    let mut lists = Vec::new();
    for volume in cluster.node(0).volumes() {
        let current = volume.join("current");
        let pools = std::fs::read_dir(&current).map_err(TestkitError::file("listing", &current))?;
        for pool in pools {
            let pool = pool.map_err(TestkitError::file("listing", &current))?;
            lists.push(pool.path().join("current/replicas"));
        }
    }
    lists.retain(|list| list.is_file());
    Ok(lists)
}

/// What our node knows of its last stop, it knew before the blocks were made. It would look at each
/// of them, as after a power cut.
fn forget_stops(cluster: &mut Cluster) -> Result<()> {
    for volume in cluster.node(0).volumes() {
        let mark = volume.join(".hayloft-stop");
        if mark.exists() {
            std::fs::remove_file(&mark).map_err(TestkitError::file("removing", mark))?;
        }
    }
    Ok(())
}

/// Removes them: the next start has to look.
fn forget_lists(cluster: &mut Cluster) -> Result<()> {
    let remove =
        |list: PathBuf| std::fs::remove_file(&list).map_err(TestkitError::file("removing", list));
    lists(cluster)?.into_iter().try_for_each(remove)
}

/// Blocks that the NameNode attributes to the node now.
fn known_blocks(cluster: &Cluster) -> Result<u64> {
    let bean = cluster.namenode_bean(0, "NameNodeInfo")?;
    let nodes = bean["LiveNodes"].as_str().unwrap_or("{}");
    let nodes: serde_json::Value = serde_json::from_str(nodes).unwrap_or_default();
    let blocks = |node: &serde_json::Value| node["numBlocks"].as_u64().unwrap_or(0);
    Ok(nodes
        .as_object()
        .map_or(0, |nodes| nodes.values().map(blocks).sum()))
}
