//! Start-up and memory with many blocks.

use super::fair::stock::{client_flags, jvm_flags};
use super::figures::Figure;
use super::peers::{self, DEFAULT, STOCK};
use super::record::{BenchRecord, BenchSample};
use super::rows::Client;
use super::{BenchOptions, interrupt};
use hayloft_testkit::cluster::Cluster;
use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::machine;
use hayloft_testkit::node::{Kind, NodeSpec};
use hayloft_testkit::process_usage;
use hayloft_testkit::wait::{self, Seen};
use serde_json::json;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// Bytes per block: the cost is in the number of files, not in what they hold.
const BLOCK_BYTES: u64 = 512;
/// Files written at once; each is a long row of tiny blocks.
const STREAMS: u64 = 4;

/// A way of starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The replicas are found by walking the directories, none of which is in the page cache.
    WalkCold,
    /// The same with what the last start left in the page cache.
    WalkWarm,
    /// They are read from the list that a clean stop left. The stock node leaves one only when it
    /// is stopped by `dfsadmin -shutdownDatanode`, so this is a row of ours alone.
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

/// Starts either kind of node on one directory, in turn, with a page cache and without.
///
/// # Errors
/// When the cluster does not come up or the NameNode never learns the blocks.
pub(super) fn measure(options: &BenchOptions, record: &mut BenchRecord) -> Result<()> {
    let mut cluster = Cluster::builder("bench-blocks")
        .names_in_memory()
        .node(NodeSpec::new(Kind::Hayloft))
        .conf("dfs.replication", 1)
        .conf("dfs.namenode.fs-limits.max-blocks-per-file", 1_000_000)
        .start()?;
    let driver = cluster.driver_with_flags(client_flags())?;
    cluster
        .node(0)
        .set_jvm_flags([jvm_flags(), options.jvm_flags.clone()].concat());
    let start = Instant::now();
    fill(options, &driver)?;
    let took = start.elapsed().as_secs_f64();
    (options.progress)(&format!("{} blocks written in {took:.0} s", options.blocks));
    // The first round does not count: it finds what the filling left in memory.
    for round in 0..=options.rounds {
        for turn in 0..2 {
            let name = [STOCK, DEFAULT][(turn + round as usize) % 2];
            let peer = peers::peer(name, &options.define)?;
            for way in Way::ALL {
                if way == Way::ListWarm && peer.kind == Kind::Apache {
                    continue;
                }
                if interrupt::asked() {
                    cluster.succeed();
                    return Ok(());
                }
                cluster.node(0).stop()?;
                // The NameNode must forget the node's blocks, or it could not be seen learning
                // them.
                cluster.namenode(0).wait_live(0, Duration::from_secs(90))?;
                cluster.node(0).become_kind(peer.kind)?;
                *cluster.node(0).conf_mut() = peer.conf.clone();
                if way != Way::ListWarm {
                    forget_lists(&mut cluster)?;
                }
                if way == Way::WalkCold && !machine::drop_caches() {
                    continue;
                }
                let figures = start_once(options, &mut cluster)?;
                let sample = BenchSample {
                    workload: way.name().to_owned(),
                    client: Client::None,
                    peer: name.to_owned(),
                    round: round.saturating_sub(1),
                    figures: figures.into_iter().collect(),
                    failed: None,
                };
                (options.progress)(&format!("{} of {name}: {figures:?}", way.name()));
                if round > 0 {
                    record.samples.push(sample);
                }
            }
        }
    }
    cluster.succeed();
    Ok(())
}

/// Removes the lists of replicas that a clean stop left: the next start has to look.
fn forget_lists(cluster: &mut Cluster) -> Result<()> {
    let volumes: Vec<_> = cluster
        .node(0)
        .volumes()
        .map(|v| v.join("current"))
        .collect();
    for current in volumes {
        let pools = std::fs::read_dir(&current).map_err(TestkitError::file("listing", &current))?;
        for pool in pools {
            let pool = pool.map_err(TestkitError::file("listing", &current))?;
            let list = pool.path().join("current/replicas");
            match std::fs::remove_file(&list) {
                Ok(()) => {}
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(e) => return Err(TestkitError::file("removing", list)(e)),
            }
        }
    }
    Ok(())
}

fn fill(options: &BenchOptions, driver: &Driver) -> Result<()> {
    let request = json!({
        "path": "/blocks", "streams": STREAMS, "blockSize": BLOCK_BYTES,
        "bytes": options.blocks.div_ceil(STREAMS) * BLOCK_BYTES,
    });
    driver
        .begin("writeStreams", request)?
        .wait_at_most(Duration::from_secs(3600))
        .map(drop)
}

fn start_once(options: &BenchOptions, cluster: &mut Cluster) -> Result<[(Figure, f64); 4]> {
    let start = Instant::now();
    cluster.start_node(0)?;
    let listening = start.elapsed().as_secs_f64();
    let limit = Duration::from_secs(300);
    wait::until("the NameNode to know every block", limit, || {
        let known = known_blocks(cluster)?;
        Ok(if known >= options.blocks {
            Seen::Done(())
        } else {
            Seen::NotYet(format!("{known} blocks"))
        })
    })?;
    let reported = start.elapsed().as_secs_f64();
    let usage = process_usage::usage(cluster.node(0).process()?.pid())?;
    Ok([
        (Figure::Listening, listening),
        (Figure::Reported, reported),
        (Figure::StartCpu, usage.user_s + usage.system_s),
        (
            Figure::MemoryPeak,
            super::measure::as_f64(usage.rss_peak_kib) / 1024.0,
        ),
    ])
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
