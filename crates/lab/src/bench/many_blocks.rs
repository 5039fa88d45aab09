//! Start-up and memory with many blocks.

use super::report::{Report, StartSample};
use super::{Options, drop_caches, one_node, order};
use crate::cluster::Cluster;
use crate::driver::Driver;
use crate::error::Result;
use crate::procfs;
use crate::wait::{self, Seen};
use serde_json::json;
use std::time::{Duration, Instant};

/// Bytes per block: the cost is in the number of files, not in what they hold.
const BLOCK_BYTES: u64 = 512;
/// Files written at once; each is a long row of tiny blocks.
const STREAMS: u64 = 4;

pub(super) fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let (mut cluster, driver) = one_node("bench-blocks", options)?;
    let start = Instant::now();
    fill(options, &mut cluster, &driver)?;
    println!(
        "bench: {} blocks written in {:.0} s",
        options.blocks,
        start.elapsed().as_secs_f64()
    );
    for round in 0..options.rounds {
        for kind in order(round) {
            for cold in [true, false] {
                cluster.node(0).stop()?;
                // The NameNode must forget the node's blocks, or it could not be seen learning them.
                cluster.namenode(0).wait_live(0, Duration::from_secs(90))?;
                cluster.node(0).become_kind(kind)?;
                if cold && !drop_caches() {
                    continue;
                }
                let sample = start_once(options, &mut cluster)?;
                let sample = StartSample {
                    kind: format!("{kind:?}"),
                    round,
                    cold,
                    ..sample
                };
                println!("bench: start {sample:?}");
                report.starts.push(sample);
            }
        }
    }
    cluster.succeed();
    Ok(())
}

fn fill(options: &Options, cluster: &mut Cluster, driver: &Driver) -> Result<()> {
    cluster.swap_node(0, crate::node::Kind::Hayloft)?;
    cluster.wait_all_live()?;
    let request = json!({
        "path": "/blocks", "streams": STREAMS, "blockSize": BLOCK_BYTES,
        "bytes": options.blocks.div_ceil(STREAMS) * BLOCK_BYTES,
    });
    driver
        .begin("writeStreams", request)?
        .wait_at_most(Duration::from_secs(3600))
        .map(drop)
}

fn start_once(options: &Options, cluster: &mut Cluster) -> Result<StartSample> {
    let start = Instant::now();
    cluster.start_node(0)?;
    let listening_s = start.elapsed().as_secs_f64();
    wait::until(
        "the NameNode to know every block",
        Duration::from_secs(300),
        || {
            let known = known_blocks(cluster)?;
            Ok(if known >= options.blocks {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{known} blocks"))
            })
        },
    )?;
    let reported_s = start.elapsed().as_secs_f64();
    // What starting up needed and gave back is in the peak; what stays is seen a moment later.
    std::thread::sleep(Duration::from_secs(3));
    let usage = procfs::usage(cluster.node(0).process()?.pid())?;
    Ok(StartSample {
        kind: String::new(),
        round: 0,
        cold: false,
        listening_s,
        reported_s,
        cpu_s: usage.user_s + usage.system_s,
        rss_mib: usage.rss_kib / 1024,
        peak_mib: usage.rss_peak_kib / 1024,
    })
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
