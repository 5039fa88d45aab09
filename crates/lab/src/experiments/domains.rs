//! Failure domains: a rack of three hosts with four storage nodes each. Blocks are written, a host
//! is killed and comes back, every host gets an empty node and the balancer runs; after each step
//! fsck says where every replica is, and blocks with two replicas in one host are counted, under
//! the stock policy and under ours.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::describe::{DataNodeSpec, Description, DiskSpec, HostSpec};
use crate::report;
use crate::up::{RunningNode, Testbed};
use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::class;

/// Its name.
pub const NAME: &str = "domains";
/// What it shows.
pub(super) const ABOUT: &str = "three hosts of four nodes, replicas never twice in a host";

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

/// Where the replicas of all blocks are, as fsck says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Census {
    /// Blocks.
    pub blocks: usize,
    /// Blocks with two replicas in one host although another host has none.
    pub violations: usize,
    /// Fewest replicas of a block.
    pub fewest: usize,
    /// What fsck calls it.
    pub healthy: bool,
    /// Whether fsck finds no block that is placed against the NameNode's own policy.
    pub agreed: bool,
    /// Replicas of every node that has some, by address.
    pub nodes: BTreeMap<String, usize>,
}

impl Census {
    /// Fewest and most replicas of `nodes` nodes.
    fn evenness(&self, nodes: usize) -> (usize, usize) {
        let fewest = if self.nodes.len() < nodes {
            0
        } else {
            self.nodes.values().copied().min().unwrap_or(0)
        };
        (fewest, self.nodes.values().copied().max().unwrap_or(0))
    }
}

/// One policy and replication.
#[derive(Clone, Debug, Serialize)]
pub struct DomainsFinding {
    /// `stock` or a layout of ours.
    pub placement: String,
    /// Replicas asked for.
    pub replication: u16,
    /// After writing.
    pub written: Census,
    /// Blocks of which no replica was left when the host was away: both had been there.
    pub unreadable: usize,
    /// After a host was killed and its blocks were copied.
    pub killed: Census,
    /// Seconds from the kill until every block had its replicas again.
    pub healed_seconds: f64,
    /// After the host came back and surplus replicas were removed.
    pub returned: Census,
    /// After the balancer; every host has an empty node more.
    pub balanced: Census,
    /// Replicas that the balancer moved to the empty nodes.
    pub moved: usize,
    /// The balancer's exit code (0: balanced).
    pub balancer_code: i64,
}

/// Whether a node is one of the empty ones for the balancer.
fn is_spare(node: &RunningNode) -> bool {
    node.name.ends_with(&format!(".{NODES_PER_HOST}"))
}

fn described(placement: &str) -> Description {
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
    Description {
        conf: conf.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        ..Description::one_rack("domains", placement, 1000, hosts)
    }
}

/// Carries it out for `placement` and `replication` with `blocks` blocks, files below `work`.
///
/// # Errors
/// When the testbed does not come up, or blocks are not healed in time.
pub fn find(
    placement: &str,
    replication: u16,
    blocks: u64,
    work: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<DomainsFinding> {
    let described = described(placement);
    crate::up::down(&described.name, work)?;
    let mut testbed = Testbed::up(described, work, false, tell)?;
    let (all, left) = (HOSTS * NODES_PER_HOST, (HOSTS - 1) * NODES_PER_HOST);
    on(&mut testbed, is_spare, RunningNode::kill)?;
    testbed.wait_live(all)?;
    let client = testbed.client("c0")?;
    tell(&format!(
        "{placement}, {replication} replicas: writing {blocks} blocks"
    ));
    client.call(
        "writeStreams",
        json!({
            "path": "/blocks", "streams": STREAMS, "bytes": blocks / STREAMS * BLOCK_BYTES,
            "replication": replication, "blockSize": BLOCK_BYTES,
        }),
    )?;
    heal(&testbed, &client, (replication, HOSTS), None)?;
    let written = census(&client, HOSTS)?;
    tell("killing a host");
    let begun = Instant::now();
    let victim = |node: &RunningNode| node.host == VICTIM && !is_spare(node);
    on(&mut testbed, victim, RunningNode::kill)?;
    testbed.wait_live(left)?;
    heal(&testbed, &client, (replication, HOSTS - 1), Some(VICTIM))?;
    let healed_seconds = begun.elapsed().as_secs_f64();
    let killed = census(&client, HOSTS - 1)?;
    tell("bringing the host back");
    on(&mut testbed, victim, RunningNode::restart)?;
    testbed.wait_live(all)?;
    heal(&testbed, &client, (replication, HOSTS), None)?;
    let returned = census(&client, HOSTS)?;
    tell("running the balancer, with an empty node more on every host");
    on(&mut testbed, is_spare, RunningNode::restart)?;
    testbed.wait_live(all + HOSTS)?;
    let run = client.tool(
        class::BALANCER,
        &["-threshold", "1", "-idleiterations", "1"],
    )?;
    heal(&testbed, &client, (replication, HOSTS), None)?;
    let balanced = census(&client, HOSTS)?;
    let spares = testbed.nodes().iter().filter(|node| is_spare(node));
    let moved = spares.filter_map(|node| balanced.nodes.get(&node.address));
    let moved = moved.sum();
    Ok(DomainsFinding {
        placement: placement.into(),
        replication,
        unreadable: written.blocks.saturating_sub(killed.blocks),
        written,
        killed,
        healed_seconds,
        returned,
        balanced,
        moved,
        balancer_code: run.code,
    })
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
/// replica of the host that is `away`.
fn heal(
    testbed: &Testbed,
    client: &Driver,
    (replication, hosts): (u16, usize),
    away: Option<&str>,
) -> Result<()> {
    let gone = |seen: &Census| {
        let mut nodes = testbed
            .nodes()
            .iter()
            .filter(|n| Some(n.host.as_str()) == away);
        !nodes.any(|node| seen.nodes.contains_key(&node.address))
    };
    let start = Instant::now();
    let mut quiet = 0;
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
            let seen = census(client, hosts)?;
            if seen.fewest >= usize::from(replication) && seen.agreed && gone(&seen) {
                return Ok(());
            }
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

fn census(client: &Driver, hosts: usize) -> Result<Census> {
    let arguments = ["/blocks", "-files", "-blocks", "-locations"];
    let run = client.tool(class::FSCK, &arguments)?;
    Ok(count(&run.out, hosts))
}

/// Reads fsck's listing. With `hosts` alive, a block is placed wrongly when two of its replicas are
/// in one host while a host has none.
fn count(listing: &str, hosts: usize) -> Census {
    let mut census = Census {
        fewest: usize::MAX,
        healthy: listing.contains("is HEALTHY"),
        agreed: listing.lines().any(|line| {
            let mut words = line.split_whitespace();
            line.contains("Mis-replicated blocks:") && words.nth(2) == Some("0")
        }),
        ..Census::default()
    };
    for line in listing.lines().filter(|line| line.contains("Live_repl=")) {
        let places = line.split("DatanodeInfoWithStorage[").skip(1);
        let mut addresses = Vec::new();
        for node in places.filter_map(|rest| rest.split(',').next()) {
            *census.nodes.entry(node.to_owned()).or_default() += 1;
            addresses.extend(node.split(':').next());
        }
        let apart = addresses.iter().collect::<BTreeSet<_>>().len();
        census.blocks += 1;
        census.fewest = census.fewest.min(addresses.len());
        if apart < addresses.len().min(hosts) {
            census.violations += 1;
        }
    }
    if census.blocks == 0 {
        census.fewest = 0;
    }
    census
}

/// Carries out every combination and writes table and raw data to `out`.
///
/// # Errors
/// As [`find`].
pub fn run(
    blocks: u64,
    kind: &str,
    command: &str,
    (work, out): (&Path, &Path),
    tell: &mut dyn FnMut(&str),
) -> Result<String> {
    let mut findings = Vec::new();
    let mut text = String::new();
    for placement in ["split", "stock"] {
        for replication in [2, 3] {
            let dir = work.join(format!("{placement}-{replication}"));
            findings.push(find(placement, replication, blocks, &dir, tell)?);
            text = page(blocks, kind, command, &findings);
            report::save_page(out, &text, "findings.json", &findings)?;
        }
    }
    Ok(text)
}

fn page(blocks: u64, kind: &str, command: &str, findings: &[DomainsFinding]) -> String {
    let mut text = format!(
        "# Failure domains\n\nCommand: `{command}`\n\nOne rack of {HOSTS} hosts with \
            {NODES_PER_HOST} {kind} nodes each, {blocks} blocks, \
         stock NameNode. Wrongly placed: two replicas in one host while a live host has none, \
         counted from fsck's listing. The host is \
         killed with `kill -9` of its nodes. Before the balancer runs every host gets an empty \
         node more.\n\n\
         | policy | replicas | wrongly placed after writing | host killed: blocks without a \
         replica | all others copied again after | \
         fewest replicas, wrongly placed then | host back: wrongly placed | replicas that the \
         balancer moved | replicas of a node, before and after | \
         wrongly placed after it (exit) | fsck |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for f in findings {
        let nodes = (NODES_PER_HOST + 1) * HOSTS;
        let (before, after) = (f.returned.evenness(nodes), f.balanced.evenness(nodes));
        let _ = writeln!(
            text,
            "| {} | {} | {} of {} | {} | {:.0} s | {}, {} of {} | {} | {} | {} to {}, then {} to \
                {} | {} ({}) | {} |",
            f.placement,
            f.replication,
            f.written.violations,
            f.written.blocks,
            f.unreadable,
            f.healed_seconds,
            f.killed.fewest,
            f.killed.violations,
            f.killed.blocks,
            f.returned.violations,
            f.moved,
            before.0,
            before.1,
            after.0,
            after.1,
            f.balanced.violations,
            f.balancer_code,
            if f.balanced.healthy {
                "healthy"
            } else {
                "NOT healthy"
            },
        );
    }
    text.push_str(
        "\nWith a host killed two are left, so three replicas cannot be apart: then two of a \
            block in one host are right, and counted is \
         only a block all of whose replicas are in one host. Balancer's exit code 0: balanced; -2 \
         or -3: nothing left that it may move.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_in_one_host_are_counted() {
        let block = |n: usize, places: &[&str]| {
            let places: Vec<String> = places
                .iter()
                .map(|p| format!("DatanodeInfoWithStorage[{p},DS-1,DISK]"))
                .collect();
            format!(
                "{n}. BP-1:blk_{n}_1 len=4096 Live_repl={}  [{}]\n",
                places.len(),
                places.join(", ")
            )
        };
        let listing = format!(
            "{}{}{} Mis-replicated blocks:\t\t0 (0.0 %)\n The filesystem under path '/' is HEALTHY",
            block(0, &["10.77.0.1:9866", "10.77.0.2:9866"]),
            block(1, &["10.77.0.1:9866", "10.77.0.1:9876"]),
            block(2, &["10.77.0.1:9866", "10.77.0.1:9876", "10.77.0.2:9866"]),
        );
        let all = count(&listing, 3);
        assert_eq!(
            (
                all.blocks,
                all.violations,
                all.fewest,
                all.healthy && all.agreed
            ),
            (3, 2, 2, true)
        );
        assert_eq!(
            count(&listing, 2).violations,
            1,
            "with two hosts left three replicas cannot be apart"
        );
        assert_eq!(all.nodes["10.77.0.1:9866"], 3);
        assert_eq!((all.evenness(3), all.evenness(4)), ((2, 3), (0, 3)));
        assert_eq!(count("", 3), Census::default());
    }
}
