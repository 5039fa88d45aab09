//! The cluster of the experiment: its nodes, and one round through some of them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::one_disk::{WatchedDisk, cold, megabytes};
use super::{HadiofsNode, HadiofsWay, NULL, WARM_UP_BYTES, WAYS};
use crate::runner::PeerTurn;
use crate::runner::options::ExperimentOptions;
use crate::runner::record::{PeerFigures, WARM};
use hayloft_bench::fair::counters::{processors, waited_s};
use hayloft_bench::fair::stock::{Medium, client_flags, ours};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::repository_root;
use hayloft_testkit::node::{Kind, Node, NodeSpec, VolumeSpec};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, machine, process_usage};

const PATH: &str = "/hadiofs";
/// What a device has beside the rounds' files, chunks.
const SPARE_CHUNKS: u64 = 4;
const PHASE_LIMIT: Duration = Duration::from_secs(600);
const REMOVED_LIMIT: Duration = Duration::from_secs(120);

/// The plug-in and its library.
struct Plugin {
    so: PathBuf,
    library: PathBuf,
}

impl Plugin {
    fn find() -> Result<Self> {
        let built = || repository_root().join("target/adios");
        let dir = std::env::var_os("HAYLOFT_ADIOS_DIR").map_or_else(built, PathBuf::from);
        let found = |name: &str| {
            let path = dir.join(name);
            path.canonicalize().map_err(|_| TestkitError::Missing {
                what: format!("the plug-in adios ({})", path.display()),
                todo: "run scripts/fetch-adios".into(),
            })
        };
        Ok(Self {
            so: found("adios.so")?,
            library: found("adios2/libadios2_c.so")?,
        })
    }

    fn engine(&self, chunk_mib: u32, late_close: bool, bytes: u64) -> String {
        let chunk = u64::from(chunk_mib) << 20;
        let size = (1 << 20) + (bytes.div_ceil(chunk) + SPARE_CHUNKS) * chunk;
        let (so, library) = (self.so.display(), self.library.display());
        let close = if late_close { "async" } else { "sync" };
        format!("plugin:{so} library={library} size={size} chunk={chunk_mib}M close={close}")
    }
}

/// The cluster, and which nodes of it are whose.
pub(super) struct Hadiofs {
    // Dropped first to last: the client ends before its cluster.
    client: Driver,
    cluster: Cluster,
    nodes: Vec<HadiofsNode>,
    dir: PathBuf,
    bytes: u64,
    block_bytes: u64,
    /// Ways by their position that have been warmed, with whether they are warm (1, else 0).
    warm: Vec<(usize, f64)>,
}

/// Each kind of node as often as a way needs it.
fn nodes() -> Vec<HadiofsNode> {
    let mut all: Vec<HadiofsNode> = Vec::new();
    for way in WAYS {
        let there = all.iter().filter(|node| **node == way.node).count();
        all.extend((there..way.replicas).map(|_| way.node));
    }
    all
}

impl Hadiofs {
    /// Room for so many bytes of each way.
    pub fn start(dir: &Path, options: &ExperimentOptions, way_bytes: u64) -> Result<Self> {
        let [bytes, block_bytes] = [options.mib, options.block_mib].map(|mib| u64::from(mib) << 20);
        let plugin = Plugin::find()?;
        let mut builder = Cluster::builder("hadiofs")
            .names_in_memory()
            .conf("dfs.blocksize", block_bytes)
            .conf("dfs.replication", 1)
            .conf("dfs.datanode.du.reserved.pct", 0)
            .conf("dfs.namenode.redundancy.considerLoad", false)
            .conf("dfs.client.socket-timeout", 120_000);
        for (key, value) in &options.conf {
            builder = builder.conf(key, value);
        }
        let nodes = nodes();
        for (at, node) in nodes.iter().enumerate() {
            let volume = VolumeSpec::at(dir.join(format!("node-{at}")));
            let engine = match *node {
                HadiofsNode::Stock(stock) => {
                    builder = builder.node(stock.node(volume));
                    continue;
                }
                HadiofsNode::Engine(name) => name.to_owned(),
                HadiofsNode::Adios {
                    chunk_mib,
                    late_close,
                } => {
                    // Each way that uses it: the room of removed files comes late.
                    let ways = WAYS.iter().filter(|way| way.node == *node).count();
                    let all = way_bytes * u64::try_from(ways).unwrap_or(u64::MAX);
                    plugin.engine(chunk_mib, late_close, all)
                }
            };
            let mut spec = NodeSpec::new(Kind::Hayloft).volumes(vec![volume]);
            spec.conf = ours(Medium::Rotating, false).with("hayloft.io.engine", engine);
            builder = builder.node(spec);
        }
        let cluster = builder.start()?;
        Ok(Self {
            client: cluster.driver_with_flags(client_flags())?,
            cluster,
            nodes,
            dir: dir.to_owned(),
            bytes,
            block_bytes,
            warm: Vec::new(),
        })
    }

    /// The nodes of a way.
    fn of(&self, way: HadiofsWay) -> Vec<usize> {
        let all = self.nodes.iter().enumerate();
        let theirs = all.filter(|(_, node)| **node == way.node);
        theirs.map(|(at, _)| at).take(way.replicas).collect()
    }

    /// Processor seconds of these nodes, those for which they and the client waited, and those of
    /// the machine.
    fn used(&mut self, nodes: &[usize]) -> Result<(f64, f64, f64)> {
        let (mut all, mut waited) = (0.0, waited_s(self.client.pid()));
        for at in nodes {
            let pid = self.cluster.node(*at).process()?.pid();
            let used = process_usage::usage(pid)?;
            all += used.user_s + used.system_s;
            waited += waited_s(pid);
        }
        Ok((all, waited, machine::busy_seconds()?))
    }

    /// What an operation took, beside what it was until then.
    fn taken(
        &mut self,
        (nodes, bytes): (&[usize], u64),
        then: (f64, f64, f64),
        began: Instant,
    ) -> Result<PeerFigures> {
        let now = self.used(nodes)?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(PeerFigures::of([
            ("seconds", seconds),
            ("s_gib", (now.0 - then.0) / gib(bytes)),
            ("peer", (now.0 - then.0) / seconds),
            ("waited", (now.1 - then.1) / seconds),
            ("cpu", (now.2 - then.2) / seconds / processors()),
        ]))
    }

    /// Data files of these nodes.
    fn blocks(&mut self, nodes: &[usize]) -> Vec<usize> {
        let files = |node: &Node| node.all_block_files().into_iter();
        let count = |at: &usize| {
            let files = files(self.cluster.node(*at));
            files.filter(|path| path.extension().is_none()).count()
        };
        nodes.iter().map(count).collect()
    }

    fn call(&self, operation: &str, arguments: Value, bytes: u64) -> Result<Value> {
        let pending = self.client.begin(operation, arguments)?;
        let answer = pending.wait_at_most(PHASE_LIMIT)?;
        if answer["equal"].as_bool() == Some(false) || answer["bytes"].as_u64() != Some(bytes) {
            let text = format!("{operation} moved something else than what was written");
            return Err(TestkitError::Expectation(text));
        }
        Ok(answer)
    }

    /// One turn of a way: its file is written, read and removed, once that is warm.
    pub fn round(
        &mut self,
        turn: &mut PeerTurn<'_>,
        disk: &WatchedDisk,
        way: HadiofsWay,
    ) -> Result<()> {
        let at = WAYS.iter().position(|one| *one == way);
        let mut warm = self.warm.iter().find(|(warmed, _)| Some(*warmed) == at);
        let warmed;
        if warm.is_none() && turn.counts {
            let gives = turn.warm_up(|_| {
                let few = self.bytes.min(WARM_UP_BYTES);
                let done = self.once(disk, way, few)?;
                let seconds = |figures: &PeerFigures| figures.get("s_gib").unwrap_or(0.0);
                Ok(done.iter().map(|(_, figures)| seconds(figures)).sum())
            })?;
            warmed = (at.unwrap_or(0), gives);
            self.warm.push(warmed);
            warm = Some(&warmed);
        }
        let warm = warm.map_or(0.0, |(_, warm)| *warm);
        for (what, figures) in self.once(disk, way, self.bytes)? {
            turn.give(what, figures.with(WARM, warm));
        }
        Ok(())
    }

    /// A file of so many bytes is written, read and removed.
    fn once(
        &mut self,
        disk: &WatchedDisk,
        way: HadiofsWay,
        bytes: u64,
    ) -> Result<Vec<(&'static str, PeerFigures)>> {
        let nodes = self.of(way);
        let mut done = vec![("write", self.write(disk, (way, &nodes), bytes)?)];
        let each = (bytes / u64::from(way.writers)).div_ceil(self.block_bytes);
        let wanted = usize::try_from(each * u64::from(way.writers)).unwrap_or(0);
        let there = self.blocks(&nodes);
        if there.iter().any(|blocks| *blocks != wanted) {
            let name = way.node.name();
            let text = format!("blocks went elsewhere: nodes of {name} have {there:?}");
            return Err(TestkitError::Expectation(text));
        }
        if way.node != NULL {
            cold()?;
            let (used, began) = (self.used(&nodes)?, Instant::now());
            let read = json!({"path": PATH, "streams": way.writers});
            let (answer, account) = disk.watched(|| self.call("readStreams", read, bytes))?;
            let taken = self.taken((&nodes, bytes), used, began)?;
            done.push(("read", taken.and(account).with("mbs", rate(&answer)?)));
        }
        self.client.fs(&["-rm", "-r", "-skipTrash", PATH])?;
        wait::until("the removal of all blocks", REMOVED_LIMIT, || {
            Ok(match self.blocks(&nodes).iter().sum::<usize>() {
                0 => Seen::Done(()),
                some => Seen::NotYet(format!("{some} blocks")),
            })
        })?;
        Ok(done)
    }

    /// What writing gives until closes have returned, and until all is on the disk.
    fn write(
        &mut self,
        disk: &WatchedDisk,
        (way, nodes): (HadiofsWay, &[usize]),
        bytes: u64,
    ) -> Result<PeerFigures> {
        let favored: Vec<String> = nodes
            .iter()
            .map(|at| self.cluster.node(*at).xfer())
            .collect();
        let write = json!({
            "path": PATH, "streams": way.writers, "bytes": bytes / u64::from(way.writers),
            "replication": way.replicas, "blockSize": self.block_bytes, "favored": favored,
        });
        machine::settle(&self.dir)?;
        let (used, began) = (self.used(nodes)?, Instant::now());
        let (answer, account) = disk.watched(|| {
            let answer = self.call("writeStreams", write, bytes)?;
            machine::settle(&self.dir)?;
            Ok(answer)
        })?;
        let on_disk = megabytes(bytes) / began.elapsed().as_secs_f64();
        let taken = self.taken((nodes, bytes), used, began)?.and(account);
        Ok(taken
            .with("mbs", rate(&answer)?)
            .with("on_disk_mbs", on_disk))
    }

    /// Ends it and leaves nothing of it.
    pub fn end(self) {
        let Self {
            client, cluster, ..
        } = self;
        drop(client);
        cluster.succeed();
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// MB/s by the client's clock.
fn rate(answer: &Value) -> Result<f64> {
    let number = |name: &str| answer[name].as_f64().filter(|n| *n > 0.0);
    let both = number("bytes").zip(number("nanos"));
    let (bytes, nanos) = both.ok_or_else(|| {
        TestkitError::Talk(format!("the client gave no bytes and nanos: {answer}"))
    })?;
    Ok(bytes * 1e3 / nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_its_nodes() {
        let all = nodes();
        for way in WAYS {
            let there = all.iter().filter(|node| **node == way.node).count();
            assert!(there >= way.replicas, "{way:?}");
        }
        assert_eq!(all.len(), 17);
    }

    #[test]
    fn devices_have_room_for_all_rounds() {
        let plugin = Plugin {
            so: "/a.so".into(),
            library: "/l.so".into(),
        };
        let wanted = "plugin:/a.so library=/l.so size=202375168 chunk=32M close=async";
        assert_eq!(plugin.engine(32, true, 64_000_000), wanted);
    }
}
