//! Failure domains: three hosts with four storage nodes each. Blocks are written, a host is killed
//! and comes back, every host gets an empty node and the balancer runs; after each step fsck says
//! where every replica is, and blocks with two replicas in one host are counted: under the stock
//! policy that knows of no hosts, under the remedies that stock Hadoop has, and under ours.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::census::{Census, census};
use super::remedies::{REMEDIES, Remedy};
use crate::counters;
use crate::describe::{DataNodeSpec, Description, DiskSpec, HostSpec};
use crate::runner::options::ExperimentOptions;
use crate::runner::record::PeerFigures;
use crate::runner::table::Shown;
use crate::runner::{Experiment, PeerTurn, Run};
use crate::up::{RunningNode, Testbed};
use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::class;

/// The experiment.
pub const DOMAINS: Experiment = Experiment {
    name: "domains",
    question: "three hosts of four nodes, replicas never twice in a host",
    paper: "the cloud paper's Section 4",
    takes_properties: false,
    rates: false,
    options: || ExperimentOptions {
        rounds: 1,
        ..ExperimentOptions::default()
    },
    about: |options| {
        format!(
            "{HOSTS} hosts with {NODES_PER_HOST} Hayloft nodes each, {} blocks, stock NameNode. \
             Wrongly placed: two replicas in one host while a live host has none, counted from \
             fsck's listing. The host is killed with `kill -9` of its nodes. Before the balancer \
             runs every host gets an empty node more.\n\n`stock, told of no hosts` cannot keep \
             replicas apart: one rack is all that it knows. The other rows of stock are what \
             Hadoop has for that: every host declared a rack, with the default policy or with one \
             that spreads over racks, or every host an upgrade domain.",
            options.blocks
        )
    },
    measure: carry_out,
    shown: Shown {
        title: "Failure domains",
        tables: include_str!("tables/domains.txt"),
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

const HOSTS: usize = 3;
const NODES_PER_HOST: usize = 4;
/// The host that is killed.
const VICTIM: &str = "h2";
/// On disks of this size, so that the balancer sees what a node holds as a part of it.
const BLOCK_BYTES: u64 = 16 << 10;
const DISK_MIB: u32 = 64;
const STREAMS: u64 = 8;
/// Until every block has its replicas again.
const HEAL_LIMIT: Duration = Duration::from_secs(300);
/// The NameNode leaves it at what it has reached when nothing changes for so long: two of its
/// time-outs for copies.
const STANDSTILL: Duration = Duration::from_secs(40);
/// Where the blocks are.
const BLOCKS: &str = "/blocks";

/// Whether a node is one of the empty ones for the balancer.
fn is_spare(node: &RunningNode) -> bool {
    node.name.ends_with(&format!(".{NODES_PER_HOST}"))
}

fn described(remedy: &Remedy, dir: &Path) -> Description {
    let node = DataNodeSpec {
        disks: vec![DiskSpec {
            memory: true,
            size_mib: DISK_MIB,
            ..DiskSpec::default()
        }],
        ..DataNodeSpec::default()
    };
    let host = |at: usize| HostSpec {
        name: format!("h{at}"),
        nodes: vec![node.clone(); NODES_PER_HOST + 1],
        ..HostSpec::default()
    };
    let mut hosts: Vec<HostSpec> = (0..HOSTS).map(host).collect();
    hosts.push(HostSpec::client("c0"));
    let conf = [
        // The balancer keeps a file of its own, which must fit on such a disk.
        ("dfs.blocksize", "1048576"),
        ("dfs.balancer.getBlocks.min-block-size", "1"),
        ("dfs.namenode.replication.max-streams", "20"),
        ("dfs.namenode.replication.max-streams-hard-limit", "40"),
        ("dfs.namenode.reconstruction.pending.timeout-sec", "20"),
    ];
    remedy.applied(
        Description {
            conf: conf.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..Description::one_rack("domains", remedy.placement, 1000, hosts)
        },
        dir,
    )
}

/// Carries it out for one remedy and `replication`.
fn find(turn: &mut PeerTurn<'_>, remedy: &Remedy, replication: u16) -> Result<PeerFigures> {
    let (dir, blocks) = (turn.dir.clone(), turn.options.blocks);
    std::fs::create_dir_all(&dir).map_err(TestkitError::file("creating", &dir))?;
    let work = &dir
        .canonicalize()
        .map_err(TestkitError::file("looking at", &dir))?;
    let described = described(remedy, work);
    crate::up::down(&described.name, work)?;
    remedy.prepare(&described, work)?;
    let tell = &mut |what: &str| turn.tell(what);
    let mut testbed = Testbed::up(described, work, false, tell)?;
    let (all, left) = (HOSTS * NODES_PER_HOST, (HOSTS - 1) * NODES_PER_HOST);
    on(&mut testbed, is_spare, RunningNode::kill)?;
    testbed.wait_live(all)?;
    let client = testbed.client("c0")?;
    tell(&format!("writing {blocks} blocks"));
    client.call(
        "writeStreams",
        json!({
            "path": BLOCKS, "streams": STREAMS, "bytes": blocks / STREAMS * BLOCK_BYTES,
            "replication": replication, "blockSize": BLOCK_BYTES,
        }),
    )?;
    heal(&testbed, &client, (replication, HOSTS), None)?;
    let written = census(&client, BLOCKS, HOSTS)?;
    tell("killing a host");
    let begun = Instant::now();
    let before = counters::time_by_host(testbed.described());
    let victim = |node: &RunningNode| node.host == VICTIM && !is_spare(node);
    on(&mut testbed, victim, RunningNode::kill)?;
    testbed.wait_live(left)?;
    let healed = heal(&testbed, &client, (replication, HOSTS - 1), Some(VICTIM))?;
    let healed_seconds = healed.then(|| begun.elapsed().as_secs_f64());
    let after = counters::time_by_host(testbed.described());
    let held_up = counters::waited_between(&before, &after);
    let killed = census(&client, BLOCKS, HOSTS - 1)?;
    tell("bringing the host back");
    on(&mut testbed, victim, RunningNode::restart)?;
    testbed.wait_live(all)?;
    heal(&testbed, &client, (replication, HOSTS), None)?;
    let returned = census(&client, BLOCKS, HOSTS)?;
    tell("running the balancer, with an empty node more on every host");
    on(&mut testbed, is_spare, RunningNode::restart)?;
    testbed.wait_live(all + HOSTS)?;
    let run = client.tool(
        class::BALANCER,
        &["-threshold", "1", "-idleiterations", "1"],
    )?;
    heal(&testbed, &client, (replication, HOSTS), None)?;
    let balanced = census(&client, BLOCKS, HOSTS)?;
    let spares = testbed.nodes().iter().filter(|node| is_spare(node));
    let moved = spares.filter_map(|node| balanced.nodes.get(&node.address));
    let moved: usize = moved.sum();
    let nodes = (NODES_PER_HOST + 1) * HOSTS;
    let (even, evener) = (returned.evenness(nodes), balanced.evenness(nodes));
    let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    let yes = |is: bool| f64::from(u8::from(is));
    #[expect(clippy::cast_precision_loss, reason = "an exit code")]
    let code = run.code as f64;
    Ok(PeerFigures::of([
        ("blocks", count(written.blocks)),
        ("violations", count(written.violations)),
        (
            "unreadable",
            count(written.blocks.saturating_sub(killed.blocks)),
        ),
        ("killed_blocks", count(killed.blocks)),
        ("killed_fewest", count(killed.fewest)),
        ("killed_violations", count(killed.violations)),
        ("returned_violations", count(returned.violations)),
        ("moved", count(moved)),
        ("before_low", count(even.0)),
        ("before_high", count(even.1)),
        ("after_low", count(evener.0)),
        ("after_high", count(evener.1)),
        ("balanced_violations", count(balanced.violations)),
        ("balancer_code", code),
        ("healthy", yes(balanced.healthy)),
        ("agreed", yes(balanced.agreed)),
        ("held_up", held_up),
    ])
    .with_some("healed_s", healed_seconds))
}

fn on(
    testbed: &mut Testbed,
    which: impl Fn(&RunningNode) -> bool,
    act: fn(&mut RunningNode) -> Result<()>,
) -> Result<()> {
    let nodes = testbed.nodes_mut().iter_mut();
    nodes.filter(|node| which(node)).try_for_each(act)
}

/// Waits until the NameNode has nothing to copy and nothing surplus, and until it counts on no
/// replica of the host that is `away`; false when it comes to a standstill before, since its policy
/// finds no place for a replica.
fn heal(
    testbed: &Testbed,
    client: &Driver,
    (replication, hosts): (u16, usize),
    away: Option<&str>,
) -> Result<bool> {
    let gone = |seen: &Census| {
        let mut nodes = testbed
            .nodes()
            .iter()
            .filter(|n| Some(n.host.as_str()) == away);
        !nodes.any(|node| seen.nodes.contains_key(&node.address))
    };
    let start = Instant::now();
    let mut quiet = 0;
    let mut last: Option<(Census, Instant)> = None;
    loop {
        let bean = testbed.bean("FSNamesystem")?;
        let count = |key: &str| bean[key].as_u64().unwrap_or(u64::MAX);
        // What the NameNode still has to copy says fsck: its own count keeps some blocks that it
        // has copied.
        let work = count("PendingReplicationBlocks")
            .saturating_add(count("ExcessBlocks"))
            .saturating_add(count("PendingDeletionBlocks"));
        quiet = if work == 0 { quiet + 1 } else { 0 };
        // Looked at three times: work appears a moment after its cause.
        if quiet >= 3 {
            let seen = census(client, BLOCKS, hosts)?;
            if seen.fewest >= usize::from(replication) && seen.agreed && gone(&seen) {
                return Ok(true);
            }
            match &last {
                Some((same, since)) if *same == seen => {
                    if since.elapsed() > STANDSTILL {
                        return Ok(false);
                    }
                }
                _ => last = Some((seen, Instant::now())),
            }
        } else {
            last = None;
        }
        if start.elapsed() > HEAL_LIMIT {
            return Err(TestkitError::Timeout {
                what: "every block to have its replicas".into(),
                waited: HEAL_LIMIT,
                last: bean.to_string(),
            });
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    for replication in [2, 3] {
        let row = replication.to_string();
        let peers = REMEDIES.map(|remedy| (row.as_str(), remedy.name));
        run.rounds(part, &peers, &mut |turn, at| {
            let found = find(turn, &REMEDIES[at], replication)?;
            turn.give("", found);
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testbeds::tests::is_right;
    use super::*;

    #[test]
    fn every_remedy_is_a_right_description() {
        for remedy in &REMEDIES {
            is_right(&described(remedy, Path::new("/work")));
        }
    }
}
