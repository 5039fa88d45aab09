//! The cluster of the experiment: its nodes, and one round through some of them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::one_disk::{cold, megabytes};
use super::{HadiofsNode, HadiofsRound, HadiofsWay, NULL, WAYS};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::repository_root;
use hayloft_testkit::node::{Kind, Node, NodeSpec, VolumeSpec};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, machine, procfs};

pub(super) const BLOCK_MIB: u32 = 128;
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
    /// Room for so many rounds of each way.
    pub fn start(dir: &Path, bytes: u64, rounds: usize) -> Result<Self> {
        let plugin = Plugin::find()?;
        let rounds = u64::try_from(rounds).unwrap_or(u64::MAX);
        let mut builder = Cluster::builder("hadiofs")
            .names_in_memory()
            .conf("dfs.blocksize", u64::from(BLOCK_MIB) << 20)
            .conf("dfs.replication", 1)
            .conf("dfs.datanode.du.reserved.pct", 0)
            .conf("dfs.namenode.redundancy.considerLoad", false)
            .conf("dfs.client.socket-timeout", 120_000);
        let nodes = nodes();
        for (at, node) in nodes.iter().enumerate() {
            let kind = match node {
                HadiofsNode::Stock => Kind::Apache,
                _ => Kind::Hayloft,
            };
            let volume = VolumeSpec::at(dir.join(format!("node-{at}")));
            let mut spec = NodeSpec::new(kind).volumes(vec![volume]);
            let engine = match *node {
                HadiofsNode::Stock => None,
                HadiofsNode::Engine(name) => Some(name.to_owned()),
                HadiofsNode::Adios {
                    chunk_mib,
                    late_close,
                } => {
                    // Each way that uses it, in each round: the room of removed files comes late.
                    let ways = WAYS.iter().filter(|way| way.node == *node).count();
                    let times = rounds * u64::try_from(ways).unwrap_or(u64::MAX);
                    Some(plugin.engine(chunk_mib, late_close, times * bytes))
                }
            };
            if let Some(engine) = engine {
                spec = spec.conf("hayloft.io.engine", engine);
            }
            builder = builder.node(spec);
        }
        let cluster = builder.start()?;
        Ok(Self {
            client: cluster.driver()?,
            cluster,
            nodes,
            dir: dir.to_owned(),
            bytes,
        })
    }

    /// The nodes of a way.
    fn of(&self, way: HadiofsWay) -> Vec<usize> {
        let all = self.nodes.iter().enumerate();
        let theirs = all.filter(|(_, node)| **node == way.node);
        theirs.map(|(at, _)| at).take(way.replicas).collect()
    }

    fn cpu(&mut self, nodes: &[usize]) -> Result<f64> {
        let mut all = 0.0;
        for at in nodes {
            let used = procfs::usage(self.cluster.node(*at).process()?.pid())?;
            all += used.user_s + used.system_s;
        }
        Ok(all)
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

    fn call(&self, operation: &str, arguments: Value) -> Result<Value> {
        let pending = self.client.begin(operation, arguments)?;
        let answer = pending.wait_at_most(PHASE_LIMIT)?;
        if answer["equal"].as_bool() == Some(false) || answer["bytes"].as_u64() != Some(self.bytes)
        {
            let text = format!("{operation} moved something else than what was written");
            return Err(TestkitError::Expectation(text));
        }
        Ok(answer)
    }

    pub fn round(&mut self, way: HadiofsWay) -> Result<HadiofsRound> {
        let nodes = self.of(way);
        let favored: Vec<String> = nodes
            .iter()
            .map(|at| self.cluster.node(*at).xfer())
            .collect();
        let streams = u64::from(way.writers);
        let mut done = HadiofsRound::default();
        let write = json!({
            "path": PATH, "streams": streams, "bytes": self.bytes / streams,
            "replication": way.replicas, "blockSize": u64::from(BLOCK_MIB) << 20,
            "favored": favored,
        });
        machine::settle(&self.dir)?;
        let (used, began) = (self.cpu(&nodes)?, Instant::now());
        let answer = self.call("writeStreams", write)?;
        machine::settle(&self.dir)?;
        done.on_disk_mbs = megabytes(self.bytes) / began.elapsed().as_secs_f64();
        done.acknowledged_mbs = rate(&answer)?;
        let used = self.cpu(&nodes)? - used;
        done.write_s_gib = self.gib(used);
        let each = (self.bytes / streams).div_ceil(u64::from(BLOCK_MIB) << 20);
        let wanted = usize::try_from(each * streams).unwrap_or(0);
        let there = self.blocks(&nodes);
        if there.iter().any(|blocks| *blocks != wanted) {
            let name = way.node.name();
            let text = format!("blocks went elsewhere: nodes of {name} have {there:?}");
            return Err(TestkitError::Expectation(text));
        }
        if way.node != NULL {
            cold()?;
            let used = self.cpu(&nodes)?;
            let answer = self.call("readStreams", json!({"path": PATH, "streams": streams}))?;
            done.read_mbs = rate(&answer)?;
            let used = self.cpu(&nodes)? - used;
            done.read_s_gib = self.gib(used);
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

    /// Ends it and leaves nothing of it.
    pub fn end(self) {
        let Self {
            client, cluster, ..
        } = self;
        drop(client);
        cluster.succeed();
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn gib(&self, seconds: f64) -> f64 {
        seconds * f64::from(1 << 30) / self.bytes as f64
    }
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
        assert_eq!(all.len(), 14);
        let figures = WAYS.map(|way| way.figures).join(", ");
        for figure in ["5.1a", "5.1b", "5.2", "5.3", "5.4", "5.5", "5.6"] {
            assert!(figures.contains(figure), "{figure}");
        }
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
