//! Failure domains: three hosts with four storage nodes each. Blocks are written, a host is killed
//! and comes back, every host gets an empty node and the balancer runs; after each step fsck says
//! where every replica is, and blocks with two replicas in one host are counted: under the stock
//! policy that knows of no hosts, under the remedies that stock Hadoop has, and under ours.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use super::census::{Census, census};
use super::marks;
use super::remedies::{REMEDIES, Remedy, UNTOLD};
use super::scaling::slug;
use crate::describe::{DataNodeSpec, Description, DiskSpec, HostSpec};
use crate::up::{RunningNode, Testbed};
use crate::{counters, report};
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
/// The NameNode leaves it at what it has reached when nothing changes for so long: two of its
/// time-outs for copies.
const STANDSTILL: Duration = Duration::from_secs(40);
/// Where the blocks are.
const BLOCKS: &str = "/blocks";

/// One remedy and replication.
#[derive(Clone, Debug, Serialize)]
pub struct DomainsFinding {
    /// Whose policy, and how the NameNode came to know of hosts.
    pub placement: String,
    /// Replicas asked for.
    pub replication: u16,
    /// After writing.
    pub written: Census,
    /// Blocks of which no replica was left when the host was away: both had been there.
    pub unreadable: usize,
    /// After a host was killed and its blocks were copied.
    pub killed: Census,
    /// Seconds from the kill until every block had its replicas again, as the NameNode's policy
    /// wants them; `None` when it came to a standstill before.
    pub healed_seconds: Option<f64>,
    /// Share of the time in which nodes could have gone on and had no processor meanwhile, 0 to 1.
    pub waited: f64,
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

/// Carries it out for one remedy and `replication` with `blocks` blocks, files below `work`.
fn find(
    remedy: &Remedy,
    replication: u16,
    blocks: u64,
    work: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<DomainsFinding> {
    std::fs::create_dir_all(work).map_err(TestkitError::file("creating", work))?;
    let work = &work
        .canonicalize()
        .map_err(TestkitError::file("looking at", work))?;
    let described = described(remedy, work);
    crate::up::down(&described.name, work)?;
    remedy.prepare(&described, work)?;
    let mut testbed = Testbed::up(described, work, false, tell)?;
    let (all, left) = (HOSTS * NODES_PER_HOST, (HOSTS - 1) * NODES_PER_HOST);
    on(&mut testbed, is_spare, RunningNode::kill)?;
    testbed.wait_live(all)?;
    let client = testbed.client("c0")?;
    tell(&format!(
        "{}, {replication} replicas: writing {blocks} blocks",
        remedy.name
    ));
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
    let waited = counters::waited_between(&before, &after);
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
    let moved = moved.sum();
    Ok(DomainsFinding {
        placement: remedy.name.into(),
        replication,
        unreadable: written.blocks.saturating_sub(killed.blocks),
        written,
        killed,
        healed_seconds,
        waited,
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

/// Carries out every remedy with two and three replicas and writes table and raw data to `out`.
///
/// # Errors
/// When a testbed does not come up, or the NameNode is still at work after five minutes.
pub fn run(
    blocks: u64,
    kind: &str,
    command: &str,
    (work, out): (&Path, &Path),
    tell: &mut dyn FnMut(&str),
) -> Result<String> {
    let mut findings = Vec::new();
    let mut text = String::new();
    for remedy in &REMEDIES {
        for replication in [2, 3] {
            let dir = work.join(slug(&format!("{} {replication}", remedy.name)));
            findings.push(find(remedy, replication, blocks, &dir, tell)?);
            text = page(blocks, kind, command, &findings);
            report::save_page(out, &text, "findings.json", &findings)?;
        }
    }
    Ok(text)
}

fn page(blocks: u64, kind: &str, command: &str, findings: &[DomainsFinding]) -> String {
    let mut text = format!(
        "# Failure domains\n\nCommand: `{command}`\n\n{HOSTS} hosts with {NODES_PER_HOST} {kind} \
         nodes each, {blocks} blocks, stock NameNode. Wrongly placed: two replicas in one host \
         while a live host has none, counted from fsck's listing. The host is killed with `kill \
         -9` of its nodes. Before the balancer runs every host gets an empty node more.\n\n\
         `{}` cannot keep replicas apart: one rack is all that it knows. The other rows of stock \
         are what Hadoop has for that: every host declared a rack, with the default policy or \
         with one that spreads over racks, or every host an upgrade domain.\n\n\
         | policy | replicas | wrongly placed after writing | host killed: blocks without a \
         replica | all others copied again after | fewest replicas, wrongly placed then | host \
         back: wrongly placed | replicas that the balancer moved | replicas of a node, before \
         and after | wrongly placed after it (exit) | fsck |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
        UNTOLD.name
    );
    for f in findings {
        let nodes = (NODES_PER_HOST + 1) * HOSTS;
        let (before, after) = (f.returned.evenness(nodes), f.balanced.evenness(nodes));
        let _ = writeln!(
            text,
            "| {}{} | {} | {} of {} | {} | {} | {}, {} of {} | {} | {} | {} to {}, then {} to \
                {} | {} ({}) | {} |",
            f.placement,
            marks::signs(f.waited, None),
            f.replication,
            f.written.violations,
            f.written.blocks,
            f.unreadable,
            f.healed_seconds
                .map_or("never".into(), |s| format!("{s:.0} s")),
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
            match (f.balanced.healthy, f.balanced.agreed) {
                (true, true) => "healthy",
                (true, false) => "healthy, but against the policy",
                (false, _) => "NOT healthy",
            },
        );
    }
    text.push_str(
        "\nWith a host killed two are left, so three replicas cannot be apart: then two of a \
            block in one host are right, and counted is \
         only a block all of whose replicas are in one host. Never: the policy found no place \
            for a replica in the hosts that were left. Balancer's exit code 0: balanced; -2 or \
            -3: nothing left that it may move.\n",
    );
    text.push_str(&marks::legend(false));
    text
}

#[cfg(test)]
mod tests {
    use super::super::scaling::tests::is_right;
    use super::*;

    #[test]
    fn every_remedy_is_a_right_description() {
        for remedy in &REMEDIES {
            is_right(&described(remedy, Path::new("/work")));
        }
    }

    #[test]
    fn the_page_says_who_was_told_and_what_was_never_copied() {
        let census = |blocks, violations, fewest| Census {
            blocks,
            violations,
            fewest,
            healthy: true,
            agreed: true,
            ..Census::default()
        };
        let finding = |remedy: &Remedy, healed_seconds| DomainsFinding {
            placement: remedy.name.into(),
            replication: 3,
            written: census(8, 5, 3),
            unreadable: 1,
            killed: census(7, 0, 2),
            healed_seconds,
            waited: 0.5,
            returned: census(8, 0, 3),
            balanced: census(8, 0, 3),
            moved: 4,
            balancer_code: 0,
        };
        let findings = [finding(&UNTOLD, Some(85.2)), finding(&REMEDIES[3], None)];
        let text = page(8, "Hayloft", "c", &findings);
        assert!(
            text.contains("`stock, told of no hosts` cannot keep"),
            "{text}"
        );
        assert!(text.contains("| 5 of 8 | 1 | 85 s | 2, 0 of 7 |"), "{text}");
        assert!(
            text.contains("| 5 of 8 | 1 | never | 2, 0 of 7 |"),
            "{text}"
        );
    }
}
